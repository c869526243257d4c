/* fold.c - see fold.h. */
#include "quant/search/fold.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "quant/method/weight_rows.h"
#include "quant/team/team.h"

#define SCALE_MAX 0x1p14 /* factors beyond these would leave half floats no range */
#define DENSE_LINEARS_MAX 32 /* of a block without its experts */

typedef struct fold_job {
    const sw_transform_job *job;
    const sw_fold *fold;
    int64_t expert, k;
    const double *scale; /* [k] */
    double *rows;        /* of SW_FOLD_ROWS: the same by the producer's rows */
} fold_job;

void sw_fold_tie(double *scale, const sw_fold *fold, int64_t k)
{
    const int64_t width = fold->width, n = fold->n_sharing;

    for (int64_t at = 0; at < k && n > 1; at++) {
        bool is_one = false, is_same = true;
        double sum = 0, mean;
        if (at / width % n) continue; /* reached from the first that shares */
        for (int64_t i = 0; i < n; i++) {
            double s = scale[at + i * width];
            is_one = is_one || s == 1.0;
            is_same = is_same && s == scale[at];
            sum += log(s);
        }
        mean = is_one ? 1.0 : is_same ? scale[at] : exp(sum / (double)n);
        for (int64_t i = 0; i < n; i++) scale[at + i * width] = mean;
    }
}

/* What each row of the producer is divided by: 1 where no channel comes from it. Freed by
 * sw_mem_put. */
static sw_code rows_of(double **out, const sw_transform_job *job, const sw_fold *fold,
                       const double *scale, int64_t k, sw_err *err)
{
    int64_t n_out, k_in;
    sw_code rc;

    sw_model_slot_shape(job->model, job->original->layer, fold->producer, &n_out, &k_in);
    if ((rc = SW_MEM_GET(out, n_out, "factors of rows", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < n_out; i++) (*out)[i] = 1.0;
    for (int64_t j = 0; j < k; j++) (*out)[sw_fold_row(fold, j)] = scale[j];
    return SW_OK;
}

static bool is_selected(const sw_transform_job *job, sw_slot slot, int64_t expert)
{
    for (int64_t i = 0; i < job->n_linears; i++)
        if (job->linears[i].slot == slot && (expert < 0 || job->linears[i].expert == expert))
            return true;
    return false;
}

/* Everything that reads the site, in block order, the router at the end. Freed by sw_mem_put. */
static sw_code list_readers(sw_linear_ref **out, int64_t *n_out, const sw_transform_job *job,
                            const sw_fold *fold, int64_t expert, sw_err *err)
{
    int64_t layer = job->original->layer, n = sw_model_linears(job->model, layer, NULL, 0);
    int64_t n_kept = 0;
    sw_linear_ref *refs = NULL;
    sw_code rc = SW_MEM_GET(&refs, n + 1, "linears of a block", err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(job->model, layer, refs, n);
    for (int64_t i = 0; i < n; i++)
        if (refs[i].site == fold->site && (expert < 0 || refs[i].expert == expert))
            refs[n_kept++] = refs[i];
    if (fold->site == SW_SITE_MLP_IN && sw_model_is_sparse(job->model, layer)) {
        sw_linear_ref router = {layer, SW_SLOT_ROUTER, -1, SW_SITE_MLP_IN, 0, 0};
        sw_model_slot_shape(job->model, layer, router.slot, &router.n_out, &router.k_in);
        refs[n_kept++] = router;
    }
    *out = refs;
    *n_out = n_kept;
    return SW_OK;
}

bool sw_fold_needs_pow2(const sw_transform_job *job, const sw_fold *fold, int64_t expert)
{
    int64_t layer = job->original->layer, n_selected = 0, n_readers = 0, n;
    sw_linear_ref refs[DENSE_LINEARS_MAX];

    if (fold->site == SW_SITE_MLP_IN && sw_model_is_sparse(job->model, layer)) return true;
    if (fold->kind == SW_FOLD_NORM && job->original->norm_bias[fold->producer]) return true;
    if (fold->kind == SW_FOLD_ROWS && (!is_selected(job, fold->producer, expert) ||
                                       sw_model_slot_has_bias(job->model, fold->producer)))
        return true;
    if (expert >= 0) return false; /* one reader, and it is selected */
    n = sw_model_linears(job->model, layer, refs, DENSE_LINEARS_MAX);
    for (int64_t i = 0; i < n && i < DENSE_LINEARS_MAX; i++)
        n_readers += refs[i].expert < 0 && refs[i].site == fold->site;
    for (int64_t i = 0; i < job->n_linears; i++)
        n_selected += job->linears[i].site == fold->site;
    return n_selected < n_readers;
}

/* Selected, or a tensor of its own with a row per output. */
static bool can_change(const sw_transform_job *job, sw_slot slot, int64_t expert)
{
    int64_t n_out, k_in;
    const sw_st_tensor *t;
    char path[256], name[300];

    if (is_selected(job, slot, expert)) return true;
    if (job->model->arch->has_transposed_linears ||
        !sw_model_slot_path(path, job->model, job->original->layer, slot, expert))
        return false;
    (void)snprintf(name, sizeof name, "%s.weight", path);
    sw_model_slot_shape(job->model, job->original->layer, slot, &n_out, &k_in);
    t = sw_st_find(job->st, name);
    return t && t->view.n_dims == 2 && t->view.shape[0] == n_out && t->view.shape[1] == k_in;
}

sw_code sw_fold_is_possible(bool *can, const sw_transform_job *job, const sw_fold *fold,
                            int64_t expert, sw_err *err)
{
    bool all = fold->kind == SW_FOLD_NORM || can_change(job, fold->producer, expert);
    sw_linear_ref *readers = NULL;
    int64_t n = 0;
    sw_code rc = list_readers(&readers, &n, job, fold, expert, err);

    for (int64_t i = 0; i < n && all; i++)
        all = can_change(job, readers[i].slot, readers[i].expert);
    sw_mem_put(readers);
    if (rc == SW_OK) *can = all;
    return rc;
}

static sw_code tensor_dtype(sw_dtype *out, const sw_transform_job *job, sw_slot slot,
                            int64_t expert, const char *leaf, char name[300], sw_err *err)
{
    const sw_st_tensor *t;
    char path[256];

    if (!sw_model_slot_path(path, job->model, job->original->layer, slot, expert))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name", (int)slot);
    (void)snprintf(name, 300, "%s.%s", path, leaf);
    if (!(t = sw_st_find(job->st, name)))
        return SW_FAIL(err, SW_E_FORMAT, "%s: missing from the checkpoint", name);
    *out = t->view.dtype;
    return SW_OK;
}

/* What the stored value nearest to norm / s divides by; 1 where none serves. Norms are stored
 * less `offset`. */
static double norm_quotient(float norm, double s, float offset, sw_dtype dtype)
{
    float v = sw_num_round_to((float)((double)norm / s - (double)offset), dtype) + offset;
    double q = (double)norm / (double)v;

    if (fabsf(norm) < 0x1p-20f || !isnormal(v) || fabs((double)v) > 32768 || !(q > 0) ||
        fabs(q / s - 1) > 0.01 || fabs((double)v) < 0x1p-14)
        return 1.0;
    return q;
}

static double pow2_of(double s)
{
    return exp2(rint(log2(s)));
}

/* true when v and its multiple by a power of two are both what dtype holds. */
static bool is_exact(float v, double factor, sw_dtype dtype)
{
    float scaled = (float)((double)v * factor);

    return isfinite(scaled) && (double)scaled == (double)v * factor &&
           sw_num_round_to(scaled, dtype) == scaled;
}

/* Channels where a reader that stays in floats would be rounded get the factor 1. */
static void keep_exact_columns(double *scale, const float *w, int64_t n_out, int64_t k,
                               sw_dtype dtype)
{
    for (int64_t i = 0; i < n_out; i++)
        for (int64_t j = 0; j < k; j++)
            if (!is_exact(w[i * k + j], scale[j], dtype)) scale[j] = 1.0;
}

static void keep_exact_rows(double *scale, const float *w, int64_t n_out, int64_t k,
                            sw_dtype dtype)
{
    for (int64_t i = 0; i < n_out; i++)
        for (int64_t j = 0; j < k; j++)
            if (!is_exact(w[i * k + j], 1.0 / scale[i], dtype)) scale[i] = 1.0;
}

static sw_code decode(float **out, const sw_weight *w, sw_err *err)
{
    int64_t n = w->n_out * w->k_in;
    sw_code rc = SW_MEM_GET(out, n, "weight", err);

    return rc == SW_OK ? sw_float_decode_n(*out, w->dense, w->dense_dtype, n, err) : rc;
}

/* Look at one float tensor that will be stored scaled. */
static sw_code round_for(double *scale, const sw_transform_job *job, sw_slot slot, int64_t expert,
                         bool by_rows, sw_err *err)
{
    const sw_weight *w = sw_block_weight(job->original, slot, expert);
    char name[300];
    sw_dtype dtype;
    float *values = NULL;
    sw_code rc;

    if ((rc = tensor_dtype(&dtype, job, slot, expert, "weight", name, err)) != SW_OK) return rc;
    if ((rc = decode(&values, w, err)) == SW_OK)
        (by_rows ? keep_exact_rows : keep_exact_columns)(scale, values, w->n_out, w->k_in, dtype);
    sw_mem_put(values);
    if (rc != SW_OK || !by_rows || !w->bias) return rc;
    if ((rc = tensor_dtype(&dtype, job, slot, expert, "bias", name, err)) == SW_OK)
        keep_exact_rows(scale, w->bias, w->n_out, 1, dtype);
    return rc;
}

/* The rows of a producer where they, or its bias, will be stored scaled. */
static sw_code round_rows(double *scale, const sw_transform_job *job, const sw_fold *fold,
                          int64_t expert, int64_t k, sw_err *err)
{
    double *rows = NULL;
    sw_code rc = rows_of(&rows, job, fold, scale, k, err);

    if (rc == SW_OK) rc = round_for(rows, job, fold->producer, expert, true, err);
    for (int64_t j = 0; j < k && rc == SW_OK; j++) scale[j] = rows[sw_fold_row(fold, j)];
    sw_mem_put(rows);
    return rc;
}

static sw_code round_pow2(double *scale, const sw_transform_job *job, const sw_fold *fold,
                          int64_t expert, int64_t k, sw_err *err)
{
    sw_linear_ref *readers = NULL;
    int64_t n = 0;
    sw_code rc;

    for (int64_t j = 0; j < k; j++) scale[j] = pow2_of(scale[j]);
    rc = list_readers(&readers, &n, job, fold, expert, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (!is_selected(job, readers[i].slot, readers[i].expert))
            rc = round_for(scale, job, readers[i].slot, readers[i].expert, false, err);
    sw_fold_tie(scale, fold, k);
    if (rc == SW_OK && fold->kind == SW_FOLD_ROWS &&
        (!is_selected(job, fold->producer, expert) ||
         sw_block_weight(job->original, fold->producer, expert)->bias))
        rc = round_rows(scale, job, fold, expert, k, err);
    sw_mem_put(readers);
    return rc;
}

sw_code sw_fold_round(double *scale, const sw_transform_job *job, const sw_fold *fold,
                      int64_t expert, int64_t k, sw_err *err)
{
    bool needs_pow2 = sw_fold_needs_pow2(job, fold, expert);
    char name[300];
    sw_dtype dtype;
    sw_code rc = SW_OK;

    for (int64_t j = 0; j < k; j++)
        if (!(scale[j] >= 1 / SCALE_MAX && scale[j] <= SCALE_MAX)) scale[j] = 1.0;
    sw_fold_tie(scale, fold, k);
    if (needs_pow2 && (rc = round_pow2(scale, job, fold, expert, k, err)) != SW_OK) return rc;
    if (fold->kind != SW_FOLD_NORM) return SW_OK;
    if ((rc = tensor_dtype(&dtype, job, fold->producer, -1, "weight", name, err)) != SW_OK)
        return rc;
    if (job->original->norm_bias[fold->producer])
        keep_exact_rows(scale, job->original->norm_bias[fold->producer], k, 1, dtype);
    for (int64_t j = 0; j < k; j++) {
        double q = norm_quotient(job->original->norm[fold->producer][j], scale[j],
                                 (float)job->model->norm_offset, dtype);

        scale[j] = needs_pow2 && q != scale[j] ? 1.0 : q;
    }
    return SW_OK;
}

/* Put a weight times the scale into both blocks; `original`'s arena owns it. */
static sw_code scale_weight(const fold_job *f, sw_slot slot, int64_t expert, bool by_rows,
                            sw_err *err)
{
    const sw_transform_job *job = f->job;
    sw_weight *w = sw_block_weight(job->original, slot, expert);
    sw_weight *q = sw_block_weight(job->quantized, slot, expert);
    float *values = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&values, &job->original->arena, w->n_out * w->k_in, err)) != SW_OK ||
        (rc = sw_weight_load_scaled(values, w, by_rows ? f->rows : NULL, by_rows ? NULL : f->scale,
                                    job->options->n_threads, err)) != SW_OK)
        return rc;
    w->dense = q->dense = values;
    w->dense_dtype = q->dense_dtype = SW_DTYPE_F32;
    return SW_OK;
}

static sw_code hand_out(const fold_job *f, sw_slot slot, int64_t expert, const char *leaf,
                        const float *values, int64_t n, sw_err *err)
{
    const sw_quant_sink *sink = f->job->sink;
    char name[300];
    sw_dtype dtype;
    sw_code rc = tensor_dtype(&dtype, f->job, slot, expert, leaf, name, err);

    if (rc != SW_OK) return rc;
    if (sw_team_rank(f->job->options->team) > 0) return SW_OK; /* rank 0 hands out */
    if (!sink->change) return SW_FAIL(err, SW_E_BUG, "%s: no sink for a changed tensor", name);
    return sink->change(sink->self, name, values, n, err);
}

static sw_code scale_reader(const fold_job *f, const sw_linear_ref *ref, sw_err *err)
{
    sw_code rc = scale_weight(f, ref->slot, ref->expert, false, err);

    if (rc != SW_OK || is_selected(f->job, ref->slot, ref->expert)) return rc;
    return hand_out(f, ref->slot, ref->expert, "weight",
                    sw_block_weight(f->job->original, ref->slot, ref->expert)->dense,
                    ref->n_out * ref->k_in, err);
}

/* values [n] = from / scale in the arena, for both blocks. */
static sw_code divide(float **out, const fold_job *f, const float *from, const double *scale,
                      int64_t n, sw_err *err)
{
    sw_code rc = SW_ARENA_TAKE(out, &f->job->original->arena, n, err);

    for (int64_t j = 0; j < n && rc == SW_OK; j++)
        (*out)[j] = (float)((double)from[j] / scale[j]);
    return rc;
}

static sw_code scale_norm(const fold_job *f, sw_err *err)
{
    const sw_transform_job *job = f->job;
    float offset = (float)job->model->norm_offset, *norm = NULL, *bias = NULL, *stored = NULL;
    sw_slot slot = f->fold->producer;
    sw_code rc = divide(&norm, f, job->original->norm[slot], f->scale, f->k, err);

    if (rc == SW_OK) rc = SW_ARENA_TAKE(&stored, &job->original->arena, f->k, err);
    if (rc != SW_OK) return rc;
    for (int64_t j = 0; j < f->k; j++) stored[j] = norm[j] - offset;
    job->original->norm[slot] = job->quantized->norm[slot] = norm;
    rc = hand_out(f, slot, -1, "weight", stored, f->k, err);
    if (rc != SW_OK || !job->original->norm_bias[slot]) return rc;
    rc = divide(&bias, f, job->original->norm_bias[slot], f->scale, f->k, err);
    if (rc != SW_OK) return rc;
    job->original->norm_bias[slot] = job->quantized->norm_bias[slot] = bias;
    return hand_out(f, slot, -1, "bias", bias, f->k, err);
}

static sw_code scale_producer_rows(const fold_job *f, sw_err *err)
{
    const sw_transform_job *job = f->job;
    sw_slot slot = f->fold->producer;
    sw_weight *w = sw_block_weight(job->original, slot, f->expert);
    float *bias = NULL;
    sw_code rc = scale_weight(f, slot, f->expert, true, err);

    if (rc == SW_OK && !is_selected(job, slot, f->expert))
        rc = hand_out(f, slot, f->expert, "weight", w->dense, w->n_out * w->k_in, err);
    if (rc != SW_OK || !w->bias) return rc;
    if ((rc = divide(&bias, f, w->bias, f->rows, w->n_out, err)) != SW_OK) return rc;
    w->bias = sw_block_weight(job->quantized, slot, f->expert)->bias = bias;
    return hand_out(f, slot, f->expert, "bias", bias, w->n_out, err);
}

sw_code sw_fold_apply(const sw_transform_job *job, const sw_fold *fold, int64_t expert,
                      const double *scale, int64_t k, sw_err *err)
{
    fold_job f = {job, fold, expert, k, scale, NULL};
    sw_linear_ref *readers = NULL;
    int64_t n = 0;
    sw_code rc = list_readers(&readers, &n, job, fold, expert, err);

    if (rc == SW_OK && fold->kind == SW_FOLD_ROWS)
        rc = rows_of(&f.rows, job, fold, scale, k, err);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) rc = scale_reader(&f, &readers[i], err);
    if (rc == SW_OK)
        rc = fold->kind == SW_FOLD_NORM ? scale_norm(&f, err) : scale_producer_rows(&f, err);
    sw_mem_put(readers);
    sw_mem_put(f.rows);
    return rc;
}

/* What rank 0's sink has, at every rank. */
static sw_code ask_sink(bool *is_changed, float *values, const sw_transform_job *job, int64_t n,
                        const char *name, sw_err *err)
{
    sw_team *team = job->options->team;
    sw_code rc = SW_OK;

    if (sw_team_rank(team) == 0)
        rc = job->sink->get_changed(job->sink->self, is_changed, values, n, name, err);
    if (rc == SW_OK) rc = sw_team_broadcast(team, 0, is_changed, sizeof *is_changed, err);
    return rc == SW_OK && *is_changed
               ? sw_team_broadcast(team, 0, values, (size_t)n * sizeof *values, err)
               : rc;
}

/* The sink's values of a tensor that was changed, in the quantized block's arena; else NULL. */
static sw_code get_changed(float **out, const fold_job *f, sw_slot slot, int64_t expert,
                           const char *leaf, int64_t n, sw_err *err)
{
    const sw_transform_job *job = f->job;
    bool is_changed = false;
    float *values = NULL;
    char name[300];
    sw_dtype dtype;
    sw_code rc;

    *out = NULL;
    if ((rc = tensor_dtype(&dtype, job, slot, expert, leaf, name, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&values, &job->quantized->arena, n, err)) != SW_OK)
        return rc;
    rc = ask_sink(&is_changed, values, job, n, name, err);
    if (rc == SW_OK && is_changed) *out = values;
    return rc;
}

static sw_code restore_linear(const fold_job *f, sw_slot slot, int64_t expert, sw_err *err)
{
    sw_weight *w = sw_block_weight(f->job->quantized, slot, expert);
    float *values = NULL;
    sw_code rc = SW_OK;

    if (!is_selected(f->job, slot, expert))
        rc = get_changed(&values, f, slot, expert, "weight", w->n_out * w->k_in, err);
    if (rc == SW_OK && values) {
        w->dense = values;
        w->dense_dtype = SW_DTYPE_F32;
    }
    if (rc != SW_OK || !w->bias) return rc;
    rc = get_changed(&values, f, slot, expert, "bias", w->n_out, err);
    if (rc == SW_OK && values) w->bias = values;
    return rc;
}

static sw_code restore_fold(const fold_job *f, sw_err *err)
{
    const sw_fold *fold = f->fold;
    sw_linear_ref *readers = NULL;
    int64_t n = 0, one, k;
    float *norm = NULL, *bias = NULL;
    sw_code rc = list_readers(&readers, &n, f->job, fold, f->expert, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = restore_linear(f, readers[i].slot, readers[i].expert, err);
    sw_mem_put(readers);
    if (rc != SW_OK) return rc;
    if (fold->kind == SW_FOLD_ROWS) return restore_linear(f, fold->producer, f->expert, err);
    sw_model_slot_shape(f->job->model, f->job->original->layer, fold->producer, &one, &k);
    rc = get_changed(&norm, f, fold->producer, -1, "weight", k, err);
    if (rc != SW_OK || !norm) return rc;
    for (int64_t j = 0; j < k; j++) norm[j] += (float)f->job->model->norm_offset;
    f->job->quantized->norm[fold->producer] = norm;
    if (!f->job->quantized->norm_bias[fold->producer]) return SW_OK;
    rc = get_changed(&bias, f, fold->producer, -1, "bias", k, err);
    if (rc == SW_OK && bias) f->job->quantized->norm_bias[fold->producer] = bias;
    return rc;
}

sw_code sw_fold_restore(const sw_transform_job *job, sw_err *err)
{
    sw_fold folds[SW_FOLDS_MAX];
    int n = sw_model_folds(folds, job->model, job->original->layer);
    sw_code rc = SW_OK;

    for (int i = 0; i < n && rc == SW_OK; i++)
        for (int64_t e = 0; e < (folds[i].is_per_expert ? job->model->n_experts : 1); e++) {
            fold_job f = {.job = job, .fold = &folds[i],
                          .expert = folds[i].is_per_expert ? e : -1};
            if ((rc = restore_fold(&f, err)) != SW_OK) break;
        }
    return rc;
}
