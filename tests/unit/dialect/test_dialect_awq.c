/* test_dialect_awq.c - both layouts of awq: the published words, both decoders, the config. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/pack/interleave.h"
#include "tests/support/cases/spec_agree.h"
#include "tests/support/toys/qtensor_gen.h"

static void published_words(void **state)
{
    static const struct { uint8_t codes[8]; uint32_t word; } rows[] = {
        {{0, 1, 2, 3, 4, 5, 6, 7}, 0x75316420},
        {{1, 2, 3, 4, 5, 6, 7, 8}, 0x86427531},
        {{15, 0, 15, 0, 15, 0, 15, 0}, 0x0000ffff},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t word[4], back[8];
        sw_interleave_pack(word, rows[i].codes, 8, 1);
        assert_int_equal(sw_load_le32(word), rows[i].word);
        sw_interleave_unpack(back, word, 8, 1);
        assert_memory_equal(back, rows[i].codes, 8);
    }
}

/* Every code in every place of a word, seen bit by bit. */
static void each_code_has_its_own_nibble(void **state)
{
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

    (void)state;
    for (int j = 0; j < 8; j++)
        for (int code = 0; code < 16; code++) {
            uint8_t codes[8] = {0}, word[4];
            codes[j] = (uint8_t)code;
            sw_interleave_pack(word, codes, 8, 1);
            assert_int_equal(sw_load_le32(word), (uint32_t)code << (4 * place[j]));
        }
}

typedef struct shape {
    int64_t n_out, k_in, group;
} shape;

static int run(const sw_dialect *dialect, const shape *s)
{
    int n_held = 0;

    for (int i = 0; i < 2 * 2 * 3; i++) {
        sw_qtensor q;
        sw_err err = {0};
        sw_gen_qtensor(&q, 4, i % 2 == 0, s->group, i / 2 % 2 ? SW_DTYPE_BF16 : SW_DTYPE_F16,
                       s->n_out, s->k_in, (sw_gen_content)(i / 4), 0, (uint64_t)i + 3);
        spec_tame(&q);
        if (dialect->can_hold(&q.spec, s->n_out, s->k_in, &err) == SW_OK) {
            spec_agree(dialect, &q);
            n_held++;
        } else {
            assert_int_equal(err.code, SW_E_UNSUPPORTED);
        }
        sw_qtensor_free(&q);
    }
    return n_held;
}

static void both_decoders_read_both_layouts(void **state)
{
    static const struct { shape s; bool gemm, gemv; } rows[] = {
        {{32, 128, 32}, true, true},    {{96, 384, 128}, true, true}, {{8, 64, 64}, true, true},
        {{40, 2304, 128}, true, true}, /* 18 groups: three words, the last half full */
        {{72, 136, 0}, true, true},     {{33, 128, 32}, false, true}, {{16, 48, 16}, true, false},
        {{64, 100, 0}, true, false},    {{24, 36, 0}, true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(run(sw_dialect_find("awq"), &rows[i].s), rows[i].gemm ? 12 : 0);
        assert_int_equal(run(sw_dialect_find("awq_gemv"), &rows[i].s), rows[i].gemv ? 12 : 0);
    }
}

static void what_awq_has_no_place_for_is_refused(void **state)
{
    static const struct { int bits; bool scattered; const char *why; } rows[] = {
        {8, false, "holds 4 bits, not 8"}, {3, false, "not 3"}, {4, true, "act-order"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec spec = {.num = sw_num_by_bits(rows[i].bits), .is_symmetric = true,
                         .group_elems = 32, .scale_dtype = SW_DTYPE_F16,
                         .is_scattered = rows[i].scattered};
        sw_err err = {0};
        assert_int_equal(sw_dialect_find("awq")->can_hold(&spec, 64, 128, &err),
                         SW_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, rows[i].why));
    }
}

static void a_symmetric_file_with_another_zero_point_is_broken(void **state)
{
    uint8_t qweight[4 * 32 * 1] = {0}, qzeros[4], scales[2 * 8];
    const void *parts[] = {qweight, qzeros, scales};
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 32,
                     .scale_dtype = SW_DTYPE_F16};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    memset(scales, 0x3c, sizeof scales);
    sw_store_le32(qzeros, 0x88887888); /* nibble 3: channel 6 */
    assert_int_equal(sw_qtensor_alloc(&q, &spec, 8, 32, &err), SW_OK);
    assert_int_equal(sw_dialect_find("awq")->decode(&q, parts, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "7 at row 6"));
    sw_qtensor_free(&q);
}

static void configs_are_read_and_refused(void **state)
{
    static const struct { const char *text, *dialect, *why; sw_code code; int group; } rows[] = {
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"zero_point\":true,"
         "\"version\":\"gemm\",\"modules_to_not_convert\":null}", "awq", NULL, SW_OK, 128},
        {"{\"quant_method\":\"awq\",\"w_bit\":4,\"q_group_size\":64,\"zero_point\":true,"
         "\"version\":\"GEMM\"}", "awq", NULL, SW_OK, 64},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":-1,\"version\":\"gemv\"}",
         "awq_gemv", NULL, SW_OK, 0},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"version\":\"gemv_fast\"}",
         "awq", "gemv_fast", SW_E_UNSUPPORTED, 0},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"backend\":\"llm-awq\"}",
         "awq", "llm-awq", SW_E_UNSUPPORTED, 0},
        {"{\"quant_method\":\"awq\",\"bits\":8,\"group_size\":128}", "awq", "awq of 8 bits",
         SW_E_UNSUPPORTED, 0},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"zero_point\":false}", "awq",
         "zero_point", SW_E_UNSUPPORTED, 0},
        {"{\"quant_method\":\"awq\",\"bits\":4}", "awq", "no \"group_size\"", SW_E_FORMAT, 0},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":16,\"version\":\"gemv\"}",
         "awq_gemv", "groups of 16", SW_E_UNSUPPORTED, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *object = cJSON_Parse(rows[i].text);
        const sw_dialect *dialect = sw_dialect_detect(object);
        sw_qconfig config = {.has_no_default = true};
        sw_arena arena = {0};
        sw_err err = {0};
        assert_non_null(dialect);
        assert_string_equal(dialect->name, rows[i].dialect);
        if (dialect->read_config(&config, object, &arena, &err) != rows[i].code)
            fail_msg("row %zu: %s", i, err.text);
        if (rows[i].why) assert_non_null(strstr(err.text, rows[i].why));
        if (!rows[i].why) assert_int_equal(config.spec.group_elems, rows[i].group);
        if (!rows[i].why) assert_false(config.spec.is_symmetric);
        sw_arena_free(&arena);
        cJSON_Delete(object);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_words),
        cmocka_unit_test(each_code_has_its_own_nibble),
        cmocka_unit_test(both_decoders_read_both_layouts),
        cmocka_unit_test(what_awq_has_no_place_for_is_refused),
        cmocka_unit_test(a_symmetric_file_with_another_zero_point_is_broken),
        cmocka_unit_test(configs_are_read_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
