/* w8a8_two_ctas.h - the table of kernels by pairs of CTAs, for its host side. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_H

#include "kernels/cuda/gemm/quantized_input/w8a8_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* tile: a row of w8a8_two_ctas_tiles.def. NULL: none. */
#define SW_W8A8_KIND_ROW(kind, name) \
    const w8a8_kernel *sw_w8a8_two_ctas_##name(int tile, w8a8_mode mode);
#include "kernels/cuda/gemm/quantized_input/w8a8_kinds.def"
#undef SW_W8A8_KIND_ROW
/* What the copy engine brings to tiles that have tokens as rows: X, and codes in columns, by boxes
 * of whole tiles, or of halves of them, and of the rest. */
typedef struct a8c_maps {
    CUtensorMap x, tiles, rest;
} a8c_maps;

/* Of E4M3 with scales of blocks and codes in columns; tile: a row of w8a8_two_ctas_rows.def. */
const w8a8_kernel *sw_w8a8_two_ctas_rows(int tile);

#ifdef __cplusplus
}
#endif
#endif
