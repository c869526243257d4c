/* mac.c - see mac.h. GMAC is AES-GCM of bytes that are authenticated and not encrypted. */
#include "formats/base/mac.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "formats/base/size.h"

#define NONCE_BYTES 12
#define PART_BYTES ((size_t)1 << 30) /* libcrypto counts in ints */

static sw_code crypto_failure(sw_err *err)
{
    return SW_FAIL(err, SW_E_NOMEM, "libcrypto could not compute a GMAC");
}

/* sw_mac is libcrypto's context by another name, which keeps its header out of ours. */
static EVP_CIPHER_CTX *context(sw_mac *mac) { return (EVP_CIPHER_CTX *)(void *)mac; }

sw_code sw_mac_key(uint8_t key[SW_MAC_KEY_BYTES], sw_err *err)
{
    if (RAND_bytes(key, SW_MAC_KEY_BYTES) == 1) return SW_OK;
    return SW_FAIL(err, SW_E_IO, "the system gave libcrypto no random bytes");
}

sw_code sw_mac_new(sw_mac **out, const uint8_t key[SW_MAC_KEY_BYTES], uint64_t number, sw_err *err)
{
    uint8_t nonce[NONCE_BYTES] = {0};
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

    sw_store_le64(nonce, number);
    if (!ctx || EVP_EncryptInit_ex(ctx, EVP_aes_128_gcm(), NULL, key, nonce) != 1) {
        EVP_CIPHER_CTX_free(ctx);
        return crypto_failure(err);
    }
    *out = (sw_mac *)(void *)ctx;
    return SW_OK;
}

sw_code sw_mac_add(sw_mac *mac, const void *bytes, size_t n_bytes, sw_err *err)
{
    const uint8_t *from = bytes;

    while (n_bytes) {
        const size_t n = n_bytes < PART_BYTES ? n_bytes : PART_BYTES;
        int ignored;

        if (EVP_EncryptUpdate(context(mac), NULL, &ignored, from, (int)n) != 1)
            return crypto_failure(err);
        from += n;
        n_bytes -= n;
    }
    return SW_OK;
}

sw_code sw_mac_finish(uint8_t tag[SW_MAC_BYTES], sw_mac *mac, sw_err *err)
{
    uint8_t nothing[EVP_MAX_BLOCK_LENGTH];
    int ignored;

    if (EVP_EncryptFinal_ex(context(mac), nothing, &ignored) == 1 &&
        EVP_CIPHER_CTX_ctrl(context(mac), EVP_CTRL_GCM_GET_TAG, SW_MAC_BYTES, tag) == 1)
        return SW_OK;
    return crypto_failure(err);
}

void sw_mac_free(sw_mac *mac) { EVP_CIPHER_CTX_free(context(mac)); }
