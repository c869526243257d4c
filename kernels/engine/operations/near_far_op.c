/* near_far_op.c - attention over near tokens and compressed ones, and the linear in groups behind
 * it; see sparse/near_far.h and sparse/compress.h.
 *
 * A layer caches of each token its key and what compressed keys are made of. Those are made anew
 * in each call, which is little beside attention itself.
 */
#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "kernels/engine/engine_internal.h"
#include "kernels/engine/sparse/compress.h"
#include "kernels/engine/sparse/key_choice.h"
#include "kernels/engine/sparse/near_far.h"

/* What one call needs, out of one arena. */
typedef struct far_work {
    sw_run *run;
    sw_arena arena;
    int64_t rate, n_tokens, n_far; /* of a sequence, cached ones too */
    int64_t row;                   /* floats that are cached of a token */
    float *rows;                   /* [n_seqs * n_tokens, row] */
    float *far;
    int32_t *chosen;
} far_work;

static bool has_choice(const far_work *w)
{
    return sw_model_chooses_far_keys(w->run->e->m, w->run->block->layer);
}

/* A linear of what the block reads, or the keys, into columns [at, at + n_out) of the rows. */
static void put_columns(const far_work *w, const float *from, int64_t n_out, int64_t at)
{
    float *to = w->rows + w->run->first * w->row + at;

    for (int64_t t = 0; t < w->run->n_tokens; t++)
        memcpy(to + t * w->row, from + t * n_out, (size_t)n_out * sizeof *to);
}

static sw_code fill_rows(far_work *w, sw_err *err)
{
    static const sw_slot slots[] = {SW_SLOT_COMPRESS_KV, SW_SLOT_COMPRESS_GATE, SW_SLOT_INDEX_KV,
                                    SW_SLOT_INDEX_GATE};
    sw_run *run = w->run;
    int64_t at = run->width[SW_BUF_K];
    float *made = NULL;
    sw_code rc = SW_ARENA_TAKE(&made, &w->arena, run->n_tokens * w->row, err);

    if (rc != SW_OK) return rc;
    put_columns(w, run->e->buf[SW_BUF_K], at, 0);
    for (int i = 0; i < 4 && at < w->row; i++) {
        const sw_weight *linear = &run->block->linear[slots[i]];

        rc = sw_run_linear(run->e, made, run->e->buf[SW_BUF_N], run->n_tokens, linear, err);
        if (rc != SW_OK) return rc;
        put_columns(w, made, linear->n_out, at);
        at += linear->n_out;
    }
    return SW_OK;
}

/* Keys [n_seqs * n_far, dim] out of columns of the rows. */
static sw_code compress(float **out, far_work *w, int64_t at, int64_t dim, sw_slot positions,
                        sw_slot norm, sw_err *err)
{
    const sw_engine *e = w->run->e;
    const bool overlaps = has_choice(w);
    sw_compress c = {.values = w->rows + at, .gates = w->rows + at + (overlaps ? 2 * dim : dim),
                     .stride = w->row, .positions = w->run->block->norm[positions],
                     .norm = w->run->block->norm[norm], .eps = (float)e->m->norm_eps,
                     .n_seqs = w->run->n_seqs, .n_tokens = w->n_tokens, .rate = w->rate,
                     .dim = dim, .overlaps = overlaps, .cos = e->angles.cos,
                     .sin = e->angles.sin, .half = e->m->rope_dim / 2, .vec = e->vec,
                     .n_threads = e->n_threads};
    sw_code rc = SW_ARENA_TAKE(&c.out, &w->arena, c.n_seqs * w->n_far * dim, err);

    if (rc != SW_OK) return rc;
    sw_compress_run(&c);
    *out = c.out;
    return SW_OK;
}

/* The heads that score far keys: their last part turns, by the query's position. */
static void turn_queries(const far_work *w, float *q)
{
    const sw_run *run = w->run;
    const sw_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const int64_t half = e->m->rope_dim / 2;

    for (int64_t i = 0; i < run->n_tokens * x->n_heads; i++) {
        const int64_t at = (run->first + i / x->n_heads % run->seq_len) * half;

        e->vec->rotate_pairs(q + (i + 1) * x->head_dim - 2 * half, e->angles.cos + at,
                             e->angles.sin + at, half);
    }
}

/* Which of the far keys each query sees, where there are more than it may. */
static sw_code choose(far_work *w, sw_err *err)
{
    sw_run *run = w->run;
    sw_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const int64_t at = w->row - 4 * x->head_dim;
    sw_key_choice c = {.n_seqs = run->n_seqs, .seq_len = run->seq_len, .first = run->first,
                       .n_keys = w->n_far, .tokens_per_key = w->rate, .n_heads = x->n_heads,
                       .head_dim = x->head_dim, .top_k = x->top_k, .n_threads = e->n_threads};
    float *q = NULL, *weights = NULL, *keys = NULL;
    sw_code rc;

    if ((rc = compress(&keys, w, at, x->head_dim, SW_SLOT_INDEX_POSITIONS, SW_SLOT_NORM_INDEX,
                       err)) ||
        (rc = SW_ARENA_TAKE(&q, &w->arena, run->n_tokens * x->n_heads * x->head_dim, err)) ||
        (rc = SW_ARENA_TAKE(&weights, &w->arena, run->n_tokens * x->n_heads, err)) ||
        (rc = SW_ARENA_TAKE(&w->chosen, &w->arena, run->n_tokens * x->top_k, err)) ||
        (rc = SW_ARENA_TAKE(&c.scratch, &w->arena,
                            sw_key_choice_scratch(x->n_heads, w->n_far, e->n_threads), err)) ||
        (rc = sw_run_linear(e, q, e->buf[SW_BUF_Q_A], run->n_tokens,
                            &run->block->linear[SW_SLOT_INDEX_Q], err)) ||
        (rc = sw_run_linear(e, weights, e->buf[SW_BUF_N], run->n_tokens,
                            &run->block->linear[SW_SLOT_INDEX_WEIGHT], err)))
        return rc;
    turn_queries(w, q);
    c.q = q;
    c.weights = weights;
    c.keys = keys;
    c.chosen = w->chosen;
    sw_key_choice_run(&c);
    return SW_OK;
}

static sw_code make_far_keys(far_work *w, sw_err *err)
{
    const int64_t dim = w->run->width[SW_BUF_K];
    sw_code rc;

    w->n_far = w->rate ? w->n_tokens / w->rate : 0;
    if (!w->n_far) return SW_OK;
    if ((rc = compress(&w->far, w, dim, dim, SW_SLOT_COMPRESS_POSITIONS, SW_SLOT_NORM_COMPRESS,
                       err)) != SW_OK)
        return rc;
    return has_choice(w) && w->n_far > w->run->e->m->indexer.top_k ? choose(w, err) : SW_OK;
}

static sw_code attend(far_work *w, const sw_op *op, sw_err *err)
{
    sw_run *run = w->run;
    const sw_engine *e = run->e;
    const sw_angles *angles = w->rate ? &e->angles : &e->window_angles;
    sw_near_far a = {.q = sw_run_buf(run, op->src), .near = w->rows, .stride = w->row,
                     .far = w->far, .n_far = w->n_far, .rate = w->rate, .chosen = w->chosen,
                     .n_chosen = e->m->indexer.top_k, .out = sw_run_buf(run, op->dst),
                     .sinks = run->block->norm[op->slot], .window = e->m->sliding_window,
                     .scale = e->m->attention_scale, .n_seqs = run->n_seqs,
                     .seq_len = run->seq_len, .first = run->first, .n_heads = run->sizes.n_heads,
                     .dim = run->sizes.head_dim, .cos = angles->cos, .sin = angles->sin,
                     .half = e->m->rope_dim / 2, .vec = e->vec, .n_threads = e->n_threads};
    sw_code rc = SW_ARENA_TAKE(&a.scratch, &w->arena, sw_near_far_scratch(&a), err);

    if (rc == SW_OK) sw_near_far_run(&a);
    return rc;
}

sw_code sw_op_near_far(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const int64_t layer = run->block->layer;
    far_work w = {.run = run, .rate = sw_model_compress_rate(m, layer),
                  .n_tokens = run->first + run->seq_len, .row = sw_model_cache_width(m, layer)};
    sw_code rc = SW_OK;

    if (run->kv)
        w.rows = run->kv->rows;
    else
        rc = SW_ARENA_TAKE(&w.rows, &w.arena, run->n_tokens * w.row, err);
    if (rc == SW_OK) rc = fill_rows(&w, err);
    if (rc == SW_OK) rc = make_far_keys(&w, err);
    if (rc == SW_OK) rc = attend(&w, op, err);
    sw_arena_free(&w.arena);
    return rc;
}

/* Group g of the rows reads group g of the columns. Where the weight cannot be cut, every group
 * makes all rows, and its own are kept. */
sw_code sw_op_group_linear(sw_run *run, const sw_op *op, sw_err *err)
{
    const sw_weight *w = &run->block->linear[op->slot];
    const int64_t n_groups = run->e->m->o_groups, x_stride = run->width[op->src];
    const int64_t y_stride = run->width[op->dst], rows = y_stride / n_groups;
    float *y = sw_run_buf(run, op->dst), *all = NULL;
    sw_arena arena = {0};
    sw_code rc = w->dense ? SW_OK : SW_ARENA_TAKE(&all, &arena, run->n_tokens * y_stride, err);

    for (int64_t g = 0; g < n_groups && rc == SW_OK; g++) {
        sw_weight part = *w;
        sw_gemm gemm = {.m = run->n_tokens, .x = sw_run_buf(run, op->src) + g * w->k_in,
                        .x_stride = x_stride, .y = all ? all : y + g * rows, .y_stride = y_stride,
                        .w = &part, .n_threads = run->e->n_threads};

        if (!all) {
            part.n_out = rows;
            part.dense = (const char *)w->dense +
                         g * rows * w->k_in * sw_dtype_bits(w->dense_dtype) / 8;
        }
        rc = sw_gemm_run(&gemm, &run->e->gemm, err);
        for (int64_t t = 0; t < run->n_tokens && all && rc == SW_OK; t++)
            memcpy(y + t * y_stride + g * rows, all + t * y_stride + g * rows,
                   (size_t)rows * sizeof *y);
    }
    sw_arena_free(&arena);
    return rc;
}
