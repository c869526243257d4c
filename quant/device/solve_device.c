/* solve_device.c - see solve_device.h. */
#include "quant/device/solve_device.h"

#include "quant/method/frame.h"
#include "quant/method/row_work.h"

bool sw_solve_has_device(const sw_solve_problem *p)
{
    if (p->factor) return p->factor->solver && sw_solver_can(&p->spec) && !p->is_exact;
    return p->solver && sw_solver_can(&p->spec) && !p->is_exact;
}

static sw_solver *solver_of(const sw_solve_problem *p)
{
    return p->factor ? p->factor->solver : p->solver;
}

/* What is settled about scales beforehand, from wherever the weight is. */
static sw_code new_frame(sw_frame *frame, const sw_solve_problem *p, sw_err *err)
{
    if (p->d_values)
        return sw_frame_new_there(frame, solver_of(p), p->d_values, p->n_out, p->k_in,
                                  p->fused_amax, &p->spec, err);
    return sw_frame_new(frame, p->w, p->n_out, p->k_in, p->fused_amax, &p->spec, err);
}

static sw_device_problem problem_of(const sw_solve_problem *p, const sw_frame *frame)
{
    return (sw_device_problem){.w = p->w, .d_w = p->d_values, .d_values = p->d_values,
                               .n_out = p->n_out, .k_in = p->k_in, .spec = p->spec,
                               .global = (double)frame->global, .shared = frame->shared,
                               .shared_rows = frame->rows,
                               .factor = p->factor ? &p->factor->on : NULL,
                               .d_shift = p->target_shift, .refine_rounds = p->refine_rounds};
}

sw_code sw_solve_there(sw_qtensor *q, const sw_solve_problem *p, sw_device_method method,
                       bool refit, sw_solve_report *report, sw_err *err)
{
    sw_frame frame = {0};
    sw_device_problem d;
    sw_device_sums sums;
    sw_code rc = new_frame(&frame, p, err);

    if (rc != SW_OK) return rc;
    if (q) q->global_scale = p->spec.has_global ? frame.global : 0.0f;
    d = problem_of(p, &frame);
    d.method = method;
    d.refit = refit && !frame.shared;
    rc = sw_solver_solve(q, &sums, solver_of(p), &d, NULL, err);
    if (rc == SW_OK && p->factor) {
        sw_row_figures figures = {sums.loss, sums.loss_rtn, sums.power};
        sw_rows_report(report, &figures);
    }
    sw_frame_free(&frame);
    return rc;
}

sw_code sw_solve_score_there(double *loss, const sw_solve_problem *p, const double *d_weight,
                             sw_err *err)
{
    sw_frame frame = {0};
    sw_device_problem d;
    sw_code rc = new_frame(&frame, p, err);

    if (rc != SW_OK) return rc;
    d = problem_of(p, &frame);
    rc = sw_solver_score(loss, p->solver, &d, d_weight, err);
    sw_frame_free(&frame);
    return rc;
}
