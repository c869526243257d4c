/* w8a8_persistent_int8.cu - the kernels for many tokens, weights in int8. */
#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_persistent_table.cuh"

static const w8a8_kernel kernels[] = {SW_A8L_ENTRY(W8A8_INT8, W8A8_PLAIN, 4),
                                      SW_A8L_ENTRY(W8A8_INT8, W8A8_GROUPED, 4)};

extern "C" const w8a8_kernel *sw_w8a8_persistent_int8(int mode)
{
    return mode <= W8A8_GROUPED ? &kernels[mode] : NULL;
}
