/* mma_plain.cuh - phase 3 of the mma.sync kernels for plain weights: the loop of mma_loop.cuh with
 * nothing left to decide, in half the instructions.
 */
#ifndef SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_PLAIN_CUH
#define SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_PLAIN_CUH

#include "kernels/cuda/gemm/any_device/mma_loop.cuh"

/* ---- phase 3 for plain weights: the same with nothing left to decide ---- */

/* Close a group of symmetric weights whose pair of 16-bit scales is `raw`. */
template <int KIND, bool BF16, int T, int CT>
static __device__ __forceinline__ void mma_close_plain(mma_sums<KIND, T, CT> &s, const mma_args &a,
                                                       const uint32_t *raw)
{
    typedef typename mma_sum<KIND>::type type;
    constexpr int zero = 8 - (BF16 ? mma_step<KIND>::zero_bf16 : mma_step<KIND>::zero_f16);
    constexpr bool shifts = KIND == MMA_INT4_FLOAT;

#pragma unroll
    for (int i = 0; i < CT; i++) {
        float scale[2] = {1.0f, 1.0f};

        if (a.has_groups) mma_scales(scale, make_uint2(raw[i], 0), a.scales_are_bf16);
        if constexpr (mma_step<KIND>::factor > 1)
            scale[0] *= 1.0f / mma_step<KIND>::factor, scale[1] *= 1.0f / mma_step<KIND>::factor;
#pragma unroll
        for (int t = 0; t < T / 8; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                type v = shifts ? s.sum[i][t][j] - (type)zero * s.x_sum[t][j] : s.sum[i][t][j];

                s.total[i][t][j] = fmaf(scale[j / 2], (float)v, s.total[i][t][j]);
                s.sum[i][t][j] = 0;
            }
    }
    if constexpr (shifts)
#pragma unroll
        for (int t = 0; t < T / 8; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) s.x_sum[t][j] = 0;
}

/* All steps of the unit whose lane's codes lie at `codes`. */
template <int KIND, bool BF16, int T, int CT>
static __device__ __forceinline__ void mma_plain_unit(mma_sums<KIND, T, CT> &s, uint32_t codes,
                                                      const uint32_t *s_x)
{
    uint32_t w[CT][8], ones[4], x[T / 8][4];

    mma_ones<KIND, BF16>(ones);
#pragma unroll
    for (int i = 0; i < CT; i++) {
        *(uint4 *)w[i] = sw_shared16(codes + i * SW_UNIT_BYTES);
        *(uint4 *)(w[i] + 4) = sw_shared16(codes + i * SW_UNIT_BYTES + 512);
    }
#pragma unroll
    for (int n = 0; n < mma_step<KIND>::per_unit; n++)
        mma_unit_step<KIND, BF16, T, CT>(s, w, ones, x, s_x, n, KIND == MMA_INT4_FLOAT);
}

/* Symmetric, a unit a group at most, 16-bit scales where there are groups, whole units: pointers
 * run along, and nothing is computed twice. */
template <int KIND, bool BF16, int T, int CT, int DEPTH>
static __device__ __forceinline__ void mma_run_plain(mma_sums<KIND, T, CT> &s, const mma_args &a,
                                                     const mma_place &p,
                                                     const mma_source<CT> &from, uint8_t *s_x,
                                                     uint32_t ring)
{
    constexpr int unit_bytes = mma_step<KIND>::per_unit / 2 * 64;
    int u = p.is_idle ? p.unit1 : p.unit0 + p.slice, ahead = u + (DEPTH - 1) * p.n_slices;
    uint32_t lane16 = p.lane * 16, lane4 = CT * SW_UNIT_BYTES + p.lane * 4;
    uint32_t here = ring, last_read = ring + (DEPTH - 1) * a.slot_bytes, end = last_read;
    const uint8_t *codes[CT], *scales[CT];

#pragma unroll
    for (int i = 0; i < CT; i++) {
        codes[i] = from.codes[i] + (int64_t)ahead * 4096;
        scales[i] = a.scales + (from.records[i] + (int64_t)ahead * 64) * 2;
    }
    sw_grid_wait_previous();
    for (int first = p.unit0; first < p.unit1; first += a.chunk_units) {
        int last = min(first + a.chunk_units, p.unit1);
        uint32_t x_at[T / 8];

        mma_next_x<KIND, T>(x_at, a, p, s_x, first, last, u);
#pragma unroll 1
        for (; u < last; u += p.n_slices, ahead += p.n_slices) {
            uint32_t raw[CT];

            sw_copy_wait<DEPTH - 2>();
            mma_plain_unit<KIND, BF16, T, CT>(s, here + lane16, x_at);
            if (KIND == MMA_INT4_FLOAT || a.closes_units) {
#pragma unroll
                for (int i = 0; i < CT; i++) /* without groups a slot ends before */
                    raw[i] = a.has_groups ? sw_shared4(here + lane4 + i * 128) : 0;
                mma_close_plain<KIND, BF16>(s, a, raw);
            }
            if (ahead < p.unit1) {
#pragma unroll
                for (int i = 0; i < CT; i++) {
                    sw_copy16(last_read + lane16 + i * SW_UNIT_BYTES, codes[i], 16, p.policy);
                    sw_copy16(last_read + lane16 + i * SW_UNIT_BYTES + 512, codes[i] + 2048, 16,
                              p.policy);
                    if (a.has_groups) sw_copy4(last_read + lane4 + i * 128, scales[i]);
                    codes[i] += (int64_t)p.n_slices * 4096;
                    scales[i] += p.n_slices * 128;
                }
            }
            sw_copy_commit();
            last_read = here;
            here = here == end ? ring : here + a.slot_bytes;
#pragma unroll
            for (int t = 0; t < T / 8; t++) x_at[t] += p.n_slices * unit_bytes;
        }
    }
    sw_copy_wait<0>();
}

#endif
