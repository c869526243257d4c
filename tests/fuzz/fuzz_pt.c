/* fuzz_pt.c - any bytes as an archive of torch.save: refused with a message, or every tensor lies
 * in the bytes or among the copies. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/file/pt_read.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool lies_in(const void *base, size_t n, const sw_cview *v)
{
    const uint8_t *begin = base, *at = v->data;

    return base && at >= begin && at <= begin + n && v->size_bytes <= (size_t)(begin + n - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_st_part part = {0};
    sw_spill copies = {0};
    sw_arena arena = {0};
    sw_err err = {0};
    sw_code rc = sw_pt_part_parse(&part, &copies, &arena, data, size, 0, "fuzz", &err);

    if (rc == SW_OK) {
        for (int64_t i = 0; i < part.n_tensors; i++) {
            const sw_cview *v = &part.tensors[i].view;
            uint64_t want = 0;
            MUST(i == 0 || strcmp(part.tensors[i - 1].name, part.tensors[i].name) < 0);
            MUST(sw_shape_bytes(&want, v->dtype, v->n_dims, v->shape, NULL) == SW_OK);
            MUST(want == v->size_bytes);
            MUST(lies_in(data, size, v) || lies_in(copies.data, copies.size_bytes, v));
        }
        MUST(copies.size_bytes <= size + (size_t)part.n_tensors * 128);
    } else {
        MUST((rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED || rc == SW_E_IO) && err.text[0]);
        MUST(!copies.data && !part.n_tensors);
    }
    sw_spill_close(&copies);
    sw_arena_free(&arena);
    return 0;
}
