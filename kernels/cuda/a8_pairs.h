/* a8_pairs.h - the table of kernels by pairs of CTAs, for its host side. */
#ifndef SW_KERNELS_CUDA_A8_PAIRS_H
#define SW_KERNELS_CUDA_A8_PAIRS_H

#include "kernels/cuda/a8_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the two CTAs of a pair share. */
enum { SW_A8P_X, SW_A8P_W };

/* tile: a row of a8_pairs_tiles.def; grouped: scales of W change along k. */
const a8_kernel *sw_a8_pairs_int8(int tile, bool is_grouped);
const a8_kernel *sw_a8_pairs_int4(int tile, bool is_grouped);
const a8_kernel *sw_a8_pairs_int4_sym(int tile, bool is_grouped);
const a8_kernel *sw_a8_pairs_e4m3(int tile, bool is_grouped);
const a8_kernel *sw_a8_pairs_int4_e4m3(int tile, bool is_grouped);

#ifdef __cplusplus
}
#endif
#endif
