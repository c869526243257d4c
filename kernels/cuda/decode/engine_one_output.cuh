/* engine_one_output.cuh - what becomes of a channel's sum in products of one token. See
 * engine_one.cu. */
#ifndef SW_KERNELS_CUDA_DECODE_ENGINE_ONE_OUTPUT_CUH
#define SW_KERNELS_CUDA_DECODE_ENGINE_ONE_OUTPUT_CUH

#include "kernels/cuda/decode/engine_one_mma.cuh"
#include "kernels/cuda/gemm/glu.cuh"

/* A channel's own scale, where products have not taken it in. */
template <int KIND>
static __device__ float channel_scale(const one_args &p, const one_job &j, int64_t n)
{
    const int64_t at = n / 64 * 64 + 2 * (8 * (n % 64 / 16) + n % 8) + n % 16 / 8;

    if (kind_of<KIND>::has_groups) return 1.0f;
    if (p.a.tiles.spec.scale_dtype == SW_DTYPE_F32) return ((const float *)j.scales)[at];
    return scale16(((const uint16_t *)j.scales)[at],
                   p.a.tiles.spec.scale_dtype == SW_DTYPE_BF16);
}

/* What the thread of a channel will need, asked for early; PARTS: a gate and its up. */
template <int PARTS> struct outlet {
    int64_t n; /* channel, or -1: none */
    float scale[PARTS], bias[PARTS];
};

/* Of a channel of a strip; threads without one say strip -1. */
template <int KIND, int PARTS>
static __device__ void open_outlet(outlet<PARTS> &o, const one_args &p, const one_job &j,
                                   int strip)
{
    const int64_t half = (int64_t)p.up_strip * N_CHANNELS;

    o.n = -1;
    if (strip < 0 || strip >= p.n_strips) return;
    o.n = (int64_t)strip * N_CHANNELS + threadIdx.x % N_CHANNELS;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        o.scale[part] = channel_scale<KIND>(p, j, o.n + part * half);
        o.bias[part] = j.bias ? j.bias[o.n + part * half] : 0.0f;
    }
}

/* The sums v of a channel; `before`: what the stream holds there. */
template <int PARTS, int N>
static __device__ void put_out(const outlet<N> &o, const one_args &p, const one_job &j,
                               float (&v)[PARTS], float x_scale, float before)
{
#pragma unroll
    for (int part = 0; part < PARTS; part++)
        v[part] = v[part] * (x_scale * o.scale[part]) + o.bias[part];
    if (PARTS == 2) v[0] = sw_glu_of(p.a.act, v[0], v[PARTS - 1], p.a.limit);
    if (p.a.out == SW_FUSED_ADD) p.a.sum[o.n] = before + v[0];
    else j.y[o.n] = sw_round16(v[0]);
}

#endif
