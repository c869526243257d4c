/* mma_args.h - what the host tells a mma.sync kernel; passed by value. */
#ifndef SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_ARGS_H
#define SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes of W by what X is multiplied as. */
typedef enum mma_kind {
    MMA_INT4_FLOAT, MMA_INT8_FLOAT, MMA_E4M3_FLOAT, MMA_INT4_INT8, MMA_INT8_INT8, MMA_KIND_COUNT
} mma_kind;

typedef struct mma_args {
    const uint8_t *codes;    /* [n_tiles, k_tiles] tiles */
    const uint8_t *scales;   /* [n_tiles, n_groups, 64] of scale_bytes */
    const uint8_t *zeros;    /* [n_tiles, n_groups, 64], or NULL when symmetric */
    const uint8_t *x;        /* 16-bit [m, k_in], or codes [m, x_stride] in tile order */
    int64_t x_stride;        /* bytes */
    const float *x_scales;   /* [m], NULL: none; of groups [.., m] */
    const int32_t *x_sums;   /* [m], for 8-bit weights with zero points and int8 codes */
    uint16_t *y;             /* [m, n_out] */
    int64_t y_stride;        /* elements */
    int m, n_out, k_in;
    int n_tiles, k_tiles, n_groups;
    int whole_units;         /* units with both their blocks */
    uint32_t group_magic;    /* 2^32 over the units of a group, rounded up; 0: a unit a group */
    int unit_groups;         /* groups in a unit: 1, 2 or 4 */
    int zero_none;           /* zero point of symmetric codes */
    bool has_groups;         /* scales change along k */
    bool closes_units;       /* sums are scaled or shifted with every unit */
    bool is_plain;           /* no zero points, no groups but of a unit with 16-bit scales */
    int chunk_units;         /* units whose X fits the shared memory at once */
    int x_pitch;             /* bytes of a token's X there; 64 more than a multiple of 128 */
    int x_bytes;             /* of all tokens of a CTA */
    int slot_bytes;          /* of a warp's ring: a unit of codes, scales and zeros */
    int scale_bytes;         /* 2 or 4 */
    int tile_bytes;
    float fold;              /* what Y is multiplied by: E4M3 as f16 is 2^-8 of its value */
    bool scales_are_bf16, y_is_bf16, y_is_aligned;
    bool x_is_codes, x_is_aligned, has_x_groups;
} mma_args;

typedef struct mma_kernel {
    const void *entry;
    int depth;               /* units of a warp in flight */
} mma_kernel;

/* tile: a row of mma_tiles.def; the products of the FLOAT kinds are in bf16 or f16. */
const mma_kernel *sw_mma_kernel_int4(int tile, bool is_bf16);
const mma_kernel *sw_mma_kernel_int8(int tile, bool is_bf16);
const mma_kernel *sw_mma_kernel_e4m3(int tile, bool is_bf16);
const mma_kernel *sw_mma_kernel_integer(int tile, bool is_int8);

#ifdef __cplusplus
}
#endif
#endif
