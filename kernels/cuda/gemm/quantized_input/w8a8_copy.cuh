/* w8a8_copy.cuh - a stage of the kernels of 8-bit inputs, and copies of X to it.
 *
 * Stages, clusters and blocks are drawn in w8a8_split_k_wgmma.cuh; what one thread brings for few
 * tokens, in w8a8_boxes.cuh.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_COPY_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_COPY_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_args.h"
#include "kernels/cuda/ptx/ptx8.cuh"
#include "kernels/cuda/ptx/ptx_cluster.cuh"
#include "kernels/cuda/ptx/whole_block.cuh"

__host__ __device__ constexpr bool w8a8_is_int4(int kind)
{
    return kind == W8A8_INT4 || kind == W8A8_INT4_SYM || kind == W8A8_INT4_E4M3;
}

/* Sums of tensor cores in fp32, which are to be added up outside. */
__host__ __device__ constexpr bool w8a8_is_float(int kind)
{
    return kind == W8A8_E4M3 || kind == W8A8_INT4_E4M3;
}

/* What a sum of codes is to be multiplied by, for how they are put to the tensor cores. */
__host__ __device__ constexpr float w8a8_code_scale(int kind)
{
    return kind == W8A8_INT4_SYM ? 0.0625f : kind == W8A8_INT4_E4M3 ? 512.0f : 1.0f;
}

/* Byte offsets inside a stage of 128 inputs and the size of the whole. */
template <int KIND, int T, int NT, bool GROUPED>
struct w8a8_stage {
    static constexpr int tile_bytes = w8a8_is_int4(KIND) ? 4096 : 8192; /* two k-tiles */
    static constexpr int x_bytes = T * 128;
    static constexpr int w_at = x_bytes;
    static constexpr int s_at = w_at + NT * tile_bytes;
    static constexpr int z_at = s_at + (GROUPED ? NT * SW_W8A8_RECORD_BYTES : 0);
    static constexpr int xs_at = z_at + (GROUPED && KIND == W8A8_INT4 ? NT * 64 : 0);
    static constexpr int end = xs_at + (GROUPED && KIND == W8A8_E4M3 ? T * 4 : 0);
    static constexpr int bytes = (end + 1023) / 1024 * 1024;
};

/* Do stages have records of scales of W? */
__host__ __device__ constexpr bool w8a8_has_records(int mode)
{
    return mode == W8A8_GROUPED || mode == W8A8_X_GROUPS;
}

/* With room behind it for scales of blocks, one a token. */
template <int KIND, int T, int NT, int MODE>
__host__ __device__ constexpr int w8a8_stage_bytes(void)
{
    return w8a8_stage<KIND, T, NT, w8a8_has_records(MODE)>::bytes +
           (MODE == W8A8_X_BLOCKS ? (T * 4 + 1023) / 1024 * 1024 : 0);
}

/* What a CTA works on. */
struct w8a8_place {
    int n_tile0, token0;    /* first tile of channels, first token */
    int stage0, n_stages;   /* its run of stages */
    uint32_t rank;          /* among those that share k */
};

/* X of a stage and, where it has groups, their scales: the lanes' own copies, of which each lane
 * tells the barrier when they are done. */
template <int KIND, int T, int NT, bool GROUPED>
static __device__ __forceinline__ void w8a8_copy_x(const CUtensorMap *map, const w8a8_args &a,
                                                   const w8a8_place &p, int it, uint32_t stage,
                                                   uint32_t bar, uint64_t policy)
{
    int lane = (int)threadIdx.x % 32;

    if (lane == 0) sw_tensor_load_2d(stage, map, (p.stage0 + it) * 128, p.token0, bar, policy);
    if constexpr (KIND == W8A8_E4M3 && GROUPED) {
        if (!a.has_x_groups) return;
        for (int i = lane; i < T; i += 32)
            sw_copy4(stage + w8a8_stage<KIND, T, NT, GROUPED>::xs_at + i * 4,
                     a.x_scales + (int64_t)(p.stage0 + it) * a.m + min(p.token0 + i, a.m - 1));
        sw_copy_arrive(bar);
    }
}

#endif
