/* w8a8_split_k_int8.cu - the kernels of 8-bit inputs for weights in int8. */
#define SW_W8A8_KIND W8A8_INT8
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_table.cuh"

extern "C" const w8a8_kernel *sw_w8a8_kernel_int8(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
