/* gguf_vocab_write.c - the tokenizer of a model directory as GGUF keys. See gguf_vocab.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dialect/gguf_vocab.h"

#define GROUP "tokenizer.ggml."
#define SPACE "\xe2\x96\x81" /* U+2581 */

typedef struct slot {
    const char *text; /* NULL: no token has this id */
    sw_gguf_token type;
    double score;
} slot;

typedef struct named {
    const char *text;
    int64_t id;
} named;

typedef struct vocab {
    const sw_gguf_vocab_source *from;
    const cJSON *model;
    slot *slots;     /* [from->n_tokens] */
    named *by_text;  /* [n_named], sorted */
    int64_t n_named;
    bool is_pieces;  /* sentencepiece */
    const sw_gguf_pre *pre;
    bool adds_prefix;
    sw_arena arena;
    sw_gguf_writer *w;
    sw_err *err;
} vocab;

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *member = sw_json_member(object, key);

    return cJSON_IsString(member) ? member->valuestring : "";
}

static bool is_true(const cJSON *object, const char *key)
{
    return cJSON_IsTrue(sw_json_member(object, key));
}

static sw_code refuse(const vocab *v, const char *what)
{
    return SW_FAIL(v->err, SW_E_UNSUPPORTED, "tokenizer.json: %s, which has no form as GGUF; write "
                   "without a tokenizer (--no-tokenizer)", what);
}

/* --- tokens ------------------------------------------------------------------------------- */

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const named *)a)->text, ((const named *)b)->text);
}

static int64_t id_of(const vocab *v, const char *text)
{
    const named key = {.text = text};
    const named *found = v->n_named ? bsearch(&key, v->by_text, (size_t)v->n_named, sizeof key,
                                              compare_named) : NULL;

    return found ? found->id : -1;
}

static sw_code place(vocab *v, const char *text, const cJSON *id, sw_gguf_token type)
{
    int64_t at = 0;
    sw_code rc = sw_json_as_int(&at, id, 0, v->from->n_tokens - 1, "id of a token", v->err);

    if (rc != SW_OK) {
        sw_err_prefix(v->err, "tokenizer.json: \"%.60s\"", text);
        return rc;
    }
    v->slots[at].text = text;
    v->slots[at].type = type;
    return SW_OK;
}

static sw_gguf_token type_of(const vocab *v, const char *text)
{
    if (!v->is_pieces) return SW_GGUF_TOKEN_NORMAL;
    if (strlen(text) == 6 && !strncmp(text, "<0x", 3) && text[5] == '>') return SW_GGUF_TOKEN_BYTE;
    return SW_GGUF_TOKEN_NORMAL;
}

static sw_code collect(vocab *v)
{
    const cJSON *tokens = sw_json_member(v->model, "vocab"), *item;
    int64_t n = 0;
    sw_code rc;

    if (!cJSON_IsObject(tokens))
        return SW_FAIL(v->err, SW_E_FORMAT, "tokenizer.json: model has no vocab");
    cJSON_ArrayForEach(item, tokens) n++;
    if ((rc = SW_ARENA_TAKE(&v->slots, &v->arena, v->from->n_tokens, v->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&v->by_text, &v->arena, n, v->err)) != SW_OK)
        return rc;
    cJSON_ArrayForEach(item, tokens)
    {
        if ((rc = place(v, item->string, item, type_of(v, item->string))) != SW_OK) return rc;
        v->by_text[v->n_named++] = (named){item->string, (int64_t)item->valuedouble};
    }
    if (n) qsort(v->by_text, (size_t)n, sizeof *v->by_text, compare_named);
    cJSON_ArrayForEach(item, sw_json_member(v->from->tokenizer, "added_tokens"))
    {
        const char *text = text_of(item, "content");
        bool is_unknown = v->is_pieces && !strcmp(text, text_of(v->model, "unk_token"));
        sw_gguf_token type = is_unknown              ? SW_GGUF_TOKEN_UNKNOWN
                             : is_true(item, "special") ? SW_GGUF_TOKEN_CONTROL
                                                        : SW_GGUF_TOKEN_USER;

        if (is_true(item, "lstrip") || is_true(item, "rstrip") || is_true(item, "single_word"))
            return refuse(v, "an added token takes blanks or whole words alone");
        if ((rc = place(v, text, sw_json_member(item, "id"), type)) != SW_OK) return rc;
    }
    return SW_OK;
}

/* --- rules -------------------------------------------------------------------------------- */

/* The part of a pre-tokenizer or normalizer with this type: itself, or a member of a sequence. */
static const cJSON *part_of(const cJSON *stage, const char *list, const char *type)
{
    const cJSON *item;

    if (!strcmp(text_of(stage, "type"), type)) return stage;
    cJSON_ArrayForEach(item, sw_json_member(stage, list))
        if (!strcmp(text_of(item, "type"), type)) return item;
    return NULL;
}

static sw_code find_pre(vocab *v)
{
    const cJSON *stage = sw_json_member(v->from->tokenizer, "pre_tokenizer");
    const cJSON *normalizer = sw_json_member(v->from->tokenizer, "normalizer");
    const cJSON *split = part_of(stage, "pretokenizers", "Split");
    const cJSON *bytes = part_of(stage, "pretokenizers", "ByteLevel");
    const char *regex = split ? text_of(sw_json_member(split, "pattern"), "Regex") : NULL;
    const bool is_nfc = normalizer && part_of(normalizer, "normalizers", "NFC") != NULL;

    if (!bytes) return refuse(v, "the pre-tokenizer is not ByteLevel");
    if (normalizer && !is_nfc) return refuse(v, "a normalizer other than NFC");
    if (cJSON_IsTrue(sw_json_member(bytes, "add_prefix_space")))
        return refuse(v, "ByteLevel with add_prefix_space");
    for (int i = 0; i < sw_gguf_n_pres && !v->pre; i++) {
        const sw_gguf_pre *pre = &sw_gguf_pres[i];

        if (pre->is_nfc == is_nfc && pre->ignore_merges == is_true(v->model, "ignore_merges") &&
            (pre->regex && regex ? !strcmp(pre->regex, regex) : !pre->regex && !regex))
            v->pre = pre;
    }
    return v->pre ? SW_OK : refuse(v, "a pre-tokenizer that loaders have no name for");
}

static sw_code check_pieces(vocab *v)
{
    const cJSON *normalizer = sw_json_member(v->from->tokenizer, "normalizer");
    const cJSON *stage = sw_json_member(v->from->tokenizer, "pre_tokenizer");
    const cJSON *replace = part_of(normalizer, "normalizers", "Replace");
    const cJSON *meta = part_of(stage, "pretokenizers", "Metaspace");

    if (!(replace && !strcmp(text_of(replace, "content"), SPACE)) && !meta)
        return refuse(v, "byte fallback without sentencepiece's blanks");
    v->adds_prefix = part_of(normalizer, "normalizers", "Prepend") ||
                     (meta && strcmp(text_of(meta, "prepend_scheme"), "never") &&
                      !cJSON_IsFalse(sw_json_member(meta, "add_prefix_space")));
    return SW_OK;
}

/* --- merges ------------------------------------------------------------------------------- */

/* One merge, "a b" or ["a", "b"], as its two sides. */
static bool sides_of(char *left, char *right, size_t room, const cJSON *merge)
{
    const char *a, *b;
    size_t n;

    if (cJSON_IsString(merge)) {
        if (!(b = strchr(merge->valuestring + (merge->valuestring[0] != '\0'), ' '))) return false;
        a = merge->valuestring;
        n = (size_t)(b++ - a);
    } else {
        const cJSON *first = cJSON_GetArrayItem(merge, 0), *second = first ? first->next : NULL;
        if (!cJSON_IsString(first) || !cJSON_IsString(second)) return false;
        a = first->valuestring;
        b = second->valuestring;
        n = strlen(a);
    }
    if (n >= room || strlen(b) >= room) return false;
    memcpy(left, a, n);
    left[n] = '\0';
    memcpy(right, b, strlen(b) + 1);
    return true;
}

#define SIDE_BYTES 1024

static sw_code put_merges(vocab *v)
{
    const cJSON *merges = sw_json_member(v->model, "merges"), *item;
    char left[SIDE_BYTES], right[SIDE_BYTES], both[2 * SIDE_BYTES];
    int64_t n = 0;
    sw_code rc;

    cJSON_ArrayForEach(item, merges) n++;
    rc = sw_gguf_put_array(v->w, GROUP "merges", SW_GGUF_TEXT, (uint64_t)n, v->err);
    cJSON_ArrayForEach(item, merges)
    {
        int bytes;

        if (rc != SW_OK) return rc;
        if (!sides_of(left, right, SIDE_BYTES, item) || strchr(left, ' ') || strchr(right, ' '))
            return refuse(v, "a merge of tokens with blanks");
        bytes = snprintf(both, sizeof both, "%s %s", left, right);
        rc = sw_gguf_put_elem_text(v->w, both, (size_t)bytes, v->err);
    }
    return rc;
}

/* Sentencepiece joins what gives the piece with the highest score: less its first merge's rank. */
static sw_code score_pieces(vocab *v)
{
    const cJSON *item;
    char left[SIDE_BYTES], right[SIDE_BYTES], both[2 * SIDE_BYTES];
    double rank = 0.0;

    for (int64_t i = 0; i < v->from->n_tokens; i++) v->slots[i].score = -1e6;
    cJSON_ArrayForEach(item, sw_json_member(v->model, "merges"))
    {
        int64_t id;

        if (!sides_of(left, right, SIDE_BYTES, item))
            return SW_FAIL(v->err, SW_E_FORMAT, "tokenizer.json: a merge is no pair of texts");
        (void)snprintf(both, sizeof both, "%s%s", left, right);
        rank -= 1.0;
        if ((id = id_of(v, both)) >= 0 && v->slots[id].score <= -1e6) v->slots[id].score = rank;
    }
    for (int64_t i = 0; i < v->from->n_tokens; i++)
        if (v->slots[i].type != SW_GGUF_TOKEN_NORMAL) v->slots[i].score = 0.0;
    return SW_OK;
}

/* --- writing ------------------------------------------------------------------------------ */

static sw_code put_tokens(vocab *v)
{
    const uint64_t n = (uint64_t)v->from->n_tokens;
    sw_code rc = sw_gguf_put_array(v->w, GROUP "tokens", SW_GGUF_TEXT, n, v->err);

    for (uint64_t i = 0; i < n && rc == SW_OK; i++) {
        char pad[32];
        const char *text = v->slots[i].text ? v->slots[i].text : pad;

        (void)snprintf(pad, sizeof pad, "[PAD%llu]", (unsigned long long)i);
        rc = sw_gguf_put_elem_text(v->w, text, strlen(text), v->err);
    }
    if (rc == SW_OK && v->is_pieces) {
        rc = sw_gguf_put_array(v->w, GROUP "scores", SW_GGUF_F32, n, v->err);
        for (uint64_t i = 0; i < n && rc == SW_OK; i++)
            rc = sw_gguf_put_elem_real(v->w, v->slots[i].score, v->err);
    }
    if (rc == SW_OK) rc = sw_gguf_put_array(v->w, GROUP "token_type", SW_GGUF_I32, n, v->err);
    for (uint64_t i = 0; i < n && rc == SW_OK; i++)
        rc = sw_gguf_put_elem_int(v->w, v->slots[i].text ? (int64_t)v->slots[i].type
                                                         : SW_GGUF_TOKEN_UNUSED, v->err);
    return rc;
}

/* "eos_token": "..." or {"content": "..."} of tokenizer_config.json; else the id given. */
static sw_code put_special(const vocab *v, const char *key, const char *name, int64_t id)
{
    const cJSON *token = sw_json_member(v->from->config, name);
    const char *text = cJSON_IsString(token) ? token->valuestring : text_of(token, "content");

    for (int64_t i = 0; i < v->from->n_tokens && id < 0 && *text; i++)
        if (v->slots[i].text && !strcmp(v->slots[i].text, text)) id = i;
    if (id < 0 || id >= v->from->n_tokens) return SW_OK;
    return sw_gguf_put_int(v->w, key, SW_GGUF_U32, id, v->err);
}

/* Which side of the text the template puts a token on. */
static sw_code put_template(const vocab *v)
{
    const cJSON *stage = sw_json_member(v->from->tokenizer, "post_processor");
    const cJSON *rule = stage ? part_of(stage, "processors", "TemplateProcessing") : NULL, *item;
    bool is_before = true, adds_bos = false, adds_eos = false;
    sw_code rc;

    cJSON_ArrayForEach(item, sw_json_member(rule, "single"))
    {
        if (sw_json_member(item, "Sequence")) is_before = false;
        else if (is_before) adds_bos = true;
        else adds_eos = true;
    }
    rc = sw_gguf_put_int(v->w, GROUP "add_bos_token", SW_GGUF_BOOL, adds_bos, v->err);
    if (rc == SW_OK)
        rc = sw_gguf_put_int(v->w, GROUP "add_eos_token", SW_GGUF_BOOL, adds_eos, v->err);
    return rc;
}

static sw_code put_rest(const vocab *v)
{
    const cJSON *chat = sw_json_member(v->from->config, "chat_template");
    const char *text = v->from->chat_template ? v->from->chat_template
                       : cJSON_IsString(chat) ? chat->valuestring : NULL;
    int64_t unk = v->is_pieces ? id_of(v, text_of(v->model, "unk_token")) : -1;
    sw_code rc;

    if ((rc = put_special(v, GROUP "bos_token_id", "bos_token", v->from->bos_id)) != SW_OK ||
        (rc = put_special(v, GROUP "eos_token_id", "eos_token", v->from->eos_id)) != SW_OK ||
        (rc = put_special(v, GROUP "unknown_token_id", "unk_token", unk)) != SW_OK ||
        (rc = put_special(v, GROUP "padding_token_id", "pad_token", -1)) != SW_OK ||
        (rc = put_template(v)) != SW_OK)
        return rc;
    if (v->is_pieces)
        rc = sw_gguf_put_int(v->w, GROUP "add_space_prefix", SW_GGUF_BOOL, v->adds_prefix, v->err);
    if (rc == SW_OK && text) rc = sw_gguf_put_text(v->w, "tokenizer.chat_template", text, v->err);
    return rc;
}

sw_code sw_gguf_vocab_write(sw_gguf_writer *w, const sw_gguf_vocab_source *source, sw_err *err)
{
    vocab v = {.from = source, .model = sw_json_member(source->tokenizer, "model"), .w = w,
               .err = err};
    sw_code rc;

    v.is_pieces = is_true(v.model, "byte_fallback");
    if ((rc = v.is_pieces ? check_pieces(&v) : find_pre(&v)) != SW_OK ||
        (rc = collect(&v)) != SW_OK || (v.is_pieces && (rc = score_pieces(&v)) != SW_OK) ||
        (rc = sw_gguf_put_text(w, GROUP "model", v.is_pieces ? "llama" : "gpt2", err)) != SW_OK ||
        (rc = sw_gguf_put_text(w, GROUP "pre", v.pre ? v.pre->name : "default", err)) != SW_OK ||
        (rc = put_tokens(&v)) != SW_OK || (!v.is_pieces && (rc = put_merges(&v)) != SW_OK))
        goto done;
    rc = put_rest(&v);
done:
    sw_arena_free(&v.arena);
    return rc;
}
