/* solver_solve.c - a weight's way through the device, and plain rounding. See solver_solve.cuh. */
#include "kernels/cuda/solver/solver_solve.cuh"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/pow2.h"

static int kind_of_scale(const sw_qspec *spec)
{
    static const struct { sw_dtype dtype; int kind; } kinds[] = {
        {SW_DTYPE_F32, SCALE_F32}, {SW_DTYPE_F16, SCALE_F16}, {SW_DTYPE_BF16, SCALE_BF16},
        {SW_DTYPE_F8_E8M0, SCALE_POW2}, {SW_DTYPE_F8_E4M3, SCALE_E4M3}};

    if (spec->is_pow2_scale) return SCALE_POW2;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].dtype == spec->scale_dtype) return kinds[i].kind;
    return SCALE_NONE;
}

int sw_solver_scale_kind(const sw_qspec *spec)
{
    int kind = kind_of_scale(spec);

    return kind <= SCALE_BF16 ? kind : -1;
}

static grid_shape shape_of(const sw_qspec *spec)
{
    const sw_num *num = spec->num;
    grid_shape g = {.code_max = num->code_max, .sym_zero = num->sym_zero,
                    .zero_min = spec->zero_min, .is_symmetric = spec->is_symmetric,
                    .tries_signs = sw_qspec_tries_signs(spec), .scale_kind = kind_of_scale(spec),
                    .is_small = num->values != NULL};

    if (!g.is_small) return g;
    g.is_symmetric = true;
    g.code_bits = num->bits;
    g.mantissa_bits = num->mantissa_bits;
    g.normal = (double)num->normal;
    g.exponent0 = ilogb(g.normal);
    g.step = ldexp(1.0, -num->mantissa_bits);
    g.top = (double)num->top;
    g.is_range_final = spec->pow2_rule != 0;
    g.pow2_rule = spec->pow2_rule ? spec->pow2_rule - 1
                  : num->bits == 4 ? SW_POW2_ROUND : SW_POW2_CEIL; /* as sw_pow2_scale */
    return g;
}

sw_code sw_solve_count(sw_solve *v, sw_stage stage, sw_err *err)
{
    double now;
    sw_code rc;

    if (!v->stage_s) return SW_OK;
    if ((rc = sw_device_sync(v->s->gpu, err)) != SW_OK) return rc;
    now = sw_clock_s();
    v->stage_s[stage] += now - v->since_s;
    v->since_s = now;
    return SW_OK;
}

static int64_t rows_at_a_time(const sw_solve *v)
{
    const sw_device_problem *p = v->p;
    const sw_solve_size size = {.n_out = p->n_out, .k_in = p->k_in, .n_groups = v->r.n_groups,
                                .has_factor = p->factor != NULL, .has_shift = p->d_shift != NULL};

    return sw_solve_rows_at_a_time(&size, v->s->work_bytes);
}

static sw_code take_systems(sw_solve *v, int64_t n, sw_err *err)
{
    solve_rows *r = &v->r;
    sw_solver *s = v->s;
    int64_t g2 = r->n_groups * r->n_groups;
    sw_code rc;

    r->system_rows = sw_solve_system_rows(n, r->n_groups);
    TRY(SW_SOLVER_TAKE(&r->system, s, r->system_rows * g2, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->rhs, s, n * r->n_groups, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->system_at, s, r->system_rows, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->rhs_at, s, r->system_rows, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->info, s, r->system_rows, "systems of scales", err));
done:
    return rc;
}

static sw_code take_gptq_rows(sw_solve *v, int64_t n, sw_err *err)
{
    solve_rows *r = &v->r;
    sw_solver *s = v->s;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&r->work, s, n * r->k, "working rows", err));
    TRY(SW_SOLVER_TAKE(&r->block, s, n * SW_SOLVE_COLS, "errors of a block", err));
    if (v->p->d_shift) TRY(SW_SOLVER_TAKE(&r->lift, s, n * r->k, "lifts", err));
    TRY(SW_SOLVER_TAKE(&r->old_codes, s, n * r->k, "codes", err));
    TRY(SW_SOLVER_TAKE(&r->old_scales, s, n * r->n_groups, "scales", err));
    TRY(SW_SOLVER_TAKE(&r->is_settled, s, sw_ceil_div(n, 64), "slabs", err));
    TRY(SW_MEM_GET(&v->perm, r->k, "column order", err));
    TRY(sw_device_download(s->gpu, v->perm, v->p->factor->d_perm, r->k * (int64_t)sizeof *v->perm,
                           err));
    if (v->p->refine_rounds > 0) TRY(take_systems(v, n, err));
done:
    return rc;
}

static sw_code take_statistics_rows(sw_solve *v, int64_t n, sw_err *err)
{
    solve_rows *r = &v->r;
    sw_solver *s = v->s;
    int64_t nk = n * r->k;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&r->slope, s, nk, "slopes", err));
    TRY(SW_SOLVER_TAKE(&r->error, s, nk, "errors", err));
    TRY(SW_SOLVER_TAKE(&r->aim, s, nk, "aims", err));
    TRY(SW_SOLVER_TAKE(&r->loss, s, 4 * n, "losses", err));
    TRY(SW_SOLVER_TAKE(&v->d_weight, s, r->k, "diagonal", err));
    r->new_loss = r->loss + n;
    r->loss_rtn = r->new_loss + n;
    r->power = r->loss_rtn + n;
    TRY(sw_solver_take_diagonal(v->d_weight, s, v->p->factor->d_h, r->k, err));
    if (v->p->factor->d_h_halves) TRY(sw_halves_new(&v->halves, s, n, r->k, err));
    if (v->p->method == SW_DEVICE_GPTQ) TRY(take_gptq_rows(v, n, err));
    if (v->p->method == SW_DEVICE_CLIP) TRY(sw_solve_clip_take(v, n, err));
done:
    return rc;
}

/* What small floats without statistics weigh their errors by, and scales that rows share. */
static sw_code take_constants(sw_solve *v, sw_err *err)
{
    const sw_device_problem *p = v->p;
    int64_t n_shared = p->shared ? sw_ceil_div(p->n_out, p->shared_rows) * v->r.n_groups : 0;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&v->d_ones, v->s, v->r.k, "ones", err));
    TRY(sw_solver_fill(v->s, v->d_ones, 1.0, v->r.k, err));
    if (!p->shared) return SW_OK;
    TRY(SW_SOLVER_TAKE(&v->d_shared, v->s, n_shared, "shared scales", err));
    TRY(sw_device_upload(v->s->gpu, v->d_shared, p->shared, n_shared * (int64_t)sizeof *p->shared,
                         err));
done:
    return rc;
}

static sw_code take_rows(sw_solve *v, int64_t n, sw_err *err)
{
    solve_rows *r = &v->r;
    sw_solver *s = v->s;
    float *w = NULL;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&w, s, n * r->k, "weight", err));
    r->w = w;
    TRY(SW_SOLVER_TAKE(&r->target, s, n * r->k, "targets", err));
    TRY(SW_SOLVER_TAKE(&r->codes, s, n * r->k, "codes", err));
    TRY(SW_SOLVER_TAKE(&r->scales, s, n * r->n_groups, "scales", err));
    TRY(SW_SOLVER_TAKE(&r->zeros, s, n * r->n_groups, "zeros", err));
    TRY(take_constants(v, err));
    if (v->p->factor) TRY(take_statistics_rows(v, n, err));
done:
    return rc;
}

static void put_rows(sw_solve *v)
{
    solve_rows *r = &v->r;
    clip_best *b = &v->best;
    void *taken[] = {(void *)(uintptr_t)r->w, r->target, r->work, r->slope, r->error, r->aim,
                     r->lift, r->block, r->codes, r->old_codes, r->scales, r->old_scales, r->zeros,
                     r->loss, r->is_settled, r->system, r->rhs, (void *)r->system_at,
                     (void *)r->rhs_at, r->info, v->d_weight, v->d_ones, v->d_shared, v->halves.d,
                     b->fit, b->fit_zeros, b->scales, b->zeros, b->loss};

    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sw_device_put(v->s->gpu, taken[i]);
    sw_mem_put(v->perm);
}

static sw_code new_solve(sw_solve *v, sw_solver *s, const sw_device_problem *p, double *stage_s,
                         sw_err *err)
{
    const sw_qspec *spec = &p->spec;

    memset(v, 0, sizeof *v);
    v->s = s;
    v->p = p;
    if (!sw_solver_can(spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "the device solves integers with a scale of every "
                                              "row and group, and small floats, both without "
                                              "outliers; use --device cpu");
    if (p->method != SW_DEVICE_RTN && !p->factor)
        return SW_FAIL(err, SW_E_BUG, "a method that needs statistics, without them");
    v->shape = shape_of(spec);
    v->shape.steps_scales = sw_qspec_steps_scales(spec, p->k_in) && !p->shared;
    v->r.k = p->k_in;
    v->r.group_elems = spec->group_elems ? spec->group_elems : p->k_in;
    v->r.n_groups = sw_qspec_groups(spec, p->k_in);
    v->r.global = p->global > 0 ? p->global : 1.0;
    v->stage_s = stage_s;
    v->since_s = sw_clock_s();
    return take_rows(v, rows_at_a_time(v), err);
}

sw_code sw_solve_fit(sw_solve *v, const double *d_weight, sw_err *err)
{
    const solve_rows *r = &v->r;
    fit_span span = {.v = r->target, .weight = d_weight, .col_end = r->k, .n_fit = r->n_groups};

    if (v->d_shared)
        return sw_rows_share(r, v->d_shared, v->row0, v->p->shared_rows, &v->shape, v->s->stream,
                             err);
    return sw_rows_fit(r, &span, &v->shape, d_weight != NULL, v->s->stream, err);
}

sw_code sw_solve_halve(const sw_solve *v, const double *d_in, int64_t begin, int64_t end,
                       sw_err *err)
{
    if (!v->halves.d) return SW_OK;
    return sw_solver_halve(v->s, &v->halves, d_in, v->r.k, v->r.n, begin, end, err);
}

sw_code sw_solve_times(const sw_solve *v, const solve_product *p, sw_err *err)
{
    const sw_device_factor *f = v->p->factor;
    const int64_t k = v->r.k, at = p->from * k + p->begin;
    const sw_halves m = {(p->by_u ? f->d_u_halves : f->d_h_halves) + at, k, k * k};
    const sw_halves rows = {v->halves.d + p->from, k, v->halves.low};

    if (!v->halves.d)
        return sw_solver_dgemm(v->s, p->out + p->begin, k, p->in + p->from, k,
                               (p->by_u ? f->d_u : f->d_h) + at, k, v->r.n, p->end - p->begin,
                               p->to - p->from, p->alpha, p->beta, err);
    return sw_halves_product(v->s, p->out + p->begin, k, &rows, &m, false, v->r.n,
                             p->end - p->begin, p->to - p->from, p->alpha, p->beta, err);
}

sw_code sw_solve_times_h(const sw_solve *v, double *d_out, const double *d_in, sw_err *err)
{
    const int64_t k = v->r.k;
    const solve_product p = {.out = d_out, .in = d_in, .to = k, .end = k, .alpha = 1.0};
    const sw_code rc = sw_solve_halve(v, d_in, 0, k, err);

    return rc == SW_OK ? sw_solve_times(v, &p, err) : rc;
}

sw_code sw_solve_times_left(const sw_solve *v, double *d_out, const double *d_in, int64_t begin,
                            int64_t end, sw_err *err)
{
    const solve_product p = {.out = d_out, .in = d_in, .to = begin, .begin = begin, .end = end,
                             .alpha = 1.0};

    return begin == 0 ? SW_OK : sw_solve_times(v, &p, err);
}

sw_code sw_solve_times_corner(const sw_solve *v, double *d_out, const double *d_in, int64_t begin,
                              int64_t end, sw_err *err)
{
    int64_t k = v->r.k;

    return sw_solver_dgemm(v->s, d_out + begin, k, d_in + begin, k,
                           v->p->factor->d_h + begin * (k + 1), k, v->r.n, end - begin,
                           end - begin, 1.0, begin > 0 ? 2.0 : 0.0, err);
}

sw_code sw_solve_quadratic(const sw_solve *v, double *d_loss, const double *d_e, double *d_scratch,
                           sw_err *err)
{
    int64_t k = v->r.k;
    sw_code rc;

    TRY(sw_solve_halve(v, d_e, 0, k, err));
    for (int64_t b = 0; b < k; b += SW_SOLVE_WIDE) {
        int64_t end = sw_min_i64(b + SW_SOLVE_WIDE, k);
        TRY(sw_solve_times_left(v, d_scratch, d_e, b, end, err));
        TRY(sw_solve_times_corner(v, d_scratch, d_e, b, end, err));
    }
    TRY(sw_rows_dot(d_loss, d_e, d_scratch, v->r.n, k, v->s->stream, err));
done:
    return rc;
}

sw_code sw_solve_losses(const sw_solve *v, double *d_loss, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_error(r, &v->shape, false, v->s->stream, err));
    TRY(sw_solve_quadratic(v, d_loss, r->error, r->slope, err));
done:
    return rc;
}

/* Round plainly; with a factor, what that costs and the power of the weight. Rounding itself
 * searches for a small float's scales, GPTQ compares itself with those of the range. */
static sw_code round_rows(sw_solve *v, sw_err *err)
{
    bool searches = v->shape.is_small && v->p->method != SW_DEVICE_GPTQ;
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_target(r, false, v->s->stream, err));
    TRY(sw_solve_fit(v, searches ? v->d_ones : NULL, err));
    TRY(sw_rows_round(r, &v->shape, v->s->stream, err));
    TRY(sw_solve_count(v, SW_STAGE_FIT, err));
    if (!v->p->factor) return SW_OK;
    if (v->p->method == SW_DEVICE_GPTQ) { /* which needs all of H times the weight */
        TRY(sw_solve_times_h(v, r->aim, r->target, err));
        TRY(sw_rows_dot(r->power, r->target, r->aim, r->n, r->k, v->s->stream, err));
        /* figures are of what is missed of the target: what moves towards it is no loss */
        if (r->shift) TRY(sw_rows_target(r, true, v->s->stream, err));
    }
    TRY(sw_solve_losses(v, r->loss_rtn, err));
    if (v->p->method != SW_DEVICE_GPTQ)
        TRY(sw_solve_quadratic(v, r->power, r->target, r->aim, err));
    TRY(sw_solve_count(v, SW_STAGE_LOSS, err));
done:
    return rc;
}

/* Take rows [row0, row0 + n) in hand. */
static sw_code load_rows(sw_solve *v, int64_t row0, int64_t n, sw_err *err)
{
    const sw_device_problem *p = v->p;
    int64_t k = v->r.k, n_bytes = n * k * (int64_t)sizeof *v->r.w;
    void *d_to = (void *)(uintptr_t)v->r.w;
    sw_code rc;

    v->row0 = row0;
    v->r.n = n;
    v->halves.low = n * k;
    v->r.shift = p->d_shift ? p->d_shift + row0 * k : NULL;
    rc = p->d_w ? sw_solver_copy(v->s, d_to, p->d_w + row0 * k, n_bytes, err)
                : sw_device_upload(v->s->gpu, d_to, p->w + row0 * k, n_bytes, err);
    return rc == SW_OK ? sw_solve_count(v, SW_STAGE_COPY, err) : rc;
}

static sw_code store_zeros(const sw_solve *v, sw_qtensor *q, sw_err *err)
{
    int64_t n = v->r.n * v->r.n_groups;
    float *zeros = NULL;
    sw_code rc = SW_MEM_GET(&zeros, n, "zeros", err);

    if (rc == SW_OK) rc = sw_device_download(v->s->gpu, zeros, v->r.zeros, n * 4, err);
    for (int64_t i = 0; rc == SW_OK && i < n; i++)
        q->zeros[v->row0 * v->r.n_groups + i] = (uint8_t)zeros[i];
    sw_mem_put(zeros);
    return rc;
}

static sw_code store_rows(sw_solve *v, sw_qtensor *q, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc = SW_OK;

    if (v->p->d_values)
        TRY(sw_rows_decode(v->p->d_values + v->row0 * r->k, r, &v->shape, v->s->stream, err));
    if (q) {
        TRY(sw_device_download(v->s->gpu, q->codes + v->row0 * r->k, r->codes, r->n * r->k, err));
        TRY(sw_device_download(v->s->gpu, q->scales + v->row0 * r->n_groups, r->scales,
                               r->n * r->n_groups * 4, err));
        if (q->zeros) TRY(store_zeros(v, q, err));
    }
    TRY(sw_solve_count(v, SW_STAGE_COPY, err));
done:
    return rc;
}

static void put_figure(sw_device_sums *row, int which, double value)
{
    *(which == 0 ? &row->loss : which == 1 ? &row->loss_rtn : &row->power) = value;
}

/* Sums over rows, in order. The arrays lie one behind the other, as many rows as were taken. */
static sw_code add_sums(const sw_solve *v, sw_device_sums *sums, double *host, sw_err *err)
{
    const solve_rows *r = &v->r;
    const double *d_from[] = {v->p->method == SW_DEVICE_RTN ? r->loss_rtn : r->loss, r->loss_rtn,
                              r->power};
    double *into[] = {&sums->loss, &sums->loss_rtn, &sums->power};
    sw_device_sums *by_row = v->p->by_row ? v->p->by_row + v->row0 : NULL;
    sw_code rc = SW_OK;

    for (int i = 0; i < 3 && rc == SW_OK; i++) {
        rc = sw_device_download(v->s->gpu, host, d_from[i], r->n * 8, err);
        for (int64_t row = 0; row < r->n && rc == SW_OK; row++) {
            *into[i] += host[row];
            if (by_row) put_figure(&by_row[row], i, host[row]);
        }
    }
    return rc;
}

sw_code sw_solver_solve(sw_qtensor *q, sw_device_sums *sums, sw_solver *s,
                        const sw_device_problem *p, double *stage_s, sw_err *err)
{
    sw_device_sums all = {0, 0, 0};
    double *host = NULL;
    int64_t n_rows;
    sw_solve v;
    sw_code rc;

    if ((rc = new_solve(&v, s, p, stage_s, err)) != SW_OK) goto done;
    n_rows = rows_at_a_time(&v);
    TRY(SW_MEM_GET(&host, n_rows, "losses", err));
    for (int64_t row = 0; row < p->n_out; row += n_rows) {
        TRY(load_rows(&v, row, sw_min_i64(n_rows, p->n_out - row), err));
        TRY(round_rows(&v, err));
        if (p->method == SW_DEVICE_GPTQ) TRY(sw_solve_gptq_rows(&v, err));
        if (p->method == SW_DEVICE_CLIP) TRY(sw_solve_clip_rows(&v, err));
        TRY(store_rows(&v, q, err));
        if (p->factor && sums) TRY(add_sums(&v, &all, host, err));
    }
    if (sums) *sums = all;
done:
    put_rows(&v);
    sw_mem_put(host);
    return rc;
}

sw_code sw_solver_score(double *loss, sw_solver *s, const sw_device_problem *p,
                        const double *d_weight, sw_err *err)
{
    double *host = NULL, *d_rows = NULL, sum = 0;
    sw_solve v;
    sw_code rc;

    if ((rc = new_solve(&v, s, p, NULL, err)) != SW_OK) goto done;
    if (p->factor || rows_at_a_time(&v) < p->n_out) {
        rc = SW_FAIL(err, SW_E_BUG, "a score is of a few rows, without statistics");
        goto done;
    }
    TRY(SW_MEM_GET(&host, p->n_out, "losses", err));
    TRY(SW_SOLVER_TAKE(&d_rows, s, p->n_out, "losses", err));
    TRY(SW_SOLVER_TAKE(&v.r.error, s, p->n_out * p->k_in, "errors", err));
    TRY(load_rows(&v, 0, p->n_out, err));
    TRY(sw_rows_target(&v.r, false, s->stream, err));
    TRY(sw_solve_fit(&v, d_weight, err));
    TRY(sw_rows_round(&v.r, &v.shape, s->stream, err));
    TRY(sw_rows_error(&v.r, &v.shape, false, s->stream, err));
    TRY(sw_rows_weigh(d_rows, &v.r, d_weight, s->stream, err));
    TRY(sw_device_download(s->gpu, host, d_rows, p->n_out * 8, err));
    for (int64_t row = 0; row < p->n_out; row++) sum += host[row];
    *loss += sum * v.r.global * v.r.global;
done:
    put_rows(&v);
    sw_device_put(s->gpu, d_rows);
    sw_mem_put(host);
    return rc;
}
