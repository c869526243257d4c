/* hash.c - see hash.h. */
#include "formats/base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "formats/base/file.h"

sw_code sw_sha256_hex(char out[SW_SHA256_HEX_BYTES], const void *bytes, size_t n_bytes,
                      sw_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int digest_bytes = 0;

    if (EVP_Digest(bytes, n_bytes, digest, &digest_bytes, EVP_sha256(), NULL) != 1 ||
        digest_bytes != 32)
        return SW_FAIL(err, SW_E_NOMEM, "libcrypto could not compute a SHA-256");
    for (int i = 0; i < 32; i++) (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return SW_OK;
}

sw_code sw_sha256_file(char out[SW_SHA256_HEX_BYTES], const char *path, sw_err *err)
{
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_map_open(&map, path, err)) != SW_OK) return rc;
    rc = sw_sha256_hex(out, map.data, map.size_bytes, err);
    sw_map_close(&map);
    return rc;
}
