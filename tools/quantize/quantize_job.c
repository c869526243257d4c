/* quantize_job.c - see quantize_job.h. */
#include "tools/quantize/quantize_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/checkpoint/kv_stored.h"
#include "formats/io/digest_back.h"
#include "formats/num/pow2.h"
#include "kernels/engine/lm_open.h"
#include "quant/run/scheme.h"
#include "tools/cli/family.h"
#include "tools/cli/names.h"
#include "tools/cli/values.h"
#include "tools/device/device_opt.h"
#include "tools/device/devices.h"
#include "tools/device/ranks.h"
#include "tools/quantize/needs.h"
#include "tools/quantize/output_size.h"
#include "tools/quantize/target_bits.h"
#include "tools/recipe/group_sizes.h"
#include "tools/recipe/left_parts.h"
#include "tools/recipe/presets.h"

typedef sw_quantize_job job;
typedef sw_quantize_options quantize_options;

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
    if (o->group_size) q->spec.group_elems = sw_group_of_name(o->group_size);
    if (o->symmetry) q->spec.is_symmetric = o->symmetry == 1;
    if (o->positive_scales) q->spec.is_sign_free = false;
    if (q->spec.is_pow2_scale) q->spec.pow2_rule = index_of(sw_pow2_rule_name, o->mx_scale);
    q->algo = sw_algo_find(o->method);
    q->order = (sw_order)index_of(sw_name_of_order, o->act_order);
    q->sequential = (sw_sequential)index_of(sw_name_of_sequential, o->sequential);
    q->experts = (sw_experts)index_of(sw_name_of_experts, o->experts);
    q->kv_num = sw_kv_num(sw_kv_kind_of(o->kv_cache));
    q->damp = o->damp;
    q->n_threads = (int)o->common.threads;
    s->scheme = o->scheme;
    s->method = o->method;
    s->format = o->format;
    s->order = o->act_order;
    s->sequential = o->sequential;
    s->seed = o->seed;
}

void sw_quantize_job_free(sw_quantize_job *j)
{
    cJSON_Delete(j->verified);
    sw_ckpt_writer_free(j->writer);
    sw_digest_back_free(j->back); /* which the writer tells of its files */
    sw_timeline_free(&j->timeline);
    sw_quantize_report_free(&j->report);
    sw_stats_windows_free(&j->windows);
    sw_stats_windows_free(&j->lead);
    sw_zpack_close(j->stats);
    sw_imatrix_input_free(j->imatrix);
    if (!j->lent) sw_calibration_free(&j->calibration);
    sw_selection_free(&j->selection);
    sw_checkpoint_close(&j->source);
    sw_device_option_close_backend(j->gpu, &j->settings.quant);
}

/* A quantized source is decoded linear by linear as it is read. */
static sw_code take_source(job *j, sw_err *err)
{
    if (!j->source.dialect && sw_json_member(j->source.config, "quantization_config"))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s is quantized already, in a format that is not "
                       "known; quantize the original instead", j->model_dir);
    if (!j->source.dialect) return SW_OK;
    if (!j->o->with_head &&
        sw_checkpoint_is_quantized(&j->source, sw_model_end(&j->source.model, SW_END_HEAD)))
        return SW_FAIL(err, SW_E_USAGE, "%s: its lm_head is quantized and cannot stay so beside "
                       "linears of another format: give --lm-head", j->model_dir);
    j->decoding = sw_decoding_source(&j->source);
    j->settings.quant.source = &j->decoding;
    sw_progress_note(j->progress, "%s is quantized already (%s): this run quantizes its decoded "
                     "weights, not those of the original", j->model_dir, j->source.dialect->name);
    return SW_OK;
}

/* Some engines take a stored head where others take the embedding that the config ties it to: if
 * the two differ, no output could be sound. */
static sw_code check_tie(const job *j, sw_err *err)
{
    const sw_model *m = &j->source.model;
    char head_name[300], embed_name[300];
    const sw_st_tensor *head, *embed;
    sw_st_bytes a = {0}, b = {0};
    bool is_same = true;
    sw_code rc;

    if (!m->is_tied || m->found || j->source.is_file) return SW_OK;
    (void)snprintf(head_name, sizeof head_name, "%s.weight", sw_model_end(m, SW_END_HEAD));
    (void)snprintf(embed_name, sizeof embed_name, "%s.weight", sw_model_end(m, SW_END_EMBED));
    if (!(head = sw_st_find(j->source.st, head_name)) ||
        !(embed = sw_st_find(j->source.st, embed_name)))
        return SW_OK;
    if ((rc = sw_st_fetch(&a, head, err)) == SW_OK && (rc = sw_st_fetch(&b, embed, err)) == SW_OK)
        is_same = head->view.dtype == embed->view.dtype &&
                  head->view.size_bytes == embed->view.size_bytes &&
                  !memcmp(a.data, b.data, head->view.size_bytes);
    sw_st_drop(&b);
    sw_st_drop(&a);
    if (rc != SW_OK || is_same) return rc;
    return SW_FAIL(err, SW_E_FORMAT, "%s: config.json ties %s to the embedding "
                   "(tie_word_embeddings), but the file's %s differs from %s; set "
                   "tie_word_embeddings to false, or take %s out", j->model_dir,
                   sw_model_end(m, SW_END_HEAD), head_name, embed_name, head_name);
}

/* Embedding, norms and head fit the config, and what is only copied holds numbers: weights are
 * looked at when they are quantized. */
static sw_code check_rest(const job *j, sw_err *err)
{
    sw_lm ends = {0};
    sw_code rc = SW_OK;

    if (!j->source.model.found)
        rc = sw_lm_load_ends(&ends, &j->source.model, j->source.st, j->settings.quant.source, err);
    sw_lm_free(&ends);
    if (rc == SW_OK) rc = check_tie(j, err);
    if (j->is_dry) return rc;
    for (int64_t i = 0; i < sw_st_count(j->source.st) && rc == SW_OK; i++) {
        const sw_st_tensor *t = sw_st_at(j->source.st, i);
        char path[256];
        size_t n = strlen(t->name), n_end = strlen(".weight");
        if (n > n_end && n - n_end < sizeof path && !strcmp(t->name + n - n_end, ".weight")) {
            (void)snprintf(path, sizeof path, "%.*s", (int)(n - n_end), t->name);
            if (sw_selection_has(&j->selection, path)) continue;
        }
        rc = sw_values_check(t, j->settings.quant.n_threads, err);
    }
    return rc;
}

static bool chooses_outliers(const quantize_options *o)
{
    return o->outliers < 0; /* auto */
}

static double shared_outliers(const quantize_options *o)
{
    return chooses_outliers(o) ? 0 : o->outliers;
}

const char *sw_quantize_chooser(const sw_quantize_options *o)
{
    return o->target_bits > 0     ? "--target-bits"
           : o->target_bytes      ? "--target-size"
           : chooses_outliers(o) ? "--outliers auto"
                                 : NULL;
}

static sw_code select_linears(job *j, sw_err *err)
{
    sw_selection_request request = {.spec = &j->settings.quant.spec, .ignore = &j->o->ignore,
                                    .overrides = j->recipe.overrides,
                                    .n_overrides = j->recipe.n_overrides,
                                    .outlier_share = shared_outliers(j->o),
                                    .has_positive_scales = j->o->positive_scales != 0,
                                    .with_head = j->o->with_head != 0,
                                    .st = j->source.st};

    return sw_selection_new(&j->selection, &j->source.model, &request, j->dialect, err);
}

sw_qconfig sw_quantize_job_config(const sw_quantize_job *j)
{
    const sw_num *asked = j->settings.quant.kv_num;

    return (sw_qconfig){.spec = j->settings.quant.spec, .ignore = j->selection.ignored,
                        .n_ignore = j->selection.n_ignored, .damp = j->settings.quant.damp,
                        .kv_num = asked ? asked : sw_kv_kept_num(&j->source, j->dialect),
                        .has_new_kv = asked != NULL, .decodes_rest = true};
}

/* All files of the output, at most, with the selection as it is now. */
static sw_code size_of(void *self, uint64_t *most, sw_err *err)
{
    const job *j = self;
    sw_code rc = sw_output_size_rest(most, j, err);

    *most += j->papers_bytes;
    return rc;
}

/* --target-bits, --target-size, --outliers auto: measure what each linear loses, and let each have
 * what it needs. */
static sw_code choose_specs(job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    const sw_quant_options *q = &j->settings.quant;
    sw_target_request request = {
        .bits = o->target_bits, .spec = &q->spec, .keep_group = o->group_size != NULL,
        .keep_symmetry = o->symmetry != 0, .outlier_share = shared_outliers(o),
        .chooses_outliers = chooses_outliers(o), .dialect = j->dialect, .algo = q->algo,
        .calib = j->stats ? &j->lead.calib : &j->calibration.calib, .stats = j->stats,
        .damp = q->damp, .source = q->source, .n_threads = q->n_threads,
        .bytes = o->target_bytes, .size_of = size_of, .size_self = j, .is_dry = j->is_dry};
    sw_target_outcome outcome = {0};
    sw_code rc = SW_OK;

    if (o->target_bytes) rc = sw_output_size_papers(&j->papers_bytes, j, err);
    if (rc != SW_OK) return rc;
    rc = sw_target_bits_choose(&outcome, &j->selection, &j->source.model, j->source.st, &request,
                               j->progress, err);
    j->least_bytes = outcome.least_bytes;
    if (rc != SW_OK || j->is_dry) return rc;
    j->settings.target_bytes = o->target_bytes;
    j->settings.target_bits = o->target_bits;
    j->settings.has_chosen_outliers = chooses_outliers(o);
    j->settings.predicted_kl = outcome.loss;
    sw_progress_note(j->progress, "%.3f bits per weight; predicted divergence %.4f nats per token "
                     "before refinement", outcome.bits, outcome.loss);
    return SW_OK;
}

/* The first scheme with a scale of inputs to be found and stored, or NULL. */
static const char *scheme_with_ranges(const job *j)
{
    if (sw_act_needs_input_scale(&j->settings.quant.spec.act)) return j->o->scheme;
    for (int i = 0; i < j->recipe.n_overrides; i++) {
        const sw_scheme *scheme = j->recipe.overrides[i].scheme;

        if (scheme && sw_act_needs_input_scale(&scheme->spec.act)) return scheme->name;
    }
    return NULL;
}

/* Is there anything to be found out about activations: statistics, or the range of inputs? */
bool sw_quantize_job_needs_data(const sw_quantize_job *j)
{
    const sw_quant_options *q = &j->settings.quant;

    return q->algo->needs_statistics || q->kv_num || scheme_with_ranges(j);
}

/* Who asks for calibration, as an error names it. */
static sw_code check_data(const job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    const sw_quant_options *q = &j->settings.quant;

    if (o->stats && o->calib.n)
        return SW_FAIL(err, SW_E_USAGE, "give --calib or --stats, not both");
    if (o->stats || o->calib.n || j->is_dry) return SW_OK;
    if (q->algo->needs_statistics)
        return SW_FAIL(err, SW_E_USAGE, "method %s needs calibration text: --calib FILE",
                       q->algo->name);
    if (q->kv_num)
        return SW_FAIL(err, SW_E_USAGE, "--kv-cache needs the range of keys and values: give "
                       "calibration text, --calib FILE");
    if (sw_quantize_job_needs_data(j))
        return SW_FAIL(err, SW_E_USAGE, "scheme %s needs calibration text: --calib FILE",
                       scheme_with_ranges(j));
    if (sw_quantize_chooser(o))
        return SW_FAIL(err, SW_E_USAGE, "%s needs calibration text: --calib FILE",
                       sw_quantize_chooser(o));
    return SW_OK;
}

static int n_ranks_of(const job *j)
{
    return j->is_dry ? (int)j->o->common.ranks : sw_team_size(j->team);
}

static sw_code check_kv(const job *j, sw_err *err)
{
    const sw_num *num = j->settings.quant.kv_num;

    if (!num || sw_dialect_holds_kv(j->dialect, num)) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s cannot store the scales of a KV cache in %s; "
                   "use --format compressed-tensors%s", j->dialect->name, num->name,
                   num == &sw_nums[SW_NUM_E4M3] ? " or fp8" : "");
}

/* Scales that no layer has would be left out without a word. */
static sw_code check_cache(const job *j, sw_err *err)
{
    const sw_model *m = &j->source.model;
    char path[256];

    if (!j->settings.quant.kv_num) return SW_OK;
    for (int64_t l = 0; l < m->n_layers; l++)
        if (sw_model_attention_path(path, m, l)) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: no layer caches keys and values apart from each "
                   "other, which the scales are for; leave out --kv-cache", m->arch->name);
}

static sw_code check_target(const job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    const sw_qspec *spec = &j->settings.quant.spec;
    const char *chooser = sw_quantize_chooser(o);

    if (!chooser) return SW_OK;
    if (o->target_bits > 0 && o->target_bytes)
        return SW_FAIL(err, SW_E_USAGE, "give --target-bits or --target-size, not both");
    if ((o->target_bits > 0 || o->target_bytes) && o->bits)
        return SW_FAIL(err, SW_E_USAGE, "%s chooses the widths; leave --bits out", chooser);
    if (spec->num->kind != SW_NUM_INT || spec->act.scope != SW_ACT_NONE)
        return SW_FAIL(err, SW_E_USAGE, "%s chooses among integer weights; scheme %s is another "
                       "kind", chooser, o->scheme);
    return SW_OK;
}

/* An importance matrix holds the diagonals of Hessians: enough for scales, for nothing else. */
static sw_code check_imatrix(const job *j, sw_err *err)
{
    const sw_quant_options *q = &j->settings.quant;

    if (!j->o->imatrix) return SW_OK;
    if (q->algo->needs_statistics)
        return SW_FAIL(err, SW_E_USAGE, "--imatrix: method %s needs whole Hessians, of which such "
                       "a file has the diagonals; give --method rtn, or --calib or --stats instead",
                       q->algo->name);
    if (sw_quantize_chooser(j->o))
        return SW_FAIL(err, SW_E_USAGE, "--imatrix: %s measures by itself what errors cost; give "
                       "one of the two", sw_quantize_chooser(j->o));
    if (q->spec.scale_rows != 1 && q->spec.scale_rows != 0)
        return SW_FAIL(err, SW_E_USAGE, "--imatrix: a scale of scheme %s serves many rows and "
                       "follows from their range; leave the option out, or take another scheme",
                       j->o->scheme);
    return SW_OK;
}

static sw_code open_imatrix(job *j, sw_err *err)
{
    sw_code rc;

    if (!j->o->imatrix) return SW_OK;
    if (j->source.model.found)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "--imatrix: its names are those of a GGUF, and which "
                       "are meant is known of known families alone; give --arch-like FAMILY");
    rc = sw_imatrix_input_open(&j->imatrix, j->o->imatrix, &j->source.model, err);
    if (rc != SW_OK) return rc;
    j->settings.quant.importance = sw_imatrix_input_weights(j->imatrix);
    if (sw_imatrix_input_n_missing(j->imatrix))
        sw_progress_note(j->progress, "%lld linears are not in %s; their errors weigh evenly",
                         (long long)sw_imatrix_input_n_missing(j->imatrix), j->o->imatrix);
    return SW_OK;
}

/* What options say of each other, before anything is opened. */
static sw_code check_request(const job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    sw_code rc;

    if (!o->out && !j->is_dry)
        return SW_FAIL(err, SW_E_USAGE, "say where the checkpoint goes: -o DIR");
    if (o->out && !j->name && !o->may_replace && sw_path_exists(o->out))
        return SW_FAIL(err, SW_E_USAGE, "%s: exists; give --force to replace it", o->out);
    if ((rc = check_imatrix(j, err)) != SW_OK || (rc = check_kv(j, err)) != SW_OK ||
        (rc = check_data(j, err)) != SW_OK)
        return rc;
    return check_target(j, err);
}

/* Small floats come as their formats define them; only integers have widths to choose. */
static sw_code check_scheme(const quantize_options *o, sw_err *err)
{
    const sw_scheme *scheme = sw_scheme_find(o->scheme);

    if (strcmp(o->mx_scale, sw_pow2_rule_name(0)) != 0 && !scheme->spec.is_pow2_scale)
        return SW_FAIL(err, SW_E_USAGE, "--mx-scale is for scales that are powers of two, and "
                       "those of scheme %s are not; leave it out", scheme->name);
    if (scheme->spec.num->kind == SW_NUM_INT || !(o->bits || o->group_size || o->symmetry))
        return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "scheme %s fixes width, groups and symmetry; leave out --bits, "
                   "--group-size, --sym and --asym", scheme->name);
}

/* What is run of the text: all that --calib gave, or the windows that a transform tries on. */
static const sw_calib *streamed(const job *j)
{
    if (j->windows.calib.n_seqs) return &j->windows.calib;
    return j->calibration.calib.n_seqs ? &j->calibration.calib : NULL;
}

sw_code sw_quantize_job_needs(sw_needs *out, const job *j, sw_err *err)
{
    const sw_calib *text = &j->calibration.calib;
    sw_calib first = {NULL, sw_min_i64(text->n_seqs, SW_TARGET_WINDOWS_MAX), text->seq_len};
    sw_needs_request r = {.model = &j->source.model, .st = j->source.st,
                          .selection = &j->selection, .options = &j->settings.quant,
                          .calib = sw_quantize_job_needs_data(j) ? streamed(j) : NULL,
                          .has_stats = j->stats && sw_quantize_job_needs_data(j)};

    r.n_ranks = n_ranks_of(j);
    r.device_bytes = j->device_bytes;
    r.is_measured_on_stats = j->stats != NULL;
    if (sw_quantize_chooser(j->o)) r.measured = j->stats ? &j->lead.calib : &first;
    return sw_needs_new(out, &r, err);
}

/* --memory: the streams go to disk when they do not fit beside the rest. */
static sw_code bound_memory(job *j, sw_err *err)
{
    sw_quantize_job without = *j; /* which device a run has is settled later */
    sw_needs needs;
    sw_code rc;

    if (!j->o->memory_bytes) return SW_OK;
    without.device_bytes = 0;
    rc = sw_quantize_job_needs(&needs, &without, err);
    if (rc != SW_OK) return rc;
    return sw_needs_bound(&j->settings.quant.spill_dir, &needs, j->o->memory_bytes, j->o->out,
                          &j->selection.arena, j->progress, err);
}

/* The statistics, and the windows in them that something will be tried on. */
static sw_code open_stats(job *j, sw_err *err)
{
    const sw_algo *algo = j->settings.quant.algo;
    sw_code rc = sw_stats_input_open(&j->stats, j->o->stats, &j->source,
                                     j->settings.quant.experts, err);

    if (rc == SW_OK && algo->transform)
        rc = sw_stats_windows_read(&j->windows, j->stats, &j->source.model, SW_STATS_PROBES,
                                   algo->name, err);
    if (rc != SW_OK || !sw_quantize_chooser(j->o)) return rc;
    rc = sw_stats_check_experts(j->stats, &j->source.model, SW_EXPERTS_ROUTED, err);
    if (rc == SW_OK)
        rc = sw_stats_windows_read(&j->lead, j->stats, &j->source.model, SW_STATS_LEAD,
                                   sw_quantize_chooser(j->o), err);
    return rc;
}

/* What is to be known about activations, from where it is to come. */
static sw_code open_data(job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    sw_calibration_options c = {j->model_dir, &o->calib, o->samples, o->seq_len, o->seed,
                                j->progress};

    if (!sw_quantize_job_needs_data(j) && !sw_quantize_chooser(o)) {
        if (o->calib.n || o->stats)
            sw_progress_note(j->progress, "method %s needs no calibration; --%s is not read",
                             o->method, o->stats ? "stats" : "calib");
        return SW_OK;
    }
    if (o->stats) return open_stats(j, err);
    if (j->lent) {
        j->calibration = *j->lent;
        return SW_OK;
    }
    return o->calib.n ? sw_calibration_read(&j->calibration, &j->source.model, &c, err)
                      : sw_calibration_assume(&j->calibration, &j->source.model, &c, err);
}

/* What nobody knows the arithmetic of can be rounded, if nothing else is asked for. */
static sw_code open_source(job *j, sw_err *err)
{
    sw_code rc;

    sw_arch_allow_unknown(!sw_quantize_job_needs_data(j) && !sw_quantize_chooser(j->o));
    if ((rc = sw_checkpoint_open(&j->source, j->model_dir, err)) != SW_OK) return rc;
    if (!j->source.model.found) return take_source(j, err);
    if (j->o->with_head)
        return SW_FAIL(err, SW_E_USAGE, "--lm-head: nobody says which tensor is the head of a "
                       "model_type that is not known; leave the option out, or give --arch-like "
                       "FAMILY");
    sw_progress_note(j->progress, "model_type %.60s is not known: weights alone are rounded, those "
                     "in its layers by their names and shapes. Nothing is calibrated, and no "
                     "logits are checked", sw_family_type(j->source.config));
    return take_source(j, err);
}

/* quantize makes a job of every pair. */
static sw_code check_single(const quantize_options *o, sw_err *err)
{
    if (!strchr(o->scheme, ',') && !strchr(o->format, ',')) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "plan takes one scheme and one format; ask for the others one "
                   "after the other");
}

sw_code sw_quantize_job_check(sw_quantize_job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    sw_code rc;

    if ((rc = check_single(o, err)) != SW_OK) return rc;
    settings_of(&j->settings, o);
    j->dialect = sw_dialect_find(o->format);
    if ((rc = check_request(j, err)) != SW_OK) return rc;
    if ((rc = open_source(j, err)) != SW_OK || (rc = check_cache(j, err)) != SW_OK) return rc;
    if ((rc = check_scheme(o, err)) != SW_OK) return rc;
    sw_dialect_fit_spec(&j->settings.quant.spec, j->dialect, j->source.model.dtype);
    if ((rc = select_linears(j, err)) != SW_OK) return rc;
    if ((rc = check_rest(j, err)) != SW_OK) return rc;
    if ((rc = open_data(j, err)) != SW_OK || (rc = open_imatrix(j, err)) != SW_OK) return rc;
    if ((rc = bound_memory(j, err)) != SW_OK) return rc;
    return j->is_dry && o->target_bytes ? choose_specs(j, err) : SW_OK;
}

sw_code sw_quantize_job_settle(sw_quantize_job *j, sw_err *err)
{
    const quantize_options *o = j->o;
    const sw_calibration *text;
    sw_left_parts left;
    sw_code rc = SW_OK;

    if (sw_quantize_chooser(o) && (rc = choose_specs(j, err)) != SW_OK) return rc;
    text = j->calibration.calib.n_seqs ? &j->calibration : NULL;
    rc = sw_quantize_report_new(&j->report, &j->settings, text, &o->calib, &j->selection, err);
    sw_left_parts_find(&left, &j->source);
    if (rc == SW_OK) rc = sw_family_add_json(j->report.manifest, &j->source.model, err);
    if (rc == SW_OK) rc = sw_left_parts_add_json(j->report.manifest, &left, err);
    sw_linear_counts_find(&j->report.counts, &j->source, &j->selection);
    if (rc == SW_OK) rc = sw_linear_counts_add_json(j->report.manifest, &j->report.counts, err);
    if (rc == SW_OK && j->imatrix)
        rc = sw_imatrix_input_describe(j->report.manifest, j->imatrix, err);
    if (rc == SW_OK && j->stats)
        rc = sw_stats_input_describe(j->report.manifest, j->stats, err);
    return rc;
}

sw_code sw_quantize_job_prepare(sw_quantize_job *j, sw_err *err)
{
    sw_code rc = sw_quantize_job_check(j, err);

    return rc == SW_OK && !j->is_dry ? sw_quantize_job_settle(j, err) : rc;
}

/* Which rows of quantize were given on the line of a command whose own table is `table`. A recipe
 * is read by quantize's rows alone: those of another command lie outside its options. */
static sw_code find_given(bool **out, const sw_run *run, const sw_opt *table, sw_err *err)
{
    int64_t n = 0;
    sw_code rc;

    while (sw_quantize_rows[n].name) n++;
    rc = SW_ARENA_TAKE(out, run->arena, n + 1, err);

    for (int i = 0; rc == SW_OK && sw_quantize_rows[i].name; i++)
        for (int k = 0; table[k].name; k++)
            if (!strcmp(sw_quantize_rows[i].name, table[k].name))
                (*out)[i] = run->is_set[k];
    return rc;
}

static sw_code read_recipe(sw_quantize_job *j, const sw_run *run, const char *name,
                           const bool *is_set, sw_err *err)
{
    if (sw_preset_is_name(name)) {
        const sw_preset *preset = sw_preset_find(name);

        if (preset)
            return sw_recipe_parse(&j->recipe, j->o, sw_quantize_rows, is_set, preset->text,
                                   strlen(preset->text), preset->name, run->arena, err);
        if (!sw_path_exists(name))
            return sw_opt_unknown("--recipe", name, sw_preset_name, err);
    }
    return sw_recipe_read(&j->recipe, j->o, sw_quantize_rows, is_set, name, run->arena, err);
}

sw_code sw_quantize_job_options(sw_quantize_job *j, sw_run *run,
                                const sw_quantize_options *given, const sw_opt *table,
                                sw_err *err)
{
    bool *is_set = NULL;
    sw_code rc = SW_ARENA_TAKE(&j->o, run->arena, 1, err);

    if (rc != SW_OK) return rc;
    *j->o = *given;
    if (!given->recipe) return SW_OK;
    if ((rc = find_given(&is_set, run, table, err)) != SW_OK ||
        (rc = read_recipe(j, run, given->recipe, is_set, err)) != SW_OK)
        return rc;
    return sw_arch_stand_in(j->o->common.arch_like, err);
}
