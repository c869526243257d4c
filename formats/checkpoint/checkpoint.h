/* checkpoint.h - writing a finished quantized checkpoint directory, and reading one back.
 *
 * Writing starts from a source model directory: claimed linears are replaced by the dialect's
 * tensors, every other tensor is copied bit-exactly, every side file (tokenizer, generation
 * config, ...) comes along, and the byte count is reconciled. The directory is complete or absent.
 */
#ifndef SW_FORMATS_CHECKPOINT_CHECKPOINT_H
#define SW_FORMATS_CHECKPOINT_CHECKPOINT_H

#include "formats/base/progress.h"
#include "formats/dialect/dialect.h"
#include "formats/dialect/rules.h"
#include "formats/file/safetensors.h"
#include "formats/model/model.h"

/* A model directory, or a GGUF, that has been opened: config, description, tensors, dialect if
 * quantized (of a GGUF only by sw_checkpoint_open_codes; otherwise its blocks are floats). */
typedef struct sw_checkpoint {
    char dir[SW_PATH_BYTES]; /* or the path of a GGUF ... */
    bool is_file;            /* ... then */
    cJSON *config;
    sw_model model;
    sw_st *st;
    const sw_dialect *dialect; /* NULL: dense */
    sw_qconfig qconfig;        /* when quantized */
    sw_rules *rules;           /* of a mixed one, else NULL */
    sw_arena arena;
} sw_checkpoint;

/* SW_E_FORMAT / SW_E_UNSUPPORTED / SW_E_IO with file and offender. */
sw_code sw_checkpoint_open(sw_checkpoint *out, const char *dir, sw_err *err) SW_MUST_USE;
/* The same for callers that read names, types and shapes: see sw_st_open_headers. The data of a
 * quantized checkpoint can be read too. */
sw_code sw_checkpoint_open_headers(sw_checkpoint *out, const char *dir, sw_err *err) SW_MUST_USE;
/* The same; linears of a GGUF whose blocks are a logical weight (dialect_gguf.h) count as
 * quantized, each under the scheme of its type. */
sw_code sw_checkpoint_open_codes(sw_checkpoint *out, const char *dir, sw_err *err) SW_MUST_USE;
void sw_checkpoint_close(sw_checkpoint *ckpt); /* accepts a zeroed one */
/* true when the linear at `module_path` is stored quantized. */
bool sw_checkpoint_is_quantized(const sw_checkpoint *ckpt, const char *module_path);
/* The suffix that only tensors of quantized linears have. */
const char *sw_checkpoint_marker(const sw_checkpoint *ckpt);
/* A quantized linear whose floats are stored as well has two weights. SW_E_FORMAT names both. */
sw_code sw_checkpoint_refuse_floats(const sw_checkpoint *ckpt, const char *module_path,
                                    sw_err *err) SW_MUST_USE;
/* The scheme that quantization_config gives the linear at `module_path`. SW_E_FORMAT: none. */
sw_code sw_checkpoint_spec(sw_qspec *out, const sw_checkpoint *ckpt, const char *module_path,
                           sw_err *err) SW_MUST_USE;
/* The same as the linear is stored: with the dtype of its scales, and is_scattered when it has a
 * g_idx that says more than the group size does. Reads no codes. */
sw_code sw_checkpoint_stored_spec(sw_qspec *out, const sw_checkpoint *ckpt,
                                  const char *module_path, int64_t n_out, int64_t k_in,
                                  sw_err *err) SW_MUST_USE;
/* The logical weight of a quantized linear; q is allocated here, freed by sw_qtensor_free. */
sw_code sw_checkpoint_qtensor(sw_qtensor *q, const sw_checkpoint *ckpt, const char *module_path,
                              int64_t n_out, int64_t k_in, sw_err *err) SW_MUST_USE;

/* true when kernels can read the quantized linears in the mapping, without repacking. */
bool sw_checkpoint_has_tiles(const sw_checkpoint *ckpt);
/* true when sw_checkpoint_tiles gives views in Marlin's order (is_marlin). */
bool sw_checkpoint_has_marlin(const sw_checkpoint *ckpt);
/* A view into the mapping, checked for dtype, shape and scales; valid while ckpt is open. */
sw_code sw_checkpoint_tiles(sw_tiles *out, const sw_checkpoint *ckpt, const char *module_path,
                            int64_t n_out, int64_t k_in, sw_err *err) SW_MUST_USE;

typedef struct sw_ckpt_linear {
    const char *module_path; /* "model.layers.0.self_attn.q_proj" */
    int64_t n_out, k_in;
    const sw_qspec *spec;    /* NULL: that of the whole checkpoint */
} sw_ckpt_linear;

typedef struct sw_ckpt_writer sw_ckpt_writer;

/* Declare everything and reserve the space. `linears` are those that will be put quantized;
 * each must exist in the source as "<module_path>.weight". shard_bytes as in safetensors.h.
 * SW_E_USAGE when out_dir exists and may_replace is false or when it is the source directory. */
sw_code sw_ckpt_writer_new(sw_ckpt_writer **out, const sw_checkpoint *source, const char *out_dir,
                           bool may_replace, const sw_dialect *dialect, const sw_qconfig *qconfig,
                           const sw_ckpt_linear *linears, int64_t n_linears, uint64_t shard_bytes,
                           sw_err *err) SW_MUST_USE;

/* Makes a run resumable: see resume.h. */
typedef struct sw_ckpt_keep {
    const cJSON *key;  /* what decides the output, besides source and shard_bytes */
    bool is_restart;   /* remove what an earlier run left */
    const cJSON *sources; /* of sw_manifest_sources for this source, if known already; else NULL */
    const sw_progress *progress; /* or NULL */
} sw_ckpt_keep;
/* The same, with the work in OUT.partial, where a later run with the same inputs continues it.
 * keep NULL: as above. SW_E_USAGE also: OUT.partial holds a run from other inputs; the message says
 * which input differs. SW_E_FORMAT: its journal or a tensor is damaged. Both leave it unchanged. */
sw_code sw_ckpt_writer_new_kept(sw_ckpt_writer **out, const sw_checkpoint *source,
                                const char *out_dir, bool may_replace, const sw_dialect *dialect,
                                const sw_qconfig *qconfig, const sw_ckpt_linear *linears,
                                int64_t n_linears, uint64_t shard_bytes, const sw_ckpt_keep *keep,
                                sw_err *err) SW_MUST_USE;
/* Bytes of all files that such a writer makes, but for manifest.json and what at_end puts there.
 * Nothing is written. SW_E_UNSUPPORTED: the source is a GGUF. */
sw_code sw_ckpt_foresee(uint64_t *out, const sw_checkpoint *source, const sw_dialect *dialect,
                        const sw_qconfig *qconfig, const sw_ckpt_linear *linears,
                        int64_t n_linears, uint64_t shard_bytes, sw_err *err) SW_MUST_USE;
/* How many linears the source has in codes that the output has as floats, since no claim takes
 * them; the path of the first, or NULL. */
int64_t sw_ckpt_writer_n_decoded(const char **first, const sw_ckpt_writer *w);
/* Number of decoder blocks that are finished already, counted from the first. */
int64_t sw_ckpt_writer_n_done(const sw_ckpt_writer *w);
/* The object that end_block was given for a finished block, with "tensors" added; borrowed. */
const cJSON *sw_ckpt_writer_figures(const sw_ckpt_writer *w, int64_t block);
/* The logical weight of a linear that is written; q is allocated here. SW_E_BUG: it is not. */
sw_code sw_ckpt_writer_get(sw_qtensor *q, const sw_ckpt_writer *w, const char *module_path,
                           sw_err *err) SW_MUST_USE;
/* Say that all linears of the next block have been put. `figures`, an object with a member "rows"
 * for the manifest, is consumed in any case. */
sw_code sw_ckpt_writer_end_block(sw_ckpt_writer *w, cJSON *figures, sw_err *err) SW_MUST_USE;
/* Let free keep the work for a later run. Returns OUT.partial, or NULL when nothing is kept. */
const char *sw_ckpt_writer_leave(sw_ckpt_writer *w);

/* Encode and write one claimed linear, once each, in any order. Checks q first. Without `keep`,
 * threads may put different linears at a time. */
sw_code sw_ckpt_writer_put(sw_ckpt_writer *w, const char *module_path, const sw_qtensor *q,
                           sw_err *err) SW_MUST_USE;
/* A note, if scales of a cache stay behind because the output cannot say what they are for. */
void sw_ckpt_writer_say_kv(const sw_ckpt_writer *w, const sw_progress *progress);
/* Scales for a cache of codes, of every layer once, where there is qconfig.has_new_kv. */
sw_code sw_ckpt_writer_put_kv(sw_ckpt_writer *w, int64_t layer, float k_scale, float v_scale,
                              sw_err *err) SW_MUST_USE;
/* What tensor t of the source is written in when no linear claims it: its own dtype; of a dense
 * target that one; of a GGUF, a weight that it has in blocks or in F32 gets the model's. */
sw_dtype sw_checkpoint_kept_dtype(const sw_checkpoint *source, const sw_dialect *target,
                                  const sw_st_tensor *t);
/* Other values for a tensor that stays in floats: n of them, stored in the dtype above and in the
 * source's shape instead of a copy. Once each. SW_E_UNSUPPORTED: it is not stored in floats. */
sw_code sw_ckpt_writer_change(sw_ckpt_writer *w, const char *tensor_name, const float *values,
                              int64_t n, sw_err *err) SW_MUST_USE;
/* The n values of a tensor as they were changed, when it was, by this run or an earlier one. */
sw_code sw_ckpt_writer_get_changed(bool *is_changed, float *values, int64_t n,
                                   const sw_ckpt_writer *w, const char *tensor_name,
                                   sw_err *err) SW_MUST_USE;
/* Where the output grows until the commit: what else is put there becomes part of it. */
const char *sw_ckpt_writer_work_dir(const sw_ckpt_writer *w);
/* After the commit: what the user should know of the output, or "". */
const char *sw_ckpt_writer_note(const sw_ckpt_writer *w);
/* Copy all tensors that no linear claims from now on, on threads of the writer, instead of at the
 * commit: for runs that change none of them. */
void sw_ckpt_writer_copy_ahead(sw_ckpt_writer *w);
/* Digest the source for the manifest now, beside the work, instead of at the commit. */
sw_code sw_ckpt_writer_digest(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* Copy part i of what no linear claims unless it has been copied: for all i below n_copies, which
 * are parts of tensors as they lie in the output, on any thread, while linears are put instead of
 * at the commit. */
int64_t sw_ckpt_writer_n_copies(const sw_ckpt_writer *w);
sw_code sw_ckpt_writer_copy(sw_ckpt_writer *w, int64_t i, sw_err *err) SW_MUST_USE;
/* The tensors, to ask for digests of their files after the commit. */
const sw_st_writer *sw_ckpt_writer_tensors(const sw_ckpt_writer *w);
/* Before any put: see sw_st_writer_read_back. */
void sw_ckpt_writer_read_back(sw_ckpt_writer *w, sw_digest_back *back);
/* Digest the parts of the output that are complete: after any put or copy, on any thread, so that
 * the commit takes less time. */
sw_code sw_ckpt_writer_catch_up(sw_ckpt_writer *w, sw_err *err) SW_MUST_USE;
/* To be called at the commit, when all but the manifest is in `work_dir` under its name: what it
 * puts there becomes part of the output. `sources` as of sw_manifest_sources, borrowed. */
typedef sw_code (*sw_ckpt_writer_end_fn)(void *self, const char *work_dir, const cJSON *sources,
                                         sw_err *err);
void sw_ckpt_writer_at_end(sw_ckpt_writer *w, sw_ckpt_writer_end_fn fn, void *self);
/* Copy the unclaimed tensors and side files, write config.json and manifest.json (the caller's
 * object plus "inputs" and "outputs" with the SHA-256 of every file, and of a GGUF "cast", the
 * weights whose floats were rounded to the model's dtype), reconcile the byte count
 * and publish. Consumes neither. */
sw_code sw_ckpt_writer_commit(sw_ckpt_writer *w, const cJSON *manifest, sw_err *err) SW_MUST_USE;
void sw_ckpt_writer_free(sw_ckpt_writer *w); /* abandons what was not committed; accepts NULL */

/* The stored tensors of one quantized linear. Not for others than the reader
 * and the writer of checkpoints. */

/* In the order that the dialect declares for `spec`, each checked for dtype and shape; NULL for an
 * optional one that the file lacks, and behind the last. SW_E_FORMAT names the offender, also
 * floats of the same linear. */
sw_code sw_checkpoint_parts(const sw_st_tensor *out[SW_DIALECT_TENSORS_MAX],
                            const sw_checkpoint *ckpt, const char *module_path,
                            const sw_qspec *spec, int64_t n_out, int64_t k_in,
                            sw_err *err) SW_MUST_USE;

#endif
