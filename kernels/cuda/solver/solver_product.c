/* solver_product.c - see solver_product.cuh. */
#include "kernels/cuda/solver/solver_product.cuh"

#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"
#include "kernels/cuda/gemm/cublaslt/cublaslt.h"
#include "kernels/cuda/gemm/cublaslt/cublaslt_matrices.h"
#include "kernels/solver_sizes.h"

#define N_PLANS 256 /* a width of weights has about 40 */
#define PIECE SW_SOLVER_PRODUCT_ROWS
/* Whole pieces that an algorithm is chosen for: what each of two devices has where one has all that
 * are worked on at a time. */
#define PLANNED_PIECES (SW_SOLVER_ROWS / 2 / PIECE)
#define PIECES_MAX (2 * SW_SOLVER_ROWS / PIECE) /* of both halves of a chunk of rows */
#define ALIGN_MAX 16u /* bytes; what pieces and columns of a matrix have in common */

_Static_assert(SW_SOLVER_ROWS % (2 * PIECE) == 0, "halves of the rows at a time are whole pieces");

/* Pieces, so many elements apart. */
typedef struct pieces {
    int64_t n, a_step, c_step;
} pieces;

/* The shape of a piece, and how to compute it. */
typedef struct plan {
    sw_row_product shape; /* without pointers and factors */
    char name[80];        /* in messages */
    cublasLtMatmulDesc_t product;
    sw_cublaslt_matrices of;
    cublasLtMatmulAlgo_t algo;
    pieces laid_out; /* what the layouts say */
    int64_t n_most;  /* pieces that one call may have */
    bool is_set, is_loaded; /* loaded: it has run */
} plan;

struct sw_products {
    sw_cublaslt_library lib;
    cublasLtHandle_t handle; /* of the process */
    plan plans[N_PLANS];
    int n_next; /* the plan to give up next */
};

#define LT(call) TRY(sw_cublaslt_check((call), #call, err))

sw_code sw_products_open(sw_products **out, sw_err *err)
{
    sw_products *p = NULL;
    sw_code rc = SW_MEM_GET(&p, 1, "products of rows", err);

    if (rc != SW_OK) return rc;
    if ((rc = sw_cublaslt_library_open(&p->lib, err)) != SW_OK ||
        (rc = sw_cublaslt_library_handle(&p->handle, &p->lib, err)) != SW_OK)
        sw_products_close(p);
    else
        *out = p;
    return rc;
}

static void drop_plan(sw_products *p, plan *one)
{
    sw_cublaslt_matrices_drop(&one->of, &p->lib);
    if (one->product) (void)p->lib.cublasLtMatmulDescDestroy_at(one->product);
    memset(one, 0, sizeof *one);
}

void sw_products_close(sw_products *p)
{
    if (!p) return;
    for (int i = 0; i < N_PLANS; i++) drop_plan(p, &p->plans[i]);
    sw_cublaslt_library_close(&p->lib);
    sw_mem_put(p);
}

static uint32_t alignment(const void *d)
{
    const uint32_t align = sw_cublaslt_alignment(d);

    return align < ALIGN_MAX ? align : ALIGN_MAX;
}

static bool is_same(const plan *one, const sw_row_product *q, const uint32_t align[3])
{
    const sw_row_product *s = &one->shape;

    return one->is_set && s->k == q->k && s->n == q->n && s->m == q->m && s->lda == q->lda &&
           s->ldb == q->ldb && s->ldc == q->ldc && s->is_bf16 == q->is_bf16 &&
           s->is_b_turned == q->is_b_turned &&
           !memcmp(one->of.align, align, sizeof one->of.align);
}

/* The library is column-major: to it the product is that of the transposes in the other order, B
 * [n, k], A [k, m] and C [n, m]. */
static sw_code new_matrices(plan *one, const sw_cublaslt_library *lib, const sw_row_product *q,
                            sw_err *err)
{
    const cudaDataType_t in = q->is_bf16 ? CUDA_R_16BF : CUDA_R_64F;
    const cudaDataType_t out = q->is_bf16 ? CUDA_R_32F : CUDA_R_64F;
    const cublasOperation_t turned = CUBLAS_OP_T;
    const uint64_t m = (uint64_t)q->m, n = (uint64_t)q->n, k = (uint64_t)q->k;
    sw_code rc;

    LT(lib->cublasLtMatmulDescCreate_at(
        &one->product, q->is_bf16 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F, out));
    if (q->is_b_turned)
        LT(lib->cublasLtMatmulDescSetAttribute_at(one->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &turned, sizeof turned));
    LT(lib->cublasLtMatrixLayoutCreate_at(&one->of.w, in, q->is_b_turned ? k : n,
                                          q->is_b_turned ? n : k, q->ldb));
    LT(lib->cublasLtMatrixLayoutCreate_at(&one->of.x, in, k, m, q->lda));
    LT(lib->cublasLtMatrixLayoutCreate_at(&one->of.y, out, n, m, q->ldc));
done:
    return rc;
}

/* B is the same for all pieces. */
static sw_code lay_out(plan *one, const sw_cublaslt_library *lib, pieces p, sw_err *err)
{
    const struct {
        cublasLtMatrixLayout_t layout;
        int64_t step;
    } matrices[] = {{one->of.w, 0}, {one->of.x, p.a_step}, {one->of.y, p.c_step}};
    const int32_t n = (int32_t)p.n;
    sw_code rc = SW_OK;

    if (!memcmp(&p, &one->laid_out, sizeof p)) return SW_OK;
    one->laid_out = (pieces){0, 0, 0};
    for (int i = 0; i < 3; i++) {
        LT(lib->cublasLtMatrixLayoutSetAttribute_at(
            matrices[i].layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n));
        LT(lib->cublasLtMatrixLayoutSetAttribute_at(
            matrices[i].layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrices[i].step,
            sizeof matrices[i].step));
    }
    one->laid_out = p;
done:
    return rc;
}

/* Does the algorithm take all pieces of a chunk, in the workspace that there is? */
static sw_code takes_all(bool *out, plan *one, const sw_products *p, sw_err *err)
{
    const pieces all = {PIECES_MAX, PIECE * one->shape.lda, PIECE * one->shape.ldc};
    cublasLtMatmulHeuristicResult_t answer;
    sw_code rc = lay_out(one, &p->lib, all, err);

    if (rc != SW_OK) return rc;
    *out = p->lib.cublasLtMatmulAlgoCheck_at(p->handle, one->product, one->of.w, one->of.x,
                                             one->of.y, one->of.y, &one->algo,
                                             &answer) == CUBLAS_STATUS_SUCCESS &&
           answer.state == CUBLAS_STATUS_SUCCESS &&
           (int64_t)answer.workspaceSize <= SW_SOLVER_BLAS_BYTES;
    return SW_OK;
}

/* An algorithm for a number of pieces that the shape alone decides; where there is none, for one.
 */
static sw_code choose(plan *one, const sw_products *p, sw_err *err)
{
    const sw_row_product *s = &one->shape;
    pieces planned = {s->m == PIECE ? PLANNED_PIECES : 1, PIECE * s->lda, PIECE * s->ldc};
    bool takes = false;
    sw_err none = {0};
    sw_code rc;

    if (s->is_bf16) planned.n *= 2;
    TRY(lay_out(one, &p->lib, planned, err));
    rc = sw_cublaslt_choose(&one->algo, &p->lib, p->handle, one->product, &one->of,
                            SW_SOLVER_BLAS_BYTES, one->name, &none);
    if (rc != SW_OK) {
        planned.n = 1;
        TRY(lay_out(one, &p->lib, planned, err));
        TRY(sw_cublaslt_choose(&one->algo, &p->lib, p->handle, one->product, &one->of,
                               SW_SOLVER_BLAS_BYTES, one->name, err));
    }
    if (planned.n > 1 && s->m == PIECE) TRY(takes_all(&takes, one, p, err));
    one->n_most = takes ? PIECES_MAX : planned.n;
done:
    return rc;
}

/* NULL: there is none yet. */
static plan *known_plan(sw_products *p, const sw_row_product *q)
{
    const uint32_t align[3] = {alignment(q->d_b), alignment(q->d_a), alignment(q->d_c)};

    for (int i = 0; i < N_PLANS; i++)
        if (is_same(&p->plans[i], q, align)) return &p->plans[i];
    return NULL;
}

static sw_code new_plan(plan **out, sw_products *p, const sw_row_product *q, sw_err *err)
{
    plan *one = &p->plans[p->n_next];
    sw_code rc;

    drop_plan(p, one);
    one->shape = *q;
    one->of.align[0] = alignment(q->d_b);
    one->of.align[1] = alignment(q->d_a);
    one->of.align[2] = alignment(q->d_c);
    (void)snprintf(one->name, sizeof one->name, "product of %lld x %lld x %lld", (long long)q->m,
                   (long long)q->n, (long long)q->k);
    if ((rc = new_matrices(one, &p->lib, q, err)) != SW_OK ||
        (rc = choose(one, p, err)) != SW_OK) {
        drop_plan(p, one);
        return rc;
    }
    one->is_set = true;
    p->n_next = (p->n_next + 1) % N_PLANS;
    *out = one;
    return SW_OK;
}

static const void *at(const void *d, int64_t elems, int64_t elem_bytes)
{
    return (const char *)d + elems * elem_bytes;
}

/* Of pieces beside each other some, as many as one call may have. */
static sw_code run_some(sw_solver *s, plan *one, const sw_row_product *q, pieces some, sw_err *err)
{
    const sw_products *p = s->products;
    const float alpha = (float)q->alpha, beta = (float)q->beta;
    const void *scales[] = {q->is_bf16 ? (const void *)&alpha : &q->alpha,
                            q->is_bf16 ? (const void *)&beta : &q->beta};
    const sw_code rc = lay_out(one, &p->lib, some, err);

    if (rc != SW_OK) return rc;
    return sw_cublaslt_check(
        p->lib.cublasLtMatmul_at(p->handle, one->product, scales[0], q->d_b, one->of.w, q->d_a,
                                 one->of.x, scales[1], q->d_c, one->of.y, q->d_c, one->of.y,
                                 &one->algo, s->d_blas_work, (size_t)SW_SOLVER_BLAS_BYTES,
                                 s->stream),
        one->name, err);
}

static sw_code run_all(sw_solver *s, plan *one, const sw_row_product *q, pieces all, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; rc == SW_OK && i < all.n; i += one->n_most) {
        const pieces some = {sw_min_i64(one->n_most, all.n - i), all.a_step, all.c_step};
        sw_row_product part = *q;

        part.d_a = at(q->d_a, i * all.a_step, q->is_bf16 ? 2 : 8);
        part.d_c = (void *)(uintptr_t)at(q->d_c, i * all.c_step, q->is_bf16 ? 4 : 8);
        rc = run_some(s, one, &part, some, err);
    }
    return rc;
}

/* q: of one piece. The library loads kernels when it chooses and when they first run. */
static sw_code run_pieces(sw_solver *s, const sw_row_product *q, pieces all, sw_err *err)
{
    plan *one;
    sw_code rc;

    if (all.n <= 0 || q->m <= 0 || q->n <= 0) return SW_OK;
    one = known_plan(s->products, q);
    if (one && one->is_loaded) return run_all(s, one, q, all, err);
    sw_cublaslt_hold();
    rc = one ? SW_OK : new_plan(&one, s->products, q, err);
    if (rc == SW_OK) rc = run_all(s, one, q, all, err);
    if (rc == SW_OK) one->is_loaded = true;
    sw_cublaslt_release();
    return rc;
}

/* What is left of m rows behind whole pieces. */
static sw_row_product tail_of(const sw_row_product *p)
{
    const int64_t row = p->m / PIECE * PIECE;
    sw_row_product tail = *p;

    tail.m = p->m - row;
    tail.d_a = at(p->d_a, row * p->lda, p->is_bf16 ? 2 : 8);
    tail.d_c = (void *)(uintptr_t)at(p->d_c, row * p->ldc, p->is_bf16 ? 4 : 8);
    return tail;
}

static sw_code multiply_whole(sw_solver *s, const sw_row_product *p, int64_t n_pieces, sw_err *err)
{
    const pieces all = {n_pieces, PIECE * p->lda, PIECE * p->ldc};
    sw_row_product whole = *p;

    whole.m = PIECE;
    return run_pieces(s, &whole, all, err);
}

sw_code sw_solver_multiply_rows(sw_solver *s, const sw_row_product *p, sw_err *err)
{
    const sw_row_product tail = tail_of(p);
    const sw_code rc = multiply_whole(s, p, p->m / PIECE, err);

    return rc == SW_OK ? run_pieces(s, &tail, (pieces){1, 0, 0}, err) : rc;
}

sw_code sw_solver_multiply_halves(sw_solver *s, const sw_row_product *p, int64_t a_low,
                                  int64_t c_low, sw_err *err)
{
    const sw_row_product tail = tail_of(p);
    const int64_t n = p->m / PIECE;
    sw_row_product low = *p;
    sw_code rc;

    if (tail.m == 0 && a_low == p->m * p->lda && c_low == p->m * p->ldc)
        return multiply_whole(s, p, 2 * n, err);
    low.d_a = at(p->d_a, a_low, 2);
    low.d_c = (void *)(uintptr_t)at(p->d_c, c_low, 4);
    TRY(multiply_whole(s, p, n, err));
    TRY(multiply_whole(s, &low, n, err));
    TRY(run_pieces(s, &tail, (pieces){2, a_low, c_low}, err));
done:
    return rc;
}
