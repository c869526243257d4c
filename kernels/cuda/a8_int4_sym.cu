/* a8_int4_sym.cu - the byte kernels for weights in int4 without zero points of their own. */
#define SW_A8_KIND A8_INT4_SYM
#include "kernels/cuda/a8_table.cuh"

extern "C" const a8_kernel *sw_a8_kernel_int4_sym(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
