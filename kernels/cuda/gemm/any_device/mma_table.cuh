/* mma_table.cuh - the mma.sync kernels of one kind of weights, by tile and the second of two
 * choices (BF16, or int8 weights). Compiled once a kind, SW_MMA_FIRST and SW_MMA_SECOND
 * (instances.txt). */
#include "kernels/cuda/gemm/any_device/mma_sync.cuh"

static const mma_kernel kernels[][2] = {
#define SW_MMA_TILE(name, T, CT, DEPTH, WARPS, TILES)                                              \
    {{(const void *)swk_mma<SW_MMA_FIRST, T, CT, DEPTH>, DEPTH},                                   \
     {(const void *)swk_mma<SW_MMA_SECOND, T, CT, DEPTH>, DEPTH}},
#include "kernels/cuda/gemm/any_device/mma_tiles.def"
#undef SW_MMA_TILE
};

extern "C" const mma_kernel *SW_INSTANCE(sw_mma_kernel)(int tile, bool is_second)
{
    return &kernels[tile][is_second];
}
