/* cpu.h - the steps of the CPU's backend, all in memory: backend.h says what each does. For this
 * room alone.
 */
#ifndef SW_QUANT_BACKEND_CPU_CPU_H
#define SW_QUANT_BACKEND_CPU_CPU_H

#include "quant/backend.h"
#include "quant/method/algo.h"
#include "quant/method/target.h"
#include "quant/search/score.h"
#include "quant/search/transform.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"

/* ---- arrays of a place ---- */

sw_code sw_cpu_take(void **out, const sw_place *at, int64_t n, int64_t elem_bytes, const char *what,
                    sw_err *err) SW_MUST_USE;
void sw_cpu_put(const sw_place *at, void *values);
sw_code sw_cpu_lend(float **out, const sw_place *at, float *from, int64_t n, const char *what,
                    sw_err *err) SW_MUST_USE;
void sw_cpu_unlend(const sw_place *at, float *values);
sw_code sw_cpu_scale(const sw_place *at, float *to, const float *from, const double *scale,
                     int64_t n, int64_t k, bool divides, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_errors(const sw_place *at, double *by_row, const float *have, const float *want,
                      int64_t n, int64_t width, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_multiply(const sw_place *at, float *y, const float *x, int64_t n, const sw_weight *w,
                        sw_scratch *scratch, sw_err *err) SW_MUST_USE;

/* ---- sums of products: hessian.h, whose functions say what these do ---- */

sw_code sw_cpu_hessian_new(sw_hessian *hess, bool with_cross, sw_err *err) SW_MUST_USE;
void sw_cpu_hessian_free(sw_hessian *hess);
sw_code sw_cpu_hessian_add(sw_hessian *hess, const float *x, const float *dx, const float *dr,
                           int64_t n_tokens, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_settle(sw_hessian *hess, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_diagonal(double *diagonal, const sw_hessian *hess, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_scale(sw_hessian *out, const sw_hessian *hess, const double *scale,
                             sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_fill(sw_hessian *out, const double *h, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_read(const double **h, double **own, const sw_hessian *hess,
                            sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_merge_inputs(sw_hessian *into, const sw_hessian *from,
                                    sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_merge_cross(sw_hessian *into, const sw_hessian *from,
                                   sw_err *err) SW_MUST_USE;
sw_code sw_cpu_hessian_blend(sw_hessian half[2], const sw_hessian *all, double own, double every,
                             sw_err *err) SW_MUST_USE;
int64_t sw_cpu_sums_bytes_max(const sw_place *at, const sw_model *model);
int64_t sw_cpu_sum_bytes(int64_t k);
sw_code sw_cpu_prior_new(void **state, const sw_hessian *all, sw_err *err) SW_MUST_USE;
void sw_cpu_prior_free(void *state, const sw_hessian *all);
sw_code sw_cpu_prior_compare(double form[3], const void *state, const sw_hessian *all,
                             const sw_hessian half[2], sw_err *err) SW_MUST_USE;

/* ---- factorization: factor.h ---- */

sw_code sw_cpu_factor_new(sw_factor *f, const sw_hessian *hess, const double *diagonal,
                          sw_err *err) SW_MUST_USE;
void sw_cpu_factor_free(sw_factor *f);
sw_code sw_cpu_factor_try(bool *is_definite, sw_factor *f, double lambda, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_factor_finish(sw_factor *f, double lambda, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_factor_costs(double *diagonal, double *by_step, const sw_factor *f,
                            sw_err *err) SW_MUST_USE;
sw_code sw_cpu_target_form(double form[5], const sw_factor *f, const sw_hessian *seen,
                           const sw_hessian *held, const float *w, int64_t n_out, double scale,
                           bool with_residual, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_target_shift(double *shift, const sw_factor *f, const sw_hessian *hess,
                            const float *w, int64_t n_out, sw_strengths strengths,
                            bool with_residual, sw_err *err) SW_MUST_USE;

/* ---- weights ---- */

bool sw_cpu_can_solve(const sw_qspec *spec);
sw_code sw_cpu_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_kind kind,
                     sw_solve_report *report, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_score(double *loss, const sw_place *at, const sw_score_job *job,
                     sw_err *err) SW_MUST_USE;

/* ---- activations: streams.h, ranges.h and kv_scales.h ---- */

sw_code sw_cpu_streams_new(sw_streams *s, bool with_original, const char *spill_dir,
                           sw_err *err) SW_MUST_USE;
void sw_cpu_streams_free(sw_streams *s);
sw_code sw_cpu_streams_fill(sw_streams *s, const float *x, int64_t seq, sw_err *err) SW_MUST_USE;
void sw_cpu_streams_forget(sw_streams *s);
sw_code sw_cpu_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                               const sw_block *original, const sw_progress *progress,
                               sw_err *err) SW_MUST_USE;
sw_code sw_cpu_streams_advance(sw_streams *s, const sw_block *quantized, const sw_block *original,
                               sw_half half, const sw_progress *progress, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_find_ranges(sw_range *ranges, sw_streams *s, const bool *is_wanted,
                           const sw_block *block, const sw_progress *progress,
                           sw_err *err) SW_MUST_USE;
sw_code sw_cpu_find_kv_range(sw_kv_range *out, sw_streams *s, const sw_block *block,
                             const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* ---- windows that searches run: block_probe.h and transform.h ---- */

sw_code sw_cpu_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                            const sw_block *block, sw_site site, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_probe_hessians(sw_hessian *hess, int64_t n_hess, const sw_block_probe *probe,
                              sw_block_probe_part part, const sw_block *block, sw_site site,
                              sw_err *err) SW_MUST_USE;
sw_code sw_cpu_probe_rows(sw_probe_rows *rows, const sw_block_probe *probe,
                          sw_block_probe_part part, const sw_block *block, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_trial_new(sw_trial_block *block, sw_err *err) SW_MUST_USE;
void sw_cpu_trial_free(sw_trial_block *block);
sw_code sw_cpu_trial_lend(sw_trial_block *block, float *const *values, sw_err *err) SW_MUST_USE;
sw_code sw_cpu_trial_output(float *y, const sw_trial_block *block, sw_block_probe_part part,
                            sw_err *err) SW_MUST_USE;

#endif
