/* solver_sizes.h - device memory that steps of kernels/solver.h take, as pure functions of shapes.
 *
 * The solver asks them itself where it decides how much to take at a time; a forecast asks them
 * without a device. Bytes are what is asked of the pool, without its rounding, and without what
 * cuSOLVER asks for a Cholesky factor, which only the library knows and which is small beside the
 * matrix. Valid as C11 and as C++17.
 */
#ifndef SW_KERNELS_SOLVER_SIZES_H
#define SW_KERNELS_SOLVER_SIZES_H

#include "kernels/solver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fixed, so that cuBLAS chooses alike in every run. */
#define SW_SOLVER_BLAS_BYTES ((int64_t)64 << 20)
#define SW_SOLVER_WORK_BYTES ((int64_t)8 << 30)  /* most that a solve takes beside its operands */
#define SW_SOLVER_SYSTEM_BYTES ((int64_t)4 << 30) /* of systems of scales at a time */
#define SW_SOLVE_COLS 128 /* of a lazy-update block */
/* Products of doubles go by halves of them (solver_split.cu) from so many inputs on, where they are
 * what a solve waits for; below they are as exact as the CPU's. */
#ifndef SW_SPLIT_INPUTS_MIN
#define SW_SPLIT_INPUTS_MIN 2048
#endif
#define SW_SPLIT_PART_ELEMS ((int64_t)8 << 20) /* sums in floats that such products have room for */
#define SW_FACTOR_BASE 32 /* rows of the diagonal blocks that are inverted directly */

/* See sw_solver_rows: whole pieces, one at least, so that bytes do not depend on memory. */
static inline int64_t sw_solver_rows_in(int64_t work_bytes, int64_t n, int64_t row_bytes)
{
    int64_t rows = SW_SOLVER_ROWS;

    while (rows > SW_SOLVER_PRODUCT_ROWS && rows * row_bytes > work_bytes) rows /= 2;
    return rows < n ? rows : n;
}

/* What a handle of the solver keeps, one of every lane. */
#define SW_SOLVER_HANDLE_BYTES (SW_SOLVER_BLAS_BYTES + 4 * SW_SPLIT_PART_ELEMS)

static inline bool sw_solver_splits(int64_t k) { return k >= SW_SPLIT_INPUTS_MIN; }

/* Halves of n rows of k inputs, where there are any. */
static inline int64_t sw_halves_bytes(int64_t n, int64_t k)
{
    return sw_solver_splits(k) ? 4 * n * k : 0;
}

/* A factor of k inputs while it lives, and what making it takes besides. */
static inline int64_t sw_factor_bytes(int64_t k)
{
    return 16 * k * k + 12 * k + 2 * sw_halves_bytes(k, k);
}
static inline int64_t sw_factor_scratch_elems(int64_t k)
{
    return (k + 1) / 2 * ((k + 1) / 2 + SW_FACTOR_BASE);
}

/* A sum of products [n_rows, n_cols] while it lives, and what summing adds until it is finished. */
static inline int64_t sw_gram_bytes(int64_t n_rows, int64_t n_cols) { return 8 * n_rows * n_cols; }
static inline int64_t sw_gram_part_bytes(int64_t n_rows, int64_t n_cols)
{
    return 4 * n_rows * n_cols;
}

/* A weight to be solved, as far as memory goes. */
typedef struct sw_solve_size {
    int64_t n_out, k_in, n_groups;
    bool has_factor, has_shift;
    bool is_gptq, is_clip, refines;
} sw_solve_size;

/* What a row takes beside the weight itself, by which rows are cut. */
static inline int64_t sw_solve_row_bytes(const sw_solve_size *p)
{
    const int64_t n_wide = p->has_shift ? 6 : 5;
    const int64_t n_doubles =
        p->has_factor ? n_wide * p->k_in + SW_SOLVE_COLS + 4 * p->n_groups + 4 : p->k_in;

    return 8 * n_doubles + 2 * p->k_in + 4 * p->k_in + 12 * p->n_groups +
           (p->has_factor ? sw_halves_bytes(1, p->k_in) : 0);
}

/* Rows of it that are solved at a time by a solver that may take so much. */
static inline int64_t sw_solve_rows_at_a_time(const sw_solve_size *p, int64_t work_bytes)
{
    const int64_t n = sw_solver_rows_in(work_bytes, p->n_out, sw_solve_row_bytes(p));

    return n > 64 ? n : 64;
}

/* Rows of n whose systems are made at a time: whole pieces, or where not even one fits a part of
 * one that begins at the same rows wherever the n begin. */
static inline int64_t sw_solve_system_rows(int64_t n, int64_t n_groups)
{
    const int64_t most = SW_SOLVER_SYSTEM_BYTES / (8 * n_groups * n_groups);
    int64_t rows = SW_SOLVER_PRODUCT_ROWS;

    while (rows > 1 && rows > most) rows /= 2;
    if (rows == SW_SOLVER_PRODUCT_ROWS) rows = most / rows * rows;
    return rows < n ? rows : n;
}

/* Bytes of a solve, beside its operands: the factor and the shift. */
int64_t sw_solve_bytes(const sw_solve_size *p, int64_t work_bytes);
/* Bytes of target_form of n_out rows, or of target_shift, the shift itself aside. */
int64_t sw_target_form_bytes(int64_t n_out, int64_t k, bool with_residual, int64_t work_bytes);
int64_t sw_target_shift_bytes(int64_t n_out, int64_t k, int64_t work_bytes);

#ifdef __cplusplus
}
#endif
#endif
