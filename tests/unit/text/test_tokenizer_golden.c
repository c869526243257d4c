/* test_tokenizer_golden.c - ids and texts of the tokenizer against an independent one.
 *
 * tests/golden/tokenizer/cases.json holds, for some seventy tokenizer.json files (three small
 * bases with parts replaced, and the bundled one), texts with the ids and the decoded text that
 * the Python package tokenizers 0.23.3 (Hugging Face) gave for them. The texts are fixed edge
 * cases and random Unicode. A row is [text, ids, decoded, ids with the template if different];
 * decoded is null where that package spells an added token as normalized and this one as
 * written. "decodes" has [ids, text] for random ids.
 * Another directory of the same make-up can be named on the command line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/text/tokenizer.h"

static const char *golden_dir = "tests/golden/tokenizer";
static const sw_json_caps golden_caps = {
    .max_bytes = (size_t)256 << 20, .max_depth = 32, .max_values = 64000000};

static cJSON *read_json(const char *dir, const char *name)
{
    char path[SW_PATH_BYTES];
    sw_err err = {0};
    cJSON *json = NULL;

    (void)snprintf(path, sizeof path, "%s/%s.json", dir, name);
    if (sw_json_read(&json, path, &golden_caps, &err) != SW_OK) fail_msg("%s", err.text);
    return json;
}

static void set_members(cJSON *object, const cJSON *members)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, members)
    {
        cJSON_DeleteItemFromObjectCaseSensitive(object, member->string);
        cJSON_AddItemToObject(object, member->string, cJSON_Duplicate(member, true));
    }
}

static sw_tokenizer *open_case(const cJSON *test_case)
{
    const char *base = cJSON_GetObjectItem(test_case, "base")->valuestring;
    bool is_bundled = !strcmp(base, "bundled");
    cJSON *json = is_bundled ? read_json("calib_data/tiny-llama", "tokenizer")
                             : read_json(golden_dir, base);
    sw_tokenizer *tok = NULL;
    sw_err err = {0};
    char *text;

    set_members(json, cJSON_GetObjectItem(test_case, "set"));
    set_members(cJSON_GetObjectItem(json, "model"), cJSON_GetObjectItem(test_case, "set_model"));
    text = cJSON_PrintUnformatted(json);
    if (sw_tokenizer_open_bytes(&tok, text, strlen(text), base, &err) != SW_OK)
        fail_msg("%s: %s", cJSON_GetObjectItem(test_case, "name")->valuestring, err.text);
    cJSON_free(text);
    cJSON_Delete(json);
    return tok;
}

static void print_ids(const char *label, const sw_ids *ids)
{
    print_error("  %s:", label);
    for (int64_t i = 0; i < ids->n && i < 60; i++) print_error(" %u", ids->ids[i]);
    print_error("\n");
}

/* 1 when the ids of `text` are not those wanted. */
static int check_encode(sw_tokenizer *tok, const char *name, const char *text, const cJSON *want,
                        bool with_template, sw_ids *have)
{
    sw_ids expected = {0};
    sw_err err = {0};
    const cJSON *id;
    int bad = 0;

    have->n = 0;
    cJSON_ArrayForEach(id, want)
        assert_int_equal(sw_ids_push(&expected, (uint32_t)id->valuedouble, &err), SW_OK);
    if (sw_tokenizer_encode(tok, have, text, strlen(text), with_template, &err) != SW_OK) {
        print_error("%s: \"%s\": %s\n", name, text, err.text);
        bad = 1;
    } else if (have->n != expected.n ||
               (have->n && memcmp(have->ids, expected.ids, (size_t)have->n * 4) != 0)) {
        print_error("%s: \"%s\"\n", name, text);
        print_ids("have", have);
        print_ids("want", &expected);
        bad = 1;
    }
    sw_ids_free(&expected);
    return bad;
}

static int check_decode(const sw_tokenizer *tok, const char *name, const sw_ids *ids,
                        const char *want)
{
    sw_err err = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    int bad = 0;

    if (sw_tokenizer_decode(tok, &text, &n_bytes, ids->ids, ids->n, false, &err) != SW_OK) {
        print_error("%s: decode of \"%s\": %s\n", name, want, err.text);
        return 1;
    }
    if (n_bytes != strlen(want) || memcmp(text, want, n_bytes) != 0) {
        print_error("%s: decoded \"%s\", want \"%s\"\n", name, text, want);
        bad = 1;
    }
    sw_mem_put(text);
    return bad;
}

/* [ids, text] pairs: ids at random, many of them single bytes that make up no UTF-8. */
static int check_decodes(const sw_tokenizer *tok, const char *name, const cJSON *rows)
{
    const cJSON *row, *id;
    int n_bad = 0;

    cJSON_ArrayForEach(row, rows)
    {
        sw_ids ids = {0};
        sw_err err = {0};
        cJSON_ArrayForEach(id, row->child)
            assert_int_equal(sw_ids_push(&ids, (uint32_t)id->valuedouble, &err), SW_OK);
        n_bad += check_decode(tok, name, &ids, row->child->next->valuestring);
        sw_ids_free(&ids);
    }
    return n_bad;
}

static int check_case(const cJSON *test_case)
{
    const char *name = cJSON_GetObjectItem(test_case, "name")->valuestring;
    sw_tokenizer *tok = open_case(test_case);
    sw_ids ids = {0};
    const cJSON *row;
    int n_bad = 0, n_rows = 0;

    cJSON_ArrayForEach(row, cJSON_GetObjectItem(test_case, "rows"))
    {
        const char *text = row->child->valuestring;
        const cJSON *want = row->child->next, *decoded = want->next;
        n_rows++;
        n_bad += check_encode(tok, name, text, decoded->next ? decoded->next : want, true, &ids);
        n_bad += check_encode(tok, name, text, want, false, &ids);
        if (cJSON_IsString(decoded))
            n_bad += check_decode(tok, name, &ids, decoded->valuestring);
        if (n_bad > 20) break;
    }
    n_bad += check_decodes(tok, name, cJSON_GetObjectItem(test_case, "decodes"));
    if (n_bad) print_error("%s: %d wrong in %d rows\n", name, n_bad, n_rows);
    assert_true(n_bad || n_rows > 20);
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
    return n_bad;
}

static void all_cases_agree(void **state)
{
    cJSON *cases = read_json(golden_dir, "cases");
    const cJSON *test_case;
    int n_bad = 0, n_cases = 0;

    (void)state;
    cJSON_ArrayForEach(test_case, cJSON_GetObjectItem(cases, "cases"))
    {
        n_bad += check_case(test_case);
        n_cases++;
    }
    cJSON_Delete(cases);
    assert_true(n_cases >= 70);
    assert_int_equal(n_bad, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_cases_agree)};

    if (argc > 1) golden_dir = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
