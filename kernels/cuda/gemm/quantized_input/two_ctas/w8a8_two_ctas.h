/* w8a8_two_ctas.h - the table of kernels by pairs of CTAs, for its host side. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_TWO_CTAS_W8A8_TWO_CTAS_H

#include "kernels/cuda/gemm/quantized_input/w8a8_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the two CTAs of a pair share. */
enum { SW_A8P_X, SW_A8P_W };

/* tile: a row of w8a8_two_ctas_tiles.def; grouped: scales of W change along k. */
const w8a8_kernel *sw_w8a8_two_ctas_int8(int tile, bool is_grouped);
const w8a8_kernel *sw_w8a8_two_ctas_int4(int tile, bool is_grouped);
const w8a8_kernel *sw_w8a8_two_ctas_int4_sym(int tile, bool is_grouped);
const w8a8_kernel *sw_w8a8_two_ctas_e4m3(int tile, bool is_grouped);
const w8a8_kernel *sw_w8a8_two_ctas_int4_e4m3(int tile, bool is_grouped);

#ifdef __cplusplus
}
#endif
#endif
