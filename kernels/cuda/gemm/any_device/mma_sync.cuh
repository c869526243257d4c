/* mma_sync.cuh - products of few tokens with mma.sync, straight from the tiles (sm_80 and later).
 *
 * Computes the transposed product: 16 channels of a tile are the rows of A, as the lanes own them.
 *
 *   grid:   x: blocks of channels, each `split` CTAs (a cluster) that share k; y: blocks of T
 *           tokens. Tiles of 64 channels are dealt out evenly, so that a grid of as many CTAs as
 *           there are multiprocessors leaves none idle for a second CTA of the call behind it
 *   CTA:    n_slices groups of warps; a group covers all channels, 16 * CT of them a warp, and
 *           takes every n_slices-th unit of the CTA's run
 *   unit:   1 KB a warp and 16 channels: 128 inputs of 4 bits or 64 of 8 bits
 *   ring:   each lane brings its own 2 x 16 bytes of a unit with cp.async, DEPTH units ahead, and
 *           reads them back itself: no barrier, and memory is busy before the kernel ahead ends
 *   X:      [T][units of the chunk] in shared memory in the order of the B operand:
 *           64 bytes = 4 lanes (c) x 4 words, two product steps
 *
 * A holds integers (or E4M3) exactly; a group's sum is kept apart, multiplied by the scale in fp32
 * and added to the total. Sums of one group a channel with int8 codes stay integers to the end.
 * All sums are added in the order of unit, slice and rank, which the plan fixes.
 */
#ifndef SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_SYNC_CUH
#define SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_SYNC_CUH

#include "kernels/cuda/gemm/any_device/mma_plain.cuh"
#include "kernels/cuda/ptx/ptx_cluster.cuh"

/* ---- phase 4: sum over slices and cluster, round, store ---- */

/* What a lane holds of token and channel, as 32 bits: an integer while sums are integers. */
template <int KIND, int T, int CT>
static __device__ __forceinline__ void mma_park(const mma_sums<KIND, T, CT> &s, const mma_args &a,
                                                const mma_place &p, uint32_t *partial)
{
    int channels = 64 * p.n_tiles;

    if (p.is_idle) return;
    partial += p.slice * T * channels;
#pragma unroll
    for (int i = 0; i < CT; i++)
#pragma unroll
        for (int t = 0; t < T / 8; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int token = 8 * t + 2 * p.c + j % 2, channel = (p.row0 + i) * 16 + p.g + j / 2 * 8;
                uint32_t bits = __float_as_uint(s.total[i][t][j]);

                if (!a.closes_units)
                    bits = mma_step<KIND>::is_integer
                               ? (uint32_t)((int)s.sum[i][t][j] / mma_step<KIND>::factor)
                               : __float_as_uint((float)s.sum[i][t][j]);

                if (token < p.n_tokens) partial[token * channels + channel] = bits;
            }
}

static __device__ __forceinline__ uint32_t mma_add(uint32_t a, uint32_t b, bool is_integer)
{
    return is_integer ? a + b : __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
}

/* Slices, in their order, into the first one's place. */
template <int T>
static __device__ __forceinline__ void mma_add_slices(const mma_args &a, const mma_place &p,
                                                      uint32_t *partial, bool is_integer)
{
    int channels = 64 * p.n_tiles;

    for (int i = (int)threadIdx.x; i < p.n_tokens * channels; i += (int)blockDim.x) {
        uint32_t v = partial[i];

        for (int s = 1; s < p.n_slices; s++)
            v = mma_add(v, partial[s * T * channels + i], is_integer);
        partial[i] = v;
    }
}

/* A sum to a value of Y. */
template <int KIND>
static __device__ __forceinline__ float mma_finish(const mma_args &a, uint32_t bits, int token,
                                                   int channel)
{
    bool is_integer = mma_step<KIND>::is_integer && !a.closes_units;
    float v = is_integer ? 0 : __uint_as_float(bits);

    if (!a.has_groups) {
        int64_t at = (int64_t)(channel / 64) * 64 + 2 * (channel % 64 / 16 * 8 + channel % 8) +
                     channel % 16 / 8;
        uint2 raw = {};
        float scale[2];

        if (is_integer) {
            int sum = (int)bits;

            if (a.zeros) sum -= (a.zeros[at] - a.zero_none) * a.x_sums[token];
            v = (float)sum;
        }
        if (a.scale_bytes == 4) raw.x = ((const uint32_t *)a.scales)[at];
        else raw.x = ((const uint16_t *)a.scales)[at];
        mma_any_scales(scale, raw, a);
        v *= scale[0];
    }
    if (a.x_scales && !a.has_x_groups) v *= a.x_scales[token];
    return v * a.fold;
}

/* Two channels of a token from all CTAs of the cluster in the order of their rank. */
template <int KIND>
static __device__ __forceinline__ void mma_store2(const mma_args &a, const mma_place &p,
                                                  uint32_t addr, int token, int channel)
{
    bool is_integer = mma_step<KIND>::is_integer && !a.closes_units;
    uint32_t lo = 0, hi = 0, out = 0;
    uint16_t *to = a.y + (int64_t)token * a.y_stride + channel;

    if (p.split == 1) {
        uint2 v = sw_shared8(addr);

        lo = v.x, hi = v.y;
    } else {
        for (uint32_t r = 0; r < p.split; r++) {
            uint2 v = sw_cluster_load2(sw_cluster_map(addr, r));

            lo = mma_add(lo, v.x, is_integer);
            hi = mma_add(hi, v.y, is_integer);
        }
    }
    asm volatile("" : "+r"(lo), "+r"(hi)); /* the last meeting wants them to have arrived */
    if (channel >= a.n_out) return;
    out = sw_round16(mma_finish<KIND>(a, lo, token, channel), a.y_is_bf16);
    if (channel + 1 < a.n_out)
        out |= sw_round16(mma_finish<KIND>(a, hi, token, channel + 1), a.y_is_bf16) << 16;
    if (a.y_is_aligned && channel + 1 < a.n_out) {
        *(uint32_t *)to = out;
    } else {
        to[0] = (uint16_t)out;
        if (channel + 1 < a.n_out) to[1] = (uint16_t)(out >> 16);
    }
}

template <int KIND, bool BF16, int T, int CT, int DEPTH>
static __global__ void __launch_bounds__(T == 8 ? 512 : 256, T > 16 ? 1 : 2)
    swk_mma(const mma_args a)
{
    extern __shared__ __align__(1024) uint8_t s_bytes[];
    mma_place p = mma_place_of<KIND, T, CT>(a);
    uint8_t *s_x = s_bytes;
    uint32_t *partial = (uint32_t *)(s_bytes + a.x_bytes);
    uint32_t ring = sw_smem_addr(partial) + threadIdx.x / 32 * DEPTH * a.slot_bytes;
    bool is_integer = mma_step<KIND>::is_integer && !a.closes_units;
    int pairs = 32 * p.n_tiles;
    mma_sums<KIND, T, CT> s = {};
    mma_source<CT> from = mma_source_of<CT>(a, p);

    sw_grid_launch_next();
    for (int d = 0; d < DEPTH - 1; d++) {
        mma_fetch<CT>(a, p, from, p.unit0 + p.slice + d * p.n_slices, ring + d * a.slot_bytes);
        sw_copy_commit();
    }
    if (a.is_plain) mma_run_plain<KIND, BF16, T, CT, DEPTH>(s, a, p, from, s_x, ring);
    else mma_run<KIND, BF16, T, CT, DEPTH>(s, a, p, from, s_x, ring);
    __syncthreads();
    mma_park(s, a, p, partial);
    __syncthreads();
    if (p.n_slices > 1) mma_add_slices<T>(a, p, partial, is_integer);
    if (p.split > 1) sw_cluster_sync();
    else __syncthreads();
    for (int i = (int)(p.rank * blockDim.x + threadIdx.x); i < p.n_tokens * pairs;
         i += (int)(p.split * blockDim.x))
        mma_store2<KIND>(a, p, sw_smem_addr(partial) + (uint32_t)i * 8, p.token0 + i / pairs,
                         p.n_tile0 * 64 + i % pairs * 2);
    __syncwarp();
    if (p.split > 1) sw_cluster_part();
}

#endif
