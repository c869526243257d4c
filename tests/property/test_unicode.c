/* test_unicode.c - code points to bytes and back, and the laws of the normalization forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/text/characters/unicode.h"
#include "tests/support/toys/random.h"

static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char bytes[5] = {'x', 0, 0, 0, 0};
        size_t n, bad_at = 0;
        uint32_t back = 0;
        if (c == 0xD800) c = 0xE000;
        n = sw_utf8_put(bytes + 1, c);
        assert_true(sw_utf8_is_valid(bytes + 1, n, &bad_at));
        assert_int_equal(sw_utf8_next(&back, bytes, 1), 1 + n);
        assert_int_equal(back, c);
        assert_int_equal(sw_utf8_back(bytes, 1 + n), 1);
    }
}

/* White_Space of the Unicode character database, in full. */
static void spaces(void **state)
{
    static const uint32_t all[] = {0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,
                                   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                   0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                   0x2029, 0x202F, 0x205F, 0x3000};
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_true(sw_char_is_space(all[i]));
    for (uint32_t c = 0; c < 0x110000; c++) n += sw_char_is_space(c);
    assert_int_equal(n, sizeof all / sizeof all[0]);
}

static void classes(void **state)
{
    uint32_t lower[2];

    (void)state;
    assert_true(sw_char_is_word('_') && sw_char_is_word(0x301) && sw_char_is_word(0x24B6));
    assert_false(sw_char_is_word('-') || sw_char_is_word(0xBD) || sw_char_is_word(0x1F600));
    assert_true(sw_char_is_number('7') && sw_char_is_number(0xBD) && sw_char_is_number(0x2167));
    assert_false(sw_char_is_number('x') || sw_char_is_number(0));
    assert_true(sw_char_is_punct('$') && sw_char_is_punct('_') && sw_char_is_punct(0x3002));
    assert_false(sw_char_is_punct(0) || sw_char_is_punct('a') || sw_char_is_punct(0xA9));
    assert_int_equal(sw_char_lower(lower, 0x130), 2);
    assert_int_equal(sw_char_lower(lower, 0xC9), 1);
    assert_int_equal(lower[0], 0xE9);
}

/* Mostly what normalization changes: marks, precomposed letters, jamo, compatibility forms. */
static uint32_t random_point(test_rng *rng)
{
    static const uint32_t ranges[][2] = {
        {0x20, 0x7E},     {0xA0, 0x24F},    {0x300, 0x36F},   {0x1E00, 0x1FFE}, {0x1100, 0x11FF},
        {0xAC00, 0xD7A3}, {0x3040, 0x30FF}, {0x4E00, 0x4EFF}, {0xF900, 0xFAFF}, {0xFF00, 0xFFEF},
        {0x900, 0x97F},   {0x2100, 0x218F}, {0xFB00, 0xFB4F}, {0x591, 0x5C7},   {0x10400, 0x1044F},
    };
    const uint32_t *range = ranges[test_u64(rng) % (sizeof ranges / sizeof ranges[0])];

    return range[0] + (uint32_t)(test_u64(rng) % (range[1] - range[0] + 1));
}

static void random_text(sw_text_buf *text, test_rng *rng)
{
    int n = (int)(test_u64(rng) % 40);
    sw_err err = {0};

    text->n_bytes = 0;
    for (int i = 0; i < n; i++)
        assert_int_equal(sw_text_buf_add_char(text, random_point(rng), &err), SW_OK);
}

static void run(sw_text_buf *out, const char *form, const sw_text_buf *in)
{
    sw_normal_scratch scratch = {0};
    sw_err err = {0};
    size_t bad_at = 0;

    out->n_bytes = 0;
    if (sw_normalize(out, sw_normal_form_find(form), in->bytes, in->n_bytes, &scratch, &err) !=
        SW_OK)
        fail_msg("%s", err.text);
    assert_true(sw_utf8_is_valid(out->bytes, out->n_bytes, &bad_at));
    sw_normal_scratch_free(&scratch);
}

static void expect_same(const sw_text_buf *a, const sw_text_buf *b, const char *law)
{
    if (a->n_bytes != b->n_bytes || (a->n_bytes && memcmp(a->bytes, b->bytes, a->n_bytes) != 0))
        fail_msg("%s: \"%.*s\" and \"%.*s\"", law, (int)a->n_bytes, a->bytes, (int)b->n_bytes,
                 b->bytes);
}

/* UAX #15: each form is a fixed point of itself, and absorbs the weaker ones. */
static void laws_of_the_forms(void **state)
{
    static const struct {
        const char *first, *then, *same_as;
    } laws[] = {
        {"NFC", "NFC", "NFC"},   {"NFD", "NFD", "NFD"},    {"NFKC", "NFKC", "NFKC"},
        {"NFKD", "NFKD", "NFKD"}, {"NFD", "NFC", "NFC"},    {"NFC", "NFD", "NFD"},
        {"NFC", "NFKC", "NFKC"},  {"NFD", "NFKD", "NFKD"},  {"NFKC", "NFC", "NFKC"},
        {"NFKD", "NFC", "NFKC"},  {"NFKD", "NFKC", "NFKC"}, {"NFKC", "NFKD", "NFKD"},
    };
    test_rng rng = {5};
    sw_text_buf text = {0}, a = {0}, b = {0}, c = {0};

    (void)state;
    for (int round = 0; round < 3000; round++) {
        random_text(&text, &rng);
        for (size_t i = 0; i < sizeof laws / sizeof laws[0]; i++) {
            run(&a, laws[i].first, &text);
            run(&b, laws[i].then, &a);
            run(&c, laws[i].same_as, &text);
            expect_same(&b, &c, laws[i].first);
        }
    }
    sw_text_buf_free(&text);
    sw_text_buf_free(&a);
    sw_text_buf_free(&b);
    sw_text_buf_free(&c);
}

/* Half a million marks in the worst order: sorted by class, stable within one, and promptly. */
static void long_run_of_marks(void **state)
{
    enum { N = 250000 };
    sw_text_buf text = {0}, out = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_text_buf_add(&text, "x", 1, &err), SW_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(sw_text_buf_add_char(&text, 0x301, &err), SW_OK); /* class 230 */
        assert_int_equal(sw_text_buf_add_char(&text, i & 1 ? 0x323 : 0x324, &err), SW_OK); /* 220 */
    }
    run(&out, "NFD", &text);
    assert_int_equal(out.n_bytes, text.n_bytes);
    for (int i = 0; i < 2 * N; i++) {
        uint32_t c;
        (void)sw_utf8_next(&c, out.bytes, 1 + 2 * (size_t)i);
        assert_int_equal(c, i >= N ? 0x301 : i & 1 ? 0x323 : 0x324);
    }
    sw_text_buf_free(&text);
    sw_text_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),  cmocka_unit_test(spaces),
        cmocka_unit_test(classes),           cmocka_unit_test(laws_of_the_forms),
        cmocka_unit_test(long_run_of_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
