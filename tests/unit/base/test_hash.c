/* test_hash.c - SHA-256 against the vectors of FIPS 180-2, in memory and from files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/io/file_content.h"
#include "tests/support/scratch.h"

#define MILLION 1000000

static const char *const want_empty =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
static const char *const want_abc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
static const char *const want_million =
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

static void test_memory(void **state)
{
    char hex[SW_SHA256_HEX_BYTES];
    char *million = malloc(MILLION);
    sw_err err = {0};

    (void)state;
    memset(million, 'a', MILLION);
    assert_int_equal(sw_sha256_hex(hex, "", 0, &err), SW_OK);
    assert_string_equal(hex, want_empty);
    assert_int_equal(sw_sha256_hex(hex, "abc", 3, &err), SW_OK);
    assert_string_equal(hex, want_abc);
    assert_int_equal(sw_sha256_hex(hex, million, MILLION, &err), SW_OK);
    assert_string_equal(hex, want_million);
    free(million);
}

/* The file is hashed in steps of 16 MiB: one larger than that must agree with one call. */
static void test_file(void **state)
{
    size_t n = ((size_t)16 << 20) * 2 + 4097;
    char hex[SW_SHA256_HEX_BYTES], direct[SW_SHA256_HEX_BYTES];
    unsigned char *bytes = malloc(n);
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    scratch_write(&s, "empty", "", 0);
    assert_int_equal(sw_sha256_file(hex, scratch_path(&s, "empty"), &err), SW_OK);
    assert_string_equal(hex, want_empty);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    scratch_write(&s, "large", bytes, n);
    assert_int_equal(sw_sha256_hex(direct, bytes, n, &err), SW_OK);
    assert_int_equal(sw_sha256_file(hex, scratch_path(&s, "large"), &err), SW_OK);
    assert_string_equal(hex, direct);
    memset(hex, 'x', sizeof hex);
    assert_int_equal(sw_sha256_file(hex, scratch_path(&s, "absent"), &err), SW_E_IO);
    assert_int_equal(hex[0], 'x');
    scratch_close(&s);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
