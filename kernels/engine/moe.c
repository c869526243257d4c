/* moe.c - a sparse feed-forward layer: route, gather per expert, one product each, scatter back.
 *
 * Router arithmetic is f32. One kind takes a softmax over all experts and the n_experts_used
 * largest (ties to the lower index), renormalized when the model says so. Another takes sigmoids,
 * adds a shift, keeps the groups whose two best sum highest, and the best experts in
 * them; weights are the sigmoids without the shift (DeepSeek-V3 report, 2024, section 2.1.2).
 * A third scales what an expert reads, by the sigmoid of its logit, and not what it puts out.
 * Experts run in index order, and so do the sums of their outputs.
 */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/engine/engine_internal.h"

sw_code sw_moe_scratch_new(sw_moe_scratch *out, const sw_model *m, int64_t max_tokens, sw_err *err)
{
    const int64_t n_used = max_tokens * m->n_experts_used;
    sw_moe_scratch s = {0};
    sw_code rc;

    if ((rc = SW_MEM_GET(&s.probs, max_tokens * m->n_experts, "router", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s.ranks, max_tokens * m->n_experts, "router", err)) ||
        (rc = SW_MEM_GET(&s.groups, max_tokens * m->n_expert_groups, "router", err)) ||
        (rc = SW_MEM_GET(&s.rows, max_tokens * m->moe_hidden, "expert inputs", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s.out, max_tokens * m->moe_hidden, "expert outputs", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s.gate, max_tokens * m->moe_intermediate, "expert gates", err)) ||
        (rc = SW_MEM_GET(&s.up, max_tokens * m->moe_intermediate, "expert ups", err)) ||
        (rc = SW_MEM_GET(&s.chosen, n_used, "chosen experts", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s.share, n_used, "expert weights", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s.tokens, n_used, "routed tokens", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s.token_share, n_used, "routed weights", err)) != SW_OK ||
        (rc = SW_MEM_GET(&s.starts, m->n_experts + 1, "expert starts", err)) != SW_OK)
        sw_moe_scratch_free(&s);
    else
        *out = s;
    return rc;
}

void sw_moe_scratch_free(sw_moe_scratch *moe)
{
    sw_mem_put(moe->probs);
    sw_mem_put(moe->ranks);
    sw_mem_put(moe->groups);
    sw_mem_put(moe->rows);
    sw_mem_put(moe->out);
    sw_mem_put(moe->gate);
    sw_mem_put(moe->up);
    sw_mem_put(moe->chosen);
    sw_mem_put(moe->share);
    sw_mem_put(moe->tokens);
    sw_mem_put(moe->token_share);
    sw_mem_put(moe->starts);
    memset(moe, 0, sizeof *moe);
}

/* The next expert in order of falling probability, then rising index; -1 asks for the first.
 * Probabilities are numbers. */
static int32_t next_best(const float *probs, int64_t n, int32_t previous)
{
    int32_t best = -1;

    for (int32_t i = 0; i < (int32_t)n; i++) {
        const bool is_left = previous < 0 || probs[i] < probs[previous] ||
                             (probs[i] == probs[previous] && i > previous);

        if (is_left && (best < 0 || probs[i] > probs[best])) best = i;
    }
    return best;
}

/* The sum of the two largest of n >= 2. */
static float best_two(const float *x, int64_t n)
{
    float first = x[0] > x[1] ? x[0] : x[1], second = x[0] > x[1] ? x[1] : x[0];

    for (int64_t i = 2; i < n; i++) {
        if (x[i] > first) {
            second = first;
            first = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return first + second;
}

/* Only the experts of the best groups stay in the running. */
static void drop_groups(const sw_model *m, float *ranks, float *groups)
{
    const int64_t n = m->n_expert_groups, size = m->n_experts / n;
    int32_t best = -1;

    if (m->n_groups_used == n) return;
    for (int64_t g = 0; g < n; g++) groups[g] = best_two(ranks + g * size, size);
    for (int64_t i = 0; i < m->n_groups_used; i++) best = next_best(groups, n, best);
    for (int64_t g = 0; g < n; g++) { /* `best` is the last that stays */
        if (groups[g] > groups[best] || (groups[g] == groups[best] && g <= best)) continue;
        for (int64_t e = g * size; e < (g + 1) * size; e++) ranks[e] = -INFINITY;
    }
}

typedef struct route_job {
    const sw_engine *e;
    const float *shift;        /* [n_experts] on what experts are chosen by, or NULL */
    const int32_t *table;      /* [vocab, n_experts_used] experts of a token, or NULL */
    const float *expert_scale; /* [n_experts] on the weights of chosen experts, or NULL */
} route_job;

static void sqrt_softplus(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];

        x[i] = (float)sqrt(v > 0.0 ? v + log1p(exp(-v)) : log1p(exp(v)));
    }
}

/* What the table says of the token in row t, whose id lies in the side rows. */
static const int32_t *experts_of(const route_job *job, int64_t t)
{
    const sw_model *m = job->e->m;
    uint32_t id = 0;

    memcpy(&id, job->e->side + t * sw_model_side_width(m) + sw_model_side_of_token(m), sizeof id);
    return job->table + (int64_t)id * m->n_experts_used;
}

/* Logits of token t into the weights its experts may get; *ranks is what they are chosen by.
 * false: the input was not finite. */
static bool weigh_experts(const route_job *job, float **ranks, int64_t t)
{
    const sw_engine *e = job->e;
    const int64_t n = e->m->n_experts;
    float *probs = e->moe.probs + t * n, total = 0.0f;

    if (e->m->router_scale != 1.0) e->vec->scale(probs, (float)e->m->router_scale, n);
    *ranks = probs;
    if (e->m->router == SW_ROUTER_SOFTMAX) {
        total = e->vec->exp_sum(probs, e->vec->max(probs, n), n);
        e->vec->scale(probs, 1.0f / total, n);
        if (!job->shift || !isfinite(total)) return isfinite(total);
    }
    *ranks = e->moe.ranks + t * n;
    if (e->m->router == SW_ROUTER_INPUT) memcpy(*ranks, probs, (size_t)n * sizeof **ranks);
    if (e->m->router == SW_ROUTER_SQRT_SOFTPLUS)
        sqrt_softplus(probs, n);
    else if (e->m->router != SW_ROUTER_SOFTMAX)
        e->vec->sigmoid(probs, n);
    total = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        if (e->m->router != SW_ROUTER_INPUT)
            (*ranks)[i] = job->shift ? probs[i] + job->shift[i] : probs[i];
        total += (*ranks)[i];
    }
    if (!isfinite(total)) return false;
    drop_groups(e->m, *ranks, e->moe.groups + t * e->m->n_expert_groups);
    return true;
}

static void choose_experts(void *ctx, int64_t begin, int64_t end, int thread)
{
    const route_job *job = ctx;
    const sw_engine *e = job->e;
    const sw_model *m = e->m;
    const int64_t n = m->n_experts, k = m->n_experts_used;
    const bool is_floored = m->router == SW_ROUTER_SIGMOID || m->router == SW_ROUTER_SQRT_SOFTPLUS;
    const float tiny = is_floored ? 1e-20f : 0.0f; /* they may all be 0 */

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *probs = e->moe.probs + t * n, *share = e->moe.share + t * k, sum = tiny, *ranks;
        const bool is_finite = weigh_experts(job, &ranks, t);
        int32_t best = -1;

        for (int64_t i = 0; i < k; i++) {
            /* where the input was not finite any experts will do, as long as they differ */
            best = is_finite && !job->table ? next_best(ranks, n, best) : (int32_t)i;
            if (job->table) best = experts_of(job, t)[i];
            e->moe.chosen[t * k + i] = best;
            share[i] = probs[best];
            sum += share[i];
        }
        if (sum < (float)m->route_floor) sum = (float)m->route_floor;
        for (int64_t i = 0; i < k && m->norm_topk; i++) share[i] /= sum;
        for (int64_t i = 0; i < k && job->expert_scale; i++)
            share[i] *= job->expert_scale[e->moe.chosen[t * k + i]];
        if (m->route_scale != 1.0) e->vec->scale(share, (float)m->route_scale, k);
    }
}

/* Counting sort by expert; token order stays within each. */
static void list_tokens(sw_moe_scratch *moe, int64_t n_experts, int64_t n_tokens, int64_t k)
{
    memset(moe->starts, 0, (size_t)(n_experts + 1) * sizeof *moe->starts);
    for (int64_t i = 0; i < n_tokens * k; i++) moe->starts[moe->chosen[i] + 1]++;
    for (int64_t e = 0; e < n_experts; e++) moe->starts[e + 1] += moe->starts[e];
    for (int64_t i = 0; i < n_tokens * k; i++) {
        const int64_t at = moe->starts[moe->chosen[i]]++;

        moe->tokens[at] = (int32_t)(i / k);
        moe->token_share[at] = moe->share[i];
    }
    for (int64_t e = n_experts; e > 0; e--) moe->starts[e] = moe->starts[e - 1];
    moe->starts[0] = 0;
}

typedef struct expert_job {
    const sw_run *run;
    const float *src;
    float *dst;
    const int32_t *tokens;
    const float *share;
} expert_job;

static void gather_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const expert_job *job = ctx;
    const sw_engine *e = job->run->e;
    const int64_t hidden = e->m->moe_hidden;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *row = e->moe.rows + i * hidden;

        memcpy(row, job->src + job->tokens[i] * hidden, (size_t)hidden * sizeof(float));
        if (e->m->router == SW_ROUTER_INPUT) e->vec->scale(row, job->share[i], hidden);
    }
}

/* A token meets an expert once, so the rows of a chunk are its own. */
static void scatter_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const expert_job *job = ctx;
    const sw_engine *e = job->run->e;
    const int64_t hidden = e->m->moe_hidden;
    const bool is_scaled = e->m->router == SW_ROUTER_INPUT; /* already, as an input */

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        e->vec->add_scaled(job->dst + job->tokens[i] * hidden, e->moe.out + i * hidden,
                           is_scaled ? 1.0f : job->share[i], hidden);
}

static sw_code show_expert(const sw_run *run, sw_site site, int64_t expert, const float *x,
                           int64_t n, int64_t k_in, const int32_t *tokens, sw_err *err)
{
    if (!run->tap) return SW_OK;
    return run->tap->see(run->tap->self, site, expert, x, n, k_in, NULL, tokens, err);
}

static sw_code run_noisy(sw_engine *e, float *y, const float *x, int64_t n, const sw_weight *w,
                         sw_err *err)
{
    sw_code rc = sw_run_linear(e, y, x, n, w, err);

    if (rc == SW_OK) sw_add_noise(e, y, n, w->n_out);
    return rc;
}

/* moe.gate = what `down` of the expert reads, from the n rows gathered. */
static sw_code run_gate_up(sw_run *run, int64_t expert, int64_t n, sw_err *err)
{
    sw_engine *e = run->e;
    sw_weight *const *w = run->block->experts;
    float *gate = e->moe.gate, *up = e->moe.up;
    sw_code rc;

    if (!w[0]) { /* experts without a gate */
        if ((rc = run_noisy(e, gate, e->moe.rows, n, &w[1][expert], err)) == SW_OK)
            sw_act_rows(e, gate, NULL, n, w[1][expert].n_out);
        return rc;
    }
    if ((rc = run_noisy(e, gate, e->moe.rows, n, &w[0][expert], err)) != SW_OK) return rc;
    if ((rc = run_noisy(e, up, e->moe.rows, n, &w[1][expert], err)) != SW_OK) return rc;
    sw_act_rows(e, gate, up, n, w[0][expert].n_out);
    return SW_OK;
}

/* Rows of the whole batch through an expert, whether they are routed to it or not. */
static sw_code show_all(sw_run *run, int64_t expert, const float *src, sw_err *err)
{
    sw_engine *e = run->e;
    const sw_tap *tap = run->tap;
    const int64_t hidden = e->m->moe_hidden, every = tap->all_every;
    const int64_t n = sw_ceil_div(run->n_tokens, every);
    sw_code rc;

    for (int64_t i = 0; i < n; i++) {
        float *row = e->moe.rows + i * hidden;

        memcpy(row, src + i * every * hidden, (size_t)hidden * sizeof(float));
        if (e->m->router == SW_ROUTER_INPUT)
            e->vec->scale(row, e->moe.probs[i * every * e->m->n_experts + expert], hidden);
    }
    if ((rc = run_gate_up(run, expert, n, err)) != SW_OK) return rc;
    return tap->see_all(tap->self, expert, e->moe.gate, n, run->block->experts[2][expert].k_in,
                        err);
}

static sw_code run_expert(sw_run *run, int64_t expert, const expert_job *job, int64_t n,
                          sw_err *err)
{
    sw_engine *e = run->e;
    const sw_weight *down = &run->block->experts[2][expert];
    expert_job rows = *job;
    sw_code rc;

    sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, gather_rows, &rows);
    if ((rc = show_expert(run, SW_SITE_MLP_IN, expert, e->moe.rows, n, e->m->moe_hidden,
                          job->tokens, err)) != SW_OK)
        return rc;
    if (run->stop_at == SW_SITE_DOWN_IN && run->tap && run->tap->is_in_only) return SW_OK;
    if ((rc = run_gate_up(run, expert, n, err)) != SW_OK ||
        (rc = show_expert(run, SW_SITE_DOWN_IN, expert, e->moe.gate, n, down->k_in,
                          job->tokens, err)) != SW_OK)
        return rc;
    if (run->stop_at == SW_SITE_DOWN_IN) return SW_OK;
    if ((rc = run_noisy(e, e->moe.out, e->moe.gate, n, down, err)) != SW_OK) return rc;
    sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, scatter_rows, &rows);
    return SW_OK;
}

static bool is_asked_for(const sw_run *run, int64_t expert)
{
    const sw_tap *tap = run->tap;

    return !tap || !tap->expert_end || run->stop_at != SW_SITE_DOWN_IN ||
           (expert >= tap->expert_begin && expert < tap->expert_end);
}

sw_code sw_run_moe(sw_run *run, float *dst, const float *src, sw_err *err)
{
    sw_engine *e = run->e;
    sw_moe_scratch *moe = &e->moe;
    route_job route = {e, run->block->norm[SW_SLOT_ROUTER_SHIFT], run->block->token_experts,
                       run->block->norm[SW_SLOT_EXPERT_SCALE]};
    sw_code rc;

    if ((rc = sw_run_reach(run, SW_SITE_MLP_IN, src, e->m->moe_hidden, err)) != SW_OK ||
        run->has_stopped)
        return rc;
    if (!run->is_routed &&
        (rc = sw_run_linear(e, moe->probs, src, run->n_tokens,
                            &run->block->linear[SW_SLOT_ROUTER], err)) != SW_OK)
        return rc;
    sw_parallel_for(e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, choose_experts,
                    &route);
    list_tokens(moe, e->m->n_experts, run->n_tokens, e->m->n_experts_used);
    for (int64_t i = 0; i < e->m->n_experts; i++) {
        const int64_t start = moe->starts[i], n = moe->starts[i + 1] - start;
        const expert_job job = {run, src, dst, moe->tokens + start, moe->token_share + start};

        if (!is_asked_for(run, i)) continue;
        if (run->tap && run->tap->see_all && (rc = show_all(run, i, src, err)) != SW_OK) return rc;
        if (n && (rc = run_expert(run, i, &job, n, err)) != SW_OK) return rc;
    }
    run->has_stopped = run->stop_at == SW_SITE_DOWN_IN;
    return SW_OK;
}
