/* a8_int4_e4m3.cu - the byte kernels for weights in int4 without zero points of their own, and
 * inputs in E4M3. */
#define SW_A8_KIND A8_INT4_E4M3
#include "kernels/cuda/a8_table.cuh"

extern "C" const a8_kernel *sw_a8_kernel_int4_e4m3(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
