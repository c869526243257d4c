/* ssd.h - the state-space step of Mamba-2.
 *
 * Every head h has a state S [d_state, d_head], zero at the start of a sequence, and reads the B
 * and C of group h / (n_heads / n_groups). Per token:
 *
 *   dt = min(max(softplus(dt + dt_bias), dt_min), dt_max)
 *   S = exp(-exp(a_log) * dt) * S + B (dt * x)^T
 *   out = S^T C + d * x
 *
 * Dao and Gu, Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
 * State Space Duality (2024): the scalar decay of section 5 and the groups of section 7.2. The
 * state is stored transposed against the paper's, so that a row of it is a run of head channels.
 */
#ifndef SW_KERNELS_ENGINE_MIXERS_SSD_H
#define SW_KERNELS_ENGINE_MIXERS_SSD_H

#include <stdint.h>

#include "kernels/engine/vec/vec.h"

typedef struct sw_ssd {
    const float *x;       /* [n_seqs * seq_len, n_heads * d_head] */
    const float *b, *c;   /* [n_seqs * seq_len, n_groups * d_state] each */
    const float *dt;      /* [n_seqs * seq_len, n_heads] */
    int64_t stride;       /* floats from one token's row to the next one's, in all four */
    const float *a_log, *d, *dt_bias; /* [n_heads] each */
    double dt_min, dt_max;            /* 0 and infinity: no limits */
    float *state;         /* [n_seqs, n_heads, d_state, d_head], read and replaced. NULL: zeros, and
                           * nothing is remembered */
    float *out;           /* [n_seqs * seq_len, n_heads * d_head], not where the inputs are */
    int64_t n_seqs, seq_len, n_heads, n_groups, d_head, d_state;
    const sw_vec *vec;
    float *scratch;       /* sw_ssd_scratch floats */
    int n_threads;
} sw_ssd;

/* Floats of the state of one sequence, and of the scratch space of a run. */
int64_t sw_ssd_state(int64_t n_heads, int64_t d_head, int64_t d_state);
int64_t sw_ssd_scratch(int64_t d_head, int64_t d_state, int n_threads);
/* In float32, one task per sequence and head, token after token: the same bytes whatever the batch,
 * the cut into calls and the number of threads. Allocates nothing and cannot fail. */
void sw_ssd_run(const sw_ssd *job);

#endif
