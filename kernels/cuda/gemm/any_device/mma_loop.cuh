/* mma_loop.cuh - phase 3 of the mma.sync kernels: the main loop of a warp. See mma_sync.cuh. */
#ifndef SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_LOOP_CUH
#define SW_KERNELS_CUDA_GEMM_ANY_DEVICE_MMA_LOOP_CUH

#include "kernels/cuda/gemm/any_device/mma_copy.cuh"

/* ---- phase 3: the main loop of a warp ---- */

template <int KIND> struct mma_sum { typedef float type; };
template <> struct mma_sum<MMA_INT4_INT8> { typedef int type; };
template <> struct mma_sum<MMA_INT8_INT8> { typedef int type; };

template <int KIND, int T, int CT> struct mma_sums {
    typedef typename mma_sum<KIND>::type type;
    type sum[CT][T / 8][4];    /* of the group under way */
    type x_sum[T / 8][4];      /* of X in that group, where zero points need it */
    float total[CT][T / 8][4];
};

/* The lane's pair of scales. */
static __device__ __forceinline__ void mma_scales(float *s, uint2 raw, bool is_bf16)
{
    if (is_bf16) {
        s[0] = __uint_as_float(raw.x << 16), s[1] = __uint_as_float(raw.x & 0xffff0000u);
    } else {
        float2 f = __half22float2(*(const __half2 *)&raw.x);
        s[0] = f.x, s[1] = f.y;
    }
}

static __device__ __forceinline__ void mma_any_scales(float *s, uint2 raw, const mma_args &a)
{
    if (a.scale_bytes == 4) s[0] = __uint_as_float(raw.x), s[1] = __uint_as_float(raw.y);
    else mma_scales(s, raw, a.scales_are_bf16);
}

/* A block of X: two steps' B operands of every 8 tokens. Tokens that are not there read others:
 * their sums are never stored. */
template <int T>
static __device__ __forceinline__ void mma_load_x(uint32_t (&x)[T / 8][4], const uint32_t *s_x,
                                                  int block)
{
#pragma unroll
    for (int t = 0; t < T / 8; t++) {
        uint4 v = sw_shared16(s_x[t] + block * 64);

        x[t][0] = v.x, x[t][1] = v.y, x[t][2] = v.z, x[t][3] = v.w;
    }
}

/* Zero points of the lane's channels less what the codes have in them already. */
template <int KIND, bool BF16, int CT>
static __device__ __forceinline__ void mma_zeros(int *zero, const mma_args &a, const mma_place &p,
                                                 uint32_t slot, int i, int group)
{
    constexpr int zero_here = BF16 ? mma_step<KIND>::zero_bf16 : mma_step<KIND>::zero_f16;
    constexpr uint32_t none = mma_step<KIND>::unit_k == 128 ? 8 : 128;
    uint32_t z = none | none << 8;

    if (a.zeros && a.has_groups)
        z = sw_shared4(slot + mma_zeros_at<CT>(a) +
                       (uint32_t)((i * a.unit_groups + group) * 32 + p.lane) * 4) >>
            (p.g % 2 * 16);
    else if (a.zeros)
        z = *(const uint16_t *)(a.zeros + mma_record(a, p, i, 0));
    zero[0] = (int)(z & 0xff) - zero_here;
    zero[1] = (int)(z >> 8 & 0xff) - zero_here;
}

/* Scales of X's group for the lane's tokens. */
template <int T>
static __device__ __forceinline__ void mma_load_x_scales(float (*scale)[2], const mma_args &a,
                                                         const mma_place &p, int group)
{
#pragma unroll
    for (int t = 0; t < T / 8; t++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int token = min(8 * t + 2 * p.c + j, p.n_tokens - 1);

            scale[t][j] = a.x_scales[(int64_t)group * a.m + p.token0 + token];
        }
}

/* total += scale * (sum - zero * x_sum) of the group that ends. HAS_X: X has groups too. */
template <int KIND, bool BF16, int T, int CT, bool HAS_X>
static __device__ __forceinline__ void mma_close_group(mma_sums<KIND, T, CT> &s, const mma_args &a,
                                                       const mma_place &p, uint32_t slot, int group,
                                                       int u)
{
    typedef typename mma_sum<KIND>::type type;
    constexpr int factor = mma_step<KIND>::factor;
    float x_scale[T / 8][2];

    if constexpr (HAS_X) mma_load_x_scales<T>(x_scale, a, p, u * mma_step<KIND>::unit_k / 128);
#pragma unroll
    for (int i = 0; i < CT; i++) {
        uint32_t at = slot + CT * SW_UNIT_BYTES +
                      ((i * a.unit_groups + group) * 32 + p.lane) * 2 * a.scale_bytes;
        float scale[2] = {1.0f, 1.0f};
        int zero[2] = {0, 0};

        if (a.has_groups)
            mma_any_scales(scale, a.scale_bytes == 4 ? sw_shared8(at)
                                                     : make_uint2(sw_shared4(at), 0), a);
        if (KIND == MMA_INT4_FLOAT || a.zeros)
            mma_zeros<KIND, BF16, CT>(zero, a, p, slot, i, group);
        if constexpr (factor > 1) scale[0] /= factor, scale[1] /= factor;
#pragma unroll
        for (int t = 0; t < T / 8; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                type less = (type)(zero[j / 2] * factor) * s.x_sum[t][j];
                float of_x = HAS_X ? scale[j / 2] * x_scale[t][j & 1] : scale[j / 2];

                s.total[i][t][j] = fmaf(of_x, (float)(s.sum[i][t][j] - less), s.total[i][t][j]);
                s.sum[i][t][j] = 0;
            }
    }
#pragma unroll
    for (int t = 0; t < T / 8; t++)
#pragma unroll
        for (int j = 0; j < 4; j++) s.x_sum[t][j] = 0;
}

/* Step n of a unit: its products and, with sums_x, sums of its inputs; x has those of two steps. */
template <int KIND, bool BF16, int T, int CT>
static __device__ __forceinline__ void
mma_unit_step(mma_sums<KIND, T, CT> &s, const uint32_t (&w)[CT][8], const uint32_t (&ones)[4],
              uint32_t (&x)[T / 8][4], const uint32_t *s_x, int n, bool sums_x)
{
    if (n % 2 == 0) mma_load_x<T>(x, s_x, n / 2);
#pragma unroll
    for (int i = 0; i < CT; i++) {
        uint32_t frag[4];

        mma_decode<KIND, BF16>(frag, w[i] + n * mma_step<KIND>::words);
#pragma unroll
        for (int t = 0; t < T / 8; t++)
            mma_product(s.sum[i][t], frag, x[t][n % 2 * 2], x[t][n % 2 * 2 + 1], BF16);
    }
    if (sums_x)
#pragma unroll
        for (int t = 0; t < T / 8; t++)
            mma_product(s.x_sum[t], ones, x[t][n % 2 * 2], x[t][n % 2 * 2 + 1], BF16);
}

/* One unit of GROUPS groups: products of all its steps, groups closed where they end. */
template <int KIND, bool BF16, int T, int CT, int GROUPS>
static __device__ __forceinline__ void mma_unit(mma_sums<KIND, T, CT> &s, const mma_args &a,
                                                const mma_place &p, uint32_t slot,
                                                const uint32_t *s_x, int u)
{
    using step = mma_step<KIND>;
    bool sums_x = KIND == MMA_INT4_FLOAT || (a.zeros && a.closes_units);
    uint32_t w[CT][8], ones[4], x[T / 8][4];

    mma_ones<KIND, BF16>(ones);
#pragma unroll
    for (int i = 0; i < CT; i++) {
        *(uint4 *)w[i] = sw_shared16(slot + i * SW_UNIT_BYTES + p.lane * 16);
        *(uint4 *)(w[i] + 4) = sw_shared16(slot + i * SW_UNIT_BYTES + 512 + p.lane * 16);
    }
#pragma unroll
    for (int n = 0; n < step::per_unit; n++) {
        mma_unit_step<KIND, BF16, T, CT>(s, w, ones, x, s_x, n, sums_x);
        if ((n + 1) % (step::per_unit / GROUPS) == 0 && a.closes_units) {
            if (a.has_x_groups)
                mma_close_group<KIND, BF16, T, CT, true>(s, a, p, slot,
                                                         n / (step::per_unit / GROUPS), u);
            else
                mma_close_group<KIND, BF16, T, CT, false>(s, a, p, slot,
                                                          n / (step::per_unit / GROUPS), u);
        }
    }
}

template <int KIND, bool BF16, int T, int CT>
static __device__ __forceinline__ void mma_any_unit(mma_sums<KIND, T, CT> &s, const mma_args &a,
                                                    const mma_place &p, uint32_t slot,
                                                    const uint32_t *s_x, int u)
{
    if (a.unit_groups == 1) mma_unit<KIND, BF16, T, CT, 1>(s, a, p, slot, s_x, u);
    else if (a.unit_groups == 2) mma_unit<KIND, BF16, T, CT, 2>(s, a, p, slot, s_x, u);
    else if constexpr (mma_step<KIND>::unit_k == 128)
        mma_unit<KIND, BF16, T, CT, 4>(s, a, p, slot, s_x, u);
}

template <int KIND, bool BF16, int T, int CT, int DEPTH>
static __device__ __forceinline__ void mma_run(mma_sums<KIND, T, CT> &s, const mma_args &a,
                                               const mma_place &p, const mma_source<CT> &from,
                                               uint8_t *s_x, uint32_t ring)
{
    constexpr int unit_bytes = mma_step<KIND>::per_unit / 2 * 64;
    int u = p.is_idle ? p.unit1 : p.unit0 + p.slice;
    uint32_t here = ring, last_read = ring + (DEPTH - 1) * a.slot_bytes, end = last_read;

    sw_grid_wait_previous();
    for (int first = p.unit0; first < p.unit1; first += a.chunk_units) {
        int last = min(first + a.chunk_units, p.unit1);
        uint32_t x_at[T / 8];

        mma_next_x<KIND, T>(x_at, a, p, s_x, first, last, u);
        for (; u < last; u += p.n_slices) {
            sw_copy_wait<DEPTH - 2>();
            mma_any_unit<KIND, BF16, T, CT>(s, a, p, here, x_at, u);
            mma_fetch<CT>(a, p, from, u + (DEPTH - 1) * p.n_slices, last_read);
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
