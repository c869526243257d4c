/* resume.h - what lets a checkpoint that was never finished be continued: its journal, tied to
 * the digests of all that went in and of every tensor that came out.
 *
 * A block counts as finished in this order: its tensors are written, the shards are synced, the
 * line of the journal is appended and synced. So a line that is there speaks of bytes that are.
 */
#ifndef SW_FORMATS_CHECKPOINT_WRITER_RESUME_H
#define SW_FORMATS_CHECKPOINT_WRITER_RESUME_H

#include "formats/base/progress.h"
#include "formats/checkpoint/writer/journal.h"
#include "formats/file/safetensors.h"

/* Zero-initialised it keeps nothing, and every function but begin is then a success at once. */
typedef struct sw_resume {
    bool is_on;
    sw_journal journal;
    cJSON *pending; /* array of the present block's tensors */
} sw_resume;

/* Take up the journal in `dir`, or start one. `key` is all that decides the bytes; borrowed.
 * SW_E_USAGE: it was begun with another key. SW_E_FORMAT: the journal is damaged. */
sw_code sw_resume_begin(sw_resume *out, const sw_out_dir *dir, const cJSON *key,
                        sw_err *err) SW_MUST_USE;
void sw_resume_free(sw_resume *resume);
int64_t sw_resume_n_blocks(const sw_resume *resume);
/* Element b of the journal: the members that end_block was given, and "tensors". */
const cJSON *sw_resume_block(const sw_resume *resume, int64_t block);

/* A tensor of the present block has been written. */
sw_code sw_resume_note(sw_resume *resume, const char *name, const void *data, uint64_t n_bytes,
                       sw_err *err) SW_MUST_USE;
/* The present block is whole. `figures` (an object with "rows") is consumed in any case. */
sw_code sw_resume_end_block(sw_resume *resume, const sw_st_writer *st, cJSON *figures,
                            sw_err *err) SW_MUST_USE;

/* Take every tensor of the finished blocks from the shards and hold it to its digest; `each` is
 * told of it. SW_E_FORMAT names the first that is not what was written. */
typedef sw_code (*sw_resume_fn)(void *self, const char *name, uint64_t n_bytes, sw_err *err);
sw_code sw_resume_check(const sw_resume *resume, sw_st_writer *st, const sw_progress *progress,
                        sw_resume_fn each, void *self, sw_err *err) SW_MUST_USE;

#endif
