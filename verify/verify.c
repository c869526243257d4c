/* verify.c - see verify.h: the order of the judgement. */
#include "verify/verify.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/checkpoint/manifest.h"
#include "formats/checkpoint/model_path.h"
#include "formats/checkpoint/model_text.h"
#include "formats/io/file.h"
#include "formats/io/profile.h"
#include "formats/text/corpus.h"
#include "kernels/engine/lm_open.h"
#include "verify/base/apart.h"
#include "verify/checks/checks.h"
#include "verify/metrics/expected_kl.h"
#include "verify/metrics/inputs.h"
#include "verify/metrics/kept_states.h"
#include "verify/metrics/outputs.h"
#include "verify/metrics/perplexity.h"
#include "verify/options_check.h"
#include "verify/speed/checkpoint_speed.h"
#include "verify/tasks/tasks.h"

#define GAP_WINDOWS 4
#define SAMPLES 1000
#define LEVEL 0.95

typedef struct verifier {
    const sw_verify_options *options;
    int n_threads, n_alone; /* the latter while other ranks wait */
    sw_subject checkpoint, original;
    bool has_original;
    sw_rescale rescale; /* what moved between norms and linears */
    sw_corpus corpus;
    sw_checkpoint served; /* the checkpoint again, through the first decoder */
    sw_checkpoint reference; /* the original, where that is quantized itself */
    sw_lm kernels, dense;
    sw_lm on_device;        /* kernels again, as the device takes it, where that is another order */
    sw_hidden_file states;
    bool is_float; /* kernels holds floats, see open_served */
    bool has_told;            /* the other ranks know whether there is anything to do */
    bool has_failed_together; /* all ranks have met with the same code */
    sw_report report;
} verifier;

static void close_models(verifier *v)
{
    sw_lm_free(&v->kernels);
    sw_lm_free(&v->on_device);
    sw_lm_free(&v->dense);
    sw_checkpoint_close(&v->served);
    sw_checkpoint_close(&v->reference);
}

static void verifier_free(verifier *v)
{
    sw_hidden_file_close(&v->states);
    close_models(v);
    sw_corpus_free(&v->corpus);
    sw_subject_close(&v->checkpoint);
    sw_subject_close(&v->original);
    sw_rescale_free(&v->rescale);
    sw_report_free(&v->report);
}

static bool is_gguf(const char *path)
{
    char file[SW_PATH_BYTES];

    return strlen(path) < sizeof file && sw_gguf_locate(file, path);
}

static sw_code open_subjects(verifier *v, sw_err *err)
{
    const sw_verify_options *o = v->options;
    sw_code rc;

    if (o->original_dir && is_gguf(o->checkpoint_dir)) { /* which is read under its names */
        if ((rc = sw_subject_open(&v->original, o->original_dir, false, err)) != SW_OK) return rc;
        v->has_original = true;
    }
    rc = sw_subject_open_like(&v->checkpoint, o->checkpoint_dir, true,
                              v->has_original ? &v->original : NULL, err);
    if (rc != SW_OK || !o->original_dir || v->has_original) return rc;
    rc = sw_subject_open(&v->original, o->original_dir, false, err);
    v->has_original = rc == SW_OK;
    return rc;
}

static sw_code keep_text(const char **out, sw_report *r, const char *text, sw_err *err)
{
    char *kept;
    sw_code rc = sw_arena_text(&kept, &r->arena, text, strlen(text), err);

    if (rc == SW_OK) *out = kept;
    return rc;
}

static sw_code describe(verifier *v, sw_err *err)
{
    const sw_spec_scheme *s = &v->checkpoint.scheme;
    sw_report *r = &v->report;
    char scheme[160];
    sw_code rc;

    if (s->reader)
        sw_spec_scheme_text(scheme, sizeof scheme, s);
    else
        (void)snprintf(scheme, sizeof scheme, "floats, %s",
                       sw_dtype_name(v->checkpoint.model.dtype));
    if ((rc = keep_text(&r->scheme, r, scheme, err)) != SW_OK ||
        (rc = keep_text(&r->checkpoint_dir, r, v->options->checkpoint_dir, err)) != SW_OK)
        return rc;
    if (v->has_original &&
        (rc = keep_text(&r->original_dir, r, v->options->original_dir, err)) != SW_OK)
        return rc;
    r->dialect = s->reader ? s->reader->name : "plain";
    r->architecture = v->checkpoint.model.arch->name;
    for (int g = 0; g < SW_GATE_COUNT; g++) {
        r->gates[g].is_set = v->options->has_gate[g];
        r->gates[g].limit = v->options->gate[g];
    }
    return SW_OK;
}

/* The original's tokenizer when there is one: it made the original's figures. */
static sw_code read_corpus(verifier *v, sw_err *err)
{
    const sw_verify_options *o = v->options;
    const char *dir = v->has_original ? o->original_dir : o->checkpoint_dir;
    sw_tokenizer *tok = NULL;
    sw_chat_format *chat = NULL;
    sw_code rc = SW_OK;

    if (sw_corpus_needs_tokenizer(o->text_paths, o->n_texts) && sw_model_has_tokenizer(dir))
        rc = sw_model_tokenizer(&tok, dir, err);
    if (rc == SW_OK && sw_corpus_needs_chat(o->text_paths, o->n_texts))
        rc = sw_model_chat(&chat, dir, err);
    v->corpus.chat = chat;
    for (int64_t i = 0; rc == SW_OK && i < o->n_texts; i++)
        rc = sw_corpus_add(&v->corpus, tok, v->checkpoint.model.vocab, o->text_paths[i], err);
    v->corpus.chat = NULL;
    sw_chat_format_free(chat);
    sw_tokenizer_free(tok);
    if (rc != SW_OK || !v->corpus.unspelled.n) return rc;
    sw_corpus_note(&v->corpus, o->progress);
    v->report.eval.unspelled = v->corpus.unspelled;
    return keep_text(&v->report.eval.unspelled_in, &v->report, v->corpus.unspelled_in, err);
}

/* The checkpoint in integer kernels; a layout that tiles cannot hold (scattered groups) runs in
 * floats instead, and the report says so. */
static sw_code open_served(verifier *v, sw_err *err)
{
    sw_lm_options options = {.n_threads = v->n_threads, .kv_kind = v->options->kv_kind};
    sw_err why = {0};
    sw_code rc = sw_lm_open(&v->kernels, &v->served, &options, &why);

    if (rc == SW_E_UNSUPPORTED) {
        v->is_float = options.dequantize = true;
        v->report.note = "no integer kernel holds this layout (scattered groups): the checkpoint "
                         "was run with dequantized weights";
        return sw_lm_open(&v->kernels, &v->served, &options, err);
    }
    if (rc != SW_OK) *err = why;
    return rc;
}

/* An original that is quantized runs in the floats that its codes stand for. */
static sw_code open_original(verifier *v, sw_err *err)
{
    const sw_lm_options options = {.n_threads = v->n_threads, .dequantize = true};
    sw_code rc;

    if (!v->original.is_quantized)
        return sw_lm_load(&v->dense, &v->original.model, v->original.st, err);
    rc = sw_checkpoint_open(&v->reference, v->original.dir, err);
    return rc == SW_OK ? sw_lm_open(&v->dense, &v->reference, &options, err) : rc;
}

static sw_code open_models(verifier *v, sw_err *err)
{
    const sw_lm_options device_options = {.keeps_marlin = true, .n_threads = v->n_threads,
                                          .kv_kind = v->options->kv_kind};
    sw_code rc;

    if ((rc = sw_checkpoint_open_codes(&v->served, v->checkpoint.dir, err)) != SW_OK ||
        (rc = open_served(v, err)) != SW_OK)
        return rc;
    if (v->options->gpu && !v->is_float && sw_checkpoint_has_marlin(&v->served) &&
        (rc = sw_lm_open(&v->on_device, &v->served, &device_options, err)) != SW_OK)
        return rc;
    return v->has_original ? open_original(v, err) : SW_OK;
}

static sw_code measure_gap(verifier *v, const sw_windows *windows, sw_err *err)
{
    sw_report_gap *gap = &v->report.eval.gap;
    int64_t n = v->options->gap_windows ? v->options->gap_windows : GAP_WINDOWS;
    double most = sw_kernel_gap_limit(&v->served, &v->kernels);
    sw_apart a;
    sw_code rc;

    if (n < 0 || v->is_float || !v->checkpoint.is_quantized) return SW_OK;
    rc = sw_kernel_gap(gap, &v->kernels, &v->checkpoint, windows, n, v->n_alone, err);
    if (rc != SW_OK || gap->logits_err <= most) return rc;
    a = sw_apart_digits(gap->logits_err, most, 3);
    return sw_report_find(&v->report, "kernel gap", "logits", err, "logits of the integer kernels "
                          "are %s from those of dequantized weights, relative; want at most %s: "
                          "the two decoders disagree", a.have, a.limit);
}

/* States of a device stay there. */
static bool keeps_states(const verifier *v)
{
    return v->options->kept && v->has_original && !v->options->gpu;
}

static sw_code open_states(verifier *v, const sw_windows *windows, sw_err *err)
{
    char identity[SW_SHA256_HEX_BYTES];
    sw_checkpoint ckpt;
    sw_code rc;

    if (keeps_states(v)) {
        const int rank = sw_judge_rank(v->options->ranks), size = sw_judge_size(v->options->ranks);
        return sw_kept_states_begin(v->options->kept, windows,
                                    sw_windows_of_rank(windows, rank, size),
                                    sw_windows_of_rank(windows, rank + 1, size),
                                    v->original.model.hidden, err);
    }
    if (!v->options->states_path) return SW_OK;
    if ((rc = sw_checkpoint_open(&ckpt, v->original.dir, err)) != SW_OK) return rc;
    rc = sw_checkpoint_identity(identity, &ckpt, err);
    sw_checkpoint_close(&ckpt);
    if (rc != SW_OK) return rc;
    return sw_hidden_file_open(&v->states, v->options->states_path, identity, windows,
                               v->original.model.hidden, err);
}

/* The questions of all task files, by both models. */
static sw_code ask(verifier *v, sw_err *err)
{
    const sw_verify_options *o = v->options;
    sw_tasks_job job = {.paths = o->task_paths, .n_paths = o->n_tasks, .gpu = o->gpu,
                        .gpus = o->gpus,
                        .n_threads = v->n_alone, .with_bos = o->with_bos, .window = o->window,
                        .bootstrap = o->bootstrap, .progress = o->progress,
                        .checkpoint = v->on_device.blocks ? &v->on_device : &v->kernels,
                        .original = v->has_original ? &v->dense : NULL};
    sw_code rc;

    if (!o->n_tasks) return SW_OK;
    rc = sw_model_tokenizer(&job.tok, v->has_original ? o->original_dir : o->checkpoint_dir, err);
    if (rc == SW_OK) rc = sw_tasks_measure(&v->report, &job, err);
    sw_tokenizer_free(job.tok);
    return rc;
}

/* The text and both models, ready to run. */
static sw_code open_job(sw_eval_job *job, verifier *v, sw_err *err)
{
    const sw_verify_options *o = v->options;
    sw_code rc;

    if ((rc = read_corpus(v, err)) != SW_OK ||
        (rc = sw_windows_cut(&job->windows, v->corpus.ids.ids, v->corpus.ids.n, o->window,
                             o->max_windows, o->with_bos, &v->checkpoint.model, err)) != SW_OK ||
        (rc = open_states(v, &job->windows, err)) != SW_OK || (rc = open_models(v, err)) != SW_OK)
        return rc;
    if (o->states_path) job->states = &v->states;
    if (keeps_states(v)) job->kept = o->kept;
    if (!job->bootstrap.n_samples) job->bootstrap.n_samples = SAMPLES;
    if (job->bootstrap.level <= 0) job->bootstrap.level = LEVEL;
    job->checkpoint = v->on_device.blocks ? &v->on_device : &v->kernels;
    job->original = v->has_original ? &v->dense : NULL;
    v->report.eval.n_tokens = v->corpus.ids.n;
    return SW_OK;
}

/* Ranks of several hosts may have other texts under the same names. */
static sw_code check_same_text(const verifier *v, const sw_windows *w, sw_err *err)
{
    const sw_judge_ranks *ranks = v->options->ranks;
    const int64_t cut[] = {w->n, w->length, w->stride, w->has_bos, w->bos};
    sw_code rc = sw_judge_same(ranks, "cut of the text into windows", cut, sizeof cut, err);

    if (rc != SW_OK) return rc;
    return sw_judge_same(ranks, "text", w->ids, (size_t)(w->n * w->stride) * sizeof *w->ids, err);
}

/* What every rank takes part in. */
static sw_code evaluate_together(sw_eval_job *job, verifier *v, sw_err *err)
{
    sw_code rc = sw_judge_meet(v->options->ranks, open_job(job, v, err), err);

    if (rc == SW_OK) rc = check_same_text(v, &job->windows, err);
    if (rc == SW_OK) rc = sw_evaluate(&v->report.eval, job, err);
    v->has_failed_together = rc != SW_OK;
    return rc;
}

static sw_code judge_outputs(verifier *v, const sw_windows *windows, sw_err *err)
{
    const sw_outputs_job job = {.original = &v->dense, .checkpoint = &v->checkpoint,
                                .rescale = &v->rescale, .windows = windows,
                                .gpu = v->options->gpu, .n_threads = v->n_alone,
                                .progress = v->options->progress};

    return sw_output_errors(&v->report, &job, err);
}

/* The gap and the errors of outputs are looked at last, so that ranks need not wait for them. */
static sw_code evaluate_text(verifier *v, sw_err *err)
{
    const sw_verify_options *o = v->options;
    sw_eval_job job = {.bootstrap = o->bootstrap, .n_threads = v->n_threads, .ranks = o->ranks,
                       .gpu = o->gpu, .gpus = o->gpus, .progress = o->progress};
    sw_span span = sw_span_open("text");
    sw_code rc = evaluate_together(&job, v, err);

    sw_span_close(span, NULL);
    if (rc != SW_OK || sw_judge_rank(o->ranks) ||
        (rc = measure_gap(v, &job.windows, err)) != SW_OK)
        return rc;
    span = sw_span_open("judge outputs");
    if (v->has_original)
        rc = judge_outputs(v, &job.windows, err);
    sw_span_close(span, NULL);
    if (rc != SW_OK) return rc;
    job.n_threads = v->n_alone;
    return sw_expected_kl_check(&v->report, &job,
                                v->checkpoint.is_quantized ? v->checkpoint.scheme.bits_min : 16,
                                v->served.qconfig.spec.act.scope != SW_ACT_NONE, err);
}

static sw_code evaluate(verifier *v, sw_err *err)
{
    sw_code rc = v->options->n_texts ? evaluate_text(v, err) : open_models(v, err);

    return rc == SW_OK ? ask(v, err) : rc;
}

static bool has_finding(const sw_report *r, const char *what)
{
    for (int64_t i = 0; i < r->n_findings && i < SW_FINDINGS_MAX; i++)
        if (!strcmp(r->findings[i].what, what)) return true;
    return false;
}

/* Such a checkpoint cannot be run. */
static bool is_incomplete(const sw_report *r)
{
    return has_finding(r, "decode") || has_finding(r, "missing") || has_finding(r, "twice");
}

/* Ids that every reader but this program takes for others. */
static sw_code check_tokens(sw_report *r, sw_err *err)
{
    for (int64_t i = 0; i < r->loaders.n; i++) {
        const sw_load_finding *f = &r->loaders.at[i];
        sw_code rc;

        if (strcmp(f->rule->id, "added-ids")) continue;
        rc = sw_report_find(r, "tokenizer", f->subject, err, "added token \"%.60s\": %s; %lld "
                            "tokens in all", f->subject, f->detail, (long long)f->n_subjects);
        if (rc != SW_OK) return rc;
    }
    return SW_OK;
}

/* What this program cannot open itself says so by its tensors. */
static sw_code check_loaders(verifier *v, sw_err *err)
{
    sw_checkpoint ckpt;
    sw_err why = {0};
    sw_code rc = sw_checkpoint_open(&ckpt, v->checkpoint.dir, &why);

    if (rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED) return SW_OK;
    if (rc != SW_OK) return SW_FAIL(err, rc, "%s", why.text);
    rc = sw_loaders_check(&v->report.loaders, &ckpt, err);
    sw_checkpoint_close(&ckpt);
    return rc == SW_OK ? check_tokens(&v->report, err) : rc;
}

/* What is no quantized linear. */
static sw_code hold_to_original(verifier *v, sw_err *err)
{
    sw_report *r = &v->report;
    sw_span span = sw_span_open("judge floats");
    sw_code rc = sw_verify_float_linears(r, &v->checkpoint, &v->original, v->options->progress,
                                         err);

    sw_span_close(span, NULL);
    span = sw_span_open("judge coverage");
    if (rc == SW_OK) rc = sw_verify_coverage(r, &v->checkpoint, &v->original, &v->rescale, err);
    sw_span_close(span, NULL);
    return rc == SW_OK ? sw_verify_config(r, &v->checkpoint, &v->original, err) : rc;
}

static bool runs_models(const verifier *v) { return v->options->n_texts || v->options->n_tasks; }

static bool is_forgivable(sw_code rc) { return rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED; }

/* A checkpoint that has failed need not open for being run as well. */
static sw_code forgive(verifier *v, sw_code rc, const sw_err *why, sw_err *err)
{
    if (v->report.n_findings && is_forgivable(rc))
        return keep_text(&v->report.note, &v->report, why->text, err);
    *err = *why;
    return rc;
}

/* What rank 0 has found out by itself, and the other ranks go by. */
typedef struct orders {
    bool runs_text, has_original;
} orders;

static sw_code tell(verifier *v, bool runs_text, sw_err *err)
{
    const sw_judge_ranks *ranks = v->options->ranks;
    orders given = {.runs_text = runs_text, .has_original = v->has_original};

    v->has_told = true;
    return ranks ? ranks->broadcast(ranks->self, 0, &given, sizeof given, err) : SW_OK;
}

/* The models over the text. */
static sw_code run_models(verifier *v, sw_err *err)
{
    const sw_judge_ranks *ranks = v->options->ranks;
    sw_report *r = &v->report;
    sw_err why = {0}, lost = {0};
    bool are_waiting, is_forgiven;
    sw_code told, rc = tell(v, v->options->n_texts && !is_incomplete(r), err);

    if (rc != SW_OK) return rc;
    if (is_incomplete(r)) {
        r->note = "the models were not run: the checkpoint does not decode or is not complete";
        return SW_OK;
    }
    if ((rc = evaluate(v, &why)) == SW_OK) return rc;
    are_waiting = ranks && v->has_failed_together && is_forgivable(rc);
    rc = forgive(v, rc, &why, err);
    if (!are_waiting) return rc;
    is_forgiven = rc == SW_OK;
    told = ranks->broadcast(ranks->self, 0, &is_forgiven, sizeof is_forgiven, &lost);
    if (rc != SW_OK || told == SW_OK) return rc;
    *err = lost;
    return told;
}

/* The part of every rank but the first: its windows, if rank 0 finds that the models can be run.
 * Whether what all have failed with is forgiven, only that one knows. */
static sw_code help(verifier *v, sw_err *err)
{
    const sw_judge_ranks *ranks = v->options->ranks;
    orders given = {.runs_text = false};
    bool is_forgiven = false;
    sw_err lost = {0};
    sw_code rc;

    if (!runs_models(v)) return SW_OK;
    if ((rc = ranks->broadcast(ranks->self, 0, &given, sizeof given, err)) != SW_OK) return rc;
    v->has_original = v->has_original && given.has_original;
    if (given.runs_text) rc = evaluate_text(v, err);
    if (!is_forgivable(rc)) return rc;
    if (ranks->broadcast(ranks->self, 0, &is_forgiven, sizeof is_forgiven, &lost) != SW_OK)
        return rc;
    return is_forgiven ? SW_OK : rc;
}

/* Both in turns, opened once more, as they are stored: the models before are gone by then. */
static sw_code time_models(verifier *v, sw_err *err)
{
    const sw_verify_options *o = v->options;
    const sw_speed_job job = {.dir = v->checkpoint.dir, .request = o->speed, .gpu = o->gpu,
                              .original_dir = v->has_original ? v->original.dir : NULL,
                              .kv_kind = o->kv_kind, .n_threads = v->n_alone,
                              .progress = o->progress};
    sw_err why = {0};
    sw_code rc;

    if (!o->speed || is_incomplete(&v->report)) return SW_OK;
    close_models(v);
    rc = sw_checkpoint_speed(&v->report.speed, &v->report.arena, &job, &why);
    return rc == SW_OK ? rc : forgive(v, rc, &why, err);
}

/* What can be told without a look at the values. */
static sw_code judge_files(verifier *v, sw_err *err)
{
    const sw_subject *original = v->has_original ? &v->original : NULL;
    sw_report *r = &v->report;
    sw_span span = sw_span_open("judge digests");
    bool are_same = true;
    sw_code rc = describe(v, err);

    if (rc == SW_OK) rc = sw_verify_inputs(r, &v->checkpoint, original, v->options, err);
    sw_span_close(span, NULL);
    if (rc != SW_OK ||
        (rc = sw_verify_side_files(r, &v->checkpoint, original, err)) != SW_OK || !original ||
        (rc = sw_verify_sizes(&are_same, r, &v->checkpoint, original, err)) != SW_OK || are_same)
        return rc;
    v->has_original = false;
    r->note = "the original is another model: nothing else was compared with it";
    return SW_OK;
}

/* What moved between producers and their readers, which all that follows goes by. */
static sw_code judge_rescaled(verifier *v, const sw_subject *original, sw_err *err)
{
    sw_span span = sw_span_open("judge rescaled");
    sw_code rc = sw_rescale_new(&v->rescale, &v->report, &v->checkpoint, original, v->n_alone,
                                err);

    sw_span_close(span, NULL);
    return rc;
}

/* Every tensor by the second decoder, and what can be told of the checkpoint by itself. */
static sw_code judge_values(verifier *v, const sw_subject *original, sw_err *err)
{
    sw_span span = sw_span_open("judge tensors");
    sw_code rc = sw_verify_tensors(&v->report, &v->checkpoint, original, &v->rescale, v->n_alone,
                                   v->options->progress, err);

    sw_span_close(span, NULL);
    span = sw_span_open("judge structure");
    if (rc == SW_OK) rc = sw_verify_kv_scales(&v->report, &v->checkpoint, err);
    if (rc == SW_OK) rc = sw_verify_structure(&v->report, &v->checkpoint, v->n_alone, err);
    if (rc == SW_OK) rc = sw_verify_unlisted(&v->report, &v->checkpoint, original, err);
    sw_span_close(span, NULL);
    return rc;
}

static sw_code judge(verifier *v, sw_err *err)
{
    const sw_subject *original;
    sw_report *r = &v->report;
    sw_code rc = judge_files(v, err);

    if (rc != SW_OK) return rc;
    original = v->has_original ? &v->original : NULL;
    if (original && (rc = judge_rescaled(v, original, err)) != SW_OK) return rc;
    if ((rc = judge_values(v, original, err)) != SW_OK) return rc;
    if (original && (rc = hold_to_original(v, err)) != SW_OK) return rc;
    if (!r->n_tensors && v->checkpoint.is_quantized && !v->checkpoint.is_gguf &&
        (rc = sw_report_find(r, "missing", "quantized linears", err, "config.json says %s, but no "
                             "linear is stored quantized", r->dialect)) != SW_OK)
        return rc;
    if ((rc = check_loaders(v, err)) != SW_OK) return rc;
    if (runs_models(v)) rc = run_models(v, err);
    return rc == SW_OK ? time_models(v, err) : rc;
}

/* Of rank 0. Where it fails by itself there is nothing for the others to do. */
static sw_code lead(verifier *v, sw_err *err)
{
    sw_err lost = {0};
    sw_code rc = judge(v, err), told = SW_OK;

    if (rc != SW_OK && runs_models(v) && !v->has_told) told = tell(v, false, &lost);
    if (told == SW_OK) return rc;
    *err = lost;
    return told;
}

static sw_code open_all(verifier *v, sw_err *err)
{
    sw_code rc = open_subjects(v, err);

    if (rc != SW_OK) return rc;
    return sw_verify_family(&v->report, &v->checkpoint, v->has_original ? &v->original : NULL,
                            v->options, err);
}

sw_code sw_verify_run(sw_report *out, const sw_verify_options *options, sw_err *err)
{
    verifier v = {.options = options};
    double started = sw_clock_s();
    sw_code rc;

    v.n_threads = options->n_threads > 0 ? options->n_threads : sw_cpu_count();
    v.n_alone = options->n_threads_alone > v.n_threads ? options->n_threads_alone : v.n_threads;
    if ((rc = sw_verify_check_options(options, err)) != SW_OK ||
        (rc = sw_tasks_check(options->task_paths, options->n_tasks, err)) != SW_OK ||
        (rc = sw_judge_meet(options->ranks, open_all(&v, err), err)) != SW_OK ||
        (rc = sw_judge_rank(options->ranks) ? help(&v, err) : lead(&v, err)) != SW_OK)
        goto done;
    sw_report_judge(&v.report);
    v.report.seconds = sw_clock_s() - started;
    *out = v.report;
    memset(&v.report, 0, sizeof v.report);
done:
    verifier_free(&v);
    return rc;
}
