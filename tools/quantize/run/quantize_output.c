/* quantize_output.c - see quantize_output.h. */
#include "tools/quantize/run/quantize_output.h"

#include <stdio.h>
#include <string.h>

#include "formats/checkpoint/kv_stored.h"
#include "formats/gguf/gguf_model.h"
#include "formats/io/digest_back.h"
#include "formats/io/profile.h"
#include "formats/num/pow2.h"
#include "kernels/blas.h"
#include "tools/card/card.h"
#include "tools/card/card_command.h"
#include "tools/cli/loader_notes.h"
#include "tools/device/ranks.h"
#include "tools/quantize/output_size.h"
#include "tools/quantize/target_bits.h"
#include "verify/verify.h"

typedef sw_quantize_job job;

/* What the manifest says at the start decides the bytes, and what overrides make of a linear. */
sw_code sw_quantize_output_key(cJSON **out, const sw_quantize_job *j, sw_err *err)
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
    sw_qconfig qconfig = sw_quantize_job_config(j);
    sw_ckpt_keep keep = {.is_restart = j->o->is_restart != 0, .sources = j->sources,
                         .progress = j->progress};
    cJSON *key = NULL;
    sw_code rc;

    if ((rc = sw_quantize_output_key(&key, j, err)) != SW_OK) return rc;
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

/* A quantized source may have more in codes than is quantized here. */
static void say_what_is_decoded(const job *j)
{
    const char *first;
    const int64_t n = sw_ckpt_writer_n_decoded(&first, j->writer);

    if (n)
        sw_progress_note(j->progress, "%lld linears that the source has in codes stay floats, "
                         "decoded; the first is %s", (long long)n, first);
}

/* Scales of a cache that a quantized source has, where no new ones were asked for. */
static void say_what_becomes_of_kv(const job *j)
{
    const sw_num *kept = sw_kv_kept_num(&j->source, j->dialect);

    sw_ckpt_writer_say_kv(j->writer, j->progress);
    if (kept && !j->settings.quant.kv_num)
        sw_progress_note(j->progress, "the scales of the source's KV cache in %s are kept; "
                         "--kv-cache finds new ones", kept->name);
}

/* Before anything is put. */
static sw_code read_behind(job *j, sw_err *err)
{
    sw_code rc = sw_digest_back_new(&j->back, err);

    if (rc == SW_OK) sw_ckpt_writer_read_back(j->writer, j->back);
    return rc;
}

sw_code sw_quantize_output_open(sw_quantize_job *j, sw_err *err)
{
    const sw_quant_options *quant = &j->settings.quant;
    sw_code rc;

    /* Before the writer has threads of its own: OpenBLAS waits for ever where another one takes the
     * room that it was found to have. */
    if ((quant->algo->needs_statistics || quant->algo->transform) &&
        (rc = sw_blas_reserve(quant->n_threads, err)) != SW_OK)
        return rc;
    if ((rc = open_writer(j, err)) != SW_OK || (rc = take_up(j, err)) != SW_OK ||
        (rc = read_behind(j, err)) != SW_OK)
        return rc;
    say_what_is_decoded(j);
    say_what_becomes_of_kv(j);
    if (!j->settings.quant.algo->transform) sw_ckpt_writer_copy_ahead(j->writer);
    return sw_timeline_step(&j->timeline, err, "prepare");
}

void sw_quantize_output_keep(sw_quantize_job *j, sw_err *err)
{
    int64_t n = j->writer ? sw_ckpt_writer_n_done(j->writer) : 0;
    const char *where;
    size_t at = strlen(err->text);

    if (!n || err->code == SW_E_FORMAT || err->code == SW_E_UNSUPPORTED ||
        !(where = sw_ckpt_writer_leave(j->writer)))
        return;
    n = sw_ckpt_writer_n_done(j->writer); /* those that are on disk by now */
    if (err->code == SW_E_CANCELLED) /* whatever was going on is of no interest then */
        at = (size_t)snprintf(err->text, sizeof err->text, "interrupted");
    (void)snprintf(err->text + at, sizeof err->text - at,
                   "; %lld of %lld blocks are in %.*s%s: the same command continues, --restart "
                   "starts over",
                   (long long)n, (long long)n_blocks(j), 80, where,
                   strlen(where) > 80 ? "..." : "");
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

sw_code sw_quantize_output_command(cJSON *manifest, const sw_quantize_job *j, sw_err *err)
{
    const sw_card_command command = {"quantize", j->o, &sw_quantize_defaults, sw_quantize_rows,
                                     j->recipe.n_overrides ? j->o->recipe : NULL};

    return sw_card_command_add(manifest, &command, &j->source, err);
}

/* What the manifest says besides, and the card too. Not before now: a run that is taken up knows
 * its inputs by the rest of the manifest. */
static sw_code finish_manifest(job *j, sw_err *err)
{
    cJSON *m = j->report.manifest;
    sw_code rc;

    if (!cJSON_AddNumberToObject(m, "bits_per_weight",
                                 sw_target_bits_of(&j->selection, j->dialect)) ||
        !cJSON_AddNumberToObject(m, "source_tensor_bytes", (double)tensor_bytes(j->source.st)))
        return sw_cmd_json_added(NULL, err);
    rc = sw_quantize_output_command(m, j, err);
    if (!j->o->no_card) sw_ckpt_writer_at_end(j->writer, put_card, j);
    return rc;
}

/* --target-size is a promise about what is on disk, so what is there is counted. */
static sw_code keep_promise(const job *j, sw_err *err)
{
    uint64_t have = 0;
    sw_code rc = j->o->target_bytes ? sw_output_size_written(&have, j->o->out, err) : SW_OK;

    if (rc != SW_OK || have <= j->o->target_bytes) return rc;
    return SW_FAIL(err, SW_E_BUG, "%s: has %llu bytes, %llu more than --target-size promises",
                   j->o->out, (unsigned long long)have,
                   (unsigned long long)(have - j->o->target_bytes));
}

sw_code sw_quantize_output_commit(sw_quantize_job *j, sw_err *err)
{
    sw_code rc;

    if ((rc = sw_progress_check(j->progress, err)) != SW_OK) return rc;
    if ((rc = finish_manifest(j, err)) != SW_OK) return rc;
    if ((rc = sw_ckpt_writer_commit(j->writer, j->report.manifest, err)) != SW_OK) return rc;
    j->is_published = true;
    if ((rc = keep_promise(j, err)) != SW_OK) return rc;
    if (sw_ckpt_writer_note(j->writer)[0])
        sw_progress_note(j->progress, "%s", sw_ckpt_writer_note(j->writer));
    return sw_timeline_step(&j->timeline, err, "write");
}

sw_code sw_quantize_output_read_back(sw_quantize_job *j, sw_err *err)
{
    const sw_progress shown = sw_progress_kept(j->progress);
    const int n_threads = (int)j->o->common.threads;
    sw_verify_options v = {.checkpoint_dir = j->o->out, .n_threads = n_threads,
                           .n_threads_alone = sw_ranks_threads_alone(j->team, n_threads),
                           .written = sw_ckpt_writer_tensors(j->writer), .back = j->back,
                           .progress = &shown};
    sw_report report = {0};
    sw_span span = sw_span_open("read back");
    sw_code rc = sw_verify_run(&report, &v, err);

    sw_span_close(span, NULL);
    if (rc == SW_OK) rc = sw_report_json(&j->verified, &report, err);
    if (rc == SW_OK) rc = sw_report_verdict(&report, err);
    sw_loader_notes(&report.loaders, j->progress);
    sw_report_free(&report);
    if (rc == SW_OK) return sw_timeline_step(&j->timeline, err, "read back");
    if (rc == SW_E_CANCELLED)
        return SW_FAIL(err, rc, "interrupted; %s is written, but not read back: swage verify does "
                       "that", j->o->out);
    sw_err_prefix(err, "%s was written, but does not read back", j->o->out);
    return rc;
}

sw_code sw_quantize_output_outcome(sw_quantize_outcome *out, const sw_quantize_job *j, sw_err *err)
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
    if ((rc = sw_output_size_written(&outcome.file_bytes, j->o->out, err)) != SW_OK) return rc;
    outcome.seconds = sw_timeline_seconds(&j->timeline);
    *out = outcome;
    return SW_OK;
}

sw_code sw_quantize_output_fallbacks(const sw_quantize_job *j, sw_err *err)
{
    if (!j->report.n_fallbacks || j->o->allow_fallback) return SW_OK;
    return SW_FAIL(err, SW_E_GATE,
                   "%lld of %lld linears fell back, the first: %s; the output is complete, "
                   "--allow-fallback accepts it",
                   (long long)j->report.n_fallbacks, (long long)j->report.n_linears,
                   j->report.first_fallback);
}
