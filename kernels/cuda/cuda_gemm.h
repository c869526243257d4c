/* cuda_gemm.h - W4A16 on Swage tiles on the device: plan, workspace, run on the caller's stream.
 *
 * Y[m, n] = sum_k X[m, k] * W[n, k], X and Y both BF16 or both F16 on the device, W in tiles whose
 * arrays lie on the device too. Sums are in fp32, in an order that depends on the plan alone: the
 * same plan gives the same bytes. Nothing here allocates.
 */
#ifndef SW_KERNELS_CUDA_CUDA_GEMM_H
#define SW_KERNELS_CUDA_CUDA_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/pack/tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_cuda_gemm {
    int64_t m;
    const void *d_x;   /* [m, k_in], row stride x_stride elements */
    int64_t x_stride;
    void *d_y;         /* [m, n_out], row stride y_stride elements */
    int64_t y_stride;
    sw_dtype dtype;    /* of X and Y: BF16 or F16 */
    sw_tiles tiles;    /* 4-bit container; codes, scales and zeros are device pointers */
    /* The weights were not written by the kernel before this one in the stream, so it may start
     * fetching them while that one still runs (programmatic dependent launch). */
    bool may_overlap;
} sw_cuda_gemm;

typedef struct sw_cuda_tile {
    const char *name;
    int n_tokens, n_channels; /* of a CTA */
    int n_stages, per_sm;
    bool is_scaled; /* weights are scaled before the product: scales must be of the type of X */
} sw_cuda_tile;

typedef struct sw_cuda_plan {
    int tile;          /* index into sw_cuda_tiles */
    int split;         /* CTAs of a cluster that share k, 1..8 */
    bool overlap;      /* starting before the kernel ahead has ended pays, if allowed */
} sw_cuda_plan;

extern const sw_cuda_tile sw_cuda_tiles[];
extern const int sw_cuda_n_tiles;

/* The plan for a device with n_sms multiprocessors; pure, needs no device.
 * SW_E_UNSUPPORTED: a dtype, container or group size that no kernel here has. */
sw_code sw_cuda_w4a16_plan(sw_cuda_plan *out, const sw_cuda_gemm *p, int n_sms,
                           sw_err *err) SW_MUST_USE;
/* Device bytes that run needs; 0 when X can be read where it lies. 16-byte aligned. */
size_t sw_cuda_w4a16_workspace_bytes(const sw_cuda_gemm *p);
/* Enqueue on `stream` (a cudaStream_t). SW_E_CUDA: what the runtime said. m = 0 does nothing. */
sw_code sw_cuda_w4a16_run(const sw_cuda_gemm *p, const sw_cuda_plan *plan, void *d_workspace,
                          void *stream, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
