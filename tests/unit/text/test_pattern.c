/* test_pattern.c - expressions: how they are rewritten, which are refused, what they find, and
 * that a hostile one ends in an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/text/characters/pattern.h"
#include "tests/support/toys/random.h"

static void rewritten(void **state)
{
    static const struct {
        const char *onig, *pcre;
    } rows[] = {
        {"a|b+?(?:c)(?=d)(?!e)(?<=f)(?<!g)(?>h)[i-k]*",
         "a|b+?(?:c)(?=d)(?!e)(?<=f)(?<!g)(?>h)[i-k]*"},
        {"\\p{L}+\\P{Lu}\\p{^N}", "\\p{L}+\\P{Lu}\\p{^N}"},
        {"(?i:x)(?m:.)(?im-i:y)(?-m)", "(?i:x)(?s:.)(?is-i:y)(?-s)"},
        {"a{2}b{2,}c{,3}d{1,2}?", "a{2}b{2,}c{0,3}d{1,2}?"},
        {"{x}a{,}", "{x}a{,}"},
        {"\\u00e9\\x41\\x{1F600}", "\\x{00e9}\\x{41}\\x{1F600}"},
        {"\\d[\\d]\\v\\h[\\h]", "\\p{Nd}[\\p{Nd}]\\x{B}[0-9A-Fa-f][0-9A-Fa-f]"},
        {"[]a][^]b][[:alpha:]_]\\[\\]", "[]a][^]b][[:alpha:]_]\\[\\]"},
        {"[\\b\\n\\-\\]]", "[\\x{8}\\n\\-\\]]"},
        {"\xE2\x96\x81|\\\xC3\xA9", "\xE2\x96\x81|\\\xC3\xA9"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sw_text_buf out = {0};
        sw_err err = {0};
        if (sw_pattern_translate(&out, rows[i].onig, strlen(rows[i].onig), &err) != SW_OK)
            fail_msg("%s: %s", rows[i].onig, err.text);
        if (out.n_bytes != strlen(rows[i].pcre) || memcmp(out.bytes, rows[i].pcre, out.n_bytes))
            fail_msg("%s: have %.*s", rows[i].onig, (int)out.n_bytes, out.bytes);
        sw_text_buf_free(&out);
    }
}

static void refused(void **state)
{
    static const struct {
        const char *onig, *says;
    } rows[] = {
        {"[a-z&&[^b]]", "class intersection"}, {"[a[b]]", "class inside a class"},
        {"a{1,3}+", "+ after an interval"},    {"a{3}?", "? after {n}"},
        {"\\Kx", "escape \\K"},                {"\\Gx", "escape \\G"},
        {"(a)\\1", "escape \\1"},              {"\\k<n>", "escape \\k"},
        {"\\Qx\\E", "escape \\Q"},             {"[\\W]", "escape \\W in [ ]"},
        {"(*UTF)a", "a verb (*"},              {"(?R)", "group options"},
        {"(?<n>a)", "group options"},          {"(?P<n>a)", "group options"},
        {"(?(1)a|b)", "group options"},        {"(?C1)", "group options"},
        {"(?x) a", "group options"},           {"(?i", "group options"},
        {"\\x{12", "unfinished \\x{"},         {"\\xff", "raw byte"},
        {"\\u12", "unfinished"},               {"\\pL", "\\p without {"},
        {"\\p{L", "unfinished \\p{"},          {"[a", "unclosed ["},
        {"a\\", "lone backslash"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sw_text_buf out = {0};
        sw_err err = {0};
        sw_code rc = sw_pattern_translate(&out, rows[i].onig, strlen(rows[i].onig), &err);
        if (rc != SW_E_UNSUPPORTED || !strstr(err.text, rows[i].says))
            fail_msg("%s: %d %s", rows[i].onig, rc, err.text);
        sw_text_buf_free(&out);
    }
}

/* "x" for plain text, "<x>" for a match, one behind the other. */
static void expect_spans(const char *regex, const char *text, const char *want)
{
    sw_pattern pattern = {0};
    sw_pattern_clock clock = {0};
    sw_finder finder;
    sw_span span;
    sw_text_buf have = {0};
    sw_err err = {0};
    bool has_span = true;

    if (sw_pattern_from_regex(&pattern, regex, strlen(regex), &err) != SW_OK)
        fail_msg("%s", err.text);
    sw_pattern_clock_start(&clock, strlen(text));
    sw_finder_start(&finder, &pattern, &clock, text, strlen(text));
    while (sw_finder_next(&finder, &span, &has_span, &err) == SW_OK && has_span) {
        if (span.is_match) assert_int_equal(sw_text_buf_add(&have, "<", 1, &err), SW_OK);
        assert_int_equal(sw_text_buf_add(&have, text + span.begin, span.end - span.begin, &err),
                         SW_OK);
        if (span.is_match) assert_int_equal(sw_text_buf_add(&have, ">", 1, &err), SW_OK);
    }
    assert_int_equal(sw_text_buf_add(&have, "", 1, &err), SW_OK);
    assert_string_equal(have.bytes, want);
    sw_text_buf_free(&have);
    sw_pattern_free(&pattern);
}

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static void found(void **state)
{
    (void)state;
    expect_spans(GPT2, "Hello  world", "<Hello>< >< world>");
    expect_spans("\\p{N}{1,3}", "12345", "<123><45>");
    expect_spans("b", "abcb", "a<b>c<b>");
    expect_spans("x*", "axb", "<>a<x>b<>");
    expect_spans("(?=[A-Z])", "aBC", "a<>B<>C");
    expect_spans("^a|a$", "a\na\nxa\n", "<a>\n<a>\nx<a>\n");
    expect_spans("a.b", "a\nb", "a\nb");
    expect_spans("(?m:a.b)", "a\nb", "<a\nb>");
    expect_spans("\\s", "a\xE1\xA0\x8E \xC2\xA0", "a\xE1\xA0\x8E< ><\xC2\xA0>"); /* U+180E: no */
    expect_spans("[^\\s]", "\xE1\xA0\x8E ", "<\xE1\xA0\x8E> ");
    expect_spans("\\w+", "e\xCC\x81_\xE2\x92\xB6 x", "<e\xCC\x81_\xE2\x92\xB6> <x>");
    expect_spans("\\b", "ab c", "<>ab<> <>c<>");
    expect_spans("(?i:'s)", "'S'\xC5\xBF", "<'S><'\xC5\xBF>");
}

/* Matches far apart, so that a search goes on over many windows of start positions: every one
 * of the characters put at random places is found. */
static void windows(void **state)
{
    enum { N = 60000 };
    static const char *const fillers[] = {".", "\xC3\xA9", "\xE2\x96\x81", "\xF0\x9F\x98\x80"};
    test_rng rng = {3};

    (void)state;
    for (int round = 0; round < 40; round++) {
        const char *filler = fillers[round % 4];
        sw_text_buf text = {0};
        sw_pattern pattern = {0};
        sw_pattern_clock clock = {0};
        sw_finder finder;
        sw_span span;
        sw_err err = {0};
        bool has_span = true;
        int n_put = 0, n_found = 0;
        while (text.n_bytes < N) {
            bool is_hit = test_u64(&rng) % 700 == 0;
            n_put += is_hit;
            assert_int_equal(sw_text_buf_add(&text, is_hit ? "q" : filler,
                                             is_hit ? 1 : strlen(filler), &err), SW_OK);
        }
        assert_int_equal(sw_pattern_from_regex(&pattern, "q", 1, &err), SW_OK);
        sw_pattern_clock_start(&clock, text.n_bytes);
        sw_finder_start(&finder, &pattern, &clock, text.bytes, text.n_bytes);
        while (sw_finder_next(&finder, &span, &has_span, &err) == SW_OK && has_span)
            n_found += span.is_match;
        assert_int_equal(n_found, n_put);
        sw_pattern_free(&pattern);
        sw_text_buf_free(&text);
    }
}

static void hostile_expressions_end(void **state)
{
    static const char *const rows[] = {
        "(a+)+b", "(a|a)*b", "(?:a*)*b", "(a|aa)+$", "((a*)*)*c", "(?:aa|a)*(?:aa|a)*z",
        "(?:.*a){25}",
    };
    enum { N = 1 << 20 };
    char *text = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(SW_MEM_GET(&text, N, "text", &err), SW_OK);
    memset(text, 'a', N);
    memcpy(text + N - 5, "-bczb", 5); /* so that no shortcut sees a character to be missing */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sw_pattern pattern = {0};
        sw_pattern_clock clock = {0};
        sw_finder finder;
        sw_span span;
        bool has_span = true;
        sw_code rc;
        err = (sw_err){0};
        assert_int_equal(sw_pattern_from_regex(&pattern, rows[i], strlen(rows[i]), &err), SW_OK);
        sw_pattern_clock_start(&clock, N);
        sw_finder_start(&finder, &pattern, &clock, text, N);
        while ((rc = sw_finder_next(&finder, &span, &has_span, &err)) == SW_OK && has_span) {
        }
        if (rc != SW_E_FORMAT || !strstr(err.text, "backtracks without bound"))
            fail_msg("%s: %d %s", rows[i], rc, err.text);
        sw_pattern_free(&pattern);
    }
    sw_mem_put(text);
}

/* Nothing is left of the allowance: the next look at the clock ends the walk. */
static void clock_runs_out(void **state)
{
    sw_pattern pattern = {0};
    sw_pattern_clock clock = {0};
    sw_finder finder;
    sw_span span;
    sw_err err = {0};
    bool has_span = true;
    sw_code rc;
    int n_spans = 0;

    (void)state;
    assert_int_equal(sw_pattern_from_regex(&pattern, "a", 1, &err), SW_OK);
    sw_pattern_clock_start(&clock, 0);
    clock.wall_limit_ns = clock.cpu_allowed_ns = INT64_MIN;
    sw_finder_start(&finder, &pattern, &clock, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 40);
    while ((rc = sw_finder_next(&finder, &span, &has_span, &err)) == SW_OK && has_span) n_spans++;
    assert_int_equal(rc, SW_E_FORMAT);
    assert_non_null(strstr(err.text, "too long"));
    assert_in_range(n_spans, 1, 39);
    sw_pattern_free(&pattern);
}

static void too_large_to_compile(void **state)
{
    static const char nested[] = "(?:(?:(?:a{1,99}){1,99}){1,99}){1,99}";
    sw_pattern pattern = {0};
    sw_err err = {0};
    char *deep = NULL;

    (void)state;
    assert_int_equal(sw_pattern_from_regex(&pattern, nested, strlen(nested), &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "too large"));
    err = (sw_err){0};
    assert_int_equal(SW_MEM_GET(&deep, 40000, "text", &err), SW_OK);
    memset(deep, '(', 40000);
    assert_int_equal(sw_pattern_from_regex(&pattern, deep, 40000, &err), SW_E_UNSUPPORTED);
    err = (sw_err){0};
    assert_int_equal(sw_pattern_from_regex(&pattern, deep, 30000, &err), SW_E_FORMAT);
    sw_mem_put(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewritten),
        cmocka_unit_test(refused),
        cmocka_unit_test(found),
        cmocka_unit_test(windows),
        cmocka_unit_test(hostile_expressions_end),
        cmocka_unit_test(clock_runs_out),
        cmocka_unit_test(too_large_to_compile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
