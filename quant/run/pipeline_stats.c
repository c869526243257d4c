/* pipeline_stats.c - the pipeline fed from a statistics file: sw_quant_run_stats of pipeline.h.
 *
 * Hessians and ranges come from the file, whatever the scheme. A transform also searches and is
 * judged on activations: those of the file's windows of text, run through the original model block
 * by block. What it divides the inputs by is divided out of the stored statistics afterwards.
 */
#include <stdio.h>

#include "kernels/blas.h"
#include "quant/run/block_job.h"
#include "quant/stats/stats.h"

typedef struct feed {
    const sw_model *model;
    const sw_st *st;
    const sw_zpack *file;
    const sw_quant_options *options;
    const sw_quant_sink *sink;
    const sw_progress *progress;
    sw_stats_windows windows;
    sw_streams streams; /* of the windows, in the original model; without a model where none run */
    sw_weight_rooms rooms;
} feed;

static bool has_streams(const feed *f) { return f->streams.model != NULL; }

/* To the middle of the block, before the first site behind it. */
static sw_code go_to(feed *f, sw_block_job *job, sw_site site, sw_err *err)
{
    if (!has_streams(f) || site < SW_SITE_MLP_IN || f->streams.ahead != SW_HALF_BOTH) return SW_OK;
    return sw_streams_advance(&f->streams, &job->untouched, &job->untouched, SW_HALF_ATTENTION,
                              f->progress, err);
}

static sw_code transform_site(feed *f, sw_block_job *job, sw_site site, sw_err *err)
{
    bool is_wanted[SW_SITE_COUNT] = {false};
    sw_transform_job t = sw_block_job_transform(job, &f->streams);

    if (!has_streams(f)) return SW_OK;
    is_wanted[site] = true;
    return sw_transform_sites(&t, is_wanted, err);
}

/* Magnitudes of divided inputs, from the windows; how large they get at most is known exactly. */
static sw_code count_divided(sw_range *range, feed *f, sw_block_job *job, sw_site site,
                             sw_err *err)
{
    bool is_wanted[SW_SITE_COUNT] = {false};
    sw_range *ranges = NULL;
    sw_code rc = SW_MEM_GET(&ranges, SW_SITE_COUNT, "input ranges", err);

    if (rc != SW_OK) return rc;
    is_wanted[site] = true;
    rc = sw_ranges_find(ranges, &f->streams, is_wanted, &job->original, f->progress, err);
    if (rc == SW_OK) {
        ranges[site].amax = range->amax;
        *range = ranges[site];
    }
    sw_mem_put(ranges);
    return rc;
}

/* The scale of a site's inputs, where what reads it stores one. */
static sw_code settle_input(feed *f, sw_block_job *job, sw_site site, sw_err *err)
{
    const sw_act *act = NULL;
    sw_range *range = NULL;
    sw_code rc;

    for (int64_t i = 0; i < job->n_linears; i++)
        if (job->linears[i].site == site && sw_act_needs_input_scale(&job->specs[i].act))
            act = &job->specs[i].act;
    if (!act) return SW_OK;
    if ((rc = SW_MEM_GET(&range, 1, "input range", err)) != SW_OK) return rc;
    rc = sw_stats_read_range(range, f->file, f->model, job->original.layer, site, &job->scales,
                             err);
    if (rc == SW_OK && job->scales.scale[site]) rc = count_divided(range, f, job, site, err);
    if (rc == SW_OK) job->input_scale[site] = sw_range_scale(range, act);
    sw_mem_put(range);
    return rc;
}

/* To where the site's linears are solved. */
static sw_code move_stats(const sw_block_job *job, sw_site_stats *stats, sw_site site, sw_err *err)
{
    bool is_wanted[SW_SITE_COUNT] = {false};
    sw_place at;

    is_wanted[site] = true;
    at = sw_place_sites(job, is_wanted);
    return stats->site[site].h ? sw_hessian_move(&stats->site[site], &at, err) : SW_OK;
}

static sw_code solve_site(feed *f, sw_block_job *job, sw_site site, sw_err *err)
{
    sw_site_stats stats;
    sw_code rc = go_to(f, job, site, err);

    if (rc != SW_OK || (rc = transform_site(f, job, site, err)) != SW_OK ||
        (rc = settle_input(f, job, site, err)) != SW_OK ||
        (rc = sw_stats_read(&stats, f->file, f->model, job->original.layer, site, f->options,
                            err)) != SW_OK)
        return rc;
    sw_site_scales_apply(&stats, &job->scales);
    rc = move_stats(job, &stats, site, err);
    if (rc == SW_OK) rc = sw_solve_sites(job, &stats, err);
    sw_site_stats_free(&stats);
    return rc;
}

static float grown(float stored, float before, float after)
{
    return before > 0 ? stored * (after / before) : stored;
}

/* Scales of the cache. A fold may have scaled the values: by what the windows show of it. */
static sw_code put_kv(feed *f, sw_block_job *job, sw_err *err)
{
    sw_kv_range range = {0}, before = {0}, after = {0};
    int64_t layer = job->original.layer;
    sw_code rc;

    if (!f->options->kv_num || !sw_model_has_attention(f->model, layer)) return SW_OK;
    if ((rc = sw_stats_read_kv(&range, f->file, layer, err)) != SW_OK) return rc;
    if (has_streams(f)) {
        rc = sw_kv_range_find(&before, &f->streams, &job->untouched, f->progress, err);
        if (rc == SW_OK)
            rc = sw_kv_range_find(&after, &f->streams, &job->original, f->progress, err);
        if (rc != SW_OK) return rc;
        range.k_amax = grown(range.k_amax, before.k_amax, after.k_amax);
        range.v_amax = grown(range.v_amax, before.v_amax, after.v_amax);
    }
    return f->sink->put_kv(f->sink->self, layer, sw_kv_scale_of(range.k_amax, f->options->kv_num),
                           sw_kv_scale_of(range.v_amax, f->options->kv_num), err);
}

/* Site after site, so that the statistics of only one are in memory. */
static sw_code quantize_block(feed *f, int64_t layer, sw_err *err)
{
    sw_block_job job = {.model = f->model, .st = f->st, .options = f->options, .sink = f->sink,
                        .stats_file = f->file, .progress = f->progress, .rooms = &f->rooms};
    sw_code rc = sw_block_job_new(&job, f->st, layer, err);

    for (int site = 0; site < SW_SITE_COUNT && rc == SW_OK; site++) {
        if (site == SW_SITE_MLP_IN) rc = put_kv(f, &job, err); /* attention is settled */
        if (rc == SW_OK && sw_block_job_uses_site(&job, site))
            rc = solve_site(f, &job, (sw_site)site, err);
    }
    if (rc == SW_OK && has_streams(f) && layer + 1 < sw_quant_n_layers(f->model, f->sink))
        rc = sw_streams_advance(&f->streams, &job.untouched, &job.untouched, SW_HALF_BOTH,
                                f->progress, err);
    sw_block_job_free(&job);
    return rc;
}

/* A block that an earlier run finished: the windows have to pass it. */
static sw_code pass_block(feed *f, int64_t layer, sw_err *err)
{
    sw_block block = {0};
    sw_code rc;

    if (!has_streams(f) || layer + 1 == sw_quant_n_layers(f->model, f->sink)) return SW_OK;
    rc = sw_block_load_from(&block, f->model, f->st, f->options->source, layer, err);
    if (rc == SW_OK)
        rc = sw_streams_advance(&f->streams, &block, &block, SW_HALF_BOTH, f->progress, err);
    sw_block_free(&block);
    return rc;
}

static sw_code open_windows(feed *f, sw_err *err)
{
    const sw_quant_options *o = f->options;
    char who[64];
    sw_code rc;

    (void)snprintf(who, sizeof who, "method %s", o->algo->name);
    rc = sw_stats_windows_read(&f->windows, f->file, f->model, SW_STATS_PROBES, who, err);
    if (rc != SW_OK) return rc;
    rc = sw_place_streams(&f->streams, f->model, f->st, &f->windows.calib, false, o, f->sink,
                          f->progress, err);
    f->streams.parts = f->windows.parts;
    return rc;
}

sw_code sw_quant_run_stats(const sw_model *model, const sw_st *st, const sw_zpack *stats,
                           const sw_quant_options *options, const sw_quant_sink *sink,
                           const sw_progress *progress, sw_err *err)
{
    feed f = {.model = model, .st = st, .file = stats, .options = options, .sink = sink,
              .progress = progress};
    int64_t n_done = 0;
    int64_t n_layers = sw_quant_n_layers(model, sink);
    sw_code rc = sw_quant_check_method(options, err);

    if (rc == SW_OK) rc = sw_quant_blocks_done(&n_done, sink, options, err);
    if (rc == SW_OK) rc = sw_blas_reserve(options->n_threads, err);
    sw_weight_rooms_begin(&f.rooms);
    if (rc == SW_OK && options->algo->transform) rc = open_windows(&f, err);
    for (int64_t layer = 0; layer < n_layers && rc == SW_OK; layer++) {
        sw_progress_step(progress, "quantize", layer, n_layers);
        if ((rc = sw_progress_check(progress, err)) != SW_OK) break;
        rc = (layer < n_done ? pass_block : quantize_block)(&f, layer, err);
        sw_st_forget(st);
        if (rc == SW_OK && layer >= n_done && sink->end_block)
            rc = sink->end_block(sink->self, layer, err);
    }
    if (rc == SW_OK) sw_progress_step(progress, "quantize", n_layers, n_layers);
    sw_weight_rooms_end(&f.rooms);
    sw_streams_end(&f.streams, rc);
    sw_stats_windows_free(&f.windows);
    return rc;
}
