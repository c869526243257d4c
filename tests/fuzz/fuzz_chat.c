/* fuzz_chat.c - any bytes as a chat template and its variables: refused with a message, or rendered
 * the same way twice and within the cap.
 *
 * The input is a template, a zero, and a JSON object of variables; without a zero, the variables
 * are those below.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/text/chat/chat_template.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

static const char usual[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":"
    "\"H\\u00e9llo\\n\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{"
    "\"name\":\"f\",\"arguments\":{\"a\":1,\"b\":[true,1.5]}}}]}],\"bos_token\":\"<s>\","
    "\"add_generation_prompt\":true}";

static void check_error(sw_code rc, const sw_err *err)
{
    MUST(rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED);
    MUST(err->code == rc && err->text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n_template = zero ? (size_t)(zero - data) : size;
    const char *variables = zero ? (const char *)zero + 1 : usual;
    size_t n_variables = zero ? size - n_template - 1 : sizeof usual - 1;
    const struct tm date = sw_chat_fixed_date();
    sw_chat_template *t = NULL;
    char *text = NULL, *again = NULL;
    size_t n = 0, n_again = 0;
    sw_err err = {0};
    sw_code rc = sw_chat_template_open(&t, (const char *)data, n_template, "fuzz", &err);

    if (rc != SW_OK) {
        check_error(rc, &err);
        MUST(!t);
        return 0;
    }
    rc = sw_chat_template_render(&text, &n, t, variables, n_variables, &date, &err);
    if (rc != SW_OK) {
        check_error(rc, &err);
        MUST(!text);
    } else {
        MUST(n <= SW_CHAT_OUTPUT_BYTES_MAX && !text[n]);
        MUST(sw_chat_template_render(&again, &n_again, t, variables, n_variables, &date, &err) ==
             SW_OK);
        MUST(n == n_again && !memcmp(text, again, n));
    }
    sw_mem_put(text);
    sw_mem_put(again);
    sw_chat_template_free(t);
    return 0;
}
