/* st_writer_internal.h - what the files of the safetensors writer share. Not for others. */
#ifndef SW_FORMATS_FILE_ST_WRITER_INTERNAL_H
#define SW_FORMATS_FILE_ST_WRITER_INTERNAL_H

#include <pthread.h>

#include "formats/file/st_internal.h"
#include "formats/io/digest_back.h"

/* One announced tensor. */
typedef struct sw_st_decl {
    const char *name;
    sw_dtype dtype;
    int32_t n_dims, file;
    bool is_put, is_begun;
    int64_t place; /* as announced */
    int64_t shape[SW_DIMS_MAX];
    uint64_t size_bytes, offset; /* offset in its file */
    uint64_t put_bytes;          /* of the parts that are complete */
} sw_st_decl;

/* Bytes of one file on their way to the disk and to its digest. Places are those in the file. */
typedef struct sw_st_block {
    struct sw_st_block *next; /* of those that are held, by place, or that are spare */
    uint8_t *memory, *bytes;  /* bytes: the first page in it */
    size_t room_bytes;
    uint64_t page_at;    /* of `bytes`: a multiple of a page */
    uint64_t write_from; /* what is before is another's, or written */
    uint64_t begin, end; /* what no block before has */
    bool is_wanted;      /* by the digest: soon enough to be held */
} sw_st_block;

/* How far the digest of one file has come. */
typedef struct sw_st_follow {
    sw_digest_steps steps; /* of done_bytes */
    uint64_t done_bytes, ready_bytes; /* digested; complete from the start of the file on */
    int64_t next;                     /* index in `order` of the first tensor beyond ready_bytes */
    sw_st_block *held;                /* from done_bytes on */
    bool is_busy;                     /* somebody digests it right now */
    bool is_spoilt;                   /* what is digested may have been written anew since */
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
    bool is_kept, is_followed, is_alone;
    sw_st_follow *follows; /* [n_files] where is_followed */
    sw_digest_back *back;  /* who reads back what is digested; NULL: nobody on the way */
    pthread_mutex_t mutex; /* of follows, held_bytes, and of what of a declaration is put */
    pthread_cond_t moved;  /* a mark, or nobody moves it any more */
    sw_st_block *spare;
    uint64_t held_bytes; /* of all blocks that wait for their digest */
    uint64_t shard_bytes, data_bytes;
    const char *single_name; /* of a file that is not cut; NULL: the usual one */
};

/* The declaration of a name; NULL when there is none, or nothing can be put yet. */
sw_st_decl *sw_st_writer_find(const sw_st_writer *w, const char *name);
sw_code sw_st_writer_find_sized(sw_st_decl **out, const sw_st_writer *w, const char *name,
                                size_t n_bytes, sw_err *err) SW_MUST_USE;

void sw_st_block_free(sw_st_block *block);                    /* accepts NULL */
void sw_st_block_spare(sw_st_writer *w, sw_st_block *block);  /* for the next who needs one */

/* A tensor is about to be put, perhaps not for the first time: one that failed half way may be. */
void sw_st_follow_restart(sw_st_writer *w, sw_st_decl *decl);
/* The same of a part, which is put but once. */
void sw_st_follow_part(sw_st_writer *w, sw_st_decl *decl);
/* Whether the digest will hold a block; then the block, once it is written: gives it away. */
void sw_st_follow_ask(sw_st_writer *w, int32_t file, sw_st_block *block);
sw_code sw_st_follow_block(sw_st_writer *w, int32_t file, sw_st_block *block,
                           sw_err *err) SW_MUST_USE;
/* So much more of a tensor is complete: from all of it on a digest may read it, from any thread. */
bool sw_st_is_put(sw_st_writer *w, const sw_st_decl *decl); /* while others put parts of it */
void sw_st_mark_put(sw_st_writer *w, sw_st_decl *decl, uint64_t n_bytes);
sw_code sw_st_follow_begin(sw_st_writer *w, sw_err *err) SW_MUST_USE;
/* Digest what is left of a file all of whose tensors are put. */
sw_code sw_st_follow_finish(sw_st_writer *w, int32_t file, sw_err *err) SW_MUST_USE;
void sw_st_follow_free(sw_st_writer *w);

#endif
