/* w8a8_persistent_int4.cu - the kernels for many tokens, weights in int4. */
#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_persistent_table.cuh"

static const w8a8_kernel kernels[] = {SW_A8L_ENTRY(W8A8_INT4, W8A8_PLAIN, 5),
                                      SW_A8L_ENTRY(W8A8_INT4, W8A8_GROUPED, 5)};

extern "C" const w8a8_kernel *sw_w8a8_persistent_int4(int mode)
{
    return mode <= W8A8_GROUPED ? &kernels[mode] : NULL;
}
