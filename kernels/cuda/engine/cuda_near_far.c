/* cuda_near_far.c - attention over near keys and far ones on a device, and the linear in groups
 * behind it. The same for the CPU is kernels/engine/operations/near_far_op.c, the kernels are those
 * of ops/engine_streams.h.
 *
 * A cache keeps the far keys too: a step makes those alone whose windows it completes.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"

#define COLUMNS_ALIGN 8                     /* elements that kernels load at once */
#define STRIDE_ALIGN 4                      /* floats, of rows of products */
#define PRODUCTS_MOST ((int64_t)16 << 20)   /* floats at once, unless one query needs more */

static bool has_far(const sw_model *m) { return m->o_groups > 0; }

/* Of a sequence of at most `capacity` tokens; where it lies and what the call has is left out. */
static sw_far_place place_in(const sw_model *m, int64_t layer, int64_t capacity)
{
    const bool chooses = sw_model_chooses_far_keys(m, layer);

    return (sw_far_place){.capacity = capacity, .row = sw_model_cache_width(m, layer),
                          .dim = sw_model_sizes(m, layer).head_dim,
                          .index_dim = chooses ? m->indexer.head_dim : 0,
                          .rate = sw_model_compress_rate(m, layer), .overlaps = chooses};
}

int64_t sw_device_far_elems(const sw_model *m, int64_t layer, int64_t capacity)
{
    sw_far_place p;

    if (!has_far(m)) return sw_device_index_elems(m, layer, capacity);
    p = place_in(m, layer, capacity);
    return sw_far_elems(&p);
}

static sw_far_place place_of(const sw_device_run *run)
{
    const sw_device_engine *e = run->e;
    sw_far_place p = place_in(e->m, run->block->layer, run->kv ? run->kv->capacity : run->seq_len);

    p.d = run->kv ? run->kv->d_far : e->far.d_place;
    p.seq_stride = sw_far_elems(&p);
    p.first = run->d_first;
    p.n_seqs = run->n_seqs;
    p.seq_len = run->seq_len;
    return p;
}

/* ---- scratch ---- */

/* Room for the choice, where sequences may have more far keys than are seen. */
static sw_code take_choice(sw_device_engine *e, sw_err *err)
{
    const sw_indexer *x = &e->m->indexer;
    const int64_t rate = e->m->compress_rates[0], n = e->max_tokens;
    const int64_t n_keys = rate ? sw_round_up(e->max_positions / rate, STRIDE_ALIGN) : 0;
    const int64_t one = x->n_heads * n_keys;
    sw_device_far *far = &e->far;
    sw_code rc;

    if (!rate || e->max_positions / rate <= x->top_k) return SW_OK;
    far->n_products = sw_max_i64(one, sw_min_i64(n * one, PRODUCTS_MOST));
    if ((rc = SW_STORE_TAKE(&far->d_q, &e->store, n * x->n_heads * x->head_dim, "indexer", err)) ||
        (rc = SW_STORE_TAKE(&far->d_weights, &e->store, n * x->n_heads, "indexer", err)) ||
        (rc = SW_STORE_TAKE(&far->d_chosen, &e->store, n * x->top_k, "chosen keys", err)) ||
        (rc = SW_STORE_TAKE(&far->d_ranks, &e->store, far->n_products / x->n_heads, "indexer",
                            err)))
        return rc;
    return SW_STORE_TAKE(&far->d_products, &e->store, far->n_products, "scores of keys", err);
}

sw_code sw_device_far_new(sw_device_engine *e, sw_err *err)
{
    const sw_model *m = e->m;
    int64_t row = 0, elems = 0;
    sw_code rc;

    if (!has_far(m)) return SW_OK;
    if (m->indexer.head_dim % COLUMNS_ALIGN || m->indexer.head_dim > SW_HEAD_DIM_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "index_head_dim of %lld; on the device it is a "
                       "multiple of %d up to %d; use --device cpu", (long long)m->indexer.head_dim,
                       COLUMNS_ALIGN, SW_HEAD_DIM_MAX);
    for (int64_t l = 0; l < m->n_layers; l++) {
        row = sw_max_i64(row, sw_model_cache_width(m, l));
        elems = sw_max_i64(elems, sw_device_far_elems(m, l, e->max_tokens));
    }
    if ((rc = SW_STORE_TAKE(&e->far.d_made, &e->store, e->max_tokens * row, "rows of keys", err)) ||
        (rc = SW_STORE_TAKE(&e->far.d_place, &e->store, elems, "rows of keys", err)))
        return rc;
    return take_choice(e, err);
}

/* ---- keys ---- */

/* The call's rows: keys, and what far ones are made of. */
static sw_code keep_rows(sw_device_run *run, const sw_far_place *p, sw_err *err)
{
    static const sw_slot slots[] = {SW_SLOT_COMPRESS_KV, SW_SLOT_COMPRESS_GATE, SW_SLOT_INDEX_KV,
                                    SW_SLOT_INDEX_GATE};
    sw_device_engine *e = run->e;
    const sw_bf16_rows *buf = run->block->buf, made = {e->far.d_made, p->row};
    int64_t at = p->dim;

    for (int i = 0; i < 4 && at < p->row; i++) {
        const sw_device_weight *w = &run->block->linear[slots[i]];
        const sw_code rc = sw_device_linear(e, made.d + at, made.stride, false, buf[SW_BUF_N],
                                            run->n_tokens, w, err);

        if (rc != SW_OK) return rc;
        at += w->n_out;
    }
    return sw_cuda_far_keep(p, buf[SW_BUF_K], made, e->how, err);
}

static sw_code make_keys(const sw_device_run *run, const sw_far_place *p, bool is_index,
                         sw_err *err)
{
    const sw_device_engine *e = run->e;
    float *const *vectors = run->block->norm;
    const sw_far_make a = {
        .place = *p, .is_index = is_index,
        .positions = vectors[is_index ? SW_SLOT_INDEX_POSITIONS : SW_SLOT_COMPRESS_POSITIONS],
        .norm = vectors[is_index ? SW_SLOT_NORM_INDEX : SW_SLOT_NORM_COMPRESS],
        .cos = e->angles.d_cos, .sin = e->angles.d_sin, .half = e->m->rope_dim / 2,
        .eps = (float)e->m->norm_eps};

    return sw_cuda_far_make(&a, e->how, err);
}

/* ---- the choice ---- */

static sw_code make_queries(sw_device_run *run, const sw_far_place *p, sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const sw_device_weight *linear = run->block->linear;
    const sw_bf16_rows *buf = run->block->buf, q = {e->far.d_q, x->n_heads * x->head_dim};
    sw_code rc = sw_device_linear(e, q.d, q.stride, false, buf[SW_BUF_Q_A], run->n_tokens,
                                  &linear[SW_SLOT_INDEX_Q], err);

    if (rc == SW_OK)
        rc = sw_device_linear(e, e->far.d_weights, x->n_heads, true, buf[SW_BUF_N], run->n_tokens,
                              &linear[SW_SLOT_INDEX_WEIGHT], err);
    if (rc != SW_OK) return rc;
    return sw_cuda_far_turn(q, p, x->n_heads, x->head_dim, e->angles.d_cos, e->angles.d_sin,
                            e->m->rope_dim / 2, e->how, err);
}

/* Queries [row0, row0 + n) of one sequence. */
static sw_code choose_some(sw_device_run *run, const sw_far_place *p, int64_t seq, int64_t row0,
                           int64_t n, sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const int64_t n_keys = p->capacity / p->rate, stride = sw_round_up(n_keys, STRIDE_ALIGN);
    const sw_cublaslt_gemm product = {
        .m = n * x->n_heads, .n_out = n_keys, .k_in = x->head_dim,
        .d_x = e->far.d_q + row0 * x->n_heads * x->head_dim, .x_stride = x->head_dim,
        .d_w = p->d + seq * p->seq_stride + p->capacity * p->row + n_keys * p->dim,
        .d_y = e->far.d_products, .y_stride = stride, .y_is_f32 = true};
    const sw_far_choice choice = {.place = *p, .products = e->far.d_products,
                                  .weights = e->far.d_weights, .ranks = e->far.d_ranks,
                                  .chosen = e->far.d_chosen, .row0 = row0, .n = n,
                                  .n_keys = n_keys, .stride = stride, .n_heads = x->n_heads,
                                  .top_k = x->top_k};
    const sw_code rc = sw_cublaslt_run(e->lt, &product, err);

    return rc == SW_OK ? sw_cuda_far_choose(&choice, e->how, err) : rc;
}

/* Which far keys each query sees; *chosen stays NULL where there are no more than it may. */
static sw_code choose(const int32_t **chosen, sw_device_run *run, const sw_far_place *p,
                      sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const int64_t n_keys = p->capacity / p->rate;
    int64_t n_most;
    sw_code rc;

    if (!p->index_dim || n_keys <= x->top_k) return SW_OK;
    n_most = e->far.n_products / (x->n_heads * sw_round_up(n_keys, STRIDE_ALIGN));
    if ((rc = make_keys(run, p, true, err)) || (rc = make_queries(run, p, err))) return rc;
    for (int64_t seq = 0; seq < run->n_seqs; seq++) {
        const int64_t end = (seq + 1) * run->seq_len;

        for (int64_t row = seq * run->seq_len; row < end && rc == SW_OK; row += n_most)
            rc = choose_some(run, p, seq, row, sw_min_i64(n_most, end - row), err);
    }
    *chosen = e->far.d_chosen;
    return rc;
}

/* ---- attention ---- */

sw_code sw_device_near_far(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_device_engine *e = run->e;
    const sw_model *m = e->m;
    const sw_far_place p = place_of(run);
    const sw_device_angles *angles = p.rate ? &e->angles : &e->window_angles;
    sw_near_far_args a = {.place = p, .q = run->block->buf[l->src], .out = run->block->buf[l->dst],
                          .sinks = run->block->norm[l->slot], .cos = angles->d_cos,
                          .sin = angles->d_sin, .n_heads = run->block->sizes.n_heads,
                          .window = m->sliding_window, .top_k = m->indexer.top_k,
                          .half = m->rope_dim / 2, .scale = (float)m->attention_scale};
    sw_code rc = keep_rows(run, &p, err);

    if (rc == SW_OK && p.rate) rc = make_keys(run, &p, false, err);
    if (rc == SW_OK && p.rate) rc = choose(&a.chosen, run, &p, err);
    return rc == SW_OK ? sw_cuda_near_far(&a, e->how, err) : rc;
}

/* Group g of the rows reads group g of the columns. */
sw_code sw_device_group_linear(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_device_weight *w = &run->block->linear[l->slot];
    const sw_bf16_rows x = run->block->buf[l->src], y = run->block->buf[l->dst];
    const int64_t n_groups = run->e->m->o_groups, rows = w->n_out / n_groups;
    sw_code rc = SW_OK;

    if (!w->d_dense) return SW_FAIL(err, SW_E_BUG, "a linear in groups that is not dense");
    for (int64_t g = 0; g < n_groups && rc == SW_OK; g++) {
        const sw_cublaslt_gemm p = {.m = run->n_tokens, .n_out = rows, .k_in = w->k_in,
                                    .d_x = x.d + g * w->k_in,
                                    .d_w = w->d_dense + g * rows * w->k_in, .d_y = y.d + g * rows,
                                    .x_stride = x.stride, .y_stride = y.stride};

        rc = sw_cublaslt_run(run->e->lt, &p, err);
    }
    return rc;
}
