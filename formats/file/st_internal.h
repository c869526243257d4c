/* st_internal.h - what the files of the safetensors reader and writer share. Not for others. */
#ifndef SW_FORMATS_FILE_ST_INTERNAL_H
#define SW_FORMATS_FILE_ST_INTERNAL_H

#include "formats/base/mem.h"
#include "formats/base/print_buf.h"
#include "formats/file/safetensors.h"

#define SW_ST_METADATA_KEY "__metadata__"
#define SW_ST_INDEX_NAME "model.safetensors.index.json"
#define SW_ST_SINGLE_NAME "model.safetensors"
#define SW_ST_SUFFIX ".safetensors"
#define SW_ST_FILES_MAX 10000
#define SW_ST_METADATA_MAX 10000
#define SW_ST_PREFIX_BYTES 8 /* little-endian length of the header */

typedef struct sw_st_meta {
    const char *key, *value;
} sw_st_meta;

/* One container: its tensors in name order, views into the bytes that were parsed. */
typedef struct sw_st_part {
    sw_st_tensor *tensors;
    int64_t n_tensors;
    sw_st_meta *meta;
    int64_t n_meta;
} sw_st_part;

/* Validate a whole container (formats: length, JSON, every tensor, no gap, no overlap, no rest).
 * Everything in *out lives in `arena` or points into `bytes`. SW_E_FORMAT begins with `what`. */
sw_code sw_st_part_parse(sw_st_part *out, sw_arena *arena, const void *bytes, size_t n_bytes,
                         int32_t shard, const char *what, sw_err *err) SW_MUST_USE;

typedef struct sw_st_index_entry {
    const char *name;
    int32_t file; /* into sw_st_index.files */
} sw_st_index_entry;

/* weight_map of model.safetensors.index.json; files and entries in name order, no repeats. */
typedef struct sw_st_index {
    const char **files;
    int32_t n_files;
    sw_st_index_entry *entries;
    int64_t n_entries;
} sw_st_index;

/* SW_E_FORMAT when a value is no plain file name; no file is opened here. */
sw_code sw_st_index_parse(sw_st_index *out, sw_arena *arena, const char *text, size_t n_bytes,
                          const char *what, sw_err *err) SW_MUST_USE;

#endif
