/* st_writer_internal.h - what the files of the safetensors writer share. Not for others. */
#ifndef SW_FORMATS_FILE_ST_WRITER_INTERNAL_H
#define SW_FORMATS_FILE_ST_WRITER_INTERNAL_H

#include "formats/base/hash.h"
#include "formats/file/st_internal.h"

/* One announced tensor. */
typedef struct sw_st_decl {
    const char *name;
    sw_dtype dtype;
    int32_t n_dims, file;
    bool is_put;
    int64_t shape[SW_DIMS_MAX];
    uint64_t size_bytes, offset; /* offset in its file */
} sw_st_decl;

/* How far the digest of one file has come. */
typedef struct sw_st_follow {
    sw_sha256 *sum;
    uint64_t done_bytes, ready_bytes; /* digested; complete from the start of the file on */
    int64_t next;                     /* index in `order` of the first tensor beyond */
    bool is_busy;                     /* somebody digests it right now */
    char digest[SW_SHA256_HEX_BYTES]; /* of the whole, once it is finished */
} sw_st_follow;

struct sw_st_writer {
    char dir[SW_PATH_BYTES];
    sw_arena arena; /* names and metadata */
    sw_st_meta *meta;
    int64_t n_meta, room_meta;
    sw_st_decl *decls; /* as announced; in name order after begin */
    int64_t n_decls, room_decls;
    sw_st_decl **order; /* by file, then as they lie in it */
    sw_out_file *files;
    int32_t n_files, n_published;
    bool has_begun, is_ready; /* ready: headers written, not yet committed */
    bool is_kept, is_followed;
    sw_st_follow *follows; /* [n_files] where is_followed */
    uint64_t shard_bytes, data_bytes;
    const char *single_name; /* of a file that is not cut; NULL: the usual one */
};

/* A tensor is complete: from now on a digest may read it, from any thread. */
void sw_st_mark_put(sw_st_decl *decl);
sw_code sw_st_follow_begin(sw_st_writer *w, sw_err *err) SW_MUST_USE;
/* Digest what is left of a file all of whose tensors are put. */
sw_code sw_st_follow_finish(sw_st_writer *w, int32_t file, sw_err *err) SW_MUST_USE;
void sw_st_follow_free(sw_st_writer *w);

#endif
