/* pipeline.c - see pipeline.h. */
#include "quant/run/pipeline.h"

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "kernels/blas.h"
#include "quant/run/block_job.h"
#include "quant/run/share.h"
#include "quant/run/weights_ahead.h"
#include "quant/search/fold.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"
#include "quant/team/team.h"

sw_quant_options sw_quant_defaults(void)
{
    sw_quant_options o = {0};

    o.algo = sw_algo_find("gptq");
    o.spec.num = sw_num_by_bits(4);
    o.spec.is_symmetric = true;
    o.spec.group_elems = 128;
    o.spec.scale_dtype = SW_DTYPE_F16;
    o.order = SW_ORDER_STATIC;
    o.sequential = SW_SEQUENTIAL_SITE;
    o.damp = 0.01;
    o.refine_rounds = 2;
    o.cap.input = 1.0;
    o.cap.residual = 1.0;
    o.n_threads = 1;
    return o;
}

/* Change the block before the sites of a step are observed. */
static sw_code transform(sw_block_job *job, sw_streams *streams, const bool wanted[SW_SITE_COUNT],
                         sw_err *err)
{
    sw_transform_job t = sw_block_job_transform(job, streams);

    return job->options->algo->transform ? sw_transform_sites(&t, wanted, err) : SW_OK;
}

/* Scales of the cache: once what makes keys and values is settled, before the streams move. */
static sw_code put_kv(sw_block_job *job, sw_streams *streams, int64_t layer,
                      const sw_progress *progress, sw_err *err)
{
    float k_scale = 0, v_scale = 0;
    sw_code rc;

    if (!job->options->kv_num || !sw_model_has_attention(job->model, layer)) return SW_OK;
    rc = sw_kv_scales_find(&k_scale, &v_scale, streams, job->options->kv_num, &job->quantized,
                           progress, err);
    return rc == SW_OK ? job->sink->put_kv(job->sink->self, layer, k_scale, v_scale, err) : rc;
}

static sw_code new_stats(sw_site_stats *out, const sw_block_job *job, int64_t layer,
                         const bool wanted[SW_SITE_COUNT], bool with_cross, sw_err *err)
{
    const sw_place at = sw_place_sites(job, wanted);
    const sw_span span = sw_span_open("room for sums");
    sw_code rc = sw_site_stats_new(out, job->model, layer, wanted, with_cross, SW_EXPERTS_COUNT,
                                   &at, err);

    sw_span_close(span, NULL);
    return rc;
}

/* Nothing before the streams move looks at the original one once a site has been observed. */
static bool is_last_look(const sw_block_job *job, int site)
{
    const int end = site < SW_SITE_MLP_IN ? SW_SITE_MLP_IN : SW_SITE_COUNT;

    for (int later = site + 1; later < end; later++)
        if (sw_block_job_uses_site(job, later)) return false;
    return true;
}

/* What the wanted sites see, while weights of what is solved by it are read. */
static sw_code observe(sw_block_job *job, sw_streams *streams, sw_site_stats *stats,
                       const bool wanted[SW_SITE_COUNT], bool is_last, const sw_progress *progress,
                       sw_err *err)
{
    sw_weights_ahead ahead;
    sw_code rc;

    sw_weights_ahead_begin(&ahead, job, wanted);
    for (int site = 0; site < SW_SITE_COUNT; site++)
        stats->scale[site] = sw_site_scales_of(&job->scales, (sw_site)site, -1);
    streams->is_last_look = is_last;
    rc = sw_streams_observe(streams, stats, &job->quantized, sw_block_job_original(job), progress,
                            err);
    streams->is_last_look = false;
    sw_weights_ahead_end(&ahead);
    return rc;
}

/* Observe and solve: one site after the other, or all in one pass. */
static sw_code calibrate_block(sw_block_job *job, sw_streams *streams, int64_t layer,
                               const sw_progress *progress, sw_err *err)
{
    bool one_pass = job->options->sequential == SW_SEQUENTIAL_LAYER;
    int n_steps = one_pass ? 1 : SW_SITE_COUNT;
    sw_code rc = SW_OK;

    for (int step = 0; step < n_steps && rc == SW_OK; step++) {
        bool wanted[SW_SITE_COUNT], any = false;
        sw_site_stats stats;
        for (int site = 0; site < SW_SITE_COUNT; site++) {
            wanted[site] = (one_pass || site == step) && sw_block_job_uses_site(job, site);
            any = any || wanted[site];
        }
        if (!any) continue;
        if (step >= SW_SITE_MLP_IN && streams->ahead == SW_HALF_BOTH) {
            if ((rc = put_kv(job, streams, layer, progress, err)) != SW_OK) return rc;
            rc = sw_streams_advance(streams, &job->quantized, sw_block_job_original(job),
                                    SW_HALF_ATTENTION, progress, err);
            if (rc != SW_OK) return rc;
        }
        if ((rc = transform(job, streams, wanted, err)) != SW_OK) return rc;
        rc = new_stats(&stats, job, layer, wanted, streams->has_original, err);
        if (rc != SW_OK) return rc;
        rc = sw_inputs_settle(job->input_scale, &stats, streams, job->linears, job->specs,
                              job->n_linears, &job->quantized, progress, err);
        if (rc == SW_OK)
            rc = observe(job, streams, &stats, wanted, !one_pass && is_last_look(job, step),
                         progress, err);
        if (rc == SW_OK) rc = sw_solve_sites(job, &stats, err);
        sw_site_stats_free(&stats);
    }
    if (rc == SW_OK && streams->ahead == SW_HALF_BOTH)
        rc = put_kv(job, streams, layer, progress, err);
    return rc;
}

/* The weights that an earlier run settled on, for moving the streams past its blocks: the same
 * arithmetic on the same values, so the same streams. */
static sw_code restore_linear(sw_block_job *job, int64_t i, sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i];
    sw_team *team = job->options->team;
    sw_qtensor q = {0};
    float *w = NULL;
    char path[256];
    sw_code rc;

    (void)sw_model_slot_path(path, job->model, ref->layer, ref->slot, ref->expert);
    rc = sw_weight_room_take(&w, job->rooms, ref->n_out * ref->k_in, job->options->n_threads, err);
    if (rc != SW_OK) return rc;
    rc = sw_team_rank(team) == 0
             ? job->sink->get(job->sink->self, &q, path, err)
             : sw_qtensor_alloc(&q, &job->specs[i], ref->n_out, ref->k_in, err);
    if (rc == SW_OK && sw_team_size(team) > 1)
        rc = sw_share_tensors(&(sw_share_whole){&q, NULL, 0}, 1, team, err);
    if (rc != SW_OK) {
        sw_qtensor_free(&q);
        sw_weight_room_put(job->rooms, w);
        return rc;
    }
    sw_qtensor_decode(w, &q);
    job->input_scale[ref->site] = q.input_scale;
    sw_qtensor_free(&q);
    sw_block_job_use(job, i, w);
    return SW_OK;
}

/* A block that an earlier run finished. */
static sw_code restore_block(const sw_model *model, const sw_st *st, int64_t layer,
                             const sw_quant_options *options, const sw_quant_sink *sink,
                             sw_streams *streams, sw_weight_rooms *rooms,
                             const sw_progress *progress, sw_err *err)
{
    sw_block_job job = {.model = model, .st = st, .options = options, .sink = sink,
                        .rooms = rooms};
    sw_transform_job t;
    sw_code rc;

    if (!streams || layer + 1 == sw_quant_n_layers(model, sink)) return SW_OK;
    if ((rc = sw_block_job_new(&job, st, layer, err)) != SW_OK) goto done;
    for (int64_t i = 0; i < job.n_linears && rc == SW_OK; i++) rc = restore_linear(&job, i, err);
    t = sw_block_job_transform(&job, streams);
    if (rc == SW_OK && options->algo->transform) rc = sw_fold_restore(&t, err);
    if (rc == SW_OK)
        rc = sw_streams_advance(streams, &job.quantized, sw_block_job_original(&job), SW_HALF_BOTH,
                                progress, err);
done:
    sw_block_job_free(&job);
    return rc;
}

static sw_code quantize_block(const sw_model *model, const sw_st *st, int64_t layer,
                              const sw_quant_options *options, const sw_quant_sink *sink,
                              sw_streams *streams, sw_weight_rooms *rooms,
                              const sw_progress *progress, sw_err *err)
{
    sw_block_job job = {.model = model, .st = st, .options = options, .sink = sink,
                        .streams = streams, .progress = progress, .rooms = rooms};
    bool is_last = layer + 1 == sw_quant_n_layers(model, sink);
    sw_span span = sw_span_open("open block");
    sw_code rc = sw_block_job_new(&job, st, layer, err);

    sw_span_close(span, NULL);
    if (rc != SW_OK) goto done;
    if (!streams) {
        rc = sw_solve_without_stats(&job, err);
        goto done;
    }
    if ((rc = calibrate_block(&job, streams, layer, progress, err)) != SW_OK) goto done;
    if (!is_last)
        rc = sw_streams_advance(streams, &job.quantized, sw_block_job_original(&job), SW_HALF_BOTH,
                                progress, err);
done:
    span = sw_span_open("close block");
    if (streams && rc != SW_OK) sw_streams_forget(streams); /* which may be reading the block */
    sw_block_job_free(&job);
    sw_span_close(span, NULL);
    return rc;
}

sw_code sw_quant_check_method(const sw_quant_options *options, sw_err *err)
{
    if (options->algo->transform && options->algo->transform->needs_acts &&
        options->spec.act.scope == SW_ACT_NONE)
        return SW_FAIL(err, SW_E_USAGE, "method %s is for schemes that quantize activations too, "
                       "and this one leaves them in floats; try awq", options->algo->name);
    return SW_OK;
}

sw_code sw_quant_blocks_done(int64_t *n, const sw_quant_sink *sink, const sw_quant_options *options,
                             sw_err *err)
{
    *n = sink->n_done ? sink->n_done(sink->self) : 0;
    return sw_team_broadcast(options->team, 0, n, sizeof *n, err);
}

/* Blocks that run in memory need it for sums, before their own weights take it again. */
static bool keeps_rooms(const sw_streams *streams)
{
    return !streams || sw_backend_of(&streams->place) != &sw_backend_cpu;
}

sw_code sw_quant_run(const sw_model *model, const sw_st *st, const sw_calib *calib,
                     const sw_quant_options *options, const sw_quant_sink *sink,
                     const sw_progress *progress, sw_err *err)
{
    bool with_original = (options->cap.input > 0 || options->cap.residual > 0) && calib &&
                         sw_streams_hold_back(calib);
    int64_t n_done = 0;
    int64_t n_layers = sw_quant_n_layers(model, sink);
    sw_streams streams = {0};
    sw_weight_rooms rooms;
    sw_code rc = SW_OK;

    if (options->algo->needs_statistics && !calib)
        return SW_FAIL(err, SW_E_USAGE, "method %s needs calibration text", options->algo->name);
    if ((rc = sw_quant_check_method(options, err)) != SW_OK ||
        (rc = sw_quant_blocks_done(&n_done, sink, options, err)) != SW_OK ||
        (calib && (rc = sw_blas_reserve(options->n_threads, err)) != SW_OK))
        return rc;
    if (calib && (rc = sw_place_streams(&streams, model, st, calib,
                                        with_original && options->algo->repairs_errors, options,
                                        sink, progress, err)) != SW_OK)
        return rc;
    sw_weight_rooms_begin(&rooms);
    for (int64_t layer = 0; layer < n_layers && rc == SW_OK; layer++) {
        sw_progress_step(progress, "quantize", layer, n_layers);
        if ((rc = sw_progress_check(progress, err)) != SW_OK) break;
        rc = (layer < n_done ? restore_block : quantize_block)(
            model, st, layer, options, sink, calib ? &streams : NULL, &rooms, progress, err);
        if (!keeps_rooms(calib ? &streams : NULL)) sw_weight_rooms_empty(&rooms);
        sw_st_forget(st);
        if (rc == SW_OK && layer >= n_done && sink->end_block)
            rc = sink->end_block(sink->self, layer, err);
    }
    if (rc == SW_OK) sw_progress_step(progress, "quantize", n_layers, n_layers);
    sw_streams_end(&streams, rc);
    sw_weight_rooms_end(&rooms);
    return rc;
}
