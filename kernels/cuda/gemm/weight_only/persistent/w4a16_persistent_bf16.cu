/* w4a16_persistent_bf16.cu - the kernels for many tokens, X and Y in bf16. */
#define SW_NWL_BF16 1
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_table.cuh"

extern "C" const nwl_kernel *sw_w4a16_persistent_bf16(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
