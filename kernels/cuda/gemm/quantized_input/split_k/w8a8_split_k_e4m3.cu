/* w8a8_split_k_e4m3.cu - the kernels of 8-bit inputs for weights in e4m3. */
#define SW_W8A8_KIND W8A8_E4M3
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_table.cuh"

extern "C" const w8a8_kernel *sw_w8a8_kernel_e4m3(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
