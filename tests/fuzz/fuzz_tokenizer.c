/* fuzz_tokenizer.c - a hostile tokenizer.json, and a text for it behind the first zero byte.
 *
 * What loads must encode to ids below its vocabulary, the same ids twice, that decode to UTF-8.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(int holds)
{
    if (!holds) abort();
}

static void check_decode(const sw_tokenizer *tok, const sw_ids *ids)
{
    char *text = NULL;
    size_t n_bytes = 0, bad_at = 0;
    sw_err err = {0};
    sw_code rc = sw_tokenizer_decode(tok, &text, &n_bytes, ids->ids, ids->n, false, &err);

    if (rc == SW_OK) insist(text[n_bytes] == '\0' && sw_utf8_is_valid(text, n_bytes, &bad_at));
    else insist(!text && strstr(err.text, "expression") != NULL); /* a hostile Replace only */
    sw_mem_put(text);
}

static void check_encode(sw_tokenizer *tok, const char *text, size_t n_bytes)
{
    sw_ids first = {0}, second = {0};
    sw_err err = {0};

    if (sw_tokenizer_encode(tok, &first, text, n_bytes, false, &err) == SW_OK) {
        insist(sw_tokenizer_encode(tok, &second, text, n_bytes, false, &err) == SW_OK);
        insist(first.n == second.n);
        insist(!first.n || !memcmp(first.ids, second.ids, (size_t)first.n * 4));
        for (int64_t i = 0; i < first.n; i++) insist(first.ids[i] < sw_tokenizer_vocab(tok));
        check_decode(tok, &first);
    } else {
        insist(first.n == 0 && err.text[0]);
    }
    sw_ids_free(&first);
    sw_ids_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n_json = zero ? (size_t)(zero - data) : size;
    const char *json = (const char *)data;
    sw_tokenizer *tok = NULL;
    sw_err err = {0};

    if (sw_tokenizer_open_bytes(&tok, json, n_json, "fuzz", &err) != SW_OK) {
        insist(!tok && err.text[0]);
        return 0;
    }
    check_encode(tok, json, n_json);
    if (zero) check_encode(tok, (const char *)zero + 1, size - n_json - 1);
    sw_tokenizer_free(tok);
    return 0;
}
