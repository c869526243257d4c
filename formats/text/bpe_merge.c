/* bpe_merge.c - see bpe.h.
 *
 * Long words: a doubly linked list of symbols and a binary heap of candidate pairs. Entries
 * go stale when a neighbour merges first; one is recognised by its pair no longer merging
 * into the token it was pushed for.
 */
#include "formats/text/bpe.h"

#include <string.h>

typedef struct heap {
    sw_bpe_candidate *items;
    size_t n;
} heap;

static bool comes_before(const sw_bpe_candidate *a, const sw_bpe_candidate *b)
{
    return a->order != b->order ? a->order < b->order : a->merged < b->merged;
}

static void sift_down(heap *h, size_t at)
{
    sw_bpe_candidate moving = h->items[at];

    for (size_t child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && comes_before(&h->items[child + 1], &h->items[child])) child++;
        if (!comes_before(&h->items[child], &moving)) break;
        h->items[at] = h->items[child];
    }
    h->items[at] = moving;
}

static sw_bpe_candidate take_first(heap *h)
{
    sw_bpe_candidate first = h->items[0];

    h->items[0] = h->items[--h->n];
    if (h->n) sift_down(h, 0);
    return first;
}

static void insert(heap *h, sw_bpe_candidate item)
{
    size_t at = h->n++;

    while (at && comes_before(&item, &h->items[(at - 1) / 2])) {
        h->items[at] = h->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->items[at] = item;
}

static bool candidate_at(const sw_bpe *bpe, size_t left, size_t right, sw_bpe_candidate *out)
{
    const sw_merge *merge = sw_vocab_merge(&bpe->vocab, bpe->symbols[left].id,
                                           bpe->symbols[right].id);

    if (!merge) return false;
    out->order = (uint64_t)(merge->rank_plus_one - 1) << 32 | left;
    out->merged = merge->merged;
    return true;
}

/* Link the symbols, and make a heap of all pairs that can be merged. */
static void seed(sw_bpe *bpe, heap *h, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bpe->symbols[i].previous = (int32_t)i - 1;
        bpe->symbols[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
        bpe->symbols[i].is_dead = false;
        if (i + 1 < n && candidate_at(bpe, i, i + 1, &h->items[h->n])) h->n++;
    }
    for (size_t i = h->n / 2; i-- > 0;) sift_down(h, i);
}

/* A merge takes one entry from the heap and adds two at most, so that 2n places are enough. */
static void drain(sw_bpe *bpe, heap *h)
{
    sw_bpe_symbol *symbols = bpe->symbols;

    while (h->n) {
        sw_bpe_candidate top = take_first(h);
        sw_bpe_symbol *left = &symbols[(uint32_t)top.order];
        const sw_merge *merge;
        sw_bpe_symbol *right;
        sw_bpe_candidate fresh;
        if (left->is_dead || left->next < 0) continue;
        right = &symbols[left->next];
        merge = sw_vocab_merge(&bpe->vocab, left->id, right->id);
        if (!merge || merge->merged != top.merged) continue;
        left->id = top.merged;
        left->next = right->next;
        right->is_dead = true;
        if (right->next >= 0) symbols[right->next].previous = (int32_t)(left - symbols);
        if (left->previous >= 0 &&
            candidate_at(bpe, (size_t)left->previous, (size_t)(left - symbols), &fresh))
            insert(h, fresh);
        if (left->next >= 0 &&
            candidate_at(bpe, (size_t)(left - symbols), (size_t)left->next, &fresh))
            insert(h, fresh);
    }
}

sw_code sw_bpe_merge_long(sw_bpe *bpe, size_t *n, sw_err *err)
{
    void *items = bpe->heap;
    size_t n_left = 0;
    heap h;
    sw_code rc;

    if (*n > INT32_MAX)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "a word of %zu symbols", *n);
    rc = sw_text_grow(&items, &bpe->heap_capacity, 2 * *n, sizeof *bpe->heap, err);
    bpe->heap = items;
    if (rc != SW_OK) return rc;
    h = (heap){bpe->heap, 0};
    seed(bpe, &h, *n);
    drain(bpe, &h);
    for (size_t i = 0; i < *n; i++)
        if (!bpe->symbols[i].is_dead) bpe->symbols[n_left++].id = bpe->symbols[i].id;
    *n = n_left;
    return SW_OK;
}

void sw_bpe_merge_short(const sw_bpe *bpe, size_t *n)
{
    const sw_merge *pairs[SW_BPE_SHORT_SYMBOLS];
    sw_bpe_symbol *s = bpe->symbols;
    size_t count = *n;

    for (size_t i = 0; i + 1 < count; i++)
        pairs[i] = sw_vocab_merge(&bpe->vocab, s[i].id, s[i + 1].id);
    for (;;) {
        size_t best = count;
        for (size_t i = 0; i + 1 < count; i++)
            if (pairs[i] &&
                (best == count || pairs[i]->rank_plus_one < pairs[best]->rank_plus_one))
                best = i;
        if (best == count) break;
        s[best].id = pairs[best]->merged;
        count--;
        for (size_t i = best + 1; i < count; i++) s[i].id = s[i + 1].id;
        for (size_t i = best; i + 1 < count; i++) pairs[i] = pairs[i + 1];
        if (best) pairs[best - 1] = sw_vocab_merge(&bpe->vocab, s[best - 1].id, s[best].id);
        if (best + 1 < count)
            pairs[best] = sw_vocab_merge(&bpe->vocab, s[best].id, s[best + 1].id);
    }
    *n = count;
}

sw_code sw_bpe_merge(sw_bpe *bpe, size_t *n, sw_err *err)
{
    if (*n < 2) return SW_OK;
    if (*n > SW_BPE_SHORT_SYMBOLS) return sw_bpe_merge_long(bpe, n, err);
    sw_bpe_merge_short(bpe, n);
    return SW_OK;
}
