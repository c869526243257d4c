/* mac.h - a digest under a key that nobody else knows, through libcrypto.
 *
 * Who wants to find out later whether bytes are still the same, and need not tell others how, needs
 * no SHA-256: GMAC (NIST SP 800-38D) under a random key is several times as fast where a processor
 * multiplies without carries, as most do. Of other bytes, however chosen by somebody who does not
 * know the key, it is the same with a probability below 2^-100 for pieces of these sizes.
 */
#ifndef SW_FORMATS_BASE_MAC_H
#define SW_FORMATS_BASE_MAC_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

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
