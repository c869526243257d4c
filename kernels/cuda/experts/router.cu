/* router.cu - the experts of each token: by the router's logits, or of few tokens by its weights,
 * a cluster to a token, whose first CTA chooses. See engine_ops.h. */
#include <math.h>

#include "formats/model/model.h"
#include "kernels/cuda/ops/engine_launch.cuh"
#include "kernels/cuda/ptx/caches.cuh"
#include "kernels/cuda/ptx/ptx_cluster.cuh"
#include "kernels/engine/sparse/key_digits.h"

#define EXPERTS_MAX 1024
#define N_THREADS 512
#define N_WARPS (N_THREADS / 32)
#define PARTS 8            /* CTAs of a cluster */
#define N_AT_ONCE (PARTS * N_WARPS)
#define EACH_MAX (EXPERTS_MAX / PARTS)
#define FEW_TOKENS 16
#define N_AHEAD 8 /* loads of 16 bytes of a lane that do not wait for the kernel ahead */

/* The best that a warp has left, in order of falling rank, then rising index. Those of a lane, of
 * EACH at most: lane, lane + 32, ... */
template <int EACH> struct contest {
    unsigned keys[EACH]; /* ordered as ranks are, NaN the lowest; 0: none, or none any more */
    unsigned top;        /* the largest of them, */
    int id;              /* and whose it is */
};

template <int EACH> static __device__ __forceinline__ void find_top(contest<EACH> &c)
{
    c.top = c.keys[0];
    c.id = (int)threadIdx.x;
#pragma unroll
    for (int j = 1; j < EACH; j++) {
        if (c.keys[j] <= c.top) continue;
        c.top = c.keys[j];
        c.id = 32 * j + (int)threadIdx.x;
    }
}

/* ranks: the lane's of n in all. */
template <int EACH>
static __device__ __forceinline__ contest<EACH> begin_contest(const float *ranks, int n)
{
    contest<EACH> c;

#pragma unroll
    for (int j = 0; j < EACH; j++)
        c.keys[j] = 32 * j + (int)threadIdx.x < n ? sw_key_rank(fmaxf(ranks[j], -INFINITY)) : 0;
    find_top(c);
    return c;
}

/* All lanes get it. */
template <int EACH> static __device__ __forceinline__ int next_best(contest<EACH> &c)
{
    const unsigned top = __reduce_max_sync(~0u, c.top);
    const int id = (int)__reduce_min_sync(~0u, c.top == top ? (unsigned)c.id : ~0u);

    if (id == c.id) {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (id == 32 * j + (int)threadIdx.x) c.keys[j] = 0;
        find_top(c);
    }
    return id;
}

/* Elements 32 j + lane of `from`, of which there are n. */
template <int EACH>
static __device__ __forceinline__ void take_own(float *own, const float *from, int n)
{
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (32 * j + (int)threadIdx.x < n) own[j] = from[32 * j + threadIdx.x];
}

/* Only the experts of the best groups stay in the running. */
template <int EACH>
static __device__ void drop_groups(const sw_route_args &a, float *ranks, float *s_ranks,
                                   float *s_groups)
{
    const int size = a.n_experts / a.n_groups, lane = (int)threadIdx.x;
    float of_groups[EACH];
    int best = -1;

#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (32 * j + lane < a.n_experts) s_ranks[32 * j + lane] = ranks[j];
    __syncwarp();
#pragma unroll 1
    for (int g = lane; g < a.n_groups; g += 32) {
        float one = -INFINITY, two = -INFINITY;

#pragma unroll 1
        for (int i = g * size; i < (g + 1) * size; i++) {
            const float r = s_ranks[i];

            two = r > one ? one : fmaxf(two, r);
            one = fmaxf(one, r);
        }
        s_groups[g] = one + two;
    }
    __syncwarp();
    take_own<EACH>(of_groups, s_groups, a.n_groups);
    contest<EACH> groups = begin_contest<EACH>(of_groups, a.n_groups);

#pragma unroll 1
    for (int i = 0; i < a.n_groups_used; i++) best = next_best(groups);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int g = (32 * j + lane) / size;

        if (32 * j + lane >= a.n_experts) continue;
        if (!(s_groups[g] > s_groups[best] || (s_groups[g] == s_groups[best] && g <= best)))
            ranks[j] = -INFINITY;
    }
}

static __device__ __forceinline__ float score_of(const sw_route_args &a, float logit, float top)
{
    if (a.router == SW_ROUTER_SOFTMAX) return expf(logit - top);
    if (a.router != SW_ROUTER_SQRT_SOFTPLUS) return 1.0f / (1.0f + expf(-logit));
    return sqrtf(fmaxf(logit, 0.0f) + log1pf(expf(-fabsf(logit))));
}

/* What the table says of a token, or NULL. */
static __device__ __forceinline__ const int32_t *experts_of(const sw_route_args &a, int64_t row)
{
    if (!a.table) return NULL;
    return a.table + (int64_t)__float_as_uint(a.ids[row * a.ids_stride]) * a.n_used;
}

/* What experts are chosen by (ranks) and what they count (probs) of the lane's logits. The sum of
 * either, which is finite where all are. */
template <int EACH>
static __device__ __forceinline__ float rank_experts(const sw_route_args &a, float *probs,
                                                     float *ranks)
{
    const int n = a.n_experts, lane = (int)threadIdx.x;
    float top = -INFINITY, total = 0;

#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (32 * j + lane >= n) continue;
        ranks[j] = probs[j] *= a.logit_scale;
        top = fmaxf(top, probs[j]);
    }
    top = sw_warp_max(top);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (32 * j + lane >= n) continue;
        probs[j] = score_of(a, probs[j], top);
        total += a.in_share ? ranks[j] : probs[j];
    }
    total = sw_warp_sum(total);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (32 * j + lane >= n) continue;
        if (a.router == SW_ROUTER_SOFTMAX) probs[j] /= total;
        if (!a.in_share) ranks[j] = probs[j] + (a.shift ? a.shift[32 * j + lane] : 0.0f);
    }
    return total;
}

/* The experts of a token with these logits, and their shares, by a warp. */
template <int EACH>
static __device__ __forceinline__ void choose_experts(const sw_route_args &a, int64_t row,
                                                      const float *logits)
{
    __shared__ float s_ranks[32 * EACH], s_groups[32 * EACH], s_probs[32 * EACH];
    __shared__ int s_chosen[32 * EACH];
    const int lane = (int)threadIdx.x;
    const bool has_scores = a.router != SW_ROUTER_SOFTMAX;
    const int32_t *table = experts_of(a, row);
    float probs[EACH], ranks[EACH], sum = has_scores && !a.in_share ? 1e-20f : 0.0f;

    take_own<EACH>(probs, logits, a.n_experts);
    const bool is_finite = isfinite(rank_experts<EACH>(a, probs, ranks));

    if (has_scores && a.n_groups_used < a.n_groups)
        drop_groups<EACH>(a, ranks, s_ranks, s_groups);
    contest<EACH> running = begin_contest<EACH>(ranks, a.n_experts);

#pragma unroll
    for (int j = 0; j < EACH; j++) s_probs[32 * j + lane] = probs[j];
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < a.n_used; i++) {
        /* where the input was not finite any experts will do, as long as they differ */
        const int best = table ? table[i] : is_finite ? next_best(running) : i;

        if (lane == 0) s_chosen[i] = best;
        sum += s_probs[best];
    }
    __syncwarp();
    if (sum < a.share_floor) sum = a.share_floor;
#pragma unroll 1
    for (int i = lane; i < a.n_used; i += 32) {
        const int64_t at = row * a.n_used + i;
        const int expert = s_chosen[i];
        float share = a.norm_topk ? s_probs[expert] / sum : s_probs[expert];

        if (a.expert_scale) share *= a.expert_scale[expert];
        if (a.in_share) a.in_share[at] = share * a.route_scale;
        a.share[at] = a.in_share ? 1.0f : share * a.route_scale;
        a.chosen[at] = expert;
    }
}

/* What is so of most routers, known to the compiler: code that runs once a layer is fetched anew
 * each time, and that of the other routers would lie in between. */
static __device__ __forceinline__ sw_route_args by_softmax(sw_route_args a)
{
    a.router = SW_ROUTER_SOFTMAX;
    a.table = NULL;
    a.shift = a.expert_scale = NULL;
    a.in_share = NULL;
    return a;
}

static bool is_by_softmax(const sw_route_args *a)
{
    return a->router == SW_ROUTER_SOFTMAX && !a->table && !a->shift && !a->expert_scale &&
           !a->in_share;
}

/* grid (tokens), a warp */
template <int EACH, bool BY_SOFTMAX>
static __global__ void __launch_bounds__(32) swk_route(sw_route_args a)
{
    sw_begin();
    choose_experts<EACH>(BY_SOFTMAX ? by_softmax(a) : a, blockIdx.x,
                         a.logits + (int64_t)blockIdx.x * a.n_experts);
}

#if __CUDA_ARCH__ >= 900
/* The product of eight elements, added up. */
static __device__ __forceinline__ float add_eight(float sum, const sw_eight &x, const sw_eight &w)
{
#pragma unroll
    for (int i = 0; i < 8; i++) sum += x.v[i] * w.v[i];
    return sum;
}

/* The logit of a token for one expert, by a warp. What is `ahead` of the expert's weights has been
 * asked for. */
static __device__ __forceinline__ float logit_of(const sw_route_args &a, const sw_bf16 *x,
                                                 const sw_bf16 *w, const uint4 *ahead)
{
    const int64_t first = 8 * (threadIdx.x % 32), step = 8 * 32;
    float sum = 0;

#pragma unroll
    for (int i = 0; i < N_AHEAD; i++)
        if (first + i * step < a.k_in)
            sum = add_eight(sum, sw_load8(x + first + i * step), sw_unpack8(ahead[i]));
#pragma unroll 4
    for (int64_t k = first + N_AHEAD * step; k < a.k_in; k += step)
        sum = add_eight(sum, sw_load8(x + k), sw_load8(w + k));
    return sw_warp_sum(sum);
}

static __device__ __forceinline__ void ask_ahead(uint4 *ahead, const sw_bf16 *w, int64_t k_in)
{
#pragma unroll
    for (int i = 0; i < N_AHEAD; i++) {
        const int64_t k = 8 * (threadIdx.x % 32) + i * 8 * 32;

        if (k < k_in) ahead[i] = *(const uint4 *)(w + k);
    }
}

/* Logits out of the CTAs of the cluster, by a warp: n_rounds of N_WARPS in each. */
static __device__ __forceinline__ void collect(float *s_logits, float *s_mine, int n_rounds)
{
    const int per_cta = n_rounds * N_WARPS / 4;

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < PARTS * per_cta; i += 32) {
        const int rank = i / per_cta, at = i % per_cta * 4;
        float *to = s_logits + at / N_WARPS * N_AT_ONCE + rank * N_WARPS + at % N_WARPS;
        float four[4];

        sw_cluster_get16(four, sw_cluster_map(sw_smem_addr(s_mine + at), (unsigned)rank));
        *(float4 *)to = make_float4(four[0], four[1], four[2], four[3]);
    }
}

#endif

/* grid (PARTS x tokens): in each round a warp makes a logit. Weights are on their way before the
 * kernel ahead has ended: for that a CTA has to fit beside one of a product, in 64 registers. */
template <int EACH, bool BY_SOFTMAX>
static __global__ void __launch_bounds__(N_THREADS, EACH <= 8 ? 2 : 1)
    swk_route_few(sw_route_args a)
{
#if __CUDA_ARCH__ >= 900
    __shared__ __align__(16) float s_mine[EACH_MAX], s_logits[EXPERTS_MAX];
    const int rank = (int)(blockIdx.x % PARTS), warp = (int)threadIdx.x / 32;
    const int n_rounds = (a.n_experts + N_AT_ONCE - 1) / N_AT_ONCE;
    const int64_t row = blockIdx.x / PARTS;
    const sw_bf16 *x = a.x.d + row * a.x.stride;
    uint4 ahead[N_AHEAD];

    sw_let_next();
#pragma unroll 1
    for (int round = 0; round < n_rounds; round++) {
        const int expert = round * N_AT_ONCE + rank * N_WARPS + warp;
        const sw_bf16 *w = a.w + (int64_t)min(expert, a.n_experts - 1) * a.k_in;

        ask_ahead(ahead, w, a.k_in);
        if (round == 0) sw_await_ahead();
        const float sum = logit_of(a, x, w, ahead);

        if (threadIdx.x % 32 == 0)
            s_mine[round * N_WARPS + warp] =
                sum + (a.bias && expert < a.n_experts ? a.bias[expert] : 0.0f);
    }
    sw_cluster_sync();
    if (rank == 0 && warp == 0) collect(s_logits, s_mine, n_rounds);
    sw_cluster_sync();
    if (rank == 0 && warp == 0)
        choose_experts<EACH>(BY_SOFTMAX ? by_softmax(a) : a, row, s_logits);
#endif
}

extern "C" bool sw_cuda_route_can_multiply(int64_t n_tokens, int64_t k_in)
{
    return n_tokens <= FEW_TOKENS && k_in % 8 == 0 && sw_has_clusters();
}

template <int EACH, bool BY_SOFTMAX>
static sw_code start_kernel(const sw_route_args *a, sw_launch how, sw_err *err)
{
    if (!a->w)
        return sw_start("router", swk_route<EACH, BY_SOFTMAX>, (unsigned)a->n, 32, 0, how, err, *a);
    sw_divide_as_products(swk_route_few<EACH, BY_SOFTMAX>);
    return sw_start_clusters("router", swk_route_few<EACH, BY_SOFTMAX>, PARTS,
                             (unsigned)a->n * PARTS, N_THREADS, 0, how, err, *a);
}

/* For 32 times EACH experts at most. */
template <int EACH>
static sw_code start_route(const sw_route_args *a, sw_launch how, sw_err *err)
{
    return is_by_softmax(a) ? start_kernel<EACH, true>(a, how, err)
                            : start_kernel<EACH, false>(a, how, err);
}

extern "C" sw_code sw_cuda_route(const sw_route_args *a, sw_launch how, sw_err *err)
{
    if (a->n_experts > EXPERTS_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%d experts; on the device there may be %d",
                       a->n_experts, EXPERTS_MAX);
    if (a->w && !sw_cuda_route_can_multiply(a->n, a->k_in))
        return SW_FAIL(err, SW_E_BUG, "a router of many tokens");
    if (a->n_experts <= 128) return start_route<4>(a, how, err);
    if (a->n_experts <= 256) return start_route<8>(a, how, err);
    return start_route<EXPERTS_MAX / 32>(a, how, err);
}
