/* w8a8_persistent_table.cuh - the persistent kernels for one kind of weights, by what changes along
 * k. Compiled once a kind, SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_persistent.cuh"

#define SW_STAGES (w8a8_is_int4(SW_W8A8_KIND) ? 5 : 4)
#define SW_ENTRY(MODE)                                                                             \
    {                                                                                              \
        (const void *)swk_w8a8_persistent_sm90<SW_W8A8_KIND, MODE, SW_STAGES>,                     \
            a8l_shared_bytes<SW_W8A8_KIND, MODE, SW_STAGES>(), SW_A8L_THREADS                      \
    }

static const w8a8_kernel kernels[] = {SW_ENTRY(W8A8_PLAIN), SW_ENTRY(W8A8_GROUPED)};

/* Only inputs in E4M3 have scales by groups. */
template <int KIND>
static const w8a8_kernel *with_x_groups()
{
    if constexpr (KIND == W8A8_E4M3) {
        static const w8a8_kernel kernel = SW_ENTRY(W8A8_X_GROUPS);

        return &kernel;
    }
    return NULL;
}

extern "C" const w8a8_kernel *SW_INSTANCE(sw_w8a8_persistent)(int mode)
{
    return mode <= W8A8_GROUPED ? &kernels[mode] : with_x_groups<SW_W8A8_KIND>();
}
