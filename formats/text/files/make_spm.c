/* make_spm.c - a sentencepiece model as tokenizer.json. See made.h.
 *
 * sentencepiece normalizes a whole text (character map, then blanks, then a prefix), takes the
 * symbols that the user defined out as they are, and encodes. Here the normalizer has steps for
 * all of that, and those symbols are added tokens that are looked for behind it. BPE merges by
 * score: every way to put a piece together of two others is a merge, best first.
 */
#include <math.h>
#include <string.h>

#include "formats/base/base64.h"
#include "formats/text/characters/charsmap.h"
#include "formats/text/files/made.h"
#include "formats/text/files/spm_model.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define REGEX_MAX_BYTES ((size_t)16384)

/* These classes have the ids of the model file; others move them, or add tokens in their code. */
typedef struct spm_class {
    const char *name;
    bool adds_bos, adds_eos; /* where the config does not say it */
} spm_class;

static const spm_class classes[] = {
    {"", false, false},
    {"LlamaTokenizer", true, false},
    {"CodeLlamaTokenizer", true, false},
    {"GemmaTokenizer", true, false},
    {"T5Tokenizer", false, true},
    {"BaichuanTokenizer", false, false},
    {"InternLMTokenizer", true, false},
    {"InternLM2Tokenizer", true, false},
    {"PreTrainedTokenizer", false, false},
};
/* These types tell the class where no tokenizer_config.json does. */
static const char *const llama_types[] = {"llama", "mistral", "mixtral", "gemma", "gemma2",
                                          "gemma3_text", "gemma3"};

typedef struct spm {
    sw_spm_model model;
    sw_made made;
    const spm_class *class;
    double least; /* the lowest score of a normal piece */
    int64_t n_user;
    bool has_inner_space; /* some piece has U+2581 behind its first character */
} spm;

static sw_code find_class(spm *s)
{
    const sw_token_config *c = s->made.config;
    const char *name = c->class_name;

    for (size_t i = 0; !*name && i < sizeof llama_types / sizeof *llama_types; i++)
        if (!strcmp(c->model_type, llama_types[i])) name = "LlamaTokenizer";
    for (size_t i = 0; i < sizeof classes / sizeof *classes && !s->class; i++)
        if (!strcmp(name, classes[i].name)) s->class = &classes[i];
    if (s->class) return SW_OK;
    return SW_FAIL(s->made.err, SW_E_UNSUPPORTED, "it is not known what tokenizer_class \"%.60s\" "
                   "makes of a sentencepiece model; put a tokenizer.json beside it, as "
                   "AutoTokenizer.save_pretrained of transformers writes it", name);
}

static sw_code cannot(const spm *s, const char *what)
{
    return SW_FAIL(s->made.err, SW_E_UNSUPPORTED, "a sentencepiece model with %s has no form as "
                   "tokenizer.json here; put one beside it, as AutoTokenizer.save_pretrained of "
                   "transformers writes it", what);
}

static sw_code check_model(spm *s)
{
    const sw_spm_model *m = &s->model;

    if (m->type != SW_SPM_BPE && m->type != SW_SPM_UNIGRAM)
        return cannot(s, "pieces that are words or characters");
    if (m->has_space_at_end) return cannot(s, "blanks at the ends of words");
    if (m->denormalizer.n) return cannot(s, "a denormalizer");
    s->least = INFINITY;
    for (int64_t i = 0; i < m->n; i++) {
        const sw_spm_piece *p = &m->pieces[i];
        if (p->kind == SW_SPM_USER) s->n_user++;
        if (p->kind == SW_SPM_UNUSED && m->type == SW_SPM_BPE)
            return cannot(s, "unused pieces among its merges");
        if (p->kind != SW_SPM_NORMAL) continue;
        if ((double)p->score < s->least) s->least = (double)p->score;
        if (p->text.n > 3 && memmem(p->text.at + 1, p->text.n - 1, SPACE, 3))
            s->has_inner_space = true;
    }
    if (isinf(s->least))
        return SW_FAIL(s->made.err, SW_E_FORMAT, "no normal piece among %lld", (long long)m->n);
    return find_class(s);
}

/* Refuse a symbol that the normalizer would change: it would not be found in texts, or be found
 * where it is not. */
static sw_code check_symbol(const spm *s, const sw_charsmap *map, const sw_spm_bytes *text)
{
    const char *at = (const char *)text->at;
    sw_text_buf mapped = {0};
    bool is_same;
    sw_code rc = SW_OK;

    if (s->model.drops_spaces && memchr(at, ' ', text->n))
        return cannot(s, "a user-defined symbol with blanks, of which it drops some");
    if (!map->n_units) return SW_OK;
    rc = sw_charsmap_run(map, &mapped, at, text->n, s->made.err);
    is_same = rc == SW_OK && mapped.n_bytes == text->n && !memcmp(mapped.bytes, at, text->n);
    sw_text_buf_free(&mapped);
    if (rc != SW_OK || is_same) return rc;
    return cannot(s, "a user-defined symbol that its character map changes");
}

/* In a unigram model only normal pieces are found in a text: any other has a score so low that it
 * is spelled with normal pieces instead. */
static double order_of(const spm *s, const sw_spm_piece *p)
{
    if (s->model.type == SW_SPM_BPE) return -(double)p->score;
    if (p->kind == SW_SPM_NORMAL || p->kind == SW_SPM_UNKNOWN) return (double)p->score;
    return (s->least < 0 ? 8 * s->least : s->least) - 100;
}

static sw_code add_pieces(spm *s)
{
    const sw_spm_model *m = &s->model;
    sw_charsmap map = {0};
    sw_code rc = sw_made_reserve(&s->made, m->n, m->n);

    if (rc == SW_OK && m->charsmap.n)
        rc = sw_charsmap_open(&map, m->charsmap.at, m->charsmap.n, s->made.err);
    for (int64_t i = 0; i < m->n && rc == SW_OK; i++) {
        const sw_spm_piece *p = &m->pieces[i];
        char *text = NULL;
        if ((rc = sw_arena_text(&text, &s->made.arena, (const char *)p->text.at, p->text.n,
                                s->made.err)) != SW_OK ||
            (rc = sw_made_piece(&s->made, text, p->text.n, i, order_of(s, p),
                                p->kind == SW_SPM_NORMAL)) != SW_OK)
            return rc;
        if (p->kind == SW_SPM_CONTROL || p->kind == SW_SPM_UNKNOWN || p->kind == SW_SPM_USER) {
            const sw_added_entry t = {.text = text, .id = i, .special = p->kind != SW_SPM_USER,
                                      .normalized = p->kind == SW_SPM_USER};
            if (p->kind == SW_SPM_USER && (rc = check_symbol(s, &map, &p->text)) != SW_OK)
                return rc;
            rc = sw_made_token(&s->made, &t);
        }
    }
    return rc == SW_OK ? sw_made_seal(&s->made) : rc;
}

/* --- what the normalizer does ------------------------------------------------------------- */

static sw_code put_step(sw_made *m, bool *is_first, const char *step)
{
    sw_code rc = *is_first ? SW_OK : sw_made_put(m, ",\n");

    *is_first = false;
    return rc == SW_OK ? sw_made_put(m, step) : rc;
}

static sw_code add_escaped(sw_text_buf *regex, const sw_spm_bytes *text, sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t i = 0; i < text->n && rc == SW_OK; i++) {
        const char c = (char)text->at[i];
        if (strchr("\\^$.|?*+()[]{}-#/&~", c) && c) rc = sw_text_buf_add(regex, "\\", 1, err);
        if (rc == SW_OK) rc = sw_text_buf_add(regex, &c, 1, err);
    }
    return rc;
}

/* Put a prefix before a text, but not before a text that is a symbol alone: added tokens are looked
 * for in what the normalizer leaves. */
static sw_code put_prefix(spm *s, bool *is_first)
{
    const char *with = s->model.escapes_spaces ? SPACE : " ";
    sw_made *m = &s->made;
    sw_text_buf regex = {0};
    sw_code rc;

    if (!s->n_user) {
        rc = put_step(m, is_first, "{\"type\":\"Prepend\",\"prepend\":");
        if (rc == SW_OK) rc = sw_print_quote(&m->buf, with, m->err);
        return rc == SW_OK ? sw_made_put(m, "}") : rc;
    }
    rc = sw_text_buf_add(&regex, "\\A(?!\\z", 7, m->err);
    for (int64_t i = 0; i < s->model.n && rc == SW_OK; i++) {
        if (s->model.pieces[i].kind != SW_SPM_USER) continue;
        if ((rc = sw_text_buf_add(&regex, "|", 1, m->err)) == SW_OK &&
            (rc = add_escaped(&regex, &s->model.pieces[i].text, m->err)) == SW_OK)
            rc = sw_text_buf_add(&regex, "\\z", 2, m->err);
        if (rc == SW_OK && regex.n_bytes > REGEX_MAX_BYTES)
            rc = cannot(s, "so many user-defined symbols and a prefix");
    }
    if (rc == SW_OK) rc = sw_text_buf_add(&regex, ")", 1, m->err);
    if (rc == SW_OK)
        rc = put_step(m, is_first, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":");
    if (rc == SW_OK) rc = sw_print_quote_n(&m->buf, regex.bytes, regex.n_bytes, m->err);
    if (rc == SW_OK) rc = sw_made_put(m, "},\"content\":");
    if (rc == SW_OK) rc = sw_print_quote(&m->buf, with, m->err);
    sw_text_buf_free(&regex);
    return rc == SW_OK ? sw_made_put(m, "}") : rc;
}

static sw_code put_charsmap(spm *s, bool *is_first)
{
    sw_made *m = &s->made;
    sw_code rc = put_step(m, is_first, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");

    if (rc == SW_OK)
        rc = sw_base64_add(&m->buf, s->model.charsmap.at, s->model.charsmap.n, m->err);
    return rc == SW_OK ? sw_made_put(m, "\"}") : rc;
}

/* Merge runs of blanks, and remove those at both ends; at the end a U+2581 of the text goes,
 * too. */
static sw_code put_dropped_spaces(spm *s, bool *is_first)
{
    sw_code rc = put_step(&s->made, is_first,
                          "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":"
                          "\" \"}");

    if (rc != SW_OK) return rc;
    return put_step(&s->made, is_first,
                    s->model.escapes_spaces
                        ? "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\A |[ " SPACE
                          "]+\\\\z\"},\"content\":\"\"}"
                        : "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\A | \\\\z\"},"
                          "\"content\":\"\"}");
}

static bool is_prefixed_once(const spm *s)
{
    return s->model.adds_prefix && s->model.escapes_spaces && s->made.config->is_legacy == 0;
}

static sw_code put_normalizer(spm *s)
{
    const sw_spm_model *m = &s->model;
    bool is_first = true;
    sw_code rc = sw_made_put(&s->made, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");

    if (rc == SW_OK && m->charsmap.n) rc = put_charsmap(s, &is_first);
    if (rc == SW_OK && m->drops_spaces) rc = put_dropped_spaces(s, &is_first);
    if (rc == SW_OK && m->adds_prefix && !is_prefixed_once(s)) rc = put_prefix(s, &is_first);
    if (rc == SW_OK && m->escapes_spaces)
        rc = put_step(&s->made, &is_first, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                                           "\"content\":\"" SPACE "\"}");
    return rc == SW_OK ? sw_made_put(&s->made, "]},\n") : rc;
}

/* A text may contain what looks like the name of a byte piece. It is cut in two, since a unigram
 * model would find the piece there, which sentencepiece does not. */
#define CUT_BYTE_NAMES                                                                       \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?<=<0x[0-9A-F][0-9A-F])(?=>)\"},"         \
    "\"behavior\":\"Isolated\",\"invert\":false}"
#define CUT_SPACES                                                                           \
    "{\"type\":\"Split\",\"pattern\":{\"String\":\"" SPACE "\"},\"behavior\":\"MergedWithNext\"," \
    "\"invert\":false}"

/* Words are cut at blanks where no piece contains one behind its start: this is faster and gives
 * the same ids. With "legacy": false a text has one prefix, and none behind special tokens. */
static sw_code put_words(spm *s)
{
    const bool is_unigram = s->model.type == SW_SPM_UNIGRAM;
    const bool cuts = is_unigram && !s->has_inner_space && s->model.escapes_spaces;
    bool is_first = true;
    sw_code rc = sw_made_put(&s->made, "\"pre_tokenizer\":");

    if (rc != SW_OK) return rc;
    if (!cuts && !is_prefixed_once(s) && !(is_unigram && s->model.has_byte_fallback))
        return sw_made_put(&s->made, "null,\n");
    rc = sw_made_put(&s->made, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    if (rc == SW_OK && is_prefixed_once(s))
        rc = put_step(&s->made, &is_first, "{\"type\":\"Metaspace\",\"replacement\":\"" SPACE
                                           "\",\"prepend_scheme\":\"first\",\"split\":false}");
    if (rc == SW_OK && is_unigram && s->model.has_byte_fallback)
        rc = put_step(&s->made, &is_first, CUT_BYTE_NAMES);
    if (rc == SW_OK && cuts) rc = put_step(&s->made, &is_first, CUT_SPACES);
    return rc == SW_OK ? sw_made_put(&s->made, "]},\n") : rc;
}

static sw_code put_decoder(spm *s)
{
    sw_code rc = sw_made_put(&s->made, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
                                       "\"Replace\",\"pattern\":{\"String\":\"" SPACE "\"},"
                                       "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
                                       "\"Fuse\"}");

    if (rc == SW_OK && s->model.adds_prefix)
        rc = sw_made_put(&s->made, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
                                   "\"stop\":0}");
    return rc == SW_OK ? sw_made_put(&s->made, "]},\n") : rc;
}

/* --- the model ---------------------------------------------------------------------------- */

static const sw_spm_piece *unknown_of(const spm *s, int64_t *id)
{
    for (*id = 0; *id < s->model.n; ++*id)
        if (s->model.pieces[*id].kind == SW_SPM_UNKNOWN) return &s->model.pieces[*id];
    return NULL;
}

static sw_code put_bpe(spm *s)
{
    sw_made *m = &s->made;
    int64_t id = 0;
    const sw_spm_piece *unk = unknown_of(s, &id);
    sw_code rc = sw_made_put(m, "\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                                "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                                "\"fuse_unk\":true,\"ignore_merges\":false,\"unk_token\":");

    if (rc == SW_OK)
        rc = unk ? sw_print_quote_n(&m->buf, (const char *)unk->text.at, unk->text.n, m->err)
                 : sw_made_put(m, "null");
    if (rc == SW_OK)
        rc = sw_print_fmt(&m->buf, m->err, ",\"byte_fallback\":%s,\n",
                          s->model.has_byte_fallback ? "true" : "false");
    if (rc == SW_OK) rc = sw_made_put_vocab(m);
    if (rc == SW_OK) rc = sw_made_put(m, ",\n");
    if (rc == SW_OK) rc = sw_made_put_merges(m);
    return rc == SW_OK ? sw_made_put(m, "}}\n") : rc;
}

/* A unigram vocabulary is a list, so that ids of added tokens must continue where it ends. */
static sw_code put_pieces(spm *s)
{
    sw_made *m = &s->made;
    sw_code rc = sw_made_put(m, "\"vocab\":[");

    for (int64_t i = s->model.n; i < m->n; i++)
        for (int64_t k = i + 1; k < m->n; k++)
            if (m->pieces[k].id < m->pieces[i].id) {
                const sw_piece swap = m->pieces[i];
                m->pieces[i] = m->pieces[k];
                m->pieces[k] = swap;
            }
    for (int64_t i = 0; i < m->n && rc == SW_OK; i++) {
        const sw_piece *p = &m->pieces[i];
        const double score = i < s->model.n ? p->order : s->least * 8 - 100;
        if (p->id != i)
            return SW_FAIL(m->err, SW_E_UNSUPPORTED, "added token \"%.60s\" has the id %lld, and "
                           "none has %lld; a unigram vocabulary has no holes", p->text,
                           (long long)p->id, (long long)i);
        if ((rc = sw_made_put(m, i ? ",\n[" : "[")) == SW_OK &&
            (rc = sw_print_quote_n(&m->buf, p->text, p->n_bytes, m->err)) == SW_OK)
            rc = sw_print_fmt(&m->buf, m->err, ",%.17g]", score);
    }
    return rc == SW_OK ? sw_made_put(m, "]") : rc;
}

static sw_code put_unigram(spm *s)
{
    sw_made *m = &s->made;
    int64_t id = 0;
    sw_code rc;

    if (!unknown_of(s, &id)) return cannot(s, "no unknown piece");
    rc = sw_print_fmt(&m->buf, m->err, "\"model\":{\"type\":\"Unigram\",\"unk_id\":%lld,"
                      "\"byte_fallback\":%s,\n", (long long)id,
                      s->model.has_byte_fallback ? "true" : "false");
    if (rc == SW_OK) rc = put_pieces(s);
    return rc == SW_OK ? sw_made_put(m, "}}\n") : rc;
}

static sw_code put_template(spm *s)
{
    const sw_token_config *c = s->made.config;
    const bool adds_bos = c->adds_bos < 0 ? s->class->adds_bos : c->adds_bos != 0;
    const bool adds_eos = c->adds_eos < 0 ? s->class->adds_eos : c->adds_eos != 0;
    char *bos = NULL, *eos = NULL;
    sw_code rc;

    if ((rc = sw_arena_text(&bos, &s->made.arena, (const char *)s->model.bos.at, s->model.bos.n,
                            s->made.err)) != SW_OK ||
        (rc = sw_arena_text(&eos, &s->made.arena, (const char *)s->model.eos.at, s->model.eos.n,
                            s->made.err)) != SW_OK)
        return rc;
    return sw_made_put_template(&s->made, adds_bos ? c->bos ? c->bos : bos : NULL,
                                adds_eos ? c->eos ? c->eos : eos : NULL, "null");
}

sw_code sw_make_from_spm(char **json, size_t *n_bytes, const unsigned char *model,
                         size_t model_bytes, const sw_token_config *config, sw_err *err)
{
    spm s = {.made = {.config = config, .err = err}};
    sw_code rc;

    if ((rc = sw_spm_read(&s.model, model, model_bytes, &s.made.arena, err)) == SW_OK &&
        (rc = check_model(&s)) == SW_OK && (rc = add_pieces(&s)) == SW_OK &&
        (rc = sw_made_put_head(&s.made)) == SW_OK && (rc = put_normalizer(&s)) == SW_OK &&
        (rc = put_words(&s)) == SW_OK && (rc = put_template(&s)) == SW_OK &&
        (rc = put_decoder(&s)) == SW_OK &&
        (rc = s.model.type == SW_SPM_BPE ? put_bpe(&s) : put_unigram(&s)) == SW_OK)
        rc = sw_made_take(json, n_bytes, &s.made);
    sw_made_free(&s.made);
    return rc;
}
