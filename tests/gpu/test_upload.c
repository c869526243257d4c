/* test_upload.c - floats that become BF16 on their way to a device: what the CPU rounds them to.
 * Exit 77 without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/random.h"

static sw_device *gpu;

static void check_copy(int64_t n, sw_dtype dtype)
{
    const int64_t elem_bytes = sw_dtype_bits(dtype) / 8;
    float *values = malloc((size_t)n * sizeof *values);
    void *from = malloc((size_t)(n * elem_bytes));
    uint16_t *want = malloc((size_t)n * 2), *have = malloc((size_t)n * 2), *d = NULL;
    test_rng rng = {(uint64_t)n};

    for (int64_t i = 0; i < n; i++) values[i] = (float)test_gauss(&rng);
    MUST(sw_float_encode_n(from, dtype, values, n, err));
    MUST(sw_float_decode_n(values, from, dtype, n, err));
    MUST(sw_float_encode_n(want, SW_DTYPE_BF16, values, n, err));
    MUST(sw_device_take((void **)&d, gpu, n + 1, 2, "test", err));
    MUST(sw_device_fill(gpu, d, 0x55, 2 * (n + 1), err));
    MUST(sw_device_copy_as_bf16(gpu, d, from, dtype, n, err));
    MUST(sw_device_download(gpu, have, d, 2 * n, err));
    assert_memory_equal(have, want, (size_t)n * 2);
    MUST(sw_device_download(gpu, have, d + n, 2, err));
    assert_int_equal(have[0], 0x5555); /* nothing beyond */
    sw_device_put(gpu, d);
    free(values), free(from), free(want), free(have);
}

/* Fewer than go through pinned memory, a part of a piece of it, and more than all pieces hold. */
static void test_copies(void **state)
{
    static const int64_t sizes[] = {1, 1000, 600001, 9000003};
    static const sw_dtype dtypes[] = {SW_DTYPE_F32, SW_DTYPE_F16, SW_DTYPE_BF16};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) check_copy(sizes[s], dtypes[t]);
}

static void test_no_floats(void **state)
{
    const size_t n = 600000;
    int64_t *whole = calloc(n, sizeof *whole);
    uint16_t *d = NULL;
    sw_err none = {0};

    (void)state;
    MUST(sw_device_take((void **)&d, gpu, (int64_t)n, 2, "test", err));
    assert_int_equal(sw_device_copy_as_bf16(gpu, d, whole, SW_DTYPE_I64, (int64_t)n, &none),
                     SW_E_UNSUPPORTED);
    sw_device_put(gpu, d);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies),
                                       cmocka_unit_test(test_no_floats)};
    int failed = device_open(&gpu);

    if (failed) return failed;
    failed = cmocka_run_group_tests_name("uploads", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
