/* make_merges.c - vocab.json and merges.txt as tokenizer.json. See made.h.
 *
 * The two files do not say how a text is cut into words. The class of the tokenizer does, or the
 * model type of older models; for others nothing is guessed.
 */
#include <string.h>

#include "formats/text/files/made.h"

#define QWEN_REGEX                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"                    \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct word_rule {
    const char *name; /* a class or a model_type */
    const char *regex; /* NULL: GPT-2's expression, which ByteLevel has built in */
    bool is_nfc;
} word_rule;

static const word_rule classes[] = {
    {"Qwen2Tokenizer", QWEN_REGEX, true},
    {"CodeGenTokenizer", NULL, false},
};
/* Configs name GPT2Tokenizer for models that cut words otherwise, too (starcoder, granite, smollm),
 * so that the class alone does not tell the rule; these types do. */
static const word_rule types[] = {
    {"gpt2", NULL, false},      {"gpt_neo", NULL, false},    {"gptj", NULL, false},
    {"opt", NULL, false},       {"codegen", NULL, false},    {"phi", NULL, false},
    {"qwen2", QWEN_REGEX, true}, {"qwen2_moe", QWEN_REGEX, true}, {"qwen3", QWEN_REGEX, true},
    {"qwen3_moe", QWEN_REGEX, true},
};

static const word_rule *find_rule(const sw_token_config *c)
{
    static const word_rule gpt2 = {"GPT2Tokenizer", NULL, false};
    const bool is_gpt2 = !strcmp(c->class_name, gpt2.name);

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(c->class_name, classes[i].name)) return &classes[i];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((is_gpt2 || !c->class_name[0]) && !strcmp(c->model_type, types[i].name))
            return &types[i];
    return is_gpt2 && !c->model_type[0] ? &gpt2 : NULL;
}

static sw_code put_words(sw_made *m, const word_rule *rule)
{
    sw_code rc = sw_made_put(m, rule->is_nfc ? "\"normalizer\":{\"type\":\"NFC\"},\n"
                                             : "\"normalizer\":null,\n");

    if (rc != SW_OK) return rc;
    if (!rule->regex)
        return sw_print_fmt(&m->buf, m->err, "\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                            "\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":true},\n",
                            m->config->adds_prefix_space ? "true" : "false");
    if ((rc = sw_made_put(m, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                             "{\"type\":\"Split\",\"pattern\":{\"Regex\":")) != SW_OK ||
        (rc = sw_print_quote(&m->buf, rule->regex, m->err)) != SW_OK)
        return rc;
    return sw_made_put(m, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                          "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}"
                          "]},\n");
}

/* Read a merge from each line, two tokens with a blank between; "#version" and empty lines are
 * skipped. */
static sw_code put_merges(sw_made *m, const char *text, size_t n_bytes)
{
    const char *end = text + n_bytes;
    int64_t n_line = 0;
    bool is_first = true;
    sw_code rc = sw_made_put(m, "\"merges\":[");

    while (text < end && rc == SW_OK) {
        const char *stop = memchr(text, '\n', (size_t)(end - text)), *blank;
        const char *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > text && stop[-1] == '\r') stop--;
        blank = memchr(text, ' ', (size_t)(stop - text));
        n_line++;
        if (stop == text || ((size_t)(stop - text) >= 8 && !memcmp(text, "#version", 8))) {
            text = next;
            continue;
        }
        if (!blank || blank == text || blank + 1 == stop ||
            memchr(blank + 1, ' ', (size_t)(stop - blank - 1)))
            return SW_FAIL(m->err, SW_E_FORMAT, "merges.txt: line %lld is not two tokens with one "
                           "blank between", (long long)n_line);
        if ((rc = sw_made_put(m, is_first ? "[" : ",\n[")) != SW_OK ||
            (rc = sw_print_quote_n(&m->buf, text, (size_t)(blank - text), m->err)) != SW_OK ||
            (rc = sw_made_put(m, ",")) != SW_OK ||
            (rc = sw_print_quote_n(&m->buf, blank + 1, (size_t)(stop - blank - 1), m->err)) !=
                SW_OK)
            return rc;
        rc = sw_made_put(m, "]");
        is_first = false;
        text = next;
    }
    return rc == SW_OK ? sw_made_put(m, "]") : rc;
}

static sw_code add_vocab(sw_made *m, const cJSON *vocab)
{
    static const sw_added_entry end_of_text = {.text = "<|endoftext|>", .id = -1, .special = true};
    const cJSON *entry;
    sw_code rc = sw_made_reserve(m, cJSON_GetArraySize(vocab), 1);

    cJSON_ArrayForEach(entry, vocab)
    {
        int64_t id = 0;
        if (rc == SW_OK)
            rc = sw_json_as_int(&id, entry, 0, INT32_MAX, "vocab.json: id", m->err);
        if (rc == SW_OK)
            rc = sw_made_piece(m, entry->string, strlen(entry->string), id, 0, false);
    }
    if (rc == SW_OK) rc = sw_made_token(m, &end_of_text); /* the default of these classes */
    return rc == SW_OK ? sw_made_seal(m) : rc;
}

sw_code sw_make_from_merges(char **json, size_t *n_bytes, const cJSON *vocab, const char *merges,
                            size_t merges_bytes, const sw_token_config *c, sw_err *err)
{
    const word_rule *rule = find_rule(c);
    sw_made m = {.config = c, .err = err};
    size_t bad_at = 0;
    sw_code rc = SW_OK;

    if (!cJSON_IsObject(vocab)) return SW_FAIL(err, SW_E_FORMAT, "vocab.json: not an object");
    if (!sw_utf8_is_valid(merges, merges_bytes, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "merges.txt: not UTF-8 at byte %zu", bad_at);
    if (memchr(merges, 0, merges_bytes))
        return SW_FAIL(err, SW_E_FORMAT, "merges.txt: a NUL at byte %zu",
                       (size_t)((const char *)memchr(merges, 0, merges_bytes) - merges));
    if (!rule)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "vocab.json and merges.txt do not say how text is "
                       "cut into words, and for tokenizer_class \"%.40s\" with model_type "
                       "\"%.40s\" it is not known; put a tokenizer.json beside them, as "
                       "AutoTokenizer.save_pretrained of transformers writes it",
                       c->class_name, c->model_type);
    if ((rc = add_vocab(&m, vocab)) == SW_OK && (rc = sw_made_put_head(&m)) == SW_OK &&
        (rc = put_words(&m, rule)) == SW_OK &&
        (rc = sw_made_put_template(
             &m, c->adds_bos == 1 ? c->bos : NULL, c->adds_eos == 1 ? c->eos : NULL,
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,"
             "\"use_regex\":true}")) == SW_OK &&
        (rc = sw_made_put(&m, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                              "\"trim_offsets\":true,\"use_regex\":true},\n\"model\":{\"type\":"
                              "\"BPE\",\"dropout\":null,\"unk_token\":null,"
                              "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\","
                              "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
                              "\n")) == SW_OK &&
        (rc = sw_made_put_vocab(&m)) == SW_OK && (rc = sw_made_put(&m, ",\n")) == SW_OK &&
        (rc = put_merges(&m, merges, merges_bytes)) == SW_OK &&
        (rc = sw_made_put(&m, "}}\n")) == SW_OK)
        rc = sw_made_take(json, n_bytes, &m);
    sw_made_free(&m);
    return rc;
}
