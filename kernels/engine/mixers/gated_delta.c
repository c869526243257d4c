/* gated_delta.c - see gated_delta.h. */
#include "kernels/engine/mixers/gated_delta.h"

#include <string.h>

#include "formats/base/parallel.h"
#include "kernels/engine/mixers/gates.h"

#define NORM_EPS 1e-6

/* What a thread works with: the state where the caller keeps none, then one token's vectors. */
typedef struct workspace {
    float *state;                 /* [d_k, d_v] */
    float *q, *k, *keep, *kept_k; /* [d_k] */
    float *d;                     /* [d_v] */
} workspace;

int64_t sw_gated_delta_state(int64_t n_heads, int64_t d_k, int64_t d_v)
{
    return n_heads * d_k * d_v;
}

static int64_t workspace_floats(int64_t d_k, int64_t d_v) { return d_k * d_v + 4 * d_k + d_v; }

int64_t sw_gated_delta_scratch(int64_t d_k, int64_t d_v, int n_threads)
{
    return workspace_floats(d_k, d_v) * n_threads;
}

static workspace workspace_of(const sw_gated_delta *j, int thread)
{
    float *at = j->scratch + workspace_floats(j->d_k, j->d_v) * thread;
    workspace w = {.state = at};

    w.q = at + j->d_k * j->d_v;
    w.k = w.q + j->d_k;
    w.keep = w.k + j->d_k;
    w.kept_k = w.keep + j->d_k;
    w.d = w.kept_k + j->d_k;
    return w;
}

/* dst = x / sqrt(sum(x^2) + eps) * scale */
static void to_unit(float *dst, const float *x, int64_t n, double scale)
{
    double sum = 0.0;
    float factor;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    factor = (float)(scale / sqrt(sum + NORM_EPS));
    for (int64_t i = 0; i < n; i++) dst[i] = x[i] * factor;
}

/* g of a token for every key channel. */
static void find_decay(float *keep, const sw_gated_delta *j, int64_t token, int64_t head)
{
    const int64_t n = j->is_by_channel ? j->d_k : 1;
    const float *a = j->a + (token * j->n_heads + head) * n, *bias = j->dt_bias + head * n;

    for (int64_t i = 0; i < n; i++)
        keep[i] = sw_decay((double)j->a_log[head],
                           sw_softplus((double)a[i] + (double)bias[i]));
    for (int64_t i = n; i < j->d_k; i++) keep[i] = keep[0];
}

/* With k' = g * k, S^T k after the decay is S^T k' before it: the state is read once and then
 * replaced once. */
static void run_token(const sw_gated_delta *j, const workspace *w, float *state, int64_t token,
                      int64_t head)
{
    const int64_t key_head = head / (j->n_heads / j->n_key_heads), at = token * j->n_heads + head;
    const float *v = j->v + token * j->v_stride + head * j->d_v;
    const float beta = (float)(1.0 / (1.0 + exp(-(double)j->b[at])));

    to_unit(w->q, j->q + token * j->q_stride + key_head * j->d_k, j->d_k,
            1.0 / sqrt((double)j->d_k));
    to_unit(w->k, j->k + token * j->k_stride + key_head * j->d_k, j->d_k, 1.0);
    find_decay(w->keep, j, token, head);
    for (int64_t i = 0; i < j->d_k; i++) w->kept_k[i] = w->keep[i] * w->k[i];
    j->vec->state_read(w->d, state, w->kept_k, j->d_k, j->d_v);
    for (int64_t i = 0; i < j->d_v; i++) w->d[i] = beta * (v[i] - w->d[i]);
    j->vec->state_step(j->out + at * j->d_v, state, w->keep, w->k, w->d, w->q, j->d_k, j->d_v);
}

static void run_head(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_gated_delta *j = ctx;
    const int64_t seq = begin / j->n_heads, head = begin % j->n_heads, size = j->d_k * j->d_v;
    const workspace w = workspace_of(j, thread);
    float *state = j->state ? j->state + begin * size : w.state;

    (void)end;
    if (!j->state) memset(state, 0, (size_t)size * sizeof *state);
    for (int64_t t = 0; t < j->seq_len; t++) run_token(j, &w, state, seq * j->seq_len + t, head);
}

void sw_gated_delta_run(const sw_gated_delta *job)
{
    sw_gated_delta j = *job;

    sw_parallel_for(j.n_threads, j.n_seqs * j.n_heads, 1, run_head, &j);
}
