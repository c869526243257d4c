/* routed_wide.cu - the kernels of routed experts in int8 for hundreds of rows. */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/experts/routed_wide.cuh"

using cut = rt_wide_cut;

static const rt_kernel kernel = {cut::T,
                                 {(const void *)swk_routed_wide_sm90<true>,
                                  (const void *)swk_routed_wide_sm90<false>},
                                 cut::shared_bytes, cut::threads, cut::box, 1, cut::T * cut::C, 1,
                                 2 * cut::box};

extern "C" const rt_kernel *sw_routed_wide(int rows, w8a8_mode mode)
{
    return rows == cut::T && mode == W8A8_PLAIN ? &kernel : NULL;
}
