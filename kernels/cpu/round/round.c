/* round.c - see round.h. */
#include "kernels/cpu/round/round.h"

#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/act.h"
#include "kernels/cpu/simd/features.h"

typedef struct round_job {
    const sw_gemm *p;
    const sw_round_ops *ops;
    float *dst;
} round_job;

static const sw_round_ops *ops_here(void)
{
#if SW_X86_SIMD
    if (sw_cpu_has_avx512()) return &sw_round_ops_avx512;
    if (sw_cpu_has_avx2()) return &sw_round_ops_avx2;
#endif
    return &sw_round_ops_any;
}

/* One group of one token, or all of it: what it is divided by, as sw_act_round finds it. */
static float divisor_of(const sw_weight *w, float abs_max)
{
    const sw_act *act = &w->act;
    float scale;

    if (act->scope == SW_ACT_TENSOR) return isnan(abs_max) ? NAN : w->input_scale;
    if (!isfinite(abs_max)) return NAN;
    scale = sw_act_scale(&abs_max, 1, act, w->input_scale);
    return act->scope == SW_ACT_GROUP && act->scale_dtype == SW_DTYPE_F8_E4M3
               ? scale * w->input_scale
               : scale;
}

static void round_tokens(void *ctx, int64_t begin, int64_t end, int thread)
{
    const round_job *job = (const round_job *)ctx;
    const sw_weight *w = job->p->w;
    int64_t span = w->act.scope == SW_ACT_GROUP ? w->act.group_elems : w->k_in;

    (void)thread;
    for (int64_t m = begin; m < end; m++)
        for (int64_t k = 0; k < w->k_in; k += span) {
            const float *x = job->p->x + m * job->p->x_stride + k;
            float *dst = job->dst + m * w->k_in + k;
            int64_t n = sw_min_i64(span, w->k_in - k);
            float divisor = divisor_of(w, job->ops->abs_max(x, n));

            if (divisor > 0.0f) job->ops->round(dst, x, n, divisor, w->act.num);
            else /* a scale of zero means zeros; one that is no number, nothing that is one */
                for (int64_t i = 0; i < n; i++) dst[i] = divisor;
        }
}

void sw_round_inputs(float *dst, const sw_gemm *p)
{
    round_job job = {p, ops_here(), dst};

    sw_parallel_for(sw_kernel_threads(p), p->m, 1, round_tokens, &job);
}
