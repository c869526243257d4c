/* w8a8_args.h - what the host tells a kernel whose inputs are bytes; passed by value: shapes
 * and arrays, and the arrays as the copy engine wants them described. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_ARGS_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_ARGS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* INT4_SYM: int4 without zero points of its own, whose codes can be taken times 16. INT4_E4M3: the
 * same for inputs in E4M3, whose codes lie as signs and magnitudes (sign_tiles.h). */
typedef enum w8a8_kind {
    W8A8_INT8,
    W8A8_INT4,
    W8A8_E4M3,
    W8A8_INT4_SYM,
    W8A8_INT4_E4M3,
    W8A8_KIND_COUNT
} w8a8_kind;

/* What changes along k: nothing, with codes of int8 in columns; scales of W; those of X too; both,
 * but those of W in blocks of 128 channels x 128 inputs, so that a block of Y has one a stage, and
 * codes in columns. Of int8 in the persistent kernels also nothing, with tokens as rows. */
typedef enum w8a8_mode {
    W8A8_PLAIN,
    W8A8_GROUPED,
    W8A8_X_GROUPS,
    W8A8_X_BLOCKS,
    W8A8_PLAIN_ROWS
} w8a8_mode;

#define SW_W8A8_RECORD_BYTES 256 /* room for a tile's scales of a group */

/* How clusters of a persistent kernel go through Y: blocks side by side by channel and by token,
 * how many of them a cluster does by itself, and the same with the halves of the others. */
typedef struct w8a8_grid {
    int by_channel, by_token, n_whole, n_all;
} w8a8_grid;

typedef struct w8a8_args {
    const uint8_t *codes;    /* [n_tiles, k_tiles] tiles */
    const uint8_t *scales;   /* [n_tiles, n_groups, 64] of scale_bytes */
    const uint8_t *zeros;    /* [n_tiles, n_groups, 64], or NULL when symmetric */
    const float *x_scales;   /* [m], or of groups [.., m] */
    const int32_t *x_sums;   /* [m] */
    uint16_t *y;             /* [m, n_out] */
    int64_t y_stride;        /* elements */
    int m, n_out;
    int n_tiles, k_tiles, n_groups;
    int group_stages;        /* stages of 128 inputs in a group; 0: one group for all */
    int scale_bytes;         /* 2 or 4 */
    int record_bytes;        /* from one tile's scales to the next one's, in a stage */
    int tile_bytes, zero_none;
    int split;               /* CTAs of a cluster, which share k */
    int gate_tiles;          /* tiles of gates: Y is [m, n_out / 2], glu_act(gate) * up; 0: none */
    int glu_act;             /* an sw_mlp_act */
    float glu_limit;
    w8a8_grid grid;          /* of the persistent kernels */
    int x_rows;              /* that a block brings of X: as many as there are tokens, if fewer */
    bool scales_are_bf16, y_is_bf16, y_is_aligned, has_x_groups;
    bool in_columns;         /* the order of codes: column_tiles.h */
} w8a8_args;

#define SW_W8A8_BLOCK_BYTES 2048 /* of codes: a tile of 4 bits, half a tile of 8 */

/* What the copy engine brings, a box a stage: bytes beyond an array come as zeros. */
typedef struct w8a8_maps {
    CUtensorMap x;      /* [m, codes of a row]: 128 codes x T tokens, 128 B swizzle */
    CUtensorMap codes;  /* [n_tiles, blocks along k, 2 KB]: a CTA's x a stage's x all */
    CUtensorMap scales; /* [n_tiles, n_groups, 64]: a CTA's x 1 x all; where they change along k */
    CUtensorMap zeros;  /* the same in bytes; not set when symmetric */
} w8a8_maps;

/* Of the persistent kernels. */
typedef struct a8l_maps {
    CUtensorMap x; /* as above */
    CUtensorMap y; /* [m, n_out]: 64 channels x 64 tokens; not set where its rows are not aligned */
    CUtensorMap w; /* codes, as above or in columns: see column_tiles.h */
    CUtensorMap scales, zeros; /* as above */
} a8l_maps;

/* What the two CTAs of a pair share; K: a block of Y, of which each takes half of k. */
enum { SW_A8P_X, SW_A8P_W, SW_A8P_K };

typedef struct w8a8_kernel {
    const void *entry;
    int shared_bytes, n_threads;
} w8a8_kernel;

/* For many tokens. NULL: none. */
#define SW_W8A8_KIND_ROW(kind, name) \
    const w8a8_kernel *sw_w8a8_persistent_##name(w8a8_mode mode, bool y_is_bf16);
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
/* CTAs of a cluster, which share what they bring of X: of 8-bit weights where no scales of channels
 * change along k, and of 4-bit ones with X in E4M3. The others gain nothing by it. */
#define SW_A8L_CTAS(kind, mode)                                                                    \
    ((kind) == W8A8_INT4_E4M3 || (((kind) == W8A8_E4M3 || (kind) == W8A8_INT8) &&                  \
                                  ((mode) == W8A8_PLAIN || (mode) == W8A8_X_BLOCKS))               \
         ? 2                                                                                       \
         : 1)

/* tile: a row of w8a8_split_k_tiles.def. */
#define SW_W8A8_KIND_ROW(kind, name) \
    const w8a8_kernel *sw_w8a8_split_k_##name(int tile, w8a8_mode mode);
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW

#ifdef __cplusplus
}
#endif
#endif
