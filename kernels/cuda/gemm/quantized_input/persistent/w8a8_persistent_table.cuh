/* w8a8_persistent_table.cuh - the persistent kernels for one kind of weights, by what changes along
 * k and the type of Y. Compiled once a kind, SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/gemm/quantized_input/persistent/w8a8_integer_rows.cuh"

#define SW_STAGES (w8a8_is_int4(SW_W8A8_KIND) ? 5 : 4)
/* Where no stage is kept one kernel stores both types of Y. */
#define SW_ENTRY(MODE, BF16)                                                                       \
    {                                                                                              \
        (const void *)swk_w8a8_persistent_sm90<SW_W8A8_KIND, MODE, SW_STAGES,                      \
                                               (BF16) || !a8l_keeps(SW_W8A8_KIND, MODE)>,          \
            a8l_shared_bytes<SW_W8A8_KIND, MODE, SW_STAGES>(), SW_A8L_THREADS                      \
    }
#define SW_ROWS_ENTRY(BF16)                                                                        \
    {                                                                                              \
        (const void *)swk_w8a8_token_rows_sm90<SW_STAGES, BF16>,                                   \
            a8l_shared_bytes<SW_W8A8_KIND, W8A8_X_BLOCKS, SW_STAGES>(), SW_A8L_THREADS             \
    }

static const w8a8_kernel kernels[][2] = {
    {SW_ENTRY(W8A8_PLAIN, false), SW_ENTRY(W8A8_PLAIN, true)},
    {SW_ENTRY(W8A8_GROUPED, false), SW_ENTRY(W8A8_GROUPED, true)},
};

/* int8 with tokens as rows. */
template <int KIND> static const w8a8_kernel *with_rows(bool y_is_bf16)
{
    if constexpr (KIND == W8A8_INT8) {
        static const w8a8_kernel rows[] = {
            {(const void *)swk_w8a8_integer_rows_sm90<SW_STAGES, false>,
             a8l_shared_bytes<KIND, W8A8_PLAIN, SW_STAGES>(), SW_A8L_THREADS},
            {(const void *)swk_w8a8_integer_rows_sm90<SW_STAGES, true>,
             a8l_shared_bytes<KIND, W8A8_PLAIN, SW_STAGES>(), SW_A8L_THREADS},
        };

        return &rows[y_is_bf16];
    }
    return NULL;
}

/* Only inputs in E4M3 have scales by groups. */
template <int KIND>
static const w8a8_kernel *with_x_groups(w8a8_mode mode, bool y_is_bf16)
{
    if constexpr (KIND == W8A8_E4M3) {
        static const w8a8_kernel with_x[][2] = {
            {SW_ENTRY(W8A8_X_GROUPS, false), SW_ENTRY(W8A8_X_GROUPS, true)},
            {SW_ROWS_ENTRY(false), SW_ROWS_ENTRY(true)},
        };

        return &with_x[mode - W8A8_X_GROUPS][y_is_bf16];
    }
    return NULL;
}

extern "C" const w8a8_kernel *SW_INSTANCE(sw_w8a8_persistent)(w8a8_mode mode, bool y_is_bf16)
{
    if (mode == W8A8_PLAIN_ROWS) return with_rows<SW_W8A8_KIND>(y_is_bf16);
    return mode <= W8A8_GROUPED ? &kernels[mode][y_is_bf16]
                                : with_x_groups<SW_W8A8_KIND>(mode, y_is_bf16);
}
