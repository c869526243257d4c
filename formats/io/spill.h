/* spill.h - large working memory in a file that nobody sees, so that it need not be resident.
 *
 * The file has no name, lies where it is told to and vanishes with the process, however that
 * ends. Its space is reserved first: a full disk is an error here and not a signal later. Whoever
 * walks through it lets go of what lies behind; the system may then write it out.
 */
#ifndef SW_FORMATS_IO_SPILL_H
#define SW_FORMATS_IO_SPILL_H

#include <stddef.h>

#include "formats/base/status.h"

typedef struct sw_spill {
    void *data; /* zeroed at first */
    size_t size_bytes;
    int slot; /* of watch.h */
} sw_spill;

/* SW_E_IO: no file can be made in directory `dir`, or its disk is full. */
sw_code sw_spill_open(sw_spill *out, const char *dir, size_t size_bytes, sw_err *err) SW_MUST_USE;
void sw_spill_close(sw_spill *spill); /* accepts a zeroed one */
/* The range keeps its contents and need not stay in memory. Nothing for a zeroed spill. */
void sw_spill_release(const sw_spill *spill, const void *data, size_t size_bytes);

/* Where to put what no option names a place for: $TMPDIR, else /var/tmp, which outlives memory. */
const char *sw_spill_temp_dir(void);

#endif
