/* routed_run.cu - see routed.h: what can run, the plan, the workspace, the launches. */
#include <cuda_runtime.h>
#include <math.h>

#include "formats/model/model.h"
#include "kernels/cuda/experts/routed.h"
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/gemm_rows.h"
#include "kernels/cuda/tensor_map.cuh"

#define SORT_AND_GATHER_PAIRS 2048 /* up to so many each CTA that gathers sorts for itself */
#define GATHER_CTAS 64
#define UNIT_TILES 4               /* of 64 channels: see routed_unit.cuh */

static const rt_kernel *kernel_of(const sw_routed_plan *plan)
{
    return plan->is_large ? sw_routed_many(plan->rows) : sw_routed_few(plan->rows);
}

/* ---- the plan ---- */

static bool is_int4(const sw_tiles *t)
{
    return sw_cuda_weights_of(t) == SW_CUDA_W_INT4 && t->spec.is_symmetric &&
           t->spec.scale_dtype == SW_DTYPE_BF16 && t->spec.group_elems % 128 == 0 &&
           !t->is_marlin && !t->spec.n_outliers;
}

static sw_code check(const sw_routed *p, const sw_cuda_card *card, sw_err *err)
{
    const int64_t hidden = p->down.n_out, wide = p->down.k_in;

    if (card->sm != 90)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "routed experts on a card of capability %d, not 90",
                       card->sm);
    if (!is_int4(&p->up) || !is_int4(&p->down))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "routed experts must be symmetric int4 with BF16 "
                       "scales of groups of 128 or a channel");
    if (p->up.n_out != 2 * wide || p->up.k_in != hidden || wide % 64 || hidden % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "routed experts of %lld x %lld and %lld x %lld; the "
                       "width must be a multiple of 64, the hidden size of 8",
                       (long long)p->up.n_out, (long long)p->up.k_in, (long long)hidden,
                       (long long)wide);
    if (p->n_experts < 1 || p->n_experts > RT_EXPERTS_MAX || p->top_k < 1 ||
        p->n_tokens * p->top_k > INT32_MAX / 64)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%lld tokens with %d of %d experts, of which there "
                       "can be %d", (long long)p->n_tokens, p->top_k, p->n_experts, RT_EXPERTS_MAX);
    if (p->act != SW_MLP_SILU && p->act != SW_MLP_SWIGLU_CLAMPED)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "routed experts with another activation than SiLU");
    if ((uintptr_t)p->x.d % 16 || p->x.stride % 8 || (uintptr_t)p->y.d % 16 || p->y.stride % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "rows of routed experts must start at multiples of "
                       "16 bytes");
    return SW_OK;
}

/* Rows of a block by how many an expert has on average, so that few experts need two: measured on
 * an H200 (tests/bench/h200-experts.csv). */
static int rows_for(const sw_routed *p)
{
    const int64_t pairs = p->n_tokens * p->top_k;

    if (p->n_tokens == 1 || pairs <= 2 * (int64_t)p->n_experts) return 8;
    if (pairs <= 8 * (int64_t)p->n_experts) return 16;
    return pairs <= 20 * (int64_t)p->n_experts ? 32 : 128;
}

extern "C" sw_code sw_routed_plan_for(sw_routed_plan *out, const sw_routed *p,
                                      const sw_cuda_card *card, int rows, sw_err *err)
{
    sw_code rc = check(p, card, err);

    if (rc != SW_OK) return rc;
    *out = {rows ? rows : rows_for(p), false, *card};
    out->is_large = !sw_routed_few(out->rows);
    if (!kernel_of(out))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no kernel of routed experts for %d rows", rows);
    return SW_OK;
}

/* ---- the workspace ---- */

/* What lies in it, in this order; `used` is what it takes. */
typedef struct rt_work {
    rt_lists lists;
    int *flags;
    uint16_t *x, *h, *y;
    float *partials;
    size_t used;
} rt_work;

static void *take(rt_work *w, void *d_start, int64_t n_bytes)
{
    void *at = (char *)d_start + w->used;

    w->used += sw_cuda_line_up(n_bytes);
    return at;
}

/* An expert with rows has a block, and each whole one another. */
static int64_t blocks_max(const sw_routed *p, int rows)
{
    const int64_t pairs = p->n_tokens * p->top_k;

    return (pairs < p->n_experts ? pairs : p->n_experts) + pairs / rows;
}

extern "C" size_t sw_routed_zero_bytes(const sw_cuda_card *card)
{
    return (size_t)card->n_sms * RT_FEW_CTAS * 4;
}

static int n_ctas_of(const sw_routed_plan *plan)
{
    return plan->card.n_sms * kernel_of(plan)->per_sm;
}

static rt_work work_of(const sw_routed *p, const sw_routed_plan *plan, void *d_start)
{
    const int64_t pairs = p->n_tokens * p->top_k, hidden = p->down.n_out, wide = p->down.k_in;
    const int64_t n_ctas = n_ctas_of(plan);
    rt_work w = {};

    w.flags = (int *)take(&w, d_start, (int64_t)sw_routed_zero_bytes(&plan->card));
    w.lists.n_blocks = (int *)take(&w, d_start, 4);
    w.lists.blocks = (rt_block *)take(&w, d_start,
                                      blocks_max(p, plan->rows) * (int64_t)sizeof(rt_block));
    w.lists.pair_of_row = (int *)take(&w, d_start, pairs * 4);
    w.lists.share_of_row = (float *)take(&w, d_start, pairs * 4);
    w.x = (uint16_t *)take(&w, d_start, pairs * hidden * 2);
    w.h = (uint16_t *)take(&w, d_start, pairs * wide * 2);
    w.y = (uint16_t *)take(&w, d_start, pairs * hidden * 2);
    w.partials = (float *)take(&w, d_start, n_ctas * kernel_of(plan)->partial_floats * 4);
    return w;
}

extern "C" size_t sw_routed_workspace_bytes(const sw_routed *p, const sw_routed_plan *plan)
{
    return work_of(p, plan, NULL).used;
}

/* ---- the launches ---- */

static rt_args args_of(const sw_routed *p, const sw_routed_plan *plan, const rt_work *w,
                       bool is_down)
{
    const sw_tiles *t = is_down ? &p->down : &p->up;
    rt_args a = {};

    a.nw.scale_bytes = 2;
    a.nw.scales_are_bf16 = 1;
    if (p->n_tokens > 1) a.lists = w->lists;
    a.chosen = p->chosen;
    a.n_pairs = (int)(p->n_tokens * p->top_k);
    a.share = p->share;
    a.experts = is_down ? p->downs : p->ups;
    a.y = is_down ? w->y : w->h;
    a.n_out = is_down ? t->n_out : t->n_out / 2;
    a.n_tiles = (int)sw_tiles_n(a.n_out);
    a.n_units = (int)sw_cuda_up(a.n_tiles, is_down ? UNIT_TILES : UNIT_TILES / 2);
    a.k_tiles = (int)sw_tiles_k(t->k_in);
    a.k_stages = (a.k_tiles + 1) / 2;
    a.n_groups = (int)t->n_groups;
    a.group_stages = (int)(t->spec.group_elems / 128);
    a.partials = w->partials;
    a.flags = w->flags;
    a.slope = 1, a.limit = INFINITY, a.shift = 0;
    if (p->act == SW_MLP_SWIGLU_CLAMPED) a.slope = 1.702f, a.limit = p->limit, a.shift = 1;
    return a;
}

static sw_code multiply(const sw_routed *p, const sw_routed_plan *plan, const rt_work *w,
                        bool is_down, sw_launch how, sw_err *err)
{
    const rt_kernel *k = kernel_of(plan);
    const int64_t pairs = p->n_tokens * p->top_k, k_in = is_down ? p->down.k_in : p->up.k_in;
    const bool is_one = p->n_tokens == 1 && !is_down;
    const void *x = is_down ? w->h : is_one ? p->x.d : w->x;
    rt_args args = args_of(p, plan, w, is_down);
    CUtensorMap map;
    void *params[] = {&map, &args};
    cudaLaunchAttribute attrs[1] = {};
    cudaLaunchConfig_t config = {};
    sw_code rc = sw_tensor_map_2d(&map, x, 2, k_in, is_one ? 1 : pairs, k_in, 64, k->box_rows, err);

    if (rc == SW_OK)
        rc = sw_cuda_check(cudaFuncSetAttribute(k->entry[is_down],
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                k->shared_bytes),
                           "routed experts", err);
    if (rc != SW_OK) return rc;
    attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[0].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)n_ctas_of(plan));
    config.blockDim = dim3((unsigned)k->n_threads);
    config.dynamicSmemBytes = (size_t)k->shared_bytes;
    config.stream = (cudaStream_t)how.stream;
    config.attrs = attrs;
    config.numAttrs = how.overlaps ? 1 : 0;
    return sw_cuda_check(cudaLaunchKernelExC(&config, k->entry[is_down], params), "routed experts",
                         err);
}

static sw_code sort(const sw_routed *p, const sw_routed_plan *plan, const rt_work *w,
                    sw_launch first, sw_launch then, sw_err *err)
{
    const int n_pairs = (int)(p->n_tokens * p->top_k);
    rt_sort_args a = {w->lists, p->chosen, p->share, p->ups, p->downs, n_pairs, p->n_experts,
                      plan->rows, plan->is_large ? RT_MANY_BOX : 0, p->top_k, p->x.d, p->x.stride,
                      w->x, (int)p->up.k_in};
    sw_code rc;

    if (n_pairs <= SORT_AND_GATHER_PAIRS)
        return sw_routed_sort(&a, n_pairs < GATHER_CTAS ? n_pairs : GATHER_CTAS, first, err);
    a.x = NULL;
    rc = sw_routed_sort(&a, 1, first, err);
    a.x = p->x.d;
    return rc == SW_OK ? sw_routed_gather(&a, then, err) : rc;
}

#ifdef RT_DEV
#include <stdlib.h>
#define PART(b) ((getenv("RT_PARTS") ? atoi(getenv("RT_PARTS")) : 15) & (b))
#else
#define PART(b) 1
#endif
extern "C" sw_code sw_routed_run(const sw_routed *p, const sw_routed_plan *plan, void *d_workspace,
                                 void *stream, sw_err *err)
{
    const sw_launch first = {stream, p->may_overlap}, then = {stream, true};
    const bool is_one = p->n_tokens == 1;
    const rt_work w = work_of(p, plan, d_workspace);
    sw_code rc = SW_OK;

    if (p->n_tokens == 0) return SW_OK;
    if (!is_one && PART(1)) rc = sort(p, plan, &w, first, then, err);
    if (rc == SW_OK && PART(2)) rc = multiply(p, plan, &w, false, is_one ? first : then, err);
    if (rc == SW_OK && PART(4)) rc = multiply(p, plan, &w, true, then, err);
    if (rc != SW_OK || !PART(8)) return rc;
    return sw_routed_sum(p->y, p->adds, w.y, p->n_tokens, p->top_k, p->down.n_out, then, err);
}
