/* engine.c - runs block programs. See engine.h. */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/act.h"
#include "kernels/blas.h"
#include "kernels/engine/attention.h"
#include "kernels/engine/engine_internal.h"

/* Slopes of heads (Press et al., Train Short, Test Long, 2022): a geometric row for the largest
 * power of two within the number of heads, and for the rest every other of the next such row. */
void sw_slopes_fill(float *slopes, int64_t n_heads)
{
    int64_t power = 1;

    while (2 * power <= n_heads) power *= 2;
    for (int64_t h = 0; h < n_heads; h++) {
        const double base = h < power ? -8.0 / (double)power : -4.0 / (double)power;
        const double step = h < power ? (double)(h + 1) : (double)(2 * (h - power) + 1);

        slopes[h] = (float)pow(2.0, base * step);
    }
}

/* Weights of norms that have none, and the slopes. */
static sw_code take_tables(sw_engine *e, sw_err *err)
{
    const sw_model *m = e->m;
    int64_t width = 1;
    sw_code rc;

    for (int64_t l = 0; l < m->n_layers; l++)
        width = sw_max_i64(width, sw_model_sizes(m, l).head_dim);
    if ((rc = SW_MEM_GET(&e->ones, width, "norm weights", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < width; i++) e->ones[i] = 1.0f;
    if (sw_model_side_width(m) &&
        (rc = SW_MEM_GET(&e->side, e->max_tokens * sw_model_side_width(m), "side rows", err)) !=
            SW_OK)
        return rc;
    if (!m->has_alibi) return SW_OK;
    if ((rc = SW_MEM_GET(&e->slopes, m->n_heads, "slopes", err)) == SW_OK)
        sw_slopes_fill(e->slopes, m->n_heads);
    return rc;
}

sw_code sw_engine_new(sw_engine **out, const sw_model *m, int64_t max_tokens, int64_t max_seq,
                      int n_threads, sw_err *err)
{
    sw_engine *e = NULL;
    sw_code rc;

    if (max_tokens < 1 || max_tokens > INT32_MAX || n_threads < 1)
        return SW_FAIL(err, SW_E_BUG, "engine for %lld tokens on %d threads",
                       (long long)max_tokens, n_threads);
    sw_blas_single_thread();
    if ((rc = sw_blas_reserve(n_threads, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&e, 1, "engine", err)) != SW_OK) return rc;
    e->m = m;
    e->vec = sw_vec_best();
    e->n_threads = n_threads;
    e->max_tokens = max_tokens;
    e->max_positions = m->n_position_rows ? m->max_positions
                                          : sw_max_i64(m->max_positions, max_seq);
    for (int b = 0; b < SW_BUF_COUNT && rc == SW_OK; b++) {
        const int64_t width = sw_model_buf_width(m, (sw_buf)b);

        if (b != SW_BUF_X && width)
            rc = SW_MEM_GET(&e->buf[b], max_tokens * width, "activations", err);
    }
    if (rc == SW_OK)
        rc = sw_mem_get((void **)&e->attention_scratch,
                        (int64_t)sw_attention_scratch_bytes(n_threads), 1, "attention", err);
    if (rc == SW_OK)
        rc = SW_MEM_GET(&e->recurrent_scratch, sw_recurrent_scratch(m, n_threads),
                        "recurrent mixers", err);
    if (rc == SW_OK) rc = take_tables(e, err);
    if (rc == SW_OK && m->n_experts) rc = sw_moe_scratch_new(&e->moe, m, max_tokens, err);
    if (rc == SW_OK)
        *out = e;
    else
        sw_engine_free(e);
    return rc;
}

void sw_engine_free(sw_engine *e)
{
    if (!e) return;
    for (int b = 0; b < SW_BUF_COUNT; b++) sw_mem_put(e->buf[b]);
    sw_mem_put(e->hidden);
    sw_mem_put(e->attention_scratch);
    sw_mem_put(e->side);
    sw_mem_put(e->recurrent_scratch);
    sw_mem_put(e->ones);
    sw_mem_put(e->slopes);
    sw_angles_free(&e->angles);
    sw_angles_free(&e->window_angles);
    sw_moe_scratch_free(&e->moe);
    sw_index_scratch_free(&e->index);
    sw_scratch_free(&e->gemm);
    sw_mem_put(e);
}

float *sw_engine_side(sw_engine *e) { return e->side; }

sw_code sw_engine_hidden(sw_engine *e, float **out, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!e->hidden)
        rc = SW_MEM_GET(&e->hidden, e->max_tokens * e->m->hidden, "hidden rows", err);
    if (rc == SW_OK) *out = e->hidden;
    return rc;
}

/* Row-wise steps: what a task needs, by value, so that tasks share nothing they write. */
typedef struct row_job {
    const sw_engine *e;
    float *dst;
    const float *src, *w, *bias;
    const sw_angles *angles;
    sw_sizes sizes;
    int64_t width, seq_len, first;
    float eps, scale;
} row_job;

static void norm_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *dst = j->dst + t * j->width;
        const float *src = j->src + t * j->width;

        if (j->bias)
            j->e->vec->layer_norm(dst, src, j->w, j->bias, j->width, j->eps);
        else
            j->e->vec->rms_norm(dst, src, j->w, j->width, j->eps);
    }
}

/* In latent attention heads end with what turns; elsewhere they start with it. */
static void rope_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;
    const sw_model *m = j->e->m;
    const sw_sizes *s = &j->sizes;
    const bool is_alone = j->width == s->rope_dim; /* one rotated part that all heads share */
    const int64_t head = is_alone ? s->rope_dim : s->head_dim, half = s->rope_dim / 2;
    const bool is_last = (m->kv_rank && !is_alone) || m->is_rope_last;
    const int64_t at = is_last ? head - s->rope_dim : 0;
    void (*const turn)(float *, const float *, const float *, int64_t) =
        m->is_rope_paired ? j->e->vec->rotate_pairs : j->e->vec->rotate;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t angles = (j->first + t % j->seq_len) * half;

        for (int64_t h = 0; h < j->width; h += head)
            turn(j->dst + t * j->width + h + at, j->angles->cos + angles, j->angles->sin + angles,
                 half);
    }
}

static void clamp_gates(const sw_vec *vec, float *g, const float *u, float limit, int64_t n)
{
    for (int64_t i = 0; i < n; i++) g[i] = g[i] < limit ? g[i] : limit;
    vec->silu(g, n);
    for (int64_t i = 0; i < n && u; i++)
        g[i] *= u[i] < -limit ? -limit : u[i] > limit ? limit : u[i];
}

static void act_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;
    const sw_vec *vec = j->e->vec;
    void (*const acts[])(float *, int64_t) = {
#define SW_ACTIVATION(id, symbol) [SW_MLP_##id] = vec->symbol,
#define SW_ACTIVATION_NAME(name, id)
#include "formats/model/activations.def"
#undef SW_ACTIVATION
#undef SW_ACTIVATION_NAME
    };
    const sw_mlp_act act = j->e->m->act;
    const int64_t n = (end - begin) * j->width;
    float *g = j->dst + begin * j->width;
    const float *u = j->src ? j->src + begin * j->width : NULL;

    (void)thread;
    if (act == SW_MLP_SILU_CLAMPED) {
        clamp_gates(vec, g, u, (float)j->e->m->act_limit, n);
    } else if (u && act == SW_MLP_SILU) {
        vec->swiglu(g, u, n);
    } else if (u && act == SW_MLP_SWIGLU_CLAMPED) {
        vec->swiglu_clamped(g, u, (float)j->e->m->act_limit, n);
    } else {
        acts[act](g, n);
        if (u) vec->mul(g, u, n);
    }
}

static void add_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;
    float *dst = j->dst + begin * j->width;
    const float *src = j->src + begin * j->width;
    const int64_t n = (end - begin) * j->width;

    (void)thread;
    if (j->scale == 1.0f)
        j->e->vec->add(dst, src, n);
    else
        j->e->vec->add_scaled(dst, src, j->scale, n);
}

void sw_norm_rows(const sw_engine *e, float *dst, const float *x, const float *w,
                  const float *bias, int64_t n, int64_t width, double eps)
{
    row_job job = {.e = e, .dst = dst, .src = x, .w = w, .bias = bias, .width = width,
                   .eps = (float)eps};

    sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, norm_task, &job);
}

void sw_act_rows(const sw_engine *e, float *g, const float *u, int64_t n, int64_t width)
{
    row_job job = {.e = e, .dst = g, .src = u, .width = width};

    sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, act_task, &job);
}

static float *buffer(const sw_run *run, sw_buf b) { return sw_run_buf(run, b); }

sw_code sw_run_reach(sw_run *run, sw_site site, const float *x, int64_t k_in, sw_err *err)
{
    if (run->is_seen[site]) return SW_OK;
    run->is_seen[site] = true;
    run->has_stopped = run->stop_at == site;
    if (!run->tap) return SW_OK;
    return run->tap->see(run->tap->self, site, -1, x, run->n_tokens, k_in, run->x, NULL, err);
}

sw_code sw_run_linear(sw_engine *e, float *y, const float *x, int64_t n, const sw_weight *w,
                      sw_err *err)
{
    const sw_gemm gemm = {.m = n, .x = x, .x_stride = w->k_in, .y = y, .y_stride = w->n_out,
                          .w = w, .n_threads = e->n_threads};

    return sw_gemm_run(&gemm, &e->gemm, err);
}

static sw_code op_norm(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const bool is_between = op->slot == SW_SLOT_NORM_Q_A || op->slot == SW_SLOT_NORM_KV_A;

    (void)err;
    sw_norm_rows(run->e, buffer(run, op->dst), buffer(run, op->src), run->block->norm[op->slot],
                 run->block->norm_bias[op->slot], run->n_tokens, run->width[op->src],
                 is_between ? m->rank_norm_eps : m->norm_eps);
    return SW_OK;
}

static sw_code op_linear(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_weight *w = &run->block->linear[op->slot];
    const float *x = buffer(run, op->src);
    sw_code rc = sw_run_reach(run, op->site, x, w->k_in, err);

    if (rc != SW_OK || run->has_stopped) return rc;
    rc = sw_run_linear(run->e, buffer(run, op->dst), x, run->n_tokens, w, err);
    if (rc == SW_OK) sw_add_noise(run->e, buffer(run, op->dst), run->n_tokens, w->n_out);
    return rc;
}

static sw_code op_kept_linear(sw_run *run, const sw_op *op, sw_err *err)
{
    return sw_run_linear(run->e, buffer(run, op->dst), buffer(run, op->src), run->n_tokens,
                         &run->block->linear[op->slot], err);
}

/* Heads lie one after the other in a row, so a head norm is a norm of shorter rows. */
static sw_code op_head_norm(sw_run *run, const sw_op *op, sw_err *err)
{
    const int64_t dim = run->sizes.head_dim;
    float *x = buffer(run, op->dst);
    const float *w = op->slot == SW_SLOT_COUNT ? run->e->ones : run->block->norm[op->slot];

    (void)err;
    sw_norm_rows(run->e, x, x, w, NULL, run->n_tokens * (run->width[op->dst] / dim), dim,
                 run->e->m->norm_eps);
    return SW_OK;
}

static sw_code op_split(sw_run *run, const sw_op *op, sw_err *err)
{
    const int64_t width = run->width[op->src];
    const float *src = buffer(run, op->src);
    int64_t at = 0;

    (void)err;
    for (int b = (int)op->dst; at < width; b++) {
        const int64_t part = run->width[b];

        for (int64_t t = 0; t < run->n_tokens; t++)
            memcpy(buffer(run, (sw_buf)b) + t * part, src + t * width + at,
                   (size_t)part * sizeof *src);
        at += part;
    }
    return SW_OK;
}

static sw_code op_rope(sw_run *run, const sw_op *op, sw_err *err)
{
    sw_engine *e = run->e;
    const sw_model *m = e->m;
    const bool is_other = m->has_window_rope && m->is_window_layer[run->block->layer];
    sw_angles *angles = is_other ? &e->window_angles : &e->angles;
    row_job job = {.e = e, .dst = buffer(run, op->dst), .width = run->width[op->dst],
                   .angles = angles, .sizes = run->sizes, .seq_len = run->seq_len,
                   .first = run->first};
    sw_code rc = sw_angles_fill(angles, m, is_other ? &m->window_rope : &m->rope, run->first,
                                run->first + run->seq_len, err);

    if (rc == SW_OK)
        sw_parallel_for(e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, rope_task, &job);
    return rc;
}

/* KV_B holds for each head the key's part that does not turn and the value; the part that does is
 * one for all heads. */
static sw_code op_latent_kv(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_engine *e = run->e;
    const sw_sizes *s = &run->sizes;
    const int64_t plain = s->head_dim - s->rope_dim, both = plain + s->v_head_dim;
    const float *src = e->buf[SW_BUF_KV_B], *turned = e->buf[SW_BUF_K_ROPE];

    (void)op;
    (void)err;
    for (int64_t i = 0; i < run->n_tokens * s->n_heads; i++) {
        float *k = e->buf[SW_BUF_K] + i * s->head_dim;

        memcpy(k, src + i * both, (size_t)plain * sizeof *k);
        memcpy(k + plain, turned + i / s->n_heads * s->rope_dim, (size_t)s->rope_dim * sizeof *k);
        memcpy(e->buf[SW_BUF_V] + i * s->v_head_dim, src + i * both + plain,
               (size_t)s->v_head_dim * sizeof *k);
    }
    return SW_OK;
}

/* What codes of n rows stand for. */
static void round_rows(float *x, int64_t n, int64_t width, sw_kv_kind kind, float scale)
{
    const sw_act codes = {.num = sw_kv_num(kind), .scope = SW_ACT_TENSOR,
                          .scale_dtype = SW_DTYPE_F32};

    sw_act_round(x, width, x, width, n, width, &codes, scale);
}

static sw_code op_attention(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_engine *e = run->e;
    const sw_model *m = e->m;
    const sw_sizes *s = &run->sizes;
    const sw_kv_form *form = &run->block->kv;
    const bool is_window = m->is_window_layer[run->block->layer];
    sw_attention a = {.q = buffer(run, op->src), .k = e->buf[SW_BUF_K], .v = e->buf[SW_BUF_V],
                      .out = buffer(run, op->dst), .n_seqs = run->n_seqs,
                      .seq_len = run->seq_len, .first = run->first, .n_heads = s->n_heads,
                      .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim,
                      .v_head_dim = s->v_head_dim, .scale = m->attention_scale,
                      .cap = m->attention_cap, .window = is_window ? m->sliding_window : 0,
                      .chunk = is_window ? m->attention_chunk : 0, .slopes = e->slopes,
                      .chosen = run->chosen, .n_chosen = m->indexer.top_k, .vec = e->vec,
                      .scratch = e->attention_scratch, .n_threads = e->n_threads};

    (void)err;
    if (run->tap && run->tap->see_kv)
        run->tap->see_kv(run->tap->self, a.k, run->n_tokens * run->width[SW_BUF_K], a.v,
                         run->n_tokens * run->width[SW_BUF_V]);
    if (form->kind && !run->is_kv_taken) {
        round_rows(e->buf[SW_BUF_K], run->n_tokens, run->width[SW_BUF_K], form->kind,
                   form->k_scale);
        round_rows(e->buf[SW_BUF_V], run->n_tokens, run->width[SW_BUF_V], form->kind,
                   form->v_scale);
    }
    if (op->slot != SW_SLOT_COUNT) a.sinks = run->block->norm[op->slot];
    if (run->kv) sw_attend_caches(run, &a);
    else sw_attention_run(&a);
    return SW_OK;
}

static sw_code op_glu(sw_run *run, const sw_op *op, sw_err *err)
{
    (void)err;
    sw_act_rows(run->e, buffer(run, op->dst), buffer(run, op->src), run->n_tokens,
                run->width[op->dst]);
    return SW_OK;
}

static sw_code op_act(sw_run *run, const sw_op *op, sw_err *err)
{
    (void)err;
    sw_act_rows(run->e, buffer(run, op->dst), NULL, run->n_tokens, run->width[op->dst]);
    return SW_OK;
}

static sw_code op_add(sw_run *run, const sw_op *op, sw_err *err)
{
    const double scale = op->dst == SW_BUF_X ? run->e->m->residual_scale : 1.0;
    row_job job = {.e = run->e, .dst = buffer(run, op->dst), .src = buffer(run, op->src),
                   .width = run->width[op->dst], .scale = (float)scale};

    (void)err;
    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, add_task, &job);
    return SW_OK;
}

static sw_code op_moe_add(sw_run *run, const sw_op *op, sw_err *err)
{
    return sw_run_moe(run, buffer(run, op->dst), buffer(run, op->src), err);
}

static sw_code op_moe(sw_run *run, const sw_op *op, sw_err *err)
{
    memset(buffer(run, op->dst), 0,
           (size_t)(run->n_tokens * run->width[op->dst]) * sizeof(float));
    return op_moe_add(run, op, err);
}

/* What it says is loaded with the block. */
static sw_code op_nothing(sw_run *run, const sw_op *op, sw_err *err)
{
    (void)run;
    (void)op;
    (void)err;
    return SW_OK;
}

static sw_code (*const op_table[])(sw_run *run, const sw_op *op, sw_err *err) = {
    [SW_OP_RMS_NORM] = op_norm,       [SW_OP_LAYER_NORM] = op_norm,
    [SW_OP_LINEAR] = op_linear,       [SW_OP_HEAD_NORM] = op_head_norm,
    [SW_OP_SPLIT] = op_split,         [SW_OP_ROPE] = op_rope,
    [SW_OP_ATTENTION] = op_attention, [SW_OP_LATENT_KV] = op_latent_kv,
    [SW_OP_GLU] = op_glu,             [SW_OP_ACT] = op_act,
    [SW_OP_ADD] = op_add,             [SW_OP_MOE] = op_moe,
    [SW_OP_MOE_ADD] = op_moe_add,     [SW_OP_KEPT_LINEAR] = op_kept_linear,
    [SW_OP_FACTOR] = sw_op_factor,    [SW_OP_SPLIT_HEADS] = sw_op_split_heads,
    [SW_OP_GATE] = sw_op_gate,
    [SW_OP_UNGROUP] = sw_run_ungroup, [SW_OP_GATED_DELTA] = sw_run_gated_delta,
    [SW_OP_KIMI_DELTA] = sw_run_kimi_delta, [SW_OP_SSD] = sw_run_ssd,
    [SW_OP_SHORT_CONV] = sw_run_short_conv,
    [SW_OP_HEAD_LAYER_NORM] = sw_op_head_layer_norm,
    [SW_OP_SPLIT_GROUPS] = sw_op_split_groups, [SW_OP_COPY] = sw_op_copy,
    [SW_OP_CLIP] = sw_op_clip,        [SW_OP_TEMPER] = sw_op_temper,
    [SW_OP_SCALE] = sw_op_scale,      [SW_OP_ROW_GATE] = sw_op_row_gate,
    [SW_OP_ROUTE] = sw_op_route,      [SW_OP_KEEP_KV] = sw_op_keep_kv,
    [SW_OP_TAKE_KV] = sw_op_take_kv,  [SW_OP_SIDE_INPUT] = sw_op_side_input,
    [SW_OP_LOW_RANK] = sw_op_low_rank, [SW_OP_PREDICT] = sw_op_predict,
    [SW_OP_CORRECT] = sw_op_correct,  [SW_OP_ADD_COPIES] = sw_op_add_copies,
    [SW_OP_MERGE] = sw_op_merge,      [SW_OP_HALVE] = sw_op_halve,
    [SW_OP_MUL_VECTOR] = sw_op_mul_vector, [SW_OP_CUT] = sw_op_cut,
    [SW_OP_NEAR_FAR] = sw_op_near_far, [SW_OP_GROUP_LINEAR] = sw_op_group_linear,
    [SW_OP_MIX_STREAMS] = sw_op_mix_streams, [SW_OP_ADD_STREAMS] = sw_op_add_streams,
    [SW_OP_MERGE_STREAMS] = sw_op_merge_streams, [SW_OP_ROUTE_TOKENS] = op_nothing,
    [SW_OP_INDEX] = sw_op_index,      [SW_OP_TAKE_INDEX] = sw_op_take_index,
};

/* What depends on the layer alone. */
static void measure(sw_run *run)
{
    const sw_model *m = run->e->m;

    run->sizes = sw_model_sizes(m, run->block->layer);
    for (int b = 0; b < SW_BUF_COUNT; b++)
        run->width[b] = sw_model_layer_buf_width(m, run->block->layer, (sw_buf)b);
}

static sw_code check_call(const sw_run *run, sw_err *err)
{
    const sw_engine *e = run->e;
    const int64_t end = run->first + run->seq_len;

    if (run->n_seqs < 1 || run->seq_len < 1 || run->seq_len > e->max_tokens / run->n_seqs)
        return SW_FAIL(err, SW_E_USAGE, "%lld sequences of %lld tokens; at most %lld tokens fit",
                       (long long)run->n_seqs, (long long)run->seq_len, (long long)e->max_tokens);
    if (end > e->max_positions)
        return SW_FAIL(err, SW_E_USAGE, "position %lld; the model has %lld", (long long)end - 1,
                       (long long)e->max_positions);
    if (run->kv && ((run->n_seqs != 1 && !run->caches) || end > run->kv->capacity))
        return SW_FAIL(err, SW_E_USAGE, "%lld tokens do not fit a cache of %lld",
                       (long long)(run->n_seqs * end), (long long)run->kv->capacity);
    return SW_OK;
}

/* A run that stops early works on a copy, because the attention half would change x. */
static sw_code keep_x(sw_run *run, sw_err *err)
{
    sw_engine *e = run->e;
    sw_code rc = SW_OK;

    if (run->stop_at < SW_SITE_MLP_IN || run->stop_at >= SW_SITE_COUNT) return SW_OK;
    if (!e->buf[SW_BUF_X])
        rc = SW_MEM_GET(&e->buf[SW_BUF_X], e->max_tokens * e->m->hidden, "activations", err);
    if (rc != SW_OK) return rc;
    memcpy(e->buf[SW_BUF_X], run->x, (size_t)(run->n_tokens * e->m->hidden) * sizeof(float));
    run->x = e->buf[SW_BUF_X];
    return SW_OK;
}

/* Where attention and MLP read the same rows there is no state between them, and all is the
 * second half. */
int sw_ops_of_attention(const sw_op *ops, int n_ops)
{
    int i = 0;

    for (; i < n_ops && !(ops[i].kind == SW_OP_ADD && ops[i].dst == SW_BUF_X) &&
           ops[i].kind != SW_OP_ADD_STREAMS; i++)
        if (ops[i].site != SW_SITE_COUNT && ops[i].site >= SW_SITE_MLP_IN) return 0;
    return i < n_ops ? i + 1 : n_ops;
}

sw_half sw_engine_half_of(const sw_model *m, int64_t layer, sw_site site)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    if (!sw_ops_of_attention(ops, n_ops)) return SW_HALF_BOTH;
    return site < SW_SITE_MLP_IN ? SW_HALF_ATTENTION : SW_HALF_MLP;
}

static sw_code run_ops(sw_run *run, sw_half half, sw_err *err)
{
    int n_ops, middle;
    const sw_op *ops = sw_model_ops(run->e->m, run->block->layer, &n_ops);
    const bool is_for_experts =
        run->tap && run->tap->is_experts_only && run->stop_at == SW_SITE_DOWN_IN;
    sw_code rc = SW_OK;

    measure(run);
    middle = sw_ops_of_attention(ops, n_ops);
    for (int i = half == SW_HALF_MLP ? middle : 0;
         i < (half == SW_HALF_ATTENTION ? middle : n_ops) && rc == SW_OK && !run->has_stopped; i++)
        if (!is_for_experts || !sw_op_is_of_shared_expert(&ops[i]))
            rc = op_table[ops[i].kind](run, &ops[i], err);
    return rc;
}

sw_code sw_engine_run_step(sw_run *run, sw_err *err)
{
    sw_code rc = check_call(run, err);

    return rc == SW_OK ? run_ops(run, SW_HALF_BOTH, err) : rc;
}

sw_code sw_engine_block(sw_engine *e, const sw_block *block, float *x, int64_t n_seqs,
                        int64_t seq_len, sw_kv *kv, const sw_tap *tap, sw_site stop_at,
                        sw_err *err)
{
    sw_run run = {.e = e, .block = block, .x = x, .n_seqs = n_seqs, .seq_len = seq_len,
                  .n_tokens = n_seqs * seq_len, .first = kv ? kv->n_cached : 0, .kv = kv,
                  .tap = tap, .stop_at = stop_at};
    sw_code rc;

    if ((rc = check_call(&run, err)) != SW_OK) return rc;
    if ((rc = keep_x(&run, err)) != SW_OK) return rc;
    rc = run_ops(&run, SW_HALF_BOTH, err);
    if (rc == SW_OK && kv && !run.has_stopped) kv->n_cached += seq_len;
    return rc;
}

sw_code sw_engine_half(sw_engine *e, const sw_block *block, float *x, int64_t n_seqs,
                       int64_t seq_len, sw_half half, const sw_tap *tap, sw_site stop_at,
                       sw_err *err)
{
    sw_run run = {.e = e, .block = block, .x = x, .n_seqs = n_seqs, .seq_len = seq_len,
                  .n_tokens = n_seqs * seq_len, .tap = tap, .stop_at = stop_at};
    sw_code rc;

    if (half == SW_HALF_BOTH)
        return sw_engine_block(e, block, x, n_seqs, seq_len, NULL, tap, stop_at, err);
    if ((rc = check_call(&run, err)) != SW_OK) return rc;
    return run_ops(&run, half, err);
}
