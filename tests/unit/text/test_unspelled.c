/* test_unspelled.c - characters that a vocabulary has no token for.
 *
 * The ids are those of the Python package tokenizers 0.23.3 (Hugging Face) for the same files and
 * texts: the unknown token where the model has one, one for a run of them with fuse_unk, and
 * nothing where it has none, so that the neighbours meet and merge.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "formats/text/corpus.h"
#include "tests/support/scratch.h"

#define BLOCK "\xE2\x96\x81"
#define BPE(more) \
    "\"model\":{\"type\":\"BPE\"," more "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<u>\":3,\"" BLOCK \
    "\":4,\"a" BLOCK "\":5},\"merges\":[\"a b\",\"a " BLOCK "\"]}"
#define UNIGRAM \
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[[\"<u>\",0]," \
    "[\"a\",-1],[\"b\",-2],[\"ab\",-2.5]]}"

typedef struct row {
    const char *json, *text;
    uint32_t ids[8];
    int64_t n_ids, n, n_dropped;
    const char *first;
    uint64_t at;
    bool is_inexact;
} row;

static const row rows[] = {
    /* a run in the middle is dropped, and its neighbours merge */
    {"{" BPE("") "}", "a\x16\x16" "b", {2}, 1, 2, 2, "0x16", 1, false},
    /* a blank's neighbour too, although words are cut in front of blanks */
    {"{" BPE("") "}", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbba\x16" BLOCK "b", {0}, -1, 1, 1, "0x16", 31,
     false},
    {"{" BPE("\"unk_token\":\"<u>\",") "}", "axyb", {0, 3, 3, 1}, 4, 2, 0, "0x78", 1, false},
    {"{" BPE("\"unk_token\":\"<u>\",\"fuse_unk\":true,") "}", "axyb", {0, 3, 1}, 3, 2, 0, "0x78", 1,
     false},
    {"{" BPE("") "}", "ab\xF0\x9F\x98\x80", {2}, 1, 1, 1, "U+1F600", 2, false},
    {"{" BPE("") "}", "abab", {2, 2}, 2, 0, 0, "", 0, false},
    /* words come out of a cache the second time, and still count */
    {"{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}," BPE("") "}", "ax ax", {0, 0}, 2, 2, 2,
     "0x78", 1, false},
    /* a vocabulary of bytes that lacks one: the byte is named, not the letter it is written as */
    {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
     BPE("") "}", "ab\x16" "b\xC3\xA9", {2, 1}, 2, 3, 3, "0x16", 2, false},
    /* behind a normalizer that changes offsets, and behind an added token */
    {"{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\"}],\"normalizer\":{\"type\":\"Sequence\","
     "\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"ab\"},{\"type\":\"Replace\",\"pattern\":"
     "{\"String\":\"q\"},\"content\":\"ababab\"},{\"type\":\"NFKC\"}]}," BPE("") "}",
     "<x>q\xEF\xBD\x9A", {9, 2, 2, 2, 2}, 5, 1, 1, "0x7A", 4, false},
    /* one that the text does not have */
    {"{\"normalizer\":{\"type\":\"NFC\"}," BPE("") "}", "bbe\xCC\x81", {1, 1}, 2, 1, 1, "U+00E9", 0,
     true},
    {"{" UNIGRAM "}", "axxbxab", {1, 0, 2, 0, 3}, 5, 3, 0, "0x78", 1, false},
};

static void ids_counts_and_places(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        const sw_unspelled *u;
        sw_tokenizer *tok = NULL;
        char first[16] = "";
        sw_ids ids = {0};
        sw_err err = {0};

        if (sw_tokenizer_open_bytes(&tok, r->json, strlen(r->json), "T", &err) != SW_OK ||
            sw_tokenizer_encode(tok, &ids, r->text, strlen(r->text), false, &err) != SW_OK)
            fail_msg("row %zu: %s", i, err.text);
        u = sw_tokenizer_unspelled(tok);
        if (u->n) sw_unspelled_first(first, u);
        if (u->n != r->n || u->n_dropped != r->n_dropped || strcmp(first, r->first) ||
            u->first_at != r->at || (u->n && u->is_exact == r->is_inexact))
            fail_msg("row %zu: %lld unspelled, %lld dropped, first %s at %llu, exact %d", i,
                     (long long)u->n, (long long)u->n_dropped, first,
                     (unsigned long long)u->first_at, u->is_exact);
        if (r->n_ids >= 0) {
            assert_int_equal(ids.n, r->n_ids);
            assert_memory_equal(ids.ids, r->ids, (size_t)ids.n * 4);
        } else { /* thirty times b, then "a" and the blank in one */
            assert_int_equal(ids.n, 32);
            assert_int_equal(ids.ids[30], 5);
        }
        sw_ids_free(&ids);
        sw_tokenizer_free(tok);
    }
}

static void sentences(void **state)
{
    static const struct {
        sw_unspelled u;
        const char *says;
    } all[] = {
        {{2, 2, true, {0x16}, 1, 12, true},
         "2 bytes that the tokenizer has no token for were left out; the first is byte 0x16 at "
         "offset 12"},
        {{1, 1, false, {0xC3, 0xA9}, 2, 7, true},
         "1 character that the tokenizer has no token for was left out; the first is U+00E9 at "
         "offset 7"},
        {{3, 0, false, {'x'}, 1, 0, false},
         "3 characters that the tokenizer has no token for became its unknown token; the first is "
         "byte 0x78 at or behind offset 0"},
        {{3, 1, false, {'x'}, 1, 5, true},
         "3 characters that the tokenizer has no token for are unknown to it, 1 of them left out; "
         "the first is byte 0x78 at offset 5"},
        {{0}, ""},
    };
    char text[SW_UNSPELLED_NOTE_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sw_unspelled_note(text, &all[i].u);
        assert_string_equal(text, all[i].says);
    }
}

static void take_note(void *self, const char *text)
{
    (void)snprintf(self, 300, "%s", text);
}

/* A corpus counts over its files and names the first one. */
static void corpus_counts(void **state)
{
    static const char json[] = "{" BPE("") "}";
    static const char *const texts[] = {"abab", "ab\x16", "\x01\x02"};
    scratch dir;
    sw_tokenizer *tok = NULL;
    sw_corpus corpus = {0};
    char note[300] = "", want[SW_PATH_BYTES + 200];
    sw_progress progress = {.self = note, .note = take_note};
    cJSON *object = cJSON_CreateObject();
    sw_err err = {0};

    (void)state;
    scratch_open(&dir);
    assert_int_equal(sw_tokenizer_open_bytes(&tok, json, sizeof json - 1, "T", &err), SW_OK);
    for (int i = 0; i < 3; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "%d.txt", i);
        scratch_write(&dir, name, texts[i], strlen(texts[i]));
        assert_int_equal(sw_corpus_add(&corpus, tok, 10, scratch_path(&dir, name), &err), SW_OK);
    }
    sw_corpus_note(&corpus, &progress);
    (void)snprintf(want, sizeof want, "%s: 3 characters that the tokenizer has no token for were "
                   "left out; the first is byte 0x16 at offset 2", scratch_path(&dir, "1.txt"));
    assert_string_equal(note, want);
    assert_true(sw_corpus_add_note(object, &corpus));
    assert_non_null(object->child);
    assert_string_equal(cJSON_GetObjectItem(object->child, "file")->valuestring, "1.txt");
    assert_int_equal((int)cJSON_GetObjectItem(object->child, "characters")->valuedouble, 3);
    assert_int_equal((int)cJSON_GetObjectItem(object->child, "offset")->valuedouble, 2);
    cJSON_Delete(object);
    sw_corpus_free(&corpus);
    sw_tokenizer_free(tok);
    scratch_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_counts_and_places),
        cmocka_unit_test(sentences),
        cmocka_unit_test(corpus_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
