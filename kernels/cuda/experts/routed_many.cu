/* routed_many.cu - the kernels of routed experts of 4 bits for many rows that are compiled, by the
 * inputs of a scale: 0 (int4), 32 and 16 (E2M1). */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/experts/routed_many.cuh"

#define RT_ENTRY(SCALE_K)                                    \
    {RT_MANY_ROWS,                                           \
     {(const void *)swk_routed_many_sm90<SCALE_K, true>,     \
      (const void *)swk_routed_many_sm90<SCALE_K, false>},   \
     rt_many<SCALE_K>::of<RT_MANY_ROWS>::shared_bytes,       \
     rt_many<SCALE_K>::of<RT_MANY_ROWS>::threads, RT_MANY_BOX, 1, 0}

static const rt_kernel kernels[] = {RT_ENTRY(0), RT_ENTRY(32), RT_ENTRY(16)};

extern "C" const rt_kernel *sw_routed_many(int rows, int scale_k)
{
    return rows == RT_MANY_ROWS ? &kernels[scale_k == 32 ? 1 : scale_k == 16 ? 2 : 0] : NULL;
}
