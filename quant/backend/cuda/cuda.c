/* cuda.c - the backend that computes on a CUDA device. What it lacks the CPU does: specs that the
 * device's solver does not know, streams in a file, and architectures that its engine cannot run.
 */
#include "quant/backend/cuda/cuda.h"

#include "quant/method/weight_rows.h"

const sw_backend sw_backend_cuda = {
    .name = "cuda",
    .fallback = &sw_backend_cpu,
    .values_dtype = SW_DTYPE_BF16,
    .rows_together = SW_SOLVER_PRODUCT_ROWS,
    .n_lanes_most = SW_SOLVER_LANES,
    .adds_pieces = true,
#define SW_STEP(step, args) .step = sw_cuda_##step,
#define SW_STEP_OF(type, step, args) .step = sw_cuda_##step,
#include "quant/backend_steps.def"
#undef SW_STEP
#undef SW_STEP_OF
    .decode = sw_weight_decode_bf16,
};
