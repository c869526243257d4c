/* test_safetensors_read.c - the reader: a worked example, odd but legal files, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/file/safetensors.h"
#include "tests/support/scratch.h"

/* The container of n_data zero bytes under this header. Caller frees. */
static unsigned char *container(size_t *n_bytes, const char *json, size_t n_data)
{
    size_t n_json = strlen(json);
    unsigned char *bytes = calloc(1, 8 + n_json + n_data + 1);

    assert_non_null(bytes);
    sw_store_le64(bytes, n_json);
    memcpy(bytes + 8, json, n_json);
    *n_bytes = 8 + n_json + n_data;
    return bytes;
}

/* Worked example of the format notes: 163 bytes, header padded to 144. */
static const char golden_json[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}    ";

static void test_golden(void **state)
{
    size_t n_bytes;
    unsigned char *bytes = container(&n_bytes, golden_json, 11);
    const sw_st_tensor *a, *b;
    sw_err err = {0};
    sw_st *st = NULL;

    (void)state;
    assert_int_equal(n_bytes, 163);
    assert_int_equal(bytes[0], 0x90);
    assert_int_equal(sw_st_open_bytes(&st, bytes, n_bytes, "golden", &err), SW_OK);
    assert_int_equal(sw_st_count(st), 2);
    assert_int_equal(sw_st_n_files(st), 1);
    assert_string_equal(sw_st_file_path(st, 0), "golden");
    assert_string_equal(sw_st_metadata(st, "format"), "pt");
    assert_null(sw_st_metadata(st, "other"));
    a = sw_st_find(st, "a");
    b = sw_st_find(st, "b");
    assert_null(sw_st_find(st, "c"));
    assert_ptr_equal(a, sw_st_at(st, 0));
    assert_ptr_equal(b, sw_st_at(st, 1));
    assert_int_equal(a->view.dtype, SW_DTYPE_F16);
    assert_int_equal(a->view.n_dims, 2);
    assert_int_equal(a->view.shape[0], 2);
    assert_int_equal(a->view.shape[1], 2);
    assert_int_equal(a->view.size_bytes, 8);
    assert_ptr_equal(a->view.data, bytes + 152);
    assert_ptr_equal(b->view.data, bytes + 160);
    assert_int_equal(b->view.size_bytes, 3);
    sw_st_close(st);
    free(bytes);
}

/* Legal, if unusual. */
static const struct {
    const char *json;
    size_t n_data;
    int64_t n_tensors;
} legal[] = {
    {"{}", 0, 0},
    {"  {} \n\t ", 0, 0},
    {"{\"__metadata__\":{}}", 0, 0},
    {"{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
    {"{\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, 1},
    {"{\"z\":{\"dtype\":\"F32\",\"shape\":[9007199254740991,0],\"data_offsets\":[0,0]}}", 0, 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"z\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[2,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}", 3, 3},
    {"{\"f\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}}", 3, 1},
    {"{\"f\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1},
    {"{\"\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, 1},
    {"{\"d\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, 1},
};

static void test_legal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++) {
        size_t n_bytes;
        unsigned char *bytes = container(&n_bytes, legal[i].json, legal[i].n_data);
        sw_err err = {0};
        sw_st *st = NULL;
        if (sw_st_open_bytes(&st, bytes, n_bytes, "case", &err) != SW_OK)
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(sw_st_count(st), legal[i].n_tensors);
        sw_st_close(st);
        free(bytes);
    }
}

#define T(dtype, shape, offsets) \
    "{\"ten\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* What must be refused, and the words that the message must have besides the file's name. */
static const struct {
    const char *json;
    size_t n_data;
    const char *words[2];
} refused[] = {
    {"{", 0, {"JSON", ""}},
    {"", 0, {"JSON", ""}},
    {"[]", 0, {"not a JSON object", ""}},
    {"{}x", 0, {"JSON", ""}},
    {"{\"a\":\xff}", 0, {"UTF-8", ""}},
    {"{\"__metadata__\":[]}", 0, {"__metadata__", ""}},
    {"{\"__metadata__\":{\"k\":1}}", 0, {"__metadata__", "\"k\""}},
    {"{\"__metadata__\":{\"k\":null}}", 0, {"__metadata__", "\"k\""}},
    {"{\"__metadata__\":{\"k\":{}}}", 0, {"__metadata__", "\"k\""}},
    {"{\"ten\":3}", 0, {"\"ten\"", "object"}},
    {"{\"ten\":{}}", 0, {"\"ten\"", "dtype"}},
    {T("7", "[1]", "[0,1]"), 1, {"\"ten\"", "dtype"}},
    {T("\"U9\"", "[1]", "[0,1]"), 1, {"\"ten\"", "U9"}},
    {T("\"u8\"", "[1]", "[0,1]"), 1, {"\"ten\"", "u8"}},
    {T("\"U8\"", "1", "[0,1]"), 1, {"\"ten\"", "shape"}},
    {T("\"U8\"", "[-1]", "[0,1]"), 1, {"\"ten\"", "shape"}},
    {T("\"U8\"", "[\"1\"]", "[0,1]"), 1, {"\"ten\"", "shape"}},
    {T("\"U8\"", "[1.5]", "[0,1]"), 1, {"no integer", ""}},
    {T("\"U8\"", "[1.0]", "[0,1]"), 1, {"no integer", ""}},
    {T("\"U8\"", "[1e0]", "[0,1]"), 1, {"no integer", ""}},
    {T("\"U8\"", "[01]", "[0,1]"), 1, {"malformed number", ""}},
    {T("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, {"\"ten\"", "dimensions"}},
    {T("\"I32\"", "[2,18446744073709551614]", "[0,16]"), 16, {"\"ten\"", "integer"}},
    {T("\"I32\"", "[4503599627370496,4503599627370496]", "[0,16]"), 16, {"\"ten\"", "large"}},
    {T("\"U64\"", "[4503599627370496,1024]", "[0,16]"), 16, {"\"ten\"", "large"}},
    {T("\"I32\"", "[2,2]", "[0,4]"), 4, {"\"ten\"", "need 16"}},
    {T("\"F4\"", "[3]", "[0,1]"), 1, {"\"ten\"", "whole bytes"}},
    {T("\"F6_E3M2\"", "[2]", "[0,1]"), 1, {"\"ten\"", "whole bytes"}},
    {T("\"U8\"", "[1]", "[0]"), 1, {"\"ten\"", "data_offsets"}},
    {T("\"U8\"", "[1]", "[0,1,2]"), 1, {"\"ten\"", "data_offsets"}},
    {T("\"U8\"", "[1]", "{}"), 1, {"\"ten\"", "data_offsets"}},
    {T("\"U8\"", "[1]", "[2,1]"), 1, {"\"ten\"", "backwards"}},
    {T("\"U8\"", "[4]", "[-4,0]"), 1, {"\"ten\"", "data_offsets"}},
    {T("\"U8\"", "[4]", "[0,4]"), 3, {"\"ten\"", "truncated"}},
    {T("\"U8\"", "[4]", "[0,4]"), 2, {"\"ten\"", "truncated"}},
    {T("\"U8\"", "[4]", "[1,5]"), 5, {"\"ten\"", "hole"}},
    {T("\"U8\"", "[4]", "[0,4]"), 5, {"1 bytes after the last tensor", ""}},
    {"{}", 1, {"1 bytes after the last tensor", ""}},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3, {"\"b\"", "overlap"}},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}", 16, {"\"", "overlap"}},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, {"duplicate", "\"a\""}},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     {"duplicate", "\"dtype\""}},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, {"duplicate", "\"k\""}},
    {"{\"ten\":{\"dtype\":\"U8\",\"shape\":[[[1]]],\"data_offsets\":[0,1]}}", 1, {"deeper", ""}},
    {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, {"u0000", ""}},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        size_t n_bytes;
        unsigned char *bytes = container(&n_bytes, refused[i].json, refused[i].n_data);
        sw_err err = {0};
        sw_st *st = NULL;
        sw_code rc = sw_st_open_bytes(&st, bytes, n_bytes, "case.safetensors", &err);
        if (rc != SW_E_FORMAT || err.code != SW_E_FORMAT || st)
            fail_msg("case %zu: code %d, want %d", i, rc, SW_E_FORMAT);
        if (strncmp(err.text, "case.safetensors: ", 18) != 0 ||
            !strstr(err.text, refused[i].words[0]) || !strstr(err.text, refused[i].words[1]))
            fail_msg("case %zu: message \"%s\" lacks \"%s\" or \"%s\"", i, err.text,
                     refused[i].words[0], refused[i].words[1]);
        free(bytes);
    }
}

static void expect_refusal(const void *bytes, size_t n_bytes, const char *word)
{
    sw_err err = {0};
    sw_st *st = NULL;

    assert_int_equal(sw_st_open_bytes(&st, bytes, n_bytes, "f", &err), SW_E_FORMAT);
    assert_null(st);
    if (!strstr(err.text, word)) fail_msg("\"%s\" lacks \"%s\"", err.text, word);
}

static void test_refused_lengths(void **state)
{
    unsigned char bytes[16] = {0};

    (void)state;
    for (size_t n = 0; n < 8; n++) expect_refusal(bytes, n, "too few");
    sw_store_le64(bytes, 0xffff000000003cu | 0xff00000000000000u);
    expect_refusal(bytes, 16, "is this safetensors");
    sw_store_le64(bytes, UINT64_MAX);
    expect_refusal(bytes, 16, "is this safetensors");
    sw_store_le64(bytes, SW_ST_HEADER_MAX_BYTES + 1);
    expect_refusal(bytes, 16, "is this safetensors");
    sw_store_le64(bytes, SW_ST_HEADER_MAX_BYTES);
    expect_refusal(bytes, 16, "truncated");
    sw_store_le64(bytes, 9);
    expect_refusal(bytes, 16, "truncated");
    sw_store_le64(bytes, 0);
    expect_refusal(bytes, 8, "JSON");
}

/* Every prefix of a good file is refused. */
static void test_refused_prefixes(void **state)
{
    size_t n_bytes;
    unsigned char *bytes = container(&n_bytes, golden_json, 11);

    (void)state;
    for (size_t n = 0; n < n_bytes; n++) expect_refusal(bytes, n, "f: ");
    free(bytes);
}

/* A header of exactly SW_ST_HEADER_MAX_BYTES of blanks around {} is legal, one more is not. */
static void test_header_cap(void **state)
{
    size_t n_json = (size_t)SW_ST_HEADER_MAX_BYTES;
    unsigned char *bytes = malloc(8 + n_json + 1);
    sw_err err = {0};
    sw_st *st = NULL;

    (void)state;
    assert_non_null(bytes);
    memset(bytes, ' ', 8 + n_json + 1);
    memcpy(bytes + 8, "{}", 2);
    sw_store_le64(bytes, n_json);
    assert_int_equal(sw_st_open_bytes(&st, bytes, 8 + n_json, "f", &err), SW_OK);
    sw_st_close(st);
    sw_store_le64(bytes, n_json + 1);
    expect_refusal(bytes, 8 + n_json + 1, "at most 100000000");
    free(bytes);
}

static void test_open_paths(void **state)
{
    size_t n_bytes;
    unsigned char *bytes = container(&n_bytes, golden_json, 11);
    sw_err err = {0};
    scratch s;
    sw_st *st = NULL;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_st_open(&st, scratch_path(&s, "absent"), &err), SW_E_IO);
    assert_non_null(strstr(err.text, "absent"));
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_st_open(&st, s.dir, &err), SW_E_IO);
    assert_non_null(strstr(err.text, s.dir));
    scratch_write(&s, "one.safetensors", bytes, n_bytes);
    scratch_write(&s, "one.safetensors.txt", "no", 2);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_st_open(&st, s.dir, &err), SW_OK);
    assert_string_equal(sw_st_file_path(st, 0), scratch_path(&s, "one.safetensors"));
    sw_st_close(st);
    st = NULL;
    scratch_write(&s, "two.safetensors", bytes, n_bytes);
    assert_int_equal(sw_st_open(&st, s.dir, &err), SW_E_IO);
    assert_non_null(strstr(err.text, "2 *.safetensors"));
    memset(&err, 0, sizeof err);
    scratch_write(&s, "model.safetensors", bytes, n_bytes);
    assert_int_equal(sw_st_open(&st, s.dir, &err), SW_OK);
    assert_string_equal(sw_st_file_path(st, 0), scratch_path(&s, "model.safetensors"));
    sw_st_close(st);
    st = NULL;
    scratch_write(&s, "bad.safetensors", bytes, n_bytes - 2);
    assert_int_equal(sw_st_open(&st, scratch_path(&s, "bad.safetensors"), &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "/bad.safetensors: tensor \"b\""));
    scratch_close(&s);
    free(bytes);
}

#define INDEX(map) "{\"metadata\":{},\"weight_map\":" map "}"

/* Shards in the directory of these cases: 1.safetensors has a and b, 2.safetensors has c. */
static const struct {
    const char *index;
    sw_code want;
    const char *words[2];
} indexes[] = {
    {INDEX("{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}"),
     SW_OK, {0}},
    {"{\"weight_map\":{\"a\":\"1.safetensors\"},\"metadata\":{\"total_size\":7,\"x\":[{}]}}", SW_OK,
     {0}},
    {"{}", SW_E_FORMAT, {"weight_map", ""}},
    {"[]", SW_E_FORMAT, {"weight_map", ""}},
    {INDEX("{}"), SW_E_FORMAT, {"weight_map", ""}},
    {INDEX("[\"1.safetensors\"]"), SW_E_FORMAT, {"weight_map", ""}},
    {INDEX("{\"a\":1}"), SW_E_FORMAT, {"\"a\"", "not a string"}},
    {INDEX("{\"a\":\"../1.safetensors\"}"), SW_E_FORMAT, {"\"a\"", "../1.safetensors"}},
    {INDEX("{\"a\":\"/etc/passwd\"}"), SW_E_FORMAT, {"\"a\"", "/etc/passwd"}},
    {INDEX("{\"a\":\"x/1.safetensors\"}"), SW_E_FORMAT, {"\"a\"", "plain file name"}},
    {INDEX("{\"a\":\"x\\\\1.safetensors\"}"), SW_E_FORMAT, {"\"a\"", "plain file name"}},
    {INDEX("{\"a\":\"..\"}"), SW_E_FORMAT, {"\"a\"", "plain file name"}},
    {INDEX("{\"a\":\".\"}"), SW_E_FORMAT, {"\"a\"", "plain file name"}},
    {INDEX("{\"a\":\"\"}"), SW_E_FORMAT, {"\"a\"", "plain file name"}},
    {INDEX("{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}"), SW_E_FORMAT,
     {"duplicate", "\"a\""}},
    {INDEX("{\"a\":\"3.safetensors\"}"), SW_E_IO, {"3.safetensors", "missing"}},
    {INDEX("{\"a\":\"2.safetensors\",\"c\":\"2.safetensors\"}"), SW_E_FORMAT,
     {"\"a\"", "not in its shard 2.safetensors"}},
    {INDEX("{\"a\":\"1.safetensors\",\"d\":\"1.safetensors\"}"), SW_E_FORMAT, {"\"d\"", "not in"}},
    {INDEX("{\"a\":\"1.safetensors\",\"c\":\"twin.safetensors\"}"), SW_E_FORMAT,
     {"\"a\"", "two shards"}},
    {INDEX("{\"a\":\"1.safetensors\",\"c\":\"broken.safetensors\"}"), SW_E_FORMAT,
     {"broken.safetensors", "truncated"}},
    {INDEX("{\"a\":\"1.safetensors\"}") " x", SW_E_FORMAT, {"JSON", ""}},
};

static void write_container(const scratch *s, const char *name, const char *json, size_t n_data)
{
    size_t n_bytes;
    unsigned char *bytes = container(&n_bytes, json, n_data);

    scratch_write(s, name, bytes, n_bytes);
    free(bytes);
}

static void test_index(void **state)
{
    const char *c_json = "{\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    const char *twin_json = "{\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                            "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}";
    scratch s;

    (void)state;
    scratch_open(&s);
    write_container(&s, "1.safetensors", golden_json, 11);
    write_container(&s, "2.safetensors", c_json, 2);
    write_container(&s, "twin.safetensors", twin_json, 3);
    write_container(&s, "broken.safetensors", c_json, 1);
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        sw_err err = {0};
        sw_st *st = NULL;
        sw_code rc;
        scratch_write(&s, "model.safetensors.index.json", indexes[i].index,
                      strlen(indexes[i].index));
        rc = sw_st_open(&st, s.dir, &err);
        if (rc != indexes[i].want) fail_msg("case %zu: code %d: %s", i, rc, err.text);
        if (rc != SW_OK && (strncmp(err.text, s.dir, strlen(s.dir)) != 0 ||
                            !strstr(err.text, indexes[i].words[0]) ||
                            !strstr(err.text, indexes[i].words[1])))
            fail_msg("case %zu: message \"%s\"", i, err.text);
        sw_st_close(st);
    }
    scratch_close(&s);
}

/* Tensors of all shards in one table, each with its own file; a tensor outside the map stays. */
static void test_shards(void **state)
{
    const char *c_json = "{\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    const char *index = INDEX("{\"c\":\"0.safetensors\",\"a\":\"1.safetensors\"}");
    sw_err err = {0};
    scratch s;
    sw_st *st = NULL;

    (void)state;
    scratch_open(&s);
    write_container(&s, "1.safetensors", golden_json, 11);
    write_container(&s, "0.safetensors", c_json, 2);
    scratch_write(&s, "model.safetensors.index.json", index, strlen(index));
    assert_int_equal(sw_st_open(&st, s.dir, &err), SW_OK);
    assert_int_equal(sw_st_n_files(st), 2);
    assert_int_equal(sw_st_count(st), 3);
    assert_string_equal(sw_st_at(st, 0)->name, "a");
    assert_string_equal(sw_st_at(st, 1)->name, "b");
    assert_string_equal(sw_st_at(st, 2)->name, "c");
    assert_string_equal(sw_st_file_path(st, sw_st_find(st, "c")->shard),
                        scratch_path(&s, "0.safetensors"));
    assert_string_equal(sw_st_file_path(st, sw_st_find(st, "b")->shard),
                        scratch_path(&s, "1.safetensors"));
    sw_st_close(st);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),          cmocka_unit_test(test_legal),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_refused_lengths),
        cmocka_unit_test(test_refused_prefixes), cmocka_unit_test(test_header_cap),
        cmocka_unit_test(test_open_paths),      cmocka_unit_test(test_index),
        cmocka_unit_test(test_shards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
