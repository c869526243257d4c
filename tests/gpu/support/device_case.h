/* device_case.h - the device that a GPU test opens, and arrays on it. */
#ifndef SW_TESTS_GPU_SUPPORT_DEVICE_CASE_H
#define SW_TESTS_GPU_SUPPORT_DEVICE_CASE_H

#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/device.h"

#define MUST(call)                                      \
    do {                                                \
        sw_err e_text = {0}, *err = &e_text;            \
        if ((call) != SW_OK) fail_msg("%s", err->text); \
    } while (0)

/* 0, or what main returns, with the reason printed: 77 without a GPU, 1 if it does not open. */
int device_open(sw_device **out);
/* 77 without a GPU, said in print; for tests that open it themselves. */
int device_missing(void);
sw_launch device_launch(sw_device *gpu);

/* What these give lives until the device is closed. */
void *device_copy(sw_device *gpu, const void *from, int64_t size_bytes);
/* n normal values that BF16 holds, as floats, and a copy on the device. */
sw_bf16 *device_random_rows(sw_device *gpu, float *values, int64_t n, double size, uint64_t seed);
/* The same n values as a cache has them: floats as BF16, codes of `kind` by a scale, on the device;
 * `values` become what they stand for. */
void *device_cached(sw_device *gpu, float *values, int64_t n, sw_kv_kind kind, float scale);
/* n elements as floats, freed by the caller. */
float *device_fetch(sw_device *gpu, const sw_bf16 *d, int64_t n);

#endif
