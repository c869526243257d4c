/* gated_delta.h - linear attention by the gated delta rule.
 *
 * Every value head h has a state S [d_k, d_v], zero at the start of a sequence; it reads key head
 * h / (n_heads / n_key_heads). Per token:
 *
 *   q = q / sqrt(sum(q^2) + 1e-6) * d_k^-0.5,  k = k / sqrt(sum(k^2) + 1e-6)
 *   beta = sigmoid(b)
 *   g = exp(-exp(a_log) * softplus(a + dt_bias))
 *   S = g * S                  by rows where g has an element per key channel
 *   S = S + k (beta * (v - S^T k))^T
 *   out = S^T q
 *
 * One g per head: Yang, Kautz and Hatamizadeh, Gated Delta Networks: Improving Mamba2 with Delta
 * Rule (2024), section 3.1, equation 10, whose alpha is g. One g per key channel: Kimi Delta
 * Attention (Kimi Linear: An Expressive, Efficient Attention Architecture, 2025, section 3).
 * The delta rule itself is Schlag, Irie and Schmidhuber (2021).
 */
#ifndef SW_KERNELS_ENGINE_MIXERS_GATED_DELTA_H
#define SW_KERNELS_ENGINE_MIXERS_GATED_DELTA_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/vec/vec.h"

typedef struct sw_gated_delta {
    const float *q, *k;   /* [n_seqs * seq_len, n_key_heads * d_k] each, not normalized */
    const float *v;       /* [n_seqs * seq_len, n_heads * d_v] */
    int64_t q_stride, k_stride, v_stride; /* floats from one token's row to the next one's */
    const float *b;       /* [n_seqs * seq_len, n_heads] */
    const float *a;       /* likewise, or [n_seqs * seq_len, n_heads * d_k] by channel */
    const float *a_log;   /* [n_heads] */
    const float *dt_bias; /* [n_heads], or [n_heads * d_k] by channel */
    bool is_by_channel;
    float *state;         /* [n_seqs, n_heads, d_k, d_v], read and replaced. NULL: zeros, and
                           * nothing is remembered */
    float *out;           /* [n_seqs * seq_len, n_heads * d_v], not where q, k or v are */
    int64_t n_seqs, seq_len, n_heads, n_key_heads, d_k, d_v;
    const sw_vec *vec;
    float *scratch;       /* sw_gated_delta_scratch floats */
    int n_threads;
} sw_gated_delta;

/* Floats of the state of one sequence, and of the scratch space of a run. */
int64_t sw_gated_delta_state(int64_t n_heads, int64_t d_k, int64_t d_v);
int64_t sw_gated_delta_scratch(int64_t d_k, int64_t d_v, int n_threads);
/* In float32, one task per sequence and value head, token after token: the same bytes whatever the
 * batch, the cut into calls and the number of threads. Allocates nothing and cannot fail. */
void sw_gated_delta_run(const sw_gated_delta *job);

#endif
