/* a8_int4.cu - the byte kernels for weights in int4. */
#define SW_A8_KIND A8_INT4
#include "kernels/cuda/a8_table.cuh"

extern "C" const a8_kernel *sw_a8_kernel_int4(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
