/* decode.h - blocks of any weight into floats, in the natural order of k. */
#ifndef SW_KERNELS_CPU_DECODE_H
#define SW_KERNELS_CPU_DECODE_H

#include "kernels/kernel.h"

/* dst f32 [n_rows, ld] = W[n0 .. n0 + n_rows, k0 .. k0 + n_k], exactly. For tiles n0 and k0 are
 * multiples of 64; ld is at least n_k rounded up to 64, since whole tiles are written, and dst
 * has room for n_rows rounded up to 64. */
void sw_decode_block(float *dst, int64_t ld, const sw_weight *w, int64_t n0, int64_t n_rows,
                     int64_t k0, int64_t n_k);

#endif
