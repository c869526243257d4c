/* hash.h - SHA-256 through libcrypto. */
#ifndef SW_FORMATS_BASE_HASH_H
#define SW_FORMATS_BASE_HASH_H

#include <stddef.h>

#include "formats/base/status.h"

#define SW_SHA256_HEX_BYTES 65 /* with the terminating zero */

/* Lower-case hex of the digest of n_bytes at `bytes`. SW_E_NOMEM when libcrypto fails. */
sw_code sw_sha256_hex(char out[SW_SHA256_HEX_BYTES], const void *bytes, size_t n_bytes,
                      sw_err *err) SW_MUST_USE;
/* The same of bytes that come one after the other. Free it in any case; finish it once. */
typedef struct sw_sha256 sw_sha256;
sw_code sw_sha256_new(sw_sha256 **out, sw_err *err) SW_MUST_USE;
sw_code sw_sha256_add(sw_sha256 *sum, const void *bytes, size_t n_bytes, sw_err *err) SW_MUST_USE;
/* Another one in the same state. */
sw_code sw_sha256_copy(sw_sha256 **out, const sw_sha256 *from, sw_err *err) SW_MUST_USE;
sw_code sw_sha256_finish(char out[SW_SHA256_HEX_BYTES], sw_sha256 *sum, sw_err *err) SW_MUST_USE;
void sw_sha256_free(sw_sha256 *sum); /* accepts NULL */

#endif
