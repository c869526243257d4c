/* gguf_vocab_write.c - the tokenizer of a model directory as GGUF keys. See gguf_vocab.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf_pre.h"
#include "formats/gguf/gguf_vocab.h"

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
    bool is_pieces;  /* sentencepiece BPE */
    bool is_unigram;
    const sw_gguf_pre *pre; /* of byte-level BPE */
    bool adds_prefix, merges_blanks;
    const char *charsmap; /* base64, or NULL */
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
    if (!v->is_pieces && !v->is_unigram) return SW_GGUF_TOKEN_NORMAL;
    if (strlen(text) == 6 && !strncmp(text, "<0x", 3) && text[5] == '>') return SW_GGUF_TOKEN_BYTE;
    return SW_GGUF_TOKEN_NORMAL;
}

/* Collect the tokens of {"text": id}. */
static sw_code collect_map(vocab *v, const cJSON *tokens)
{
    const cJSON *item;
    sw_code rc;

    cJSON_ArrayForEach(item, tokens)
    {
        if ((rc = place(v, item->string, item, type_of(v, item->string))) != SW_OK) return rc;
        v->by_text[v->n_named++] = (named){item->string, (int64_t)item->valuedouble};
    }
    return SW_OK;
}

/* Collect the tokens of [["text", score]], where the place in the list is the id. */
static sw_code collect_list(vocab *v, const cJSON *tokens)
{
    const cJSON *item, *unk = sw_json_member(v->model, "unk_id");
    int64_t id = 0;

    cJSON_ArrayForEach(item, tokens)
    {
        const cJSON *text = cJSON_GetArrayItem(item, 0), *score = text ? text->next : NULL;

        if (!cJSON_IsString(text) || !cJSON_IsNumber(score))
            return SW_FAIL(v->err, SW_E_FORMAT, "tokenizer.json: token %lld of model.vocab is no "
                           "text with a score", (long long)id);
        if (id >= v->from->n_tokens)
            return SW_FAIL(v->err, SW_E_FORMAT, "tokenizer.json: more tokens than the embedding "
                           "has rows (%lld)", (long long)v->from->n_tokens);
        v->slots[id] = (slot){text->valuestring, type_of(v, text->valuestring), score->valuedouble};
        if (cJSON_IsNumber(unk) && unk->valuedouble == (double)id)
            v->slots[id].type = SW_GGUF_TOKEN_UNKNOWN;
        v->by_text[v->n_named++] = (named){text->valuestring, id++};
    }
    return SW_OK;
}

/* Replace U+2581 by plain blanks: loaders look for added tokens before they replace blanks. */
static sw_code with_blanks(const char **out, vocab *v, const char *text)
{
    char *copy = NULL;
    size_t n = 0;
    sw_code rc = sw_arena_text(&copy, &v->arena, text, strlen(text), v->err);

    if (rc != SW_OK) return rc;
    for (const char *at = text; *at;) {
        const bool is_space = !strncmp(at, SPACE, 3);

        copy[n++] = is_space ? ' ' : *at;
        at += is_space ? 3 : 1;
    }
    copy[n] = '\0';
    *out = copy;
    return SW_OK;
}

static sw_code place_added(vocab *v, const cJSON *item)
{
    const char *text = text_of(item, "content");
    const int64_t known = id_of(v, text);
    const bool is_unknown = (v->is_pieces && !strcmp(text, text_of(v->model, "unk_token"))) ||
                            (known >= 0 && v->slots[known].type == SW_GGUF_TOKEN_UNKNOWN);
    const sw_gguf_token type = is_unknown                 ? SW_GGUF_TOKEN_UNKNOWN
                               : is_true(item, "special") ? SW_GGUF_TOKEN_CONTROL
                                                          : SW_GGUF_TOKEN_USER;
    sw_code rc;

    if (is_true(item, "lstrip") || is_true(item, "rstrip") || is_true(item, "single_word"))
        return refuse(v, "an added token takes blanks or whole words alone");
    if (v->is_pieces && is_true(item, "normalized") && type == SW_GGUF_TOKEN_USER &&
        (rc = with_blanks(&text, v, text)) != SW_OK)
        return rc;
    if (known < 0) return place(v, text, sw_json_member(item, "id"), type);
    v->slots[known].text = text; /* every reader prefers the id that the vocabulary has */
    v->slots[known].type = type;
    return SW_OK;
}

static sw_code collect(vocab *v)
{
    const cJSON *tokens = sw_json_member(v->model, "vocab"), *item;
    int64_t n = 0;
    sw_code rc;

    if (v->is_unigram ? !cJSON_IsArray(tokens) : !cJSON_IsObject(tokens))
        return SW_FAIL(v->err, SW_E_FORMAT, "tokenizer.json: model has no vocab");
    cJSON_ArrayForEach(item, tokens) n++;
    if ((rc = SW_ARENA_TAKE(&v->slots, &v->arena, v->from->n_tokens, v->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&v->by_text, &v->arena, n, v->err)) != SW_OK ||
        (rc = v->is_unigram ? collect_list(v, tokens) : collect_map(v, tokens)) != SW_OK)
        return rc;
    if (v->n_named) qsort(v->by_text, (size_t)v->n_named, sizeof *v->by_text, compare_named);
    cJSON_ArrayForEach(item, sw_json_member(v->from->tokenizer, "added_tokens"))
        if ((rc = place_added(v, item)) != SW_OK) return rc;
    return SW_OK;
}

/* --- rules -------------------------------------------------------------------------------- */

/* Find the part of a pre-tokenizer or normalizer that has this type: the whole, or one of a
 * sequence. */
static const cJSON *part_of(const cJSON *stage, const char *list, const char *type)
{
    const cJSON *item;

    if (!strcmp(text_of(stage, "type"), type)) return stage;
    cJSON_ArrayForEach(item, sw_json_member(stage, list))
        if (!strcmp(text_of(item, "type"), type)) return item;
    return NULL;
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

/* Check one step of the normalizer of a unigram tokenizer. A step that merges blanks also removes
 * those at the end. */
static sw_code check_step(vocab *v, const cJSON *step, bool *strips, bool *replaces)
{
    const char *type = text_of(step, "type");
    const cJSON *item;
    sw_code rc;

    if (!strcmp(type, "Sequence")) {
        cJSON_ArrayForEach(item, sw_json_member(step, "normalizers"))
            if ((rc = check_step(v, item, strips, replaces)) != SW_OK) return rc;
        return SW_OK;
    }
    if (!strcmp(type, "Precompiled")) v->charsmap = text_of(step, "precompiled_charsmap");
    else if (!strcmp(type, "Strip") && !is_true(step, "strip_left")) *strips = true;
    else if (!strcmp(type, "Replace") &&
             !strcmp(text_of(sw_json_member(step, "pattern"), "Regex"), " {2,}"))
        *replaces = true;
    else return refuse(v, "a unigram model behind a normalizer that is not sentencepiece's");
    return SW_OK;
}

static sw_code check_unigram(vocab *v)
{
    const cJSON *normalizer = sw_json_member(v->from->tokenizer, "normalizer");
    const cJSON *stage = sw_json_member(v->from->tokenizer, "pre_tokenizer");
    const cJSON *meta = part_of(stage, "pretokenizers", "Metaspace");
    const bool splits = part_of(stage, "pretokenizers", "WhitespaceSplit") != NULL;
    bool strips = false, replaces = false;
    sw_code rc;

    if (!meta || strcmp(text_of(meta, "replacement"), SPACE))
        return refuse(v, "a unigram model without Metaspace");
    if (cJSON_IsObject(normalizer) &&
        (rc = check_step(v, normalizer, &strips, &replaces)) != SW_OK)
        return rc;
    if (!splits && strips != replaces)
        return refuse(v, "blanks that are merged and not stripped, or stripped and not merged");
    v->merges_blanks = splits || strips;
    v->adds_prefix = strcmp(text_of(meta, "prepend_scheme"), "never") &&
                     !cJSON_IsFalse(sw_json_member(meta, "add_prefix_space"));
    return SW_OK;
}

/* --- merges ------------------------------------------------------------------------------- */

/* Cut one merge, "a b" or ["a", "b"], into its two sides. */
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

/* Sentencepiece joins the two pieces that give the highest score. So a piece gets less the later
 * its first merge is listed. */
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
        if (v->slots[i].type != SW_GGUF_TOKEN_NORMAL && v->slots[i].score <= -1e6)
            v->slots[i].score = 0.0; /* no merge makes this piece */
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
    if (rc == SW_OK && (v->is_pieces || v->is_unigram)) {
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

/* tokenizer_config.json names a special token as "..." or as {"content": "..."}; without it the id
 * of config.json is written. */
static sw_code put_special(const vocab *v, const char *key, const char *name, int64_t id)
{
    const cJSON *token = sw_json_member(v->from->config, name);
    const char *text = cJSON_IsString(token) ? token->valuestring : text_of(token, "content");

    for (int64_t i = 0; i < v->from->n_tokens && id < 0 && *text; i++)
        if (v->slots[i].text && !strcmp(v->slots[i].text, text)) id = i;
    if (id < 0 || id >= v->from->n_tokens) return SW_OK;
    return sw_gguf_put_int(v->w, key, SW_GGUF_U32, id, v->err);
}

/* A token that the template puts before the text counts as BOS, one behind it as EOS. */
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

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Write a character map, given in base64, as bytes. */
static sw_code put_charsmap(const vocab *v)
{
    const size_t n_chars = strcspn(v->charsmap, "=");
    unsigned bits = 0;
    sw_code rc = sw_gguf_put_array(v->w, GROUP "precompiled_charsmap", SW_GGUF_U8, n_chars * 3 / 4,
                                   v->err);

    for (size_t i = 0; i < n_chars && rc == SW_OK; i++) {
        const int digit = digit_of(v->charsmap[i]);

        if (digit < 0)
            return SW_FAIL(v->err, SW_E_FORMAT, "tokenizer.json: precompiled_charsmap is no "
                           "base64 at character %zu", i);
        bits = bits << 6 | (unsigned)digit;
        if (i % 4) rc = sw_gguf_put_elem_int(v->w, bits >> (6 - 2 * (i % 4)) & 255, v->err);
    }
    return rc;
}

static sw_code put_rest(const vocab *v)
{
    const cJSON *chat = sw_json_member(v->from->config, "chat_template");
    const char *text = v->from->chat_template ? v->from->chat_template
                       : cJSON_IsString(chat) ? chat->valuestring : NULL;
    int64_t unk = v->is_pieces ? id_of(v, text_of(v->model, "unk_token")) : -1;
    sw_code rc;

    if (v->is_unigram && cJSON_IsNumber(sw_json_member(v->model, "unk_id")))
        unk = (int64_t)sw_json_member(v->model, "unk_id")->valuedouble;

    if ((rc = put_special(v, GROUP "bos_token_id", "bos_token", v->from->bos_id)) != SW_OK ||
        (rc = put_special(v, GROUP "eos_token_id", "eos_token", v->from->eos_id)) != SW_OK ||
        (rc = put_special(v, GROUP "unknown_token_id", "unk_token", unk)) != SW_OK ||
        (rc = put_special(v, GROUP "padding_token_id", "pad_token", -1)) != SW_OK ||
        (rc = put_template(v)) != SW_OK)
        return rc;
    if (v->is_pieces || v->is_unigram)
        rc = sw_gguf_put_int(v->w, GROUP "add_space_prefix", SW_GGUF_BOOL, v->adds_prefix, v->err);
    if (rc == SW_OK && v->is_unigram)
        rc = sw_gguf_put_int(v->w, GROUP "remove_extra_whitespaces", SW_GGUF_BOOL,
                             v->merges_blanks, v->err);
    if (rc == SW_OK && v->charsmap) rc = put_charsmap(v);
    if (rc == SW_OK && text) rc = sw_gguf_put_text(v->w, "tokenizer.chat_template", text, v->err);
    return rc;
}

/* Decide which kind of tokenizer this is, and refuse one whose rules GGUF does not have. */
static sw_code choose(vocab *v)
{
    const cJSON *cleans = sw_json_member(v->from->config, "clean_up_tokenization_spaces");
    const char *type = text_of(v->model, "type");

    v->is_unigram = !strcmp(type, "Unigram");
    v->is_pieces = !v->is_unigram && is_true(v->model, "byte_fallback");
    if (*type && !v->is_unigram && strcmp(type, "BPE"))
        return refuse(v, "a model that is neither BPE nor Unigram");
    if (v->is_unigram) return check_unigram(v);
    if (v->is_pieces) return check_pieces(v);
    return sw_gguf_pre_match(&v->pre, v->from->tokenizer,
                             cJSON_IsBool(cleans) ? cJSON_IsTrue(cleans) : -1, v->err);
}

sw_code sw_gguf_vocab_write(sw_gguf_writer *w, const sw_gguf_vocab_source *source, sw_err *err)
{
    vocab v = {.from = source, .model = sw_json_member(source->tokenizer, "model"), .w = w,
               .err = err};
    const char *model;
    sw_code rc;

    if ((rc = choose(&v)) != SW_OK) goto done;
    model = v.is_unigram ? "t5" : v.is_pieces ? "llama" : "gpt2";
    if ((rc = collect(&v)) != SW_OK || (v.is_pieces && (rc = score_pieces(&v)) != SW_OK) ||
        (rc = sw_gguf_put_text(w, GROUP "model", model, err)) != SW_OK ||
        (rc = sw_gguf_put_text(w, GROUP "pre", v.pre ? v.pre->name : "default", err)) != SW_OK ||
        (rc = put_tokens(&v)) != SW_OK || (v.pre && (rc = put_merges(&v)) != SW_OK))
        goto done;
    rc = put_rest(&v);
done:
    sw_arena_free(&v.arena);
    return rc;
}
