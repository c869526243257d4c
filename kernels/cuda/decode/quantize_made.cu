/* quantize_made.cu - see quantize_made.h. A CTA a token: a thread makes slices of 16 inputs,
 * rounds them to BF16 in registers and goes on as quantize.cu does. A norm adds up in the order of
 * swk_norm (engine_rows.cu), which has a thread to 8 inputs: what two of its lanes have one thread
 * has here.
 */
#include <math.h>

#include "kernels/cuda/decode/quantize_made.h"
#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/glu.cuh"
#include "kernels/cuda/gemm/quantize_codes.cuh"
#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ptx/caches.cuh"

#define NORM_THREADS 256 /* half of those of swk_norm, where rows have as many */
#define NORM_HELD 4
#define NORM_PARTS (2 * NORM_THREADS / 32)
#define THREADS_MAX 1024
#define WIDTH_MAX (NORM_THREADS * NORM_HELD * SLICE) /* beyond it swk_norm adds up otherwise */

typedef enum made_kind { MADE_INT8, MADE_E4M3, MADE_GROUPS, MADE_NONE } made_kind;

struct made_out {
    quantize_args q;
    bool starts_next;
};

/* What OF makes of v of a CTA's threads, in all of them. */
template <typename OF, typename T> static __device__ T over_block(T v, T *shared)
{
    v = OF::of(v);
    const uint32_t lane = threadIdx.x % 32;

    put_of_warp(shared, lane, v);
    __syncthreads();
    return over_warps<OF>(shared, lane, 0u, blockDim.x / 32);
}

/* ---- codes ---- */

/* A slice by division: rare, so that it is to be short. */
template <bool INT>
static __device__ __noinline__ uint4 divide_held(uint4 low, uint4 high, float scale, float top)
{
    const uint4 raw[2] = {low, high};
    uint32_t words[4] = {};

#pragma unroll
    for (int i = 0; i < SLICE; i++)
        words[i / 4] |= divide<INT>(input_of<true>(raw, input_at(i)), scale, top) << 8 * (i % 4);
    return make_uint4(words[0], words[1], words[2], words[3]);
}

template <bool INT>
static __device__ uint4 codes_of(const uint4 (&raw)[2], float scale, float inverse,
                                 quantize_how how, float top)
{
    if (how == BY_DIVISION) return divide_held<INT>(raw[0], raw[1], scale, top);
    if (INT && how == BY_QUOTIENTS_CUT) return encode_slice<INT, true, true>(raw, scale, inverse);
    return encode_slice<INT, true, false>(raw, scale, inverse);
}

/* One scale for the token; all threads of the CTA. */
template <bool INT, int HELD>
static __device__ void put_token(const uint4 (&raw)[HELD][2], const quantize_args &a)
{
    __shared__ uint32_t s_most[32];
    __shared__ int s_sums[32];
    const int64_t token = blockIdx.x;
    uint32_t most = 0;
    int sum = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++) most = larger(most, raw[i]);
    most = over_block<warp_largest>(largest_of<true>(most), s_most);
    const float scale = scale_of(most, a), inverse = __frcp_rn(scale);
    const quantize_how how = how_of<INT>(scale, inverse, most);

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t k = (threadIdx.x + i * blockDim.x) * SLICE;

        if (k >= a.stride) break;
        const uint4 v = codes_of<INT>(raw[i], scale, inverse, how, a.top);

        *(uint4 *)(a.codes + token * a.stride + k) = v;
        if (INT) sum += sum_of(v);
    }
    if (INT) sum = over_block<warp_sum>(sum, s_sums);
    if (threadIdx.x > 0) return;
    a.scales[token] = scale;
    if (INT) a.sums[token] = sum;
}

/* A scale for each 128 inputs, which eight lanes have. */
template <int HELD>
static __device__ void put_groups(const uint4 (&raw)[HELD][2], const quantize_args &a)
{
    const int64_t token = blockIdx.x;

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t k = (threadIdx.x + i * blockDim.x) * SLICE;
        uint32_t most = largest_of<true>(larger(0, raw[i]));

        for (int d = 1; d < GROUP_LANES; d *= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
        const float scale = scale_of(most, a), inverse = __frcp_rn(scale);

        if (k >= a.stride) continue;
        *(uint4 *)(a.codes + token * a.stride + k) =
            codes_of<false>(raw[i], scale, inverse, how_of<false>(scale, inverse, most), a.top);
        if (k % 128 == 0) a.scales[k / 128 * a.m + token] = scale;
    }
}

template <int KIND, int HELD>
static __device__ void put_codes(const uint4 (&raw)[HELD][2], const quantize_args &a)
{
    if constexpr (KIND == MADE_GROUPS) put_groups<HELD>(raw, a);
    else put_token<KIND == MADE_INT8, HELD>(raw, a);
}

static __device__ uint4 rounded(const sw_eight &e)
{
    return make_uint4(sw_pack2(e.v[0], e.v[1]), sw_pack2(e.v[2], e.v[3]),
                      sw_pack2(e.v[4], e.v[5]), sw_pack2(e.v[6], e.v[7]));
}

/* As the quantizing kernel does: the next one may come at once, or when the one ahead has ended. */
static __device__ void begin(bool starts_next)
{
    if (starts_next) sw_let_next();
    sw_await_ahead();
    sw_let_next();
}

/* ---- gates ---- */

/* grid (tokens), a thread to each slice of a token */
template <int KIND>
static __global__ void __launch_bounds__(THREADS_MAX)
    swk_act_codes(sw_act_args g, const __grid_constant__ made_out o)
{
    const uint32_t k = threadIdx.x * SLICE;
    const sw_bf16 *gate = g.g.d + blockIdx.x * g.g.stride + k;
    const sw_bf16 *up = g.u.d ? g.u.d + blockIdx.x * g.u.stride + k : NULL;
    uint4 raw[1][2] = {};

    begin(o.starts_next);
    if (k < o.q.k_in)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sw_eight e = sw_load8(gate + 8 * half), u = {{1, 1, 1, 1, 1, 1, 1, 1}};

            if (up) u = sw_load8(up + 8 * half);
#pragma unroll
            for (int i = 0; i < 8; i++) e.v[i] = sw_any_glu_of(g.act, e.v[i], u.v[i], g.limit);
            raw[0][half] = rounded(e);
        }
    put_codes<KIND, 1>(raw, o.q);
}

/* ---- norms ---- */

/* Of what 32 lanes of swk_norm have, neighbours in `two` of 16 lanes here, in their order; then of
 * its warps, two of which are one here. */
static __device__ float sum_as_norm(const float (&two)[2], float *s_part)
{
    float one[2] = {two[0], two[1]};

#pragma unroll
    for (int step = 8; step; step /= 2)
#pragma unroll
        for (int i = 0; i < 2; i++) one[i] += __shfl_xor_sync(~0u, one[i], step);
    if (threadIdx.x % 16 == 0) s_part[threadIdx.x / 16] = one[0] + one[1];
    return sw_sum_of_parts<NORM_PARTS>(s_part);
}

/* grid (tokens), slices of a token blockDim apart */
template <int KIND, int HELD>
static __global__ void __launch_bounds__(NORM_THREADS)
    swk_norm_codes(sw_norm_args a, const __grid_constant__ made_out o)
{
    __shared__ float s_part[NORM_PARTS];
    const int64_t row = blockIdx.x;
    sw_eight e[HELD][2], weight[2] = {};
    uint4 raw[HELD][2] = {};
    float sums[2] = {};

    sw_clear_parts<NORM_PARTS>(s_part);
    if (threadIdx.x * SLICE < a.width)
#pragma unroll
        for (int half = 0; half < 2; half++)
            weight[half] = sw_load_floats(a.weight + threadIdx.x * SLICE + 8 * half);
    begin(o.starts_next);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int64_t k = (threadIdx.x + i * (int64_t)blockDim.x) * SLICE;

        if (k >= a.width) break;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            e[i][half] = sw_stream_at(a, row, k + 8 * half);
#pragma unroll
            for (int j = 0; j < 8; j++) sums[half] += e[i][half].v[j] * e[i][half].v[j];
        }
    }
    const float scale = 1.0f / sqrtf(sum_as_norm(sums, s_part) / (float)a.width + a.eps);

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int64_t k = (threadIdx.x + i * (int64_t)blockDim.x) * SLICE;

        if (k >= a.width) break;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (i) weight[half] = sw_load_floats(a.weight + k + 8 * half);
#pragma unroll
            for (int j = 0; j < 8; j++)
                e[i][half].v[j] = e[i][half].v[j] * scale * weight[half].v[j];
            raw[i][half] = rounded(e[i][half]);
        }
    }
    put_codes<KIND, HELD>(raw, o.q);
}

/* ---- the host's side ---- */

static made_kind kind_of(const sw_act *act)
{
    switch (sw_cuda_inputs_of(act)) {
        case SW_CUDA_X_INT8: return MADE_INT8;
        case SW_CUDA_X_E4M3: return MADE_E4M3;
        case SW_CUDA_X_E4M3_GROUPS: return MADE_GROUPS;
        default: return MADE_NONE;
    }
}

extern "C" bool sw_cuda_made_can(int64_t width, const sw_act *act)
{
    return act->scope != SW_ACT_NONE && kind_of(act) != MADE_NONE && width % 128 == 0 &&
           width <= WIDTH_MAX;
}

static made_out out_of(const sw_made_codes *codes, int64_t n, int64_t width)
{
    made_out o = {};

    o.q.m = n;
    o.q.k_in = o.q.stride = (uint32_t)width;
    o.q.codes = codes->to.d_codes;
    o.q.scales = codes->to.d_scales;
    o.q.sums = codes->to.d_sums;
    o.q.input_scale = codes->input_scale;
    o.q.top = codes->act.num->top;
    o.q.is_tensor = codes->act.scope == SW_ACT_TENSOR;
    o.starts_next = codes->starts_next;
    return o;
}

static unsigned threads_for(int64_t n_slices) { return (unsigned)((n_slices + 31) / 32 * 32); }

static sw_code check(int64_t width, const sw_act *act, sw_err *err)
{
    if (sw_cuda_made_can(width, act)) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "codes of %lld inputs where they are made; quantize them "
                   "afterwards", (long long)width);
}

extern "C" sw_code sw_cuda_act_codes(const sw_act_args *a, const sw_made_codes *codes,
                                     sw_launch how, sw_err *err)
{
    static void (*const kernels[])(sw_act_args, made_out) = {
        swk_act_codes<MADE_INT8>, swk_act_codes<MADE_E4M3>, swk_act_codes<MADE_GROUPS>};
    const sw_code rc = check(a->width, &codes->act, err);

    if (rc != SW_OK) return rc;
    sw_divide_as_products(kernels[kind_of(&codes->act)]);
    return sw_start("codes of gates", kernels[kind_of(&codes->act)], (unsigned)a->n,
                    threads_for(a->width / SLICE), 0, how, err, *a,
                    out_of(codes, a->n, a->width));
}

extern "C" sw_code sw_cuda_norm_codes(const sw_norm_args *a, const sw_made_codes *codes,
                                      sw_launch how, sw_err *err)
{
    static void (*const kernels[][3])(sw_norm_args, made_out) = {
        {swk_norm_codes<MADE_INT8, 1>, swk_norm_codes<MADE_E4M3, 1>,
         swk_norm_codes<MADE_GROUPS, 1>},
        {swk_norm_codes<MADE_INT8, NORM_HELD>, swk_norm_codes<MADE_E4M3, NORM_HELD>,
         swk_norm_codes<MADE_GROUPS, NORM_HELD>}};
    const int64_t n_slices = a->width / SLICE;
    const sw_code rc = check(a->width, &codes->act, err);

    if (rc != SW_OK) return rc;
    if (!a->x || a->bias)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "codes of a norm that is not of the stream alone");
    sw_divide_as_products(kernels[n_slices > NORM_THREADS][kind_of(&codes->act)]);
    return sw_start("codes of a norm", kernels[n_slices > NORM_THREADS][kind_of(&codes->act)],
                    (unsigned)a->n,
                    threads_for(n_slices < NORM_THREADS ? n_slices : NORM_THREADS), 0, how, err,
                    *a, out_of(codes, a->n, a->width));
}
