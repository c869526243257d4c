/* test_token_files.c - tokenizers that come in other files than tokenizer.json.
 *
 * tests/golden/token_files has a directory for each kind: files that sentencepiece 0.2.3 and the
 * trainer of tokenizers 0.23.3 made of a few lines of text of our own, and in expected.json texts
 * with the ids that the original library ("made") gives for them. The tokenizer.json that Swage
 * makes of the same files, read by tokenizers 0.23.3, gave the same ids for every text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/base64.h"
#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/checkpoint/model_text.h"
#include "formats/io/file_content.h"
#include "formats/text/characters/charsmap.h"
#include "formats/text/files/tokenizer_files.h"
#include "tests/support/scratch.h"

#define GOLDEN "tests/golden/token_files/"

static const char *const cases[] = {"spm_bpe",     "spm_unigram",  "spm_unigram_bytes",
                                    "merges_gpt2", "merges_qwen2", "tekken"};
#define N_CASES (sizeof cases / sizeof *cases)

static const sw_json_caps caps = {
    .max_bytes = (size_t)16 << 20, .max_depth = 16, .max_values = 1000000};

static void check_row(sw_tokenizer *tok, const char *name, const cJSON *row)
{
    const char *text = row->child->valuestring;
    const cJSON *id = row->child->next->child;
    sw_ids have = {0};
    sw_err err = {0};
    bool is_same;

    if (sw_tokenizer_encode(tok, &have, text, strlen(text), false, &err) != SW_OK)
        fail_msg("%s: \"%s\": %s", name, text, err.text);
    is_same = have.n == cJSON_GetArraySize(row->child->next);
    for (int64_t i = 0; i < have.n && is_same; i++, id = id->next)
        is_same = have.ids[i] == (uint32_t)id->valuedouble;
    if (!is_same) fail_msg("%s: \"%s\" has other ids", name, text);
    sw_ids_free(&have);
}

static void ids_of_the_original_library(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        char dir[200], path[260];
        sw_tokenizer *tok = NULL;
        cJSON *expected = NULL, *row;
        int n = 0;
        sw_err err = {0};
        (void)snprintf(dir, sizeof dir, GOLDEN "%s", cases[i]);
        (void)snprintf(path, sizeof path, "%s/expected.json", dir);
        if (sw_json_read(&expected, path, &caps, &err) != SW_OK ||
            sw_model_tokenizer(&tok, dir, &err) != SW_OK)
            fail_msg("%s", err.text);
        assert_true(sw_model_has_tokenizer(dir));
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(expected, "rows"))
        {
            check_row(tok, cases[i], row);
            n++;
        }
        assert_true(n >= 30);
        cJSON_Delete(expected);
        sw_tokenizer_free(tok);
    }
}

static int64_t id_in(const cJSON *vocab, const char *text)
{
    const cJSON *entry;
    int64_t id = 0;

    if (cJSON_IsObject(vocab)) {
        entry = cJSON_GetObjectItemCaseSensitive(vocab, text);
        return entry ? (int64_t)entry->valuedouble : -1;
    }
    cJSON_ArrayForEach(entry, vocab)
    {
        if (!strcmp(entry->child->valuestring, text)) return id;
        id++;
    }
    return -1;
}

/* Other readers number an added token anew when the model's vocabulary does not have it. */
static void added_tokens_are_in_the_vocabulary(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        char dir[200], *json = NULL;
        size_t n_bytes = 0;
        const cJSON *vocab;
        cJSON *root = NULL, *token;
        int n = 0;
        sw_err err = {0};
        (void)snprintf(dir, sizeof dir, GOLDEN "%s", cases[i]);
        if (sw_tokenizer_files_make(&json, &n_bytes, dir, &err) != SW_OK ||
            sw_json_parse(&root, json, n_bytes, &caps, "made", &err) != SW_OK)
            fail_msg("%s", err.text);
        vocab = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "model"), "vocab");
        cJSON_ArrayForEach(token, cJSON_GetObjectItem(root, "added_tokens"))
        {
            const char *text = cJSON_GetObjectItem(token, "content")->valuestring;
            if (id_in(vocab, text) != (int64_t)cJSON_GetObjectItem(token, "id")->valuedouble)
                fail_msg("%s: %s", dir, text);
            n++;
        }
        assert_true(n >= 3);
        cJSON_Delete(root);
        sw_mem_put(json);
    }
}

static uint32_t only_id(const char *dir, const char *text, bool with_template, int64_t n)
{
    sw_tokenizer *tok = NULL;
    sw_ids ids = {0};
    sw_err err = {0};
    uint32_t first;

    if (sw_model_tokenizer(&tok, dir, &err) != SW_OK ||
        sw_tokenizer_encode(tok, &ids, text, strlen(text), with_template, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ids.n, n);
    first = ids.ids[0];
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
    return first;
}

#define VOCAB "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}"
#define GPT2 "{\"tokenizer_class\":\"GPT2Tokenizer\"}"

static void put(const scratch *s, const char *name, const char *text)
{
    scratch_write(s, name, text, strlen(text));
}

/* tokenizer.json comes first; then the two files; what beside them says of tokens holds. */
static void order_and_tokens(void **state)
{
    char *json = NULL;
    size_t n_bytes = 0;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    put(&s, "vocab.json", VOCAB);
    put(&s, "merges.txt", "#version: 0.2\r\na b\r\n\r\n");
    put(&s, "tokenizer.model", "nonsense");
    put(&s, "tokenizer_config.json", "{\"tokenizer_class\":\"GPT2TokenizerFast\","
                                     "\"add_bos_token\":true,\"bos_token\":{\"content\":\"<s>\"}}");
    put(&s, "added_tokens.json", "{\"<s>\":7,\"<new>\":9}");
    assert_int_equal(only_id(s.dir, "ab", false, 1), 2);
    assert_int_equal(only_id(s.dir, "ab", true, 2), 7);
    assert_int_equal(only_id(s.dir, "<|endoftext|>", false, 1), 3);
    assert_int_equal(only_id(s.dir, "<new>", false, 1), 9);
    assert_int_equal(sw_tokenizer_files_make(&json, &n_bytes, s.dir, &err), SW_OK);
    assert_non_null(strstr(strstr(json, "\"vocab\":{"), "\"<new>\":9"));
    sw_mem_put(json);
    put(&s, "tokenizer.json", "{\"model\":{\"vocab\":{\"ab\":5},\"merges\":[],"
                              "\"ignore_merges\":true}}");
    assert_int_equal(only_id(s.dir, "ab", false, 1), 5);
    scratch_close(&s);
}

/* Files, and what is said about them. */
typedef struct refusal {
    sw_code code;
    const char *says;
    const char *files[3][2];
} refusal;

static const refusal refusals[] = {
    {SW_E_UNSUPPORTED, "tokenizer_class \"SpecialTokenizer\" with model_type \"\" it is not known; "
     "put a tokenizer.json beside them",
     {{"vocab.json", VOCAB}, {"merges.txt", "a b\n"},
      {"tokenizer_config.json", "{\"tokenizer_class\":\"SpecialTokenizer\"}"}}},
    {SW_E_UNSUPPORTED, "model_type \"starcoder2\"",
     {{"vocab.json", VOCAB}, {"merges.txt", "a b\n"}, {"config.json",
      "{\"model_type\":\"starcoder2\"}"}}},
    {SW_E_FORMAT, "merges.txt: line 2 is not two tokens",
     {{"vocab.json", VOCAB}, {"merges.txt", "a b\nab\n"}, {"tokenizer_config.json", GPT2}}},
    {SW_E_FORMAT, "merges[1]: \"c\" is not in the vocabulary",
     {{"vocab.json", VOCAB}, {"merges.txt", "a b\na c\n"}, {"tokenizer_config.json", GPT2}}},
    {SW_E_FORMAT, "tokens \"a\" and \"b\" share the id 1",
     {{"vocab.json", "{\"a\":1,\"b\":1}"}, {"merges.txt", ""}, {"tokenizer_config.json", GPT2}}},
    {SW_E_FORMAT, "token \"a\" has the ids 0 and 5",
     {{"vocab.json", VOCAB}, {"merges.txt", ""},
      {"tokenizer_config.json", "{\"tokenizer_class\":\"GPT2Tokenizer\",\"added_tokens_decoder\":"
                                "{\"5\":{\"content\":\"a\"}}}"}}},
    {SW_E_FORMAT, "added_tokens_decoder \"x\": not an id",
     {{"vocab.json", VOCAB}, {"merges.txt", ""},
      {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"a\"}}}"}}},
    {SW_E_UNSUPPORTED, "qwen.tiktoken: a list of tiktoken, which does not say how text is cut into "
     "words; put the model's tokenizer.json beside it", {{"qwen.tiktoken", "IQ== 0\n"}}},
    {SW_E_UNSUPPORTED, "tokenizer.model: a list of tiktoken",
     {{"tokenizer.model", "IQ== 0\nIg== 1\nIw== 2\n"}}},
    {SW_E_FORMAT, "git lfs pull",
     {{"tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"}}},
    {SW_E_FORMAT, "not a sentencepiece model: its protobuf is cut off",
     {{"tokenizer.model", "\x0A\x7F" "abcd"}}},
    {SW_E_FORMAT, "not a sentencepiece model: wire type 3",
     {{"tokenizer.model", "\x0B\x7F" "abc"}}},
    {SW_E_FORMAT, "not a sentencepiece model: 0 pieces", {{"tokenizer.model", "\x12\x01\x08"}}},
    {SW_E_FORMAT, "piece 0: no text", {{"tokenizer.model", "\x0A\x02\x18\x01"}}},
    {SW_E_UNSUPPORTED, "pieces that are words",
     {{"tokenizer.model", "\x0A\x03\x0A\x01" "a" "\x12\x02\x18\x03"}}},
    {SW_E_UNSUPPORTED, "tokenizer_class \"XLMRobertaTokenizer\" makes of a sentencepiece model;",
     {{"tokenizer.model", "\x0A\x03\x0A\x01" "a"},
      {"tokenizer_config.json", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}"}}},
    {SW_E_UNSUPPORTED, "no unknown piece", {{"tokenizer.model", "\x0A\x03\x0A\x01" "a"}}},
    {SW_E_FORMAT, "tekken.json: no \"config\"", {{"tekken.json", "{}"}}},
    {SW_E_FORMAT, "\"vocab\" is shorter",
     {{"tekken.json", "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":9,"
                      "\"default_num_special_tokens\":1},\"vocab\":[]}"}}},
    {SW_E_FORMAT, "vocab[0]: no base64 at character 0",
     {{"tekken.json", "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":1,\"default_num_"
                      "special_tokens\":0},\"vocab\":[{\"rank\":0,\"token_bytes\":\"*A==\","
                      "\"token_str\":\"\\u0000\"}]"
                      ",\"special_tokens\":[]}"}}},
    {SW_E_FORMAT, "lacks the byte 0x00",
     {{"tekken.json", "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":1,\"default_num_"
                      "special_tokens\":0},\"vocab\":[{\"rank\":0,\"token_bytes\":\"IQ==\"}],"
                      "\"special_tokens\":[]}"}}},
    {SW_E_IO, "tokenizer.json: cannot open", {{"LICENSE", "none"}}},
};

static void refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        sw_tokenizer *tok = NULL;
        scratch s;
        sw_err err = {0};
        sw_code rc;
        scratch_open(&s);
        for (int k = 0; k < 3 && r->files[k][0]; k++) put(&s, r->files[k][0], r->files[k][1]);
        rc = sw_model_tokenizer(&tok, s.dir, &err);
        if (rc != r->code || !strstr(err.text, r->says) || !strstr(err.text, s.dir))
            fail_msg("have %d \"%s\"\nwant %d \"%s\"", rc, err.text, r->code, r->says);
        scratch_close(&s);
    }
}

static void base64_both_ways(void **state)
{
    static const char *const bad[] = {"A", "AA=A", "A===", "====", "AB==", "AAB=", "A A=", "AA-="};
    unsigned char bytes[64], back[64];
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37 + 5);
    for (size_t k = 0; k <= sizeof bytes; k++) {
        sw_print_buf text = {0};
        assert_int_equal(sw_base64_add(&text, bytes, k, NULL), SW_OK);
        assert_int_equal(sw_base64_decode(back, &n, text.at ? text.at : "", text.n_bytes, NULL),
                         SW_OK);
        assert_int_equal(n, k);
        assert_memory_equal(bytes, back, k);
        sw_mem_put(text.at);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sw_base64_decode(back, &n, bad[i], strlen(bad[i]), NULL), SW_E_FORMAT);
}

/* Blobs that say more than they have. */
static void charsmaps_cut_off(void **state)
{
    static const unsigned char trie[] = {8, 0, 0, 0, 0, 4, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 'x', 0};
    static const unsigned char large[] = {12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static const unsigned char odd[] = {3, 0, 0, 0, 0, 0, 0, 0};
    static const unsigned char not_utf8[] = {4, 0, 0, 0, 0, 0, 0, 0, 0xFF};
    sw_charsmap map = {0};
    sw_text_buf out = {0};

    (void)state;
    assert_int_equal(sw_charsmap_open(&map, large, sizeof large, NULL), SW_E_FORMAT);
    assert_int_equal(sw_charsmap_open(&map, odd, sizeof odd, NULL), SW_E_FORMAT);
    assert_int_equal(sw_charsmap_open(&map, not_utf8, sizeof not_utf8, NULL), SW_E_FORMAT);
    assert_int_equal(sw_charsmap_open(&map, odd, 3, NULL), SW_E_FORMAT);
    assert_int_equal(sw_charsmap_open(&map, trie, sizeof trie, NULL), SW_OK);
    assert_int_equal(sw_charsmap_run(&map, &out, "a\xF0\x9F\x98\x80\r\n", 7, NULL), SW_OK);
    assert_int_equal(out.n_bytes, 7); /* no key leads out of the trie */
    sw_text_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_the_original_library),
        cmocka_unit_test(added_tokens_are_in_the_vocabulary),
        cmocka_unit_test(order_and_tokens),
        cmocka_unit_test(refused),
        cmocka_unit_test(base64_both_ways),
        cmocka_unit_test(charsmaps_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
