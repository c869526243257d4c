/* mma_int4.cu - the mma.sync kernels for weights in int4 and inputs in 16-bit floats. */
#include "kernels/cuda/gemm/any_device/mma_sync.cuh"

static const mma_kernel kernels[][2] = {
#define SW_MMA_TILE(name, T, CT, DEPTH, WARPS, TILES)                       \
    {{(const void *)swk_mma<MMA_INT4_FLOAT, false, T, CT, DEPTH>, DEPTH}, \
     {(const void *)swk_mma<MMA_INT4_FLOAT, true, T, CT, DEPTH>, DEPTH}},
#include "kernels/cuda/gemm/any_device/mma_tiles.def"
#undef SW_MMA_TILE
};

extern "C" const mma_kernel *sw_mma_kernel_int4(int tile, bool is_bf16)
{
    return &kernels[tile][is_bf16];
}
