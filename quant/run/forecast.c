/* forecast.c - see forecast.h. */
#include "quant/run/forecast.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/model/stored.h"
#include "kernels/solver.h"
#include "quant/method/row_share.h"
#include "quant/method/slab.h"
#include "quant/method/target.h"
#include "quant/run/async_sink.h"
#include "quant/run/text_share.h"
#include "quant/search/kl_probe.h"
#include "quant/search/transform.h"
#include "quant/stats/pieces.h"

/* Of windows.h, whose searches and trials stop there. */
#define SEARCH_TOKENS_MAX 16384.0
#define HELD_TOKENS_MAX 4096.0
#define READERS_MAX 8 /* of a group of a fold that are told apart */
#define KERNEL_SCRATCH_BYTES ((int64_t)3 << 20) /* per thread: attention and matrix kernels */

/* What the selected linears of a layer need at one site. */
typedef struct site_need {
    bool is_used;
    int64_t k_in, n_max, n_linears, n_experts;
    int64_t weights; /* elements of its linears */
    int64_t n_outputs, n_tried; /* and those that a transform's trials solve */
    int64_t n_copied; /* of them those that a block copies out of the mapping */
    bool writes_residual;
    double busiest;       /* of its rows, what the busiest rank solves */
    double strength_rows; /* that the busiest rank chooses strengths by */
} site_need;

typedef struct forecaster {
    const sw_forecast_request *r;
    sw_forecast *out;
    int64_t chunk_tokens, n_tokens;
    double text; /* what the busiest rank has of the text */
    int n_alive; /* sums of pieces of the text at a time */
    int n_ranks;
    bool with_cross;
    int64_t n_probes, measured_peak; /* of sensitivities */
} forecaster;

static void add_linear(site_need needs[SW_SITE_COUNT], const sw_quant_options *o, const sw_model *m,
                       const sw_linear_ref *ref)
{
    site_need *need = &needs[ref->site];

    need->is_used = true;
    need->k_in = sw_max_i64(need->k_in, ref->k_in);
    need->n_max = sw_max_i64(need->n_max, ref->n_out);
    need->n_linears++;
    need->n_experts = sw_max_i64(need->n_experts, ref->expert + 1);
    need->n_outputs += ref->n_out;
    need->n_tried += o->algo->transform
                         ? sw_transform_rows(o->algo->transform, &o->spec, ref->n_out)
                         : ref->n_out;
    need->weights += ref->n_out * ref->k_in;
    if (sw_stored_may_copy(m, ref)) need->n_copied += ref->n_out * ref->k_in;
    need->writes_residual = sw_model_site_writes_residual(m, ref->layer, ref->site);
}

/* Hessians that are alive while a site is observed and solved. */
static int64_t stats_of(const forecaster *f, const site_need *need)
{
    int64_t k = need->k_in, one = 8 * k * k;
    int64_t residual = need->writes_residual ? 8 * f->r->model->hidden * k : 0;

    if (f->r->has_device && !f->r->has_stats) return 0;
    if (need->n_experts) return (2 * need->n_experts + 1) * one;
    if (f->r->has_stats) return one + 2 * k * k; /* the last one also packed */
    return f->with_cross ? 2 * (2 * one + residual) : one;
}

static int64_t groups_of(const sw_fold *fold, const site_need *need)
{
    return fold->is_per_expert ? sw_max_i64(1, need->n_experts) : 1;
}

/* Of the larger of the parts that candidates run on, at one rank. */
static int64_t tried_tokens(const forecaster *f)
{
    const sw_calib *calib = f->r->calib;
    const int64_t n = sw_block_probe_trial_tokens(calib->n_seqs, calib->seq_len) / calib->seq_len;

    return calib->seq_len * (int64_t)ceil(f->text * (double)n);
}

static sw_transform_need need_of(const forecaster *f, const sw_fold *fold, const site_need *need)
{
    const sw_quant_options *o = f->r->options;
    int64_t n_groups = groups_of(fold, need);
    sw_transform_need t = {.k = need->k_in, .n_max = need->n_max,
                           .n_outputs = need->n_outputs / n_groups,
                           .n_tried = need->n_tried / n_groups,
                           .n_readers = need->n_linears / n_groups,
                           .is_solved = o->algo->repairs_errors, .n_threads = o->n_threads};

    t.probe_elems = f->r->model->hidden * tried_tokens(f);
    return t;
}

/* Sums that a search takes at a time: of a group, or of so many experts' as may be there. */
static int64_t search_sums(const forecaster *f, int64_t layer, const sw_fold *fold,
                           const site_need *need)
{
    const sw_place memory = sw_place_cpu(1);
    const int64_t n = groups_of(fold, need), one = 8 * need->k_in * need->k_in;
    bool wanted[SW_SITE_COUNT] = {false};

    if (!fold->is_per_expert) return one;
    wanted[fold->site] = true;
    return one * sw_min_i64(n, sw_experts_at_a_time(f->r->model, layer, wanted, SW_EXPERTS_ALL,
                                                    f->n_alive, 1, &memory));
}

/* A transform's search in front of a site: its Hessians while they are summed; or they beside what
 * reads the site, decoded, and what the method takes. A group of an expert's is as large as the
 * experts' mean. */
static int64_t search_of(const forecaster *f, int64_t layer, const sw_fold *fold,
                         const site_need *need)
{
    sw_transform_need t = need_of(f, fold, need);
    const int64_t sums = search_sums(f, layer, fold, need);

    return sw_max_i64(f->n_alive * sums, sums + 4 * t.n_tried * t.k +
                                             f->r->options->algo->transform->bytes(&t));
}

/* The sums of what a piece of the text has, kept back or not: one of the two. */
static int64_t sums_of(const forecaster *f, const site_need *need)
{
    const int64_t k = need->k_in, one = 8 * k * k;

    if (f->r->has_stats) return 0;
    if (need->n_experts) return (need->n_experts + 1) * one;
    if (!f->with_cross) return one;
    return 2 * one + (need->writes_residual ? 8 * f->r->model->hidden * k : 0);
}

/* Of several ranks: codes of all linears of a site, which are solved before any is handed on. */
static int64_t codes_beside(const forecaster *f, const site_need *need)
{
    const bool is_beside = f->r->calib && !f->r->has_stats;

    return f->n_ranks > 1 && is_beside ? need->weights : 0;
}

/* Beside a device: codes of a linear in each lane, and those that wait to be written. */
static int64_t solved_beside_device(const forecaster *f, const site_need *need)
{
    const int64_t codes = codes_beside(f, need);
    const int64_t n_linears = sw_min_i64(need->n_linears, SW_SOLVER_LANES);

    return sw_max_i64(codes, n_linears * need->n_max * need->k_in) +
           sw_max_i64(SW_ASYNC_WAITING_BYTES, need->n_max * need->k_in);
}

/* Besides them: the original model's inputs while observing, or a factor and one linear's
 * solution while solving; one after the other. */
static int64_t transient_of(const forecaster *f, const site_need *need)
{
    const sw_model *m = f->r->model;
    int64_t k = need->k_in, n = need->n_max, n_threads = f->r->options->n_threads;
    int64_t observe = 4 * n_threads * 128 * k, solve;
    const bool sums_here = !f->r->has_device || f->r->has_stats;

    if (f->r->has_device_streams) return solved_beside_device(f, need);
    if (f->with_cross && !need->n_experts)
        observe += 4 * f->chunk_tokens * (k + (need->writes_residual ? m->hidden : 0));
    if (!sums_here) return sw_max_i64(observe, solved_beside_device(f, need));
    /* the first is the result; each has what is kept back beside the rest */
    observe += (f->n_alive - 1) * (f->with_cross && !need->n_experts ? 2 : 1) * sums_of(f, need);
    solve = 16 * k * k + (f->with_cross ? 8 : 0) * n * k + 6 * n * k +
            n_threads * 8 * 10 * SW_SLAB_ROWS * k + sw_max_i64(0, codes_beside(f, need) - n * k);
    return sw_max_i64(observe, solve);
}

static void count_work(forecaster *f, const site_need *need)
{
    sw_forecast *out = f->out;
    double k = (double)need->k_in, tokens = (double)f->n_tokens, n_k = (double)need->weights;
    double factors = need->n_experts ? (double)need->n_experts : 1;

    if (!f->r->has_stats) out->gram_flops += tokens * k * k; /* half of 2 t k^2: one triangle */
    if (f->with_cross) {
        out->gram_flops += 2 * tokens * k * k;
        if (need->writes_residual)
            out->gram_flops += 2 * tokens * k * (double)f->r->model->hidden;
        out->strength_units += need->strength_rows * k * k;
    }
    if (need->n_experts) out->expert_factor_units += factors * k * k * k;
    if (need->n_experts) out->expert_sum_bytes += (double)sums_of(f, need);
    else out->sum_bytes += (double)sums_of(f, need);
    out->factor_units += factors * k * k * k;
    out->solve_units += need->busiest * n_k * k;
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
        per_token += 6.0 * (double)m->n_experts_used * (double)m->moe_hidden *
                     (double)m->moe_intermediate;
    /* scores and their sums, causal: half of 4 t L d per head */
    if (up_to > SW_SITE_ATTN_IN)
        per_token += 2.0 * (double)f->r->calib->seq_len * (double)m->n_heads * (double)m->head_dim;
    return per_token * (double)f->n_tokens;
}

/* The half of a block that a site is in. */
static double half_flops(const forecaster *f, int64_t layer, sw_site site)
{
    double attention = forward_flops(f, layer, SW_SITE_MLP_IN);

    return site < SW_SITE_MLP_IN ? attention
                                 : forward_flops(f, layer, SW_SITE_COUNT) - attention;
}

/* The cut of n linears by what the solving backend takes together, and by what shares scales. */
static double busiest_of(const forecaster *f, sw_share_linear *linears, int64_t n, bool is_by_spec)
{
    const sw_backend *backend = f->r->has_device ? &sw_backend_cuda : &sw_backend_cpu;
    sw_site_share share;

    for (int64_t i = 0; i < n; i++)
        linears[i].unit = is_by_spec ? sw_share_unit(&f->r->options->spec, linears[i].n_out,
                                                     backend)
                                     : backend->rows_together;
    share = sw_site_share_of(linears, n, f->n_ranks);
    return sw_site_share_busiest(&share);
}

/* The same of what reads a fold: all of the site's linears, or an expert's. */
static double busiest_reader(const forecaster *f, const sw_fold *fold, const site_need *need)
{
    const int64_t n_groups = groups_of(fold, need);
    const int64_t n = sw_min_i64(READERS_MAX, need->n_linears / n_groups);
    sw_share_linear readers[READERS_MAX];

    if (n_groups == 1 || n < 1) return need->busiest;
    for (int64_t i = 0; i < n; i++)
        readers[i].n_out = need->n_outputs / (n_groups * n);
    return busiest_of(f, readers, n, true);
}

/* The work of a transform's search: its Hessians, and what the method says of itself. */
static void count_search(forecaster *f, int64_t layer, const sw_fold *fold, const site_need *need)
{
    const sw_calib *calib = f->r->calib;
    sw_transform_need t = need_of(f, fold, need);
    sw_transform_work work = f->r->options->algo->transform->work(&t);
    double k = (double)t.k, n_groups = (double)groups_of(fold, need), all = (double)f->n_tokens;
    double n_k = (double)need->weights, searched = fmin(SEARCH_TOKENS_MAX, all);
    double tried = (double)sw_block_probe_trial_tokens(calib->n_seqs, calib->seq_len) +
                   fmin(HELD_TOKENS_MAX, all / SW_STREAM_HELD_EVERY);
    sw_forecast *out = f->out;

    out->forward_flops += half_flops(f, layer, fold->site) / all *
                              (searched + work.half_runs * n_groups * tried) +
                          2 * work.product_rows * n_k;
    out->gram_flops += searched * k * k;
    out->factor_units += work.factors * n_groups * k * k * k;
    out->solve_units += busiest_reader(f, fold, need) * work.solves * n_k * k;
    out->fit_weights += (work.fit_weights + work.round_weights) * n_groups;
    out->round_weights += work.round_weights * n_groups;
    out->search_sum_bytes += 8 * n_groups * k * k;
    out->told_bytes += 4 * work.told_weights * n_groups;
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
    if (layer == f->r->model->n_layers && last >= 0) /* through the last block, for the head */
        flops += forward_flops(f, layer - 1, SW_SITE_COUNT);
    if (layer + 1 < f->r->model->n_layers) flops += forward_flops(f, layer, SW_SITE_COUNT);
    f->out->forward_flops += n_streams * flops;
}

/* Search in front of a site, and the scaled floats that a block goes on with where it gains. */
static void take_folds(forecaster *f, int64_t layer, int site,
                       const site_need needs[SW_SITE_COUNT], int64_t *search, int64_t *block)
{
    sw_fold folds[SW_FOLDS_MAX];
    int n;

    if (!f->r->options->algo->transform || !f->r->calib) return;
    n = sw_model_folds(folds, f->r->model, layer);
    for (int i = 0; i < n; i++) {
        if ((int)folds[i].site != site) continue;
        count_search(f, layer, &folds[i], &needs[site]);
        *search = sw_max_i64(*search, search_of(f, layer, &folds[i], &needs[site]));
        *block += 4 * needs[site].weights;
    }
}

/* Hessians of a block's sites: from a file one after the other, else all of them; routed ones of
 * every expert. */
static int64_t measured_stats(const forecaster *f, const site_need needs[SW_SITE_COUNT])
{
    int64_t sum = 0, most = 0;

    for (int site = 0; site < SW_SITE_COUNT; site++) {
        int64_t k = needs[site].k_in, n_halves = f->r->is_measured_on_stats ? 1 : 2;
        int64_t one = 8 * k * k * (1 + n_halves * needs[site].n_experts);
        if (!needs[site].is_used) continue;
        sum += one;
        most = sw_max_i64(most, one);
    }
    return f->r->is_measured_on_stats ? most : sum;
}

/* What measuring sensitivities holds in a layer, beside the streams. */
static void measure_layer(forecaster *f, const site_need needs[SW_SITE_COUNT], int64_t read)
{
    int64_t stats = measured_stats(f, needs), most = 0;

    if (!f->r->measured) return;
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        const site_need *need = &needs[site];
        int64_t k = need->k_in;
        if (!need->is_used) continue;
        f->n_probes++;
        most = sw_max_i64(most, 4 * need->weights + 16 * k * k + 6 * need->n_max * k +
                                    f->r->options->n_threads * 8 * 10 * SW_SLAB_ROWS * k);
    }
    f->measured_peak = sw_max_i64(f->measured_peak, stats + read + most);
}

/* Decoded values that the block goes on with once a site is solved. Where it runs on a device their
 * memory is kept from block to block (weight_rooms.h), so it is there from the first site on. */
static int64_t values_by(const forecaster *f, const site_need needs[SW_SITE_COUNT], int site)
{
    const int end = f->r->has_device_streams ? SW_SITE_COUNT - 1 : site;
    int64_t sum = 0;

    for (int s = 0; s <= end; s++)
        if (needs[s].is_used) sum += 4 * needs[s].weights;
    return sum;
}

static void take_layer(forecaster *f, int64_t layer, const site_need needs[SW_SITE_COUNT])
{
    sw_forecast *out = f->out;
    bool one_pass = f->r->options->sequential == SW_SEQUENTIAL_LAYER;
    int64_t block = 0, all_stats = 0, peak = 0, worst_block = 0, read = 0;
    int64_t n_blocks = f->r->options->algo->transform ? 3 : 2; /* the original's, the other's */
    bool is_solving = f->r->calib || f->r->has_stats;

    for (int site = 0; site < SW_SITE_COUNT; site++)
        block += 2 * n_blocks * needs[site].n_copied;
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (one_pass && needs[site].is_used) all_stats += stats_of(f, &needs[site]);
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        const site_need *need = &needs[site];
        int64_t stats = 0, search = 0, held;
        if (!need->is_used) continue;
        out->weights += (double)need->weights;
        read += 2 * need->weights;  /* the mapping of the weights, as far as it was read */
        take_folds(f, layer, site, needs, &search, &block);
        if (is_solving) {
            stats = sw_max_i64(search, (one_pass ? all_stats : stats_of(f, need)) +
                                           transient_of(f, need));
            count_work(f, need);
        } else {
            out->solve_units += need->busiest * (double)need->weights;
        }
        held = block + read + values_by(f, needs, site);
        if (stats + held > peak) {
            peak = stats + held;
            worst_block = held;
        }
    }
    if (f->r->calib) count_forward(f, layer, needs);
    measure_layer(f, needs, read);
    if (peak <= out->stats_bytes + out->block_bytes) return;
    out->read_bytes = read;
    out->block_bytes = worst_block;
    out->stats_bytes = peak - worst_block;
    out->worst_layer = layer;
}

/* Buffers for so many tokens at a time, with a working copy of them. */
static int64_t engine_bytes(const forecaster *f, int64_t n_tokens)
{
    const sw_model *m = f->r->model;
    int64_t bytes = f->r->options->n_threads * KERNEL_SCRATCH_BYTES;

    for (int b = 0; b < SW_BUF_COUNT; b++)
        if (b != SW_BUF_X) bytes += 4 * n_tokens * sw_model_buf_width(m, (sw_buf)b);
    if (m->n_experts) bytes += 4 * n_tokens * (2 * m->moe_hidden + 2 * m->moe_intermediate);
    return bytes + 4 * n_tokens * m->hidden;
}

/* The original's stream, unless there are statistics; and one per site, of few tokens. */
static int64_t measure_streams(const forecaster *f)
{
    const sw_calib *calib = f->r->measured;
    const sw_model *m = f->r->model;
    int64_t n = sw_kl_probe_tokens(m, calib, m->n_layers * SW_SITE_COUNT);
    int64_t bytes = engine_bytes(f, n) + 4 * (f->n_probes + 1) * n * m->hidden;

    if (f->r->is_measured_on_stats) return bytes;
    return bytes + engine_bytes(f, sw_streams_chunk_seqs(calib) * calib->seq_len) +
           4 * calib->n_seqs * calib->seq_len * m->hidden;
}

static void take_engine(forecaster *f)
{
    const sw_model *m = f->r->model;
    int64_t n_streams = f->with_cross ? 2 : 1;
    sw_forecast *out = f->out;

    out->engine_bytes = engine_bytes(f, f->chunk_tokens);
    out->stream_bytes = n_streams * 4 * f->n_tokens * (m->hidden + sw_model_side_width(m));
    out->chunk_bytes = n_streams * 4 * f->chunk_tokens * m->hidden;
    if (!f->r->has_device_streams) return;
    /* a chunk on its way there, and what tokens have besides */
    out->chunk_bytes = 4 * f->chunk_tokens * m->hidden;
    out->stream_bytes =
        n_streams * 4 * f->n_tokens * sw_model_side_width(m) + out->chunk_bytes;
}

/* --- ranks --- */

/* Sums are added by all ranks and go to all; those of experts go to their owners; codes, a byte a
 * weight, go round, and the weights of trials, as floats, go from each to all. What the
 * busiest rank has of the solving is counted site by site (busiest_of); what is not an expert's is
 * factored by all. */
static void share(forecaster *f)
{
    const sw_calib *calib = f->r->calib;
    sw_forecast *out = f->out;
    const double others = 1 - 1.0 / f->n_ranks;
    const bool with_held = f->with_cross;
    double n_sums = 0, n_searched = 0;

    if (calib && !f->r->has_stats)
        n_sums = sw_text_sums_between(f->r->model, calib, f->n_ranks, with_held);
    if (calib) n_searched = sw_text_sums_between(f->r->model, calib, f->n_ranks, false);
    out->traffic_bytes = n_sums * out->sum_bytes + n_sums * others * out->expert_sum_bytes +
                         n_searched * out->search_sum_bytes + 2 * out->told_bytes +
                         2 * out->weights;
    out->forward_flops *= f->text;
    out->gram_flops *= f->text;
    out->stream_bytes = (int64_t)(f->text * (double)out->stream_bytes);
    out->fit_weights -= others * (out->fit_weights - out->round_weights);
    out->factor_units -= others * out->expert_factor_units;
}

static bool is_by_expert(const forecaster *f, int64_t layer, int site)
{
    return sw_model_is_sparse(f->r->model, layer) &&
           (site == SW_SITE_DOWN_IN ||
            (site == SW_SITE_MLP_IN && f->r->options->experts != SW_EXPERTS_ALL));
}

/* Linears of a site that are solved side by side; else, without streams, one after the other. An
 * expert is solved whole. linears [n] is scratch. */
static void find_busiest(const forecaster *f, site_need *need, sw_share_linear *linears,
                         const sw_linear_ref *refs, int64_t n, int site)
{
    const bool by_expert = need->n_experts && is_by_expert(f, refs[0].layer, site);
    const bool is_beside = f->r->calib && !f->r->has_stats;
    const double n_experts = (double)need->n_experts;
    double one_by_one = 0;
    int64_t n_in = 0;

    for (int64_t i = 0; i < n; i++) {
        if ((int)refs[i].site != site) continue;
        linears[n_in].n_out = refs[i].n_out;
        one_by_one += (double)refs[i].n_out * busiest_of(f, &linears[n_in++], 1, true);
    }
    if (!n_in) return;
    need->busiest = by_expert   ? ceil(n_experts / f->n_ranks) / n_experts
                    : is_beside ? busiest_of(f, linears, n_in, true)
                                : one_by_one / (double)need->n_outputs;
}

/* Rows that a site's strengths are chosen by, of the rank with most. linears [n] is scratch. */
static double strength_rows(const forecaster *f, sw_share_linear *linears,
                            const sw_linear_ref *refs, int64_t n, int site)
{
    int64_t n_in = 0, n_rows = 0;

    for (int64_t i = 0; i < n; i++) {
        const sw_row_sample rows = sw_strength_rows(refs[i].n_out, refs[i].expert >= 0);

        if ((int)refs[i].site != site) continue;
        linears[n_in++].n_out = sw_row_sample_count(&rows);
        n_rows += sw_row_sample_count(&rows);
    }
    return (double)n_rows * busiest_of(f, linears, n_in, false);
}

static sw_code forecast_layer(forecaster *f, int64_t layer, sw_err *err)
{
    const sw_forecast_request *r = f->r;
    int64_t n = sw_model_linears(r->model, layer, NULL, 0), n_selected = 0;
    site_need needs[SW_SITE_COUNT];
    sw_share_linear *linears = NULL;
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n, "linears of a block", err);

    if (rc == SW_OK) rc = SW_MEM_GET(&linears, n, "linears of a block", err);
    if (rc != SW_OK) goto done;
    memset(needs, 0, sizeof needs);
    n = sw_model_linears(r->model, layer, refs, n);
    for (int64_t i = 0; i < n; i++) {
        char path[256];
        if (!sw_model_slot_path(path, r->model, layer, refs[i].slot, refs[i].expert) ||
            !r->is_selected(r->self, &refs[i], path))
            continue;
        add_linear(needs, r->options, r->model, &refs[i]);
        refs[n_selected++] = refs[i];
    }
    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (needs[site].is_used) {
            find_busiest(f, &needs[site], linears, refs, n_selected, site);
            needs[site].strength_rows = strength_rows(f, linears, refs, n_selected, site);
        }
    take_layer(f, layer, needs);
done:
    sw_mem_put(linears);
    sw_mem_put(refs);
    return rc;
}

sw_code sw_forecast_new(sw_forecast *out, const sw_forecast_request *request, sw_err *err)
{
    const sw_quant_options *o = request->options;
    const sw_calib *calib = request->calib;
    const int n_ranks = request->n_ranks > 1 ? request->n_ranks : 1;
    sw_forecast forecast = {0};
    forecaster f = {.r = request, .out = &forecast, .n_alive = 1, .text = 1, .n_ranks = n_ranks};
    sw_code rc = SW_OK;

    if (calib) {
        f.n_tokens = calib->n_seqs * calib->seq_len;
        f.chunk_tokens = sw_streams_chunk_seqs(calib) * calib->seq_len;
        f.n_alive = sw_pieces_alive_at(sw_text_pieces(request->model, calib), 0, n_ranks, false);
        f.text = sw_text_share_most(request->model, calib, n_ranks);
        f.with_cross = !request->has_stats && (o->cap.input > 0 || o->cap.residual > 0) &&
                       o->algo->repairs_errors && sw_streams_hold_back(calib);
        take_engine(&f);
    }
    for (int64_t layer = 0; layer <= request->model->n_layers && rc == SW_OK; layer++)
        rc = forecast_layer(&f, layer, err);
    if (rc == SW_OK && request->measured)
        forecast.measure_bytes = f.measured_peak + measure_streams(&f);
    if (rc == SW_OK && n_ranks > 1) share(&f);
    if (rc == SW_OK) *out = forecast;
    return rc;
}

int64_t sw_forecast_peak(const sw_forecast *f, bool is_spilled)
{
    return f->engine_bytes + (is_spilled ? f->chunk_bytes : f->stream_bytes) + f->block_bytes +
           f->stats_bytes;
}
