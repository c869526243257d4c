/* test_verify_spoilt.c - checkpoints that were sound until one thing in them was changed: bytes,
 * tensors, group indices, the manifest. Each is found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/file/safetensors.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/scratch.h"

static void join(char path[SW_PATH_BYTES], const char *dir, const char *name)
{
    sw_err err = {0};

    assert_int_equal(sw_path_join(path, dir, name, &err), SW_OK);
}

/* The one weights file of a directory. */
static void file_bytes(uint8_t **out, size_t *n, const char *dir)
{
    char path[SW_PATH_BYTES];
    sw_err err = {0};
    sw_map map;

    join(path, dir, "model.safetensors");
    assert_int_equal(sw_map_open(&map, path, &err), SW_OK);
    *out = malloc(map.size_bytes);
    memcpy(*out, map.data, map.size_bytes);
    *n = map.size_bytes;
    sw_map_close(&map);
}

static void put_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[SW_PATH_BYTES];
    FILE *f;

    join(path, dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Where in the file a tensor's data lies. */
static size_t offset_of(const char *dir, const char *tensor)
{
    char path[SW_PATH_BYTES];
    const sw_st_tensor *t;
    const unsigned char *first = NULL;
    uint8_t *bytes;
    size_t n, data;
    sw_st *st = NULL;
    sw_err err = {0};

    join(path, dir, "model.safetensors");
    assert_int_equal(sw_st_open(&st, path, &err), SW_OK);
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const unsigned char *at = sw_st_at(st, i)->view.data;
        if (!first || at < first) first = at;
    }
    t = sw_st_find(st, tensor);
    assert_non_null(t);
    file_bytes(&bytes, &n, dir);
    data = 8 + (size_t)sw_load_le64(bytes) + (size_t)((const unsigned char *)t->view.data - first);
    free(bytes);
    sw_st_close(st);
    return data;
}

typedef struct spoil {
    const char *tensor; /* its bytes at `at` become `value` */
    size_t at;
    uint16_t value;
    bool is_inverted;   /* flip all bits there instead */
    const char *what, *says;
    bool runs;          /* the models are still run */
} spoil;

static const spoil spoils[] = {
    {"model.layers.1.mlp.down_proj.tile_scales", 20, 0x7e00, false, "decode", "is nan", false},
    {"model.layers.0.self_attn.q_proj.tile_scales", 0, 0x7c00, false, "decode", "is inf",
     false},
    {"model.norm.weight", 6, 0, true, "differs", "model.norm.weight is not quantized", true},
    {"model.layers.0.self_attn.o_proj.tiles", 40, 0, true, "differs", "changed after", true},
    {"model.layers.0.self_attn.o_proj.tiles", 40, 0, true, "implausible",
     "model.layers.0.self_attn.o_proj", true},
};

static void spoilt_bytes_are_found(void **state)
{
    scratch s;
    const char *dir;
    uint8_t *bytes;
    size_t n;

    (void)state;
    scratch_open(&s);
    dir = scratch_path(&s, "q");
    quantized_dir_make(dir, VERIFY_MODEL, "swage", 4, true, 32);
    file_bytes(&bytes, &n, dir);
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        size_t at = offset_of(dir, spoils[i].tensor) + spoils[i].at;
        uint16_t kept = sw_load_le16(bytes + at);
        sw_verify_options o = verify_options_for(dir);
        sw_report r;

        sw_store_le16(bytes + at, spoils[i].is_inverted ? (uint16_t)~kept : spoils[i].value);
        put_file(dir, "model.safetensors", bytes, n);
        verify_run(&r, &o);
        verify_expect_fail(&r, spoils[i].what, spoils[i].says);
        assert_int_equal(r.eval.is_measured, spoils[i].runs);
        assert_int_equal(r.note == NULL, spoils[i].runs);
        sw_report_free(&r);
        sw_store_le16(bytes + at, kept);
    }
    free(bytes);
    scratch_close(&s);
}

/* No tile holds groups that are scattered over the inputs: floats are run, and the note says so. */
static void scattered_groups_run_in_floats(void **state)
{
    scratch s;
    sw_verify_options o;
    sw_report r;
    uint8_t *bytes;
    size_t n, at;

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "gptq_v2", 4, true, 32);
    file_bytes(&bytes, &n, o.checkpoint_dir);
    at = offset_of(o.checkpoint_dir, "model.layers.0.self_attn.q_proj.g_idx");
    sw_store_le32(bytes + at, 1); /* input 0 and input 32 trade groups */
    sw_store_le32(bytes + at + 4 * 32, 0);
    put_file(o.checkpoint_dir, "model.safetensors", bytes, n);
    verify_run(&r, &o);
    assert_non_null(r.note);
    assert_non_null(strstr(r.note, "dequantized"));
    assert_true(r.eval.is_measured && !r.eval.gap.is_measured && r.eval.kl.at > 0);
    verify_expect_fail(&r, "differs", "changed after");
    sw_report_free(&r);
    free(bytes);
    scratch_close(&s);
}

/* The directory's tensors again, one left out, one added. */
static void rewrite(const char *dir, const char *leave_out, const char *add)
{
    const int64_t shape[2] = {2, 2};
    const float data[4] = {1, 2, 3, 4};
    sw_st_writer *w = NULL;
    sw_st *st = NULL;
    sw_err err = {0};
    scratch s;
    char path[SW_PATH_BYTES];
    uint8_t *bytes;
    size_t n;

    scratch_open(&s);
    assert_int_equal(sw_st_open(&st, dir, &err), SW_OK);
    assert_int_equal(sw_st_writer_new(&w, s.dir, 0, &err), SW_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *t = sw_st_at(st, i);
            sw_code rc;

            if (!strcmp(t->name, leave_out)) continue;
            rc = pass ? sw_st_writer_put(w, t->name, t->view.data, t->view.size_bytes, &err)
                      : sw_st_writer_declare(w, t->name, t->view.dtype, t->view.n_dims,
                                             t->view.shape, &err);
            assert_int_equal(rc, SW_OK);
        }
        if (!pass && *add)
            assert_int_equal(sw_st_writer_declare(w, add, SW_DTYPE_F32, 2, shape, &err), SW_OK);
        if (!pass) assert_int_equal(sw_st_writer_begin(w, &err), SW_OK);
        if (pass && *add)
            assert_int_equal(sw_st_writer_put(w, add, data, sizeof data, &err), SW_OK);
    }
    assert_int_equal(sw_st_writer_commit(w, &err), SW_OK);
    sw_st_writer_free(w);
    sw_st_close(st);
    file_bytes(&bytes, &n, s.dir);
    put_file(dir, "model.safetensors", bytes, n);
    join(path, dir, "manifest.json");
    unlink(path); /* it would say that the file was changed, which is not what is tested */
    free(bytes);
    scratch_close(&s);
}

static void tensors_that_came_or_went_are_found(void **state)
{
    static const struct {
        const char *leave_out, *add, *what, *says;
    } rows[] = {
        {"model.norm.weight", "", "missing", "model.norm.weight of the original"},
        {"model.layers.0.mlp.up_proj.tiles", "", "missing", "model.layers.0.mlp.up_proj"},
        {"model.layers.0.mlp.up_proj.tile_scales", "", "decode", "tile_scales is missing"},
        {"", "extra.weight", "unexpected", "extra.weight"},
        {"", "model.layers.7.mlp.up_proj.tiles", "unexpected", "layers.7"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scratch s;
        sw_verify_options o;
        sw_report r;

        scratch_open(&s);
        o = verify_options_for(scratch_path(&s, "q"));
        quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "swage", 4, true, 32);
        rewrite(o.checkpoint_dir, rows[i].leave_out, rows[i].add);
        verify_run(&r, &o);
        verify_expect_fail(&r, rows[i].what, rows[i].says);
        sw_report_free(&r);
        scratch_close(&s);
    }
}

/* A matrix that the original lacks is that and nothing else: to list it would be no remedy. */
static void an_extra_matrix_is_no_unlisted_one(void **state)
{
    scratch s;
    sw_verify_options o;
    sw_report r;

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "compressed-tensors", 4, true, 32);
    rewrite(o.checkpoint_dir, "", "model.layers.0.lora.weight");
    verify_run(&r, &o);
    verify_expect_fail(&r, "unexpected", "lora.weight is neither in the original");
    assert_int_equal(r.n_findings, 1);
    sw_report_free(&r);
    scratch_close(&s);
}

static void manifests_are_held_to_account(void **state)
{
    static const struct {
        const char *text, *what, *says;
    } rows[] = {
        {"{\"outputs\":[{\"name\":\"config.json\",\"sha256\":\"00\"}]}", "differs", "config.json"},
        {"{\"outputs\":[{\"name\":\"gone.txt\",\"sha256\":\"00\"}]}", "missing", "gone.txt"},
        {"{\"outputs\":[{\"name\":\"../up\",\"sha256\":\"00\"}]}", "manifest", "plain name"},
        {"{\"outputs\":[{\"name\":7}]}", "manifest", "plain name"},
        {"{\"inputs\":[{\"name\":\"model.safetensors\",\"sha256\":\"00\"}]}", "other original",
         "made from one with 00"},
        {"not json", "manifest", "JSON"},
    };
    scratch s;
    sw_verify_options o;

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    o.n_texts = 0;
    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "swage", 4, true, 32);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_report r;

        put_file(o.checkpoint_dir, "manifest.json", rows[i].text, strlen(rows[i].text));
        verify_run(&r, &o);
        verify_expect_fail(&r, rows[i].what, rows[i].says);
        assert_int_equal(r.n_findings, 1);
        sw_report_free(&r);
    }
    scratch_close(&s);
}

static int compare_places(const void *a, const void *b)
{
    const char *x = (*(const sw_st_tensor *const *)a)->view.data;
    const char *y = (*(const sw_st_tensor *const *)b)->view.data;

    return (x > y) - (x < y);
}

/* The same tensors once more, as they lie in it, by a writer that digests on the way, over the file
 * that is there. */
static sw_st_writer *write_again(const char *dir)
{
    const sw_st_tensor *tensors[512];
    sw_st_writer *w = NULL;
    sw_st *st = NULL;
    sw_err err = {0};
    sw_code rc = sw_st_open(&st, dir, &err);

    if (rc == SW_OK) rc = sw_st_writer_new(&w, dir, 0, &err);
    if (rc == SW_OK) assert_in_range(sw_st_count(st), 1, 512);
    for (int64_t i = 0; rc == SW_OK && i < sw_st_count(st); i++) tensors[i] = sw_st_at(st, i);
    if (rc == SW_OK) qsort(tensors, (size_t)sw_st_count(st), sizeof *tensors, compare_places);
    for (int64_t i = 0; rc == SW_OK && i < sw_st_count(st); i++) {
        const sw_st_tensor *t = tensors[i];
        rc = sw_st_writer_declare(w, t->name, t->view.dtype, t->view.n_dims, t->view.shape, &err);
    }
    sw_st_writer_follow(w);
    if (rc == SW_OK) rc = sw_st_writer_begin(w, &err);
    if (rc == SW_OK) sw_st_writer_read_back(w, NULL);
    for (int64_t i = 0; rc == SW_OK && i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i);
        rc = sw_st_writer_put(w, t->name, t->view.data, t->view.size_bytes, &err);
    }
    if (rc == SW_OK) rc = sw_st_writer_commit(w, &err);
    if (rc != SW_OK) fail_msg("%s", err.text);
    sw_st_close(st);
    return w;
}

/* Whoever wrote it in this run knows what must be there: one bit that the disk did not keep. */
static void what_the_disk_did_not_keep_is_found(void **state)
{
    scratch s;
    sw_verify_options o;
    sw_st_writer *w;
    uint8_t *bytes;
    size_t n;
    sw_report r;

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    o.n_texts = 0;
    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "gptq", 4, true, 32);
    o.written = w = write_again(o.checkpoint_dir);
    verify_run(&r, &o);
    verify_expect_pass(&r);
    assert_string_equal(r.files[0].sha256, sw_st_writer_digest(w, "model.safetensors")->digest);
    sw_report_free(&r);
    file_bytes(&bytes, &n, o.checkpoint_dir);
    bytes[offset_of(o.checkpoint_dir, "model.norm.weight")] ^= 1; /* as plausible as before */
    put_file(o.checkpoint_dir, "model.safetensors", bytes, n);
    o.original_dir = NULL;
    verify_run(&r, &o);
    verify_expect_fail(&r, "differs", "model.safetensors has SHA-256");
    assert_string_not_equal(r.files[0].sha256, sw_st_writer_digest(w, "model.safetensors")->digest);
    sw_report_free(&r);
    free(bytes);
    sw_st_writer_free(w);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_disk_did_not_keep_is_found),
        cmocka_unit_test(spoilt_bytes_are_found),
        cmocka_unit_test(scattered_groups_run_in_floats),
        cmocka_unit_test(tensors_that_came_or_went_are_found),
        cmocka_unit_test(an_extra_matrix_is_no_unlisted_one),
        cmocka_unit_test(manifests_are_held_to_account),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
