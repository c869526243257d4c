/* w4a16_table.cuh - the kernels of one kind of codes, SW_W_KIND, and one type of X and Y, by tile,
 * groups a stage, and whether there are zero points. Compiled once a kind and type, SW_X_IS_BF16
 * (instances.txt); with SW_W_IS_FUSED those of scaled tiles alone, whose weights are made by
 * nw_fused_batch. */
#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"
#include "kernels/cuda/gemm/weight_only/weight_only_wgmma.cuh"

#ifndef SW_W_IS_FUSED
#define SW_W_IS_FUSED 0
#endif

#if SW_W_IS_FUSED
/* Fused weights need fewer registers: batches of all four k-steps of a tile pay to 80 tokens. */
template <class CUT> struct nw_table_cut : CUT {
    static constexpr bool FUSED = true;
    static constexpr int steps = CUT::T <= 80 && CUT::NWG < 4 ? 4 : CUT::steps;
    static constexpr int per_tile = 4 / steps;
    static constexpr int per_row = NW_STAGE_TILES * per_tile;
    static constexpr int n_batches = CUT::MT * per_row;
    static constexpr int per_group = per_row / CUT::GPS;
};
#else
template <class CUT> using nw_table_cut = CUT;
#endif

static const nw_kernel kernels[][3][2] = {
#define SW_NW4_CUT(GPS, ZEROS, T, MT, NWG, KW, ST, PER_SM, MODE) \
    nw_table_cut<nw_cut<SW_W_KIND, T, MT, NWG, KW, GPS, ST, PER_SM, MODE, SW_X_IS_BF16, ZEROS>>
#define SW_NW4_ENTRY(...)                                                                          \
    {                                                                                              \
        (const void *)swk_weight_only_wgmma_sm90<SW_NW4_CUT(__VA_ARGS__)>,                         \
            SW_NW4_CUT(__VA_ARGS__)::shared_bytes, SW_NW4_CUT(__VA_ARGS__)::threads                \
    }
#define SW_NW4_BOTH(GPS, ...) \
    {SW_NW4_ENTRY(GPS, false, __VA_ARGS__), SW_NW4_ENTRY(GPS, true, __VA_ARGS__)}
#define SW_NW4_NONE(name, ...) {},
#define SW_NW4_OF_2(name, ...) {{}, {{}, SW_NW4_ENTRY(2, true, __VA_ARGS__)}, {}},
#define SW_NW4_OF_34(name, ...) {{SW_NW4_ENTRY(1, false, __VA_ARGS__), {}}, {}, {}},
#define SW_NW4_IF_NW_PAIRS SW_NW4_NONE
#define SW_NW4_IF_NW_GROUPS SW_NW4_NONE
#define SW_NW4_IF_NW_SCALED SW_NW4_OF_34
#if SW_W_IS_FUSED
#define SW_NW4_TILE(name, T, MT, NWG, KW, ST, PER_SM, MODE) \
    SW_NW4_IF_##MODE(name, T, MT, NWG, KW, ST, PER_SM, MODE)
#define SW_NW4_USUAL SW_NW4_TILE
#else
#define SW_NW4_TILE(name, ...) \
    {SW_NW4_BOTH(1, __VA_ARGS__), SW_NW4_BOTH(2, __VA_ARGS__), SW_NW4_BOTH(4, __VA_ARGS__)},
#if !SW_X_IS_BF16
#define SW_NW4_USUAL SW_NW4_NONE
#elif SW_W_BITS == 2
#define SW_NW4_USUAL SW_NW4_OF_2
#else
#define SW_NW4_USUAL SW_NW4_OF_34
#endif
#endif
#if SW_W_BITS == 2
#define SW_NW4_NOT_2 SW_NW4_NONE
#else
#define SW_NW4_NOT_2 SW_NW4_USUAL
#endif
#if SW_W_BITS < 4
#define SW_NW4_PLAIN SW_NW4_NONE
#else
#define SW_NW4_PLAIN SW_NW4_USUAL
#endif
#include "kernels/cuda/gemm/weight_only/w4a16_tiles.def"
#undef SW_NW4_PLAIN
#undef SW_NW4_NOT_2
#undef SW_NW4_USUAL
#undef SW_NW4_TILE
#undef SW_NW4_IF_NW_SCALED
#undef SW_NW4_IF_NW_GROUPS
#undef SW_NW4_IF_NW_PAIRS
#undef SW_NW4_OF_34
#undef SW_NW4_OF_2
#undef SW_NW4_NONE
#undef SW_NW4_BOTH
#undef SW_NW4_ENTRY
#undef SW_NW4_CUT
};

extern "C" const nw_kernel *SW_INSTANCE(sw_w4a16)(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
