/* test_words.c - word streams: the published bit patterns, the drawn shapes, and the inverse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/pack/words.h"
#include "tests/support/toys/qtensor_gen.h"

static void expect_words(const uint8_t *codes, int64_t n, int bits, int bias,
                         const uint32_t *want, int n_want)
{
    uint32_t have[4] = {0};
    uint8_t back[64];
    sw_words at;

    assert_int_equal(sw_words_count(n, bits), n_want);
    sw_packs[SW_PACK_K_WORDS].layout(&at, 1, n, bits);
    sw_words_pack(have, codes, &at, bias);
    for (int i = 0; i < n_want; i++) assert_int_equal(have[i], want[i]);
    sw_words_unpack(back, have, &at, -bias);
    assert_memory_equal(back, codes, (size_t)n);
}

/* formats: gptq, bit order and zero points; compressed-tensors, pack-quantized. */
static void published_patterns(void **state)
{
    uint8_t ramp3[32], zeros8[8], zeros128[4], zeros2[16];

    (void)state;
    for (int i = 0; i < 32; i++) ramp3[i] = (uint8_t)(i % 8);
    memset(zeros8, 8, sizeof zeros8);
    memset(zeros128, 128, sizeof zeros128);
    memset(zeros2, 2, sizeof zeros2);
    expect_words((uint8_t[]){1, 2, 3, 4, 5, 6, 7, 8}, 8, 4, 0, (uint32_t[]){0x87654321}, 1);
    expect_words((uint8_t[]){0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, 16, 2, 0,
                 (uint32_t[]){0xe4e4e4e4}, 1);
    expect_words((uint8_t[]){1, 2, 254, 255}, 4, 8, 0, (uint32_t[]){0xfffe0201}, 1);
    expect_words(ramp3, 32, 3, 0, (uint32_t[]){0x88fac688, 0xc688fac6, 0xfac688fa}, 3);
    expect_words(zeros8, 8, 4, 0, (uint32_t[]){0x88888888}, 1);
    expect_words(zeros8, 8, 4, -1, (uint32_t[]){0x77777777}, 1);
    expect_words(zeros128, 4, 8, 0, (uint32_t[]){0x80808080}, 1);
    expect_words(zeros128, 4, 8, -1, (uint32_t[]){0x7f7f7f7f}, 1);
    expect_words(zeros2, 16, 2, 0, (uint32_t[]){0xaaaaaaaa}, 1);
    expect_words(zeros2, 16, 2, -1, (uint32_t[]){0x55555555}, 1);
    expect_words((uint8_t[]){0, 5, 8, 15, 1, 2, 3, 4}, 8, 4, 0, (uint32_t[]){0x4321f850}, 1);
    expect_words((uint8_t[]){0, 5, 8, 15, 1, 2, 3, 4}, 8, 4, -1, (uint32_t[]){0x3210e74f}, 1);
    /* offset binary: -8..-1 and 0..7 stored as code + 8; int8 -128, -1, 0, 127 as code + 128 */
    expect_words((uint8_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8, 4, 0, (uint32_t[]){0x76543210}, 1);
    expect_words((uint8_t[]){8, 9, 10, 11, 12, 13, 14, 15}, 8, 4, 0, (uint32_t[]){0xfedcba98}, 1);
    expect_words((uint8_t[]){0, 127, 128, 255}, 4, 8, 0, (uint32_t[]){0xff807f00}, 1);
    expect_words((uint8_t[]){0, 5, 8, 15, 8, 8, 8, 8}, 8, 4, 0, (uint32_t[]){0x8888f850}, 1);
}

/* Bit i*b of stream s, read one bit at a time from the shape that words.h draws. */
static int read_code(const uint32_t *words, int row, int column, int rows, int columns, int bits,
                     sw_pack_id id)
{
    int along_k = id == SW_PACK_K_WORDS || id == SW_PACK_K_WORDS_T;
    int i = along_k ? column : row, code = 0;
    int n_words = (int)sw_words_count(along_k ? columns : rows, bits);

    for (int b = 0; b < bits; b++) {
        int w = (i * bits + b) / 32, at = 0;
        if (id == SW_PACK_K_WORDS) at = row * n_words + w;
        if (id == SW_PACK_K_WORDS_T) at = w * rows + row;
        if (id == SW_PACK_N_WORDS) at = w * columns + column;
        if (id == SW_PACK_N_WORDS_T) at = column * n_words + w;
        code |= (int)((words[at] >> ((i * bits + b) % 32)) & 1u) << b;
    }
    return code;
}

static void try_shape(sw_pack_id id, int rows, int columns, int bits)
{
    uint8_t codes[40 * 100], back[40 * 100];
    uint32_t words[40 * 100];
    uint64_t seed = (uint64_t)(rows * 977 + columns * 31 + bits);
    sw_words at;

    for (int i = 0; i < rows * columns; i++)
        codes[i] = (uint8_t)(sw_gen_next(&seed) & ((1u << bits) - 1u));
    memset(words, 0xa5, sizeof words);
    memset(back, 0xff, sizeof back);
    sw_packs[id].layout(&at, rows, columns, bits);
    sw_words_pack(words, codes, &at, 0);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            assert_int_equal(read_code(words, r, c, rows, columns, bits, id),
                             codes[r * columns + c]);
    assert_int_equal(words[at.n_streams * sw_words_count(at.n_codes, bits)], 0xa5a5a5a5);
    sw_words_unpack(back, words, &at, 0);
    assert_memory_equal(back, codes, (size_t)(rows * columns));
    sw_words_pack(words, codes, &at, -1);
    sw_words_unpack(back, words, &at, 1);
    assert_memory_equal(back, codes, (size_t)(rows * columns));
}

static void each_order_puts_each_code_where_it_is_drawn(void **state)
{
    static const int widths[] = {2, 3, 4, 8};
    static const int shapes[][2] = {{1, 1}, {8, 32}, {33, 7}, {17, 96}, {40, 99}};

    (void)state;
    for (int id = SW_PACK_K_WORDS; id <= SW_PACK_N_WORDS_T; id++)
        for (int s = 0; s < 5; s++)
            for (int w = 0; w < 4; w++)
                try_shape((sw_pack_id)id, shapes[s][0], shapes[s][1], widths[w]);
}

static void padding_bits_are_zero_when_written_and_ignored_when_read(void **state)
{
    uint8_t codes[3] = {15, 15, 15}, back[3];
    uint32_t word = 0;
    sw_words at;

    (void)state;
    sw_packs[SW_PACK_K_WORDS].layout(&at, 1, 3, 4);
    sw_words_pack(&word, codes, &at, 0);
    assert_int_equal(word, 0xfff);
    word |= 0xfffff000u;
    sw_words_unpack(back, &word, &at, 0);
    assert_memory_equal(back, codes, 3);
}

static void every_row_has_a_name_and_a_summary(void **state)
{
    (void)state;
    for (int i = 0; i < SW_PACK_COUNT; i++) {
        assert_non_null(sw_packs[i].name);
        assert_true(strlen(sw_packs[i].summary) > 10 && strlen(sw_packs[i].summary) < 80);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_patterns),
        cmocka_unit_test(each_order_puts_each_code_where_it_is_drawn),
        cmocka_unit_test(padding_bits_are_zero_when_written_and_ignored_when_read),
        cmocka_unit_test(every_row_has_a_name_and_a_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
