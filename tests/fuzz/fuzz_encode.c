/* fuzz_encode.c - any bytes through the bundled tokenizer, which loses nothing: what is UTF-8
 * comes back byte for byte, what is not is refused and leaves the list as it was. */
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

static sw_tokenizer *bundled(void)
{
    static sw_tokenizer *tok; /* loading takes longer than thousands of inputs */
    sw_err err = {0};

    if (!tok)
        insist(sw_tokenizer_open(&tok, "calib_data/tiny-llama/tokenizer.json", &err) == SW_OK);
    return tok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sw_tokenizer *tok = bundled();
    size_t bad_at = 0, n_bytes = 0;
    char *text = NULL;
    sw_ids ids = {0};
    sw_err err = {0};
    sw_code rc = sw_tokenizer_encode(tok, &ids, (const char *)data, size, false, &err);

    if (sw_utf8_is_valid((const char *)data, size, &bad_at)) {
        insist(rc == SW_OK && ids.n <= (int64_t)size);
        insist(sw_tokenizer_decode(tok, &text, &n_bytes, ids.ids, ids.n, false, &err) == SW_OK);
        insist(n_bytes == size && (!size || !memcmp(text, data, size)));
        sw_mem_put(text);
    } else {
        insist(rc == SW_E_FORMAT && ids.n == 0);
    }
    sw_ids_free(&ids);
    return 0;
}
