/* solver_math.cuh - arithmetic that rounds as the CPU's does, and launches. For solver_*.cu. */
#ifndef SW_KERNELS_CUDA_SOLVER_MATH_CUH
#define SW_KERNELS_CUDA_SOLVER_MATH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/solver_internal.cuh"

/* Of the launch before. */
static inline sw_code launched(const char *kernel, sw_err *err)
{
    return sw_gpu_check((int)cudaGetLastError(), kernel, err);
}

static inline unsigned blocks_for(int64_t n, int64_t per_block)
{
    return (unsigned)((n + per_block - 1) / per_block);
}

/* One rounding an operation, whatever the compiler's mood: it may fuse a * b + c otherwise. */
static __device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
static __device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
static __device__ __forceinline__ double sub(double a, double b) { return __dsub_rn(a, b); }

/* rint for what is clamped afterwards: beyond 2^51 it is coarse, but as large. */
static __device__ __forceinline__ double nearest(double v)
{
    return sub(add(v, 6755399441055744.0), 6755399441055744.0);
}

static __device__ __forceinline__ double clamp(double v, double top)
{
    v = v < 0.0 ? 0.0 : v;
    return v > top ? top : v;
}

/* Code of a value: division, not a reciprocal. */
static __device__ __forceinline__ double code_of(double w, double scale, double zero, double top)
{
    return clamp(add(nearest(__ddiv_rn(w, scale)), zero), top);
}

/* sw_grid_stored_scale of integers; kind: 0 F32, 1 F16, 2 BF16. */
static __device__ __forceinline__ double stored_size(double s, int kind)
{
    float rounded = (float)s;
    double least = kind == 1 ? 0x1p-24 : 0x1p-126;
    double most = kind == 1 ? 65504.0 : (double)0x1.fep127f;

    if (kind == 1) rounded = __half2float(__float2half_rn(rounded));
    if (kind == 2) rounded = __bfloat162float(__float2bfloat16_rn(rounded));
    if (!(s > 0)) return 1.0;
    if (!(rounded > 0)) return least;
    return isfinite(rounded) ? (double)rounded : most;
}

/* Of either sign; below zero come only fits that may go there. */
static __device__ __forceinline__ double stored_scale(double s, int kind)
{
    return s < 0 ? -stored_size(-s, kind) : stored_size(s, kind);
}

#endif
