/* routed_run.cu - see routed.h: what can run, the plan, the workspace, the launches. */
#include <cuda_runtime.h>
#include <math.h>

#include "formats/model/model.h"
#include "kernels/cuda/experts/routed.h"
#include "kernels/cuda/experts/routed_kernels.h"
#include "kernels/cuda/gemm/gemm_rows.h"
#include "kernels/cuda/gemm/tensor_map.cuh"

#define UNIT_TILES 4     /* of 64 channels: see routed_unit.cuh */
#define MANY_ROWS 128    /* more have the kernels of routed_tall.cuh, whose units have */
#define TALL_TILES 2     /* so many */

/* Kernels: of 4 bits for few rows of an expert and for many; from RT_BYTES on of inputs of bytes, a
 * row of `bytes` each. */
enum { RT_FEW, RT_MANY, RT_BYTES };

static bool is_e4m3(const sw_tiles *t) { return sw_cuda_weights_of(t) == SW_CUDA_W_E4M3; }

static bool is_e4m3_in_blocks(const sw_tiles *t) { return is_e4m3(t) && sw_cuda_has_blocks(t); }

static bool is_symmetric_int8(const sw_tiles *t)
{
    return sw_cuda_weights_of(t) == SW_CUDA_W_INT8 && t->spec.is_symmetric;
}

/* Of int8 there are kernels for codes in columns alone. */
static const rt_kernel *int8_in_columns(int rows, w8a8_mode mode, bool in_columns)
{
    return in_columns ? sw_routed_bytes_int8(rows, mode, false) : NULL;
}

static bool is_signed_int4(const sw_tiles *t)
{
    return sw_cuda_weights_of(t) == SW_CUDA_W_INT4 && t->is_sign_magnitude;
}

/* Weights and inputs in bytes: what both are, what of their scales changes along k (of weights with
 * groups of multiples of 128, or of 128 alone), the order of codes. */
static const struct {
    bool (*is_weight)(const sw_tiles *t);
    const rt_kernel *(*kernel)(int rows, w8a8_mode mode, bool in_columns);
    const rt_kernel *(*tall)(int rows, w8a8_mode mode); /* of more than MANY_ROWS; NULL: none */
    sw_num_id input;
    w8a8_mode mode;
    bool in_columns;
} bytes[] = {
    {is_e4m3, sw_routed_bytes_e4m3, NULL, SW_NUM_E4M3, W8A8_PLAIN, false},
    {is_e4m3, sw_routed_bytes_e4m3, sw_routed_tall_e4m3, SW_NUM_E4M3, W8A8_PLAIN, true},
    {is_e4m3_in_blocks, sw_routed_bytes_e4m3, sw_routed_tall_e4m3, SW_NUM_E4M3, W8A8_X_BLOCKS,
     true},
    {is_e4m3, sw_routed_bytes_e4m3, NULL, SW_NUM_E4M3, W8A8_X_GROUPS, false},
    {is_symmetric_int8, int8_in_columns, sw_routed_tall_int8, SW_NUM_INT8, W8A8_PLAIN, true},
    {is_signed_int4, sw_routed_bytes_int4_e4m3, NULL, SW_NUM_E4M3, W8A8_PLAIN, false},
    {is_signed_int4, sw_routed_bytes_int4_e4m3, NULL, SW_NUM_E4M3, W8A8_GROUPED, false},
};
#define N_BYTES (int)(sizeof bytes / sizeof *bytes)

static const rt_kernel *kernel_of(const sw_routed_plan *plan)
{
    const int i = plan->kind - RT_BYTES;

    if (plan->kind == RT_FEW) return sw_routed_few(plan->rows, plan->scale_k);
    if (plan->kind == RT_MANY) return sw_routed_many(plan->rows, plan->scale_k);
    if (plan->rows > MANY_ROWS)
        return bytes[i].tall ? bytes[i].tall(plan->rows, bytes[i].mode) : NULL;
    return bytes[i].kernel(plan->rows, bytes[i].mode, bytes[i].in_columns);
}

/* ---- the plan ---- */

static bool is_int4(const sw_tiles *t)
{
    return sw_cuda_weights_of(t) == SW_CUDA_W_INT4 && t->spec.is_symmetric &&
           !t->is_sign_magnitude && t->spec.scale_dtype == SW_DTYPE_BF16 &&
           t->spec.group_elems % 128 == 0;
}

/* Inputs of a scale of E2M1 weights: 32 of MXFP4, 16 of NVFP4, 0: neither, or codes as stored. */
static int e2m1_scale_k(const sw_tiles *t)
{
    const sw_qspec *s = &t->spec;

    if (s->num != &sw_nums[SW_NUM_E2M1] || !t->is_e2m1_spread) return 0;
    if (s->scale_dtype == SW_DTYPE_F8_E8M0 && s->group_elems == 32) return 32;
    return s->scale_dtype == SW_DTYPE_F8_E4M3 && s->group_elems == 16 ? 16 : 0;
}

/* Whether row i of `bytes` multiplies these weights. A stage is two tiles of 64 inputs, of which
 * the last may have one; a group of weights alone is of whole stages. */
static bool is_weight_of(int i, const sw_tiles *t)
{
    const sw_dtype scales = t->spec.scale_dtype;
    const int64_t group = t->spec.group_elems;
    const w8a8_mode mode = bytes[i].mode;

    if (!bytes[i].is_weight(t) || t->in_columns != bytes[i].in_columns) return false;
    if (t->k_in % (mode == W8A8_GROUPED ? 128 : 64)) return false;
    if ((mode != W8A8_PLAIN) != (group != 0)) return false;
    if (mode >= W8A8_X_GROUPS ? group != 128 : group % 128 != 0) return false;
    return scales == SW_DTYPE_BF16 || scales == SW_DTYPE_F16 || scales == SW_DTYPE_F32;
}

static bool is_input_of(int i, const sw_act *act)
{
    if (act->num != &sw_nums[bytes[i].input] || act->scale_dtype != SW_DTYPE_F32) return false;
    if (bytes[i].mode < W8A8_X_GROUPS) return act->scope == SW_ACT_TOKEN;
    return act->scope == SW_ACT_GROUP && act->group_elems == 128;
}

static int kind_of_bytes(const sw_routed *p)
{
    for (int i = 0; i < N_BYTES; i++)
        if (is_input_of(i, &p->act_of_x) && is_weight_of(i, &p->up) && is_weight_of(i, &p->down))
            return RT_BYTES + i;
    return -1;
}

/* The kind of kernel, of many rows for few too; -1: none multiplies these. */
static int kind_of(const sw_routed *p)
{
    const sw_act *act = &p->act_of_x;

    if (p->up.is_marlin || p->down.is_marlin || p->up.spec.n_outliers || p->down.spec.n_outliers ||
        (p->up.in_columns && !is_e4m3(&p->up) && !is_symmetric_int8(&p->up)) ||
        p->up.spec.scale_dtype != p->down.spec.scale_dtype)
        return -1;
    if (act->scope == SW_ACT_NONE && e2m1_scale_k(&p->up)) /* whole tiles have their scales */
        return p->up.k_in % 64 == 0 && p->down.k_in % 64 == 0 &&
                       e2m1_scale_k(&p->down) == e2m1_scale_k(&p->up)
                   ? RT_FEW
                   : -1;
    if (act->scope == SW_ACT_NONE) return is_int4(&p->up) && is_int4(&p->down) ? RT_FEW : -1;
    return kind_of_bytes(p);
}

static sw_code check(const sw_routed *p, const sw_cuda_device *device, sw_err *err)
{
    const int64_t hidden = p->down.n_out, wide = p->down.k_in;

    if (device->sm != 90)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "routed experts on a device of capability %d, not 90",
                       device->sm);
    if (kind_of(p) < 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no kernel of routed experts for such weights and "
                       "inputs; routed.h says for which there are");
    if (p->up.n_out != 2 * wide || p->up.k_in != hidden || wide % 64 || hidden % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "routed experts of %lld x %lld and %lld x %lld; the "
                       "width must be a multiple of 64, the hidden size of 8",
                       (long long)p->up.n_out, (long long)p->up.k_in, (long long)hidden,
                       (long long)wide);
    if (sw_tiles_codes_bytes(p->up.spec.num, p->up.n_out, p->up.k_in) > INT32_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a routed expert of 2 GB");
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

/* The kernel of a plan, of which those of 4 bits are two kinds; NULL: none. */
static const rt_kernel *find_kernel(sw_routed_plan *plan)
{
    if (plan->kind == RT_FEW && !kernel_of(plan)) plan->kind = RT_MANY;
    return kernel_of(plan);
}

#define SPREAD 1.6 /* standard deviations: 19 of 20 experts have no more rows */

/* Rows that nearly every expert has at most, where choices are random: how many of the tokens
 * choose one is binomial. A second block reads the expert's weights again. */
static double usual_rows(const sw_routed *p)
{
    const double chance = (double)p->top_k / p->n_experts;
    const double mean = (double)p->n_tokens * chance;

    return mean + SPREAD * sqrt(mean * fmax(1 - chance, 0));
}

/* The fewest rows of a block that nearly every expert fits in, as each costs time in the tensor
 * cores whether it is there or not, else the most that a kernel has. That is what was fastest
 * wherever it was measured (tests/bench/h200-experts.csv, h100-experts-rows.csv). */
static void choose_rows(sw_routed_plan *plan, const sw_routed *p)
{
    static const int rows[] = {8, 16, 32, 48, 64, 96, MANY_ROWS, 192, 256};
    const double wanted = usual_rows(p);
    const sw_routed_plan any = *plan;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_routed_plan at = any;

        at.rows = rows[i];
        if (!find_kernel(&at)) continue;
        *plan = at;
        if (wanted <= rows[i]) return;
    }
}

extern "C" sw_code sw_routed_plan_for(sw_routed_plan *out, const sw_routed *p,
                                      const sw_cuda_device *device, int rows, sw_err *err)
{
    sw_code rc = check(p, device, err);

    if (rc != SW_OK) return rc;
    *out = {rows, kind_of(p), e2m1_scale_k(&p->up), *device};
    if (!rows) choose_rows(out, p);
    if (!find_kernel(out))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "no kernel of routed experts for %d rows", rows);
    return SW_OK;
}

/* ---- the workspace ---- */

/* What lies in it, in this order; `used` is what it takes. */
typedef struct rt_work {
    rt_lists lists;
    uint8_t *x;             /* sorted rows of X or of its codes */
    float *x_scales;        /* and of their scales; NULL: those of one token, or none */
    uint16_t *h, *y;
    sw_cuda_codes x_codes, h_codes; /* where inputs are quantized */
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

extern "C" size_t sw_routed_flags_bytes(const sw_cuda_device *device)
{
    return (size_t)device->n_sms * RT_FEW_CTAS * 4;
}

static int n_ctas_of(const sw_routed_plan *plan)
{
    return plan->device.n_sms * kernel_of(plan)->per_sm;
}

static bool is_quantized(const sw_routed *p) { return p->act_of_x.scope != SW_ACT_NONE; }

/* Scales of a row of X. */
static int x_groups(const sw_routed *p)
{
    return p->act_of_x.scope == SW_ACT_GROUP ? (int)p->up.n_groups : 1;
}

/* Of an input as the products read it. */
static int64_t row_bytes(const sw_routed *p)
{
    return is_quantized(p) ? sw_cuda_codes_stride(p->up.k_in) : p->up.k_in * 2;
}

static rt_work work_of(const sw_routed *p, const sw_routed_plan *plan, void *d_start)
{
    const int64_t pairs = p->n_tokens * p->top_k, hidden = p->down.n_out, wide = p->down.k_in;
    const int64_t n_ctas = n_ctas_of(plan);
    rt_work w = {};

    w.lists.n_blocks = (int *)take(&w, d_start, 4);
    w.lists.blocks = (rt_block *)take(&w, d_start,
                                      blocks_max(p, plan->rows) * (int64_t)sizeof(rt_block));
    w.lists.pair_of_row = (int *)take(&w, d_start, pairs * 4);
    w.lists.share_of_row = (float *)take(&w, d_start, pairs * 4);
    w.x = (uint8_t *)take(&w, d_start, pairs * row_bytes(p));
    if (is_quantized(p) && p->n_tokens > 1)
        w.x_scales = (float *)take(&w, d_start, pairs * x_groups(p) * 4);
    w.h = (uint16_t *)take(&w, d_start, pairs * wide * 2);
    w.y = (uint16_t *)take(&w, d_start, pairs * hidden * 2);
    w.partials = (float *)take(&w, d_start, n_ctas * kernel_of(plan)->partial_floats * 4);
    if (is_quantized(p)) {
        const sw_act *act = &p->act_of_x;
        const size_t x_bytes = sw_cuda_codes_bytes(p->n_tokens, hidden, act);
        const size_t h_bytes = sw_cuda_codes_bytes(pairs, wide, act);

        w.x_codes = sw_cuda_codes_at(take(&w, d_start, (int64_t)x_bytes), p->n_tokens, hidden, act);
        w.h_codes = sw_cuda_codes_at(take(&w, d_start, (int64_t)h_bytes), pairs, wide, act);
    }
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
    const int cluster = kernel_of(plan)->cluster;
    const int tiles = plan->rows > MANY_ROWS ? TALL_TILES * (cluster ? cluster : 1) : UNIT_TILES;
    rt_args a = {};

    a.nw.scale_bytes = t->spec.scale_dtype == SW_DTYPE_F32 ? 4 : 2;
    a.nw.scales_are_bf16 = t->spec.scale_dtype == SW_DTYPE_BF16;
    a.x_scales = is_down ? w->h_codes.d_scales : w->x_scales ? w->x_scales : w->x_codes.d_scales;
    a.x_rows = (int)(is_down || w->x_scales ? p->n_tokens * p->top_k : p->n_tokens);
    if (p->n_tokens > 1) a.lists = w->lists;
    a.chosen = p->chosen;
    a.n_pairs = (int)(p->n_tokens * p->top_k);
    a.share = p->share;
    a.experts = is_down ? p->downs : p->ups;
    a.y = is_down ? w->y : w->h;
    a.n_out = is_down ? t->n_out : t->n_out / 2;
    a.n_tiles = (int)sw_tiles_n(a.n_out);
    a.n_units = (int)sw_cuda_up(a.n_tiles, is_down ? tiles : tiles / 2);
    a.k_tiles = (int)sw_tiles_k(t->k_in);
    a.k_stages = (a.k_tiles + 1) / 2;
    a.group_stages = (int)(t->spec.group_elems / 128);
    a.tile_bytes = (int)sw_tile_bytes(t->container_bits);
    a.record_bytes = 64 * a.nw.scale_bytes;
    a.scale_bytes = (int)t->n_groups * a.record_bytes;
    a.factor = 1;
    if (plan->scale_k) { /* groups of a stage go together */
        a.group_stages = 1;
        a.scale_bytes = (int)t->n_groups * 64;
        a.record_bytes = 64 * 128 / plan->scale_k;
        a.factor = plan->scale_k == 32 ? 0x1p64f : 0x1p8f;
    }
    a.partials = w->partials;
    a.flags = p->flags;
    a.slope = 1, a.limit = INFINITY, a.shift = 0;
    if (p->act == SW_MLP_SWIGLU_CLAMPED) a.slope = 1.702f, a.limit = p->limit, a.shift = 1;
    return a;
}

/* The rows that a product reads, as the copy engine wants them described. */
static sw_code map_inputs(CUtensorMap *map, const sw_routed *p, const rt_kernel *k,
                          const rt_work *w, bool is_down, sw_err *err)
{
    const bool is_one = p->n_tokens == 1 && !is_down, is_bytes = is_quantized(p);
    const int64_t inputs = is_down ? p->down.k_in : p->up.k_in;
    const int64_t k_in = is_bytes ? sw_cuda_codes_stride(inputs) : inputs; /* zeros at the end */
    const int64_t rows = is_one ? 1 : p->n_tokens * p->top_k;
    const void *x = w->x;

    if (is_down) x = is_bytes ? (const void *)w->h_codes.d_codes : w->h;
    else if (is_one) x = is_bytes ? (const void *)w->x_codes.d_codes : p->x.d;
    return sw_tensor_map_2d(map, x, is_bytes ? 1 : 2, k_in, rows, k_in, is_bytes ? 128 : 64,
                            k->box_rows, err);
}

static sw_code multiply(const sw_routed *p, const sw_routed_plan *plan, const rt_work *w,
                        bool is_down, sw_launch how, sw_err *err)
{
    const rt_kernel *k = kernel_of(plan);
    const int cluster = k->cluster ? k->cluster : 1;
    rt_args args = args_of(p, plan, w, is_down);
    CUtensorMap map;
    void *params[] = {&map, &args};
    cudaLaunchAttribute attrs[2] = {};
    cudaLaunchConfig_t config = {};
    sw_code rc = map_inputs(&map, p, k, w, is_down, err);

    if (rc == SW_OK)
        rc = sw_cuda_check(cudaFuncSetAttribute(k->entry[is_down],
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                k->shared_bytes),
                           "routed experts", err);
    if (rc != SW_OK) return rc;
    attrs[0].id = cudaLaunchAttributeClusterDimension;
    attrs[0].val.clusterDim = {(unsigned)cluster, 1, 1};
    attrs[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)(n_ctas_of(plan) / cluster * cluster));
    config.blockDim = dim3((unsigned)k->n_threads);
    config.dynamicSmemBytes = (size_t)k->shared_bytes;
    config.stream = (cudaStream_t)how.stream;
    config.attrs = attrs;
    config.numAttrs = how.overlaps ? 2 : 1;
    return sw_cuda_check(cudaLaunchKernelExC(&config, k->entry[is_down], params), "routed experts",
                         err);
}

/* What the rows of an expert's blocks are multiples of, where they are alike; 0: they are full. */
static int even_rows(const sw_routed_plan *plan)
{
    const rt_kernel *k = kernel_of(plan);

    if (k->even_rows) return k->even_rows;
    return plan->rows > 64 ? k->box_rows : 0;
}

static sw_code sort(const sw_routed *p, const sw_routed_plan *plan, const rt_work *w,
                    sw_launch how, sw_err *err)
{
    const bool is_bytes = is_quantized(p);
    rt_sort_args a = {};

    a.to = w->lists;
    a.chosen = p->chosen, a.share = p->share, a.top_k = p->top_k, a.has_choices = is_bytes;
    a.ups = p->ups, a.downs = p->downs;
    a.n_pairs = (int)(p->n_tokens * p->top_k), a.n_experts = p->n_experts;
    a.rows = plan->rows, a.even = even_rows(plan);
    a.x = is_bytes ? w->x_codes.d_codes : (const uint8_t *)p->x.d;
    a.x_stride = is_bytes ? row_bytes(p) : p->x.stride * 2;
    a.x_sorted = w->x, a.width = (int)row_bytes(p);
    a.scales = w->x_codes.d_scales, a.scales_sorted = w->x_scales;
    a.n_groups = x_groups(p);
    return sw_routed_sort(&a, how, err);
}

/* Codes of X, or of h. */
static sw_code quantize(const sw_routed *p, const rt_work *w, bool is_h, sw_launch how, sw_err *err)
{
    if (!is_quantized(p)) return SW_OK;
    if (is_h)
        return sw_cuda_quantize(&w->h_codes, w->h, p->down.k_in, SW_DTYPE_BF16,
                                p->n_tokens * p->top_k, p->down.k_in, &p->act_of_x, 0, how.overlaps,
                                false, how.stream, err);
    return sw_cuda_quantize(&w->x_codes, p->x.d, p->x.stride, SW_DTYPE_BF16, p->n_tokens,
                            p->up.k_in, &p->act_of_x, 0, how.overlaps, false, how.stream, err);
}

extern "C" sw_code sw_routed_run(const sw_routed *p, const sw_routed_plan *plan, void *d_workspace,
                                 void *stream, sw_err *err)
{
    const sw_launch first = {stream, p->may_overlap}, then = {stream, true};
    const bool is_one = p->n_tokens == 1, is_second = is_quantized(p);
    const rt_work w = work_of(p, plan, d_workspace);
    sw_code rc;

    if (p->n_tokens == 0) return SW_OK;
    rc = quantize(p, &w, false, first, err);
    if (rc == SW_OK && !is_one)
        rc = sort(p, plan, &w, is_second ? then : first, err);
    if (rc == SW_OK)
        rc = multiply(p, plan, &w, false, is_one && !is_second ? first : then, err);
    if (rc == SW_OK) rc = quantize(p, &w, true, then, err);
    if (rc == SW_OK) rc = multiply(p, plan, &w, true, then, err);
    if (rc != SW_OK) return rc;
    return sw_routed_sum(p->y, p->adds, w.y, p->n_tokens, p->top_k, p->down.n_out, then, err);
}
