/* test_st_sources.c - checkpoints in other wrappings than safetensors: archives of torch.save, one
 * and sharded, and containers compressed as a whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/pt_build.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* Tensors number first, first + step, ... of `st` as an archive at s/name. */
static void write_pt(const scratch *s, const char *name, const sw_st *st, int64_t first,
                     int64_t step)
{
    pt_bytes items = {.n = 0};
    pt_zip zip = {.flags = PT_DESCRIPTOR};

    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = first; i < sw_st_count(st); i += step) {
            const sw_st_tensor *t = sw_st_at(st, i);
            int64_t strides[SW_DIMS_MAX], n = 1;
            char key[32], entry[64];
            snprintf(key, sizeof key, "%d", (int)i);
            snprintf(entry, sizeof entry, "archive/data/%s", key);
            if (pass) {
                pt_zip_add(&zip, entry, t->view.data, t->view.size_bytes, 0);
                continue;
            }
            for (int32_t d = t->view.n_dims; d-- > 0; n *= t->view.shape[d]) strides[d] = n;
            pt_string(&items, t->name);
            pt_tensor(&items, pt_storage_type(t->view.dtype), key, sw_view_elems(&t->view), 0,
                      t->view.n_dims, t->view.shape, strides);
        }
        if (!pass) pt_zip_pickle(&zip, &items);
    }
    pt_zip_end(&zip);
    scratch_write(s, name, zip.bytes.at, zip.bytes.n);
    pt_zip_free(&zip);
    pt_free(&items);
}

static void expect_same(const char *dir, const sw_st *want, int n_files)
{
    sw_st *have = NULL;
    sw_err err = {0};

    must(sw_st_open(&have, dir, &err), &err);
    assert_int_equal(sw_st_n_files(have), n_files);
    assert_int_equal(sw_st_count(have), sw_st_count(want));
    for (int64_t i = 0; i < sw_st_count(want); i++) {
        const sw_st_tensor *a = sw_st_at(have, i), *b = sw_st_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->view.dtype, b->view.dtype);
        assert_int_equal(a->view.n_dims, b->view.n_dims);
        assert_memory_equal(a->view.shape, b->view.shape,
                            (size_t)b->view.n_dims * sizeof *b->view.shape);
        assert_int_equal(a->view.size_bytes, b->view.size_bytes);
        assert_memory_equal(a->view.data, b->view.data, b->view.size_bytes);
    }
    sw_st_close(have);
}

static void remove_containers(const scratch *s)
{
    static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                        "a.bin", "b.bin", "model.safetensors.zst",
                                        "model.safetensors.index.json", "s1.safetensors.zst",
                                        "s2.safetensors"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(scratch_path(s, names[i]));
}

static void archives_of_pytorch_are_read_like_any(void **state)
{
    sw_st *source = NULL;
    scratch s;
    sw_err err = {0};
    pt_bytes index = {.n = 0};

    (void)state;
    scratch_open(&s);
    must(sw_st_open(&source, "tests/golden/arch/qwen2", &err), &err);
    write_pt(&s, "pytorch_model.bin", source, 0, 1);
    expect_same(s.dir, source, 1);
    expect_same(scratch_path(&s, "pytorch_model.bin"), source, 1);
    remove_containers(&s);
    write_pt(&s, "a.bin", source, 0, 2);
    write_pt(&s, "b.bin", source, 1, 2);
    pt_text(&index, "{\"metadata\":{},\"weight_map\":{");
    for (int64_t i = 0; i < sw_st_count(source); i++) {
        char line[400];
        snprintf(line, sizeof line, "%s\"%s\":\"%s\"", i ? "," : "", sw_st_at(source, i)->name,
                 i % 2 ? "b.bin" : "a.bin");
        pt_text(&index, line);
    }
    pt_text(&index, "}}");
    scratch_write(&s, "pytorch_model.bin.index.json", index.at, index.n);
    expect_same(s.dir, source, 2);
    pt_free(&index);
    sw_st_close(source);
    scratch_close(&s);
}

/* A model directory without safetensors, and one that has both: then they count. */
static void a_model_is_opened_from_pytorch_model_bin(void **state)
{
    sw_checkpoint ckpt;
    sw_st *source = NULL;
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama"); /* its pytorch_model.bin is "old weights": not looked at */
    must(sw_checkpoint_open(&ckpt, scratch_path(&s, "source"), &err), &err);
    sw_checkpoint_close(&ckpt);
    must(sw_st_open(&source, "tests/golden/arch/llama", &err), &err);
    assert_int_equal(unlink(scratch_path(&s, "source/model.safetensors")), 0);
    assert_int_equal(sw_checkpoint_open(&ckpt, scratch_path(&s, "source"), &err),
                     SW_E_UNSUPPORTED);
    if (!strstr(err.text, "source/pytorch_model.bin: no archive of torch.save"))
        fail_msg("%s", err.text);
    write_pt(&s, "source/pytorch_model.bin", source, 0, 1);
    memset(&err, 0, sizeof err);
    must(sw_checkpoint_open(&ckpt, scratch_path(&s, "source"), &err), &err);
    assert_int_equal(sw_st_count(ckpt.st), sw_st_count(source));
    sw_checkpoint_close(&ckpt);
    sw_st_close(source);
    scratch_close(&s);
}

/* `n` bytes compressed into s/name in n_frames frames, which say their sizes or not. */
static void write_zst(const scratch *s, const char *name, const void *bytes, size_t n, int n_frames,
                      int says_size)
{
    size_t room = ZSTD_compressBound(n) + 1024, at = 0;
    char *packed = NULL;
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    sw_err err = {0};

    must(SW_MEM_GET(&packed, room, "packed", &err), &err);
    (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, says_size);
    (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    for (int f = 0; f < n_frames; f++) {
        size_t from = n * (size_t)f / (size_t)n_frames, to = n * (size_t)(f + 1) / (size_t)n_frames;
        size_t done = ZSTD_compress2(zstd, packed + at, room - at, (const char *)bytes + from,
                                     to - from);
        assert_false(ZSTD_isError(done));
        at += done;
    }
    scratch_write(s, name, packed, at);
    sw_mem_put(packed);
    ZSTD_freeCCtx(zstd);
}

static void compressed_containers_are_read_like_any(void **state)
{
    sw_st *source = NULL;
    sw_map map = {0};
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    must(sw_st_open(&source, "tests/golden/arch/llama", &err), &err);
    must(sw_map_open(&map, "tests/golden/arch/llama/model.safetensors", &err), &err);
    for (int i = 0; i < 4; i++) {
        write_zst(&s, "model.safetensors.zst", map.data, map.size_bytes, 1 + i / 2 * 2, i % 2);
        expect_same(s.dir, source, 1);
        expect_same(scratch_path(&s, "model.safetensors.zst"), source, 1);
    }
    sw_map_close(&map);
    sw_st_close(source);
    scratch_close(&s);
}

/* Two shards as the index names them, one of them compressed. */
static void a_shard_may_lie_compressed(void **state)
{
    static const char index[] =
        "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}";
    unsigned char one[128] = {0};
    sw_st *st = NULL;
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    for (int i = 0; i < 2; i++) {
        int n = snprintf((char *)one + 8, sizeof one - 8,
                         "{\"%c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                         'a' + i);
        one[0] = (unsigned char)n;
        memset(one + 8 + n, i + 1, 4);
        if (i) scratch_write(&s, "s2.safetensors", one, 8 + (size_t)n + 4);
        else write_zst(&s, "s1.safetensors.zst", one, 8 + (size_t)n + 4, 1, 1);
    }
    scratch_write(&s, "model.safetensors.index.json", index, sizeof index - 1);
    must(sw_st_open(&st, s.dir, &err), &err);
    assert_int_equal(sw_st_count(st), 2);
    assert_memory_equal(sw_st_find(st, "a")->view.data, "\1\1\1\1", 4);
    assert_memory_equal(sw_st_find(st, "b")->view.data, "\2\2\2\2", 4);
    assert_non_null(strstr(sw_st_file_path(st, 0), "s1.safetensors.zst"));
    sw_st_close(st);
    scratch_close(&s);
}

static void damaged_ones_are_refused(void **state)
{
    static const unsigned char bomb[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0,
                                         0, 0x10, 1, 0, 0}; /* says 2^60 bytes */
    unsigned char *bytes = NULL;
    sw_map map = {0}, packed = {0};
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    must(sw_map_open(&map, "tests/golden/arch/llama/model.safetensors", &err), &err);
    for (int says = 0; says < 2; says++) {
        write_zst(&s, "m.zst", map.data, map.size_bytes, 1, says);
        must(sw_map_open(&packed, scratch_path(&s, "m.zst"), &err), &err);
        must(SW_MEM_GET(&bytes, packed.size_bytes, "copy", &err), &err);
        for (int i = 0; i < 6; i++) {
            size_t n = packed.size_bytes;
            sw_st *st = NULL;
            memcpy(bytes, packed.data, n);
            if (i < 3) n = n * (size_t)i / 3 + 3; /* cut off, at the very start too */
            else if (i < 5) memset(bytes + n * (size_t)(i - 2) / 3, 0xee, 64);
            else bytes[0] = 0;
            scratch_write(&s, "bad.safetensors.zst", bytes, n);
            memset(&err, 0, sizeof err);
            assert_int_not_equal(sw_st_open(&st, scratch_path(&s, "bad.safetensors.zst"), &err),
                                 SW_OK);
            assert_int_equal(err.code, SW_E_FORMAT);
            assert_non_null(strstr(err.text, "bad.safetensors.zst: "));
        }
        sw_mem_put(bytes);
        bytes = NULL;
        sw_map_close(&packed);
    }
    scratch_write(&s, "bomb.safetensors.zst", bomb, sizeof bomb);
    sw_st *st = NULL;
    memset(&err, 0, sizeof err);
    assert_int_not_equal(sw_st_open(&st, scratch_path(&s, "bomb.safetensors.zst"), &err), SW_OK);
    assert_non_null(strstr(err.text, "bomb.safetensors.zst: its 16 bytes unpack to more than "));
    sw_map_close(&map);
    scratch_close(&s);
}

#define ZEROS ((size_t)100 << 20)

/* One tensor of n zeros. */
static void write_zeros(const scratch *s, const char *name, size_t n, int says_size)
{
    unsigned char *bytes = NULL;
    sw_err err = {0};
    int n_header;

    must(SW_MEM_GET(&bytes, n + 128, "zeros", &err), &err);
    n_header = snprintf((char *)bytes + 8, 100,
                        "{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", n,
                        n);
    bytes[0] = (unsigned char)n_header;
    bytes[8 + n_header] = 0;
    write_zst(s, name, bytes, 8 + (size_t)n_header + n, 1, says_size);
    sw_mem_put(bytes);
}

static void what_unpacks_to_far_too_much_is_refused(void **state)
{
    scratch s;

    (void)state;
    scratch_open(&s);
    for (int says = 0; says < 2; says++)
        for (int headers = 0; headers < 2; headers++) {
            sw_st *st = NULL;
            sw_err err = {0};
            const char *path = scratch_path(&s, "z.safetensors.zst");
            if (!headers) write_zeros(&s, "z.safetensors.zst", ZEROS, says);
            assert_int_equal(headers ? sw_st_open_headers(&st, path, &err)
                                     : sw_st_open(&st, path, &err), SW_E_FORMAT);
            assert_non_null(strstr(err.text, "more than 100 times"));
        }
    for (int says = 0; says < 2; says++) { /* small ones pass, whatever the ratio */
        sw_st *st = NULL;
        sw_err err = {0};
        write_zeros(&s, "z.safetensors.zst", ZEROS / 50, says);
        must(sw_st_open(&st, scratch_path(&s, "z.safetensors.zst"), &err), &err);
        assert_int_equal(sw_st_at(st, 0)->view.size_bytes, ZEROS / 50);
        sw_st_close(st);
    }
    scratch_close(&s);
}

/* The data may be damaged, as long as nobody asks for it. */
static void headers_come_without_the_data(void **state)
{
    unsigned char *bytes = NULL;
    sw_map map = {0}, packed = {0};
    sw_st *source = NULL;
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    must(sw_st_open(&source, "tests/golden/arch/llama", &err), &err);
    must(sw_map_open(&map, "tests/golden/arch/llama/model.safetensors", &err), &err);
    write_zst(&s, "m.safetensors.zst", map.data, map.size_bytes, 1, 1);
    must(sw_map_open(&packed, scratch_path(&s, "m.safetensors.zst"), &err), &err);
    must(SW_MEM_GET(&bytes, packed.size_bytes, "copy", &err), &err);
    memcpy(bytes, packed.data, packed.size_bytes);
    memset(bytes + packed.size_bytes * 9 / 10, 0xee, 64);
    scratch_write(&s, "bad.safetensors.zst", bytes, packed.size_bytes);
    for (int is_bad = 0; is_bad < 2; is_bad++) {
        const char *path = scratch_path(&s, is_bad ? "bad.safetensors.zst" : "m.safetensors.zst");
        sw_st *st = NULL;
        int n_bad = 0;
        must(sw_st_open_headers(&st, path, &err), &err);
        assert_int_equal(sw_st_count(st), sw_st_count(source));
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *have = sw_st_at(st, i), *want = sw_st_at(source, i);
            sw_st_bytes got = {0};
            sw_err why = {0};
            assert_string_equal(have->name, want->name);
            assert_memory_equal(have->view.shape, want->view.shape, sizeof have->view.shape);
            assert_null(have->view.data);
            if (sw_st_fetch(&got, have, &why) != SW_OK) {
                assert_int_equal(why.code, SW_E_FORMAT);
                n_bad++;
                continue;
            }
            assert_memory_equal(got.data, want->view.data, want->view.size_bytes);
            sw_st_drop(&got);
        }
        assert_int_equal(n_bad > 0, is_bad);
        sw_st_close(st);
    }
    sw_st *st = NULL;
    assert_int_equal(sw_st_open(&st, scratch_path(&s, "bad.safetensors.zst"), &err), SW_E_FORMAT);
    sw_mem_put(bytes);
    sw_map_close(&packed);
    sw_map_close(&map);
    sw_st_close(source);
    scratch_close(&s);
}

/* A container is told by how it begins: states of hidden layers are written under any name. */
static void a_container_may_have_any_name(void **state)
{
    static const char *const names[] = {"st.bin", "st.pt", "st.pth", "st.zst", "st"};
    sw_st *source = NULL;
    sw_map map = {0};
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    must(sw_st_open(&source, "tests/golden/arch/llama", &err), &err);
    must(sw_map_open(&map, "tests/golden/arch/llama/model.safetensors", &err), &err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        scratch_write(&s, names[i], map.data, map.size_bytes);
        expect_same(scratch_path(&s, names[i]), source, 1);
    }
    sw_map_close(&map);
    sw_st_close(source);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(archives_of_pytorch_are_read_like_any),
        cmocka_unit_test(a_model_is_opened_from_pytorch_model_bin),
        cmocka_unit_test(compressed_containers_are_read_like_any),
        cmocka_unit_test(a_shard_may_lie_compressed),
        cmocka_unit_test(damaged_ones_are_refused),
        cmocka_unit_test(what_unpacks_to_far_too_much_is_refused),
        cmocka_unit_test(headers_come_without_the_data),
        cmocka_unit_test(a_container_may_have_any_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
