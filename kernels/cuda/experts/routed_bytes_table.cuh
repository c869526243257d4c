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

/* Weights and inputs of int8 have one scale a channel. */
#define RT_CUT(T, STAGES, COPIERS, GROUPED) rt_byte_cut<SW_W8A8_KIND, T, STAGES, COPIERS, GROUPED>
#if SW_HAS_GROUPS
#define RT_ENTRIES(...) \
    {rt_entry<RT_CUT(__VA_ARGS__, false)>(), rt_entry<RT_CUT(__VA_ARGS__, true)>()}
#else
#define RT_ENTRIES(...) {rt_entry<RT_CUT(__VA_ARGS__, false)>(), {}}
#endif

static const rt_kernel kernels[][2] = {
    RT_ENTRIES(16, 6, 64),
#ifndef SW_CUDA_QUICK
    RT_ENTRIES(32, 5, 64),
    RT_ENTRIES(64, 5, 64),
#endif
    RT_ENTRIES(128, 4, 128),
};

extern "C" const rt_kernel *SW_INSTANCE(sw_routed_bytes)(int rows, bool is_grouped)
{
    for (const rt_kernel (&k)[2] : kernels)
        if (k[is_grouped].rows == rows) return &k[is_grouped];
    return NULL;
}
