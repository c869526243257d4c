/* w8a8_two_ctas_table.cuh - the kernels of two CTAs a cluster for one kind of weights, by tile and
 * whether scales change along k. Compiled once a kind, SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas.cuh"

static const w8a8_kernel kernels[][2] = {
#define SW_A8P_ENTRY(T, NT, BY_T, RING, SHARED, GROUPED)                                           \
    {                                                                                              \
        (const void *)swk_w8a8_two_ctas_sm90<SW_W8A8_KIND, T, NT, BY_T, RING, SHARED, GROUPED>,    \
            a8p_shared_bytes<SW_W8A8_KIND, T, NT, RING, GROUPED>(),                                \
            NT *BY_T * 128 + a8p_copiers<SW_W8A8_KIND, NT, GROUPED>()                              \
    }
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED)                                               \
    {SW_A8P_ENTRY(T, NT, BY_T, RING, SHARED, false), SW_A8P_ENTRY(T, NT, BY_T, RING, SHARED, true)},
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
#undef SW_A8P_ENTRY
};

extern "C" const w8a8_kernel *SW_INSTANCE(sw_w8a8_two_ctas)(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
