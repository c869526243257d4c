/* solver_product.cuh - products of a weight's rows, in pieces. For the files solver_* alone.
 *
 * A library chooses by a product's shape in what order it sums, so a row's bytes would depend on
 * how many rows are multiplied with it. Here a product of rows is always one of pieces of
 * SW_SOLVER_PRODUCT_ROWS: those that are there are one call of cuBLASLt, each a matrix of its
 * batch, by the algorithm that is chosen for a piece and a number of pieces that never changes.
 * What is left of the last one is a call of its own. So a row's bytes depend on the shape of its
 * piece, which the weight alone decides, and not on how many pieces are worked on at a time, by
 * whom, or with how much memory.
 */
#ifndef SW_KERNELS_CUDA_SOLVER_SOLVER_PRODUCT_CUH
#define SW_KERNELS_CUDA_SOLVER_SOLVER_PRODUCT_CUH

#include "kernels/cuda/solver/solver_internal.cuh"

#ifdef __cplusplus
extern "C" {
#endif

/* Row-major C [m, n] = alpha A [m, k] B [k, n] + beta C, of doubles; or of BF16 with C and sums in
 * floats (is_bf16). B turned: it is there as [n, k]. Row strides in elements. */
typedef struct sw_row_product {
    bool is_bf16, is_b_turned;
    int64_t m, n, k;
    const void *d_a, *d_b;
    void *d_c;
    int64_t lda, ldb, ldc;
    double alpha, beta;
} sw_row_product;

/* m rows that begin where a piece does. */
sw_code sw_solver_multiply_rows(sw_solver *s, const sw_row_product *p, sw_err *err) SW_MUST_USE;
/* The same of p->m rows and of as many `a_low` elements behind those of A, whose results lie
 * c_low elements behind those of C: the halves of doubles. They go together where they can. */
sw_code sw_solver_multiply_halves(sw_solver *s, const sw_row_product *p, int64_t a_low,
                                  int64_t c_low, sw_err *err) SW_MUST_USE;

typedef struct sw_products sw_products; /* the library, and what it was found to do */

sw_code sw_products_open(sw_products **out, sw_err *err) SW_MUST_USE;
void sw_products_close(sw_products *p); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
