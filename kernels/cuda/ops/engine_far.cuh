/* engine_far.cuh - where near and far keys lie, and how pairs turn. See engine_streams.h. */
#ifndef SW_KERNELS_CUDA_OPS_ENGINE_FAR_CUH
#define SW_KERNELS_CUDA_OPS_ENGINE_FAR_CUH

#include "kernels/cuda/ops/engine_streams.h"

/* The position of row t of the call. */
static __device__ __forceinline__ int64_t far_position(const sw_far_place &p, int64_t t)
{
    return (p.first ? p.first[t / p.seq_len] : 0) + t % p.seq_len;
}

static __device__ __forceinline__ sw_bf16 *far_row(const sw_far_place &p, int64_t seq,
                                                   int64_t position)
{
    return p.d + seq * p.seq_stride + position * p.row;
}

/* The far keys of a sequence; those of the choice lie behind them. */
static __device__ __forceinline__ sw_bf16 *far_keys(const sw_far_place &p, int64_t seq)
{
    return p.d + seq * p.seq_stride + p.capacity * p.row;
}

static __device__ __forceinline__ void turn_pair(float &low, float &high, const float *cos,
                                                 const float *sin, int64_t at)
{
    const float c = cos[at], s = sin[at], x = low, y = high;

    low = x * c - y * s;
    high = y * c + x * s;
}

#endif
