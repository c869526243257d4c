/* test_blocks.c - the block types of GGUF: worked examples, every code, vectors of an independent
 * implementation, and what encoding promises. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/base/size.h"
#include "formats/num/blocks.h"
#include "formats/num/blocks_internal.h"
#include "formats/num/half.h"
#include "formats/num/small.h"
#include "tests/support/toys/random.h"

static void to_hex(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static size_t from_hex(uint8_t *out, const char *hex)
{
    size_t n = 0;
    unsigned byte;

    for (; sscanf(hex + 2 * n, "%2x", &byte) == 1; n++) out[n] = (uint8_t)byte;
    return n;
}

static void assert_hex(const uint8_t *have, size_t n, const char *want)
{
    char text[2 * SW_BLOCK_ELEMS_MAX * 4 + 1];

    to_hex(text, have, n);
    assert_string_equal(text, want);
}

/* x_i = (-1)^i (i mod 9) / 2 */
static void example(float x[32])
{
    for (int i = 0; i < 32; i++) x[i] = (i % 2 ? -0.5f : 0.5f) * (float)(i % 9);
}

static void test_examples(void **state)
{
    static const int8_t q8[] = {0, -16, 32, -48, 64, -79};
    float x[32], back[32];
    uint8_t b[34];

    (void)state;
    example(x);
    assert_int_equal(sw_block_encode(b, SW_BLOCK_Q4_0, x, NULL, 32, SW_BLOCK_PLAIN, NULL), SW_OK);
    assert_hex(b, 18, "00b818f9869b64bd42df20f8078a75ac53ce");
    sw_block_decode(back, b, SW_BLOCK_Q4_0, 32);
    for (int i = 0; i < 32; i++) assert_true(back[i] == (x[i] < -3.5f ? -3.5f : x[i]));
    assert_int_equal(sw_block_encode(b, SW_BLOCK_Q8_0, x, NULL, 32, SW_BLOCK_PLAIN, NULL), SW_OK);
    assert_hex(b, 2, "0828");
    for (int i = 0; i < 6; i++) assert_int_equal((int8_t)b[2 + i], q8[i]);
    sw_block_decode(back, b, SW_BLOCK_Q8_0, 32);
    for (int i = 0; i < 32; i++) assert_true(fabsf(back[i] - x[i]) <= 4.0f / 127);
}

/* The block that mxfp4 stores as 90c3e5e6..., its neighbours 16 apart:
 * x_i = (-1)^i (i mod 8) 0.35 */
static void test_mxfp4_example(void **state)
{
    static const float want[8] = {0, -0.25f, 0.75f, -1, 1.5f, -2, 2, -2};
    float back[32];
    uint8_t b[17];

    (void)state;
    assert_int_equal(from_hex(b, "7e009933cc55ee66ee009933cc55ee66ee"), 17);
    sw_block_decode(back, b, SW_BLOCK_MXFP4, 32);
    for (int i = 0; i < 32; i++) assert_true(back[i] == want[i % 8]);
}

static void test_packed_scales(void **state)
{
    const uint8_t scale[8] = {1, 2, 3, 4, 33, 34, 35, 36};
    const uint8_t min[8] = {10, 11, 12, 13, 48, 49, 50, 51};
    uint8_t packed[12], s[16], m[8];

    (void)state;
    sw_block_k4_pack(packed, scale, min);
    assert_hex(packed, 12, "81828384cacbcccd01122334");
    sw_block_k4_scales(s, m, packed);
    assert_memory_equal(s, scale, 8);
    assert_memory_equal(m, min, 8);
    assert_int_equal(from_hex(packed, "004488cc004488cce4e4e4e4"), 12);
    sw_block_k3_scales(s, packed);
    for (int i = 0; i < 16; i++) assert_int_equal(s[i], 4 * i % 64);
    for (int v = 0; v < 64; v++) { /* every value in every place */
        uint8_t a[8], b[8];
        for (int j = 0; j < 8; j++) {
            a[j] = (uint8_t)((v + 7 * j) % 64);
            b[j] = (uint8_t)((v * 5 + j) % 64);
        }
        sw_block_k4_pack(packed, a, b);
        sw_block_k4_scales(s, m, packed);
        assert_memory_equal(s, a, 8);
        assert_memory_equal(m, b, 8);
    }
}

/* One line: a type, the bytes of a block, the floats that an independent decoder makes of it. */
static void test_golden(void **state)
{
    static char line[8 * SW_BLOCK_ELEMS_MAX + 1024];
    bool seen[SW_BLOCK_TYPE_COUNT] = {false};
    FILE *file = fopen("tests/golden/gguf/blocks.txt", "r");

    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char name[16], block_hex[600], floats_hex[8 * SW_BLOCK_ELEMS_MAX + 1];
        uint8_t block[300], want[4 * SW_BLOCK_ELEMS_MAX];
        float have[SW_BLOCK_ELEMS_MAX];
        sw_block_type type;

        if (line[0] == '#') continue;
        assert_int_equal(sscanf(line, "%15s %599s %2048s", name, block_hex, floats_hex), 3);
        assert_true(sw_block_type_find(&type, name));
        assert_int_equal(from_hex(block, block_hex), sw_block_sizes[type].bytes);
        assert_int_equal(from_hex(want, floats_hex), 4 * sw_block_sizes[type].elems);
        sw_block_decode(have, block, type, sw_block_sizes[type].elems);
        for (int i = 0; i < sw_block_sizes[type].elems; i++)
            if (sw_f32_bits(have[i]) != sw_load_le32(want + 4 * i) &&
                !(have[i] == 0.0f && !(sw_load_le32(want + 4 * i) << 1)))
                fail_msg("%s element %d: have %a, want bits %08x", name, i, (double)have[i],
                         sw_load_le32(want + 4 * i));
        seen[type] = true;
    }
    (void)fclose(file);
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++)
        if (!seen[t] && sw_block_sizes[t].elems > 1)
            fail_msg("%s: no vector", sw_block_sizes[t].name);
}

/* Every point of every lattice: digits, element by element, against the SHA-256 of the table that
 * the Python package gguf 0.19.0 unpacks (a byte per element, levels counted from the lowest). */
static void test_points(void **state)
{
    static const struct {
        const char *name, *sha256;
        const uint16_t *points;
        size_t n;
        unsigned n_elems, n_levels;
    } rows[] = {
        {"IQ2_XXS", "886814bc08b031008eb1086cdbc5c3fae78eecc764a4a6742f8eb839b9f37ef6",
         sw_iq2_xxs_points, 256, 8, 3},
        {"IQ2_XS", "e9567eb15257b717a029c8c1e574ffd87af0c95090552eff83eb6e09b1211046",
         sw_iq2_xs_points, 512, 8, 3},
        {"IQ2_S", "1d4ca1e2fbd2be073bef55f6582ad20109dc746ebd39b5c0780d57ebacc73024",
         sw_iq2_s_points, 1024, 8, 3},
        {"IQ1_S", "bf92c60e2ed15644d2d948b652a55624cc35699ef5c8e0337258e332f8c47b48",
         sw_iq1_s_points, 2048, 8, 3},
        {"IQ3_XXS", "e86540e4e7b2d3375c137ffe84467dc402396c6da24273f9007b5db112172f4c",
         sw_iq3_xxs_points, 256, 4, 8},
        {"IQ3_S", "acb8a458f699e571cf55c9270a4bc15facd6653b40450ce1f449f345c95e4407",
         sw_iq3_s_points, 512, 4, 8},
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        static uint8_t digits[2048 * 8];
        char sha256[SW_SHA256_HEX_BYTES];
        size_t at = 0;

        for (size_t i = 0; i < rows[r].n; i++) {
            unsigned point = rows[r].points[i];

            for (unsigned e = 0; e < rows[r].n_elems; e++, point /= rows[r].n_levels)
                digits[at++] = (uint8_t)(point % rows[r].n_levels);
        }
        assert_int_equal(sw_sha256_hex(sha256, digits, at, NULL), SW_OK);
        if (strcmp(sha256, rows[r].sha256)) fail_msg("%s: %s", rows[r].name, sha256);
    }
}

/* Every F16 and BF16 there is, both ways. */
static void test_halves(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        uint8_t b[2] = {(uint8_t)v, (uint8_t)(v >> 8)}, back[2];
        float x;

        sw_block_decode(&x, b, SW_BLOCK_F16, 1);
        assert_true(sw_f32_bits(x) == sw_f32_bits(sw_f16_decode((uint16_t)v)));
        if (!isfinite(x)) continue;
        assert_int_equal(sw_block_encode(back, SW_BLOCK_F16, &x, NULL, 1, SW_BLOCK_PLAIN, NULL),
                         SW_OK);
        assert_memory_equal(back, b, 2);
        sw_block_decode(&x, b, SW_BLOCK_BF16, 1);
        if (!isfinite(x)) continue;
        assert_int_equal(sw_block_encode(back, SW_BLOCK_BF16, &x, NULL, 1, SW_BLOCK_PLAIN, NULL),
                         SW_OK);
        assert_memory_equal(back, b, 2);
    }
}

/* One code at each place in turn: each element moves by its own code and nothing else does. */
static void test_every_place(void **state)
{
    static const sw_block_type types[] = {SW_BLOCK_Q4_0, SW_BLOCK_Q4_1, SW_BLOCK_Q5_0,
                                          SW_BLOCK_Q5_1, SW_BLOCK_IQ4_NL, SW_BLOCK_MXFP4};
    static const int code_at[] = {2, 4, 6, 8, 2, 1};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int i = 0; i < 32; i++) {
            uint8_t b[24] = {0};
            float before[32], after[32];

            sw_store_le16(b, sw_f16_encode(0.5f));
            if (types[t] == SW_BLOCK_MXFP4) sw_store_le16(b, 127);
            sw_block_decode(before, b, types[t], 32);
            b[code_at[t] + i % 16] = (uint8_t)(3 << (i < 16 ? 0 : 4));
            sw_block_decode(after, b, types[t], 32);
            for (int j = 0; j < 32; j++) assert_true((after[j] != before[j]) == (i == j));
        }
}

static double weighted_error(const float *x, const float *y, const float *w, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        const double e = (double)x[i] - (double)y[i];
        sum += (double)(w ? w[i] : 1.0f) * e * e;
    }
    return sum;
}

/* The search never does worse than the plain rule, and what it puts out is what it counted. */
static void test_search(void **state)
{
    static const sw_block_type types[] = {SW_BLOCK_Q4_0, SW_BLOCK_Q4_1};
    test_rng rng = {7};
    double sum[2][2] = {{0}};

    (void)state;
    for (int round = 0; round < 2000; round++)
        for (int t = 0; t < 2; t++) {
            float x[32], w[32], y[32];
            uint8_t b[20];
            double e[2];

            for (int i = 0; i < 32; i++) {
                x[i] = (float)(test_gauss(&rng) * (i % 7 == round % 7 ? 3 : 1) + t);
                w[i] = (float)(test_uniform(&rng) * test_uniform(&rng));
            }
            for (int how = 0; how < 2; how++) {
                assert_int_equal(sw_block_encode(b, types[t], x, w, 32, (sw_block_how)how, NULL),
                                 SW_OK);
                sw_block_decode(y, b, types[t], 32);
                sum[t][how] += e[how] = weighted_error(x, y, w, 32);
            }
            assert_true(e[1] <= e[0] * (1 + 1e-6));
        }
    assert_true(sum[0][1] < 0.85 * sum[0][0] && sum[1][1] < 0.75 * sum[1][0]);
}

/* Relative squared error of normal weights; the bounds are 2 % above what was measured. An
 * encoder that rounds scales and minima instead of choosing them measures 3 % (Q4_K) more. */
static void test_k_quality(void **state)
{
    static const struct {
        sw_block_type type;
        double most;
    } rows[] = {{SW_BLOCK_Q4_K, 5.06e-3}, {SW_BLOCK_Q6_K, 3.2e-4}, {SW_BLOCK_Q8_0, 2.92e-5}};
    static float x[256 * 400], y[256 * 400];
    static uint8_t b[272 * 400];
    test_rng rng = {11};
    double power = 0;

    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        x[i] = (float)test_gauss(&rng);
        power += (double)x[i] * (double)x[i];
    }
    for (size_t t = 0; t < sizeof rows / sizeof *rows; t++) {
        double e;

        assert_int_equal(sw_block_encode(b, rows[t].type, x, NULL, 256 * 400, SW_BLOCK_SEARCH,
                                         NULL), SW_OK);
        sw_block_decode(y, b, rows[t].type, 256 * 400);
        e = weighted_error(x, y, NULL, 256 * 400) / power;
        if (e > rows[t].most || e < rows[t].most / 1.2)
            fail_msg("%s: %g, want %g", sw_block_sizes[rows[t].type].name, e, rows[t].most);
    }
}

/* Zeros, one value, one sign, tiny, huge: finite scales, and the values come back. */
static void test_extremes(void **state)
{
    static const sw_block_type types[] = {SW_BLOCK_Q4_0, SW_BLOCK_Q4_1, SW_BLOCK_Q8_0,
                                          SW_BLOCK_Q4_K, SW_BLOCK_Q6_K};
    static const float values[] = {0.0f, 1.0f, -1.0f, 1e-30f, -1e-8f, 6e-6f, 6e4f, -6e4f, 1e-42f};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            for (int how = 0; how < 4; how++) {
                float x[256], y[256];
                uint8_t b[300];

                for (int i = 0; i < 256; i++)
                    x[i] = how < 2 || i % 3 ? values[v] : values[v] * 0.5f;
                assert_int_equal(sw_block_encode(b, types[t], x, NULL, 256,
                                                 (sw_block_how)(how % 2), NULL), SW_OK);
                assert_int_equal(sw_block_check(b, types[t], 256, NULL), SW_OK);
                sw_block_decode(y, b, types[t], 256);
                for (int i = 0; i < 256; i++)
                    if (!(fabsf(y[i] - x[i]) <= 0.05f * fabsf(values[v]) + 2e-6f))
                        fail_msg("%s of %g: %g became %g", sw_block_sizes[types[t]].name,
                                 (double)values[v], (double)x[i], (double)y[i]);
            }
}

static void test_refusals(void **state)
{
    float x[256] = {0};
    uint8_t b[300] = {0};
    sw_block_type type;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_block_encode(b, SW_BLOCK_Q5_K, x, NULL, 256, SW_BLOCK_PLAIN, &err),
                     SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "Q5_K"));
    x[37] = NAN;
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_block_encode(b, SW_BLOCK_Q8_0, x, NULL, 256, SW_BLOCK_PLAIN, &err),
                     SW_E_FORMAT);
    assert_non_null(strstr(err.text, "37"));
    b[209] = 0x7c;
    assert_int_equal(sw_block_check(b, SW_BLOCK_Q6_K, 256, NULL), SW_E_FORMAT);
    assert_int_equal(sw_block_check(b, SW_BLOCK_Q4_K, 256, NULL), SW_OK);
    b[17] = 0xff;
    assert_int_equal(sw_block_check(b, SW_BLOCK_MXFP4, 64, NULL), SW_E_FORMAT);
    memset(b, 0, sizeof b);
    assert_int_equal(sw_block_check(b, SW_BLOCK_NVFP4, 64, NULL), SW_OK);
    b[3] = 0x7f; /* no number */
    assert_int_equal(sw_block_check(b, SW_BLOCK_NVFP4, 64, NULL), SW_E_FORMAT);
    b[3] = 0x80; /* a sign */
    assert_int_equal(sw_block_check(b, SW_BLOCK_NVFP4, 64, NULL), SW_E_FORMAT);
    assert_int_equal(sw_block_check(b, SW_BLOCK_IQ1_M, 256, NULL), SW_OK);
    b[53] = 0xc0; /* the exponent of the spread scale is in the nibbles of two bytes */
    b[55] = 0x70;
    assert_int_equal(sw_block_check(b, SW_BLOCK_IQ1_M, 256, NULL), SW_E_FORMAT);
    b[65] = 0x7c;
    assert_int_equal(sw_block_check(b, SW_BLOCK_TQ2_0, 256, NULL), SW_E_FORMAT);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_block_type_by_id(&type, 41, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "Q1_0"));
    for (uint32_t id = 0; id <= 256; id++) /* the list of names is whole in the message */
        if (sw_block_type_by_id(&type, id, &(sw_err){0}) != SW_OK) {
            memset(&err, 0, sizeof err);
            assert_int_equal(sw_block_type_by_id(&type, id, &err), SW_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, "NVFP4"));
        }
    assert_false(sw_block_type_find(&type, "Q9_0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),   cmocka_unit_test(test_mxfp4_example),
        cmocka_unit_test(test_packed_scales),
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_points),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_every_place), cmocka_unit_test(test_search),
        cmocka_unit_test(test_k_quality),  cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
