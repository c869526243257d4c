/* cpu_solve.c - solving weights in memory on the CPU. */
#include "quant/backend/cpu/cpu.h"
#include "quant/method/rounding.h"
#include "quant/method/weight_rows.h"

bool sw_cpu_can_solve(const sw_qspec *spec)
{
    (void)spec;
    return true;
}

typedef sw_code (*rows_fn)(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                           sw_err *err);

/* The decoded result takes the place of p->values. */
static sw_code solve_values(const sw_solve_problem *p, rows_fn rows, sw_solve_report *report,
                            sw_err *err)
{
    sw_solve_problem own = *p;
    sw_qtensor q = {0};
    sw_code rc = sw_qtensor_alloc(&q, &p->spec, p->n_out, p->k_in, err);

    if (rc != SW_OK) return rc;
    own.w = p->values;
    rc = rows(&q, &own, report, err);
    if (rc == SW_OK) sw_weight_decode(p->values, &q, p->n_threads);
    sw_qtensor_free(&q);
    return rc;
}

sw_code sw_cpu_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_kind kind,
                     sw_solve_report *report, sw_err *err)
{
    static const rows_fn rows[SW_SOLVE_KINDS] = {[SW_SOLVE_RTN] = sw_rtn_rows,
                                                 [SW_SOLVE_CLIP] = sw_clip_rows,
                                                 [SW_SOLVE_GPTQ] = sw_gptq_rows};

    return q ? rows[kind](q, p, report, err) : solve_values(p, rows[kind], report, err);
}
