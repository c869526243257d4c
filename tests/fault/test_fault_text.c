/* test_fault_text.c - memory failing while tokenizers load, encode and decode, and while token
 * ids are read from files. */
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
#include "formats/text/files/tokenizer_files.h"
#include "tests/fault/fault.h"
#include "tests/support/scratch.h"

/* A tokenizer.json, a zero byte, a text: as the fuzz corpus has them. */
typedef struct text_case {
    sw_map map;
    sw_ids ids;
    char *decoded;
} text_case;

static sw_code use(sw_tokenizer *tok, text_case *c, sw_err *err)
{
    size_t n_json = strnlen((const char *)c->map.data, c->map.size_bytes), n_bytes = 0;
    const char *text = (const char *)c->map.data + n_json + 1;
    sw_code rc = sw_tokenizer_encode(tok, &c->ids, text, c->map.size_bytes - n_json - 1, true,
                                     err);

    if (rc != SW_OK) {
        assert_int_equal(c->ids.n, 0);
        return rc;
    }
    rc = sw_tokenizer_decode(tok, &c->decoded, &n_bytes, c->ids.ids, c->ids.n, false, err);
    if (rc != SW_OK) assert_null(c->decoded);
    return rc;
}

static sw_code load_and_use(void *ctx, sw_err *err)
{
    text_case *c = ctx;
    size_t n_json = strnlen((const char *)c->map.data, c->map.size_bytes);
    sw_tokenizer *tok = NULL;
    sw_code rc = sw_tokenizer_open_bytes(&tok, (const char *)c->map.data, n_json, "json", err);

    if (rc == SW_OK) rc = use(tok, c, err);
    else assert_null(tok);
    sw_tokenizer_free(tok);
    sw_ids_free(&c->ids);
    sw_mem_put(c->decoded);
    c->decoded = NULL;
    return rc;
}

static void tokenizers(void **state)
{
    static const char *const names[] = {
        "04_qwen", "05_llama_3", "50_normalizer_sequence", "55_llama_2_legacy", "56_gemma",
        "57_metaspace_first_True", "68_affixes", "80_tiny_mapu",
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[SW_PATH_BYTES];
        text_case c = {{0}, {0}, NULL};
        fault_plan plan = {.name = names[i], .kinds = FAULT_MEMORY, .attempt = load_and_use,
                           .ctx = &c, .max_runs = 600};
        sw_err err = {0};
        (void)snprintf(path, sizeof path, "tests/fuzz/corpus/tokenizer/%s.bin", names[i]);
        if (sw_map_open(&c.map, path, &err) != SW_OK) fail_msg("%s", err.text);
        fault_run(&plan);
        sw_map_close(&c.map);
    }
}

static sw_code read_corpus(void *ctx, sw_err *err)
{
    const char *const names[] = {"a.u16", "b.u32", "c.safetensors"};
    sw_corpus corpus = {0};
    sw_code rc = SW_OK;

    for (size_t i = 0; i < 3 && rc == SW_OK; i++) {
        int64_t n_before = corpus.ids.n;
        rc = sw_corpus_add(&corpus, NULL, 1000, scratch_path(ctx, names[i]), err);
        if (rc != SW_OK) assert_int_equal(corpus.ids.n, n_before);
    }
    if (rc == SW_OK) rc = sw_corpus_finish(&corpus, err);
    sw_corpus_free(&corpus);
    return rc;
}

static void corpus_files(void **state)
{
    static const char header[] =
        "\x3C\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"U16\",\"shape\":[600],\"data_offsets\":[0,1200]}} ";
    static unsigned char bytes[sizeof header + 1200];
    scratch s;
    fault_plan plan = {.name = "corpus", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = read_corpus, .ctx = &s};

    (void)state;
    scratch_open(&s);
    memcpy(bytes, header, sizeof header - 1);
    scratch_write(&s, "a.u16", bytes + sizeof header, 1200);
    scratch_write(&s, "b.u32", bytes + sizeof header, 1200);
    scratch_write(&s, "c.safetensors", bytes, sizeof header - 1 + 1200);
    fault_run(&plan);
    scratch_close(&s);
}

/* A template that makes text, lists, mappings and macros, and the lines of a chat file. */
static sw_code render_chat(void *ctx, sw_err *err)
{
    static const char template[] =
        "{% macro f(x) %}{{ x | tojson }}{% endmacro %}{% set ns = namespace(n=[]) %}"
        "{% for m in messages %}{% set ns.n = ns.n + [m.role] %}{{ f({'a': m.content[::-1]}) }}"
        "{{ m | dictsort | string ~ m.content.split('i') }}{% endfor %}{{ ns.n | join(', ') }}";
    static const char line[] = "{\"conversations\": [{\"from\": \"human\", \"value\": \"h\\ni\"}]}";
    sw_chat_format *f = NULL;
    char *text = NULL;
    size_t n = 0;
    sw_code rc = sw_chat_format_new(&f, template, sizeof template - 1, "T", "{}", err);

    (void)ctx;
    if (rc == SW_OK) rc = sw_chat_format_line(&text, &n, f, line, sizeof line - 1, err);
    assert_true((rc == SW_OK) == (text != NULL));
    sw_mem_put(text);
    sw_chat_format_free(f);
    return rc;
}

static void chat_lines(void **state)
{
    fault_plan plan = {.name = "chat", .kinds = FAULT_MEMORY, .attempt = render_chat};

    (void)state;
    fault_run(&plan);
}

static sw_code make_json(void *ctx, sw_err *err)
{
    char *json = NULL;
    size_t n_bytes = 0;
    sw_code rc = sw_tokenizer_files_make(&json, &n_bytes, ctx, err);

    assert_true((rc == SW_OK) == (json != NULL));
    sw_mem_put(json);
    return rc;
}

static void other_files(void **state)
{
    static const char *const names[] = {"spm_bpe", "spm_unigram", "merges_gpt2", "tekken"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char dir[100];
        fault_plan plan = {.name = names[i], .kinds = FAULT_MEMORY | FAULT_READ,
                           .attempt = make_json, .ctx = dir, .max_runs = 300};
        (void)snprintf(dir, sizeof dir, "tests/golden/token_files/%s", names[i]);
        fault_run(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenizers),
        cmocka_unit_test(corpus_files),
        cmocka_unit_test(chat_lines),
        cmocka_unit_test(other_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
