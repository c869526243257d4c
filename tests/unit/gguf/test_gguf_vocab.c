/* test_gguf_vocab.c - tokenizers of GGUF files: every reader of the tokenizer.json made of one
 * gives the ids of the file, every name of a pre-tokenizer cuts as it should and is found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/checkpoint/model_text.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_pre.h"
#include "formats/gguf/gguf_vocab.h"
#include "formats/io/file_content.h"
#include "formats/text/tokenizer_parts.h"
#include "tests/support/scratch.h"

#define BLANK "\xe2\x96\x81"
#define BAR "\xc2\xa6" /* between the pieces of tests/golden/gguf/splits.json */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

static const sw_json_caps caps = {
    .max_bytes = (size_t)1 << 20, .max_depth = 32, .max_values = 100000};

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static cJSON *parse(const char *text)
{
    cJSON *json = NULL;
    sw_err err = {0};

    must(sw_json_parse(&json, text, strlen(text), &caps, "made", &err), &err);
    return json;
}

/* --- files -------------------------------------------------------------------------------- */

typedef struct token {
    const char *text;
    int type;
    double score;
} token;

typedef struct file {
    const char *model, *pre, *name; /* NULL: without the key */
    const token *tokens;
    int n_tokens;
    const char *const *merges; /* up to NULL; NULL: none */
    const char *ids[4];        /* keys of special tokens, "bos_token_id", up to NULL */
    int64_t id[4];
} file;

static void put_file(const char *path, const file *f)
{
    sw_gguf_writer *w = NULL;
    sw_err err = {0};
    char key[80];
    uint64_t n = 0;

    must(sw_gguf_writer_new(&w, path, &err), &err);
    if (f->name) must(sw_gguf_put_text(w, "general.name", f->name, &err), &err);
    must(sw_gguf_put_text(w, "tokenizer.ggml.model", f->model, &err), &err);
    if (f->pre) must(sw_gguf_put_text(w, "tokenizer.ggml.pre", f->pre, &err), &err);
    must(sw_gguf_put_array(w, "tokenizer.ggml.tokens", SW_GGUF_TEXT, (uint64_t)f->n_tokens, &err),
         &err);
    for (int i = 0; i < f->n_tokens; i++)
        must(sw_gguf_put_elem_text(w, f->tokens[i].text, strlen(f->tokens[i].text), &err), &err);
    must(sw_gguf_put_array(w, "tokenizer.ggml.token_type", SW_GGUF_I32, (uint64_t)f->n_tokens,
                           &err), &err);
    for (int i = 0; i < f->n_tokens; i++)
        must(sw_gguf_put_elem_int(w, f->tokens[i].type, &err), &err);
    must(sw_gguf_put_array(w, "tokenizer.ggml.scores", SW_GGUF_F32, (uint64_t)f->n_tokens, &err),
         &err);
    for (int i = 0; i < f->n_tokens; i++)
        must(sw_gguf_put_elem_real(w, f->tokens[i].score, &err), &err);
    while (f->merges && f->merges[n]) n++;
    if (f->merges)
        must(sw_gguf_put_array(w, "tokenizer.ggml.merges", SW_GGUF_TEXT, n, &err), &err);
    for (uint64_t i = 0; i < n; i++)
        must(sw_gguf_put_elem_text(w, f->merges[i], strlen(f->merges[i]), &err), &err);
    for (int i = 0; i < 4 && f->ids[i]; i++) {
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s", f->ids[i]);
        must(sw_gguf_put_int(w, key, SW_GGUF_U32, f->id[i], &err), &err);
    }
    must(sw_gguf_begin(w, &err), &err);
    must(sw_gguf_commit(w, &err), &err);
    sw_gguf_writer_free(w);
}

/* The three files that a directory gets, parsed. */
typedef struct made {
    cJSON *tokenizer, *config, *special;
} made;

static sw_code make(made *out, const char *path, sw_err *err)
{
    char *text[3] = {NULL};
    size_t n_bytes = 0;
    sw_gguf *g = NULL;
    sw_code rc;

    memset(out, 0, sizeof *out);
    must(sw_gguf_open(&g, path, err), err);
    if ((rc = sw_gguf_tokenizer(&text[0], &n_bytes, g, err)) == SW_OK) {
        assert_int_equal(strlen(text[0]), n_bytes);
        must(sw_gguf_tokenizer_config(&text[1], g, err), err);
        must(sw_gguf_special_tokens(&text[2], g, err), err);
        out->tokenizer = parse(text[0]);
        out->config = parse(text[1]);
        out->special = parse(text[2]);
    }
    for (int i = 0; i < 3; i++) sw_mem_put(text[i]);
    sw_gguf_close(g);
    return rc;
}

static void unmake(made *m)
{
    cJSON_Delete(m->tokenizer);
    cJSON_Delete(m->config);
    cJSON_Delete(m->special);
}

static const cJSON *added_of(const made *m, const char *text)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, sw_json_member(m->tokenizer, "added_tokens"))
        if (!strcmp(sw_json_member(item, "content")->valuestring, text)) return item;
    return NULL;
}

static bool is_true(const cJSON *object, const char *key)
{
    const cJSON *member = sw_json_member(object, key);

    assert_true(cJSON_IsBool(member));
    return cJSON_IsTrue(member);
}

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *member = sw_json_member(object, key);

    assert_true(cJSON_IsString(member));
    return member->valuestring;
}

/* --- ids ---------------------------------------------------------------------------------- */

static const token byte_tokens[] = {
    {"a", NORMAL, 0},     {"<|im_start|>", CONTROL, 0}, {"<|im_end|>", NORMAL, 0},
    {"b", NORMAL, 0},     {"<tool>", USER, 0},          {"ab", NORMAL, 0},
    {"<unused>", UNUSED, 0}, {"[PAD7]", UNUSED, 0},     {"c", NORMAL, 0},
};
static const char *const byte_merges[] = {"a b", NULL};
static const file bytes = {
    .model = "gpt2", .pre = "smollm", .tokens = byte_tokens, .n_tokens = 9, .merges = byte_merges,
    .ids = {"bos_token_id", "eos_token_id"}, .id = {1, 2}};

static const token piece_tokens[] = {
    {"<s0>", CONTROL, 0},  {"<s>", CONTROL, 0}, {"</s>", CONTROL, 0}, {"<0x41>", BYTE, 0},
    {BLANK, NORMAL, -9},   {"a", NORMAL, -8},   {"<table>", USER, -1000}, {"b", NORMAL, -7},
    {"\n\n", USER, -1000}, {BLANK "a", NORMAL, -2}, {"<turn>", CONTROL, -1000},
    {"ab", NORMAL, -1},    {BLANK BLANK, USER, -3}, {"<unk>", UNKNOWN, 0},
};
static const file pieces = {.model = "llama", .pre = "default", .tokens = piece_tokens,
                            .n_tokens = 14};

/* Readers number an added token that model.vocab lacks anew: none may be lacking. */
static void check_ids(const file *f, const made *m, bool is_list)
{
    const cJSON *vocab = sw_json_member(sw_json_member(m->tokenizer, "model"), "vocab"), *item;
    int n_added = 0;

    cJSON_ArrayForEach(item, sw_json_member(m->tokenizer, "added_tokens"))
    {
        const int64_t id = (int64_t)sw_json_member(item, "id")->valuedouble;
        const char *text = text_of(item, "content");

        assert_true(id >= 0 && id < f->n_tokens);
        assert_string_equal(f->tokens[id].text, text);
        if (!is_list && !sw_json_member(vocab, text)) fail_msg("%s is not in model.vocab", text);
        assert_false(is_true(item, "normalized") || is_true(item, "lstrip") ||
                     is_true(item, "single_word"));
        n_added++;
    }
    assert_true(n_added > 0);
    for (int i = 0; i < f->n_tokens; i++) {
        const cJSON *entry = is_list ? cJSON_GetArrayItem(vocab, i)
                                     : sw_json_member(vocab, f->tokens[i].text);
        if (!strncmp(f->tokens[i].text, "[PAD", 4) && !is_list) {
            assert_null(entry);
            continue;
        }
        assert_non_null(entry);
        if (is_list) assert_string_equal(entry->child->valuestring, f->tokens[i].text);
        else assert_int_equal((int)entry->valuedouble, i);
    }
}

static void test_ids_of_bytes(void **state)
{
    sw_err err = {0};
    scratch s;
    made m;

    (void)state;
    scratch_open(&s);
    put_file(scratch_path(&s, "v.gguf"), &bytes);
    must(make(&m, scratch_path(&s, "v.gguf"), &err), &err);
    check_ids(&bytes, &m, false);
    assert_true(is_true(added_of(&m, "<|im_start|>"), "special"));
    assert_true(is_true(added_of(&m, "<|im_end|>"), "special")); /* whatever its type says */
    assert_false(is_true(added_of(&m, "<tool>"), "special"));
    assert_null(added_of(&m, "<unused>"));
    assert_string_equal(text_of(m.config, "bos_token"), "<|im_start|>");
    assert_string_equal(text_of(m.special, "eos_token"), "<|im_end|>");
    assert_false(is_true(m.config, "clean_up_tokenization_spaces"));
    assert_false(is_true(m.config, "add_bos_token"));
    unmake(&m);
    scratch_close(&s);
}

static void same_ids(const char *path, const char *text, const uint32_t *want, int64_t n_want)
{
    sw_tokenizer *tok = NULL;
    sw_ids ids = {0};
    sw_err err = {0};

    must(sw_model_tokenizer(&tok, path, &err), &err);
    must(sw_tokenizer_encode(tok, &ids, text, strlen(text), false, &err), &err);
    assert_int_equal(ids.n, n_want);
    for (int64_t i = 0; i < n_want; i++) assert_int_equal(ids.ids[i], want[i]);
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
}

static void test_ids_of_pieces(void **state)
{
    static const uint32_t want[] = {4, 11, 6, 9, 8, 12, 4, 7, 10, 4, 11};
    sw_err err = {0};
    scratch s;
    file phi = pieces;
    made m;

    (void)state;
    scratch_open(&s);
    put_file(scratch_path(&s, "v.gguf"), &pieces);
    must(make(&m, scratch_path(&s, "v.gguf"), &err), &err);
    check_ids(&pieces, &m, false);
    assert_true(is_true(added_of(&m, "<unk>"), "special"));
    assert_false(is_true(added_of(&m, "\n\n"), "special"));
    assert_null(added_of(&m, "<0x41>"));
    assert_string_equal(text_of(m.config, "unk_token"), "<unk>"); /* without a key, by its type */
    assert_string_equal(text_of(m.config, "eos_token"), "</s>");
    assert_true(is_true(m.config, "add_bos_token"));
    /* a piece that a user added is made by merging, too: text begins with its own blank */
    same_ids(scratch_path(&s, "v.gguf"), "ab<table>a\n\n  b<turn>ab", want, 11);
    unmake(&m);
    phi.name = "Phi 3 or phi-3 mini";
    put_file(scratch_path(&s, "p.gguf"), &phi);
    must(make(&m, scratch_path(&s, "p.gguf"), &err), &err);
    assert_true(is_true(added_of(&m, "<turn>"), "rstrip"));
    assert_false(is_true(added_of(&m, "<s>"), "rstrip"));
    unmake(&m);
    scratch_close(&s);
}

/* --- from tokenizer.json and back ---------------------------------------------------------- */

static sw_code write_back(const char *path, const char *tokenizer, const char *config,
                          int64_t n_tokens, sw_err *err)
{
    cJSON *json = parse(tokenizer), *second = config ? parse(config) : NULL;
    sw_gguf_vocab_source source = {.tokenizer = json, .config = second, .n_tokens = n_tokens,
                                   .bos_id = -1, .eos_id = -1};
    sw_gguf_writer *w = NULL;
    sw_code rc;

    must(sw_gguf_writer_new(&w, path, err), err);
    rc = sw_gguf_vocab_write(w, &source, err);
    if (rc == SW_OK) must(sw_gguf_begin(w, err), err);
    if (rc == SW_OK) must(sw_gguf_commit(w, err), err);
    sw_gguf_writer_free(w);
    cJSON_Delete(json);
    cJSON_Delete(second);
    return rc;
}

static const char unigram[] =
    "{\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":"
    "\"<tool>\",\"special\":false}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAECAwRBQgA=\"},{\"type\":\"Strip\","
    "\"strip_left\":false,\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
    "\" {2,}\"},\"content\":\"" BLANK "\"}]},\"pre_tokenizer\":{\"type\":\"Metaspace\","
    "\"replacement\":\"" BLANK "\",\"prepend_scheme\":\"always\",\"split\":true},\"model\":{"
    "\"type\":\"Unigram\",\"unk_id\":1,\"byte_fallback\":false,\"vocab\":[[\"a\","
    "-3.543210029602051],[\"<unk>\",0],[\"<s>\",0],[\"" BLANK "b\",-2.25],[\"<tool>\",0]]}}";

static void test_unigram(void **state)
{
    cJSON *want = parse(unigram);
    const cJSON *entry, *again;
    sw_err err = {0};
    scratch s;
    made m;

    (void)state;
    scratch_open(&s);
    must(write_back(scratch_path(&s, "u.gguf"), unigram, NULL, 6, &err), &err);
    must(make(&m, scratch_path(&s, "u.gguf"), &err), &err);
    assert_true(cJSON_Compare(sw_json_member(m.tokenizer, "normalizer"),
                              sw_json_member(want, "normalizer"), true));
    assert_true(cJSON_Compare(sw_json_member(m.tokenizer, "pre_tokenizer"),
                              sw_json_member(want, "pre_tokenizer"), true));
    again = sw_json_member(sw_json_member(m.tokenizer, "model"), "vocab");
    assert_int_equal(cJSON_GetArraySize(again), 6); /* a row without a token has one, too */
    entry = cJSON_GetArrayItem(again, 0);
    assert_true(entry->child->next->valuedouble == (double)-3.543210029602051f); /* exactly */
    entry = cJSON_GetArrayItem(again, 3);
    assert_string_equal(entry->child->valuestring, BLANK "b");
    assert_string_equal(text_of(added_of(&m, "<tool>"), "content"), "<tool>");
    assert_true(is_true(added_of(&m, "<unk>"), "special"));
    assert_int_equal((int)sw_json_member(sw_json_member(m.tokenizer, "model"), "unk_id")
                         ->valuedouble, 1);
    unmake(&m);
    cJSON_Delete(want);
    scratch_close(&s);
}

/* --- pre-tokenizers ------------------------------------------------------------------------ */

static char *print_pre(const sw_gguf_pre *pre)
{
    sw_print_buf buf = {0};
    sw_err err = {0};

    must(sw_gguf_pre_print(&buf, pre, &err), &err);
    must(sw_print_add(&buf, "", 1, &err), &err);
    return buf.at;
}

/* Pieces one behind the other, with a bar between. */
typedef struct cuts {
    char text[1024];
    size_t n;
} cuts;

static sw_code add_piece(void *self, const char *text, size_t n_bytes, sw_err *err)
{
    cuts *c = self;

    (void)err;
    assert_true(c->n + n_bytes + 3 < sizeof c->text);
    if (c->n) c->n += (size_t)snprintf(c->text + c->n, 3, BAR);
    memcpy(c->text + c->n, text, n_bytes);
    c->text[c->n += n_bytes] = '\0';
    return SW_OK;
}

/* The text is what the pieces are without the bars. */
static void check_cuts(const char *name, sw_pretokenizer *pretok, const char *want)
{
    char text[1024];
    size_t n = 0;
    cuts have = {.n = 0};
    sw_err err = {0};

    for (const char *at = want; *at; at++) {
        if (!strncmp(at, BAR, 2)) at++;
        else text[n++] = *at;
    }
    sw_pattern_clock_start(pretok->clock, n);
    must(sw_pretok_run(pretok, text, n, true, add_piece, &have, &err), &err);
    if (strcmp(have.text, want)) fail_msg("%s cuts\n%s\nwant\n%s", name, have.text, want);
}

static int check_name(const char *name, const cJSON *all)
{
    const sw_gguf_pre *pre = sw_gguf_pre_find(name);
    sw_pattern_clock clock = {0};
    sw_pretokenizer pretok = {.clock = &clock};
    sw_arena arena = {0};
    const cJSON *one;
    sw_err err = {0};
    cJSON *json;
    char *text;

    if (!pre) fail_msg("%s is not known", name);
    text = print_pre(pre);
    json = parse(text);
    must(sw_pretok_parse(&pretok, json, &arena, &err), &err);
    cJSON_ArrayForEach(one, all) check_cuts(name, &pretok, one->valuestring);
    sw_pretok_free(&pretok);
    sw_arena_free(&arena);
    cJSON_Delete(json);
    sw_mem_put(text);
    return 1;
}

/* Where every name cuts, against what other programs made of the same texts. */
static void test_cuts(void **state)
{
    const cJSON *row, *name;
    cJSON *golden = NULL;
    sw_err err = {0};
    int n_names = 0;

    (void)state;
    must(sw_json_read(&golden, "tests/golden/gguf/splits.json", &caps, &err), &err);
    cJSON_ArrayForEach(row, sw_json_member(golden, "rows"))
        cJSON_ArrayForEach(name, sw_json_member(row, "names"))
            n_names += check_name(name->valuestring, sw_json_member(row, "pieces"));
    assert_true(n_names >= 84);
    cJSON_Delete(golden);
}

/* A tokenizer.json that says it so. */
static sw_code match(const sw_gguf_pre **out, const char *normalizer, const char *pre, bool whole,
                     int cleans, sw_err *err)
{
    cJSON *json = cJSON_CreateObject(), *model = cJSON_AddObjectToObject(json, "model");
    sw_code rc;

    assert_non_null(cJSON_AddBoolToObject(model, "ignore_merges", whole));
    assert_true(cJSON_AddItemToObject(json, "normalizer", parse(normalizer)));
    assert_true(cJSON_AddItemToObject(json, "pre_tokenizer", parse(pre)));
    rc = sw_gguf_pre_match(out, json, cleans, err);
    cJSON_Delete(json);
    return rc;
}

/* What is read under a name is written under one that means the same. */
static void test_names_are_found(void **state)
{
    (void)state;
    for (int i = 0; i < sw_gguf_n_pres; i++) {
        const sw_gguf_pre *pre = &sw_gguf_pres[i], *found = NULL;
        const bool is_clean = pre->flags & SW_GGUF_PRE_CLEAN;
        const unsigned same = SW_GGUF_PRE_NFC | SW_GGUF_PRE_WHOLE | SW_GGUF_PRE_CLEAN;
        sw_err err = {0};
        char *text;

        if (pre->flags & SW_GGUF_PRE_PIECES) continue;
        text = print_pre(pre);
        must(match(&found, pre->flags & SW_GGUF_PRE_NFC ? "{\"type\":\"NFC\"}" : "null", text,
                   pre->flags & SW_GGUF_PRE_WHOLE, is_clean, &err), &err);
        if (found->splits != pre->splits || (found->flags & same) != (pre->flags & same))
            fail_msg("%s is written as %s", pre->name, found->name);
        sw_mem_put(text);
    }
}

#define BYTES_ALONE "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define BYTES_CUT "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define STEPS(a, b) "{\"type\":\"Sequence\",\"pretokenizers\":[" a "," b "]}"
#define DIGITS(one) "{\"type\":\"Digits\",\"individual_digits\":" one "}"
#define CUT(regex, how, inverted) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"}," \
    "\"behavior\":\"" how "\",\"invert\":" inverted "}"
#define QWEN "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| " \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define STOPS " ?[^(\\\\s|.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4" \
    "\xdb\x94\xd8\x8c)]+"

/* The name, or a part of the message. */
static const struct {
    const char *normalizer, *pre;
    bool whole;
    int cleans;
    const char *name, *part;
} spelled[] = {
    {"null", BYTES_CUT, false, -1, "gpt-2", NULL},
    {"null", BYTES_CUT, false, 0, "trillion", NULL},
    {"null", STEPS(DIGITS("true"), BYTES_CUT), false, -1, "smollm", NULL},
    {"null", STEPS(DIGITS("true"), BYTES_CUT), false, 1, "starcoder", NULL},
    {"{\"type\":\"NFC\"}", STEPS(CUT(QWEN, "Isolated", "false"), BYTES_ALONE), false, -1, "qwen2",
     NULL},
    {"{\"type\":\"Sequence\",\"normalizers\":[]}",
     STEPS(CUT(QWEN, "Removed", "true"), BYTES_ALONE), false, -1, "hunyuan", NULL},
    {"null", STEPS(CUT(STOPS, "Isolated", "false"), BYTES_ALONE), false, 1, "bloom", NULL},
    {"null", STEPS(DIGITS("false"), BYTES_CUT), false, -1, NULL, "\\p{N}+"},
    {"null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", false, -1, NULL,
     "add_prefix_space"},
    {"null", BYTES_CUT, true, -1, NULL, "ignore_merges"},
    {"{\"type\":\"NFKC\"}", BYTES_CUT, false, -1, NULL, "NFKC"},
    {"null", "{\"type\":\"Whitespace\"}", false, -1, NULL, "Whitespace"},
    {"null", CUT(QWEN, "Isolated", "false"), false, -1, NULL, "without ByteLevel"},
    {"null", STEPS(CUT("[^x]+", "Removed", "true"), BYTES_ALONE), false, -1, NULL, "isolated"},
};

static void test_spellings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
        const sw_gguf_pre *found = NULL;
        sw_err err = {0};
        sw_code rc = match(&found, spelled[i].normalizer, spelled[i].pre, spelled[i].whole,
                           spelled[i].cleans, &err);

        if (spelled[i].name) {
            must(rc, &err);
            if (strcmp(found->name, spelled[i].name))
                fail_msg("row %zu is %s, want %s", i, found->name, spelled[i].name);
        } else if (rc != SW_E_UNSUPPORTED || !strstr(err.text, spelled[i].part) ||
                   !strstr(err.text, "--no-tokenizer")) {
            fail_msg("row %zu: %d %s", i, (int)rc, err.text);
        }
    }
}

/* --- refusals ------------------------------------------------------------------------------ */

static const token twice[] = {{"a", NORMAL, 0}, {"b", NORMAL, 0}, {"a", NORMAL, 0}};
static const char *const unknown_side[] = {"a x", NULL}, *const unknown_whole[] = {"a b", NULL};
static const char *const no_pair[] = {"ab", NULL}, *const none[] = {NULL};

static const struct {
    file f;
    sw_code code;
    const char *part;
} bad[] = {
    {{.model = "gpt2", .pre = "gpt-2", .tokens = twice, .n_tokens = 2, .merges = none}, SW_OK, ""},
    {{.model = "gpt2", .pre = "gpt-2", .tokens = twice, .n_tokens = 3, .merges = none},
     SW_E_FORMAT, "tokens 0 and 2"},
    {{.model = "gpt2", .pre = "gpt-2", .tokens = twice, .n_tokens = 2, .merges = unknown_side},
     SW_E_FORMAT, "a side of it is no token"},
    {{.model = "gpt2", .pre = "gpt-2", .tokens = twice, .n_tokens = 2, .merges = unknown_whole},
     SW_E_FORMAT, "what it makes is no token"},
    {{.model = "gpt2", .pre = "gpt-2", .tokens = twice, .n_tokens = 2, .merges = no_pair},
     SW_E_FORMAT, "not two tokens"},
    {{.model = "gpt2", .pre = "gpt-2", .tokens = twice, .n_tokens = 2}, SW_E_FORMAT, "merges"},
    {{.model = "gpt2", .tokens = twice, .n_tokens = 2, .merges = none}, SW_E_UNSUPPORTED,
     "tokenizer.ggml.pre is missing"},
    {{.model = "gpt2", .pre = "unheard-of", .tokens = twice, .n_tokens = 2, .merges = none},
     SW_E_UNSUPPORTED, "\"unheard-of\""},
    {{.model = "bert", .pre = "default", .tokens = twice, .n_tokens = 2}, SW_E_UNSUPPORTED,
     "\"bert\""},
    {{.model = "rwkv", .pre = "default", .tokens = twice, .n_tokens = 2}, SW_E_UNSUPPORTED,
     "\"rwkv\""},
};

static void test_refusals(void **state)
{
    scratch s;

    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sw_err err = {0};
        char name[32];
        sw_code rc;
        made m;

        (void)snprintf(name, sizeof name, "bad%zu.gguf", i);
        put_file(scratch_path(&s, name), &bad[i].f);
        rc = make(&m, scratch_path(&s, name), &err);
        if (rc != bad[i].code || !strstr(err.text, bad[i].part))
            fail_msg("row %zu: %d %s", i, (int)rc, err.text);
        if (rc != SW_OK) assert_non_null(strstr(err.text, name));
        unmake(&m);
    }
    scratch_close(&s);
}

/* "gemma4": blanks as U+2581, merges listed, no cutting. */
static void test_merged_pieces(void **state)
{
    static const char *const merges[] = {BLANK " a", "a b", NULL};
    static const uint32_t want[] = {5, 9, 7, 8};
    file f = pieces;
    scratch s;

    (void)state;
    f.model = "gemma4";
    f.pre = NULL;
    f.merges = merges;
    scratch_open(&s);
    put_file(scratch_path(&s, "g.gguf"), &f);
    same_ids(scratch_path(&s, "g.gguf"), "a ab\n\n", want, 4);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_of_bytes),  cmocka_unit_test(test_ids_of_pieces),
        cmocka_unit_test(test_unigram),       cmocka_unit_test(test_merged_pieces),
        cmocka_unit_test(test_cuts),          cmocka_unit_test(test_names_are_found),
        cmocka_unit_test(test_spellings),     cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
