/* w8a8_block_scales.cuh - scales of weights in blocks of 128 channels x 128 inputs, met by those of
 * X: a number for each token and stage, which all channels of a CTA share.
 *
 * A warp that has nothing else to do multiplies them, so that a sum costs its thread one addition
 * and no product of scales. It fetches those of X a stage ahead, and lays them out behind the
 * weights of a stage as w8a8_add_blocks reads them: one load for the lane's four tokens of 16.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_BLOCK_SCALES_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_BLOCK_SCALES_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_loop.cuh"

/* Where the scale of a token stands among those of a stage: 16 s + 4 c + i is of token
 * 16 s + {2c, 2c + 1, 2c + 8, 2c + 9}[i]. */
static __device__ __forceinline__ int w8a8_block_slot(int token)
{
    return (token & ~15) + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

/* The scales of a block's stages, one after the other, as a warp fetches them for N tokens from
 * `first` of the CTA's on: of tokens 32 i + lane, and of the CTA's weights. */
template <int N>
struct w8a8_scale_walk {
    static_assert(N % 32 == 0, "a token a lane");
    const float *x_at;
    int64_t w_at;
    float x[N / 32], w;
    int n_left; /* tokens from the lane's first on */

    __device__ __forceinline__ w8a8_scale_walk(const w8a8_args &a, const w8a8_place &p, int first)
    {
        int token = p.token0 + first + (int)threadIdx.x % 32;
        int n_tile = min(p.n_tile0, a.n_tiles - 1); /* the second CTA of a pair may have none */

        x_at = a.x_scales + (int64_t)p.stage0 * a.m + token;
        w_at = ((int64_t)n_tile * a.n_groups + p.stage0) * 64;
        n_left = a.m - token;
    }
    /* Those of the next stage. */
    __device__ __forceinline__ void fetch(const w8a8_args &a)
    {
#pragma unroll
        for (int i = 0; i < N / 32; i++) x[i] = 32 * i < n_left ? x_at[32 * i] : 0;
        w = w8a8_scale_at(a, w_at);
        x_at += a.m;
        w_at += 64;
    }
    /* to: the lane's slot of the first 32 of these tokens in a stage. */
    __device__ __forceinline__ void put(uint32_t to) const
    {
#pragma unroll
        for (int i = 0; i < N / 32; i++) sw_shared_put4(to + (uint32_t)i * 128, w * x[i]);
    }
};

/* Where a warp that fills stages, or lays something out in them, stands in the ring. */
template <int STAGES>
struct w8a8_turns {
    int s = 0;
    uint32_t turn = 1; /* nothing is in the way in the first turn */

    __device__ __forceinline__ void next(void)
    {
        if (++s == STAGES) s = 0, turn ^= 1;
    }
};

/* The scales of N tokens, from `first` of the CTA's on, of all stages of a block, by one warp. to:
 * the lane's slot of the first 32 of them in the ring's first stage; bytes: of a stage. */
template <int N, int STAGES>
static __device__ __forceinline__ void w8a8_make_scales(const w8a8_args &a, const w8a8_place &p,
                                                        int first, uint32_t to, uint32_t bytes,
                                                        uint32_t full, uint32_t empty,
                                                        w8a8_turns<STAGES> &at)
{
    w8a8_scale_walk<N> scales(a, p, first);

    scales.fetch(a);
#pragma unroll 1
    for (int left = p.n_stages; left > 0; left--, at.next()) {
        sw_mbar_wait(empty + 8 * at.s, at.turn);
        scales.put(to + at.s * bytes);
        __syncwarp();
        sw_release_stage(full + 8 * at.s);
        if (left > 1) scales.fetch(a);
    }
}

/* The warp that does so in CTAs of one block. */
template <int KIND, int T, int NT, int MODE, int STAGES>
static __device__ __forceinline__ void w8a8_scale_all(const w8a8_args &a, const w8a8_place &p,
                                                      uint32_t ring, uint32_t full, uint32_t empty)
{
    int slot = w8a8_block_slot((int)threadIdx.x % 32);
    uint32_t to = ring + w8a8_stage<KIND, T, NT, false>::xs_at + (uint32_t)slot * 4;
    w8a8_turns<STAGES> at;

    sw_grid_wait_previous();
    if (p.n_stages > 0)
        w8a8_make_scales<T, STAGES>(a, p, 0, to, w8a8_stage_bytes<KIND, T, NT, MODE>(), full, empty,
                                    at);
}

/* total += scale * sum, one scale for each token of the lane, at `scales`. */
template <int N>
static __device__ __forceinline__ void w8a8_add_blocks(float *total, float (&sum)[N],
                                                       uint32_t scales)
{
    sw_hold(sum);
#pragma unroll
    for (int j = 0; j < N; j += 8) {
        uint4 v = sw_shared16(scales + (uint32_t)(j * 8 + threadIdx.x % 4 * 16));
        const uint32_t scale[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
        for (int i = 0; i < 8; i++)
            total[j + i] =
                fmaf(__uint_as_float(scale[i / 4 * 2 + i % 2]), sum[j + i], total[j + i]);
    }
}

#endif
