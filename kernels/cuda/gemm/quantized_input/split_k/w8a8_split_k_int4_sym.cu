/* w8a8_split_k_int4_sym.cu - the kernels of 8-bit inputs for weights in int4 without zero points of
 * their own.
 */
#define SW_W8A8_KIND W8A8_INT4_SYM
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_table.cuh"

extern "C" const w8a8_kernel *sw_w8a8_kernel_int4_sym(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
