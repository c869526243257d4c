/* w8a8_two_ctas_e4m3.cu - the kernels by pairs of CTAs for weights in E4M3. */
#define SW_W8A8_KIND W8A8_E4M3
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_table.cuh"

extern "C" const w8a8_kernel *sw_w8a8_two_ctas_e4m3(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
