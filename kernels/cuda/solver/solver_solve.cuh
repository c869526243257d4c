/* solver_solve.cuh - a weight on its way through the device, for the methods of solver_*.c alone.
 *
 * The steps are those of quant/method/rtn.c, clip.c, gptq.c and refine.c; on the CPU on slabs of 64
 * rows, on the device on as many rows as memory allows. What those files say of the methods holds
 * here.
 */
#ifndef SW_KERNELS_CUDA_SOLVER_SOLVER_SOLVE_CUH
#define SW_KERNELS_CUDA_SOLVER_SOLVER_SOLVE_CUH

#include "kernels/cuda/solver/solver_kernels.cuh"
#include "kernels/solver_sizes.h"

#define SW_SOLVE_WIDE 512 /* columns of a product over all before them; a multiple of the above */

typedef struct sw_solve {
    sw_solver *s;
    const sw_device_problem *p;
    grid_shape shape;
    solve_rows r;       /* the chunk under way */
    clip_best best;     /* of clipping alone */
    int64_t row0;
    sw_halves halves;   /* [n, k] of rows that are multiplied; none where the factor has none */
    int32_t *perm;      /* [k] on the host; GPTQ alone */
    double *d_weight;   /* [k] diagonal of H; ones without a factor */
    double *d_ones;     /* [k] */
    double *d_shared;   /* as the problem's, or NULL */
    double *stage_s;    /* or NULL */
    double since_s;
} sw_solve;

/* The time since the last call belongs to `stage`. */
sw_code sw_solve_count(sw_solve *v, sw_stage stage, sw_err *err) SW_MUST_USE;
/* Scales of all groups: shared ones, by search under a weight a column, or (NULL) of the range. */
sw_code sw_solve_fit(sw_solve *v, const double *d_weight, sw_err *err) SW_MUST_USE;
/* A product with a matrix of the factor, U or H: columns [begin, end) of out [n, k] = alpha in M +
 * beta out, where of `in` only columns [from, to) count. By halves where the factor has them: those
 * of the columns of `in` have been made last, by sw_solve_halve. */
typedef struct solve_product {
    double *out;
    const double *in;
    bool by_u;
    int64_t from, to, begin, end;
    double alpha, beta;
} solve_product;
sw_code sw_solve_times(const sw_solve *v, const solve_product *p, sw_err *err) SW_MUST_USE;
/* Nothing without halves. */
sw_code sw_solve_halve(const sw_solve *v, const double *d_in, int64_t begin, int64_t end,
                       sw_err *err) SW_MUST_USE;
/* out [n, k] = in [n, k] H; makes the halves. */
sw_code sw_solve_times_h(const sw_solve *v, double *d_out, const double *d_in,
                         sw_err *err) SW_MUST_USE;
/* Columns [begin, end) of out [n, k] = those of in H_left, where only what lies left of begin
 * counts, whose halves have been made. Nothing where begin is 0. */
sw_code sw_solve_times_left(const sw_solve *v, double *d_out, const double *d_in, int64_t begin,
                            int64_t end, sw_err *err) SW_MUST_USE;
/* The same columns of out = in H_corner + 2 out, of H's rows [begin, end) alone: with the products
 * of the left in out, in . out is then in H in^T. */
sw_code sw_solve_times_corner(const sw_solve *v, double *d_out, const double *d_in, int64_t begin,
                              int64_t end, sw_err *err) SW_MUST_USE;
/* d_loss [n] = e H e^T of rows d_e [n, k], by half the products of e H; d_scratch [n, k]. */
sw_code sw_solve_quadratic(const sw_solve *v, double *d_loss, const double *d_e, double *d_scratch,
                           sw_err *err) SW_MUST_USE;
/* d_loss [n] of the codes against the target; leaves the error. */
sw_code sw_solve_losses(const sw_solve *v, double *d_loss, sw_err *err) SW_MUST_USE;

/* The chunk's codes by these methods, its loss in r.loss; a plain solution is there. */
sw_code sw_solve_gptq_rows(sw_solve *v, sw_err *err) SW_MUST_USE;
sw_code sw_solve_clip_rows(sw_solve *v, sw_err *err) SW_MUST_USE;
sw_code sw_solve_clip_take(sw_solve *v, int64_t n_rows, sw_err *err) SW_MUST_USE;

#endif
