/* w8a8_block_store.cuh - sums of a block of 8-bit weights by channel, scaled, rounded and written.
 *
 * What the sums are multiplied by comes by copies that each warpgroup starts for itself when it
 * begins a block, so that it lies in shared memory when the sums are there. Read from global memory
 * between the stores, as w8a8_store_own does, it was sixteen trips to the L2 one after the other.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_BLOCK_STORE_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_BLOCK_STORE_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_store.cuh"

/* Byte offsets of one warpgroup's part of shared memory: rows of Y on their way, scales of the T
 * tokens of a block, scales and zero points of its tile of channels. */
template <int T>
struct a8l_aside {
    static constexpr int x_at = SW_W8A8_PARK_BYTES;
    static constexpr int w_at = x_at + T * 4;
    static constexpr int zeros_at = w_at + SW_W8A8_RECORD_BYTES;
    static constexpr int bytes = (zeros_at + 64 + 127) / 128 * 128;
};

/* Ask for all of it. The part must have been read for the block before. */
template <int KIND, int T>
static __device__ __forceinline__ void a8l_fetch_aside(const w8a8_args &a, const w8a8_place &p,
                                                       int n_tile, uint32_t part)
{
    using at = a8l_aside<T>;
    int thread = (int)threadIdx.x % 128, from = thread * 16;

#pragma unroll
    for (int i = thread; i < T; i += 128)
        sw_copy4(part + at::x_at + (uint32_t)i * 4, a.x_scales + min(p.token0 + i, a.m - 1));
    if (n_tile < a.n_tiles) {
        if (from < 64 * a.scale_bytes)
            sw_copy16_plain(part + at::w_at + (uint32_t)from,
                            a.scales + (int64_t)n_tile * 64 * a.scale_bytes + from);
        if (KIND == W8A8_INT8 && a.zeros && from < 64)
            sw_copy16_plain(part + at::zeros_at + (uint32_t)from,
                            a.zeros + (int64_t)n_tile * 64 + from);
    }
    sw_copy_commit();
}

/* Of the lane's two channels, as w8a8_channels_of. */
template <int KIND, int T>
static __device__ __forceinline__ w8a8_channels a8l_channels_of(const w8a8_args &a, uint32_t part)
{
    w8a8_channels c = {{1.0f, 1.0f}, {0, 0}};

    w8a8_scales(c.scale, part + a8l_aside<T>::w_at, a);
    if (KIND == W8A8_INT8 && a.zeros) {
        uint32_t slot = (threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4) * 2, z;

        asm volatile("{.reg .u16 h;\nld.shared.u16 h, [%1];\ncvt.u32.u16 %0, h;}"
                     : "=r"(z)
                     : "r"(part + a8l_aside<T>::zeros_at + slot));
        c.zero[0] = (int)(z & 0xff) - a.zero_none;
        c.zero[1] = (int)(z >> 8) - a.zero_none;
    }
    return c;
}

/* Eight tokens of the lane's two channels, the first of them `token` of the block: sums[0..1] of
 * one channel and sums[2..3] of the other to out[0] and out[1]. */
template <int KIND, int T, typename type>
static __device__ __forceinline__ void a8l_pairs(uint32_t *out, const type *sums,
                                                 const w8a8_args &a, const w8a8_place &p,
                                                 uint32_t part, int token, const w8a8_channels &c)
{
    int own = token + (int)threadIdx.x % 4 * 2;
    uint2 scales = sw_shared8(part + a8l_aside<T>::x_at + (uint32_t)own * 4);
    const float x[2] = {__uint_as_float(scales.x), __uint_as_float(scales.y)};

#pragma unroll
    for (int h = 0; h < 2; h++) {
        float v[2];

#pragma unroll
        for (int i = 0; i < 2; i++) {
            type sum = sums[2 * h + i];

            if (KIND == W8A8_INT8 && a.zeros)
                sum -= (type)(c.zero[h] * a.x_sums[min(p.token0 + own + i, a.m - 1)]);
            v[i] = (float)sum * c.scale[h] * x[i];
        }
        out[h] = sw_round16_pair(v[0], v[1], a.y_is_bf16);
    }
}

/* The sums of a lane to Y, 64 tokens at a time, so that rows are written 128 bytes at a time. */
template <int KIND, int T, typename type>
static __device__ __forceinline__ void a8l_store_block(const type *total, const w8a8_args &a,
                                                       const w8a8_place &p, int n_tile,
                                                       uint32_t part)
{
    int group = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128, lane = thread % 32;
    int row = lane % 8, matrix = lane / 8;
    uint32_t to = part + (uint32_t)((matrix / 2 * 8 + row) * 128 +
                                    ((thread / 32 * 2 + matrix % 2) ^ row) * 16);
    w8a8_channels c;

    sw_copy_wait<0>();
    sw_named_sync(2 + group, 128);
    c = a8l_channels_of<KIND, T>(a, part);
#pragma unroll
    for (int q = 0; q < T; q += 64) {
#pragma unroll
        for (int j = 0; j < 64; j += 16) {
            const type *sums = total + (q + j) / 2;
            uint32_t out[4];

            a8l_pairs<KIND, T>(out, sums, a, p, part, q + j, c);
            a8l_pairs<KIND, T>(out + 2, sums + 4, a, p, part, q + j + 8, c);
            sw_store_transposed4(to + (uint32_t)j * 128, out);
        }
        sw_named_sync(2 + group, 128);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int token = i * 16 + thread / 8, chunk = thread % 8;

            if (n_tile < a.n_tiles)
                w8a8_put8(a, p.token0 + q + token, n_tile * 64 + chunk * 8,
                          sw_shared16(part + (uint32_t)(token * 128 + (chunk ^ token % 8) * 16)));
        }
        sw_named_sync(2 + group, 128);
    }
}

#endif
