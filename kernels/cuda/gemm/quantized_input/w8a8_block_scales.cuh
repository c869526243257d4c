/* w8a8_block_scales.cuh - scales of weights in blocks of 128 channels x 128 inputs, met by those of
 * X: a number for each token and stage, which all channels of a CTA share.
 *
 * A warp that has nothing else to do multiplies them, so that a sum costs its thread one addition
 * and no product of scales. It lays them out behind the weights of a stage as w8a8_add_blocks reads
 * them: one load for the lane's four tokens of 16.
 *
 * With few tokens a stage takes less time than a load from memory, and this warp would decide how
 * long it takes. So it fetches those of W for 32 stages at a time, one a lane, before X is there,
 * and those of X, which the L2 has, up to two stages ahead.
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
    static constexpr int per_lane = N / 32;
    const float *x_at;
    int64_t w_at;
    float w, next_w; /* of the lane's stage of 32, and of the 32 after these */
    int n_tokens;    /* from the lane's first on */
    int n_stages;    /* whose scales of W are still to be fetched */

    __device__ __forceinline__ w8a8_scale_walk(const w8a8_args &a, const w8a8_place &p, int first)
    {
        int token = p.token0 + first + (int)threadIdx.x % 32;
        int n_tile = min(p.n_tile0, a.n_tiles - 1); /* the second CTA of a pair may have none */

        x_at = a.x_scales + (int64_t)p.stage0 * a.m + token;
        w_at = ((int64_t)n_tile * a.n_groups + p.stage0 + threadIdx.x % 32) * 64;
        n_tokens = a.m - token;
        n_stages = p.n_stages - (int)threadIdx.x % 32;
        next_w = 0;
        fetch_w(a);
    }
    /* Of the next 32 stages; the first ones are not there before the second call. */
    __device__ __forceinline__ void fetch_w(const w8a8_args &a)
    {
        w = next_w;
        next_w = n_stages > 0 ? w8a8_scale_at(a, w_at) : 0;
        n_stages -= 32;
        w_at += 32 * 64;
    }
    /* Those of X of the next stage. */
    __device__ __forceinline__ void fetch_x(float (&x)[N / 32], const w8a8_args &a)
    {
#pragma unroll
        for (int i = 0; i < N / 32; i++) x[i] = 32 * i < n_tokens ? x_at[32 * i] : 0;
        x_at += a.m;
    }
    /* stage: of the block. to: the lane's slot of the first 32 of these tokens in it. */
    __device__ __forceinline__ void put(uint32_t to, const float (&x)[N / 32], int stage) const
    {
        float of_all = __shfl_sync(~0u, w, stage % 32);

#pragma unroll
        for (int i = 0; i < N / 32; i++) sw_shared_put4(to + (uint32_t)i * 128, of_all * x[i]);
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

/* The scales of all stages of a block, by one warp, those of X fetched AHEAD stages ahead. walk: a
 * w8a8_scale_walk, or what fetches and puts as it does; to: where it puts those of the ring's first
 * stage; bytes: of a stage. */
template <int AHEAD, typename walk_type, int STAGES>
static __device__ __forceinline__ void w8a8_make_scales(const w8a8_args &a, walk_type &walk,
                                                        int n_stages, uint32_t to, uint32_t bytes,
                                                        uint32_t full, uint32_t empty,
                                                        w8a8_turns<STAGES> &at)
{
    float x[AHEAD][walk_type::per_lane];

    static_assert(32 % AHEAD == 0, "scales of W are fetched where the loop turns");
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (i < n_stages) walk.fetch_x(x[i], a);
#pragma unroll 1
    for (int it = 0; it < n_stages; it += AHEAD) {
        if (it % 32 == 0) walk.fetch_w(a);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (it + i >= n_stages) break;
            sw_mbar_wait(empty + 8 * at.s, at.turn);
            walk.put(to + at.s * bytes, x[i], it + i);
            __syncwarp();
            sw_release_stage(full + 8 * at.s);
            if (it + i + AHEAD < n_stages) walk.fetch_x(x[i], a);
            at.next();
        }
    }
}

/* The warp that does so in CTAs of one block. */
template <int KIND, int T, int NT, int MODE, int STAGES>
static __device__ __forceinline__ void w8a8_scale_all(const w8a8_args &a, const w8a8_place &p,
                                                      uint32_t ring, uint32_t full, uint32_t empty)
{
    int slot = w8a8_block_slot((int)threadIdx.x % 32);
    uint32_t to = ring + w8a8_stage<KIND, T, NT, false>::xs_at + (uint32_t)slot * 4;
    w8a8_scale_walk<T> walk(a, p, 0);
    w8a8_turns<STAGES> at;

    sw_grid_wait_previous();
    w8a8_make_scales<2>(a, walk, p.n_stages, to, w8a8_stage_bytes<KIND, T, NT, MODE>(), full, empty,
                        at);
}

/* The lane's scales of the tokens that N of its sums are of, at `scales`. */
template <int N>
static __device__ __forceinline__ void w8a8_load_scales(uint32_t (&scale)[N / 2], uint32_t scales)
{
#pragma unroll
    for (int j = 0; j < N; j += 8) {
        uint4 v = sw_shared16(scales + (uint32_t)(j * 8 + threadIdx.x % 4 * 16));

        scale[j / 2] = v.x, scale[j / 2 + 1] = v.y;
        scale[j / 2 + 2] = v.z, scale[j / 2 + 3] = v.w;
    }
}

/* total += scale * sum, one scale for each token of the lane. */
template <int N>
static __device__ __forceinline__ void w8a8_add_scaled(float *total, const float *sum,
                                                       const uint32_t *scale)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        total[i] = fmaf(__uint_as_float(scale[i / 4 * 2 + i % 2]), sum[i], total[i]);
}

/* The same with scales that are loaded as they are needed. */
template <int N>
static __device__ __forceinline__ void w8a8_add_blocks(float *total, float (&sum)[N],
                                                       uint32_t scales)
{
    sw_hold(sum);
#pragma unroll
    for (int j = 0; j < N; j += 8) {
        uint32_t scale[4];

        w8a8_load_scales<8>(scale, scales + (uint32_t)j * 8);
        w8a8_add_scaled<8>(total + j, sum + j, scale);
    }
}

#endif
