/* w4a16_many.h - the choice of tiles for more than 64 tokens, which both rows of W4A16 ask for. */
#ifndef SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_W4A16_MANY_H
#define SW_KERNELS_CUDA_GEMM_WEIGHT_ONLY_W4A16_MANY_H

#include "kernels/cuda/gemm/gemm_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of Y of w4a16_persistent, or of a pair two side by side; how many CTAs or pairs there are
 * for them, and how many blocks are done whole: where the last round leaves half of those idle, or
 * more, its blocks are halved. */
typedef struct nwl_blocks {
    int64_t all, whole, slots;
    bool is_paired;
} nwl_blocks;

nwl_blocks sw_w4a16_persistent_blocks_of(const sw_cuda_gemm *p, int tile, int n_sms);

/* Whether p has more than 64 tokens and weights that all tiles can take. */
bool sw_w4a16_are_many(const sw_cuda_gemm *p);
/* The plan by w4a16_persistent, or by w4a16_split_k, for p that are many: what was counted for both
 * rows, if this one's was the better, else counted anew. out->kernel is the caller's. */
void sw_w4a16_plan_many(sw_cuda_plan *out, const sw_cuda_gemm *p, const sw_cuda_device *device,
                        bool stays, const sw_cuda_counted *counted);
/* Whether w4a16_persistent leaves the busiest multiprocessor less to do. Counts both rows once, in
 * *counted. */
bool sw_w4a16_stays(sw_cuda_counted *counted, const sw_cuda_gemm *p, const sw_cuda_device *device);

#ifdef __cplusplus
}
#endif

#endif
