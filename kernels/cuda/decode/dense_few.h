/* dense_few.h - products of few tokens with BF16 weights. Inside cuda/. */
#ifndef SW_KERNELS_CUDA_DECODE_DENSE_FEW_H
#define SW_KERNELS_CUDA_DECODE_DENSE_FEW_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_DENSE_TOKENS_MAX 4
/* Products of few tokens with BF16 weights, which nothing that runs yet may still be writing: they
 * are read before the kernels ahead have ended. */
typedef struct sw_dense_args {
    const sw_bf16 *w;      /* [n_out, k_in] */
    const float *x, *norm; /* input: norm(x [k_in]) * norm, n 1, or */
    sw_bf16_rows rows;     /* these, when x is NULL */
    float eps;
    const float *bias;     /* [n_out] or NULL */
    float *sum;            /* sum [n_out] += product, n 1, or NULL: */
    void *y;               /* [n, n_out] BF16, or FP32 */
    int64_t y_stride;
    bool y_is_f32;
    int64_t n, n_out, k_in;
    int n_sms, sm;         /* of the device; sm as in sw_cuda_device */
} sw_dense_args;
/* On Hopper. Inputs in whole units of 64, channels in whole strips of 8, enough of both for the
 * device, and rows that leave its multiprocessors room for rings. */
bool sw_cuda_dense_can(const sw_dense_args *a);
sw_code sw_cuda_dense(const sw_dense_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
