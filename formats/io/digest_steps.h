/* digest_steps.h - the SHA-256 of a file, with what is needed to know it again quickly.
 *
 * A SHA-256 takes the bytes in their order, so one file keeps one thread busy, and it is slow.
 * Whoever makes the digest once can also make a MAC (formats/base/hash.h) of every
 * SW_DIGEST_STEP_BYTES, under a key of this run. Whether the disk has those bytes is then found out
 * by any number of threads, step by step, in any order and before the file is complete: all steps
 * together prove the digest of the whole.
 */
#ifndef SW_FORMATS_IO_DIGEST_STEPS_H
#define SW_FORMATS_IO_DIGEST_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/hash.h"

#define SW_DIGEST_STEP_BYTES ((uint64_t)16 << 20)

typedef struct sw_digest_back sw_digest_back; /* digest_back.h */

/* Zero-initialise; free in any case. */
typedef struct sw_digest_steps {
    bool has_tags;       /* to be set before the first byte, by whoever will check */
    sw_sha256 *sum;      /* of the n_bytes that were added */
    sw_mac *mac;         /* of the step under way; NULL between two steps */
    uint8_t key[SW_MAC_KEY_BYTES];
    uint8_t (*tags)[SW_MAC_BYTES]; /* [n_tags] of steps that are complete; in the end of all */
    int64_t n_tags, room_tags;
    uint64_t n_bytes;
    char digest[SW_SHA256_HEX_BYTES]; /* of the whole, once it is finished; else empty */
} sw_digest_steps;

sw_code sw_digest_steps_begin(sw_digest_steps *out, sw_err *err) SW_MUST_USE;
sw_code sw_digest_steps_add(sw_digest_steps *steps, const void *bytes, size_t n_bytes,
                            sw_err *err) SW_MUST_USE;
sw_code sw_digest_steps_finish(sw_digest_steps *steps, sw_err *err) SW_MUST_USE;
void sw_digest_steps_free(sw_digest_steps *steps); /* accepts a zeroed one */

/* Does the file at `path` have the digest of finished steps that have tags? Every byte is read
 * from the disk, by up to n_threads threads, or has been by `back` (NULL: by nobody) since it
 * was complete. false also where the size is another, or there are no tags. SW_E_IO: it cannot
 * be opened. */
sw_code sw_digest_steps_check(bool *out, const sw_digest_steps *steps, sw_digest_back *back,
                              const char *path, int n_threads, sw_err *err) SW_MUST_USE;

#endif
