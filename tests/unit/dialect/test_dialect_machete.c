/* test_dialect_machete.c - machete: equality with the layout that CUTLASS's algebra computes, both
 * decoders, the config, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/pack/machete.h"
#include "tests/support/cases/spec_agree.h"
#include "tests/support/toys/qtensor_gen.h"

enum { N_OUT = 256, K_IN = 192 };

static const sw_dialect *machete(void) { return sw_dialect_find("machete"); }

/* A mode of a CuTe layout: so many elements, so far apart. */
typedef struct mode {
    int64_t size, stride;
} mode;

static int64_t walk(int64_t at, const mode *modes, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++) {
        sum += at % modes[i].size * modes[i].stride;
        at /= modes[i].size;
    }
    return sum;
}

/* What CUTLASS prints for the block of vLLM's layout: ((8,2,8),(2,4,(2,4))) :
 * ((128,1,1024),(4,32,(2,8))) at 4 bits, ((128,2,1024),(1,32,(4,8))) without interleaving at 8;
 * blocks (2,3) : (8192,16384) of 256 x 192. */
static int64_t by_algebra(int64_t n, int64_t k, int bits)
{
    static const mode n4[] = {{8, 128}, {2, 1}, {8, 1024}, {2, 8192}};
    static const mode k4[] = {{2, 4}, {4, 32}, {2, 2}, {4, 8}, {3, 16384}};
    static const mode n8[] = {{8, 128}, {2, 2}, {8, 1024}, {2, 8192}};
    static const mode k8[] = {{2, 1}, {4, 32}, {2, 4}, {4, 8}, {3, 16384}};

    return bits == 4 ? walk(n, n4, 4) + walk(k, k4, 5) : walk(n, n8, 4) + walk(k, k8, 5);
}

static void codes_lie_where_the_algebra_says(void **state)
{
    static uint8_t codes[N_OUT * K_IN], bytes[N_OUT * K_IN], back[N_OUT * K_IN];

    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        for (int i = 0; i < N_OUT * K_IN; i++)
            codes[i] = (uint8_t)((unsigned)i * 2654435761u >> 24 & ((1u << bits) - 1));
        sw_machete_pack(bytes, codes, bits, N_OUT, K_IN);
        for (int64_t n = 0; n < N_OUT; n++)
            for (int64_t k = 0; k < K_IN; k++) {
                int64_t at = by_algebra(n, k, bits);
                int have = bits == 8 ? bytes[at] : bytes[at / 2] >> (at % 2 ? 4 : 0) & 15;
                if (have != codes[n * K_IN + k])
                    fail_msg("%d bits, channel %lld, input %lld: have %d, want %d", bits,
                             (long long)n, (long long)k, have, codes[n * K_IN + k]);
            }
        sw_machete_unpack(back, bytes, bits, N_OUT, K_IN);
        assert_memory_equal(back, codes, sizeof codes);
    }
}

/* Neighbouring inputs are 16 bits apart, and a lane's codes lie together. */
static void first_bytes_by_hand(void **state)
{
    static uint8_t codes[128 * 64], bytes[128 * 32];

    (void)state;
    for (int n = 0; n < 128; n++)
        for (int k = 0; k < 64; k++) codes[n * 64 + k] = (uint8_t)(k % 16);
    sw_machete_pack(bytes, codes, 4, 128, 64);
    /* lane 0: inputs 0 and 8 of channels 0 and 8: 0 0 8 8; then 1 and 9 */
    assert_int_equal(bytes[0], 0x00);
    assert_int_equal(bytes[1], 0x88);
    assert_int_equal(bytes[2], 0x11);
    assert_int_equal(bytes[3], 0x99);
}

static void both_decoders_agree(void **state)
{
    static const int64_t groups[] = {0, 64, 128};

    (void)state;
    for (int i = 0; i < 6; i++) {
        sw_qtensor q;
        sw_gen_qtensor(&q, i % 2 ? 8 : 4, true, groups[i / 2], SW_DTYPE_BF16, 128, 256,
                       SW_GEN_RANDOM, 0, (uint64_t)i);
        spec_tame(&q);
        spec_agree(machete(), &q);
        sw_qtensor_free(&q);
    }
}

static void configs_come_back(void **state)
{
    static const char *const ignore[] = {"a.b"};
    sw_qconfig config = {.spec = {.num = sw_num_by_bits(4), .is_symmetric = true,
                                  .group_elems = 128, .scale_dtype = SW_DTYPE_BF16},
                         .ignore = ignore, .n_ignore = 1, .has_head = true};
    sw_qconfig back = {.spec.scale_dtype = SW_DTYPE_BF16};
    sw_arena arena = {0};
    cJSON *object = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(machete()->write_config(&object, &config, &err), SW_OK);
    assert_ptr_equal(sw_dialect_detect(object), machete());
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(object, "lm_head")));
    assert_int_equal(machete()->read_config(&back, object, &arena, &err), SW_OK);
    assert_true(sw_qspec_same(&back.spec, &config.spec));
    assert_int_equal(back.n_ignore, 1);
    cJSON_Delete(object);
    sw_arena_free(&arena);
}

static void others_are_refused(void **state)
{
    static const struct { int bits; bool sym; int64_t group, n, k; const char *says; } rows[] = {
        {4, false, 128, 128, 128, "zero points"}, {4, true, 32, 128, 128, "not 32"},
        {3, true, 64, 128, 128, "not 3"}, {4, true, 64, 64, 128, "multiple of 128"},
        {8, true, 0, 128, 96, "multiple of 64"}};
    static const char *const configs[] = {
        "{\"quant_method\":\"machete\",\"bits\":4,\"group_size\":32,\"sym\":true}",
        "{\"quant_method\":\"machete\",\"bits\":3,\"group_size\":64,\"sym\":true}",
        "{\"quant_method\":\"machete\",\"bits\":4,\"group_size\":64,\"sym\":false}"};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec spec = {.num = sw_num_by_bits(rows[i].bits), .is_symmetric = rows[i].sym,
                         .group_elems = rows[i].group, .scale_dtype = SW_DTYPE_F16};
        sw_err err = {0};
        assert_int_equal(machete()->can_hold(&spec, rows[i].n, rows[i].k, &err),
                         SW_E_UNSUPPORTED);
        if (!strstr(err.text, rows[i].says)) fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        cJSON *object = cJSON_Parse(configs[i]);
        sw_qconfig back = {0};
        sw_arena arena = {0};
        sw_err err = {0};
        assert_int_equal(machete()->read_config(&back, object, &arena, &err), SW_E_UNSUPPORTED);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_lie_where_the_algebra_says),
        cmocka_unit_test(first_bytes_by_hand),
        cmocka_unit_test(both_decoders_agree),
        cmocka_unit_test(configs_come_back),
        cmocka_unit_test(others_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
