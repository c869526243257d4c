/* test_finite.c - the first infinity or NaN among stored floats, wherever it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/num/finite.h"
#include "tests/support/toys/random.h"

#define N ((int64_t)(1 << 20) + 5000) /* more than one thread's share */

/* Bits of the largest number and of the smallest infinity, negative the one and the other. */
static const struct {
    sw_dtype dtype;
    uint64_t largest, infinity;
} kinds[] = {
    {SW_DTYPE_F16, 0xfbff, 0x7c00},
    {SW_DTYPE_BF16, 0xff7f, 0xff80},
    {SW_DTYPE_F32, 0x7f7fffff, 0xff800000},
    {SW_DTYPE_F64, 0xffefffffffffffff, 0x7ff0000000000000},
};

static void store(uint8_t *bytes, int64_t i, int64_t elem_bytes, uint64_t bits)
{
    for (int64_t b = 0; b < elem_bytes; b++)
        bytes[i * elem_bytes + b] = (uint8_t)(bits >> (8 * b));
}

static void test_every_dtype(void **state)
{
    static const int64_t places[] = {0, 1, 4095, 4096, (1 << 20) - 1, 1 << 20, N - 1};
    uint8_t *bytes = malloc((size_t)N * 8);

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const sw_dtype dtype = kinds[k].dtype;
        const int64_t elem_bytes = sw_dtype_bits(dtype) / 8;
        for (int64_t i = 0; i < N; i++) store(bytes, i, elem_bytes, kinds[k].largest);
        assert_int_equal(sw_first_not_finite(bytes, dtype, N, 3), -1);
        assert_int_equal(sw_first_not_finite(bytes, dtype, 0, 3), -1);
        store(bytes, N - 1, elem_bytes, kinds[k].infinity);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            store(bytes, places[i], elem_bytes, kinds[k].infinity | 1);
            assert_int_equal(sw_first_not_finite(bytes, dtype, N, 1), places[i]);
            assert_int_equal(sw_first_not_finite(bytes, dtype, N, 3), places[i]);
            store(bytes, places[i], elem_bytes, i + 1 < sizeof places / sizeof *places
                                                    ? kinds[k].largest : kinds[k].infinity);
        }
    }
    memset(bytes, 0xff, 64);
    assert_int_equal(sw_first_not_finite(bytes, SW_DTYPE_I32, 16, 1), -1); /* no floats */
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_dtype)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
