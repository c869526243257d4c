/* side_files.h - what else lies in a model directory, and what becomes of it.
 *
 * Tokenizer, generation config, licence and so on come along, by a table of names; files that have
 * nothing to do with a checkpoint do not. Nor do weights in any container:
 * a loader that globs for them would read the old ones beside the new. Subdirectories stay.
 */
#ifndef SW_FORMATS_CHECKPOINT_SIDE_FILES_H
#define SW_FORMATS_CHECKPOINT_SIDE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"

/* What a model card of ours has behind its metadata: it says what its own checkpoint is, so no
 * other takes it along. */
#define SW_CARD_MARK "<!-- card by swage -->"

typedef enum sw_dir_role {
    SW_DIR_SIDE,    /* copied as it is */
    SW_DIR_OWNED,   /* written anew: config.json and its like */
    SW_DIR_WEIGHTS, /* a container of weights, or the index of one */
    SW_DIR_FOREIGN, /* nothing of a checkpoint (side_names.def): stays */
    SW_DIR_OTHER    /* directories and what is no regular file */
} sw_dir_role;

typedef struct sw_dir_entry {
    const char *name;
    uint64_t size_bytes;
    sw_dir_role role;
    bool is_dir; /* of SW_DIR_OTHER */
} sw_dir_entry;

typedef struct sw_dir_list {
    sw_dir_entry *entries; /* in name order, owned by the arena */
    int64_t n_entries;
} sw_dir_list;

/* Symbolic links count as what they point to. SW_E_IO names the path. */
sw_code sw_dir_read(sw_dir_list *out, const char *dir, sw_arena *arena, sw_err *err) SW_MUST_USE;

/* Whether the side files of `dir` can be copied. SW_E_FORMAT: a text file or a tokenizer is a
 * pointer that Git LFS left in its place. SW_E_UNSUPPORTED: a name is no UTF-8, as those of a
 * manifest are. */
sw_code sw_dir_check_side(const sw_dir_list *list, const char *dir, sw_err *err) SW_MUST_USE;

/* Copy the side files of `from` (its list) into `to`, synced. */
sw_code sw_dir_copy_side(const sw_dir_list *list, const char *from, const char *to,
                         sw_err *err) SW_MUST_USE;

/* Append {"name", "bytes", "sha256"} of dir/name to an array; or with a digest that is known. */
sw_code sw_dir_put_digest(cJSON *array, const sw_dir_entry *entry, const char *digest,
                          sw_err *err) SW_MUST_USE;
sw_code sw_dir_add_digest(cJSON *array, const char *dir, const sw_dir_entry *entry,
                          sw_err *err) SW_MUST_USE;

#endif
