/* make_tekken.c - Mistral's tekken.json as tokenizer.json. See made.h.
 *
 * "vocab" lists byte strings by rank, "config" the expression that cuts words and how many ids
 * come first for special tokens. A word that is a token is one; else the adjacent pair whose
 * bytes have the lowest rank merges first, as tiktoken does it.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/base64.h"
#include "formats/text/bpe.h"
#include "formats/text/files/made.h"

/* Files of version 7 and before have these special tokens without listing them. */
static const char *const old_specials[] = {
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]"};
#define N_OLD ((int64_t)(sizeof old_specials / sizeof *old_specials))

typedef struct tekken {
    sw_made made;
    const char *pattern;
    int64_t n_ids, n_special;
} tekken;

static sw_code read_config(tekken *t, const cJSON *json)
{
    const cJSON *config = sw_json_member(json, "config");
    sw_err *err = t->made.err;
    sw_code rc;

    if (!cJSON_IsObject(config) || !cJSON_IsArray(sw_json_member(json, "vocab")))
        return SW_FAIL(err, SW_E_FORMAT, "no \"config\" and \"vocab\"");
    t->n_ids = t->n_special = -1;
    if ((rc = sw_json_text(&t->pattern, config, "pattern", err)) != SW_OK ||
        (rc = sw_json_int(&t->n_ids, config, "default_vocab_size", 1, SW_PIECES_MAX, err)) !=
            SW_OK ||
        (rc = sw_json_int(&t->n_special, config, "default_num_special_tokens", 0, SW_PIECES_MAX,
                          err)) != SW_OK)
        return rc;
    if (!t->pattern || t->n_ids < 0 || t->n_special < 0 || t->n_special > t->n_ids ||
        t->n_ids - t->n_special > cJSON_GetArraySize(sw_json_member(json, "vocab")))
        return SW_FAIL(err, SW_E_FORMAT, "\"config\" lacks pattern, default_vocab_size or "
                       "default_num_special_tokens, or \"vocab\" is shorter than they say");
    return SW_OK;
}

static sw_code add_special(tekken *t, const char *text, int64_t id, bool is_control)
{
    const sw_added_entry token = {.text = text, .id = id, .special = is_control};
    sw_code rc = sw_made_piece(&t->made, text, strlen(text), id, 0, false);

    return rc == SW_OK ? sw_made_token(&t->made, &token) : rc;
}

/* Add the special tokens that the file lists, or the old ones; an id without a name is
 * "<SPECIAL_7>". */
static sw_code add_specials(tekken *t, const cJSON *list)
{
    const int64_t n_listed = list ? cJSON_GetArraySize(list) : N_OLD;
    sw_err *err = t->made.err;
    int64_t id = 0;
    sw_code rc = SW_OK;

    if (n_listed > t->n_special)
        return SW_FAIL(err, SW_E_FORMAT, "%lld special tokens, and ids for %lld",
                       (long long)n_listed, (long long)t->n_special);
    for (const cJSON *e = list ? list->child : NULL; e && rc == SW_OK; e = e->next, id++) {
        const char *text = NULL;
        bool is_control = true;
        int64_t rank = -1;
        if ((rc = sw_json_text(&text, e, "token_str", err)) != SW_OK ||
            (rc = sw_json_int(&rank, e, "rank", 0, SW_PIECES_MAX, err)) != SW_OK ||
            (rc = sw_json_bool(&is_control, e, "is_control", err)) != SW_OK)
            return rc;
        if (!text || rank != id)
            return SW_FAIL(err, SW_E_FORMAT, "special_tokens[%lld] has no token_str or another "
                           "rank", (long long)id);
        rc = add_special(t, text, id, is_control);
    }
    for (; !list && id < N_OLD && rc == SW_OK; id++)
        rc = add_special(t, old_specials[id], id, true);
    for (; id < t->n_special && rc == SW_OK; id++) {
        char *name = NULL;
        rc = sw_arena_print(&name, &t->made.arena, err, "<SPECIAL_%lld>", (long long)id);
        if (rc == SW_OK) rc = add_special(t, name, id, true);
    }
    return rc;
}

/* Write the bytes of a token in the alphabet of ByteLevel. */
static sw_code add_token(tekken *t, const cJSON *entry, int64_t rank, sw_text_buf *letters)
{
    unsigned char bytes[SW_PIECE_MAX_BYTES];
    const char *base64 = NULL;
    sw_err *err = t->made.err;
    size_t n_bytes = 0;
    int64_t said = -1;
    char *kept = NULL;
    sw_code rc;

    if ((rc = sw_json_text(&base64, entry, "token_bytes", err)) != SW_OK ||
        (rc = sw_json_int(&said, entry, "rank", 0, SW_PIECES_MAX, err)) != SW_OK)
        return rc;
    if (!base64 || said != rank || SW_BASE64_BYTES(strlen(base64)) > sizeof bytes)
        return SW_FAIL(err, SW_E_FORMAT, "no token_bytes, another rank, or more than %zu bytes",
                       sizeof bytes);
    letters->n_bytes = 0;
    if ((rc = sw_base64_decode(bytes, &n_bytes, base64, strlen(base64), err)) != SW_OK ||
        (rc = sw_bytes_to_chars(letters, (const char *)bytes, n_bytes, err)) != SW_OK ||
        (rc = sw_arena_text(&kept, &t->made.arena, letters->bytes, letters->n_bytes, err)) !=
            SW_OK)
        return rc;
    return sw_made_piece(&t->made, kept, letters->n_bytes, t->n_special + rank, (double)rank, true);
}

static sw_code add_all(tekken *t, const cJSON *json)
{
    const int64_t n = t->n_ids - t->n_special;
    sw_text_buf letters = {0};
    int64_t rank = 0;
    sw_code rc = sw_made_reserve(&t->made, t->n_ids, t->n_special);

    if (rc == SW_OK) rc = add_specials(t, sw_json_member(json, "special_tokens"));
    for (const cJSON *e = sw_json_member(json, "vocab")->child; rank < n && rc == SW_OK;
         e = e->next, rank++)
        if ((rc = add_token(t, e, rank, &letters)) != SW_OK)
            sw_err_prefix(t->made.err, "vocab[%lld]", (long long)rank);
    sw_text_buf_free(&letters);
    return rc == SW_OK ? sw_made_seal(&t->made) : rc;
}

static sw_code check_bytes(const tekken *t)
{
    for (int b = 0; b < 256; b++) {
        char text[4];
        size_t n = sw_utf8_put(text, sw_byte_to_char((unsigned char)b));
        if (!sw_made_find(&t->made, text, n))
            return SW_FAIL(t->made.err, SW_E_FORMAT, "\"vocab\" lacks the byte 0x%02X", b);
    }
    return SW_OK;
}

static sw_code put_rules(tekken *t)
{
    sw_made *m = &t->made;
    sw_code rc = sw_made_put(m, "\"normalizer\":null,\n\"pre_tokenizer\":{\"type\":\"Sequence\","
                                "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":");

    if (rc == SW_OK) rc = sw_print_quote(&m->buf, t->pattern, m->err);
    if (rc == SW_OK)
        rc = sw_made_put(m, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                            "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
                            "]},\n");
    if (rc == SW_OK)
        rc = sw_made_put_template(m, m->config->adds_bos ? "<s>" : NULL,
                                  m->config->adds_eos == 1 ? "</s>" : NULL, "null");
    if (rc != SW_OK) return rc;
    return sw_made_put(m, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                          "\"trim_offsets\":true,\"use_regex\":true},\n\"model\":{\"type\":\"BPE\","
                          "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                          "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
                          "\"ignore_merges\":true,\n");
}

sw_code sw_make_from_tekken(char **json, size_t *n_bytes, const cJSON *file,
                            const sw_token_config *config, sw_err *err)
{
    tekken t = {.made = {.config = config, .err = err}};
    sw_code rc;

    if ((rc = read_config(&t, file)) == SW_OK && (rc = add_all(&t, file)) == SW_OK &&
        (rc = check_bytes(&t)) == SW_OK && (rc = sw_made_put_head(&t.made)) == SW_OK &&
        (rc = put_rules(&t)) == SW_OK && (rc = sw_made_put_vocab(&t.made)) == SW_OK &&
        (rc = sw_made_put(&t.made, ",\n")) == SW_OK &&
        (rc = sw_made_put_merges(&t.made)) == SW_OK && (rc = sw_made_put(&t.made, "}}\n")) == SW_OK)
        rc = sw_made_take(json, n_bytes, &t.made);
    sw_made_free(&t.made);
    return rc;
}
