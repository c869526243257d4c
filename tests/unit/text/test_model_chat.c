/* test_model_chat.c - where a model keeps its chat template, what ends a turn, and chat files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/model_text.h"
#include "formats/text/corpus.h"
#include "tests/support/scratch.h"

#define TINY "calib_data/tiny-llama"
#define LOOP "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
#define SIMPLE LOOP "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<go>{% endif %}"

static const char user[] = "[{\"role\": \"user\", \"content\": \"hi\"}]";

static void expect_text(const scratch *s, const char *want)
{
    sw_chat_format *f = NULL;
    sw_err err = {0};
    char *text = NULL;
    size_t n = 0;

    if (sw_model_chat(&f, s->dir, &err) != SW_OK || !f ||
        sw_chat_format_messages(&text, &n, f, user, sizeof user - 1, true, NULL, &err) != SW_OK)
        fail_msg("%s", err.text[0] ? err.text : "no template");
    assert_string_equal(text, want);
    sw_mem_put(text);
    sw_chat_format_free(f);
}

static void templates_are_found_in_order(void **state)
{
    const scratch *s = *state;
    sw_chat_format *f = NULL;
    sw_err err = {0};

    assert_int_equal(sw_model_chat(&f, s->dir, &err), SW_OK);
    assert_null(f);
    scratch_write_text(s, "special_tokens_map.json",
                       "{\"eos_token\": {\"content\": \"</m>\"}, \"bos_token\": \"<m>\"}");
    scratch_write_text(s, "tokenizer_config.json", "{\"bos_token\": \"<c>\", \"chat_template\": "
                       "\"config {{ bos_token }}{{ eos_token }}\"}");
    expect_text(s, "config <c></m>");
    scratch_write_text(s, "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"tool_use\", "
                       "\"template\": \"t\"}, {\"name\": \"default\", \"template\": \"d\"}]}");
    expect_text(s, "d");
    scratch_write_text(s, "chat_template.json", "{\"chat_template\": \"json\"}");
    expect_text(s, "json");
    scratch_write_text(s, "chat_template.jinja", SIMPLE);
    expect_text(s, "<user>hi</m><go>");
}

static void no_default_is_refused(void **state)
{
    const scratch *s = *state;
    sw_chat_format *f = NULL;
    sw_err err = {0};

    scratch_write_text(s, "tokenizer_config.json",
                       "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"t\"}]}");
    assert_int_equal(sw_model_chat(&f, s->dir, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no template named default"));
    scratch_write_text(s, "chat_template.jinja", "{% include 'x' %}");
    err = (sw_err){0};
    assert_int_equal(sw_model_chat(&f, s->dir, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "chat_template.jinja, line 1, column 4: \"include\""));
}

static void check_ends(const scratch *s, sw_tokenizer *tok, const char *template,
                       const uint32_t *want, int64_t n_want)
{
    sw_chat_format *f = NULL;
    sw_err err = {0};
    sw_ids ends = {0};

    scratch_write_text(s, "chat_template.jinja", template);
    assert_int_equal(sw_model_chat(&f, s->dir, &err), SW_OK);
    assert_int_equal(sw_model_chat_ends(&ends, s->dir, f, tok, &err), SW_OK);
    assert_int_equal(ends.n, n_want);
    for (int64_t i = 0; i < n_want; i++) assert_int_equal(ends.ids[i], want[i]);
    sw_ids_free(&ends);
    sw_chat_format_free(f);
}

static void ends_of_turns(void **state)
{
    const scratch *s = *state;
    sw_tokenizer *tok = NULL;
    sw_err err = {0};

    assert_int_equal(sw_model_tokenizer(&tok, TINY, &err), SW_OK);
    scratch_write_text(s, "tokenizer_config.json", "{\"eos_token\": \"<|end_of_text|>\"}");
    check_ends(s, tok, SIMPLE, (const uint32_t[]){1}, 1);
    check_ends(s, tok, LOOP "\n{% endfor %}", NULL, 0);
    check_ends(s, tok, LOOP ".{{ eos_token }}{% endfor %}", NULL, 0);
    scratch_write_text(s, "generation_config.json", "{\"eos_token_id\": [9, 7]}");
    check_ends(s, tok, SIMPLE, (const uint32_t[]){9, 7, 1}, 3);
    scratch_write_text(s, "generation_config.json", "{\"eos_token_id\": 5}");
    check_ends(s, tok, "{{ raise_exception('no') }}", (const uint32_t[]){5}, 1);
    sw_tokenizer_free(tok);
}

/* The ids of a chat file are those of its rendered lines, one behind the other. */
static void lines_of_every_form(void **state)
{
    static const char text[] =
        "<user>hi<|end_of_text|><assistant>yes<|end_of_text|>plain<|end_of_text|>\n"
        "<system>s<|end_of_text|><user>u<|end_of_text|><assistant>a<|end_of_text|>";
    static const char lines[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, "
        "{\"role\": \"assistant\", \"content\": \"yes\"}]}\r\n\n"
        "{\"text\": \"plain<|end_of_text|>\\n\"}\n"
        "{\"conversations\": [{\"from\": \"system\", \"value\": \"s\"}, {\"from\": \"human\", "
        "\"value\": \"u\"}, {\"from\": \"gpt\", \"value\": \"a\"}]}";
    const scratch *s = *state;
    sw_corpus have = {0}, want = {0};
    sw_tokenizer *tok = NULL;
    sw_chat_format *f = NULL;
    sw_err err = {0};

    assert_int_equal(sw_model_tokenizer(&tok, TINY, &err), SW_OK);
    assert_int_equal(sw_chat_format_new(&f, SIMPLE, sizeof SIMPLE - 1, "T",
                                        "{\"eos_token\": \"<|end_of_text|>\"}", &err), SW_OK);
    scratch_write_text(s, "a.jsonl", lines);
    scratch_write_text(s, "a.txt", text);
    have.chat = f;
    if (sw_corpus_add(&have, tok, 100000, scratch_path(s, "a.jsonl"), &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(sw_corpus_add(&want, tok, 100000, scratch_path(s, "a.txt"), &err), SW_OK);
    assert_int_equal(have.ids.n, want.ids.n);
    assert_memory_equal(have.ids.ids, want.ids.ids, (size_t)want.ids.n * sizeof *want.ids.ids);
    assert_string_equal(have.template_sha256, sw_chat_format_sha256(f));
    assert_string_equal(want.template_sha256, "");
    sw_corpus_free(&have);
    sw_corpus_free(&want);
    sw_chat_format_free(f);
    sw_tokenizer_free(tok);
}

static void bad_lines_say_where(void **state)
{
    static const struct {
        sw_code code;
        const char *lines, *says;
    } rows[] = {
        {SW_E_FORMAT, "{\"text\": \"a\"}\n{\"prompt\": \"a\"}",
         "b.jsonl: line 2: a line is an object"},
        {SW_E_FORMAT, "{\"messages\": []}", "line 1: messages are a list of at least one"},
        {SW_E_FORMAT, "{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no \"role\""},
        {SW_E_FORMAT, "\n\n{\"messages\": ", "b.jsonl: line 3: "},
        {SW_E_FORMAT, "{\"conversations\": [{\"from\": \"judge\", \"value\": \"\"}]}",
         "a turn from \"judge\""},
        {SW_E_FORMAT, "{\"conversations\": [{\"from\": \"gpt\"}]}",
         "a turn of \"conversations\" is"},
        {SW_E_FORMAT, "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}",
         "line 1: T, line 1, column 41: + between text and an integer"},
    };
    static const char strict[] =
        "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}";
    const scratch *s = *state;
    sw_tokenizer *tok = NULL;
    sw_chat_format *f = NULL;
    sw_corpus corpus = {0};
    sw_err err = {0};

    assert_int_equal(sw_model_tokenizer(&tok, TINY, &err), SW_OK);
    assert_int_equal(sw_chat_format_new(&f, strict, sizeof strict - 1, "T", "{}", &err), SW_OK);
    corpus.chat = f;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err = (sw_err){0};
        scratch_write_text(s, "b.jsonl", rows[i].lines);
        if (sw_corpus_add(&corpus, tok, 100000, scratch_path(s, "b.jsonl"), &err) != rows[i].code ||
            !strstr(err.text, rows[i].says))
            fail_msg("have \"%s\", want \"%s\"", err.text, rows[i].says);
        assert_int_equal(corpus.ids.n, 0);
    }
    corpus.chat = NULL;
    err = (sw_err){0};
    scratch_write_text(s, "b.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}");
    assert_int_equal(sw_corpus_add(&corpus, tok, 100000, scratch_path(s, "b.jsonl"), &err),
                     SW_E_USAGE);
    assert_non_null(strstr(err.text, "b.jsonl: line 1: the model has no chat template"));
    sw_corpus_free(&corpus);
    sw_chat_format_free(f);
    sw_tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(templates_are_found_in_order, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(no_default_is_refused, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(ends_of_turns, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(lines_of_every_form, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(bad_lines_say_where, scratch_setup, scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
