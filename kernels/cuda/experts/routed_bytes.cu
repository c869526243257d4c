/* routed_bytes.cu - the kernels of routed experts in E4M3 that are compiled, by rows and by whether
 * scales change along k. */
#include "kernels/cuda/experts/routed_bytes.cuh"
#include "kernels/cuda/experts/routed_kernels.h"

#define RT_ENTRY(T, STAGES, COPIERS, GROUPED)                                             \
    {T,                                                                                   \
     {(const void *)swk_routed_bytes_sm90<rt_byte_cut<T, STAGES, COPIERS, GROUPED>, true>, \
      (const void *)swk_routed_bytes_sm90<rt_byte_cut<T, STAGES, COPIERS, GROUPED>,        \
                                          false>},                                        \
     rt_few<rt_byte_cut<T, STAGES, COPIERS, GROUPED>>::shared_bytes,                      \
     rt_byte_cut<T, STAGES, COPIERS, GROUPED>::threads,                                   \
     rt_byte_cut<T, STAGES, COPIERS, GROUPED>::box, 1,                                    \
     rt_few<rt_byte_cut<T, STAGES, COPIERS, GROUPED>>::partial_floats}

static const rt_kernel kernels[][2] = {
    {RT_ENTRY(16, 6, 64, false), RT_ENTRY(16, 6, 64, true)},
#ifndef SW_CUDA_QUICK
    {RT_ENTRY(32, 5, 64, false), RT_ENTRY(32, 5, 64, true)},
    {RT_ENTRY(64, 5, 64, false), RT_ENTRY(64, 5, 64, true)},
#endif
    {RT_ENTRY(128, 4, 128, false), RT_ENTRY(128, 4, 128, true)},
};

extern "C" const rt_kernel *sw_routed_bytes(int rows, bool is_grouped)
{
    for (const rt_kernel (&k)[2] : kernels)
        if (k[0].rows == rows) return &k[is_grouped];
    return NULL;
}
