/* test_hostile.c - files made to hurt: one clear error each, in under a second and 200 MB; and
 * links that would have a model's reader open or copy what is not the model's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/file/safetensors.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/hostile.h"
#include "tests/support/toys/pt_build.h"

/* The file at s/name is refused with these words, soon. */
static void expect_refused(const scratch *s, const char *name, const char *says)
{
    double begin = hostile_now_s();
    sw_st *st = NULL;
    sw_err err = {0};
    sw_code rc = sw_st_open(&st, scratch_path(s, name), &err);

    hostile_assert_cheap(begin, name);
    assert_null(st);
    assert_true(rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED || rc == SW_E_IO);
    if (!strstr(err.text, says)) fail_msg("have \"%s\", want \"%s\"", err.text, says);
    if (!strstr(err.text, scratch_path(s, ""))) fail_msg("no file is named: \"%s\"", err.text);
}

/* A header in front of n_data bytes; it goes. */
static void write_container(const scratch *s, const char *name, pt_bytes *json, size_t n_data)
{
    pt_bytes file = {.n = 0};
    unsigned char prefix[8];
    static const char zeros[64];

    sw_store_le64(prefix, json->n);
    pt_put(&file, prefix, 8);
    pt_put(&file, json->at, json->n);
    pt_put(&file, zeros, n_data);
    scratch_write(s, name, file.at, file.n);
    pt_free(&file);
    pt_free(json);
}

static void a_million_metadata_keys(void **state)
{
    pt_bytes json = {.n = 0}, items = {.n = 0};
    pt_zip zip = {.flags = 0};
    scratch s;

    (void)state;
    scratch_open(&s);
    pt_text(&json, "{\"__metadata__\":{");
    for (int i = 0; i < 1000000; i++) {
        char line[40];
        snprintf(line, sizeof line, "%s\"k%d\":\"v\"", i ? "," : "", i);
        pt_text(&json, line);
    }
    pt_text(&json, "}}");
    write_container(&s, "m.safetensors", &json, 0);
    expect_refused(&s, "m.safetensors", "holds more than is allowed");
    pt_string(&items, "_metadata");
    pt_text(&items, "}(");
    for (int i = 0; i < 1000000; i++) {
        char line[40];
        snprintf(line, sizeof line, "k%d", i);
        pt_string(&items, line);
        pt_int(&items, i % 100);
        if (i % 1000 == 999) pt_text(&items, "u(");
    }
    pt_text(&items, "u");
    pt_zip_pickle(&zip, &items);
    pt_zip_end(&zip);
    scratch_write(&s, "m.bin", zip.bytes.at, zip.bytes.n);
    pt_zip_free(&zip);
    pt_free(&items);
    expect_refused(&s, "m.bin", "holds more than 2000000 values");
    scratch_close(&s);
}

/* The same few bytes over and over make large objects, or deep ones. */
static void pickles_that_grow(void **state)
{
    static const struct { const char *unit; size_t n; int times; const char *says; } rows[] = {
        {"(", 1, 20 << 20, "more than 1048576 marks"},
        {"N", 1, 20 << 20, "more than 1048576 values on the stack"},
        {"]0", 2, 10 << 20, "holds more than 2000000 values"},
        {"}\x94" "0", 3, 7 << 20, "2000000 values"},
        {"2\x85\x85", 3, 7 << 20, "2000000 values"},
        {"]Na", 3, 7 << 20, "2000000 values"}};
    scratch s;

    (void)state;
    scratch_open(&s);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        pt_bytes p = {.n = 0};
        pt_zip zip = {.flags = 0};
        pt_text(&p, "\x80\x04N");
        for (int i = 0; i < rows[r].times / (IS_SLOW ? 2 : 1); i++)
            pt_put(&p, rows[r].unit, rows[r].n);
        pt_zip_add(&zip, "a/data.pkl", p.at, p.n, 0);
        pt_zip_end(&zip);
        scratch_write(&s, "m.bin", zip.bytes.at, zip.bytes.n);
        pt_zip_free(&zip);
        pt_free(&p);
        expect_refused(&s, "m.bin", rows[r].says);
    }
    scratch_close(&s);
}

static void dimensions_beyond_reason(void **state)
{
    static const char *const shapes[] = {"[1152921504606846976]", "[1152921504606846976,16]",
                                         "[4294967296,4294967296]", "[2,18446744073709551614]"};
    static const int64_t shape[2] = {(int64_t)1 << 60, 1}, strides[2] = {1, 1};
    scratch s;

    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < 4; i++) {
        pt_bytes json = {.n = 0};
        pt_text(&json, "{\"w\":{\"dtype\":\"F32\",\"shape\":");
        pt_text(&json, shapes[i]);
        pt_text(&json, ",\"data_offsets\":[0,16]}}");
        write_container(&s, "m.safetensors", &json, 16);
        expect_refused(&s, "m.safetensors", "tensor \"w\"");
    }
    for (int i = 0; i < 2; i++) {
        pt_bytes items = {.n = 0};
        pt_zip zip = {.flags = 0};
        pt_string(&items, "w");
        pt_tensor(&items, "Float", "0", i ? (int64_t)1 << 60 : 4, 0, 2, shape, strides);
        pt_zip_pickle(&zip, &items);
        pt_zip_add(&zip, "archive/data/0", shape, 16, 0);
        pt_zip_end(&zip);
        scratch_write(&s, "m.bin", zip.bytes.at, zip.bytes.n);
        pt_zip_free(&zip);
        pt_free(&items);
        expect_refused(&s, "m.bin", i ? "need more" : "beyond its storage");
    }
    scratch_close(&s);
}

/* The smallest container there is. */
static void write_good(const scratch *s, const char *name)
{
    pt_bytes json = {.n = 0};

    pt_text(&json, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}");
    write_container(s, name, &json, 4);
}

static void links_that_lead_out_are_refused(void **state)
{
    static const char index[] = "{\"weight_map\":{\"a\":\"one.safetensors\"}}";
    sw_st *st = NULL;
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    assert_int_equal(mkdir(scratch_path(&s, "m"), 0755), 0);
    write_good(&s, "outside.safetensors");
    scratch_write(&s, "m/model.safetensors.index.json", index, sizeof index - 1);
    assert_int_equal(symlink("../outside.safetensors", scratch_path(&s, "m/one.safetensors")), 0);
    expect_refused(&s, "m", "outside of the model's directory");
    assert_int_equal(unlink(scratch_path(&s, "m/model.safetensors.index.json")), 0);
    expect_refused(&s, "m", "outside of the model's directory");
    /* within the directory a link is only another name */
    assert_int_equal(unlink(scratch_path(&s, "m/one.safetensors")), 0);
    write_good(&s, "m/real");
    assert_int_equal(symlink("real", scratch_path(&s, "m/one.safetensors")), 0);
    assert_int_equal(sw_st_open(&st, scratch_path(&s, "m"), &err), SW_OK);
    sw_st_close(st);
    scratch_close(&s);
}

/* snapshots/<revision>/<file> -> ../../blobs/<digest>, and what only looks like it. */
static void links_of_a_hub_cache_are_followed(void **state)
{
    static const struct { const char *target; bool is_good; } rows[] = {
        {"../../blobs/0a1b", true},
        {"../../blobs/../secret.safetensors", false},
        {"../../secret.safetensors", false},
        {"../../blobs/link", false}};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(mkdir(scratch_path(&s, "blobs"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(&s, "snapshots"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(&s, "snapshots/r"), 0755), 0);
    write_good(&s, "blobs/0a1b");
    write_good(&s, "secret.safetensors");
    assert_int_equal(symlink("../secret.safetensors", scratch_path(&s, "blobs/link")), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = scratch_path(&s, "snapshots/r/x.safetensors");
        sw_st *st = NULL;
        sw_err err = {0};
        assert_int_equal(symlink(rows[i].target, at), 0);
        assert_int_equal(sw_st_open(&st, scratch_path(&s, "snapshots/r"), &err) == SW_OK,
                         rows[i].is_good);
        if (!rows[i].is_good) assert_non_null(strstr(err.text, "outside of the model's directory"));
        sw_st_close(st);
        assert_int_equal(unlink(at), 0);
    }
    scratch_close(&s);
}

/* A model whose tokenizer is a link to a private file would have it copied beside the weights. */
static void side_files_from_outside_are_not_copied(void **state)
{
    scratch s;
    ckpt_case c;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("swage"), 4, true, 32);
    scratch_write(&s, "private", "secret", 6);
    assert_int_equal(symlink("../private", scratch_path(&s, "source/vocab.txt")), 0);
    assert_int_equal(ckpt_write(&c, &s, "out", sw_dialect_find("swage"), false, 0, false, &err),
                     SW_E_IO);
    if (!strstr(err.text, "source/vocab.txt: a link to ") || !strstr(err.text, "outside of the"))
        fail_msg("%s", err.text);
    assert_int_equal(access(scratch_path(&s, "out"), F_OK), -1);
    assert_int_equal(unlink(scratch_path(&s, "source/config.json")), 0);
    assert_int_equal(symlink("../private", scratch_path(&s, "source/config.json")), 0);
    memset(&err, 0, sizeof err);
    sw_checkpoint ckpt;
    assert_int_equal(sw_checkpoint_open(&ckpt, scratch_path(&s, "source"), &err), SW_E_IO);
    assert_non_null(strstr(err.text, "config.json: a link to "));
    ckpt_close(&c);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_metadata_keys),
        cmocka_unit_test(pickles_that_grow),
        cmocka_unit_test(dimensions_beyond_reason),
        cmocka_unit_test(links_that_lead_out_are_refused),
        cmocka_unit_test(links_of_a_hub_cache_are_followed),
        cmocka_unit_test(side_files_from_outside_are_not_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
