/* routed_store.cuh - the last phase of the kernels of routed experts: the activation or the shares,
 * and the store. */
#ifndef SW_KERNELS_CUDA_EXPERTS_ROUTED_STORE_CUH
#define SW_KERNELS_CUDA_EXPERTS_ROUTED_STORE_CUH

#include "kernels/cuda/experts/routed_copy.cuh"
#include "kernels/cuda/ptx/ptx8.cuh"

#define RT_PARK_ROWS 32 /* rows of 64 channels that a warpgroup parks on their way to memory */

/* Of a block's rows, in shared memory, one a warpgroup: which pairs they are and their shares. */
template <int ROWS> struct __align__(16) rt_rows {
    int pair[ROWS];
    float share[ROWS];
};

/* Those of row threadIdx.x % 128: asked for before the products, stored behind them. */
struct rt_row {
    int pair;
    float share;
};

template <bool GLU>
static __device__ __forceinline__ rt_row rt_row_of(const rt_args &a, const rt_note &unit)
{
    const int row = unit.row0 + min((int)threadIdx.x % 128, unit.n_rows - 1);

    if (GLU) return {};
    if (!a.lists.blocks) return {row, a.share[row]};
    return {a.lists.pair_of_row[row], a.lists.share_of_row[row]};
}

/* Of two neighbours; asked for where they are used, else the compiler asks for all at once and has
 * no registers for them. */
template <int ROWS>
static __device__ __forceinline__ float2 rt_shares(const rt_rows<ROWS> *rows, int t)
{
    uint2 v = sw_shared8(sw_smem_addr(rows->share + t));

    return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}

/* The 64 channels from channel0 on of the rows of a block, as a lane holds them after products, to
 * 16-bit rows: with IS_PAIR those of pairs, times their shares, else sorted ones. */
template <int N, bool IS_PAIR, int ROWS>
static __device__ __forceinline__ void rt_store(const float (&v)[N], const rt_args &a,
                                                const rt_note &unit, int channel0, uint32_t park,
                                                const rt_rows<ROWS> *rows)
{
    constexpr int T = 2 * N, CHUNK = T < RT_PARK_ROWS ? T : RT_PARK_ROWS;
    const int group = rt_group(), thread = (int)threadIdx.x % 128, lane = thread % 32;
    int row = lane % 8, matrix = lane / 8;
    uint32_t to = park + (uint32_t)((matrix / 2 * 8 + row) * 128 +
                                    ((thread / 32 * 2 + matrix % 2) ^ row) * 16);

#pragma unroll
    for (int t = 0; t < T; t += CHUNK) {
        sw_named_sync(2 + group, 128);
#pragma unroll
        for (int j = 0; j < (CHUNK + 8) / 16; j++) {
            uint32_t out[4] = {};

#pragma unroll
            for (int e = 0; e < 4; e++) {
                int at = (t / 8 + 2 * j + e / 2) * 4 + e % 2 * 2;

                float2 share = make_float2(1, 1);

                if (at >= N) continue;
                if (IS_PAIR) share = rt_shares(rows, at / 4 * 8 + lane % 4 * 2);
                out[e] = sw_round16_pair(v[at % N] * share.x, v[(at + 1) % N] * share.y, true);
            }
            sw_store_transposed4(to + (uint32_t)j * 16 * 128, out);
        }
        sw_named_sync(2 + group, 128);
        for (int i = thread; i < CHUNK * 8; i += 128) {
            int r = t + i / 8, channel = channel0 + i % 8 * 8;

            if (r >= unit.n_rows || channel >= a.n_out) continue;
            int64_t of = IS_PAIR ? rows->pair[r] : unit.row0 + r;

            *(uint4 *)(a.y + of * a.n_out + channel) =
                sw_shared16(park + (uint32_t)(i / 8 * 128 + (i % 8 ^ (i / 8 & 7)) * 16));
        }
    }
}

/* exp and the quotient to some 2^-21 of their value: what is stored has 8 bits. */
static __device__ __forceinline__ float rt_glu(const rt_args &a, float g, float u)
{
    g = fminf(g, a.limit);
    u = fminf(fmaxf(u, -a.limit), a.limit) + a.shift;
    return __fdividef(g, 1.0f + __expf(-a.slope * g)) * u;
}

/* Biases of the two channels of a lane in the tile that begins at channel0 of `of`. */
static __device__ __forceinline__ float2 rt_bias(const float *bias, int64_t channel0, int64_t end)
{
    int64_t at = channel0 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;

    return make_float2(bias && at < end ? bias[at] : 0, bias && at + 8 < end ? bias[at + 8] : 0);
}

/* Of a warpgroup, in shared memory: where rows are on their way to memory, and where ups are on
 * theirs from the warpgroup that multiplied them to that of their gates: [float4][thread]. */
struct rt_parks {
    uint32_t rows, ups;
};

#define RT_UPS_BARRIER 6 /* and the next, of two pairs of warpgroups, behind those of rt_store */

/* Of one tile a warpgroup: the odd one's sums for the other. True for those who give theirs away.
 * The first meeting: those of the unit before have been read. */
template <int N>
static __device__ __forceinline__ bool rt_give_ups(const float (&total)[1][N], uint32_t ups)
{
    const int group = rt_group(), is_up = group % 2, barrier = RT_UPS_BARRIER + group / 2;

    sw_named_sync(barrier, 256);
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const float *v = &total[0][4 * i];

        if (is_up)
            sw_shared_put16(ups + (uint32_t)(i * 128 + (int)threadIdx.x % 128) * 16, v);
    }
    sw_named_sync(barrier, 256);
    return is_up;
}

/* Sums 4i to 4i + 3 of the ups: of the same warpgroup, or given by another. */
template <int MT, int N>
static __device__ __forceinline__ float4 rt_ups(const float (&total)[MT][N], uint32_t ups, int i)
{
    const float *v = &total[MT - 1][4 * i];

    if constexpr (MT > 1) return make_float4(v[0], v[1], v[2], v[3]);
    const uint4 u = sw_shared16(ups + (uint32_t)(i * 128 + (int)threadIdx.x % 128) * 16);

    return make_float4(__uint_as_float(u.x), __uint_as_float(u.y), __uint_as_float(u.z),
                       __uint_as_float(u.w));
}

template <int MT, int N, int ROWS>
static __device__ __forceinline__ void rt_finish_glu(float (&total)[MT][N], const rt_args &a,
                                                     const rt_note &unit, rt_parks parks)
{
    int channel0 = (unit.j * 2 + rt_group() * MT / 2) * 64;
    float2 g = rt_bias(unit.bias, channel0, a.n_out);
    float2 u = rt_bias(unit.bias, a.n_out + channel0, 2 * a.n_out);

    if constexpr (MT == 1)
        if (rt_give_ups(total, parks.ups)) return;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 up = rt_ups(total, parks.ups, i / 4);
        float *to = &total[0][i];

        to[0] = rt_glu(a, fmaf(to[0], unit.factor, g.x), fmaf(up.x, unit.factor, u.x));
        to[1] = rt_glu(a, fmaf(to[1], unit.factor, g.x), fmaf(up.y, unit.factor, u.x));
        to[2] = rt_glu(a, fmaf(to[2], unit.factor, g.y), fmaf(up.z, unit.factor, u.y));
        to[3] = rt_glu(a, fmaf(to[3], unit.factor, g.y), fmaf(up.w, unit.factor, u.y));
    }
    rt_store<N, false, ROWS>(total[0], a, unit, channel0, parks.rows, nullptr);
}

template <int MT, int N, int ROWS>
static __device__ __forceinline__ void rt_finish_down(float (&total)[MT][N], const rt_args &a,
                                                      const rt_note &unit, uint32_t park,
                                                      const rt_row &row, rt_rows<ROWS> *rows)
{
    int channel0 = (rt_uniform(unit.j) * 4 + rt_group() * MT) * 64;
    float2 b[2] = {rt_bias(unit.bias, channel0, a.n_out),
                   rt_bias(unit.bias, channel0 + 64, a.n_out)};

    sw_named_sync(2 + rt_group(), 128); /* nobody reads those of the block before */
    if ((int)threadIdx.x % 128 < ROWS)
        rows->pair[threadIdx.x % 128] = row.pair, rows->share[threadIdx.x % 128] = row.share;
    sw_named_sync(2 + rt_group(), 128);
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int m = 0; m < MT; m++)
            total[m][i] = fmaf(total[m][i], unit.factor, i / 2 % 2 ? b[m].y : b[m].x);
#pragma unroll
    for (int m = 0; m < MT; m++)
        if (channel0 + m * 64 < a.n_out)
            rt_store<N, true, ROWS>(total[m], a, unit, channel0 + m * 64, park, rows);
}

template <bool GLU, int MT, int N, int ROWS>
static __device__ __forceinline__ void rt_finish(float (&total)[MT][N], const rt_args &a,
                                                 const rt_note &unit, rt_parks parks,
                                                 const rt_row &row, rt_rows<ROWS> *rows)
{
    if constexpr (GLU) rt_finish_glu<MT, N, ROWS>(total, a, unit, parks);
    else rt_finish_down<MT, N, ROWS>(total, a, unit, parks.rows, row, rows);
}

#endif
