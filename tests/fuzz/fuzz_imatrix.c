/* fuzz_imatrix.c - any bytes as an imatrix: refused with a message, or every entry is sound. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file/imatrix.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_imatrix *im = NULL;
    sw_err err = {0};

    if (sw_imatrix_open_bytes(&im, data, size, "fuzz", &err) != SW_OK) {
        MUST(err.text[0]);
        return 0;
    }
    for (int64_t i = 0; i < sw_imatrix_count(im); i++) {
        const sw_imatrix_entry *e = sw_imatrix_at(im, i);
        const float *weights;

        MUST(e->name[0] && e->n_values > 0);
        for (int64_t k = 0; k < e->n_values; k++) MUST(isfinite(e->means[k]) && e->means[k] >= 0);
        MUST(sw_imatrix_weights(&weights, im, e->name, 1, 0, e->n_values, &err) == SW_OK);
        MUST(weights == e->means);
    }
    sw_imatrix_free(im);
    return 0;
}
