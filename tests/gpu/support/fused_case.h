/* fused_case.h - weights of products of one token, for tests. */
#ifndef SW_TESTS_GPU_SUPPORT_FUSED_CASE_H
#define SW_TESTS_GPU_SUPPORT_FUSED_CASE_H

#include "kernels/cuda/ops/engine_ops.h"
#include "tests/gpu/support/device_case.h"

#define F16 SW_DTYPE_F16
#define F32 SW_DTYPE_F32

typedef struct fused_case {
    int64_t n_out, k_in, group;
    bool is_asymmetric, has_norm, has_bias;
    sw_fused_out out;
    sw_dtype scale_dtype;
    sw_num_id num;        /* 0: INT4; bytes have inputs of their own kind, */
    sw_act_scope scope;   /* quantized so */
} fused_case;

/* Random codes and scales; the caller frees. */
void fused_weight(sw_qtensor *out, const fused_case *c, uint64_t seed);
/* How the inputs are quantized. */
void fused_act(sw_fused_args *a, const fused_case *c);
/* These live until the device is closed. */
sw_tiles fused_tiles(sw_device *gpu, const sw_qtensor *q);

#endif
