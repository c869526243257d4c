/* solver_gptq.c - GPTQ with refinement, on the rows of a chunk. See solver_solve.cuh.
 *
 * Columns are taken 128 at a time. What those before them do to the next 512 is one product over
 * all of them, made when the 512 are reached; within the 512 it is added block by block. A product
 * of 128 columns with everything to their right, after each block, moves as many bytes for a
 * quarter of the work: it runs at half the rate.
 */
#include "formats/base/size.h"
#include "kernels/cuda/solver/solver_solve.cuh"

#define COLS SW_SOLVE_COLS
#define SWEEPS_PER_ROUND 2
#define FLOAT_GROUPS_MAX 256

/* Fit the group of column `col`, which starts at step i, on the weights as they are now. */
static sw_code fit_at(const sw_solve *v, int64_t i, int64_t col, sw_err *err)
{
    int64_t g = col / v->r.group_elems;
    fit_span span = {.v = v->r.work, .weight = v->p->factor->d_pivot, .col0 = i, .n_fit = 1,
                     .col_end = i + sw_min_i64(v->r.group_elems, v->r.k - g * v->r.group_elems),
                     .out0 = g};

    return sw_rows_fit(&v->r, &span, &v->shape, true, v->s->stream, err);
}

/* A block of columns: group by group where scales are fitted on the way. GAR puts a short
 * last group anywhere, so groups are asked for, not counted. */
static sw_code sweep_block(sw_solve *v, int64_t begin, int64_t end, sw_err *err)
{
    const sw_device_factor *f = v->p->factor;
    const int32_t *perm = v->perm;
    sw_code rc = SW_OK;

    for (int64_t at = begin; at < end && rc == SW_OK;) {
        int64_t next = v->p->refit ? at + 1 : end, group = perm[at] / v->r.group_elems;
        bool is_first = v->p->refit &&
                        (at == 0 || perm[at - 1] / v->r.group_elems != group);
        while (next < end && perm[next] / v->r.group_elems == group) next++;
        if (is_first) {
            rc = fit_at(v, at, perm[at], err);
            if (rc == SW_OK) rc = sw_solve_count(v, SW_STAGE_FIT, err);
        }
        if (rc == SW_OK)
            rc = sw_rows_sweep(&v->r, f->d_u, f->d_perm, &v->shape, begin, at, next, end,
                               v->s->stream, err);
        at = next;
    }
    return rc == SW_OK ? sw_solve_count(v, SW_STAGE_SWEEP, err) : rc;
}

/* The errors of a block to those of all columns. */
static sw_code keep_errors(const sw_solve *v, int64_t begin, int64_t end, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc = SW_OK;

    CUDA(cudaMemcpy2DAsync(r->error + begin, (size_t)r->k * sizeof *r->error, r->block,
                           COLS * sizeof *r->block, (size_t)(end - begin) * sizeof *r->block,
                           (size_t)r->n, cudaMemcpyDeviceToDevice, v->s->stream));
done:
    return rc;
}

/* Columns [begin, end) of the sweep, once all before them are in the weights. */
static sw_code sweep_wide(sw_solve *v, int64_t begin, int64_t end, sw_err *err)
{
    const double *u = v->p->factor->d_u;
    const solve_rows *r = &v->r;
    sw_code rc = SW_OK;

    for (int64_t b = begin; b < end; b += COLS) {
        int64_t next = sw_min_i64(b + COLS, end);
        TRY(sweep_block(v, b, next, err));
        TRY(keep_errors(v, b, next, err));
        TRY(sw_solver_dgemm(v->s, r->work + next, r->k, r->block, COLS, u + b * r->k + next, r->k,
                            r->n, end - next, next - b, -1.0, 1.0, err));
        TRY(sw_solve_count(v, SW_STAGE_UPDATE, err));
    }
done:
    return rc;
}

/* Leaves the loss against the target: with inv(H) = U^T inv(P) U the errors e of the steps, before
 * what later columns make good, cost the sum of P e^2. Scales that are fitted on the way may look
 * at columns anywhere, so that all are kept up to date. */
static sw_code sweep(sw_solve *v, sw_err *err)
{
    const sw_device_factor *f = v->p->factor;
    const solve_rows *r = &v->r;
    int64_t wide = v->p->refit ? r->k : SW_SOLVE_WIDE;
    sw_code rc;

    TRY(sw_rows_permute(r, f->d_perm, v->s->stream, err));
    for (int64_t b = 0; b < r->k; b += wide) {
        int64_t end = sw_min_i64(b + wide, r->k);
        const solve_product before = {.out = r->work, .in = r->error, .by_u = true, .to = b,
                                      .begin = b, .end = end, .alpha = -1.0, .beta = 1.0};
        if (b > 0) TRY(sw_solve_times(v, &before, err));
        TRY(sweep_wide(v, b, end, err));
        TRY(sw_solve_halve(v, r->error, b, end, err));
    }
    TRY(sw_rows_weigh(r->loss, r, f->d_pivot, v->s->stream, err));
done:
    return rc;
}

/* Systems by a product for each group. That of one group, of all columns, is like any other product
 * of rows with H: by halves where the factor has them. */
static sw_code make_systems(const sw_solve *v, int64_t row0, int64_t n, sw_err *err)
{
    const solve_rows *r = &v->r;
    const double *h = v->p->factor->d_h;
    sw_code rc = SW_OK;

    if (r->n_groups == 1 && n == r->n) {
        TRY(sw_solve_times_h(v, r->work, r->error, err));
        return sw_rows_system(r, 0, row0, n, v->s->stream, err);
    }
    for (int64_t g = 0; g < r->n_groups; g++) {
        int64_t from = g * r->group_elems, end = sw_min_i64(from + r->group_elems, r->k);
        TRY(sw_solver_dgemm(v->s, r->work + row0 * r->k, r->k, r->error + row0 * r->k + from,
                            r->k, h + from * r->k, r->k, n, end, end - from, 1.0, 0.0, err));
        TRY(sw_rows_system(r, g, row0, n, v->s->stream, err));
    }
done:
    return rc;
}

/* By the kernel that makes all of them, whose tiles fit into the shared memory of sm_90. */
static bool has_whole_groups(const sw_solve *v)
{
    return v->halves.d && v->r.group_elems == SW_SYSTEM_GROUP && v->r.k % SW_SYSTEM_GROUP == 0 &&
           sw_device_about(v->s->gpu)->arch >= 90;
}

/* A Cholesky of each of n systems, as many in a call as products have rows. */
static sw_code solve_all(const sw_solve *v, int64_t n, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_solver *s = v->s;
    const int n_g = (int)r->n_groups;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n; i += SW_SOLVER_PRODUCT_ROWS) {
        const int some = (int)sw_min_i64(SW_SOLVER_PRODUCT_ROWS, n - i);

        LIB(s->libs.cusolverDnDpotrfBatched_fn(s->lapack, CUBLAS_FILL_MODE_UPPER, n_g,
                                               r->system_at + i, n_g, r->info + i, some));
        LIB(s->libs.cusolverDnDpotrsBatched_fn(s->lapack, CUBLAS_FILL_MODE_UPPER, n_g, 1,
                                               r->system_at + i, n_g, r->rhs_at + i, n_g,
                                               s->d_info, some));
    }
done:
    return rc;
}

/* Systems of a range of rows: products first, then a Cholesky of each. */
static sw_code solve_systems(const sw_solve *v, int64_t row0, int64_t n, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_solver *s = v->s;
    sw_code rc;

    if (has_whole_groups(v))
        TRY(sw_rows_systems(r, v->halves.d, v->p->factor->d_h_halves, row0, n, s->stream, err));
    else
        TRY(make_systems(v, row0, n, err));
    TRY(sw_rows_ridge(r, row0, n, s->stream, err));
    TRY(solve_all(v, n, err));
    TRY(sw_rows_take_scales(r, &v->shape, row0, n, s->stream, err));
done:
    return rc;
}

/* As refine.c has it. */
static bool has_free_scales(const sw_solve *v)
{
    if (v->p->spec.is_pow2_scale || v->d_shared || v->shape.steps_scales) return false;
    return !v->shape.is_small || v->r.n_groups <= FLOAT_GROUPS_MAX;
}

static sw_code fit_all_scales(const sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc = has_whole_groups(v)
                     ? sw_rows_levels(v->halves.d, r, &v->shape, v->s->stream, err)
                     : sw_rows_error(r, &v->shape, true, v->s->stream, err);

    for (int64_t row = 0; row < r->n && rc == SW_OK; row += r->system_rows)
        rc = solve_systems(v, row, sw_min_i64(r->system_rows, r->n - row), err);
    return rc;
}

/* Columns [begin, end), whose slopes are those of the present errors. */
static sw_code descend_wide(const sw_solve *v, int64_t begin, int64_t end, sw_err *err)
{
    const solve_rows *r = &v->r;
    const double *h = v->p->factor->d_h;
    sw_code rc = SW_OK;

    for (int64_t b = begin; b < end; b += COLS) {
        int64_t next = sw_min_i64(b + COLS, end);
        TRY(sw_rows_descend(r, h, &v->shape, b, next, v->s->stream, err));
        TRY(sw_rows_error_of(r, &v->shape, b, next, v->s->stream, err));
        TRY(sw_solver_dgemm(v->s, r->slope + next, r->k, r->block, COLS, h + b * r->k + next, r->k,
                            r->n, end - next, next - b, 1.0, 1.0, err));
    }
done:
    return rc;
}

/* A sweep of coordinate descent. The last one keeps what columns further left, which have moved
 * for the last time, bring to the slopes: it is half of the loss. */
static sw_code descend_once(const sw_solve *v, bool is_last, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc = SW_OK;

    for (int64_t b = 0; b < r->k; b += SW_SOLVE_WIDE) {
        int64_t end = sw_min_i64(b + SW_SOLVE_WIDE, r->k), from = is_last ? b : 0;
        const solve_product right = {.out = r->slope, .in = r->error, .from = from, .to = r->k,
                                     .begin = b, .end = end, .alpha = 1.0,
                                     .beta = from > 0 ? 1.0 : 0.0};
        if (from > 0) {
            TRY(sw_solve_times_left(v, r->work, r->error, b, end, err));
            CUDA(cudaMemcpy2DAsync(r->slope + b, (size_t)r->k * sizeof *r->slope, r->work + b,
                                   (size_t)r->k * sizeof *r->work,
                                   (size_t)(end - b) * sizeof *r->work, (size_t)r->n,
                                   cudaMemcpyDeviceToDevice, v->s->stream));
        }
        TRY(sw_solve_times(v, &right, err));
        TRY(descend_wide(v, b, end, err));
        TRY(sw_solve_halve(v, r->error, b, end, err));
        if (is_last) TRY(sw_solve_times_corner(v, r->work, r->error, b, end, err));
    }
done:
    return rc;
}

/* Coordinate descent, and what its codes cost. */
static sw_code descend(const sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_error(r, &v->shape, false, v->s->stream, err));
    TRY(sw_solve_halve(v, r->error, 0, r->k, err));
    for (int sweep_no = 0; sweep_no < SWEEPS_PER_ROUND; sweep_no++)
        TRY(descend_once(v, sweep_no + 1 == SWEEPS_PER_ROUND, err));
    TRY(sw_rows_dot(r->new_loss, r->error, r->work, r->n, r->k, v->s->stream, err));
done:
    return rc;
}

static sw_code refine(sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    size_t n_codes = (size_t)(r->n * r->k), n_scales = (size_t)(r->n * r->n_groups) * 4;
    cudaStream_t stream = v->s->stream;
    sw_code rc = SW_OK;

    if (v->p->refine_rounds <= 0) return SW_OK;
    CUDA(cudaMemsetAsync(r->is_settled, 0, (size_t)sw_ceil_div(r->n, 64) * 4, stream));
    for (int round = 0; round < v->p->refine_rounds; round++) {
        CUDA(cudaMemcpyAsync(r->old_codes, r->codes, n_codes, cudaMemcpyDeviceToDevice, stream));
        CUDA(cudaMemcpyAsync(r->old_scales, r->scales, n_scales, cudaMemcpyDeviceToDevice,
                             stream));
        if (has_free_scales(v)) TRY(fit_all_scales(v, err));
        TRY(descend(v, err));
        TRY(sw_rows_accept(r, stream, err));
    }
    TRY(sw_solve_count(v, SW_STAGE_REFINE, err));
done:
    return rc;
}

/* What the shift adds to H times the target. */
static sw_code lift_aim(const sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    const solve_product product = {.out = r->lift, .in = r->shift, .to = r->k, .end = r->k,
                                   .alpha = 1.0 / r->global};
    sw_code rc;

    TRY(sw_solve_halve(v, r->shift, 0, r->k, err));
    TRY(sw_solve_times(v, &product, err));
    TRY(sw_solver_axpy(v->s, r->aim, 1.0, r->lift, r->n * r->k, err));
done:
    return rc;
}

sw_code sw_solve_gptq_rows(sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_target(r, true, v->s->stream, err));
    TRY(sw_solve_fit(v, v->d_weight, err));
    TRY(sw_solve_count(v, SW_STAGE_FIT, err));
    TRY(sweep(v, err));
    if (r->shift) TRY(lift_aim(v, err));
    TRY(refine(v, err));
done:
    return rc;
}
