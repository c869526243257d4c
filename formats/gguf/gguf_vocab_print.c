/* gguf_vocab_print.c - the tokenizer of a GGUF as tokenizer.json. See gguf_model.h.
 *
 * Readers of tokenizer.json number an added token that model.vocab does not have anew, behind the
 * vocabulary, whatever id the file states. So every token that has a text is in model.vocab, and
 * those that are cut out of the text are in added_tokens besides.
 */
#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_vocab_parts.h"

#define SPACE SW_GGUF_SPACE
#define REPLACE_BLANK \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}"

static sw_code put(sw_gguf_vocab *v, const char *text) { return sw_gguf_vocab_put(v, text); }

static bool is_pieces(const sw_gguf_vocab *v)
{
    return v->scheme == SW_GGUF_PIECES || v->scheme == SW_GGUF_MERGED;
}

/* --- tokens ------------------------------------------------------------------------------- */

static bool has_text(const sw_gguf_piece *p, const char *text)
{
    return p->n_bytes == strlen(text) && !memcmp(p->text, text, (size_t)p->n_bytes);
}

/* The file cannot say which special tokens leave the blanks behind them in the text; these three
 * do. */
static bool strips_after(const sw_gguf_vocab *v, const sw_gguf_piece *p)
{
    return v->strips_after && !has_text(p, "<unk>") && !has_text(p, "<s>") &&
           !has_text(p, "<|endoftext|>");
}

static sw_code put_added(sw_gguf_vocab *v)
{
    bool is_first = true;
    sw_code rc = put(v, "\"added_tokens\":[");

    for (int64_t i = 0; i < v->n && rc == SW_OK; i++) {
        const sw_gguf_piece *p = &v->pieces[i];

        if (!sw_gguf_piece_is_added(p)) continue;
        rc = sw_print_fmt(&v->buf, v->err, "%s\n{\"id\":%lld,\"content\":", is_first ? "" : ",",
                          (long long)i);
        if (rc == SW_OK) rc = sw_gguf_vocab_put_piece(v, p);
        if (rc == SW_OK)
            rc = sw_print_fmt(&v->buf, v->err, ",\"single_word\":false,\"lstrip\":false,"
                              "\"rstrip\":%s,\"normalized\":false,\"special\":%s}",
                              strips_after(v, p) ? "true" : "false",
                              sw_gguf_piece_is_special(p) ? "true" : "false");
        is_first = false;
    }
    return rc == SW_OK ? put(v, "],\n") : rc;
}

/* Return whether the name is "[PAD123]": the embedding has a row for it, but no token. */
static bool is_filler(const sw_gguf_piece *p)
{
    char name[32];

    (void)snprintf(name, sizeof name, "[PAD%lu]", (unsigned long)p->id);
    return p->type == SW_GGUF_TOKEN_UNUSED && has_text(p, name);
}

static sw_code put_tokens(sw_gguf_vocab *v)
{
    bool is_first = true;
    sw_code rc = put(v, "\"vocab\":{");

    for (int64_t i = 0; i < v->n && rc == SW_OK; i++) {
        const sw_gguf_piece *p = &v->pieces[i];

        if (!p->n_bytes || is_filler(p)) continue;
        if (!is_first && (rc = put(v, ",\n")) != SW_OK) return rc;
        if ((rc = sw_gguf_vocab_put_piece(v, p)) == SW_OK)
            rc = sw_print_fmt(&v->buf, v->err, ":%lld", (long long)i);
        is_first = false;
    }
    return rc == SW_OK ? put(v, "},\n\"merges\":[") : rc;
}

/* --- unigram ------------------------------------------------------------------------------ */

/* Only scores of normal tokens mean something. Tokens that a user added are always found, and the
 * others never are. */
static double score_of(const sw_gguf_piece *p, double lowest)
{
    if (p->type == SW_GGUF_TOKEN_NORMAL) return p->score;
    return p->type == SW_GGUF_TOKEN_USER ? 0.0 : lowest;
}

static double lowest_score(const sw_gguf_vocab *v)
{
    double lowest = 0.0;

    for (int64_t i = 0; i < v->n; i++)
        if (v->pieces[i].type == SW_GGUF_TOKEN_NORMAL && v->pieces[i].score < lowest)
            lowest = v->pieces[i].score;
    return lowest;
}

/* Return whether all of <0x00> to <0xFF> are tokens. */
static bool has_bytes(const sw_gguf_vocab *v)
{
    for (int b = 0; b < 256; b++) {
        char name[8];

        (void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        if (!sw_gguf_vocab_find(v, name, 6)) return false;
    }
    return true;
}

/* The place in this list is the id, so that every id must have an entry. */
static sw_code put_unigram(sw_gguf_vocab *v)
{
    const double lowest = lowest_score(v);
    sw_code rc = put(v, "\"model\":{\"type\":\"Unigram\",\"unk_id\":");

    if (rc == SW_OK)
        rc = v->ids.unk >= 0 ? sw_print_fmt(&v->buf, v->err, "%lld", (long long)v->ids.unk)
                             : put(v, "null");
    if (rc == SW_OK)
        rc = sw_print_fmt(&v->buf, v->err, ",\"byte_fallback\":%s,\"vocab\":[",
                          has_bytes(v) ? "true" : "false");
    for (int64_t i = 0; i < v->n && rc == SW_OK; i++) {
        const sw_gguf_piece *p = &v->pieces[i];

        if ((rc = put(v, i ? ",\n[" : "\n[")) != SW_OK) return rc;
        rc = p->n_bytes ? sw_gguf_vocab_put_piece(v, p)
                        : sw_print_fmt(&v->buf, v->err, "\"[EMPTY_%lld]\"", (long long)i);
        if (rc == SW_OK) rc = sw_print_fmt(&v->buf, v->err, ",%.17g]", score_of(p, lowest));
    }
    return rc == SW_OK ? put(v, "]}}\n") : rc;
}

/* Three bytes become four characters of six bits; the last group is filled up. */
static sw_code put_base64(sw_gguf_vocab *v, const unsigned char *bytes, uint64_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    sw_code rc = SW_OK;

    for (uint64_t i = 0; i < n && rc == SW_OK; i += 3) {
        const unsigned b = n - i > 1 ? bytes[i + 1] : 0, c = n - i > 2 ? bytes[i + 2] : 0;
        const unsigned bits = (unsigned)bytes[i] << 16 | b << 8 | c;
        const char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                              n - i > 1 ? digits[bits >> 6 & 63] : '=',
                              n - i > 2 ? digits[bits & 63] : '='};
        rc = sw_print_add(&v->buf, four, 4, v->err);
    }
    return rc;
}

static sw_code put_unigram_rules(sw_gguf_vocab *v)
{
    const sw_gguf_value *map = sw_gguf_key(v->g, SW_GGUF_VOCAB "precompiled_charsmap");
    bool splits = true; /* no piece contains a blank after its first character */
    sw_code rc = put(v, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");

    if (map && (map->kind != SW_GGUF_ARRAY ||
                (map->elem_kind != SW_GGUF_U8 && map->elem_kind != SW_GGUF_I8)))
        return SW_FAIL(v->err, SW_E_FORMAT, "%s: key %s is no array of bytes",
                       sw_gguf_vocab_path(v), map->key);
    if (rc == SW_OK && map && map->n) {
        rc = put(v, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        if (rc == SW_OK) rc = put_base64(v, map->data, map->n);
        if (rc == SW_OK) rc = put(v, v->merges_blanks ? "\"}," : "\"}");
    }
    if (rc == SW_OK && v->merges_blanks)
        rc = put(v, "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},{\"type\":"
                    "\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"" SPACE "\"}");
    for (int64_t i = 0; i < v->n; i++) {
        const sw_gguf_piece *p = &v->pieces[i];
        if (p->type == SW_GGUF_TOKEN_NORMAL && p->n_bytes > 3 &&
            memmem(p->text + 3, (size_t)p->n_bytes - 3, SPACE, 3))
            splits = false;
    }
    if (rc != SW_OK) return rc;
    return sw_print_fmt(&v->buf, v->err, "]},\n\"pre_tokenizer\":{\"type\":\"Metaspace\","
                        "\"replacement\":\"" SPACE "\",\"prepend_scheme\":\"%s\",\"split\":%s},\n",
                        v->adds_prefix ? "always" : "never", splits ? "true" : "false");
}

/* --- rules -------------------------------------------------------------------------------- */

static sw_code put_rules(sw_gguf_vocab *v)
{
    sw_code rc;

    if (v->scheme == SW_GGUF_UNIGRAM) return put_unigram_rules(v);
    if (is_pieces(v))
        return put(v, v->adds_prefix
                   ? "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                     "\"prepend\":\"" SPACE "\"}," REPLACE_BLANK "]},\n\"pre_tokenizer\":null,\n"
                   : "\"normalizer\":" REPLACE_BLANK ",\n\"pre_tokenizer\":null,\n");
    rc = put(v, v->pre->flags & SW_GGUF_PRE_NFC ? "\"normalizer\":{\"type\":\"NFC\"},\n"
                                                : "\"normalizer\":null,\n");
    if (rc == SW_OK) rc = put(v, "\"pre_tokenizer\":");
    if (rc == SW_OK) rc = sw_gguf_pre_print(&v->buf, v->pre, v->err);
    return rc == SW_OK ? put(v, ",\n") : rc;
}

static sw_code put_special(sw_gguf_vocab *v, int64_t id, const char *before, const char *after)
{
    sw_code rc = put(v, before);

    if (rc == SW_OK) rc = sw_gguf_vocab_put_piece(v, &v->pieces[id]);
    return rc == SW_OK ? put(v, after) : rc;
}

/* Write what is put around a text, with the ids of these tokens. */
static sw_code put_template(sw_gguf_vocab *v)
{
    const int64_t bos = v->ids.bos, eos = v->ids.eos;
    const bool with_bos = v->adds_bos && bos >= 0, with_eos = v->adds_eos && eos >= 0;
    const int64_t ids[] = {with_bos ? bos : -1, with_eos && (!with_bos || eos != bos) ? eos : -1};
    bool is_first = true;
    sw_code rc;

    if (!with_bos && !with_eos) return put(v, "\"post_processor\":null,\n");
    rc = put(v, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    if (rc == SW_OK && with_bos)
        rc = put_special(v, bos, "{\"SpecialToken\":{\"id\":", ",\"type_id\":0}},");
    if (rc == SW_OK) rc = put(v, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    if (rc == SW_OK && with_eos)
        rc = put_special(v, eos, ",{\"SpecialToken\":{\"id\":", ",\"type_id\":0}}");
    if (rc == SW_OK) rc = put(v, "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
                                 "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
                                 "\"special_tokens\":{");
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

static sw_code put_decoder(sw_gguf_vocab *v)
{
    if (v->scheme == SW_GGUF_BYTES)
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

static sw_code put_model(sw_gguf_vocab *v)
{
    const char *pieces = is_pieces(v) ? "true" : "false";
    const bool is_whole = v->pre && (v->pre->flags & SW_GGUF_PRE_WHOLE);
    sw_code rc;

    if (v->scheme == SW_GGUF_UNIGRAM) return put_unigram(v);
    rc = sw_print_fmt(&v->buf, v->err, "\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                      "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                      "\"fuse_unk\":%s,\"byte_fallback\":%s,\"ignore_merges\":%s,\"unk_token\":",
                      pieces, pieces, is_whole ? "true" : "false");
    if (rc == SW_OK && is_pieces(v) && v->ids.unk >= 0)
        rc = sw_gguf_vocab_put_piece(v, &v->pieces[v->ids.unk]);
    else if (rc == SW_OK)
        rc = put(v, "null");
    if (rc == SW_OK) rc = put(v, ",\n");
    if (rc == SW_OK) rc = put_tokens(v);
    if (rc == SW_OK) rc = sw_gguf_vocab_put_merges(v);
    return rc == SW_OK ? put(v, "]}}\n") : rc;
}

sw_code sw_gguf_tokenizer(char **json, size_t *n_bytes, const sw_gguf *g, sw_err *err)
{
    sw_gguf_vocab v = {.g = g, .err = err};
    sw_code rc;

    if ((rc = sw_gguf_vocab_read(&v)) != SW_OK ||
        (rc = put(&v, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n")) != SW_OK ||
        (rc = put_added(&v)) != SW_OK || (rc = put_rules(&v)) != SW_OK ||
        (rc = put_template(&v)) != SW_OK || (rc = put_decoder(&v)) != SW_OK ||
        (rc = put_model(&v)) != SW_OK || (rc = sw_print_add(&v.buf, "", 1, err)) != SW_OK)
        goto done;
    *n_bytes = v.buf.n_bytes - 1;
    *json = v.buf.at;
    v.buf.at = NULL;
done:
    sw_gguf_vocab_free(&v);
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
