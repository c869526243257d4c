/* w8a8_block_store.cuh - sums of a block of the persistent kernel, scaled, rounded and written.
 *
 * What the sums are multiplied by comes by copies that each warpgroup starts for itself when it
 * begins a block, so that it lies in shared memory when the sums are there. Read from global memory
 * between the stores, as w8a8_store_own does, it was sixteen trips to the L2 one after the other.
 *
 * Rows of Y are laid out in shared memory, 64 tokens of a tile of channels in 8 KB, and taken from
 * there by the copy engine while the next block is multiplied. Room for them is the stage that a
 * block ends with, which goes back to the ring when they have been read:
 *
 *   tokens    0.. 63  a warpgroup's own part of shared memory
 *            64..127  its tile of weights in the last stage, if of 8 bits
 *           128..255  its half of the inputs there, once both warpgroups are done with them
 *
 * Tiles of 4 bits have no such room: tokens 64..191 take the inputs, and the last ones the
 * warpgroup's own part again.
 */
#ifndef SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_BLOCK_STORE_CUH
#define SW_KERNELS_CUDA_GEMM_QUANTIZED_INPUT_PERSISTENT_W8A8_BLOCK_STORE_CUH

#include "kernels/cuda/gemm/quantized_input/w8a8_store.cuh"
#include "kernels/cuda/ptx/ptx_store.cuh"

/* Do products go on from block to block? */
__host__ __device__ constexpr bool a8l_flows(int kind, int mode)
{
    return kind == W8A8_E4M3 && SW_A8L_CTAS(kind, mode) > 1;
}

/* Does a block keep the stage it ends with for its rows of Y? Those whose sums a CTA alone adds up
 * in fp32 gain nothing, or lose by the stage that the ring is shorter. */
__host__ __device__ constexpr bool a8l_keeps(int kind, int mode)
{
    return !w8a8_is_float(kind) || SW_A8L_CTAS(kind, mode) > 1;
}

/* Byte offsets of one warpgroup's part of shared memory: scales of the T tokens of a block, scales
 * and zero points of its tile of channels. */
template <int T>
struct a8l_aside {
    static constexpr int x_at = 0;
    static constexpr int w_at = x_at + T * 4;
    static constexpr int zeros_at = w_at + SW_W8A8_RECORD_BYTES;
    static constexpr int bytes = (zeros_at + 64 + 127) / 128 * 128;
};

/* Ask for what sums are still to be multiplied by: where W has scales by groups, they have met
 * those. The part must have been read for the block before. */
template <int KIND, int MODE, int T>
static __device__ __forceinline__ void a8l_fetch_aside(const w8a8_args &a, const w8a8_place &p,
                                                       int n_tile, uint32_t part)
{
    using at = a8l_aside<T>;
    int thread = (int)threadIdx.x % 128, from = thread * 16;

#pragma unroll
    for (int i = thread; i < T; i += 128)
        sw_copy4(part + at::x_at + (uint32_t)i * 4, a.x_scales + min(p.token0 + i, a.m - 1));
    if (MODE == W8A8_PLAIN && n_tile < a.n_tiles) {
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
template <int KIND, int MODE, int T>
static __device__ __forceinline__ w8a8_channels a8l_channels_of(const w8a8_args &a, uint32_t part)
{
    w8a8_channels c = {{1.0f, 1.0f}, {0, 0}};

    if (MODE != W8A8_PLAIN) return c;
    w8a8_group_scales<KIND>(c.scale, part + a8l_aside<T>::w_at, 0, a);
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

/* Codes of weights are less than they stand for by a zero point of their own: what that is of each
 * sum. Apart from what all sums need, so that no branch stands between one sum and the next. */
template <int T, typename type>
static __device__ __forceinline__ void a8l_take_zeros(type *total, const w8a8_args &a, int first,
                                                      const w8a8_channels &c)
{
#pragma unroll
    for (int j = 0; j < T; j += 8)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            type of_x = (type)a.x_sums[min(first + j + (int)threadIdx.x % 4 * 2 + i, a.m - 1)];

            total[j / 2 + i] -= (type)c.zero[0] * of_x;
            total[j / 2 + 2 + i] -= (type)c.zero[1] * of_x;
        }
}

/* Eight tokens of the lane's two channels, the first of them `token` of the block: sums[0..1] of
 * one channel and sums[2..3] of the other to out[0] and out[1]. */
template <bool BF16, int T, typename type>
static __device__ __forceinline__ void a8l_pairs(uint32_t *out, const type *sums, uint32_t aside,
                                                 int token, const w8a8_channels &c)
{
    int own = token + (int)threadIdx.x % 4 * 2;
    uint2 scales = sw_shared8(aside + a8l_aside<T>::x_at + (uint32_t)own * 4);
    const float x[2] = {__uint_as_float(scales.x), __uint_as_float(scales.y)};

#pragma unroll
    for (int h = 0; h < 2; h++)
        out[h] = sw_round16_pair((float)sums[2 * h] * c.scale[h] * x[0],
                                 (float)sums[2 * h + 1] * c.scale[h] * x[1], BF16);
}

/* Where a warpgroup lays out rows of Y: 8 KB each, in multiples of 1024. */
struct a8l_rows {
    uint32_t own, weights;
    uint32_t inputs; /* 16 KB, that both warpgroups have been reading */
};

/* 64 tokens of the lane's sums, from `token` of the block on, as rows of 128 bytes at `rows` in the
 * order of the 128-byte swizzle. */
template <bool BF16, int T, typename type>
static __device__ __forceinline__ void a8l_lay_out(const type *sums, uint32_t aside, int token,
                                                   const w8a8_channels &c, uint32_t rows)
{
    int thread = (int)threadIdx.x % 128, lane = thread % 32, row = lane % 8, matrix = lane / 8;
    uint32_t to = rows + (uint32_t)((matrix / 2 * 8 + row) * 128 +
                                    ((thread / 32 * 2 + matrix % 2) ^ row) * 16);

#pragma unroll
    for (int j = 0; j < 64; j += 16) {
        uint32_t out[4];

        a8l_pairs<BF16, T>(out, sums + j / 2, aside, token + j, c);
        a8l_pairs<BF16, T>(out + 2, sums + j / 2 + 4, aside, token + j + 8, c);
        sw_store_transposed4(to + (uint32_t)j * 128, out);
    }
}

/* 64 n tokens of a lane's sums to Y, from `first` of the block on, through the warpgroup's own part
 * alone: where Y is not aligned, or where what a copy leaves of a stage is multiplied. */
template <bool BF16, int T, typename type>
static __device__ __forceinline__ void
a8l_store_slowly(const type *total, const w8a8_args &a, const w8a8_place &p, int n_tile, int first,
                 int n, uint32_t aside, const w8a8_channels &c, uint32_t rows)
{
    int group = (int)threadIdx.x / 128;

#pragma unroll
    for (int q = 0; q < T / 64; q++) {
        if (q >= n) break;
        a8l_lay_out<BF16, T>(total + q * 32, aside, first + q * 64, c, rows);
        sw_named_sync(2 + group, 128);
        w8a8_put_rows(a, p.token0 + first + q * 64, n_tile, rows);
        sw_named_sync(2 + group, 128);
    }
}

/* Rows that all threads of the warpgroup have laid out, from 64 tokens on, to Y by one of them. */
static __device__ __forceinline__ void a8l_send(const CUtensorMap *y_map, int n_tile, int token,
                                                uint32_t rows, bool sends)
{
    if (sends) sw_tensor_store_2d(y_map, n_tile * 64, token, rows);
}

/* What the copy engine is to read is there, of all threads of the warpgroup. */
static __device__ __forceinline__ void a8l_laid_out(void)
{
    sw_proxy_fence();
    sw_named_sync(2 + (int)threadIdx.x / 128, 128);
}

/* What tiles of 4 bits have behind their first 64 tokens, which are on their way, from token
 * `first` of the block on: 64 more of a half, else 192. */
template <bool BF16, int T, typename type>
static __device__ __forceinline__ void
a8l_store_rest(const type *total, const CUtensorMap *y_map, int n_tile, int token0, int first,
               bool is_half, bool sends, uint32_t aside, const w8a8_channels &c,
               const a8l_rows &rows)
{
    a8l_lay_out<BF16, T>(total + 32, aside, first + 64, c, rows.inputs);
    if (!is_half) a8l_lay_out<BF16, T>(total + 64, aside, 128, c, rows.inputs + 8192);
    if (sends && !is_half) sw_bulk_read_wait<0>(); /* the part of these, for the last ones */
    a8l_laid_out();
    a8l_send(y_map, n_tile, token0 + 64, rows.inputs, sends);
    if (is_half) return;
    a8l_send(y_map, n_tile, token0 + 128, rows.inputs + 8192, sends);
    a8l_lay_out<BF16, T>(total + 96, aside, 192, c, rows.own);
    a8l_laid_out();
    a8l_send(y_map, n_tile, token0 + 192, rows.own, sends);
}

/* The sums of a lane to Y or, where is_half, the first half of them, those of half `rank` of the
 * tokens. The stage of `rows` may go back when the first thread of the warpgroup finds that its
 * stores have been read. */
template <int KIND, int MODE, bool BF16, int T, typename type>
static __device__ __forceinline__ void
a8l_store_block(type *total, const CUtensorMap *y_map, const w8a8_args &a, const w8a8_place &p,
                int n_tile, bool is_half, uint32_t aside, const a8l_rows &rows)
{
    constexpr bool is_int4 = w8a8_is_int4(KIND);
    int group = (int)threadIdx.x / 128, first = is_half ? (int)p.rank * (T / 2) : 0;
    int token0 = p.token0 + first;
    bool sends = threadIdx.x % 128 == 0 && n_tile < a.n_tiles;

    sw_copy_wait<0>();
    sw_named_sync(2 + group, 128); /* also: this warpgroup has its weights of the stage */
    const w8a8_channels c = a8l_channels_of<KIND, MODE, T>(a, aside);
    if constexpr (KIND == W8A8_INT8 && MODE == W8A8_PLAIN)
        if (a.zeros) a8l_take_zeros<T>(total, a, token0, c);
    if constexpr (!a8l_flows(KIND, MODE))
        if (!a.y_is_aligned || a.k_tiles % 2) {
            a8l_store_slowly<BF16, T>(total, a, p, n_tile, first, T / (is_half ? 128 : 64), aside,
                                      c, rows.own);
            return;
        }
    a8l_lay_out<BF16, T>(total, aside, first, c, rows.own);
    if (!is_int4) a8l_lay_out<BF16, T>(total + 32, aside, first + 64, c, rows.weights);
    sw_proxy_fence();
    sw_named_sync(1, 256); /* the inputs of the stage too have been multiplied by all */
    a8l_send(y_map, n_tile, token0, rows.own, sends);
    if constexpr (is_int4) {
        a8l_store_rest<BF16, T>(total, y_map, n_tile, token0, first, is_half, sends, aside, c,
                                rows);
        return;
    }
    a8l_send(y_map, n_tile, token0 + 64, rows.weights, sends);
    if (is_half) return;
    a8l_lay_out<BF16, T>(total + 64, aside, 128, c, rows.inputs);
    a8l_lay_out<BF16, T>(total + 96, aside, 192, c, rows.inputs + 8192);
    a8l_laid_out();
    a8l_send(y_map, n_tile, token0 + 128, rows.inputs, sends);
    a8l_send(y_map, n_tile, token0 + 192, rows.inputs + 8192, sends);
}

#endif
