/* test_tokenizer_caps.c - a hostile tokenizer.json cannot make much out of little, in any step.
 *
 * Each bomb here took minutes and gigabytes, or grew the text without bound, before the caps of
 * formats/text/characters/growth.h; each is refused by name of file and step. What honest steps
 * make of a text at most passes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/print_buf.h"
#include "formats/text/tokenizer.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"e\":1,\" \":2},\"merges\":[]}"

static void add(sw_print_buf *buf, const char *text)
{
    assert_int_equal(sw_print_add(buf, text, strlen(text), NULL), SW_OK);
}

static void add_times(sw_print_buf *buf, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        if (i) add(buf, ",");
        add(buf, text);
    }
}

static sw_tokenizer *opened(const sw_print_buf *json)
{
    sw_tokenizer *tok = NULL;
    sw_err err = {0};

    if (sw_tokenizer_open_bytes(&tok, json->at, json->n_bytes, "dir/T", &err) != SW_OK)
        fail_msg("%.*s: %s", (int)(json->n_bytes < 300 ? json->n_bytes : 300), json->at, err.text);
    return tok;
}

/* Encoding `text` ends soon, with ids or with this refusal. */
static void expect(const sw_print_buf *json, const char *text, size_t n_bytes, const char *says)
{
    sw_tokenizer *tok = opened(json);
    sw_ids ids = {0};
    sw_err err = {0};
    sw_code rc = sw_tokenizer_encode(tok, &ids, text, n_bytes, true, &err);

    if (!says && rc != SW_OK) fail_msg("%s", err.text);
    if (says && (rc != SW_E_FORMAT || strncmp(err.text, "dir/T: ", 7) || !strstr(err.text, says)))
        fail_msg("have %d \"%s\", want \"%s\"", rc, err.text, says);
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
}

static void replaced(const char *stage, const char *list, int n, const char *step,
                     const char *says)
{
    sw_print_buf json = {0};

    assert_int_equal(sw_print_fmt(&json, NULL, "{\"%s\":{\"type\":\"Sequence\",\"%s\":[", stage,
                                  list), SW_OK);
    add_times(&json, n, step);
    add(&json, "]}," MODEL "}");
    expect(&json, "e a e e", 7, says);
    sw_mem_put(json.at);
}

#define E_TENFOLD \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"e\"},\"content\":\"eeeeeeeeee\"}"
#define EMPTY_TENFOLD \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\"},\"content\":\"eeeeeeeeee\"}"

static void normalizers(void **state)
{
    (void)state;
    replaced("normalizer", "normalizers", 12, E_TENFOLD, "normalizer step 4 (Replace): the text "
             "grows beyond 4544 bytes");
    replaced("normalizer", "normalizers", 12, EMPTY_TENFOLD, "normalizer step 3 (Replace)");
    replaced("normalizer", "normalizers", 2, E_TENFOLD, NULL);
    replaced("normalizer", "normalizers", 32,
             "{\"type\":\"Prepend\",\"prepend\":\"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\"}", NULL);
}

/* Bytes of the byte-level alphabet are spelled in it again. */
static void pretokenizers(void **state)
{
    (void)state;
    replaced("pre_tokenizer", "pretokenizers", 10,
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}",
             NULL);
    replaced("pre_tokenizer", "pretokenizers", 16,
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}",
             "pre_tokenizer step ");
}

/* A prefix in front of every piece between added tokens adds up over the pieces. */
static void pieces_add_up(void **state)
{
    enum { N = 20000 };
    sw_print_buf json = {0};
    char *text = NULL;

    (void)state;
    add(&json, "{\"added_tokens\":[{\"id\":3,\"content\":\"|\"}],"
               "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"");
    for (int i = 0; i < 5000; i++) add(&json, "a");
    add(&json, "\"}," MODEL "}");
    assert_int_equal(SW_MEM_GET(&text, N, "text", NULL), SW_OK);
    for (int i = 0; i < N; i++) text[i] = i % 2 ? '|' : 'e';
    expect(&json, text, N, "normalizer step 1 (Prepend): the text grows beyond");
    sw_mem_put(text);
    sw_mem_put(json.at);
}

static void decoders(void **state)
{
    sw_print_buf json = {0};
    const uint32_t ids[] = {1, 0, 1};
    size_t n_bytes = 0;
    char *text = NULL;
    sw_tokenizer *tok;
    sw_err err = {0};

    (void)state;
    add(&json, "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},");
    add_times(&json, 12, E_TENFOLD);
    add(&json, "]}," MODEL "}");
    tok = opened(&json);
    assert_int_equal(sw_tokenizer_decode(tok, &text, &n_bytes, ids, 3, false, &err), SW_E_FORMAT);
    if (!strstr(err.text, "dir/T: decoder step 5 (Replace): the text grows")) fail_msg("%s",
                                                                                    err.text);
    assert_null(text);
    sw_tokenizer_free(tok);
    sw_mem_put(json.at);
}

/* A million entries for one text made each position of a text cost a million steps; a blank with
 * "rstrip" looked at all blanks behind it, from each of them. */
static void added_tokens(void **state)
{
    enum { N = 200000 };
    sw_print_buf json = {0};
    char *text = NULL;

    (void)state;
    assert_int_equal(SW_MEM_GET(&text, N, "text", NULL), SW_OK);
    memset(text, 'e', N);
    add(&json, "{\"added_tokens\":[");
    add_times(&json, 20000, "{\"id\":3,\"content\":\"ex\"}");
    add(&json, "]," MODEL "}");
    expect(&json, text, N, NULL);
    json.n_bytes = 0;
    memset(text, ' ', N);
    add(&json, "{\"added_tokens\":[{\"id\":2,\"content\":\" \",\"rstrip\":true,\"lstrip\":true}],"
               MODEL "}");
    expect(&json, text, N, NULL);
    sw_mem_put(text);
    sw_mem_put(json.at);
}

/* Tokens of 512 bytes that every position of the text almost is. */
static void long_searches(void **state)
{
    enum { N = 4000 };
    sw_print_buf json = {0};
    char *text = NULL, content[600];

    (void)state;
    assert_int_equal(SW_MEM_GET(&text, N, "text", NULL), SW_OK);
    memset(text, 'e', N);
    memset(content, 'e', sizeof content);
    content[511] = 'x';
    content[512] = '\0';
    add(&json, "{\"added_tokens\":[{\"id\":3,\"content\":\"");
    add(&json, content);
    add(&json, "\",\"normalized\":true},{\"id\":4,\"content\":\"");
    content[510] = 'y';
    add(&json, content);
    add(&json, "\"}]," MODEL "}");
    expect(&json, text, N, "added_tokens: tokens so long or so alike");
    json.n_bytes = 0;
    add(&json, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"e\",-1]");
    for (int n = 2; n < 1200; n++) {
        char piece[1300];
        memset(piece, 'e', (size_t)n);
        piece[n] = '\0';
        add(&json, ",[\"");
        add(&json, piece);
        add(&json, "\",-2]");
    }
    add(&json, "]}}");
    expect(&json, text, N, "model (Unigram): tokens so long or so alike");
    expect(&json, text, 1000, NULL);
    sw_mem_put(text);
    sw_mem_put(json.at);
}

static void refused_at_load(const char *json, size_t n_bytes, const char *says)
{
    sw_tokenizer *tok = NULL;
    sw_err err = {0};
    sw_code rc = sw_tokenizer_open_bytes(&tok, json, n_bytes, "dir/T", &err);

    if (rc != SW_E_FORMAT || !strstr(err.text, says)) fail_msg("have %d \"%s\", want \"%s\"", rc,
                                                              err.text, says);
}

/* Stages that wrap one another, and ids that every text would get. */
static void templates(void **state)
{
    static const char stage[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"s\":{\"ids\":[0]}}}";
    sw_print_buf json = {0};

    (void)state;
    add(&json, "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[");
    add_times(&json, 33, stage);
    add(&json, "]}," MODEL "}");
    refused_at_load(json.at, json.n_bytes, "TemplateProcessing: more than 32 stages");
    json.n_bytes = 0;
    add(&json, "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
               "{\"SpecialToken\":{\"id\":\"s\"}},{\"Sequence\":{\"id\":\"A\"}}],"
               "\"special_tokens\":{\"s\":{\"ids\":[");
    add_times(&json, 1025, "0");
    add(&json, "]}}}," MODEL "}");
    refused_at_load(json.at, json.n_bytes, "or 1024 special tokens");
    sw_mem_put(json.at);
}

/* Every character is looked up with the prefix in front of it. */
static void affixes(void **state)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"0123456789012345678901234567"
        "8901234567890123456789012345678901234567\",\"vocab\":{},\"merges\":[]}}";

    (void)state;
    refused_at_load(json, sizeof json - 1, "continuing_subword_prefix of 68 bytes");
}

/* Sequence in Sequence ends at the depth of JSON. */
static void nesting(void **state)
{
    static const char *const stages[][2] = {{"normalizer", "normalizers"},
                                            {"pre_tokenizer", "pretokenizers"},
                                            {"post_processor", "processors"},
                                            {"decoder", "decoders"}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        sw_print_buf json = {0};
        assert_int_equal(sw_print_fmt(&json, NULL, "{\"%s\":", stages[i][0]), SW_OK);
        for (int k = 0; k < 500; k++)
            assert_int_equal(sw_print_fmt(&json, NULL, "{\"type\":\"Sequence\",\"%s\":[",
                                          stages[i][1]), SW_OK);
        for (int k = 0; k < 500; k++) add(&json, "]}");
        add(&json, "," MODEL "}");
        refused_at_load(json.at, json.n_bytes, "deep");
        sw_mem_put(json.at);
    }
}

/* An expression that backtracks is stopped, and the step named. */
static void backtracking(void **state)
{
    sw_print_buf json = {0};
    char text[4096];

    (void)state;
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 2, "-b", 2);
    add(&json, "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+b\"},"
               "\"behavior\":\"Isolated\"}," MODEL "}");
    expect(&json, text, sizeof text, "pre_tokenizer step 1 (Split): expression backtracks");
    json.n_bytes = 0;
    add(&json, "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a|aa)+$\"},"
               "\"content\":\"\"}," MODEL "}");
    expect(&json, text, sizeof text, "normalizer step 1 (Replace): expression backtracks");
    sw_mem_put(json.at);
}

/* What real steps make at most: U+FDFA is 11 times as long under NFKC, its blanks are as U+2581
 * three times that, and byte-level letters twice. */
static void honest_growth(void **state)
{
    enum { N = 30000 };
    sw_print_buf json = {0};
    char *text = NULL;

    (void)state;
    add(&json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
               "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
               "\"content\":\"\xE2\x96\x81\"}]},"
               "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false}," MODEL "}");
    assert_int_equal(SW_MEM_GET(&text, N, "text", NULL), SW_OK);
    for (int i = 0; i < N; i += 3) memcpy(text + i, "\xEF\xB7\xBA", 3);
    expect(&json, text, N, NULL);
    sw_mem_put(text);
    sw_mem_put(json.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalizers),   cmocka_unit_test(pretokenizers),
        cmocka_unit_test(pieces_add_up), cmocka_unit_test(decoders),
        cmocka_unit_test(added_tokens),  cmocka_unit_test(long_searches),
        cmocka_unit_test(templates),     cmocka_unit_test(affixes),
        cmocka_unit_test(nesting),       cmocka_unit_test(backtracking),
        cmocka_unit_test(honest_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
