/* w4a16_f16.cu - the W4A16 wgmma kernels for X and Y in f16. */
#define SW_W4_BF16 false
#include "kernels/cuda/w4a16_table.cuh"

extern "C" const w4_kernel *sw_w4a16_kernel_f16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
