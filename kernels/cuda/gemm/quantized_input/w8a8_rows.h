/* w8a8_rows.h - what the rows of the table that take 8-bit inputs share. */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_ROWS_H
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_ROWS_H

#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/quantized_input/w8a8_args.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_W8A8_STAGE_K 128
#define SW_W8A8_INTEGER_K_MAX 131072 /* sums of 128 * 127 that fit 32 bits */

w8a8_kind sw_w8a8_kind_of(const sw_cuda_gemm *p); /* KIND_COUNT: none that these kernels take */
/* The same, with int4 without zero points of its own as a kind apart. */
w8a8_kind sw_w8a8_instance_of(const sw_cuda_gemm *p);
bool sw_w8a8_is_grouped(const sw_cuda_gemm *p);   /* scales, of W or X, change along k */
w8a8_args sw_w8a8_args_of(const sw_cuda_gemm *p, int split);
/* Raise the kernel's shared memory and launch it. */
sw_code sw_w8a8_launch(const sw_cuda_gemm *p, const w8a8_kernel *kernel, const char *name,
                       int n_blocks, int cluster, bool overlap, const w8a8_args *args, int n_tokens,
                       void *stream, sw_err *err) SW_MUST_USE;
/* What the copy engine brings: X in boxes of so many tokens, weights and scales of so many tiles.
 */
sw_code sw_w8a8_map(w8a8_maps *maps, const sw_cuda_gemm *p, int box_tokens, int box_tiles,
                    sw_err *err) SW_MUST_USE;
/* Raise the kernel's shared memory and launch it with these parameters. */
sw_code sw_w8a8_start(const w8a8_kernel *kernel, const char *name, int n_ctas, int cluster,
                      bool overlaps, void **params, void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
