/* hash.c - see hash.h. */
#include "formats/base/hash.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>

#include "formats/base/size.h"

#define NONCE_BYTES 12
#define PART_BYTES ((size_t)1 << 30) /* libcrypto counts in ints */

static sw_code crypto_failure(sw_err *err)
{
    return SW_FAIL(err, SW_E_NOMEM, "libcrypto could not compute a SHA-256");
}

static void print_hex(char out[SW_SHA256_HEX_BYTES], const unsigned char digest[32])
{
    for (int i = 0; i < 32; i++) (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

sw_code sw_sha256_hex(char out[SW_SHA256_HEX_BYTES], const void *bytes, size_t n_bytes,
                      sw_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];

    if (EVP_Digest(bytes, n_bytes, digest, NULL, EVP_sha256(), NULL) != 1)
        return crypto_failure(err);
    print_hex(out, digest);
    return SW_OK;
}

/* sw_sha256 is libcrypto's context by another name, which keeps its header out of ours. */
static EVP_MD_CTX *context(sw_sha256 *sum) { return (EVP_MD_CTX *)(void *)sum; }

sw_code sw_sha256_new(sw_sha256 **out, sw_err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return crypto_failure(err);
    }
    *out = (sw_sha256 *)(void *)ctx;
    return SW_OK;
}

sw_code sw_sha256_add(sw_sha256 *sum, const void *bytes, size_t n_bytes, sw_err *err)
{
    return EVP_DigestUpdate(context(sum), bytes, n_bytes) == 1 ? SW_OK : crypto_failure(err);
}

sw_code sw_sha256_copy(sw_sha256 **out, const sw_sha256 *from, sw_err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (!ctx || EVP_MD_CTX_copy_ex(ctx, (const EVP_MD_CTX *)(const void *)from) != 1) {
        EVP_MD_CTX_free(ctx);
        return crypto_failure(err);
    }
    *out = (sw_sha256 *)(void *)ctx;
    return SW_OK;
}

sw_code sw_sha256_finish(char out[SW_SHA256_HEX_BYTES], sw_sha256 *sum, sw_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];

    if (EVP_DigestFinal_ex(context(sum), digest, NULL) != 1) return crypto_failure(err);
    print_hex(out, digest);
    return SW_OK;
}

void sw_sha256_free(sw_sha256 *sum) { EVP_MD_CTX_free(context(sum)); }

/* --- MAC: AES-GCM of bytes that are authenticated and not encrypted --- */

static sw_code mac_failure(sw_err *err)
{
    return SW_FAIL(err, SW_E_NOMEM, "libcrypto could not compute a GMAC");
}

/* sw_mac is libcrypto's context by another name, which keeps its header out of ours. */
static EVP_CIPHER_CTX *cipher(sw_mac *mac) { return (EVP_CIPHER_CTX *)(void *)mac; }

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
        return mac_failure(err);
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

        if (EVP_EncryptUpdate(cipher(mac), NULL, &ignored, from, (int)n) != 1)
            return mac_failure(err);
        from += n;
        n_bytes -= n;
    }
    return SW_OK;
}

sw_code sw_mac_finish(uint8_t tag[SW_MAC_BYTES], sw_mac *mac, sw_err *err)
{
    uint8_t nothing[EVP_MAX_BLOCK_LENGTH];
    int ignored;

    if (EVP_EncryptFinal_ex(cipher(mac), nothing, &ignored) == 1 &&
        EVP_CIPHER_CTX_ctrl(cipher(mac), EVP_CTRL_GCM_GET_TAG, SW_MAC_BYTES, tag) == 1)
        return SW_OK;
    return mac_failure(err);
}

void sw_mac_free(sw_mac *mac) { EVP_CIPHER_CTX_free(cipher(mac)); }
