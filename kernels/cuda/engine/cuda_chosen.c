/* cuda_chosen.c - keys that are chosen one by one for every query, on a device. The same for the
 * CPU is kernels/engine/operations/indexer.c, the kernels are those of ops/engine_chosen.h.
 *
 * Where no sequence can be longer than all keys that are seen, nothing here runs. Where one can,
 * what keys are chosen by is cached from the first token on. Layers that share a choice find it
 * where the layer before has put it: in the side rows, which block by block runs keep.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"

#define DIM_ALIGN 8                      /* elements that kernels load at once */
#define RANKS_MOST ((int64_t)16 << 20)   /* at once, unless one query needs more */
#define CHOICE_NORM_EPS 1e-6f            /* whatever rms_norm_eps says */

/* Positions that a sequence of the call may have. */
static int64_t capacity_of(const sw_device_run *run)
{
    return run->kv ? run->kv->capacity : run->seq_len;
}

bool sw_device_run_may_choose(const sw_device_run *run)
{
    const sw_model *m = run->e->m;

    return sw_device_chooses_keys(m) && capacity_of(run) > m->indexer.top_k;
}

/* The call's tokens may be known to see all keys that there are. */
static bool sees_all(const sw_device_run *run)
{
    return run->end && run->end <= run->e->m->indexer.top_k;
}

int64_t sw_device_index_elems(const sw_model *m, int64_t layer, int64_t capacity)
{
    if (!sw_device_chooses_keys(m) || capacity <= m->indexer.top_k) return 0;
    return capacity * sw_model_cache_width(m, layer);
}

/* ---- scratch ---- */

static sw_code take_chosen(sw_device_engine *e, sw_err *err)
{
    const int64_t at = sw_model_side_of_index(e->m), top_k = e->m->indexer.top_k;
    int32_t *d = NULL;
    sw_code rc;

    if (at >= 0) {
        const sw_f32_rows side = sw_device_side_rows(e, at);

        e->choice.chosen = (sw_chosen_rows){(int32_t *)(void *)side.d, side.stride};
        return SW_OK;
    }
    rc = SW_STORE_TAKE(&d, &e->store, e->max_tokens * top_k, "chosen keys", err);
    e->choice.chosen = (sw_chosen_rows){d, top_k};
    return rc;
}

sw_code sw_device_choice_new(sw_device_engine *e, sw_err *err)
{
    const sw_indexer *x = &e->m->indexer;
    const int64_t n = e->max_tokens, most = e->max_positions;
    sw_device_choice *c = &e->choice;
    sw_code rc;

    if (!sw_device_chooses_keys(e->m) || most <= x->top_k) return SW_OK;
    if (x->head_dim % DIM_ALIGN || x->head_dim > SW_HEAD_DIM_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "index_head_dim of %lld; on the device it is a "
                       "multiple of %d up to %d; use --device cpu", (long long)x->head_dim,
                       DIM_ALIGN, SW_HEAD_DIM_MAX);
    c->n_ranks = sw_max_i64(most, sw_min_i64(n * most, RANKS_MOST));
    if ((rc = SW_STORE_TAKE(&c->d_q, &e->store, n * x->n_heads * x->head_dim, "indexer", err)) ||
        (rc = SW_STORE_TAKE(&c->d_keys, &e->store, n * x->head_dim, "indexer", err)) ||
        (rc = SW_STORE_TAKE(&c->d_weights, &e->store, n * x->n_heads, "indexer", err)) ||
        (rc = SW_STORE_TAKE(&c->d_ranks, &e->store, c->n_ranks, "scores of keys", err)))
        return rc;
    return take_chosen(e, err);
}

/* ---- what keys are chosen by ---- */

static sw_code make_keys(sw_device_run *run, sw_bf16_rows src, sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_device_block *b = run->block;
    const int64_t dim = e->m->indexer.head_dim;
    const sw_bf16_rows keys = {e->choice.d_keys, dim};
    const sw_norm_args norm = {.dst = keys, .src = keys, .weight = b->norm[SW_SLOT_NORM_INDEX],
                               .bias = b->norm_bias[SW_SLOT_NORM_INDEX], .n = run->n_tokens,
                               .width = dim, .eps = CHOICE_NORM_EPS, .factor = 1.0f};
    const sw_code rc = sw_device_linear(e, keys.d, keys.stride, false, src, run->n_tokens,
                                        &b->linear[SW_SLOT_INDEX_K], err);

    return rc == SW_OK ? sw_cuda_norm(&norm, e->how, err) : rc;
}

static sw_code make_queries(sw_device_run *run, sw_bf16_rows src, sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const sw_device_weight *linear = run->block->linear;
    const sw_code rc = sw_device_linear(e, e->choice.d_q, x->n_heads * x->head_dim, false,
                                        run->block->buf[SW_BUF_Q_A], run->n_tokens,
                                        &linear[SW_SLOT_INDEX_Q], err);

    if (rc != SW_OK) return rc;
    return sw_device_linear(e, e->choice.d_weights, x->n_heads, true, src, run->n_tokens,
                            &linear[SW_SLOT_INDEX_WEIGHT], err);
}

/* The first channels of heads turn; keys go into the cache, where there is one. */
static sw_code turn(const sw_device_run *run, bool has_queries, sw_err *err)
{
    const sw_device_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    sw_heads_args a = {.k = {e->choice.d_keys, x->head_dim}, .cos = e->angles.d_cos,
                       .sin = e->angles.d_sin, .first = run->d_first, .n = run->n_tokens,
                       .seq_len = run->seq_len, .capacity = capacity_of(run),
                       .n_heads = (int)x->n_heads, .n_kv_heads = 1, .head_dim = (int)x->head_dim,
                       .rope_dim = (int)e->m->rope_dim, .is_paired = x->is_paired};

    if (has_queries) a.q = (sw_bf16_rows){e->choice.d_q, x->n_heads * x->head_dim};
    if (run->kv) a.k_cache = run->kv->d_far;
    return sw_cuda_heads(&a, e->how, err);
}

/* ---- the choice ---- */

static sw_code choose(const sw_device_run *run, sw_err *err)
{
    const sw_device_engine *e = run->e;
    const sw_indexer *x = &e->m->indexer;
    const bool is_cached = run->kv && run->kv->d_far;
    sw_choice_args a = {.q = {e->choice.d_q, x->n_heads * x->head_dim},
                        .weights = e->choice.d_weights,
                        .keys = is_cached ? run->kv->d_far : e->choice.d_keys,
                        .ranks = e->choice.d_ranks, .chosen = e->choice.chosen,
                        .first = run->d_first, .seq_len = run->seq_len,
                        .capacity = capacity_of(run), .n_heads = x->n_heads, .dim = x->head_dim,
                        .top_k = x->top_k};
    const int64_t n_most = e->choice.n_ranks / a.capacity;
    sw_code rc = SW_OK;

    for (; a.row0 < run->n_tokens && rc == SW_OK; a.row0 += n_most) {
        a.n = sw_min_i64(n_most, run->n_tokens - a.row0);
        rc = sw_cuda_key_ranks(&a, e->how, err);
        if (rc == SW_OK) rc = sw_cuda_key_choose(&a, e->how, err);
    }
    return rc;
}

sw_code sw_device_index(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_bf16_rows src = run->block->buf[l->src];
    const bool chooses = !sees_all(run);
    sw_code rc = make_keys(run, src, err);

    if (rc == SW_OK && chooses) rc = make_queries(run, src, err);
    if (rc == SW_OK) rc = turn(run, chooses, err);
    if (rc != SW_OK || !chooses) return rc;
    run->has_chosen = true;
    return choose(run, err);
}

sw_code sw_device_take_index(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    (void)l;
    (void)err;
    run->has_chosen = !sees_all(run);
    return SW_OK;
}
