/* config_text.c - see config_text.h. */
#include "formats/file/config_text.h"

#include <string.h>

#include "formats/base/mem.h"

#define DECODER_DEPTH_MAX 3 /* objects within each other that a decoder is found in */

/* cJSON indents with one tab a level and puts one after each colon; raw tabs inside strings do
 * not occur, since JSON escapes them. */
static size_t print_spaced(char *to, const char *from, int indent)
{
    size_t n = 0;

    for (const char *p = from; *p; p++) {
        int spaces = *p == '\n' ? indent : *p == '\t' ? (p > from && p[-1] == ':' ? 1 : 2) : 0;
        if (*p != '\t') {
            if (to) to[n] = *p;
            n++;
        }
        if (to) memset(to + n, ' ', (size_t)spaces);
        n += (size_t)spaces;
    }
    return n;
}

sw_code sw_json_pretty(char **out, const cJSON *value, int indent, sw_err *err)
{
    char *tabbed = NULL, *text = NULL;
    sw_code rc = sw_json_print(&tabbed, value, true, err);

    if (rc != SW_OK) return rc;
    rc = SW_MEM_GET(&text, print_spaced(NULL, tabbed, indent) + 1, "JSON text", err);
    if (rc == SW_OK) {
        (void)print_spaced(text, tabbed, indent);
        *out = text;
    }
    sw_mem_put(tabbed);
    return rc;
}

static size_t skip_blanks(const char *text, size_t at, size_t n)
{
    while (at < n && strchr(" \t\r\n", text[at])) at++;
    return at;
}

/* `at` is on the opening quote; returns the offset behind the closing one. */
static size_t skip_string(const char *text, size_t at, size_t n)
{
    for (at++; at < n && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < n ? at + 1 : n;
}

/* Behind the value that starts at `at`, at the comma or brace that ends it or blanks before. */
static size_t skip_value(const char *text, size_t at, size_t n)
{
    int depth = 0;

    while (at < n) {
        char c = text[at];
        if (c == '"') {
            at = skip_string(text, at, n);
            if (depth == 0) return at;
            continue;
        }
        if (depth == 0 && strchr(",} \t\r\n", c)) return at;
        if (c == '{' || c == '[') depth++;
        at++;
        if ((c == '}' || c == ']') && --depth == 0) return at;
    }
    return n;
}

/* Texts come with their quotes. */
static bool is_one_of(const char *const names[2], const char *key, size_t n)
{
    for (int i = 0; i < 2; i++)
        if (n == strlen(names[i]) && !memcmp(key, names[i], n)) return true;
    return false;
}

static const char *const quant_keys[2] = {"\"quantization_config\"", "\"compression_config\""};
static const char *const dtype_keys[2] = {"\"torch_dtype\"", "\"dtype\""};

static void put_text(char *to, size_t *n, const char *text)
{
    memcpy(to + *n, text, strlen(text));
    *n += strlen(text);
}

static const char *const decoder_keys[] = {"\"text_config\"", "\"llm_config\"",
                                           "\"language_config\"", "\"thinker_config\""};

/* An object that a wrapper keeps its decoder's keys in, and that names a scheme? */
static bool holds_scheme(const char *text, size_t key, size_t key_end, size_t value, size_t end)
{
    bool is_decoder = false;

    for (int i = 0; i < 4; i++)
        is_decoder = is_decoder || (key_end - key == strlen(decoder_keys[i]) &&
                                    !memcmp(text + key, decoder_keys[i], key_end - key));
    if (!is_decoder || value >= end || text[value] != '{') return false;
    for (int i = 0; i < 2; i++)
        for (size_t at = value, n = strlen(quant_keys[i]); at + n <= end; at++)
            if (!memcmp(text + at, quant_keys[i], n)) return true;
    return false;
}

/* A member: its key from `key` to `key_end`, its value from `value` to `end`. */
typedef struct member {
    size_t key, key_end, value, end;
} member;

static bool find_member(member *m, const char *text, size_t at, size_t n_bytes)
{
    m->key = skip_blanks(text, at, n_bytes);
    if (m->key >= n_bytes || text[m->key] != '"') return false;
    m->key_end = skip_string(text, m->key, n_bytes);
    m->value = skip_blanks(text, m->key_end, n_bytes);
    if (m->value < n_bytes && text[m->value] == ':')
        m->value = skip_blanks(text, m->value + 1, n_bytes);
    m->end = skip_value(text, m->value, n_bytes);
    return true;
}

/* Copy the members to keep, each with the blanks before it, but at most `depth` objects deep;
 * returns how much was written. */
static size_t copy_members(char *to, const char *text, size_t at, size_t n_bytes,
                           const char *dtype, int depth)
{
    size_t n = 0;
    member m;

    while (at < n_bytes && text[at] != '}' && find_member(&m, text, at, n_bytes)) {
        if (!is_one_of(quant_keys, text + m.key, m.key_end - m.key)) {
            const bool is_dtype = dtype && is_one_of(dtype_keys, text + m.key, m.key_end - m.key);
            const bool is_nested = depth && holds_scheme(text, m.key, m.key_end, m.value, m.end);
            const size_t kept = is_dtype ? m.key_end : is_nested ? m.value + 1 : m.end;

            if (n) to[n++] = ',';
            memcpy(to + n, text + at, kept - at);
            n += kept - at;
            if (is_dtype) {
                put_text(to, &n, ": \"");
                put_text(to, &n, dtype);
                put_text(to, &n, "\"");
            } else if (is_nested) {
                n += copy_members(to + n, text, m.value + 1, m.end, NULL, depth - 1);
                to[n++] = '}';
            }
        }
        at = skip_blanks(text, m.end, n_bytes);
        if (at < n_bytes && text[at] == ',') at++;
    }
    return n;
}

sw_code sw_config_splice(char **out, const char *text, size_t n_bytes, const cJSON *quant_config,
                         const char *dtype, sw_err *err)
{
    size_t start = skip_blanks(text, 0, n_bytes), n = 0, kept;
    char *pretty = NULL, *spliced = NULL;
    cJSON *parsed = NULL;
    sw_code rc;

    if (start >= n_bytes || text[start] != '{')
        return SW_FAIL(err, SW_E_FORMAT, "config.json is not an object");
    if (quant_config && (rc = sw_json_pretty(&pretty, quant_config, 2, err)) != SW_OK) return rc;
    rc = SW_MEM_GET(&spliced, n_bytes + (pretty ? strlen(pretty) : 0) + 128, "config.json", err);
    if (rc != SW_OK) goto done;
    spliced[n++] = '{';
    kept = copy_members(spliced + n, text, start + 1, n_bytes, dtype, DECODER_DEPTH_MAX);
    n += kept;
    if (pretty) {
        put_text(spliced, &n, kept ? "," : "");
        put_text(spliced, &n, "\n  \"quantization_config\": ");
        put_text(spliced, &n, pretty);
    }
    put_text(spliced, &n, "\n}\n");
    /* an escaped spelling of the key would slip through above and show here as a duplicate */
    rc = sw_json_parse(&parsed, spliced, n, &sw_json_caps_config, "new config.json", err);
    if (rc != SW_OK) goto done;
    *out = spliced;
    spliced = NULL;
done:
    cJSON_Delete(parsed);
    sw_mem_put(spliced);
    sw_mem_put(pretty);
    return rc;
}
