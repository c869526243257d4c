/* hash.h - SHA-256 through libcrypto. */
#ifndef SW_FORMATS_BASE_HASH_H
#define SW_FORMATS_BASE_HASH_H

#include <stddef.h>

#include "formats/base/status.h"

#define SW_SHA256_HEX_BYTES 65 /* with the terminating zero */

/* Lower-case hex of the digest of n_bytes at `bytes`. SW_E_NOMEM when libcrypto fails. */
sw_code sw_sha256_hex(char out[SW_SHA256_HEX_BYTES], const void *bytes, size_t n_bytes,
                      sw_err *err) SW_MUST_USE;
sw_code sw_sha256_file(char out[SW_SHA256_HEX_BYTES], const char *path, sw_err *err) SW_MUST_USE;

#endif
