/* fuzz_pickle.c - any bytes as a pickle: refused with a message, or every tensor lies within the
 * storage that it names. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/pickle/pickle.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const sw_pickle_tensor *t)
{
    uint64_t last = (uint64_t)t->first, step = 0;
    bool is_empty = false;

    MUST(t->name[0] && t->storage_key[0] && t->dtype < SW_DTYPE_COUNT);
    MUST(t->n_dims >= 0 && t->n_dims <= SW_DIMS_MAX && t->first >= 0 && t->storage_elems >= 0);
    for (int32_t d = 0; d < t->n_dims; d++) {
        MUST(t->shape[d] >= 0 && t->strides[d] >= 0);
        is_empty = is_empty || !t->shape[d];
    }
    for (int32_t d = 0; d < t->n_dims && !is_empty; d++) {
        MUST(sw_mul_u64(&step, (uint64_t)t->shape[d] - 1, (uint64_t)t->strides[d]));
        MUST(sw_add_u64(&last, last, step));
    }
    MUST(is_empty || last < (uint64_t)t->storage_elems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_pickle_tensor *tensors = NULL;
    sw_arena arena = {0};
    sw_err err = {0};
    int64_t n = 0;
    sw_code rc = sw_pickle_read(&tensors, &n, &arena, data, size, "fuzz", &err);

    if (rc == SW_OK)
        for (int64_t i = 0; i < n; i++) check(&tensors[i]);
    else
        MUST((rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED) && !strncmp(err.text, "fuzz: ", 6));
    sw_arena_free(&arena);
    return 0;
}
