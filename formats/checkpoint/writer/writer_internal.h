/* writer_internal.h - what the files of the checkpoint writer share. Not for others. */
#ifndef SW_FORMATS_CHECKPOINT_WRITER_WRITER_INTERNAL_H
#define SW_FORMATS_CHECKPOINT_WRITER_WRITER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/manifest.h"
#include "formats/checkpoint/side_files.h"
#include "formats/checkpoint/writer/resume.h"
#include "formats/model/stored.h"

#define SW_PART_NAME_BYTES 1024
#define SW_COPIED (-1)  /* claim_of: bit by bit */
#define SW_CHANGED (-2) /* written already, with other values */
#define SW_CAST (-3)    /* to be written in another dtype */
#define SW_DECODED (-4) /* codes of a linear that becomes floats, see writer_rest.c */
#define SW_DROPPED (-5) /* its scales and the like; scales of a cache that stay behind */

typedef struct sw_claim {
    const char *module_path;
    int64_t place; /* among the linears of the model; -1: it knows none of the path */
    int64_t n_out, k_in;
    sw_qspec spec;
    bool is_put;
    /* An expert out of a tensor of all experts; NULL tensors: it is not, or has no bias. */
    sw_stored fused, fused_bias;
    /* The same of a source that keeps them quantized (expert_stack.h); NULL: it does not. */
    const sw_st_tensor *stack[SW_DIALECT_TENSORS_MAX];
} sw_claim;

/* A linear that the source has in codes and no claim takes. */
typedef struct sw_rest {
    const char *path, *weight; /* "<path>.weight" is what it becomes */
    int64_t n_out, k_in, at;   /* tensor of the source that holds its codes */
} sw_rest;

/* A part of a tensor that no linear claims: as much as one thread writes at a time. */
typedef struct sw_copy {
    int64_t at;          /* tensor of the source */
    uint64_t begin, end; /* bytes of the target's tensor */
    bool is_done;
} sw_copy;

typedef struct sw_stack_out sw_stack_out;

/* Work beside the caller's, see writer_ahead.c. */
typedef struct sw_ahead_task {
    pthread_t thread;
    bool is_running; /* until it is joined */
    atomic_bool has_failed; /* some of its parts, while others go on */
    sw_code code;
    sw_err err;
} sw_ahead_task;

typedef struct sw_writer_ahead {
    sw_ahead_task digest, copies;
    pthread_mutex_t mutex; /* of digest */
    atomic_bool is_stopped;
} sw_writer_ahead;

struct sw_ckpt_writer {
    const sw_checkpoint *source;
    const sw_dialect *dialect;
    sw_qconfig qconfig;
    sw_claim *claims; /* in path order */
    int64_t n_claims;
    sw_rest *rests; /* in the order of `at` */
    int64_t n_rests;
    int64_t n_dropped_kv; /* scales of a cache that stay behind */
    sw_stack_out *stacks; /* of a target that keeps experts in one tensor a part */
    int64_t n_stacks;
    int64_t *order; /* tensors of the source, as what becomes of them lies in the output */
    sw_copy *copies; /* in that order */
    int64_t n_copies;
    int32_t *claim_of; /* per source tensor: index of its claim, or one of the above */
    uint64_t source_bytes, claimed_bytes, copied_bytes, changed_bytes, encoded_bytes, shard_bytes;
    sw_dir_list listing;
    cJSON *sources; /* what went in, by digest; NULL until it is known */
    cJSON *key;     /* the caller's part of the journal's key, until the journal is there */
    sw_writer_ahead ahead;
    sw_out_dir dir;
    sw_st_writer *st;
    sw_resume resume;
    bool is_left;    /* the work stays for a later run */
    sw_err note;     /* why no tokenizer.json could be made of what the source has */
    sw_ckpt_writer_end_fn at_end; /* or NULL */
    void *end_self;
    const sw_progress *progress; /* or NULL */
    bool has_shapes; /* parts that are a shape are written already */
    sw_arena arena;
};

/* Experts that the source keeps in one tensor (stored.h) become modules of their own: their claims
 * learn where they lie. SW_E_USAGE: some experts of such a tensor are claimed and others not. */
sw_code sw_writer_find_fused(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* true when tensor `t` of the source is where this claim's weight or bias lies among others. */
bool sw_claim_lies_in(const sw_claim *c, const sw_st_tensor *t);
bool sw_claim_is_shared(const sw_claim *c); /* its tensors are others' too */
/* Written as [k_in, n_out]. */
bool sw_claim_is_turned(const sw_ckpt_writer *w, const sw_claim *c);
/* "<module>.bias" of such experts: declare it, and in the end write it. */
sw_code sw_writer_declare_bias(sw_ckpt_writer *w, const sw_claim *c, sw_err *err) SW_MUST_USE;
sw_code sw_writer_put_biases(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;

/* Find w->rests, and claim their tensors. SW_E_USAGE: there are some, and they may not become
 * floats; names the first. */
sw_code sw_writer_find_rests(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
const sw_rest *sw_writer_rest_at(const sw_ckpt_writer *w, int64_t at); /* is SW_DECODED */
const sw_rest *sw_writer_rest_named(const sw_ckpt_writer *w, const char *weight); /* or NULL */
sw_code sw_writer_declare_rest(sw_ckpt_writer *w, const sw_rest *rest, sw_err *err) SW_MUST_USE;
sw_code sw_writer_put_rest(sw_ckpt_writer *w, const sw_rest *rest, sw_err *err) SW_MUST_USE;
sw_dtype sw_writer_rest_dtype(const sw_ckpt_writer *w);

/* w->qconfig.ignore and extra_heads, from what the caller names and what no claim has taken. */
sw_code sw_writer_gather_ignore(sw_ckpt_writer *w, const sw_qconfig *given,
                                sw_err *err) SW_MUST_USE;

/* A writer of which nothing is on disk yet; freed by sw_ckpt_writer_free. */
sw_code sw_writer_describe(sw_ckpt_writer **out, const sw_checkpoint *source,
                           const sw_dialect *dialect, const sw_qconfig *qconfig,
                           const sw_ckpt_linear *linears, int64_t n_linears, uint64_t shard_bytes,
                           sw_err *err) SW_MUST_USE;
/* Announce all but the scales of a cache, and find w->order. */
sw_code sw_writer_declare_tensors(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* Its containers, with all of their tensors, for a directory that need not be there yet. */
sw_code sw_writer_declare(sw_ckpt_writer *w, const char *dir, sw_err *err) SW_MUST_USE;
/* Texts of config.json and of what repeats it, or NULL; freed by sw_mem_put. */
sw_code sw_writer_make_configs(char **config, char **side, const sw_ckpt_writer *w,
                               sw_err *err) SW_MUST_USE;
/* tokenizer.json of a directory that has another kind of tokenizer; NULL: it is not to be made. */
sw_code sw_writer_make_tokenizer(char **out, size_t *n_bytes, const sw_ckpt_writer *w, sw_err *note,
                                 sw_err *err) SW_MUST_USE;

/* config.json, that of the source with another quantization_config, and what repeats it. */
sw_code sw_writer_put_configs(const sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;

/* Shapes are known before any linear is. */
sw_code sw_writer_put_shapes(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* Digest the source from now on; sw_ckpt_writer_digest waits for it. */
void sw_writer_digest_ahead(sw_ckpt_writer *w);
sw_code sw_writer_check_copies(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
sw_code sw_writer_wait_copies(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* No copies go on beside the caller any more; no digest does. What is left undone is left to a
 * later run. */
void sw_writer_stop_copies(sw_ckpt_writer *w);
void sw_writer_stop_digest(sw_ckpt_writer *w);
/* Once the tensors of the output have their places: w->copies. */
sw_code sw_writer_cut_copies(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* All unclaimed tensors that are not written yet. */
sw_code sw_writer_copy_all(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;

/* n_bytes were written with other values for tensor `at` of the source, which is copied or cast. */
void sw_writer_count_changed(sw_ckpt_writer *w, int64_t at, uint64_t n_bytes);

/* sw_checkpoint_kept_dtype of this writer. */
sw_dtype sw_writer_dtype(const sw_ckpt_writer *w, const sw_st_tensor *t);
/* The values of a part of `t`, whose bytes are `data`. */
sw_code sw_writer_put_cast(sw_ckpt_writer *w, const sw_st_tensor *t, const void *data,
                           const sw_copy *part, sw_err *err) SW_MUST_USE;
/* n floats as `dtype`. SW_E_UNSUPPORTED: one is beyond F16. */
sw_code sw_writer_encode_floats(void *to, sw_dtype dtype, const float *floats, int64_t n,
                                sw_err *err) SW_MUST_USE;
/* Of a GGUF: generation_config.json, and {"cast": [{"tensor", "stored", "written"}]} for the
 * manifest. */
sw_code sw_writer_put_gguf(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* What config.json calls the dtype of a dense target; NULL: leave it. */
const char *sw_writer_dtype_text(const sw_ckpt_writer *w);
/* Replace a buffer [rows, cols] by its transpose: how some architectures store linears. */
sw_code sw_writer_turn(void **data, int64_t rows, int64_t cols, sw_dtype dtype,
                       sw_err *err) SW_MUST_USE;

/* A target that is_stacked, see writer_stack.c; the first does nothing for others.
 * SW_E_UNSUPPORTED: a claim that is no expert; SW_E_USAGE: some experts and others not. */
sw_code sw_writer_find_stacks(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
sw_code sw_writer_declare_stacks(sw_ckpt_writer *w, const sw_claim *c, sw_err *err) SW_MUST_USE;
/* Any number of threads may put linears. */
sw_code sw_writer_put_stacked(sw_ckpt_writer *w, const char *module_path, const sw_part *part,
                              const void *data, sw_err *err) SW_MUST_USE;
sw_code sw_writer_take_stacked(void *data, const sw_ckpt_writer *w, const char *module_path,
                               const sw_part *part, sw_err *err) SW_MUST_USE;
/* A bias that this expert has to itself and the target keeps with all others; NULL: none. */
const sw_st_tensor *sw_writer_own_bias(const sw_ckpt_writer *w, const sw_claim *c);
sw_code sw_writer_put_own_biases(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
bool sw_writer_count_stack(sw_ckpt_writer *w, const char *name); /* false: it is none */
void sw_writer_free_stacks(sw_ckpt_writer *w);

/* Of a GGUF, whose metadata they come from: tokenizer.json and tokenizer_config.json. Of a
 * directory that has its tokenizer in other files, which are copied too: tokenizer.json, or a
 * note why there is none. */
sw_code sw_writer_put_made_files(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;

/* Those of the source that are made anew, or that readers of the output would take for others. */
void sw_writer_drop_kv(sw_ckpt_writer *w);
/* The scales of a quantized cache. SW_E_UNSUPPORTED: the dialect has no place for them. */
sw_code sw_writer_declare_kv(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;

sw_claim *sw_claim_find(const sw_ckpt_writer *w, const char *module_path);
sw_code sw_part_name(char out[SW_PART_NAME_BYTES], const char *module_path, const char *suffix,
                     sw_err *err) SW_MUST_USE;

/* Take up the journal, which takes the digests of the source, or see to it that one is started once
 * they are known. Before any shard is touched. */
sw_code sw_writer_begin_keeping(sw_ckpt_writer *w, const sw_ckpt_keep *keep,
                                sw_err *err) SW_MUST_USE;
/* Once the shards are open: hold what is finished to the journal. */
sw_code sw_writer_check_kept(sw_ckpt_writer *w, const sw_ckpt_keep *keep, sw_err *err) SW_MUST_USE;

#endif
