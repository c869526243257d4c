/* test_pt_read.c - archives of torch.save: what is read from them, and everything that is refused:
 * code by name, tensors beyond their storages, archives that two readers would see differently. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/file/pt_read.h"
#include "tests/support/toys/pt_build.h"

/* What was read, with all that it borrows. */
typedef struct opened {
    pt_zip zip;
    sw_st_part part;
    sw_spill copies;
    sw_arena arena;
    sw_err err;
    sw_code rc;
} opened;

static void parse(opened *o)
{
    o->rc = sw_pt_part_parse(&o->part, &o->copies, &o->arena, o->zip.bytes.at, o->zip.bytes.n, 0,
                             "x.bin", &o->err);
}

/* The items of a dictionary and one storage "0" of n bytes; ownership of items goes. */
static void open_items(opened *o, pt_bytes *items, const void *storage, size_t n)
{
    memset(o, 0, sizeof *o);
    pt_zip_pickle(&o->zip, items);
    pt_zip_add(&o->zip, "archive/data/0", storage, n, 0);
    pt_zip_end(&o->zip);
    pt_free(items);
    parse(o);
}

static void close_it(opened *o)
{
    sw_spill_close(&o->copies);
    sw_arena_free(&o->arena);
    pt_zip_free(&o->zip);
}

static void expect_ok(const opened *o)
{
    if (o->rc != SW_OK) fail_msg("%s", o->err.text);
}

static void expect_fail(const opened *o, sw_code code, const char *says)
{
    if (o->rc != code || !strstr(o->err.text, says) || strncmp(o->err.text, "x.bin", 5) != 0)
        fail_msg("have %d \"%s\", want %d \"%s\"", o->rc, o->err.text, code, says);
}

static const sw_cview *view_of(const opened *o, const char *name)
{
    for (int64_t i = 0; i < o->part.n_tensors; i++)
        if (!strcmp(o->part.tensors[i].name, name)) return &o->part.tensors[i].view;
    fail_msg("no tensor %s", name);
    return NULL;
}

static bool lies_in_file(const opened *o, const sw_cview *v)
{
    const unsigned char *p = v->data;

    return p >= o->zip.bytes.at && p < o->zip.bytes.at + o->zip.bytes.n;
}

static void every_dtype_is_a_view_of_the_file(void **state)
{
    static const int64_t shape[2] = {3, 2}, strides[2] = {2, 1};
    int n_types = 0;

    (void)state;
    for (int d = 0; d < SW_DTYPE_COUNT; d++) {
        const char *type = pt_storage_type((sw_dtype)d);
        for (int flags = 0; flags < 4 && type; flags++) {
            unsigned char storage[64];
            pt_bytes items = {.n = 0};
            opened o;
            size_t n = 6 * (size_t)sw_dtype_bits((sw_dtype)d) / 8;
            for (size_t i = 0; i < n; i++) storage[i] = (unsigned char)(i * 37 + 1);
            pt_string(&items, "w");
            pt_tensor(&items, type, "0", 6, 0, 2, shape, strides);
            memset(&o, 0, sizeof o);
            o.zip.flags = flags;
            pt_zip_pickle(&o.zip, &items);
            pt_zip_add(&o.zip, "archive/data/0", storage, n, 0);
            pt_zip_end(&o.zip);
            pt_free(&items);
            parse(&o);
            expect_ok(&o);
            assert_int_equal(o.part.n_tensors, 1);
            assert_int_equal(view_of(&o, "w")->dtype, d);
            assert_int_equal(view_of(&o, "w")->shape[0], 3);
            assert_int_equal(view_of(&o, "w")->size_bytes, n);
            assert_memory_equal(view_of(&o, "w")->data, storage, n);
            assert_true(lies_in_file(&o, view_of(&o, "w")));
            assert_null(o.copies.data);
            close_it(&o);
            n_types++;
        }
    }
    assert_int_equal(n_types, 4 * 11);
}

/* One storage of 0..23: whole, a part, turned, a column, every second row, without elements, of no
 * dimension. The reference walks the strides by itself. */
static void storages_are_shared_turned_and_cut(void **state)
{
    static const struct {
        const char *name;
        int64_t first;
        int32_t n_dims;
        int64_t shape[3], strides[3];
        bool is_copy;
    } rows[] = {
        {"whole", 0, 2, {4, 6}, {6, 1}, false},  {"rows", 6, 2, {2, 6}, {6, 1}, false},
        {"turned", 0, 2, {6, 4}, {1, 6}, true},  {"column", 2, 1, {4}, {6}, true},
        {"second", 0, 2, {2, 6}, {12, 1}, true}, {"empty", 24, 2, {0, 5}, {5, 1}, false},
        {"single", 7, 0, {0}, {0}, false},       {"thin", 3, 2, {1, 3}, {99, 1}, false},
        {"axes", 0, 3, {3, 2, 4}, {1, 12, 3}, true},
        {"wide", 0, 2, {24, 1}, {1, INT64_MAX}, false},
    };
    float storage[24];
    pt_bytes items = {.n = 0};
    opened o;

    (void)state;
    for (int i = 0; i < 24; i++) storage[i] = (float)i;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        pt_string(&items, rows[r].name);
        pt_tensor(&items, "Float", "0", 24, rows[r].first, rows[r].n_dims, rows[r].shape,
                  rows[r].strides);
    }
    open_items(&o, &items, storage, sizeof storage);
    expect_ok(&o);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const sw_cview *v = view_of(&o, rows[r].name);
        const float *have = v->data;
        int64_t n = sw_view_elems(v);
        assert_int_equal(lies_in_file(&o, v), !rows[r].is_copy);
        for (int64_t i = 0; i < n; i++) {
            int64_t left = i, at = rows[r].first;
            for (int32_t d = rows[r].n_dims; d-- > 0; left /= rows[r].shape[d])
                at += left % rows[r].shape[d] * rows[r].strides[d];
            if (have[i] != storage[at]) fail_msg("%s [%d]", rows[r].name, (int)i);
        }
    }
    close_it(&o);
}

/* What surrounds tensors in files that people have: parameters, ordered dictionaries with versions
 * of modules as attributes, tied weights by memory, numbers between them, a trainer's wrapping. */
static void the_usual_wrappings_are_seen_through(void **state)
{
    static const int64_t two[1] = {2}, one[1] = {1};
    static const float storage[2] = {1.5f, -2};
    pt_bytes p = {.n = 0};
    opened o = {.rc = SW_OK};

    (void)state;
    pt_text(&p, "\x80\x02}(");
    pt_string(&p, "epoch");
    pt_int(&p, 70000);
    pt_string(&p, "loss");
    pt_put(&p, "G\x3f\xf0\0\0\0\0\0\0", 9);
    pt_string(&p, "state_dict");
    pt_global(&p, "collections", "OrderedDict");
    pt_put(&p, ")Rq\1(", 5);
    pt_string(&p, "a");
    pt_global(&p, "torch._utils", "_rebuild_parameter");
    pt_text(&p, "(");
    pt_tensor(&p, "Float", "0", 2, 0, 1, two, one);
    pt_put(&p, "\x88)tRr\0\1\0\0", 9); /* kept under 256 */
    pt_string(&p, "b");
    pt_put(&p, "j\0\1\0\0", 5);
    pt_text(&p, "u}");
    pt_string(&p, "_metadata");
    pt_text(&p, "}sb");
    pt_string(&p, "name");
    pt_text(&p, "Nu.");
    pt_zip_add(&o.zip, "m/data.pkl", p.at, p.n, 0);
    pt_zip_add(&o.zip, "m/data/0", storage, sizeof storage, 0);
    pt_zip_end(&o.zip);
    pt_free(&p);
    parse(&o);
    expect_ok(&o);
    assert_int_equal(o.part.n_tensors, 2);
    assert_memory_equal(view_of(&o, "a")->data, storage, sizeof storage);
    assert_ptr_equal(view_of(&o, "a")->data, view_of(&o, "b")->data);
    close_it(&o);
}

/* Newer dtypes have storages without a type, and name it beside: protocol 4 here. */
static void small_floats_name_their_dtype(void **state)
{
    static const unsigned char storage[4] = {0x38, 0xb8, 0x7e, 0x01};
    pt_bytes p = {.n = 0};
    opened o = {.rc = SW_OK};

    (void)state;
    pt_put(&p, "\x80\x04\x95\0\0\0\0\0\0\0\0}(\x8c\1w", 16);
    pt_text(&p, "\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v3\x93((");
    pt_text(&p, "\x8c\x07storage\x8c\x0dtorch.storage\x8c\x0eUntypedStorage\x93");
    pt_text(&p, "\x8c\1" "0\x8c\3" "cpuK\x04tQ");
    pt_put(&p, "K\0K\2K\2\x86K\2K\1\x86\x89)\x8c\5torch\x8c\rfloat8_e4m3fn\x93NtRu.", 42);
    pt_zip_add(&o.zip, "m/data.pkl", p.at, p.n, 0);
    pt_zip_add(&o.zip, "m/data/0", storage, sizeof storage, 0);
    pt_zip_end(&o.zip);
    pt_free(&p);
    parse(&o);
    expect_ok(&o);
    assert_int_equal(view_of(&o, "w")->dtype, SW_DTYPE_F8_E4M3);
    assert_memory_equal(view_of(&o, "w")->data, storage, 4);
    close_it(&o);
}

static void open_pickle(opened *o, const void *pickle, size_t n)
{
    static const float storage[4];

    memset(o, 0, sizeof *o);
    pt_zip_add(&o->zip, "a/data.pkl", pickle, n, 0);
    pt_zip_add(&o->zip, "a/data/0", storage, sizeof storage, 0);
    pt_zip_end(&o->zip);
    parse(o);
}

#define PICKLE(text) text, sizeof text - 1

static void code_is_refused_by_name(void **state)
{
    static const struct { const char *pickle; size_t n; const char *says; } rows[] = {
        {PICKLE("\x80\x02" "cposix\nsystem\nX\4\0\0\0true\x85R."), "names posix.system"},
        {PICKLE("\x80\x02" "cos\nsystem\n(X\2\0\0\0lstR."), "names os.system"},
        {PICKLE("\x80\x02" "c__builtin__\neval\nX\1\0\0\0" "1\x85R."), "names __builtin__.eval"},
        {PICKLE("\x80\x04\x8c\x08" "builtins\x8c\4exec\x93."), "names builtins.exec"},
        {PICKLE("\x80\x02(ios\nsystem\n."), "names os.system"},
        {PICKLE("\x80\x02}(X\1\0\0\0wcsubprocess\nPopen\n)Ru."), "names subprocess.Popen"},
        {PICKLE("\x80\x02" "ctorch\nload\n)R."), "names torch.load"},
        {PICKLE("\x80\x02" "ctorch._utils\n_rebuild_device_tensor_from_numpy\n)R."),
         "_rebuild_device_tensor_from_numpy"},
        {PICKLE("\x80\x02" "ccollections\nOrderedDict\n)\x81."), "operation 0x81"},
        {PICKLE("\x80\x02(ccollections\nOrderedDict\no."), "operation 0x6f"},
        {PICKLE("\x80\x02\x82\1."), "operation 0x82"},
        {PICKLE("\x80\x02" "Pwhatever\n."), "operation 0x50"},
        {PICKLE("\x80\x02]}b."), "attributes of what is no dictionary"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        opened o;
        open_pickle(&o, rows[i].pickle, rows[i].n);
        expect_fail(&o, SW_E_UNSUPPORTED, rows[i].says);
        close_it(&o);
    }
}

static void broken_pickles_are_refused(void **state)
{
    static const struct { const char *pickle; size_t n; sw_code code; const char *says; } rows[] = {
        {PICKLE("\x80\x01}."), SW_E_UNSUPPORTED, "protocol 1"},
        {PICKLE("\x80\x02}"), SW_E_FORMAT, "ends inside an operation"},
        {PICKLE("\x80\x02}.x"), SW_E_FORMAT, "behind"},
        {PICKLE("\x80\x02}}."), SW_E_FORMAT, "behind"},
        {PICKLE("\x80\x02(}."), SW_E_FORMAT, "behind"},
        {PICKLE("\x80\x02]."), SW_E_FORMAT, "no dictionary of tensors"},
        {PICKLE("\x80\x02(t."), SW_E_FORMAT, "no dictionary of tensors"},
        {PICKLE("\x80\x02u."), SW_E_FORMAT, "mark that it did not set"},
        {PICKLE("\x80\x02s."), SW_E_FORMAT, "not there"},
        {PICKLE("\x80\x02}(K"), SW_E_FORMAT, "ends inside an operation"},
        {PICKLE("\x80\x02}(K\1u."), SW_E_FORMAT, "adds to what is no dictionary"},
        {PICKLE("\x80\x02K\1K\1K\1s."), SW_E_FORMAT, "adds to what is no dictionary"},
        {PICKLE("\x80\x02}K\1a."), SW_E_FORMAT, "adds to what is no list"},
        {PICKLE("\x80\x02(K\1d."), SW_E_FORMAT, "a key and no value"},
        {PICKLE("\x80\x02h\1."), SW_E_FORMAT, "recalls number 1"},
        {PICKLE("\x80\x02}r\xff\xff\xff\xff."), SW_E_FORMAT, "remembers under number 4294967295"},
        {PICKLE("\x80\x02X\xff\xff\xff\x7f."), SW_E_FORMAT, "ends inside an operation"},
        {PICKLE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), SW_E_FORMAT, "ends inside"},
        {PICKLE("\x80\x02\x8a\x09" "123456789."), SW_E_FORMAT, "integer of 9 bytes"},
        {PICKLE("\x80\x02" "ctorch\nFloatStorage\n)R."), SW_E_FORMAT, "other kinds"},
        {PICKLE("\x80\x02" "ccollections\nOrderedDict\n]\x85R."), SW_E_FORMAT, "other kinds"},
        {PICKLE("\x80\x02]R."), SW_E_FORMAT, "not there"},
        {PICKLE("\x80\x02])R."), SW_E_FORMAT, "calls what is no function"},
        {PICKLE("\x80\x02)Q."), SW_E_FORMAT, "no storage of a tensor"},
        {PICKLE("\x80\x02" "cos"), SW_E_FORMAT, "ends inside a name"},
        {PICKLE(""), SW_E_FORMAT, "ends inside an operation"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        opened o;
        open_pickle(&o, rows[i].pickle, rows[i].n);
        expect_fail(&o, rows[i].code, rows[i].says);
        close_it(&o);
    }
}

#define HUGE_DIM ((int64_t)1 << 60)

static void tensors_beyond_their_storage_are_refused(void **state)
{
    static const struct {
        const char *type, *key;
        int64_t n_elems, first;
        int32_t n_dims;
        int64_t shape[3], strides[3];
        const char *says;
    } rows[] = {
        {"Float", "0", 4, 0, 1, {5}, {1}, "beyond its storage of 4"},
        {"Float", "0", 4, 1, 1, {4}, {1}, "beyond its storage of 4"},
        {"Float", "0", 4, 0, 1, {2}, {4}, "beyond its storage of 4"},
        {"Float", "0", 4, 0, 2, {2, 4}, {0, 1}, "or repeats them"},
        {"Float", "0", 4, 0, 1, {HUGE_DIM}, {0}, "or repeats them"},
        {"Float", "0", HUGE_DIM, 0, 1, {HUGE_DIM}, {1}, "need more"},
        {"Float", "0", INT64_MAX, 0, 1, {INT64_MAX}, {1}, "need more"},
        {"Float", "0", 4, 0, 2, {HUGE_DIM, HUGE_DIM}, {1, 1}, "beyond its storage"},
        {"Float", "0", 4, 0, 2, {2, 2}, {INT64_MAX, 1}, "beyond its storage"},
        {"Float", "0", 4, INT64_MAX, 1, {1}, {1}, "beyond its storage"},
        {"Float", "0", 4, 5, 1, {0}, {1}, "beyond its storage"},
        {"Float", "0", 4, 0, 1, {-1}, {1}, "other kinds"},
        {"Float", "0", 4, 0, 1, {1}, {-1}, "other kinds"},
        {"Float", "0", 4, -1, 1, {1}, {1}, "other kinds"},
        {"Float", "0", -4, 0, 1, {1}, {1}, "no storage of a tensor"},
        {"Float", "0", 5, 0, 1, {4}, {1}, "has 16 bytes, and 5 elements of F32 need more"},
        {"Float", "1", 4, 0, 1, {4}, {1}, "storage \"1\" is missing"},
        {"Float", "../../x", 4, 0, 1, {4}, {1}, "storage \"../../x\" is missing"},
        {"Float", "", 4, 0, 1, {4}, {1}, "is no text"}};
    static const float storage[4];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pt_bytes items = {.n = 0};
        opened o;
        pt_string(&items, "w");
        pt_tensor(&items, rows[i].type, rows[i].key, rows[i].n_elems, rows[i].first, rows[i].n_dims,
                  rows[i].shape, rows[i].strides);
        open_items(&o, &items, storage, sizeof storage);
        expect_fail(&o, SW_E_FORMAT, rows[i].says);
        close_it(&o);
    }
}

/* 20,000 turned views of one storage would be a file a thousand times its size. */
static void many_copies_of_one_storage_are_refused(void **state)
{
    static const int64_t shape[2] = {64, 64}, strides[2] = {1, 64};
    static float storage[64 * 64];
    pt_bytes items = {.n = 0};
    opened o;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        pt_string(&items, name);
        pt_tensor(&items, "Float", "0", 64 * 64, 0, 2, shape, strides);
    }
    open_items(&o, &items, storage, sizeof storage);
    expect_fail(&o, SW_E_FORMAT, "more than the file");
    close_it(&o);
}

static void names_must_tell_tensors_apart(void **state)
{
    static const int64_t shape[1] = {4}, strides[1] = {1};
    static const float storage[4];

    (void)state;
    for (int i = 0; i < 3; i++) {
        pt_bytes items = {.n = 0};
        opened o;
        pt_string(&items, "w");
        pt_tensor(&items, "Float", "0", 4, 0, 1, shape, strides);
        if (i == 0) pt_string(&items, "w");
        if (i == 1) pt_int(&items, 3);
        if (i == 2) {
            pt_string(&items, "inner");
            pt_text(&items, "]");
        }
        pt_tensor(&items, "Float", "0", 4, 0, 1, shape, strides);
        if (i == 2) pt_text(&items, "a");
        open_items(&o, &items, storage, sizeof storage);
        expect_fail(&o, i == 2 ? SW_E_UNSUPPORTED : SW_E_FORMAT,
                    i == 0 ? "two tensors are named \"w\"" : i == 1 ? "name is no text"
                                                             : "1 tensors in other places");
        close_it(&o);
    }
}

static void odd_archives_are_refused(void **state)
{
    static const struct { const char *name; int method; const char *says; sw_code code; } rows[] = {
        {"a/data/0", 8, "entry \"a/data/0\" is compressed", SW_E_UNSUPPORTED},
        {"a/constants.pkl", 0, "TorchScript", SW_E_UNSUPPORTED},
        {"b/data.pkl", 0, "2 data.pkl", SW_E_FORMAT},
        {"a/data.pkl", 0, "two entries are named \"a/data.pkl\"", SW_E_FORMAT},
        {"a/byteorder", 0, "byte order", SW_E_UNSUPPORTED}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        opened o = {.rc = SW_OK};
        pt_zip_add(&o.zip, "a/data.pkl", "\x80\x02}.", 4, 0);
        pt_zip_add(&o.zip, rows[i].name, "big", 3, rows[i].method);
        pt_zip_end(&o.zip);
        parse(&o);
        expect_fail(&o, rows[i].code, rows[i].says);
        close_it(&o);
    }
    opened o = {.rc = SW_OK};
    pt_zip_add(&o.zip, "a/x", "1", 1, 0);
    pt_zip_end(&o.zip);
    parse(&o);
    expect_fail(&o, SW_E_FORMAT, "0 data.pkl");
    close_it(&o);
    memset(&o, 0, sizeof o);
    pt_text(&o.zip.bytes, "\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.");
    parse(&o);
    expect_fail(&o, SW_E_UNSUPPORTED, "before 1.6 must be saved again");
    close_it(&o);
}

/* Each field of the directory in turn says something that is not so. */
static void directories_that_lie_are_refused(void **state)
{
    static const struct { size_t at; uint32_t value; int width; const char *says; } rows[] = {
        {8, 1, 2, "is encrypted"},
        {24, 7, 4, "is compressed"},
        {42, 0x00ffffff, 4, "is not where the directory says"},
        {42, 1, 4, "is not where the directory says"},
        {28, 0xffff, 2, "ends inside an entry"},
        {46, 'Z', 1, "has another name or method in its own header"},
        {46, 0, 1, "empty or no text"},
        {0, 'Q', 1, "ends before its last entry"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        opened o = {.rc = SW_OK};
        size_t directory;
        pt_zip_add(&o.zip, "a/data.pkl", "\x80\x02}.", 4, 0);
        directory = o.zip.bytes.n;
        pt_zip_end(&o.zip);
        for (int b = 0; b < rows[i].width; b++)
            o.zip.bytes.at[directory + rows[i].at + (size_t)b] =
                (unsigned char)(rows[i].value >> 8 * b);
        parse(&o);
        assert_int_not_equal(o.rc, SW_OK);
        if (!strstr(o.err.text, rows[i].says)) fail_msg("row %zu: \"%s\"", i, o.err.text);
        close_it(&o);
    }
}

/* Two entries over the same bytes. */
static void overlapping_entries_are_refused(void **state)
{
    opened o = {.rc = SW_OK};
    size_t second;

    (void)state;
    pt_zip_add(&o.zip, "a/data.pkl", "\x80\x02}.", 4, 0);
    second = o.zip.directory.n;
    pt_zip_add(&o.zip, "a/data.pkl", "\x80\x02}.", 4, 0);
    sw_store_le32(o.zip.directory.at + second + 42, 0); /* both are the first */
    pt_zip_end(&o.zip);
    parse(&o);
    expect_fail(&o, SW_E_FORMAT, "overlap");
    close_it(&o);
}

/* A good file cut off anywhere is refused in words. */
static void every_prefix_is_refused(void **state)
{
    static const int64_t shape[2] = {2, 2}, strides[2] = {1, 2};
    static const float storage[4] = {1, 2, 3, 4};

    (void)state;
    for (int flags = 0; flags < 4; flags++) {
        pt_bytes items = {.n = 0};
        opened o = {.rc = SW_OK};
        o.zip.flags = flags;
        pt_string(&items, "w");
        pt_tensor(&items, "Float", "0", 4, 0, 2, shape, strides);
        pt_zip_pickle(&o.zip, &items);
        pt_zip_add(&o.zip, "archive/data/0", storage, sizeof storage, 0);
        pt_zip_end(&o.zip);
        pt_free(&items);
        for (size_t n = 0; n < o.zip.bytes.n; n++) {
            sw_st_part part = {0};
            sw_spill copies = {0};
            sw_arena arena = {0};
            sw_err err = {0};
            unsigned char *cut = malloc(n + !n);
            memcpy(cut, o.zip.bytes.at, n);
            if (sw_pt_part_parse(&part, &copies, &arena, cut, n, 0, "x", &err) == SW_OK)
                fail_msg("%zu of %zu bytes are accepted", n, o.zip.bytes.n);
            assert_true(err.text[0] && !copies.data);
            sw_arena_free(&arena);
            free(cut);
        }
        parse(&o);
        expect_ok(&o);
        close_it(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_is_a_view_of_the_file),
        cmocka_unit_test(storages_are_shared_turned_and_cut),
        cmocka_unit_test(the_usual_wrappings_are_seen_through),
        cmocka_unit_test(small_floats_name_their_dtype),
        cmocka_unit_test(code_is_refused_by_name),
        cmocka_unit_test(broken_pickles_are_refused),
        cmocka_unit_test(tensors_beyond_their_storage_are_refused),
        cmocka_unit_test(many_copies_of_one_storage_are_refused),
        cmocka_unit_test(names_must_tell_tensors_apart),
        cmocka_unit_test(odd_archives_are_refused),
        cmocka_unit_test(directories_that_lie_are_refused),
        cmocka_unit_test(overlapping_entries_are_refused),
        cmocka_unit_test(every_prefix_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
