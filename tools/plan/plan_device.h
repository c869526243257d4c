/* plan_device.h - the device that a planned run will have, and how its memory is told. */
#ifndef SW_TOOLS_PLAN_PLAN_DEVICE_H
#define SW_TOOLS_PLAN_PLAN_DEVICE_H

#include "tools/plan/plan.h"

/* Of what --device says: a device's name is what decoding is predicted for; else how much of it a
 * run may take goes to the job, and of a list as many ranks as it has devices. The words change
 * to what quantize knows. SW_E_USAGE: no such word, a size without a device. SW_E_CUDA: it is not
 * here, and no size was given. */
sw_code sw_plan_device_options(sw_plan_options *o, sw_err *err) SW_MUST_USE;
sw_code sw_plan_device_find(sw_quantize_job *job, const sw_plan_options *o,
                            sw_err *err) SW_MUST_USE;

/* Nothing where the run has no device. */
void sw_plan_device_print(const sw_plan *plan, const sw_quantize_job *job);
/* SW_E_NOMEM. */
sw_code sw_plan_device_add_json(cJSON *root, const sw_plan *plan, const sw_quantize_job *job,
                                sw_err *err) SW_MUST_USE;
/* The memory of one host with all ranks: what they map of the model's files counts once. */
double sw_plan_host_bytes(const sw_plan *plan, const sw_quantize_job *job);

#endif
