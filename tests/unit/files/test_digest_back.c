/* test_digest_back.c - files read back while they grow: what the disk has is what counts, of the
 * very file and the very digest, and whatever was not read on the way is read at the end. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/file/safetensors.h"
#include "formats/io/digest_back.h"
#include "formats/io/file.h"
#include "tests/support/scratch.h"

#define STEP ((size_t)SW_DIGEST_STEP_BYTES)
#define SIZE (2 * STEP + 12345)
enum { N_STEPS = 3 };

static uint8_t *bytes;

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* As a writer does: what is digested is in the file by then. */
static void grow(sw_digest_steps *steps, sw_digest_back *back, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    sw_err err = {0};

    assert_true(fd >= 0);
    steps->has_tags = true;
    must(sw_digest_steps_begin(steps, &err), &err);
    for (size_t at = 0; at < SIZE; at += STEP) {
        const size_t n = SIZE - at < STEP ? SIZE - at : STEP;
        assert_int_equal(pwrite(fd, bytes + at, n, (off_t)at), (ssize_t)n);
        must(sw_digest_steps_add(steps, bytes + at, n, &err), &err);
        must(sw_digest_back_ready(back, steps, path, &err), &err);
    }
    must(sw_digest_steps_finish(steps, &err), &err);
    assert_int_equal(steps->n_tags, N_STEPS);
    assert_int_equal(close(fd), 0);
}

static bool is_same(const sw_digest_steps *steps, sw_digest_back *back, const char *path)
{
    bool is = false;
    sw_err err = {0};

    must(sw_digest_steps_check(&is, steps, back, path, 2, &err), &err);
    return is;
}

static void flip(const char *path, size_t at)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;

    assert_true(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    assert_int_equal(close(fd), 0);
}

/* How many steps were read on the way. */
static int n_read(sw_digest_back *back, const sw_digest_steps *steps, const char *path)
{
    uint8_t tags[N_STEPS][SW_MAC_BYTES];
    bool is_read[N_STEPS];
    int n = 0;

    sw_digest_back_take(tags, is_read, N_STEPS, back, steps, path);
    for (int i = 0; i < N_STEPS; i++) {
        if (is_read[i]) assert_memory_equal(tags[i], steps->tags[i], SW_MAC_BYTES);
        n += is_read[i];
    }
    return n;
}

static void test_steps_are_read_on_the_way(void **state)
{
    const char *path = scratch_path(*state, "file"), *moved = scratch_path(*state, "moved");
    sw_digest_steps steps = {0}, other = {0};
    sw_digest_back *back = NULL;
    sw_err err = {0};

    must(sw_digest_back_new(&back, &err), &err);
    grow(&steps, back, path);
    assert_int_equal(n_read(back, &steps, path), 2);
    assert_int_equal(rename(path, moved), 0); /* as a commit does */
    assert_int_equal(n_read(back, &steps, moved), 2);
    assert_true(is_same(&steps, back, moved));
    flip(moved, SIZE - 1); /* of the step that nobody has read yet */
    assert_false(is_same(&steps, back, moved));
    /* another file under the name, and another digest of the same file */
    grow(&other, NULL, path);
    assert_int_equal(n_read(back, &steps, path), 0);
    assert_int_equal(n_read(back, &other, moved), 0);
    flip(path, 1);
    assert_false(is_same(&steps, back, path));
    flip(path, 1);
    assert_false(is_same(&other, back, moved));
    assert_true(is_same(&other, NULL, path));
    sw_digest_steps_free(&other);
    sw_digest_steps_free(&steps);
    sw_digest_back_free(back);
}

/* The disk has something else than what was digested. */
static void test_the_disk_is_asked(void **state)
{
    static const size_t places[] = {0, STEP - 1, STEP, 2 * STEP - 1, 2 * STEP, SIZE - 1};
    const char *path = scratch_path(*state, "file");

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        sw_digest_steps steps = {0};
        sw_digest_back *back = NULL;
        sw_err err = {0};

        must(sw_digest_back_new(&back, &err), &err);
        grow(&steps, NULL, path);
        flip(path, places[i]);
        must(sw_digest_back_ready(back, &steps, path, &err), &err);
        assert_false(is_same(&steps, back, path));
        sw_digest_steps_free(&steps);
        sw_digest_back_free(back);
    }
}

/* At once, whatever is under way; and what cannot be opened is left to the end. */
static void test_stop_and_absence(void **state)
{
    const char *path = scratch_path(*state, "file");
    sw_digest_steps steps = {0};
    sw_digest_back *back = NULL;
    sw_err err = {0};

    must(sw_digest_back_new(&back, &err), &err);
    grow(&steps, back, path);
    sw_digest_back_free(back);
    must(sw_digest_back_new(&back, &err), &err);
    must(sw_digest_back_ready(back, &steps, scratch_path(*state, "none"), &err), &err);
    assert_int_equal(n_read(back, &steps, path), 0);
    assert_true(is_same(&steps, back, path));
    sw_digest_steps_free(&steps);
    sw_digest_back_free(back);
    sw_digest_back_free(NULL);
}

/* A writer of safetensors tells of its steps; one that begins anew tells of all of them again. */
static void test_a_writer_tells(void **state)
{
    const int64_t shape = (int64_t)(2 * STEP);
    const scratch *s = *state;
    sw_digest_back *back = NULL;
    sw_st_writer *w = NULL;
    sw_err err = {0};

    must(sw_digest_back_new(&back, &err), &err);
    must(sw_st_writer_new(&w, s->dir, 0, &err), &err);
    must(sw_st_writer_declare(w, "a", SW_DTYPE_U8, 1, &shape, &err), &err);
    sw_st_writer_follow(w);
    must(sw_st_writer_begin(w, &err), &err);
    sw_st_writer_read_back(w, back);
    for (int i = 0; i < 2; i++) { /* the first stream breaks off */
        sw_st_stream stream = {0};
        uint64_t n_put = 0;

        must(sw_st_stream_open(&stream, w, "a", &err), &err);
        must(sw_st_stream_add(&stream, bytes + i, i ? 2 * STEP : STEP + STEP / 2, &err), &err);
        if (i) must(sw_st_stream_end(&n_put, &stream, &err), &err);
        sw_st_stream_close(&stream);
    }
    must(sw_st_writer_commit(w, &err), &err);
    const sw_digest_steps *steps = sw_st_writer_digest(w, "model.safetensors");
    assert_non_null(steps);
    assert_int_equal(n_read(back, steps, scratch_path(s, "model.safetensors")), 2);
    assert_true(is_same(steps, back, scratch_path(s, "model.safetensors")));
    sw_st_writer_free(w);
    sw_digest_back_free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_steps_are_read_on_the_way, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_the_disk_is_asked, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_stop_and_absence, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_writer_tells, scratch_setup, scratch_teardown),
    };
    sw_err err = {0};
    int failed;

    if (SW_MEM_GET(&bytes, SIZE, "bytes", &err) != SW_OK) return 1;
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    sw_mem_put(bytes);
    return failed;
}
