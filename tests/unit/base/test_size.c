/* test_size.c - arithmetic that cannot wrap, and byte order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"

static void test_products(void **state)
{
    const uint64_t root = (uint64_t)1 << 32;
    uint64_t out = 7;

    (void)state;
    assert_true(sw_mul_u64(&out, 3, 5));
    assert_int_equal(out, 15);
    assert_true(sw_mul_u64(&out, UINT64_MAX, 1));
    assert_true(out == UINT64_MAX);
    assert_true(sw_mul_u64(&out, UINT64_MAX, 0));
    assert_int_equal(out, 0);
    assert_true(sw_mul_u64(&out, root - 1, root + 1)); /* 2^64 - 1 */
    assert_true(out == UINT64_MAX);
    out = 7;
    assert_false(sw_mul_u64(&out, root, root));
    assert_false(sw_mul_u64(&out, UINT64_MAX, 2));
    assert_int_equal(out, 7);
}

static void test_sums(void **state)
{
    uint64_t out = 7;

    (void)state;
    assert_true(sw_add_u64(&out, UINT64_MAX, 0));
    assert_true(out == UINT64_MAX);
    out = 7;
    assert_false(sw_add_u64(&out, UINT64_MAX, 1));
    assert_int_equal(out, 7);
}

static void test_rounding(void **state)
{
    (void)state;
    assert_int_equal(sw_ceil_div(0, 4), 0);
    assert_int_equal(sw_ceil_div(1, 4), 1);
    assert_int_equal(sw_ceil_div(4, 4), 1);
    assert_int_equal(sw_ceil_div(5, 4), 2);
    assert_int_equal(sw_round_up(5, 4), 8);
    assert_int_equal(sw_round_up(8, 4), 8);
    assert_int_equal(sw_min_i64(-2, 3), -2);
    assert_int_equal(sw_max_i64(-2, 3), 3);
}

static void test_byte_order(void **state)
{
    const unsigned char bytes[9] = {0xee, 0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88};
    unsigned char back[9] = {0xee};

    (void)state;
    assert_int_equal(sw_load_le16(bytes + 1), 0x8201);
    assert_true(sw_load_le32(bytes + 1) == 0x84038201u);
    assert_true(sw_load_le64(bytes + 1) == 0x8807860584038201u);
    sw_store_le64(back + 1, 0x8807860584038201u); /* an odd address on purpose */
    assert_memory_equal(back, bytes, 9);
    sw_store_le32(back + 1, 0xa1b2c3d4u);
    assert_true(sw_load_le32(back + 1) == 0xa1b2c3d4u);
    assert_int_equal(back[5], 0x05);
    sw_store_le16(back + 1, 0x1234);
    assert_int_equal(back[1], 0x34);
    assert_int_equal(back[2], 0x12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_byte_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
