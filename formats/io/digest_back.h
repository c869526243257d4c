/* digest_back.h - files read back from the disk while they are still being written.
 *
 * Threads of its own follow the digest of each file (digest_steps.h): a step that is complete is
 * flushed, let go of by the system's cache, read and summed up. What they find is compared with
 * what was meant at the end, by sw_digest_steps_check. Whatever was not read on the way, since
 * there was no thread, no descriptor or an error of the disk, is read then, and its error told.
 */
#ifndef SW_FORMATS_IO_DIGEST_BACK_H
#define SW_FORMATS_IO_DIGEST_BACK_H

#include "formats/io/digest_steps.h"

sw_code sw_digest_back_new(sw_digest_back **out, sw_err *err) SW_MUST_USE;
void sw_digest_back_free(sw_digest_back *back); /* stops at once; accepts NULL */

/* All steps that have a tag are written to the file that is at `path` now, and stay as they are.
 * From any thread, but no two for one file at a time. Accepts NULL. SW_E_NOMEM. */
sw_code sw_digest_back_ready(sw_digest_back *back, const sw_digest_steps *steps, const char *path,
                             sw_err *err) SW_MUST_USE;

/* For digest_steps.c: what the steps of the file at `path` were when they were read, once
 * nothing is left to be read. tags[i] is meant where is_read[i]; both [n], nothing is read if
 * `back` is NULL, or where it knows another file or steps of another beginning. */
void sw_digest_back_take(uint8_t (*tags)[SW_MAC_BYTES], bool *is_read, int64_t n,
                         sw_digest_back *back, const sw_digest_steps *steps, const char *path);

#endif
