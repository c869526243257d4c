/* solver_math.cuh - arithmetic that rounds as the CPU's does, and launches. For solver_*.cu. */
#ifndef SW_KERNELS_CUDA_SOLVER_SOLVER_MATH_CUH
#define SW_KERNELS_CUDA_SOLVER_SOLVER_MATH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/solver/solver_kernels.cuh"

/* Of the launch before. */
static inline sw_code launched(const char *kernel, sw_err *err)
{
    return sw_device_check((int)cudaGetLastError(), kernel, err);
}

static inline unsigned blocks_for(int64_t n, int64_t per_block)
{
    return (unsigned)((n + per_block - 1) / per_block);
}

/* One rounding an operation, whatever the compiler's mood: it may fuse a * b + c otherwise. */
static __device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
static __device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
static __device__ __forceinline__ double sub(double a, double b) { return __dsub_rn(a, b); }

/* a / b as the CPU rounds it, given inverse = 1 / b, rounded: two corrections by what is left over
 * (Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990), a third of
 * the way of __ddiv_rn. Of sizes whose products neither overflow nor vanish. */
static __device__ __forceinline__ double quotient(double a, double b, double inverse)
{
    double q = mul(a, inverse);

    q = __fma_rn(__fma_rn(-q, b, a), inverse, q);
    return __fma_rn(__fma_rn(-q, b, a), inverse, q);
}

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

/* The nearest value of a small float, ties to even: v in steps of its binade, all powers of two. */
static __device__ __forceinline__ double nearest_small(double v, double normal, double step,
                                                       double top)
{
    double a = fabs(v);
    double binade = __longlong_as_double(__double_as_longlong(a) & 0x7ff0000000000000ll);
    double quantum = mul(binade > normal ? binade : normal, step);
    double inverse = __longlong_as_double(0x7fe0000000000000ll - __double_as_longlong(quantum));

    a = mul(rint(mul(a, inverse)), quantum);
    a = a > top ? top : a;
    return v < 0 ? -a : a;
}

/* The level next to v, which has been divided by the scale: not multiplied by its reciprocal. */
template <bool SMALL>
static __device__ __forceinline__ double level_near(double v, double zero, const grid_shape &g)
{
    return SMALL ? nearest_small(v, g.normal, g.step, g.top)
                 : clamp(add(nearest(v), zero), (double)g.code_max);
}

/* A small float's value as its bits; of the two zeros the positive one. */
static __device__ __forceinline__ uint8_t small_code(double v, const grid_shape &g)
{
    double a = fabs(v);
    int64_t bits = __double_as_longlong(a);
    int m = g.mantissa_bits, exponent = (int)(bits >> 52) - 1023 - g.exponent0, magnitude;

    if (!(a > 0)) return 0;
    magnitude = exponent < 0 ? (int)__ddiv_rn(a, mul(g.normal, g.step))
                             : (exponent + 1) << m | (int)(bits >> (52 - m) & ((1 << m) - 1));
    return (uint8_t)(magnitude | (v < 0) << (g.code_bits - 1));
}

static __device__ __forceinline__ double small_value(int code, const grid_shape &g)
{
    int m = g.mantissa_bits, magnitude = code & ((1 << (g.code_bits - 1)) - 1);
    int exponent = magnitude >> m, mantissa = magnitude & ((1 << m) - 1);
    double a = exponent ? __longlong_as_double((int64_t)(exponent - 1 + g.exponent0 + 1023) << 52 |
                                               (int64_t)mantissa << (52 - m))
                        : mul(mul(g.normal, g.step), mantissa);

    return code >> (g.code_bits - 1) ? -a : a;
}

template <bool SMALL>
static __device__ __forceinline__ uint8_t code_of_level(double level, const grid_shape &g)
{
    return SMALL ? small_code(level, g) : (uint8_t)level;
}

static __device__ __forceinline__ double level_of_code(uint8_t code, const grid_shape &g)
{
    return g.is_small ? small_value(code, g) : (double)code;
}

/* The nearest power of two that E8M0 has, ties to the even exponent: sw_e8m0_encode. */
static __device__ __forceinline__ double nearest_pow2(float v)
{
    uint32_t bits = __float_as_uint(v), code = (bits + 0x3fffffu + (bits >> 23 & 1)) >> 23;

    if (bits < 0x800000u) code = bits > 0x600000u; /* 2^-127 and 2^-126: a subnormal between */
    if (code > 254u) code = 254u;
    return ldexp(1.0, (int)code - 127);
}

/* sw_grid_stored_scale. */
static __device__ __forceinline__ double stored_size(double s, int kind)
{
    float rounded = (float)s;
    double least = kind == SCALE_F16 ? 0x1p-24 : kind == SCALE_E4M3 ? 0x1p-9 : 0x1p-126;
    double most = kind == SCALE_F16 ? 65504.0 : (double)0x1.fep127f;

    if (!(s > 0)) return 1.0;
    if (kind == SCALE_POW2) return nearest_pow2(rounded);
    if (kind == SCALE_F16) rounded = __half2float(__float2half_rn(rounded));
    if (kind == SCALE_BF16) rounded = __bfloat162float(__float2bfloat16_rn(rounded));
    if (kind == SCALE_E4M3) rounded = (float)nearest_small((double)rounded, 0x1p-6, 0x1p-3, 448.0);
    if (!(rounded > 0)) return least;
    return isfinite(rounded) ? (double)rounded : most;
}

/* Of either sign; below zero come only fits that may go there. */
static __device__ __forceinline__ double stored_scale(double s, int kind)
{
    return s < 0 ? -stored_size(-s, kind) : stored_size(s, kind);
}

#endif
