/* quantize_sink.c - see quantize_sink.h. */
#include "tools/quantize/run/quantize_sink.h"

#include <string.h>

#include "quant/run/async_sink.h"

typedef sw_quantize_job job;

typedef struct fan {
    sw_quantize_job *const *jobs;
    int n;
    int64_t layer; /* the block whose results arrive */
} fan;

/* Threads that store and the one that notes ask and tell it. */
static bool is_alive(const job *j)
{
    bool is;

#pragma omp critical(quantize_failures)
    is = j->failure.code == SW_OK;
    return is;
}

/* Not one that an earlier run brought beyond this block. */
static bool wants(const fan *f, const job *j)
{
    return is_alive(j) && sw_ckpt_writer_n_done(j->writer) <= f->layer;
}

static job *first_alive(const fan *f)
{
    for (int i = 0; i < f->n; i++)
        if (is_alive(f->jobs[i])) return f->jobs[i];
    return NULL;
}

/* What an output came to: a stop concerns all; anything else it alone, while there are others. */
static sw_code leave_behind(const fan *f, job *j, sw_code rc, const sw_err *local, sw_err *err)
{
    if (rc == SW_OK) return SW_OK;
    if (rc != SW_E_CANCELLED) {
#pragma omp critical(quantize_failures)
        j->failure = *local;
    }
    if (rc != SW_E_CANCELLED && first_alive(f)) {
        sw_progress_note(j->progress, "%s: %s; the other outputs go on", j->o->out, local->text);
        return SW_OK;
    }
    *err = *local;
    return rc;
}

/* What a call of the sink means for one output; `what` are its arguments. */
typedef sw_code (*output_fn)(job *j, const void *what, sw_err *err);

static sw_code each(const fan *f, output_fn fn, const void *what, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int i = 0; i < f->n && rc == SW_OK; i++) {
        job *j = f->jobs[i];
        sw_err local = {0};
        if (wants(f, j)) rc = leave_behind(f, j, fn(j, what, &local), &local, err);
    }
    return rc;
}

static void say(const sw_progress *progress, const sw_linear_ref *ref, const char *path,
                const sw_solve_report *report)
{
    if (report->is_fallback)
        sw_progress_note(progress, "%s: fell back to %s: %s", path, report->method,
                         report->why);
    if (report->n_routed == 0 && ref->slot == SW_SLOT_DOWN)
        sw_progress_note(progress, "%s: no calibration token reached this expert", path);
}

typedef struct linear_call {
    const sw_linear_ref *ref;
    const char *path;
    const sw_qtensor *q;
    const sw_solve_report *report;
} linear_call;

static sw_code note_one(job *j, const void *what, sw_err *err)
{
    const linear_call *c = what;

    return sw_quantize_report_add(&j->report, c->path, c->ref, &c->q->spec, c->report,
                                  c->q->input_scale, err);
}

static sw_code note_linear(void *self, const sw_linear_ref *ref, const char *path,
                           const sw_qtensor *q, const sw_solve_report *report, sw_err *err)
{
    const linear_call call = {ref, path, q, report};
    const sw_progress *progress = ((fan *)self)->jobs[0]->progress;
    sw_code rc;

    sw_progress_item(progress, path);
    say(progress, ref, path, report);
    if ((rc = sw_progress_check(progress, err)) != SW_OK) return rc;
    return each(self, note_one, &call, err);
}

static sw_code store_one(job *j, const void *what, sw_err *err)
{
    const linear_call *c = what;
    sw_code rc = sw_ckpt_writer_put(j->writer, c->path, c->q, err);

    return rc == SW_OK ? sw_ckpt_writer_catch_up(j->writer, err) : rc;
}

static sw_code store_linear(void *self, const char *path, const sw_qtensor *q, sw_err *err)
{
    const linear_call call = {.path = path, .q = q};

    return each(self, store_one, &call, err);
}

static sw_code put_linear(void *self, const sw_linear_ref *ref, const char *path,
                          const sw_qtensor *q, const sw_solve_report *report, sw_err *err)
{
    sw_code rc = note_linear(self, ref, path, q, report, err);

    return rc == SW_OK ? store_linear(self, path, q, err) : rc;
}

typedef struct change_call {
    const char *name;
    const float *values;
    int64_t n;
} change_call;

static sw_code change_one(job *j, const void *what, sw_err *err)
{
    const change_call *c = what;

    return sw_ckpt_writer_change(j->writer, c->name, c->values, c->n, err);
}

static sw_code change_tensor(void *self, const char *name, const float *values, int64_t n,
                             sw_err *err)
{
    const change_call call = {name, values, n};

    return each(self, change_one, &call, err);
}

static sw_code transform_one(job *j, const void *what, sw_err *err)
{
    return sw_quantize_report_transform(&j->report, what, err);
}

static sw_code note_transform(void *self, const sw_transform_report *transform, sw_err *err)
{
    return each(self, transform_one, transform, err);
}

typedef struct kv_call {
    int64_t layer;
    float k_scale, v_scale;
} kv_call;

static sw_code kv_one(job *j, const void *what, sw_err *err)
{
    const kv_call *c = what;
    sw_code rc = sw_quantize_report_kv(&j->report, c->layer, c->k_scale, c->v_scale, err);

    return rc == SW_OK ? sw_ckpt_writer_put_kv(j->writer, c->layer, c->k_scale, c->v_scale, err)
                       : rc;
}

static sw_code put_kv(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err)
{
    const kv_call call = {layer, k_scale, v_scale};

    return each(self, kv_one, &call, err);
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    const fan *f = self;

    (void)ref;
    return sw_selection_has(&f->jobs[0]->selection, path);
}

static const sw_qspec *spec_of(void *self, const sw_linear_ref *ref, const char *path)
{
    const fan *f = self;

    (void)ref;
    return sw_selection_spec(&f->jobs[0]->selection, path);
}

/* Blocks that all outputs have. */
static int64_t n_done(void *self)
{
    const fan *f = self;
    int64_t least = -1;

    for (int i = 0; i < f->n; i++) {
        int64_t n = is_alive(f->jobs[i]) ? sw_ckpt_writer_n_done(f->jobs[i]->writer) : -1;
        if (n >= 0 && (least < 0 || n < least)) least = n;
    }
    return least < 0 ? 0 : least;
}

static sw_code get_linear(void *self, sw_qtensor *q, const char *path, sw_err *err)
{
    return sw_ckpt_writer_get(q, first_alive(self)->writer, path, err);
}

static sw_code get_changed(void *self, bool *is_changed, float *values, int64_t n,
                           const char *name, sw_err *err)
{
    return sw_ckpt_writer_get_changed(is_changed, values, n, first_alive(self)->writer, name, err);
}

static sw_code end_block_of(job *j, const void *what, sw_err *err)
{
    const int64_t layer = *(const int64_t *)what;
    cJSON *gained = NULL;
    sw_code rc = sw_quantize_report_gained(&gained, &j->report, err);

    if (rc == SW_OK) rc = sw_ckpt_writer_end_block(j->writer, gained, err);
    if (rc != SW_OK) return rc;
    return layer < j->source.model.n_layers
               ? sw_timeline_step(&j->timeline, err, "block %lld", (long long)layer)
               : sw_timeline_step(&j->timeline, err, "head");
}

static sw_code end_block(void *self, int64_t layer, sw_err *err)
{
    fan *f = self;
    sw_code rc = each(f, end_block_of, &layer, err);

    f->layer = layer + 1;
    return rc;
}

static sw_code run_pipeline(job *j, const sw_quant_sink *sink, sw_err *err)
{
    bool needs_data = sw_quantize_job_needs_data(j);
    const sw_calib *calib = needs_data ? &j->calibration.calib : NULL;

    if (j->stats && needs_data)
        return sw_quant_run_stats(&j->source.model, j->source.st, j->stats, &j->settings.quant,
                                  sink, j->progress, err);
    return sw_quant_run(&j->source.model, j->source.st, calib, &j->settings.quant, sink,
                        j->progress, err);
}

/* While a device works on a block, the one before it is packed and written; and what is only
 * rounded would otherwise wait for the disk. Half of the threads pack and write beside those that
 * round. */
static sw_code run_ahead(job *j, const sw_quant_sink *sink, sw_err *err)
{
    sw_async_sink *async = NULL;
    const int n_threads = (j->settings.quant.n_threads + 1) / 2;
    sw_code rc = sw_async_sink_new(&async, sink, n_threads, err);

    if (rc == SW_OK) rc = run_pipeline(j, sw_async_sink_front(async), err);
    if (rc == SW_OK) rc = sw_async_sink_drain(async, err);
    sw_async_sink_free(async);
    return rc;
}

/* --- of a rank that only helps: it takes nothing --- */

static sw_code let_go(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                      const sw_solve_report *report, sw_err *err)
{
    const fan *f = self;

    (void)ref;
    (void)path;
    (void)q;
    (void)report;
    return sw_progress_check(f->jobs[0]->progress, err);
}

static sw_code let_go_kv(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err)
{
    const fan *f = self;

    (void)layer;
    (void)k_scale;
    (void)v_scale;
    return sw_progress_check(f->jobs[0]->progress, err);
}

sw_code sw_quantize_solve(sw_quantize_job *const *jobs, int n, sw_err *err)
{
    fan f = {jobs, n, 0};
    sw_quant_sink sink = {.self = &f, .put = put_linear, .note = note_linear,
                          .store = store_linear, .is_selected = is_selected,
                          .spec_of = spec_of, .change = change_tensor,
                          .transformed = note_transform, .n_done = n_done, .get = get_linear,
                          .get_changed = get_changed, .end_block = end_block, .put_kv = put_kv};
    const sw_quant_sink none = {.self = &f, .put = let_go, .is_selected = is_selected,
                                .spec_of = spec_of, .put_kv = let_go_kv};
    job *lead = jobs[0];

    if (sw_team_rank(lead->team) > 0) return run_pipeline(lead, &none, err);
    f.layer = n_done(&f);
    return (lead->gpu || !sw_quantize_job_needs_data(lead) ? run_ahead : run_pipeline)(lead, &sink,
                                                                                      err);
}
