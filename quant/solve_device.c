/* solve_device.c - see solve_device.h. */
#include "quant/solve_device.h"

#include "quant/row_work.h"

bool sw_solve_has_device(const sw_solve_problem *p)
{
    if (p->factor) return p->factor->solver && sw_solver_can(&p->spec) && !p->is_exact;
    return p->solver && sw_solver_can(&p->spec) && !p->is_exact;
}

static sw_device_problem problem_of(const sw_solve_problem *p)
{
    return (sw_device_problem){.w = p->w, .n_out = p->n_out, .k_in = p->k_in, .spec = p->spec,
                               .factor = p->factor ? &p->factor->on : NULL,
                               .d_shift = p->target_shift, .refine_rounds = p->refine_rounds};
}

static void report_sums(sw_solve_report *report, const sw_device_sums *sums)
{
    sw_row_figures figures = {sums->loss, sums->loss_rtn, sums->power};

    sw_rows_report(report, &figures);
}

sw_code sw_solve_rtn_device(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                            sw_err *err)
{
    sw_device_problem d = problem_of(p);
    sw_solver *solver = p->factor ? p->factor->solver : p->solver;
    sw_device_sums sums;
    sw_code rc = sw_solver_rtn(q, &sums, solver, &d, NULL, err);

    if (rc == SW_OK && p->factor) report_sums(report, &sums);
    return rc;
}

sw_code sw_solve_gptq_device(sw_qtensor *q, const sw_solve_problem *p, bool refit,
                             sw_solve_report *report, sw_err *err)
{
    sw_device_problem d = problem_of(p);
    sw_device_sums sums;
    sw_code rc;

    d.refit = refit;
    rc = sw_solver_gptq(q, &sums, p->factor->solver, &d, NULL, err);
    if (rc == SW_OK) report_sums(report, &sums);
    return rc;
}
