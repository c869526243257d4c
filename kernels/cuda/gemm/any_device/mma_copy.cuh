/* mma_copy.cuh - phases 1 and 2 of the mma.sync kernels: where a warp works, what it brings,
 * and X in shared memory. See mma_sync.cuh.
 */
#ifndef SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_COPY_CUH
#define SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_COPY_CUH

#include "kernels/cuda/gemm/any_device/mma_decode.cuh"

#define SW_UNIT_BYTES 1024 /* of a warp and 16 channels */

/* Where a warp works. */
struct mma_place {
    int lane, g, c;
    int slice, n_slices;       /* warps that share the k of the same channels */
    int n_tile0, n_tiles;      /* of the CTA */
    int row0;                  /* first 16 channels of the warp in them */
    int token0, n_tokens;      /* of the CTA */
    int unit0, unit1;          /* run of the CTA */
    bool is_idle;              /* a warp too many */
    uint32_t rank, split;
    uint64_t policy;
};

template <int KIND, int T, int CT>
static __device__ __forceinline__ mma_place mma_place_of(const mma_args &a)
{
    mma_place p;
    int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), per_slice, block, n_blocks;
    int units = (a.k_tiles * 64 + mma_step<KIND>::unit_k - 1) / mma_step<KIND>::unit_k;

    p.split = sw_cluster_size();
    p.rank = sw_cluster_rank();
    p.lane = (int)threadIdx.x % 32;
    p.g = p.lane / 4;
    p.c = p.lane % 4;
    block = (int)(blockIdx.x / p.split);
    n_blocks = (int)(gridDim.x / p.split);
    p.n_tile0 = (int)((int64_t)a.n_tiles * block / n_blocks);
    p.n_tiles = (int)((int64_t)a.n_tiles * (block + 1) / n_blocks) - p.n_tile0;
    per_slice = 4 * p.n_tiles / CT;
    p.n_slices = (int)blockDim.x / 32 / per_slice;
    p.slice = warp / per_slice;
    p.row0 = warp % per_slice * CT;
    p.token0 = (int)blockIdx.y * T;
    p.n_tokens = min(T, a.m - p.token0);
    p.unit0 = (int)((int64_t)units * p.rank / p.split);
    p.unit1 = (int)((int64_t)units * (p.rank + 1) / p.split);
    p.is_idle = p.slice >= p.n_slices;
    p.policy = gridDim.y > 1 ? sw_policy_evict_last() : sw_policy_evict_first();
    return p;
}

/* ---- phase 1: weights on their way ---- */

/* Tile and quarter of the warp's i-th 16 channels; past the end, the last tile, never stored. */
static __device__ __forceinline__ int mma_tile(const mma_args &a, const mma_place &p, int i)
{
    return min(p.n_tile0 + (p.row0 + i) / 4, a.n_tiles - 1);
}

static __device__ __forceinline__ int mma_slot(const mma_place &p, int i)
{
    return 2 * (8 * ((p.row0 + i) % 4) + p.g);
}

/* Offset of the lane's pair in a record of scales, in elements. */
static __device__ __forceinline__ int64_t mma_record(const mma_args &a, const mma_place &p, int i,
                                                     int group)
{
    return ((int64_t)mma_tile(a, p, i) * a.n_groups + min(group, a.n_groups - 1)) * 64 +
           mma_slot(p, i);
}

/* Where a slot's zero points begin: behind codes and scales. */
template <int CT> static __device__ __forceinline__ uint32_t mma_zeros_at(const mma_args &a)
{
    return (uint32_t)(CT * (SW_UNIT_BYTES + a.unit_groups * 64 * a.scale_bytes));
}

/* u / group_units without a division. */
static __device__ __forceinline__ int mma_group(const mma_args &a, int u)
{
    return a.group_magic ? (int)__umulhi((uint32_t)u, a.group_magic) : u;
}

/* Scales and zero points of one group into the lane's own places. */
template <int CT>
static __device__ __forceinline__ void mma_fetch_group(const mma_args &a, int64_t at, uint32_t slot,
                                                       int place)
{
    if (a.scale_bytes == 4) sw_copy8(slot + CT * SW_UNIT_BYTES + place * 8, a.scales + at * 4);
    else sw_copy4(slot + CT * SW_UNIT_BYTES + place * 4, a.scales + at * 2);
    if (a.zeros) sw_copy4(slot + mma_zeros_at<CT>(a) + place * 4, a.zeros + (at & ~3ll));
}

/* What a lane brings: where its codes and the scales of its channels begin. */
template <int CT> struct mma_source {
    const uint8_t *codes[CT];
    int64_t records[CT];       /* of group 0 */
};

template <int CT>
static __device__ __forceinline__ mma_source<CT> mma_source_of(const mma_args &a,
                                                               const mma_place &p)
{
    mma_source<CT> from;

#pragma unroll
    for (int i = 0; i < CT; i++) {
        from.codes[i] = a.codes + (int64_t)mma_tile(a, p, i) * a.k_tiles * a.tile_bytes +
                        (p.row0 + i) % 4 * 512 + p.lane * 16;
        from.records[i] = mma_record(a, p, i, 0);
    }
    return from;
}

/* Codes of unit u, and what its groups are scaled and shifted by, into the lane's own places. A
 * unit is two blocks of 2048 bytes, of 4 or of 8 bits; of the last one there may be one alone. */
template <int CT>
static __device__ __forceinline__ void mma_fetch(const mma_args &a, const mma_place &p,
                                                 const mma_source<CT> &from, int u, uint32_t slot)
{
    if (u >= p.unit1 || p.is_idle) return;
#pragma unroll
    for (int i = 0; i < CT; i++) {
        const uint8_t *codes = from.codes[i] + (int64_t)u * 4096;
        uint32_t to = slot + i * SW_UNIT_BYTES + p.lane * 16;

        sw_copy16(to, codes, 16, p.policy);
        sw_copy16(to + 512, u < a.whole_units ? codes + 2048 : codes, u < a.whole_units ? 16 : 0,
                  p.policy);
    }
    if (!a.has_groups) return;
    if (a.unit_groups == 1) {
        int group = mma_group(a, u);

#pragma unroll
        for (int i = 0; i < CT; i++)
            mma_fetch_group<CT>(a, from.records[i] + group * 64, slot, i * 32 + p.lane);
        return;
    }
    for (int i = 0; i < CT * a.unit_groups; i++) {
        int group = min(u * a.unit_groups + i % a.unit_groups, a.n_groups - 1);
        int64_t at = mma_record(a, p, i / a.unit_groups, group);

        mma_fetch_group<CT>(a, at, slot, i * 32 + p.lane);
    }
}

/* ---- phase 2: X to shared memory ---- */

/* Two codes of E4M3, bytes at 0 and 16 of `pair`, as f16; 2^-8 of the value. */
static __device__ __forceinline__ uint32_t mma_e4m3_pair(uint32_t pair)
{
    uint32_t high = pair << 8;

    return sw_and_or(high >> 1, 0x3f803f80u, high & 0x80008000u);
}

/* 16 bytes of row m at byte `at` of it; zeros past k_in. */
static __device__ __forceinline__ uint4 mma_x_piece(const mma_args &a, int m, int at)
{
    const uint8_t *row = a.x + m * a.x_stride;
    uint32_t w[4] = {0, 0, 0, 0};

    if (a.x_is_codes || (a.x_is_aligned && at + 16 <= a.k_in * 2))
        return *(const uint4 *)(row + at);
    for (int i = 0; i < 8; i++)
        if (at / 2 + i < a.k_in)
            w[i / 2] |= (uint32_t)((const uint16_t *)row)[at / 2 + i] << (i % 2 * 16);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* Word q of piece j goes to lane c = q of block j / 4. */
static __device__ __forceinline__ void mma_put_piece(uint8_t *row, int j, uint4 v)
{
    uint32_t *to = (uint32_t *)(row + j / 4 * 64 + j % 4 * 4);

    to[0] = v.x, to[4] = v.y, to[8] = v.z, to[12] = v.w;
}

/* Codes that are multiplied as f16: a piece of 16 codes becomes a step of 16 inputs. */
static __device__ __forceinline__ void mma_put_e4m3(uint8_t *row, int j, uint4 v)
{
    uint32_t *to = (uint32_t *)(row + j / 2 * 64 + j % 2 * 8);
    uint32_t w[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
    for (int c = 0; c < 4; c++) {
        to[4 * c] = mma_e4m3_pair(w[c]);
        to[4 * c + 1] = mma_e4m3_pair(w[c] >> 8);
    }
}

template <int KIND>
static __device__ __forceinline__ void mma_stage_x(const mma_args &a, const mma_place &p,
                                                   uint8_t *s_x, int u0, int u1)
{
    constexpr int held = 4;
    bool widens = a.x_is_codes && !mma_step<KIND>::is_integer;
    int unit_bytes = mma_step<KIND>::unit_k * (a.x_is_codes ? 1 : 2);
    int per_row = (u1 - u0) * unit_bytes / 16, n = p.n_tokens * per_row, step = (int)blockDim.x;

    for (int i0 = (int)threadIdx.x; i0 < n; i0 += held * step) {
        uint4 v[held];

#pragma unroll
        for (int h = 0; h < held; h++)
            if (i0 + h * step < n)
                v[h] = mma_x_piece(a, p.token0 + (i0 + h * step) / per_row,
                                   u0 * unit_bytes + (i0 + h * step) % per_row * 16);
#pragma unroll
        for (int h = 0; h < held; h++) {
            int i = i0 + h * step;

            if (i >= n) break;
            if (widens) mma_put_e4m3(s_x + i / per_row * a.x_pitch, i % per_row, v[h]);
            else mma_put_piece(s_x + i / per_row * a.x_pitch, i % per_row, v[h]);
        }
    }
}

/* X of the next units, first to last, for all warps once they have left those before; x_at: where
 * this lane's tokens of unit u begin in it. */
template <int KIND, int T>
static __device__ __forceinline__ void mma_next_x(uint32_t (&x_at)[T / 8], const mma_args &a,
                                                  const mma_place &p, uint8_t *s_x, int first,
                                                  int last, int u)
{
    constexpr int unit_bytes = mma_step<KIND>::per_unit / 2 * 64;

    if (first > p.unit0) __syncthreads();
    mma_stage_x<KIND>(a, p, s_x, first, last);
    __syncthreads();
#pragma unroll
    for (int t = 0; t < T / 8; t++)
        x_at[t] = sw_smem_addr(s_x) + min(8 * t + p.g, p.n_tokens - 1) * a.x_pitch + p.c * 16 +
                  (u - first) * unit_bytes;
}

#endif
