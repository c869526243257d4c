/* tensors.c - see checks.h. */
#include "verify/checks/checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/gguf/gguf_model.h"
#include "formats/num/num.h"
#include "verify/base/apart.h"
#include "verify/checks/cover_floats.h"
#include "verify/checks/plausible.h"
#include "verify/decoders/decode_spec_parts.h"
#include "verify/metrics/original.h"

/* Each thread holds the codes of one linear. More threads would cost more memory. */
#define THREADS_MAX 64
/* Linears between two looks at what a caller wants, and at what files keep in memory; for each
 * thread, and the largest first, so that threads end together. */
#define LINEARS_PER_THREAD 4

typedef struct tensor_slot {
    const sw_subject_linear *linear;
    bool is_table; /* the embedding: of no block, and never rescaled */
    sw_report_tensor figures;
    char why[SW_PLAUSIBLE_TEXT_BYTES];
    sw_rescale_says says; /* for the factors of the norm before it */
    bool is_decoded; /* what failed then is not the checkpoint's fault */
    sw_err err;
} tensor_slot;

typedef struct tensor_job {
    const sw_subject *checkpoint, *original;
    const sw_rescale *rescale;
    tensor_slot **order; /* of the slots, as they are taken */
    sw_spec_room *rooms; /* [threads] */
} tensor_job;

/* A producer that was changed without this reader shows in single columns. */
static void judge_columns(tensor_slot *slot, const sw_column_sums *sums)
{
    sw_rescale_column worst = sw_rescale_worst_column(sums);
    sw_apart off;

    if (slot->why[0] || fabs(worst.multiple - 1) <= worst.limit) return;
    off = sw_apart_digits(fabs(worst.multiple - 1), worst.limit, 2);
    (void)snprintf(slot->why, sizeof slot->why, "input %lld is %.3g times what its rescaled "
                   "producer asks for: off by %s, want at most %s: one was changed without the "
                   "other", (long long)worst.at, worst.multiple, off.have, off.limit);
}

/* A changed producer that its readers do not know shows in them. */
static void name_producer(tensor_slot *slot, const tensor_job *job)
{
    size_t n = strlen(slot->why);
    char path[256];

    if (n && !slot->is_table && job->original &&
        sw_rescale_producer(path, job->rescale, &job->original->model, &slot->linear->ref))
        (void)snprintf(slot->why + n, sizeof slot->why - n, " (%s before it differs from the "
                       "original's)", path);
}

/* Folds are told from norms of 16 bits or from rows of codes, by some thousandths. */
#define FOLD_ERR (1.0 / 128)

/* Of what was rescaled, or is said to have been. */
static sw_code judge_rescaled(const tensor_job *job, tensor_slot *slot, const sw_spec_weight *w,
                              const sw_linear_rows *want)
{
    const sw_linear_ref *ref = &slot->linear->ref;
    const sw_rescale_group *norm = sw_rescale_norm_before(job->rescale, ref);
    const bool is_asked = job->rescale->is_claimed || want->columns;
    sw_linear_rows have = {0};
    sw_column_sums sums = {0};
    sw_code rc;

    if (slot->is_table || (!is_asked && !norm)) return SW_OK;
    if ((rc = sw_linear_rows_of_codes(&have, w, &slot->err)) == SW_OK &&
        (rc = sw_column_sums_new(&sums, &have, want, &slot->err)) == SW_OK) {
        if (is_asked) judge_columns(slot, &sums);
        if (norm) rc = sw_rescale_ask(&slot->says, &sums, norm->scale, &slot->err);
    }
    sw_column_sums_free(&sums);
    sw_linear_rows_free(&have);
    return rc;
}

static sw_code hold_against(const tensor_job *job, tensor_slot *slot, sw_spec_weight *w)
{
    const sw_subject_linear *l = slot->linear;
    sw_linear_rows want = {0};
    sw_code rc;

    if (!job->original || !sw_original_holds(job->original, l))
        return sw_plausible_check_rows(&slot->figures, slot->why, w, NULL, &slot->err);
    if ((rc = sw_linear_rows_open(&want, job->original, l, &slot->err)) != SW_OK) return rc;
    if (!slot->is_table) {
        want.columns = sw_rescale_columns(job->rescale, &l->ref);
        want.rows = sw_rescale_rows(job->rescale, &l->ref);
        if (want.columns) w->fold_err = FOLD_ERR;
    }
    rc = sw_plausible_check_rows(&slot->figures, slot->why, w, &want, &slot->err);
    if (rc == SW_OK) rc = judge_rescaled(job, slot, w, &want);
    if (rc == SW_OK) name_producer(slot, job);
    sw_linear_rows_free(&want);
    return rc;
}

/* Outliers lie beside the codes: only all values have them. */
static sw_code decode(sw_spec_weight *w, const tensor_job *job, const sw_subject_linear *l,
                      sw_spec_room *room, sw_err *err)
{
    const sw_spec_scheme *scheme = &job->checkpoint->scheme;
    const sw_st *st = job->checkpoint->st;
    bool has_outliers = false;
    sw_code rc = sw_spec_decode_codes(w, room, scheme, st, l->path, l->ref.n_out, l->ref.k_in,
                                      err);

    for (int64_t k = 0; rc == SW_OK && k < w->k_in; k++)
        has_outliers = has_outliers || w->is_outlier[k];
    if (!has_outliers || !job->original) return rc;
    sw_spec_weight_free(w);
    return sw_spec_decode(w, scheme, st, l->path, l->ref.n_out, l->ref.k_in, err);
}

static void judge_one(const tensor_job *job, tensor_slot *slot, sw_spec_room *room)
{
    sw_spec_weight w = {0};
    sw_code rc = decode(&w, job, slot->linear, room, &slot->err);

    slot->is_decoded = rc == SW_OK;
    if (rc == SW_OK) {
        slot->figures.bits = w.bits;
        slot->figures.group_elems = w.group_elems;
        slot->figures.is_symmetric = w.is_symmetric;
        (void)hold_against(job, slot, &w); /* leaves its error in the slot */
    }
    sw_spec_weight_free(&w);
}

/* Readers that stay in floats have a say as well. */
static sw_code add_float_readers(const sw_subject *checkpoint, const sw_subject *original,
                                 const sw_rescale *rescale, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < rescale->n_linears && rc == SW_OK; i++) {
        const sw_subject_linear *l = &rescale->linears[i];
        sw_rescale_group *norm = sw_rescale_norm_before(rescale, &l->ref);
        sw_linear_rows have = {0}, want = {0};
        sw_column_sums sums = {0};
        sw_err why = {0};

        if (!norm || sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, l->path) ||
            !sw_original_holds(checkpoint, l) || !sw_original_holds(original, l))
            continue;
        rc = sw_linear_rows_open(&want, original, l, err);
        if (rc == SW_OK) rc = sw_linear_rows_open(&have, checkpoint, l, &why);
        if (rc == SW_OK) {
            want.columns = sw_rescale_columns(rescale, &l->ref);
            want.rows = sw_rescale_rows(rescale, &l->ref);
            if ((rc = sw_column_sums_new(&sums, &have, &want, err)) == SW_OK)
                rc = sw_rescale_ask(&norm->says, &sums, norm->scale, err);
        } else if (why.code == SW_E_FORMAT) {
            rc = SW_OK; /* the coverage check says what is wrong */
        } else if (why.code != SW_OK) {
            *err = why;
        }
        sw_column_sums_free(&sums);
        sw_linear_rows_free(&have);
        sw_linear_rows_free(&want);
    }
    return rc;
}

static void judge_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const tensor_job *job = ctx;

    for (int64_t i = begin; i < end; i++) judge_one(job, job->order[i], &job->rooms[thread]);
}

static tensor_slot slot_of(const sw_subject *checkpoint, const sw_subject_linear *l)
{
    return (tensor_slot){.linear = l, .figures = {
        .name = l->path, .n_out = l->ref.n_out, .k_in = l->ref.k_in,
        .group_elems = checkpoint->scheme.group_elems, .bits = checkpoint->scheme.bits,
        .is_symmetric = checkpoint->scheme.is_symmetric, .scale_min = -1, .scale_max = -1,
        .weight_err = -1, .weight_bound = -1, .step_rms = -1, .worst_cell = -1,
        .rounded = -1, .output_err = -1}};
}

/* In a GGUF the embedding may be in blocks too. */
static sw_code add_table(tensor_slot *slots, int64_t *n, const sw_subject *checkpoint,
                         sw_arena *arena, sw_err *err)
{
    const sw_model *m = &checkpoint->model;
    const char *path = sw_model_end(m, SW_END_EMBED);
    sw_subject_linear *table;
    sw_code rc = SW_ARENA_TAKE(&table, arena, 1, err);

    if (rc != SW_OK || !checkpoint->is_gguf ||
        !sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path))
        return rc;
    table->path = path;
    table->ref = (sw_linear_ref){.layer = 0, .slot = SW_SLOT_COUNT, .expert = -1,
                                 .n_out = m->vocab, .k_in = m->hidden};
    slots[*n] = slot_of(checkpoint, table);
    slots[(*n)++].is_table = true;
    return SW_OK;
}

static sw_code take_slots(tensor_slot **out, int64_t *n_out, sw_report *report,
                          const sw_subject *checkpoint, sw_arena *arena, sw_err *err)
{
    sw_subject_linear *linears;
    tensor_slot *slots;
    int64_t n_linears, n = 0;
    sw_code rc;

    if ((rc = sw_subject_linears(&linears, &n_linears, &checkpoint->model, &report->arena,
                                 err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&slots, arena, n_linears + 2, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < n_linears; i++) {
        const sw_subject_linear *l = &linears[i];

        if (!sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, l->path)) {
            if (sw_original_holds(checkpoint, l)) continue; /* left as it was */
            if ((rc = sw_report_find(report, "missing", l->path, err, "%s is stored neither "
                                     "quantized nor plain", l->path)) != SW_OK)
                return rc;
            continue;
        }
        slots[n++] = slot_of(checkpoint, l);
    }
    if ((rc = add_table(slots, &n, checkpoint, &report->arena, err)) != SW_OK) return rc;
    *out = slots;
    *n_out = n;
    return SW_OK;
}

/* What is malformed in the checkpoint is a finding; all else ends the run. */
static sw_code collect(sw_report *report, const tensor_slot *slot, sw_err *err)
{
    const char *name = slot->linear->path;

    if (slot->err.code == SW_E_FORMAT && !slot->is_decoded)
        return sw_report_find(report, "decode", name, err, "%s", slot->err.text);
    if (slot->err.code != SW_OK) {
        *err = slot->err;
        return slot->err.code;
    }
    if (slot->why[0])
        return sw_report_find(report, "implausible", name, err, "%s: %s", name, slot->why);
    return SW_OK;
}

static int64_t elems_of(const tensor_slot *slot)
{
    return slot->linear->ref.n_out * slot->linear->ref.k_in;
}

static int compare_sizes(const void *a, const void *b)
{
    const tensor_slot *x = *(tensor_slot *const *)a, *y = *(tensor_slot *const *)b;

    if (elems_of(x) != elems_of(y)) return elems_of(x) < elems_of(y) ? 1 : -1;
    return (x > y) - (x < y);
}

/* Batch by batch, the largest of each first. The embedding, larger than all, begins the first. */
static sw_code judge_all(tensor_job *job, tensor_slot *slots, int64_t n, int64_t n_threads,
                         const sw_progress *progress, sw_err *err)
{
    const int64_t step = LINEARS_PER_THREAD * n_threads;
    const bool has_table = n && slots[n - 1].is_table;
    tensor_slot **order = job->order;
    sw_code rc;

    for (int64_t i = 0; i < n; i++) order[i] = &slots[has_table ? (i + n - 1) % n : i];
    for (int64_t at = 0; at < n; at += step, job->order += step) {
        const int64_t batch = sw_min_i64(step, n - at);

        sw_progress_step(progress, "tensors", at, n);
        sw_progress_item(progress, order[at]->linear->path);
        if ((rc = sw_progress_check(progress, err)) != SW_OK) return rc;
        qsort(job->order, (size_t)batch, sizeof *order, compare_sizes);
        sw_parallel_for((int)n_threads, batch, 1, judge_some, job);
        sw_st_forget(job->checkpoint->st);
        if (job->original) sw_st_forget(job->original->st);
    }
    sw_progress_step(progress, "tensors", n, n);
    return SW_OK;
}

sw_code sw_verify_tensors(sw_report *report, const sw_subject *checkpoint,
                          const sw_subject *original, sw_rescale *rescale, int n_threads,
                          const sw_progress *progress, sw_err *err)
{
    tensor_job job = {checkpoint, original, rescale, NULL, NULL};
    int64_t n = 0, n_threads_used = sw_min_i64(n_threads, THREADS_MAX);
    tensor_slot *slots = NULL;
    sw_arena arena = {0};
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&job.rooms, &arena, n_threads_used, err)) != SW_OK ||
        (rc = take_slots(&slots, &n, report, checkpoint, &arena, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&job.order, &arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&report->tensors, &report->arena, n + 1, err)) != SW_OK ||
        (rc = judge_all(&job, slots, n, n_threads_used, progress, err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < n; i++) {
        sw_rescale_group *norm = sw_rescale_norm_before(rescale, &slots[i].linear->ref);

        if ((rc = collect(report, &slots[i], err)) != SW_OK) goto done;
        report->tensors[i] = slots[i].figures;
        if (norm && !slots[i].is_table) sw_rescale_add(&norm->says, &slots[i].says);
    }
    report->n_tensors = n;
    if (original) rc = add_float_readers(checkpoint, original, rescale, err);
done:
    for (int64_t i = 0; job.rooms && i < n_threads_used; i++) sw_mem_put(job.rooms[i].codes);
    sw_arena_free(&arena);
    return rc;
}

static bool is_same_view(const sw_cview *a, const sw_cview *b)
{
    if (a->dtype != b->dtype || a->n_dims != b->n_dims || a->size_bytes != b->size_bytes)
        return false;
    for (int32_t i = 0; i < a->n_dims; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return !a->size_bytes || !memcmp(a->data, b->data, a->size_bytes);
}

/* The module path of "<path>.<suffix>" into path[]; the suffix, or NULL without a dot. */
static const char *split_name(char path[512], const char *name)
{
    const char *dot = strrchr(name, '.');

    if (!dot || (size_t)(dot - name) >= 512) return NULL;
    memcpy(path, name, (size_t)(dot - name));
    path[dot - name] = '\0';
    return dot + 1;
}

static bool is_wide_float(sw_dtype dtype)
{
    return dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16 || dtype == SW_DTYPE_F32;
}

/* Of a quantized linear it is floats. */
static bool is_bias(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && !strcmp(dot, ".bias");
}

/* A tensor in floats whose dtype is another: in a GGUF, after a cast, out of a container. */
static sw_code cover_kept(sw_cover *out, const sw_subject *checkpoint, const sw_st_tensor *kept,
                          const char *path, const sw_cview *view, sw_err *err)
{
    *out = SW_COVER_OTHER;
    if (!kept || (path && !is_bias(kept->name) &&
                  sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path)))
        return SW_OK;
    if (!checkpoint->is_gguf && (kept->view.dtype == view->dtype ||
                                 !is_wide_float(kept->view.dtype) || !is_wide_float(view->dtype)))
        return SW_OK;
    return sw_cover_floats(out, kept, view, err);
}

/* Are the original's codes of a linear kept as codes, or as the floats that they stand for? Both
 * are compared linear by linear. */
static bool has_values_of(const sw_subject *checkpoint, const char *path)
{
    const sw_subject_linear l = {.path = path};

    return sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path) ||
           sw_original_holds(checkpoint, &l);
}

/* A part of the codes of all experts, which the checkpoint has expert by expert or in floats. */
static bool is_stacked_part(const sw_subject *checkpoint, const sw_subject *original,
                            const char *path, const char *suffix)
{
    const sw_spec_scheme *s = &original->scheme;
    char first[600];

    if (!s->reader->find || original->is_gguf) return false;
    (void)snprintf(first, sizeof first, "%s.0.%s", path,
                   strncmp(suffix, "down_proj", 9) ? "gate_proj" : "down_proj");
    return sw_original_is_quantized(original, first) && has_values_of(checkpoint, first);
}

/* A tensor of all experts that the original has in codes, expert by expert. */
static bool is_stacked_floats(const sw_subject *original, const char *name)
{
    static const char *const ends[2][2] = {{".experts.gate_up_proj", "gate_proj"},
                                           {".experts.down_proj", "down_proj"}};
    char path[300];

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(name), m = strlen(ends[i][0]);

        if (n <= m || n > 200 || strcmp(name + n - m, ends[i][0]) != 0) continue;
        (void)snprintf(path, sizeof path, "%.*s.experts.0.%s", (int)(n - m), name, ends[i][1]);
        return sw_original_is_quantized(original, path);
    }
    return false;
}

/* Towers and further heads are no part of a GGUF. */
static bool is_left(const sw_subject *checkpoint, const sw_subject *original, const char *name)
{
    return checkpoint->is_gguf && !sw_st_find(checkpoint->st, name) &&
           !sw_model_owns(&original->model, name);
}

static sw_code cover_view(sw_report *report, const sw_subject *checkpoint,
                          const sw_subject *original, const sw_rescale *rescale,
                          const sw_st_tensor *t, const sw_cview *view, sw_err *err)
{
    sw_report_coverage *c = &report->coverage;
    const sw_st_tensor *kept = sw_st_find(checkpoint->st, t->name);
    char path[512], have[160], want[160], where[300];
    const char *suffix = split_name(path, t->name);
    sw_cover cover = SW_COVER_OTHER;
    sw_original_split split;
    sw_code rc;

    c->n_original++;
    c->original_bytes += sw_gguf_stored_bytes(t);
    rc = cover_kept(&cover, checkpoint, kept, suffix ? path : NULL, view, err);
    if (rc != SW_OK) return rc;
    if (kept && (cover == SW_COVER_SAME || (!kept->maker && is_same_view(&kept->view, view)))) {
        c->n_identical++;
        c->identical_bytes += sw_gguf_stored_bytes(t);
        return SW_OK;
    }
    if (cover == SW_COVER_ROUNDED) {
        c->n_rounded++;
        return SW_OK;
    }
    if (suffix && !strcmp(suffix, "weight") &&
        (!kept || sw_spec_is_part(&checkpoint->scheme, suffix)) &&
        sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path)) {
        c->n_quantized++;
        return SW_OK;
    }
    if (suffix && original->is_quantized && sw_spec_is_part(&original->scheme, suffix) &&
        ((sw_original_is_quantized(original, path) && has_values_of(checkpoint, path)) ||
         (!kept && is_stacked_part(checkpoint, original, path, suffix)))) {
        c->n_quantized++;
        return SW_OK;
    }
    if ((suffix && sw_kv_scale_is_own(checkpoint, original, path, suffix)) ||
        (kept && sw_rescale_explains(rescale, checkpoint, t->name, &kept->view, view))) {
        c->n_rescaled++;
        return SW_OK;
    }
    split = kept ? SW_ORIGINAL_OTHER : sw_original_is_split(t, checkpoint, where);
    if (split == SW_ORIGINAL_SPLIT) {
        c->n_quantized++;
        return SW_OK;
    }
    if (split == SW_ORIGINAL_SPOILT) {
        c->n_differing++;
        return sw_report_find(report, "differs", t->name, err, "%s of the original should be found "
                              "expert by expert; %s is missing or has other values", t->name,
                              where);
    }
    if (!kept) {
        c->n_missing++;
        return sw_report_find(report, "missing", t->name, err, "%s of the original is not in the "
                              "checkpoint", t->name);
    }
    c->n_differing++;
    sw_view_describe(have, sizeof have, &kept->view);
    sw_view_describe(want, sizeof want, &t->view);
    return sw_report_find(report, "differs", t->name, err, "%s is not quantized, but differs from "
                          "the original: have %s, want %s%s", t->name, have, want,
                          strcmp(have, want) ? "" : " with other bytes");
}

/* An original may come out of a container that stores its values otherwise. */
static sw_code cover_original(sw_report *report, const sw_subject *checkpoint,
                              const sw_subject *original, const sw_rescale *rescale,
                              const sw_st_tensor *t, sw_err *err)
{
    sw_cview view = t->view;
    sw_st_bytes bytes = {0};
    sw_code rc = sw_st_fetch(&bytes, t, err);

    view.data = bytes.data;
    if (rc == SW_OK && !is_left(checkpoint, original, t->name))
        rc = cover_view(report, checkpoint, original, rescale, t, &view, err);
    sw_st_drop(&bytes);
    return rc;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of the quantized linears, sorted. */
static sw_code sorted_linears(const char ***out, const sw_report *report, sw_err *err)
{
    sw_code rc = SW_MEM_GET(out, report->n_tensors, "names of linears", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < report->n_tensors; i++) (*out)[i] = report->tensors[i].name;
    qsort(*out, (size_t)report->n_tensors, sizeof **out, compare_names);
    return SW_OK;
}

/* A tensor of the checkpoint that is neither the original's nor part of a quantized linear. */
static sw_code cover_checkpoint(sw_report *report, const sw_subject *checkpoint,
                                const sw_subject *original, const char *const *linears,
                                const sw_st_tensor *t, sw_err *err)
{
    char path[512];
    const char *key = path, *suffix = split_name(path, t->name);

    if (!checkpoint->is_gguf || !suffix || strcmp(suffix, "weight") ||
        !sw_spec_is_quantized(&checkpoint->scheme, checkpoint->st, path)) /* blocks count, once */
        report->coverage.checkpoint_bytes += t->view.size_bytes;
    if (sw_st_find(original->st, t->name)) return SW_OK;
    if (suffix && sw_spec_is_part(&checkpoint->scheme, suffix) &&
        (checkpoint->scheme.reader->find || /* its parts are of no one linear */
         bsearch(&key, linears, (size_t)report->n_tensors, sizeof *linears, compare_names)))
        return SW_OK;
    if (suffix && sw_is_kv_scale(checkpoint, path, suffix)) return SW_OK; /* read by itself */
    if (sw_original_is_split_bias(t->name, original)) return SW_OK; /* compared above */
    if (suffix && !strcmp(suffix, "weight") && sw_is_float_linear(checkpoint, original, path))
        return SW_OK; /* compared with the codes */
    if (is_stacked_floats(original, t->name)) return SW_OK;
    report->coverage.n_unexpected++;
    return sw_report_find(report, "unexpected", t->name, err, "%s is neither in the original nor "
                          "part of a quantized linear", t->name);
}

sw_code sw_verify_coverage(sw_report *report, const sw_subject *checkpoint,
                           const sw_subject *original, const sw_rescale *rescale, sw_err *err)
{
    const char **linears = NULL;
    sw_code rc = sorted_linears(&linears, report, err);

    report->coverage = (sw_report_coverage){.is_measured = true};
    for (int64_t i = 0; rc == SW_OK && i < sw_st_count(original->st); i++)
        rc = cover_original(report, checkpoint, original, rescale, sw_st_at(original->st, i), err);
    for (int64_t i = 0; rc == SW_OK && i < sw_st_count(checkpoint->st); i++)
        rc = cover_checkpoint(report, checkpoint, original, linears,
                              sw_st_at(checkpoint->st, i), err);
    sw_mem_put(linears);
    return rc;
}
