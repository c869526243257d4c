/* test_corpus.c - token ids out of text files, raw id files and safetensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/text/corpus.h"
#include "tests/support/scratch.h"

/* sha256 of the ids 1, 2, 8191, 0 as little-endian u32: from sha256sum(1) */
#define SHA_1_2_8191_0 "a745ee734d8cb6cb1e6d3df688fc85074d75e60237f0315dc803c39bd296ee83"
#define SHA_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static scratch dir;

static int open_dir(void **state)
{
    (void)state;
    scratch_open(&dir);
    return 0;
}

static int close_dir(void **state)
{
    (void)state;
    scratch_close(&dir);
    return 0;
}

static sw_code add(sw_corpus *corpus, sw_tokenizer *tok, int64_t vocab, const char *name,
                   sw_err *err)
{
    return sw_corpus_add(corpus, tok, vocab, scratch_path(&dir, name), err);
}

/* A container by hand: u64 header length, header, data. */
static void write_container(const char *name, const char *header, const void *data, size_t n_data)
{
    unsigned char bytes[1024] = {0};
    size_t n_header = strlen(header);

    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)n_header >> (8 * i));
    memcpy(bytes + 8, header, n_header);
    memcpy(bytes + 8 + n_header, data, n_data);
    scratch_write(&dir, name, bytes, 8 + n_header + n_data);
}

static void check_ids(const sw_corpus *corpus, const uint32_t *want, int64_t n)
{
    assert_int_equal(corpus->ids.n, n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(corpus->ids.ids[i], want[i]);
}

static void raw_files_join(void **state)
{
    static const unsigned char u16[] = {1, 0, 2, 0}, u32[] = {0xFF, 0x1F, 0, 0, 0, 0, 0, 0};
    static const uint32_t want[] = {1, 2, 8191, 0};
    sw_corpus corpus = {0};
    sw_err err = {0};

    (void)state;
    scratch_write(&dir, "a.u16", u16, sizeof u16);
    scratch_write(&dir, "b.u32", u32, sizeof u32);
    assert_int_equal(add(&corpus, NULL, 8192, "a.u16", &err), SW_OK);
    assert_int_equal(add(&corpus, NULL, 8192, "b.u32", &err), SW_OK);
    check_ids(&corpus, want, 4);
    assert_int_equal(sw_corpus_finish(&corpus, &err), SW_OK);
    assert_string_equal(corpus.sha256, SHA_1_2_8191_0);
    sw_corpus_free(&corpus);
    assert_int_equal(sw_corpus_finish(&corpus, &err), SW_OK);
    assert_string_equal(corpus.sha256, SHA_EMPTY);
}

static void text_goes_through_the_tokenizer(void **state)
{
    static const uint32_t want[] = {2, 1, 3}; /* no template: BOS only where the text has it */
    sw_tokenizer *tok = NULL;
    sw_corpus corpus = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_tokenizer_open(&tok, "calib_data/tiny-llama/tokenizer.json", &err), SW_OK);
    scratch_write(&dir, "a.txt", "!<|end_of_text|>\"", 17);
    scratch_write(&dir, "empty", "", 0);
    assert_int_equal(add(&corpus, tok, 8192, "empty", &err), SW_OK);
    assert_int_equal(add(&corpus, tok, 8192, "a.txt", &err), SW_OK);
    check_ids(&corpus, want, 3);
    assert_int_equal(add(&corpus, tok, 3, "a.txt", &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "a.txt: the tokenizer gives id 3 at position 2"));
    check_ids(&corpus, want, 3);
    err = (sw_err){0};
    assert_int_equal(add(&corpus, NULL, 8192, "a.txt", &err), SW_E_USAGE);
    err = (sw_err){0};
    scratch_write(&dir, "bad.txt", "ok\xFF", 3);
    assert_int_equal(add(&corpus, tok, 8192, "bad.txt", &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "bad.txt: text is not UTF-8: invalid at byte 2"));
    check_ids(&corpus, want, 3);
    sw_corpus_free(&corpus);
    sw_tokenizer_free(tok);
}

static void safetensors_of_every_id_type(void **state)
{
    static const struct {
        const char *dtype;
        size_t elem_bytes;
    } types[] = {{"I64", 8}, {"U64", 8}, {"I32", 4}, {"U32", 4}, {"I16", 2}, {"U16", 2}};
    static const uint32_t want[] = {1, 2, 8191, 0};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        unsigned char data[32] = {0};
        char header[256];
        sw_corpus corpus = {0};
        sw_err err = {0};
        for (int i = 0; i < 4; i++)
            for (int b = 0; b < 2; b++)
                data[(size_t)i * types[t].elem_bytes + (size_t)b] =
                    (unsigned char)(want[i] >> (8 * b));
        (void)snprintf(header, sizeof header,
                       "{\"x\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[0,%zu]}}",
                       types[t].dtype, 4 * types[t].elem_bytes);
        write_container("x.safetensors", header, data, 4 * types[t].elem_bytes);
        if (add(&corpus, NULL, 8192, "x.safetensors", &err) != SW_OK) fail_msg("%s", err.text);
        check_ids(&corpus, want, 4);
        sw_corpus_free(&corpus);
    }
}

static void input_ids_is_preferred(void **state)
{
    static const unsigned char data[] = {7, 0, 0, 0, 5, 0, 0, 0};
    static const uint32_t want[] = {5};
    sw_corpus corpus = {0};
    sw_err err = {0};

    (void)state;
    write_container("two.safetensors",
                    "{\"attention_mask\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                    "\"input_ids\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                    data, sizeof data);
    assert_int_equal(add(&corpus, NULL, 10, "two.safetensors", &err), SW_OK);
    check_ids(&corpus, want, 1);
    write_container("no.safetensors",
                    "{\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                    "\"b\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                    data, sizeof data);
    assert_int_equal(add(&corpus, NULL, 10, "no.safetensors", &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "2 integer tensors to choose from"));
    check_ids(&corpus, want, 1);
    sw_corpus_free(&corpus);
}

static void bad_ids_say_where(void **state)
{
    static const struct {
        const char *name, *header, *says;
        unsigned char data[16];
        size_t n;
    } rows[] = {
        {"o.u16", NULL, "3 bytes are no whole number of 2-byte", {0}, 3},
        {"o.u32", NULL, "6 bytes are no whole number of 4-byte", {0}, 6},
        {"v.u16", NULL, "token id 10 at position 1", {9, 0, 10, 0}, 4},
        {"v.u32", NULL, "token id 4294967295 at position 0", {255, 255, 255, 255}, 4},
        {"n.safetensors", "{\"t\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}",
         "negative token id at position 1",
         {1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}, 16},
        {"b.safetensors", "{\"t\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
         "token id 4294967297 at position 0", {1, 0, 0, 0, 1}, 8},
        {"f.safetensors", "{\"input_ids\":{\"dtype\":\"F32\",\"shape\":[1],"
                          "\"data_offsets\":[0,4]}}", "is F32, token ids are integers", {0}, 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sw_corpus corpus = {0};
        sw_err err = {0};
        if (rows[i].header) write_container(rows[i].name, rows[i].header, rows[i].data, rows[i].n);
        else scratch_write(&dir, rows[i].name, rows[i].data, rows[i].n);
        assert_int_equal(add(&corpus, NULL, 10, rows[i].name, &err), SW_E_FORMAT);
        if (!strstr(err.text, rows[i].says) || !strstr(err.text, rows[i].name))
            fail_msg("have \"%s\", want \"%s\"", err.text, rows[i].says);
        assert_int_equal(corpus.ids.n, 0);
        sw_corpus_free(&corpus);
    }
}

static void missing_file(void **state)
{
    sw_corpus corpus = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(add(&corpus, NULL, 10, "none.u16", &err), SW_E_IO);
    err = (sw_err){0};
    assert_int_equal(add(&corpus, NULL, 10, "none.safetensors", &err), SW_E_IO);
    assert_non_null(strstr(err.text, "none.safetensors"));
    sw_corpus_free(&corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_files_join),
        cmocka_unit_test(text_goes_through_the_tokenizer),
        cmocka_unit_test(safetensors_of_every_id_type),
        cmocka_unit_test(input_ids_is_preferred),
        cmocka_unit_test(bad_ids_say_where),
        cmocka_unit_test(missing_file),
    };

    return cmocka_run_group_tests(tests, open_dir, close_dir);
}
