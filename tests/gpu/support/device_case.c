/* device_case.c - see device_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "formats/num/act.h"
#include "kernels/engine/engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/random.h"

int device_missing(void)
{
    if (sw_device_count()) return 0;
    printf("skipped: no GPU\n");
    return 77;
}

int device_open(sw_device **out)
{
    const int missing = device_missing();
    sw_err err = {0};

    if (missing || sw_device_open(out, 0, 0, &err) == SW_OK) return missing;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

sw_launch device_launch(sw_device *gpu)
{
    return (sw_launch){sw_device_stream(gpu), sw_device_about(gpu)->arch >= 90};
}

void *device_copy(sw_device *gpu, const void *from, int64_t size_bytes)
{
    void *d = NULL;

    MUST(sw_device_take(&d, gpu, size_bytes, 1, "test", err));
    MUST(sw_device_upload(gpu, d, from, size_bytes, err));
    return d;
}

sw_bf16 *device_random_rows(sw_device *gpu, float *values, int64_t n, double size, uint64_t seed)
{
    uint16_t *rounded = malloc((size_t)n * 2);
    test_rng rng = {seed};
    sw_bf16 *d;

    for (int64_t i = 0; i < n; i++) values[i] = (float)(size * test_gauss(&rng));
    MUST(sw_float_encode_n(rounded, SW_DTYPE_BF16, values, n, err));
    MUST(sw_float_decode_n(values, rounded, SW_DTYPE_BF16, n, err));
    d = device_copy(gpu, rounded, n * 2);
    free(rounded);
    return d;
}

void *device_cached(sw_device *gpu, float *values, int64_t n, sw_kv_kind kind, float scale)
{
    const sw_act act = {.num = sw_kv_num(kind), .scope = SW_ACT_TENSOR};
    uint8_t *bytes = malloc(2 * (size_t)n);
    void *d;

    if (kind) {
        sw_act_quantize(bytes, NULL, values, n, 1, n, &act, scale);
        sw_act_round(values, n, values, n, 1, n, &act, scale);
    } else {
        MUST(sw_float_encode_n(bytes, SW_DTYPE_BF16, values, n, err));
    }
    d = device_copy(gpu, bytes, kind ? n : 2 * n);
    free(bytes);
    return d;
}

float *device_fetch(sw_device *gpu, const sw_bf16 *d, int64_t n)
{
    uint16_t *rounded = malloc((size_t)n * 2);
    float *values = malloc((size_t)n * sizeof *values);

    MUST(sw_device_download(gpu, rounded, d, n * 2, err));
    MUST(sw_float_decode_n(values, rounded, SW_DTYPE_BF16, n, err));
    free(rounded);
    return values;
}

