/* test_hostile_gguf.c - GGUF files made to hurt, opened as models: one clear error each that names
 * the file, in under a second of processor and 200 MB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/file/gguf.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/hostile.h"
#include "tests/support/toys/pt_build.h"

static void put32(pt_bytes *b, uint32_t v)
{
    unsigned char bytes[4];

    sw_store_le32(bytes, v);
    pt_put(b, bytes, 4);
}

static void put64(pt_bytes *b, uint64_t v)
{
    unsigned char bytes[8];

    sw_store_le64(bytes, v);
    pt_put(b, bytes, 8);
}

static void put_name(pt_bytes *b, const char *text)
{
    put64(b, strlen(text));
    pt_put(b, text, strlen(text));
}

static void begin(pt_bytes *b, uint64_t n_tensors, uint64_t n_keys)
{
    *b = (pt_bytes){.n = 0};
    pt_text(b, "GGUF");
    put32(b, 3);
    put64(b, n_tensors);
    put64(b, n_keys);
}

/* The file, which goes, is refused with these words. */
static void expect_refused(pt_bytes *b, const char *says)
{
    double begin = hostile_now_s();
    sw_checkpoint ckpt = {0};
    sw_err err = {0};
    scratch s;
    sw_code rc;

    scratch_open(&s);
    scratch_write(&s, "hurt.gguf", b->at, b->n);
    pt_free(b);
    rc = sw_checkpoint_open(&ckpt, scratch_path(&s, "hurt.gguf"), &err);
    hostile_assert_cheap(begin, says);
    assert_true(rc == SW_E_FORMAT || rc == SW_E_UNSUPPORTED);
    if (!strstr(err.text, says)) fail_msg("have \"%s\", want \"%s\"", err.text, says);
    if (!strstr(err.text, "hurt.gguf")) fail_msg("no file is named: \"%s\"", err.text);
    assert_null(strchr(err.text, '\n'));
    scratch_close(&s);
}

static void alignments(void **state)
{
    static const uint32_t aligns[] = {0, 3, 24, 1, (uint32_t)1 << 31, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        pt_bytes b;

        begin(&b, 0, 1);
        put_name(&b, "general.alignment");
        put32(&b, SW_GGUF_U32);
        put32(&b, aligns[i]);
        expect_refused(&b, "general.alignment is");
    }
}

/* n keys of one byte each. */
static void put_bytes(pt_bytes *b, int n)
{
    char name[32];

    for (int i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "k%d", i);
        put_name(b, name);
        put32(b, SW_GGUF_U8);
        pt_put(b, "", 1);
    }
}

static void keys_without_end(void **state)
{
    pt_bytes b;

    (void)state;
    begin(&b, 0, 1000000);
    put_bytes(&b, 1000000);
    expect_refused(&b, "1000000 metadata keys");
    begin(&b, 0, 65536); /* as many as are allowed */
    put_bytes(&b, 65536);
    expect_refused(&b, "general.architecture");
    begin(&b, UINT64_MAX, 0);
    expect_refused(&b, "tensors");
    begin(&b, 0, UINT64_MAX);
    expect_refused(&b, "metadata keys");
}

static void lengths_beyond_the_file(void **state)
{
    static const uint64_t lengths[] = {100, (uint64_t)1 << 40, INT64_MAX, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pt_bytes b;

        begin(&b, 0, 1);
        put_name(&b, "general.name");
        put32(&b, SW_GGUF_TEXT);
        put64(&b, lengths[i]);
        expect_refused(&b, "truncated");
        begin(&b, 0, 1); /* an array, of texts and of numbers */
        put_name(&b, "tokenizer.ggml.tokens");
        put32(&b, SW_GGUF_ARRAY);
        put32(&b, i % 2 ? SW_GGUF_TEXT : SW_GGUF_F64);
        put64(&b, lengths[i]);
        expect_refused(&b, i % 2 || lengths[i] < ((uint64_t)1 << 60) ? "truncated" : "elements");
        begin(&b, 0, 1);
        put64(&b, lengths[i]); /* a key */
        for (int k = 0; k < 16; k++) pt_put(&b, "", 1);
        expect_refused(&b, i ? "a key of" : "truncated");
    }
}

static void arrays_in_arrays(void **state)
{
    pt_bytes b;

    (void)state;
    begin(&b, 0, 1);
    put_name(&b, "deep");
    put32(&b, SW_GGUF_ARRAY);
    for (int i = 0; i < 100000; i++) {
        put32(&b, SW_GGUF_ARRAY);
        put64(&b, 1);
    }
    expect_refused(&b, "nested");
    begin(&b, 0, 1); /* wide: a million empty ones, which is no fault of the container */
    put_name(&b, "wide");
    put32(&b, SW_GGUF_ARRAY);
    put32(&b, SW_GGUF_ARRAY);
    put64(&b, 1000000);
    for (int i = 0; i < 1000000; i++) {
        put32(&b, SW_GGUF_U8);
        put64(&b, 0);
    }
    expect_refused(&b, "general.architecture");
}

static void dimensions_beyond_reason(void **state)
{
    static const struct { uint32_t n_dims; uint64_t dim; const char *says; } rows[] = {
        {1, (uint64_t)1 << 60, "ends beyond the file"},
        {4, (uint64_t)1 << 60, "more than any file"},
        {2, UINT64_MAX, "a dimension of"}, {2, 0, "a dimension of"},
        {5, 32, "5 dimensions"}, {UINT32_MAX, 32, "dimensions"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pt_bytes b;

        begin(&b, 1, 0);
        put_name(&b, "t");
        put32(&b, rows[i].n_dims);
        for (uint32_t d = 0; d < rows[i].n_dims && d < 5; d++) put64(&b, rows[i].dim);
        put32(&b, 0);
        put64(&b, 0);
        expect_refused(&b, rows[i].says);
    }
}

/* Counts in the metadata that the tensors do not bear out: nothing is made of their size. */
static void counts_of_metadata(void **state)
{
    static const char *const keys[] = {
        "context_length", "embedding_length", "block_count", "feed_forward_length",
        "attention.head_count", "expert_count", "expert_used_count"};
    static const struct { const char *arch; uint32_t v[7]; } rows[] = {
        {"llama", {64, 64, 2000000000u, 64, 2, 0, 0}},
        {"llama", {64, 64, 100000, 64, 2, 0, 0}},
        {"llama", {64, 64, 500, 64, 2, 4096, 2}}, /* experts by layers */
        {"llama", {UINT32_MAX, UINT32_MAX, 1, UINT32_MAX, 1, 0, 0}},
        {"llama", {64, 64, 1, 64, 0, 0, 0}},
        {"gemma3", {64, 64, 2000000000u, 64, 2, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pt_bytes b;
        char name[64];

        begin(&b, 1, 8);
        put_name(&b, "general.architecture");
        put32(&b, SW_GGUF_TEXT);
        put_name(&b, rows[i].arch);
        for (int k = 0; k < 7; k++) {
            (void)snprintf(name, sizeof name, "%s.%s", rows[i].arch, keys[k]);
            put_name(&b, name);
            put32(&b, SW_GGUF_U32);
            put32(&b, rows[i].v[k]);
        }
        put_name(&b, "token_embd.weight");
        put32(&b, 2);
        put64(&b, 1);
        put64(&b, 1);
        put32(&b, 0);
        put64(&b, 0);
        for (int k = 0; k < 64; k++) pt_put(&b, "", 1);
        expect_refused(&b, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alignments),
        cmocka_unit_test(keys_without_end),
        cmocka_unit_test(lengths_beyond_the_file),
        cmocka_unit_test(arrays_in_arrays),
        cmocka_unit_test(dimensions_beyond_reason),
        cmocka_unit_test(counts_of_metadata),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
