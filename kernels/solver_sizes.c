/* solver_sizes.c - see solver_sizes.h. Each sum follows the function of kernels/cuda/solver or
 * quant/backend/cuda that it names.
 */
#include "kernels/solver_sizes.h"

static bool is_float_scale(const sw_qspec *spec)
{
    return !spec->is_pow2_scale &&
           (spec->scale_dtype == SW_DTYPE_F32 || spec->scale_dtype == SW_DTYPE_F16 ||
            spec->scale_dtype == SW_DTYPE_BF16);
}

bool sw_solver_can(const sw_qspec *spec)
{
    const bool is_small = spec->is_pow2_scale || spec->scale_dtype == SW_DTYPE_F8_E8M0 ||
                          spec->scale_dtype == SW_DTYPE_F8_E4M3;

    if (spec->n_outliers) return false;
    if (spec->num->kind != SW_NUM_INT)
        return spec->num->values && (is_small || is_float_scale(spec));
    return is_float_scale(spec) && sw_qspec_rows(spec, 1) == 1 &&
           spec->scale_rows != SW_ROWS_ALL && !spec->has_global;
}

/* take_systems of solver_solve.c: systems and right sides, pointers to both, answers. */
static int64_t systems_bytes(int64_t n, int64_t n_groups)
{
    const int64_t rows = sw_solve_system_rows(n, n_groups);

    return 8 * rows * n_groups * n_groups + 8 * n * n_groups + (8 + 8 + 4) * rows;
}

/* take_gptq_rows of solver_solve.c: working rows, errors of a block, lifts, former codes and
 * scales. */
static int64_t gptq_bytes(const sw_solve_size *p, int64_t n)
{
    int64_t bytes = n * (8 * p->k_in + 8 * SW_SOLVE_COLS + p->k_in + 4 * p->n_groups);

    if (p->has_shift) bytes += 8 * n * p->k_in;
    return p->refines ? bytes + systems_bytes(n, p->n_groups) : bytes;
}

/* take_rows and take_statistics_rows of solver_solve.c: weight, targets, codes, scales and zeros;
 * slopes, errors, aims and losses; for clipping five figures of a group (solver_clip.c). */
int64_t sw_solve_bytes(const sw_solve_size *p, int64_t work_bytes)
{
    const int64_t n = sw_solve_rows_at_a_time(p, work_bytes), k = p->k_in;
    int64_t bytes = n * (4 * k + 8 * k + k + 8 * p->n_groups) + 8 * k;

    if (!p->has_factor) return bytes;
    bytes += n * (3 * 8 * k + 4 * 8) + 8 * k + sw_halves_bytes(n, k);
    if (p->is_gptq) bytes += gptq_bytes(p, n);
    if (p->is_clip) bytes += 5 * 8 * n * p->n_groups;
    return bytes;
}

/* sw_cuda_target_form: four or five matrices of rows, and floats on their way into the first. */
int64_t sw_target_form_bytes(int64_t n_out, int64_t k, bool with_residual, int64_t work_bytes)
{
    const int64_t n = sw_solver_rows_in(work_bytes, n_out, 5 * 8 * k);

    return n * k * (8 * (with_residual ? 5 : 4) + 4);
}

/* sw_cuda_target_shift: one. */
int64_t sw_target_shift_bytes(int64_t n_out, int64_t k, int64_t work_bytes)
{
    return sw_solver_rows_in(work_bytes, n_out, 2 * 8 * k) * k * (8 + 4);
}
