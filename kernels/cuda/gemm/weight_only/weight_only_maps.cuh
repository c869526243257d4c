/* weight_only_maps.cuh - the arrays of a weight-only kernel as the copy engine wants them
 * described. */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_MAPS_CUH
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_MAPS_CUH

#include <cuda.h>

/* What the copy engine brings, a box a stage: bytes beyond an array come as zeros. */
typedef struct nw_maps {
    CUtensorMap x;      /* [n_tokens, k_in]: 64 inputs x T tokens, 128 B swizzle */
    CUtensorMap codes;  /* [n_tiles, blocks along k, 2 KB]: C / 64 x blocks of a stage x all */
    CUtensorMap scales; /* [n_tiles, n_groups, 64]: C / 64 x groups of a stage x all */
    CUtensorMap zeros;  /* the same in bytes; not set when symmetric */
} nw_maps;

#endif
