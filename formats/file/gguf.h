/* gguf.h - reading and writing GGUF version 3, one file or a set of splits.
 *
 *   "GGUF" | u32 version | u64 n_tensors | u64 n_keys | keys | tensor infos | padding | data
 *   string  u64 length, UTF-8           key     string, u32 type, value
 *   array   u32 element type, u64 count, elements
 *   info    string name, u32 n_dims, u64 dims (innermost first), u32 type, u64 offset
 *
 * Everything is little-endian. Data begins at the next multiple of general.alignment (32 when
 * absent), and so does each tensor. Reading maps the file and validates every count, length,
 * type and range before anything is believed; values stay where they lie in the mapping, so that
 * a vocabulary of any size costs no memory. Shapes are given outermost first, as everywhere here.
 */
#ifndef SW_FORMATS_FILE_GGUF_H
#define SW_FORMATS_FILE_GGUF_H

#include "formats/base/block_type.h"
#include "formats/base/mem.h"
#include "formats/io/file.h"

#define SW_GGUF_VERSION 3
#define SW_GGUF_ALIGN_DEFAULT 32
#define SW_GGUF_ALIGN_MIN 8
#define SW_GGUF_ALIGN_MAX ((uint64_t)1 << 20)
#define SW_GGUF_KEYS_MAX 65536
#define SW_GGUF_KEY_BYTES_MAX 65535
#define SW_GGUF_TENSORS_MAX 1000000
#define SW_GGUF_NAME_BYTES_MAX 255 /* read; loaders have room for 63, the most that is written */
#define SW_GGUF_DIMS_MAX 4
#define SW_GGUF_SPLITS_MAX 10000

typedef enum sw_gguf_kind {
    SW_GGUF_U8, SW_GGUF_I8, SW_GGUF_U16, SW_GGUF_I16, SW_GGUF_U32, SW_GGUF_I32, SW_GGUF_F32,
    SW_GGUF_BOOL, SW_GGUF_TEXT, SW_GGUF_ARRAY, SW_GGUF_U64, SW_GGUF_I64, SW_GGUF_F64,
    SW_GGUF_KIND_COUNT
} sw_gguf_kind;
const char *sw_gguf_kind_name(sw_gguf_kind kind);

/* A key and its value, in the mapping. */
typedef struct sw_gguf_value {
    const char *key; /* zero-terminated copy */
    sw_gguf_kind kind, elem_kind; /* elem_kind of an array */
    uint64_t n;                   /* elements of an array; bytes of a text */
    const unsigned char *data;    /* the first element, the first byte, or the number */
    uint64_t n_bytes;             /* from there to the end of the value */
} sw_gguf_value;

typedef struct sw_gguf_tensor {
    const char *name;
    sw_block_type type;
    int32_t n_dims;
    int64_t shape[SW_GGUF_DIMS_MAX]; /* outermost first: a weight is [n_out, k_in] */
    const void *data;
    uint64_t size_bytes;
    int32_t split; /* index of the file */
    int64_t place; /* in the file's list of tensors */
    uint64_t offset; /* in the file's data */
} sw_gguf_tensor;

typedef struct sw_gguf sw_gguf;

/* true when the file at `path` begins as a GGUF does. */
bool sw_gguf_is(const char *path);
/* Open one file, or with NAME-00001-of-0000N.gguf (any number of them) the whole set.
 * SW_E_IO, SW_E_FORMAT, SW_E_UNSUPPORTED (version, type) name file and offender. */
sw_code sw_gguf_open(sw_gguf **out, const char *path, sw_err *err) SW_MUST_USE;
/* Parse a single file that is already in memory (tests, fuzzing). Borrows `bytes`. */
sw_code sw_gguf_open_bytes(sw_gguf **out, const void *bytes, size_t n_bytes, const char *what,
                           sw_err *err) SW_MUST_USE;
void sw_gguf_close(sw_gguf *g); /* accepts NULL */
void sw_gguf_forget(const sw_gguf *g); /* what was read need not stay in memory */

int64_t sw_gguf_count(const sw_gguf *g);
const sw_gguf_tensor *sw_gguf_at(const sw_gguf *g, int64_t i); /* in name order */
const sw_gguf_tensor *sw_gguf_find(const sw_gguf *g, const char *name); /* NULL when absent */
int32_t sw_gguf_n_files(const sw_gguf *g);
const char *sw_gguf_file_path(const sw_gguf *g, int32_t split);

/* Keys of the first file, in key order. */
int64_t sw_gguf_n_keys(const sw_gguf *g);
const sw_gguf_value *sw_gguf_key_at(const sw_gguf *g, int64_t i);
const sw_gguf_value *sw_gguf_key(const sw_gguf *g, const char *key); /* NULL when absent */

/* Typed reads: an absent key leaves *out alone and is SW_OK, one of another kind or out of range
 * is SW_E_FORMAT and names the key. Integers of any width count; text is copied into `arena`. */
sw_code sw_gguf_int(int64_t *out, const sw_gguf *g, const char *key, int64_t min, int64_t max,
                    sw_err *err) SW_MUST_USE;
sw_code sw_gguf_real(double *out, const sw_gguf *g, const char *key, sw_err *err) SW_MUST_USE;
sw_code sw_gguf_bool(bool *out, const sw_gguf *g, const char *key, sw_err *err) SW_MUST_USE;
sw_code sw_gguf_text(const char **out, const sw_gguf *g, const char *key, sw_arena *arena,
                     sw_err *err) SW_MUST_USE;
/* An array of this element kind, or NULL in *out when the key is absent. */
sw_code sw_gguf_array(const sw_gguf_value **out, const sw_gguf *g, const char *key,
                      sw_gguf_kind elem_kind, sw_err *err) SW_MUST_USE;
/* Element i of an array of integers (or of booleans). */
int64_t sw_gguf_elem_int(const sw_gguf_value *array, uint64_t i);
double sw_gguf_elem_real(const sw_gguf_value *array, uint64_t i);
/* Walking an array of text: *at starts as array->data and moves on. Not zero-terminated. */
const char *sw_gguf_next_text(const unsigned char **at, uint64_t *n_bytes);

typedef struct sw_gguf_writer sw_gguf_writer;

/* A new file at `path`, complete or absent. Keys and tensors are announced first, and come in the
 * order announced. SW_E_USAGE: the name does not end in .gguf. */
sw_code sw_gguf_writer_new(sw_gguf_writer **out, const char *path, sw_err *err) SW_MUST_USE;
/* The same, but without may_replace nothing that is at `path` is replaced: SW_E_USAGE, here or at
 * the commit. */
sw_code sw_gguf_writer_open(sw_gguf_writer **out, const char *path, bool may_replace,
                            sw_err *err) SW_MUST_USE;
sw_code sw_gguf_put_int(sw_gguf_writer *w, const char *key, sw_gguf_kind kind, int64_t v,
                        sw_err *err) SW_MUST_USE;
sw_code sw_gguf_put_real(sw_gguf_writer *w, const char *key, double v, sw_err *err) SW_MUST_USE;
sw_code sw_gguf_put_text(sw_gguf_writer *w, const char *key, const char *text,
                         sw_err *err) SW_MUST_USE;
/* A key of another file with its value as it stands there. */
sw_code sw_gguf_put_value(sw_gguf_writer *w, const sw_gguf_value *value, sw_err *err) SW_MUST_USE;
/* Begin an array of n elements; each follows by one of the element calls. */
sw_code sw_gguf_put_array(sw_gguf_writer *w, const char *key, sw_gguf_kind elem_kind, uint64_t n,
                          sw_err *err) SW_MUST_USE;
sw_code sw_gguf_put_elem_text(sw_gguf_writer *w, const char *text, size_t n_bytes,
                              sw_err *err) SW_MUST_USE;
sw_code sw_gguf_put_elem_int(sw_gguf_writer *w, int64_t v, sw_err *err) SW_MUST_USE;
sw_code sw_gguf_put_elem_real(sw_gguf_writer *w, double v, sw_err *err) SW_MUST_USE;
/* Announce a tensor; shape outermost first. SW_E_UNSUPPORTED: the name has more than 63 bytes, or
 * the innermost dimension is no whole number of blocks. */
sw_code sw_gguf_declare(sw_gguf_writer *w, const char *name, sw_block_type type, int32_t n_dims,
                        const int64_t *shape, sw_err *err) SW_MUST_USE;
/* Fix the layout, reserve the disk space, write all but the data. */
sw_code sw_gguf_begin(sw_gguf_writer *w, sw_err *err) SW_MUST_USE;
/* n_bytes of a tensor's data from `offset` on, in any order; parts must not overlap.
 * SW_E_BUG: no such tensor, or beyond its end. */
sw_code sw_gguf_put(sw_gguf_writer *w, const char *name, uint64_t offset, const void *data,
                    size_t n_bytes, sw_err *err) SW_MUST_USE;
/* SW_E_BUG names the first tensor that is not complete. Syncs and renames. */
sw_code sw_gguf_commit(sw_gguf_writer *w, sw_err *err) SW_MUST_USE;
void sw_gguf_writer_free(sw_gguf_writer *w); /* removes what was not committed; accepts NULL */
uint64_t sw_gguf_writer_data_bytes(const sw_gguf_writer *w);

#endif
