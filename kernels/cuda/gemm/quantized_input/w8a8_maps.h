/* w8a8_maps.h - the arrays of a byte kernel as the copy engine wants them described. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_MAPS_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_MAPS_H

#include <cuda.h>

#define SW_W8A8_BLOCK_BYTES 2048 /* of codes: a tile of 4 bits, half a tile of 8 */

/* What the copy engine brings, a box a stage: bytes beyond an array come as zeros. */
typedef struct w8a8_maps {
    CUtensorMap x;      /* [m, codes of a row]: 128 codes x T tokens, 128 B swizzle */
    CUtensorMap codes;  /* [n_tiles, blocks along k, 2 KB]: a CTA's x a stage's x all */
    CUtensorMap scales; /* [n_tiles, n_groups, 64]: a CTA's x 1 x all; where they change along k */
    CUtensorMap zeros;  /* the same in bytes; not set when symmetric */
} w8a8_maps;

#endif
