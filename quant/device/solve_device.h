/* solve_device.h - handing a weight to a device. For the solvers alone. */
#ifndef SW_QUANT_DEVICE_SOLVE_DEVICE_H
#define SW_QUANT_DEVICE_SOLVE_DEVICE_H

#include "quant/method/algo.h"

/* Is there a device for this problem, and does it know the format? */
bool sw_solve_has_device(const sw_solve_problem *p);
/* Solve there; with a factor the report gets its errors. refit: see sw_device_problem. */
sw_code sw_solve_there(sw_qtensor *q, const sw_solve_problem *p, sw_device_method method,
                       bool refit, sw_solve_report *report, sw_err *err) SW_MUST_USE;
/* *loss += what fitting and rounding the rows of p->d_values, at most a slab of them, costs under a
 * weight a column, [k_in] on the device. */
sw_code sw_solve_score_there(double *loss, const sw_solve_problem *p, const double *d_weight,
                             sw_err *err) SW_MUST_USE;

#endif
