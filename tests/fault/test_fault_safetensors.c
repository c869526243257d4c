/* test_fault_safetensors.c - memory and disk failing while checkpoints are written and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zstd.h>
#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/base/mem.h"
#include "formats/file/safetensors.h"
#include "formats/io/digest_back.h"
#include "formats/io/file_content.h"
#include "tests/fault/fault.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/pt_build.h"

#define N_TENSORS 70 /* more than the table of declarations holds at first */

static const float data[] = {1, 2, 3, 4};

static sw_code put_all(sw_st_writer *w, sw_err *err)
{
    const int64_t shape[] = {2, 2};
    char name[32];
    sw_code rc = sw_st_writer_meta(w, "key", "value", err);

    for (int i = 0; i < N_TENSORS && rc == SW_OK; i++) {
        (void)snprintf(name, sizeof name, "tensor.%d", i);
        rc = sw_st_writer_declare(w, name, SW_DTYPE_F32, 2, shape, err);
    }
    if (rc == SW_OK) rc = sw_st_writer_begin(w, err);
    for (int i = N_TENSORS; i-- > 0 && rc == SW_OK;) {
        (void)snprintf(name, sizeof name, "tensor.%d", i);
        rc = sw_st_writer_put(w, name, data, sizeof data, err);
    }
    return rc == SW_OK ? sw_st_writer_commit(w, err) : rc;
}

static sw_code write_shards(const scratch *s, uint64_t shard_bytes, sw_err *err)
{
    sw_st_writer *w = NULL;
    sw_code rc = sw_st_writer_new(&w, s->dir, shard_bytes, err);

    if (rc == SW_OK) rc = put_all(w, err);
    sw_st_writer_free(w);
    return rc;
}

static sw_code write_one(void *ctx, sw_err *err) { return write_shards(ctx, 0, err); }
static sw_code write_three(void *ctx, sw_err *err)
{
    return write_shards(ctx, 30 * sizeof data, err);
}

/* Blocks, the digest on the way, and what passes the system's cache: the later tensor first. */
#define STREAM_BYTES ((size_t)1300003)

static sw_code put_streams(sw_st_writer *w, sw_err *err)
{
    static uint8_t bytes[STREAM_BYTES];
    const int64_t shape[] = {(int64_t)STREAM_BYTES};
    sw_code rc = sw_st_writer_declare(w, "a", SW_DTYPE_U8, 1, shape, err);

    if (rc == SW_OK) rc = sw_st_writer_declare(w, "b", SW_DTYPE_U8, 1, shape, err);
    sw_st_writer_follow(w);
    if (rc == SW_OK) rc = sw_st_writer_begin(w, err);
    for (int i = 1; i >= 0 && rc == SW_OK; i--) {
        sw_st_stream stream = {0};
        uint64_t n_put = 0;
        memset(bytes, i + 1, sizeof bytes);
        rc = sw_st_stream_open(&stream, w, i ? "b" : "a", err);
        for (size_t at = 0; at < sizeof bytes && rc == SW_OK; at += 700000)
            rc = sw_st_stream_add(&stream, bytes + at,
                                  sizeof bytes - at < 700000 ? sizeof bytes - at : 700000, err);
        if (rc == SW_OK) rc = sw_st_stream_end(&n_put, &stream, err);
        sw_st_stream_close(&stream);
        if (rc == SW_OK) rc = sw_st_writer_catch_up(w, err);
    }
    return rc == SW_OK ? sw_st_writer_commit(w, err) : rc;
}

static sw_code write_streams(void *ctx, sw_err *err)
{
    const scratch *s = ctx;
    char digest[SW_SHA256_HEX_BYTES];
    sw_st_writer *w = NULL;
    sw_code rc = sw_st_writer_new(&w, s->dir, 0, err);

    if (rc == SW_OK) rc = put_streams(w, err);
    if (rc == SW_OK) rc = sw_sha256_file(digest, scratch_path(s, "model.safetensors"), err);
    if (rc == SW_OK)
        assert_string_equal(sw_st_writer_digest(w, "model.safetensors")->digest, digest);
    sw_st_writer_free(w);
    return rc;
}

static sw_code read_all(void *ctx, sw_err *err)
{
    sw_st *st = NULL;
    sw_code rc = sw_st_open(&st, ((scratch *)ctx)->dir, err);

    if (rc != SW_OK) {
        assert_null(st);
        return rc;
    }
    assert_int_equal(sw_st_count(st), N_TENSORS);
    for (int64_t i = 0; i < N_TENSORS; i++)
        assert_memory_equal(sw_st_at(st, i)->view.data, data, sizeof data);
    sw_st_close(st);
    return SW_OK;
}

static void empty(void *ctx)
{
    const scratch *s = ctx;

    (void)unlink(scratch_path(s, "model.safetensors"));
    (void)unlink(scratch_path(s, "model.safetensors.index.json"));
    (void)unlink(scratch_path(s, "model-00001-of-00003.safetensors"));
    (void)unlink(scratch_path(s, "model-00002-of-00003.safetensors"));
    (void)unlink(scratch_path(s, "model-00003-of-00003.safetensors"));
}

static void expect_streams(void *ctx)
{
    sw_err err = {0};
    sw_st *st = NULL;

    assert_int_equal(sw_st_open(&st, ((scratch *)ctx)->dir, &err), SW_OK);
    for (int i = 0; i < 2; i++) {
        const uint8_t *bytes = sw_st_at(st, i)->view.data;
        for (size_t at = 0; at < STREAM_BYTES; at++)
            if (bytes[at] != i + 1) fail_msg("tensor %d differs at %zu", i, at);
    }
    sw_st_close(st);
    assert_false(scratch_has(ctx, ".tmp-"));
}

/* More than a step of the digest, which is read back while it is written. */
static sw_code write_read_behind(void *ctx, sw_err *err)
{
    const scratch *s = ctx;
    const int64_t shape = (int64_t)SW_DIGEST_STEP_BYTES + 5;
    const char *path = scratch_path(s, "model.safetensors");
    sw_digest_back *back = NULL;
    sw_st_writer *w = NULL;
    void *bytes = NULL;
    bool is_same = false;
    sw_code rc = sw_mem_get(&bytes, shape, 1, "bytes", err);

    if (rc == SW_OK) rc = sw_digest_back_new(&back, err);
    if (rc == SW_OK) rc = sw_st_writer_new(&w, s->dir, 0, err);
    if (rc == SW_OK) rc = sw_st_writer_declare(w, "a", SW_DTYPE_U8, 1, &shape, err);
    if (rc == SW_OK) sw_st_writer_follow(w);
    if (rc == SW_OK) rc = sw_st_writer_begin(w, err);
    if (rc == SW_OK) sw_st_writer_read_back(w, back);
    if (rc == SW_OK) rc = sw_st_writer_put(w, "a", bytes, (size_t)shape, err);
    if (rc == SW_OK) rc = sw_st_writer_commit(w, err);
    if (rc == SW_OK)
        rc = sw_digest_steps_check(&is_same, sw_st_writer_digest(w, "model.safetensors"), back,
                                   path, 2, err);
    if (rc == SW_OK) assert_true(is_same);
    if (rc != SW_OK) (void)unlink(path); /* it may have been complete by then */
    sw_st_writer_free(w);
    sw_digest_back_free(back);
    sw_mem_put(bytes);
    return rc;
}

static void expect_nothing(void *ctx) { assert_int_equal(scratch_count(ctx, NULL), 0); }

static void expect_readable(void *ctx)
{
    sw_err err = {0};

    assert_int_equal(read_all(ctx, &err), SW_OK);
    assert_false(scratch_has(ctx, ".tmp-"));
}

static void test_write(void **state)
{
    scratch s;
    fault_plan plan = {.name = "write one file", .kinds = FAULT_MEMORY | FAULT_OUTPUT,
                       .attempt = write_one, .before = empty, .after_failure = expect_nothing,
                       .after_success = expect_readable, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    fault_run_slow_disk(&plan);
    plan.name = "write three shards";
    plan.attempt = write_three;
    fault_run(&plan);
    fault_run_slow_disk(&plan);
    scratch_close(&s);
}

static void test_write_streams(void **state)
{
    scratch s;
    fault_plan plan = {.name = "write streams", .kinds = FAULT_MEMORY | FAULT_OUTPUT,
                       .attempt = write_streams, .before = empty, .after_failure = expect_nothing,
                       .after_success = expect_streams, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    fault_run_slow_disk(&plan);
    scratch_close(&s);
}

static void test_write_read_behind(void **state)
{
    scratch s;
    fault_plan plan = {.name = "read behind", .kinds = FAULT_MEMORY | FAULT_WRITE | FAULT_SYNC,
                       .attempt = write_read_behind, .before = empty, .max_runs = 60,
                       .after_failure = expect_nothing, .ctx = &s};

    (void)state;
    scratch_open(&s);
    fault_run(&plan);
    scratch_close(&s);
}

static void test_read(void **state)
{
    sw_err err = {0};
    scratch s;
    fault_plan plan = {.name = "read three shards", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = read_all, .ctx = &s};

    (void)state;
    scratch_open(&s);
    assert_int_equal(write_three(&s, &err), SW_OK);
    fault_run(&plan);
    scratch_close(&s);
}

/* A turned tensor has a copy, in a file of its own. */
static void write_archive(const scratch *s)
{
    static const int64_t shape[2] = {4, 6}, plain[2] = {6, 1}, turned[2] = {1, 4};
    static const float storage[24];
    pt_bytes items = {.n = 0};
    pt_zip zip = {.flags = 0};

    pt_string(&items, "a");
    pt_tensor(&items, "Float", "0", 24, 0, 2, shape, plain);
    pt_string(&items, "b");
    pt_tensor(&items, "Float", "0", 24, 0, 2, shape, turned);
    pt_zip_pickle(&zip, &items);
    pt_zip_add(&zip, "archive/data/0", storage, sizeof storage, 0);
    pt_zip_end(&zip);
    scratch_write(s, "pytorch_model.bin", zip.bytes.at, zip.bytes.n);
    pt_zip_free(&zip);
    pt_free(&items);
}

static sw_code read_archive(void *ctx, sw_err *err)
{
    const scratch *s = ctx;
    sw_st *st = NULL;
    sw_code rc = sw_st_open(&st, s->dir, err);

    if (rc != SW_OK) {
        assert_null(st);
        return rc;
    }
    assert_int_equal(sw_st_count(st), 2);
    sw_st_close(st);
    return SW_OK;
}

static void test_read_archive(void **state)
{
    scratch s;
    fault_plan plan = {.name = "read an archive of PyTorch", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = read_archive, .ctx = &s};

    (void)state;
    scratch_open(&s);
    write_archive(&s);
    fault_run(&plan);
    scratch_close(&s);
}

/* Compressed; frames that do not say their size are run through twice. */
static void test_read_compressed(void **state)
{
    static const char json[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}";
    unsigned char plain[8 + sizeof json - 1 + 8] = {sizeof json - 1}, packed[512];
    scratch s;
    fault_plan plan = {.name = "read a compressed container",
                       .kinds = FAULT_MEMORY | FAULT_WRITE | FAULT_READ,
                       .attempt = read_archive, .ctx = &s};

    (void)state;
    memcpy(plain + 8, json, sizeof json - 1);
    for (int says_size = 0; says_size < 2; says_size++) {
        ZSTD_CCtx *zstd = ZSTD_createCCtx();
        size_t n;
        scratch_open(&s);
        (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, says_size);
        n = ZSTD_compress2(zstd, packed, sizeof packed, plain, sizeof plain);
        assert_false(ZSTD_isError(n));
        ZSTD_freeCCtx(zstd);
        scratch_write(&s, "model.safetensors.zst", packed, n);
        fault_run(&plan);
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write), cmocka_unit_test(test_write_streams),
        cmocka_unit_test(test_write_read_behind),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_read_archive),
        cmocka_unit_test(test_read_compressed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
