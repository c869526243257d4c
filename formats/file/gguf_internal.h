/* gguf_internal.h - what the files of the GGUF reader share. Not for others. */
#ifndef SW_FORMATS_FILE_GGUF_INTERNAL_H
#define SW_FORMATS_FILE_GGUF_INTERNAL_H

#include "formats/file/gguf.h"

#define SW_GGUF_ALIGN_KEY "general.alignment"

/* One file: keys by key, tensors by name, views into the bytes that were parsed. */
typedef struct sw_gguf_part {
    sw_gguf_value *keys;
    int64_t n_keys;
    sw_gguf_tensor *tensors;
    int64_t n_tensors;
} sw_gguf_part;

/* Everything in *out lives in `arena` or points into `bytes`. Messages begin with `what`. */
sw_code sw_gguf_part_parse(sw_gguf_part *out, sw_arena *arena, const void *bytes, size_t n_bytes,
                           int32_t split, const char *what, sw_err *err) SW_MUST_USE;
/* Bytes of one number of this kind; 0 for text and arrays. */
int sw_gguf_kind_bytes(sw_gguf_kind kind);
int sw_gguf_compare_tensors(const void *a, const void *b);

#endif
