/* gguf_vocab_read.c - the tokenizer of a GGUF as tokenizer.json. See gguf_model.h.
 *
 * "gpt2" is byte-level BPE: its merges are there, its pre-tokenizer has a name. "llama" is
 * sentencepiece: pieces merge by their score, so every way to put a piece together out of two
 * others is a merge, in the order of the scores.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/print_buf.h"
#include "formats/dialect/gguf_model.h"
#include "formats/dialect/gguf_vocab.h"

#define GROUP "tokenizer.ggml."
#define TOKENS_MAX ((uint64_t)1 << 22)
#define SPACE "\xe2\x96\x81" /* U+2581 */
#define LLAMA3_REGEX                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"               \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN_REGEX                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"                    \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const sw_gguf_pre sw_gguf_pres[] = {
    {"llama-bpe", LLAMA3_REGEX, false, true, true},
    {"llama3", LLAMA3_REGEX, false, true, true},
    {"llama-v3", LLAMA3_REGEX, false, true, true},
    {"qwen2", QWEN_REGEX, true, false, false},
    {"deepseek-r1-qwen", QWEN_REGEX, true, false, false},
    {"gpt-2", NULL, false, false, false},
};
const int sw_gguf_n_pres = (int)(sizeof sw_gguf_pres / sizeof *sw_gguf_pres);

typedef struct piece {
    const char *text;
    uint64_t n_bytes;
    uint32_t id;
    sw_gguf_token type;
    double score;
} piece;

typedef struct vocab {
    const sw_gguf *g;
    piece *pieces; /* [n] by id */
    int64_t n;
    const sw_gguf_pre *pre; /* NULL: sentencepiece */
    bool adds_prefix, adds_bos, adds_eos;
    int64_t bos, eos, unk, pad;
    sw_arena arena;
    sw_print_buf buf;
    sw_err *err;
} vocab;

static const char *path_of(const vocab *v) { return sw_gguf_file_path(v->g, 0); }

/* --- what the file says ----------------------------------------------------------------- */

static sw_code read_pieces(vocab *v)
{
    const sw_gguf_value *tokens = NULL, *types = NULL, *scores = NULL;
    const unsigned char *at;
    sw_code rc;

    if ((rc = sw_gguf_array(&tokens, v->g, GROUP "tokens", SW_GGUF_TEXT, v->err)) != SW_OK ||
        (rc = sw_gguf_array(&types, v->g, GROUP "token_type", SW_GGUF_I32, v->err)) != SW_OK ||
        (rc = sw_gguf_array(&scores, v->g, GROUP "scores", SW_GGUF_F32, v->err)) != SW_OK)
        return rc;
    if (!tokens || tokens->n < 1 || tokens->n > TOKENS_MAX ||
        (types && types->n != tokens->n) || (scores && scores->n != tokens->n))
        return SW_FAIL(v->err, SW_E_FORMAT, "%s: " GROUP "tokens, token_type and scores are "
                       "missing or of different lengths", path_of(v));
    if ((rc = SW_ARENA_TAKE(&v->pieces, &v->arena, tokens->n, v->err)) != SW_OK) return rc;
    v->n = (int64_t)tokens->n;
    at = tokens->data;
    for (uint64_t i = 0; i < tokens->n; i++) {
        piece *p = &v->pieces[i];
        size_t bad_at = 0;

        p->text = sw_gguf_next_text(&at, &p->n_bytes);
        p->id = (uint32_t)i;
        p->type = types ? (sw_gguf_token)sw_gguf_elem_int(types, i) : SW_GGUF_TOKEN_NORMAL;
        p->score = scores ? sw_gguf_elem_real(scores, i) : 0.0;
        if (memchr(p->text, 0, (size_t)p->n_bytes) ||
            !sw_utf8_is_valid(p->text, (size_t)p->n_bytes, &bad_at))
            return SW_FAIL(v->err, SW_E_FORMAT, "%s: token %llu is not UTF-8", path_of(v),
                           (unsigned long long)i);
    }
    return SW_OK;
}

static sw_code find_pre(vocab *v)
{
    const char *name = "default";
    sw_code rc = sw_gguf_text(&name, v->g, GROUP "pre", &v->arena, v->err);

    for (int i = 0; i < sw_gguf_n_pres && rc == SW_OK && !v->pre; i++)
        if (!strcmp(sw_gguf_pres[i].name, name)) v->pre = &sw_gguf_pres[i];
    if (rc == SW_OK && !v->pre)
        rc = SW_FAIL(v->err, SW_E_UNSUPPORTED, "%s: pre-tokenizer \"%.60s\" is not known here; "
                     "there are llama-bpe, qwen2, gpt-2", path_of(v), name);
    return rc;
}

static sw_code read_id(int64_t *out, const vocab *v, const char *key)
{
    int64_t id = -1;
    sw_code rc = sw_gguf_int(&id, v->g, key, -1, UINT32_MAX, v->err);

    *out = id >= 0 && id < v->n ? id : -1;
    return rc;
}

static sw_code read_all(vocab *v)
{
    const char *model = NULL;
    sw_code rc = sw_gguf_text(&model, v->g, GROUP "model", &v->arena, v->err);

    if (rc != SW_OK) return rc;
    if (!model || (strcmp(model, "gpt2") && strcmp(model, "llama")))
        return SW_FAIL(v->err, SW_E_UNSUPPORTED, "%s: tokenizer \"%.60s\"; there are gpt2 and "
                       "llama", path_of(v), model ? model : "(absent)");
    if ((rc = read_pieces(v)) != SW_OK) return rc;
    if (!strcmp(model, "gpt2") && (rc = find_pre(v)) != SW_OK) return rc;
    v->adds_prefix = !v->pre;
    v->adds_bos = v->pre ? v->pre->adds_bos : true;
    if ((rc = sw_gguf_bool(&v->adds_prefix, v->g, GROUP "add_space_prefix", v->err)) != SW_OK ||
        (rc = sw_gguf_bool(&v->adds_bos, v->g, GROUP "add_bos_token", v->err)) != SW_OK ||
        (rc = sw_gguf_bool(&v->adds_eos, v->g, GROUP "add_eos_token", v->err)) != SW_OK ||
        (rc = read_id(&v->bos, v, GROUP "bos_token_id")) != SW_OK ||
        (rc = read_id(&v->eos, v, GROUP "eos_token_id")) != SW_OK ||
        (rc = read_id(&v->unk, v, GROUP "unknown_token_id")) != SW_OK)
        return rc;
    return read_id(&v->pad, v, GROUP "padding_token_id");
}

/* --- what becomes of it ------------------------------------------------------------------- */

static sw_code put(vocab *v, const char *text)
{
    return sw_print_add(&v->buf, text, strlen(text), v->err);
}

static sw_code put_piece(vocab *v, const piece *p)
{
    return sw_print_quote_n(&v->buf, p->text, (size_t)p->n_bytes, v->err);
}

static sw_code put_added(vocab *v)
{
    bool is_first = true;
    sw_code rc = put(v, "\"added_tokens\":[");

    for (int64_t i = 0; i < v->n && rc == SW_OK; i++) {
        const piece *p = &v->pieces[i];
        const bool is_special = p->type == SW_GGUF_TOKEN_CONTROL ||
                                p->type == SW_GGUF_TOKEN_UNKNOWN;

        if (!p->n_bytes || (!is_special && p->type != SW_GGUF_TOKEN_USER)) continue;
        rc = sw_print_fmt(&v->buf, v->err, "%s\n{\"id\":%lld,\"content\":", is_first ? "" : ",",
                          (long long)i);
        if (rc == SW_OK) rc = put_piece(v, p);
        if (rc == SW_OK)
            rc = sw_print_fmt(&v->buf, v->err, ",\"single_word\":false,\"lstrip\":false,"
                              "\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                              is_special ? "true" : "false");
        is_first = false;
    }
    return rc == SW_OK ? put(v, "],\n") : rc;
}

static sw_code put_rules(vocab *v)
{
    sw_code rc;

    if (!v->pre)
        return put(v, v->adds_prefix
                   ? "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                     "\"prepend\":\"" SPACE "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":"
                     "\" \"},\"content\":\"" SPACE "\"}]},\n\"pre_tokenizer\":null,\n"
                   : "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                     "\"content\":\"" SPACE "\"},\n\"pre_tokenizer\":null,\n");
    if ((rc = put(v, v->pre->is_nfc ? "\"normalizer\":{\"type\":\"NFC\"},\n"
                                    : "\"normalizer\":null,\n")) != SW_OK)
        return rc;
    if (!v->pre->regex)
        return put(v, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                      "\"trim_offsets\":true,\"use_regex\":true},\n");
    if ((rc = put(v, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                     "\"Split\",\"pattern\":{\"Regex\":")) != SW_OK ||
        (rc = sw_print_quote(&v->buf, v->pre->regex, v->err)) != SW_OK)
        return rc;
    return put(v, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                  "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},\n");
}

static sw_code put_special(vocab *v, int64_t id, const char *before, const char *after)
{
    sw_code rc = put(v, before);

    if (rc == SW_OK) rc = put_piece(v, &v->pieces[id]);
    return rc == SW_OK ? put(v, after) : rc;
}

/* What is put around a text, and the ids of it. */
static sw_code put_template(vocab *v)
{
    const bool with_bos = v->adds_bos && v->bos >= 0, with_eos = v->adds_eos && v->eos >= 0;
    const int64_t ids[] = {with_bos ? v->bos : -1, with_eos && v->eos != v->bos ? v->eos : -1};
    bool is_first = true;
    sw_code rc;

    if (!with_bos && !with_eos) return put(v, "\"post_processor\":null,\n");
    rc = put(v, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    if (rc == SW_OK && with_bos)
        rc = put_special(v, v->bos, "{\"SpecialToken\":{\"id\":", ",\"type_id\":0}},");
    if (rc == SW_OK) rc = put(v, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    if (rc == SW_OK && with_eos)
        rc = put_special(v, v->eos, ",{\"SpecialToken\":{\"id\":", ",\"type_id\":0}}");
    if (rc == SW_OK) rc = put(v, "],\"pair\":[],\"special_tokens\":{");
    for (int i = 0; i < 2 && rc == SW_OK; i++) {
        if (ids[i] < 0) continue;
        if ((rc = put_special(v, ids[i], is_first ? "" : ",", ":{\"id\":")) != SW_OK ||
            (rc = put_special(v, ids[i], "", "")) != SW_OK ||
            (rc = sw_print_fmt(&v->buf, v->err, ",\"ids\":[%lld],\"tokens\":[",
                               (long long)ids[i])) != SW_OK)
            return rc;
        rc = put_special(v, ids[i], "", "]}");
        is_first = false;
    }
    return rc == SW_OK ? put(v, "}},\n") : rc;
}

static sw_code put_decoder(vocab *v)
{
    if (v->pre)
        return put(v, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                      "\"trim_offsets\":true,\"use_regex\":true},\n");
    return put(v, v->adds_prefix
               ? "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                 "\"pattern\":{\"String\":\"" SPACE "\"},\"content\":\" \"},{\"type\":"
                 "\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
                 "\"start\":1,\"stop\":0}]},\n"
               : "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                 "\"pattern\":{\"String\":\"" SPACE "\"},\"content\":\" \"},{\"type\":"
                 "\"ByteFallback\"},{\"type\":\"Fuse\"}]},\n");
}

static sw_code put_tokens(vocab *v)
{
    bool is_first = true;
    sw_code rc = put(v, "\"vocab\":{");

    for (int64_t i = 0; i < v->n && rc == SW_OK; i++) {
        const piece *p = &v->pieces[i];

        if (p->type == SW_GGUF_TOKEN_UNUSED || p->type == SW_GGUF_TOKEN_USER || !p->n_bytes ||
            (v->pre && p->type == SW_GGUF_TOKEN_CONTROL))
            continue;
        if (!is_first && (rc = put(v, ",\n")) != SW_OK) return rc;
        if ((rc = put_piece(v, p)) == SW_OK)
            rc = sw_print_fmt(&v->buf, v->err, ":%lld", (long long)i);
        is_first = false;
    }
    return rc == SW_OK ? put(v, "},\n\"merges\":[") : rc;
}

static sw_code put_listed_merges(vocab *v)
{
    const sw_gguf_value *merges = NULL;
    const unsigned char *at;
    sw_code rc = sw_gguf_array(&merges, v->g, GROUP "merges", SW_GGUF_TEXT, v->err);

    if (rc != SW_OK) return rc;
    if (!merges)
        return SW_FAIL(v->err, SW_E_FORMAT, "%s: key " GROUP "merges is missing", path_of(v));
    at = merges->data;
    for (uint64_t i = 0; i < merges->n && rc == SW_OK; i++) {
        uint64_t n = 0;
        const char *text = sw_gguf_next_text(&at, &n);

        if (i && (rc = put(v, ",\n")) != SW_OK) return rc;
        rc = sw_print_quote_n(&v->buf, text, (size_t)n, v->err);
    }
    return rc;
}

/* --- merges of sentencepiece -------------------------------------------------------------- */

typedef struct merge {
    double score;
    uint32_t left, right;
} merge;

static int compare_pieces(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    const uint64_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    const int order = memcmp(x->text, y->text, (size_t)n);

    if (order) return order;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

static int compare_merges(const void *a, const void *b)
{
    const merge *x = a, *y = b;

    if (x->score > y->score || x->score < y->score) return x->score > y->score ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

static const piece *find_piece(const piece *sorted, int64_t n, const char *text, uint64_t n_bytes)
{
    const piece key = {.text = text, .n_bytes = n_bytes};

    return n ? bsearch(&key, sorted, (size_t)n, sizeof key, compare_pieces) : NULL;
}

/* Every way to put every piece together; counts them while out is NULL. */
static int64_t list_merges(merge *out, const piece *sorted, int64_t n_sorted)
{
    int64_t n = 0;

    for (int64_t i = 0; i < n_sorted; i++) {
        const piece *whole = &sorted[i];

        for (uint64_t cut = 1; cut < whole->n_bytes; cut++) {
            const piece *left, *right;

            if (((unsigned char)whole->text[cut] & 0xc0) == 0x80) continue; /* inside a character */
            if (!(left = find_piece(sorted, n_sorted, whole->text, cut)) ||
                !(right = find_piece(sorted, n_sorted, whole->text + cut, whole->n_bytes - cut)))
                continue;
            if (out) out[n] = (merge){whole->score, left->id, right->id};
            n++;
        }
    }
    return n;
}

static sw_code put_found_merges(vocab *v)
{
    piece *sorted = NULL;
    merge *merges = NULL;
    int64_t n_sorted = 0, n;
    sw_code rc = SW_ARENA_TAKE(&sorted, &v->arena, v->n, v->err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < v->n; i++)
        if (v->pieces[i].type == SW_GGUF_TOKEN_NORMAL && v->pieces[i].n_bytes)
            sorted[n_sorted++] = v->pieces[i];
    if (n_sorted) qsort(sorted, (size_t)n_sorted, sizeof *sorted, compare_pieces);
    n = list_merges(NULL, sorted, n_sorted);
    if ((rc = SW_MEM_GET(&merges, n, "merges", v->err)) != SW_OK) return rc;
    (void)list_merges(merges, sorted, n_sorted);
    if (n) qsort(merges, (size_t)n, sizeof *merges, compare_merges);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if ((rc = put(v, i ? ",\n[" : "[")) != SW_OK ||
            (rc = put_piece(v, &v->pieces[merges[i].left])) != SW_OK ||
            (rc = put(v, ",")) != SW_OK ||
            (rc = put_piece(v, &v->pieces[merges[i].right])) != SW_OK)
            break;
        rc = put(v, "]");
    }
    sw_mem_put(merges);
    return rc;
}

/* -------------------------------------------------------------------------------- */

static sw_code put_model(vocab *v)
{
    sw_code rc = sw_print_fmt(&v->buf, v->err, "\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                              "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                              "\"fuse_unk\":%s,\"byte_fallback\":%s,\"ignore_merges\":%s,"
                              "\"unk_token\":", v->pre ? "false" : "true",
                              v->pre ? "false" : "true",
                              v->pre && v->pre->ignore_merges ? "true" : "false");

    if (rc == SW_OK && !v->pre && v->unk >= 0) rc = put_piece(v, &v->pieces[v->unk]);
    else if (rc == SW_OK) rc = put(v, "null");
    if (rc == SW_OK) rc = put(v, ",\n");
    if (rc == SW_OK) rc = put_tokens(v);
    if (rc == SW_OK) rc = v->pre ? put_listed_merges(v) : put_found_merges(v);
    return rc == SW_OK ? put(v, "]}}\n") : rc;
}

sw_code sw_gguf_tokenizer(char **json, size_t *n_bytes, const sw_gguf *g, sw_err *err)
{
    vocab v = {.g = g, .err = err};
    sw_code rc;

    if ((rc = read_all(&v)) != SW_OK) goto done;
    if ((rc = put(&v, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n")) != SW_OK ||
        (rc = put_added(&v)) != SW_OK || (rc = put_rules(&v)) != SW_OK ||
        (rc = put_template(&v)) != SW_OK || (rc = put_decoder(&v)) != SW_OK ||
        (rc = put_model(&v)) != SW_OK || (rc = sw_print_add(&v.buf, "", 1, err)) != SW_OK)
        goto done;
    *n_bytes = v.buf.n_bytes - 1;
    *json = v.buf.at;
    v.buf.at = NULL;
done:
    sw_mem_put(v.buf.at);
    sw_arena_free(&v.arena);
    return rc;
}

sw_code sw_gguf_tokenizer_of(char **json, size_t *n_bytes, const char *path, sw_err *err)
{
    sw_gguf *g = NULL;
    sw_code rc = sw_gguf_open(&g, path, err);

    if (rc == SW_OK) rc = sw_gguf_tokenizer(json, n_bytes, g, err);
    sw_gguf_close(g);
    return rc;
}

static sw_code put_named(vocab *v, const char *name, int64_t id)
{
    sw_code rc;

    if (id < 0) return SW_OK;
    if ((rc = sw_print_fmt(&v->buf, v->err, "  \"%s\": ", name)) != SW_OK ||
        (rc = put_piece(v, &v->pieces[id])) != SW_OK)
        return rc;
    return put(v, ",\n");
}

sw_code sw_gguf_tokenizer_config(char **json, const sw_gguf *g, sw_err *err)
{
    vocab v = {.g = g, .err = err};
    const char *chat = NULL;
    sw_code rc;

    if ((rc = read_all(&v)) != SW_OK ||
        (rc = sw_gguf_text(&chat, g, "tokenizer.chat_template", &v.arena, err)) != SW_OK ||
        (rc = put(&v, "{\n")) != SW_OK || (rc = put_named(&v, "bos_token", v.bos)) != SW_OK ||
        (rc = put_named(&v, "eos_token", v.eos)) != SW_OK ||
        (rc = put_named(&v, "unk_token", v.unk)) != SW_OK ||
        (rc = put_named(&v, "pad_token", v.pad)) != SW_OK)
        goto done;
    if (chat && ((rc = put(&v, "  \"chat_template\": ")) != SW_OK ||
                 (rc = sw_print_quote(&v.buf, chat, err)) != SW_OK ||
                 (rc = put(&v, ",\n")) != SW_OK))
        goto done;
    if ((rc = put(&v, "  \"clean_up_tokenization_spaces\": false,\n  \"tokenizer_class\": "
                      "\"PreTrainedTokenizerFast\"\n}\n")) != SW_OK ||
        (rc = sw_print_add(&v.buf, "", 1, err)) != SW_OK)
        goto done;
    *json = v.buf.at;
    v.buf.at = NULL;
done:
    sw_mem_put(v.buf.at);
    sw_arena_free(&v.arena);
    return rc;
}
