/* solve.c - the methods of algo.h: what they report, and the backend that solves. */
#include "quant/method/algo.h"

#include <string.h>

static const char *const names[SW_SOLVE_KINDS] = {
    [SW_SOLVE_RTN] = "rtn", [SW_SOLVE_CLIP] = "clip", [SW_SOLVE_GPTQ] = "gptq"};

const char *sw_solver_name(const char *text)
{
    for (int i = 0; i < SW_SOLVE_KINDS; i++)
        if (!strcmp(text, names[i])) return names[i];
    return NULL;
}

static void report_factor(sw_solve_report *report, const sw_factor *factor)
{
    report->damp = factor->damp;
    report->n_damp_retries = factor->n_retries;
    report->n_dead = factor->n_dead;
    report->n_tokens = factor->n_tokens;
}

/* Where the problem is solved. What keeps columns out, or weighs them, is solved in memory, like
 * every spec that the place's backend does not know. */
static sw_place place_of(const sw_solve_problem *p)
{
    const sw_place at = sw_place_for(p->factor ? &p->factor->place : &p->place, &p->spec);

    return p->is_exact || p->importance ? sw_place_cpu(p->n_threads) : at;
}

static sw_code solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_kind kind,
                     sw_solve_report *report, sw_err *err)
{
    const sw_place at = place_of(p);

    report->method = names[kind];
    return sw_backend_of(&at)->solve(q, p, kind, report, err);
}

sw_code sw_rtn_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err)
{
    report->error = report->error_rtn = -1;
    return solve(q, p, SW_SOLVE_RTN, report, err);
}

sw_code sw_clip_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                      sw_err *err)
{
    report_factor(report, p->factor);
    return solve(q, p, SW_SOLVE_CLIP, report, err);
}

sw_code sw_gptq_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                      sw_err *err)
{
    report_factor(report, p->factor);
    return solve(q, p, SW_SOLVE_GPTQ, report, err);
}
