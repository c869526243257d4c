/* engine_experts.cu - experts of few tokens by lists that lie on the device: dense products, and
 * the sum over a token's experts. Quantized products are engine_one.cu's. See engine_ops.h. */
#include "kernels/cuda/ops/engine_glu.cuh"
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
