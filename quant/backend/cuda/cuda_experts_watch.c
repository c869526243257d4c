/* cuda_experts_watch.c - see cuda_experts_watch.h. */
#include "quant/backend/cuda/cuda_experts_watch.h"

#include <string.h>

#include "formats/base/size.h"
#include "quant/backend/cuda/cuda_sizes.h"
#include "quant/backend/cuda/cuda_streams.h"

static sw_code new_sizes(sw_cuda_experts *w, sw_err *err)
{
    const sw_expert_stats *x = w->stats->experts;
    int64_t n = w->stats->n_experts;
    sw_code rc = SW_OK;

    if (!x[0].in.sizes.abs_max && !x[0].down.sizes.abs_max) return SW_OK;
    rc = SW_MEM_GET(&w->sizes, n, "sizes of experts' inputs", err);
    for (int64_t e = 0; e < n && rc == SW_OK; e++) {
        if (x[e].in.sizes.abs_max)
            rc = sw_cuda_sizes_new(&w->sizes[e].in, w->solver, x[e].in.sizes.k_in, err);
        if (rc == SW_OK && x[e].down.sizes.abs_max)
            rc = sw_cuda_sizes_new(&w->sizes[e].down, w->solver, x[e].down.sizes.k_in, err);
    }
    return rc;
}

static sw_code new_rows(sw_cuda_experts *w, sw_err *err)
{
    int64_t n = w->stats->n_experts;
    sw_code rc = SW_MEM_GET(&w->rows, n * SW_EXPERT_SUMS, "rows of experts", err);

    for (int64_t i = 0; i < n * SW_EXPERT_SUMS && rc == SW_OK; i++) {
        sw_expert_stats *x = &w->stats->experts[i / SW_EXPERT_SUMS];
        sw_hessian *const sums[SW_EXPERT_SUMS] = {&x->in.half[0], &x->in.half[1], &x->down.half[0],
                                                  &x->down.half[1], &x->down.all};
        sw_hessian *sum = sums[i % SW_EXPERT_SUMS];
        if (!sum->k_in) continue;
        w->rows[i].sum = sum;
        rc = sw_device_take((void **)&w->rows[i].d_rows, sw_solver_gpu(w->solver),
                            sw_cuda_expert_rows(sum->k_in) * sum->k_in,
                            (int64_t)sizeof *w->rows[i].d_rows,
                            "rows of experts", err);
    }
    return rc;
}

/* Rows gathered so far into their sum. */
static sw_code flush(sw_expert_rows *r, sw_err *err)
{
    int64_t n = r->n;

    r->n = 0;
    if (!n) return SW_OK;
    return sw_cuda_hessian_add_rows(r->sum, r->d_rows, r->sum->k_in, NULL, NULL, n, err);
}

static sw_code add_rows(sw_expert_rows *r, sw_solver *solver, const uint16_t *d_x, int64_t stride,
                        int64_t n, sw_err *err)
{
    int64_t n_rows;
    sw_code rc = SW_OK;

    if (!r->sum || !n) return SW_OK;
    n_rows = sw_cuda_expert_rows(r->sum->k_in);
    if (r->n + n > n_rows && (rc = flush(r, err)) != SW_OK) return rc;
    if (n > n_rows)
        return sw_cuda_hessian_add_rows(r->sum, d_x, stride, NULL, NULL, n, err);
    rc = sw_solver_keep(solver, r->d_rows + r->n * r->sum->k_in, NULL, NULL, d_x, stride, n,
                        r->sum->k_in, err);
    r->n += n;
    return rc;
}

static int64_t batch_tokens(const sw_streams *s)
{
    const sw_cuda_streams *on = s->own;

    return on->batch_seqs * s->seq_len;
}

sw_code sw_cuda_experts_new(sw_cuda_experts *out, const sw_streams *s, sw_site_stats *stats,
                             sw_err *err)
{
    static const sw_site sites[] = {SW_SITE_MLP_IN, SW_SITE_DOWN_IN};
    int64_t width = 0;
    sw_code rc;

    out->solver = sw_cuda_solver(&s->place);
    out->stats = stats;
    out->stretch = sw_streams_stretch(s);
    out->all_every = sw_streams_all_every(s, stats->policy);
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++)
        if (stats->is_wanted[sites[i]] && stats->act[sites[i]].scope != SW_ACT_NONE)
            width = sw_max_i64(width, sw_model_site_width(s->model, stats->layer, sites[i]));
    rc = new_sizes(out, err);
    if (rc == SW_OK) rc = new_rows(out, err);
    if (rc == SW_OK && stats->ranges && stats->is_wanted[SW_SITE_DOWN_IN])
        rc = sw_cuda_range_new(&out->range, out->solver, err);
    if (rc == SW_OK && width)
        rc =
            sw_device_take((void **)&out->d_rounded, sw_cuda_gpu(&s->place),
                           batch_tokens(s) * width, (int64_t)sizeof *out->d_rounded,
                           "rounded inputs", err);
    return rc;
}

void sw_cuda_experts_free(sw_cuda_experts *w)
{
    if (!w->solver) return;
    for (int64_t e = 0; w->sizes && e < w->stats->n_experts; e++) {
        sw_cuda_sizes_free(&w->sizes[e].in, w->solver);
        sw_cuda_sizes_free(&w->sizes[e].down, w->solver);
    }
    for (int64_t i = 0; w->rows && i < w->stats->n_experts * SW_EXPERT_SUMS; i++)
        sw_device_put(sw_solver_gpu(w->solver), w->rows[i].d_rows);
    sw_mem_put(w->rows);
    sw_mem_put(w->sizes);
    sw_cuda_range_free(&w->range, w->solver);
    sw_device_put(sw_solver_gpu(w->solver), w->d_rounded);
    memset(w, 0, sizeof *w);
}

void sw_cuda_experts_ask(sw_device_tap *tap, const sw_cuda_experts *w,
                          sw_code (*see_all)(void *self, int64_t expert, const void *d_x,
                                             int64_t n_tokens, int64_t k_in, int64_t stride,
                                             sw_err *err))
{
    const sw_site_stats *stats = w->stats;

    tap->expert_begin = stats->expert_begin;
    tap->expert_end = stats->expert_begin + stats->n_experts;
    tap->is_in_only = !stats->is_wanted[SW_SITE_DOWN_IN];
    tap->is_experts_only = !sw_site_stats_has_sites(stats);
    tap->stretch = w->stretch;
    if (!stats->experts[0].down.all.k_in) return;
    tap->see_all = see_all;
    tap->all_every = w->all_every;
}

/* From here on as the linears will round them. */
static sw_code round_rows(sw_cuda_experts *w, sw_site site, const void **d_x, int64_t *stride,
                          int64_t n, int64_t k, sw_err *err)
{
    const sw_act *act = &w->stats->act[site];
    sw_code rc;

    if (!w->stats->is_wanted[site] || act->scope == SW_ACT_NONE) return SW_OK;
    rc = sw_solver_act_round_bf16(w->solver, w->d_rounded, *d_x, *stride, n, k, act,
                                  w->stats->input_scale[site], err);
    *d_x = w->d_rounded;
    *stride = k;
    return rc;
}

/* The rows of the first half come first. */
static sw_code add_halves(sw_expert_rows half[2], sw_solver *solver, const uint16_t *d_x,
                          int64_t stride, int64_t n_tokens, int64_t n_first, sw_err *err)
{
    sw_code rc = add_rows(&half[0], solver, d_x, stride, n_first, err);

    return rc == SW_OK ? add_rows(&half[1], solver, d_x + n_first * stride, stride,
                                  n_tokens - n_first, err)
                       : rc;
}

/* Of tokens of which those in the first half of the text come first, how many those are. */
static int64_t count_first(const int32_t *token_ids, int64_t n_tokens, int64_t first_token,
                           int64_t stretch)
{
    int64_t begin = 0, end = n_tokens;

    while (begin < end) {
        const int64_t middle = (begin + end) / 2;

        if ((first_token + token_ids[middle]) / stretch % 2 == 0) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

sw_code sw_cuda_experts_see(sw_cuda_experts *w, sw_site site, int64_t expert, const void *d_x,
                             int64_t n_tokens, int64_t k_in, int64_t stride,
                             const int32_t *token_ids, int64_t first_token, sw_err *err)
{
    const int64_t n_first = count_first(token_ids, n_tokens, first_token, w->stretch);
    int64_t e = expert - w->stats->expert_begin;
    bool is_in = site == SW_SITE_MLP_IN;
    sw_expert_stats *x = &w->stats->experts[e];
    const sw_cuda_sizes *sizes = !w->sizes ? NULL : is_in ? &w->sizes[e].in : &w->sizes[e].down;
    sw_code rc = round_rows(w, site, &d_x, &stride, n_tokens, k_in, err);

    if (is_in) x->n_tokens += n_tokens;
    if (rc == SW_OK && sizes && sizes->d_max)
        rc = sw_solver_watch_sizes(w->solver, sizes->d_max, sizes->d_sum, d_x, stride, n_tokens,
                                   k_in, err);
    if (rc == SW_OK && !is_in && w->range.d_counts) /* what `in` reads is counted once, for all */
        rc = sw_cuda_range_add(&w->range, w->solver, d_x, stride, n_tokens, k_in, err);
    return rc == SW_OK ? add_halves(&w->rows[e * SW_EXPERT_SUMS + (is_in ? 0 : 2)], w->solver, d_x,
                                    stride, n_tokens, n_first, err)
                       : rc;
}

sw_code sw_cuda_experts_all(sw_cuda_experts *w, int64_t expert, const void *d_x,
                             int64_t n_tokens, int64_t k_in, int64_t stride, sw_err *err)
{
    int64_t e = expert - w->stats->expert_begin;
    sw_code rc = round_rows(w, SW_SITE_DOWN_IN, &d_x, &stride, n_tokens, k_in, err);

    return rc == SW_OK ? add_rows(&w->rows[e * SW_EXPERT_SUMS + 4], w->solver, d_x, stride,
                                  n_tokens, err)
                       : rc;
}

static sw_code fetch_sizes(sw_channels *into, const sw_cuda_sizes *sizes, sw_solver *solver,
                           int64_t n_tokens, sw_err *err)
{
    return sizes->d_max ? sw_cuda_sizes_fetch(into, sizes, solver, n_tokens, err) : SW_OK;
}

sw_code sw_cuda_experts_fetch(sw_cuda_experts *w, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < w->stats->n_experts * SW_EXPERT_SUMS && rc == SW_OK; i++)
        rc = flush(&w->rows[i], err);
    for (int64_t e = 0; w->sizes && e < w->stats->n_experts && rc == SW_OK; e++) {
        sw_expert_stats *x = &w->stats->experts[e];
        rc = fetch_sizes(&x->in.sizes, &w->sizes[e].in, w->solver, x->n_tokens, err);
        if (rc == SW_OK)
            rc = fetch_sizes(&x->down.sizes, &w->sizes[e].down, w->solver, x->n_tokens, err);
    }
    if (rc == SW_OK && w->range.d_counts)
        rc = sw_cuda_range_fetch(&w->stats->ranges[SW_SITE_DOWN_IN], &w->range, w->solver, err);
    return rc;
}
