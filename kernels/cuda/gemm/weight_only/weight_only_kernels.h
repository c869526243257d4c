/* weight_only_kernels.h - the compiled kernels of weights in 2 to 8 bits and 16-bit inputs, by tile
 * and by how a stage is cut into groups, and how one is launched. */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_KERNELS_H
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_KERNELS_H

#include <stdbool.h>

#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/weight_only/weight_only_args.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nw_kernel {
    const void *entry;
    int shared_bytes, n_threads;
} nw_kernel;

/* Those of 4, 3 and 2 bits; tile: a row of w4a16_tiles.def; cut: 0, 1, 2 for groups of at least
 * 128, of 64, of 32. An entry of NULL: not compiled. */
const nw_kernel *sw_w4a16_bf16(int tile, int cut, bool has_zeros);
/* Of scaled tiles, for weights that sw_weight_only_is_fused takes. */
const nw_kernel *sw_w4a16_bf16_fused(int tile, int cut, bool has_zeros);
const nw_kernel *sw_w4a16_f16(int tile, int cut, bool has_zeros);
const nw_kernel *sw_w4a16_bf16_3(int tile, int cut, bool has_zeros);
const nw_kernel *sw_w4a16_f16_3(int tile, int cut, bool has_zeros);
const nw_kernel *sw_w4a16_bf16_2(int tile, int cut, bool has_zeros);
const nw_kernel *sw_w4a16_f16_2(int tile, int cut, bool has_zeros);

#define SW_WEIGHT_ONLY_STAGE_K 128 /* inputs in a k-stage */

/* 4, 3 or 2: bits of integer codes that these kernels read as they lie; else 0. */
int sw_weight_only_bits_of(const sw_tiles *tiles);
/* Groups of a stage as 0, 1, 2 for 1, 2, 4 of them; -1 when no kernel cuts groups so. */
int sw_weight_only_cut_of(const sw_tiles *tiles);
/* Whether nw_fused_batch makes the same weights of p as a subtraction and a product: int4 without
 * zero points, known to have usual scales, in BF16 as X is. */
bool sw_weight_only_is_fused(const sw_cuda_gemm *p);
/* Into how many CTAs k is split so that the longest run of stages on a multiprocessor is short. */
int sw_weight_only_split_for(const sw_cuda_tile *tile, const sw_cuda_gemm *p,
                             const sw_cuda_device *device);
/* Bytes for a copy of X, where its rows start at addresses that the copy engine cannot take. */
size_t sw_weight_only_workspace_bytes(const sw_cuda_gemm *p);
/* Enqueue `kernel`, cut as `tile` says. */
sw_code sw_weight_only_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan,
                           const sw_cuda_tile *tile, const nw_kernel *kernel, void *d_workspace,
                           void *stream, sw_err *err) SW_MUST_USE;

/* What it is made of, for the launches of other kernels of this family. */
nw_args sw_weight_only_args_of(const sw_cuda_gemm *p);
/* The weights in boxes of a stage and `box_tiles` tiles of channels. */
sw_code sw_weight_only_map_weights(nw_maps *maps, const sw_cuda_gemm *p, int box_tiles,
                                   sw_err *err) SW_MUST_USE;
/* X in boxes of 64 inputs and so many tokens; of a copy in the workspace, which is enqueued here,
 * where the copy engine cannot take its rows. */
sw_code sw_weight_only_map_x(nw_maps *maps, const sw_cuda_gemm *p, int box_tokens,
                             void *d_workspace, void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
