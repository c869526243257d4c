/* hash.c - see hash.h. */
#include "formats/base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>

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
