/* cuda_half.h - what a half of a block does to the residual stream, as pure functions of the model:
 * what observing a site may leave out.
 */
#ifndef SW_QUANT_BACKEND_CUDA_CUDA_HALF_H
#define SW_QUANT_BACKEND_CUDA_CUDA_HALF_H

#include "kernels/engine/engine.h"

/* Whether the linear that reads `site`, the only one to do so, ends the half: what it makes is
 * added to the residual stream as it is, and nothing happens to the stream after it. */
bool sw_cuda_half_only_adds(const sw_model *m, int64_t layer, sw_half half, sw_site site);
/* Whether a run of that half up to the linear that reads `site` leaves the residual stream, and
 * what lies beside it, as it was. */
bool sw_cuda_half_leaves_stream(const sw_model *m, int64_t layer, sw_half half, sw_site site);

#endif
