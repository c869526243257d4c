/* test_view.c - the dtype table and the size of a shape. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/view.h"

/* The container's alignment order, ascending, with widths; written out a second time on purpose. */
static const struct {
    const char *name;
    int bits;
} want[] = {{"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8},
            {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
            {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},
            {"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64}};

static void test_dtypes(void **state)
{
    (void)state;
    assert_int_equal(SW_DTYPE_COUNT, sizeof want / sizeof want[0]);
    for (int i = 0; i < SW_DTYPE_COUNT; i++) {
        sw_dtype found = SW_DTYPE_COUNT;
        assert_string_equal(sw_dtype_name((sw_dtype)i), want[i].name);
        assert_int_equal(sw_dtype_bits((sw_dtype)i), want[i].bits);
        assert_true(sw_dtype_find(&found, want[i].name, strlen(want[i].name)));
        assert_int_equal(found, i);
    }
}

static void test_unknown_dtypes(void **state)
{
    static const char *const bad[] = {"", "f32", "F3", "F323", "F8_E4M3FN", " F32"};
    sw_dtype found = SW_DTYPE_COUNT;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(sw_dtype_find(&found, bad[i], strlen(bad[i])));
    assert_int_equal(found, SW_DTYPE_COUNT);
    assert_true(sw_dtype_find(&found, "F32x", 3)); /* need not be terminated */
}

static const struct {
    sw_dtype dtype;
    int32_t n_dims;
    int64_t shape[9];
    uint64_t n_bytes; /* UINT64_MAX: refused */
} shapes[] = {
    {SW_DTYPE_F32, 0, {0}, 4},
    {SW_DTYPE_F32, 2, {3, 5}, 60},
    {SW_DTYPE_F32, 3, {3, 0, 5}, 0},
    {SW_DTYPE_F4, 1, {6}, 3},
    {SW_DTYPE_F4, 1, {7}, UINT64_MAX},
    {SW_DTYPE_F6_E2M3, 2, {2, 2}, 3},
    {SW_DTYPE_F6_E2M3, 1, {5}, UINT64_MAX},
    {SW_DTYPE_U8, 8, {1, 1, 2, 1, 1, 1, 1, 3}, 6},
    {SW_DTYPE_U8, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, UINT64_MAX},
    {SW_DTYPE_U8, -1, {0}, UINT64_MAX},
    {SW_DTYPE_U8, 2, {4, -1}, UINT64_MAX},
    {SW_DTYPE_U8, 2, {-4, -1}, UINT64_MAX},
    {SW_DTYPE_U8, 1, {(int64_t)1 << 59}, (uint64_t)1 << 59},
    {SW_DTYPE_U8, 1, {INT64_MAX}, UINT64_MAX},
    {SW_DTYPE_U8, 2, {(int64_t)1 << 32, (int64_t)1 << 32}, UINT64_MAX},
    {SW_DTYPE_U8, 3, {(int64_t)1 << 40, (int64_t)1 << 40, 2}, UINT64_MAX},
    {SW_DTYPE_F64, 1, {(int64_t)1 << 60}, UINT64_MAX},
};

static void test_shape_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint64_t n_bytes = UINT64_MAX;
        sw_err err = {0};
        sw_code rc = sw_shape_bytes(&n_bytes, shapes[i].dtype, shapes[i].n_dims, shapes[i].shape,
                                    &err);
        if (n_bytes != shapes[i].n_bytes)
            fail_msg("case %zu: %llu", i, (unsigned long long)n_bytes);
        assert_int_equal(rc, shapes[i].n_bytes == UINT64_MAX ? SW_E_FORMAT : SW_OK);
        assert_int_equal(err.code, rc);
    }
}

static void test_describe(void **state)
{
    const sw_cview matrix = {.dtype = SW_DTYPE_BF16, .n_dims = 2, .shape = {256, 768}};
    const sw_cview scalar = {.dtype = SW_DTYPE_F32};
    char text[64], tiny[6];

    (void)state;
    sw_view_describe(text, sizeof text, &matrix);
    assert_string_equal(text, "BF16 [256, 768]");
    sw_view_describe(text, sizeof text, &scalar);
    assert_string_equal(text, "F32 []");
    for (size_t n = 1; n <= sizeof tiny; n++) {
        memset(tiny, 'x', sizeof tiny);
        sw_view_describe(tiny, n, &matrix);
        assert_int_equal(strlen(tiny), n - 1);
        assert_memory_equal(tiny, "BF16 [", n - 1);
    }
    assert_int_equal(sw_view_elems(&matrix), 256 * 768);
    assert_int_equal(sw_view_elems(&scalar), 1);
}

static void test_const_view(void **state)
{
    int data = 0;
    const sw_view view = {&data, 4, SW_DTYPE_I32, 2, {1, 1}};
    const sw_cview c = sw_view_const(&view);

    (void)state;
    assert_ptr_equal(c.data, &data);
    assert_int_equal(c.size_bytes, 4);
    assert_int_equal(c.dtype, SW_DTYPE_I32);
    assert_int_equal(c.n_dims, 2);
    assert_memory_equal(c.shape, view.shape, sizeof c.shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),      cmocka_unit_test(test_unknown_dtypes),
        cmocka_unit_test(test_shape_bytes), cmocka_unit_test(test_describe),
        cmocka_unit_test(test_const_view),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
