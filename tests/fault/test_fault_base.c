/* test_fault_base.c - memory and disk failing under the base library, call by call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "tests/fault/fault.h"
#include "tests/support/scratch.h"

/* What stands at dir/name; "" when nothing does. */
static void read_back(char out[64], const scratch *s, const char *name)
{
    FILE *f = fopen(scratch_path(s, name), "rb");
    size_t n = f ? fread(out, 1, 63, f) : 0;

    out[n] = '\0';
    if (f) fclose(f);
}

static void expect(const scratch *s, const char *name, const char *want)
{
    char have[64];

    read_back(have, s, name);
    assert_string_equal(have, want);
}

static sw_code put_file(void *ctx, sw_err *err)
{
    return sw_file_put(scratch_path(ctx, "f"), "fresh", 5, err);
}

static void remove_file(void *ctx) { (void)remove(scratch_path(ctx, "f")); }
static void expect_nothing(void *ctx) { assert_int_equal(scratch_count(ctx, NULL), 0); }

static void expect_file(void *ctx)
{
    assert_int_equal(scratch_count(ctx, NULL), 1);
    expect(ctx, "f", "fresh");
}

static void test_file(void **state)
{
    scratch s;
    fault_plan plan = {.name = "file", .kinds = FAULT_OUTPUT, .attempt = put_file,
                       .before = remove_file, .after_failure = expect_nothing,
                       .after_success = expect_file, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    fault_run_slow_disk(&plan);
    scratch_close(&s);
}

/* Over an old file: the old or the new one is there, whole, and nothing else. */
static void old_file(void *ctx) { scratch_write(ctx, "f", "older", 5); }

static void expect_either(void *ctx)
{
    char have[64];

    assert_int_equal(scratch_count(ctx, NULL), 1);
    read_back(have, ctx, "f");
    assert_true(!strcmp(have, "older") || !strcmp(have, "fresh"));
}

static void test_file_over_old(void **state)
{
    scratch s;
    fault_plan plan = {.name = "file over old", .kinds = FAULT_OUTPUT, .attempt = put_file,
                       .before = old_file, .after_failure = expect_either,
                       .after_success = expect_file, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    scratch_close(&s);
}

static sw_code put_new(void *ctx, sw_err *err)
{
    return sw_file_put_new(scratch_path(ctx, "f"), "fresh", 5, false, err);
}

static sw_code put_forced(void *ctx, sw_err *err)
{
    return sw_file_put_new(scratch_path(ctx, "f"), "fresh", 5, true, err);
}

/* An output that is one file: nothing of its work directory stays, however it is published. */
static void test_file_alone(void **state)
{
    scratch s;
    fault_plan plan = {.name = "new file", .kinds = FAULT_OUTPUT, .attempt = put_new,
                       .before = remove_file, .after_failure = expect_nothing,
                       .after_success = expect_file, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    fault_run_slow_disk(&plan);
    plan.name = "new file, by a link";
    plan.has_no_exchange = true;
    plan.kinds = FAULT_WRITE | FAULT_SYNC;
    fault_run(&plan);
    plan.name = "new file, without links";
    plan.has_no_link = true;
    plan.kinds = FAULT_OUTPUT;
    fault_run(&plan);
    plan = (fault_plan){.name = "replaced file", .kinds = FAULT_OUTPUT, .attempt = put_forced,
                        .before = old_file, .after_failure = expect_either,
                        .after_success = expect_file, .ctx = &s};
    fault_run(&plan);
    scratch_close(&s);
}

static sw_code put_dir(void *ctx, sw_err *err)
{
    char path[SW_PATH_BYTES];
    sw_out_dir out = {0};
    sw_code rc;

    if ((rc = sw_out_dir_open(&out, scratch_path(ctx, "out"), true, err)) != SW_OK) return rc;
    if ((rc = sw_path_join(path, out.work_path, "a", err)) != SW_OK) goto fail;
    if ((rc = sw_file_put(path, "fresh", 5, err)) != SW_OK) goto fail;
    if ((rc = sw_path_join(path, out.work_path, "b", err)) != SW_OK) goto fail;
    if ((rc = sw_file_put(path, "fresh too", 9, err)) != SW_OK) goto fail;
    return sw_out_dir_commit(&out, err);
fail:
    sw_out_dir_abandon(&out);
    return rc;
}

static void remove_dir(void *ctx)
{
    (void)remove(scratch_path(ctx, "out/a"));
    (void)remove(scratch_path(ctx, "out/b"));
    (void)remove(scratch_path(ctx, "out/manifest.json"));
    (void)remove(scratch_path(ctx, "out"));
}

static void expect_dir(void *ctx)
{
    assert_int_equal(scratch_count(ctx, NULL), 1);
    assert_int_equal(scratch_count(ctx, "out"), 2);
    expect(ctx, "out/a", "fresh");
    expect(ctx, "out/b", "fresh too");
}

static void test_dir(void **state)
{
    scratch s;
    fault_plan plan = {.name = "directory", .kinds = FAULT_OUTPUT, .attempt = put_dir,
                       .before = remove_dir, .after_failure = expect_nothing,
                       .after_success = expect_dir, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    fault_run_slow_disk(&plan);
    plan.name = "directory, without exchange";
    plan.has_no_exchange = true;
    fault_run(&plan);
    scratch_close(&s);
}

static void old_dir(void *ctx)
{
    remove_dir(ctx);
    assert_int_equal(mkdir(scratch_path(ctx, "out"), 0755), 0);
    scratch_write(ctx, "out/a", "older", 5);
    scratch_manifest(ctx, "out");
}

static void expect_old_dir(void *ctx)
{
    assert_int_equal(scratch_count(ctx, NULL), 1);
    assert_int_equal(scratch_count(ctx, "out"), 2);
    expect(ctx, "out/a", "older");
}

static void test_dir_over_old(void **state)
{
    scratch s;
    fault_plan plan = {.name = "directory over old", .kinds = FAULT_OUTPUT, .attempt = put_dir,
                       .before = old_dir, .after_failure = expect_old_dir,
                       .after_success = expect_dir, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    plan.name = "directory over old, without exchange";
    plan.has_no_exchange = true;
    fault_run(&plan);
    scratch_close(&s);
}

static sw_code parse_json(void *ctx, sw_err *err)
{
    cJSON *root = NULL;
    const char *text = ctx;
    sw_code rc = sw_json_parse(&root, text, strlen(text), &sw_json_caps_config, "text", err);

    assert_true(rc == SW_OK ? root != NULL : root == NULL);
    cJSON_Delete(root);
    return rc;
}

static void test_json(void **state)
{
    static char text[] = "{\"a\":[1,-2.5e3,\"x\\n\\u00e9\",null,true],\"b\":{\"c\":{},\"d\":[[]]},"
                         "\"e\":1,\"f\":2,\"g\":3,\"h\":4,\"i\":5,\"j\":6,\"k\":7}";

    (void)state;
    fault_run(&(fault_plan){
        .name = "json", .kinds = FAULT_MEMORY, .attempt = parse_json, .ctx = text});
}

static sw_code use_memory(void *ctx, sw_err *err)
{
    sw_arena arena = {0};
    void *untouched = ctx, *buffer = untouched;
    char *text = NULL;
    int64_t *wide = NULL;
    sw_code rc;

    if ((rc = sw_mem_get(&buffer, 1000, 8, "buffer", err)) != SW_OK) {
        assert_ptr_equal(buffer, untouched);
        return rc;
    }
    if ((rc = sw_arena_text(&text, &arena, "abc", 3, err)) != SW_OK) goto done;
    if ((rc = SW_ARENA_TAKE(&wide, &arena, 100000, err)) != SW_OK) {
        assert_null(wide);
        goto done;
    }
    rc = sw_arena_print(&text, &arena, err, "%0100000d", 7);
done:
    sw_arena_free(&arena);
    sw_mem_put(buffer);
    return rc;
}

static void test_memory(void **state)
{
    static int marker;

    (void)state;
    fault_run(&(fault_plan){
        .name = "memory", .kinds = FAULT_MEMORY, .attempt = use_memory, .ctx = &marker});
}

static sw_code hash_file(void *ctx, sw_err *err)
{
    char hex[SW_SHA256_HEX_BYTES] = "untouched";
    sw_code rc = sw_sha256_file(hex, scratch_path(ctx, "f"), err);

    if (rc != SW_OK) assert_string_equal(hex, "untouched");
    return rc;
}

static void test_hash(void **state)
{
    scratch s;

    (void)state;
    scratch_open(&s);
    old_file(&s);
    fault_run(&(fault_plan){
        .name = "hash", .kinds = FAULT_READ, .attempt = hash_file, .ctx = &s});
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file), cmocka_unit_test(test_file_over_old),
        cmocka_unit_test(test_dir),  cmocka_unit_test(test_dir_over_old),
        cmocka_unit_test(test_json), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_hash), cmocka_unit_test(test_file_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
