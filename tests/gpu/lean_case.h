/* lean_case.h - weights of products of one token, for tests. */
#ifndef SW_TESTS_GPU_LEAN_CASE_H
#define SW_TESTS_GPU_LEAN_CASE_H

#include "kernels/cuda/chain.h"
#include "tests/gpu/card.h"

#define F16 SW_DTYPE_F16
#define F32 SW_DTYPE_F32

typedef struct lean_case {
    int64_t n_out, k_in, group;
    bool is_asymmetric, has_norm, has_bias;
    sw_lean_out out;
    sw_dtype scale_dtype;
    sw_num_id num;        /* 0: INT4; bytes have inputs of their own kind, */
    sw_act_scope scope;   /* quantized so */
} lean_case;

/* Random codes and scales; the caller frees. */
void lean_weight(sw_qtensor *out, const lean_case *c, uint64_t seed);
/* How the inputs are quantized. */
void lean_act(sw_lean_args *a, const lean_case *c);
/* These live until the card is closed; the chain is the caller's. */
sw_tiles lean_tiles(sw_gpu *gpu, const sw_qtensor *q);
void *zeros_on_card(sw_gpu *gpu, int64_t size_bytes);
sw_chain *chain_on_card(sw_gpu *gpu, const sw_attn_args *shape);
/* As a step of the chain, which must take it; without one by a kernel of its own. */
sw_code lean_enqueue(sw_chain *chain, const sw_lean_args *a, sw_launch how, sw_err *err);

#endif
