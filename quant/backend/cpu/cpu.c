/* cpu.c - the backend that computes in memory on the CPU, and can do everything. */
#include "quant/backend/cpu/cpu.h"

#include "quant/method/slab.h"
#include "quant/method/weight_rows.h"

const sw_backend sw_backend_cpu = {
    .name = "cpu",
    .values_dtype = SW_DTYPE_F32,
    .rows_together = SW_SLAB_ROWS,
#define SW_STEP(step, args) .step = sw_cpu_##step,
#define SW_STEP_OF(type, step, args) .step = sw_cpu_##step,
#include "quant/backend_steps.def"
#undef SW_STEP
#undef SW_STEP_OF
    .decode = sw_weight_decode,
};
