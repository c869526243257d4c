/* w8a8_persistent_table.cuh - the persistent kernels for one kind of weights, by what changes along
 * k. Compiled once a kind, SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_persistent.cuh"

#define SW_STAGES (w8a8_is_int4(SW_W8A8_KIND) ? 5 : 4)
#define SW_ENTRY(MODE, BF16)                                                                       \
    {                                                                                              \
        (const void *)swk_w8a8_persistent_sm90<SW_W8A8_KIND, MODE, SW_STAGES, BF16>,               \
            a8l_shared_bytes<SW_W8A8_KIND, MODE, SW_STAGES>(), SW_A8L_THREADS                      \
    }

static const w8a8_kernel kernels[] = {SW_ENTRY(W8A8_PLAIN, true), SW_ENTRY(W8A8_GROUPED, true)};

/* Of a CTA alone the same kernel stores both types of Y. */
static const w8a8_kernel plain_f16 =
    SW_ENTRY(W8A8_PLAIN, (SW_A8L_CTAS(SW_W8A8_KIND, W8A8_PLAIN) == 1));

/* Only inputs in E4M3 have scales by groups. */
template <int KIND>
static const w8a8_kernel *with_x_groups()
{
    if constexpr (KIND == W8A8_E4M3) {
        static const w8a8_kernel kernel = SW_ENTRY(W8A8_X_GROUPS, true);

        return &kernel;
    }
    return NULL;
}

extern "C" const w8a8_kernel *SW_INSTANCE(sw_w8a8_persistent)(int mode, bool y_is_bf16)
{
    if (mode == W8A8_PLAIN && !y_is_bf16) return &plain_f16;
    return mode <= W8A8_GROUPED ? &kernels[mode] : with_x_groups<SW_W8A8_KIND>();
}
