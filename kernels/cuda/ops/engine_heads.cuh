/* engine_heads.cuh - what happens to a head of q or k before attention. */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_HEADS_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_HEADS_CUH

#include <cuda_fp8.h>
#include <limits.h>

#include "kernels/cuda/ops/engine_launch.cuh"

#define HEAD_DIM_MAX SW_HEAD_DIM_MAX

/* Elements of a cache are sw_bf16, uint8_t for codes of E4M3, or int8_t. */

/* What two codes stand for, but for their scale; the pointer tells which they are. */
static __device__ __forceinline__ float2 sw_wide2(uint32_t two, const uint8_t *)
{
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two,
                                                             __NV_E4M3)));
}

static __device__ __forceinline__ float2 sw_wide2(uint32_t two, const int8_t *)
{
    return make_float2((float)(int8_t)(two & 0xff), (float)(int8_t)(two >> 8 & 0xff));
}

/* Eight neighbours. */
template <typename T> static __device__ __forceinline__ sw_eight sw_load_codes8(const T *p)
{
    const uint2 raw = *(const uint2 *)p;
    sw_eight e;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 two = sw_wide2((i < 2 ? raw.x : raw.y) >> 16 * (i % 2) & 0xffff, p);

        e.v[2 * i] = two.x;
        e.v[2 * i + 1] = two.y;
    }
    return e;
}

static __device__ __forceinline__ sw_eight sw_load8(const uint8_t *p) { return sw_load_codes8(p); }
static __device__ __forceinline__ sw_eight sw_load8(const int8_t *p) { return sw_load_codes8(p); }

/* Two as they lie, and what they stand for; `from` tells which they are. */
static __device__ __forceinline__ uint32_t sw_raw2(const sw_bf16 *from)
{
    return *(const uint32_t *)from;
}

static __device__ __forceinline__ uint32_t sw_raw2(const uint8_t *from)
{
    return *(const uint16_t *)from;
}

static __device__ __forceinline__ uint32_t sw_raw2(const int8_t *from)
{
    return *(const uint16_t *)from;
}

static __device__ __forceinline__ float2 sw_wide2(uint32_t two, const sw_bf16 *)
{
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}

template <typename T> static __device__ __forceinline__ float2 sw_load2(const T *p)
{
    return sw_wide2(sw_raw2(p), p);
}

/* Attention reads codes as they are: the scale of keys goes to the scores, that of values to what
 * comes out, and is 1 where there are no codes. */
static inline sw_attn_args sw_settle_scales(const sw_attn_args *a)
{
    sw_attn_args settled = *a;

    if (a->kv.kind) settled.scale *= a->kv.k_scale;
    else settled.kv.v_scale = 1.0f;
    return settled;
}

/* How many keys, from its own back, the query at a position sees, by chunk and window of `a`. */
template <typename A> static __device__ __forceinline__ int sw_keys_seen(const A &a, int position)
{
    if (a.chunk) return position % a.chunk + 1;
    return a.window ? (int)a.window : INT_MAX;
}

/* Of kernels that read caches, the one for elements of a kind. */
template <typename F> static F sw_of_kind(sw_kv_kind kind, F floats, F e4m3, F int8)
{
    const F kinds[] = {floats, e4m3, int8};

    return kinds[kind];
}

#define SW_HELD_TURNS 2

/* By how much a lane's first pairs turn, asked for before there is a head. */
struct sw_turns {
    float c[SW_HELD_TURNS], s[SW_HELD_TURNS];
};

static __device__ void sw_hold_turns(sw_turns &t, const sw_heads_args &a, int64_t position)
{
    const int half = a.rope_dim / 2;

#pragma unroll
    for (int j = 0; j < SW_HELD_TURNS; j++) {
        const int i = (int)(threadIdx.x % 32) + 32 * j;

        if (!a.cos || i >= half) break;
        t.c[j] = a.cos[position * half + i];
        t.s[j] = a.sin[position * half + i];
    }
}

static __device__ void sw_turn_pair(float *s_head, const sw_heads_args &a, int i, float c, float s)
{
    const int one = a.rope_at + (a.is_paired ? 2 * i : i);
    const int two = a.is_paired ? one + 1 : one + a.rope_dim / 2;
    const float x = s_head[one], y = s_head[two];

    s_head[one] = x * c - y * s;
    s_head[two] = y * c + x * s;
}

/* One head [head_dim] in shared memory, by one warp: norm, turn. */
static __device__ void sw_prepare_head(float *s_head, const sw_heads_args &a, const float *norm,
                                       int64_t position, const sw_turns &held)
{
    const int lane = threadIdx.x % 32, dim = a.head_dim, half = a.rope_dim / 2;

    if (norm) {
        float sum = 0;

#pragma unroll 2
        for (int i = lane; i < dim; i += 32) sum += s_head[i] * s_head[i];
        const float scale = 1.0f / sqrtf(sw_warp_sum(sum) / (float)dim + a.eps);

#pragma unroll 2
        for (int i = lane; i < dim; i += 32) s_head[i] *= scale * norm[i];
        __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < SW_HELD_TURNS; j++)
        if (a.cos && lane + 32 * j < half)
            sw_turn_pair(s_head, a, lane + 32 * j, held.c[j], held.s[j]);
#pragma unroll 1
    for (int i = lane + 32 * SW_HELD_TURNS; a.cos && i < half; i += 32)
        sw_turn_pair(s_head, a, i, a.cos[position * half + i], a.sin[position * half + i]);
    __syncwarp();
}

static __device__ void sw_prepare_head(float *s_head, const sw_heads_args &a, const float *norm,
                                       int64_t position)
{
    sw_turns turns;

    sw_hold_turns(turns, a, position);
    sw_prepare_head(s_head, a, norm, position, turns);
}

/* A head of BF16 into shared memory as floats; a warp. */
static __device__ void sw_load_head(float *s_head, const sw_bf16 *from, int dim)
{
#pragma unroll 2
    for (int i = (int)(threadIdx.x % 32) * 2; i < dim; i += 64) {
        const uint32_t two = *(const uint32_t *)(from + i);

        s_head[i] = __uint_as_float(two << 16);
        s_head[i + 1] = __uint_as_float(two & 0xffff0000u);
    }
    __syncwarp();
}

static __device__ void sw_store_head(sw_bf16 *to, const float *s_head, int dim)
{
#pragma unroll 1
    for (int i = (int)(threadIdx.x % 32) * 2; i < dim; i += 64)
        *(uint32_t *)(to + i) = sw_pack2(s_head[i], s_head[i + 1]);
}

/* Two as a cache has them. */
static __device__ __forceinline__ uint32_t sw_round2(float x, float y, float, const sw_bf16 *)
{
    return sw_pack2(x, y);
}

static __device__ __forceinline__ uint32_t sw_round2(float x, float y, float scale,
                                                     const uint8_t *)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(__fdiv_rn(x, scale), __fdiv_rn(y, scale)),
                                    __NV_SATFINITE, __NV_E4M3);
}

static __device__ __forceinline__ uint32_t sw_round_int8(float x, float scale)
{
    return (uint32_t)max(-127, min(127, __float2int_rn(__fdiv_rn(x, scale)))) & 0xff;
}

static __device__ __forceinline__ uint32_t sw_round2(float x, float y, float scale, const int8_t *)
{
    return sw_round_int8(x, scale) | sw_round_int8(y, scale) << 8;
}

template <typename T>
static __device__ void sw_store_codes(T *to, const float *s_head, int dim, float scale)
{
#pragma unroll 1
    for (int i = (int)(threadIdx.x % 32) * 2; i < dim; i += 64)
        *(uint16_t *)(to + i) = (uint16_t)sw_round2(s_head[i], s_head[i + 1], scale, to);
}

/* As a cache of these elements has a head. */
static __device__ void sw_store_as(sw_bf16 *to, const float *s_head, int dim, float)
{
    sw_store_head(to, s_head, dim);
}

template <typename T>
static __device__ void sw_store_as(T *to, const float *s_head, int dim, float scale)
{
    sw_store_codes(to, s_head, dim, scale);
}

/* Head `at` of a cache, its values in shared memory; a warp. */
static __device__ void sw_cache_head(void *cache, int64_t at, const float *s_head, int dim,
                                     sw_kv_kind kind, float scale)
{
    if (kind == SW_KV_E4M3) sw_store_codes((uint8_t *)cache + at * dim, s_head, dim, scale);
    else if (kind == SW_KV_INT8) sw_store_codes((int8_t *)cache + at * dim, s_head, dim, scale);
    else sw_store_head((sw_bf16 *)cache + at * dim, s_head, dim);
}

#endif
