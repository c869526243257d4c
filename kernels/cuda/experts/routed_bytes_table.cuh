/* routed_bytes_table.cuh - the kernels of routed experts with inputs of bytes for one kind of
 * weights, by rows and by whether scales change along k. Compiled once a kind, SW_W8A8_KIND
 * (instances.txt). */
#include "kernels/cuda/experts/routed_bytes.cuh"
#include "kernels/cuda/experts/routed_kernels.h"

template <class CUT> static rt_kernel rt_entry(void)
{
    return {CUT::T, {(const void *)swk_routed_bytes_sm90<CUT, true>,
                     (const void *)swk_routed_bytes_sm90<CUT, false>},
            rt_few<CUT>::shared_bytes, CUT::threads, CUT::box, 1, rt_few<CUT>::partial_floats};
}

#define RT_ENTRY(T, STAGES, COPIERS, MODE) \
    {MODE, rt_entry<rt_byte_cut<SW_W8A8_KIND, T, STAGES, COPIERS, MODE>>()}

/* Of E4M3 in groups with scales of channels, which are rare, the least and the most rows alone. */
static const struct {
    w8a8_mode mode;
    rt_kernel kernel;
} kernels[] = {
    RT_ENTRY(16, 6, 64, W8A8_PLAIN), RT_ENTRY(128, 4, 128, W8A8_PLAIN),
#ifndef SW_CUDA_QUICK
    RT_ENTRY(32, 5, 64, W8A8_PLAIN), RT_ENTRY(64, 5, 64, W8A8_PLAIN),
#endif
#if SW_HAS_GROUPS
    RT_ENTRY(16, 6, 64, W8A8_GROUPED), RT_ENTRY(128, 4, 128, W8A8_GROUPED),
#ifndef SW_CUDA_QUICK
    RT_ENTRY(32, 5, 64, W8A8_GROUPED), RT_ENTRY(64, 5, 64, W8A8_GROUPED),
#endif
#endif
#if SW_HAS_X_GROUPS
    RT_ENTRY(16, 6, 64, W8A8_X_GROUPS), RT_ENTRY(128, 4, 128, W8A8_X_GROUPS),
    RT_ENTRY(16, 6, 64, W8A8_X_BLOCKS), RT_ENTRY(128, 4, 128, W8A8_X_BLOCKS),
#ifndef SW_CUDA_QUICK
    RT_ENTRY(32, 5, 64, W8A8_X_BLOCKS), RT_ENTRY(64, 5, 64, W8A8_X_BLOCKS),
#endif
#endif
};

extern "C" const rt_kernel *SW_INSTANCE(sw_routed_bytes)(int rows, w8a8_mode mode)
{
    for (const auto &k : kernels)
        if (k.kernel.rows == rows && k.mode == mode) return &k.kernel;
    return NULL;
}
