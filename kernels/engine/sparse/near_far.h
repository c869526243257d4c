/* near_far.h - attention over the last few tokens and over keys that stand for many each.
 *
 * One head of keys serves all heads of queries, and a key is its own value, turned with its
 * position; so the output is turned back by the query's. A sink per head takes weight and has no
 * value. As DeepSeek-V4 has it (DeepSeek-AI, 2026, section 2.3).
 */
#ifndef SW_KERNELS_ENGINE_SPARSE_NEAR_FAR_H
#define SW_KERNELS_ENGINE_SPARSE_NEAR_FAR_H

#include <stdint.h>

#include "kernels/engine/vec/vec.h"

typedef struct sw_near_far {
    const float *q;        /* [n_seqs * seq_len, n_heads * dim] */
    const float *near;     /* [n_seqs * n_tokens, dim], rows `stride` apart; n_tokens = first +
                            * seq_len */
    int64_t stride;
    const float *far;      /* [n_seqs * n_far, dim]; the query at t sees the first (t + 1) / rate */
    int64_t n_far, rate;   /* 0, 0: there are none */
    const int32_t *chosen; /* [n_seqs * seq_len, n_chosen] of them, as sw_key_choice; NULL: all */
    int64_t n_chosen;
    float *out;            /* [n_seqs * seq_len, n_heads * dim] */
    const float *sinks;    /* [n_heads] */
    int64_t window;        /* tokens that a query sees, itself among them */
    double scale;
    int64_t n_seqs, seq_len, first, n_heads, dim;
    const float *cos, *sin; /* [first + seq_len, half]: neighbours among a head's last 2 half */
    int64_t half;           /* channels turn */
    const sw_vec *vec;
    float *scratch;        /* sw_near_far_scratch floats */
    int n_threads;
} sw_near_far;

int64_t sw_near_far_scratch(const sw_near_far *a);
/* Each query is computed the same way whatever else is in the batch. Cannot fail. */
void sw_near_far_run(const sw_near_far *a);

#endif
