/* hash.h - digests through libcrypto: SHA-256 for all, and a MAC for whoever has its key. */
#ifndef SW_FORMATS_BASE_HASH_H
#define SW_FORMATS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

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

/* A digest under a key that nobody else knows: who wants to find out later whether bytes are
 * still the same, and need not tell others how, needs no SHA-256. GMAC (NIST SP 800-38D) under a
 * random key is several times as fast where a processor multiplies without carries, as most do.
 * Of other bytes, however chosen by somebody who does not know the key, it is the same with a
 * probability below 2^-100 for pieces of some megabytes. */
#define SW_MAC_KEY_BYTES 16
#define SW_MAC_BYTES 16

/* A new random key. SW_E_IO: the system has no randomness to give. */
sw_code sw_mac_key(uint8_t key[SW_MAC_KEY_BYTES], sw_err *err) SW_MUST_USE;

/* One piece of what a key is for; its number makes it differ from all others of that key. Freed in
 * any case; finished once. SW_E_NOMEM when libcrypto fails. */
typedef struct sw_mac sw_mac;
sw_code sw_mac_new(sw_mac **out, const uint8_t key[SW_MAC_KEY_BYTES], uint64_t number,
                   sw_err *err) SW_MUST_USE;
sw_code sw_mac_add(sw_mac *mac, const void *bytes, size_t n_bytes, sw_err *err) SW_MUST_USE;
sw_code sw_mac_finish(uint8_t tag[SW_MAC_BYTES], sw_mac *mac, sw_err *err) SW_MUST_USE;
void sw_mac_free(sw_mac *mac); /* accepts NULL */

#endif
