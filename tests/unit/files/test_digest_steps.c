/* test_digest_steps.c - a digest with its states on the way: the digest is that of the bytes, and
 * many threads find out whether a file still has it, wherever it has changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/io/digest_steps.h"
#include "formats/io/file.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/random.h"

#define STEP ((size_t)SW_DIGEST_STEP_BYTES)
#define LARGEST (2 * STEP + 4097)

static uint8_t *bytes;

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* In pieces of any size. */
static void add_all(sw_digest_steps *steps, size_t n, uint64_t seed)
{
    test_rng rng = {seed};
    sw_err err = {0};

    steps->has_tags = true;
    must(sw_digest_steps_begin(steps, &err), &err);
    for (size_t at = 0; at < n;) {
        size_t part = 1 + (size_t)(test_u64(&rng) % (STEP / 3));
        if (part > n - at) part = n - at;
        must(sw_digest_steps_add(steps, bytes + at, part, &err), &err);
        at += part;
    }
    must(sw_digest_steps_finish(steps, &err), &err);
}

static bool is_same(const sw_digest_steps *steps, const char *path, int n_threads)
{
    bool is = false;
    sw_err err = {0};

    must(sw_digest_steps_check(&is, steps, NULL, path, n_threads, &err), &err);
    return is;
}

static void put(const char *path, size_t n)
{
    sw_err err = {0};

    must(sw_file_put(path, bytes, n, &err), &err);
}

/* One bit of one byte. */
static void check_changed(const sw_digest_steps *steps, const char *path, size_t n, size_t at)
{
    if (at >= n) return;
    bytes[at] ^= 0x10;
    put(path, n);
    bytes[at] ^= 0x10;
    assert_false(is_same(steps, path, 3));
}

static void test_every_size(void **state)
{
    static const size_t sizes[] = {0, 1, STEP - 1, STEP, STEP + 1, LARGEST};
    char want[SW_SHA256_HEX_BYTES];
    scratch s;

    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *path = scratch_path(&s, "file");
        const size_t n = sizes[i];
        sw_digest_steps steps = {0};
        sw_err err = {0};

        add_all(&steps, n, i);
        must(sw_sha256_hex(want, bytes, n, &err), &err);
        assert_string_equal(steps.digest, want);
        put(path, n);
        assert_true(is_same(&steps, path, 1));
        assert_true(is_same(&steps, path, 3));
        check_changed(&steps, path, n, 0);
        check_changed(&steps, path, n, STEP - 1);
        check_changed(&steps, path, n, STEP);
        check_changed(&steps, path, n, n - 1);
        if (n) put(path, n - 1);
        if (n) assert_false(is_same(&steps, path, 2));
        put(path, n + 1);
        assert_false(is_same(&steps, path, 2));
        sw_digest_steps_free(&steps);
    }
    scratch_close(&s);
}

/* Who will not check need not pay for it. */
static void test_no_tags(void **state)
{
    sw_digest_steps steps = {0};
    char want[SW_SHA256_HEX_BYTES];
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    must(sw_digest_steps_begin(&steps, &err), &err);
    must(sw_digest_steps_add(&steps, bytes, STEP + 1, &err), &err);
    must(sw_digest_steps_finish(&steps, &err), &err);
    must(sw_sha256_hex(want, bytes, STEP + 1, &err), &err);
    assert_string_equal(steps.digest, want);
    assert_int_equal(steps.n_tags, 0);
    put(scratch_path(&s, "file"), STEP + 1);
    assert_false(is_same(&steps, scratch_path(&s, "file"), 1));
    sw_digest_steps_free(&steps);
    scratch_close(&s);
}

static void test_not_finished_or_not_there(void **state)
{
    sw_digest_steps steps = {0};
    bool is = true;
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    steps.has_tags = true;
    must(sw_digest_steps_begin(&steps, &err), &err);
    put(scratch_path(&s, "empty"), 0);
    assert_false(is_same(&steps, scratch_path(&s, "empty"), 1));
    assert_int_equal(sw_digest_steps_check(&is, &steps, NULL, scratch_path(&s, "none"), 1, &err),
                     SW_E_IO);
    sw_digest_steps_free(&steps);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_no_tags),
        cmocka_unit_test(test_not_finished_or_not_there),
    };
    test_rng rng = {1};
    int failed;

    bytes = malloc(LARGEST + 1);
    for (size_t i = 0; i + 8 <= LARGEST + 1; i += 8) sw_store_le64(bytes + i, test_u64(&rng));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(bytes);
    return failed;
}
