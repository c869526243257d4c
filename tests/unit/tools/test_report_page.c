/* test_report_page.c - what pages are written with: escaping, numbers, scales, and charts that have
 * nothing to show. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/well_formed.h"
#include "tools/report/page/chart.h"
#include "tools/report/page/frame.h"
#include "tools/report/page/scale.h"

/* The page so far as a text that ends. */
static const char *text_of(sw_html *h)
{
    sw_err err = {0};

    sw_html_raw(h, "");
    assert_int_equal(sw_html_check(h, &err), SW_OK);
    assert_int_equal(sw_print_add(&h->text, "", 1, &err), SW_OK);
    h->text.n_bytes--;
    return h->text.at;
}

static void assert_sound(sw_html *h)
{
    const char *why = "", *text = text_of(h);

    if (!is_well_formed(text, strlen(text), &why)) fail_msg("%s", why);
}

static void test_the_checker_finds_what_is_wrong(void **state)
{
    static const char *const bad[] = {"<p>", "<p></b>", "</p>", "<p a=1></p>", "<p a=\"<\"/>",
                                      "a & b", "<p a=\"1\" a=\"2\"/>", "<p><b></p></b>", "\x01",
                                      "<script><![CDATA[ x", "a < b", "<p a=\"x/>"};
    static const char *const good[] = {"", "a", "<p/>", "<p a=\"1\" b=\"&amp;\">x&#39;</p>",
                                       "<!DOCTYPE html>\n<p><![CDATA[ a < b & c ]]></p>"};
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (is_well_formed(bad[i], strlen(bad[i]), &why)) fail_msg("passes: %s", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!is_well_formed(good[i], strlen(good[i]), &why)) fail_msg("%s: %s", good[i], why);
}

static void test_texts_are_escaped(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"", ""},
        {"q_proj", "q_proj"},
        {"<script>alert('1')</script>", "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"},
        {"\" onload=\"x", "&quot; onload=&quot;x"},
        {"a && b", "a &amp;&amp; b"},
        {"]]>", "]]&gt;"},
        {"%s %d", "%s %d"},
        {"\xC3\xA9\xF0\x9F\x98\x80", "\xC3\xA9\xF0\x9F\x98\x80"},
        {"a\x01\x1F\x7F", "a\\u0001\\u001F\\u007F"},
        {"\t\r\n", "\\u0009\\u000D\n"},
        {"\xFF<\xC3", "\\xFF&lt;\\xC3"},
        {"\xED\xA0\x80", "\\xED\\xA0\\x80"},                   /* half of a pair */
        {"a\xE2\x80\xAE" "b", "a\\u202Eb"},                    /* turns the direction */
        {"\xEF\xBF\xBE\xC2\x85\xEF\xBB\xBF", "\\uFFFE\\u0085\\uFEFF"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sw_html h = {0};
        sw_html_put(&h, "%s", rows[i].text);
        assert_string_equal(text_of(&h), rows[i].want);
        sw_html_free(&h);
    }
}

static void test_formats(void **state)
{
    sw_html h = {0};

    (void)state;
    sw_html_text(&h, NULL);
    sw_html_put(&h, "<p a=\"%s\">%d|%lld|%zu|%.1f|%.3g|100%%|%f|%.2e</p>", "\"&", -3,
                (long long)1 << 40, (size_t)7, 2.25, 1e-9, (double)NAN, (double)INFINITY);
    assert_string_equal(text_of(&h), "<p a=\"&quot;&amp;\">-3|1099511627776|7|2.2|1e-09|100%|"
                                     "\xE2\x80\x93|\xE2\x80\x93</p>");
    sw_html_free(&h);
}

static void test_a_failure_stays(void **state)
{
    sw_html h = {0};
    sw_err err = {0};

    (void)state;
    sw_html_raw(&h, "a");
    (void)SW_FAIL(&h.err, SW_E_NOMEM, "no memory");
    sw_html_put(&h, "%s", "b");
    assert_int_equal(h.text.n_bytes, 1);
    assert_int_equal(sw_html_check(&h, &err), SW_E_NOMEM);
    assert_string_equal(err.text, "no memory");
    sw_html_free(&h);
}

static void test_numbers_for_people(void **state)
{
    char text[SW_SHOWN_BYTES];

    (void)state;
    assert_string_equal(sw_show_count(text, 0), "0");
    assert_string_equal(sw_show_count(text, 999), "999");
    assert_string_equal(sw_show_count(text, 1234567), "1,234,567");
    assert_string_equal(sw_show_count(text, -1234), "-1,234");
    assert_string_equal(sw_show_count(text, -123), "-123");
    assert_string_equal(sw_show_count(text, (double)NAN), "\xE2\x80\x93");
    assert_string_equal(sw_show_percent(text, 0.4865), "48.65 %");
    assert_string_equal(sw_show_percent(text, 0), "0.00 %");
    assert_string_equal(sw_show_percent(text, 1.5e-6), "0.00015 %");
    assert_string_equal(sw_show_real(text, (double)INFINITY), "\xE2\x80\x93");
    assert_string_equal(sw_show_bytes(text, (double)NAN), "\xE2\x80\x93");
}

static void test_ticks_are_round_and_within(void **state)
{
    static const double ends[][2] = {{0, 1}, {0.0452, 0.0543}, {-3, 8}, {1e9, 1.00001e9},
                                     {5, 5}, {0, 0}, {1e-7, 4e3}, {2, 5}};
    double ticks[SW_TICKS_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        for (int is_log = 0; is_log < 2; is_log++) {
            sw_scale s = sw_scale_over(ends[i][0], ends[i][1], is_log, 10, 110);
            int n = sw_scale_ticks(ticks, &s);
            assert_in_range(n, 1, SW_TICKS_MAX);
            for (int t = 0; t < n; t++) {
                double px = sw_scale_px(&s, ticks[t]);
                assert_true(px >= 9.999 && px <= 110.001);
                assert_true(!t || ticks[t] > ticks[t - 1]);
            }
        }
}

static void label(char text[SW_LABEL_BYTES], const void *self, int64_t row, int64_t col)
{
    (void)snprintf(text, SW_LABEL_BYTES, "%s <%d, %d>", (const char *)self, (int)row, (int)col);
}

static void draw_all(sw_html *h, int n, double v)
{
    static const char *const names[] = {"a<b>", "\"c\"", "d&e", "f"};
    const double values[4] = {v, (double)NAN, 2 * v, 0};
    const int64_t counts[4] = {0, 7, (int64_t)v, 1};
    const sw_dot dots[2] = {{"x<y", 0, v, v / 2, 2 * v}, {"z", 1, v, (double)NAN, (double)NAN}};
    const sw_xy_point points[2] = {{v, v, (double)NAN, (double)NAN, 0, "<p>", "<l>"},
                                   {2 * v, v, v, 2 * v, 1, NULL, "q"}};
    const sw_xy_series series[2] = {{.at = points, .n = n ? 2 : 0, .is_line = true, .name = "<s>"},
                                    {.at = points, .n = n ? 2 : 0}};
    const sw_heat heat = {"<t>", "d&", "r", "c", names, n ? 2 : 0, n ? 2 : 0, values, v, 2 * v,
                          true, true, false, label, "<self>"};
    const sw_bars bars = {"t", "d", "u", 0, 4, false, true, n, counts, 100, 50};
    const sw_dots chart = {"t", "d", dots, n ? 2 : 0, v, "<limit>", true};
    const sw_xy xy = {"t", "d", "<x>", "y", true, true, series, 2};
    const sw_stack stack = {"t", "d", names, names + 2, values, n ? 2 : 0, n ? 2 : 0,
                            sw_show_bytes};

    sw_heat_draw(h, &heat);
    sw_bars_draw(h, &bars);
    sw_dots_draw(h, &chart);
    sw_xy_draw(h, &xy);
    sw_stack_draw(h, &stack);
}

static int count_of(const char *text, const char *what)
{
    int n = 0;

    while ((text = strstr(text, what)) != NULL) {
        n++;
        text += strlen(what);
    }
    return n;
}

static void test_charts_have_their_marks(void **state)
{
    sw_html h = {0};

    (void)state;
    draw_all(&h, 4, 3.0);
    assert_sound(&h);
    /* 3 cells, 3 bars, 2 dots, 2 points, 2 parts: the rest is NaN or 0 */
    assert_int_equal(count_of(text_of(&h), "class=\"m\""), 3 + 3 + 2 + 2 + 2);
    assert_int_equal(count_of(text_of(&h), "<svg "), 5);
    assert_int_equal(count_of(text_of(&h), "<desc "), 5);
    assert_null(strstr(text_of(&h), "nan"));
    sw_html_free(&h);
}

static void test_charts_of_nothing(void **state)
{
    static const double odd[] = {0, (double)NAN, 1e300, 5e-324, -1, (double)INFINITY};

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (int n = 0; n <= 4; n += 4) {
            sw_html h = {0};
            /* counts are whole numbers, so that only charts of floats meet the odd ones */
            if (n && !(odd[i] >= -1 && odd[i] < 1e18)) continue;
            draw_all(&h, n, odd[i]);
            assert_sound(&h);
            assert_null(strstr(text_of(&h), "nan"));
            assert_null(strstr(text_of(&h), "inf"));
            sw_html_free(&h);
        }
}

static void test_a_page_trusts_its_own_script_alone(void **state)
{
    sw_html h = {0};
    const char *text;

    (void)state;
    sw_page_begin(&h, "</title><script>x()</script>");
    sw_page_end(&h);
    assert_sound(&h);
    text = text_of(&h);
    assert_int_equal(count_of(text, "<script"), 1);
    assert_int_equal(count_of(text, "default-src 'none'"), 1);
    assert_int_equal(count_of(text, "'sha256-"), 2);
    assert_null(strstr(text, "http:"));
    assert_null(strstr(text, "https:"));
    assert_null(strstr(text, "url("));
    assert_null(strstr(text, "@import"));
    sw_html_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_checker_finds_what_is_wrong),
        cmocka_unit_test(test_texts_are_escaped),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_a_failure_stays),
        cmocka_unit_test(test_numbers_for_people),
        cmocka_unit_test(test_ticks_are_round_and_within),
        cmocka_unit_test(test_charts_have_their_marks),
        cmocka_unit_test(test_charts_of_nothing),
        cmocka_unit_test(test_a_page_trusts_its_own_script_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
