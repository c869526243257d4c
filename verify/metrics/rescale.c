/* rescale.c - see rescale.h. */
#include "verify/metrics/rescale.h"

#include <math.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/num.h"
#include "verify/decoders/decode_spec_parts.h"
#include "verify/metrics/fold_rows.h"

#define FACTOR_MAX 0x1p15 /* a norm changed by more was not rescaled but broken */
/* Folds change most channels of a norm: of factors below 1 % that rounding to BF16 leaves, 42 %
 * were seen. Fewer than this share, one of them by less than
 * readers show, are no fold: the norm differs, and coverage says so. */
#define FOLDED_SHARE 0.25
#define VISIBLE_FACTOR 1.05
/* A column's multiple may be off by what half a step in every weight explains, by more than as much
 * again because solvers shift error from column to column (gptq at 3 bits, random factors: 1.4
 * steps were seen), and by the noise about it. */
#define COLUMN_SLACK 0.05
#define COLUMN_STEPS 1.6
#define COLUMN_SIGMAS 6.0
/* Evidence at which readers are sure to have been multiplied. Of readers that were not, the sum is
 * about -d with a deviation of 2 sqrt(d), d the squared factors in units of noise: to exceed 25
 * takes five deviations whatever d is. */
#define EVIDENCE_MIN 25.0
/* GPTQ shrinks loud channels by less than others, which is against the factors, and at 3 bits and
 * fewer by as much as small factors are: readers that far off (by a third at 3 bits, a tenth at 4)
 * cannot tell. Where the factors are below what they shrank by, the norm may have changed by this
 * share of their own error, in squares: it is lost among rounding's. Sound folds measured 0.005. */
#define UNTOLD_ERR 0.2
#define UNTOLD_SHARE 0.01
/* Layers whose linears are looked at side by side, for each thread: most have two folds, a large
 * and a small one. What was read of files is forgotten after them. */
#define LAYERS_PER_THREAD 1
#define COLUMN_NOISE_MIN 1e-12 /* readers in floats have hardly any */

typedef struct builder {
    sw_rescale *out;
    sw_report *report;
    const sw_subject *checkpoint, *original;
    sw_fold_rows *rows; /* those of one layer that are looked at */
    int n_threads;
    sw_err *err;
} builder;

/* A stored float tensor as values, freed by sw_mem_put; NULL where it is not what is wanted. */
static sw_code load(float **out, const sw_st *st, const char *path, const char *leaf, int64_t n,
                    sw_err *err)
{
    const sw_st_tensor *t = sw_spec_find(st, path, leaf);
    sw_st_bytes bytes = {0};
    float *values = NULL;
    sw_code rc;

    *out = NULL;
    if (!t || (int64_t)t->view.size_bytes * 8 != n * sw_dtype_bits(t->view.dtype)) return SW_OK;
    if ((rc = SW_MEM_GET(&values, n, "float tensor", err)) != SW_OK) return rc;
    if ((rc = sw_st_fetch(&bytes, t, err)) == SW_OK &&
        sw_float_decode_n(values, bytes.data, t->view.dtype, n, NULL) == SW_OK) {
        *out = values;
        values = NULL;
    }
    sw_mem_put(values);
    sw_st_drop(&bytes);
    return rc;
}

/* Of a norm, scale [n_rows] is what its channels were divided by; of a linear, its rows. */
static sw_code add_group(builder *b, const sw_fold *fold, int64_t layer, int64_t expert,
                         const double *scale, int64_t n_rows)
{
    bool is_norm = fold->kind == SW_FOLD_NORM, is_one = true;
    int64_t k = is_norm ? n_rows : sw_model_site_width(&b->original->model, layer, fold->site);
    double *columns, *rows;
    sw_code rc;

    for (int64_t j = 0; j < n_rows; j++) is_one = is_one && scale[j] == 1.0;
    if (is_one) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&columns, &b->out->arena, k, b->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&rows, &b->out->arena, n_rows, b->err)) != SW_OK)
        return rc;
    memcpy(rows, scale, (size_t)n_rows * sizeof *rows);
    for (int64_t j = 0; j < k; j++) columns[j] = scale[is_norm ? j : sw_fold_row(fold, j)];
    b->out->groups[b->out->n_groups++] =
        (sw_rescale_group){*fold, layer, expert, k, columns, rows, n_rows, {0, 0, 0, 0}};
    return SW_OK;
}

static bool is_fold(const double *scale, int64_t k)
{
    int64_t n_changed = 0;
    bool is_visible = true;

    for (int64_t j = 0; j < k; j++) {
        if (scale[j] == 1.0) continue;
        n_changed++;
        is_visible = is_visible && fmax(scale[j], 1 / scale[j]) >= VISIBLE_FACTOR;
    }
    return is_visible || (double)n_changed >= FOLDED_SHARE * (double)k;
}

static sw_code add_norm(builder *b, const sw_fold *fold, int64_t layer, const char *path)
{
    const double offset = b->original->model.norm_offset; /* stored less this */
    int64_t one, k;
    float *have = NULL, *want = NULL;
    double *scale = NULL;
    sw_code rc;

    sw_model_slot_shape(&b->original->model, layer, fold->producer, &one, &k);
    if ((rc = load(&have, b->checkpoint->st, path, "weight", k, b->err)) != SW_OK ||
        (rc = load(&want, b->original->st, path, "weight", k, b->err)) != SW_OK ||
        (rc = SW_MEM_GET(&scale, k, "factors", b->err)) != SW_OK)
        goto done;
    if (!have || !want) goto done; /* the coverage check says what is wrong */
    for (int64_t j = 0; j < k; j++) {
        double h = offset + (double)have[j], w = offset + (double)want[j];

        scale[j] = have[j] == want[j] ? 1.0 : w / h;
        if (scale[j] >= 1 / FACTOR_MAX && scale[j] <= FACTOR_MAX) continue;
        rc = sw_report_find(b->report, "rescaled", path, b->err, "%s: channel %lld is %g, in the "
                            "original %g: no factor that its readers could make good", path,
                            (long long)j, (double)have[j], (double)want[j]);
        goto done;
    }
    if (is_fold(scale, k)) rc = add_group(b, fold, layer, -1, scale, k);
done:
    sw_mem_put(have);
    sw_mem_put(want);
    sw_mem_put(scale);
    return rc;
}

/* Does the manifest say that anything was rescaled, or one before it? */
static bool is_listed(const cJSON *manifest)
{
    const cJSON *row;

    for (; manifest; manifest = sw_json_member(manifest, "origin"))
        cJSON_ArrayForEach(row, sw_json_member(manifest, "transforms"))
            if (cJSON_IsString(sw_json_member(row, "folded_into")) &&
                cJSON_IsTrue(sw_json_member(row, "accepted")))
                return true;
    return false;
}

/* The folds of one kind, expert by expert; returns how many. */
static int64_t list_folds(sw_fold_rows *out, const sw_model *m, const sw_fold *folds, int n_folds,
                          sw_fold_kind kind, int64_t layer)
{
    int64_t n = 0;

    for (int i = 0; i < n_folds; i++) {
        int64_t n_experts = folds[i].is_per_expert ? m->n_experts : 1;

        for (int64_t e = 0; e < n_experts && folds[i].kind == kind; e++)
            out[n++] = (sw_fold_rows){.fold = &folds[i], .layer = layer,
                                      .expert = folds[i].is_per_expert ? e : -1};
    }
    return n;
}

static sw_code add_norms(builder *b, const sw_fold_rows *folds, int64_t n)
{
    sw_code rc = SW_OK;
    char path[256];

    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (sw_model_slot_path(path, &b->original->model, folds[i].layer, folds[i].fold->producer,
                               folds[i].expert))
            rc = add_norm(b, folds[i].fold, folds[i].layer, path);
    return rc;
}

static void find_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    builder *b = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        sw_fold_rows_find(&b->rows[i], b->out, b->checkpoint, b->original);
}

static sw_code add_rows(builder *b, sw_fold_rows *folds, int64_t n)
{
    sw_code rc = SW_OK;

    b->rows = folds;
    sw_parallel_for(b->n_threads, n, 1, find_some, b);
    for (int64_t i = 0; i < n; i++) {
        const sw_fold_rows *f = &folds[i];

        if (rc == SW_OK && f->err.code != SW_OK) {
            *b->err = f->err;
            rc = f->err.code;
        }
        if (rc == SW_OK && f->scale)
            rc = add_group(b, f->fold, f->layer, f->expert, f->scale, f->n_rows);
        sw_mem_put(f->scale);
    }
    return rc;
}

typedef struct layer_folds {
    sw_fold folds[SW_FOLDS_MAX];
    int n;
} layer_folds;

/* Norms first: what a linear's rows were divided by shows once its columns are known. */
static sw_code add_layers(builder *b, int64_t first, int64_t n_layers)
{
    const sw_model *m = &b->original->model;
    sw_fold_rows *list = NULL;
    layer_folds *layers = NULL;
    int64_t n = 0;
    sw_code rc;

    if ((rc = SW_MEM_GET(&layers, n_layers, "folds", b->err)) != SW_OK ||
        (rc = SW_MEM_GET(&list, n_layers * SW_FOLDS_MAX * (1 + m->n_experts), "folds",
                         b->err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < n_layers && rc == SW_OK; i++) {
        layer_folds *l = &layers[i];

        l->n = sw_model_folds(l->folds, m, first + i);
        rc = add_norms(b, list, list_folds(list, m, l->folds, l->n, SW_FOLD_NORM, first + i));
    }
    for (int64_t i = 0; i < n_layers && rc == SW_OK; i++)
        n += list_folds(list + n, m, layers[i].folds, layers[i].n, SW_FOLD_ROWS, first + i);
    if (rc == SW_OK) rc = add_rows(b, list, n);
    sw_st_forget(b->checkpoint->st);
    sw_st_forget(b->original->st);
done:
    sw_mem_put(layers);
    sw_mem_put(list);
    return rc;
}

sw_code sw_rescale_new(sw_rescale *out, sw_report *report, const sw_subject *checkpoint,
                       const sw_subject *original, int n_threads, sw_err *err)
{
    const sw_model *m = &original->model;
    sw_rescale r = {0};
    builder b = {.out = &r, .report = report, .checkpoint = checkpoint, .original = original,
                 .n_threads = n_threads, .err = err};
    const int64_t step = (int64_t)n_threads * LAYERS_PER_THREAD;
    cJSON *manifest = NULL;
    sw_code rc;

    if ((rc = sw_verify_manifest(&manifest, checkpoint, err)) != SW_OK) return rc;
    r.is_claimed = is_listed(manifest);
    rc = SW_ARENA_TAKE(&r.groups, &r.arena, m->n_layers * (SW_FOLDS_MAX + m->n_experts), err);
    if (rc == SW_OK) rc = sw_subject_linears(&r.linears, &r.n_linears, m, &r.arena, err);
    for (int64_t l = 0; l < m->n_layers && rc == SW_OK; l += step)
        rc = add_layers(&b, l, sw_min_i64(step, m->n_layers - l));
    cJSON_Delete(manifest);
    if (rc == SW_OK)
        *out = r;
    else
        sw_rescale_free(&r);
    return rc;
}

void sw_rescale_free(sw_rescale *rescale)
{
    sw_arena_free(&rescale->arena);
    memset(rescale, 0, sizeof *rescale);
}

static const sw_rescale_group *group_before(const sw_rescale *rescale, const sw_linear_ref *ref)
{
    for (int64_t i = 0; i < rescale->n_groups; i++) {
        const sw_rescale_group *g = &rescale->groups[i];
        if (g->layer == ref->layer && g->fold.site == ref->site && g->k == ref->k_in &&
            (g->expert < 0 || g->expert == ref->expert))
            return g;
    }
    return NULL;
}

const double *sw_rescale_columns(const sw_rescale *rescale, const sw_linear_ref *ref)
{
    const sw_rescale_group *g = group_before(rescale, ref);

    return g ? g->scale : NULL;
}

bool sw_rescale_producer(char path[256], const sw_rescale *rescale, const sw_model *model,
                         const sw_linear_ref *ref)
{
    const sw_rescale_group *g = group_before(rescale, ref);

    return g && sw_model_slot_path(path, model, g->layer, g->fold.producer, g->expert);
}

const double *sw_rescale_rows(const sw_rescale *rescale, const sw_linear_ref *ref)
{
    for (int64_t i = 0; i < rescale->n_groups; i++) {
        const sw_rescale_group *g = &rescale->groups[i];
        if (g->fold.kind == SW_FOLD_ROWS && g->layer == ref->layer &&
            g->fold.producer == ref->slot && g->expert == ref->expert && g->n_rows == ref->n_out)
            return g->rows;
    }
    return NULL;
}

void sw_rescale_back(float *w, const double *columns, const double *rows, int64_t n, int64_t k_in)
{
    const double row = rows ? rows[n] : 1;

    for (int64_t j = 0; (columns || rows) && j < k_in; j++)
        w[j] = (float)((double)w[j] / (columns ? columns[j] : 1) * row);
}

sw_rescale_column sw_rescale_worst_column(const sw_column_sums *sums)
{
    sw_rescale_column worst = {0, 1, (double)INFINITY};
    double most = 0;

    for (int64_t j = 0; j < sums->k_in; j++) {
        const double want2 = sums->want2[j];
        double multiple, left, limit;

        if (!(want2 > 0)) continue;
        multiple = sums->dot[j] / want2;
        /* squared error about the best multiple */
        left = fmax(sums->have2[j] - multiple * sums->dot[j], 0) / want2;
        limit = COLUMN_SLACK + COLUMN_STEPS * sums->steps[j] / want2 +
                COLUMN_SIGMAS * sqrt(left / (double)sums->n_out);
        if (!(fabs(multiple - 1) / limit > most)) continue;
        most = fabs(multiple - 1) / limit;
        worst = (sw_rescale_column){j, multiple, limit};
    }
    return worst;
}

/* One column: its best multiple of the original, and the variance that errors about it leave. */
typedef struct column_fit {
    double multiple, noise;
} column_fit;

/* What of a column's square its multiple leaves; adds to the reader's error. */
static double fit_column(column_fit *fit, sw_rescale_says *says, const sw_column_sums *sums,
                         int64_t j)
{
    const double dot = sums->dot[j], want2 = sums->want2[j], have2 = sums->have2[j];
    double left;

    says->err2 += fmax(have2 - 2 * dot + want2, 0);
    says->want2 += want2;
    *fit = (column_fit){0, 0};
    if (!(want2 > 0)) return 0;
    fit->multiple = dot / want2;
    left = fmax(have2 - fit->multiple * dot, 0);
    fit->noise = left / want2 / (double)sums->n_out;
    return left;
}

/* Of multiples times the factors, or without: the mean, and the variance about it. */
static void spread(double *mean, double *variance, const column_fit *fits, const double *scale,
                   int64_t k, bool with_factors)
{
    double sum = 0, sum2 = 0, n = 0;

    for (int64_t j = 0; j < k; j++) {
        const double m = fits[j].multiple * (with_factors ? scale[j] : 1);

        if (scale[j] == 1.0 || !(fits[j].multiple != 0)) continue;
        sum += m;
        sum2 += m * m;
        n += 1;
    }
    *mean = n > 0 ? sum / n : 1;
    *variance = n > 1 ? fmax(sum2 - sum * sum / n, 0) / (n - 1) : 0;
}

sw_code sw_rescale_ask(sw_rescale_says *says, const sw_column_sums *sums, const double *scale,
                       sw_err *err)
{
    const int64_t k_in = sums->k_in;
    double left = 0, before = says->want2, shrunk, mean, bare_mean, noise, bare_noise;
    double shift;
    column_fit *fits;
    sw_code rc = SW_MEM_GET(&fits, k_in, "multiples of columns", err);

    if (rc != SW_OK) return rc;
    for (int64_t j = 0; j < k_in; j++)
        left += fit_column(&fits[j], says, sums, j);
    /* GPTQ shrinks a weight by the share of it that is error, half of it as measured */
    shrunk = left > 0 ? left / (says->want2 - before) : 0;
    spread(&mean, &noise, fits, scale, k_in, false);
    spread(&bare_mean, &bare_noise, fits, scale, k_in, true);
    shift = fmin(fabs(mean - 1), fabs(bare_mean - 1));
    says->shrunk2 += shift * shift * (says->want2 - before);
    mean = fmin(fmax(mean, 1 - shrunk), 1 + shrunk);
    bare_mean = fmin(fmax(bare_mean, 1 - shrunk), 1 + shrunk);
    for (int64_t j = 0; j < k_in; j++) {
        const double m = fits[j].multiple, with = m - mean, without = m - bare_mean / scale[j];

        if (scale[j] == 1.0 || !(m != 0)) continue;
        says->evidence += (without * without - with * with) /
                          fmax(fmax(fits[j].noise, fmin(noise, bare_noise)), COLUMN_NOISE_MIN);
    }
    sw_mem_put(fits);
    return SW_OK;
}

void sw_rescale_add(sw_rescale_says *to, const sw_rescale_says *says)
{
    to->evidence += says->evidence;
    to->err2 += says->err2;
    to->want2 += says->want2;
    to->shrunk2 += says->shrunk2;
}

sw_rescale_group *sw_rescale_norm_before(const sw_rescale *rescale, const sw_linear_ref *ref)
{
    for (int64_t i = 0; i < rescale->n_groups; i++) {
        sw_rescale_group *g = &rescale->groups[i];
        if (g->fold.kind == SW_FOLD_NORM && g->layer == ref->layer && g->fold.site == ref->site &&
            g->k == ref->k_in)
            return g;
    }
    return NULL;
}

/* Every value just the original's times (or over) its factor: powers of two lose nothing. */
static bool is_multiple(const sw_cview *have, const sw_cview *want, const double *columns,
                        const double *rows, int64_t k)
{
    int64_t n = (int64_t)(want->size_bytes * 8) / sw_dtype_bits(want->dtype);
    int64_t bytes = sw_dtype_bits(want->dtype) / 8;

    for (int64_t at = 0; at < n; at++) {
        float h, w;
        if (sw_float_decode_n(&h, (const char *)have->data + at * bytes, have->dtype, 1, NULL) ||
            sw_float_decode_n(&w, (const char *)want->data + at * bytes, want->dtype, 1, NULL))
            return false;
        if ((double)h != (double)w * (columns ? columns[at % k] : 1) / (rows ? rows[at / k] : 1))
            return false;
    }
    return true;
}

static bool explains_linear(const sw_rescale *r, const sw_linear_ref *ref, const char *path,
                            const char *name, const sw_cview *have, const sw_cview *want)
{
    const double *columns = sw_rescale_columns(r, ref), *rows = sw_rescale_rows(r, ref);
    size_t n = strlen(path);

    if (strncmp(name, path, n) != 0 || name[n] != '.') return false;
    if (!strcmp(name + n, ".bias")) return rows && is_multiple(have, want, NULL, rows, 1);
    return (columns || rows) && is_multiple(have, want, columns, rows, ref->k_in);
}

bool sw_rescale_is_made_good(const sw_rescale_says *says, const double *scale, int64_t k)
{
    double change2 = 0;

    if (says->evidence >= EVIDENCE_MIN) return true;
    for (int64_t j = 0; j < k; j++) change2 += (1 / scale[j] - 1) * (1 / scale[j] - 1);
    change2 *= says->want2 / (double)k;
    return says->err2 >= UNTOLD_ERR * UNTOLD_ERR * says->want2 &&
           change2 <= says->shrunk2 && change2 <= UNTOLD_SHARE * says->err2;
}

static bool explains_norm(const sw_rescale_group *g, const sw_model *m, const char *name,
                          const sw_cview *have, const sw_cview *want)
{
    char path[256];
    size_t n;

    if (!sw_model_slot_path(path, m, g->layer, g->fold.producer, -1)) return false;
    n = strlen(path);
    if (strncmp(name, path, n) != 0 || name[n] != '.') return false;
    return !strcmp(name + n, ".weight") ||
           (!strcmp(name + n, ".bias") && is_multiple(have, want, NULL, g->scale, 1));
}

static bool explains_router(const sw_rescale *r, const sw_rescale_group *g, const sw_model *m,
                            const char *name, const sw_cview *have, const sw_cview *want)
{
    sw_linear_ref ref = {g->layer, SW_SLOT_ROUTER, -1, SW_SITE_MLP_IN, 0, 0};
    char path[256];

    if (!sw_model_is_sparse(m, g->layer) || !sw_model_slot_path(path, m, g->layer, ref.slot, -1))
        return false;
    sw_model_slot_shape(m, g->layer, ref.slot, &ref.n_out, &ref.k_in);
    return explains_linear(r, &ref, path, name, have, want);
}

bool sw_rescale_explains(const sw_rescale *rescale, const sw_subject *checkpoint, const char *name,
                         const sw_cview *have, const sw_cview *want)
{
    const sw_model *m = &checkpoint->model;

    if (have->dtype != want->dtype || have->size_bytes != want->size_bytes) return false;
    for (int64_t i = 0; i < rescale->n_groups; i++) {
        const sw_rescale_group *g = &rescale->groups[i];

        if (g->fold.kind == SW_FOLD_NORM && explains_norm(g, m, name, have, want) &&
            sw_rescale_is_made_good(&g->says, g->rows, g->n_rows))
            return true;
        if (explains_router(rescale, g, m, name, have, want)) return true;
    }
    for (int64_t i = 0; rescale->n_groups && i < rescale->n_linears; i++) {
        const sw_subject_linear *l = &rescale->linears[i];
        if (explains_linear(rescale, &l->ref, l->path, name, have, want)) return true;
    }
    return false;
}
