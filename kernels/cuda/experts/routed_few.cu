/* routed_few.cu - the kernels of routed experts for few rows that are compiled, by rows. */
#include "kernels/cuda/experts/routed_few.cuh"
#include "kernels/cuda/experts/routed_kernels.h"

#define RT_CUT(T, STAGES) \
    rt_cut<nw_cut<NW_INT4, T, 2, 2, 1, 1, STAGES, RT_FEW_CTAS, NW_GROUPS, true, false>>
#define RT_ENTRY(T, STAGES)                                                \
    {T,                                                                    \
     {(const void *)swk_routed_few_sm90<RT_CUT(T, STAGES), true>,          \
      (const void *)swk_routed_few_sm90<RT_CUT(T, STAGES), false>},        \
     rt_few<RT_CUT(T, STAGES)>::shared_bytes, rt_few<RT_CUT(T, STAGES)>::threads, RT_FEW_BOX, RT_FEW_CTAS, \
     rt_few<RT_CUT(T, STAGES)>::partial_floats}

static const rt_kernel kernels[] = {
    RT_ENTRY(8, 5),
#ifndef SW_CUDA_QUICK
    RT_ENTRY(16, 5), RT_ENTRY(32, 4),
#endif
};

extern "C" const rt_kernel *sw_routed_few(int rows)
{
    for (const rt_kernel &k : kernels)
        if (k.rows == rows) return &k;
    return NULL;
}
