/* weight_only_args.h - what the host tells a kernel of weights in 2 to 8 bits and 16-bit inputs, by
 * value: shapes and arrays, and the arrays as the copy engine wants them described.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_ARGS_H
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_ARGS_H

#include <cuda.h>
#include <stdint.h>

enum { NW_INT4, NW_INT8, NW_E4M3, NW_E2M1, NW_INT2, NW_INT3 }; /* codes of the weights */
/* Where scales come in, see weight_only_wgmma.cuh; NW_PAIRS: weight_only_pairs.cuh. */
enum { NW_GROUPS, NW_SCALED, NW_CHANNEL, NW_PAIRS };

typedef struct nw_args {
    const uint8_t *scales;  /* [n_tiles, n_groups, 64] of scale_bytes */
    uint16_t *y;            /* [n_tokens, n_out] */
    int64_t y_stride;       /* elements */
    int n_tokens, n_out;
    int x_rows;             /* of a block's box of X: as many as there are tokens, if fewer */
    int n_tiles, k_tiles;
    int group_stages;       /* k-stages of 128 inputs in a group; 0: one group for all */
    int scale_bytes;        /* 2; of 8-bit codes 2 or 4 */
    int scales_are_bf16;
    int y_is_aligned;       /* rows of Y start at multiples of 16 bytes */
    int split;              /* CTAs of a cluster */
    int has_gates;          /* Y is [n_tokens, n_out / 2]: glu_act(gate) * up */
    int glu_act;            /* an sw_mlp_act */
    float glu_limit;
} nw_args;

/* What the copy engine brings, a box a stage: bytes beyond an array come as zeros. */
typedef struct nw_maps {
    CUtensorMap x;      /* [n_tokens, k_in]: 64 inputs x T tokens, 128 B swizzle */
    /* Of gates and ups n_tiles is two times half as many, and C / 128 of each are a box. */
    CUtensorMap codes;  /* [n_tiles, blocks along k, 2 KB; of 2 and 3 bits 1 and 1.5 KB]: C / 64 x
                           blocks of a stage x all */
    CUtensorMap scales; /* [n_tiles, n_groups, 64]: C / 64 x groups of a stage x all */
    CUtensorMap zeros;  /* the same in bytes; not set when symmetric */
} nw_maps;

#endif
