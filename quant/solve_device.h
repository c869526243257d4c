/* solve_device.h - handing a weight to a device. For the solvers alone. */
#ifndef SW_QUANT_SOLVE_DEVICE_H
#define SW_QUANT_SOLVE_DEVICE_H

#include "quant/algo.h"

/* Is there a device for this problem, and does it know the format? */
bool sw_solve_has_device(const sw_solve_problem *p);
/* Plain rounding, or GPTQ with refinement, there; the report gets its errors. */
sw_code sw_solve_rtn_device(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                            sw_err *err) SW_MUST_USE;
sw_code sw_solve_gptq_device(sw_qtensor *q, const sw_solve_problem *p, bool refit,
                             sw_solve_report *report, sw_err *err) SW_MUST_USE;

#endif
