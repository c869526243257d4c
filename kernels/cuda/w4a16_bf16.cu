/* w4a16_bf16.cu - the W4A16 wgmma kernels for X and Y in bf16. */
#define SW_W4_BF16 true
#include "kernels/cuda/w4a16_table.cuh"

extern "C" const w4_kernel *sw_w4a16_kernel_bf16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
