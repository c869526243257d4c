/* test_card.c - the metadata that a card takes over, and what of a stranger's text it does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "tests/support/scratch.h"
#include "tools/card/card_command.h"
#include "tools/card/card_engines.h"
#include "tools/card/front_matter.h"

static void expect_license(const char *text, const char *want)
{
    sw_front_matter f;

    sw_front_matter_parse(&f, text, strlen(text));
    if (strcmp(f.license, want) != 0) fail_msg("%s: \"%s\", want \"%s\"", text, f.license, want);
}

static void licenses_are_single_values(void **state)
{
    char text[400];

    (void)state;
    expect_license("---\nlicense: mit\n---\n", "mit");
    expect_license("---\r\nlicense:  apache-2.0  \r\n---\r\n# x", "apache-2.0");
    expect_license("---\nlicense: \"llama3.1\" # really\n---", "llama3.1");
    expect_license("---\nlicense: 'other'\n---", "other");
    expect_license("---\ntags:\n- a\nlicense: mit # so\n---\nlicense: gpl", "mit");
    /* no metadata, or none of its own */
    expect_license("", "");
    expect_license("license: mit\n", "");
    expect_license("---\nlicense: mit\n", "");
    expect_license("---\n  license: mit\n---\n", "");
    expect_license("---\nlicense_x: mit\n---\n", "");
    expect_license("---\nlicense\n---\n", "");
    expect_license("---\nlicense:\n- mit\n---\n", "");
    expect_license("---\nlicense: [mit, x]\n---\n", "");
    expect_license("---\nlicense: |\n  mit\n---\n", "");
    expect_license("---\nlicense: &a mit\n---\n", "");
    expect_license("---\nlicense: \"mit\n---\n", "");
    expect_license("---\nlicense: m\x01t\n---\n", "");
    expect_license("---\nlicense: m\xc3\xa4t\n---\n", "");
    expect_license("---\nlicense: \"a\\nb: c\"\n---\n", "");
    (void)snprintf(text, sizeof text, "---\nlicense: %0300d\n---\n", 1);
    expect_license(text, "");
}

static void bytes_need_no_end(void **state)
{
    sw_front_matter f;

    (void)state;
    sw_front_matter_parse(&f, "---\nlicense: mit\n---\0license: x", 20);
    assert_string_equal(f.license, "mit");
    sw_front_matter_parse(&f, "---\nlicense:", 12);
    assert_string_equal(f.license, "");
    sw_front_matter_parse(&f, "---", 3);
    sw_front_matter_parse(&f, NULL, 0);
    assert_string_equal(f.license, "");
}

static void values_are_quoted(void **state)
{
    sw_print_buf out = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_front_matter_put(&out, "a", "x: \"y\" #\\", &err), SW_OK);
    assert_int_equal(sw_front_matter_put(&out, "b", "", &err), SW_OK);
    assert_int_equal(sw_card_put_clean(&out, "<b>|`x`\n[y](z)", &err), SW_OK);
    assert_int_equal(sw_print_add(&out, "", 1, &err), SW_OK);
    assert_string_equal(out.at, "a: \"x: \\\"y\\\" #\\\\\"\n\\<b\\>\\|\\`x\\`?\\[y\\](z)");
    sw_mem_put(out.at);
}

typedef struct fields {
    const char *out, *scheme, *other;
    sw_opt_list calib, ignore;
    int64_t n;
    double damp;
    int force, plain;
    const char *device;
} fields;

#define AT(field) .offset = offsetof(fields, field)

static const sw_opt table[] = {
    {.name = "out", .kind = SW_OPT_TEXT, AT(out)},
    {.name = "scheme", .kind = SW_OPT_TEXT, AT(scheme)},
    {.name = "other", .kind = SW_OPT_TEXT, AT(scheme), .alias_of = "scheme"},
    {.name = "calib", .kind = SW_OPT_LIST, AT(calib)},
    {.name = "ignore", .kind = SW_OPT_LIST, AT(ignore)},
    {.name = "n-some", .kind = SW_OPT_INT, AT(n)},
    {.name = "damp", .kind = SW_OPT_REAL, AT(damp)},
    {.name = "force", .kind = SW_OPT_FLAG, AT(force), .set_to = 1},
    {.name = "plain", .kind = SW_OPT_FLAG, AT(plain), .set_to = 1},
    {.name = "device", .kind = SW_OPT_TEXT, AT(device)},
    {0}};

static void commands_can_be_typed_again(void **state)
{
    const char *calib[] = {"/home/me/a b.txt", "x/b.txt"}, *ignore[] = {"it's", "`rm`\n$x"};
    const fields defaults = {.scheme = "W4A16", .damp = 0.01};
    const fields f = {.out = "o", .scheme = "W8A8", .calib = {calib, 2}, .ignore = {ignore, 2},
                      .n = 7, .damp = 0.02, .force = 1, .plain = 1, .device = "cuda"};
    const sw_card_command command = {"quantize", &f, &defaults, table, "/tmp/r.json"};
    cJSON *manifest = cJSON_CreateObject();
    sw_checkpoint source = {.dir = "/nowhere/model"};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_card_command_add(manifest, &command, &source, &err), SW_OK);
    assert_string_equal(cJSON_GetObjectItem(manifest, "made_by")->valuestring,
                        "swage quantize MODEL -o OUT --recipe r.json --scheme W8A8 --calib "
                        "'a b.txt' b.txt --ignore 'it'\\''s' '`rm`?$x' --n-some 7 --damp 0.02 "
                        "--plain");
    cJSON_Delete(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(licenses_are_single_values),
        cmocka_unit_test(bytes_need_no_end),
        cmocka_unit_test(values_are_quoted),
        cmocka_unit_test(commands_can_be_typed_again),
    };

    return cmocka_run_group_tests_name("card", tests, NULL, NULL);
}
