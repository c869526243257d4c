/* quantize.cu - activations into codes, scales and sums, in the order that the kernels read.
 *
 * Warps of a CTA work on a token as a team: each thread loads slices of 16 inputs, which stay in
 * registers between finding the scale and making the codes. There are two ways to deal tokens out:
 *
 *   apart  a CTA a token, as few threads as its slices need, as many CTAs beside each other as fit.
 *          Where a warp holds a token, a CTA has several: to start one takes a multiprocessor as
 *          long as it takes to quantize 768 inputs
 *   wave   a CTA a multiprocessor, all of X in registers at once, several tokens a CTA
 *
 * Waves are for X that fits the registers of the device, some hundred tokens: the product ahead
 * leaves its multiprocessors one by one, and small CTAs that wait for places fill the first of them
 * with twenty and more, so that a third of the device does all of it.
 */
#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/quantize.h"
#include "kernels/cuda/gemm/quantize_codes.cuh"
#include "kernels/cuda/ptx/ptx.cuh"

#define THREADS_MAX 1024
#define WARPS_MAX (THREADS_MAX / 32)
#define TEAMS_MAX 16         /* of several warps: named barriers of a CTA */
#define APART_MAX 8          /* tokens of a warp each in a CTA that is not alone */

/* What the threads of a token share. */
struct quantize_team {
    int64_t token;
    const uint16_t *row;
    uint8_t *codes;
    uint32_t k0, step; /* first slice of this thread, from one to the next */
    int id, thread;    /* of the CTA, of the team */
};

static __device__ __forceinline__ quantize_team team_of(const quantize_args &a)
{
    int n_threads = a.warps * 32;
    quantize_team t;

    t.id = (int)threadIdx.x / n_threads;
    t.thread = (int)threadIdx.x - t.id * n_threads;
    t.token = (int64_t)blockIdx.x * a.tokens + t.id;
    t.row = a.x + t.token * a.x_stride;
    t.codes = a.codes + t.token * a.stride;
    t.k0 = (uint32_t)t.thread * SLICE;
    t.step = (uint32_t)n_threads * SLICE;
    return t;
}

/* Where a row ends for whole warps, whose lanes find the scales of groups together. */
static __device__ __forceinline__ uint32_t whole_warps(const quantize_args &a)
{
    return (a.stride + 511) / 512 * 512;
}

template <bool WAVE>
static __device__ __forceinline__ void meet(const quantize_args &a, const quantize_team &t)
{
    if constexpr (WAVE) sw_named_sync(t.id, a.warps * 32);
    else __syncthreads();
}

/* What OF makes of v of a team's threads, in all of them; `shared` holds a word a warp. */
template <typename OF, bool WAVE, typename T>
static __device__ __forceinline__ T over_team(T v, T *shared, const quantize_args &a,
                                              const quantize_team &t)
{
    const int lane = (int)threadIdx.x % 32;

    v = OF::of(v);
    if (a.warps == 1) return v;
    put_of_warp(shared, lane, v);
    meet<WAVE>(a, t);
    return over_warps<OF>(shared, lane, t.id, a.warps);
}

/* This thread's codes of a token by division. Its inputs are read again, so that nothing has to be
 * kept for this. Returns their sum. */
template <bool INT, bool BF16>
static __device__ __noinline__ int divide_token(const quantize_args &a, float scale)
{
    const quantize_team t = team_of(a);
    int sum = 0;

#pragma unroll 1
    for (uint32_t k = t.k0; k < a.stride; k += t.step)
        sum += divide_slice<INT, BF16>(t.codes, a, t.row, k, scale);
    return sum;
}

/* The same by quotients; of the inputs it holds HELD slices or none. */
template <bool INT, bool BF16, int HELD, bool CUT>
static __device__ __forceinline__ int encode_token(const uint4 (*held)[2], const quantize_args &a,
                                                   const quantize_team &t, float scale,
                                                   float inverse)
{
    int sum = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        uint32_t k = t.k0 + (uint32_t)i * t.step;

        if (k < a.stride) {
            uint4 v = encode_slice<INT, BF16, CUT>(held[i], scale, inverse);

            *(uint4 *)(t.codes + k) = v;
            if (INT) sum += sum_of(v);
        }
    }
    for (uint32_t k = t.k0; HELD == 0 && k < a.stride; k += t.step) {
        uint4 raw[2], v;

        load_any(raw, a, t.row, k);
        v = encode_slice<INT, BF16, CUT>(raw, scale, inverse);
        *(uint4 *)(t.codes + k) = v;
        if (INT) sum += sum_of(v);
    }
    return sum;
}

/* One scale for all of a token. */
template <bool INT, bool BF16, int HELD, bool WAVE>
static __device__ __forceinline__ void quantize_token(const quantize_args &a,
                                                      const quantize_team &t)
{
    __shared__ uint32_t s_most[WARPS_MAX];
    __shared__ int s_sums[WARPS_MAX];
    uint4 held[HELD > 0 ? HELD : 1][2];
    uint32_t most = 0;
    float scale, inverse;
    quantize_how how;
    int sum;

#pragma unroll
    for (int i = 0; i < HELD; i++) load_halves(held[i], a, t.row, t.k0 + (uint32_t)i * t.step);
#pragma unroll
    for (int i = 0; i < HELD; i++) most = larger(most, held[i]);
    for (uint32_t k = t.k0; HELD == 0 && k < a.k_in; k += t.step) {
        uint4 raw[2];

        load_any(raw, a, t.row, k);
        most = larger(most, raw);
    }
    most = over_team<warp_largest, WAVE>(largest_of<BF16>(most), s_most, a, t);
    scale = scale_of(most, a);
    inverse = __frcp_rn(scale);
    how = how_of<INT>(scale, inverse, most);
    if (how == BY_QUOTIENTS) sum = encode_token<INT, BF16, HELD, false>(held, a, t, scale, inverse);
    else if (INT && how == BY_QUOTIENTS_CUT)
        sum = encode_token<INT, BF16, HELD, true>(held, a, t, scale, inverse);
    else sum = divide_token<INT, BF16>(a, scale);
    if (INT) sum = over_team<warp_sum, WAVE>(sum, s_sums, a, t);
    if (t.thread > 0) return;
    a.scales[t.token] = scale;
    if (INT) a.sums[t.token] = sum;
}

/* The largest magnitude of a group, by the eight lanes that have it. */
template <bool BF16> static __device__ __forceinline__ uint32_t largest_of_group(const uint4 *raw)
{
    uint32_t most = largest_of<BF16>(larger(0, raw));

    for (int d = 1; d < GROUP_LANES; d *= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
    return most;
}

/* N slices of a thread, from k on, each of another group of 128 inputs: scales and codes. The first
 * N lanes of a group find the scale of one of these each. False: division makes the codes. */
template <bool BF16, int N>
static __device__ __forceinline__ bool encode_groups(const uint4 (*raw)[2], const quantize_args &a,
                                                     const quantize_team &t, uint32_t k)
{
    uint32_t lane = (uint32_t)t.thread % GROUP_LANES, k_own = k - lane * SLICE + lane * t.step;
    uint32_t most = 0;
    float scale, inverse;

#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t v = largest_of_group<BF16>(raw[i]);

        if (i == 0 || lane == i) most = v;
    }
    scale = scale_of(most, a);
    inverse = __frcp_rn(scale);
    if (lane < N && k_own < a.k_in) a.scales[k_own / 128 * a.m + t.token] = scale;
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t at = k + (uint32_t)i * t.step;
        float s = __shfl_sync(~0u, scale, i, GROUP_LANES);
        float one_by_s = __shfl_sync(~0u, inverse, i, GROUP_LANES);

        if (at < a.stride)
            *(uint4 *)(t.codes + at) = encode_slice<false, BF16, false>(raw[i], s, one_by_s);
    }
    return how_of<false>(scale, inverse, most) != BY_DIVISION;
}

/* This warp's codes by division, where a group of it needs that. */
template <bool BF16>
static __device__ __noinline__ void divide_groups(const quantize_args &a)
{
    const quantize_team t = team_of(a);
    uint32_t k_end = whole_warps(a);

#pragma unroll 1
    for (uint32_t k = t.k0; k < k_end; k += t.step) {
        uint4 raw[2];
        float scale;

        load_any(raw, a, t.row, k);
        scale = scale_of(largest_of_group<BF16>(raw), a);
        if (k < a.stride) (void)divide_slice<false, BF16>(t.codes, a, t.row, k, scale);
    }
}

template <bool BF16, int HELD>
static __device__ __forceinline__ void quantize_groups(const quantize_args &a,
                                                       const quantize_team &t)
{
    uint32_t k_end = whole_warps(a);
    uint4 held[HELD > 0 ? HELD : 1][2];
    bool are_done = true;

#pragma unroll
    for (int i = 0; i < HELD; i++) load_halves(held[i], a, t.row, t.k0 + (uint32_t)i * t.step);
    if constexpr (HELD > 0) are_done = encode_groups<BF16, HELD>(held, a, t, t.k0);
    for (uint32_t k = t.k0; HELD == 0 && k < k_end; k += t.step) {
        uint4 raw[1][2];

        load_any(raw[0], a, t.row, k);
        are_done &= encode_groups<BF16, 1>(raw, a, t, k);
    }
    if (!__all_sync(~0u, are_done)) divide_groups<BF16>(a);
}

typedef enum quantize_kind { INT8_TOKEN, E4M3_TOKEN, E4M3_GROUPS, KIND_COUNT } quantize_kind;

/* grid (CTAs of a.tokens tokens), a.warps warps a token. */
template <int KIND, bool BF16, int HELD, bool WAVE>
static __global__ void __launch_bounds__(THREADS_MAX, 1)
    swk_quantize_x(const __grid_constant__ quantize_args a)
{
    const quantize_team t = team_of(a);

    if (a.starts_next) sw_grid_launch_next();
    sw_grid_wait_previous();
    /* Else not before: CTAs of the next kernel that came while the one before us was running would
     * find places on some multiprocessors only, and share them. */
    sw_grid_launch_next();
    if (t.token >= a.m) return;
    if constexpr (KIND == E4M3_GROUPS) quantize_groups<BF16, HELD>(a, t);
    else quantize_token<KIND == INT8_TOKEN, BF16, HELD, WAVE>(a, t);
}

/* The first that suits and can is taken. Name, slices that a thread holds, wave; the least tokens
 * and inputs of X that it suits. A wave keeps the next kernel from starting beside it, which is
 * worth more where X is small. Of many tokens two slices a thread keep more loads in flight. */
#define WAYS(row)                                                                                  \
    row("wave_1", 1, true, 1, 1 << 20) row("wave_2", 2, true, 1, 1 << 20)                          \
    row("wave_4", 4, true, 1, 1 << 20) row("apart_2", 2, false, 513, 1)                            \
    row("apart_1", 1, false, 1, 1) row("long_2", 2, false, 1, 1) row("any", 0, false, 1, 1)

typedef void (*quantize_kernel)(quantize_args);

#define WAY(name, held, is_wave, tokens_min, inputs_min)                                           \
    {name, held, is_wave, tokens_min, inputs_min},
extern "C" const sw_quantize_way sw_quantize_ways[] = {WAYS(WAY)};
extern "C" const int sw_quantize_n_ways = (int)(sizeof sw_quantize_ways / sizeof *sw_quantize_ways);
#undef WAY

#define WAY(name, held, is_wave, tokens_min, inputs_min) swk_quantize_x<KIND, BF16, held, is_wave>,
template <int KIND, bool BF16> struct kernels_of {
    static quantize_kernel at(int way)
    {
        static const quantize_kernel all[] = {WAYS(WAY)};

        return all[way];
    }
};
#undef WAY

static quantize_kernel kernel_of(int way, quantize_kind kind, bool is_bf16)
{
    static quantize_kernel (*const by_kind[KIND_COUNT][2])(int) = {
        {kernels_of<INT8_TOKEN, false>::at, kernels_of<INT8_TOKEN, true>::at},
        {kernels_of<E4M3_TOKEN, false>::at, kernels_of<E4M3_TOKEN, true>::at},
        {kernels_of<E4M3_GROUPS, false>::at, kernels_of<E4M3_GROUPS, true>::at},
    };

    return by_kind[kind][is_bf16](way);
}

static int64_t scales_of(int64_t m, int64_t k_in, const sw_act *act)
{
    return act->scope == SW_ACT_GROUP ? m * sw_cuda_up(k_in, act->group_elems) : m;
}

extern "C" size_t sw_cuda_codes_bytes(int64_t m, int64_t k_in, const sw_act *act)
{
    return sw_cuda_line_up(m * sw_cuda_codes_stride(k_in)) +
           sw_cuda_line_up(scales_of(m, k_in, act) * (int64_t)sizeof(float)) +
           sw_cuda_line_up(m * (int64_t)sizeof(int32_t));
}

extern "C" sw_cuda_codes sw_cuda_codes_at(void *d_block, int64_t m, int64_t k_in, const sw_act *act)
{
    sw_cuda_codes c;

    c.d_codes = (uint8_t *)d_block;
    c.d_scales = (float *)(c.d_codes + sw_cuda_line_up(m * sw_cuda_codes_stride(k_in)));
    c.d_sums = (int32_t *)((uint8_t *)c.d_scales +
                           sw_cuda_line_up(scales_of(m, k_in, act) * (int64_t)sizeof(float)));
    return c;
}

extern "C" bool sw_quantize_can(const sw_quantize_cut *cut, int64_t k_in, bool is_aligned)
{
    const sw_quantize_way *way = &sw_quantize_ways[cut->way];
    int64_t held = (int64_t)cut->warps * 32 * SLICE * way->held;

    if (cut->warps < 1 || cut->tokens < 1 || (int64_t)cut->warps * cut->tokens > WARPS_MAX)
        return false;
    if (way->held > 0 && (!is_aligned || held < sw_cuda_codes_stride(k_in))) return false;
    return cut->warps == 1 || cut->tokens <= (way->is_wave ? TEAMS_MAX : 1);
}

/* Tokens of a CTA, of which there are to be four a multiprocessor. */
static int64_t apart_tokens(int64_t m, int n_sms)
{
    const int64_t tokens = m / (4 * n_sms);

    return tokens < 1 ? 1 : tokens > APART_MAX ? APART_MAX : tokens;
}

/* By a way: tokens even over the multiprocessors or a CTA each, and to each as many warps as hold
 * its row or, if fewer, as a CTA has. */
static sw_quantize_cut deal(int way, int64_t m, int64_t k_in, int n_sms)
{
    const sw_quantize_way *w = &sw_quantize_ways[way];
    int64_t n_slices = sw_cuda_codes_stride(k_in) / SLICE;
    int64_t tokens = w->is_wave && m > n_sms ? sw_cuda_up(m, n_sms) : 1;
    int64_t most = tokens > TEAMS_MAX ? tokens <= WARPS_MAX : WARPS_MAX / tokens;
    int64_t warps = sw_cuda_up(n_slices, 32 * (w->held > 0 ? w->held : 1));

    if (!w->is_wave && warps == 1) tokens = apart_tokens(m, n_sms);
    return {way, (int)tokens, (int)(warps < most ? warps : most)};
}

extern "C" sw_quantize_cut sw_quantize_cut_of(int64_t m, int64_t k_in, bool is_aligned,
                                              bool starts_next, int n_sms)
{
    sw_quantize_cut cut = {};

    for (int i = 0; i < sw_quantize_n_ways; i++) {
        const sw_quantize_way *w = &sw_quantize_ways[i];

        cut = deal(i, m, k_in, n_sms);
        if (w->is_wave && starts_next) continue;
        if (m >= w->tokens_min && m * k_in >= w->inputs_min &&
            sw_quantize_can(&cut, k_in, is_aligned))
            break;
    }
    return cut;
}

static bool are_aligned(const void *d_x, int64_t x_stride, int64_t k_in)
{
    return (uintptr_t)d_x % 16 == 0 && x_stride % 8 == 0 && k_in % 8 == 0;
}

/* Shared memory that keeps other CTAs of its kind off a multiprocessor: half of what it has, and
 * the reserve of each CTA is beyond that. All of it is then set aside, as products want it. */
static sw_code claim_multiprocessor(cudaLaunchConfig_t *config, const void *kernel, sw_err *err)
{
    int device, n_bytes = 0;
    sw_code rc = sw_cuda_check(cudaGetDevice(&device), "cudaGetDevice", err);

    if (!rc)
        rc = sw_cuda_check(cudaDeviceGetAttribute(&n_bytes,
                                                  cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                                  device),
                           "cudaDeviceGetAttribute", err);
    if (!rc)
        rc = sw_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                n_bytes / 2),
                           "cudaFuncSetAttribute", err);
    if (!rc)
        rc = sw_cuda_check(cudaFuncSetAttribute(kernel,
                                                cudaFuncAttributePreferredSharedMemoryCarveout,
                                                cudaSharedmemCarveoutMaxShared),
                           "cudaFuncSetAttribute", err);
    config->dynamicSmemBytes = (size_t)n_bytes / 2;
    return rc;
}

static sw_code launch(const sw_quantize_cut *cut, const quantize_args &a, quantize_kind kind,
                      bool is_bf16, bool may_overlap, void *stream, sw_err *err)
{
    quantize_kernel kernel = kernel_of(cut->way, kind, is_bf16);
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)sw_cuda_up(a.m, cut->tokens));
    config.blockDim = dim3((unsigned)(cut->tokens * cut->warps * 32));
    config.stream = (cudaStream_t)stream;
    config.attrs = &early;
    config.numAttrs = may_overlap;
    if (may_overlap && sw_quantize_ways[cut->way].is_wave) {
        sw_code rc = claim_multiprocessor(&config, (const void *)kernel, err);

        if (rc) return rc;
    }
    return sw_cuda_check(cudaLaunchKernelEx(&config, kernel, a), "swk_quantize_x", err);
}

extern "C" sw_code sw_cuda_quantize_by(const sw_quantize_cut *cut, const sw_cuda_codes *out,
                                       const void *d_x, int64_t x_stride, sw_dtype dtype, int64_t m,
                                       int64_t k_in, const sw_act *act, float input_scale,
                                       bool may_overlap, bool starts_next, void *stream,
                                       sw_err *err)
{
    static const quantize_kind kinds[] = {KIND_COUNT, INT8_TOKEN, E4M3_TOKEN, E4M3_GROUPS,
                                          KIND_COUNT};
    quantize_kind kind = kinds[sw_cuda_inputs_of(act)];
    quantize_args a = {};

    if (kind == KIND_COUNT)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no device kernel quantizes such activations");
    if (m > INT32_MAX || k_in > INT32_MAX - 64)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a dimension beyond 2^31");
    a = {(const uint16_t *)d_x, x_stride, m, (uint32_t)k_in, (uint32_t)sw_cuda_codes_stride(k_in),
         out->d_codes, out->d_scales, out->d_sums, input_scale, act->num->top,
         cut->tokens, cut->warps, are_aligned(d_x, x_stride, k_in), act->scope == SW_ACT_TENSOR,
         starts_next};
    if (m == 0 || k_in == 0) return SW_OK;
    if (!sw_quantize_can(cut, k_in, a.is_aligned))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s does not quantize rows of %lld inputs",
                       sw_quantize_ways[cut->way].name, (long long)k_in);
    return launch(cut, a, kind, dtype == SW_DTYPE_BF16, may_overlap, stream, err);
}

extern "C" sw_code sw_cuda_quantize(const sw_cuda_codes *out, const void *d_x, int64_t x_stride,
                                    sw_dtype dtype, int64_t m, int64_t k_in, const sw_act *act,
                                    float input_scale, bool may_overlap, bool starts_next,
                                    void *stream, sw_err *err)
{
    int device, n_sms = 0;
    sw_code rc = sw_cuda_check(cudaGetDevice(&device), "cudaGetDevice", err);
    sw_quantize_cut cut;

    if (!rc)
        rc = sw_cuda_check(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device),
                           "cudaDeviceGetAttribute", err);
    if (rc) return rc;
    cut = sw_quantize_cut_of(m, k_in, are_aligned(d_x, x_stride, k_in), starts_next, n_sms);
    return sw_cuda_quantize_by(&cut, out, d_x, x_stride, dtype, m, k_in, act, input_scale,
                               may_overlap, starts_next, stream, err);
}
