/* test_quantizers.c - the kernels that quantize X against formats/num/act.h, to the byte: every way
 * that is compiled, every format of inputs, and what is special among their values.
 * Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "tests/gpu/support/emulated.h"
#include "tests/gpu/support/gpu_case.h"
#include "tests/gpu/support/quantize_case.h"
#include "tests/support/toys/random.h"

#define N_SMS_H200 132

/* Of scales per tensor one cuts most rows off, one none, one is for quotients that overflow and one
 * for scales that have no inverse. */
static const quantize_format formats[] = {
    {"int8 per token", SW_ACT_TOKEN, SW_NUM_INT8, 0},
    {"e4m3 per token", SW_ACT_TOKEN, SW_NUM_E4M3, 0},
    {"e4m3 per 128 inputs", SW_ACT_GROUP, SW_NUM_E4M3, 0},
    {"int8 by 0.004", SW_ACT_TENSOR, SW_NUM_INT8, 0.004f},
    {"int8 by 11", SW_ACT_TENSOR, SW_NUM_INT8, 11.0f},
    {"e4m3 by 0.0031", SW_ACT_TENSOR, SW_NUM_E4M3, 0.0031f},
    {"int8 by 2^-120", SW_ACT_TENSOR, SW_NUM_INT8, 0x1p-120f},
    {"e4m3 by 2^-130", SW_ACT_TENSOR, SW_NUM_E4M3, 0x1p-130f},
};
#define N_FORMATS (int)(sizeof formats / sizeof *formats)

static uint16_t infinity_of(sw_dtype dtype) { return dtype == SW_DTYPE_BF16 ? 0x7f80 : 0x7c00; }

static void must_be_alike(const quantize_case *p, const sw_quantize_cut *cut)
{
    const char *what = quantize_case_difference(p);

    if (what)
        fail_msg("%s, %s: %s differ of %lld x %lld, gap %lld, shift %d, by %s, %d tokens of %d "
                 "warps",
                 p->f->name, p->dtype == SW_DTYPE_BF16 ? "BF16" : "F16", what, (long long)p->m,
                 (long long)p->k, (long long)p->gap, p->shift,
                 cut ? sw_quantize_ways[cut->way].name : "choice", cut ? cut->tokens : 0,
                 cut ? cut->warps : 0);
}

/* ---- values ---- */

typedef void (*fill)(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng);

static void fill_normal(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    (void)m;
    for (int64_t k = 0; k < p->k; k++)
        row[k] = half_bits((float)(3 * test_uniform(rng) - 1.5), p->dtype);
}

/* Zeros of both signs. */
static void fill_zeros(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    (void)m;
    for (int64_t k = 0; k < p->k; k++) row[k] = (uint16_t)(test_u64(rng) << 15);
}

/* Zeros but for one input, which so has the largest code, wherever it stands. */
static void fill_one_hot(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    fill_zeros(p, m, row, rng);
    row[(m * 37 + (int64_t)(test_u64(rng) % 3)) % p->k] =
        half_bits(-1.0f - (float)m, p->dtype);
}

/* Any finite bits. */
static void fill_finite(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    (void)m;
    for (int64_t k = 0; k < p->k; k++) {
        uint64_t r = test_u64(rng);

        row[k] = (uint16_t)(r % infinity_of(p->dtype) | (r >> 63) << 15);
    }
}

/* The smallest numbers that there are, and their like. */
static void fill_tiny(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    const int bits = m % 2 ? 8 : p->dtype == SW_DTYPE_BF16 ? 12 : 13;

    for (int64_t k = 0; k < p->k; k++) {
        uint64_t r = test_u64(rng);

        row[k] = (uint16_t)((r & ((1u << bits) - 1)) | (r >> 63) << 15);
    }
}

/* Codes and a half, where scales are powers of two: all of them ties; of E4M3 the middles. */
static void fill_ties(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    const sw_num *num = &sw_nums[p->f->num];
    float unit = ldexpf(1, (int)(m % 7) - 3);

    for (int64_t k = 0; k < p->k; k++) {
        uint64_t r = test_u64(rng);
        float v = (float)(r % 126) + 0.5f;

        if (num->values) v = (num->values[r % 0x7e] + num->values[r % 0x7e + 1]) / 2;
        row[k] = half_bits(r >> 63 ? -v * unit : v * unit, p->dtype);
    }
    for (int64_t k = 0; k < p->k; k += QUANTIZE_GROUP)
        row[k] = half_bits(num->top * unit, p->dtype);
}

/* As near to ties as 16 bits come where scales are any, from the smallest to the largest. */
static void fill_near_ties(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    const sw_num *num = &sw_nums[p->f->num];
    const int bf16_powers[] = {0, -119, -118, 127}, f16_powers[] = {0, -8, -3, 15};
    int power = (p->dtype == SW_DTYPE_BF16 ? bf16_powers : f16_powers)[m % 4];
    float drawn = ldexpf((float)(1 + test_uniform(rng)) * 0.99f, power);
    float most = half_value(half_bits(drawn, p->dtype), p->dtype);
    float scale = p->f->scope == SW_ACT_TENSOR ? p->f->input_scale : most / num->top;

    for (int64_t k = 0; k < p->k; k++) {
        uint64_t r = test_u64(rng);
        float v = (float)(r % 126) + 0.5f;

        if (num->values) v = (num->values[r % 0x7e] + num->values[r % 0x7e + 1]) / 2;
        row[k] = (uint16_t)(half_bits(v * scale, p->dtype) + (r >> 20) % 3 - 1 +
                            ((r >> 63) << 15));
        if (!(fabsf(half_value(row[k], p->dtype)) <= most)) row[k] = 0;
    }
    for (int64_t k = 0; k < p->k; k += QUANTIZE_GROUP) row[k] = half_bits(most, p->dtype);
}

/* A NaN or an infinity somewhere in every other row. */
static void fill_broken(quantize_case *p, int64_t m, uint16_t *row, test_rng *rng)
{
    fill_normal(p, m, row, rng);
    if (m % 2 == 0) return;
    row[test_u64(rng) % (uint64_t)p->k] =
        (uint16_t)(infinity_of(p->dtype) + m / 2 % 2 + (m / 4 % 2 << 15));
}

static const struct {
    const char *name;
    fill fill;
} fills[] = {
    {"normal", fill_normal},       {"zeros", fill_zeros},   {"one hot", fill_one_hot},
    {"any finite", fill_finite},   {"tiny", fill_tiny},     {"ties", fill_ties},
    {"near ties", fill_near_ties}, {"broken", fill_broken},
};
#define N_FILLS (int)(sizeof fills / sizeof *fills)

static void fill_rows(quantize_case *p, fill how, uint64_t seed)
{
    test_rng rng = {seed};

    for (int64_t m = 0; m < p->m; m++) how(p, m, p->x + m * (p->k + p->gap), &rng);
    quantize_case_upload(p);
}

/* ---- tests ---- */

static void check_chosen(const quantize_case *like, fill how)
{
    quantize_case p = *like;

    quantize_case_new(&p);
    fill_rows(&p, how, (uint64_t)(p.m * 131 + p.k));
    for (int i = 0; i < (DEVICE_IS_EMULATED ? 2 : 4); i++) {
        quantize_case_run(&p, NULL, i % 2, i == 0 || i == 3);
        must_be_alike(&p, NULL);
    }
    quantize_case_free(&p);
}

static bool is_too_much(int64_t m, int64_t k)
{
    return m * k > (DEVICE_IS_EMULATED ? m == 1 ? 65536 : 35000 : 40000000);
}

/* Lengths of rows around all that loads and codes are cut by. */
static void every_length(void **state)
{
    static const int64_t lengths[] = {1,    7,    8,    9,    15,   16,    17,    24,    31,   63,
                                      100,  127,  128,  129,  136,  200,   255,   256,   511,  512,
                                      513,  520,  1000, 1024, 2047, 2048,  2056,  4096,  7168, 8192,
                                      8200, 14336, 16384, 28672, 32768, 32776, 33000, 65535, 65536};
    static const int64_t tokens[] = {1, 2, 5, 64, 65, 133, 256, 530, 1024, 2048};
    int n = 0;

    (void)state;
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++, n++) {
            quantize_case p = {.f = &formats[n % 4], .dtype = n % 3 ? SW_DTYPE_BF16 : SW_DTYPE_F16,
                         .m = tokens[t], .k = lengths[i], .gap = n % 5 == 4 ? 8 : 0};

            if (!is_too_much(p.m, p.k)) check_chosen(&p, fill_normal);
        }
}

/* Rows that no wide load may touch. */
static void unaligned_rows(void **state)
{
    static const int64_t lengths[] = {1, 40, 128, 300, 512, 2048, 4100};

    (void)state;
    for (int f = 0; f < N_FORMATS; f++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            quantize_case p = {.f = &formats[f], .dtype = i % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16,
                         .m = i % 2 ? 3 : 70, .k = lengths[i], .gap = i % 3 ? 0 : 5,
                         .shift = i % 3 ? 1 : 0};

            if (is_too_much(p.m, p.k)) p.m = 2;
            check_chosen(&p, fill_normal);
        }
}

/* Each compiled way, by all splits of a CTA into teams that can. */
static void check_ways(quantize_case *p)
{
    for (int w = 0; w < sw_quantize_n_ways; w++)
        for (int tokens = 1; tokens <= 32; tokens += 1 + tokens / 3)
            for (int warps = 1; warps <= 32; warps += 1 + warps / 3) {
                sw_quantize_cut cut = {w, tokens, warps};

                if (!sw_quantize_can(&cut, p->k, quantize_case_is_aligned(p))) continue;
                quantize_case_run(p, &cut, (tokens + warps) % 2, warps % 2);
                must_be_alike(p, &cut);
            }
}

static void every_way(void **state)
{
    static const int64_t sizes[][2] = {{1, 128}, {5, 520}, {35, 1024}, {3, 4104}, {2, 20000}};
    const int n_sizes = DEVICE_IS_EMULATED ? 3 : (int)(sizeof sizes / sizeof *sizes);

    (void)state;
    for (int f = 0; f < 4; f++)
        for (int i = 0; i < n_sizes; i++) {
            quantize_case p = {.f = &formats[f],
                               .dtype = (f + i) % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16,
                               .m = sizes[i][0], .k = sizes[i][1]};

            quantize_case_new(&p);
            fill_rows(&p, fill_normal, (uint64_t)(f + 10 * i));
            check_ways(&p);
            quantize_case_free(&p);
        }
}

/* Every kind of values in every format, by each compiled way. */
static void special_values(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS * N_FILLS * 2; i++) {
        quantize_case p = {.f = &formats[i / 2 % N_FORMATS],
                           .dtype = i % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16, .m = 23, .k = 640};

        quantize_case_new(&p);
        fill_rows(&p, fills[i / 2 / N_FORMATS].fill, (uint64_t)i);
        for (int w = 0; w < sw_quantize_n_ways; w++) {
            const sw_quantize_way *way = &sw_quantize_ways[w];
            sw_quantize_cut cut = {w, way->is_wave ? 9 : 1, way->held == 1 ? 2 : 1};

            quantize_case_run(&p, &cut, false, false);
            if (quantize_case_difference(&p))
                print_message("values: %s\n", fills[i / 2 / N_FORMATS].name);
            must_be_alike(&p, &cut);
        }
        quantize_case_free(&p);
    }
}

/* The token has the largest magnitude `most`; its inputs are all 16-bit numbers up to it. */
static void fill_all_inputs(quantize_case *p, uint16_t most, uint16_t first)
{
    for (int64_t m = 0; m < p->m; m++)
        for (int64_t k = 0; k < p->k; k++) {
            uint16_t bits = (uint16_t)(first + m * p->k + k);

            p->x[m * p->k + k] = (bits & 0x7fff) > most || k % QUANTIZE_GROUP == 0 ? most : bits;
        }
    quantize_case_upload(p);
}

/* Every input there is under some scales. The first is so small that of E4M3 what products leave of
 * x is rounded: quotients that are not by division give other codes. */
static void all_inputs(void **state)
{
    test_rng rng = {5};
    const int n_scales = DEVICE_IS_EMULATED ? 2 : 40;

    (void)state;
    for (int i = 0; i < n_scales * 6; i++) {
        quantize_case p = {.f = &formats[i % 3], .dtype = i / 3 % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16,
                     .m = DEVICE_IS_EMULATED ? 8 : 33, .k = 2048};

        quantize_case_new(&p);
        if (i < 6) fill_all_inputs(&p, 0x04f8, 0);
        else
            fill_all_inputs(&p, (uint16_t)(test_u64(&rng) % infinity_of(p.dtype)),
                            (uint16_t)test_u64(&rng));
        quantize_case_run(&p, NULL, false, false);
        must_be_alike(&p, NULL);
        quantize_case_free(&p);
    }
}

/* The kernels' quotients are those of division: scales' mantissas by a stride, or all of them where
 * SW_ALL_QUOTIENTS is set (a minute), with all mantissas of 16-bit inputs. */
static void quotients_are_rounded_once(void **state)
{
    const uint32_t step = getenv("SW_ALL_QUOTIENTS") ? 1 : DEVICE_IS_EMULATED ? 60013 : 1009;
    int64_t n_wrong = 0, n_products = 0;

    (void)state;
    for (uint32_t s_bits = 0x3f800000; s_bits < 0x40000000; s_bits += step) {
        float scale, inverse;

        memcpy(&scale, &s_bits, sizeof scale);
        inverse = 1 / scale;
        for (int i = 0; i < 1024; i++) {
            float x = 1 + (float)i * 0x1p-10f, q = x * inverse;

            n_products += q != x / scale;
            n_wrong += fmaf(fmaf(q, scale, -x), -inverse, q) != x / scale;
        }
    }
    assert_int_equal(n_wrong, 0);
    assert_true(n_products > 0); /* else a product would do */
}

/* Whatever is chosen can run, waves take no more CTAs than there are multiprocessors, and the cells
 * that this was made for are waves. */
static void choices(void **state)
{
    static const struct { int64_t m, k; const char *way; int tokens, warps; } want[] = {
        {1024, 2048, "wave_1", 8, 4},   {1024, 4096, "wave_2", 8, 4},
        {1024, 8192, "wave_4", 8, 4},   {256, 4096, "wave_1", 2, 8},
        {512, 14336, "wave_4", 4, 7},   {2048, 4096, "wave_4", 16, 2},
        {4096, 2048, "wave_4", 32, 1},  {256, 28672, "wave_4", 2, 14},
        {1024, 14336, "apart_2", 1, 14}, {4096, 8192, "apart_2", 1, 8},
        {64, 8192, "apart_1", 1, 16},   {1, 28672, "long_2", 1, 28},
        {4096, 32776, "any", 1, 32},   {128, 4096, "apart_1", 1, 8},
        {8192, 768, "apart_2", 8, 1},  {2048, 768, "wave_1", 16, 2},
        {512, 768, "apart_1", 1, 2},
    };

    (void)state;
    for (int64_t m = 1; m < 5000; m += 1 + m / 7)
        for (int64_t k = 8; k < 70000; k += 8 * (1 + k / 50)) {
            sw_quantize_cut cut = sw_quantize_cut_of(m, k, true, m % 2, N_SMS_H200);

            assert_true(sw_quantize_can(&cut, k, true));
            if (sw_quantize_ways[cut.way].is_wave)
                assert_true((m + cut.tokens - 1) / cut.tokens <= N_SMS_H200);
            cut = sw_quantize_cut_of(m, k + 1, false, m % 2, N_SMS_H200);
            assert_true(sw_quantize_can(&cut, k + 1, false));
        }
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        sw_quantize_cut cut = sw_quantize_cut_of(want[i].m, want[i].k, true, false, N_SMS_H200);

        assert_string_equal(sw_quantize_ways[cut.way].name, want[i].way);
        assert_int_equal(cut.tokens, want[i].tokens);
        assert_int_equal(cut.warps, want[i].warps);
    }
}

static int way_named(const char *name)
{
    int w = 0;

    while (w < sw_quantize_n_ways && strcmp(sw_quantize_ways[w].name, name) != 0) w++;
    assert_true(w < sw_quantize_n_ways);
    return w;
}

/* What cannot be quantized is refused, and nothing of it written. */
static void refusals(void **state)
{
    quantize_case p = {.f = &formats[0], .dtype = SW_DTYPE_BF16, .m = 2, .k = 1024};
    const int wave = way_named("wave_2"), apart = way_named("apart_1");
    const sw_quantize_cut short_of_warps = {wave, 2, 0}, few = {apart, 1, 1}, odd = {apart, 1, 2};
    sw_act mxfp = {&sw_nums[SW_NUM_E4M3], SW_ACT_GROUP, 32, SW_DTYPE_F8_E8M0}, none = {0};
    sw_act act = quantize_case_act(p.f);
    sw_cuda_codes to = {0};
    sw_err err = {0};

    (void)state;
    quantize_case_new(&p);
    to = sw_cuda_codes_at(p.d_out, p.m, p.k, &act);
    assert_false(sw_quantize_can(&short_of_warps, p.k, true));
    assert_false(sw_quantize_can(&few, p.k, true));
    assert_true(sw_quantize_can(&(sw_quantize_cut){wave, 17, 1}, p.k, true)); /* never meet */
    assert_false(sw_quantize_can(&(sw_quantize_cut){wave, 17, 2}, p.k, true));
    assert_false(sw_quantize_can(&(sw_quantize_cut){apart, 2, 2}, p.k, true));
    assert_true(sw_quantize_can(&(sw_quantize_cut){apart, 2, 1}, 512, true));
    assert_false(sw_quantize_can(&odd, p.k, false));
    assert_int_equal(sw_cuda_quantize_by(&few, &to, p.d_x, p.k, p.dtype, p.m, p.k, &act,
                                         0, false, false, NULL, &err), SW_E_UNSUPPORTED);
    assert_int_equal(sw_cuda_quantize_by(&odd, &to, p.d_x + 2, p.k, p.dtype, p.m, p.k, &act, 0,
                                         false, false, NULL, &err), SW_E_UNSUPPORTED);
    assert_int_equal(sw_cuda_quantize(&to, p.d_x, p.k, p.dtype, p.m, p.k, &mxfp, 0, false, false,
                                      NULL, &err), SW_E_UNSUPPORTED);
    assert_int_equal(sw_cuda_quantize(&to, p.d_x, p.k, p.dtype, p.m, p.k, &none, 0, false, false,
                                      NULL, &err), SW_E_UNSUPPORTED);
    assert_int_equal(sw_cuda_quantize(&to, p.d_x, p.k, p.dtype, 0, p.k, &act, 0, false, false, NULL,
                                      &err), SW_OK);
    quantize_case_free(&p);
}

/* A fault in what came out is seen: otherwise the checks above prove nothing. */
static void faults_show(void **state)
{
    quantize_case p = {.f = &formats[0], .dtype = SW_DTYPE_BF16, .m = 3, .k = 200};
    sw_act act = quantize_case_act(p.f);
    sw_cuda_codes at;
    uint8_t *spots[6];

    (void)state;
    quantize_case_new(&p);
    fill_rows(&p, fill_normal, 1);
    quantize_case_run(&p, NULL, false, false);
    must_be_alike(&p, NULL);
    at = sw_cuda_codes_at(p.out + QUANTIZE_GUARD, p.m, p.k, &act);
    spots[0] = at.d_codes;
    spots[1] = at.d_codes + p.m * 256 - 1; /* behind the last input */
    spots[2] = (uint8_t *)(at.d_scales + 2);
    spots[3] = (uint8_t *)(at.d_sums + 1);
    spots[4] = (uint8_t *)(at.d_scales + p.m);
    spots[5] = p.out + QUANTIZE_GUARD + p.out_bytes;
    for (int i = 0; i < 6; i++) {
        *spots[i] ^= 1;
        assert_non_null(quantize_case_difference(&p));
        *spots[i] ^= 1;
    }
    assert_null(quantize_case_difference(&p));
    quantize_case_free(&p);
}

/* All tests, or those named. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_show),    cmocka_unit_test(special_values),
        cmocka_unit_test(every_way),      cmocka_unit_test(every_length),
        cmocka_unit_test(unaligned_rows), cmocka_unit_test(all_inputs),
        cmocka_unit_test(choices),        cmocka_unit_test(refusals),
        cmocka_unit_test(quotients_are_rounded_once),
    };

    if (!gpu_is_there()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
