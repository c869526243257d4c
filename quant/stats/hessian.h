/* hessian.h - second-order statistics of the inputs that a fused group of linears shares.
 *
 * H = sum x x^T over the calibration tokens, with x the inputs that the quantized model will
 * see. Two cross terms say how those inputs differ from the original model's:
 *     D = sum (x0 - x) x^T   and, for linears that write to the residual stream,
 *     R = sum (r0 - r) x^T,
 * where x0 and r0 are the original model's input and residual. They let a solver aim at what
 * the original model computed instead of repeating the errors made upstream.
 *
 * Sums are float within a chunk of tokens and double across chunks, always in token order.
 */
#ifndef SW_QUANT_STATS_HESSIAN_H
#define SW_QUANT_STATS_HESSIAN_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/mem.h"
#include "kernels/solver.h"

/* Tokens summed in float before they join the double sums; also bounds the scratch. */
#define SW_HESSIAN_CHUNK_TOKENS 4096

typedef struct sw_hessian {
    int64_t k_in, n_out_residual; /* n_out_residual: rows of R, 0 without it */
    int64_t n_tokens;
    double *h;                    /* [k_in, k_in], upper triangle until finished */
    double *d;                    /* [k_in, k_in] or NULL */
    double *r;                    /* [n_out_residual, k_in] or NULL */
    int n_threads;
    sw_solver *solver;            /* NULL, or where the sums live instead: */
    sw_gram on_h, on_d, on_r;     /* of the same shapes; d_sum is NULL for one not wanted */
} sw_hessian;

/* with_cross: keep D. n_out_residual > 0: keep R too. */
sw_code sw_hessian_new(sw_hessian *out, int64_t k_in, bool with_cross, int64_t n_out_residual,
                       int n_threads, sw_err *err) SW_MUST_USE;
/* The same on a device: inputs are rounded to BF16. */
sw_code sw_hessian_new_device(sw_hessian *out, sw_solver *solver, int64_t k_in, bool with_cross,
                              int64_t n_out_residual, sw_err *err) SW_MUST_USE;
void sw_hessian_free(sw_hessian *hess); /* accepts a zeroed one */

/* Add n_tokens rows: x [n, k_in]; dx [n, k_in] = x0 - x, or NULL; dr [n, n_out_residual] or NULL.
 * SW_E_FORMAT when x holds a NaN or an infinity. */
sw_code sw_hessian_add(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                       int64_t n_tokens, sw_err *err) SW_MUST_USE;

/* The same from the device, BF16: d_x rows x_stride elements apart, d_dx and d_dr dense or NULL.
 * That x is finite is seen when the sums are settled. */
sw_code sw_hessian_add_device(sw_hessian *hess, const uint16_t *d_x, int64_t x_stride,
                              const uint16_t *d_dx, const uint16_t *d_dr, int64_t n_tokens,
                              sw_err *err) SW_MUST_USE;

/* After the last add, on either side. SW_E_FORMAT when an x was not finite. */
sw_code sw_hessian_settle(sw_hessian *hess, sw_err *err) SW_MUST_USE;
/* diagonal [k_in] of a settled H, in memory. */
sw_code sw_hessian_diagonal(double *diagonal, const sw_hessian *hess, sw_err *err) SW_MUST_USE;
/* H alone, settled, in memory: to the solver's device. */
sw_code sw_hessian_move(sw_hessian *hess, sw_solver *solver, sw_err *err) SW_MUST_USE;
/* The other way. */
sw_code sw_hessian_fetch(sw_hessian *hess, sw_err *err) SW_MUST_USE;
/* H of inputs divided by scale [k_in] (NULL: 1), on the side where hess is, settled. */
sw_code sw_hessian_scaled(sw_hessian *out, const sw_hessian *hess, const double *scale,
                          sw_err *err) SW_MUST_USE;
/* The same for the host alone: mirror the upper triangle, once. */
void sw_hessian_finish(sw_hessian *hess);

/* into += from, of one shape and side, settled: H and the token count, resp. D and R. */
sw_code sw_hessian_merge_inputs(sw_hessian *into, const sw_hessian *from, sw_err *err) SW_MUST_USE;
sw_code sw_hessian_merge_cross(sw_hessian *into, const sw_hessian *from, sw_err *err) SW_MUST_USE;

#endif
