/* a8_large_e4m3.cu - the kernels for many tokens, weights in E4M3. */
#include "kernels/cuda/a8_large_table.cuh"

static const a8_kernel kernels[] = {SW_A8L_ENTRY(A8_E4M3, A8_PLAIN, 4),
                                    SW_A8L_ENTRY(A8_E4M3, A8_GROUPED, 4),
                                    SW_A8L_ENTRY(A8_E4M3, A8_X_GROUPS, 4)};

extern "C" const a8_kernel *sw_a8_large_e4m3(int mode)
{
    return &kernels[mode];
}
