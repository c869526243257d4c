/* fold_rows.c - see fold_rows.h. */
#include "verify/metrics/fold_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "verify/metrics/linear_rows.h"

#define FACTOR_MAX 0x1p15 /* beyond it a weight was not rescaled but broken */
/* 2 sum(a b) / sum(a^2 + b^2) of the logarithms a, b of both measurements: 1 for a fold, 0 for
 * noise or a side that was scaled alone. At 2 bits, where GPTQ shrinks both sides, folds measure
 * 0.6 at least. */
#define AGREEMENT_MIN 0.5
/* What speaks for the factors against none, in units of noise squared: see rescale.c. */
#define EVIDENCE_MIN 25.0
#define NOISE_MIN 1e-12 /* consumers in floats have hardly any */
/* Measurements of one channel may differ by this, and by so many robust deviations of all. */
#define CHANNEL_SLACK 0.05
#define CHANNEL_SIGMAS 6.0
#define SIGMA_OF_MEDIAN 1.4826 /* deviation over median magnitude, of a normal distribution */
/* Factors all of which are this close to powers of two, in octaves, and not all to 1, are powers of
 * two: what stays in floats takes part, a bias for one, and would not be exact otherwise. */
#define POW2_SLACK 0.1

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n ? values[n / 2] : 0;
}

/* The median of log(rows / columns), and the deviation about it. */
static void spread(double *centre, double *sigma, const double *rows, const double *columns,
                   int64_t n, double *scratch)
{
    int64_t n_both = 0;

    for (int64_t i = 0; i < n; i++)
        if (rows[i] > 0 && columns[i] > 0) scratch[n_both++] = log(rows[i] / columns[i]);
    *centre = median(scratch, n_both);
    for (int64_t i = 0; i < n_both; i++) scratch[i] = fabs(scratch[i] - *centre);
    *sigma = SIGMA_OF_MEDIAN * median(scratch, n_both);
}

static bool is_fold(const double *rows, const double *columns, const double *noise, int64_t n)
{
    double both = 0, each = 0, evidence = 0;

    for (int64_t i = 0; i < n; i++) {
        double a = rows[i], b = columns[i];

        if (!(a > 0) || !(b > 0)) continue;
        both += log(a) * log(b);
        each += (log(a) * log(a) + log(b) * log(b)) / 2;
        evidence += ((b - 1) * (b - 1) - (b - a) * (b - a)) / fmax(noise[i], NOISE_MIN);
    }
    return each > 0 && both >= AGREEMENT_MIN * each && evidence >= EVIDENCE_MIN;
}

static void snap_to_powers(double *rows, int64_t n)
{
    bool are_all_one = true;

    for (int64_t i = 0; i < n; i++) {
        if (fabs(log2(rows[i]) - round(log2(rows[i]))) > POW2_SLACK) return;
        are_all_one = are_all_one && fabs(log2(rows[i])) < 0.5;
    }
    for (int64_t i = 0; i < n && !are_all_one; i++) rows[i] = exp2(round(log2(rows[i])));
}

bool sw_fold_rows_agree(double *rows, const double *columns, const double *noise, int64_t n,
                        bool is_exact, double *scratch)
{
    double centre, sigma;

    if (!is_fold(rows, columns, noise, n)) return false;
    spread(&centre, &sigma, rows, columns, n, scratch);
    for (int64_t i = 0; i < n; i++) {
        const bool has_row = rows[i] > 0, has_column = columns[i] > 0;

        if (!has_row && !has_column) {
            rows[i] = 1;
            continue;
        }
        if (!has_column) continue;
        /* Where the sides disagree one of them is broken. The consumer's word is taken, since
         * the producer's row is then held against it by the finer limits of a row. */
        if (is_exact) rows[i] = columns[i];
        else if (!has_row || fabs(log(rows[i] / columns[i]) - centre) >
                                 CHANNEL_SLACK + CHANNEL_SIGMAS * sigma)
            rows[i] = columns[i] * exp(centre);
    }
    snap_to_powers(rows, n);
    return true;
}

/* Sums over what makes or reads one row's channels. */
typedef struct channel_sums {
    double dot, have2, want2, n;
} channel_sums;

static double bounded(double factor)
{
    return factor >= 1 / FACTOR_MAX && factor <= FACTOR_MAX ? factor : 0;
}

/* Both sides of one linear. *is_there: both have it, and it decodes; else nothing is open. */
static sw_code open_both(bool *is_there, sw_linear_rows *have, sw_linear_rows *want,
                         const sw_subject_linear *l, const sw_rescale *so_far,
                         const sw_subject *checkpoint, const sw_subject *original, sw_err *err)
{
    sw_err why = {0};
    sw_code rc;

    *is_there = false;
    if (!sw_original_holds(checkpoint, l) || !sw_original_holds(original, l)) return SW_OK;
    rc = sw_linear_rows_open(have, checkpoint, l, &why);
    if (rc == SW_OK && (rc = sw_linear_rows_open(want, original, l, &why)) != SW_OK)
        sw_linear_rows_free(have);
    if (rc == SW_E_NOMEM) return SW_FAIL(err, rc, "%s", why.text);
    if (rc != SW_OK) return SW_OK;
    want->columns = sw_rescale_columns(so_far, &l->ref);
    want->rows = sw_rescale_rows(so_far, &l->ref);
    *is_there = true;
    return SW_OK;
}

static void add_columns(channel_sums *sums, const sw_fold *fold, const sw_column_sums *columns)
{
    for (int64_t j = 0; j < columns->k_in; j++) {
        channel_sums *s = &sums[sw_fold_row(fold, j)];

        s->dot += columns->dot[j];
        s->have2 += columns->have2[j];
        s->want2 += columns->want2[j];
        s->n += (double)columns->n_out;
    }
}

typedef struct finder {
    sw_fold_rows *out;
    const sw_rescale *so_far;
    const sw_subject *checkpoint, *original;
    channel_sums *sums; /* [n_rows], of the consumers */
    double *columns, *noise, *scratch; /* [n_rows] */
    bool is_exact;      /* no consumer is quantized */
} finder;

static sw_code measure_rows(finder *f, const sw_subject_linear *l, int64_t k)
{
    double *rows = f->out->scale;
    sw_linear_rows have, want;
    float *both = NULL;
    bool is_there;
    sw_code rc = open_both(&is_there, &have, &want, l, f->so_far, f->checkpoint, f->original,
                           &f->out->err);

    if (rc != SW_OK || !is_there) return rc;
    rc = SW_MEM_GET(&both, 2 * l->ref.k_in, "rows", &f->out->err);
    for (int64_t j = 0; rc == SW_OK && j < k; j++) {
        int64_t i = sw_fold_row(f->out->fold, j);
        sw_vec_sums sums = {0};

        if (rows[i] > 0) continue; /* heads that share it came here before */
        sw_linear_rows_get(both, &have, i, 0, l->ref.k_in);
        sw_linear_rows_get(both + l->ref.k_in, &want, i, 0, l->ref.k_in);
        sw_vec_add(&sums, both, both + l->ref.k_in, l->ref.k_in);
        rows[i] = sums.dot > 0 ? bounded(sums.want2 / sums.dot) : 0;
    }
    sw_mem_put(both);
    sw_linear_rows_free(&have);
    sw_linear_rows_free(&want);
    return rc;
}

static sw_code measure_consumer(finder *f, const sw_subject_linear *l)
{
    sw_linear_rows have, want;
    sw_column_sums sums = {0};
    bool is_there;
    sw_code rc = open_both(&is_there, &have, &want, l, f->so_far, f->checkpoint, f->original,
                           &f->out->err);

    if (rc != SW_OK || !is_there) return rc;
    if ((rc = sw_column_sums_new(&sums, &have, &want, &f->out->err)) == SW_OK) {
        add_columns(f->sums, f->out->fold, &sums);
        f->is_exact = f->is_exact && !sw_original_is_quantized(f->checkpoint, l->path);
    }
    sw_column_sums_free(&sums);
    sw_linear_rows_free(&have);
    sw_linear_rows_free(&want);
    return rc;
}

static sw_code measure_columns(finder *f, int64_t k)
{
    const sw_fold_rows *o = f->out;
    sw_code rc = SW_OK;

    f->is_exact = true;
    for (int64_t at = 0; at < f->so_far->n_linears && rc == SW_OK; at++) {
        const sw_subject_linear *l = &f->so_far->linears[at];

        if (l->ref.layer == o->layer && l->ref.site == o->fold->site && l->ref.k_in == k &&
            (o->expert < 0 || l->ref.expert == o->expert))
            rc = measure_consumer(f, l);
    }
    for (int64_t i = 0; i < o->n_rows; i++) {
        const channel_sums *s = &f->sums[i];
        double multiple = s->want2 > 0 ? s->dot / s->want2 : 0;

        f->columns[i] = bounded(multiple);
        if (s->want2 > 0) f->noise[i] = fmax(s->have2 - multiple * s->dot, 0) / s->want2 / s->n;
    }
    return rc;
}

/* Rows that no fold touches count as nothing. */
static sw_code find(finder *f)
{
    sw_fold_rows *o = f->out;
    const sw_model *m = &f->original->model;
    const int64_t k = sw_model_site_width(m, o->layer, o->fold->site);
    sw_linear_ref ref = {.layer = o->layer, .slot = o->fold->producer, .expert = o->expert,
                         .site = o->fold->producer_site};
    char path[256];
    sw_code rc;

    if (!sw_model_slot_path(path, m, o->layer, ref.slot, o->expert)) return SW_OK;
    sw_model_slot_shape(m, o->layer, ref.slot, &ref.n_out, &ref.k_in);
    o->n_rows = ref.n_out;
    if ((rc = SW_MEM_GET(&o->scale, o->n_rows, "factors", &o->err)) != SW_OK ||
        (rc = SW_MEM_GET(&f->sums, o->n_rows, "sums of inputs", &o->err)) != SW_OK ||
        (rc = SW_MEM_GET(&f->columns, o->n_rows, "factors", &o->err)) != SW_OK ||
        (rc = SW_MEM_GET(&f->noise, o->n_rows, "noise", &o->err)) != SW_OK ||
        (rc = SW_MEM_GET(&f->scratch, o->n_rows, "differences", &o->err)) != SW_OK ||
        (rc = measure_rows(f, &(sw_subject_linear){ref, path}, k)) != SW_OK ||
        (rc = measure_columns(f, k)) != SW_OK)
        return rc;
    if (sw_fold_rows_agree(o->scale, f->columns, f->noise, o->n_rows, f->is_exact, f->scratch))
        return SW_OK;
    sw_mem_put(o->scale);
    o->scale = NULL;
    return SW_OK;
}

void sw_fold_rows_find(sw_fold_rows *out, const sw_rescale *so_far, const sw_subject *checkpoint,
                       const sw_subject *original)
{
    finder f = {.out = out, .so_far = so_far, .checkpoint = checkpoint, .original = original};
    sw_code rc = find(&f);

    if (rc != SW_OK) {
        sw_mem_put(out->scale);
        out->scale = NULL;
    }
    sw_mem_put(f.sums);
    sw_mem_put(f.columns);
    sw_mem_put(f.noise);
    sw_mem_put(f.scratch);
}
