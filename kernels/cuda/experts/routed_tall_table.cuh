/* routed_tall_table.cuh - the kernels of routed experts for hundreds of rows for one kind of
 * weights, by rows and by what changes along k. Compiled once a kind, SW_W8A8_KIND
 * (instances.txt). */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/experts/routed_tall.cuh"

template <class CUT> static rt_kernel rt_entry(void)
{
    return {CUT::T,
            {(const void *)swk_routed_tall_sm90<CUT, true>,
             (const void *)swk_routed_tall_sm90<CUT, false>},
            CUT::shared_bytes, CUT::threads, CUT::box, 1, CUT::T * CUT::C, CUT::CTAS,
            CUT::even_rows};
}

static const struct {
    w8a8_mode mode;
    rt_kernel kernel;
} kernels[] = {
    {W8A8_PLAIN, rt_entry<rt_tall_cut<SW_W8A8_KIND, 192, false>>()},
    {W8A8_PLAIN, rt_entry<rt_tall_cut<SW_W8A8_KIND, 256, false>>()},
#if SW_HAS_X_GROUPS
    {W8A8_X_BLOCKS, rt_entry<rt_tall_cut<SW_W8A8_KIND, 192, true>>()},
    {W8A8_X_BLOCKS, rt_entry<rt_tall_cut<SW_W8A8_KIND, 256, true>>()},
#endif
};

extern "C" const rt_kernel *SW_INSTANCE(sw_routed_tall)(int rows, w8a8_mode mode)
{
    for (const auto &k : kernels)
        if (k.kernel.rows == rows && k.mode == mode) return &k.kernel;
    return NULL;
}
