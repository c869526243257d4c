/* routed_case.c - see routed_case.h. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"
#include "formats/num/act.h"
#include "kernels/cuda/gemm/column_tiles.h"
#include "tests/gpu/support/gpu_ref.h"
#include "tests/gpu/support/routed_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/random.h"

#define GUARD_BYTES 4096
#define POISON 0xff /* NaN in every 16-bit format and in fp32 */
#define LIMIT 7.0f

static void must(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) fail_msg("%s: %s", what, cudaGetErrorString(e));
}

#define MUST(call) must(call, #call)

static void *device_copy(const void *host, size_t n_bytes)
{
    void *d = NULL;

    MUST(cudaMalloc(&d, n_bytes ? n_bytes : 16));
    if (n_bytes) MUST(cudaMemcpy(d, host, n_bytes, cudaMemcpyHostToDevice));
    return d;
}

static float rounded(float v)
{
    uint16_t bits;
    sw_err err = {0};

    assert_int_equal(sw_float_encode_n(&bits, SW_DTYPE_BF16, &v, 1, &err), SW_OK);
    assert_int_equal(sw_float_decode_n(&v, &bits, SW_DTYPE_BF16, 1, &err), SW_OK);
    return v;
}

/* ---- inputs and routing ---- */

/* Exact: a one that gates multiply, and up to seven small integers. */
static void make_x(routed_case *c, test_rng *rng)
{
    const routed_shape *s = &c->shape;

    for (int64_t m = 0; m < s->n_tokens; m++) {
        float *row = c->x + m * s->hidden;

        for (int64_t k = 0; k < s->hidden; k++)
            row[k] = s->is_exact ? 0.0f : rounded((float)test_gauss(rng));
        for (int i = 0; s->is_exact && i < 7; i++)
            row[test_u64(rng) % (uint64_t)s->hidden] = (float)(test_u64(rng) % 5) - 2.0f;
        if (s->is_exact) row[0] = 1.0f;
    }
}

static int draw_expert(const routed_shape *s, int place, test_rng *rng)
{
    int any = (int)(test_u64(rng) % (uint64_t)s->n_experts);

    if (s->routing == ROUTING_ONE) return place;
    if (s->routing == ROUTING_ODD) return any | 1;
    return s->routing == ROUTING_SKEW && place == 0 ? s->n_experts - 1 : any;
}

static void route(routed_case *c, test_rng *rng)
{
    const routed_shape *s = &c->shape;

    for (int64_t m = 0; m < s->n_tokens; m++) {
        int32_t *row = c->chosen + m * s->top_k;

        for (int i = 0; i < s->top_k; i++) {
            int j;

            do {
                row[i] = draw_expert(s, i, rng);
                for (j = 0; j < i && row[j] != row[i]; j++) continue;
            } while (j < i);
            c->share[m * s->top_k + i] =
                s->is_exact ? ldexpf(1, -(int)(test_u64(rng) % 4)) : (float)test_uniform(rng);
        }
    }
}

/* ---- weights ---- */

/* Exact: a gate is 32, 64 or 128 whatever the token, and SiLU of that is itself; an up is a small
 * integer times a power of two. */
static void make_exact(sw_qtensor *q, int64_t n_gates, test_rng *rng)
{
    for (int64_t n = 0; n < q->n_out; n++) {
        bool is_gate = n < n_gates;

        for (int64_t k = 0; is_gate && k < q->k_in; k++) q->codes[n * q->k_in + k] = k ? 8 : 12;
        for (int64_t g = 0; g < q->n_groups; g++)
            q->scales[n * q->n_groups + g] =
                ldexpf(1, is_gate   ? 3 + (int)(n % 3)
                          : n_gates ? (int)(n % 3) - 1
                                    : -6 - (int)(test_u64(rng) % 4));
    }
}

/* Any code that is a number. */
static void make_e4m3(sw_qtensor *q, const routed_shape *s, int64_t n_out, int64_t k_in,
                      test_rng *rng)
{
    sw_qspec spec = {.num = &sw_nums[SW_NUM_E4M3], .is_symmetric = true,
                     .group_elems = s->group_elems, .scale_dtype = SW_DTYPE_BF16,
                     .scale_rows = s->scale_rows};
    sw_err err = {0};

    assert_int_equal(sw_qtensor_alloc(q, &spec, n_out, k_in, &err), SW_OK);
    for (int64_t i = 0; i < n_out * k_in; i++) {
        uint8_t code = (uint8_t)test_u64(rng);

        q->codes[i] = (code & 0x7f) == 0x7f ? code ^ 1 : code;
    }
}

static bool has_e4m3_weights(const routed_shape *s)
{
    return s->scheme == ROUTED_FP8 || s->scheme == ROUTED_FP8_BLOCK;
}

bool routed_shape_has_bytes(const routed_shape *s)
{
    return s->scheme >= ROUTED_FP8 && s->scheme <= ROUTED_W4AFP8;
}

/* The specs of those names among sw_gen_float_spec's. */
static void make_e2m1(sw_qtensor *q, const routed_shape *s, int64_t n_out, int64_t k_in,
                      test_rng *rng)
{
    const bool is_mx = s->scheme == ROUTED_MXFP4;

    sw_gen_float_qtensor(q, is_mx ? 5 : 7, n_out, k_in, test_u64(rng));
    assert_ptr_equal(q->spec.num, &sw_nums[SW_NUM_E2M1]);
    for (int64_t i = 0; is_mx && i < n_out * q->n_groups; i++)
        q->scales[i] = ldexpf(1, -5 - (int)(test_u64(rng) % 3));
}

static void make_weight(sw_qtensor *q, const routed_shape *s, int64_t n_out, int64_t k_in,
                        int64_t n_gates, test_rng *rng)
{
    const double size = has_e4m3_weights(s) ? 0.01 : s->scheme == ROUTED_W8A8 ? 0.02 : 0.3;

    if (s->scheme >= ROUTED_MXFP4) {
        make_e2m1(q, s, n_out, k_in, rng);
        return;
    }
    if (has_e4m3_weights(s)) make_e4m3(q, s, n_out, k_in, rng);
    else
        sw_gen_qtensor(q, s->scheme == ROUTED_W8A8 ? 8 : 4, true, s->group_elems, SW_DTYPE_BF16,
                       n_out, k_in, SW_GEN_RANDOM, 0, test_u64(rng));
    if (s->is_exact) make_exact(q, n_gates, rng);
    else
        for (int64_t i = 0; i < n_out * q->n_groups; i++)
            q->scales[i] = rounded((float)((0.2 + test_uniform(rng)) * size / sqrt((double)k_in)));
    for (int64_t n = 0; s->scale_rows && n < n_out; n++)
        memcpy(q->scales + n * q->n_groups,
               q->scales + n / s->scale_rows * s->scale_rows * q->n_groups,
               (size_t)q->n_groups * sizeof *q->scales);
}

static sw_act act_of(const routed_shape *s)
{
    const bool is_grouped = s->scheme == ROUTED_FP8_BLOCK;

    if (!routed_shape_has_bytes(s)) return (sw_act){0};
    return (sw_act){&sw_nums[s->scheme == ROUTED_W8A8 ? SW_NUM_INT8 : SW_NUM_E4M3],
                    is_grouped ? SW_ACT_GROUP : SW_ACT_TOKEN, is_grouped ? 128 : 0, SW_DTYPE_F32};
}

static sw_tiles tiles_of(const sw_qtensor *q)
{
    return (sw_tiles){.spec = q->spec, .n_out = q->n_out, .k_in = q->k_in,
                      .n_groups = q->n_groups,
                      .container_bits = sw_tiles_container_bits(q->spec.num)};
}

static sw_expert put_expert(const sw_qtensor *q, const float *bias)
{
    size_t codes_bytes = (size_t)sw_tiles_codes_bytes(q->spec.num, q->n_out, q->k_in);
    size_t scales_bytes = (size_t)sw_tiles_scales_bytes(q->spec.scale_dtype, q->n_out,
                                                        q->n_groups);
    uint8_t *codes = malloc(codes_bytes), *scales = malloc(scales_bytes);
    sw_expert e = {.global_scale = q->spec.has_global ? q->global_scale : 0};
    sw_err err = {0};

    if (sw_tiles_pack(codes, scales, NULL, q, &err)) fail_msg("%s", err.text);
    e.codes = device_copy(codes, codes_bytes);
    e.scales = device_copy(scales, scales_bytes);
    if (bias) e.bias = device_copy(bias, (size_t)q->n_out * sizeof *bias);
    free(codes);
    free(scales);
    return e;
}

static void make_experts(routed_case *c, test_rng *rng)
{
    const routed_shape *s = &c->shape;
    size_t n = (size_t)s->n_experts, all = (size_t)(2 * s->wide + s->hidden);

    c->up = calloc(n, sizeof *c->up);
    c->down = calloc(n, sizeof *c->down);
    c->experts = calloc(2 * n, sizeof *c->experts);
    c->bias = calloc(n * all, sizeof *c->bias);
    for (size_t i = 0; i < n * all; i++) c->bias[i] = (float)test_gauss(rng);
    for (size_t e = 0; e < n; e++) {
        const float *bias = s->has_bias ? c->bias + e * all : NULL;

        make_weight(&c->up[e], s, 2 * s->wide, s->hidden, s->wide, rng);
        make_weight(&c->down[e], s, s->hidden, s->wide, 0, rng);
        c->experts[e] = put_expert(&c->up[e], bias);
        c->experts[n + e] = put_expert(&c->down[e], bias ? bias + 2 * s->wide : NULL);
    }
}

/* ---- the whole ---- */

static uint16_t *put_rows(const float *v, size_t n)
{
    uint16_t *bits = malloc(n * 2), *d;
    sw_err err = {0};

    assert_int_equal(sw_float_encode_n(bits, SW_DTYPE_BF16, v, (int64_t)n, &err), SW_OK);
    d = device_copy(bits, n * 2);
    free(bits);
    return d;
}

/* The codes of all experts as the engine would have them, which `all` says then. */
static void order_codes(const routed_case *c, sw_tiles *all, const sw_qtensor *q,
                        const sw_expert *experts)
{
    const sw_cuda_device device = {90, 132};
    const sw_act act = act_of(&c->shape);
    sw_err err = {0};

    for (int e = 0; e < c->shape.n_experts && !c->shape.keeps_order; e++) {
        sw_tiles tiles = tiles_of(&q[e]);

        tiles.codes = experts[e].codes;
        assert_int_equal(sw_column_tiles_order_expert(&tiles, &act, &device, NULL, &err), SW_OK);
        all->in_columns = tiles.in_columns;
        all->is_sign_magnitude = tiles.is_sign_magnitude;
        all->is_e2m1_spread = tiles.is_e2m1_spread;
    }
}

static void describe(routed_case *c)
{
    const routed_shape *s = &c->shape;
    const size_t n_pairs = (size_t)(s->n_tokens * s->top_k), n = (size_t)s->n_experts;
    sw_routed *p = &c->problem;
    const sw_expert *d_experts = device_copy(c->experts, 2 * n * sizeof *c->experts);
    uint8_t *d_y;

    c->y_bytes = (size_t)(s->n_tokens * s->hidden) * 2;
    MUST(cudaMalloc((void **)&d_y, c->y_bytes + 2 * GUARD_BYTES));
    *p = (sw_routed){.n_tokens = s->n_tokens, .n_experts = s->n_experts, .top_k = s->top_k,
                     .adds = s->adds, .act_of_x = act_of(s), .up = tiles_of(&c->up[0]),
                     .down = tiles_of(&c->down[0]),
                     .ups = d_experts, .downs = d_experts + n, .act = s->act, .limit = LIMIT,
                     .may_overlap = s->seed % 2};
    order_codes(c, &p->up, c->up, c->experts);
    order_codes(c, &p->down, c->down, c->experts + n);
    p->x = (sw_bf16_rows){put_rows(c->x, (size_t)(s->n_tokens * s->hidden)), s->hidden};
    p->y = (sw_bf16_rows){(sw_bf16 *)(d_y + GUARD_BYTES), s->hidden};
    p->chosen = device_copy(c->chosen, n_pairs * sizeof *c->chosen);
    p->share = device_copy(c->share, n_pairs * sizeof *c->share);
}

void routed_case_new(routed_case *c, const routed_shape *shape)
{
    test_rng rng = {shape->seed};
    const size_t n_pairs = (size_t)(shape->n_tokens * shape->top_k);
    const size_t n = (size_t)(shape->n_tokens * shape->hidden);

    *c = (routed_case){.shape = *shape};
    c->x = calloc(n, sizeof *c->x);
    c->before = calloc(n, sizeof *c->before);
    c->y = calloc(n, sizeof *c->y);
    c->want = calloc(n, sizeof *c->want);
    c->chosen = calloc(n_pairs, sizeof *c->chosen);
    c->share = calloc(n_pairs, sizeof *c->share);
    make_x(c, &rng);
    for (size_t i = 0; i < n; i++) c->before[i] = rounded((float)test_gauss(&rng));
    route(c, &rng);
    make_experts(c, &rng);
    describe(c);
}

void routed_case_free(routed_case *c)
{
    const sw_routed *p = &c->problem;
    void *device[] = {p->x.d, (uint8_t *)p->y.d - GUARD_BYTES, (void *)(uintptr_t)p->chosen,
                      (void *)(uintptr_t)p->share, (void *)(uintptr_t)p->ups, c->d_work, p->flags};
    void *host[] = {c->x, c->bias, c->before, c->chosen, c->share, c->up, c->down, c->experts,
                    c->y, c->want};

    for (int e = 0; e < 2 * c->shape.n_experts; e++) {
        MUST(cudaFree((void *)(uintptr_t)c->experts[e].codes));
        MUST(cudaFree((void *)(uintptr_t)c->experts[e].scales));
        MUST(cudaFree((void *)(uintptr_t)c->experts[e].bias));
    }
    for (int e = 0; e < c->shape.n_experts; e++) {
        sw_qtensor_free(&c->up[e]);
        sw_qtensor_free(&c->down[e]);
    }
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) MUST(cudaFree(device[i]));
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) free(host[i]);
    *c = (routed_case){0};
}

/* ---- what is wanted ---- */

/* x [m, k_in] as the products see it. */
static float *seen(const routed_shape *s, const float *x, int64_t m, int64_t k_in)
{
    const sw_act act = act_of(s);
    const int64_t groups = routed_shape_has_bytes(s) ? sw_act_groups(&act, k_in) : 1;
    float *y = malloc((size_t)(m * k_in) * sizeof *y);
    float *scales = malloc((size_t)(m * groups) * sizeof *scales);
    uint8_t *codes = malloc((size_t)(m * k_in));

    memcpy(y, x, (size_t)(m * k_in) * sizeof *y);
    if (routed_shape_has_bytes(s)) {
        sw_act_quantize(codes, scales, x, k_in, m, k_in, &act, 0);
        for (int64_t i = 0; i < m * k_in; i++)
            y[i] = (act.num->values ? act.num->values[codes[i]] : (float)(int8_t)codes[i]) *
                   scales[i / k_in * groups + (groups > 1 ? i % k_in / 128 : 0)];
    }
    free(scales);
    free(codes);
    return y;
}

/* y [m, n_out] = x w^T in double, by plain loops on the device. */
static void reference(double *y, const routed_shape *s, const float *x, int64_t m,
                      const sw_qtensor *q)
{
    const size_t n_codes = (size_t)(q->n_out * q->k_in), y_bytes = (size_t)(m * q->n_out) * 8;
    const size_t n_groups = (size_t)(q->n_out * q->n_groups);
    uint8_t *zeros = malloc(n_groups);
    float values[256], *x_seen = seen(s, x, m, q->k_in), *scales = malloc(n_groups * 4);
    double *d_y;
    void *device[5];
    gpu_ref_args a = {.m = m, .n_out = q->n_out, .k_in = q->k_in, .n_groups = q->n_groups,
                      .n_step = 1, .x_group_elems = q->k_in,
                      .group_elems = q->spec.group_elems ? q->spec.group_elems : q->k_in};

    for (int i = 0; i < 256; i++)
        values[i] = q->spec.num->values ? q->spec.num->values[i] : (float)i;
    for (size_t i = 0; i < n_groups; i++)
        scales[i] = q->scales[i] * (q->spec.has_global ? q->global_scale : 1.0f);
    memset(zeros, q->spec.num->sym_zero, n_groups);
    a.x = device[0] = device_copy(x_seen, (size_t)(m * q->k_in) * sizeof *x);
    a.codes = device[1] = device_copy(q->codes, n_codes);
    a.scales = device[2] = device_copy(scales, n_groups * sizeof(float));
    a.values = device[3] = device_copy(values, sizeof values);
    device[4] = device_copy(zeros, n_groups);
    if (q->spec.num->kind == SW_NUM_INT) a.zeros = device[4];
    MUST(cudaMalloc((void **)&d_y, y_bytes));
    assert_int_equal(gpu_ref_gemm(d_y, &a), 0);
    MUST(cudaMemcpy(y, d_y, y_bytes, cudaMemcpyDeviceToHost));
    MUST(cudaFree(d_y));
    for (int i = 0; i < 5; i++) MUST(cudaFree(device[i]));
    free(zeros);
    free(scales);
    free(x_seen);
}

static double glu(const routed_shape *s, double g, double u)
{
    if (s->act == SW_MLP_SILU) return g / (1 + exp(-g)) * u;
    g = fmin(g, (double)LIMIT);
    u = fmin(fmax(u, -(double)LIMIT), (double)LIMIT);
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

/* Inputs of `down` of expert e, of all tokens. */
static void hidden_of(float *h, const routed_case *c, int e, const double *up)
{
    const routed_shape *s = &c->shape;
    const float *bias = c->bias + (size_t)e * (size_t)(2 * s->wide + s->hidden);

    for (int64_t m = 0; m < s->n_tokens; m++)
        for (int64_t i = 0; i < s->wide; i++) {
            double g = up[m * 2 * s->wide + i], u = up[m * 2 * s->wide + s->wide + i];

            if (s->has_bias) g += (double)bias[i], u += (double)bias[s->wide + i];
            h[m * s->wide + i] = rounded((float)glu(s, g, u));
        }
}

/* What expert e gives, into pairs [n_tokens * top_k, hidden]. */
static void expert_pairs(double *pairs, const routed_case *c, int e)
{
    const routed_shape *s = &c->shape;
    const float *bias = c->bias + (size_t)e * (size_t)(2 * s->wide + s->hidden) + 2 * s->wide;
    double *up = malloc(sizeof *up * (size_t)(s->n_tokens * 2 * s->wide));
    double *y = malloc(sizeof *y * (size_t)(s->n_tokens * s->hidden));
    float *h = malloc(sizeof *h * (size_t)(s->n_tokens * s->wide));

    reference(up, s, c->x, s->n_tokens, &c->up[e]);
    hidden_of(h, c, e, up);
    reference(y, s, h, s->n_tokens, &c->down[e]);
    for (int64_t i = 0; i < s->n_tokens * s->top_k; i++)
        for (int64_t n = 0; c->chosen[i] == e && n < s->hidden; n++) {
            double v = y[i / s->top_k * s->hidden + n];

            if (s->has_bias) v += (double)bias[n];
            v *= (double)c->share[i];
            pairs[i * s->hidden + n] = s->is_exact ? (double)rounded((float)v) : v;
        }
    free(up);
    free(y);
    free(h);
}

void routed_case_expect(routed_case *c)
{
    const routed_shape *s = &c->shape;
    double *pairs = calloc((size_t)(s->n_tokens * s->top_k * s->hidden), sizeof *pairs);

    for (int e = 0; e < s->n_experts; e++) expert_pairs(pairs, c, e);
    for (int64_t i = 0; i < s->n_tokens * s->hidden; i++) {
        float sum = 0;

        c->want[i] = 0;
        for (int u = 0; u < s->top_k; u++) {
            double v = pairs[(i / s->hidden * s->top_k + u) * s->hidden + i % s->hidden];

            c->want[i] += v;
            sum += (float)v;
        }
        if (s->adds) c->want[i] += (double)c->before[i], sum += c->before[i];
        if (s->is_exact) c->want[i] = (double)rounded(sum);
    }
    free(pairs);
}

/* ---- a run ---- */

static bool is_all(const void *d, int byte, size_t n_bytes)
{
    uint8_t *host = malloc(n_bytes);
    bool same = true;

    MUST(cudaMemcpy(host, d, n_bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n_bytes; i++) same = same && host[i] == byte;
    free(host);
    return same;
}

static void fetch(routed_case *c)
{
    uint16_t *bits = malloc(c->y_bytes);
    sw_err err = {0};

    MUST(cudaMemcpy(bits, c->problem.y.d, c->y_bytes, cudaMemcpyDeviceToHost));
    assert_int_equal(sw_float_decode_n(c->y, bits, SW_DTYPE_BF16, (int64_t)c->y_bytes / 2, &err),
                     SW_OK);
    free(bits);
}

static void poison(routed_case *c, size_t flags_bytes)
{
    uint8_t *d_y = (uint8_t *)c->problem.y.d;
    uint16_t *d_before;

    MUST(cudaMemset(d_y - GUARD_BYTES, POISON, c->y_bytes + 2 * GUARD_BYTES));
    if (c->shape.adds) {
        d_before = put_rows(c->before, c->y_bytes / 2);
        MUST(cudaMemcpy(d_y, d_before, c->y_bytes, cudaMemcpyDeviceToDevice));
        MUST(cudaFree(d_before));
    }
    MUST(cudaFree(c->d_work));
    MUST(cudaMalloc(&c->d_work, c->work_bytes + GUARD_BYTES));
    MUST(cudaMemset(c->d_work, POISON, c->work_bytes + GUARD_BYTES));
    MUST(cudaFree(c->problem.flags));
    MUST(cudaMalloc((void **)&c->problem.flags, flags_bytes));
    MUST(cudaMemset(c->problem.flags, 0, flags_bytes));
}

bool routed_case_run(routed_case *c, int rows)
{
    sw_routed_plan plan;
    sw_cuda_device device;
    sw_err err = {0};
    uint8_t *d_y = (uint8_t *)c->problem.y.d;

    if (sw_cuda_device_query(&device, 0, &err) != SW_OK ||
        sw_routed_plan_for(&plan, &c->problem, &device, rows, &err) != SW_OK)
        fail_msg("%s", err.text);
    c->work_bytes = sw_routed_workspace_bytes(&c->problem, &plan);
    poison(c, sw_routed_flags_bytes(&device));
    MUST(cudaDeviceSynchronize());
    if (sw_routed_run(&c->problem, &plan, c->d_work, NULL, &err) != SW_OK)
        fail_msg("%s", err.text);
    MUST(cudaDeviceSynchronize());
    fetch(c);
    return is_all(d_y - GUARD_BYTES, POISON, GUARD_BYTES) &&
           is_all(d_y + c->y_bytes, POISON, GUARD_BYTES) &&
           is_all((uint8_t *)c->d_work + c->work_bytes, POISON, GUARD_BYTES) &&
           is_all(c->problem.flags, 0, sw_routed_flags_bytes(&device));
}

double routed_case_error(const routed_case *c)
{
    double off = 0, all = 0;

    for (int64_t i = 0; i < c->shape.n_tokens * c->shape.hidden; i++) {
        double d = (double)c->y[i] - c->want[i];

        if (!isfinite(d)) return (double)INFINITY;
        off += d * d;
        all += c->want[i] * c->want[i];
    }
    return sqrt(off / all);
}

int64_t routed_case_differing(const routed_case *c)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c->shape.n_tokens * c->shape.hidden; i++)
        n += (double)c->y[i] != c->want[i];
    return n;
}
