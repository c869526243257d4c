/* w4a16_args.h - what the host tells a W4A16 kernel; passed by value. */
#ifndef SW_KERNELS_CUDA_W4A16_ARGS_H
#define SW_KERNELS_CUDA_W4A16_ARGS_H

#include <stdint.h>

typedef struct w4_args {
    const uint8_t *codes;   /* [n_tiles, k_tiles] tiles of 2048 bytes */
    const uint16_t *scales; /* [n_tiles, n_groups, 64] */
    const uint8_t *zeros;   /* [n_tiles, n_groups, 64], or NULL when symmetric */
    uint16_t *y;            /* [n_tokens, n_out] */
    int64_t y_stride;       /* elements */
    int n_tokens, n_out;
    int n_tiles, k_tiles, n_groups;
    int group_stages;       /* k-stages of 128 inputs in a group; 0: one group for all */
    int scales_are_bf16;
    int y_is_aligned;       /* rows of Y start at multiples of 16 bytes */
    int has_ragged_groups;  /* the last stage has fewer groups than others */
} w4_args;

#endif
