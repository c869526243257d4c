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
#include "quant/backend.h"

/* Tokens summed in float before they join the double sums; also bounds the scratch. */
#define SW_HESSIAN_CHUNK_TOKENS 4096

typedef struct sw_hessian {
    int64_t k_in, n_out_residual; /* n_out_residual: rows of R, 0 without it */
    int64_t n_tokens;
    double *h;                    /* [k_in, k_in], upper triangle until settled */
    double *d;                    /* [k_in, k_in] or NULL; [n_out_residual, k_in] if weighed */
    bool is_weighed;              /* d is W D of the one linear that reads the inputs */
    double *r;                    /* [n_out_residual, k_in] or NULL */
    sw_place place;               /* where these arrays are */
    void *own;                    /* what its backend keeps beside them */
} sw_hessian;

/* In memory. with_cross: keep D. n_out_residual > 0: keep R too. */
sw_code sw_hessian_new(sw_hessian *out, int64_t k_in, bool with_cross, int64_t n_out_residual,
                       int n_threads, sw_err *err) SW_MUST_USE;
/* The same at a place; one that computes in BF16 rounds the inputs to it. */
sw_code sw_hessian_new_at(sw_hessian *out, const sw_place *at, int64_t k_in, bool with_cross,
                          int64_t n_out_residual, sw_err *err) SW_MUST_USE;
void sw_hessian_free(sw_hessian *hess); /* accepts a zeroed one */

/* Add n_tokens rows of memory: x [n, k_in]; dx [n, k_in] = x0 - x, or NULL; dr
 * [n, n_out_residual] or NULL. SW_E_FORMAT when x holds a NaN or an infinity. */
sw_code sw_hessian_add(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                       int64_t n_tokens, sw_err *err) SW_MUST_USE;
/* What adding or settling fails with when an x is not finite: SW_E_FORMAT. */
sw_code sw_hessian_not_finite(sw_err *err) SW_MUST_USE;

/* Before the first add: d becomes W D, whose rows the backend adds as products with W. Nothing
 * where it is that already. SW_E_UNSUPPORTED: the backend sums D alone. */
sw_code sw_hessian_weigh(sw_hessian *hess, sw_err *err) SW_MUST_USE;
/* An empty one of the shape, parts and place of `like`. */
sw_code sw_hessian_new_like(sw_hessian *out, const sw_hessian *like, sw_err *err) SW_MUST_USE;
/* Elements of d. */
int64_t sw_hessian_d_elems(const sw_hessian *hess);

/* After the last add, at any place. SW_E_FORMAT when an x was not finite. */
sw_code sw_hessian_settle(sw_hessian *hess, sw_err *err) SW_MUST_USE;
/* diagonal [k_in] of a settled H, in memory. */
sw_code sw_hessian_diagonal(double *diagonal, const sw_hessian *hess, sw_err *err) SW_MUST_USE;
/* H alone, settled, to a place. Does nothing to a Hessian whose backend is the place's. */
sw_code sw_hessian_move(sw_hessian *hess, const sw_place *to, sw_err *err) SW_MUST_USE;
/* *h = a settled H [k_in, k_in] in memory: borrowed from hess, or from *own, which the caller
 * gives back with sw_mem_put either way. */
sw_code sw_hessian_read(const double **h, double **own, const sw_hessian *hess,
                        sw_err *err) SW_MUST_USE;
/* H of inputs divided by scale [k_in] (NULL: 1), where hess is, settled. */
sw_code sw_hessian_scaled(sw_hessian *out, const sw_hessian *hess, const double *scale,
                          sw_err *err) SW_MUST_USE;
/* Mirrors the upper triangle of a Hessian in memory, once. */
void sw_hessian_finish(sw_hessian *hess);

/* into += from, of one shape and place, settled: H and the token count, resp. D and R. */
sw_code sw_hessian_merge_inputs(sw_hessian *into, const sw_hessian *from, sw_err *err) SW_MUST_USE;
sw_code sw_hessian_merge_cross(sw_hessian *into, const sw_hessian *from, sw_err *err) SW_MUST_USE;

#endif
