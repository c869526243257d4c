/* journal.h - which decoder blocks of a checkpoint in the making are finished, and from what.
 *
 * A text file that only grows. Each line is a SHA-256 in hex, a blank and a JSON object; the
 * digest covers the line before it (its digest) and the object, so that a line that is changed,
 * lost or moved is noticed. A last line without an end is what a kill leaves and does not count.
 *
 *   {"journal": 2, "key": {...}}   all that decides the bytes: settings, digests of every input
 *   {"tensors": [{"name", "bytes", "sha256"}], "rows": {...}, "block": 0}   one per finished
 *                                  block, in order; `rows` is what the manifest's lists gained
 *
 * Nothing in it tells a time, a path, a process or a thread count.
 */
#ifndef SW_FORMATS_CHECKPOINT_WRITER_JOURNAL_H
#define SW_FORMATS_CHECKPOINT_WRITER_JOURNAL_H

#include "formats/base/hash.h"
#include "formats/base/json.h"
#include "formats/io/file.h"

/* 1: shapes were among the tensors of a block. 2: tensors lay in a file by width and name. */
#define SW_JOURNAL_VERSION 3
#define SW_JOURNAL_MAX_BYTES ((size_t)1 << 30)
#define SW_JOURNAL_BLOCKS_MAX 1024

typedef struct sw_journal {
    cJSON *key;
    cJSON *blocks; /* array; element b is the line of block b */
    uint64_t size_bytes; /* whole lines */
    char last[SW_SHA256_HEX_BYTES];
    int fd; /* -1: not for appending */
} sw_journal;

/* A journal out of memory; fd is -1. SW_E_FORMAT begins with `what`. Freed by sw_journal_close. */
sw_code sw_journal_parse(sw_journal *out, const char *text, size_t n_bytes, const char *what,
                         sw_err *err) SW_MUST_USE;
/* Start the journal at `path` with one line, synced with its directory. */
sw_code sw_journal_create(sw_journal *out, const char *path, const cJSON *key,
                          sw_err *err) SW_MUST_USE;
/* Read the journal at `path` and cut off an unfinished last line. */
sw_code sw_journal_open(sw_journal *out, const char *path, sw_err *err) SW_MUST_USE;
void sw_journal_close(sw_journal *journal); /* accepts one that holds nothing */
int64_t sw_journal_n_blocks(const sw_journal *journal);

/* Append the line of the next block, synced: what it speaks of must be synced before. Consumes
 * `block` in any case, which holds all members but "block". */
sw_code sw_journal_add_block(sw_journal *journal, cJSON *block, sw_err *err) SW_MUST_USE;

/* SW_E_USAGE when `now` is not the key of the journal at `path`; says where they part and with
 * which values: "settings.damp was 0.01 and is 0.02". Elements with a "name" go by it. */
sw_code sw_journal_check_key(const sw_journal *journal, const cJSON *now, const char *path,
                             sw_err *err) SW_MUST_USE;

#endif
