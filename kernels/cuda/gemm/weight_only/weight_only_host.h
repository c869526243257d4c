/* weight_only_host.h - what the launches of the kernels of weights in 4 or 8 bits and 16-bit inputs
 * share.
 */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_HOST_H
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_WEIGHT_ONLY_HOST_H

#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/weight_only/weight_only_args.h"
#include "kernels/cuda/gemm/weight_only/weight_only_maps.cuh"

#ifdef __cplusplus
extern "C" {
#endif

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
