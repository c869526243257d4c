/* pt_build.h - archives as torch.save writes them, and others that it never would. */
#ifndef SW_TESTS_SUPPORT_TOYS_PT_BUILD_H
#define SW_TESTS_SUPPORT_TOYS_PT_BUILD_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/view.h"

typedef struct pt_bytes {
    unsigned char *at;
    size_t n, room;
} pt_bytes;

/* Grow as needed; freed by pt_free. */
void pt_put(pt_bytes *b, const void *bytes, size_t n);
void pt_text(pt_bytes *b, const char *text); /* without its terminator */
void pt_free(pt_bytes *b);

/* Pickling, protocol 2. */
void pt_string(pt_bytes *p, const char *text);
void pt_int(pt_bytes *p, int64_t v);
void pt_global(pt_bytes *p, const char *module, const char *name);
/* A tensor on the stack: _rebuild_tensor_v2 over storage `key` of n_elems of `type` ("Float"). */
void pt_tensor(pt_bytes *p, const char *type, const char *key, int64_t n_elems, int64_t first,
               int32_t n_dims, const int64_t *shape, const int64_t *strides);
const char *pt_storage_type(sw_dtype dtype); /* "BFloat16", ...; NULL: it has none */

/* Zip. */
enum { PT_ZIP64 = 1, PT_DESCRIPTOR = 2 }; /* directory in 64-bit form; sizes not in local headers */
typedef struct pt_zip {
    pt_bytes bytes, directory;
    int n_entries, flags;
} pt_zip;
/* Data is aligned to 64 bytes, as torch.save does; method 0 is stored. */
void pt_zip_add(pt_zip *z, const char *name, const void *data, size_t n, int method);
/* Directory and end record; the archive is z->bytes. */
void pt_zip_end(pt_zip *z);
void pt_zip_free(pt_zip *z);

/* "archive/data.pkl" out of a dictionary's items (key, value, ...), version and byte order. */
void pt_zip_pickle(pt_zip *z, const pt_bytes *items);

#endif
