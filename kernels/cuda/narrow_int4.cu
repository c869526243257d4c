/* narrow_int4.cu - the narrow kernels of int4 weights in groups of 128. */
#include "kernels/cuda/narrow_kernels.h"
#include "kernels/cuda/narrow_wgmma.cuh"

static const nw_kernel kernels[] = {
#define SW_NW4_CUT(T, MT, NWG, KW, ST, PER_SM, MODE) \
    nw_cut<NW_INT4, T, MT, NWG, KW, 1, ST, PER_SM, MODE, true, false>
#define SW_NW4_TILE(name, ...)                                        \
    {(const void *)swk_narrow_wgmma_sm90<SW_NW4_CUT(__VA_ARGS__)>,       \
     SW_NW4_CUT(__VA_ARGS__)::shared_bytes, SW_NW4_CUT(__VA_ARGS__)::threads},
#include "kernels/cuda/narrow4_tiles.def"
#undef SW_NW4_TILE
#undef SW_NW4_CUT
};

extern "C" const nw_kernel *sw_narrow4_kernel(int tile) { return &kernels[tile]; }
