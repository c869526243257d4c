/* routed_many.cu - the kernels of routed experts for many rows that are compiled. */
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/experts/routed_many.cuh"

static const rt_kernel kernel = {RT_MANY_ROWS,
                                 {(const void *)swk_routed_many_sm90<true>,
                                  (const void *)swk_routed_many_sm90<false>},
                                 rt_many<RT_MANY_ROWS>::shared_bytes,
                                 rt_many<RT_MANY_ROWS>::threads, RT_MANY_BOX, 1, 0};

extern "C" const rt_kernel *sw_routed_many(int rows)
{
    return rows == kernel.rows ? &kernel : NULL;
}
