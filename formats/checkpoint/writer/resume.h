/* resume.h - continuing a checkpoint that was not finished: its journal, with the digests of all
 * inputs and of every tensor that was written.
 *
 * A block is finished in this order: its tensors are written, the shards are synced, the line of
 * the journal is appended and synced. So the tensors of every line of the journal are on disk. The
 * last two steps are those of a thread of its own, which takes all lines that wait at a time: a run
 * that is faster than its disk does not stand still at the end of every block.
 */
#ifndef SW_FORMATS_CHECKPOINT_WRITER_RESUME_H
#define SW_FORMATS_CHECKPOINT_WRITER_RESUME_H

#include "formats/base/progress.h"
#include "formats/checkpoint/writer/journal.h"
#include "formats/file/safetensors.h"

typedef struct sw_resume_lines sw_resume_lines; /* on their way into the journal */

/* Zero-initialised it keeps nothing, and every function but begin is then a success at once. */
typedef struct sw_resume {
    bool is_on;
    sw_journal journal; /* the lines' while there are any */
    cJSON *pending;     /* array of the present block's tensors */
    int64_t n_blocks;   /* in the journal or on their way */
    sw_resume_lines *lines;
} sw_resume;

/* Take up the journal in `dir`, or start one. `key` is all that decides the bytes; borrowed.
 * SW_E_USAGE: it was begun with another key. SW_E_FORMAT: the journal is damaged. */
sw_code sw_resume_begin(sw_resume *out, const sw_out_dir *dir, const cJSON *key,
                        sw_err *err) SW_MUST_USE;
/* The same where no journal is and the key is not known yet: it is asked for, on another thread,
 * before the first line. `dir` is borrowed; the key is freed by cJSON_Delete. */
typedef sw_code (*sw_resume_key_fn)(void *self, cJSON **key, sw_err *err);
sw_code sw_resume_begin_later(sw_resume *out, const sw_out_dir *dir, sw_resume_key_fn key_of,
                              void *self, sw_err *err) SW_MUST_USE;
/* What is still on its way is dropped, unless it has been settled. */
void sw_resume_free(sw_resume *resume);
/* Finished blocks, those on their way among them. */
int64_t sw_resume_n_blocks(const sw_resume *resume);
/* All of them are in the journal, and on disk; or the first failure since. To be called before the
 * shards are closed. */
sw_code sw_resume_settle(sw_resume *resume, sw_err *err) SW_MUST_USE;
/* Element b of the journal: the members that end_block was given, and "tensors". */
const cJSON *sw_resume_block(const sw_resume *resume, int64_t block);

/* A tensor of the present block has been written. Any thread. */
sw_code sw_resume_note(sw_resume *resume, const char *name, const void *data, uint64_t n_bytes,
                       sw_err *err) SW_MUST_USE;
/* The present block is whole, and its line is on its way. `figures` (an object with "rows") is
 * consumed in any case; `st` is borrowed until the next settle. Fails also with what an earlier
 * line failed with. */
sw_code sw_resume_end_block(sw_resume *resume, const sw_st_writer *st, cJSON *figures,
                            sw_err *err) SW_MUST_USE;

/* Take every tensor of the finished blocks from the shards and hold it to its digest; `each` is
 * told of it. SW_E_FORMAT names the first that is not what was written. */
typedef sw_code (*sw_resume_fn)(void *self, const char *name, uint64_t n_bytes, sw_err *err);
sw_code sw_resume_check(const sw_resume *resume, sw_st_writer *st, const sw_progress *progress,
                        sw_resume_fn each, void *self, sw_err *err) SW_MUST_USE;

#endif
