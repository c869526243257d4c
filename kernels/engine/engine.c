/* engine.c - runs block programs. See engine.h. */
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/blas.h"
#include "kernels/engine/attention.h"
#include "kernels/engine/engine_internal.h"

/* All programs use every buffer but X at least once, or leave it small. */
static void set_widths(int64_t width[SW_BUF_COUNT], const sw_model *m)
{
    const int64_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const int64_t mlp = sw_max_i64(m->arch->dense_ops ? m->intermediate : 0, m->moe_intermediate);

    for (int b = 0; b < SW_BUF_COUNT; b++) width[b] = m->hidden;
    width[SW_BUF_Q] = width[SW_BUF_A] = q;
    width[SW_BUF_K] = width[SW_BUF_V] = kv;
    width[SW_BUF_G] = width[SW_BUF_U] = mlp;
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
    if ((rc = SW_MEM_GET(&e, 1, "engine", err)) != SW_OK) return rc;
    e->m = m;
    e->vec = sw_vec_best();
    e->n_threads = n_threads;
    e->max_tokens = max_tokens;
    e->max_positions = sw_max_i64(m->max_positions, max_seq);
    set_widths(e->width, m);
    for (int b = 0; b < SW_BUF_COUNT && rc == SW_OK; b++)
        if (b != SW_BUF_X)
            rc = SW_MEM_GET(&e->buf[b], max_tokens * e->width[b], "activations", err);
    if (rc == SW_OK)
        rc = sw_mem_get((void **)&e->attention_scratch,
                        (int64_t)sw_attention_scratch_bytes(n_threads), 1, "attention", err);
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
    sw_angles_free(&e->angles);
    sw_moe_scratch_free(&e->moe);
    sw_scratch_free(&e->gemm);
    sw_mem_put(e);
}

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
    const float *src, *w;
    int64_t width, seq_len, first;
} row_job;

static void norm_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;

    (void)thread;
    for (int64_t t = begin; t < end; t++)
        j->e->vec->rms_norm(j->dst + t * j->width, j->src + t * j->width, j->w, j->width,
                            (float)j->e->m->norm_eps);
}

static void rope_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;
    const int64_t dim = j->e->m->head_dim;

    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t angles = (j->first + t % j->seq_len) * (dim / 2);

        for (int64_t h = 0; h < j->width; h += dim)
            j->e->vec->rotate(j->dst + t * j->width + h, j->e->angles.cos + angles,
                              j->e->angles.sin + angles, dim / 2);
    }
}

static void swiglu_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;

    (void)thread;
    j->e->vec->swiglu(j->dst + begin * j->width, j->src + begin * j->width,
                      (end - begin) * j->width);
}

static void add_task(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *j = ctx;

    (void)thread;
    j->e->vec->add(j->dst + begin * j->width, j->src + begin * j->width,
                   (end - begin) * j->width);
}

void sw_norm_rows(const sw_engine *e, float *dst, const float *x, const float *w, int64_t n,
                  int64_t width)
{
    row_job job = {.e = e, .dst = dst, .src = x, .w = w, .width = width};

    sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, norm_task, &job);
}

void sw_swiglu_rows(const sw_engine *e, float *g, const float *u, int64_t n, int64_t width)
{
    row_job job = {.e = e, .dst = g, .src = u, .width = width};

    sw_parallel_for(e->n_threads, n, SW_TOKENS_PER_TASK, swiglu_task, &job);
}

static float *buffer(const sw_run *run, sw_buf b)
{
    return b == SW_BUF_X ? run->x : run->e->buf[b];
}

sw_code sw_run_reach(sw_run *run, sw_site site, const float *x, sw_err *err)
{
    const int64_t widths[SW_SITE_COUNT] = {
        [SW_SITE_ATTN_IN] = run->e->m->hidden,
        [SW_SITE_O_IN] = run->e->m->n_heads * run->e->m->head_dim,
        [SW_SITE_MLP_IN] = run->e->m->hidden,
        [SW_SITE_DOWN_IN] = run->e->m->intermediate,
    };

    if (run->is_seen[site]) return SW_OK;
    run->is_seen[site] = true;
    run->has_stopped = run->stop_at == site;
    if (!run->tap) return SW_OK;
    return run->tap->see(run->tap->self, site, -1, x, run->n_tokens, widths[site], run->x, NULL,
                         err);
}

sw_code sw_run_linear(sw_engine *e, float *y, const float *x, int64_t n, const sw_weight *w,
                      sw_err *err)
{
    const sw_gemm gemm = {.m = n, .x = x, .x_stride = w->k_in, .y = y, .y_stride = w->n_out,
                          .w = w, .n_threads = e->n_threads};

    return sw_gemm_run(&gemm, &e->gemm, err);
}

static sw_code op_rms_norm(sw_run *run, const sw_op *op, sw_err *err)
{
    (void)err;
    sw_norm_rows(run->e, buffer(run, op->dst), buffer(run, op->src), run->block->norm[op->slot],
                 run->n_tokens, run->e->width[op->src]);
    return SW_OK;
}

static sw_code op_linear(sw_run *run, const sw_op *op, sw_err *err)
{
    const float *x = buffer(run, op->src);
    sw_code rc = sw_run_reach(run, op->site, x, err);

    if (rc != SW_OK || run->has_stopped) return rc;
    return sw_run_linear(run->e, buffer(run, op->dst), x, run->n_tokens,
                         &run->block->linear[op->slot], err);
}

/* Heads lie one after the other in a row, so a head norm is a norm of shorter rows. */
static sw_code op_head_norm(sw_run *run, const sw_op *op, sw_err *err)
{
    const int64_t dim = run->e->m->head_dim;
    float *x = buffer(run, op->dst);

    (void)err;
    sw_norm_rows(run->e, x, x, run->block->norm[op->slot],
                 run->n_tokens * (run->e->width[op->dst] / dim), dim);
    return SW_OK;
}

static sw_code op_rope(sw_run *run, const sw_op *op, sw_err *err)
{
    row_job job = {.e = run->e, .dst = buffer(run, op->dst), .width = run->e->width[op->dst],
                   .seq_len = run->seq_len, .first = run->first};
    sw_code rc = sw_angles_fill(&run->e->angles, run->e->m, run->first,
                                run->first + run->seq_len, err);

    if (rc == SW_OK)
        sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, rope_task, &job);
    return rc;
}

static sw_code op_attention(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_engine *e = run->e;
    const sw_model *m = e->m;
    const bool is_window = m->is_window_layer[run->block->layer];
    sw_attention a = {.q = buffer(run, op->src), .k = e->buf[SW_BUF_K], .v = e->buf[SW_BUF_V],
                      .out = buffer(run, op->dst), .n_seqs = run->n_seqs,
                      .seq_len = run->seq_len, .first = run->first, .n_heads = m->n_heads,
                      .n_kv_heads = m->n_kv_heads, .head_dim = m->head_dim,
                      .window = is_window ? m->sliding_window : 0, .vec = e->vec,
                      .scratch = e->attention_scratch, .n_threads = e->n_threads};

    (void)err;
    if (run->kv) {
        const int64_t width = e->width[SW_BUF_K], at = run->first * width;
        const size_t n_bytes = (size_t)(run->seq_len * width) * sizeof(float);

        memcpy(run->kv->k + at, a.k, n_bytes);
        memcpy(run->kv->v + at, a.v, n_bytes);
        a.k = run->kv->k;
        a.v = run->kv->v;
    }
    sw_attention_run(&a);
    return SW_OK;
}

static sw_code op_swiglu(sw_run *run, const sw_op *op, sw_err *err)
{
    (void)err;
    sw_swiglu_rows(run->e, buffer(run, op->dst), buffer(run, op->src), run->n_tokens,
                   run->e->m->intermediate);
    return SW_OK;
}

static sw_code op_add(sw_run *run, const sw_op *op, sw_err *err)
{
    row_job job = {.e = run->e, .dst = buffer(run, op->dst), .src = buffer(run, op->src),
                   .width = run->e->width[op->dst]};

    (void)err;
    sw_parallel_for(run->e->n_threads, run->n_tokens, SW_TOKENS_PER_TASK, add_task, &job);
    return SW_OK;
}

static sw_code op_moe(sw_run *run, const sw_op *op, sw_err *err)
{
    return sw_run_moe(run, buffer(run, op->dst), buffer(run, op->src), err);
}

static sw_code (*const op_table[])(sw_run *run, const sw_op *op, sw_err *err) = {
    [SW_OP_RMS_NORM] = op_rms_norm,   [SW_OP_LINEAR] = op_linear,
    [SW_OP_HEAD_NORM] = op_head_norm, [SW_OP_ROPE] = op_rope,
    [SW_OP_ATTENTION] = op_attention, [SW_OP_SWIGLU] = op_swiglu,
    [SW_OP_ADD] = op_add,             [SW_OP_MOE] = op_moe,
};

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
    if (run->kv && (run->n_seqs != 1 || end > run->kv->capacity))
        return SW_FAIL(err, SW_E_USAGE, "%lld tokens do not fit a cache of %lld",
                       (long long)(run->n_seqs * end), (long long)run->kv->capacity);
    return SW_OK;
}

/* A run that stops early works on a copy, because the attention half would change x. */
static sw_code keep_x(sw_run *run, sw_err *err)
{
    sw_engine *e = run->e;
    sw_code rc = SW_OK;

    if (run->stop_at != SW_SITE_MLP_IN && run->stop_at != SW_SITE_DOWN_IN) return SW_OK;
    if (!e->buf[SW_BUF_X])
        rc = SW_MEM_GET(&e->buf[SW_BUF_X], e->max_tokens * e->m->hidden, "activations", err);
    if (rc != SW_OK) return rc;
    memcpy(e->buf[SW_BUF_X], run->x, (size_t)(run->n_tokens * e->m->hidden) * sizeof(float));
    run->x = e->buf[SW_BUF_X];
    return SW_OK;
}

/* Ops of the attention half: up to and with the first addition to the residual stream. */
static int attention_ops(const sw_op *ops, int n_ops)
{
    int i = 0;

    while (i < n_ops && !(ops[i].kind == SW_OP_ADD && ops[i].dst == SW_BUF_X)) i++;
    return i < n_ops ? i + 1 : n_ops;
}

static sw_code run_ops(sw_run *run, sw_half half, sw_err *err)
{
    int n_ops, middle;
    const sw_op *ops = sw_model_ops(run->e->m, run->block->layer, &n_ops);
    sw_code rc = SW_OK;

    middle = attention_ops(ops, n_ops);
    for (int i = half == SW_HALF_MLP ? middle : 0;
         i < (half == SW_HALF_ATTENTION ? middle : n_ops) && rc == SW_OK && !run->has_stopped; i++)
        rc = op_table[ops[i].kind](run, &ops[i], err);
    return rc;
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
