/* decoder.c - the "decoder" of tokenizer.json: texts of tokens back to text. */
#include <string.h>

#include "formats/base/json.h"
#include "formats/text/bpe.h"
#include "formats/text/tokenizer_parts.h"

#define REPLACEMENT_CHAR "\xEF\xBF\xBD" /* U+FFFD */

typedef struct text_span {
    const char *text;
    size_t n_bytes;
} text_span;

static text_span list_at(const sw_text_list *list, size_t i)
{
    size_t begin = i ? list->ends[i - 1] : 0;
    text_span span = {list->text.bytes ? list->text.bytes + begin : "", list->ends[i] - begin};

    return span;
}

/* End the text that was appended since the last one ended. */
static sw_code close_text(sw_text_list *list, sw_err *err)
{
    void *ends = list->ends;
    sw_code rc = sw_text_grow(&ends, &list->capacity, list->n + 1, sizeof *list->ends, err);

    list->ends = ends;
    if (rc != SW_OK) return rc;
    list->ends[list->n++] = list->text.n_bytes;
    return SW_OK;
}

sw_code sw_text_list_add(sw_text_list *list, const char *text, size_t n_bytes, sw_err *err)
{
    sw_code rc = sw_text_buf_add(&list->text, text, n_bytes, err);

    return rc == SW_OK ? close_text(list, err) : rc;
}

void sw_text_list_free(sw_text_list *list)
{
    sw_text_buf_free(&list->text);
    sw_mem_put(list->ends);
    memset(list, 0, sizeof *list);
}

/* Return how many ill-formed bytes one U+FFFD stands for: the longest beginning of a well-formed
 * sequence, and one at least (Unicode 15, section 3.9, "maximal subparts"). */
static size_t broken_bytes(const char *text, size_t n_bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    size_t need = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4, n = 1;

    if (p[0] < 0xC2 || p[0] > 0xF4) return 1;
    while (n < need && n < n_bytes && p[n] >= low && p[n] <= high) {
        n++;
        low = 0x80;
        high = 0xBF;
    }
    return n;
}

static sw_code add_lossy(sw_text_buf *out, const char *text, size_t n_bytes, sw_err *err)
{
    size_t at = 0, bad_at = 0;
    sw_code rc;

    while (at < n_bytes) {
        bool is_valid = sw_utf8_is_valid(text + at, n_bytes - at, &bad_at);
        size_t good = is_valid ? n_bytes - at : bad_at;
        if ((rc = sw_text_buf_add(out, text + at, good, err)) != SW_OK) return rc;
        at += good;
        if (is_valid) break;
        if ((rc = sw_text_buf_add(out, REPLACEMENT_CHAR, 3, err)) != SW_OK) return rc;
        at += broken_bytes(text + at, n_bytes - at);
    }
    return SW_OK;
}

/* A token that has a character outside of the alphabet is taken as it is. */
static sw_code add_token_bytes(sw_text_buf *bytes, const char *text, size_t n_bytes, sw_err *err)
{
    size_t n_before = bytes->n_bytes;
    sw_code rc = SW_OK;

    for (size_t at = 0; at < n_bytes && rc == SW_OK;) {
        uint32_t c;
        int byte;
        char one;
        at = sw_utf8_next(&c, text, at);
        if ((byte = sw_char_to_byte(c)) < 0) {
            bytes->n_bytes = n_before;
            return sw_text_buf_add(bytes, text, n_bytes, err);
        }
        one = (char)byte;
        rc = sw_text_buf_add(bytes, &one, 1, err);
    }
    return rc;
}

static sw_code run_byte_level(const sw_decode_step *step, sw_text_list *out,
                              const sw_text_list *in, sw_err *err)
{
    sw_text_buf bytes = {0};
    sw_code rc = SW_OK;

    (void)step;
    for (size_t i = 0; i < in->n && rc == SW_OK; i++) {
        text_span token = list_at(in, i);
        rc = add_token_bytes(&bytes, token.text, token.n_bytes, err);
    }
    if (rc == SW_OK) rc = add_lossy(&out->text, bytes.bytes, bytes.n_bytes, err);
    if (rc == SW_OK) rc = close_text(out, err);
    sw_text_buf_free(&bytes);
    return rc;
}

static sw_code run_replace(const sw_decode_step *step, sw_text_list *out, const sw_text_list *in,
                           sw_err *err)
{
    sw_pattern_clock clock = {0};
    sw_code rc = SW_OK;

    sw_pattern_clock_start(&clock, in->text.n_bytes);
    for (size_t i = 0; i < in->n && rc == SW_OK; i++) {
        text_span token = list_at(in, i);
        rc = sw_pattern_replace(&out->text, &step->pattern, &clock, token.text, token.n_bytes,
                                step->content, strlen(step->content), err);
        if (rc == SW_OK) rc = close_text(out, err);
    }
    return rc;
}

/* Return the byte that "<0xHH>" stands for, or -1. */
static int byte_of(const char *text, size_t n_bytes)
{
    int value = 0;

    if (n_bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* A run of byte tokens is one text if it is valid UTF-8; otherwise each byte becomes U+FFFD. */
static sw_code flush_bytes(sw_text_list *out, sw_text_buf *bytes, sw_err *err)
{
    size_t bad_at = 0;
    sw_code rc = SW_OK;

    if (!bytes->n_bytes) return SW_OK;
    if (sw_utf8_is_valid(bytes->bytes, bytes->n_bytes, &bad_at))
        rc = sw_text_list_add(out, bytes->bytes, bytes->n_bytes, err);
    else
        for (size_t i = 0; i < bytes->n_bytes && rc == SW_OK; i++)
            rc = sw_text_list_add(out, REPLACEMENT_CHAR, 3, err);
    bytes->n_bytes = 0;
    return rc;
}

static sw_code run_byte_fallback(const sw_decode_step *step, sw_text_list *out,
                                 const sw_text_list *in, sw_err *err)
{
    sw_text_buf bytes = {0};
    sw_code rc = SW_OK;

    (void)step;
    for (size_t i = 0; i < in->n && rc == SW_OK; i++) {
        text_span token = list_at(in, i);
        int byte = byte_of(token.text, token.n_bytes);
        if (byte >= 0) {
            char one = (char)byte;
            rc = sw_text_buf_add(&bytes, &one, 1, err);
            continue;
        }
        if ((rc = flush_bytes(out, &bytes, err)) == SW_OK)
            rc = sw_text_list_add(out, token.text, token.n_bytes, err);
    }
    if (rc == SW_OK) rc = flush_bytes(out, &bytes, err);
    sw_text_buf_free(&bytes);
    return rc;
}

static sw_code run_fuse(const sw_decode_step *step, sw_text_list *out, const sw_text_list *in,
                        sw_err *err)
{
    (void)step;
    return sw_text_list_add(out, in->text.bytes, in->text.n_bytes, err);
}

static sw_code run_strip(const sw_decode_step *step, sw_text_list *out, const sw_text_list *in,
                         sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t i = 0; i < in->n && rc == SW_OK; i++) {
        text_span token = list_at(in, i);
        size_t begin = 0, end = token.n_bytes;
        uint32_t c;
        for (int64_t k = 0; k < step->n_start && begin < end; k++) {
            size_t next = sw_utf8_next(&c, token.text, begin);
            if (c != step->cut_char) break;
            begin = next;
        }
        for (int64_t k = 0; k < step->n_stop && end > begin; k++) {
            size_t at = sw_utf8_back(token.text, end);
            (void)sw_utf8_next(&c, token.text, at);
            if (c != step->cut_char) break;
            end = at;
        }
        rc = sw_text_list_add(out, token.text + begin, end - begin, err);
    }
    return rc;
}

static sw_code run_metaspace(const sw_decode_step *step, sw_text_list *out,
                             const sw_text_list *in, sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t i = 0; i < in->n && rc == SW_OK; i++) {
        text_span token = list_at(in, i);
        for (size_t at = 0; at < token.n_bytes && rc == SW_OK;) {
            uint32_t c;
            at = sw_utf8_next(&c, token.text, at);
            if (c != step->cut_char) rc = sw_text_buf_add_char(&out->text, c, err);
            else if (i || !step->drop_first) rc = sw_text_buf_add(&out->text, " ", 1, err);
        }
        if (rc == SW_OK) rc = close_text(out, err);
    }
    return rc;
}

static sw_code parse_replace(sw_decode_step *step, const cJSON *json, sw_arena *arena, sw_err *err)
{
    const char *content = NULL;
    char *copy = NULL;
    sw_code rc = sw_json_text(&content, json, "content", err);

    if (rc != SW_OK) return rc;
    if (!content) return SW_FAIL(err, SW_E_FORMAT, "no \"content\"");
    if ((rc = sw_arena_text(&copy, arena, content, strlen(content), err)) != SW_OK) return rc;
    step->content = copy;
    return sw_pattern_parse(&step->pattern, sw_json_member(json, "pattern"), arena, err);
}

static sw_code parse_char(uint32_t *out, const cJSON *json, const char *key, sw_err *err)
{
    const char *text = NULL;
    sw_code rc = sw_json_text(&text, json, key, err);

    if (rc != SW_OK || !text) return rc;
    if (!text[0] || text[sw_utf8_next(out, text, 0)])
        return SW_FAIL(err, SW_E_FORMAT, "\"%s\" is not one character", key);
    return SW_OK;
}

static sw_code parse_strip(sw_decode_step *step, const cJSON *json, sw_arena *arena, sw_err *err)
{
    sw_code rc;

    (void)arena;
    if ((rc = parse_char(&step->cut_char, json, "content", err)) != SW_OK) return rc;
    if (!step->cut_char) return SW_FAIL(err, SW_E_FORMAT, "no \"content\"");
    if ((rc = sw_json_int(&step->n_start, json, "start", 0, INT32_MAX, err)) != SW_OK) return rc;
    return sw_json_int(&step->n_stop, json, "stop", 0, INT32_MAX, err);
}

static sw_code parse_metaspace(sw_decode_step *step, const cJSON *json, sw_arena *arena,
                               sw_err *err)
{
    const char *scheme = NULL;
    bool add_prefix_space = true;
    sw_code rc;

    (void)arena;
    step->cut_char = 0x2581;
    if ((rc = parse_char(&step->cut_char, json, "replacement", err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&add_prefix_space, json, "add_prefix_space", err)) != SW_OK) return rc;
    if ((rc = sw_json_text(&scheme, json, "prepend_scheme", err)) != SW_OK) return rc;
    step->drop_first = scheme ? strcmp(scheme, "never") != 0 : add_prefix_space;
    return SW_OK;
}

static const struct {
    const char *type;
    sw_code (*parse)(sw_decode_step *step, const cJSON *json, sw_arena *arena, sw_err *err);
    sw_code (*run)(const sw_decode_step *step, sw_text_list *out, const sw_text_list *in,
                   sw_err *err);
} kinds[] = {
    {"ByteLevel", NULL, run_byte_level},       {"Replace", parse_replace, run_replace},
    {"ByteFallback", NULL, run_byte_fallback}, {"Fuse", NULL, run_fuse},
    {"Strip", parse_strip, run_strip},         {"Metaspace", parse_metaspace, run_metaspace},
};

static sw_code parse_step(void *self, const cJSON *json, const char *type, sw_arena *arena,
                          sw_err *err)
{
    sw_decoder *out = self;
    sw_decode_step *step = &out->steps[out->n_steps];

    if (out->n_steps == SW_STEPS_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "decoder of more than %d steps", SW_STEPS_MAX);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        sw_code rc = SW_OK;
        if (strcmp(kinds[i].type, type) != 0) continue;
        out->n_steps++;
        step->run = kinds[i].run;
        step->type = kinds[i].type;
        if (kinds[i].parse) rc = kinds[i].parse(step, json, arena, err);
        if (rc != SW_OK) sw_err_prefix(err, "decoder %s", type);
        return rc;
    }
    return sw_part_unsupported("decoder", type, err);
}

sw_code sw_decoder_parse(sw_decoder *out, const cJSON *json, sw_arena *arena, sw_err *err)
{
    return sw_part_each(json, "decoder", "decoders", parse_step, out, arena, err);
}

sw_code sw_decoder_run(const sw_decoder *decoder, sw_text_buf *out, sw_text_list *tokens,
                       sw_err *err)
{
    sw_text_list next = {0};
    sw_growth growth;
    sw_code rc = SW_OK;

    sw_growth_start(&growth, tokens->text.n_bytes);
    for (int i = 0; i < decoder->n_steps && rc == SW_OK; i++) {
        sw_text_list swap = *tokens;
        next.n = 0;
        sw_growth_open(&growth, &next.text, 0);
        rc = decoder->steps[i].run(&decoder->steps[i], &next, tokens, err);
        if (rc != SW_OK)
            sw_err_prefix(err, "decoder step %d (%s)", i + 1, decoder->steps[i].type);
        *tokens = next;
        next = swap;
    }
    for (size_t i = 0; i < tokens->n && rc == SW_OK; i++) {
        text_span token = list_at(tokens, i);
        if (i && !decoder->n_steps) rc = sw_text_buf_add(out, " ", 1, err);
        if (rc == SW_OK) rc = sw_text_buf_add(out, token.text, token.n_bytes, err);
    }
    sw_text_list_free(&next);
    return rc;
}

void sw_decoder_free(sw_decoder *decoder)
{
    for (int i = 0; i < decoder->n_steps; i++) sw_pattern_free(&decoder->steps[i].pattern);
    memset(decoder, 0, sizeof *decoder);
}
