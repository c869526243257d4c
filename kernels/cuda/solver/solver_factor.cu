/* solver_factor.cu - the damped Hessian's inverse factor. See quant/method/factor.h for the method
 * and kernels/solver.h.
 */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cuda/solver/solver_math.cuh"
#include "kernels/solver_sizes.h"

/* 256 threads an element each. */
__global__ void swk_factor_diagonal(double *h, const double *diagonal, double lambda, int64_t k)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (i < k) h[i * k + i] = add(diagonal ? diagonal[i] : h[i * k + i], lambda);
}

extern "C" sw_code sw_device_factor_new(sw_device_factor *out, sw_solver *s, const double *d_h,
                                        const double *diagonal, const int32_t *perm, int64_t k,
                                        sw_err *err)
{
    sw_device_factor f = {};
    sw_code rc;

    f.k_in = k;
    TRY(SW_SOLVER_TAKE(&f.d_perm, s, k, "column order", err));
    TRY(SW_SOLVER_TAKE(&f.d_pivot, s, k, "pivots", err));
    TRY(SW_SOLVER_TAKE(&f.d_h, s, k * k, "damped Hessian", err));
    TRY(SW_SOLVER_TAKE(&f.d_u, s, k * k, "inverse factor", err));
    TRY(sw_device_upload(s->gpu, f.d_perm, perm, k * (int64_t)sizeof *perm, err));
    TRY(sw_device_upload(s->gpu, f.d_pivot, diagonal, k * (int64_t)sizeof *diagonal, err));
    CUDA(cudaMemcpyAsync(f.d_h, d_h, (size_t)(k * k) * sizeof *d_h, cudaMemcpyDeviceToDevice,
                         s->stream));
    swk_factor_diagonal<<<blocks_for(k, 256), 256, 0, s->stream>>>(f.d_h, f.d_pivot, 0.0, k);
    TRY(launched("swk_factor_diagonal", err));
    TRY(sw_device_sync(s->gpu, err)); /* perm and diagonal are the caller's */
    *out = f;
    return SW_OK;
done:
    sw_device_factor_free(&f, s);
    return rc;
}

extern "C" void sw_device_factor_free(sw_device_factor *f, sw_solver *s)
{
    sw_device_put(s->gpu, f->d_perm);
    sw_device_put(s->gpu, f->d_pivot);
    sw_device_put(s->gpu, f->d_h);
    sw_device_put(s->gpu, f->d_u);
    sw_device_put(s->gpu, f->d_h_halves);
    sw_device_put(s->gpu, f->d_u_halves);
    memset(f, 0, sizeof *f);
}

/* grid (rows, columns / 256), 256 threads: u = reversed and permuted H, lambda on the diagonal; its
 * upper triangle is 0. */
__global__ void swk_factor_reverse(double *u, const double *h, const int32_t *perm, double lambda,
                                   int64_t k)
{
    int64_t i = blockIdx.x, j = (int64_t)blockIdx.y * 256 + threadIdx.x;

    if (j >= k) return;
    if (j > i) {
        u[i * k + j] = 0.0;
        return;
    }
    double v = h[(int64_t)perm[k - 1 - i] * k + perm[k - 1 - j]];
    u[i * k + j] = i == j ? add(v, lambda) : v;
}

/* grid (rows, columns / 256), 256 threads: zeros above the diagonal. */
__global__ void swk_factor_clear(double *u, int64_t k)
{
    int64_t i = blockIdx.x, j = (int64_t)blockIdx.y * 256 + threadIdx.x;

    if (j < k && j > i) u[i * k + j] = 0.0;
}

static sw_code info_of(int *info, sw_solver *s, sw_err *err)
{
    return sw_device_download(s->gpu, info, s->d_info, sizeof *info, err);
}

extern "C" sw_code sw_device_factor_try(bool *is_definite, sw_device_factor *f, sw_solver *s,
                                        double lambda, sw_err *err)
{
    int64_t k = f->k_in;
    size_t n_bytes = 0, n_host_bytes = 0;
    void *d_work = NULL, *work = NULL;
    int info = 0;
    sw_code rc;

    swk_factor_reverse<<<dim3((unsigned)k, blocks_for(k, 256)), 256, 0, s->stream>>>(
        f->d_u, f->d_h, f->d_perm, lambda, k);
    TRY(launched("swk_factor_reverse", err));
    /* lower by rows is upper by columns */
    LIB(s->libs.cusolverDnXpotrf_bufferSize_fn(s->lapack, s->params, CUBLAS_FILL_MODE_UPPER, k,
                                               CUDA_R_64F, f->d_u, k, CUDA_R_64F, &n_bytes,
                                               &n_host_bytes));
    TRY(sw_device_take(&d_work, s->gpu, (int64_t)n_bytes, 1, "Cholesky", err));
    TRY(sw_mem_get(&work, (int64_t)n_host_bytes, 1, "Cholesky", err));
    LIB(s->libs.cusolverDnXpotrf_fn(s->lapack, s->params, CUBLAS_FILL_MODE_UPPER, k, CUDA_R_64F,
                                    f->d_u, k, CUDA_R_64F, d_work, n_bytes, work, n_host_bytes,
                                    s->d_info));
    TRY(info_of(&info, s, err));
    *is_definite = info == 0;
done:
    sw_device_put(s->gpu, d_work);
    sw_mem_put(work);
    return rc;
}

#define BASE SW_FACTOR_BASE
#define JOINED 1024 /* columns, or rows, of a product of blocks: what meets nothing but zeros in all
                       of them is left out */

/* grid (blocks), 32 threads: a diagonal block of a lower matrix becomes its inverse, a thread a
 * column. *info = 1 where there is a zero on the diagonal. */
__global__ void swk_factor_invert(double *l, int *info, int64_t k)
{
    __shared__ double s_l[BASE][BASE + 1], s_x[BASE][BASE + 1];
    int64_t at = (int64_t)blockIdx.x * BASE * (k + 1);
    int n = (int)(k - (int64_t)blockIdx.x * BASE < BASE ? k - (int64_t)blockIdx.x * BASE : BASE);
    int j = threadIdx.x;

    for (int i = 0; i < n; i++)
        if (j < n) s_l[i][j] = l[at + i * k + j];
    __syncwarp();
    if (j >= n) return;
    for (int i = 0; i < n; i++) {
        double sum = i == j ? 1.0 : 0.0;
        for (int m = j; m < i; m++) sum -= s_l[i][m] * s_x[m][j];
        if (s_l[i][i] == 0.0) *info = 1;
        s_x[i][j] = i < j ? 0.0 : sum / s_l[i][i];
    }
    for (int i = 0; i < n; i++) l[at + i * k + j] = s_x[i][j];
}

/* For `n` pairs of neighbouring inverted blocks, A of `width` rows and C of n_below,
 * with B below A: B <- -C B A, so that each pair is one inverted block. */
static sw_code join_pairs(sw_solver *s, double *d_l, double *d_scratch, int64_t k, int64_t first,
                          int64_t n, int64_t width, int64_t n_below, sw_err *err)
{
    const double one = 1.0, minus = -1.0, zero = 0.0;
    int64_t step = 2 * width * (k + 1), scratch_step = n_below * width;
    double *d_a = d_l + first * (k + 1), *d_b = d_a + width * k, *d_c = d_b + width;
    sw_code rc = SW_OK;

    if (n <= 0 || n_below <= 0) return SW_OK;
    for (int64_t j = 0; j < width; j += JOINED) /* columns of A are zero above their diagonal */
        LIB(s->libs.cublasDgemmStridedBatched_64_fn(
            s->blas, CUBLAS_OP_N, CUBLAS_OP_N, sw_min_i64(JOINED, width - j), n_below, width - j,
            &one, d_a + j * (k + 1), k, step, d_b + j, k, step, &zero, d_scratch + j, width,
            scratch_step, n));
    for (int64_t i = 0; i < n_below; i += JOINED) { /* rows of C behind it */
        const int64_t rows = sw_min_i64(JOINED, n_below - i);

        LIB(s->libs.cublasDgemmStridedBatched_64_fn(
            s->blas, CUBLAS_OP_N, CUBLAS_OP_N, width, rows, i + rows, &minus, d_scratch, width,
            scratch_step, d_c + i * k, k, step, &zero, d_b + i * k, k, step, n));
    }
done:
    return rc;
}

/* d_u, lower by rows with zeros above, becomes its inverse: small blocks first, then pairs of
 * blocks twice as large each time, all products. cuSOLVER's takes four times as long. */
static sw_code invert(sw_device_factor *f, sw_solver *s, sw_err *err)
{
    int64_t k = f->k_in;
    double *d_scratch = NULL;
    int info = 0;
    sw_code rc;

    TRY(SW_SOLVER_TAKE(&d_scratch, s, sw_factor_scratch_elems(k), "inverse", err));
    TRY(sw_device_fill(s->gpu, s->d_info, 0, sizeof info, err));
    swk_factor_clear<<<dim3((unsigned)k, blocks_for(k, 256)), 256, 0, s->stream>>>(f->d_u, k);
    TRY(launched("swk_factor_clear", err));
    swk_factor_invert<<<blocks_for(k, BASE), BASE, 0, s->stream>>>(f->d_u, s->d_info, k);
    TRY(launched("swk_factor_invert", err));
    for (int64_t width = BASE; width < k; width *= 2) {
        int64_t n = k / (2 * width), rest = k - n * 2 * width;
        TRY(join_pairs(s, f->d_u, d_scratch, k, 0, n, width, width, err));
        TRY(join_pairs(s, f->d_u, d_scratch, k, n * 2 * width, 1, width, rest - width, err));
    }
    TRY(info_of(&info, s, err));
    if (info != 0)
        rc = SW_FAIL(err, SW_E_FORMAT, "the Hessian's factor has a zero on its diagonal");
done:
    sw_device_put(s->gpu, d_scratch);
    return rc;
}

/* Any grid, 256 threads: rotate by half a turn, (i, j) <-> (k-1-i, k-1-j). */
__global__ void swk_factor_rotate(double *u, int64_t k)
{
    int64_t n = k * k;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n / 2;
         i += (int64_t)gridDim.x * blockDim.x) {
        double a = u[i], b = u[n - 1 - i];
        u[i] = b;
        u[n - 1 - i] = a;
    }
}

/* grid (rows, columns / 256), 256 threads: rows to a unit diagonal, zeros below. `unit` is the
 * diagonal as it was. */
__global__ void swk_factor_unit(double *u, const double *unit, int64_t k)
{
    int64_t i = blockIdx.x, j = (int64_t)blockIdx.y * 256 + threadIdx.x;

    if (j < k) u[i * k + j] = j < i ? 0.0 : __ddiv_rn(u[i * k + j], unit[i]);
}

/* 256 threads an element each: pivot = 1 / unit^2. */
__global__ void swk_factor_pivots(double *pivot, int64_t k)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (i < k) pivot[i] = __ddiv_rn(1.0, mul(pivot[i], pivot[i]));
}

/* 256 threads an element each. */
__global__ void swk_factor_units(double *unit, const double *u, int64_t k)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (i < k) unit[i] = u[i * k + i];
}

/* *out [2, k, k]: the halves of a matrix of the factor. */
static sw_code halve(uint16_t **out, sw_solver *s, const double *d_m, int64_t k, sw_err *err)
{
    sw_halves h = {*out, k, k * k};
    sw_code rc = SW_OK;

    if (!h.d) TRY(sw_halves_new(&h, s, k, k, err));
    *out = h.d;
    TRY(sw_solver_halve(s, &h, d_m, k, k, 0, k, err));
done:
    return rc;
}

extern "C" sw_code sw_device_factor_finish(sw_device_factor *f, sw_solver *s, double lambda,
                                           sw_err *err)
{
    int64_t k = f->k_in;
    unsigned n_blocks = blocks_for(k, 256);
    sw_code rc;

    TRY(invert(f, s, err));
    swk_factor_rotate<<<blocks_for(k * k / 2, 256 * 8), 256, 0, s->stream>>>(f->d_u, k);
    TRY(launched("swk_factor_rotate", err));
    swk_factor_units<<<n_blocks, 256, 0, s->stream>>>(f->d_pivot, f->d_u, k);
    TRY(launched("swk_factor_units", err));
    swk_factor_unit<<<dim3((unsigned)k, n_blocks), 256, 0, s->stream>>>(f->d_u, f->d_pivot, k);
    TRY(launched("swk_factor_unit", err));
    swk_factor_pivots<<<n_blocks, 256, 0, s->stream>>>(f->d_pivot, k);
    TRY(launched("swk_factor_pivots", err));
    swk_factor_diagonal<<<n_blocks, 256, 0, s->stream>>>(f->d_h, NULL, lambda, k);
    TRY(launched("swk_factor_diagonal", err));
    if (!sw_solver_splits(k)) return SW_OK;
    TRY(halve(&f->d_h_halves, s, f->d_h, k, err));
    TRY(halve(&f->d_u_halves, s, f->d_u, k, err));
done:
    return rc;
}
