/* solver_gptq.c - GPTQ with refinement, on the rows of a chunk. See solver_solve.cuh. */
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

static sw_code sweep(sw_solve *v, sw_err *err)
{
    const sw_device_factor *f = v->p->factor;
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_permute(r, f->d_perm, v->s->stream, err));
    for (int64_t b = 0; b < r->k; b += COLS) {
        int64_t end = sw_min_i64(b + COLS, r->k);
        TRY(sweep_block(v, b, end, err));
        TRY(sw_solver_dgemm(v->s, r->work + end, r->k, r->block, COLS, f->d_u + b * r->k + end,
                            r->k, r->n, r->k - end, end - b, -1.0, 1.0, err));
        TRY(sw_solve_count(v, SW_STAGE_UPDATE, err));
    }
done:
    return rc;
}

/* Systems of a range of rows: products first, then a Cholesky of each. */
static sw_code solve_systems(const sw_solve *v, int64_t row0, int64_t n, sw_err *err)
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

/* As refine.c has it. */
static bool has_free_scales(const sw_solve *v)
{
    if (v->p->spec.is_pow2_scale || v->d_shared) return false;
    return !v->shape.is_small || v->r.n_groups <= FLOAT_GROUPS_MAX;
}

static sw_code fit_all_scales(const sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc = sw_rows_error(r, &v->shape, true, v->s->stream, err);

    for (int64_t row = 0; row < r->n && rc == SW_OK; row += r->system_rows)
        rc = solve_systems(v, row, sw_min_i64(r->system_rows, r->n - row), err);
    return rc;
}

/* Coordinate descent; the slopes stay those of the codes, so the losses come with them. */
static sw_code descend(const sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    const double *h = v->p->factor->d_h;
    cudaStream_t stream = v->s->stream;
    sw_code rc;

    TRY(sw_rows_error(r, &v->shape, false, stream, err));
    TRY(sw_solve_times_h(v, r->slope, r->error, err));
    for (int sweep_no = 0; sweep_no < SWEEPS_PER_ROUND; sweep_no++)
        for (int64_t b = 0; b < r->k; b += COLS) {
            int64_t end = sw_min_i64(b + COLS, r->k);
            TRY(sw_rows_descend(r, h, &v->shape, b, end, stream, err));
            TRY(sw_solver_dgemm(v->s, r->slope, r->k, r->block, COLS, h + b * r->k, r->k, r->n,
                                r->k, end - b, 1.0, 1.0, err));
        }
    TRY(sw_rows_error(r, &v->shape, false, stream, err));
    TRY(sw_rows_dot(r->new_loss, r->error, r->slope, r->n, r->k, stream, err));
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
    TRY(sw_solve_losses(v, r->loss, err));
    if (v->p->d_shift) TRY(sw_solve_times_h(v, r->aim, r->target, err));
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

sw_code sw_solve_gptq_rows(sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    sw_code rc;

    TRY(sw_rows_target(r, true, v->s->stream, err));
    TRY(sw_solve_fit(v, v->d_weight, err));
    TRY(sw_solve_count(v, SW_STAGE_FIT, err));
    TRY(sweep(v, err));
    TRY(refine(v, err));
    if (!v->p->d_shift && v->p->refine_rounds > 0) return SW_OK; /* refine left the loss */
    /* the figure is against the original weight on these inputs, whatever the target was */
    TRY(sw_rows_target(r, false, v->s->stream, err));
    TRY(sw_solve_losses(v, r->loss, err));
    TRY(sw_solve_count(v, SW_STAGE_LOSS, err));
done:
    return rc;
}
