/* tokenizer.c - see tokenizer.h: loading a tokenizer.json, and running its stages. */
#include "formats/text/tokenizer.h"

#include <string.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "formats/text/bpe.h"
#include "formats/text/tokenizer_parts.h"
#include "formats/text/unigram.h"

/* A vocabulary of 260,000 tokens with 580,000 merges has 35 MB and 2 million values. */
static const sw_json_caps tokenizer_caps = {
    .max_bytes = (size_t)128 << 20, .max_depth = 32, .max_values = 8000000};

#define AFFIX_MAX_BYTES 64 /* every character may get these bytes */

struct sw_tokenizer {
    sw_arena arena;
    sw_added_tokens added;
    sw_normalizer normalizer;
    sw_pretokenizer pretok;
    sw_bpe bpe; /* it has the vocabulary, also of a unigram model */
    bool is_unigram;
    sw_unigram unigram;
    sw_template tmpl;
    sw_decoder decoder;
    sw_pattern_clock clock;
    sw_growth growth;
    const char *what; /* names the file in messages */
    const char *text; /* of the present call */
    bool *is_special; /* [vocab.n_ids] */
    sw_ids *out;      /* of the present call */
};

sw_code sw_ids_push(sw_ids *list, uint32_t id, sw_err *err)
{
    if (list->n == list->capacity) {
        size_t capacity = (size_t)list->capacity;
        void *ids = list->ids;
        sw_code rc = sw_text_grow(&ids, &capacity, (size_t)list->n + 1, sizeof id, err);
        list->ids = ids;
        list->capacity = (int64_t)capacity;
        if (rc != SW_OK) return rc;
    }
    list->ids[list->n++] = id;
    return SW_OK;
}

void sw_ids_free(sw_ids *list)
{
    sw_mem_put(list->ids);
    memset(list, 0, sizeof *list);
}

/* --- loading ------------------------------------------------------------------------------ */

static sw_code copy_text(const char **out, sw_arena *arena, const cJSON *json, const char *key,
                         sw_err *err)
{
    const char *text = "";
    char *copy = NULL;
    sw_code rc = sw_json_text(&text, json, key, err);

    if (rc == SW_OK) rc = sw_arena_text(&copy, arena, text, strlen(text), err);
    *out = copy;
    return rc;
}

static sw_code parse_flags(sw_tokenizer *tok, const cJSON *model, sw_err *err)
{
    sw_bpe *bpe = &tok->bpe;
    double dropout = 0;
    sw_code rc;

    if ((rc = sw_json_real(&dropout, model, "dropout", err)) != SW_OK) return rc;
    if (dropout != 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "dropout of %g is not supported: ids would be "
                       "random", dropout);
    if ((rc = sw_json_bool(&bpe->fuse_unk, model, "fuse_unk", err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&bpe->byte_fallback, model, "byte_fallback", err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&bpe->ignore_merges, model, "ignore_merges", err)) != SW_OK) return rc;
    rc = copy_text(&bpe->prefix, &tok->arena, model, "continuing_subword_prefix", err);
    if (rc != SW_OK) return rc;
    rc = copy_text(&bpe->suffix, &tok->arena, model, "end_of_word_suffix", err);
    if (rc != SW_OK) return rc;
    bpe->prefix_bytes = strlen(bpe->prefix);
    bpe->suffix_bytes = strlen(bpe->suffix);
    if (bpe->prefix_bytes > AFFIX_MAX_BYTES || bpe->suffix_bytes > AFFIX_MAX_BYTES)
        return SW_FAIL(err, SW_E_FORMAT, "model: continuing_subword_prefix of %zu bytes and "
                       "end_of_word_suffix of %zu, at most %d make sense", bpe->prefix_bytes,
                       bpe->suffix_bytes, AFFIX_MAX_BYTES);
    return SW_OK;
}

static sw_code build_vocab(sw_tokenizer *tok, const cJSON *model, sw_err *err)
{
    sw_extra_token *extra = NULL;
    sw_code rc = SW_MEM_GET(&extra, tok->added.n, "added tokens", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < tok->added.n; i++)
        extra[i] = (sw_extra_token){tok->added.tokens[i].content, tok->added.tokens[i].file_id};
    rc = tok->is_unigram
             ? sw_vocab_build_pieces(&tok->bpe.vocab, sw_json_member(model, "vocab"), extra,
                                     tok->added.n, err)
             : sw_vocab_build(&tok->bpe.vocab, sw_json_member(model, "vocab"),
                              sw_json_member(model, "merges"), tok->bpe.prefix, extra,
                              tok->added.n, err);
    sw_mem_put(extra);
    return rc;
}

/* Files that are older than the field "type" are BPE if they have merges. */
static sw_code find_model_type(bool *is_unigram, const cJSON *model, sw_err *err)
{
    const char *type = NULL;
    sw_code rc;

    if (!cJSON_IsObject(model)) return SW_FAIL(err, SW_E_FORMAT, "no \"model\" object");
    if ((rc = sw_json_text(&type, model, "type", err)) != SW_OK) return rc;
    *is_unigram = type && !strcmp(type, "Unigram");
    if (type && !*is_unigram && strcmp(type, "BPE") != 0)
        return sw_part_unsupported("model", type, err);
    if (!type && !sw_json_member(model, "merges"))
        return SW_FAIL(err, SW_E_FORMAT, "model: neither \"type\" nor \"merges\"");
    return SW_OK;
}

static sw_code parse_unigram(sw_tokenizer *tok, const cJSON *model, sw_err *err)
{
    sw_code rc = sw_bpe_prepare(&tok->bpe, err); /* finds the byte tokens */

    tok->unigram.unspelled = &tok->bpe.unspelled;
    tok->unigram.byte_ids = tok->bpe.byte_fallback ? tok->bpe.byte_ids : NULL;
    return rc == SW_OK ? sw_unigram_parse(&tok->unigram, model, &tok->bpe.vocab, err) : rc;
}

static sw_code parse_model(sw_tokenizer *tok, const cJSON *model, sw_err *err)
{
    const char *unk = NULL;
    sw_code rc;

    if ((rc = find_model_type(&tok->is_unigram, model, err)) != SW_OK) return rc;
    if ((rc = parse_flags(tok, model, err)) != SW_OK) return rc;
    if ((rc = sw_json_text(&unk, model, "unk_token", err)) != SW_OK) return rc;
    if ((rc = build_vocab(tok, model, err)) != SW_OK) return rc;
    tok->bpe.unk_id = SW_NO_TOKEN;
    if (tok->is_unigram) return parse_unigram(tok, model, err);
    if (unk) {
        tok->bpe.unk_id = sw_vocab_find_model(&tok->bpe.vocab, unk, strlen(unk));
        if (tok->bpe.unk_id == SW_NO_TOKEN)
            return SW_FAIL(err, SW_E_FORMAT, "unk_token \"%.60s\" is not in the vocabulary", unk);
    }
    tok->bpe.map_bytes = tok->pretok.ends_in_bytes;
    return sw_bpe_prepare(&tok->bpe, err);
}

static sw_code mark_special(sw_tokenizer *tok, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&tok->is_special, tok->bpe.vocab.n_ids, "special tokens", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < tok->added.n; i++)
        if (tok->added.tokens[i].special) tok->is_special[tok->added.tokens[i].id] = true;
    return SW_OK;
}

static sw_code check_template(const sw_ids *ids, int64_t n_ids, sw_err *err)
{
    for (int64_t i = 0; i < ids->n; i++)
        if (ids->ids[i] >= n_ids)
            return SW_FAIL(err, SW_E_FORMAT, "post_processor adds id %u, the vocabulary ends at "
                           "%lld", ids->ids[i], (long long)n_ids - 1);
    return SW_OK;
}

static sw_code parse_all(sw_tokenizer *tok, const cJSON *json, sw_err *err)
{
    sw_arena *arena = &tok->arena;
    sw_code rc;

    tok->normalizer.clock = tok->pretok.clock = &tok->clock;
    tok->normalizer.growth = tok->pretok.growth = &tok->growth;
    sw_pattern_clock_start(&tok->clock, 0);
    if (!cJSON_IsObject(json)) return SW_FAIL(err, SW_E_FORMAT, "not a JSON object");
    rc = sw_normalizer_parse(&tok->normalizer, sw_json_member(json, "normalizer"), arena, err);
    if (rc != SW_OK) return rc;
    rc = sw_pretok_parse(&tok->pretok, sw_json_member(json, "pre_tokenizer"), arena, err);
    if (rc != SW_OK) return rc;
    rc = sw_decoder_parse(&tok->decoder, sw_json_member(json, "decoder"), arena, err);
    if (rc != SW_OK) return rc;
    rc = sw_added_parse(&tok->added, sw_json_member(json, "added_tokens"), arena, err);
    if (rc != SW_OK) return rc;
    if ((rc = parse_model(tok, sw_json_member(json, "model"), err)) != SW_OK) return rc;
    rc = sw_added_resolve(&tok->added, &tok->bpe.vocab, &tok->normalizer, arena, err);
    if (rc != SW_OK) return rc;
    rc = sw_template_parse(&tok->tmpl, sw_json_member(json, "post_processor"), err);
    if (rc != SW_OK) return rc;
    if ((rc = check_template(&tok->tmpl.before, tok->bpe.vocab.n_ids, err)) != SW_OK) return rc;
    if ((rc = check_template(&tok->tmpl.after, tok->bpe.vocab.n_ids, err)) != SW_OK) return rc;
    return mark_special(tok, err);
}

sw_code sw_tokenizer_open_bytes(sw_tokenizer **out, const char *json, size_t n_bytes,
                                const char *what, sw_err *err)
{
    sw_tokenizer *tok = NULL;
    cJSON *root = NULL;
    char *kept = NULL;
    sw_code rc;

    if ((rc = sw_json_parse(&root, json, n_bytes, &tokenizer_caps, what, err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&tok, 1, "tokenizer", err)) != SW_OK) goto done;
    if ((rc = sw_arena_text(&kept, &tok->arena, what, strlen(what), err)) != SW_OK) goto done;
    tok->what = kept;
    if ((rc = parse_all(tok, root, err)) != SW_OK) goto done;
    *out = tok;
    tok = NULL;
done:
    if (rc != SW_OK) sw_err_prefix(err, "%s", what);
    sw_tokenizer_free(tok);
    cJSON_Delete(root);
    return rc;
}

sw_code sw_tokenizer_open(sw_tokenizer **out, const char *path, sw_err *err)
{
    sw_map map = {0};
    sw_code rc;

    if ((rc = sw_map_open(&map, path, err)) != SW_OK) return rc;
    rc = sw_tokenizer_open_bytes(out, (const char *)map.data, map.size_bytes, path, err);
    sw_map_close(&map);
    return rc;
}

void sw_tokenizer_free(sw_tokenizer *tok)
{
    if (!tok) return;
    sw_added_free(&tok->added);
    sw_normalizer_free(&tok->normalizer);
    sw_pretok_free(&tok->pretok);
    sw_unigram_free(&tok->unigram);
    sw_bpe_free(&tok->bpe);
    sw_template_free(&tok->tmpl);
    sw_decoder_free(&tok->decoder);
    sw_mem_put(tok->is_special);
    sw_arena_free(&tok->arena);
    sw_mem_put(tok);
}

/* --- encoding ----------------------------------------------------------------------------- */

static sw_code on_word(void *self, const char *text, size_t n_bytes, sw_err *err)
{
    sw_tokenizer *tok = self;
    sw_text_buf *mapped = &tok->bpe.mapped;
    sw_code rc;

    if (!tok->is_unigram) return sw_bpe_encode(&tok->bpe, tok->out, text, n_bytes, err);
    if (!tok->pretok.ends_in_bytes)
        return sw_unigram_encode(&tok->unigram, tok->out, text, n_bytes, &tok->growth, err);
    mapped->n_bytes = 0;
    if ((rc = sw_bytes_to_chars(mapped, text, n_bytes, err)) != SW_OK) return rc;
    return sw_unigram_encode(&tok->unigram, tok->out, mapped->bytes, mapped->n_bytes,
                             &tok->growth, err);
}

static sw_code on_normal_cut(void *self, const sw_added_token *token, const char *text,
                             size_t n_bytes, bool is_start, sw_err *err)
{
    sw_tokenizer *tok = self;

    if (token) return sw_ids_push(tok->out, token->id, err);
    return sw_pretok_run(&tok->pretok, text, n_bytes, is_start, on_word, tok, err);
}

/* Find where the first character without a token came from: the first character of this piece whose
 * normalized form contains it. Where normalized text came from is not recorded, so characters are
 * normalized again, one by one; this happens once in a text. */
static void locate_first(sw_tokenizer *tok, const char *piece, size_t n_bytes)
{
    sw_unspelled *u = &tok->bpe.unspelled;
    sw_growth growth;
    sw_err ignored = {0};

    u->first_at = (uint64_t)(piece - tok->text);
    for (size_t at = 0, next; at < n_bytes; at = next) {
        const char *one = piece + at;
        uint32_t c;
        size_t one_bytes;
        next = sw_utf8_next(&c, piece, at);
        one_bytes = next - at;
        sw_growth_start(&growth, one_bytes);
        sw_normalizer_start(&tok->normalizer, &growth);
        if (sw_normalizer_run(&tok->normalizer, &one, &one_bytes, &ignored) != SW_OK) break;
        if (!(one = memmem(one, one_bytes, u->first, u->first_bytes))) continue;
        u->is_exact = true;
        u->first_at += at;
        break;
    }
    sw_normalizer_start(&tok->normalizer, &tok->growth);
}

static sw_code on_raw_cut(void *self, const sw_added_token *token, const char *text,
                          size_t n_bytes, bool is_start, sw_err *err)
{
    sw_tokenizer *tok = self;
    const int64_t n_unspelled = tok->bpe.unspelled.n;
    const char *whole = text;
    const size_t whole_bytes = n_bytes;
    sw_code rc;

    if (token) return sw_ids_push(tok->out, token->id, err);
    if ((rc = sw_normalizer_run(&tok->normalizer, &text, &n_bytes, err)) != SW_OK) return rc;
    rc = sw_added_cut(&tok->added.normal, text, n_bytes, is_start, &tok->growth, on_normal_cut,
                      tok, err);
    if (rc == SW_OK && !n_unspelled && tok->bpe.unspelled.n)
        locate_first(tok, whole, whole_bytes);
    return rc;
}

static sw_code push_all(sw_ids *out, const sw_ids *more, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < more->n && rc == SW_OK; i++) rc = sw_ids_push(out, more->ids[i], err);
    return rc;
}

static void start_text(sw_tokenizer *tok, size_t n_bytes)
{
    memset(&tok->bpe.unspelled, 0, sizeof tok->bpe.unspelled);
    sw_pattern_clock_start(&tok->clock, n_bytes);
    sw_growth_start(&tok->growth, n_bytes);
    sw_normalizer_start(&tok->normalizer, &tok->growth);
    sw_pretok_start(&tok->pretok, &tok->growth);
}

sw_code sw_tokenizer_encode(sw_tokenizer *tok, sw_ids *out, const char *text, size_t n_bytes,
                            bool with_template, sw_err *err)
{
    int64_t n_before = out->n;
    size_t bad_at = 0;
    sw_code rc = SW_OK;

    if (!sw_utf8_is_valid(text, n_bytes, &bad_at))
        return SW_FAIL(err, SW_E_FORMAT, "text is not UTF-8: invalid at byte %zu", bad_at);
    start_text(tok, n_bytes);
    tok->out = out;
    tok->text = text;
    if (with_template) rc = push_all(out, &tok->tmpl.before, err);
    if (rc == SW_OK)
        rc = sw_added_cut(&tok->added.raw, text, n_bytes, true, &tok->growth, on_raw_cut, tok,
                          err);
    if (rc == SW_OK && with_template) rc = push_all(out, &tok->tmpl.after, err);
    if (rc == SW_OK) return SW_OK;
    out->n = n_before;
    sw_err_prefix(err, "%s", tok->what);
    return rc;
}

/* --- decoding ----------------------------------------------------------------------------- */

sw_code sw_tokenizer_decode(const sw_tokenizer *tok, char **out, size_t *out_bytes,
                            const uint32_t *ids, int64_t n, bool skip_special, sw_err *err)
{
    const sw_vocab *vocab = &tok->bpe.vocab;
    sw_text_list tokens = {0};
    sw_text_buf text = {0};
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if (ids[i] >= vocab->n_ids || !vocab->by_id[ids[i]].text)
            rc = SW_FAIL(err, SW_E_FORMAT, "id %u at position %lld is no token", ids[i],
                         (long long)i);
        else if (!skip_special || !tok->is_special[ids[i]])
            rc = sw_text_list_add(&tokens, vocab->by_id[ids[i]].text,
                                  vocab->by_id[ids[i]].n_bytes, err);
    }
    if (rc == SW_OK && (rc = sw_decoder_run(&tok->decoder, &text, &tokens, err)) != SW_OK)
        sw_err_prefix(err, "%s", tok->what);
    if (rc == SW_OK) rc = sw_text_buf_add(&text, "", 1, err);
    if (rc == SW_OK) {
        *out = text.bytes;
        *out_bytes = text.n_bytes - 1;
        text.bytes = NULL;
    }
    sw_text_buf_free(&text);
    sw_text_list_free(&tokens);
    return rc;
}

const sw_unspelled *sw_tokenizer_unspelled(const sw_tokenizer *tok) { return &tok->bpe.unspelled; }

int64_t sw_tokenizer_vocab(const sw_tokenizer *tok) { return tok->bpe.vocab.n_ids; }

bool sw_tokenizer_id(const sw_tokenizer *tok, const char *content, uint32_t *id)
{
    uint32_t found = sw_vocab_find(&tok->bpe.vocab, content, strlen(content));

    if (found == SW_NO_TOKEN) return false;
    *id = found;
    return true;
}
