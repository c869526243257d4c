/* stub_solver.c - solver.h in a build without CUDA: no card can be opened, so no solver either. */
#include <stddef.h>

#include "kernels/solver.h"

const char *const sw_stage_names[SW_STAGE_COUNT] = {"fit", "sweep", "update", "refine", "loss",
                                                    "copy"};

/* What takes a solver is never called: sw_gpu_open has failed before. */
static sw_code absent(sw_err *err)
{
    return SW_FAIL(err, SW_E_CUDA, "this build of swage has no CUDA; build it where nvcc is (make "
                                   "CUDA=1), or use --device cpu");
}

#define ABSENT(name, ...) \
    sw_code name(__VA_ARGS__, sw_err *err) { return absent(err); }

#pragma GCC diagnostic ignored "-Wunused-parameter"

ABSENT(sw_solver_open, sw_solver **out, sw_gpu *gpu, int64_t work_bytes)
void sw_solver_close(sw_solver *s) {}
sw_gpu *sw_solver_gpu(const sw_solver *s) { return NULL; }
ABSENT(sw_solver_to_bf16, sw_solver *s, uint16_t *d_to, const float *d_x, const float *d_y,
       int64_t n)
ABSENT(sw_gram_new, sw_gram *out, sw_solver *s, int64_t n_rows, int64_t n_cols, bool is_symmetric)
void sw_gram_free(sw_gram *g, sw_solver *s) {}
ABSENT(sw_gram_add, sw_gram *g, sw_solver *s, const uint16_t *d_a, int64_t a_stride,
       const uint16_t *d_b, int64_t b_stride, int64_t n_tokens)
ABSENT(sw_gram_finish, sw_gram *g, sw_solver *s)
ABSENT(sw_gram_merge, sw_gram *into, const sw_gram *from, sw_solver *s)
ABSENT(sw_solver_diagonal, double *diagonal, sw_solver *s, const double *d_h, int64_t k)
ABSENT(sw_device_factor_new, sw_device_factor *out, sw_solver *s, const double *d_h,
       const double *diagonal, const int32_t *perm, int64_t k)
void sw_device_factor_free(sw_device_factor *f, sw_solver *s) {}
ABSENT(sw_device_factor_try, bool *is_definite, sw_device_factor *f, sw_solver *s, double lambda)
ABSENT(sw_device_factor_finish, sw_device_factor *f, sw_solver *s, double lambda)
bool sw_solver_can(const sw_qspec *spec) { return false; }
ABSENT(sw_solver_solve, sw_qtensor *q, sw_device_sums *sums, sw_solver *s,
       const sw_device_problem *p, double *stage_s)
ABSENT(sw_solver_score, double *loss, sw_solver *s, const sw_device_problem *p,
       const double *d_weight)
ABSENT(sw_solver_fill, sw_solver *s, double *d_to, double value, int64_t n)
ABSENT(sw_solver_scale, sw_solver *s, float *d_to, const float *d_from, const double *d_scale,
       int64_t n, int64_t k, bool divides)
ABSENT(sw_solver_scale_gram, sw_solver *s, double *d_to, const double *d_from,
       const double *d_scale, int64_t k)
ABSENT(sw_solver_multiply, sw_solver *s, float *d_y, const float *d_x, const float *d_w, int64_t n,
       int64_t n_out, int64_t k)
ABSENT(sw_solver_row_errors, double *by_row, sw_solver *s, const float *d_have,
       const float *d_want, int64_t n, int64_t width)
ABSENT(sw_solver_amax, float *amax, sw_solver *s, const float *d_w, int64_t n, int64_t k,
       int64_t rows, int64_t cols)
ABSENT(sw_solver_act_round, sw_solver *s, float *d_to, const float *d_x, int64_t n, int64_t k,
       const sw_act *act, float input_scale)
ABSENT(sw_solver_act_round_bf16, sw_solver *s, uint16_t *d_to, const void *d_x, int64_t stride,
       int64_t n, int64_t k, const sw_act *act, float input_scale)
ABSENT(sw_solver_watch_sizes, sw_solver *s, float *d_max, double *d_sum, const void *d_x,
       int64_t stride, int64_t n, int64_t k)
ABSENT(sw_solver_watch_magnitudes, sw_solver *s, int64_t *d_counts, uint32_t *d_most,
       const void *d_x, int64_t stride, int64_t n, int64_t k)
ABSENT(sw_solver_watch_take, sw_solver *s, float *d_to, const void *d_x, int64_t stride,
       int64_t first, int64_t every, int64_t n, int64_t k)
ABSENT(sw_solver_pack, uint8_t *d_tiles, void *d_tile_scales, uint8_t *d_tile_zeros, sw_solver *s,
       const sw_qspec *spec, int64_t n_out, int64_t k_in, const uint8_t *d_codes,
       const float *d_scales, const float *d_zeros)
int64_t sw_solver_rows(const sw_solver *s, int64_t n, int64_t row_bytes) { return n; }
ABSENT(sw_solver_widen, sw_solver *s, double *d_to, const float *from, int64_t n)
ABSENT(sw_solver_times, sw_solver *s, double *d_out, double beta, double alpha, const double *d_a,
       const double *d_b, int64_t n, int64_t k)
ABSENT(sw_solver_times_inverse, sw_solver *s, double *d_rows, double *d_scratch,
       const sw_device_factor *f, int64_t n)
ABSENT(sw_solver_inner, double *sum, sw_solver *s, const double *d_a, const double *d_b, int64_t n,
       int64_t k)
ABSENT(sw_solver_axpy, sw_solver *s, double *d_to, double scale, const double *d_from, int64_t n)
ABSENT(sw_solver_mix, sw_solver *s, double *d_to, double a, const double *d_a, double b,
       const double *d_b, int64_t n)
ABSENT(sw_solver_whiten, sw_solver *s, double *d_m, const sw_device_factor *f)
ABSENT(sw_solver_copy, sw_solver *s, void *d_to, const void *d_from, int64_t n_bytes)
ABSENT(sw_solver_keep, sw_solver *s, uint16_t *d_to, const uint16_t *d_from, const void *d_x,
       int64_t stride, int64_t n, int64_t k)
