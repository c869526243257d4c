/* engine_act.cu - activations as their quantization leaves them, in floats. See formats/num/act.h.
 */
#include "kernels/cuda/ops/engine_launch.cuh"

/* Elements of T: BF16 or float. */
template <typename T> struct rows_of {
    T *d;
    int64_t stride;
};

struct round_args {
    int64_t k_in, group_elems;
    float top, normal, input_scale;
    int mantissa_bits;  /* -1: whole numbers */
    sw_dtype scale_dtype;
    bool is_given;      /* the scale is input_scale */
    bool rounds_up;     /* of powers of two: only from a mantissa of 1.75 on (e2m1), else all fit */
};

/* The nearest value of the format, ties to even, saturating. */
static __device__ float nearest(float v, int mantissa_bits, float normal, float top)
{
    const float size = fabsf(v);
    float step = 1.0f;

    if (mantissa_bits >= 0) {
        int exponent;

        (void)frexpf(fmaxf(size, normal), &exponent);
        step = ldexpf(1.0f, exponent - 1 - mantissa_bits);
    }
    return fminf(fmaxf(rintf(v / step) * step, -top), top);
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
        return nearest(s / r.input_scale, 3, 0x1p-6f, 448.0f) * r.input_scale;
    return a > 0 ? fmaxf(s, 1.17549435e-38f) : 1.0f;
}

static __device__ float widened(sw_bf16 v) { return sw_float(v); }
static __device__ float widened(float v) { return v; }
static __device__ void put(sw_bf16 *to, float v) { *to = sw_round16(v); }
static __device__ void put(float *to, float v) { *to = v; }

/* grid (groups, tokens) */
template <typename T>
static __global__ void swk_act_round(rows_of<T> dst, rows_of<const T> src, round_args r)
{
    __shared__ float s_part[32];
    const int64_t begin = blockIdx.x * r.group_elems, row = blockIdx.y;
    const int64_t end = min(r.k_in, begin + r.group_elems);
    float top = 0;

    sw_begin();
    for (int64_t k = begin + threadIdx.x; k < end; k += blockDim.x)
        top = fmaxf(top, fabsf(widened(src.d[row * src.stride + k])));
    top = sw_warp_max(top);
    if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = top;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; w++) top = fmaxf(top, s_part[w]);
    const float d = divisor_of(top, r);

    for (int64_t k = begin + threadIdx.x; k < end; k += blockDim.x) {
        const float v = widened(src.d[row * src.stride + k]);
        const float code = d > 0 ? nearest(v / d, r.mantissa_bits, r.normal, r.top) : 0.0f;

        put(&dst.d[row * dst.stride + k], d * code);
    }
}

template <typename T>
static sw_code round_rows(rows_of<T> dst, rows_of<const T> src, int64_t n, int64_t k_in,
                          const sw_act *act, float input_scale, sw_launch how, sw_err *err)
{
    const bool is_float = act->num->kind == SW_NUM_FLOAT;
    round_args r = {};

    r.k_in = k_in;
    r.group_elems = act->scope == SW_ACT_GROUP ? act->group_elems : k_in;
    r.top = act->num->top;
    r.normal = act->num->normal;
    r.input_scale = input_scale;
    r.mantissa_bits = is_float ? act->num->mantissa_bits : -1;
    r.scale_dtype = act->scope == SW_ACT_GROUP ? act->scale_dtype : SW_DTYPE_F32;
    r.is_given = act->scope == SW_ACT_TENSOR;
    r.rounds_up = is_float && act->num->bits == 4;
    return sw_start("rounding of activations", swk_act_round<T>,
                    dim3(sw_blocks(k_in, r.group_elems), (unsigned)n),
                    r.group_elems > 128 ? 256 : 32, 0, how, err, dst, src, r);
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
