/* w4a16_persistent_table.cuh - the persistent kernels of one kind of codes, SW_W_KIND, and one type
 * of X and Y, by tile, groups a stage, and whether there are zero points. Compiled once a kind and
 * type, SW_X_IS_BF16 (instances.txt); with SW_W_IS_FUSED those alone whose weights nw_fused_batch
 * makes. */
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent.cuh"

#ifndef SW_W_IS_FUSED
#define SW_W_IS_FUSED 0
#endif

#if SW_W_IS_FUSED
template <class CUT> struct nwl_table_cut : CUT {
    static constexpr bool FUSED = true;
    using half = nwl_table_cut<typename CUT::half>;
};
#else
template <class CUT> using nwl_table_cut = CUT;
#endif

static const nwl_kernel kernels[][3][2] = {
#define SW_NWL_CUT(GPS, ZEROS, T, MT, NWG, ST, CTAS) \
    nwl_table_cut<nwl_cut<SW_W_KIND, T, T, MT, NWG, ST, GPS, SW_X_IS_BF16, ZEROS, CTAS>>
#define SW_NWL_ENTRY(...)                                                                          \
    {                                                                                              \
        (const void *)swk_w4a16_persistent_sm90<SW_NWL_CUT(__VA_ARGS__)>,                          \
            SW_NWL_CUT(__VA_ARGS__)::shared_bytes, SW_NWL_CUT(__VA_ARGS__)::threads,               \
            SW_NWL_CUT(__VA_ARGS__)::park_tokens                                                   \
    }
#define SW_NWL_BOTH(GPS, ...) \
    {SW_NWL_ENTRY(GPS, false, __VA_ARGS__), SW_NWL_ENTRY(GPS, true, __VA_ARGS__)}
#if SW_X_IS_BF16
#define SW_NWL_PLAIN(name, ...) {{SW_NWL_ENTRY(1, false, __VA_ARGS__), {}}, {}, {}},
#else
#define SW_NWL_PLAIN(name, ...) {},
#endif
#if SW_W_IS_FUSED
#define SW_NWL_TILE SW_NWL_PLAIN
#else
#define SW_NWL_TILE(name, ...) \
    {SW_NWL_BOTH(1, __VA_ARGS__), SW_NWL_BOTH(2, __VA_ARGS__), SW_NWL_BOTH(4, __VA_ARGS__)},
#endif
#include "kernels/cuda/gemm/weight_only/persistent/w4a16_persistent_tiles.def"
#undef SW_NWL_TILE
#undef SW_NWL_PLAIN
#undef SW_NWL_BOTH
#undef SW_NWL_ENTRY
#undef SW_NWL_CUT
};

extern "C" const nwl_kernel *SW_INSTANCE(sw_w4a16_persistent)(int tile, int cut, bool has_zeros)
{
    return &kernels[tile][cut][has_zeros];
}
