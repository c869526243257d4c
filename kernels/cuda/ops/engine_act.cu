/* engine_act.cu - activations as their quantization leaves them, in floats. See formats/num/act.h.
 */
#include "kernels/cuda/ops/engine_launch.cuh"

/* Elements of T: BF16 or float. */
template <typename T> struct rows_of {
    T *d;
    int64_t stride;
};

struct round_args {
    int64_t n, k_in, group_elems;
    float top, normal, input_scale;
    int mantissa_bits;  /* of floats */
    sw_dtype scale_dtype;
    bool is_given;      /* the scale is input_scale */
    bool rounds_up;     /* of powers of two: only from a mantissa of 1.75 on (e2m1), else all fit */
};

/* The nearest value of the format, ties to even, saturating. Of a float the step is the power of
 * two that belongs to the value's exponent, and multiplying by its reciprocal is exact. What lies
 * far beyond the top is taken to twice the top first, so that both are numbers. */
template <bool IS_FLOAT>
static __device__ __forceinline__ float nearest(float v, int mantissa_bits, float normal, float top)
{
    float step = 1.0f, inverse = 1.0f;

    if (IS_FLOAT) {
        uint32_t exponent;

        v = fminf(fmaxf(v, -2.0f * top), 2.0f * top);
        exponent = (__float_as_uint(fmaxf(fabsf(v), normal)) >> 23) - (uint32_t)mantissa_bits;
        step = __uint_as_float(exponent << 23);
        inverse = __uint_as_float((254u - exponent) << 23);
    }
    return fminf(fmaxf(rintf(v * inverse) * step, -top), top);
}

/* A power of two for a block whose largest magnitude is a; see formats/num/pow2.h. */
static __device__ float pow2_scale(float a, const round_args &r)
{
    int exponent, most;
    float mantissa, scale;

    if (!(a > 0)) return 1.0f;
    mantissa = 2.0f * frexpf(a, &exponent);
    (void)frexpf(r.top, &most);
    exponent -= most;
    scale = ldexpf(1.0f, min(max(exponent, -126), 127));
    if (r.rounds_up ? mantissa >= 1.75f : a / scale > r.top)
        scale = ldexpf(1.0f, min(max(exponent + 1, -126), 127));
    return scale;
}

/* What the codes of a block are multiplied by; 0: all codes are 0. */
static __device__ float divisor_of(float a, const round_args &r)
{
    const float s = a / r.top;

    if (r.is_given) return r.input_scale;
    if (r.scale_dtype == SW_DTYPE_F8_E8M0) return pow2_scale(a, r);
    if (r.scale_dtype == SW_DTYPE_F8_E4M3)
        return nearest<true>(s / r.input_scale, 3, 0x1p-6f, 448.0f) * r.input_scale;
    return a > 0 ? fmaxf(s, 1.17549435e-38f) : 1.0f;
}

template <bool IS_FLOAT>
static __device__ __forceinline__ float rounded(float v, float divisor, const round_args &r)
{
    const float steps = v / divisor;

    return divisor *
           (divisor > 0 ? nearest<IS_FLOAT>(steps, r.mantissa_bits, r.normal, r.top) : 0.0f);
}

static __device__ float widened(sw_bf16 v) { return sw_float(v); }
static __device__ float widened(float v) { return v; }
static __device__ void put(sw_bf16 *to, float v) { *to = sw_round16(v); }
static __device__ void put(float *to, float v) { *to = v; }

static __device__ sw_eight load_whole(const sw_bf16 *p) { return sw_load8(p); }
static __device__ sw_eight load_whole(const float *p)
{
    const float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);

    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
static __device__ void store_whole(sw_bf16 *p, const sw_eight &e) { sw_store8(p, e); }
static __device__ void store_whole(float *p, const sw_eight &e)
{
    *(float4 *)p = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    *(float4 *)(p + 4) = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
}

/* Eight elements of a row from k on; zeros beyond its end. IS_WIDE: rows begin where 16 bytes may
 * be read at once, and are of whole eights. */
template <typename T, bool IS_WIDE>
static __device__ __forceinline__ sw_eight load_some(const T *row, int64_t k, int64_t k_in)
{
    sw_eight e = {};

    if (IS_WIDE) return k < k_in ? load_whole(row + k) : e;
    for (int i = 0; i < 8 && k + i < k_in; i++) e.v[i] = widened(row[k + i]);
    return e;
}

template <typename T, bool IS_WIDE>
static __device__ __forceinline__ void store_some(T *row, int64_t k, int64_t k_in,
                                                  const sw_eight &e)
{
    if (IS_WIDE && k < k_in) store_whole(row + k, e);
    for (int i = 0; !IS_WIDE && i < 8 && k + i < k_in; i++) put(&row[k + i], e.v[i]);
}

static __device__ __forceinline__ float largest(const sw_eight &e)
{
    float top = 0;

#pragma unroll
    for (int i = 0; i < 8; i++) top = fmaxf(top, fabsf(e.v[i]));
    return top;
}

template <bool IS_FLOAT>
static __device__ __forceinline__ sw_eight round_eight(sw_eight e, float divisor,
                                                       const round_args &r)
{
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = rounded<IS_FLOAT>(e.v[i], divisor, r);
    return e;
}

/* Groups of 16, 32, ... 256 elements: 2, 4, ... 32 neighbouring threads each, whose eights stay in
 * registers. grid (threads of a row, rows); dst may be src. */
template <typename T, bool IS_FLOAT, bool IS_WIDE>
static __global__ void __launch_bounds__(256)
    swk_act_round_groups(rows_of<T> dst, rows_of<const T> src, round_args r)
{
    const int lanes = (int)r.group_elems / 8;
    const int64_t k = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);

    sw_begin();
    for (int64_t row = blockIdx.y; row < r.n; row += gridDim.y) {
        const sw_eight e = load_some<T, IS_WIDE>(src.d + row * src.stride, k, r.k_in);
        float top = largest(e);

        for (int step = lanes / 2; step; step /= 2)
            top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
        store_some<T, IS_WIDE>(dst.d + row * dst.stride, k, r.k_in,
                               round_eight<IS_FLOAT>(e, divisor_of(top, r), r));
    }
}

/* Other groups, and whole rows: a block each, which reads them twice. grid (groups, rows). */
template <typename T, bool IS_FLOAT, bool IS_WIDE>
static __global__ void __launch_bounds__(256)
    swk_act_round(rows_of<T> dst, rows_of<const T> src, round_args r)
{
    __shared__ float s_part[32];
    const int64_t begin = blockIdx.x * r.group_elems;
    const int64_t end = min(r.k_in, begin + r.group_elems);

    sw_begin();
    for (int64_t row = blockIdx.y; row < r.n; row += gridDim.y) {
        const T *from = src.d + row * src.stride;
        float top = 0;

        for (int64_t k = begin + 8 * threadIdx.x; k < end && !r.is_given; k += 8 * blockDim.x)
            top = fmaxf(top, largest(load_some<T, IS_WIDE>(from, k, end)));
        top = sw_warp_max(top);
        __syncthreads(); /* the row before has been read */
        if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = top;
        __syncthreads();
        for (unsigned w = 0; w < blockDim.x / 32; w++) top = fmaxf(top, s_part[w]);
        const float divisor = divisor_of(top, r);

        for (int64_t k = begin + 8 * threadIdx.x; k < end; k += 8 * blockDim.x)
            store_some<T, IS_WIDE>(
                dst.d + row * dst.stride, k, end,
                round_eight<IS_FLOAT>(load_some<T, IS_WIDE>(from, k, end), divisor, r));
    }
}

#define ROWS_MAX 65535 /* of a grid; more are a loop */

static bool is_by_lanes(int64_t group_elems)
{
    return group_elems >= 16 && group_elems <= 256 && (group_elems & (group_elems - 1)) == 0;
}

template <typename T, bool IS_FLOAT, bool IS_WIDE>
static sw_code start(rows_of<T> dst, rows_of<const T> src, const round_args &r, sw_launch how,
                     sw_err *err)
{
    const int64_t n_groups = (r.k_in + r.group_elems - 1) / r.group_elems;
    const int64_t threads_of_row = (n_groups * r.group_elems / 8 + 31) / 32 * 32;
    const unsigned rows = (unsigned)(r.n < ROWS_MAX ? r.n : ROWS_MAX);
    const unsigned threads = threads_of_row < 256 ? (unsigned)threads_of_row : 256;

    if (is_by_lanes(r.group_elems))
        return sw_start("rounding of activations", swk_act_round_groups<T, IS_FLOAT, IS_WIDE>,
                        dim3(sw_blocks(threads_of_row, threads), rows), threads, 0, how, err, dst,
                        src, r);
    return sw_start("rounding of activations", swk_act_round<T, IS_FLOAT, IS_WIDE>,
                    dim3((unsigned)n_groups, rows), r.group_elems > 1024 ? 256 : 32, 0, how, err,
                    dst, src, r);
}

template <typename T> static bool is_aligned(const T *d, int64_t stride)
{
    return (uintptr_t)d % 16 == 0 && stride * (int64_t)sizeof(T) % 16 == 0;
}

template <typename T>
static sw_code round_rows(rows_of<T> dst, rows_of<const T> src, int64_t n, int64_t k_in,
                          const sw_act *act, float input_scale, sw_launch how, sw_err *err)
{
    const bool is_float = act->num->kind == SW_NUM_FLOAT;
    bool is_wide;
    round_args r = {};

    r.n = n;
    r.k_in = k_in;
    r.group_elems = act->scope == SW_ACT_GROUP ? act->group_elems : k_in;
    r.top = act->num->top;
    r.normal = act->num->normal;
    r.input_scale = input_scale;
    r.mantissa_bits = is_float ? act->num->mantissa_bits : 0;
    r.scale_dtype = act->scope == SW_ACT_GROUP ? act->scale_dtype : SW_DTYPE_F32;
    r.is_given = act->scope == SW_ACT_TENSOR;
    r.rounds_up = is_float && act->num->bits == 4;
    is_wide = k_in % 8 == 0 && r.group_elems % 8 == 0 && is_aligned(dst.d, dst.stride) &&
              is_aligned(src.d, src.stride);
    if (is_float)
        return is_wide ? start<T, true, true>(dst, src, r, how, err)
                       : start<T, true, false>(dst, src, r, how, err);
    return is_wide ? start<T, false, true>(dst, src, r, how, err)
                   : start<T, false, false>(dst, src, r, how, err);
}

extern "C" sw_code sw_cuda_act_round(sw_bf16_rows dst, sw_bf16_rows src, int64_t n, int64_t k_in,
                                     const sw_act *act, float input_scale, sw_launch how,
                                     sw_err *err)
{
    return round_rows<sw_bf16>({dst.d, dst.stride}, {src.d, src.stride}, n, k_in, act, input_scale,
                               how, err);
}

extern "C" sw_code sw_cuda_act_round_f32(float *dst, const float *src, int64_t n, int64_t k_in,
                                         const sw_act *act, float input_scale, sw_launch how,
                                         sw_err *err)
{
    return round_rows<float>({dst, k_in}, {src, k_in}, n, k_in, act, input_scale, how, err);
}
