/* a8_large_int4_sym.cu - the kernels for many tokens, weights in int4 without zero points. */
#include "kernels/cuda/a8_large_table.cuh"

static const a8_kernel kernels[] = {SW_A8L_ENTRY(A8_INT4_SYM, A8_PLAIN, 5),
                                    SW_A8L_ENTRY(A8_INT4_SYM, A8_GROUPED, 5)};

extern "C" const a8_kernel *sw_a8_large_int4_sym(int mode)
{
    return mode <= A8_GROUPED ? &kernels[mode] : NULL;
}
