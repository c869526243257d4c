/* ssd.c - see ssd.h. */
#include "kernels/engine/mixers/ssd.h"

#include <string.h>

#include "formats/base/parallel.h"
#include "kernels/engine/mixers/gates.h"

/* What a thread works with: the state where the caller keeps none, then one token's vectors. */
typedef struct workspace {
    float *state; /* [d_state, d_head] */
    float *keep;  /* [d_state], all the same */
    float *d;     /* [d_head]: dt * x */
} workspace;

int64_t sw_ssd_state(int64_t n_heads, int64_t d_head, int64_t d_state)
{
    return n_heads * d_head * d_state;
}

static int64_t workspace_floats(int64_t d_head, int64_t d_state)
{
    return d_head * d_state + d_state + d_head;
}

int64_t sw_ssd_scratch(int64_t d_head, int64_t d_state, int n_threads)
{
    return workspace_floats(d_head, d_state) * n_threads;
}

static workspace workspace_of(const sw_ssd *j, int thread)
{
    float *at = j->scratch + workspace_floats(j->d_head, j->d_state) * thread;
    workspace w = {.state = at, .keep = at + j->d_head * j->d_state};

    w.d = w.keep + j->d_state;
    return w;
}

static void run_token(const sw_ssd *j, const workspace *w, float *state, int64_t token,
                      int64_t head)
{
    const int64_t row = token * j->stride, group = head / (j->n_heads / j->n_groups);
    const float *x = j->x + row + head * j->d_head, *b = j->b + row + group * j->d_state;
    const float *c = j->c + row + group * j->d_state;
    float *out = j->out + (token * j->n_heads + head) * j->d_head;
    const double made = sw_softplus((double)j->dt[row + head] + (double)j->dt_bias[head]);
    const double dt = made < j->dt_min ? j->dt_min : made > j->dt_max ? j->dt_max : made;
    const float keep = sw_decay((double)j->a_log[head], dt);

    for (int64_t i = 0; i < j->d_state; i++) w->keep[i] = keep;
    for (int64_t i = 0; i < j->d_head; i++) w->d[i] = (float)dt * x[i];
    j->vec->state_step(out, state, w->keep, b, w->d, c, j->d_state, j->d_head);
    j->vec->add_scaled(out, x, j->d[head], j->d_head);
}

static void run_head(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_ssd *j = ctx;
    const int64_t seq = begin / j->n_heads, head = begin % j->n_heads;
    const int64_t size = j->d_head * j->d_state;
    const workspace w = workspace_of(j, thread);
    float *state = j->state ? j->state + begin * size : w.state;

    (void)end;
    if (!j->state) memset(state, 0, (size_t)size * sizeof *state);
    for (int64_t t = 0; t < j->seq_len; t++) run_token(j, &w, state, seq * j->seq_len + t, head);
}

void sw_ssd_run(const sw_ssd *job)
{
    sw_ssd j = *job;

    sw_parallel_for(j.n_threads, j.n_seqs * j.n_heads, 1, run_head, &j);
}
