/* mma_integer.cu - the mma.sync kernels for inputs in int8. */
#include "kernels/cuda/gemm/any_device/mma_sync.cuh"

static const mma_kernel kernels[][2] = {
#define SW_MMA_TILE(name, T, CT, DEPTH, WARPS, TILES)                    \
    {{(const void *)swk_mma<MMA_INT4_INT8, false, T, CT, DEPTH>, DEPTH}, \
     {(const void *)swk_mma<MMA_INT8_INT8, false, T, CT, DEPTH>, DEPTH}},
#include "kernels/cuda/gemm/any_device/mma_tiles.def"
#undef SW_MMA_TILE
};

extern "C" const mma_kernel *sw_mma_kernel_integer(int tile, bool is_int8)
{
    return &kernels[tile][is_int8];
}
