/* cmd_quantize.c - `swage quantize`: a model directory in, a quantized one out.
 *
 * Order matters: whatever can be known to fail is checked before the first weight is read. The
 * output appears under its name when everything is in it, and is then read back with the
 * decoder that shares no code with what wrote it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf_model.h"
#include "formats/io/profile.h"
#include "formats/io/watch.h"
#include "formats/num/pow2.h"
#include "quant/run/async_sink.h"
#include "tools/card/card.h"
#include "tools/card/card_command.h"
#include "tools/cli/loader_notes.h"
#include "tools/device/device_opt.h"
#include "tools/quantize/quantize_job.h"
#include "tools/quantize/target_bits.h"
#include "tools/report/report.h"
#include "verify/verify.h"

typedef sw_quantize_job job;
typedef sw_quantize_options quantize_options;

static sw_code put_linear(void *self, const sw_linear_ref *ref, const char *path,
                          const sw_qtensor *q, const sw_solve_report *report, sw_err *err)
{
    job *j = self;
    sw_code rc = sw_quantize_report_add(&j->report, path, ref, &q->spec, report,
                                        q->input_scale, err);

    sw_progress_item(j->progress, path);
    if (rc != SW_OK) return rc;
    if (report->is_fallback)
        sw_progress_note(j->progress, "%s: fell back to %s: %s", path, report->method,
                         report->why);
    if (report->n_routed == 0 && ref->slot == SW_SLOT_DOWN)
        sw_progress_note(j->progress, "%s: no calibration token reached this expert", path);
    if ((rc = sw_progress_check(j->progress, err)) != SW_OK) return rc;
    return sw_ckpt_writer_put(j->writer, path, q, err);
}

static sw_code change_tensor(void *self, const char *name, const float *values, int64_t n,
                             sw_err *err)
{
    return sw_ckpt_writer_change(((job *)self)->writer, name, values, n, err);
}

static sw_code note_transform(void *self, const sw_transform_report *transform, sw_err *err)
{
    return sw_quantize_report_transform(&((job *)self)->report, transform, err);
}

static sw_code put_kv(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err)
{
    job *j = self;
    sw_code rc = sw_quantize_report_kv(&j->report, layer, k_scale, v_scale, err);

    return rc == SW_OK ? sw_ckpt_writer_put_kv(j->writer, layer, k_scale, v_scale, err) : rc;
}

static bool is_selected(void *self, const sw_linear_ref *ref, const char *path)
{
    const job *j = self;

    (void)ref;
    return sw_selection_has(&j->selection, path);
}

static const sw_qspec *spec_of(void *self, const sw_linear_ref *ref, const char *path)
{
    const job *j = self;

    (void)ref;
    return sw_selection_spec(&j->selection, path);
}

static int64_t n_done(void *self) { return sw_ckpt_writer_n_done(((const job *)self)->writer); }

static sw_code get_linear(void *self, sw_qtensor *q, const char *path, sw_err *err)
{
    return sw_ckpt_writer_get(q, ((const job *)self)->writer, path, err);
}

static sw_code get_changed(void *self, bool *is_changed, float *values, int64_t n,
                           const char *name, sw_err *err)
{
    return sw_ckpt_writer_get_changed(is_changed, values, n, ((const job *)self)->writer, name,
                                      err);
}

static sw_code end_block(void *self, int64_t layer, sw_err *err)
{
    job *j = self;
    cJSON *gained = NULL;
    sw_code rc = sw_quantize_report_gained(&gained, &j->report, err);

    if (rc == SW_OK) rc = sw_ckpt_writer_end_block(j->writer, gained, err);
    if (rc != SW_OK) return rc;
    return layer < j->source.model.n_layers
               ? sw_timeline_step(&j->timeline, err, "block %lld", (long long)layer)
               : sw_timeline_step(&j->timeline, err, "head");
}

/* What the manifest says at the start decides the bytes, and what overrides make of a linear. */
static sw_code build_key(cJSON **out, const job *j, sw_err *err)
{
    cJSON *key = cJSON_Duplicate(j->report.manifest, true);
    cJSON *linears = key ? cJSON_AddObjectToObject(key, "linears") : NULL;
    bool ok = linears != NULL;

    for (int64_t i = 0; ok && i < j->selection.n_linears; i++) {
        const sw_ckpt_linear *linear = &j->selection.linears[i];
        const sw_qspec *all = &j->settings.quant.spec;
        char text[SW_SPEC_TEXT_BYTES], inputs[48], spec[SW_SPEC_TEXT_BYTES + 128];
        bool has_rule = linear->spec->pow2_rule != all->pow2_rule;
        if (sw_qspec_same(linear->spec, all) && !has_rule) continue;
        (void)snprintf(spec, sizeof spec, "%s, %s, inputs %s%s%s", linear->spec->num->name,
                       sw_qspec_text(text, linear->spec),
                       sw_act_text(inputs, &linear->spec->act), has_rule ? ", mx_scale " : "",
                       has_rule ? sw_pow2_rule_name(linear->spec->pow2_rule) : "");
        ok = cJSON_AddStringToObject(linears, linear->module_path, spec) != NULL;
    }
    if (ok)
        *out = key;
    else
        cJSON_Delete(key);
    return ok ? SW_OK : sw_cmd_json_added(NULL, err);
}

static sw_code open_writer(job *j, sw_err *err)
{
    sw_qconfig qconfig = {0};
    sw_ckpt_keep keep = {NULL, j->o->is_restart != 0, j->progress};
    cJSON *key = NULL;
    sw_code rc;

    qconfig.spec = j->settings.quant.spec;
    qconfig.ignore = j->selection.ignored;
    qconfig.n_ignore = j->selection.n_ignored;
    qconfig.damp = j->settings.quant.damp;
    qconfig.has_kv_scales = j->settings.quant.has_kv_scales;
    if ((rc = build_key(&key, j, err)) != SW_OK) return rc;
    keep.key = key;
    rc = sw_ckpt_writer_new_kept(&j->writer, &j->source, j->o->out, j->o->may_replace != 0,
                                   j->dialect, &qconfig, j->selection.linears,
                                   j->selection.n_linears, j->o->shard_bytes, &keep, err);
    cJSON_Delete(key);
    return rc;
}

/* The head counts as one. */
static int64_t n_blocks(const job *j)
{
    return j->source.model.n_layers + j->selection.has_head;
}

/* What an earlier run finished goes into the report as if it had been done now. */
static sw_code take_up(job *j, sw_err *err)
{
    int64_t n = sw_ckpt_writer_n_done(j->writer);
    sw_code rc = SW_OK;

    if (n)
        sw_progress_note(j->progress, "%s.partial: continuing after %lld of %lld blocks",
                         j->o->out, (long long)n, (long long)n_blocks(j));
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = sw_quantize_report_restore(&j->report, sw_ckpt_writer_figures(j->writer, i), err);
    return rc;
}

/* Bad input stays bad: its work goes. Whatever else stops a run, finished blocks stay. */
static void keep_work(job *j, sw_err *err)
{
    int64_t n = j->writer ? sw_ckpt_writer_n_done(j->writer) : 0;
    const char *where;
    size_t at = strlen(err->text);

    if (!n || err->code == SW_E_FORMAT || err->code == SW_E_UNSUPPORTED ||
        !(where = sw_ckpt_writer_leave(j->writer)))
        return;
    if (err->code == SW_E_CANCELLED) /* whatever was going on is of no interest then */
        at = (size_t)snprintf(err->text, sizeof err->text, "interrupted");
    (void)snprintf(err->text + at, sizeof err->text - at,
                   "; %lld of %lld blocks are in %.*s%s: the same command continues, --restart "
                   "starts over",
                   (long long)n, (long long)n_blocks(j), 80, where,
                   strlen(where) > 80 ? "..." : "");
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
 * rounded would otherwise wait for the disk. */
static sw_code run_ahead(job *j, const sw_quant_sink *sink, sw_err *err)
{
    sw_async_sink *async = NULL;
    sw_code rc = sw_async_sink_new(&async, sink, err);

    if (rc == SW_OK) rc = run_pipeline(j, sw_async_sink_front(async), err);
    if (rc == SW_OK) rc = sw_async_sink_drain(async, err);
    sw_async_sink_free(async);
    return rc;
}

static uint64_t tensor_bytes(const sw_st *st)
{
    uint64_t n = 0;

    for (int64_t i = 0; i < sw_st_count(st); i++) n += sw_gguf_stored_bytes(sw_st_at(st, i));
    return n;
}

static sw_code put_card(void *self, const char *work_dir, const cJSON *sources, sw_err *err)
{
    job *j = self;

    return sw_card_put(j->report.manifest, sources, &j->source, work_dir, err);
}

/* What the manifest says besides, and the card too. Not before now: a run that is taken up knows
 * its inputs by the rest of the manifest. */
static sw_code finish_manifest(job *j, sw_err *err)
{
    const sw_card_command command = {"quantize", j->o, &sw_quantize_defaults, sw_quantize_rows,
                                     j->recipe.n_overrides ? j->o->recipe : NULL};
    cJSON *m = j->report.manifest;
    sw_code rc;

    if (!cJSON_AddNumberToObject(m, "bits_per_weight",
                                 sw_target_bits_of(&j->selection, j->dialect)) ||
        !cJSON_AddNumberToObject(m, "source_tensor_bytes", (double)tensor_bytes(j->source.st)))
        return sw_cmd_json_added(NULL, err);
    rc = sw_card_command_add(m, &command, &j->source, err);
    if (!j->o->no_card) sw_ckpt_writer_at_end(j->writer, put_card, j);
    return rc;
}

static sw_code work(job *j, sw_err *err)
{
    sw_quant_sink sink = {.self = j, .put = put_linear, .is_selected = is_selected,
                          .spec_of = spec_of, .change = change_tensor,
                          .transformed = note_transform, .n_done = n_done, .get = get_linear,
                          .get_changed = get_changed, .end_block = end_block, .put_kv = put_kv};
    sw_code rc;

    if ((rc = open_writer(j, err)) != SW_OK || (rc = take_up(j, err)) != SW_OK ||
        (rc = sw_timeline_step(&j->timeline, err, "prepare")) != SW_OK)
        return rc;
    rc = (j->gpu || !sw_quantize_job_needs_data(j) ? run_ahead : run_pipeline)(j, &sink, err);
    if (rc != SW_OK) return rc;
    if ((rc = sw_progress_check(j->progress, err)) != SW_OK) return rc;
    if ((rc = finish_manifest(j, err)) != SW_OK) return rc;
    if ((rc = sw_ckpt_writer_commit(j->writer, j->report.manifest, err)) != SW_OK) return rc;
    if (sw_ckpt_writer_note(j->writer)[0])
        sw_progress_note(j->progress, "%s", sw_ckpt_writer_note(j->writer));
    return sw_timeline_step(&j->timeline, err, "write");
}

/* Integrity of what was written, by the second decoder: no original, no text. The result is freed
 * by cJSON_Delete. */
static sw_code read_back(cJSON **verified, job *j, sw_err *err)
{
    const sw_progress shown = sw_progress_kept(j->progress);
    sw_verify_options v = {.checkpoint_dir = j->o->out, .n_threads = (int)j->o->common.threads,
                           .progress = &shown};
    sw_report report = {0};
    sw_span span = sw_span_open("read back");
    sw_code rc = sw_verify_run(&report, &v, err);

    sw_span_close(span, NULL);
    if (rc == SW_OK) rc = sw_report_json(verified, &report, err);
    if (rc == SW_OK) rc = sw_report_verdict(&report, err);
    sw_loader_notes(&report.loaders, j->progress);
    sw_report_free(&report);
    if (rc == SW_OK) return sw_timeline_step(&j->timeline, err, "read back");
    sw_err_prefix(err, "%s was written, but does not read back", j->o->out);
    return rc;
}

/* The checkpoint is published, out of files that were renamed for it: what is watched from here on
 * is what the page reads. It goes over none of the inputs all the same. */
static sw_code begin_page(const char *path, sw_err *err)
{
    struct stat info;

    if (stat(path, &info) == 0 && sw_watch_reads(&info))
        return SW_FAIL(err, SW_E_USAGE, "%s: is an input of this run and stays as it is", path);
    sw_watch_end();
    sw_watch_begin();
    return SW_OK;
}

/* --html: the page of what this run did. */
static sw_code write_page(const job *j, const sw_quantize_outcome *outcome, const cJSON *verified,
                          sw_err *err)
{
    sw_html_request page = {.out = j->o->html, .may_replace = j->o->may_replace != 0,
                            .checkpoints = (const char *const *)&j->o->out, .n_checkpoints = 1,
                            .verified = verified, .n_threads = (int)j->o->common.threads,
                            .progress = j->progress};
    cJSON *made = NULL;
    sw_code rc;

    if (!j->o->html) return SW_OK;
    if ((rc = begin_page(j->o->html, err)) != SW_OK ||
        (rc = sw_quantize_report_json(&made, &j->report, outcome, err)) != SW_OK)
        return rc;
    page.made = made;
    rc = sw_html_report(&page, err);
    cJSON_Delete(made);
    return rc;
}

static sw_code finish(job *j, sw_run *run, const cJSON *verified, sw_err *err)
{
    sw_quantize_outcome outcome = {.out_dir = j->o->out,
                                   .source_bytes = tensor_bytes(j->source.st),
                                   .timeline = j->timeline.steps,
                                   .is_mixed = sw_selection_is_mixed(&j->selection),
                                   .bits_per_weight =
                                       sw_target_bits_of(&j->selection, j->dialect)};
    sw_st *written = NULL;
    sw_code rc;

    if ((rc = sw_st_open(&written, j->o->out, err)) != SW_OK) return rc;
    outcome.out_bytes = tensor_bytes(written);
    sw_st_close(written);
    outcome.seconds = sw_timeline_seconds(&j->timeline);
    if ((rc = write_page(j, &outcome, verified, err)) != SW_OK) return rc;
    sw_term_clear(run->term);
    rc = sw_quantize_report_print(run, &j->report, &j->settings, &outcome, err);
    if (rc == SW_OK && j->report.n_fallbacks && !j->o->allow_fallback)
        rc = SW_FAIL(err, SW_E_GATE,
                     "%lld of %lld linears fell back, the first: %s; the output is complete, "
                     "--allow-fallback accepts it",
                     (long long)j->report.n_fallbacks, (long long)j->report.n_linears,
                     j->report.first_fallback);
    return rc;
}

/* The device that sums and solves, if one is asked for. */
static sw_code open_device(job *j, sw_err *err)
{
    return sw_device_option_open_backend(&j->gpu, &j->settings.quant, j->o->device, j->progress,
                                         err);
}

static sw_code run_quantize(sw_run *run, sw_err *err)
{
    cJSON *verified = NULL;
    job *j = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&j, run->arena, 1, err)) != SW_OK) return rc; /* too large a frame */
    rc = sw_quantize_job_options(j, run, run->options, sw_quantize_rows, err);
    if (rc != SW_OK) return rc;
    j->model_dir = run->args[0];
    j->progress = &run->term->progress;
    if (j->o->html &&
        (rc = sw_html_report_check(j->o->html, j->o->may_replace != 0, err)) != SW_OK)
        return rc;
    if ((rc = sw_timeline_begin(&j->timeline, err)) == SW_OK &&
        (rc = sw_quantize_job_prepare(j, err)) == SW_OK && (rc = open_device(j, err)) == SW_OK &&
        (rc = work(j, err)) != SW_OK)
        keep_work(j, err);
    if (rc == SW_OK && (rc = read_back(&verified, j, err)) == SW_OK)
        rc = finish(j, run, verified, err);
    cJSON_Delete(verified);
    sw_quantize_job_free(j);
    return rc;
}

static const char *const examples[] = {
    "swage quantize calib_data/tiny-llama -o build/out --calib calib_data/calib.u16 --samples 64",
    "swage quantize MODEL -o OUT --scheme W4A16 --format compressed-tensors --calib text.txt",
    "swage quantize org/name -o OUT --calib text.txt --format compressed-tensors",
    "swage quantize MODEL -o OUT --device cuda --calib text.txt --samples 512",
    "swage quantize MODEL -o OUT --target-bits 3.5 --format gptq_v2 --calib text.txt",
    "swage quantize MODEL -o OUT --scheme W3A16 --outliers auto --calib text.txt",
    "swage quantize MODEL -o OUT --recipe nvfp4-experts-fp8 --calib text.txt",
    "swage quantize MODEL -o OUT --recipe recipe.json --calib text.txt",
    "swage quantize MODEL -o OUT --calib text.txt --html OUT.html",
    "swage quantize MODEL -o OUT --lm-head --format gptq --calib text.txt",
    "swage quantize MODEL -o OUT --method awq+gptq --calib text.txt",
    "swage quantize MODEL -o OUT --scheme W8A8 --method smoothquant --calib text.txt",
    "swage quantize MODEL -o OUT --scheme W8A16 --method rtn --format compressed-tensors",
    "swage quantize MODEL -o OUT --calib *.txt --group-size 32 --ignore 'layers.0' down_proj",
    NULL};

const sw_cmd sw_cmd_quantize = {
    .name = "quantize",
    .args = "MODEL -o OUT [--scheme S] (--calib FILE... | --stats FILE)",
    .summary = "quantize a model to few bits, calibrated block by block",
    .more = "MODEL is a Hugging Face model directory, a GGUF, or an id (org/name, or\n"
            "org/name@revision) that is in the Hugging Face cache. Tensors that are not\n"
            "quantized are copied bit by bit. The same inputs give the same bytes for any\n"
            "number of threads.\n"
            "If a run is stopped or killed, the same command continues it from DIR.partial\n"
            "after the last finished decoder block, unless an input has changed.\n",
    .options = sw_quantize_rows,
    .options_bytes = sizeof(sw_quantize_options),
    .defaults = &sw_quantize_defaults,
    .min_args = 1,
    .max_args = 1,
    .is_long = true,
    .examples = examples,
    .run = run_quantize,
};
