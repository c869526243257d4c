/* made.c - see made.h. */
#include "formats/text/files/made.h"

#include <stdlib.h>
#include <string.h>

#include "formats/text/vocab.h"

#define MERGES_MAX ((int64_t)1 << 22)

sw_code sw_made_reserve(sw_made *m, int64_t n_pieces, int64_t n_added)
{
    const int64_t n_config = m->config ? m->config->n_tokens : 0;
    sw_code rc;

    if (n_pieces > SW_PIECES_MAX || n_added > SW_PIECES_MAX)
        return SW_FAIL(m->err, SW_E_FORMAT, "a vocabulary of %lld", (long long)n_pieces);
    m->added_room = n_added + n_config;
    m->room = n_pieces + m->added_room;
    if ((rc = SW_ARENA_TAKE(&m->pieces, &m->arena, m->room, m->err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&m->sorted, &m->arena, m->room, m->err)) != SW_OK)
        return rc;
    if ((rc = SW_ARENA_TAKE(&m->added, &m->arena, m->added_room, m->err)) != SW_OK) return rc;
    if (n_config) memcpy(m->added, m->config->tokens, (size_t)n_config * sizeof *m->added);
    m->n_added = n_config;
    return SW_OK;
}

sw_code sw_made_piece(sw_made *m, const char *text, size_t n_bytes, int64_t id, double order,
                      bool can_merge)
{
    size_t bad_at = 0;

    if (m->n == m->room) return SW_FAIL(m->err, SW_E_BUG, "more pieces than were reserved");
    if (!n_bytes || n_bytes > SW_PIECE_MAX_BYTES || memchr(text, 0, n_bytes) ||
        !sw_utf8_is_valid(text, n_bytes, &bad_at))
        return SW_FAIL(m->err, SW_E_FORMAT, "token %lld of %zu bytes is not 1 to %zu bytes of "
                       "UTF-8", (long long)id, n_bytes, SW_PIECE_MAX_BYTES);
    if (id < 0 || id >= SW_TOKEN_ID_LIMIT)
        return SW_FAIL(m->err, SW_E_FORMAT, "token \"%.*s\" has the id %lld",
                       (int)(n_bytes < 60 ? n_bytes : 60), text, (long long)id);
    m->pieces[m->n++] = (sw_piece){text, n_bytes, id, order, can_merge};
    if (id >= m->n_ids) m->n_ids = id + 1;
    return SW_OK;
}

sw_code sw_made_token(sw_made *m, const sw_added_entry *token)
{
    if (m->n_added == m->added_room) return SW_FAIL(m->err, SW_E_BUG, "more tokens than reserved");
    m->added[m->n_added++] = *token;
    return SW_OK;
}

static int compare_pieces(const void *a, const void *b)
{
    const sw_piece *x = a, *y = b;
    const size_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    const int order = memcmp(x->text, y->text, n);

    if (order) return order;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

static int compare_ids(const void *a, const void *b)
{
    const sw_added_entry *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

const sw_piece *sw_made_find(const sw_made *m, const char *text, size_t n_bytes)
{
    const sw_piece key = {.text = text, .n_bytes = n_bytes};

    return m->n ? bsearch(&key, m->sorted, (size_t)m->n, sizeof key, compare_pieces) : NULL;
}

/* Sort the pieces by text, and check that every text and every id is there once. */
static sw_code sort_pieces(sw_made *m)
{
    const sw_piece **by_id = NULL;
    sw_code rc = SW_MEM_GET(&by_id, m->n_ids, "ids", m->err);

    if (rc != SW_OK) return rc;
    if (m->n) memcpy(m->sorted, m->pieces, (size_t)m->n * sizeof *m->sorted);
    if (m->n) qsort(m->sorted, (size_t)m->n, sizeof *m->sorted, compare_pieces);
    for (int64_t i = 0; i < m->n && rc == SW_OK; i++) {
        const sw_piece *p = &m->sorted[i];
        if (i && compare_pieces(p - 1, p) == 0)
            rc = SW_FAIL(m->err, SW_E_FORMAT, "token \"%.*s\" has the ids %lld and %lld",
                         (int)(p->n_bytes < 60 ? p->n_bytes : 60), p->text, (long long)p[-1].id,
                         (long long)p->id);
        else if (by_id[p->id])
            rc = SW_FAIL(m->err, SW_E_FORMAT, "tokens \"%.*s\" and \"%.*s\" share the id %lld",
                         (int)(by_id[p->id]->n_bytes < 60 ? by_id[p->id]->n_bytes : 60),
                         by_id[p->id]->text, (int)(p->n_bytes < 60 ? p->n_bytes : 60), p->text,
                         (long long)p->id);
        else by_id[p->id] = p;
    }
    sw_mem_put(by_id);
    return rc;
}

static sw_code settle_token(sw_made *m, sw_added_entry *t, int64_t n_known)
{
    const size_t n_bytes = strlen(t->text);
    const sw_piece key = {.text = t->text, .n_bytes = n_bytes}, *p = NULL;

    if (n_known) p = bsearch(&key, m->sorted, (size_t)n_known, sizeof key, compare_pieces);
    if (p && t->id >= 0 && t->id != p->id)
        return SW_FAIL(m->err, SW_E_FORMAT, "token \"%.60s\" has the ids %lld and %lld", t->text,
                       (long long)p->id, (long long)t->id);
    if (p) t->id = p->id;
    if (p || t->id < 0) return SW_OK;
    return sw_made_piece(m, t->text, n_bytes, t->id, 0, false);
}

/* Keep the first token of each id. A token without an id is dropped; one whose id has no piece
 * becomes a piece. */
static sw_code settle_tokens(sw_made *m)
{
    const int64_t n_known = m->n;
    bool *is_seen = NULL;
    int64_t n = 0;
    sw_code rc = SW_MEM_GET(&is_seen, SW_TOKEN_ID_LIMIT, "added tokens", m->err);

    for (int64_t i = 0; i < m->n_added && rc == SW_OK; i++) {
        sw_added_entry t = m->added[i];
        if ((rc = settle_token(m, &t, n_known)) != SW_OK || t.id < 0 || is_seen[t.id]) continue;
        is_seen[t.id] = true;
        m->added[n++] = t;
    }
    m->n_added = n;
    sw_mem_put(is_seen);
    return rc;
}

sw_code sw_made_seal(sw_made *m)
{
    sw_code rc;

    if ((rc = sort_pieces(m)) != SW_OK || (rc = settle_tokens(m)) != SW_OK) return rc;
    if ((rc = sort_pieces(m)) != SW_OK) return rc;
    if (m->n_added) qsort(m->added, (size_t)m->n_added, sizeof *m->added, compare_ids);
    return SW_OK;
}

/* --- printing ----------------------------------------------------------------------------- */

sw_code sw_made_put(sw_made *m, const char *text)
{
    return sw_print_add(&m->buf, text, strlen(text), m->err);
}

static sw_code put_piece(sw_made *m, const sw_piece *p)
{
    return sw_print_quote_n(&m->buf, p->text, p->n_bytes, m->err);
}

static const char *word_of(bool value) { return value ? "true" : "false"; }

sw_code sw_made_put_head(sw_made *m)
{
    sw_code rc = sw_made_put(m, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n"
                                "\"added_tokens\":[");

    for (int64_t i = 0; i < m->n_added && rc == SW_OK; i++) {
        const sw_added_entry *t = &m->added[i];
        rc = sw_print_fmt(&m->buf, m->err, "%s\n{\"id\":%lld,\"content\":", i ? "," : "",
                          (long long)t->id);
        if (rc == SW_OK) rc = sw_print_quote(&m->buf, t->text, m->err);
        if (rc == SW_OK)
            rc = sw_print_fmt(&m->buf, m->err, ",\"single_word\":%s,\"lstrip\":%s,\"rstrip\":%s,"
                              "\"normalized\":%s,\"special\":%s}", word_of(t->single_word),
                              word_of(t->lstrip), word_of(t->rstrip), word_of(t->normalized),
                              word_of(t->special));
    }
    return rc == SW_OK ? sw_made_put(m, "],\n") : rc;
}

static sw_code put_quoted(sw_made *m, const char *before, const char *text, const char *after)
{
    sw_code rc = sw_made_put(m, before);

    if (rc == SW_OK) rc = sw_print_quote(&m->buf, text, m->err);
    return rc == SW_OK ? sw_made_put(m, after) : rc;
}

static sw_code put_ids(sw_made *m, const char *text, bool is_first)
{
    const sw_piece *p = sw_made_find(m, text, strlen(text));
    sw_code rc = put_quoted(m, is_first ? "" : ",", text, ":{\"id\":");

    if (rc != SW_OK || (rc = put_quoted(m, "", text, "")) != SW_OK ||
        (rc = sw_print_fmt(&m->buf, m->err, ",\"ids\":[%lld],\"tokens\":[",
                           p ? (long long)p->id : -1)) != SW_OK)
        return rc;
    return put_quoted(m, "", text, "]}");
}

sw_code sw_made_put_template(sw_made *m, const char *bos, const char *eos, const char *plain)
{
    sw_code rc = sw_made_put(m, "\"post_processor\":");

    if (bos && !sw_made_find(m, bos, strlen(bos))) bos = NULL;
    if (eos && !sw_made_find(m, eos, strlen(eos))) eos = NULL;
    if (rc != SW_OK) return rc;
    if (!bos && !eos)
        return (rc = sw_made_put(m, plain)) == SW_OK ? sw_made_put(m, ",\n") : rc;
    rc = sw_made_put(m, "{\"type\":\"TemplateProcessing\",\"single\":[");
    if (rc == SW_OK && bos)
        rc = put_quoted(m, "{\"SpecialToken\":{\"id\":", bos, ",\"type_id\":0}},");
    if (rc == SW_OK) rc = sw_made_put(m, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    if (rc == SW_OK && eos)
        rc = put_quoted(m, ",{\"SpecialToken\":{\"id\":", eos, ",\"type_id\":0}}");
    if (rc == SW_OK)
        rc = sw_made_put(m, "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":"
                            "{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{");
    if (rc == SW_OK && bos) rc = put_ids(m, bos, true);
    if (rc == SW_OK && eos && !(bos && !strcmp(bos, eos))) rc = put_ids(m, eos, !bos);
    return rc == SW_OK ? sw_made_put(m, "}},\n") : rc;
}

sw_code sw_made_put_vocab(sw_made *m)
{
    sw_code rc = sw_made_put(m, "\"vocab\":{");

    for (int64_t i = 0; i < m->n && rc == SW_OK; i++) {
        if (i && (rc = sw_made_put(m, ",\n")) != SW_OK) return rc;
        if ((rc = put_piece(m, &m->pieces[i])) == SW_OK)
            rc = sw_print_fmt(&m->buf, m->err, ":%lld", (long long)m->pieces[i].id);
    }
    return rc == SW_OK ? sw_made_put(m, "}") : rc;
}

typedef struct merge {
    double order;
    const sw_piece *left, *right;
} merge;

static int compare_merges(const void *a, const void *b)
{
    const merge *x = a, *y = b;

    if (x->order < y->order || x->order > y->order) return x->order < y->order ? -1 : 1;
    if (x->left->id != y->left->id) return x->left->id < y->left->id ? -1 : 1;
    return x->right->id < y->right->id ? -1 : x->right->id > y->right->id;
}

/* List every pair of pieces that joins to a piece. While out is NULL they are only counted. */
static int64_t list_merges(const sw_made *m, merge *out)
{
    int64_t n = 0;

    for (int64_t i = 0; i < m->n; i++) {
        const sw_piece *p = &m->sorted[i];
        for (size_t cut = 1; p->can_merge && cut < p->n_bytes; cut++) {
            const sw_piece *left, *right;
            if (((unsigned char)p->text[cut] & 0xC0) == 0x80) continue; /* inside a character */
            if (!(left = sw_made_find(m, p->text, cut)) || !left->can_merge ||
                !(right = sw_made_find(m, p->text + cut, p->n_bytes - cut)) || !right->can_merge)
                continue;
            if (out) out[n] = (merge){p->order, left, right};
            n++;
        }
    }
    return n;
}

sw_code sw_made_put_merges(sw_made *m)
{
    const int64_t n = list_merges(m, NULL);
    merge *merges = NULL;
    sw_code rc;

    if (n > MERGES_MAX)
        return SW_FAIL(m->err, SW_E_FORMAT, "pieces that merge in %lld ways", (long long)n);
    if ((rc = SW_MEM_GET(&merges, n, "merges", m->err)) != SW_OK) return rc;
    (void)list_merges(m, merges);
    if (n) qsort(merges, (size_t)n, sizeof *merges, compare_merges);
    rc = sw_made_put(m, "\"merges\":[");
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        if ((rc = sw_made_put(m, i ? ",\n[" : "[")) != SW_OK ||
            (rc = put_piece(m, merges[i].left)) != SW_OK || (rc = sw_made_put(m, ",")) != SW_OK ||
            (rc = put_piece(m, merges[i].right)) != SW_OK)
            break;
        rc = sw_made_put(m, "]");
    }
    sw_mem_put(merges);
    return rc == SW_OK ? sw_made_put(m, "]") : rc;
}

sw_code sw_made_take(char **json, size_t *n_bytes, sw_made *m)
{
    sw_code rc = sw_print_add(&m->buf, "", 1, m->err);

    if (rc != SW_OK) return rc;
    *json = m->buf.at;
    *n_bytes = m->buf.n_bytes - 1;
    memset(&m->buf, 0, sizeof m->buf);
    return SW_OK;
}

void sw_made_free(sw_made *m)
{
    sw_mem_put(m->buf.at);
    sw_arena_free(&m->arena);
    memset(m, 0, sizeof *m);
}
