/* w8a8_two_ctas_int8.cu - the kernels by pairs of CTAs for weights in int8. */
#define SW_W8A8_KIND W8A8_INT8
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_table.cuh"

extern "C" const w8a8_kernel *sw_w8a8_two_ctas_int8(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
