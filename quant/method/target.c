/* target.c - see target.h. */
#include "quant/method/target.h"

static double clamp(double v, double cap)
{
    return v > cap ? cap : v > 0 ? v : 0;
}

/* Coordinate descent on a convex form of two clamped variables: exact after a few rounds. */
static sw_strengths minimize(const double q[5], sw_strengths cap)
{
    sw_strengths s = {0, 0};

    for (int round = 0; round < 50; round++) {
        s.input = q[0] > 0 ? clamp((q[3] - q[1] * s.residual) / q[0], cap.input) : 0;
        s.residual = q[2] > 0 ? clamp((q[4] - q[1] * s.input) / q[2], cap.residual) : 0;
    }
    return s;
}

sw_row_sample sw_strength_rows(int64_t n_out, bool is_expert)
{
    return sw_row_sample_of(n_out, is_expert ? SW_STRENGTH_EXPERT_ROWS : SW_STRENGTH_ROWS);
}

sw_code sw_target_forms(double (*by_row)[5], const sw_factor *factor, const sw_hessian *seen,
                        const sw_hessian *held, const float *w, const sw_row_sample *rows,
                        sw_strengths cap, sw_err *err)
{
    bool with_residual = cap.residual > 0 && seen->n_out_residual == rows->n_out;

    return sw_backend_of(&factor->place)
        ->target_form(by_row, factor, seen, held, w, rows, with_residual, err);
}

sw_strengths sw_target_choose(double (*by_row)[5], int64_t n, const sw_hessian *seen,
                              const sw_hessian *held, sw_strengths cap)
{
    /* the factor is of all tokens, the cross terms of those seen: bring them to one scale */
    double scale = (double)(seen->n_tokens + held->n_tokens) / (double)seen->n_tokens;
    double form[5] = {0};

    for (int64_t row = 0; row < n; row++)
        for (int i = 0; i < 5; i++) form[i] += by_row[row][i] * (i < 3 ? scale * scale : scale);
    return minimize(form, cap);
}

sw_code sw_target_strengths(sw_strengths *out, const sw_factor *factor, const sw_hessian *seen,
                            const sw_hessian *held, const float *w, int64_t n_out,
                            sw_strengths cap, sw_err *err)
{
    const sw_row_sample all = sw_row_sample_all(n_out);
    double (*by_row)[5] = NULL;
    sw_code rc = SW_MEM_GET(&by_row, n_out, "target search", err);

    if (rc == SW_OK) rc = sw_target_forms(by_row, factor, seen, held, w, &all, cap, err);
    if (rc == SW_OK) *out = sw_target_choose(by_row, n_out, seen, held, cap);
    sw_mem_put(by_row);
    return rc;
}

sw_code sw_target_shift(double *shift, const sw_factor *factor, const sw_hessian *hess,
                        const float *w, int64_t n_out, sw_strengths strengths, sw_err *err)
{
    bool with_residual = strengths.residual > 0 && hess->n_out_residual == n_out;

    return sw_backend_of(&factor->place)
        ->target_shift(shift, factor, hess, w, n_out, strengths, with_residual, err);
}

sw_code sw_target_shift_new(double **out, const sw_factor *factor, int64_t n_out, sw_err *err)
{
    return sw_backend_of(&factor->place)
        ->take((void **)out, &factor->place, n_out * factor->k_in, (int64_t)sizeof **out,
               "target shift", err);
}

void sw_target_shift_free(double *shift, const sw_factor *factor)
{
    if (shift) sw_backend_of(&factor->place)->put(&factor->place, shift);
}
