/* engine_chosen.h - the device kernels of keys that are chosen one by one for every query, as C
 * functions; inside cuda/. What engine_ops.h says of rows, arithmetic and launches holds here too.
 *
 * kernels/engine/operations/indexer.c computes the same on the CPU; sparse/key_choice.h has the
 * formula and its source, sparse/key_digits.h the order of keys.
 */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_CHOSEN_H
#define SW_KERNELS_CUDA_OPS_ENGINE_CHOSEN_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Chosen keys of tokens: numbers of positions in the sequence. */
typedef struct sw_chosen_rows {
    int32_t *d;
    int64_t stride;
} sw_chosen_rows;

/* The choice of queries [row0, row0 + n) of a call. A query at position p sees keys 0 .. p. */
typedef struct sw_choice_args {
    sw_bf16_rows q;        /* [n_tokens, n_heads * dim], turned */
    const float *weights;  /* [n_tokens, n_heads] */
    const sw_bf16 *keys;   /* [n_seqs, capacity, dim], turned; those up to p are there */
    uint32_t *ranks;       /* [n, capacity] */
    sw_chosen_rows chosen; /* [n_tokens, top_k] */
    const int32_t *first;  /* as for embed */
    int64_t row0, n, seq_len, capacity;
    int64_t n_heads, dim, top_k; /* dim: a multiple of 8 */
} sw_choice_args;
/* ranks = the scores as sw_key_rank has them, of queries that see more than top_k keys. */
sw_code sw_cuda_key_ranks(const sw_choice_args *a, sw_launch how, sw_err *err) SW_MUST_USE;
/* chosen = the top_k keys of the largest ranks, of equal ones the earlier; rising, what is left of
 * a row is -1. */
sw_code sw_cuda_key_choose(const sw_choice_args *a, sw_launch how, sw_err *err) SW_MUST_USE;

/* sw_cuda_attention over the chosen keys alone, for any number of queries; without sinks, window,
 * chunk and cap, which SW_E_BUG says. */
sw_code sw_cuda_chosen_attention(const sw_attn_args *a, sw_chosen_rows chosen, int64_t top_k,
                                 sw_launch how, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
