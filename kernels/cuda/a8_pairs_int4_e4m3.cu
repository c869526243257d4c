/* a8_pairs_int4_e4m3.cu - the kernels by pairs of CTAs for weights of 4 bits and inputs in E4M3. */
#define SW_A8_KIND A8_INT4_E4M3
#include "kernels/cuda/a8_pairs_table.cuh"

extern "C" const a8_kernel *sw_a8_pairs_int4_e4m3(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
