/* cmd_quantize.c - `swage quantize`: a model directory in, a quantized one out.
 *
 * Order matters: whatever can be known to fail is checked before the first weight is read. The
 * output appears under its name when everything is in it, and is then read back with the
 * decoder that shares no code with what wrote it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/engine/engine.h"
#include "quant/scheme.h"
#include "tools/cmd.h"
#include "tools/names.h"
#include "tools/quantize_report.h"
#include "tools/stats_input.h"
#include "tools/recipe.h"
#include "tools/target_bits.h"
#include "tools/values.h"
#include "verify/verify.h"

typedef struct quantize_options {
    sw_cmd_common common;
    const char *out, *scheme, *method, *format, *bits, *group_size, *act_order, *sequential,
        *recipe, *experts, *stats;
    sw_opt_list calib, ignore;
    int64_t samples, seq_len, seed;
    double damp, target_bits;
    int symmetry; /* 0: as the scheme says, 1: symmetric, 2: not */
    int may_replace, allow_fallback, is_restart;
    uint64_t shard_bytes;
} quantize_options;

static const char *bits_name(int i)
{
    static const char *const names[] = {"2", "3", "4", "8", NULL};
    return names[i];
}

static const char *group_name(int i)
{
    static const char *const names[] = {"32", "64", "128", "channel", NULL};
    return names[i];
}

static const char *order_name(int i)
{
    static const char *const names[SW_ORDER_COUNT + 1] = {
        [SW_ORDER_NONE] = "none", [SW_ORDER_STATIC] = "static", [SW_ORDER_GAR] = "gar"};
    return names[i];
}

static const char *sequential_name(int i)
{
    static const char *const names[SW_SEQUENTIAL_COUNT + 1] = {
        [SW_SEQUENTIAL_SITE] = "site", [SW_SEQUENTIAL_LAYER] = "layer"};
    return names[i];
}

#define AT(field) .offset = offsetof(quantize_options, field)

static const sw_opt options[] = {
    {.name = "out", .letter = 'o', .kind = SW_OPT_TEXT, AT(out), .arg = "DIR",
     .help = "where the checkpoint goes; complete or absent"},
    {.name = "scheme", .letter = 's', .kind = SW_OPT_CHOICE, AT(scheme), .arg = "S",
     .choices = sw_name_of_scheme, .help = "what weights become (default W4A16)"},
    {.name = "method", .letter = 'm', .kind = SW_OPT_CHOICE, AT(method), .arg = "M",
     .choices = sw_name_of_method, .help = "how they are rounded (default gptq)"},
    {.name = "format", .letter = 'f', .kind = SW_OPT_CHOICE, AT(format), .arg = "F",
     .choices = sw_name_of_format, .help = "whose checkpoint it is (default swage)"},
    {.name = "recipe", .kind = SW_OPT_TEXT, AT(recipe), .arg = "FILE.json",
     .help = "take the options from a file, and what differs per linear: \"overrides\"; options on "
             "the line go first"},
    {.name = "calib", .kind = SW_OPT_LIST, AT(calib), .arg = "FILE",
     .help = "calibration text (UTF-8) or tokens (.u16, .u32, .safetensors)"},
    {.name = "stats", .kind = SW_OPT_TEXT, AT(stats), .arg = "FILE",
     .help = "statistics that `swage calibrate` wrote, in the place of --calib"},
    {.name = "samples", .kind = SW_OPT_INT, AT(samples), .arg = "N", .min = 1, .max = 1e7,
     .help = "calibration windows (default 128)"},
    {.name = "seq-len", .kind = SW_OPT_INT, AT(seq_len), .arg = "L", .min = 8, .max = 1 << 20,
     .help = "tokens per window (default 2048 or the model's context)"},
    {.name = "seed", .kind = SW_OPT_INT, AT(seed), .arg = "N", .min = 0, .max = 9e15,
     .help = "draw the windows from the whole text (default 0: its first ones)"},
    {.name = "bits", .kind = SW_OPT_CHOICE, AT(bits), .arg = "B", .choices = bits_name,
     .help = "instead of the scheme's"},
    {.name = "group-size", .kind = SW_OPT_CHOICE, AT(group_size), .arg = "G",
     .choices = group_name, .help = "weights per scale, instead of the scheme's"},
    {.name = "target-bits", .kind = SW_OPT_REAL, AT(target_bits), .arg = "X", .min = 1, .max = 16,
     .help = "bits per weight, scales included: choose width and group size of every linear by "
             "what it costs the model"},
    {.name = "sym", .kind = SW_OPT_FLAG, AT(symmetry), .set_to = 1, .help = "no zero points"},
    {.name = "asym", .kind = SW_OPT_FLAG, AT(symmetry), .set_to = 2, .help = "with zero points"},
    {.name = "ignore", .kind = SW_OPT_LIST, AT(ignore), .arg = "PATTERN",
     .help = "leave linears alone whose path matches (PCRE2, anywhere in it)"},
    {.name = "act-order", .kind = SW_OPT_CHOICE, AT(act_order), .arg = "A", .choices = order_name,
     .help = "order in which gptq goes through the inputs (default static)"},
    {.name = "sequential", .kind = SW_OPT_CHOICE, AT(sequential), .arg = "S",
     .choices = sequential_name,
     .help = "observe each input site after those before it are quantized, or a whole layer at "
             "once: faster, worse (default site)"},
    {.name = "experts", .kind = SW_OPT_CHOICE, AT(experts), .arg = "E",
     .choices = sw_name_of_experts,
     .help = "calibrate each expert on the tokens routed to it, on all tokens, or on a blend by "
             "evidence (default shrink)"},
    {.name = "damp", .kind = SW_OPT_REAL, AT(damp), .arg = "X", .min = 1e-6, .max = 1,
     .help = "first damping of the Hessian, as a share of its mean diagonal (default 0.01)"},
    {.name = "shard-size", .kind = SW_OPT_SIZE, AT(shard_bytes), .arg = "BYTES",
     .help = "cut the output into files of at most this (default: 5G)"},
    {.name = "force", .kind = SW_OPT_FLAG, AT(may_replace), .set_to = 1,
     .help = "replace an existing output"},
    {.name = "restart", .kind = SW_OPT_FLAG, AT(is_restart), .set_to = 1,
     .help = "drop what an unfinished run left in DIR.partial instead of continuing it"},
    {.name = "allow-fallback", .kind = SW_OPT_FLAG, AT(allow_fallback), .set_to = 1,
     .help = "exit 0 even if a linear could not be done by the method asked for"},
    SW_CMD_THREADS_ROW,
    SW_CMD_COMMON_ROWS,
    {0},
};

static const quantize_options defaults = {
    .scheme = "W4A16", .method = "gptq", .format = "swage", .act_order = "static",
    .sequential = "site", .experts = "shrink", .damp = 0.01, .shard_bytes = (uint64_t)5 << 30};

static int index_of(sw_opt_choice_fn names, const char *name)
{
    int i = 0;

    while (strcmp(names(i), name) != 0) i++; /* the parser took it from the same table */
    return i;
}

static void settings_of(sw_quantize_settings *s, const quantize_options *o)
{
    const sw_scheme *scheme = sw_scheme_find(o->scheme);
    sw_quant_options *q = &s->quant;

    *q = sw_quant_defaults();
    q->spec = sw_scheme_spec(scheme);
    if (o->bits) q->spec.num = sw_num_by_bits((int)strtol(o->bits, NULL, 10));
    if (o->group_size) q->spec.group_elems = strtol(o->group_size, NULL, 10); /* channel: 0 */
    if (o->symmetry) q->spec.is_symmetric = o->symmetry == 1;
    q->algo = sw_algo_find(o->method);
    q->order = (sw_order)index_of(order_name, o->act_order);
    q->sequential = (sw_sequential)index_of(sequential_name, o->sequential);
    q->experts = (sw_experts)index_of(sw_name_of_experts, o->experts);
    q->damp = o->damp;
    q->n_threads = (int)o->common.threads;
    s->scheme = o->scheme;
    s->method = o->method;
    s->format = o->format;
    s->order = o->act_order;
    s->sequential = o->sequential;
    s->seed = o->seed;
}

/* What one run holds. */
typedef struct job {
    quantize_options *o;
    const char *model_dir;
    sw_recipe recipe;
    sw_checkpoint source;
    sw_quantize_settings settings;
    const sw_dialect *dialect;
    sw_selection selection;
    sw_calibration calibration;
    sw_zpack *stats; /* in its place */
    sw_quantize_report report;
    sw_ckpt_writer *writer;
    const sw_progress *progress;
} job;

static void job_free(job *j)
{
    sw_ckpt_writer_free(j->writer);
    sw_quantize_report_free(&j->report);
    sw_zpack_close(j->stats);
    sw_calibration_free(&j->calibration);
    sw_selection_free(&j->selection);
    sw_checkpoint_close(&j->source);
}

static sw_code put_linear(void *self, const sw_linear_ref *ref, const char *path,
                          const sw_qtensor *q, const sw_solve_report *report, sw_err *err)
{
    job *j = self;
    sw_code rc = sw_quantize_report_add(&j->report, path, ref, &q->spec, report, err);

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

    (void)layer;
    return rc == SW_OK ? sw_ckpt_writer_end_block(j->writer, gained, err) : rc;
}

static sw_code check_source(const job *j, sw_err *err)
{
    const char *quantized = j->source.dialect ? j->source.dialect->name : "an unknown format";

    if (!j->source.dialect && !sw_json_member(j->source.config, "quantization_config"))
        return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED,
                   "%s is quantized already (%s); quantize the original instead", j->model_dir,
                   quantized);
}

/* Embedding, norms and head fit the config, and what is only copied holds numbers: weights are
 * looked at when they are quantized. */
static sw_code check_rest(const job *j, sw_err *err)
{
    sw_lm ends = {0};
    sw_code rc = sw_lm_load_ends(&ends, &j->source.model, j->source.st, err);

    sw_lm_free(&ends);
    for (int64_t i = 0; i < sw_st_count(j->source.st) && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(j->source.st, i);
        char path[256];
        size_t n = strlen(t->name), n_end = strlen(".weight");
        if (n > n_end && n - n_end < sizeof path && !strcmp(t->name + n - n_end, ".weight")) {
            (void)snprintf(path, sizeof path, "%.*s", (int)(n - n_end), t->name);
            if (sw_selection_has(&j->selection, path)) continue;
        }
        rc = sw_values_check(t, err);
    }
    return rc;
}

static sw_code select_linears(job *j, sw_err *err)
{
    sw_selection_request request = {.spec = &j->settings.quant.spec, .ignore = &j->o->ignore,
                                    .overrides = j->recipe.overrides,
                                    .n_overrides = j->recipe.n_overrides};

    return sw_selection_new(&j->selection, &j->source.model, &request, j->dialect, err);
}

/* --target-bits: measure what each linear loses, and let each have what it needs. */
static sw_code choose_specs(job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    const sw_quant_options *q = &j->settings.quant;
    sw_target_request request = {
        .bits = o->target_bits, .spec = &q->spec, .keep_group = o->group_size != NULL,
        .keep_symmetry = o->symmetry != 0, .dialect = j->dialect, .algo = q->algo,
        .calib = &j->calibration.calib, .damp = q->damp, .n_threads = q->n_threads};
    sw_target_outcome outcome;
    sw_code rc = sw_target_bits_choose(&outcome, &j->selection, &j->source.model, j->source.st,
                                       &request, j->progress, err);

    if (rc != SW_OK) return rc;
    j->settings.target_bits = o->target_bits;
    j->settings.predicted_kl = outcome.loss;
    sw_progress_note(j->progress, "%.3f bits per weight; predicted divergence %.4f nats per token "
                     "before refinement", outcome.bits, outcome.loss);
    return SW_OK;
}

static sw_code check_stats(const job *j, sw_err *err)
{
    const quantize_options *o = j->o;

    if (!o->stats) return SW_OK;
    if (o->calib.n) return SW_FAIL(err, SW_E_USAGE, "give --calib or --stats, not both");
    if (o->target_bits > 0 || j->settings.quant.algo->transform)
        return SW_FAIL(err, SW_E_USAGE, "%s tries candidates on calibration text, which statistics "
                       "do not hold; give --calib", o->target_bits > 0 ? "--target-bits" :
                       o->method);
    if (sw_act_needs_input_scale(&j->settings.quant.spec.act))
        return SW_FAIL(err, SW_E_USAGE, "scheme %s needs the range of its inputs, which statistics "
                       "do not hold; give --calib", o->scheme);
    return SW_OK;
}

/* Is there anything to be found out from text: statistics, or the range of inputs? */
static bool needs_calibration(const job *j)
{
    const sw_quant_options *q = &j->settings.quant;

    return (q->algo->needs_statistics && !j->o->stats) || sw_act_needs_input_scale(&q->spec.act);
}

/* Small floats come as their formats define them; only integers have widths and groups to choose. */
static sw_code check_scheme(const quantize_options *o, sw_err *err)
{
    const sw_scheme *scheme = sw_scheme_find(o->scheme);

    if (scheme->spec.num->kind == SW_NUM_INT || !(o->bits || o->group_size || o->symmetry))
        return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "scheme %s fixes width, groups and symmetry; leave out --bits, "
                   "--group-size, --sym and --asym", scheme->name);
}

/* Everything up to the first weight. */
static sw_code plan(job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    const sw_algo *algo;
    bool with_text;
    sw_code rc;

    settings_of(&j->settings, o);
    algo = j->settings.quant.algo;
    j->dialect = sw_dialect_find(o->format);
    if (!o->out) return SW_FAIL(err, SW_E_USAGE, "say where the checkpoint goes: -o DIR");
    if (!o->may_replace && sw_path_exists(o->out))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", o->out);
    with_text = needs_calibration(j) || o->target_bits > 0;
    if ((rc = check_stats(j, err)) != SW_OK) return rc;
    if (with_text && !o->calib.n)
        return SW_FAIL(err, SW_E_USAGE, "%s%s needs calibration text: --calib FILE",
                       algo->needs_statistics ? "method "
                       : needs_calibration(j) ? "scheme " : "--target-bits",
                       algo->needs_statistics ? algo->name
                       : needs_calibration(j) ? o->scheme : "");
    if (o->target_bits > 0 && o->bits)
        return SW_FAIL(err, SW_E_USAGE, "--target-bits chooses the widths; leave --bits out");
    if (o->target_bits > 0 && (j->settings.quant.spec.num->kind != SW_NUM_INT ||
                               j->settings.quant.spec.act.scope != SW_ACT_NONE))
        return SW_FAIL(err, SW_E_USAGE, "--target-bits chooses among integer weights; scheme %s "
                       "is another kind", o->scheme);
    if ((rc = sw_checkpoint_open(&j->source, j->model_dir, err)) != SW_OK) return rc;
    if ((rc = check_source(j, err)) != SW_OK) return rc;
    if ((rc = check_scheme(o, err)) != SW_OK) return rc;
    sw_dialect_fit_spec(&j->settings.quant.spec, j->dialect, j->source.model.dtype);
    rc = select_linears(j, err);
    if (rc != SW_OK) return rc;
    if ((rc = check_rest(j, err)) != SW_OK) return rc;
    if (algo->needs_statistics && o->stats) {
        rc = sw_stats_input_open(&j->stats, o->stats, &j->source, j->settings.quant.experts, err);
        if (rc != SW_OK) return rc;
    } else if (with_text) {
        sw_calibration_options c = {j->model_dir, &o->calib, o->samples, o->seq_len, o->seed};
        if ((rc = sw_calibration_read(&j->calibration, &j->source.model, &c, err)) != SW_OK)
            return rc;
    } else if (o->calib.n || o->stats) {
        sw_progress_note(j->progress, "method %s needs no calibration; --%s is not read",
                         algo->name, o->stats ? "stats" : "calib");
    }
    if (o->target_bits > 0 && (rc = choose_specs(j, err)) != SW_OK) return rc;
    rc = sw_quantize_report_new(&j->report, &j->settings, with_text ? &j->calibration : NULL,
                                &o->calib, &j->selection, err);
    if (rc == SW_OK && j->stats)
        rc = sw_stats_input_describe(j->report.manifest, j->stats, err);
    return rc;
}

/* What the manifest says at the start decides the bytes, and what overrides make of a linear. */
static sw_code build_key(cJSON **out, const job *j, sw_err *err)
{
    cJSON *key = cJSON_Duplicate(j->report.manifest, true);
    cJSON *linears = key ? cJSON_AddObjectToObject(key, "linears") : NULL;
    bool ok = linears != NULL;

    for (int64_t i = 0; ok && i < j->selection.n_linears; i++) {
        const sw_ckpt_linear *linear = &j->selection.linears[i];
        char text[64], spec[128];
        if (sw_qspec_same(linear->spec, &j->settings.quant.spec)) continue;
        (void)snprintf(spec, sizeof spec, "%s, %s", linear->spec->num->name,
                       sw_qspec_text(text, linear->spec));
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
    if ((rc = build_key(&key, j, err)) != SW_OK) return rc;
    keep.key = key;
    rc = sw_ckpt_writer_new_kept(&j->writer, &j->source, j->o->out, j->o->may_replace != 0,
                                   j->dialect, &qconfig, j->selection.linears,
                                   j->selection.n_linears, j->o->shard_bytes, &keep, err);
    cJSON_Delete(key);
    return rc;
}

/* What an earlier run finished goes into the report as if it had been done now. */
static sw_code take_up(job *j, sw_err *err)
{
    int64_t n = sw_ckpt_writer_n_done(j->writer);
    sw_code rc = SW_OK;

    if (n)
        sw_progress_note(j->progress, "%s.partial: continuing, %lld of %lld blocks are finished",
                         j->o->out, (long long)n, (long long)j->source.model.n_layers);
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
    if (err->code == SW_E_CANCELLED) at = strlen("interrupted");
    (void)snprintf(err->text + at, sizeof err->text - at,
                   "; %lld of %lld blocks are in %.*s%s: the same command continues, --restart "
                   "starts over",
                   (long long)n, (long long)j->source.model.n_layers, 80, where,
                   strlen(where) > 80 ? "..." : "");
}

static sw_code work(job *j, sw_err *err)
{
    sw_quant_sink sink = {.self = j, .put = put_linear, .is_selected = is_selected,
                          .spec_of = spec_of, .change = change_tensor,
                          .transformed = note_transform, .n_done = n_done, .get = get_linear,
                          .get_changed = get_changed, .end_block = end_block};
    const sw_calib *calib = needs_calibration(j) ? &j->calibration.calib : NULL;
    sw_code rc;

    if ((rc = open_writer(j, err)) != SW_OK || (rc = take_up(j, err)) != SW_OK) return rc;
    if (j->stats)
        rc = sw_quant_run_stats(&j->source.model, j->source.st, j->stats, &j->settings.quant,
                                &sink, j->progress, err);
    else
        rc = sw_quant_run(&j->source.model, j->source.st, calib, &j->settings.quant, &sink,
                          j->progress, err);
    if (rc != SW_OK) return rc;
    if ((rc = sw_progress_check(j->progress, err)) != SW_OK) return rc;
    return sw_ckpt_writer_commit(j->writer, j->report.manifest, err);
}

/* Integrity of what was written, by the second decoder: no original, no text. */
static sw_code read_back(const job *j, sw_err *err)
{
    sw_verify_options v = {.checkpoint_dir = j->o->out, .n_threads = (int)j->o->common.threads};
    sw_report report = {0};
    sw_code rc = sw_verify_run(&report, &v, err);

    if (rc == SW_OK) rc = sw_report_verdict(&report, err);
    sw_report_free(&report);
    if (rc != SW_OK) sw_err_prefix(err, "%s was written, but does not read back", j->o->out);
    return rc;
}

static uint64_t tensor_bytes(const sw_st *st)
{
    uint64_t n = 0;

    for (int64_t i = 0; i < sw_st_count(st); i++) n += sw_st_at(st, i)->view.size_bytes;
    return n;
}

static sw_code finish(job *j, sw_run *run, double start_s, sw_err *err)
{
    sw_quantize_outcome outcome = {.out_dir = j->o->out,
                                   .source_bytes = tensor_bytes(j->source.st),
                                   .is_mixed = sw_selection_is_mixed(&j->selection),
                                   .bits_per_weight =
                                       sw_target_bits_of(&j->selection, j->dialect)};
    struct timespec now;
    sw_st *written = NULL;
    sw_code rc;

    if ((rc = sw_st_open(&written, j->o->out, err)) != SW_OK) return rc;
    outcome.out_bytes = tensor_bytes(written);
    sw_st_close(written);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    outcome.seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - start_s;
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

/* A copy of the options, over what the recipe says where the line is silent. */
static sw_code read_recipe(job *j, sw_run *run, sw_err *err)
{
    const quantize_options *given = run->options;
    sw_code rc = SW_ARENA_TAKE(&j->o, run->arena, 1, err);

    if (rc != SW_OK) return rc;
    *j->o = *given;
    if (!given->recipe) return SW_OK;
    return sw_recipe_read(&j->recipe, j->o, options, run->is_set, given->recipe, run->arena, err);
}

static sw_code run_quantize(sw_run *run, sw_err *err)
{
    struct timespec start;
    job *j = NULL;
    sw_code rc;

    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    if ((rc = SW_ARENA_TAKE(&j, run->arena, 1, err)) != SW_OK) return rc; /* too large a frame */
    if ((rc = read_recipe(j, run, err)) != SW_OK) return rc;
    j->model_dir = run->args[0];
    j->progress = &run->term->progress;
    if ((rc = plan(j, err)) == SW_OK && (rc = work(j, err)) != SW_OK) keep_work(j, err);
    if (rc == SW_OK && (rc = read_back(j, err)) == SW_OK)
        rc = finish(j, run, (double)start.tv_sec + 1e-9 * (double)start.tv_nsec, err);
    job_free(j);
    return rc;
}

static const char *const examples[] = {
    "swage quantize calib_data/tiny-llama -o build/out --calib calib_data/calib.u16 --samples 64",
    "swage quantize MODEL -o OUT --scheme W4A16_ASYM --format gptq_v2 --calib text.txt",
    "swage quantize MODEL -o OUT --target-bits 3.5 --format gptq_v2 --calib text.txt",
    "swage quantize MODEL -o OUT --recipe recipe.json --calib text.txt",
    "swage quantize MODEL -o OUT --scheme W8A16 --method rtn --format compressed-tensors",
    "swage quantize MODEL -o OUT --calib *.txt --group-size 32 --ignore 'layers.0' down_proj",
    NULL};

const sw_cmd sw_cmd_quantize = {
    .name = "quantize",
    .args = "MODEL -o OUT [--scheme S] (--calib FILE... | --stats FILE)",
    .summary = "press a model into few bits, calibrated block by block",
    .more = "MODEL is a Hugging Face model directory. Tensors that are not quantized are copied\n"
            "bit by bit. The same inputs give the same bytes, whatever the number of threads.\n"
            "A run that is stopped or killed is continued by the same command, after its last\n"
            "finished decoder block, from DIR.partial; not if any input has changed.\n",
    .options = options,
    .options_bytes = sizeof(quantize_options),
    .defaults = &defaults,
    .min_args = 1,
    .max_args = 1,
    .is_long = true,
    .examples = examples,
    .run = run_quantize,
};
