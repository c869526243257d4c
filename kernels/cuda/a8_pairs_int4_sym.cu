/* a8_pairs_int4_sym.cu - the kernels by pairs of CTAs for weights of 4 bits without zero points. */
#define SW_A8_KIND A8_INT4_SYM
#include "kernels/cuda/a8_pairs_table.cuh"

extern "C" const a8_kernel *sw_a8_pairs_int4_sym(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
