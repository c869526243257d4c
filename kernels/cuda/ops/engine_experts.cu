/* engine_experts.cu - experts of few tokens by lists that lie on the device: dense products, and
 * the sum over a token's experts. Quantized products are engine_one.cu's. And the lists of many
 * tokens, by expert. See engine_ops.h. */
#include "kernels/cuda/gemm/glu.cuh"
#include "kernels/cuda/ops/engine_launch.cuh"

#define N_THREADS 256
#define N_WARPS (N_THREADS / 32)

/* grid (channels / 8, pairs): a warp to a channel, with GLU to a gate and its up */
template <int PARTS>
static __global__ void __launch_bounds__(N_THREADS) swk_experts_dense(sw_fused_args a)
{
    const int64_t channel = (int64_t)blockIdx.x * N_WARPS + threadIdx.x / 32, pair = blockIdx.y;
    const int64_t k_in = a.tiles.k_in, wide = a.tiles.n_out / PARTS;
    const int lane = threadIdx.x % 32;
    float sums[PARTS] = {};

    sw_begin();
    if (channel >= wide) return;
    const sw_expert e = a.experts[a.chosen[pair]];
    const sw_bf16 *x = a.rows.d + pair / a.pairs_per_row * a.rows.stride;
    const sw_bf16 *w = (const sw_bf16 *)e.codes + channel * k_in;

#pragma unroll 4
    for (int64_t k = 8 * lane; k < k_in; k += 8 * 32) {
        const sw_eight some = sw_load8(x + k);

#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const sw_eight its = sw_load8(w + part * wide * k_in + k);

#pragma unroll
            for (int i = 0; i < 8; i++) sums[part] += some.v[i] * its.v[i];
        }
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        sums[part] = sw_warp_sum(sums[part]);
        if (e.bias) sums[part] += e.bias[part * wide + channel];
    }
    if (lane) return;
    if (PARTS == 2) sums[0] = sw_any_glu_of(a.act, sums[0], sums[PARTS - 1], a.limit);
    a.y.d[pair * a.y.stride + channel] = sw_round16(sums[0]);
}

static bool is_dense(const sw_fused_args *a)
{
    return !a->tiles.codes && a->act_of_x.scope == SW_ACT_NONE && a->tiles.k_in % 8 == 0;
}

extern "C" bool sw_cuda_experts_can(const sw_fused_args *a)
{
    return a->out != SW_FUSED_ADD && !a->x && (is_dense(a) || sw_cuda_one_can(a));
}

extern "C" sw_code sw_cuda_experts(const sw_fused_args *a, sw_launch how, sw_err *err)
{
    const int parts = a->out == SW_FUSED_GLU ? 2 : 1;
    const dim3 grid(sw_blocks(a->tiles.n_out / parts, N_WARPS), (unsigned)a->n_pairs);

    if (!sw_cuda_experts_can(a))
        return SW_FAIL(err, SW_E_BUG, "experts that cannot stay on the device");
    if (!is_dense(a)) return sw_cuda_one(a, how, err);
    return sw_start("experts", parts == 2 ? swk_experts_dense<2> : swk_experts_dense<1>, grid,
                    N_THREADS, 0, how, err, *a);
}

/* The chosen expert with the lowest number above `last`; its place among a token's. */
static __device__ int next_expert(const int32_t *chosen, int n_used, int last)
{
    int at = -1;

    for (int i = 0; i < n_used; i++)
        if (chosen[i] > last && (at < 0 || chosen[i] < chosen[at])) at = i;
    return at;
}

/* A thread to eight neighbours. */
static __global__ void swk_combine(sw_combine_args a)
{
    const int64_t at = blockIdx.x * (int64_t)N_THREADS + threadIdx.x, per_row = a.width / 8;
    sw_eight sum = {}, before = {};

    sw_begin();
    if (at >= a.n * per_row) return;
    const int64_t row = at / per_row, col = at % per_row * 8;
    const int32_t *chosen = a.chosen + row * a.n_used;
    sw_bf16 *dst = a.dst.d + row * a.dst.stride + col;

    for (int i = 0, last = -1; i < a.n_used; i++) {
        const int place = next_expert(chosen, a.n_used, last);
        const int64_t pair = row * a.n_used + place;
        const sw_eight e = sw_load8(a.rows.d + pair * a.rows.stride + col);

#pragma unroll
        for (int k = 0; k < 8; k++) sum.v[k] += a.share[pair] * e.v[k];
        last = chosen[place];
    }
    if (a.adds) before = sw_load8(dst);
#pragma unroll
    for (int k = 0; k < 8; k++) sum.v[k] += before.v[k];
    sw_store8(dst, sum);
}

extern "C" sw_code sw_cuda_combine(const sw_combine_args *a, sw_launch how, sw_err *err)
{
    return sw_start("expert sums", swk_combine, sw_blocks(a->n * (a->width / 8), N_THREADS),
                    N_THREADS, 0, how, err, *a);
}

/* ---- lists of many tokens ---- */

#define LIST_THREADS 1024
#define LIST_WARPS (LIST_THREADS / 32)
#define LIST_EACH 4                               /* pairs of a thread at a time */
#define LIST_STEP (LIST_THREADS * LIST_EACH)      /* no half has 2^16 of them */

/* 1 for a pair of this expert in the first half of the text, 2^16 in the second, else 0. */
static __device__ unsigned pair_counts(const sw_list_args &a, int64_t pair, int expert)
{
    if (pair >= a.n_pairs || a.chosen[pair] != expert) return 0;
    if (!a.stretch) return 1;
    return (a.first_token + pair / a.n_used) / a.stretch % 2 ? 1u << 16 : 1;
}

/* A block to an expert. */
static __global__ void __launch_bounds__(LIST_THREADS) swk_count_pairs(sw_list_args a)
{
    __shared__ int sums[2];
    int mine[2] = {};

    sw_begin();
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.n_pairs; i += LIST_THREADS) {
        const unsigned n = pair_counts(a, i, (int)blockIdx.x);

        mine[0] += (int)(n & 0xffff), mine[1] += (int)(n >> 16);
    }
    for (int half = 0; half < 2; half++)
        if (mine[half]) atomicAdd(&sums[half], mine[half]);
    __syncthreads();
    if (threadIdx.x < 2) a.counts[2 * blockIdx.x + threadIdx.x] = sums[threadIdx.x];
}

/* The sum of n over the threads in front of this one, and over all of the block. */
static __device__ unsigned sum_before(unsigned *all, unsigned n, unsigned *of_warps)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    unsigned sum = n, before = 0;

    for (int d = 1; d < 32; d *= 2) {
        const unsigned other = __shfl_up_sync(~0u, sum, d);

        if (lane >= d) sum += other;
    }
    __syncthreads(); /* what was there has been read */
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < LIST_WARPS; w++) {
        if (w < warp) before += of_warps[w];
        *all += of_warps[w];
    }
    return before + sum - n;
}

/* Likewise, once all are counted. */
static __global__ void __launch_bounds__(LIST_THREADS) swk_list_pairs(sw_list_args a)
{
    const int expert = (int)blockIdx.x;
    __shared__ unsigned of_warps[LIST_WARPS];
    __shared__ int first;

    sw_begin();
    if (threadIdx.x == 0) first = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 2 * expert; i += LIST_THREADS)
        atomicAdd(&first, a.counts[i]);
    __syncthreads();
    int at[2] = {first, first + a.counts[2 * expert]};

    for (int64_t begin = 0; begin < a.n_pairs; begin += LIST_STEP) {
        const int64_t mine = begin + threadIdx.x * LIST_EACH;
        unsigned n[LIST_EACH], sum = 0, all, before;

        for (int i = 0; i < LIST_EACH; i++) sum += n[i] = pair_counts(a, mine + i, expert);
        before = sum_before(&all, sum, of_warps);
        for (int i = 0; i < LIST_EACH; i++) {
            const int half = n[i] > 1;
            const int to = at[half] + (int)(half ? before >> 16 : before & 0xffff);

            if (!n[i]) continue;
            a.tokens[to] = (int32_t)((mine + i) / a.n_used);
            a.token_share[to] = a.share[mine + i];
            before += n[i];
        }
        at[0] += (int)(all & 0xffff), at[1] += (int)(all >> 16);
    }
}

extern "C" sw_code sw_cuda_list(const sw_list_args *a, sw_launch how, sw_err *err)
{
    const sw_code rc = sw_start("counts of experts", swk_count_pairs, (unsigned)a->n_experts,
                                LIST_THREADS, 0, how, err, *a);

    return rc == SW_OK ? sw_start("lists of experts", swk_list_pairs, (unsigned)a->n_experts,
                                  LIST_THREADS, 0, how, err, *a)
                       : rc;
}
