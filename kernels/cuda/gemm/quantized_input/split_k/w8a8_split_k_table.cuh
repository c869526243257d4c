/* w8a8_split_k_table.cuh - the kernels that split k for one kind of weights, by tile and whether
 * scales change along k. Compiled once a kind, SW_W8A8_KIND (instances.txt). */
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_wgmma.cuh"

static const w8a8_kernel kernels[][2] = {
#define SW_W8A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, GROUPED)                                    \
    {                                                                                              \
        (const void *)                                                                             \
            swk_w8a8_split_k_sm90<SW_W8A8_KIND, T, MT, NWG, ST, PER_SM, COPIERS, GROUPED>,         \
            w8a8_shared_bytes<SW_W8A8_KIND, T, MT, NWG, ST, GROUPED>(), NWG * 128 + COPIERS        \
    }
#define SW_W8A8_TILE(name, T, MT, NWG, ST, PER_SM, COPIERS)                                        \
    {SW_W8A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, false),                                        \
     SW_W8A8_ENTRY(T, MT, NWG, ST, PER_SM, COPIERS, true)},
#include "kernels/cuda/gemm/quantized_input/split_k/w8a8_split_k_tiles.def"
#undef SW_W8A8_TILE
#undef SW_W8A8_ENTRY
};

extern "C" const w8a8_kernel *SW_INSTANCE(sw_w8a8_split_k)(int tile, bool is_grouped)
{
    return &kernels[tile][is_grouped];
}
