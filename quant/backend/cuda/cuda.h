/* cuda.h - the steps of the CUDA backend: backend.h says what each does. For this room and its
 * tests alone.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_H
#define SW_QUANT_BACKEND_CUDA_CUDA_H

#include "kernels/solver.h"
#include "quant/backend.h"
#include "quant/method/algo.h"
#include "quant/method/target.h"
#include "quant/search/transform.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"

/* The solver and the device that a place was opened on. */
static inline sw_solver *sw_cuda_solver(const sw_place *at) { return at->device; }
static inline sw_device *sw_cuda_gpu(const sw_place *at) { return sw_solver_gpu(at->device); }

/* A factor on the device. */
sw_device_factor *sw_cuda_factor(const sw_factor *f);
/* As sw_hessian_add, of BF16 rows on the device: d_x rows x_stride elements apart, d_dx (of weighed
 * sums W (x0 - x)) and d_dr dense or NULL. That x is finite is seen when the sums are settled. */
sw_code sw_cuda_hessian_add_rows(sw_hessian *hess, const uint16_t *d_x, int64_t x_stride,
                                 const uint16_t *d_dx, const uint16_t *d_dr, int64_t n_tokens,
                                 sw_err *err) SW_MUST_USE;
/* What was added since the last end of a piece joins the sums (sw_gram_end_piece). */
sw_code sw_cuda_hessian_end_piece(sw_hessian *hess, sw_err *err) SW_MUST_USE;
/* *loss += what fitting and rounding the rows of p->values, at most a slab of them, costs under a
 * weight a column, [k_in] on the device. */
sw_code sw_cuda_score_rows(double *loss, const sw_solve_problem *p, const double *d_weight,
                           sw_err *err) SW_MUST_USE;

#define SW_STEP(name, args) sw_code sw_cuda_##name args SW_MUST_USE;
#define SW_STEP_OF(type, name, args) type sw_cuda_##name args;
#include "quant/backend_steps.def"
#undef SW_STEP
#undef SW_STEP_OF

#endif
