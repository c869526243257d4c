/* w4a16_f16.cu - the W4A16 kernels, X and Y in f16. */
#define SW_NW4_BF16 0
#include "kernels/cuda/gemm/weight_only/w4a16_table.cuh"

extern "C" const nw_kernel *sw_w4a16_f16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
