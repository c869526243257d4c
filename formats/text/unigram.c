/* unigram.c - see unigram.h. */
#include "formats/text/unigram.h"

#include <math.h>
#include <string.h>

#include "formats/base/json.h"

#define UNK_PENALTY 10.0

struct sw_unigram_node { /* the best spelling of the word up to a byte */
    double score;
    size_t begin; /* where its last piece begins */
    uint32_t id;  /* of this piece */
    bool is_reached;
};

static sw_code read_scores(sw_unigram *u, const cJSON *list, sw_err *err)
{
    const cJSON *entry;
    double least = INFINITY;
    int64_t id = 0;

    cJSON_ArrayForEach(entry, list)
    {
        const cJSON *score = entry->child->next; /* the vocabulary has checked both */
        if (!isfinite(score->valuedouble))
            return SW_FAIL(err, SW_E_FORMAT, "model.vocab[%lld]: score of %g", (long long)id,
                           score->valuedouble);
        u->scores[id++] = score->valuedouble;
        if (score->valuedouble < least) least = score->valuedouble;
    }
    u->unk_score = least - UNK_PENALTY;
    return SW_OK;
}

static int compare_texts(const sw_vocab *v, uint32_t a, uint32_t b)
{
    const sw_token_text *x = &v->by_id[a], *y = &v->by_id[b];
    int order = memcmp(x->text, y->text, x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes);

    if (order) return order;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* This is a heap sort, since qsort cannot pass the vocabulary to its comparison. */
static void sift(uint32_t *ids, size_t at, size_t n, const sw_vocab *v)
{
    const uint32_t moving = ids[at];

    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && compare_texts(v, ids[child], ids[child + 1]) < 0) child++;
        if (compare_texts(v, moving, ids[child]) >= 0) break;
        ids[at] = ids[child];
    }
    ids[at] = moving;
}

static void sort_pieces(sw_unigram *u)
{
    const size_t n = (size_t)u->n_pieces;
    int64_t at = 0;

    for (size_t i = 0; i < n; i++) u->sorted[i] = (uint32_t)i;
    for (size_t i = n / 2; i-- > 0;) sift(u->sorted, i, n, u->vocab);
    for (size_t i = n; i-- > 1;) {
        const uint32_t last = u->sorted[0];
        u->sorted[0] = u->sorted[i];
        u->sorted[i] = last;
        sift(u->sorted, 0, i, u->vocab);
    }
    for (int byte = 0; byte <= 256; byte++) {
        while (at < u->n_pieces &&
               (!u->vocab->by_id[u->sorted[at]].n_bytes ||
                (unsigned char)u->vocab->by_id[u->sorted[at]].text[0] < byte))
            at++;
        u->first_of[byte] = at;
    }
}

sw_code sw_unigram_parse(sw_unigram *out, const cJSON *model, const sw_vocab *vocab, sw_err *err)
{
    const cJSON *list = sw_json_member(model, "vocab");
    int64_t unk_id = -1;
    sw_code rc;

    out->vocab = vocab;
    out->n_pieces = cJSON_GetArraySize(list);
    rc = sw_json_int(&unk_id, model, "unk_id", 0, out->n_pieces - 1, err);
    if (rc != SW_OK) {
        sw_err_prefix(err, "model");
        return rc;
    }
    if (unk_id < 0)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "unigram model without an \"unk_id\"");
    out->unk_id = (uint32_t)unk_id;
    if ((rc = SW_MEM_GET(&out->scores, out->n_pieces, "scores", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&out->sorted, out->n_pieces, "pieces", err)) != SW_OK) return rc;
    if ((rc = read_scores(out, list, err)) != SW_OK) return rc;
    sort_pieces(out);
    return SW_OK;
}

void sw_unigram_free(sw_unigram *u)
{
    sw_mem_put(u->scores);
    sw_mem_put(u->sorted);
    sw_mem_put(u->nodes);
    sw_ids_free(&u->path);
    memset(u, 0, sizeof *u);
}

/* Find the first piece of the sorted [low, high) whose byte at `depth` is at least `byte`. */
static int64_t lower_bound(const sw_unigram *u, int64_t low, int64_t high, size_t depth,
                           unsigned byte)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((unsigned char)u->vocab->by_id[u->sorted[middle]].text[depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void reach(sw_unigram_node *node, double score, size_t begin, uint32_t id)
{
    if (node->is_reached && score <= node->score) return;
    *node = (sw_unigram_node){score, begin, id, true};
}

/* Try every piece that begins at `at`, and the character alone where no piece spells it. In sorted
 * order a piece precedes those that begin with it, so that each byte narrows the range. */
static size_t extend(sw_unigram *u, const char *word, size_t at, size_t n_bytes, size_t n_char)
{
    const double before = u->nodes[at].score;
    unsigned byte = (unsigned char)word[at];
    int64_t low = u->first_of[byte], high = u->first_of[byte + 1];
    bool has_char = false;
    size_t depth = 1;

    for (; low < high; depth++) {
        const uint32_t id = u->sorted[low];
        if (u->vocab->by_id[id].n_bytes == depth) {
            reach(&u->nodes[at + depth], before + u->scores[id], at, id);
            has_char |= depth == n_char;
            low++;
        }
        if (at + depth == n_bytes) break;
        byte = (unsigned char)word[at + depth];
        low = lower_bound(u, low, high, depth, byte);
        high = lower_bound(u, low, high, depth, byte + 1);
    }
    if (!has_char) reach(&u->nodes[at + n_char], before + u->unk_score, at, u->unk_id);
    return depth;
}

/* A run of unknown characters is one text: it becomes a piece, or its bytes, or the unknown token.
 * Ids go to `path` from the last to the first; `later` has the unknown text that follows. */
static sw_code push_unknown(sw_unigram *u, const char *text, size_t n_bytes, sw_unspelled *later,
                            sw_err *err)
{
    sw_unspelled here = {0};
    const uint32_t id = sw_vocab_find_model(u->vocab, text, n_bytes);
    bool has_all = u->byte_ids != NULL;
    sw_code rc = SW_OK;

    if (id != SW_NO_TOKEN) return sw_ids_push(&u->path, id, err);
    for (size_t i = 0; i < n_bytes && has_all; i++)
        has_all = u->byte_ids[(unsigned char)text[i]] != SW_NO_TOKEN;
    if (has_all) {
        for (size_t i = n_bytes; i-- > 0 && rc == SW_OK;)
            rc = sw_ids_push(&u->path, u->byte_ids[(unsigned char)text[i]], err);
        return rc;
    }
    for (size_t at = 0, next; at < n_bytes; at = next) {
        uint32_t c;
        next = sw_utf8_next(&c, text, at);
        sw_unspelled_add(&here, text + at, next - at, false, false);
    }
    sw_unspelled_join(&here, later);
    *later = here;
    return sw_ids_push(&u->path, u->unk_id, err);
}

static sw_code walk_back(sw_unigram *u, const char *word, size_t n_bytes, sw_err *err)
{
    sw_unspelled unspelled = {0};
    size_t end = n_bytes;
    sw_code rc = SW_OK;

    u->path.n = 0;
    while (end && rc == SW_OK) {
        size_t begin = u->nodes[end].begin;
        if (u->nodes[end].id != u->unk_id) {
            rc = sw_ids_push(&u->path, u->nodes[end].id, err);
        } else {
            while (begin && u->nodes[begin].id == u->unk_id) begin = u->nodes[begin].begin;
            rc = push_unknown(u, word + begin, end - begin, &unspelled, err);
        }
        end = begin;
    }
    sw_unspelled_join(u->unspelled, &unspelled);
    return rc;
}

sw_code sw_unigram_encode(sw_unigram *u, sw_ids *out, const char *word, size_t n_bytes,
                          sw_growth *growth, sw_err *err)
{
    void *nodes = u->nodes;
    sw_code rc = sw_text_grow(&nodes, &u->nodes_capacity, n_bytes + 1, sizeof *u->nodes, err);

    u->nodes = nodes;
    if (rc != SW_OK) return rc;
    memset(u->nodes, 0, (n_bytes + 1) * sizeof *u->nodes);
    for (size_t at = 0; at < n_bytes;) {
        uint32_t c;
        const size_t next = sw_utf8_next(&c, word, at);
        rc = sw_growth_search(growth, extend(u, word, at, n_bytes, next - at), err);
        if (rc != SW_OK) {
            sw_err_prefix(err, "model (Unigram)");
            return rc;
        }
        at = next;
    }
    if ((rc = walk_back(u, word, n_bytes, err)) != SW_OK) return rc;
    for (int64_t i = u->path.n; i-- > 0 && rc == SW_OK;)
        rc = sw_ids_push(out, u->path.ids[i], err);
    return rc;
}
