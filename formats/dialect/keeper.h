/* keeper.h - what lets a checkpoint that was never finished be continued: its journal, tied to
 * the digests of all that went in and of every tensor that came out.
 *
 * A block counts as finished in this order: its tensors are written, the shards are synced, the
 * line of the journal is appended and synced. So a line that is there speaks of bytes that are.
 */
#ifndef SW_FORMATS_DIALECT_KEEPER_H
#define SW_FORMATS_DIALECT_KEEPER_H

#include "formats/base/progress.h"
#include "formats/dialect/journal.h"
#include "formats/file/safetensors.h"

/* Zero-initialised it keeps nothing, and every function but begin is then a success at once. */
typedef struct sw_keeper {
    bool is_on;
    sw_journal journal;
    cJSON *pending; /* array of the present block's tensors */
} sw_keeper;

/* Take up the journal in `dir`, or start one. `key` is all that decides the bytes; borrowed.
 * SW_E_USAGE: it was begun with another key. SW_E_FORMAT: the journal is damaged. */
sw_code sw_keeper_begin(sw_keeper *out, const sw_out_dir *dir, const cJSON *key,
                        sw_err *err) SW_MUST_USE;
void sw_keeper_free(sw_keeper *keeper);
int64_t sw_keeper_n_blocks(const sw_keeper *keeper);
/* Element b of the journal: the members that end_block was given, and "tensors". */
const cJSON *sw_keeper_block(const sw_keeper *keeper, int64_t block);

/* A tensor of the present block has been written. */
sw_code sw_keeper_note(sw_keeper *keeper, const char *name, const void *data, uint64_t n_bytes,
                       sw_err *err) SW_MUST_USE;
/* The present block is whole. `figures` (an object with "rows") is consumed in any case. */
sw_code sw_keeper_end_block(sw_keeper *keeper, const sw_st_writer *st, cJSON *figures,
                            sw_err *err) SW_MUST_USE;

/* Take every tensor of the finished blocks from the shards and hold it to its digest; `each` is
 * told of it. SW_E_FORMAT names the first that is not what was written. */
typedef sw_code (*sw_keeper_fn)(void *self, const char *name, uint64_t n_bytes, sw_err *err);
sw_code sw_keeper_check(const sw_keeper *keeper, sw_st_writer *st, const sw_progress *progress,
                        sw_keeper_fn each, void *self, sw_err *err) SW_MUST_USE;

#endif
