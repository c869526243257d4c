/* fuzz_index.c - any bytes as a shard index: refused, or every file name is plain and known. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file/st_internal.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_st_index index = {0};
    sw_arena arena = {0};
    sw_err err = {0};
    sw_code rc = sw_st_index_parse(&index, &arena, (const char *)data, size, "fuzz", &err);

    if (rc == SW_OK) {
        MUST(index.n_files > 0 && index.n_entries >= index.n_files);
        for (int32_t i = 0; i < index.n_files; i++) {
            MUST(sw_path_is_plain_name(index.files[i]));
            MUST(i == 0 || strcmp(index.files[i - 1], index.files[i]) < 0);
        }
        for (int64_t i = 0; i < index.n_entries; i++) {
            MUST(index.entries[i].file >= 0 && index.entries[i].file < index.n_files);
            MUST(i == 0 || strcmp(index.entries[i - 1].name, index.entries[i].name) < 0);
        }
    } else {
        MUST(rc == SW_E_FORMAT && err.code == rc && !strncmp(err.text, "fuzz: ", 6));
        MUST(!index.files && !index.entries);
    }
    sw_arena_free(&arena);
    return 0;
}
