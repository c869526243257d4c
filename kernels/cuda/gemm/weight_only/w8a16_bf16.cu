/* w8a16_bf16.cu - the W8A16 kernels with one scale a channel. */
#include "kernels/cuda/gemm/weight_only/weight_only_kernels.h"
#include "kernels/cuda/gemm/weight_only/weight_only_wgmma.cuh"

static const nw_kernel kernels[] = {
#define SW_NW8_CUT(T, MT, NWG, KW, ST, PER_SM) \
    nw_cut<NW_INT8, T, MT, NWG, KW, 1, ST, PER_SM, NW_CHANNEL, true, false>
#define SW_NW8_TILE(name, ...)                                                                     \
    {(const void *)swk_weight_only_wgmma_sm90<SW_NW8_CUT(__VA_ARGS__)>,                            \
     SW_NW8_CUT(__VA_ARGS__)::shared_bytes, SW_NW8_CUT(__VA_ARGS__)::threads},
#include "kernels/cuda/gemm/weight_only/w8a16_tiles.def"
#undef SW_NW8_TILE
#undef SW_NW8_CUT
};

extern "C" const nw_kernel *sw_w8a16_kernel(int tile) { return &kernels[tile]; }
