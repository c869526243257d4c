/* test_bpe.c - merging against the plain rule, on random vocabularies and random words.
 *
 * The rule, run naively on a list: find the adjacent pair of lowest rank, leftmost first, merge
 * it, start over. The heap, the short way, the word cache and the cuts in front of U+2581 must
 * all be invisible in the result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/text/bpe.h"
#include "tests/support/toys/random.h"

#define TOKENS_MAX 120
#define MERGES_MAX 160
#define WORD_MAX 400
#define TOKEN_BYTES 64
#define ROUNDS 60

static const char *const letters[] = {"a", "b", "c", "\xC3\xA9", "\xE2\x96\x81"};
#define N_LETTERS 5

/* A vocabulary as the test knows it; ids are places in the list. */
typedef struct toy {
    char token[TOKENS_MAX][TOKEN_BYTES];
    int n_tokens;
    struct {
        int left, right, merged;
    } merge[MERGES_MAX];
    int n_merges;
} toy;

static int below(test_rng *rng, int n) { return (int)(test_u64(rng) % (uint64_t)n); }

static int find_token(const toy *t, const char *text)
{
    for (int i = 0; i < t->n_tokens; i++)
        if (!strcmp(t->token[i], text)) return i;
    return -1;
}

static void make_toy(toy *t, test_rng *rng)
{
    int n_merges = 1 + below(rng, MERGES_MAX - 1);

    memset(t, 0, sizeof *t);
    for (int i = 0; i < N_LETTERS; i++)
        (void)snprintf(t->token[t->n_tokens++], TOKEN_BYTES, "%s", letters[i]);
    for (int i = 0; i < n_merges; i++) {
        int left = below(rng, t->n_tokens), right = below(rng, t->n_tokens), merged;
        char joined[2 * TOKEN_BYTES];
        (void)snprintf(joined, sizeof joined, "%s%s", t->token[left], t->token[right]);
        if (strlen(joined) >= 24) continue;
        merged = find_token(t, joined);
        if (merged < 0 && t->n_tokens == TOKENS_MAX) continue;
        if (merged < 0) {
            merged = t->n_tokens++;
            memcpy(t->token[merged], joined, strlen(joined) + 1);
        }
        t->merge[t->n_merges].left = left;
        t->merge[t->n_merges].right = right;
        t->merge[t->n_merges++].merged = merged;
    }
}

static void open_toy(sw_bpe *bpe, const toy *t)
{
    cJSON *vocab = cJSON_CreateObject(), *merges = cJSON_CreateArray();
    sw_err err = {0};

    for (int i = 0; i < t->n_tokens; i++) cJSON_AddNumberToObject(vocab, t->token[i], i);
    for (int i = 0; i < t->n_merges; i++) {
        const char *pair[2] = {t->token[t->merge[i].left], t->token[t->merge[i].right]};
        cJSON_AddItemToArray(merges, cJSON_CreateStringArray(pair, 2));
    }
    memset(bpe, 0, sizeof *bpe);
    bpe->prefix = bpe->suffix = "";
    bpe->unk_id = SW_NO_TOKEN;
    if (sw_vocab_build(&bpe->vocab, vocab, merges, "", NULL, 0, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(sw_bpe_prepare(bpe, &err), SW_OK);
    cJSON_Delete(vocab);
    cJSON_Delete(merges);
}

/* A pair that is listed twice has its last rank. */
static int rank_of(const toy *t, int left, int right)
{
    for (int i = t->n_merges - 1; i >= 0; i--)
        if (t->merge[i].left == left && t->merge[i].right == right) return i;
    return -1;
}

static int merge_naively(const toy *t, int *ids, int n)
{
    for (;;) {
        int best = -1, best_rank = 0;
        for (int i = 0; i + 1 < n; i++) {
            int rank = rank_of(t, ids[i], ids[i + 1]);
            if (rank >= 0 && (best < 0 || rank < best_rank)) {
                best = i;
                best_rank = rank;
            }
        }
        if (best < 0) return n;
        ids[best] = t->merge[best_rank].merged;
        memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 2) * sizeof *ids);
        n--;
    }
}

static int random_word(int *ids, char *text, test_rng *rng, int max)
{
    int n = 1 + below(rng, max), n_bytes = 0;
    int run = below(rng, 3);

    for (int i = 0; i < n; i++) {
        ids[i] = i && run && below(rng, 3) ? ids[i - 1] : below(rng, N_LETTERS);
        n_bytes += snprintf(text + n_bytes, 4, "%s", letters[ids[i]]);
    }
    return n;
}

static void check_ids(const sw_ids *have, const int *want, int n, const char *text)
{
    bool same = have->n == n;

    for (int i = 0; i < n && same; i++) same = have->ids[i] == (uint32_t)want[i];
    if (!same) fail_msg("\"%s\": have %d ids, want %d", text, (int)have->n, n);
}

static void encode_is_the_plain_rule(void **state)
{
    test_rng rng = {11};
    int n_cuttable = 0;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        static toy t;
        sw_bpe bpe;
        make_toy(&t, &rng);
        open_toy(&bpe, &t);
        n_cuttable += bpe.may_cut_blocks;
        for (int w = 0; w < 60; w++) {
            int ids[WORD_MAX], max = w % 3 ? 24 : WORD_MAX;
            char text[WORD_MAX * 3 + 1];
            int n = random_word(ids, text, &rng, max);
            n = merge_naively(&t, ids, n);
            for (int again = 0; again < 2; again++) { /* the second time from the cache */
                sw_ids have = {0};
                sw_err err = {0};
                assert_int_equal(sw_bpe_encode(&bpe, &have, text, strlen(text), &err), SW_OK);
                check_ids(&have, ids, n, text);
                sw_ids_free(&have);
            }
        }
        sw_bpe_free(&bpe);
    }
    assert_int_equal(n_cuttable, ROUNDS);
}

static size_t set_symbols(sw_bpe *bpe, const int *ids, int n)
{
    void *symbols = bpe->symbols;
    sw_err err = {0};

    assert_int_equal(sw_text_grow(&symbols, &bpe->symbols_capacity, (size_t)n,
                                  sizeof *bpe->symbols, &err), SW_OK);
    bpe->symbols = symbols;
    for (int i = 0; i < n; i++) bpe->symbols[i].id = (uint32_t)ids[i];
    return (size_t)n;
}

static void short_way_is_the_heap(void **state)
{
    test_rng rng = {12};

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        static toy t;
        sw_bpe bpe;
        make_toy(&t, &rng);
        open_toy(&bpe, &t);
        for (int w = 0; w < 60; w++) {
            int ids[WORD_MAX];
            uint32_t by_heap[SW_BPE_SHORT_SYMBOLS];
            char text[WORD_MAX * 3 + 1];
            int n = random_word(ids, text, &rng, SW_BPE_SHORT_SYMBOLS);
            size_t n_heap = set_symbols(&bpe, ids, n), n_short;
            sw_err err = {0};
            assert_int_equal(sw_bpe_merge_long(&bpe, &n_heap, &err), SW_OK);
            for (size_t i = 0; i < n_heap; i++) by_heap[i] = bpe.symbols[i].id;
            n_short = set_symbols(&bpe, ids, n);
            sw_bpe_merge_short(&bpe, &n_short);
            assert_int_equal(n_short, n_heap);
            for (size_t i = 0; i < n_heap; i++) assert_int_equal(bpe.symbols[i].id, by_heap[i]);
        }
        sw_bpe_free(&bpe);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode_is_the_plain_rule),
        cmocka_unit_test(short_way_is_the_heap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
