/* model_tokenizer.c - see model_tokenizer.h. */
#include "formats/dialect/model_tokenizer.h"

#include "formats/base/file.h"
#include "formats/base/mem.h"
#include "formats/dialect/gguf_model.h"

#define TOKENIZER_NAME "tokenizer.json"

bool sw_model_has_tokenizer(const char *path)
{
    char at[SW_PATH_BYTES];
    sw_err ignored = {0};
    sw_gguf *g = NULL;
    bool has;

    if (!sw_gguf_is(path))
        return sw_path_join(at, path, TOKENIZER_NAME, &ignored) == SW_OK && sw_path_exists(at);
    if (sw_gguf_open(&g, path, &ignored) != SW_OK) return false;
    has = sw_gguf_key(g, "tokenizer.ggml.tokens") != NULL;
    sw_gguf_close(g);
    return has;
}

sw_code sw_model_tokenizer(sw_tokenizer **out, const char *path, sw_err *err)
{
    char at[SW_PATH_BYTES], *json = NULL;
    size_t n_bytes = 0;
    sw_code rc;

    if (!sw_gguf_is(path)) {
        rc = sw_path_join(at, path, TOKENIZER_NAME, err);
        return rc == SW_OK ? sw_tokenizer_open(out, at, err) : rc;
    }
    if ((rc = sw_gguf_tokenizer_of(&json, &n_bytes, path, err)) == SW_OK)
        rc = sw_tokenizer_open_bytes(out, json, n_bytes, path, err);
    sw_mem_put(json);
    return rc;
}
