/* routed_tall.cu - the kernels of routed experts in E4M3 for hundreds of rows. */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/experts/routed_tall.cuh"

using cut = rt_tall_cut;

static const rt_kernel kernel = {cut::T,
                                 {(const void *)swk_routed_tall_sm90<cut, true>,
                                  (const void *)swk_routed_tall_sm90<cut, false>},
                                 cut::shared_bytes, cut::threads, cut::box, 1, cut::T * cut::C,
                                 cut::CTAS, 0, true};

extern "C" const rt_kernel *sw_routed_tall(void) { return &kernel; }
