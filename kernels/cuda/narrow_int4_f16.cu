/* narrow_int4_f16.cu - the narrow kernels of int4 weights, X and Y in f16. */
#define SW_NW4_BF16 0
#include "kernels/cuda/narrow_int4_table.cuh"

extern "C" const nw_kernel *sw_narrow4_f16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
