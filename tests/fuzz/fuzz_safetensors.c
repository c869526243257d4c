/* fuzz_safetensors.c - any bytes as a container: refused with a message, or every view is sound. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/file/safetensors.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

static void check_tensors(const sw_st *st, const uint8_t *data, size_t size)
{
    uint64_t n_data = 0;

    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        const uint8_t *begin = t->view.data;
        uint64_t want = 0;
        MUST(i == 0 || strcmp(sw_st_at(st, i - 1)->name, t->name) < 0);
        MUST(sw_st_find(st, t->name) == t);
        MUST(begin >= data + 8 && begin <= data + size);
        MUST(t->view.size_bytes <= (size_t)(data + size - begin));
        MUST(sw_shape_bytes(&want, t->view.dtype, t->view.n_dims, t->view.shape, NULL) == SW_OK);
        MUST(want == t->view.size_bytes);
        n_data += want;
    }
    MUST(n_data == size - 8 - sw_load_le64(data));
    MUST(sw_st_n_files(st) == 1 && !strcmp(sw_st_file_path(st, 0), "fuzz"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_err err = {0};
    sw_st *st = NULL;
    sw_code rc = sw_st_open_bytes(&st, data, size, "fuzz", &err);

    if (rc == SW_OK) {
        MUST(st && err.code == SW_OK);
        check_tensors(st, data, size);
        (void)sw_st_metadata(st, "format");
        sw_st_close(st);
    } else {
        MUST(rc == SW_E_FORMAT && err.code == rc && !strncmp(err.text, "fuzz: ", 6) && !st);
    }
    return 0;
}

/* Absent in a replay. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* Change the header or the data, and let the length in front stay true nine times in ten: random
 * lengths would stop nearly all inputs at the first check. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    uint64_t n_json;
    uint8_t *rest;
    size_t n_rest, n_grown;

    if (seed % 10 == 0 || size < 8 || max_size < 16 || sw_load_le64(data) > size - 8)
        return LLVMFuzzerMutate(data, size, max_size);
    n_json = sw_load_le64(data);
    n_rest = size - 8 - (size_t)n_json;
    if (seed % 10 == 1) /* the data alone */
        return 8 + (size_t)n_json +
               LLVMFuzzerMutate(data + 8 + n_json, n_rest, max_size - 8 - (size_t)n_json);
    if (!(rest = malloc(n_rest + 1))) return size;
    memcpy(rest, data + 8 + n_json, n_rest);
    n_grown = LLVMFuzzerMutate(data + 8, (size_t)n_json, max_size - 8 - n_rest);
    memcpy(data + 8 + n_grown, rest, n_rest);
    sw_store_le64(data, n_grown);
    free(rest);
    return 8 + n_grown + n_rest;
}
