/* narrow_int8.cu - the narrow kernels of int8 weights with one scale a channel. */
#include "kernels/cuda/narrow_kernels.h"
#include "kernels/cuda/narrow_wgmma.cuh"

static const nw_kernel kernels[] = {
#define SW_NW8_CUT(T, MT, NWG, KW, ST, PER_SM) \
    nw_cut<NW_INT8, T, MT, NWG, KW, 1, ST, PER_SM, NW_CHANNEL, true, false>
#define SW_NW8_TILE(name, ...)                                        \
    {(const void *)swk_narrow_wgmma_sm90<SW_NW8_CUT(__VA_ARGS__)>,       \
     SW_NW8_CUT(__VA_ARGS__)::shared_bytes, SW_NW8_CUT(__VA_ARGS__)::threads},
#include "kernels/cuda/narrow8_tiles.def"
#undef SW_NW8_TILE
#undef SW_NW8_CUT
};

extern "C" const nw_kernel *sw_narrow8_kernel(int tile) { return &kernels[tile]; }
