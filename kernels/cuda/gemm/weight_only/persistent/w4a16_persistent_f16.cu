/* w4a16_persistent_f16.cu - the kernels for many tokens, X and Y in f16. */
#define SW_NWL_BF16 0
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_table.cuh"

extern "C" const nwl_kernel *sw_w4a16_persistent_f16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
