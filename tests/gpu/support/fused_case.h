/* fused_case.h - weights of products of one token, for tests. */
#ifndef SW_TESTS_GPU_SUPPORT_FUSED_CASE_H
#define SW_TESTS_GPU_SUPPORT_FUSED_CASE_H

#include "kernels/cuda/decode/decode_chain.h"
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
/* These live until the device is closed; the chain is the caller's. */
sw_tiles fused_tiles(sw_device *gpu, const sw_qtensor *q);
void *zeros_on_device(sw_device *gpu, int64_t size_bytes);
sw_decode_chain *chain_on_device(sw_device *gpu, const sw_attn_args *shape);
/* As a step of the chain, which must take it; without one by a kernel of its own. */
sw_code fused_enqueue(sw_decode_chain *chain, const sw_fused_args *a, sw_launch how, sw_err *err);

#endif
