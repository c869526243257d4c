/* w4a16_persistent_args.h - what the host tells a kernel of int4 weights and many tokens; by value.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_ARGS_H
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_PERSISTENT_W4A16_PERSISTENT_ARGS_H

#include "kernels/cuda/gemm/weight_only/weight_only_args.h"
#include "kernels/cuda/gemm/weight_only/weight_only_maps.cuh"

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

#endif
