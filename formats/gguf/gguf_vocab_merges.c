/* gguf_vocab_merges.c - the merges of a GGUF's tokenizer: as listed, or found from scores.
 *
 * Sentencepiece merges the two neighbours that give the piece with the highest score, so every way
 * to put a piece together out of two others is a merge, in the order of the scores.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf_vocab_parts.h"

/* --- listed ------------------------------------------------------------------------------- */

static sw_code bad_merge(const sw_gguf_vocab *v, uint64_t at, const char *text, uint64_t n,
                         const char *why)
{
    return SW_FAIL(v->err, SW_E_FORMAT, "%s: " SW_GGUF_VOCAB "merges: merge %llu, \"%.*s\": %s",
                   sw_gguf_vocab_path(v), (unsigned long long)at, (int)(n < 60 ? n : 60), text,
                   why);
}

/* Write a merge that the file lists as "left right". It is cut at the first blank after the first
 * byte, as llama.cpp cuts it. Both sides and the joined text must be tokens: otherwise no reader of
 * tokenizer.json opens the file. */
static sw_code put_listed(sw_gguf_vocab *v, uint64_t at, const char *text, uint64_t n)
{
    const char *blank = n > 1 ? memchr(text + 1, ' ', (size_t)n - 1) : NULL;
    const sw_gguf_piece *left, *right;
    uint64_t n_left;
    char *whole = NULL;
    bool is_token;
    sw_code rc;

    if (!blank || blank + 1 == text + n) return bad_merge(v, at, text, n, "not two tokens");
    n_left = (uint64_t)(blank - text);
    left = sw_gguf_vocab_find(v, text, n_left);
    right = sw_gguf_vocab_find(v, blank + 1, n - n_left - 1);
    if (!left || !right) return bad_merge(v, at, text, n, "a side of it is no token");
    if ((rc = SW_MEM_GET(&whole, n, "merge", v->err)) != SW_OK) return rc;
    memcpy(whole, text, (size_t)n_left);
    memcpy(whole + n_left, blank + 1, (size_t)(n - n_left - 1));
    is_token = sw_gguf_vocab_find(v, whole, n - 1) != NULL;
    sw_mem_put(whole);
    if (!is_token) return bad_merge(v, at, text, n, "what it makes is no token");
    if (v->scheme == SW_GGUF_BYTES) return sw_print_quote_n(&v->buf, text, (size_t)n, v->err);
    if ((rc = sw_gguf_vocab_put(v, "[")) != SW_OK ||
        (rc = sw_gguf_vocab_put_piece(v, left)) != SW_OK ||
        (rc = sw_gguf_vocab_put(v, ",")) != SW_OK ||
        (rc = sw_gguf_vocab_put_piece(v, right)) != SW_OK)
        return rc;
    return sw_gguf_vocab_put(v, "]");
}

static sw_code put_all_listed(sw_gguf_vocab *v)
{
    const sw_gguf_value *merges = NULL;
    const unsigned char *at;
    sw_code rc = sw_gguf_array(&merges, v->g, SW_GGUF_VOCAB "merges", SW_GGUF_TEXT, v->err);

    if (rc != SW_OK) return rc;
    if (!merges)
        return SW_FAIL(v->err, SW_E_FORMAT, "%s: key " SW_GGUF_VOCAB "merges is missing",
                       sw_gguf_vocab_path(v));
    at = merges->data;
    for (uint64_t i = 0; i < merges->n && rc == SW_OK; i++) {
        uint64_t n = 0;
        const char *text = sw_gguf_next_text(&at, &n);

        if (i && (rc = sw_gguf_vocab_put(v, ",\n")) != SW_OK) return rc;
        rc = put_listed(v, i, text, n);
    }
    return rc;
}

/* --- found -------------------------------------------------------------------------------- */

typedef struct merge {
    double score;
    uint32_t left, right;
} merge;

static int compare_merges(const void *a, const void *b)
{
    const merge *x = a, *y = b;

    if (x->score > y->score || x->score < y->score) return x->score > y->score ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

/* Only such tokens are made by merges; others are found in the text as a whole or are single
 * bytes. */
static bool merges(const sw_gguf_piece *p)
{
    return p && (p->type == SW_GGUF_TOKEN_NORMAL || p->type == SW_GGUF_TOKEN_USER ||
                 p->type == SW_GGUF_TOKEN_UNUSED);
}

/* List every pair of pieces that joins to a piece. While out is NULL they are only counted. */
static int64_t list_merges(merge *out, const sw_gguf_vocab *v)
{
    int64_t n = 0;

    for (int64_t i = 0; i < v->n_texts; i++) {
        const sw_gguf_piece *whole = &v->by_text[i];

        if (!merges(whole)) continue;
        for (uint64_t cut = 1; cut < whole->n_bytes; cut++) {
            const sw_gguf_piece *left, *right;

            if (((unsigned char)whole->text[cut] & 0xc0) == 0x80) continue; /* inside a character */
            if (!merges(left = sw_gguf_vocab_find(v, whole->text, cut)) ||
                !merges(right = sw_gguf_vocab_find(v, whole->text + cut, whole->n_bytes - cut)))
                continue;
            if (out) out[n] = (merge){whole->score, left->id, right->id};
            n++;
        }
    }
    return n;
}

static sw_code put_found(sw_gguf_vocab *v)
{
    merge *found = NULL;
    int64_t n = list_merges(NULL, v);
    sw_code rc = SW_MEM_GET(&found, n, "merges", v->err);

    if (rc != SW_OK) return rc;
    (void)list_merges(found, v);
    if (n) qsort(found, (size_t)n, sizeof *found, compare_merges);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if ((rc = sw_gguf_vocab_put(v, i ? ",\n[" : "[")) != SW_OK ||
            (rc = sw_gguf_vocab_put_piece(v, &v->pieces[found[i].left])) != SW_OK ||
            (rc = sw_gguf_vocab_put(v, ",")) != SW_OK ||
            (rc = sw_gguf_vocab_put_piece(v, &v->pieces[found[i].right])) != SW_OK)
            break;
        rc = sw_gguf_vocab_put(v, "]");
    }
    sw_mem_put(found);
    return rc;
}

sw_code sw_gguf_vocab_put_merges(sw_gguf_vocab *v)
{
    return v->scheme == SW_GGUF_PIECES ? put_found(v) : put_all_listed(v);
}
