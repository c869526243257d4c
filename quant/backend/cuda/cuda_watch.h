/* cuda_watch.h - how large inputs, keys and values of streams on a CUDA device get. For the CUDA
 * backend alone.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_WATCH_H
#define SW_QUANT_BACKEND_CUDA_CUDA_WATCH_H

#include "kernels/engine/device_engine.h"
#include "quant/backend/cuda/cuda.h"

/* Counts on the device on their way into a range: of what a BF16 can be, which the steps of a range
 * never part. Zero-initialise. */
typedef struct sw_cuda_range {
    int64_t *d_counts;
    uint32_t *d_most;
} sw_cuda_range;
sw_code sw_cuda_range_new(sw_cuda_range *out, sw_solver *solver, sw_err *err) SW_MUST_USE;
void sw_cuda_range_free(sw_cuda_range *range, sw_solver *solver);
sw_code sw_cuda_range_add(const sw_cuda_range *range, sw_solver *solver, const void *d_x,
                            int64_t stride, int64_t n, int64_t k, sw_err *err) SW_MUST_USE;
/* into += what was counted. */
sw_code sw_cuda_range_fetch(sw_range *into, const sw_cuda_range *range, sw_solver *solver,
                              sw_err *err) SW_MUST_USE;

/* Largest key and value. Zero-initialise. */
typedef struct sw_cuda_kv {
    int64_t k_width, v_width; /* 0: none was seen */
    float *d_k, *d_v;         /* [width] by channel */
    sw_solver *solver;
} sw_cuda_kv;
/* As sw_device_tap has it; self is an sw_cuda_kv with its solver. */
sw_code sw_cuda_kv_see(void *self, const void *d_k, int64_t k_stride, int64_t k_width,
                         const void *d_v, int64_t v_stride, int64_t v_width, int64_t n_tokens,
                         sw_err *err) SW_MUST_USE;
sw_code sw_cuda_kv_fetch(sw_kv_range *into, const sw_cuda_kv *kv, sw_err *err) SW_MUST_USE;
void sw_cuda_kv_free(sw_cuda_kv *kv); /* accepts a zeroed one */

/* Channel sizes of a site. Zero-initialise. */
typedef struct sw_cuda_sizes {
    float *d_max;
    double *d_sum;
} sw_cuda_sizes;
sw_code sw_cuda_sizes_new(sw_cuda_sizes *out, sw_solver *solver, int64_t k,
                            sw_err *err) SW_MUST_USE;
void sw_cuda_sizes_free(sw_cuda_sizes *sizes, sw_solver *solver);
/* into, which is empty, gets them; of n_tokens. */
sw_code sw_cuda_sizes_fetch(sw_channels *into, const sw_cuda_sizes *sizes, sw_solver *solver,
                              int64_t n_tokens, sw_err *err) SW_MUST_USE;

#endif
