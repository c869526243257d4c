/* gemm_case.c - see gemm_case.h. */
#include "tests/support/cases/gemm_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/half.h"

#define CANARY_ELEMS 64
#define CANARY 0x7fa5c3e1u /* a NaN that no arithmetic makes */

uint32_t gemm_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) ^ (*state << 20);
}

static float random_float(uint32_t *state)
{
    float sum = 0;

    for (int i = 0; i < 4; i++) sum += (float)(gemm_random(state) & 0xffff) / 65536.0f - 0.5f;
    return sum;
}

static void *room(int64_t n_bytes)
{
    void *p = aligned_alloc(64, ((size_t)n_bytes + 128) & ~(size_t)63);

    assert_non_null(p);
    memset(p, 0, ((size_t)n_bytes + 128) & ~(size_t)63);
    return p;
}

static uint16_t to_half(float v, sw_dtype dtype)
{
    return dtype == SW_DTYPE_BF16 ? sw_bf16_encode(v) : sw_f16_encode(v);
}

static float from_half(uint16_t v, sw_dtype dtype)
{
    return dtype == SW_DTYPE_BF16 ? sw_bf16_decode(v) : sw_f16_decode(v);
}

float gemm_small_float(sw_num_id num, int code)
{
    int bits = sw_nums[num].bits, n = sw_nums[num].mantissa_bits;
    int bias = 1 - ilogbf(sw_nums[num].normal);
    int mantissa = code & ((1 << n) - 1), exponent = (code & ((1 << (bits - 1)) - 1)) >> n;
    float size = exponent ? ldexpf((float)(mantissa + (1 << n)), exponent - bias - n)
                          : ldexpf((float)mantissa, 1 - bias - n);

    return code >> (bits - 1) ? -size : size;
}

/* A random scale of the dtype: its raw bits at `raw`, little-endian, its value returned. */
static float random_scale(uint8_t *raw, uint32_t *state, sw_dtype dtype, bool is_integer)
{
    float v = is_integer ? ldexpf(1.0f, -(int)(gemm_random(state) % 3))
                         : 0.01f + fabsf(random_float(state)) * 0.02f;
    uint32_t bits;
    uint16_t half;

    if (dtype == SW_DTYPE_F8_E8M0) {
        raw[0] = (uint8_t)(is_integer ? 125 + gemm_random(state) % 3
                                      : 118 + gemm_random(state) % 5);
        return ldexpf(1.0f, raw[0] - 127);
    }
    if (dtype == SW_DTYPE_F8_E4M3) { /* a denormal now and then */
        raw[0] = (uint8_t)(is_integer ? 40 + 8 * (gemm_random(state) % 3)
                                      : 3 + gemm_random(state) % 60);
        return gemm_small_float(SW_NUM_E4M3, raw[0]);
    }
    if (dtype == SW_DTYPE_F32) {
        bits = sw_f32_bits(v);
        memcpy(raw, &bits, sizeof bits);
        return v;
    }
    half = to_half(v, dtype);
    memcpy(raw, &half, sizeof half);
    return from_half(half, dtype);
}

static int64_t scale_bytes(const gemm_shape *s) { return sw_dtype_bits(s->dtype) / 8; }

static int64_t groups_of(const gemm_shape *s)
{
    return s->group_elems ? (s->k_in + s->group_elems - 1) / s->group_elems : 1;
}

/* narrow.h, spelled out: byte `at` of warp w, the low or the high code. */
static void put_narrow(uint8_t *tile, int bits, int w, int at, bool is_high, uint8_t code)
{
    uint8_t *pairs = tile + 512 * (w % 2) + at, *third = tile + 1024 + at;
    int shift = (w >= 2 ? 2 : 0) + (is_high ? 4 : 0), bit = w + (is_high ? 4 : 0);

    *pairs = (uint8_t)((*pairs & ~(3 << shift)) | (code & 3) << shift);
    if (bits == 3) *third = (uint8_t)((*third & ~(1 << bit)) | code >> 2 << bit);
}

/* tiles.h, spelled out: where channel n, input k of the padded matrix lies. */
static void put_code(gemm_case *c, int64_t n, int64_t k, uint8_t code)
{
    static const int order[4] = {0, 8, 1, 9};
    int64_t k_tiles = sw_tiles_k(c->shape.k_in), base;
    int r = (int)(n % 64), q = (int)(k % 64), w = r / 16, g = r % 8, high = r % 16 >= 8;
    int s = q / 16, lane = -1, i = -1;

    for (int cc = 0; cc < 4; cc++)
        for (int ii = 0; ii < 4; ii++)
            if (2 * cc + order[ii] == q % 16) lane = 4 * g + cc, i = ii;
    base = (n / 64 * k_tiles + k / 64) * sw_tile_bytes(c->tiles.container_bits);
    if (c->tiles.container_bits < 4) {
        put_narrow(c->tile_codes + base, c->tiles.container_bits, w, 16 * lane + 4 * s + i, high,
                   code);
    } else if (c->tiles.container_bits == 4) {
        uint8_t *at = &c->tile_codes[base + 512 * w + 16 * lane + 4 * s + i];
        *at = (uint8_t)(high ? (*at & 15) | code << 4 : (*at & 0xf0) | code);
    } else {
        c->tile_codes[base + 2048 * (s / 2) + 512 * w + 16 * lane + 8 * (s % 2) + 4 * high + i] =
            code;
    }
}

void gemm_case_pack(gemm_case *c)
{
    const gemm_shape *s = &c->shape;
    int64_t n_pad = sw_tiles_n(s->n_out) * 64, k_pad = sw_tiles_k(s->k_in) * 64;
    int64_t n_groups = c->tiles.n_groups;
    bool is_float = c->tiles.spec.num->kind == SW_NUM_FLOAT;
    int zero_default = is_float ? 0 : c->tiles.spec.num->sym_zero;

    for (int64_t n = 0; n < n_pad; n++) {
        for (int64_t g = 0; g < n_groups; g++) {
            int64_t at = (n / 64 * n_groups + g) * 64 + sw_tile_slot((int)(n % 64));
            int inside = n < s->n_out;

            memset(c->tile_scales + at * scale_bytes(s), 0, (size_t)scale_bytes(s));
            if (inside)
                memcpy(c->tile_scales + at * scale_bytes(s),
                       c->raw_scales + (n * n_groups + g) * scale_bytes(s), (size_t)scale_bytes(s));
            c->tile_zeros[at] = inside ? c->zeros[n * n_groups + g] : (uint8_t)zero_default;
        }
        for (int64_t k = 0; k < k_pad; k++) {
            int64_t g = s->group_elems ? k / s->group_elems : 0;
            uint8_t pad = n < s->n_out && g < n_groups && !is_float ? c->zeros[n * n_groups + g]
                                                       : (uint8_t)zero_default;
            put_code(c, n, k, n < s->n_out && k < s->k_in ? c->codes[n * s->k_in + k] : pad);
        }
    }
}

bool gemm_op_is_int8(sw_gemm_op op) { return op == SW_GEMM_W4A8 || op == SW_GEMM_W8A8; }

sw_num_id gemm_op_num(sw_gemm_op op)
{
    static const sw_num_id nums[SW_GEMM_OP_COUNT] = {
        [SW_GEMM_W4A16] = SW_NUM_INT4, [SW_GEMM_W8A16] = SW_NUM_INT8, [SW_GEMM_W4A8] = SW_NUM_INT4,
        [SW_GEMM_W8A8] = SW_NUM_INT8, [SW_GEMM_FP4A16] = SW_NUM_E2M1,
        [SW_GEMM_FP8A16] = SW_NUM_E4M3};
    return nums[op];
}

/* One token as act.h words it: scale max |x| / 127 or the given one, nearest code, ties to even. */
static void see_token(gemm_case *c, int64_t m)
{
    const float *x = c->problem.x + m * c->problem.x_stride;
    double *seen = c->x_seen + m * c->shape.k_in;
    float scale = 0;

    for (int64_t k = 0; k < c->shape.k_in; k++)
        scale = fabsf(x[k]) > scale ? fabsf(x[k]) : scale;
    scale = c->shape.is_static ? c->weight.input_scale : scale > 0 ? scale / 127 : 1;
    for (int64_t k = 0; k < c->shape.k_in; k++) {
        double code = rint((double)(x[k] / scale));

        code = code > 127 ? 127 : code < -127 ? -127 : code;
        seen[k] = gemm_op_is_int8(c->shape.op) ? code * (double)scale : (double)x[k];
    }
}

void gemm_case_expect(gemm_case *c)
{
    const gemm_shape *s = &c->shape;
    int64_t n_groups = groups_of(s);
    double squares = 0;

    for (int64_t m = 0; m < s->m; m++) see_token(c, m);

    for (int64_t n = 0; s->op != SW_GEMM_DENSE && n < s->n_out; n++)
        for (int64_t k = 0; k < s->k_in; k++) {
            int64_t g = n * n_groups + (s->group_elems ? k / s->group_elems : 0);
            int code = c->codes[n * s->k_in + k];
            float v = c->tiles.spec.num->kind == SW_NUM_FLOAT ? gemm_small_float(s->num, code)
                                                              : (float)(code - (int)c->zeros[g]);
            c->values[n * s->k_in + k] = c->scales[g] * v * c->tiles.global_scale;
        }
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t n = 0; n < s->n_out; n++) {
            double sum = 0;
            for (int64_t k = 0; k < s->k_in; k++) {
                double term = c->x_seen[m * s->k_in + k] * (double)c->values[n * s->k_in + k];

                sum += term;
                squares += term * term;
            }
            c->want[m * s->n_out + n] = sum;
        }
    c->size = sqrt(squares);
}

/* The code without NaN and infinity; where integers are wanted, of a number near 1, so that sums
 * stay exact. */
static uint8_t small_code(int code, const gemm_shape *s)
{
    const sw_num *num = &sw_nums[s->num];
    int n = num->mantissa_bits, sign = code & num->sym_zero, size = code & (num->sym_zero - 1);
    int top = num->values ? num->encode(num->top) : 0;
    int bias = num->values ? 1 - ilogbf(num->normal) : 0;

    if (num->bits <= 4 || !num->values) return (uint8_t)code;
    if (s->is_integer) size = ((bias + (size >> n) % 4) << n) | (size & ((1 << n) - 1));
    return (uint8_t)(sign | (size > top ? top : size));
}

static void fill_tiles(gemm_case *c, uint32_t *state)
{
    const gemm_shape *s = &c->shape;
    int64_t n_groups = groups_of(s), n_pad = sw_tiles_n(s->n_out) * 64;
    int64_t n_records = sw_tiles_n(s->n_out) * n_groups * 64;

    c->tiles.spec.num = &sw_nums[s->num];
    c->tiles.spec.is_symmetric = !s->is_asymmetric;
    c->tiles.spec.group_elems = s->group_elems;
    c->tiles.spec.scale_dtype = s->dtype;
    c->tiles.n_out = s->n_out;
    c->tiles.k_in = s->k_in;
    c->tiles.n_groups = n_groups;
    c->tiles.container_bits = sw_tiles_stored_bits(c->tiles.spec.num);
    c->codes = room(s->n_out * s->k_in);
    c->zeros = room(s->n_out * n_groups);
    c->scales = room(s->n_out * n_groups * 4);
    c->tile_codes = room(n_pad * sw_tiles_k(s->k_in) * 64);
    c->tile_scales = room((n_records + 32) * scale_bytes(s));
    c->raw_scales = room(s->n_out * n_groups * scale_bytes(s));
    memset(c->tile_scales + n_records * scale_bytes(s), 0xff, (size_t)(32 * scale_bytes(s)));
    c->tile_zeros = room(n_records);
    for (int64_t i = 0; i < s->n_out * s->k_in; i++) {
        c->codes[i] = (uint8_t)(gemm_random(state) & (uint32_t)c->tiles.spec.num->code_max);
        c->codes[i] = small_code(c->codes[i], s);
    }
    for (int64_t i = 0; i < s->n_out * n_groups; i++) {
        c->scales[i] = random_scale(c->raw_scales + i * scale_bytes(s), state, s->dtype,
                                    s->is_integer);
        c->zeros[i] = (uint8_t)(s->is_asymmetric ? gemm_random(state) &
                                                       (uint32_t)c->tiles.spec.num->code_max
                                                 : (uint32_t)c->tiles.spec.num->sym_zero);
    }
    c->tiles.spec.has_global = s->has_global;
    c->tiles.global_scale = s->has_global ? 0.5f : 1.0f;
    gemm_case_pack(c);
    c->tiles.codes = c->tile_codes;
    c->tiles.scales = c->tile_scales;
    c->tiles.zeros = s->is_asymmetric ? c->tile_zeros : NULL;
    c->weight.tiles = &c->tiles;
}

static void fill_dense(gemm_case *c, uint32_t *state)
{
    const gemm_shape *s = &c->shape;

    c->dense = room(s->n_out * s->k_in * 4);
    for (int64_t i = 0; i < s->n_out * s->k_in; i++) {
        float v = s->is_integer ? (float)(gemm_random(state) % 17) - 8.0f : random_float(state);

        if (s->dtype == SW_DTYPE_F32) ((float *)c->dense)[i] = c->values[i] = v;
        else {
            ((uint16_t *)c->dense)[i] = to_half(v, s->dtype);
            c->values[i] = from_half(((uint16_t *)c->dense)[i], s->dtype);
        }
    }
    c->weight.dense = c->dense;
    c->weight.dense_dtype = s->dtype;
}

void gemm_case_new(gemm_case *c, const gemm_shape *shape)
{
    const gemm_shape *s = &c->shape;
    uint32_t state = shape->seed * 2654435761u + 12345u;
    int64_t x_stride = shape->k_in + shape->x_gap, y_stride = shape->n_out + shape->y_gap;

    memset(c, 0, sizeof *c);
    c->shape = *shape;
    c->weight.n_out = s->n_out;
    c->weight.k_in = s->k_in;
    c->values = room(s->n_out * s->k_in * 4);
    c->want = room(s->m * s->n_out * 8);
    c->x_seen = room(s->m * s->k_in * 8);
    c->x = room((s->m * x_stride + CANARY_ELEMS) * 4);
    c->y_bytes = room((s->m * y_stride + 2 * CANARY_ELEMS) * 4);
    for (int64_t i = 0; i < s->m * x_stride + CANARY_ELEMS; i++) c->x[i] = NAN;
    for (int64_t m = 0; m < s->m; m++)
        for (int64_t k = 0; k < s->k_in; k++)
            c->x[m * x_stride + k] = s->is_integer ? (float)(gemm_random(&state) % 9) - 4.0f
                                                   : random_float(&state);
    /* the largest input makes the scale of int8 codes 1, so that integers stay what they are */
    for (int64_t m = 0; s->is_integer && gemm_op_is_int8(s->op) && m < s->m; m++)
        c->x[m * x_stride + m % s->k_in] = m % 2 ? -127 : 127;
    if (gemm_op_is_int8(s->op))
        c->weight.act = (sw_act){.num = &sw_nums[SW_NUM_INT8],
                                 .scope = s->is_static ? SW_ACT_TENSOR : SW_ACT_TOKEN,
                                 .scale_dtype = SW_DTYPE_F32};
    c->weight.input_scale = s->is_integer ? 1.0f : 0.0125f; /* some random inputs are beyond it */
    c->problem.m = s->m;
    c->problem.x = c->x;
    c->problem.x_stride = x_stride;
    c->problem.y = c->y_bytes + CANARY_ELEMS;
    c->problem.y_stride = y_stride;
    c->problem.w = &c->weight;
    c->problem.n_threads = 1;
    if (s->op == SW_GEMM_DENSE) fill_dense(c, &state);
    else fill_tiles(c, &state);
    gemm_case_expect(c);
}

void gemm_case_free(gemm_case *c)
{
    free(c->codes);
    free(c->zeros);
    free(c->scales);
    free(c->values);
    free(c->tile_codes);
    free(c->tile_zeros);
    free(c->tile_scales);
    free(c->raw_scales);
    free(c->dense);
    free(c->x_seen);
    free(c->x);
    free(c->y_bytes);
    free(c->want);
    memset(c, 0, sizeof *c);
}

/* Every float of Y's buffer that is not an output still holds the canary. */
static bool canaries_hold(const gemm_case *c)
{
    int64_t n_all = c->shape.m * c->problem.y_stride + 2 * CANARY_ELEMS;

    for (int64_t i = 0; i < n_all; i++) {
        int64_t at = i - CANARY_ELEMS;
        bool is_output = at >= 0 && at < c->shape.m * c->problem.y_stride &&
                         at % c->problem.y_stride < c->shape.n_out;

        if (!is_output && sw_f32_bits(c->y_bytes[i]) != CANARY) return false;
    }
    return true;
}

double gemm_case_run(gemm_case *c, const sw_kernel *kernel, int n_threads)
{
    int64_t n_all = c->shape.m * c->problem.y_stride + 2 * CANARY_ELEMS;
    double difference = 0;
    size_t workspace_bytes;
    uint8_t *workspace;
    bool holds;

    for (int64_t i = 0; i < n_all; i++) c->y_bytes[i] = sw_f32_from_bits(CANARY);
    c->problem.n_threads = n_threads;
    workspace_bytes = kernel->workspace_bytes(&c->problem);
    workspace = room((int64_t)workspace_bytes + 64);
    memset(workspace, 0xff, workspace_bytes + 64);
    kernel->run(&c->problem, workspace);
    holds = canaries_hold(c);
    for (int i = 0; i < 64; i++) holds = holds && workspace[workspace_bytes + (size_t)i] == 0xff;
    free(workspace);
    for (int64_t m = 0; m < c->shape.m; m++)
        for (int64_t n = 0; n < c->shape.n_out; n++) {
            double want = c->want[m * c->shape.n_out + n];
            double have = (double)c->problem.y[m * c->problem.y_stride + n];

            difference += (have - want) * (have - want);
        }
    if (!holds || !isfinite(difference)) return (double)INFINITY;
    return c->size > 0 ? sqrt(difference) / c->size : sqrt(difference);
}

int64_t gemm_case_inexact(const gemm_case *c)
{
    int64_t n_wrong = 0;

    for (int64_t m = 0; m < c->shape.m; m++)
        for (int64_t n = 0; n < c->shape.n_out; n++) {
            float have = c->problem.y[m * c->problem.y_stride + n];
            n_wrong += have != (float)c->want[m * c->shape.n_out + n];
        }
    return n_wrong;
}

void gemm_case_describe(char *text, size_t text_bytes, const gemm_case *c)
{
    const gemm_shape *s = &c->shape;

    (void)snprintf(text, text_bytes,
                   "op %d m %lld n %lld k %lld gaps %lld/%lld %s %s group %lld %s%s seed %u",
                   (int)s->op, (long long)s->m, (long long)s->n_out, (long long)s->k_in,
                   (long long)s->x_gap, (long long)s->y_gap, sw_dtype_name(s->dtype),
                   sw_nums[s->num].name,
                   (long long)s->group_elems, s->is_asymmetric ? "asym" : "sym",
                   s->is_static ? " static" : "", s->seed);
}
