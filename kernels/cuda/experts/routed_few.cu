/* routed_few.cu - the kernels of routed experts of 4 bits for few rows that are compiled, by rows
 * and by the inputs of a scale: 0 (int4), 32 and 16 (E2M1). */
#include "kernels/cuda/experts/routed_few.cuh"
#include "kernels/cuda/experts/routed_kernels.h"

#define RT_INT4(T, STAGES) \
    rt_cut<nw_cut<NW_INT4, T, 2, 2, 1, 1, STAGES, RT_FEW_CTAS, NW_GROUPS, true, false>>
#define RT_E2M1(T, STAGES, SCALE_K)                                                            \
    rt_e2m1_cut<nw_cut<NW_INT4, T, 2, 2, 1, 1, STAGES, RT_FEW_CTAS, NW_SCALED, true, false>,   \
                SCALE_K>
/* Of more than 32 rows, with scales in the weights whatever they are. */
#define RT_ONE_TILE(T, STAGES) \
    rt_long_batches<nw_cut<NW_INT4, T, 1, 4, 1, 1, STAGES, 1, NW_SCALED, true, false>>
#define RT_ENTRY(T, ...)                                       \
    {T,                                                        \
     {(const void *)swk_routed_few_sm90<__VA_ARGS__, true>,    \
      (const void *)swk_routed_few_sm90<__VA_ARGS__, false>},  \
     rt_few<__VA_ARGS__>::shared_bytes, rt_few<__VA_ARGS__>::threads, __VA_ARGS__::box,        \
     __VA_ARGS__::PER_SM, rt_few<__VA_ARGS__>::partial_floats}
/* STAGES_16: of scales of 16 inputs, of which a stage has the most. */
#define RT_ROW(T, STAGES, STAGES_16)                                             \
    {RT_ENTRY(T, RT_INT4(T, STAGES)), RT_ENTRY(T, RT_E2M1(T, STAGES, 32)),       \
     RT_ENTRY(T, RT_E2M1(T, STAGES_16, 16))}
#define RT_ONE_TILE_ROW(T, STAGES)                                               \
    {RT_ENTRY(T, rt_cut<RT_ONE_TILE(T, STAGES)>),                                \
     RT_ENTRY(T, rt_e2m1_cut<RT_ONE_TILE(T, STAGES), 32>),                       \
     RT_ENTRY(T, rt_e2m1_cut<RT_ONE_TILE(T, STAGES), 16>)}

static const rt_kernel kernels[][3] = {
    RT_ROW(8, 5, 5),
#ifndef SW_CUDA_QUICK
    RT_ROW(16, 4, 4), RT_ROW(32, 4, 3), RT_ONE_TILE_ROW(48, 6), RT_ONE_TILE_ROW(64, 5),
#endif
};

extern "C" const rt_kernel *sw_routed_few(int rows, int scale_k)
{
    for (const rt_kernel (&k)[3] : kernels)
        if (k[0].rows == rows) return &k[scale_k == 32 ? 1 : scale_k == 16 ? 2 : 0];
    return NULL;
}
