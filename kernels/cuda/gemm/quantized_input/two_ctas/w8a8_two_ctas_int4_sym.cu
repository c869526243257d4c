/* w8a8_two_ctas_int4_sym.cu - the kernels by pairs of CTAs for weights of 4 bits without zero
 * points. */
#define SW_W8A8_KIND W8A8_INT4_SYM
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_table.cuh"

extern "C" const w8a8_kernel *sw_w8a8_two_ctas_int4_sym(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
