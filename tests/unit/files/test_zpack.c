/* test_zpack.c - named tensors in one compressed file: what goes in comes out, nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/file/zpack.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/random.h"

static float values[300];
static int64_t counts[2] = {-5, INT64_C(1) << 60};

static void write_file(const scratch *s, const char *name)
{
    const int64_t flat[] = {300}, square[] = {10, 30}, two[] = {2}, none[] = {0, 7};
    sw_zpack_writer *w = NULL;
    sw_err err = {0};

    for (int i = 0; i < 300; i++) values[i] = (float)i * 0.37f - 40.0f;
    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(s, name), false, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_meta(w, "kind", "test", &err), SW_OK);
    assert_int_equal(sw_zpack_writer_meta(w, "empty", "", &err), SW_OK);
    assert_int_equal(sw_zpack_writer_put(w, "z.flat", SW_DTYPE_F32, 1, flat, values,
                                         sizeof values, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_put(w, "a.square", SW_DTYPE_F32, 2, square, values,
                                         sizeof values, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_put(w, "m.counts", SW_DTYPE_I64, 1, two, counts,
                                         sizeof counts, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_put(w, "m.none", SW_DTYPE_U8, 2, none, "", 0, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_commit(w, &err), SW_OK);
    sw_zpack_writer_free(w);
}

static void test_round_trip(void **state)
{
    static const char *const names[] = {"a.square", "m.counts", "m.none", "z.flat"};
    const sw_zpack_tensor *t;
    float back[300];
    int64_t two[2];
    sw_zpack *z = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    write_file(&s, "one");
    write_file(&s, "two");
    assert_int_equal(sw_zpack_open(&z, scratch_path(&s, "one"), &err), SW_OK);
    assert_int_equal(sw_zpack_count(z), 4);
    for (int i = 0; i < 4; i++) assert_string_equal(sw_zpack_at(z, i)->name, names[i]);
    assert_string_equal(sw_zpack_meta(z, "kind"), "test");
    assert_string_equal(sw_zpack_meta(z, "empty"), "");
    assert_null(sw_zpack_meta(z, "other"));
    assert_null(sw_zpack_find(z, "a.squar"));
    t = sw_zpack_find(z, "a.square");
    assert_true(t && t->dtype == SW_DTYPE_F32 && t->n_dims == 2 && t->shape[1] == 30);
    assert_true(t->frame_bytes < t->raw_bytes); /* planes compress */
    assert_int_equal(sw_zpack_load(back, z, t, &err), SW_OK);
    assert_memory_equal(back, values, sizeof values);
    assert_int_equal(sw_zpack_load(two, z, sw_zpack_find(z, "m.counts"), &err), SW_OK);
    assert_memory_equal(two, counts, sizeof counts);
    assert_int_equal(sw_zpack_load(back, z, sw_zpack_find(z, "m.none"), &err), SW_OK);
    sw_zpack_close(z);
    scratch_close(&s);
}

static unsigned char *slurp(const scratch *s, const char *name, size_t *n)
{
    sw_map map = {0};
    sw_err err = {0};
    unsigned char *copy;

    assert_int_equal(sw_map_open(&map, scratch_path(s, name), &err), SW_OK);
    copy = malloc(map.size_bytes);
    memcpy(copy, map.data, map.size_bytes);
    *n = map.size_bytes;
    sw_map_close(&map);
    return copy;
}

/* Open and load everything: SW_E_FORMAT with a message, at one step or the other. */
static void expect_refused(const unsigned char *bytes, size_t n, const char *says)
{
    unsigned char *exact = malloc(n ? n : 1), room[sizeof values];
    sw_zpack *z = NULL;
    sw_err err = {0};
    sw_code rc;

    memcpy(exact, bytes, n); /* its own block, so that a read beyond it is seen */
    rc = sw_zpack_open_bytes(&z, exact, n, "file", &err);
    for (int64_t i = 0; rc == SW_OK && i < sw_zpack_count(z); i++) {
        assert_true(sw_zpack_at(z, i)->raw_bytes <= sizeof room);
        rc = sw_zpack_load(room, z, sw_zpack_at(z, i), &err);
    }
    assert_int_equal(rc, SW_E_FORMAT);
    assert_true(!strncmp(err.text, "file: ", 6));
    if (says) assert_non_null(strstr(err.text, says));
    sw_zpack_close(z);
    free(exact);
}

static void test_every_cut_and_every_change_is_seen(void **state)
{
    unsigned char *bytes;
    test_rng rng = {9};
    scratch s;
    size_t n;

    (void)state;
    scratch_open(&s);
    write_file(&s, "one");
    bytes = slurp(&s, "one", &n);
    for (size_t cut = 0; cut < n; cut++)
        expect_refused(bytes, cut, cut < 8 ? "not a file" : "cut short");
    for (size_t i = 0; i < n; i++) {
        unsigned char kept = bytes[i];
        bytes[i] ^= (unsigned char)(1 + test_u64(&rng) % 255);
        expect_refused(bytes, n, NULL);
        bytes[i] = kept;
    }
    bytes = realloc(bytes, n + 1);
    bytes[n] = 0;
    expect_refused(bytes, n + 1, "cut short");
    free(bytes);
    scratch_close(&s);
}

static void test_same_input_same_bytes(void **state)
{
    unsigned char *a, *b;
    size_t n_a, n_b;
    scratch s;

    (void)state;
    scratch_open(&s);
    write_file(&s, "one");
    write_file(&s, "two");
    a = slurp(&s, "one", &n_a);
    b = slurp(&s, "two", &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
    scratch_close(&s);
}

static void test_writer_refuses(void **state)
{
    const int64_t three[] = {3}, minus[] = {-1};
    sw_zpack_writer *w = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    write_file(&s, "one");
    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(&s, "one"), false, &err), SW_E_USAGE);
    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(&s, "one"), true, NULL), SW_OK);
    assert_int_equal(sw_zpack_writer_put(w, "x", SW_DTYPE_F32, 1, three, values, 8, NULL),
                     SW_E_BUG);
    assert_int_equal(sw_zpack_writer_put(w, "x", SW_DTYPE_F32, 1, minus, values, 8, NULL),
                     SW_E_FORMAT);
    assert_int_equal(sw_zpack_writer_put(w, "\xff", SW_DTYPE_F32, 1, three, values, 12, NULL),
                     SW_E_BUG);
    assert_int_equal(sw_zpack_writer_meta(w, "key", "\xc3", NULL), SW_E_BUG);
    sw_zpack_writer_free(w); /* not committed: the old file stays, and nothing beside it */
    assert_int_equal(scratch_count(&s, NULL), 1);
    scratch_close(&s);
}

static void test_a_name_twice(void **state)
{
    const int64_t one[] = {1};
    sw_zpack_writer *w = NULL;
    sw_zpack *z = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_zpack_writer_new(&w, scratch_path(&s, "f"), false, &err), SW_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sw_zpack_writer_put(w, "x", SW_DTYPE_F32, 1, one, values, 4, &err), SW_OK);
    assert_int_equal(sw_zpack_writer_commit(w, &err), SW_OK);
    sw_zpack_writer_free(w);
    assert_int_equal(sw_zpack_open(&z, scratch_path(&s, "f"), &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "\"x\" is there twice"));
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_every_cut_and_every_change_is_seen),
        cmocka_unit_test(test_same_input_same_bytes),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_a_name_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
