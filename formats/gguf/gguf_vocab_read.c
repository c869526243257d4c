/* gguf_vocab_read.c - the tokenizer keys of a GGUF. See gguf_vocab_parts.h.
 *
 * Defaults of absent keys are those of llama.cpp's vocabulary loader.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf_vocab_parts.h"

#define TOKENS_MAX ((uint64_t)1 << 22)

const char *sw_gguf_vocab_path(const sw_gguf_vocab *v) { return sw_gguf_file_path(v->g, 0); }

void sw_gguf_vocab_free(sw_gguf_vocab *v)
{
    sw_mem_put(v->buf.at);
    sw_arena_free(&v->arena);
    memset(v, 0, sizeof *v);
}

/* --- tokens ------------------------------------------------------------------------------- */

static bool is_text(const sw_gguf_piece *p, const char *text)
{
    return p->n_bytes == strlen(text) && !memcmp(p->text, text, (size_t)p->n_bytes);
}

/* These texts end a turn or a document. They are special tokens, whatever type the file gives
 * them. */
static bool ends_turn(const sw_gguf_piece *p)
{
    static const char *const texts[] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
        "<|end_of_text|>", "<end_of_utterance>", "<turn|>", "<|tool_response>", "[e~[",
        "<\xef\xbd\x9c" "end" SW_GGUF_SPACE "of" SW_GGUF_SPACE "sentence\xef\xbd\x9c>"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (is_text(p, texts[i])) return true;
    return false;
}

bool sw_gguf_piece_is_special(const sw_gguf_piece *p)
{
    return p->type == SW_GGUF_TOKEN_CONTROL || p->type == SW_GGUF_TOKEN_UNKNOWN || ends_turn(p);
}

bool sw_gguf_piece_is_added(const sw_gguf_piece *p)
{
    return p->n_bytes && (p->type == SW_GGUF_TOKEN_USER || sw_gguf_piece_is_special(p));
}

static sw_code check_text(const sw_gguf_vocab *v, const sw_gguf_piece *p)
{
    size_t bad_at = 0;

    if (!memchr(p->text, 0, (size_t)p->n_bytes) &&
        sw_utf8_is_valid(p->text, (size_t)p->n_bytes, &bad_at))
        return SW_OK;
    return SW_FAIL(v->err, SW_E_FORMAT, "%s: token %lu is not UTF-8 text", sw_gguf_vocab_path(v),
                   (unsigned long)p->id);
}

static sw_code read_pieces(sw_gguf_vocab *v)
{
    const sw_gguf_value *tokens = NULL, *types = NULL, *scores = NULL;
    const unsigned char *at;
    sw_code rc;

    if ((rc = sw_gguf_array(&tokens, v->g, SW_GGUF_VOCAB "tokens", SW_GGUF_TEXT, v->err)) !=
            SW_OK ||
        (rc = sw_gguf_array(&types, v->g, SW_GGUF_VOCAB "token_type", SW_GGUF_I32, v->err)) !=
            SW_OK ||
        (rc = sw_gguf_array(&scores, v->g, SW_GGUF_VOCAB "scores", SW_GGUF_F32, v->err)) != SW_OK)
        return rc;
    if (!tokens || tokens->n < 1 || tokens->n > TOKENS_MAX ||
        (types && types->n != tokens->n) || (scores && scores->n != tokens->n))
        return SW_FAIL(v->err, SW_E_FORMAT, "%s: " SW_GGUF_VOCAB "tokens, token_type and scores "
                       "are missing or of different lengths", sw_gguf_vocab_path(v));
    if ((rc = SW_ARENA_TAKE(&v->pieces, &v->arena, tokens->n, v->err)) != SW_OK) return rc;
    v->n = (int64_t)tokens->n;
    at = tokens->data;
    for (uint64_t i = 0; i < tokens->n; i++) {
        sw_gguf_piece *p = &v->pieces[i];

        p->text = sw_gguf_next_text(&at, &p->n_bytes);
        p->id = (uint32_t)i;
        p->type = types ? (sw_gguf_token)sw_gguf_elem_int(types, i) : SW_GGUF_TOKEN_NORMAL;
        p->score = scores ? sw_gguf_elem_real(scores, i) : 0.0;
        if (!isfinite(p->score))
            return SW_FAIL(v->err, SW_E_FORMAT, "%s: " SW_GGUF_VOCAB "scores: the score of token "
                           "%llu is not finite", sw_gguf_vocab_path(v), (unsigned long long)i);
        if ((rc = check_text(v, p)) != SW_OK) return rc;
    }
    return SW_OK;
}

static int compare_texts(const void *a, const void *b)
{
    const sw_gguf_piece *x = a, *y = b;
    const uint64_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    const int order = memcmp(x->text, y->text, (size_t)n);

    if (order) return order;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

static sw_code sort_pieces(sw_gguf_vocab *v)
{
    sw_gguf_piece *sorted = NULL;
    sw_code rc = SW_ARENA_TAKE(&sorted, &v->arena, v->n, v->err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < v->n; i++)
        if (v->pieces[i].n_bytes) sorted[v->n_texts++] = v->pieces[i];
    if (v->n_texts) qsort(sorted, (size_t)v->n_texts, sizeof *sorted, compare_texts);
    v->by_text = sorted;
    for (int64_t i = 1; i < v->n_texts; i++)
        if (!compare_texts(&sorted[i - 1], &sorted[i]))
            return SW_FAIL(v->err, SW_E_FORMAT, "%s: tokens %lu and %lu are both \"%.*s\"",
                           sw_gguf_vocab_path(v), (unsigned long)sorted[i - 1].id,
                           (unsigned long)sorted[i].id,
                           (int)(sorted[i].n_bytes < 60 ? sorted[i].n_bytes : 60), sorted[i].text);
    return SW_OK;
}

const sw_gguf_piece *sw_gguf_vocab_find(const sw_gguf_vocab *v, const char *text, uint64_t n_bytes)
{
    const sw_gguf_piece key = {.text = text, .n_bytes = n_bytes};

    if (!n_bytes || !v->n_texts) return NULL;
    return bsearch(&key, v->by_text, (size_t)v->n_texts, sizeof key, compare_texts);
}

/* --- rules -------------------------------------------------------------------------------- */

/* Each row is a value of tokenizer.ggml.model, with the ids that a file without keys for them
 * means. */
static const struct {
    const char *name;
    sw_gguf_scheme scheme;
    bool adds_prefix, adds_bos, adds_eos, merges_blanks;
    sw_gguf_ids ids;
} schemes[] = {
    {"gpt2", SW_GGUF_BYTES, false, false, false, false, {-1, -1, -1, -1, -1, -1}},
    {"llama", SW_GGUF_PIECES, true, true, false, false, {1, 2, 0, -1, -1, -1}},
    {"gemma4", SW_GGUF_MERGED, false, true, false, false, {-1, -1, -1, -1, -1, -1}},
    {"t5", SW_GGUF_UNIGRAM, false, false, true, false, {-1, 1, 2, 0, -1, -1}},
};

static sw_code find_scheme(sw_gguf_vocab *v)
{
    const char *name = NULL;
    sw_code rc = sw_gguf_text(&name, v->g, SW_GGUF_VOCAB "model", &v->arena, v->err);

    if (rc != SW_OK) return rc;
    for (size_t i = 0; name && i < sizeof schemes / sizeof *schemes; i++) {
        if (strcmp(schemes[i].name, name)) continue;
        v->scheme = schemes[i].scheme;
        v->adds_prefix = schemes[i].adds_prefix;
        v->adds_bos = schemes[i].adds_bos;
        v->adds_eos = schemes[i].adds_eos;
        v->merges_blanks = schemes[i].merges_blanks;
        v->ids = schemes[i].ids;
        return SW_OK;
    }
    return SW_FAIL(v->err, SW_E_UNSUPPORTED, "%s: " SW_GGUF_VOCAB "model is \"%.60s\"; tokenizers "
                   "that are read are gpt2, llama, gemma4 and t5", sw_gguf_vocab_path(v),
                   name ? name : "(absent)");
}

static sw_code find_pre(sw_gguf_vocab *v)
{
    const char *name = v->scheme == SW_GGUF_MERGED ? "gemma4" : NULL;
    sw_code rc = name ? SW_OK
                      : sw_gguf_text(&name, v->g, SW_GGUF_VOCAB "pre", &v->arena, v->err);

    if (rc != SW_OK) return rc;
    if (!name)
        return SW_FAIL(v->err, SW_E_UNSUPPORTED, "%s: key " SW_GGUF_VOCAB "pre is missing, and "
                       "nothing else says how text is cut; set it to the name that llama.cpp has "
                       "for the model's tokenizer", sw_gguf_vocab_path(v));
    v->pre = sw_gguf_pre_find(name);
    if (!v->pre)
        return SW_FAIL(v->err, SW_E_UNSUPPORTED, "%s: pre-tokenizer \"%.60s\" (" SW_GGUF_VOCAB
                       "pre) is not known; set the key to a name that cuts text alike, as "
                       "llama-bpe, qwen2 or gpt-2", sw_gguf_vocab_path(v), name);
    if (v->pre->flags & SW_GGUF_PRE_PIECES) v->scheme = SW_GGUF_MERGED;
    v->adds_bos = v->pre->flags & SW_GGUF_PRE_BOS;
    v->cleans = v->pre->flags & SW_GGUF_PRE_CLEAN;
    return SW_OK;
}

/* A token that has the type of the unknown token is preferred to the default of its kind of
 * tokenizer. */
static void find_unknown(sw_gguf_vocab *v)
{
    for (int64_t i = 0; i < v->n; i++)
        if (v->pieces[i].type == SW_GGUF_TOKEN_UNKNOWN) {
            v->ids.unk = i;
            return;
        }
}

/* Read the ids of special tokens; an id beyond the vocabulary is ignored. */
static sw_code read_ids(sw_gguf_vocab *v)
{
    const struct {
        const char *key;
        int64_t *id;
    } keys[] = {
        {SW_GGUF_VOCAB "bos_token_id", &v->ids.bos},
        {SW_GGUF_VOCAB "eos_token_id", &v->ids.eos},
        {SW_GGUF_VOCAB "unknown_token_id", &v->ids.unk},
        {SW_GGUF_VOCAB "padding_token_id", &v->ids.pad},
        {SW_GGUF_VOCAB "seperator_token_id", &v->ids.sep}, /* llama.cpp spells it so */
        {SW_GGUF_VOCAB "mask_token_id", &v->ids.mask},
    };

    if (v->scheme != SW_GGUF_BYTES) find_unknown(v);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = -1;
        sw_code rc = sw_gguf_int(&id, v->g, keys[i].key, -1, UINT32_MAX, v->err);

        if (rc != SW_OK) return rc;
        if (id >= 0 && id < v->n) *keys[i].id = id;
        if (*keys[i].id >= v->n || (*keys[i].id >= 0 && !v->pieces[*keys[i].id].n_bytes))
            *keys[i].id = -1;
    }
    return SW_OK;
}

/* The special tokens of these models take the blanks behind them, which no key says. */
static sw_code read_name(sw_gguf_vocab *v)
{
    const char *name = "";
    char lower[200];
    size_t n;
    sw_code rc = sw_gguf_text(&name, v->g, "general.name", &v->arena, v->err);

    if (rc != SW_OK) return rc;
    for (n = 0; name[n] && n < sizeof lower - 1; n++)
        lower[n] = (char)tolower((unsigned char)name[n]);
    lower[n] = '\0';
    v->strips_after = strstr(lower, "phi-3") || strstr(lower, "phi3");
    return SW_OK;
}

sw_code sw_gguf_vocab_read(sw_gguf_vocab *v)
{
    sw_code rc;

    if ((rc = find_scheme(v)) != SW_OK || (rc = read_pieces(v)) != SW_OK ||
        (rc = sort_pieces(v)) != SW_OK)
        return rc;
    if ((v->scheme == SW_GGUF_BYTES || v->scheme == SW_GGUF_MERGED) && (rc = find_pre(v)) != SW_OK)
        return rc;
    if ((rc = sw_gguf_bool(&v->adds_prefix, v->g, SW_GGUF_VOCAB "add_space_prefix", v->err)) !=
            SW_OK ||
        (rc = sw_gguf_bool(&v->merges_blanks, v->g, SW_GGUF_VOCAB "remove_extra_whitespaces",
                           v->err)) != SW_OK ||
        (rc = sw_gguf_bool(&v->adds_bos, v->g, SW_GGUF_VOCAB "add_bos_token", v->err)) != SW_OK ||
        (rc = sw_gguf_bool(&v->adds_eos, v->g, SW_GGUF_VOCAB "add_eos_token", v->err)) != SW_OK ||
        (rc = read_ids(v)) != SW_OK)
        return rc;
    if (v->pre && !strcmp(v->pre->name, "gemma4")) v->adds_bos = true; /* the key is ignored */
    return read_name(v);
}

sw_code sw_gguf_vocab_put(sw_gguf_vocab *v, const char *text)
{
    return sw_print_add(&v->buf, text, strlen(text), v->err);
}

sw_code sw_gguf_vocab_put_piece(sw_gguf_vocab *v, const sw_gguf_piece *p)
{
    return sw_print_quote_n(&v->buf, p->text, (size_t)p->n_bytes, v->err);
}
