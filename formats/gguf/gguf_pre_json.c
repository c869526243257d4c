/* gguf_pre_json.c - rows of gguf_pre.h as the "pre_tokenizer" of tokenizer.json, and back. */
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf_pre.h"
#include "formats/text/characters/unicode.h"

#define SPLITS_MAX 16
#define DIGIT "\\p{N}"
/* ByteLevel cuts a text with this expression, unless the file says otherwise. */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION "[\\p{P}\\$\\+<=>\\^~\\|`]"

/* --- printing ----------------------------------------------------------------------------- */

static sw_code put(sw_print_buf *buf, const char *text, sw_err *err)
{
    return sw_print_add(buf, text, strlen(text), err);
}

/* Write one expression as the step of tokenizer.json that applies it. */
static sw_code put_split(sw_print_buf *buf, const char *split, sw_err *err)
{
    sw_code rc;

    if (!strcmp(split, DIGIT))
        return put(buf, "{\"type\":\"Digits\",\"individual_digits\":true},", err);
    if ((rc = put(buf, "{\"type\":\"Split\",\"pattern\":{\"Regex\":", err)) != SW_OK ||
        (rc = sw_print_quote(buf, split, err)) != SW_OK)
        return rc;
    return put(buf, "},\"behavior\":\"Isolated\",\"invert\":false},", err);
}

sw_code sw_gguf_pre_print(sw_print_buf *buf, const sw_gguf_pre *pre, sw_err *err)
{
    bool cuts = false; /* whether ByteLevel cuts, as the last step */
    sw_code rc;

    if (pre->flags & SW_GGUF_PRE_PIECES) return put(buf, "null", err);
    rc = put(buf, "{\"type\":\"Sequence\",\"pretokenizers\":[", err);
    for (int i = 0; pre->splits[i] && rc == SW_OK; i++) {
        cuts = !pre->splits[i + 1] && !strcmp(pre->splits[i], GPT2);
        if (!cuts) rc = put_split(buf, pre->splits[i], err);
    }
    if (rc != SW_OK) return rc;
    return sw_print_fmt(buf, err, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                        "\"trim_offsets\":true,\"use_regex\":%s}]}", cuts ? "true" : "false");
}

/* --- finding ------------------------------------------------------------------------------ */

typedef struct found {
    const char *splits[SPLITS_MAX];
    int n;
    bool has_bytes;
} found;

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *member = sw_json_member(object, key);

    return cJSON_IsString(member) ? member->valuestring : "";
}

static sw_code refuse(const char *what, const char *detail, sw_err *err)
{
    return SW_FAIL(err, SW_E_UNSUPPORTED, "tokenizer.json: %s%.80s, for which GGUF has no name; "
                   "write without a tokenizer (--no-tokenizer)", what, detail);
}

static sw_code add(found *f, const char *split, sw_err *err)
{
    if (f->n == SPLITS_MAX) return refuse("a pre-tokenizer of many steps", "", err);
    f->splits[f->n++] = split;
    return SW_OK;
}

static sw_code add_split(found *f, const cJSON *step, sw_err *err)
{
    const char *regex = text_of(sw_json_member(step, "pattern"), "Regex");
    const bool is_inverted = cJSON_IsTrue(sw_json_member(step, "invert"));
    const char *how = text_of(step, "behavior");

    /* an expression that matches everything: to keep its matches or what lies between is the
     * same */
    if (*regex && ((!strcmp(how, "Isolated") && !is_inverted) ||
                   (!strcmp(how, "Removed") && is_inverted && strstr(regex, "|\\s+"))))
        return add(f, regex, err);
    return refuse("a Split that is not an isolated expression", "", err);
}

static sw_code add_bytes(found *f, const cJSON *step, sw_err *err)
{
    const cJSON *cuts = sw_json_member(step, "use_regex");
    const cJSON *prefix = sw_json_member(step, "add_prefix_space");

    f->has_bytes = true;
    if (!cJSON_IsFalse(prefix)) return refuse("ByteLevel with add_prefix_space", "", err);
    return cJSON_IsFalse(cuts) ? SW_OK : add(f, GPT2, err);
}

static sw_code add_digits(found *f, const cJSON *step, sw_err *err)
{
    return add(f, cJSON_IsTrue(sw_json_member(step, "individual_digits")) ? DIGIT : DIGIT "+", err);
}

static sw_code add_punctuation(found *f, const cJSON *step, sw_err *err)
{
    const char *how = text_of(step, "behavior");

    if (!strcmp(how, "Contiguous")) return add(f, PUNCTUATION "+", err);
    if (!*how || !strcmp(how, "Isolated")) return add(f, PUNCTUATION, err);
    return refuse("Punctuation that is ", how, err);
}

static sw_code add_steps(found *f, const cJSON *stage, sw_err *err)
{
    static const struct {
        const char *type;
        sw_code (*add)(found *f, const cJSON *step, sw_err *err);
    } kinds[] = {{"Split", add_split},
                 {"ByteLevel", add_bytes},
                 {"Digits", add_digits},
                 {"Punctuation", add_punctuation}};
    const char *type = text_of(stage, "type");
    const cJSON *step;
    sw_code rc = SW_OK;

    if (!strcmp(type, "Sequence")) {
        cJSON_ArrayForEach(step, sw_json_member(stage, "pretokenizers"))
            if ((rc = add_steps(f, step, err)) != SW_OK) return rc;
        return SW_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].type, type)) return kinds[i].add(f, stage, err);
    return refuse(*type ? "a pre-tokenizer of type " : "no pre-tokenizer", type, err);
}

#define ESCAPED_BACKSLASH 0x110000u

/* Read one character of an expression. Its spellings count as the same: \x{41}, \u0041 and A, \n
 * and a line break. */
static const char *next_char(uint32_t *c, const char *at)
{
    const bool is_braced = at[0] == '\\' && at[1] == 'x' && at[2] == '{';
    char digits[9] = "";
    size_t n;

    if (at[0] == '\\' && at[1] == '\\') {
        *c = ESCAPED_BACKSLASH;
        return at + 2;
    }
    if (is_braced || (at[0] == '\\' && at[1] == 'u')) {
        at += is_braced ? 3 : 2;
        n = strspn(at, "0123456789abcdefABCDEF");
        if (!is_braced && n > 4) n = 4;
        if (n > 8) n = 8;
        memcpy(digits, at, n);
        *c = (uint32_t)strtoul(digits, NULL, 16);
        return at + n + (is_braced && at[n] == '}');
    }
    if (at[0] == '\\' && (at[1] == 'n' || at[1] == 'r' || at[1] == 't')) {
        *c = at[1] == 'n' ? '\n' : at[1] == 'r' ? '\r' : '\t';
        return at + 2;
    }
    return at + sw_utf8_next(c, at, 0);
}

static bool same_split(const char *a, const char *b)
{
    while (*a && *b) {
        uint32_t x, y;

        a = next_char(&x, a);
        b = next_char(&y, b);
        if (x != y) return false;
    }
    return !*a && !*b;
}

static bool same_splits(const found *f, const sw_gguf_pre *pre)
{
    int n = 0;

    if (pre->flags & SW_GGUF_PRE_PIECES) return false;
    while (pre->splits[n] && n < f->n && same_split(pre->splits[n], f->splits[n])) n++;
    return n == f->n && !pre->splits[n];
}

/* Accept a file without a normalizer, or with NFC alone. */
static sw_code read_normalizer(bool *is_nfc, const cJSON *stage, sw_err *err)
{
    const char *type = text_of(stage, "type");
    const cJSON *step;
    sw_code rc;

    if (!cJSON_IsObject(stage)) return SW_OK;
    if (!strcmp(type, "Sequence")) {
        cJSON_ArrayForEach(step, sw_json_member(stage, "normalizers"))
            if ((rc = read_normalizer(is_nfc, step, err)) != SW_OK) return rc;
        return SW_OK;
    }
    if (strcmp(type, "NFC")) return refuse("a normalizer of type ", type, err);
    *is_nfc = true;
    return SW_OK;
}

sw_code sw_gguf_pre_match(const sw_gguf_pre **out, const cJSON *tokenizer, int cleans,
                          sw_err *err)
{
    const cJSON *model = sw_json_member(tokenizer, "model");
    const bool is_whole = cJSON_IsTrue(sw_json_member(model, "ignore_merges"));
    const sw_gguf_pre *best = NULL;
    bool is_nfc = false, cuts_so = false;
    found f = {.n = 0};
    sw_code rc;

    if ((rc = read_normalizer(&is_nfc, sw_json_member(tokenizer, "normalizer"), err)) != SW_OK ||
        (rc = add_steps(&f, sw_json_member(tokenizer, "pre_tokenizer"), err)) != SW_OK)
        return rc;
    if (!f.has_bytes) return refuse("a pre-tokenizer without ByteLevel", "", err);
    for (int i = 0; i < sw_gguf_n_pres; i++) {
        const sw_gguf_pre *pre = &sw_gguf_pres[i];

        if (!same_splits(&f, pre)) continue;
        cuts_so = true;
        if (is_nfc != !!(pre->flags & SW_GGUF_PRE_NFC) ||
            is_whole != !!(pre->flags & SW_GGUF_PRE_WHOLE))
            continue;
        if (!best || (cleans == !!(pre->flags & SW_GGUF_PRE_CLEAN) &&
                      cleans == !(best->flags & SW_GGUF_PRE_CLEAN)))
            best = pre;
    }
    *out = best;
    if (best) return SW_OK;
    if (!cuts_so) return refuse("a pre-tokenizer that cuts with ", f.n ? f.splits[0] : "nothing",
                                err);
    return refuse(is_whole ? "ignore_merges" : "no ignore_merges",
                  is_nfc ? " and NFC before this pre-tokenizer" : " with this pre-tokenizer", err);
}
