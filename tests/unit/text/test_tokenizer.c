/* test_tokenizer.c - loading and using a tokenizer: the bundled one, and files that are wrong.
 *
 * What ids a good file gives is test_tokenizer_golden.c's matter; here are the contracts of
 * the calls, and one clear refusal for each thing that can be wrong with untrusted input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/text/bpe.h"
#include "formats/text/tokenizer.h"

#define BUNDLED "calib_data/tiny-llama/tokenizer.json"
#define AB_MODEL                                                             \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}," \
    "\"merges\":[\"a b\"]}"

static sw_tokenizer *open_text(const char *json)
{
    sw_tokenizer *tok = NULL;
    sw_err err = {0};

    if (sw_tokenizer_open_bytes(&tok, json, strlen(json), "test", &err) != SW_OK)
        fail_msg("%s", err.text);
    return tok;
}

static void expect_ids(sw_tokenizer *tok, const char *text, bool with_template,
                       const uint32_t *want, int64_t n_want)
{
    sw_ids ids = {0};
    sw_err err = {0};

    if (sw_tokenizer_encode(tok, &ids, text, strlen(text), with_template, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ids.n, n_want);
    for (int64_t i = 0; i < n_want; i++) assert_int_equal(ids.ids[i], want[i]);
    sw_ids_free(&ids);
}
#define EXPECT_IDS(tok, text, with_template, ...)                                    \
    expect_ids(tok, text, with_template, (const uint32_t[]){__VA_ARGS__},            \
               sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void bundled_tokenizer(void **state)
{
    sw_tokenizer *tok = NULL;
    sw_err err = {0};
    uint32_t id = 77;
    char *text = NULL;
    size_t n_bytes = 0;

    (void)state;
    assert_int_equal(sw_tokenizer_open(&tok, BUNDLED, &err), SW_OK);
    assert_int_equal(sw_tokenizer_vocab(tok), 8192);
    assert_true(sw_tokenizer_id(tok, "<|end_of_text|>", &id));
    assert_int_equal(id, 1);
    assert_false(sw_tokenizer_id(tok, "no such token", &id));
    assert_int_equal(id, 1);
    EXPECT_IDS(tok, "!<|end_of_text|>\"", true, 0, 2, 1, 3);
    EXPECT_IDS(tok, "!", false, 2);
    assert_int_equal(sw_tokenizer_decode(tok, &text, &n_bytes, (uint32_t[]){0, 2, 1}, 3, true,
                                         &err), SW_OK);
    assert_int_equal(n_bytes, 1);
    assert_string_equal(text, "!");
    sw_mem_put(text);
    assert_int_equal(sw_tokenizer_decode(tok, &text, &n_bytes, (uint32_t[]){0, 2}, 2, false, &err),
                     SW_OK);
    assert_string_equal(text, "<|begin_of_text|>!");
    sw_mem_put(text);
    sw_tokenizer_free(tok);
}

static void encode_appends_and_fails_clean(void **state)
{
    sw_tokenizer *tok = open_text("{" AB_MODEL "}");
    sw_ids ids = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_tokenizer_encode(tok, &ids, "ab", 2, false, &err), SW_OK);
    assert_int_equal(sw_tokenizer_encode(tok, &ids, "", 0, true, &err), SW_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(sw_tokenizer_encode(tok, &ids, "ab\xC3(", 4, false, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "invalid at byte 2"));
    assert_int_equal(ids.n, 1);
    err = (sw_err){0};
    assert_int_equal(ids.ids[0], 2);
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
}

static void decode_refuses_what_is_no_token(void **state)
{
    sw_tokenizer *tok = open_text("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":3},"
                                  "\"merges\":[]}}");
    static const uint32_t bad[] = {1, 4, UINT32_MAX};
    char *text = NULL;
    size_t n_bytes = 99;

    (void)state;
    assert_int_equal(sw_tokenizer_vocab(tok), 4);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t ids[2] = {3, bad[i]};
        sw_err err = {0};
        assert_int_equal(sw_tokenizer_decode(tok, &text, &n_bytes, ids, 2, false, &err),
                         SW_E_FORMAT);
        assert_non_null(strstr(err.text, "at position 1"));
        assert_null(text);
        assert_int_equal(n_bytes, 99);
    }
    sw_tokenizer_free(tok);
}

static void merges_in_both_spellings(void **state)
{
    sw_tokenizer *tok = open_text(
        "{\"model\":{\"vocab\":{\"a\":0,\" \":1,\"a \":2,\" a\":3,\"aa\":4},"
        "\"merges\":[[\"a\",\" \"],\"a a\",[\" \",\"a\"]]}}");

    (void)state;
    EXPECT_IDS(tok, "a a", false, 2, 0);  /* rank 0 before rank 2 */
    EXPECT_IDS(tok, "aaa", false, 4, 0);  /* leftmost of equal rank */
    EXPECT_IDS(tok, " a", false, 3);
    sw_tokenizer_free(tok);
}

static void added_token_keeps_the_vocabulary_id(void **state)
{
    sw_tokenizer *tok = open_text(
        "{\"added_tokens\":[{\"id\":9,\"content\":\"ab\"},{\"id\":5,\"content\":\"<x>\"},"
        "{\"id\":6,\"content\":\"\"}]," AB_MODEL "}");
    uint32_t id = 0;

    (void)state;
    assert_int_equal(sw_tokenizer_vocab(tok), 6);
    assert_true(sw_tokenizer_id(tok, "<x>", &id));
    assert_int_equal(id, 5);
    EXPECT_IDS(tok, "a<x>bab", false, 0, 5, 1, 2);
    sw_tokenizer_free(tok);
}

/* An added token is met as written only: the model does not know it, whatever a word is
 * spelled like after its bytes are mapped. */
static void model_does_not_know_added_tokens(void **state)
{
    sw_tokenizer *tok = open_text(
        "{\"added_tokens\":[{\"id\":2,\"content\":\"\xC4\xA0t\"}],"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
        "\"model\":{\"vocab\":{\"\xC4\xA0\":0,\"t\":1},\"merges\":[],\"ignore_merges\":true}}");

    (void)state;
    EXPECT_IDS(tok, " t\xC4\xA0t", false, 0, 1, 2);
    sw_tokenizer_free(tok);
}

/* One long word takes the heap; unlike a quadratic merge it is done in well under a second. */
static void megabyte_word(void **state)
{
    sw_tokenizer *tok = open_text(
        "{\"model\":{\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2},\"merges\":[\"a a\",\"aa aa\"]}}");
    enum { N = 1 << 20 };
    char *text = NULL;
    sw_ids ids = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(SW_MEM_GET(&text, N + 3, "text", &err), SW_OK);
    memset(text, 'a', N + 3);
    assert_int_equal(sw_tokenizer_encode(tok, &ids, text, N + 3, false, &err), SW_OK);
    assert_int_equal(ids.n, N / 4 + 2);
    for (int64_t i = 0; i < N / 4; i++) assert_int_equal(ids.ids[i], 2);
    assert_int_equal(ids.ids[N / 4], 1);
    assert_int_equal(ids.ids[N / 4 + 1], 0);
    sw_mem_put(text);
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
}

static void byte_alphabet(void **state)
{
    static const struct {
        unsigned char byte;
        uint32_t code_point;
    } known[] = {{0x00, 0x100}, {0x0A, 0x10A}, {0x20, 0x120}, {0x7F, 0x121}, {0x80, 0x122},
                 {0xA0, 0x142}, {0xAD, 0x143}, {'!', '!'},    {'~', '~'},    {0xA1, 0xA1},
                 {0xAE, 0xAE},  {0xFF, 0xFF}};
    int n_back = 0;

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_int_equal(sw_byte_to_char(known[i].byte), known[i].code_point);
    for (int b = 0; b < 256; b++)
        assert_int_equal(sw_char_to_byte(sw_byte_to_char((unsigned char)b)), b);
    for (uint32_t c = 0; c < 0x400; c++) n_back += sw_char_to_byte(c) >= 0;
    assert_int_equal(n_back, 256);
}

/* Every file here is refused with this code and says this. */
typedef struct refusal {
    sw_code code;
    const char *says;
    const char *json;
} refusal;

static void expect_refusals(const refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sw_tokenizer *tok = NULL;
        sw_err err = {0};
        sw_code rc = sw_tokenizer_open_bytes(&tok, rows[i].json, strlen(rows[i].json), "T", &err);
        if (rc != rows[i].code || !strstr(err.text, rows[i].says) || strncmp(err.text, "T: ", 3))
            fail_msg("%s\n  have %d \"%s\"\n  want %d \"%s\"", rows[i].json, rc, err.text,
                     rows[i].code, rows[i].says);
        assert_null(tok);
    }
}

#define MODEL(vocab, merges) \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}}"
#define WITH(part) "{" part "," AB_MODEL "}"
#define ADDED(token) WITH("\"added_tokens\":[" token "]")

static void malformed_files(void **state)
{
    static const refusal rows[] = {
        {SW_E_FORMAT, "not valid JSON", "{"},
        {SW_E_FORMAT, "not a JSON object", "[]"},
        {SW_E_FORMAT, "no \"model\"", "{}"},
        {SW_E_FORMAT, "no \"model\"", "{\"model\":[]}"},
        {SW_E_FORMAT, "neither \"type\" nor \"merges\"", "{\"model\":{}}"},
        {SW_E_FORMAT, "type: not a string", "{\"model\":{\"type\":4}}"},
        {SW_E_FORMAT, "model.vocab: not an object", MODEL("[]", "[]")},
        {SW_E_FORMAT, "model.merges: not an array", MODEL("{\"a\":0}", "{}")},
        {SW_E_FORMAT, "duplicate key \"a\"", MODEL("{\"a\":0,\"a\":1}", "[]")},
        {SW_E_FORMAT, "share the id 3", MODEL("{\"a\":3,\"b\":3}", "[]")},
        {SW_E_FORMAT, "vocab \"a\": token id: -1", MODEL("{\"a\":-1}", "[]")},
        {SW_E_FORMAT, "vocab \"a\": token id: 2147483648", MODEL("{\"a\":2147483648}", "[]")},
        {SW_E_FORMAT, "no exact integer", MODEL("{\"a\":1e300}", "[]")},
        {SW_E_FORMAT, "no exact integer", MODEL("{\"a\":0.5}", "[]")},
        {SW_E_FORMAT, "not a number", MODEL("{\"a\":\"0\"}", "[]")},
        {SW_E_FORMAT, "merges[1]: \"z\" is not in", MODEL("{\"a\":0,\"aa\":1}",
                                                          "[\"a a\",\"a z\"]")},
        {SW_E_FORMAT, "merges[0]: \"aa\" is not in", MODEL("{\"a\":0}", "[\"a a\"]")},
        {SW_E_FORMAT, "one blank between", MODEL("{\"a\":0}", "[\"aa\"]")},
        {SW_E_FORMAT, "one blank between", MODEL("{\"a\":0}", "[\"a a a\"]")},
        {SW_E_FORMAT, "nor two strings", MODEL("{\"a\":0}", "[[\"a\"]]")},
        {SW_E_FORMAT, "nor two strings", MODEL("{\"a\":0}", "[[\"a\",\"a\",\"a\"]]")},
        {SW_E_FORMAT, "nor two strings", MODEL("{\"a\":0}", "[[\"a\",1]]")},
        {SW_E_FORMAT, "nor two strings", MODEL("{\"a\":0}", "[7]")},
        {SW_E_FORMAT, "unk_token \"u\"", "{\"model\":{\"vocab\":{},\"merges\":[],\"unk_token\":"
                                         "\"u\"}}"},
        {SW_E_FORMAT, "byte_fallback: not true or false",
         "{\"model\":{\"vocab\":{},\"merges\":[],\"byte_fallback\":1}}"},
        {SW_E_FORMAT, "shorter than continuing_subword_prefix",
         "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"],"
         "\"continuing_subword_prefix\":\"##\"}}"},
        {SW_E_FORMAT, "added_tokens: not an array", WITH("\"added_tokens\":{}")},
        {SW_E_FORMAT, "added_tokens[0]: no \"content\"", ADDED("{\"id\":4}")},
        {SW_E_FORMAT, "added_tokens[0]: no \"id\"", ADDED("{\"content\":\"x\"}")},
        {SW_E_FORMAT, "added_tokens[0]: id", ADDED("{\"id\":4194304,\"content\":\"x\"}")},
        {SW_E_FORMAT, "share the id 1", ADDED("{\"id\":1,\"content\":\"x\"}")},
        {SW_E_FORMAT, "normalizer: not an object", WITH("\"normalizer\":[]")},
        {SW_E_FORMAT, "normalizer: no \"type\"", WITH("\"normalizer\":{}")},
        {SW_E_FORMAT, "no \"prepend\"", WITH("\"normalizer\":{\"type\":\"Prepend\"}")},
        {SW_E_FORMAT, "neither {\"String\"", WITH("\"normalizer\":{\"type\":\"Replace\","
                                                  "\"content\":\"\",\"pattern\":{}}")},
        {SW_E_FORMAT, "Split: no \"behavior\"", WITH("\"pre_tokenizer\":{\"type\":\"Split\"}")},
        {SW_E_FORMAT, "does not compile", WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\""
                                               ":\"Isolated\",\"pattern\":{\"Regex\":\"(a\"}}")},
        {SW_E_FORMAT, "\"replacement\" is not one character",
         WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\"}")},
        {SW_E_FORMAT, "no ids for \"<s>\"", WITH("\"post_processor\":{\"type\":"
            "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}")},
        {SW_E_FORMAT, "adds id 3, the vocabulary ends at 2", WITH("\"post_processor\":{\"type\":"
            "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}},{\"Sequence\":"
            "{\"id\":\"A\"}}],\"special_tokens\":{\"s\":{\"ids\":[3]}}}")},
        {SW_E_FORMAT, "\"content\" is not one character", WITH("\"decoder\":{\"type\":\"Strip\","
                                                              "\"content\":\"ab\"}")},
    };

    (void)state;
    expect_refusals(rows, sizeof rows / sizeof rows[0]);
}

static void sequences_without_members(void **state)
{
    static const refusal rows[] = {
        {SW_E_FORMAT, "no \"normalizers\"", WITH("\"normalizer\":{\"type\":\"Sequence\"}")},
        {SW_E_FORMAT, "no \"processors\"",
         WITH("\"post_processor\":{\"type\":\"Sequence\",\"processors\":{}}")},
        {SW_E_FORMAT, "decoder Sequence: no \"decoders\"",
         WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Sequence\"}]}")},
    };

    (void)state;
    expect_refusals(rows, sizeof rows / sizeof rows[0]);
}

static void unsupported_features(void **state)
{
    static const refusal rows[] = {
        {SW_E_UNSUPPORTED, "model of type \"WordPiece\"", "{\"model\":{\"type\":\"WordPiece\"}}"},
        {SW_E_UNSUPPORTED, "dropout of 0.1",
         "{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.1}}"},
        {SW_E_UNSUPPORTED, "normalizer of type \"BertNormalizer\"",
         WITH("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
              "{\"type\":\"BertNormalizer\"}]}")},
        {SW_E_UNSUPPORTED, "pre_tokenizer of type \"UnicodeScripts\"",
         WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}")},
        {SW_E_UNSUPPORTED, "behavior \"Sideways\"",
         WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Sideways\"}")},
        {SW_E_UNSUPPORTED, "prepend_scheme \"last\"",
         WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}")},
        {SW_E_UNSUPPORTED, "post_processor of type \"BertProcessing\"",
         WITH("\"post_processor\":{\"type\":\"BertProcessing\"}")},
        {SW_E_UNSUPPORTED, "Sequence A exactly once",
         WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}")},
        {SW_E_UNSUPPORTED, "decoder of type \"WordPiece\"",
         WITH("\"decoder\":{\"type\":\"WordPiece\"}")},
    };

    (void)state;
    expect_refusals(rows, sizeof rows / sizeof rows[0]);
}

/* Stages and added tokens have caps of their own. */
static void too_much_of_it(void **state)
{
    char json[4096];
    sw_tokenizer *tok = NULL;
    sw_err err = {0};
    int n;

    (void)state;
    n = snprintf(json, sizeof json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 33; i++)
        n += snprintf(json + n, sizeof json - (size_t)n, "%s{\"type\":\"NFC\"}", i ? "," : "");
    (void)snprintf(json + n, sizeof json - (size_t)n, "]}," AB_MODEL "}");
    assert_int_equal(sw_tokenizer_open_bytes(&tok, json, strlen(json), "T", &err),
                     SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "more than 32 steps"));
    err = (sw_err){0};
    (void)snprintf(json, sizeof json, ADDED("{\"id\":3,\"content\":\"%0600d\"}"), 1);
    assert_int_equal(sw_tokenizer_open_bytes(&tok, json, strlen(json), "T", &err),
                     SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "content of 600 bytes"));
}

static void missing_file(void **state)
{
    sw_tokenizer *tok = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_tokenizer_open(&tok, "no/such/tokenizer.json", &err), SW_E_IO);
    assert_non_null(strstr(err.text, "no/such/tokenizer.json"));
    assert_null(tok);
    sw_tokenizer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bundled_tokenizer),
        cmocka_unit_test(encode_appends_and_fails_clean),
        cmocka_unit_test(decode_refuses_what_is_no_token),
        cmocka_unit_test(merges_in_both_spellings),
        cmocka_unit_test(added_token_keeps_the_vocabulary_id),
        cmocka_unit_test(model_does_not_know_added_tokens),
        cmocka_unit_test(megabyte_word),
        cmocka_unit_test(byte_alphabet),
        cmocka_unit_test(malformed_files),
        cmocka_unit_test(sequences_without_members),
        cmocka_unit_test(unsupported_features),
        cmocka_unit_test(too_much_of_it),
        cmocka_unit_test(missing_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
