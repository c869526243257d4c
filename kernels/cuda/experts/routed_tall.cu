/* routed_tall.cu - the kernels of routed experts in E4M3 for hundreds of rows. */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/experts/routed_tall.cuh"

template <class CUT> static rt_kernel rt_entry(void)
{
    return {CUT::T,
            {(const void *)swk_routed_tall_sm90<CUT, true>,
             (const void *)swk_routed_tall_sm90<CUT, false>},
            CUT::shared_bytes, CUT::threads, CUT::box, 1, CUT::T * CUT::C, CUT::CTAS, 0,
            CUT::X_SCALES_SORTED};
}

static const rt_kernel of_channels = rt_entry<rt_tall_cut<false>>();
static const rt_kernel of_blocks = rt_entry<rt_tall_cut<true>>();

extern "C" const rt_kernel *sw_routed_tall(w8a8_mode mode)
{
    return mode == W8A8_PLAIN ? &of_channels : mode == W8A8_X_BLOCKS ? &of_blocks : NULL;
}
