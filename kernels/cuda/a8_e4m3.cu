/* a8_e4m3.cu - the byte kernels for weights in e4m3. */
#define SW_A8_KIND A8_E4M3
#include "kernels/cuda/a8_table.cuh"

extern "C" const a8_kernel *sw_a8_kernel_e4m3(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
