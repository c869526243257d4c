/* fuzz_token_files.c - the files that a tokenizer.json is made of, all hostile.
 *
 * The first byte says the kind: 's' a sentencepiece model, 't' tekken.json, 'v' vocab.json and
 * merges.txt. A line of JSON, an object with what tokenizer_config.json, special_tokens_map.json,
 * added_tokens.json and config.json hold under "tokenizer", "map", "added" and "model", ends at the
 * first zero byte; the files follow, with a zero byte between vocabulary and merges. What is made
 * is JSON, and what of it loads encodes to ids below its vocabulary.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/text/files/made.h"
#include "formats/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const sw_json_caps caps = {
    .max_bytes = (size_t)1 << 20, .max_depth = 32, .max_values = 100000};

static void insist(int holds)
{
    if (!holds) abort();
}

static cJSON *detach(cJSON *root, const char *key)
{
    cJSON *member = cJSON_DetachItemFromObjectCaseSensitive(root, key);

    if (cJSON_IsObject(member)) return member;
    cJSON_Delete(member);
    return NULL;
}

/* Everything behind the zero byte that ends the first `*n`; they become what is in front of it. */
static const uint8_t *split(const uint8_t *data, size_t *n, size_t *n_rest)
{
    const uint8_t *zero = *n ? memchr(data, 0, *n) : NULL;
    const size_t all = *n;

    *n = zero ? (size_t)(zero - data) : all;
    *n_rest = zero ? all - *n - 1 : 0;
    return zero ? zero + 1 : data + all;
}

static sw_code make(char **json, size_t *n_bytes, char kind, const uint8_t *data, size_t n,
                    const sw_token_config *config, sw_err *err)
{
    const uint8_t *rest;
    cJSON *first = NULL;
    size_t n_rest = 0;
    sw_code rc;

    if (kind == 's') return sw_make_from_spm(json, n_bytes, data, n, config, err);
    rest = split(data, &n, &n_rest);
    if ((rc = sw_json_parse(&first, (const char *)data, n, &caps, "file", err)) != SW_OK) return rc;
    rc = kind == 't' ? sw_make_from_tekken(json, n_bytes, first, config, err)
                     : sw_make_from_merges(json, n_bytes, first, (const char *)rest, n_rest,
                                           config, err);
    cJSON_Delete(first);
    return rc;
}

static void use(const char *json, size_t n_bytes)
{
    static const char text[] = "ab <b>  \xC3\xA9\xE2\x96\x81 <0x41>\xF0\x9F\x98\x80 12\r\n a";
    sw_tokenizer *tok = NULL;
    sw_ids ids = {0};
    sw_err err = {0};

    if (sw_tokenizer_open_bytes(&tok, json, n_bytes, "made", &err) != SW_OK) {
        insist(err.text[0] != 0);
        return;
    }
    if (sw_tokenizer_encode(tok, &ids, text, sizeof text - 1, true, &err) == SW_OK)
        for (int64_t i = 0; i < ids.n; i++) insist(ids.ids[i] < sw_tokenizer_vocab(tok));
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const sw_json_caps open_caps = {
        .max_bytes = (size_t)64 << 20, .max_depth = 32, .max_values = 8000000};
    sw_token_config config = {0};
    size_t n = size ? size - 1 : 0, n_rest = 0, n_bytes = 0;
    const uint8_t *rest;
    cJSON *root = NULL;
    char *json = NULL;
    sw_err err = {0};

    if (!size) return 0;
    rest = split(data + 1, &n, &n_rest);
    if (sw_json_parse(&root, (const char *)data + 1, n, &caps, "config", &err) != SW_OK) return 0;
    config.tokenizer = detach(root, "tokenizer");
    config.map = detach(root, "map");
    config.added = detach(root, "added");
    config.model = detach(root, "model");
    cJSON_Delete(root);
    if (sw_token_config_build(&config, &err) == SW_OK &&
        make(&json, &n_bytes, (char)data[0], rest, n_rest, &config, &err) == SW_OK) {
        insist(sw_json_check(json, n_bytes, &open_caps, "made", &err) == SW_OK);
        use(json, n_bytes);
    } else {
        insist(!json && err.text[0]);
    }
    sw_mem_put(json);
    sw_token_config_free(&config);
    return 0;
}
