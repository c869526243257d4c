/* test_gguf_file.c - the GGUF container: what is written is read, and hostile files end at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/file/gguf.h"
#include "tests/support/scratch.h"

static const int64_t square[] = {3, 64}, line[] = {5}, cube[] = {2, 3, 32};

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static void put_keys(sw_gguf_writer *w, sw_err *err)
{
    must(sw_gguf_put_text(w, "general.architecture", "llama", err), err);
    must(sw_gguf_put_int(w, "llama.block_count", SW_GGUF_U32, 7, err), err);
    must(sw_gguf_put_int(w, "minus", SW_GGUF_I8, -5, err), err);
    must(sw_gguf_put_int(w, "yes", SW_GGUF_BOOL, 1, err), err);
    must(sw_gguf_put_int(w, "wide", SW_GGUF_U64, INT64_MIN, err), err);
    must(sw_gguf_put_real(w, "eps", 1e-5, err), err);
    must(sw_gguf_put_array(w, "texts", SW_GGUF_TEXT, 3, err), err);
    must(sw_gguf_put_elem_text(w, "a", 1, err), err);
    must(sw_gguf_put_elem_text(w, "", 0, err), err);
    must(sw_gguf_put_elem_text(w, "\xe2\x96\x81z", 4, err), err);
    must(sw_gguf_put_array(w, "ints", SW_GGUF_I32, 2, err), err);
    must(sw_gguf_put_elem_int(w, -1, err), err);
    must(sw_gguf_put_elem_int(w, 70000, err), err);
    must(sw_gguf_put_array(w, "reals", SW_GGUF_F32, 1, err), err);
    must(sw_gguf_put_elem_real(w, 0.5, err), err);
}

static void write_file(const char *path)
{
    uint8_t bytes[256];
    sw_gguf_writer *w = NULL;
    sw_err err = {0};

    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    must(sw_gguf_writer_new(&w, path, &err), &err);
    put_keys(w, &err);
    must(sw_gguf_declare(w, "z.weight", SW_BLOCK_Q4_0, 2, square, &err), &err);
    must(sw_gguf_declare(w, "a.bias", SW_BLOCK_F32, 1, line, &err), &err);
    must(sw_gguf_declare(w, "m.weight", SW_BLOCK_Q8_0, 3, cube, &err), &err);
    must(sw_gguf_begin(w, &err), &err);
    must(sw_gguf_put(w, "m.weight", 0, bytes, 204, &err), &err);
    must(sw_gguf_put(w, "a.bias", 0, bytes + 10, 20, &err), &err);
    must(sw_gguf_put(w, "z.weight", 36, bytes + 36, 72, &err), &err); /* parts in any order */
    must(sw_gguf_put(w, "z.weight", 0, bytes, 36, &err), &err);
    must(sw_gguf_commit(w, &err), &err);
    sw_gguf_writer_free(w);
}

static void check_keys(const sw_gguf *g)
{
    const sw_gguf_value *array = NULL;
    const unsigned char *at;
    sw_arena arena = {0};
    const char *text = NULL;
    int64_t v = 0;
    double real = 0;
    uint64_t n = 0;
    bool flag = false;
    sw_err err = {0};

    assert_int_equal(sw_gguf_n_keys(g), 9);
    must(sw_gguf_text(&text, g, "general.architecture", &arena, &err), &err);
    assert_string_equal(text, "llama");
    must(sw_gguf_int(&v, g, "llama.block_count", 0, 10, &err), &err);
    assert_int_equal(v, 7);
    must(sw_gguf_int(&v, g, "minus", -10, 10, &err), &err);
    assert_int_equal(v, -5);
    must(sw_gguf_bool(&flag, g, "yes", &err), &err);
    assert_true(flag);
    must(sw_gguf_real(&real, g, "eps", &err), &err);
    assert_true(real == (double)1e-5f);
    must(sw_gguf_array(&array, g, "texts", SW_GGUF_TEXT, &err), &err);
    assert_int_equal(array->n, 3);
    at = array->data;
    assert_memory_equal(sw_gguf_next_text(&at, &n), "a", 1);
    (void)sw_gguf_next_text(&at, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(sw_gguf_next_text(&at, &n), "\xe2\x96\x81z", 4);
    must(sw_gguf_array(&array, g, "ints", SW_GGUF_I32, &err), &err);
    assert_int_equal(sw_gguf_elem_int(array, 0), -1);
    assert_int_equal(sw_gguf_elem_int(array, 1), 70000);
    must(sw_gguf_array(&array, g, "reals", SW_GGUF_F32, &err), &err);
    assert_true(sw_gguf_elem_real(array, 0) == 0.5);
    must(sw_gguf_array(&array, g, "absent", SW_GGUF_F32, &err), &err);
    assert_null(array);
    v = 11;
    must(sw_gguf_int(&v, g, "absent", 0, 10, &err), &err);
    assert_int_equal(v, 11);
    assert_int_equal(sw_gguf_int(&v, g, "llama.block_count", 0, 6, NULL), SW_E_FORMAT);
    assert_int_equal(sw_gguf_int(&v, g, "wide", INT64_MIN, INT64_MAX, NULL), SW_E_FORMAT);
    assert_int_equal(sw_gguf_int(&v, g, "eps", 0, 6, NULL), SW_E_FORMAT);
    assert_int_equal(sw_gguf_real(&real, g, "minus", NULL), SW_E_FORMAT);
    assert_int_equal(sw_gguf_array(&array, g, "ints", SW_GGUF_F32, NULL), SW_E_FORMAT);
    sw_arena_free(&arena);
}

static void test_round_trip(void **state)
{
    const sw_gguf_tensor *t;
    sw_gguf *g = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    write_file(scratch_path(&s, "x.gguf"));
    assert_int_equal(scratch_count(&s, NULL), 1);
    assert_true(sw_gguf_is(scratch_path(&s, "x.gguf")));
    must(sw_gguf_open(&g, scratch_path(&s, "x.gguf"), &err), &err);
    check_keys(g);
    assert_int_equal(sw_gguf_count(g), 3);
    assert_string_equal(sw_gguf_at(g, 0)->name, "a.bias");
    t = sw_gguf_find(g, "z.weight");
    assert_true(t->type == SW_BLOCK_Q4_0 && t->n_dims == 2 && t->size_bytes == 108);
    assert_memory_equal(t->shape, square, sizeof square);
    for (int i = 0; i < 108; i++) assert_int_equal(((const uint8_t *)t->data)[i], i);
    t = sw_gguf_find(g, "m.weight");
    assert_memory_equal(t->shape, cube, sizeof cube);
    assert_int_equal(((const uint8_t *)t->data)[203], 203);
    assert_null(sw_gguf_find(g, "m.weigh"));
    sw_gguf_close(g);
    scratch_close(&s);
}

/* A small header by hand, for what the writer would never write. */
typedef struct raw {
    uint8_t at[4096];
    size_t n;
} raw;

static void add(raw *r, const void *bytes, size_t n)
{
    memcpy(r->at + r->n, bytes, n);
    r->n += n;
}
static void add32(raw *r, uint32_t v)
{
    uint8_t b[4];
    sw_store_le32(b, v);
    add(r, b, 4);
}
static void add64(raw *r, uint64_t v)
{
    uint8_t b[8];
    sw_store_le64(b, v);
    add(r, b, 8);
}
static void add_text(raw *r, const char *text)
{
    add64(r, strlen(text));
    add(r, text, strlen(text));
}

static void begin(raw *r, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    memset(r, 0, sizeof *r);
    add(r, "GGUF", 4);
    add32(r, version);
    add64(r, n_tensors);
    add64(r, n_keys);
}

static void add_tensor(raw *r, const char *name, uint64_t k, uint64_t n, uint32_t type,
                       uint64_t offset)
{
    add_text(r, name);
    add32(r, 2);
    add64(r, k);
    add64(r, n);
    add32(r, type);
    add64(r, offset);
}

static void refused(const raw *r, sw_code code, const char *part)
{
    sw_gguf *g = NULL;
    sw_err err = {0};

    assert_int_equal(sw_gguf_open_bytes(&g, r->at, r->n, "f", &err), code);
    assert_null(g);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_bad_headers(void **state)
{
    raw r;

    (void)state;
    begin(&r, 1, 0, 0);
    refused(&r, SW_E_UNSUPPORTED, "version 1");
    begin(&r, 0x03000000, 0, 0);
    refused(&r, SW_E_UNSUPPORTED, "big-endian");
    begin(&r, 3, 0, 0);
    r.at[0] = 'g';
    refused(&r, SW_E_FORMAT, "GGUF");
    begin(&r, 3, 0, 0);
    r.n = 20;
    refused(&r, SW_E_FORMAT, "truncated");
    begin(&r, 3, 0, 1000000);
    refused(&r, SW_E_FORMAT, "1000000 metadata keys");
    begin(&r, 3, UINT64_MAX, 0);
    refused(&r, SW_E_FORMAT, "tensors");
    begin(&r, 3, 1000, 1000);
    refused(&r, SW_E_FORMAT, "truncated");
    begin(&r, 3, 0, 1);
    add64(&r, UINT64_MAX);
    add(&r, r.at, 32);
    refused(&r, SW_E_FORMAT, "a key of");
    begin(&r, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        add_text(&r, "twice");
        add32(&r, SW_GGUF_U8);
        add(&r, "\1", 1);
    }
    refused(&r, SW_E_FORMAT, "\"twice\" is there twice");
    begin(&r, 3, 0, 1);
    add_text(&r, "b");
    add32(&r, SW_GGUF_BOOL);
    add(&r, "\2\0\0\0\0", 5);
    refused(&r, SW_E_FORMAT, "boolean");
    begin(&r, 3, 0, 1);
    add_text(&r, "k");
    add32(&r, 13);
    refused(&r, SW_E_FORMAT, "type 13");
}

static void test_bad_arrays(void **state)
{
    static const struct {
        uint32_t kind;
        uint64_t n;
        const char *part;
    } rows[] = {
        {SW_GGUF_TEXT, UINT64_MAX, "truncated"},       {SW_GGUF_TEXT, 2, "truncated"},
        {SW_GGUF_U8, (uint64_t)1 << 62, "truncated"}, {SW_GGUF_F64, (uint64_t)1 << 62, "elements"},
        {SW_GGUF_ARRAY, 1000000, "truncated"},
    };
    raw r;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(&r, 3, 0, 1);
        add_text(&r, "array");
        add32(&r, SW_GGUF_ARRAY);
        add32(&r, rows[i].kind);
        add64(&r, rows[i].n);
        add64(&r, 3);
        refused(&r, SW_E_FORMAT, rows[i].part);
    }
    begin(&r, 3, 0, 1);
    add_text(&r, "deep");
    add32(&r, SW_GGUF_ARRAY);
    for (int i = 0; i < 200; i++) {
        add32(&r, SW_GGUF_ARRAY);
        add64(&r, 1);
    }
    refused(&r, SW_E_FORMAT, "nested");
}

static void one_tensor(raw *r, uint32_t align, uint64_t k, uint64_t n, uint32_t type,
                       uint64_t offset)
{
    begin(r, 3, 1, 1);
    add_text(r, "general.alignment");
    add32(r, SW_GGUF_U32);
    add32(r, align);
    add_tensor(r, "w", k, n, type, offset);
    r->n += 1024;
}

static void test_bad_tensors(void **state)
{
    static const struct {
        uint32_t align;
        uint64_t k, n;
        uint32_t type;
        uint64_t offset;
        sw_code code;
        const char *part;
    } rows[] = {
        {32, 32, 2, 2, 0, SW_OK, ""},
        {0, 32, 2, 2, 0, SW_E_FORMAT, "alignment is 0"},
        {24, 32, 2, 2, 0, SW_E_FORMAT, "power of two"},
        {0x80000000u, 32, 2, 2, 0, SW_E_FORMAT, "power of two"},
        {32, (uint64_t)1 << 60, 2, 2, 0, SW_E_FORMAT, "ends beyond"},
        {32, (uint64_t)1 << 60, (uint64_t)1 << 60, 2, 0, SW_E_FORMAT, "more than any file"},
        {32, UINT64_MAX, 2, 0, 0, SW_E_FORMAT, "dimension"},
        {32, 0, 2, 0, 0, SW_E_FORMAT, "dimension"},
        {32, 33, 2, 2, 0, SW_E_FORMAT, "whole blocks of Q4_0"},
        {32, 32, 2, 41, 0, SW_E_UNSUPPORTED, "Q1_0"},
        {32, 32, 2, 99, 0, SW_E_UNSUPPORTED, "type 99"},
        {32, 32, 2, 2, 8, SW_E_FORMAT, "alignment"},
        {32, 32, 2, 2, (uint64_t)1 << 40, SW_E_FORMAT, "ends beyond"},
        {32, 32, 2, 2, UINT64_MAX - 31, SW_E_FORMAT, "ends beyond"},
    };
    raw r;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_gguf *g = NULL;
        one_tensor(&r, rows[i].align, rows[i].k, rows[i].n, rows[i].type, rows[i].offset);
        if (rows[i].code != SW_OK) {
            refused(&r, rows[i].code, rows[i].part);
            continue;
        }
        assert_int_equal(sw_gguf_open_bytes(&g, r.at, r.n, "f", NULL), SW_OK);
        sw_gguf_close(g);
    }
    begin(&r, 3, 2, 0);
    add_tensor(&r, "a", 32, 4, 2, 0);
    add_tensor(&r, "b", 32, 4, 2, 64);
    r.n += 1024;
    refused(&r, SW_E_FORMAT, "\"a\" and \"b\" overlap");
    begin(&r, 3, 2, 0);
    add_tensor(&r, "a", 32, 4, 2, 0);
    add_tensor(&r, "a", 32, 4, 2, 96);
    r.n += 1024;
    refused(&r, SW_E_FORMAT, "\"a\" is there twice");
}

static double seconds_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A million keys, and as many as are allowed, both alike: an answer in less than a second. */
static void test_many_keys(void **state)
{
    const uint64_t counts[] = {1000000, SW_GGUF_KEYS_MAX};

    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t room = 24 + (size_t)counts[i] * 24, n = 24;
        uint8_t *bytes = calloc(room, 1);
        double started = seconds_now();
        sw_gguf *g = NULL;
        sw_err err = {0};

        assert_non_null(bytes);
        memcpy(bytes, "GGUF\3\0\0\0", 8);
        sw_store_le64(bytes + 16, counts[i]);
        for (uint64_t k = 0; k < counts[i]; k++, n += 8 + 8 + 4 + 1) {
            sw_store_le64(bytes + n, 8);
            for (int d = 0; d < 8; d++) bytes[n + 8 + d] = (uint8_t)('a' + (k >> (4 * d)) % 16);
        }
        assert_int_equal(sw_gguf_open_bytes(&g, bytes, n, "many", &err),
                         i ? SW_OK : SW_E_FORMAT);
        assert_true(seconds_now() - started < 1.0);
        sw_gguf_close(g);
        free(bytes);
    }
}

/* Every cut of a good file is refused, or has all that it promised. */
static void test_truncated(void **state)
{
    sw_map map = {0};
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    write_file(scratch_path(&s, "x.gguf"));
    must(sw_map_open(&map, scratch_path(&s, "x.gguf"), &err), &err);
    for (size_t n = 0; n < map.size_bytes; n++) {
        uint8_t *cut = malloc(n + 1);
        sw_gguf *g = NULL;

        memcpy(cut, map.data, n);
        if (sw_gguf_open_bytes(&g, cut, n, "cut", NULL) == SW_OK) /* only padding was cut off */
            assert_true(map.size_bytes - n <= 20);
        sw_gguf_close(g);
        free(cut);
    }
    sw_map_close(&map);
    scratch_close(&s);
}

static void write_split(const scratch *s, int no, int count, const char *file, const char *name)
{
    uint8_t zeros[108] = {0};
    sw_gguf_writer *w = NULL;
    sw_err err = {0};

    must(sw_gguf_writer_new(&w, scratch_path(s, file), &err), &err);
    must(sw_gguf_put_int(w, "split.no", SW_GGUF_U16, no, &err), &err);
    must(sw_gguf_put_int(w, "split.count", SW_GGUF_U16, count, &err), &err);
    if (!no) must(sw_gguf_put_int(w, "split.tensors.count", SW_GGUF_I32, 2, &err), &err);
    must(sw_gguf_declare(w, name, SW_BLOCK_Q4_0, 2, square, &err), &err);
    must(sw_gguf_begin(w, &err), &err);
    must(sw_gguf_put(w, name, 0, zeros, 108, &err), &err);
    must(sw_gguf_commit(w, &err), &err);
    sw_gguf_writer_free(w);
}

static void open_fails(const scratch *s, const char *name, sw_code code, const char *part)
{
    sw_gguf *g = NULL;
    sw_err err = {0};

    assert_int_equal(sw_gguf_open(&g, scratch_path(s, name), &err), code);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_splits(void **state)
{
    sw_gguf *g = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    write_split(&s, 0, 2, "m-00001-of-00002.gguf", "one");
    open_fails(&s, "m-00001-of-00002.gguf", SW_E_IO, "m-00002-of-00002.gguf");
    write_split(&s, 1, 2, "m-00002-of-00002.gguf", "two");
    must(sw_gguf_open(&g, scratch_path(&s, "m-00002-of-00002.gguf"), &err), &err);
    assert_int_equal(sw_gguf_n_files(g), 2);
    assert_int_equal(sw_gguf_count(g), 2);
    assert_int_equal(sw_gguf_find(g, "two")->split, 1);
    sw_gguf_close(g);
    write_split(&s, 0, 2, "alone.gguf", "one");
    open_fails(&s, "alone.gguf", SW_E_FORMAT, "one of a set");
    write_split(&s, 0, 2, "m-00002-of-00002.gguf", "two");
    open_fails(&s, "m-00001-of-00002.gguf", SW_E_FORMAT, "say otherwise");
    write_split(&s, 1, 2, "m-00002-of-00002.gguf", "one");
    open_fails(&s, "m-00001-of-00002.gguf", SW_E_FORMAT, "in two splits");
    scratch_close(&s);
}

static void test_writer_refuses(void **state)
{
    const int64_t odd[] = {2, 33}, none[] = {0, 32};
    char name[80];
    sw_gguf_writer *w = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_gguf_writer_new(&w, scratch_path(&s, "x.bin"), &err), SW_E_USAGE);
    memset(&err, 0, sizeof err);
    must(sw_gguf_writer_new(&w, scratch_path(&s, "x.gguf"), &err), &err);
    memset(name, 'n', 64);
    name[64] = '\0';
    assert_int_equal(sw_gguf_declare(w, name, SW_BLOCK_F32, 2, odd, NULL), SW_E_UNSUPPORTED);
    assert_int_equal(sw_gguf_declare(w, "w", SW_BLOCK_Q4_0, 2, odd, NULL), SW_E_UNSUPPORTED);
    assert_int_equal(sw_gguf_declare(w, "w", SW_BLOCK_Q4_0, 2, none, NULL), SW_E_FORMAT);
    must(sw_gguf_declare(w, "w", SW_BLOCK_F32, 2, odd, &err), &err);
    assert_int_equal(sw_gguf_put(w, "w", 0, name, 4, NULL), SW_E_BUG);
    must(sw_gguf_begin(w, &err), &err);
    assert_int_equal(sw_gguf_put(w, "v", 0, name, 4, NULL), SW_E_BUG);
    assert_int_equal(sw_gguf_put(w, "w", 262, name, 4, NULL), SW_E_BUG);
    assert_int_equal(sw_gguf_commit(w, &err), SW_E_BUG);
    assert_non_null(strstr(err.text, "\"w\" is not complete"));
    sw_gguf_writer_free(w);
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_arrays),  cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_many_keys),   cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_splits),      cmocka_unit_test(test_writer_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
