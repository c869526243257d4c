/* a8_pairs_e4m3.cu - the kernels by pairs of CTAs for weights in E4M3. */
#define SW_A8_KIND A8_E4M3
#include "kernels/cuda/a8_pairs_table.cuh"

extern "C" const a8_kernel *sw_a8_pairs_e4m3(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
