/* solver_clip.c - ranges cut by search, on the rows of a chunk. See solver_solve.cuh. */
#include "formats/base/size.h"
#include "kernels/cuda/solver/solver_solve.cuh"

#define STEP_FIRST 0.80 /* as clip.c of quant/ has them */
#define STEP_LAST 1.24
#define N_STEPS 12
#define GROUP_ELEMS_MAX 256

static bool has_search(const sw_solve *v)
{
    return v->r.group_elems <= GROUP_ELEMS_MAX && !v->d_shared;
}

sw_code sw_solve_clip_take(sw_solve *v, int64_t n_rows, sw_err *err)
{
    int64_t n = n_rows * v->r.n_groups;
    clip_best *b = &v->best;
    sw_code rc = SW_OK;

    if (!has_search(v)) return SW_OK;
    TRY(SW_SOLVER_TAKE(&b->fit, v->s, n, "fitted scales", err));
    TRY(SW_SOLVER_TAKE(&b->fit_zeros, v->s, n, "fitted scales", err));
    TRY(SW_SOLVER_TAKE(&b->scales, v->s, n, "best scales", err));
    TRY(SW_SOLVER_TAKE(&b->zeros, v->s, n, "best scales", err));
    TRY(SW_SOLVER_TAKE(&b->loss, v->s, n, "best losses", err));
done:
    return rc;
}

/* slope = error H within every group, by the group's corner of H: a batch of groups for each piece
 * of the rows (solver_product.cuh). */
static sw_code times_corners(const sw_solve *v, sw_err *err)
{
    const double one = 1.0, zero = 0.0, *h = v->p->factor->d_h;
    const solve_rows *r = &v->r;
    int64_t gs = r->group_elems, k = r->k, n_whole = k / gs, at = n_whole * gs;
    sw_solver *s = v->s;
    sw_code rc = SW_OK;

    for (int64_t row = 0; row < r->n && n_whole > 0; row += SW_SOLVER_PRODUCT_ROWS)
        LIB(s->libs.cublasDgemmStridedBatched_64_fn(
            s->blas, CUBLAS_OP_N, CUBLAS_OP_N, gs,
            sw_min_i64(SW_SOLVER_PRODUCT_ROWS, r->n - row), gs, &one, h, k, gs * (k + 1),
            r->error + row * k, k, gs, &zero, r->slope + row * k, k, gs, n_whole));
    if (at < k)
        TRY(sw_solver_dgemm(s, r->slope + at, k, r->error + at, k, h + at * (k + 1), k, r->n,
                            k - at, k - at, 1.0, 0.0, err));
done:
    return rc;
}

/* What the present scales cost each group; kept where that is less than anything before. */
static sw_code try_scales(const sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    cudaStream_t stream = v->s->stream;
    sw_code rc;

    TRY(sw_rows_round(r, &v->shape, stream, err));
    TRY(sw_rows_error(r, &v->shape, false, stream, err));
    TRY(times_corners(v, err));
    TRY(sw_rows_keep_clip(r, &v->best, stream, err));
done:
    return rc;
}

static sw_code copy_scales(const sw_solve *v, float *d_scales, float *d_zeros,
                           const float *d_from_scales, const float *d_from_zeros, sw_err *err)
{
    int64_t n_bytes = v->r.n * v->r.n_groups * (int64_t)sizeof(float);
    sw_code rc = sw_solver_copy(v->s, d_scales, d_from_scales, n_bytes, err);

    return rc == SW_OK ? sw_solver_copy(v->s, d_zeros, d_from_zeros, n_bytes, err) : rc;
}

static sw_code search(sw_solve *v, sw_err *err)
{
    const solve_rows *r = &v->r;
    clip_best *b = &v->best;
    sw_code rc;

    TRY(sw_solve_fit(v, v->d_weight, err));
    TRY(copy_scales(v, b->fit, b->fit_zeros, r->scales, r->zeros, err));
    TRY(sw_solve_fit(v, NULL, err));
    if (v->shape.is_range_final) return SW_OK; /* the range decides */
    TRY(sw_solver_fill(v->s, b->loss, (double)INFINITY, r->n * r->n_groups, err));
    TRY(try_scales(v, err));
    for (int i = 0; i < N_STEPS; i++) {
        double step = STEP_FIRST + (STEP_LAST - STEP_FIRST) * i / (double)(N_STEPS - 1);
        TRY(sw_rows_clip(r, b, step, &v->shape, v->s->stream, err));
        TRY(try_scales(v, err));
    }
    TRY(copy_scales(v, r->scales, r->zeros, b->scales, b->zeros, err));
done:
    return rc;
}

sw_code sw_solve_clip_rows(sw_solve *v, sw_err *err)
{
    sw_code rc = has_search(v) ? search(v, err) : sw_solve_fit(v, v->d_weight, err);

    if (rc != SW_OK) return rc;
    TRY(sw_solve_count(v, SW_STAGE_FIT, err));
    TRY(sw_rows_round(&v->r, &v->shape, v->s->stream, err));
    TRY(sw_solve_losses(v, v->r.loss, err));
    TRY(sw_solve_count(v, SW_STAGE_LOSS, err));
done:
    return rc;
}
