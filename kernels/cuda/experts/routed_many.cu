/* routed_many.cu - the kernels of routed experts of 4 bits for many rows that are compiled, by rows
 * and by the inputs of a scale: 0 (int4), 32 and 16 (E2M1). */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/experts/routed_many.cuh"

#define RT_ENTRY(ROWS, SCALE_K)                                  \
    {ROWS,                                                       \
     {(const void *)swk_routed_many_sm90<SCALE_K, ROWS, true>,   \
      (const void *)swk_routed_many_sm90<SCALE_K, ROWS, false>}, \
     rt_many_of<SCALE_K, ROWS, ROWS>::shared_bytes,              \
     rt_many_of<SCALE_K, ROWS, ROWS>::threads, rt_many_box<ROWS>, 1, 0}
#define RT_ROW(ROWS) {RT_ENTRY(ROWS, 0), RT_ENTRY(ROWS, 32), RT_ENTRY(ROWS, 16)}

static const rt_kernel kernels[][3] = {
#ifndef SW_CUDA_QUICK
    RT_ROW(96),
#endif
    RT_ROW(128),
};

extern "C" const rt_kernel *sw_routed_many(int rows, int scale_k)
{
    for (const rt_kernel (&k)[3] : kernels)
        if (k[0].rows == rows) return &k[scale_k == 32 ? 1 : scale_k == 16 ? 2 : 0];
    return NULL;
}
