/* w4a16_persistent_args.h - the kernels of int4 weights and many tokens as the host sees them: what
 * it tells them, by value, and those that are compiled.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_ARGS_H
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_ARGS_H

#include <stdbool.h>

#include "kernels/cuda/gemm/weight_only/weight_only_args.h"

#define NWL_BAND 8        /* blocks of tokens that are walked side by side */
#define NWL_BOX_TOKENS 64 /* of a box of X: both whole blocks and halves are made of these */

typedef struct nwl_maps {
    nw_maps in;         /* x: 64 inputs x NWL_BOX_TOKENS, the rest as there */
    CUtensorMap y;      /* [n_tokens, n_out]: 64 channels x the tokens of a park, 128 B swizzle */
} nwl_maps;

typedef struct nwl_args {
    nw_args a;
    int n_whole;        /* blocks that are done whole */
    int n_units;        /* these and the halves */
} nwl_args;

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nwl_kernel {
    const void *entry; /* NULL: not compiled */
    int shared_bytes, n_threads;
    int park_tokens;   /* of a box of Y */
} nwl_kernel;

/* tile: a row of w4a16_persistent_tiles.def; cut: 0, 1, 2 for groups of at least 128, of 64, of 32.
 */
const nwl_kernel *sw_w4a16_persistent_bf16(int tile, int cut, bool has_zeros);
/* Of groups of at least 128, for weights that sw_weight_only_is_fused takes. */
const nwl_kernel *sw_w4a16_persistent_bf16_fused(int tile, int cut, bool has_zeros);
const nwl_kernel *sw_w4a16_persistent_f16(int tile, int cut, bool has_zeros);
const nwl_kernel *sw_w4a16_persistent_bf16_3(int tile, int cut, bool has_zeros);
const nwl_kernel *sw_w4a16_persistent_f16_3(int tile, int cut, bool has_zeros);
const nwl_kernel *sw_w4a16_persistent_bf16_2(int tile, int cut, bool has_zeros);
const nwl_kernel *sw_w4a16_persistent_f16_2(int tile, int cut, bool has_zeros);

#ifdef __cplusplus
}
#endif

#endif
