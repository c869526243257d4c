/* w8a8_two_ctas_table.cuh - the kernels of two CTAs a cluster for one kind of weights, by tile and
 * what changes along k. Compiled once a kind, SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas.cuh"

#define SW_A8P_ENTRY(T, NT, BY_T, RING, SHARED, MODE)                                              \
    {                                                                                              \
        (const void *)swk_w8a8_two_ctas_sm90<SW_W8A8_KIND, T, NT, BY_T, RING, SHARED, MODE>,       \
            a8p_shared_bytes<SW_W8A8_KIND, T, NT, RING, MODE>(),                                   \
            NT *BY_T * 128 + a8p_copiers<SW_W8A8_KIND, NT, MODE>()                                 \
    }

static const w8a8_kernel kernels[][2] = {
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED)                                               \
    {SW_A8P_ENTRY(T, NT, BY_T, RING, SHARED, W8A8_PLAIN),                                          \
     SW_A8P_ENTRY(T, NT, BY_T, RING, SHARED, W8A8_GROUPED)},
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
};

/* Only inputs in E4M3 have scales by groups. */
template <int KIND>
static const w8a8_kernel *with_blocks(int tile)
{
    if constexpr (KIND == W8A8_E4M3) {
        static const w8a8_kernel of_blocks[] = {
#define SW_A8P_TILE(name, T, NT, BY_T, RING, SHARED)                                               \
    SW_A8P_ENTRY(T, NT, BY_T, RING, SHARED, W8A8_X_BLOCKS),
#include "kernels/cuda/gemm/quantized_input/two_ctas/w8a8_two_ctas_tiles.def"
#undef SW_A8P_TILE
        };

        return &of_blocks[tile];
    }
    return NULL;
}

extern "C" const w8a8_kernel *SW_INSTANCE(sw_w8a8_two_ctas)(int tile, w8a8_mode mode)
{
    if (mode == W8A8_X_BLOCKS) return with_blocks<SW_W8A8_KIND>(tile);
    return mode <= W8A8_GROUPED ? &kernels[tile][mode] : NULL;
}
