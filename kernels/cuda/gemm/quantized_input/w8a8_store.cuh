/* w8a8_store.cuh - sums of the kernels of 8-bit inputs that no other CTA adds to: scaled, rounded
 * and written through shared memory, 64 tokens at a time, so that rows of Y are written 128 bytes
 * at a time.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_STORE_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_W8A8_STORE_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_pieces.cuh"

#define SW_W8A8_PARK_BYTES 8192 /* 64 tokens x 64 channels, a warpgroup */

/* Scales and, of codes with a zero point of their own, what it is beyond that of the others, of
 * the lane's two channels: only where there is one group a channel. */
struct w8a8_channels {
    float scale[2];
    int zero[2];
};

template <int KIND, int MODE>
static __device__ __forceinline__ w8a8_channels w8a8_channels_of(const w8a8_args &a, int n_tile)
{
    w8a8_channels c = {{1.0f, 1.0f}, {0, 0}};
    int slot = ((int)threadIdx.x % 128 / 32 * 8 + (int)threadIdx.x % 32 / 4) * 2;
    int64_t at = (int64_t)n_tile * 64 + slot;

    if (n_tile >= a.n_tiles) return c;
    for (int h = 0; h < 2 && MODE == W8A8_PLAIN; h++) {
        c.scale[h] = w8a8_scale_at(a, at + h) * w8a8_code_scale(KIND);
        if (a.zeros) c.zero[h] = a.zeros[at + h] - a.zero_none;
    }
    return c;
}

/* Eight channels of a token. */
static __device__ __forceinline__ void w8a8_put8(const w8a8_args &a, int token, int channel,
                                                 uint4 v)
{
    uint16_t *to = a.y + (int64_t)token * a.y_stride + channel;
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};

    if (token >= a.m) return;
    if (a.y_is_aligned && channel + 8 <= a.n_out) {
        *(uint4 *)to = v;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (channel + i < a.n_out) to[i] = (uint16_t)(words[i / 2] >> (i % 2 * 16));
}

/* A warpgroup's 64 tokens of a tile, parked in shared memory by the swizzle of 128 bytes, to Y. */
static __device__ __forceinline__ void w8a8_put_rows(const w8a8_args &a, int token0, int n_tile,
                                                     uint32_t rows)
{
    int thread = (int)threadIdx.x % 128;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        int token = i * 16 + thread / 8, chunk = thread % 8;

        if (n_tile < a.n_tiles)
            w8a8_put8(a, token0 + token, n_tile * 64 + chunk * 8,
                      sw_shared16(rows + (uint32_t)(token * 128 + (chunk ^ token % 8) * 16)));
    }
}

/* Y of one channel and two tokens; x_scales: of token 0. */
template <int KIND, int MODE, typename type>
static __device__ __forceinline__ uint32_t w8a8_pair(const type *sum, const w8a8_args &a, int token,
                                                     const float *x_scales, float scale, int zero)
{
    constexpr bool shifts = KIND == W8A8_INT8 && MODE == W8A8_PLAIN;
    float v[2];

#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = min(token + i, a.m - 1);
        type s = sum[i];

        if (shifts && a.zeros) s -= (type)(zero * a.x_sums[at]);
        v[i] = (float)s * scale * (MODE >= W8A8_X_GROUPS ? 1.0f : x_scales[at]);
    }
    return sw_round16_pair(v[0], v[1], a.y_is_bf16);
}

/* The sums of a lane, scaled and rounded, to Y: T tokens from `first` on of one tile of channels.
 * x_scales: of token 0, were it in the array; park: the warpgroup's part of shared memory. */
template <int KIND, int T, int MODE, typename type>
static __device__ __forceinline__ void w8a8_store_own(const type *total, const w8a8_args &a,
                                                      int first, int n_tile, const w8a8_channels &c,
                                                      const float *x_scales, uint32_t park)
{
    int group = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128, lane = thread % 32;
    int row = lane % 8, matrix = lane / 8;
    uint32_t to = park + (uint32_t)((matrix / 2 * 8 + row) * 128 +
                                    ((thread / 32 * 2 + matrix % 2) ^ row) * 16);

#pragma unroll
    for (int q = 0; q < T / 64; q++) {
        int token0 = first + q * 64;

#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            uint32_t out[4];

#pragma unroll
            for (int e = 0; e < 4; e++) {
                int token = token0 + (j + e / 2) * 8 + lane % 4 * 2;
                const type *sum = total + q * 32 + (j + e / 2) * 4 + e % 2 * 2;

                out[e] =
                    w8a8_pair<KIND, MODE>(sum, a, token, x_scales, c.scale[e % 2], c.zero[e % 2]);
            }
            sw_store_transposed4(to + (uint32_t)j * 8 * 128, out);
        }
        sw_named_sync(2 + group, 128);
        w8a8_put_rows(a, token0, n_tile, park);
        sw_named_sync(2 + group, 128);
    }
}

#endif
