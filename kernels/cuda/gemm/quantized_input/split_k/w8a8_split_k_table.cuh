/* w8a8_split_k_table.cuh - the kernels that split k for one kind of weights, by tile and what
 * changes along k. Compiled once a kind, SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_wgmma.cuh"

#define SW_W8A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, MODE)                                       \
    {                                                                                              \
        (const void *)swk_w8a8_split_k_sm90<SW_W8A8_KIND, T, MT, NWG, ST, PER_SM, COPIERS, MODE>,  \
            w8a8_shared_bytes<SW_W8A8_KIND, T, MT, NWG, ST, MODE>(),                               \
            NWG * 128 + w8a8_copiers<COPIERS, MODE>()                                              \
    }
/* Scales by groups: of X too, where inputs may have some. */
#define SW_GROUPED (SW_W8A8_KIND == W8A8_E4M3 ? W8A8_X_GROUPS : W8A8_GROUPED)
/* Those of blocks, where a tile knows them and has registers for them. */
#define SW_BLOCKS(T, PER_SM, COPIERS)                                                              \
    (SW_W8A8_KIND == W8A8_E4M3 && T <= 64 && w8a8_in_pieces<T, PER_SM, COPIERS>()                  \
         ? W8A8_X_BLOCKS                                                                           \
         : SW_GROUPED)

enum { PLAIN, GROUPED, BLOCKS };
static const w8a8_kernel kernels[][3] = {
#define SW_W8A8_TILE(name, T, MT, NWG, ST, PER_SM, COPIERS)                                        \
    {SW_W8A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, W8A8_PLAIN),                                   \
     SW_W8A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, SW_GROUPED),                                   \
     SW_W8A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, SW_BLOCKS(T, PER_SM, COPIERS))},
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_tiles.def"
#undef SW_W8A8_TILE
#undef SW_W8A8_ENTRY
};

extern "C" const w8a8_kernel *SW_INSTANCE(sw_w8a8_split_k)(int tile, w8a8_mode mode)
{
    return &kernels[tile][mode == W8A8_PLAIN ? PLAIN : mode == W8A8_X_BLOCKS ? BLOCKS : GROUPED];
}
