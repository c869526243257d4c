/* model_tokenizer.c - see model_text.h. */
#include "formats/checkpoint/model_text.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/model_path.h"
#include "formats/gguf/gguf_model.h"
#include "formats/io/file.h"
#include "formats/text/files/tokenizer_files.h"

#define TOKENIZER_NAME "tokenizer.json"

/* The tokenizer.json of a directory, there or not; of a GGUF, the one beside it. */
static bool beside(char at[SW_PATH_BYTES], const char *path, bool is_gguf)
{
    const char *slash = strrchr(path, '/');
    sw_err ignored = {0};
    int n;

    if (!is_gguf)
        return sw_path_join(at, path, TOKENIZER_NAME, &ignored) == SW_OK && sw_path_exists(at);
    n = snprintf(at, SW_PATH_BYTES, "%.*s" TOKENIZER_NAME, slash ? (int)(slash + 1 - path) : 0,
                 path);
    return n > 0 && n < SW_PATH_BYTES && sw_path_exists(at);
}

/* Does the GGUF that `path` means bring a tokenizer? `file` is its path. */
static bool is_inside(char file[SW_PATH_BYTES], const char *path)
{
    sw_err ignored = {0};
    sw_gguf *g = NULL;
    bool has;

    if (!sw_gguf_locate(file, path) || sw_gguf_open(&g, file, &ignored) != SW_OK) return false;
    has = sw_gguf_key(g, "tokenizer.ggml.tokens") != NULL;
    sw_gguf_close(g);
    return has;
}

bool sw_model_has_tokenizer(const char *path)
{
    char at[SW_PATH_BYTES];

    return beside(at, path, sw_gguf_is(path)) || is_inside(at, path) ||
           (!sw_gguf_is(path) && sw_tokenizer_files_find(at, path));
}

/* A directory without tokenizer.json. Where there is nothing else either, that is what is said. */
static sw_code open_other(sw_tokenizer **out, const char *dir, sw_err *err)
{
    char at[SW_PATH_BYTES], *json = NULL;
    size_t n_bytes = 0;
    sw_code rc;

    if (!sw_tokenizer_files_find(at, dir)) {
        rc = sw_path_join(at, dir, TOKENIZER_NAME, err);
        return rc == SW_OK ? sw_tokenizer_open(out, at, err) : rc;
    }
    if ((rc = sw_tokenizer_files_make(&json, &n_bytes, dir, err)) == SW_OK)
        rc = sw_tokenizer_open_bytes(out, json, n_bytes, at, err);
    sw_mem_put(json);
    return rc;
}

sw_code sw_model_tokenizer(sw_tokenizer **out, const char *path, sw_err *err)
{
    char at[SW_PATH_BYTES], file[SW_PATH_BYTES], *json = NULL;
    const bool is_gguf = sw_gguf_is(path);
    size_t n_bytes = 0;
    sw_code rc;

    if (!is_gguf && (beside(at, path, false) || !sw_gguf_locate(file, path))) {
        if (!beside(at, path, false)) return open_other(out, path, err);
        rc = sw_path_join(at, path, TOKENIZER_NAME, err);
        return rc == SW_OK ? sw_tokenizer_open(out, at, err) : rc;
    }
    if (!is_inside(file, path) && beside(at, path, is_gguf)) return sw_tokenizer_open(out, at, err);
    if (!sw_gguf_locate(file, path)) return SW_FAIL(err, SW_E_BUG, "%s is no GGUF", path);
    if ((rc = sw_gguf_tokenizer_of(&json, &n_bytes, file, err)) == SW_OK)
        rc = sw_tokenizer_open_bytes(out, json, n_bytes, file, err);
    sw_mem_put(json);
    return rc;
}
