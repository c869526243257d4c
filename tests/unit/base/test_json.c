/* test_json.c - JSON behind caps: what is read, what is refused and where, and typed reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <math.h>
#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/io/file_content.h"
#include "tests/support/scratch.h"

#define TEXT(t) t, sizeof t - 1 /* not strlen: some have a NUL inside */

static const struct {
    const char *text;
    size_t n_bytes;
} good[] = {
    {TEXT("{}")}, {TEXT("[]")}, {TEXT("0")}, {TEXT("-0")}, {TEXT("\"x\"")}, {TEXT("true")},
    {TEXT("null")},
    {TEXT(" \t\r\n[ 1 , 2 ] \n")}, {TEXT("[0.5,-1.25e+10,1E-7,10]")}, {TEXT("{\"\":{\"\":0}}")},
    {TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\\uffff\"")},
    {TEXT("\"\x7f\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"")},
    {TEXT("[[[[[[[[1]]]]]]]]")}, {TEXT("{\"a\":1,\"A\":2,\"aa\":3}")}, {TEXT("\"\\\\u0000\"")},
};

static const struct {
    const char *text;
    size_t n_bytes;
    size_t at; /* where the message must point */
    const char *word;
} bad[] = {
    {TEXT(""), 0, "too early"},
    {TEXT("  "), 2, "too early"},
    {TEXT("{"), 1, "too early"},
    {TEXT("[1,"), 3, "too early"},
    {TEXT("[1"), 2, "too early"},
    {TEXT("\"abc"), 4, "without an end"},
    {TEXT("\"abc\\"), 5, "bad escape"},
    {TEXT("\"\\x\""), 3, "bad escape"},
    {TEXT("\"\\u12g4\""), 3, "bad escape"},
    {TEXT("\"\\u12"), 3, "bad escape"},
    {TEXT("\"\\u0000\""), 7, "u0000"},
    {TEXT("\"\\ud800\""), 7, "surrogate"},
    {TEXT("\"\\ud800\\u0041\""), 13, "surrogate"},
    {TEXT("\"\\ud800\\ud800\""), 13, "surrogate"},
    {TEXT("\"\\ud800\\n    \""), 7, "surrogate"},
    {TEXT("\"\\udc00\\ud800\""), 7, "surrogate"},
    {TEXT("\"a\nb\""), 2, "control"},
    {TEXT("\"a\0b\""), 2, "control"},
    {TEXT("\0{}"), 0, "unexpected"},
    {TEXT("{}\0"), 2, "after the value"},
    {TEXT("{}{}"), 2, "after the value"},
    {TEXT("[1] x"), 4, "after the value"},
    {TEXT("[01]"), 1, "number"},
    {TEXT("[-01]"), 1, "number"},
    {TEXT("[+1]"), 1, "unexpected"},
    {TEXT("[.5]"), 1, "unexpected"},
    {TEXT("[1.]"), 1, "number"},
    {TEXT("[-]"), 1, "number"},
    {TEXT("[1e]"), 1, "number"},
    {TEXT("[1e+]"), 1, "number"},
    {TEXT("[0x10]"), 2, "comma"},
    {TEXT("[NaN]"), 1, "unexpected"},
    {TEXT("[Infinit]"), 1, "unexpected"},
    {TEXT("[-Inf]"), 1, "unexpected"},
    {TEXT("[+Infinity]"), 1, "unexpected"},
    {TEXT("[tru]"), 1, "unexpected"},
    {TEXT("[True]"), 1, "unexpected"},
    {TEXT("[1,]"), 3, "unexpected"},
    {TEXT("[,1]"), 1, "unexpected"},
    {TEXT("[1 2]"), 3, "comma"},
    {TEXT("{\"a\":1,}"), 7, "key"},
    {TEXT("{a:1}"), 1, "key"},
    {TEXT("{1:1}"), 1, "key"},
    {TEXT("{\"a\" 1}"), 5, "colon"},
    {TEXT("{\"a\":}"), 5, "unexpected"},
    {TEXT("{\"a\",1}"), 4, "colon"},
    {TEXT("[}"), 1, "unexpected"},
    {TEXT("{]"), 1, "key"},
    {TEXT("[1}"), 2, "comma"},
    {TEXT("]"), 0, "unexpected"},
    {TEXT("// x\n1"), 0, "unexpected"},
    {TEXT("'a'"), 0, "unexpected"},
    {TEXT("\xef\xbb\xbf{}"), 0, "unexpected"},
    {TEXT("[1000000000000000000000000000000000000000000000000000000000000]"), 1, "too long"},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char *exact = malloc(good[i].n_bytes); /* no terminator: a sanitizer sees an over-read */
        cJSON *root = NULL;
        sw_err err = {0};
        memcpy(exact, good[i].text, good[i].n_bytes);
        if (sw_json_parse(&root, exact, good[i].n_bytes, &sw_json_caps_config, "t", &err) != SW_OK)
            fail_msg("case %zu: %s", i, err.text);
        cJSON_Delete(root);
        free(exact);
    }
}

/* Python writes this word into a config, where it is a number; strings keep theirs, and readers of
 * other texts refuse it. */
static void test_infinity(void **state)
{
    static const char text[] = "{\"Infinity\":[0.0,Infinity,-Infinity],\"a\":\"\\\"Infinity\"}";
    sw_json_caps strict = sw_json_caps_config;
    const cJSON *list;
    cJSON *root = NULL;
    double value = 0;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_json_parse(&root, TEXT(text), &sw_json_caps_config, "t", &err), SW_OK);
    list = sw_json_member(root, "Infinity");
    assert_true(cJSON_GetArrayItem(list, 1)->valuedouble == HUGE_VAL);
    assert_true(cJSON_GetArrayItem(list, 2)->valuedouble == -HUGE_VAL);
    assert_string_equal(sw_json_member(root, "a")->valuestring, "\"Infinity");
    cJSON_Delete(root);
    root = NULL;
    strict.takes_infinity = false;
    assert_int_equal(sw_json_parse(&root, TEXT(text), &strict, "t", &err), SW_E_FORMAT);
    assert_null(root);
    err = (sw_err){0};
    assert_int_equal(sw_json_parse(&root, TEXT("{\"x\":Infinity}"), &sw_json_caps_config, "t",
                                   &err), SW_OK);
    assert_int_equal(sw_json_real(&value, root, "x", &err), SW_E_FORMAT); /* where one is no use */
    cJSON_Delete(root);
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *exact = malloc(bad[i].n_bytes + !bad[i].n_bytes), where[64];
        cJSON *root = NULL;
        sw_err err = {0};
        sw_code rc;
        memcpy(exact, bad[i].text, bad[i].n_bytes);
        rc = sw_json_parse(&root, exact, bad[i].n_bytes, &sw_json_caps_config, "name", &err);
        (void)snprintf(where, sizeof where, "at byte %zu of", bad[i].at);
        if (rc != SW_E_FORMAT || root || strncmp(err.text, "name: ", 6) != 0 ||
            !strstr(err.text, where) || !strstr(err.text, bad[i].word))
            fail_msg("case %zu \"%s\": code %d, \"%s\", want \"%s\" and \"%s\"", i, bad[i].text,
                     rc, err.text, where, bad[i].word);
        free(exact);
    }
}

static void test_bad_utf8(void **state)
{
    static const char *const texts[] = {
        "\"\x80\"",             "\"\xc0\x80\"",         "\"\xc1\xbf\"",     "\"\xe0\x9f\xbf\"",
        "\"\xed\xa0\x80\"",     "\"\xf0\x8f\xbf\xbf\"", "\"\xf4\x90\x80\x80\"",
        "\"\xf5\x80\x80\x80\"", "\"\xff\"",             "\"\xc3\"",         "\"\xe2\x82\"",
        "\"\xf0\x9f\x98\"",     "\"\xe2\x28\xa1\"",     "\"\xf0\x9f\x28\x80\"",
    };
    cJSON *root = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        sw_err err = {0};
        assert_int_equal(sw_json_parse(&root, texts[i], strlen(texts[i]), &sw_json_caps_config,
                                       "t", &err), SW_E_FORMAT);
        assert_non_null(strstr(err.text, "invalid UTF-8 at byte 1"));
    }
    for (size_t at = 0; at < 40; at++) { /* wherever it stands to the steps of eight */
        char text[42];
        size_t found = 0;
        memset(text, 'a', sizeof text);
        text[at] = '\xff';
        assert_false(sw_utf8_is_valid(text, sizeof text, &found));
        assert_int_equal(found, at);
        memcpy(text + at, "\xc3\xa9", 2);
        assert_true(sw_utf8_is_valid(text, sizeof text, &found));
        assert_false(sw_utf8_is_valid(text, at + 1, &found)); /* cut in two */
    }
}

static void test_duplicates(void **state)
{
    char many[4096];
    cJSON *root = NULL;
    const char *const texts[] = {"{\"dup\":1,\"dup\":1}", "{\"x\":[{\"dup\":1,\"b\":2,\"dup\":3}]}",
                                 "{\"dup\":1,\"\\u0064up\":2}", many};
    size_t n = 0;

    (void)state;
    n += (size_t)snprintf(many, sizeof many, "{\"dup\":0");
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, ",\"k%d\":0", i);
    (void)snprintf(many + n, sizeof many - n, ",\"dup\":0}");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        sw_err err = {0};
        assert_int_equal(sw_json_parse(&root, texts[i], strlen(texts[i]), &sw_json_caps_config,
                                       "t", &err), SW_E_FORMAT);
        assert_string_equal(err.text, "t: duplicate key \"dup\"");
    }
}

static void expect(const char *text, const sw_json_caps *caps, const char *word)
{
    cJSON *root = NULL;
    sw_err err = {0};
    sw_code rc = sw_json_parse(&root, text, strlen(text), caps, "t", &err);

    if (rc != (word ? SW_E_FORMAT : SW_OK) || (word && !strstr(err.text, word)))
        fail_msg("%s: code %d, \"%s\"", text, rc, err.text);
    cJSON_Delete(root);
}

static void test_caps(void **state)
{
    const sw_json_caps bytes = {.max_bytes = 4, .max_depth = 9, .max_values = 9};
    const sw_json_caps depth = {.max_bytes = 99, .max_depth = 2, .max_values = 9};
    const sw_json_caps values = {.max_bytes = 99, .max_depth = 9, .max_values = 3};
    const sw_json_caps whole = {.max_bytes = 99, .max_depth = 9, .max_values = 9,
                                .is_integer_only = true};
    const sw_json_caps vast = {.max_bytes = 999, .max_depth = 1000, .max_values = 999};
    char deep[201];

    (void)state;
    expect("[11]", &bytes, NULL);
    expect("[111]", &bytes, "at most 4");
    expect("[[]]", &depth, NULL);
    expect("[[[]]]", &depth, "deeper");
    expect("{\"a\":{\"b\":[]}}", &depth, "deeper");
    expect("[[],[],[]]", &values, "more values");
    expect("[1,2]", &values, NULL);
    expect("[1,2,3]", &values, "more values");
    expect("{\"a\":1,\"b\":2}", &values, NULL);
    expect("{\"a\":1,\"b\":2,\"c\":3}", &values, "more values");
    expect("\"[[[[,,,,\"", &depth, NULL); /* in a string they count for nothing */
    expect("[1,-20,\"1.5\"]", &whole, NULL);
    expect("[1.5]", &whole, "no integer");
    expect("[1.0]", &whole, "no integer");
    expect("[1e3]", &whole, "no integer");
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    deep[200] = '\0';
    expect(deep, &vast, "deeper"); /* the scan's own limit holds whatever the caps say */
    expect(deep + 36, &vast, "after the value");
}

static cJSON *object(void)
{
    static const char text[] =
        "{\"n\":7,\"neg\":-7,\"big\":9007199254740991,\"bigger\":9007199254740993,"
        "\"huge\":1e300,\"inf\":1e999,\"half\":0.5,\"t\":true,\"f\":false,\"s\":\"text\","
        "\"null\":null,\"list\":[],\"N\":8}";
    cJSON *root = NULL;
    sw_err err = {0};

    assert_int_equal(sw_json_parse(&root, text, sizeof text - 1, &sw_json_caps_config, "t", &err),
                     SW_OK);
    return root;
}

static void test_ints(void **state)
{
    static const struct {
        const char *key;
        int64_t min, max, want; /* want -99: refused */
    } cases[] = {
        {"n", 0, 10, 7}, {"n", 7, 7, 7}, {"n", 8, 10, -99}, {"n", 0, 6, -99},
        {"neg", -10, 0, -7}, {"neg", 0, 10, -99}, {"N", 0, 10, 8},
        {"big", 0, INT64_MAX, 9007199254740991}, {"bigger", 0, INT64_MAX, -99},
        {"huge", INT64_MIN, INT64_MAX, -99}, {"inf", INT64_MIN, INT64_MAX, -99},
        {"half", 0, 10, -99}, {"t", 0, 10, -99}, {"s", 0, 10, -99}, {"list", 0, 10, -99},
        {"null", 0, 10, 42}, {"absent", 0, 10, 42},
    };
    cJSON *root = object();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t out = 42;
        sw_err err = {0};
        sw_code rc = sw_json_int(&out, root, cases[i].key, cases[i].min, cases[i].max, &err);
        assert_int_equal(rc, cases[i].want == -99 ? SW_E_FORMAT : SW_OK);
        assert_int_equal(out, rc == SW_OK ? cases[i].want : 42);
        if (rc != SW_OK) assert_memory_equal(err.text, cases[i].key, strlen(cases[i].key));
    }
    cJSON_Delete(root);
}

static void test_other_reads(void **state)
{
    cJSON *root = object();
    const char *text = "default";
    double real = 1.5;
    bool flag = true;

    (void)state;
    assert_int_equal(sw_json_real(&real, root, "half", NULL), SW_OK);
    assert_true(real == 0.5);
    assert_int_equal(sw_json_real(&real, root, "absent", NULL), SW_OK);
    assert_int_equal(sw_json_real(&real, root, "s", NULL), SW_E_FORMAT);
    assert_int_equal(sw_json_real(&real, root, "inf", NULL), SW_E_FORMAT);
    assert_true(real == 0.5);
    assert_int_equal(sw_json_bool(&flag, root, "f", NULL), SW_OK);
    assert_false(flag);
    assert_int_equal(sw_json_bool(&flag, root, "null", NULL), SW_OK);
    assert_int_equal(sw_json_bool(&flag, root, "n", NULL), SW_E_FORMAT);
    assert_false(flag);
    assert_int_equal(sw_json_text(&text, root, "absent", NULL), SW_OK);
    assert_int_equal(sw_json_text(&text, root, "n", NULL), SW_E_FORMAT);
    assert_string_equal(text, "default");
    assert_int_equal(sw_json_text(&text, root, "s", NULL), SW_OK);
    assert_string_equal(text, "text");
    assert_null(sw_json_member(root, "null"));
    assert_null(sw_json_member(root, "S"));
    assert_non_null(sw_json_member(root, "list"));
    cJSON_Delete(root);
}

static void test_read_file(void **state)
{
    cJSON *root = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_json_read(&root, scratch_path(&s, "f"), &sw_json_caps_config, &err),
                     SW_E_IO);
    scratch_write(&s, "f", "", 0);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_json_read(&root, scratch_path(&s, "f"), &sw_json_caps_config, &err),
                     SW_E_FORMAT);
    assert_memory_equal(err.text, s.dir, strlen(s.dir));
    scratch_write(&s, "f", "{\"a\":1}", 7);
    assert_int_equal(sw_json_read(&root, scratch_path(&s, "f"), &sw_json_caps_config, &err), SW_OK);
    cJSON_Delete(root);
    scratch_close(&s);
}

static void what_is_printed_is_json_whatever_the_bytes(void **state)
{
    static const struct { const char *text, *printed; } rows[] = {
        {"plain", "{\"k\":\"plain\"}"},
        {"\xff", "{\"k\":\"\\\\xff\"}"},
        {"a\xc3", "{\"k\":\"a\\\\xc3\"}"},
        {"\xed\xa0\x80z", "{\"k\":\"\\\\xed\\\\xa0\\\\x80z\"}"},
        {"\xc3\xa9\xfe\xe2\x82\xac", "{\"k\":\"\xc3\xa9\\\\xfe\xe2\x82\xac\"}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *object = cJSON_CreateObject(), *back = NULL;
        char *text = NULL;
        sw_err err = {0};
        assert_non_null(cJSON_AddStringToObject(object, "k", rows[i].text));
        assert_int_equal(sw_json_print(&text, object, false, &err), SW_OK);
        assert_string_equal(text, rows[i].printed);
        assert_int_equal(sw_json_parse(&back, text, strlen(text), &sw_json_caps_config, "it", &err),
                         SW_OK);
        sw_mem_put(text);
        assert_int_equal(sw_json_print(&text, object, true, &err), SW_OK);
        cJSON_Delete(back);
        assert_int_equal(sw_json_parse(&back, text, strlen(text), &sw_json_caps_config, "it", &err),
                         SW_OK);
        sw_mem_put(text);
        cJSON_Delete(back);
        cJSON_Delete(object);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),  cmocka_unit_test(test_bad), cmocka_unit_test(test_infinity),
        cmocka_unit_test(test_bad_utf8), cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_caps),  cmocka_unit_test(test_ints),
        cmocka_unit_test(test_other_reads), cmocka_unit_test(test_read_file),
        cmocka_unit_test(what_is_printed_is_json_whatever_the_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
