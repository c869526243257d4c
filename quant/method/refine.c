/* refine.c - see refine.h. */
#include "quant/method/refine.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/size.h"
#include "quant/method/grid.h"

#define ROWS SW_SLAB_ROWS
#define BLOCK_COLS 128
#define FORM_COLS 64
#define SWEEPS_PER_ROUND 2
#define SCALE_STEP_MIN 0.6 /* a re-fitted scale beyond these is an ill-posed system speaking */
#define SCALE_STEP_MAX 1.6
#define SCALE_RIDGE 1e-7
#define FLOAT_GROUPS_MAX 256

typedef struct refine_work {
    double *error;    /* [k] V - T */
    double *slope;    /* [k] H (V - T) */
    double *step;     /* [BLOCK_COLS] change of V inside a block */
    double *t;        /* [k] H restricted to a group times its codes */
    double *system;   /* [n_groups * n_groups][ROWS] */
    double *rhs;      /* [n_groups][ROWS] */
    double *row;      /* [n_groups * n_groups + n_groups] one row's system */
    double *old_codes, *old_scales;
    void *bytes;
} refine_work;

/* g: groups whose scales are solved for, 0 for none; n_groups: all of them. */
static sw_code work_new(refine_work *out, int64_t k, int64_t g, int64_t n_groups, sw_err *err)
{
    refine_work w;
    double *at;
    sw_code rc =
        SW_MEM_GET(&at, (4 * k + BLOCK_COLS + g * g + g + n_groups) * ROWS + g * g + g,
                   "refinement", err);

    if (rc != SW_OK) return rc;
    w.bytes = at;
    w.error = at;
    w.slope = w.error + k * ROWS;
    w.t = w.slope + k * ROWS;
    w.old_codes = w.t + k * ROWS;
    w.step = w.old_codes + k * ROWS;
    w.system = w.step + BLOCK_COLS * ROWS;
    w.rhs = w.system + g * g * ROWS;
    w.old_scales = w.rhs + g * ROWS;
    w.row = w.old_scales + g * ROWS;
    *out = w;
    return SW_OK;
}

static SW_HOT void value_errors(double *error, const sw_slab *s)
{
    for (int64_t j = 0; j < s->k; j++) {
        const double *scale = s->scales + j / s->group_elems * ROWS;
        const double *zero = s->zeros + j / s->group_elems * ROWS;
        for (int r = 0; r < ROWS; r++)
            error[j * ROWS + r] =
                scale[r] * (s->codes[j * ROWS + r] - zero[r]) - s->target[j * ROWS + r];
    }
}

static void multiply_h(double *out, const sw_factor *f, const double *in)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)f->k_in, ROWS, (int)f->k_in, 1.0,
                f->h, (int)f->k_in, in, ROWS, 0.0, out, ROWS);
}

static SW_HOT void dot_rows(double *out, const double *a, const double *b, int64_t n)
{
    for (int r = 0; r < ROWS; r++) out[r] = 0.0;
    for (int64_t j = 0; j < n; j++)
        for (int r = 0; r < ROWS; r++) out[r] += a[j * ROWS + r] * b[j * ROWS + r];
}

void sw_row_forms(double *out, double *room, const double *h, int64_t stride, const double *v,
                  int64_t n)
{
    for (int64_t b = 0; b < n; b += FORM_COLS) {
        const int64_t n_b = sw_min_i64(FORM_COLS, n - b);
        double *product = room + b * ROWS;

        if (b > 0)
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n_b, ROWS, (int)b, 2.0,
                        h + b * stride, (int)stride, v, ROWS, 0.0, product, ROWS);
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n_b, ROWS, (int)n_b, 1.0,
                    h + b * stride + b, (int)stride, v + b * ROWS, ROWS, b > 0 ? 1.0 : 0.0,
                    product, ROWS);
    }
    dot_rows(out, v, room, n);
}

/* slope[c] += h[c] * step for the n columns of a block. */
static SW_HOT void add_scaled(double *slope, int64_t n, const double *h, const double *step)
{
    for (int64_t c = 0; c < n; c++)
        for (int r = 0; r < ROWS; r++) slope[c * ROWS + r] += h[c] * step[r];
}

/* Where each code of one column would go with all others fixed. */
static SW_HOT void wishes(double *wish, const double *code, const double *slope,
                          const double *scale, const double *zero, double curvature)
{
    for (int r = 0; r < ROWS; r++)
        wish[r] = code[r] - zero[r] - slope[r] / (curvature * scale[r]);
}

/* Is each row's scale moved among those that can be stored when its codes are? Not where rows share
 * them. */
static bool steps_scales(const sw_slab *s, const sw_qspec *spec)
{
    return sw_qspec_steps_scales(spec, s->k) && !(s->frame && s->frame->shared);
}

/* Beyond these bounds an ill-posed system speaks. */
static bool is_plausible(double wish, double old)
{
    const double along = old < 0 ? -wish : wish, size = fabs(old);

    return along > SCALE_STEP_MIN * size && along < SCALE_STEP_MAX * size;
}

/* slope, step [n][ROWS] += c [n] * by, rows apart. */
static SW_HOT void add_by_row(double *to, int64_t n, const double *c, const double *by)
{
    for (int64_t j = 0; j < n; j++)
        for (int r = 0; r < ROWS; r++) to[j * ROWS + r] += c[j * ROWS + r] * by[r];
}

/* Move each row's scale of the group that begins at column `from`, its codes fixed, to the nearest
 * to the best one; the steps of its columns become what that moves their values by. The slopes of
 * columns `reach`..end follow. Zeros are 0. */
static void step_scale(sw_slab *s, const sw_factor *f, refine_work *w, int64_t reach, int64_t end,
                       int64_t from, double *step, const sw_qspec *spec)
{
    const int64_t n = s->group_elems, k = s->k;
    const double *c = s->codes + from * ROWS;
    double *scale = s->scales + from / n * ROWS, *t = w->t, bend[ROWS], slope[ROWS], by[ROWS];

    memset(t, 0, (size_t)((end - reach) * ROWS) * sizeof *t);
    for (int64_t j = 0; j < n; j++)
        add_scaled(t, end - reach, f->h + (from + j) * k + reach, c + j * ROWS);
    dot_rows(bend, c, t + (from - reach) * ROWS, n);
    dot_rows(slope, c, w->slope + from * ROWS, n);
    for (int r = 0; r < ROWS; r++) {
        const double wish = scale[r] - slope[r] / bend[r];

        by[r] = 0;
        if (!(bend[r] > 0) || !is_plausible(wish, scale[r])) continue;
        by[r] = sw_grid_stored_scale(wish, spec) - scale[r];
        scale[r] += by[r];
    }
    add_by_row(w->slope + reach * ROWS, end - reach, t, by);
    add_by_row(step, n, c, by);
}

/* In the last sweep nobody asks for the slopes of columns that it has passed. */
static void descend_block(sw_slab *s, const sw_factor *f, refine_work *w, int64_t begin,
                          int64_t end, bool is_last, const sw_qspec *spec)
{
    const bool has_steps = steps_scales(s, spec);
    int64_t k = s->k;
    bool any = has_steps;

    memset(w->step, 0, (size_t)((end - begin) * ROWS) * sizeof *w->step);
    for (int64_t j = begin; j < end; j++) {
        int64_t g = j / s->group_elems;
        const double *scale = s->scales + g * ROWS, *zero = s->zeros + g * ROWS;
        double *code = s->codes + j * ROWS, *to = w->step + (j - begin) * ROWS;
        double wish[ROWS], step[ROWS];
        const int64_t reach = is_last ? j : begin;
        if (has_steps && j % s->group_elems == 0)
            step_scale(s, f, w, reach, end, j, to, spec);
        if (s->is_exact && s->is_exact[j]) continue;
        wishes(wish, code, w->slope + j * ROWS, scale, zero, f->h[j * k + j]);
        if (!sw_grid_step(code, step, wish, scale, zero, spec->num)) continue;
        any = true;
        add_scaled(w->slope + reach * ROWS, end - reach, f->h + j * k + reach, step);
        for (int r = 0; r < ROWS; r++) to[r] += step[r];
    }
    if (!any) return;
    if (begin > 0 && !is_last)
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)begin, ROWS, (int)(end - begin),
                    1.0, f->h + begin * k, (int)k, w->step, ROWS, 1.0, w->slope, ROWS);
    if (end < k)
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(k - end), ROWS,
                    (int)(end - begin), 1.0, f->h + begin * k + end, (int)k, w->step, ROWS, 1.0,
                    w->slope + end * ROWS, ROWS);
}

static void descend(sw_slab *s, const sw_factor *f, refine_work *w, const sw_qspec *spec)
{
    value_errors(w->error, s);
    multiply_h(w->slope, f, w->error);
    for (int sweep = 0; sweep < SWEEPS_PER_ROUND; sweep++)
        for (int64_t b = 0; b < s->k; b += BLOCK_COLS)
            descend_block(s, f, w, b, sw_min_i64(b + BLOCK_COLS, s->k),
                          sweep == SWEEPS_PER_ROUND - 1, spec);
}

/* System of all rows: A[g][h] = c_g H c_h, rhs[g] = c_g H t, with c = code - zero of a group. */
static void build_system(const sw_slab *s, const sw_factor *f, refine_work *w)
{
    int64_t k = s->k, gs = s->group_elems, n_g = s->n_groups;

    for (int64_t j = 0; j < k; j++) /* error becomes c for the time being */
        for (int r = 0; r < ROWS; r++)
            w->error[j * ROWS + r] = s->codes[j * ROWS + r] - s->zeros[j / gs * ROWS + r];
    for (int64_t g = 0; g < n_g; g++) {
        int64_t from = g * gs, n = sw_min_i64(gs, k - from);
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)k, ROWS, (int)n, 1.0,
                    f->h + from * k, (int)k, w->error + from * ROWS, ROWS, 0.0, w->t, ROWS);
        dot_rows(w->rhs + g * ROWS, w->t, s->target, k);
        for (int64_t h = 0; h <= g; h++)
            dot_rows(w->system + (g * n_g + h) * ROWS, w->t + h * gs * ROWS,
                     w->error + h * gs * ROWS, sw_min_i64(gs, k - h * gs));
    }
}

/* Solve one row's system in place of its scales; an implausible answer leaves a scale alone. */
static void solve_row(sw_slab *s, refine_work *w, int r, const sw_qspec *spec)
{
    int64_t n_g = s->n_groups;
    double *a = w->row, *b = w->row + n_g * n_g, trace = 0;

    for (int64_t g = 0; g < n_g; g++) {
        b[g] = w->rhs[g * ROWS + r];
        for (int64_t h = 0; h <= g; h++) a[g * n_g + h] = w->system[(g * n_g + h) * ROWS + r];
        trace += a[g * n_g + g];
    }
    if (!(trace > 0)) return;
    for (int64_t g = 0; g < n_g; g++) { /* pulled, ever so lightly, towards the present scales */
        double ridge = SCALE_RIDGE * trace / (double)n_g;
        a[g * n_g + g] += ridge;
        b[g] += ridge * s->scales[g * ROWS + r];
    }
    if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', (lapack_int)n_g, a, (lapack_int)n_g) != 0) return;
    if (LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'U', (lapack_int)n_g, 1, a, (lapack_int)n_g, b,
                       (lapack_int)n_g) != 0)
        return;
    for (int64_t g = 0; g < n_g; g++) {
        if (!is_plausible(b[g], s->scales[g * ROWS + r])) continue;
        s->scales[g * ROWS + r] = sw_grid_stored_scale(b[g], spec);
    }
}

static void row_losses(double *loss, const sw_slab *s, const sw_factor *f, refine_work *w)
{
    value_errors(w->error, s);
    sw_row_forms(loss, w->slope, f->h, f->k_in, w->error, f->k_in);
}

static void restore_row(sw_slab *s, const refine_work *w, int r)
{
    for (int64_t j = 0; j < s->k; j++) s->codes[j * ROWS + r] = w->old_codes[j * ROWS + r];
    for (int64_t g = 0; g < s->n_groups; g++)
        s->scales[g * ROWS + r] = w->old_scales[g * ROWS + r];
}

/* Can each row's scales move to where least squares wants them? Not when rows share them or they
 * are powers of two; and of many small groups the system would outgrow the weight. */
static bool has_free_scales(const sw_slab *s, const sw_qspec *spec)
{
    if (spec->is_pow2_scale || (s->frame && s->frame->shared) || steps_scales(s, spec))
        return false;
    return !spec->num->values || s->n_groups <= FLOAT_GROUPS_MAX;
}

/* One alternation; returns whether any row gained more than a rounding error's worth. */
static bool refine_round(sw_slab *s, const sw_factor *f, refine_work *w, const sw_qspec *spec,
                         double *loss)
{
    double now[ROWS];
    bool gained = false;

    memcpy(w->old_codes, s->codes, (size_t)(s->k * ROWS) * sizeof *s->codes);
    memcpy(w->old_scales, s->scales, (size_t)(s->n_groups * ROWS) * sizeof *s->scales);
    if (has_free_scales(s, spec)) {
        build_system(s, f, w);
        for (int r = 0; r < ROWS; r++) solve_row(s, w, r, spec);
    }
    descend(s, f, w, spec);
    row_losses(now, s, f, w);
    for (int r = 0; r < ROWS; r++) {
        if (now[r] < loss[r]) {
            gained = gained || now[r] < loss[r] * (1 - 1e-4);
            loss[r] = now[r];
        } else {
            restore_row(s, w, r);
        }
    }
    return gained;
}

static double sum_of(const double *rows)
{
    double sum = 0;

    for (int r = 0; r < ROWS; r++) sum += rows[r];
    return sum;
}

sw_code sw_refine(sw_slab *slab, const sw_factor *factor, const sw_qspec *spec, int rounds,
                  double *loss, sw_err *err)
{
    double of_row[ROWS];
    int64_t n_free = rounds > 0 && has_free_scales(slab, spec) ? slab->n_groups : 0;
    refine_work w;
    sw_code rc = work_new(&w, slab->k, n_free, slab->n_groups, err);

    if (rc != SW_OK) return rc;
    row_losses(of_row, slab, factor, &w);
    while (rounds-- > 0 && refine_round(slab, factor, &w, spec, of_row)) continue;
    *loss = sum_of(of_row);
    sw_mem_put(w.bytes);
    return SW_OK;
}

static void row_powers(double *rows, const sw_slab *slab, const sw_factor *factor,
                       refine_work *w)
{
    sw_row_forms(rows, w->slope, factor->h, factor->k_in, slab->target, factor->k_in);
}

typedef void row_figures_fn(double *rows, const sw_slab *slab, const sw_factor *factor,
                            refine_work *w);

static sw_code sum_rows(double *sum, row_figures_fn *figures_of, const sw_slab *slab,
                        const sw_factor *factor, sw_err *err)
{
    double rows[ROWS];
    refine_work w;
    sw_code rc = work_new(&w, slab->k, 0, 0, err);

    if (rc != SW_OK) return rc;
    figures_of(rows, slab, factor, &w);
    *sum = sum_of(rows);
    sw_mem_put(w.bytes);
    return SW_OK;
}

sw_code sw_refine_loss(const sw_slab *slab, const sw_factor *factor, double *loss, sw_err *err)
{
    return sum_rows(loss, row_losses, slab, factor, err);
}

sw_code sw_refine_power(const sw_slab *slab, const sw_factor *factor, double *power, sw_err *err)
{
    return sum_rows(power, row_powers, slab, factor, err);
}
