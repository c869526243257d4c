/* a8_pairs_int8.cu - the kernels by pairs of CTAs for weights in int8. */
#define SW_A8_KIND A8_INT8
#include "kernels/cuda/a8_pairs_table.cuh"

extern "C" const a8_kernel *sw_a8_pairs_int8(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
