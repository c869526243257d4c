/* bpe.c - see bpe.h: from a word to symbols, the word cache, and cutting long words. */
#include "formats/text/bpe.h"

#include <stdio.h>
#include <string.h>


#define BLOCK_CHAR 0x2581u /* LOWER ONE EIGHTH BLOCK, which stands for a blank */
#define BLOCK_TEXT "\xE2\x96\x81"

/* A slot fits a cache line and keeps the last word that was hashed to it, so memory is bounded. */
#define CACHE_SLOTS ((size_t)1 << 15)
#define CACHE_KEY_BYTES 30
#define CACHE_IDS 8
struct sw_bpe_cache_entry {
    uint8_t key_bytes, n_ids; /* key_bytes 0: the slot is free */
    char key[CACHE_KEY_BYTES];
    uint32_t ids[CACHE_IDS];
};
_Static_assert(sizeof(struct sw_bpe_cache_entry) == 64, "one cache line");

/* A byte that is a printable character stands for itself. */
static bool is_own_char(unsigned c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

/* The 68 other bytes, 00 to 20, 7F to A0 and AD, stand for the characters from U+0100 on, in
 * order. */
uint32_t sw_byte_to_char(unsigned char byte)
{
    if (is_own_char(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    return byte == 0xAD ? 0x143u : 0x121u + (byte - 0x7Fu);
}

int sw_char_to_byte(uint32_t c)
{
    if (c < 0x100) return is_own_char(c) ? (int)c : -1;
    if (c <= 0x120) return (int)(c - 0x100);
    if (c <= 0x142) return (int)(c - 0x121 + 0x7F);
    return c == 0x143 ? 0xAD : -1;
}

sw_code sw_bytes_to_chars(sw_text_buf *out, const char *text, size_t n_bytes, sw_err *err)
{
    sw_code rc = SW_OK;

    for (size_t i = 0; i < n_bytes && rc == SW_OK; i++)
        rc = sw_text_buf_add_char(out, sw_byte_to_char((unsigned char)text[i]), err);
    return rc;
}

/* Return the place of a character in the filter, a number of 12 bits. */
static uint32_t bloom_place(uint32_t code_point) { return (code_point * 0x9E3779B1u) >> 20; }

static void bloom_add(sw_bpe *bpe, uint32_t code_point)
{
    uint32_t place = bloom_place(code_point);

    bpe->block_bloom[place >> 5] |= 1u << (place & 31);
}

static bool bloom_has(const sw_bpe *bpe, uint32_t code_point)
{
    uint32_t place = bloom_place(code_point);

    return (bpe->block_bloom[place >> 5] >> (place & 31)) & 1;
}

static bool looks_like_byte(const sw_token_text *token)
{
    return token->n_bytes == 6 && !memcmp(token->text, "<0x", 3);
}

/* A word may be cut before U+2581 if no merge joins it to the character before: no pair forms
 * across the cut, so both sides merge as they would alone. U+2581 must be a token itself, so that a
 * run of unknown characters ends there in any case. */
static void find_cuts(sw_bpe *bpe)
{
    const sw_vocab *v = &bpe->vocab;

    bpe->may_cut_blocks = !bpe->prefix_bytes && !bpe->suffix_bytes && !bpe->map_bytes &&
                          !bpe->ignore_merges && v->merges &&
                          sw_vocab_find_model(v, BLOCK_TEXT, 3) != SW_NO_TOKEN;
    for (size_t i = 0; bpe->may_cut_blocks && i <= v->merge_mask; i++) {
        const sw_merge *merge = &v->merges[i];
        uint32_t left_id = (uint32_t)(merge->pair >> 32), right_id = (uint32_t)merge->pair;
        const sw_token_text *left = &v->by_id[left_id], *right = &v->by_id[right_id];
        uint32_t c;
        if (!merge->rank_plus_one) continue;
        /* the text of a byte or of an unknown symbol is not its own, so nothing is known of its
         * neighbours */
        if (left_id == bpe->unk_id || right_id == bpe->unk_id || !left->n_bytes ||
            !right->n_bytes || looks_like_byte(left) || looks_like_byte(right))
            bpe->may_cut_blocks = false;
        if (right->n_bytes < 3 || memcmp(right->text, BLOCK_TEXT, 3) != 0 || !left->n_bytes)
            continue;
        (void)sw_utf8_next(&c, left->text, sw_utf8_back(left->text, left->n_bytes));
        bloom_add(bpe, c);
    }
}

sw_code sw_bpe_prepare(sw_bpe *bpe, sw_err *err)
{
    int n_byte_ids = 0;

    for (int b = 0; b < 256; b++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        bpe->byte_ids[b] = sw_vocab_find_model(&bpe->vocab, name, 6);
        n_byte_ids += bpe->byte_ids[b] != SW_NO_TOKEN;
    }
    for (int c = 0; c < 128; c++) {
        char one = (char)c;
        bpe->ascii_ids[c] = sw_vocab_find_model(&bpe->vocab, &one, 1);
    }
    bpe->can_drop = bpe->unk_id == SW_NO_TOKEN &&
                    !(bpe->byte_fallback && n_byte_ids == 256);
    find_cuts(bpe);
    return SW_MEM_GET(&bpe->cache, CACHE_SLOTS, "word cache", err);
}

void sw_bpe_free(sw_bpe *bpe)
{
    sw_vocab_free(&bpe->vocab);
    sw_mem_put(bpe->cache);
    sw_mem_put(bpe->symbols);
    sw_mem_put(bpe->heap);
    sw_text_buf_free(&bpe->mapped);
    sw_text_buf_free(&bpe->decorated);
    memset(bpe, 0, sizeof *bpe);
}

/* These are the symbols of the present word. `unk` waits until its neighbours are known, since
 * several of them can become one token. */
typedef struct symbol_list {
    sw_bpe *bpe;
    size_t n;
    bool has_unk;
} symbol_list;

static sw_code push_symbol(symbol_list *list, uint32_t id, sw_err *err)
{
    sw_bpe *bpe = list->bpe;
    void *symbols = bpe->symbols;
    sw_code rc = sw_text_grow(&symbols, &bpe->symbols_capacity, list->n + 1, sizeof *bpe->symbols,
                              err);

    bpe->symbols = symbols;
    if (rc != SW_OK) return rc;
    bpe->symbols[list->n].id = id;
    list->n++;
    return SW_OK;
}

static sw_code flush_unk(symbol_list *list, sw_err *err)
{
    if (!list->has_unk) return SW_OK;
    list->has_unk = false;
    return push_symbol(list, list->bpe->unk_id, err);
}

/* Add a character that is no token: as its bytes, as the unknown token, or not at all. `plain` is
 * it without prefix and suffix. A byte token does not end a run of unknown characters: Hugging
 * Face's tokenizers do the same, and the ids must be theirs. */
static sw_code push_unknown(symbol_list *list, const char *text, size_t n_bytes,
                            const char *plain, size_t plain_bytes, sw_err *err)
{
    sw_bpe *bpe = list->bpe;
    bool has_all = bpe->byte_fallback;
    sw_code rc = SW_OK;

    for (size_t i = 0; i < n_bytes && has_all; i++)
        has_all = bpe->byte_ids[(unsigned char)text[i]] != SW_NO_TOKEN;
    if (has_all) {
        for (size_t i = 0; i < n_bytes && rc == SW_OK; i++)
            rc = push_symbol(list, bpe->byte_ids[(unsigned char)text[i]], err);
        return rc;
    }
    sw_unspelled_add(&bpe->unspelled, plain, plain_bytes, bpe->map_bytes,
                     bpe->unk_id == SW_NO_TOKEN);
    if (bpe->unk_id == SW_NO_TOKEN) return SW_OK;
    if (!bpe->fuse_unk) rc = flush_unk(list, err);
    list->has_unk = true;
    return rc;
}

/* Write the character as the vocabulary has it in this place of the word. */
static sw_code decorate(sw_bpe *bpe, const char **text, size_t *n_bytes, bool is_first,
                        bool is_last, sw_err *err)
{
    sw_text_buf *buf = &bpe->decorated;
    sw_code rc = SW_OK;

    buf->n_bytes = 0;
    if (!is_first) rc = sw_text_buf_add(buf, bpe->prefix, bpe->prefix_bytes, err);
    if (rc == SW_OK) rc = sw_text_buf_add(buf, *text, *n_bytes, err);
    if (rc == SW_OK && is_last) rc = sw_text_buf_add(buf, bpe->suffix, bpe->suffix_bytes, err);
    if (rc != SW_OK) return rc;
    *text = buf->bytes;
    *n_bytes = buf->n_bytes;
    return SW_OK;
}

static sw_code to_symbols(symbol_list *list, const char *word, size_t n_bytes, sw_err *err)
{
    sw_bpe *bpe = list->bpe;
    bool is_plain = !bpe->prefix_bytes && !bpe->suffix_bytes;
    sw_code rc;

    for (size_t at = 0; at < n_bytes;) {
        const char *text = word + at;
        uint32_t c, id;
        size_t next = sw_utf8_next(&c, word, at), n = next - at;
        if (!is_plain &&
            (rc = decorate(bpe, &text, &n, at == 0, next == n_bytes, err)) != SW_OK)
            return rc;
        id = is_plain && c < 128 ? bpe->ascii_ids[c] : sw_vocab_find_model(&bpe->vocab, text, n);
        if (id == SW_NO_TOKEN) rc = push_unknown(list, text, n, word + at, next - at, err);
        else if ((rc = flush_unk(list, err)) == SW_OK) rc = push_symbol(list, id, err);
        if (rc != SW_OK) return rc;
        at = next;
    }
    return flush_unk(list, err);
}

/* Encode a word that the cache does not have, and append its ids to `out`. */
static sw_code encode_fresh(sw_bpe *bpe, sw_ids *out, const char *word, size_t n_bytes,
                            sw_err *err)
{
    symbol_list list = {bpe, 0, false};
    uint32_t whole;
    sw_code rc;

    if (bpe->map_bytes) {
        bpe->mapped.n_bytes = 0;
        if ((rc = sw_bytes_to_chars(&bpe->mapped, word, n_bytes, err)) != SW_OK) return rc;
        word = bpe->mapped.bytes;
        n_bytes = bpe->mapped.n_bytes;
    }
    if (bpe->ignore_merges) {
        whole = sw_vocab_find_model(&bpe->vocab, word, n_bytes);
        if (whole != SW_NO_TOKEN) return sw_ids_push(out, whole, err);
    }
    if ((rc = to_symbols(&list, word, n_bytes, err)) != SW_OK) return rc;
    if ((rc = sw_bpe_merge(bpe, &list.n, err)) != SW_OK) return rc;
    for (size_t i = 0; i < list.n; i++)
        if ((rc = sw_ids_push(out, bpe->symbols[i].id, err)) != SW_OK) return rc;
    return SW_OK;
}

static sw_code encode_cached(sw_bpe *bpe, sw_ids *out, const char *word, size_t n_bytes,
                             sw_err *err)
{
    sw_bpe_cache_entry *entry;
    int64_t n_before = out->n, n_unspelled = bpe->unspelled.n;
    sw_code rc = SW_OK;

    if (n_bytes > CACHE_KEY_BYTES) return encode_fresh(bpe, out, word, n_bytes, err);
    entry = &bpe->cache[sw_text_hash(word, n_bytes) & (CACHE_SLOTS - 1)];
    if (entry->key_bytes == n_bytes && !memcmp(entry->key, word, n_bytes)) {
        for (int i = 0; i < entry->n_ids && rc == SW_OK; i++)
            rc = sw_ids_push(out, entry->ids[i], err);
        return rc;
    }
    if ((rc = encode_fresh(bpe, out, word, n_bytes, err)) != SW_OK) return rc;
    if (out->n - n_before > CACHE_IDS || bpe->unspelled.n != n_unspelled) return SW_OK;
    entry->key_bytes = (uint8_t)n_bytes;
    entry->n_ids = (uint8_t)(out->n - n_before);
    memcpy(entry->key, word, n_bytes);
    if (entry->n_ids) memcpy(entry->ids, out->ids + n_before, entry->n_ids * sizeof *entry->ids);
    return SW_OK;
}

/* A character that becomes nothing brings its neighbours together, so that no cut behind it is
 * safe. */
static bool is_dropped(const sw_bpe *bpe, const char *text, size_t n_bytes)
{
    return bpe->can_drop && sw_vocab_find_model(&bpe->vocab, text, n_bytes) == SW_NO_TOKEN;
}

/* Find the end of the piece that begins at `begin`: the next U+2581 where a cut is safe. */
static size_t next_cut(const sw_bpe *bpe, const char *word, size_t begin, size_t n_bytes)
{
    for (size_t at = begin + 1; at + 3 <= n_bytes; at++) {
        uint32_t before;
        size_t last;
        const char *hit = memmem(word + at, n_bytes - at, BLOCK_TEXT, 3);
        if (!hit) break;
        at = (size_t)(hit - word);
        last = sw_utf8_back(word, at);
        (void)sw_utf8_next(&before, word, last);
        if (!bloom_has(bpe, before) && !is_dropped(bpe, word + last, at - last)) return at;
    }
    return n_bytes;
}

sw_code sw_bpe_encode(sw_bpe *bpe, sw_ids *out, const char *word, size_t n_bytes, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!bpe->may_cut_blocks || n_bytes <= CACHE_KEY_BYTES)
        return n_bytes ? encode_cached(bpe, out, word, n_bytes, err) : SW_OK;
    for (size_t at = 0; at < n_bytes && rc == SW_OK;) {
        size_t end = next_cut(bpe, word, at, n_bytes);
        rc = encode_cached(bpe, out, word + at, end - at, err);
        at = end;
    }
    return rc;
}
