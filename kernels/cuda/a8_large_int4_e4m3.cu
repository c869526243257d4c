/* a8_large_int4_e4m3.cu - the kernels for many tokens, weights in int4 without zero points and
 * inputs in E4M3. */
#include "kernels/cuda/a8_large_table.cuh"

static const a8_kernel kernels[] = {SW_A8L_ENTRY(A8_INT4_E4M3, A8_PLAIN, 5),
                                    SW_A8L_ENTRY(A8_INT4_E4M3, A8_GROUPED, 5)};

extern "C" const a8_kernel *sw_a8_large_int4_e4m3(int mode)
{
    return mode <= A8_GROUPED ? &kernels[mode] : NULL;
}
