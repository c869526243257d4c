/* test_safetensors_write.c - the writer: exact bytes, round trips, shards, and misuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/checkpoint/side_files.h"
#include "formats/file/safetensors.h"
#include "tests/support/scratch.h"

typedef struct tensor {
    const char *name;
    sw_dtype dtype;
    int32_t n_dims;
    int64_t shape[3];
    size_t n_bytes;
} tensor;

static const tensor tensors[] = {
    {"b.narrow", SW_DTYPE_U8, 1, {3}, 3},
    {"a.narrow", SW_DTYPE_U8, 1, {2}, 2},
    {"scalar", SW_DTYPE_F64, 0, {0}, 8},
    {"half", SW_DTYPE_BF16, 2, {2, 3}, 12},
    {"empty", SW_DTYPE_I32, 2, {0, 5}, 0},
    {"quo\"te\\ \n\t\x01 \xc3\xa9", SW_DTYPE_F32, 3, {1, 2, 1}, 8},
    {"four", SW_DTYPE_F4, 1, {6}, 3},
};
#define N_TENSORS ((int)(sizeof tensors / sizeof tensors[0]))

/* The bytes of tensor t are a function of t alone. */
static const unsigned char *data_of(int t)
{
    static unsigned char data[N_TENSORS][16];

    for (size_t i = 0; i < tensors[t].n_bytes; i++) data[t][i] = (unsigned char)(16 * t + i + 1);
    return data[t];
}

static sw_st_writer *declare(const char *dir, uint64_t shard_bytes)
{
    sw_st_writer *w = NULL;
    sw_err err = {0};

    assert_int_equal(sw_st_writer_new(&w, dir, shard_bytes, &err), SW_OK);
    assert_int_equal(sw_st_writer_meta(w, "made \"by\"", "te\nst", &err), SW_OK);
    for (int t = 0; t < N_TENSORS; t++)
        assert_int_equal(sw_st_writer_declare(w, tensors[t].name, tensors[t].dtype,
                                              tensors[t].n_dims, tensors[t].shape, &err),
                         SW_OK);
    assert_int_equal(sw_st_writer_data_bytes(w), 36);
    return w;
}

static sw_st_writer *begin(const char *dir, uint64_t shard_bytes)
{
    sw_st_writer *w = declare(dir, shard_bytes);
    sw_err err = {0};

    assert_int_equal(sw_st_writer_begin(w, &err), SW_OK);
    return w;
}

/* Put all tensors, t = first, first + step, ... modulo their number. */
static void put_all(sw_st_writer *w, int first, int step)
{
    sw_err err = {0};

    for (int i = 0; i < N_TENSORS; i++) {
        int t = (first + i * step) % N_TENSORS;
        assert_int_equal(
            sw_st_writer_put(w, tensors[t].name, data_of(t), tensors[t].n_bytes, &err), SW_OK);
    }
}

static void write_all(const char *dir, uint64_t shard_bytes, int first, int step)
{
    sw_st_writer *w = begin(dir, shard_bytes);
    sw_err err = {0};

    put_all(w, first, step);
    assert_int_equal(sw_st_writer_commit(w, &err), SW_OK);
    sw_st_writer_free(w);
}

static void check_all(const char *dir, int32_t n_files)
{
    sw_err err = {0};
    sw_st *st = NULL;

    if (sw_st_open(&st, dir, &err) != SW_OK) fail_msg("%s", err.text);
    assert_int_equal(sw_st_n_files(st), n_files);
    assert_int_equal(sw_st_count(st), N_TENSORS);
    assert_string_equal(sw_st_metadata(st, "format"), "pt");
    assert_string_equal(sw_st_metadata(st, "made \"by\""), "te\nst");
    for (int t = 0; t < N_TENSORS; t++) {
        const sw_st_tensor *found = sw_st_find(st, tensors[t].name);
        assert_non_null(found);
        assert_int_equal(found->view.dtype, tensors[t].dtype);
        assert_int_equal(found->view.n_dims, tensors[t].n_dims);
        for (int i = 0; i < tensors[t].n_dims; i++)
            assert_int_equal(found->view.shape[i], tensors[t].shape[i]);
        assert_int_equal(found->view.size_bytes, tensors[t].n_bytes);
        assert_memory_equal(found->view.data, data_of(t), tensors[t].n_bytes);
    }
    sw_st_close(st);
}

/* As announced, and those that would leave others unaligned behind them. */
static void test_exact_bytes(void **state)
{
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"made \\\"by\\\"\":\"te\\u000ast\"},"
        "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"empty\":{\"dtype\":\"I32\",\"shape\":[0,5],\"data_offsets\":[8,8]},"
        "\"quo\\\"te\\\\ \\u000a\\u0009\\u0001 \xc3\xa9\":"
        "{\"dtype\":\"F32\",\"shape\":[1,2,1],\"data_offsets\":[8,16]},"
        "\"half\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[16,28]},"
        "\"b.narrow\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[28,31]},"
        "\"a.narrow\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[31,33]},"
        "\"four\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[33,36]}}";
    size_t n_want = sizeof want - 1, n_padded = (n_want + 7) / 8 * 8;
    sw_err err = {0};
    sw_map map = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    write_all(s.dir, 0, 0, 1);
    assert_int_equal(scratch_count(&s, NULL), 1);
    assert_int_equal(sw_map_open(&map, scratch_path(&s, "model.safetensors"), &err), SW_OK);
    assert_int_equal(map.size_bytes, 8 + n_padded + 36);
    assert_int_equal(sw_load_le64(map.data), n_padded);
    assert_memory_equal(map.data + 8, want, n_want);
    for (size_t i = n_want; i < n_padded; i++) assert_int_equal(map.data[8 + i], ' ');
    assert_memory_equal(map.data + 8 + n_padded, data_of(2), 8);
    assert_memory_equal(map.data + 8 + n_padded + 31, data_of(1), 2);
    sw_map_close(&map);
    check_all(s.dir, 1);
    scratch_close(&s);
}

/* The worked example of the format notes, which test_safetensors_read.c reads: 163 bytes. */
static void test_golden(void **state)
{
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}    ";
    static const uint8_t data[] = "01234567890"; /* eight bytes of a, three of b */
    static const int64_t square[2] = {2, 2}, three = 3;
    sw_st_writer *w = NULL;
    sw_err err = {0};
    sw_map map = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_st_writer_new(&w, s.dir, 0, &err), SW_OK);
    assert_int_equal(sw_st_writer_declare(w, "b", SW_DTYPE_U8, 1, &three, &err), SW_OK);
    assert_int_equal(sw_st_writer_declare(w, "a", SW_DTYPE_F16, 2, square, &err), SW_OK);
    assert_int_equal(sw_st_writer_begin(w, &err), SW_OK);
    assert_int_equal(sw_st_writer_put(w, "a", data, 8, &err), SW_OK);
    assert_int_equal(sw_st_writer_put(w, "b", data + 8, 3, &err), SW_OK);
    assert_int_equal(sw_st_writer_commit(w, &err), SW_OK);
    sw_st_writer_free(w);
    assert_int_equal(sw_map_open(&map, scratch_path(&s, "model.safetensors"), &err), SW_OK);
    assert_int_equal(map.size_bytes, 163);
    assert_memory_equal(map.data, "\x90\0\0\0\0\0\0\0", 8);
    assert_int_equal(sizeof want - 1, 0x90);
    assert_memory_equal(map.data + 8, want, sizeof want - 1);
    assert_memory_equal(map.data + 8 + 0x90, data, 11);
    sw_map_close(&map);
    scratch_close(&s);
}

static void test_any_order_same_bytes(void **state)
{
    sw_err err = {0};
    sw_map a = {0}, b = {0};
    scratch one, two;

    (void)state;
    scratch_open(&one);
    scratch_open(&two);
    write_all(one.dir, 0, 0, 1);
    write_all(two.dir, 0, 5, 4);
    assert_int_equal(sw_map_open(&a, scratch_path(&one, "model.safetensors"), &err), SW_OK);
    assert_int_equal(sw_map_open(&b, scratch_path(&two, "model.safetensors"), &err), SW_OK);
    assert_int_equal(a.size_bytes, b.size_bytes);
    assert_memory_equal(a.data, b.data, a.size_bytes);
    sw_map_close(&a);
    sw_map_close(&b);
    scratch_close(&one);
    scratch_close(&two);
}

/* Sizes as announced: 3 2 8 12 0 8 3. Shards of 13 bytes: 3+2+8, 12+0, 8+3. */
static void test_shards(void **state)
{
    static const char want[] =
        "{\n  \"metadata\": {\n    \"total_size\": 36\n  },\n  \"weight_map\": {\n"
        "    \"a.narrow\": \"model-00001-of-00003.safetensors\",\n"
        "    \"b.narrow\": \"model-00001-of-00003.safetensors\",\n"
        "    \"empty\": \"model-00002-of-00003.safetensors\",\n"
        "    \"four\": \"model-00003-of-00003.safetensors\",\n"
        "    \"half\": \"model-00002-of-00003.safetensors\",\n"
        "    \"quo\\\"te\\\\ \\u000a\\u0009\\u0001 \xc3\xa9\": "
        "\"model-00003-of-00003.safetensors\",\n"
        "    \"scalar\": \"model-00001-of-00003.safetensors\"\n  }\n}\n";
    sw_err err = {0};
    sw_map map = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    write_all(s.dir, 13, 3, 2);
    assert_int_equal(scratch_count(&s, NULL), 4);
    check_all(s.dir, 3);
    assert_int_equal(
        sw_map_open(&map, scratch_path(&s, "model.safetensors.index.json"), &err), SW_OK);
    assert_int_equal(map.size_bytes, sizeof want - 1);
    assert_memory_equal(map.data, want, map.size_bytes);
    sw_map_close(&map);
    scratch_close(&s);
}

/* A tensor larger than a shard gets one of its own; a shard as large as all is one file. */
static void test_shard_bounds(void **state)
{
    const struct {
        uint64_t shard_bytes;
        int n_files;
    } cases[] = {{1, 6}, {36, 1}, {35, 2}, {UINT64_MAX, 1}};
    scratch s;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_open(&s);
        write_all(s.dir, cases[i].shard_bytes, 0, 1);
        check_all(s.dir, cases[i].n_files);
        scratch_close(&s);
    }
}

static void test_no_tensors(void **state)
{
    sw_st_writer *w = NULL;
    sw_err err = {0};
    scratch s;
    sw_st *st = NULL;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_st_writer_new(&w, s.dir, 0, &err), SW_OK);
    assert_int_equal(sw_st_writer_begin(w, &err), SW_OK);
    assert_int_equal(sw_st_writer_commit(w, &err), SW_OK);
    sw_st_writer_free(w);
    assert_int_equal(sw_st_open(&st, s.dir, &err), SW_OK);
    assert_int_equal(sw_st_count(st), 0);
    sw_st_close(st);
    scratch_close(&s);
}

#define REFUSED(call, code, word)                                     \
    do {                                                              \
        sw_err e = {0};                                               \
        assert_int_equal(call, code);                                 \
        if (!strstr(e.text, word)) fail_msg("\"%s\": no %s", e.text, word); \
    } while (0)

static void test_misuse(void **state)
{
    const int64_t shape[] = {-1}, nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, three[] = {3};
    sw_st_writer *w = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_st_writer_new(&w, s.dir, 0, &err), SW_OK);
    REFUSED(sw_st_writer_put(w, "x", "", 0, &e), SW_E_BUG, "\"x\"");
    REFUSED(sw_st_writer_commit(w, &e), SW_E_BUG, "begin");
    REFUSED(sw_st_writer_meta(w, "format", "np", &e), SW_E_BUG, "format");
    REFUSED(sw_st_writer_meta(w, "k", "\xff", &e), SW_E_FORMAT, "UTF-8");
    REFUSED(sw_st_writer_declare(w, "x", SW_DTYPE_U8, 1, shape, &e), SW_E_FORMAT, "\"x\"");
    REFUSED(sw_st_writer_declare(w, "x", SW_DTYPE_U8, 9, nine, &e), SW_E_FORMAT, "\"x\"");
    REFUSED(sw_st_writer_declare(w, "x", SW_DTYPE_F4, 1, three, &e), SW_E_FORMAT, "\"x\"");
    REFUSED(sw_st_writer_declare(w, "\xc0\x80", SW_DTYPE_U8, 0, NULL, &e), SW_E_FORMAT, "UTF-8");
    REFUSED(sw_st_writer_declare(w, "__metadata__", SW_DTYPE_U8, 0, NULL, &e), SW_E_FORMAT, "__m");
    assert_int_equal(sw_st_writer_data_bytes(w), 0);
    assert_int_equal(sw_st_writer_meta(w, "k", "v", &err), SW_OK);
    REFUSED(sw_st_writer_meta(w, "k", "v", &e), SW_E_BUG, "twice");
    assert_int_equal(sw_st_writer_declare(w, "x", SW_DTYPE_U8, 1, three, &err), SW_OK);
    assert_int_equal(sw_st_writer_declare(w, "x", SW_DTYPE_I8, 1, three, &err), SW_OK);
    REFUSED(sw_st_writer_begin(w, &e), SW_E_FORMAT, "\"x\" would be written twice");
    REFUSED(sw_st_writer_begin(w, &e), SW_E_BUG, "twice");
    REFUSED(sw_st_writer_put(w, "x", "abc", 3, &e), SW_E_BUG, "\"x\"");
    sw_st_writer_free(w);
    sw_st_writer_free(NULL);
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_close(&s);
}

static void test_put_misuse(void **state)
{
    scratch s;
    sw_st_writer *w;

    (void)state;
    scratch_open(&s);
    w = begin(s.dir, 13);
    REFUSED(sw_st_writer_declare(w, "late", SW_DTYPE_U8, 0, NULL, &e), SW_E_BUG, "\"late\"");
    REFUSED(sw_st_writer_meta(w, "late", "", &e), SW_E_BUG, "\"late\"");
    REFUSED(sw_st_writer_put(w, "absent", "abc", 3, &e), SW_E_BUG, "\"absent\"");
    REFUSED(sw_st_writer_put(w, "half", data_of(3), 11, &e), SW_E_BUG, "12 declared");
    REFUSED(sw_st_writer_commit(w, &e), SW_E_BUG, "\"scalar\" was declared but never");
    put_all(w, 0, 1);
    REFUSED(sw_st_writer_put(w, "half", data_of(3), 12, &e), SW_E_BUG, "\"half\" put twice");
    REFUSED(sw_st_writer_put(w, "empty", NULL, 0, &e), SW_E_BUG, "\"empty\" put twice");
    assert_false(scratch_has(&s, "index"));
    sw_st_writer_free(w); /* never committed: nothing may stay */
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_close(&s);
}

static void test_disk_too_small(void **state)
{
    const int64_t shape[] = {(int64_t)1 << 59};
    sw_st_writer *w = NULL;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_st_writer_new(&w, s.dir, 0, &err), SW_OK);
    assert_int_equal(sw_st_writer_declare(w, "vast", SW_DTYPE_U8, 1, shape, &err), SW_OK);
    REFUSED(sw_st_writer_begin(w, &e), SW_E_IO, "free");
    sw_st_writer_free(w);
    assert_int_equal(scratch_count(&s, NULL), 0);
    scratch_close(&s);
}

static uint64_t bytes_in(const char *dir)
{
    sw_dir_list list = {0};
    sw_arena arena = {0};
    uint64_t sum = 0;
    sw_err err = {0};

    assert_int_equal(sw_dir_read(&list, dir, &arena, &err), SW_OK);
    for (int64_t i = 0; i < list.n_entries; i++) sum += list.entries[i].size_bytes;
    sw_arena_free(&arena);
    return sum;
}

/* What is foreseen of one file, of some and of one for each tensor is what is written. */
static void test_foreseen_bytes(void **state)
{
    static const uint64_t shards[] = {0, 16, 1};

    (void)state;
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
        sw_st_writer *w;
        uint64_t foreseen = 0;
        sw_err err = {0};
        scratch s;
        scratch_open(&s);
        w = declare("/nowhere", shards[i]);
        assert_int_equal(sw_st_writer_foresee(&foreseen, w, &err), SW_OK);
        assert_int_equal(sw_st_writer_begin(w, &err), SW_E_BUG);
        sw_st_writer_free(w);
        write_all(s.dir, shards[i], 0, 1);
        assert_int_equal(foreseen, bytes_in(s.dir));
        scratch_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),       cmocka_unit_test(test_foreseen_bytes),
        cmocka_unit_test(test_exact_bytes),  cmocka_unit_test(test_any_order_same_bytes),
        cmocka_unit_test(test_shards),       cmocka_unit_test(test_shard_bounds),
        cmocka_unit_test(test_no_tensors),   cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_put_misuse),   cmocka_unit_test(test_disk_too_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
