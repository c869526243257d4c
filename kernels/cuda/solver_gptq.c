/* solver_gptq.c - a weight's way through the device: GPTQ, refinement, plain rounding.
 *
 * The steps are those of quant/gptq.c, refine.c and rtn.c; there on slabs of 64 rows, here on
 * as many rows as memory allows. What gptq.c says of the method holds here.
 */
#include <string.h>
#include <time.h>

#include "formats/base/size.h"
#include "kernels/cuda/solver_kernels.cuh"

#define COLS 128 /* of a lazy-update block */
#define SWEEPS_PER_ROUND 2
#define SYSTEM_BYTES ((int64_t)4 << 30)

typedef struct solve {
    sw_solver *s;
    const sw_device_problem *p;
    grid_shape shape;
    solve_rows r;       /* the chunk under way */
    int64_t row0;
    double *d_diagonal; /* [k] of H */
    double *stage_s;    /* or NULL */
    double since_s;
} solve;

int sw_solver_scale_kind(const sw_qspec *spec)
{
    return spec->scale_dtype == SW_DTYPE_F32    ? 0
           : spec->scale_dtype == SW_DTYPE_F16  ? 1
           : spec->scale_dtype == SW_DTYPE_BF16 ? 2
                                                : -1;
}

bool sw_solver_can(const sw_qspec *spec)
{
    return spec->num->kind == SW_NUM_INT && sw_solver_scale_kind(spec) >= 0 &&
           sw_qspec_rows(spec, 1) == 1 && spec->scale_rows != SW_ROWS_ALL &&
           !spec->is_pow2_scale && !spec->has_global && spec->n_outliers == 0;
}

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time since the last call belongs to `stage`. */
static sw_code count(solve *v, sw_stage stage, sw_err *err)
{
    double now;
    sw_code rc;

    if (!v->stage_s) return SW_OK;
    if ((rc = sw_gpu_sync(v->s->gpu, err)) != SW_OK) return rc;
    now = now_s();
    v->stage_s[stage] += now - v->since_s;
    v->since_s = now;
    return SW_OK;
}

/* Bytes that a row takes beside the weight itself. */
static int64_t row_bytes(const sw_device_problem *p, int64_t n_groups)
{
    int64_t n_doubles = p->factor ? 5 * p->k_in + COLS + n_groups + 4 : p->k_in;

    return 8 * n_doubles + 2 * p->k_in + 4 * p->k_in + 12 * n_groups;
}

static int64_t rows_at_a_time(const solve *v)
{
    int64_t n = v->s->work_bytes / row_bytes(v->p, v->r.n_groups) / 64 * 64;

    return sw_max_i64(64, sw_min_i64(n, v->p->n_out));
}

static sw_code take_statistics_rows(solve *v, int64_t n, sw_err *err)
{
    solve_rows *r = &v->r;
    sw_solver *s = v->s;
    int64_t nk = n * r->k, g2 = r->n_groups * r->n_groups;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&r->work, s, nk, "working rows", err));
    TRY(SW_SOLVER_TAKE(&r->slope, s, nk, "slopes", err));
    TRY(SW_SOLVER_TAKE(&r->error, s, nk, "errors", err));
    TRY(SW_SOLVER_TAKE(&r->aim, s, nk, "aims", err));
    TRY(SW_SOLVER_TAKE(&r->block, s, n * COLS, "errors of a block", err));
    TRY(SW_SOLVER_TAKE(&r->old_codes, s, nk, "codes", err));
    TRY(SW_SOLVER_TAKE(&r->old_scales, s, n * r->n_groups, "scales", err));
    TRY(SW_SOLVER_TAKE(&r->loss, s, 4 * n, "losses", err));
    TRY(SW_SOLVER_TAKE(&r->is_settled, s, sw_ceil_div(n, 64), "slabs", err));
    TRY(SW_SOLVER_TAKE(&v->d_diagonal, s, r->k, "diagonal", err));
    r->new_loss = r->loss + n;
    r->loss_rtn = r->new_loss + n;
    r->power = r->loss_rtn + n;
    if (v->p->refine_rounds <= 0) return SW_OK;
    r->system_rows = sw_max_i64(1, sw_min_i64(n, SYSTEM_BYTES / (8 * g2)));
    TRY(SW_SOLVER_TAKE(&r->system, s, r->system_rows * g2, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->rhs, s, n * r->n_groups, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->system_at, s, r->system_rows, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->rhs_at, s, r->system_rows, "systems of scales", err));
    TRY(SW_SOLVER_TAKE(&r->info, s, r->system_rows, "systems of scales", err));
done:
    return rc;
}

static sw_code take_rows(solve *v, int64_t n, sw_err *err)
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
    if (v->p->factor) TRY(take_statistics_rows(v, n, err));
done:
    return rc;
}

static void put_rows(solve *v)
{
    solve_rows *r = &v->r;
    void *taken[] = {(void *)(uintptr_t)r->w, r->target, r->work, r->slope, r->error, r->aim,
                     r->block, r->codes, r->old_codes, r->scales, r->old_scales, r->zeros, r->loss,
                     r->is_settled, r->system, r->rhs, (void *)r->system_at, (void *)r->rhs_at,
                     r->info, v->d_diagonal};

    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sw_gpu_put(v->s->gpu, taken[i]);
}

static sw_code new_solve(solve *v, sw_solver *s, const sw_device_problem *p, double *stage_s,
                         sw_err *err)
{
    const sw_qspec *spec = &p->spec;

    memset(v, 0, sizeof *v);
    v->s = s;
    v->p = p;
    if (!sw_solver_can(spec))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "the device solves integers with a scale of every "
                                              "row and group, F32, F16 or BF16");
    v->shape = (grid_shape){.code_max = spec->num->code_max, .sym_zero = spec->num->sym_zero,
                            .zero_min = spec->zero_min, .is_symmetric = spec->is_symmetric,
                            .tries_signs = sw_qspec_tries_signs(spec),
                            .scale_kind = sw_solver_scale_kind(spec)};
    v->r.k = p->k_in;
    v->r.group_elems = spec->group_elems ? spec->group_elems : p->k_in;
    v->r.n_groups = sw_qspec_groups(spec, p->k_in);
    v->stage_s = stage_s;
    v->since_s = now_s();
    return take_rows(v, rows_at_a_time(v), err);
}

/* out [n, k] = in [n, k] H */
static sw_code times_h(const solve *v, double *d_out, const double *d_in, sw_err *err)
{
    int64_t k = v->r.k;

    return sw_solver_dgemm(v->s, d_out, k, d_in, k, v->p->factor->d_h, k, v->r.n, k, k, 1.0, 0.0,
                           err);
}

/* d_loss [n] of the codes against the target; leaves error and slope. */
static sw_code losses(const solve *v, double *d_loss, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_error(r, false, v->s->stream, err));
    TRY(times_h(v, r->slope, r->error, err));
    TRY(sw_rows_dot(d_loss, r->error, r->slope, r->n, r->k, v->s->stream, err));
done:
    return rc;
}

/* Fit the group of column `col`, which starts at step i, on the weights as they are now. */
static sw_code fit_at(const solve *v, int64_t i, int64_t col, sw_err *err)
{
    int64_t g = col / v->r.group_elems;
    fit_span span = {.v = v->r.work, .weight = v->p->factor->d_pivot, .col0 = i, .n_fit = 1,
                     .col_end = i + sw_min_i64(v->r.group_elems, v->r.k - g * v->r.group_elems),
                     .out0 = g};

    return sw_rows_fit(&v->r, &span, &v->shape, true, v->s->stream, err);
}

/* A block of columns: group by group where scales are fitted on the way. GAR puts a short
 * last group anywhere, so groups are asked for, not counted. */
static sw_code sweep_block(solve *v, const int32_t *perm, int64_t begin, int64_t end, sw_err *err)
{
    const sw_device_factor *f = v->p->factor;
    sw_code rc = SW_OK;

    for (int64_t at = begin; at < end && rc == SW_OK;) {
        int64_t next = v->p->refit ? at + 1 : end, group = perm[at] / v->r.group_elems;
        bool is_first = v->p->refit &&
                        (at == 0 || perm[at - 1] / v->r.group_elems != group);
        while (next < end && perm[next] / v->r.group_elems == group) next++;
        if (is_first) {
            if ((rc = fit_at(v, at, perm[at], err)) == SW_OK) rc = count(v, SW_STAGE_FIT, err);
        }
        if (rc == SW_OK)
            rc = sw_rows_sweep(&v->r, f->d_u, f->d_perm, &v->shape, begin, at, next, end,
                               v->s->stream, err);
        at = next;
    }
    return rc == SW_OK ? count(v, SW_STAGE_SWEEP, err) : rc;
}

static sw_code sweep(solve *v, const int32_t *perm, sw_err *err)
{
    const sw_device_factor *f = v->p->factor;
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_permute(r, f->d_perm, v->s->stream, err));
    for (int64_t b = 0; b < r->k; b += COLS) {
        int64_t end = sw_min_i64(b + COLS, r->k);
        TRY(sweep_block(v, perm, b, end, err));
        TRY(sw_solver_dgemm(v->s, r->work + end, r->k, r->block, COLS, f->d_u + b * r->k + end,
                            r->k, r->n, r->k - end, end - b, -1.0, 1.0, err));
        TRY(count(v, SW_STAGE_UPDATE, err));
    }
done:
    return rc;
}

/* Systems of a range of rows: products first, then a Cholesky of each. */
static sw_code solve_systems(const solve *v, int64_t row0, int64_t n, sw_err *err)
{
    const solve_rows *r = &v->r;
    const double *h = v->p->factor->d_h;
    sw_solver *s = v->s;
    int n_g = (int)r->n_groups;
    sw_code rc;

    for (int64_t g = 0; g < r->n_groups; g++) {
        int64_t from = g * r->group_elems, end = sw_min_i64(from + r->group_elems, r->k);
        TRY(sw_solver_dgemm(s, r->work + row0 * r->k, r->k, r->error + row0 * r->k + from, r->k,
                            h + from * r->k, r->k, n, end, end - from, 1.0, 0.0, err));
        TRY(sw_rows_system(r, g, row0, n, s->stream, err));
    }
    TRY(sw_rows_ridge(r, row0, n, s->stream, err));
    LIB(s->libs.cusolverDnDpotrfBatched_fn(s->lapack, CUBLAS_FILL_MODE_UPPER, n_g, r->system_at,
                                           n_g, r->info, (int)n));
    LIB(s->libs.cusolverDnDpotrsBatched_fn(s->lapack, CUBLAS_FILL_MODE_UPPER, n_g, 1, r->system_at,
                                           n_g, r->rhs_at, n_g, s->d_info, (int)n));
    TRY(sw_rows_take_scales(r, &v->shape, row0, n, s->stream, err));
done:
    return rc;
}

static sw_code fit_all_scales(const solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc = sw_rows_error(r, true, v->s->stream, err);

    for (int64_t row = 0; row < r->n && rc == SW_OK; row += r->system_rows)
        rc = solve_systems(v, row, sw_min_i64(r->system_rows, r->n - row), err);
    return rc;
}

/* Coordinate descent; the slopes stay those of the codes, so the losses come with them. */
static sw_code descend(const solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    const double *h = v->p->factor->d_h;
    cudaStream_t stream = v->s->stream;
    sw_code rc;

    TRY(sw_rows_error(r, false, stream, err));
    TRY(times_h(v, r->slope, r->error, err));
    for (int sweep_no = 0; sweep_no < SWEEPS_PER_ROUND; sweep_no++)
        for (int64_t b = 0; b < r->k; b += COLS) {
            int64_t end = sw_min_i64(b + COLS, r->k);
            TRY(sw_rows_descend(r, h, &v->shape, b, end, stream, err));
            TRY(sw_solver_dgemm(v->s, r->slope, r->k, r->block, COLS, h + b * r->k, r->k, r->n,
                                r->k, end - b, 1.0, 1.0, err));
        }
    TRY(sw_rows_error(r, false, stream, err));
    TRY(sw_rows_dot(r->new_loss, r->error, r->slope, r->n, r->k, stream, err));
done:
    return rc;
}

static sw_code refine(solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    size_t n_codes = (size_t)(r->n * r->k), n_scales = (size_t)(r->n * r->n_groups) * 4;
    cudaStream_t stream = v->s->stream;
    sw_code rc = SW_OK;

    if (v->p->refine_rounds <= 0) return SW_OK;
    TRY(losses(v, r->loss, err));
    if (v->p->d_shift) TRY(times_h(v, r->aim, r->target, err));
    CUDA(cudaMemsetAsync(r->is_settled, 0, (size_t)sw_ceil_div(r->n, 64) * 4, stream));
    for (int round = 0; round < v->p->refine_rounds; round++) {
        CUDA(cudaMemcpyAsync(r->old_codes, r->codes, n_codes, cudaMemcpyDeviceToDevice, stream));
        CUDA(cudaMemcpyAsync(r->old_scales, r->scales, n_scales, cudaMemcpyDeviceToDevice,
                             stream));
        TRY(fit_all_scales(v, err));
        TRY(descend(v, err));
        TRY(sw_rows_accept(r, stream, err));
    }
    TRY(count(v, SW_STAGE_REFINE, err));
done:
    return rc;
}

/* Round plainly; with a factor, what that costs and the power of the weight. */
static sw_code round_rows(solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    fit_span span = {.v = r->target, .col_end = r->k, .n_fit = r->n_groups};
    sw_code rc;

    TRY(sw_rows_target(r, false, v->s->stream, err));
    TRY(sw_rows_fit(r, &span, &v->shape, false, v->s->stream, err));
    TRY(sw_rows_round(r, &v->shape, v->s->stream, err));
    TRY(count(v, SW_STAGE_FIT, err));
    if (!v->p->factor) return SW_OK;
    TRY(losses(v, r->loss_rtn, err));
    TRY(times_h(v, r->aim, r->target, err));
    TRY(sw_rows_dot(r->power, r->target, r->aim, r->n, r->k, v->s->stream, err));
    TRY(count(v, SW_STAGE_LOSS, err));
done:
    return rc;
}

static sw_code gptq_rows(solve *v, const int32_t *perm, sw_err *err)
{
    const solve_rows *r = &v->r;
    fit_span span = {.v = r->target, .weight = v->d_diagonal, .col_end = r->k,
                     .n_fit = r->n_groups};
    sw_code rc;

    TRY(sw_rows_target(r, true, v->s->stream, err));
    TRY(sw_rows_fit(r, &span, &v->shape, true, v->s->stream, err));
    TRY(count(v, SW_STAGE_FIT, err));
    TRY(sweep(v, perm, err));
    TRY(refine(v, err));
    if (!v->p->d_shift && v->p->refine_rounds > 0) return SW_OK; /* refine left the loss */
    /* the figure is against the original weight on these inputs, whatever the target was */
    TRY(sw_rows_target(r, false, v->s->stream, err));
    TRY(losses(v, r->loss, err));
    TRY(count(v, SW_STAGE_LOSS, err));
done:
    return rc;
}

/* Take rows [row0, row0 + n) in hand. */
static sw_code load_rows(solve *v, int64_t row0, int64_t n, sw_err *err)
{
    int64_t k = v->r.k;
    sw_code rc;

    v->row0 = row0;
    v->r.n = n;
    v->r.shift = v->p->d_shift ? v->p->d_shift + row0 * k : NULL;
    rc = sw_gpu_upload(v->s->gpu, (void *)(uintptr_t)v->r.w, v->p->w + row0 * k,
                       n * k * (int64_t)sizeof *v->r.w, err);
    return rc == SW_OK ? count(v, SW_STAGE_COPY, err) : rc;
}

static sw_code store_zeros(const solve *v, sw_qtensor *q, sw_err *err)
{
    int64_t n = v->r.n * v->r.n_groups;
    float *zeros = NULL;
    sw_code rc = SW_MEM_GET(&zeros, n, "zeros", err);

    if (rc == SW_OK) rc = sw_gpu_download(v->s->gpu, zeros, v->r.zeros, n * 4, err);
    for (int64_t i = 0; rc == SW_OK && i < n; i++)
        q->zeros[v->row0 * v->r.n_groups + i] = (uint8_t)zeros[i];
    sw_mem_put(zeros);
    return rc;
}

static sw_code store_rows(solve *v, sw_qtensor *q, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_gpu_download(v->s->gpu, q->codes + v->row0 * r->k, r->codes, r->n * r->k, err));
    TRY(sw_gpu_download(v->s->gpu, q->scales + v->row0 * r->n_groups, r->scales,
                        r->n * r->n_groups * 4, err));
    if (q->zeros) TRY(store_zeros(v, q, err));
    TRY(count(v, SW_STAGE_COPY, err));
done:
    return rc;
}

/* Sums over rows, in order. The arrays lie one behind the other, as many rows as were taken. */
static sw_code add_sums(const solve *v, sw_device_sums *sums, const double *d_loss, double *host,
                        sw_err *err)
{
    const solve_rows *r = &v->r;
    const double *d_from[] = {d_loss, r->loss_rtn, r->power};
    double *into[] = {&sums->loss, &sums->loss_rtn, &sums->power};
    sw_code rc = SW_OK;

    for (int i = 0; i < 3 && rc == SW_OK; i++) {
        rc = sw_gpu_download(v->s->gpu, host, d_from[i], r->n * 8, err);
        for (int64_t row = 0; row < r->n && rc == SW_OK; row++) *into[i] += host[row];
    }
    return rc;
}

sw_code sw_solver_gptq(sw_qtensor *q, sw_device_sums *sums, sw_solver *s,
                       const sw_device_problem *p, double *stage_s, sw_err *err)
{
    sw_device_sums all = {0, 0, 0};
    double *host = NULL;
    int32_t *perm = NULL;
    int64_t n_rows;
    solve v;
    sw_code rc;

    if ((rc = new_solve(&v, s, p, stage_s, err)) != SW_OK) goto done;
    n_rows = rows_at_a_time(&v);
    TRY(SW_MEM_GET(&host, n_rows, "losses", err));
    TRY(SW_MEM_GET(&perm, p->k_in, "column order", err));
    TRY(sw_gpu_download(s->gpu, perm, p->factor->d_perm, p->k_in * (int64_t)sizeof *perm, err));
    TRY(sw_solver_take_diagonal(v.d_diagonal, s, p->factor->d_h, p->k_in, err));
    for (int64_t row = 0; row < p->n_out; row += n_rows) {
        TRY(load_rows(&v, row, sw_min_i64(n_rows, p->n_out - row), err));
        TRY(round_rows(&v, err));
        TRY(gptq_rows(&v, perm, err));
        TRY(store_rows(&v, q, err));
        TRY(add_sums(&v, &all, v.r.loss, host, err));
    }
    *sums = all;
done:
    put_rows(&v);
    sw_mem_put(host);
    sw_mem_put(perm);
    return rc;
}

sw_code sw_solver_rtn(sw_qtensor *q, sw_device_sums *sums, sw_solver *s,
                      const sw_device_problem *p, double *stage_s, sw_err *err)
{
    sw_device_sums all = {0, 0, 0};
    double *host = NULL;
    int64_t n_rows;
    solve v;
    sw_code rc;

    if ((rc = new_solve(&v, s, p, stage_s, err)) != SW_OK) goto done;
    n_rows = rows_at_a_time(&v);
    TRY(SW_MEM_GET(&host, n_rows, "losses", err));
    for (int64_t row = 0; row < p->n_out; row += n_rows) {
        TRY(load_rows(&v, row, sw_min_i64(n_rows, p->n_out - row), err));
        TRY(round_rows(&v, err));
        TRY(store_rows(&v, q, err));
        if (p->factor) TRY(add_sums(&v, &all, v.r.loss_rtn, host, err));
    }
    *sums = all;
done:
    put_rows(&v);
    sw_mem_put(host);
    return rc;
}
