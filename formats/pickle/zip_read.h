/* zip_read.h - the directory of a zip archive whose entries are stored as they are.
 *
 * Checkpoints of PyTorch are such archives. Nothing is unpacked: an entry is a range of the bytes.
 * Believed is the central directory; a local header must name the same entry, and entries may not
 * overlap, so that no two readers see different files. Compressed and encrypted entries are
 * refused by name.
 */
#ifndef SW_FORMATS_PICKLE_ZIP_READ_H
#define SW_FORMATS_PICKLE_ZIP_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/mem.h"

#define SW_ZIP_ENTRIES_MAX 400000

typedef struct sw_zip_entry {
    const char *name; /* UTF-8 */
    const unsigned char *data;
    uint64_t size_bytes;
} sw_zip_entry;

typedef struct sw_zip {
    sw_zip_entry *entries; /* by name */
    int64_t n_entries;
} sw_zip;

/* true when the bytes begin as an archive does. */
bool sw_zip_is_one(const void *bytes, size_t n_bytes);
/* Names live in the arena, data in `bytes`. SW_E_FORMAT, SW_E_UNSUPPORTED begin with `what`. */
sw_code sw_zip_parse(sw_zip *out, sw_arena *arena, const void *bytes, size_t n_bytes,
                     const char *what, sw_err *err) SW_MUST_USE;
const sw_zip_entry *sw_zip_find(const sw_zip *zip, const char *name); /* NULL: none */

#endif
