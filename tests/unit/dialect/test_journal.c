/* test_journal.c - the journal of a run that may be killed: every cut, every changed byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/writer/journal.h"
#include "tests/support/scratch.h"

#define KEY \
    "{\"settings\":{\"damp\":0.01,\"seed\":3},"  \
            "\"files\":[{\"name\":\"a\",\"sha256\":\"1\"}]}"
#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BLOCK "{\"tensors\":[{\"name\":\"q.tiles\",\"bytes\":3,\"sha256\":\"" DIGEST "\"}]," \
              "\"rows\":{\"tensors\":[{\"damp\":0.1}]}}"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* A journal of two blocks at s/journal. */
static void make(const scratch *s)
{
    cJSON *key = cJSON_Parse(KEY);
    sw_journal j;
    sw_err err = {0};

    must(sw_journal_create(&j, scratch_path(s, "journal"), key, &err), &err);
    must(sw_journal_add_block(&j, cJSON_Parse(BLOCK), &err), &err);
    must(sw_journal_add_block(&j, cJSON_Parse(BLOCK), &err), &err);
    assert_int_equal(sw_journal_n_blocks(&j), 2);
    sw_journal_close(&j);
    cJSON_Delete(key);
}

static char *text_of(const scratch *s, size_t *n_bytes)
{
    sw_map map = {0};
    sw_err err = {0};
    char *text;

    must(sw_map_open(&map, scratch_path(s, "journal"), &err), &err);
    text = malloc(map.size_bytes + 1);
    memcpy(text, map.data, map.size_bytes);
    text[map.size_bytes] = '\0';
    *n_bytes = map.size_bytes;
    sw_map_close(&map);
    return text;
}

/* Blocks in n_bytes of text, or -1 when it is refused. */
static int64_t parse(const char *text, size_t n_bytes)
{
    sw_journal j;
    sw_err err = {0};
    sw_code rc = sw_journal_parse(&j, text, n_bytes, "j", &err);
    int64_t n = -1;

    if (rc == SW_OK) {
        n = sw_journal_n_blocks(&j);
        sw_journal_close(&j);
    } else {
        assert_int_equal(rc, SW_E_FORMAT);
        assert_non_null(strstr(err.text, "j: "));
    }
    return n;
}

static void grows_across_runs(void **state)
{
    scratch s;
    sw_journal j;
    sw_err err = {0};
    const cJSON *block;

    (void)state;
    scratch_open(&s);
    make(&s);
    must(sw_journal_open(&j, scratch_path(&s, "journal"), &err), &err);
    must(sw_journal_add_block(&j, cJSON_Parse(BLOCK), &err), &err);
    sw_journal_close(&j);
    must(sw_journal_open(&j, scratch_path(&s, "journal"), &err), &err);
    assert_int_equal(sw_journal_n_blocks(&j), 3);
    block = cJSON_GetArrayItem(j.blocks, 2);
    assert_int_equal(sw_json_member(block, "block")->valueint, 2);
    assert_non_null(sw_json_member(sw_json_member(block, "rows"), "tensors"));
    sw_journal_close(&j);
    scratch_close(&s);
}

static void every_cut_is_whole_lines(void **state)
{
    scratch s;
    size_t n_bytes, line[3] = {0};
    int n_lines = 0;
    char *text;

    (void)state;
    scratch_open(&s);
    make(&s);
    text = text_of(&s, &n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i] == '\n') line[n_lines++] = i + 1;
    assert_int_equal(n_lines, 3);
    assert_int_equal(line[2], n_bytes);
    for (size_t n = 0; n <= n_bytes; n++) {
        int64_t want = n < line[0] ? -1 : n < line[1] ? 0 : n < line[2] ? 1 : 2;
        assert_int_equal(parse(text, n), want);
    }
    free(text);
    scratch_close(&s);
}

/* Only the end of the last line can change unnoticed: the line is then one that never ended. */
static void every_changed_byte_is_noticed(void **state)
{
    scratch s;
    size_t n_bytes;
    char *text;

    (void)state;
    scratch_open(&s);
    make(&s);
    text = text_of(&s, &n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        text[i] ^= 1;
        assert_int_equal(parse(text, n_bytes), i + 1 == n_bytes ? 1 : -1);
        text[i] ^= 1;
    }
    free(text);
    scratch_close(&s);
}

static void lines_cannot_move(void **state)
{
    scratch s;
    size_t n_bytes, first, second, n_moved;
    char *text, *moved;

    (void)state;
    scratch_open(&s);
    make(&s);
    text = text_of(&s, &n_bytes);
    moved = malloc(2 * n_bytes);
    first = (size_t)(strchr(text, '\n') + 1 - text);
    second = (size_t)(strchr(text + first, '\n') + 1 - text);
    /* block 0 twice, then block 1 without block 0 */
    memcpy(moved, text, second);
    memcpy(moved + second, text + first, second - first);
    assert_int_equal(parse(moved, 2 * second - first), -1);
    n_moved = first + n_bytes - second;
    memcpy(moved + first, text + second, n_bytes - second);
    assert_int_equal(parse(moved, n_moved), -1);
    free(moved);
    free(text);
    scratch_close(&s);
}

/* A torn line is cut off before the next one is appended. */
static void goes_on_after_a_torn_line(void **state)
{
    scratch s;
    size_t n_bytes;
    sw_journal j;
    sw_err err = {0};
    char *text;

    (void)state;
    scratch_open(&s);
    make(&s);
    text = text_of(&s, &n_bytes);
    scratch_write(&s, "journal", text, n_bytes - 5);
    must(sw_journal_open(&j, scratch_path(&s, "journal"), &err), &err);
    assert_int_equal(sw_journal_n_blocks(&j), 1);
    must(sw_journal_add_block(&j, cJSON_Parse(BLOCK), &err), &err);
    sw_journal_close(&j);
    free(text);
    text = text_of(&s, &n_bytes);
    assert_int_equal(parse(text, n_bytes), 2);
    free(text);
    scratch_close(&s);
}

static void says_what_differs(void **state)
{
    static const struct { const char *now, *want; } cases[] = {
        {KEY, NULL},
        {"{\"settings\":{\"damp\":0.02,\"seed\":3},\"files\":[{\"name\":\"a\",\"sha256\":\"1\"}]}",
         "settings.damp was 0.01 and is 0.02"},
        {"{\"settings\":{\"damp\":0.01},\"files\":[{\"name\":\"a\",\"sha256\":\"1\"}]}",
         "settings.seed was 3 and is absent"},
        {"{\"settings\":{\"damp\":0.01,\"seed\":3,\"x\":true},"
         "\"files\":[{\"name\":\"a\",\"sha256\":\"1\"}]}", "settings.x was absent and is true"},
        {"{\"settings\":{\"damp\":0.01,\"seed\":3},\"files\":[{\"name\":\"a\",\"sha256\":\"2\"}]}",
         "files.a.sha256 was \"1\" and is \"2\""},
        {"{\"settings\":{\"damp\":0.01,\"seed\":3},\"files\":[]}",
         "files.a was {\"name\":\"a\",\"sha256\":\"1\"} and is absent"},
        {"{\"settings\":{\"damp\":0.01,\"seed\":3},"
         "\"files\":[{\"name\":\"a\",\"sha256\":\"1\"},2]}",
         "files.items was 1 and is 2"},
        {"{\"settings\":{\"damp\":\"0.01\",\"seed\":3},\"files\":[]}",
         "settings.damp was 0.01 and is \"0.01\""},
    };
    scratch s;
    sw_journal j;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    make(&s);
    must(sw_journal_open(&j, scratch_path(&s, "journal"), &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *now = cJSON_Parse(cases[i].now);
        sw_err why = {0};
        assert_non_null(now);
        assert_int_equal(sw_journal_check_key(&j, now, "out.partial", &why),
                         cases[i].want ? SW_E_USAGE : SW_OK);
        if (cases[i].want && !strstr(why.text, cases[i].want))
            fail_msg("have \"%s\", want \"%s\"", why.text, cases[i].want);
        cJSON_Delete(now);
    }
    sw_journal_close(&j);
    scratch_close(&s);
}

/* A run whose text has a name of any bytes is resumed like others. */
static void a_key_may_hold_any_bytes(void **state)
{
    sw_journal j = {.fd = -1};
    cJSON *key = cJSON_CreateObject();
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_non_null(cJSON_AddStringToObject(key, "calib", "te\xff\xfext.txt"));
    must(sw_journal_create(&j, scratch_path(&s, "journal"), key, &err), &err);
    sw_journal_close(&j);
    must(sw_journal_open(&j, scratch_path(&s, "journal"), &err), &err);
    must(sw_journal_check_key(&j, key, "out.partial", &err), &err);
    assert_non_null(cJSON_SetValuestring(cJSON_GetObjectItem(key, "calib"), "te\xff\xffxt.txt"));
    assert_int_equal(sw_journal_check_key(&j, key, "out.partial", &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "calib was \"te\\\\xff\\\\xfext.txt\""));
    sw_journal_close(&j);
    cJSON_Delete(key);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_across_runs),
        cmocka_unit_test(every_cut_is_whole_lines),
        cmocka_unit_test(every_changed_byte_is_noticed),
        cmocka_unit_test(lines_cannot_move),
        cmocka_unit_test(goes_on_after_a_torn_line),
        cmocka_unit_test(says_what_differs),
        cmocka_unit_test(a_key_may_hold_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
