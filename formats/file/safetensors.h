/* safetensors.h - reading and writing the safetensors container and its sharded form.
 *
 * Reading maps the files and validates every byte of the header before anything is
 * believed: caps, UTF-8, duplicate keys, known dtypes, overflow, offsets that overlap,
 * leave holes or run past the end. Writing is declare-first: all names, dtypes and shapes
 * are known before the first data byte, so the header is final, tensors may arrive in
 * any order, and a tensor that never arrived is an error at the end.
 */
#ifndef SW_FORMATS_FILE_SAFETENSORS_H
#define SW_FORMATS_FILE_SAFETENSORS_H

#include "formats/base/view.h"
#include "formats/io/digest_steps.h"
#include "formats/io/file.h"

#define SW_ST_HEADER_MAX_BYTES ((uint64_t)100000000)
#define SW_ST_TENSORS_MAX ((int64_t)1000000)

/* Makes the bytes of one tensor out of what a file stores otherwise: decoded blocks, rows in
 * another order. May be called from several threads at once. */
typedef struct sw_st_maker sw_st_maker;
struct sw_st_maker {
    sw_code (*make)(const sw_st_maker *self, void *dst, sw_err *err);
};

typedef struct sw_st_tensor {
    const char *name;
    sw_cview view;            /* data is NULL when there is a maker */
    int32_t shard;            /* index into the checkpoint's files */
    const sw_st_maker *maker; /* NULL: the bytes lie in the file */
} sw_st_tensor;

typedef struct sw_st sw_st; /* an opened checkpoint: one or more mapped files */

/* Open one file, or a directory: model.safetensors.index.json and its shards when there is one,
 * else model.safetensors, else the only *.safetensors in it, else pytorch_model.bin.index.json or
 * pytorch_model.bin. A container may be compressed (*.safetensors.zst); archives of torch.save are
 * read as pt_read.h says.
 * SW_E_IO: nothing to open. SW_E_FORMAT: names file and offender. */
sw_code sw_st_open(sw_st **out, const char *path, sw_err *err) SW_MUST_USE;
/* The same for callers that read names, types and shapes, and few data: of a compressed container
 * only the header is unpacked, and reading a tensor (see maker) unpacks all of it. */
sw_code sw_st_open_headers(sw_st **out, const char *path, sw_err *err) SW_MUST_USE;
/* Parse a container that is already in memory (tests, fuzzing). Borrows `bytes`. */
sw_code sw_st_open_bytes(sw_st **out, const void *bytes, size_t n_bytes, const char *what,
                         sw_err *err) SW_MUST_USE;
void sw_st_close(sw_st *st); /* accepts NULL */

/* The same out of tensors that another container brings (dialect/gguf_model.h): copies the table
 * and sorts it; names, views and makers live as long as `backing`, which is closed with it (on
 * success alone). SW_E_FORMAT: a name is there twice. */
typedef struct sw_st_backing {
    void *self;
    void (*close)(void *self);
    void (*forget)(const void *self);
    const char *const *paths; /* [n_files] */
    int32_t n_files;
} sw_st_backing;
sw_code sw_st_open_made(sw_st **out, const sw_st_tensor *tensors, int64_t n_tensors,
                        const sw_st_backing *backing, sw_err *err) SW_MUST_USE;

/* The bytes of a tensor: in the mapping, or in memory of their own. Zero-initialise, and drop them
 * in any case. */
typedef struct sw_st_bytes {
    const void *data;
    void *made;
} sw_st_bytes;
sw_code sw_st_fetch(sw_st_bytes *out, const sw_st_tensor *tensor, sw_err *err) SW_MUST_USE;
void sw_st_drop(sw_st_bytes *bytes); /* accepts a zeroed one */

/* What has been read of the files need not stay in memory; views stay valid. */
void sw_st_forget(const sw_st *st);
/* The same of one tensor, and that one will be read soon. Nothing where no mapped file has it. */
void sw_st_forget_tensor(const sw_st *st, const sw_st_tensor *tensor);
/* Of a tensor, the bytes from `offset` on. */
void sw_st_forget_range(const sw_st *st, const sw_st_tensor *tensor, uint64_t offset,
                        size_t n_bytes);
void sw_st_want_tensor(const sw_st *st, const sw_st_tensor *tensor);
/* Of a tensor, what there is of n_bytes from `offset` on. */
void sw_st_want_range(const sw_st *st, const sw_st_tensor *tensor, uint64_t offset,
                      uint64_t n_bytes);

int64_t sw_st_count(const sw_st *st);
const sw_st_tensor *sw_st_at(const sw_st *st, int64_t i); /* in name order */
const sw_st_tensor *sw_st_find(const sw_st *st, const char *name); /* NULL when absent */
int32_t sw_st_n_files(const sw_st *st);
const char *sw_st_file_path(const sw_st *st, int32_t shard);
/* __metadata__ of the first file; NULL when the key is absent. */
const char *sw_st_metadata(const sw_st *st, const char *key);

typedef struct sw_st_writer sw_st_writer;

/* Shards of at most shard_bytes of tensor data (0: one file) in directory `dir`:
 * model.safetensors, or model-00001-of-0000N.safetensors with model.safetensors.index.json. */
sw_code sw_st_writer_new(sw_st_writer **out, const char *dir, uint64_t shard_bytes,
                         sw_err *err) SW_MUST_USE;
/* One file by this name, whatever its size, instead of model.safetensors. Before begin. */
sw_code sw_st_writer_name(sw_st_writer *w, const char *name, sw_err *err) SW_MUST_USE;
/* __metadata__ entry besides "format": "pt". Copies both. Before begin. */
sw_code sw_st_writer_meta(sw_st_writer *w, const char *key, const char *value,
                          sw_err *err) SW_MUST_USE;
/* Announce a tensor; tensors are cut into shards in the order announced, and lie in it in theirs.
 * Copies the name.
 * SW_E_FORMAT: a name that no tensor may have. */
sw_code sw_st_writer_declare(sw_st_writer *w, const char *name, sw_dtype dtype, int32_t n_dims,
                             const int64_t *shape, sw_err *err) SW_MUST_USE;
/* Before begin: shards grow as NAME.part, free leaves them, and begin takes up those that lie in
 * `dir` already. Their tensors count as missing until put or taken. */
void sw_st_writer_keep(sw_st_writer *w);
/* Before begin: the one file is an output itself, made apart and replacing nothing, and not a part
 * of a directory that is one. SW_E_USAGE at begin, or at commit, when something is there. */
void sw_st_writer_alone(sw_st_writer *w);
/* Before begin: digest the files as they grow, see catch_up. */
void sw_st_writer_follow(sw_st_writer *w);
/* Fix the layout, reserve the disk space, write the headers. SW_E_FORMAT: two of one name. */
sw_code sw_st_writer_begin(sw_st_writer *w, sw_err *err) SW_MUST_USE;
/* Instead of begin: bytes of all files that a writer of these declarations makes, headers and index
 * among them. Nothing is written, and the writer can only be freed then. */
sw_code sw_st_writer_foresee(uint64_t *out, sw_st_writer *w, sw_err *err) SW_MUST_USE;
/* The data of a declared tensor, once each. SW_E_BUG for an unknown name or a wrong size. */
sw_code sw_st_writer_put(sw_st_writer *w, const char *name, const void *data, size_t n_bytes,
                         sw_err *err) SW_MUST_USE;
uint64_t sw_st_writer_bytes(const sw_st_writer *w, const char *name); /* of a tensor; 0: no such */
/* A declared tensor, or a part of one, from its first byte to its last, some at a time. Any number
 * of threads may have streams, of different tensors or parts. Zero-initialise; close in any case,
 * also when it has not ended: a tensor may then be put anew, a part may not. */
typedef struct sw_st_stream {
    sw_st_writer *w;
    struct sw_st_decl *decl;
    struct sw_st_block *block; /* what is not written yet; NULL: nothing is */
    uint64_t begin, at, end;   /* in the tensor: the part, and what of it has come */
} sw_st_stream;
/* SW_E_BUG: the name is not declared, or put already. */
sw_code sw_st_stream_open(sw_st_stream *out, sw_st_writer *w, const char *name,
                          sw_err *err) SW_MUST_USE;
/* Parts that together are the tensor, at any time and in any order. *end: where the part from
 * `begin` of at least least_bytes ends, which is where the next begins: parts share no page of the
 * file and no element. The tensor is put with its last part. */
sw_code sw_st_stream_cut(uint64_t *end, const sw_st_writer *w, const char *name, uint64_t begin,
                         uint64_t least_bytes, sw_err *err) SW_MUST_USE;
sw_code sw_st_stream_open_part(sw_st_stream *out, sw_st_writer *w, const char *name, uint64_t begin,
                               uint64_t end, sw_err *err) SW_MUST_USE;
/* Where the next n_bytes go: aligned to the tensor's elements, with what is left in it, good until
 * the stream is used again. And then: n_bytes of them are there. */
sw_code sw_st_stream_room(void **out, sw_st_stream *s, size_t n_bytes, sw_err *err) SW_MUST_USE;
sw_code sw_st_stream_put(sw_st_stream *s, size_t n_bytes, sw_err *err) SW_MUST_USE;
/* Both, by a copy of n_bytes. */
sw_code sw_st_stream_add(sw_st_stream *s, const void *bytes, size_t n_bytes,
                         sw_err *err) SW_MUST_USE;
/* All have come. The size of the tensor or part goes to *n_bytes. */
sw_code sw_st_stream_end(uint64_t *n_bytes, sw_st_stream *s, sw_err *err) SW_MUST_USE;
void sw_st_stream_close(sw_st_stream *s); /* accepts a zeroed one */
/* Read back a tensor: one that was put, or that an earlier run put, which then counts as put. */
sw_code sw_st_writer_take(sw_st_writer *w, const char *name, void *data, size_t n_bytes,
                          sw_err *err) SW_MUST_USE;
/* Digest what is complete by now from the start of each file on, unless others do: to be called
 * after puts, by any thread. Nothing without follow. */
sw_code sw_st_writer_catch_up(sw_st_writer *w, sw_err *err) SW_MUST_USE;
/* After begin, before any put: the files will be read back, so their digests get tags; by `back`
 * while they are digested, which lives as long as the writer, or by nobody before the end (NULL).
 * What is read stays in the system's cache. Nothing without follow. */
void sw_st_writer_read_back(sw_st_writer *w, sw_digest_back *back);
/* Before bytes of a tensor up to `end` are put: wait while the digest of the file is far behind and
 * being made, so that they need not be read back for it. Never for what others have to put. */
void sw_st_writer_keep_pace(sw_st_writer *w, const char *name, uint64_t end);
/* The digest of a file by its name in the directory, after the commit, with what tells many threads
 * whether the disk has it; NULL: not known. */
const sw_digest_steps *sw_st_writer_digest(const sw_st_writer *w, const char *name);
/* What was put so far reaches the disk. */
sw_code sw_st_writer_sync(const sw_st_writer *w, sw_err *err) SW_MUST_USE;
/* SW_E_BUG names the first tensor that never arrived. Syncs, renames, writes the index. */
sw_code sw_st_writer_commit(sw_st_writer *w, sw_err *err) SW_MUST_USE;
uint64_t sw_st_writer_data_bytes(const sw_st_writer *w); /* declared so far */
/* Removes what was not committed, unless it is kept. Accepts NULL. */
void sw_st_writer_free(sw_st_writer *w);

#endif
