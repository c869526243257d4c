/* digest_steps.h - the SHA-256 of a file, with what it came to on the way.
 *
 * A SHA-256 takes the bytes in their order, so one file keeps one thread busy. Whoever made the
 * digest once can keep its state every SW_DIGEST_STEP_BYTES; then any number of threads can do it
 * again: each takes the state before a step, adds the bytes of the step as the disk has them now,
 * and compares with the state behind it. All steps together prove the digest of the whole.
 */
#ifndef SW_FORMATS_IO_DIGEST_STEPS_H
#define SW_FORMATS_IO_DIGEST_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/hash.h"

#define SW_DIGEST_STEP_BYTES ((uint64_t)16 << 20)

/* Zero-initialise; free in any case. */
typedef struct sw_digest_steps {
    sw_sha256 *sum;      /* of the n_bytes that were added */
    sw_sha256 **marks;   /* [n_marks] the states behind the first step, the second, ... */
    int64_t n_marks, room_marks;
    uint64_t n_bytes;
    char digest[SW_SHA256_HEX_BYTES]; /* of the whole, once it is finished; else empty */
} sw_digest_steps;

sw_code sw_digest_steps_begin(sw_digest_steps *out, sw_err *err) SW_MUST_USE;
sw_code sw_digest_steps_add(sw_digest_steps *steps, const void *bytes, size_t n_bytes,
                            sw_err *err) SW_MUST_USE;
sw_code sw_digest_steps_finish(sw_digest_steps *steps, sw_err *err) SW_MUST_USE;
void sw_digest_steps_free(sw_digest_steps *steps); /* accepts a zeroed one */

/* Does the file at `path` have the digest of finished steps? Every byte is read, by up to n_threads
 * threads. false also where its size is another. SW_E_IO: it cannot be opened. */
sw_code sw_digest_steps_check(bool *out, const sw_digest_steps *steps, const char *path,
                              int n_threads, sw_err *err) SW_MUST_USE;

#endif
