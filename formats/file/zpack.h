/* zpack.h - named tensors in one file, each compressed on its own.
 *
 * For data that is written once in passing and read tensor by tensor, such as statistics: memory
 * stays at one tensor on both sides, and nothing needs to be known before it is written.
 *
 *   offset    size  what
 *   0         8     "SWZPACK1"
 *   8         ...   zstd frames, one per tensor, in the order of writing, without gaps
 *   d         c     directory: a zstd frame of r bytes
 *   d+c       88    trailer: u64 d, u64 c, u64 r, SHA-256 of the r bytes (64 hex digits)
 *
 * Inside a tensor's frame the bytes are in planes: byte 0 of every element, then byte 1, ...,
 * which is what makes floats compress. The directory, all little-endian:
 *
 *   u32 n_meta, u32 n_tensors
 *   n_meta    times  u16 n, n bytes of key; u32 n, n bytes of value
 *   n_tensors times  u16 n, n bytes of name; u8 n, n bytes of dtype name (dtype.def); u8 n_dims,
 *                    n_dims times u64; u64 frame bytes; SHA-256 of the raw data, 64 hex digits
 *
 * Texts are UTF-8 without NUL. Every byte of the file is thus covered by a hash or a rule.
 */
#ifndef SW_FORMATS_FILE_ZPACK_H
#define SW_FORMATS_FILE_ZPACK_H

#include <stddef.h>

#include "formats/base/hash.h"
#include "formats/base/mem.h"
#include "formats/base/view.h"
#include "formats/io/file.h"

#define SW_ZPACK_MAGIC "SWZPACK1"
#define SW_ZPACK_MAGIC_BYTES 8
#define SW_ZPACK_TRAILER_BYTES 88
#define SW_ZPACK_DIRECTORY_MAX_BYTES ((uint64_t)256 << 20)

typedef struct sw_zpack_tensor {
    const char *name;
    sw_dtype dtype;
    int32_t n_dims;
    int64_t shape[SW_DIMS_MAX];
    uint64_t raw_bytes, frame_offset, frame_bytes;
    char sha256[SW_SHA256_HEX_BYTES];
} sw_zpack_tensor;

typedef struct sw_zpack sw_zpack;

/* Map a file and check its directory; tensors are checked when they are loaded. SW_E_IO: cannot
 * be read. SW_E_FORMAT: not such a file, cut short, or damaged; names the file. */
sw_code sw_zpack_open(sw_zpack **out, const char *path, sw_err *err) SW_MUST_USE;
/* The same of bytes in memory, borrowed; `what` stands for the path. */
sw_code sw_zpack_open_bytes(sw_zpack **out, const void *bytes, size_t n_bytes, const char *what,
                            sw_err *err) SW_MUST_USE;
void sw_zpack_close(sw_zpack *z); /* accepts NULL */

int64_t sw_zpack_count(const sw_zpack *z);
const sw_zpack_tensor *sw_zpack_at(const sw_zpack *z, int64_t i); /* in name order */
const sw_zpack_tensor *sw_zpack_find(const sw_zpack *z, const char *name); /* NULL: absent */
const char *sw_zpack_meta(const sw_zpack *z, const char *key);             /* NULL: absent */
/* SHA-256 of the directory: names all that is in the file. */
const char *sw_zpack_sha256(const sw_zpack *z);

/* raw_bytes of a tensor, decompressed and checked against its hash. SW_E_FORMAT names both. */
sw_code sw_zpack_load(void *out, const sw_zpack *z, const sw_zpack_tensor *tensor,
                      sw_err *err) SW_MUST_USE;

typedef struct sw_zpack_writer sw_zpack_writer;

/* Writes beside `path`, which changes at commit only. SW_E_USAGE: it exists and may not be
 * replaced. */
sw_code sw_zpack_writer_new(sw_zpack_writer **out, const char *path, bool may_replace,
                            sw_err *err) SW_MUST_USE;
/* Copies both. SW_E_BUG: text that is not UTF-8, more than fits. */
sw_code sw_zpack_writer_meta(sw_zpack_writer *w, const char *key, const char *value,
                             sw_err *err) SW_MUST_USE;
/* Compress and append. SW_E_BUG: a size that is not the shape's. A name twice makes
 * a file that is refused. */
sw_code sw_zpack_writer_put(sw_zpack_writer *w, const char *name, sw_dtype dtype, int32_t n_dims,
                            const int64_t *shape, const void *data, size_t n_bytes,
                            sw_err *err) SW_MUST_USE;
/* Directory, trailer, sync, rename. */
sw_code sw_zpack_writer_commit(sw_zpack_writer *w, sw_err *err) SW_MUST_USE;
uint64_t sw_zpack_writer_bytes(const sw_zpack_writer *w); /* written so far */
void sw_zpack_writer_free(sw_zpack_writer *w); /* removes what was not committed; accepts NULL */

/* Bytes of elements to planes of bytes and back, for the reader and the writer. */
static inline void sw_to_planes(unsigned char *out, const unsigned char *in, size_t n_elems,
                                size_t elem_bytes)
{
    for (size_t b = 0; b < elem_bytes; b++)
        for (size_t i = 0; i < n_elems; i++) out[b * n_elems + i] = in[i * elem_bytes + b];
}

static inline void sw_from_planes(unsigned char *out, const unsigned char *in, size_t n_elems,
                                  size_t elem_bytes)
{
    for (size_t b = 0; b < elem_bytes; b++)
        for (size_t i = 0; i < n_elems; i++) out[i * elem_bytes + b] = in[b * n_elems + i];
}

#endif
