/* a8_large_int8.cu - the kernels for many tokens, weights in int8. */
#include "kernels/cuda/a8_large_table.cuh"

static const a8_kernel kernels[] = {SW_A8L_ENTRY(A8_INT8, A8_PLAIN, 4),
                                    SW_A8L_ENTRY(A8_INT8, A8_GROUPED, 4)};

extern "C" const a8_kernel *sw_a8_large_int8(int mode)
{
    return mode <= A8_GROUPED ? &kernels[mode] : NULL;
}
