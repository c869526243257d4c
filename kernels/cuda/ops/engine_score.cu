/* engine_score.cu - what two rows of logits say about the token that follows. See engine_ops.h.
 *
 * The formulas are those of sw_position_compare (verify/base/metrics.c), in double as there. Only
 * the order of sums is another: a thread takes every N_THREADS-th element, and threads are added
 * pairwise.
 */
#include <math.h>

#include "kernels/cuda/ops/engine_launch.cuh"

#define N_THREADS 512
#define N_WARPS (N_THREADS / 32)

/* The largest so far, and where it is: the first one among equals. */
struct best {
    float value;
    int at;
};

static __device__ __forceinline__ best better(best a, best b)
{
    return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
}

/* Of a row; 0 where there is none, of NaNs alone. */
static __device__ best largest_of(const float *row, int vocab, best *s_part)
{
    best all = {-INFINITY, INT_MAX};

    for (int i = threadIdx.x; i < vocab; i += N_THREADS) all = better(all, best{row[i], i});
    for (int step = 16; step; step /= 2)
        all = better(all, best{__shfl_xor_sync(~0u, all.value, step),
                               __shfl_xor_sync(~0u, all.at, step)});
    __syncthreads(); /* s_part may be in use from the row before */
    if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = all;
    __syncthreads();
    for (int w = 0; w < N_WARPS; w++) all = better(all, s_part[w]);
    return all.at == INT_MAX ? best{row[0], 0} : all;
}

static __device__ double sum_of(double x, double *s_part)
{
    double sum = 0;

    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) s_part[threadIdx.x / 32] = x;
    __syncthreads();
    for (int w = 0; w < N_WARPS; w++) sum += s_part[w];
    return sum;
}

/* grid (rows) */
static __global__ void __launch_bounds__(N_THREADS)
    swk_score(sw_lm_score *out, const float *have, const float *ref, const uint32_t *targets,
              int vocab)
{
    __shared__ best s_best[N_WARPS];
    __shared__ double s_sum[N_WARPS];
    const int64_t begin = (int64_t)blockIdx.x * vocab;
    double have_sum = 0, ref_sum = 0, gap = 0;
    best have_top, ref_top = {0, 0};

    sw_begin();
    have += begin;
    have_top = largest_of(have, vocab, s_best);
    if (ref) {
        ref += begin;
        ref_top = largest_of(ref, vocab, s_best);
    }
    for (int i = threadIdx.x; i < vocab; i += N_THREADS) {
        const double y = (double)have[i] - (double)have_top.value;

        have_sum += exp(y);
        if (ref) {
            const double x = (double)ref[i] - (double)ref_top.value, p = exp(x);

            ref_sum += p;
            gap += p * (x - y);
        }
    }
    have_sum = sum_of(have_sum, s_sum);
    if (ref) {
        ref_sum = sum_of(ref_sum, s_sum);
        gap = sum_of(gap, s_sum);
    }
    if (threadIdx.x == 0) {
        const uint32_t target = targets[blockIdx.x];
        sw_lm_score s = {};

        s.nll = log(have_sum) - ((double)have[target] - (double)have_top.value);
        s.sum = have_sum;
        s.top = have_top.at;
        if (ref) {
            const double kl = gap / ref_sum - log(ref_sum) + log(have_sum);

            s.kl = kl < 0 ? 0.0 : kl; /* a NaN stays one */
            s.nll_ref = log(ref_sum) - ((double)ref[target] - (double)ref_top.value);
            s.sum_ref = ref_sum;
            s.top_ref = ref_top.at;
        }
        out[blockIdx.x] = s;
    }
}

extern "C" sw_code sw_cuda_score_logits(sw_lm_score *out, const float *have, const float *ref,
                                        const uint32_t *targets, int64_t n, int64_t vocab,
                                        sw_launch how, sw_err *err)
{
    return sw_start("scores of logits", swk_score, dim3((unsigned)n), N_THREADS, 0, how, err, out,
                    have, ref, targets, (int)vocab);
}
