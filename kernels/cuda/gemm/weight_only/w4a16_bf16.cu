/* w4a16_bf16.cu - the W4A16 kernels, X and Y in bf16. */
#define SW_NW4_BF16 1
#include "kernels/cuda/gemm/weight_only/w4a16_table.cuh"

extern "C" const nw_kernel *sw_w4a16_bf16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
