/* tensor_digests.c - what the tensors of a checkpoint hold, for scripts that compare two of them.
 *
 *   tensor_digests MODEL_DIR|FILE
 *
 * One line a tensor in the order of names: name, dtype, SHA-256 of the bytes. Exit code 1 says on
 * stderr what went wrong.
 */
#include <stdio.h>

#include "formats/base/hash.h"
#include "formats/file/safetensors.h"

static sw_code print_one(const sw_st_tensor *tensor, sw_err *err)
{
    char digest[SW_SHA256_HEX_BYTES];
    sw_code rc = sw_sha256_hex(digest, tensor->view.data, tensor->view.size_bytes, err);

    if (rc == SW_OK)
        (void)printf("%s %s %s\n", tensor->name, sw_dtype_name(tensor->view.dtype), digest);
    return rc;
}

int main(int argc, char **argv)
{
    sw_err err = {0};
    sw_st *st = NULL;
    sw_code rc;

    if (argc != 2) {
        (void)fprintf(stderr, "usage: tensor_digests MODEL_DIR|FILE\n");
        return 1;
    }
    rc = sw_st_open(&st, argv[1], &err);
    for (int64_t i = 0; rc == SW_OK && i < sw_st_count(st); i++)
        rc = print_one(sw_st_at(st, i), &err);
    sw_st_close(st);
    if (rc == SW_OK) return 0;
    (void)fprintf(stderr, "tensor_digests: %s\n", err.text);
    return 1;
}
