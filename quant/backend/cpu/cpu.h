/* cpu.h - the steps of the CPU's backend, all in memory: backend.h says what each does. For this
 * room alone.
 */
#ifndef SW_QUANT_BACKEND_CPU_CPU_H
#define SW_QUANT_BACKEND_CPU_CPU_H

#include "quant/backend.h"
#include "quant/method/algo.h"
#include "quant/method/target.h"
#include "quant/search/score.h"
#include "quant/search/transform.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"

#define SW_STEP(name, args) sw_code sw_cpu_##name args SW_MUST_USE;
#define SW_STEP_OF(type, name, args) type sw_cpu_##name args;
#include "quant/backend_steps.def"
#undef SW_STEP
#undef SW_STEP_OF

#endif
