/* forecast.c - see forecast.h. */
#include "quant/forecast.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/model/stored.h"
#include "quant/slab.h"
#include "quant/streams.h"

#define KERNEL_SCRATCH_BYTES ((int64_t)3 << 20) /* per thread: attention and matrix kernels */

/* What the selected linears of a layer need at one site. */
typedef struct site_need {
    bool is_used;
    int64_t k_in, n_max, n_linears, n_experts;
    int64_t weights; /* elements of its linears */
    int64_t n_copied; /* of them those that a block copies out of the mapping */
    bool writes_residual;
} site_need;

typedef struct forecaster {
    const sw_forecast_request *r;
    sw_forecast *out;
    int64_t chunk_tokens, n_tokens;
    bool with_cross;
} forecaster;

static void add_linear(site_need needs[SW_SITE_COUNT], const sw_model *m, const sw_linear_ref *ref)
{
    site_need *need = &needs[ref->site];

    need->is_used = true;
    need->k_in = sw_max_i64(need->k_in, ref->k_in);
    need->n_max = sw_max_i64(need->n_max, ref->n_out);
    need->n_linears++;
    need->n_experts = sw_max_i64(need->n_experts, ref->expert + 1);
    need->weights += ref->n_out * ref->k_in;
    if (sw_stored_may_copy(m, ref)) need->n_copied += ref->n_out * ref->k_in;
    need->writes_residual = sw_model_site_writes_residual(m, ref->layer, ref->site);
}

/* Hessians that are alive while a site is observed and solved. */
static int64_t stats_of(const forecaster *f, const site_need *need)
{
    int64_t k = need->k_in, one = 8 * k * k;
    int64_t residual = need->writes_residual ? 8 * f->r->model->hidden * k : 0;

    if (need->n_experts) return (2 * need->n_experts + 1) * one;
    return f->with_cross ? 2 * (2 * one + residual) : one;
}

/* Besides them: the original model's inputs while observing, or a factor and one linear's
 * solution while solving; one after the other. */
static int64_t transient_of(const forecaster *f, const site_need *need)
{
    const sw_model *m = f->r->model;
    int64_t k = need->k_in, n = need->n_max, n_threads = f->r->options->n_threads;
    int64_t observe = 4 * n_threads * 128 * k, solve;

    if (f->with_cross && !need->n_experts)
        observe += 4 * f->chunk_tokens * (k + (need->writes_residual ? m->hidden : 0));
    solve = 16 * k * k + (f->with_cross ? 8 : 0) * n * k + 6 * n * k +
            n_threads * 8 * 10 * SW_SLAB_ROWS * k;
    return sw_max_i64(observe, solve);
}

static void count_work(forecaster *f, const site_need *need)
{
    sw_forecast *out = f->out;
    double k = (double)need->k_in, tokens = (double)f->n_tokens, n_k = (double)need->weights;
    double factors = need->n_experts ? (double)need->n_experts : 1;

    out->gram_flops += tokens * k * k; /* half of 2 t k^2: one triangle */
    if (f->with_cross) {
        out->gram_flops += 2 * tokens * k * k;
        if (need->writes_residual)
            out->gram_flops += 2 * tokens * k * (double)f->r->model->hidden;
        out->strength_units += n_k * k;
    }
    out->factor_units += factors * k * k * k;
    out->solve_units += n_k * k;
}

/* A pass of one stream through what comes up to a site; roughly, by the weights before it. */
static double forward_flops(const forecaster *f, int64_t layer, sw_site up_to)
{
    const sw_model *m = f->r->model;
    double per_token = 0;
    int n_ops = 0;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);
    int64_t n_out, k_in;

    for (int i = 0; i < n_ops; i++) {
        if (ops[i].kind != SW_OP_LINEAR || ops[i].site >= up_to) continue;
        sw_model_slot_shape(m, layer, ops[i].slot, &n_out, &k_in);
        per_token += 2.0 * (double)n_out * (double)k_in;
    }
    if (up_to > SW_SITE_MLP_IN && sw_model_is_sparse(m, layer))
        per_token += 6.0 * (double)m->n_experts_used * (double)m->hidden *
                     (double)m->moe_intermediate;
    /* scores and their sums, causal: half of 4 t L d per head */
    if (up_to > SW_SITE_ATTN_IN)
        per_token += 2.0 * (double)f->r->calib->seq_len * (double)m->n_heads * (double)m->head_dim;
    return per_token * (double)f->n_tokens;
}

static void count_forward(forecaster *f, int64_t layer, const site_need needs[SW_SITE_COUNT])
{
    bool one_pass = f->r->options->sequential == SW_SEQUENTIAL_LAYER;
    double n_streams = f->with_cross ? 2 : 1, flops = 0;
    int last = -1;

    for (int site = 0; site < SW_SITE_COUNT; site++) {
        if (!needs[site].is_used) continue;
        last = site;
        if (one_pass) continue;
        flops += forward_flops(f, layer, (sw_site)site);
        /* the streams have moved to the middle of the block by then */
        if (site >= SW_SITE_MLP_IN) flops -= forward_flops(f, layer, SW_SITE_MLP_IN);
    }
    if (one_pass && last >= 0) flops += forward_flops(f, layer, (sw_site)last);
    if (layer + 1 < f->r->model->n_layers) flops += forward_flops(f, layer, SW_SITE_COUNT);
    f->out->forward_flops += n_streams * flops;
}

static void take_layer(forecaster *f, int64_t layer, const site_need needs[SW_SITE_COUNT])
{
    sw_forecast *out = f->out;
    bool one_pass = f->r->options->sequential == SW_SEQUENTIAL_LAYER;
    int64_t block = 0, all_stats = 0, peak = 0, worst_block = 0, read = 0;

    for (int site = 0; site < SW_SITE_COUNT; site++) /* the original's block and the other's */
        block += 2 * 2 * needs[site].n_copied;
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (one_pass && needs[site].is_used) all_stats += stats_of(f, &needs[site]);
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        const site_need *need = &needs[site];
        int64_t stats = 0;
        if (!need->is_used) continue;
        out->weights += (double)need->weights;
        read += 2 * need->weights;  /* the mapping of the weights, as far as it was read */
        block += 4 * need->weights; /* decoded values that the block goes on with */
        if (f->r->calib) {
            stats = (one_pass ? all_stats : stats_of(f, need)) + transient_of(f, need);
            count_work(f, need);
        } else {
            out->solve_units += (double)need->weights;
        }
        if (stats + block + read > peak) {
            peak = stats + block + read;
            worst_block = block + read;
        }
    }
    if (f->r->calib) count_forward(f, layer, needs);
    if (peak <= out->stats_bytes + out->block_bytes) return;
    out->block_bytes = worst_block;
    out->stats_bytes = peak - worst_block;
    out->worst_layer = layer;
}

static void take_engine(forecaster *f)
{
    const sw_model *m = f->r->model;
    int64_t n_threads = f->r->options->n_threads, n_streams = f->with_cross ? 2 : 1;
    sw_forecast *out = f->out;

    for (int b = 0; b < SW_BUF_COUNT; b++)
        if (b != SW_BUF_X)
            out->engine_bytes += 4 * f->chunk_tokens * sw_model_buf_width(m, (sw_buf)b);
    out->engine_bytes += n_threads * KERNEL_SCRATCH_BYTES;
    if (m->n_experts)
        out->engine_bytes += 4 * f->chunk_tokens * (2 * m->hidden + 2 * m->moe_intermediate);
    out->engine_bytes += 4 * f->chunk_tokens * m->hidden; /* the streams' working copy */
    out->stream_bytes = n_streams * 4 * f->n_tokens * m->hidden;
    out->chunk_bytes = n_streams * 4 * f->chunk_tokens * m->hidden;
}

static sw_code forecast_layer(forecaster *f, int64_t layer, sw_err *err)
{
    const sw_forecast_request *r = f->r;
    int64_t n = sw_model_linears(r->model, layer, NULL, 0);
    site_need needs[SW_SITE_COUNT];
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    if (rc != SW_OK) return rc;
    memset(needs, 0, sizeof needs);
    n = sw_model_linears(r->model, layer, refs, n);
    for (int64_t i = 0; i < n; i++) {
        char path[256];
        if (sw_model_slot_path(path, r->model, layer, refs[i].slot, refs[i].expert) &&
            r->is_selected(r->self, &refs[i], path))
            add_linear(needs, r->model, &refs[i]);
    }
    take_layer(f, layer, needs);
    sw_mem_put(refs);
    return SW_OK;
}

sw_code sw_forecast_new(sw_forecast *out, const sw_forecast_request *request, sw_err *err)
{
    const sw_quant_options *o = request->options;
    const sw_calib *calib = request->calib;
    sw_forecast forecast = {0};
    forecaster f = {.r = request, .out = &forecast};
    sw_code rc = SW_OK;

    if (calib) {
        f.n_tokens = calib->n_seqs * calib->seq_len;
        f.chunk_tokens = sw_streams_chunk_seqs(calib) * calib->seq_len;
        f.with_cross = (o->cap.input > 0 || o->cap.residual > 0) && o->algo->repairs_errors &&
                       sw_streams_hold_back(calib);
        take_engine(&f);
    }
    for (int64_t layer = 0; layer < request->model->n_layers && rc == SW_OK; layer++)
        rc = forecast_layer(&f, layer, err);
    if (rc == SW_OK) *out = forecast;
    return rc;
}

int64_t sw_forecast_peak(const sw_forecast *f, bool is_spilled)
{
    return f->engine_bytes + (is_spilled ? f->chunk_bytes : f->stream_bytes) + f->block_bytes +
           f->stats_bytes;
}
