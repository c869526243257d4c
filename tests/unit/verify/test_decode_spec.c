/* test_decode_spec.c - the second decoder against words worked out by hand, and against files
 * that break one rule each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/st_build.h"
#include "verify/decoders/decode_spec.h"
#include "verify/decoders/decode_spec_parts.h"

static void words_hold_the_documented_codes(void **state)
{
    static const struct {
        int bits, per_word, n;
        uint32_t words[3];
        int codes[32];
    } rows[] = {
        {4, 0, 8, {0x87654321}, {1, 2, 3, 4, 5, 6, 7, 8}},
        {2, 0, 16, {0xe4e4e4e4}, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}},
        {8, 0, 4, {0xfffe0201}, {1, 2, 254, 255}},
        {3, 0, 32, {0x88fac688, 0xc688fac6, 0xfac688fa},
         {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7,
          0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}},
        {3, 0, 32, {0xffffffff, 0xffffffff, 0xffffffff},
         {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
          7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}},
        {4, 0, 8, {0x4321f850}, {0, 5, 8, 15, 1, 2, 3, 4}},
        /* compressed-tensors, offset binary: -8..-1, 0..7, int8 -128 -1 0 127, zeros over n */
        {4, 0, 8, {0x76543210}, {0, 1, 2, 3, 4, 5, 6, 7}},
        {4, 0, 8, {0xfedcba98}, {8, 9, 10, 11, 12, 13, 14, 15}},
        {8, 0, 4, {0xff807f00}, {0, 127, 128, 255}},
        {4, 0, 8, {0x8888f850}, {0, 5, 8, 15, 8, 8, 8, 8}},
        /* ten 3-bit codes a word, as older files have them */
        {3, 10, 20, {0x08fac688, 0x3e1fac68 & 0x3fffffff},
         {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 0, 5, 1, 6, 2, 7, 7, 0, 6, 7}},
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int stride = 1; stride <= 3; stride += 2) {
            uint8_t bytes[36] = {0};
            sw_spec_stream s = {bytes, stride, rows[r].bits, rows[r].per_word};
            for (int w = 0; w < 3; w++) sw_store_le32(bytes + 4 * w * stride, rows[r].words[w]);
            for (int i = 0; i < rows[r].n; i++)
                if ((int)sw_spec_code_at(&s, i) != rows[r].codes[i])
                    fail_msg("row %zu, code %d: have %u, want %d", r, i, sw_spec_code_at(&s, i),
                             rows[r].codes[i]);
        }
}

static void half_floats_are_exact(void **state)
{
    static const struct {
        uint16_t bits;
        sw_dtype dtype;
        float want;
    } rows[] = {
        {0x3c00, SW_DTYPE_F16, 1.0f}, {0xc000, SW_DTYPE_F16, -2.0f}, {0x7bff, SW_DTYPE_F16, 65504},
        {0x0001, SW_DTYPE_F16, 0x1p-24f}, {0x0400, SW_DTYPE_F16, 0x1p-14f},
        {0x03ff, SW_DTYPE_F16, 0x3ffp-24f}, {0x3555, SW_DTYPE_F16, 0x1.554p-2f},
        {0x3f80, SW_DTYPE_BF16, 1.0f}, {0x4049, SW_DTYPE_BF16, 3.140625f},
        {0x0001, SW_DTYPE_BF16, 0x1p-133f},
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        uint8_t bytes[2];
        sw_spec_floats f = {bytes, rows[r].dtype};
        sw_store_le16(bytes, rows[r].bits);
        assert_true(!memcmp(&rows[r].want, &(float){sw_spec_float_at(&f, 0)}, 4));
    }
}

/* Zero points as the two versions of gptq store them: one stored word, two meanings. */
static void gptq_versions_differ_by_one_in_the_zero_point(void **state)
{
    static const struct {
        const char *config;
        uint32_t zeros;
        bool is_good;
    } rows[] = {
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8,\"sym\":true}", 0x77777777, true},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8,\"sym\":true}", 0x88888888, false},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8,\"sym\":true,"
         "\"checkpoint_format\":\"gptq_v2\"}", 0x88888888, true},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8,\"sym\":true,"
         "\"checkpoint_format\":\"gptq_v2\"}", 0x77777777, false},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":8,\"sym\":false}", 0xf7777777,
         false}, /* 15 + 1 */
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int64_t one_by_8[2] = {1, 8}, one_by_1[2] = {1, 1};
        uint8_t words[32], scales[16];
        st_build b = {.n = 0};
        cJSON *config = cJSON_Parse(rows[r].config);
        sw_spec_scheme scheme;
        sw_spec_weight w = {0};
        sw_err err = {0};

        for (int n = 0; n < 8; n++) {
            sw_store_le32(words + 4 * n, 0x87654321);
            sw_store_le16(scales + 2 * n, 0x3800); /* 0.5 */
        }
        st_build_add(&b, "p.qweight", SW_DTYPE_I32, 2, one_by_8, words);
        sw_store_le32(st_build_add(&b, "p.qzeros", SW_DTYPE_I32, 2, one_by_1, NULL),
                      rows[r].zeros);
        st_build_add(&b, "p.scales", SW_DTYPE_F16, 2, one_by_8, scales);
        assert_int_equal(sw_spec_scheme_read(&scheme, config, &err), SW_OK);
        sw_code rc = sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 8, 8, &err);
        assert_int_equal(rc, rows[r].is_good ? SW_OK : SW_E_FORMAT);
        if (rc == SW_OK) /* 0.5 * (k + 1 - 8) */
            for (int i = 0; i < 64; i++)
                assert_float_equal(w.values[i], 0.5 * (i % 8 + 1 - 8), 0);
        else
            assert_non_null(strstr(err.text, "zero point"));
        sw_spec_weight_free(&w);
        cJSON_Delete(config);
        st_build_free(&b);
    }
}

/* One weight in each dialect, made whole by the encoder, then broken in one place. */
typedef struct broken {
    const char *dialect, *tensor; /* the tensor to change */
    int64_t offset;               /* in bytes */
    uint32_t value;               /* stored there as 16 bits, or 32 for I32 and I64 */
    const char *says;
} broken;

static const broken breaks[] = {
    {"gptq", "p.scales", 6, 0x7e00, "scale of channel 3, group 0 is nan"},
    {"gptq", "p.scales", 0, 0x7c00, "is inf"},
    {"gptq", "p.scales", 130, 0xfc00, "scale of channel 1, group 1 is -inf"},
    {"gptq", "p.scales", 0, 0xfbff, "leave half precision"},
    {"gptq", "p.scales", 0, 0x7bff, "leave half precision"},
    {"gptq", "p.g_idx", 12, 4, "group index of column 3 is 4, want 0..3"},
    {"gptq", "p.g_idx", 12, 0xffffffff, "is -1, want 0..3"},
    {"gptq", "p.g_idx", 12, 1, "group 1 has more than 32 columns"},
    {"gptq_v2", "p.scales", 6, 0x7e00, "scale of channel 3, group 0 is nan"},
    {"compressed-tensors", "p.weight_scale", 6, 0x7e00, "scale of channel 0, group 3 is nan"},
    {"compressed-tensors", "p.weight_shape", 8, 127, "p.weight_shape is [64, 127]"},
    {"swage", "p.tile_scales", 2, 0x7e00, "scale of channel 8, group 0 is nan"},
    {"swage", "p.tile_shape", 0, 63, "p.tile_shape is [63, 128]"},
};

static void make_weight(st_build *b, sw_spec_scheme *scheme, const char *dialect, int64_t n_out,
                        int64_t k_in, bool is_symmetric)
{
    const sw_dialect *d = sw_dialect_find(dialect);
    sw_qconfig config = {.damp = 0};
    cJSON *object = NULL;
    sw_qtensor q;
    sw_err err = {0};

    assert_non_null(d);
    sw_gen_qtensor(&q, 4, is_symmetric, 32, SW_DTYPE_F16, n_out, k_in, SW_GEN_RANDOM, 1, 3);
    for (int64_t i = 0; i < n_out * q.n_groups; i++) q.scales[i] = 0.25f;
    st_build_encode(b, d, "p", &q);
    config.spec = q.spec;
    assert_int_equal(d->write_config(&object, &config, &err), SW_OK);
    assert_int_equal(sw_spec_scheme_read(scheme, object, &err), SW_OK);
    cJSON_Delete(object);
    sw_qtensor_free(&q);
}

static void each_broken_rule_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        const broken *bad = &breaks[i];
        bool is_word = strstr(bad->tensor, "idx") || strstr(bad->tensor, "shape");
        st_build b = {.n = 0};
        sw_spec_scheme scheme;
        sw_spec_weight w = {0};
        sw_err err = {0};
        uint8_t *data;

        make_weight(&b, &scheme, bad->dialect, 64, 128, true);
        assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 64, 128, &err), SW_OK);
        sw_spec_weight_free(&w);
        data = st_build_data(&b, bad->tensor);
        assert_non_null(data);
        if (is_word) sw_store_le32(data + bad->offset, bad->value);
        else sw_store_le16(data + bad->offset, (uint16_t)bad->value);
        assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 64, 128, &err),
                         SW_E_FORMAT);
        if (!strstr(err.text, bad->says)) fail_msg("have \"%s\", want \"%s\"", err.text, bad->says);
        assert_null(w.values); /* set on success only */
        st_build_free(&b);
    }
}

/* Every byte of tiles without padding, by the formula of the layout. */
static void tiles_lie_where_the_layout_says(void **state)
{
    enum { N = 128, K = 192 };
    static const int inputs[4][4] = {
        {0, 8, 1, 9}, {2, 10, 3, 11}, {4, 12, 5, 13}, {6, 14, 7, 15}};
    uint64_t random = 5;
    st_build b = {.n = 0};
    sw_spec_scheme scheme;
    sw_spec_weight w = {0};
    sw_err err = {0};
    uint8_t *tiles;

    (void)state;
    make_weight(&b, &scheme, "swage", N, K, true);
    tiles = st_build_data(&b, "p.tiles");
    for (int i = 0; i < N * K / 2; i++) tiles[i] = (uint8_t)sw_gen_next(&random);
    assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", N, K, &err), SW_OK);
    for (int i = 0; i < N * K / 2; i++) {
        const int tile = i / 2048, at = i % 2048, lane = at / 16 % 32, four = at % 16;
        const int channel = 64 * (tile / (K / 64)) + 16 * (at / 512) + lane / 4;
        const int input = 64 * (tile % (K / 64)) + 16 * (four / 4) + inputs[lane % 4][four % 4];

        assert_int_equal(w.codes[channel * K + input], tiles[i] & 15);
        assert_int_equal(w.codes[(channel + 8) * K + input], tiles[i] >> 4);
    }
    sw_spec_weight_free(&w);
    st_build_free(&b);
}

/* One weight after the other in the same memory, larger and smaller: the codes of each alone. */
static void a_room_serves_many_weights(void **state)
{
    static const int64_t sizes[][2] = {{64, 64}, {128, 192}, {40, 96}, {128, 192}};
    sw_spec_room room = {.codes = NULL};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i][0], k = sizes[i][1];
        sw_spec_weight have = {0}, want = {0};
        st_build b = {.n = 0};
        sw_spec_scheme scheme;
        sw_err err = {0};

        make_weight(&b, &scheme, i & 1 ? "swage" : "gptq", n, k, true);
        assert_int_equal(sw_spec_decode(&want, &scheme, st_build_open(&b), "p", n, k, &err),
                         SW_OK);
        assert_int_equal(sw_spec_decode_codes(&have, &room, &scheme, b.st, "p", n, k, &err),
                         SW_OK);
        assert_null(have.values);
        assert_ptr_equal(have.codes, room.codes);
        assert_memory_equal(have.codes, want.codes, (size_t)(n * k));
        assert_int_equal(room.n_elems, i ? 128 * 192 : 64 * 64);
        sw_spec_weight_free(&have);
        sw_spec_weight_free(&want);
        st_build_free(&b);
    }
    sw_mem_put(room.codes);
}

static void padding_of_tiles_must_be_neutral(void **state)
{
    st_build b = {.n = 0};
    sw_spec_scheme scheme;
    sw_spec_weight w = {0};
    sw_err err = {0}, err2 = {0};

    (void)state;
    make_weight(&b, &scheme, "swage", 40, 96, false); /* channels 40..63, inputs 96..127 */
    st_build_data(&b, "p.tiles")[2047] ^= 0x10; /* warp 3: channels 48..63 */
    assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 40, 96, &err),
                     SW_E_FORMAT);
    assert_non_null(strstr(err.text, "padding at channel 63"));
    st_build_data(&b, "p.tiles")[2047] ^= 0x10;
    sw_store_le16(st_build_data(&b, "p.tile_scales") + 2 * 63, 0x3c00);
    assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 40, 96, &err2),
                     SW_E_FORMAT);
    assert_non_null(strstr(err2.text, "padding channel 63 has scale 1"));
    st_build_free(&b);
}

static void shapes_and_dtypes_must_fit(void **state)
{
    st_build b = {.n = 0};
    sw_spec_scheme scheme;
    sw_spec_weight w = {0};
    sw_err err = {0}, err2 = {0}, err3 = {0};

    (void)state;
    make_weight(&b, &scheme, "gptq", 64, 128, true);
    (void)st_build_open(&b);
    assert_int_equal(sw_spec_decode(&w, &scheme, b.st, "p", 64, 256, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "p.qweight is I32 [16, 64], want I32 [32, 64]"));
    assert_int_equal(sw_spec_decode(&w, &scheme, b.st, "other", 64, 128, &err2), SW_E_FORMAT);
    assert_non_null(strstr(err2.text, "other.qweight is missing"));
    b.tensors[0].view.dtype = SW_DTYPE_F32; /* same bytes, another dtype */
    assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 64, 128, &err3),
                     SW_E_FORMAT);
    assert_non_null(strstr(err3.text, "p.qweight is F32"));
    st_build_free(&b);
}

static void configs_beyond_the_decoder_are_refused(void **state)
{
    static const struct {
        const char *text;
        sw_code code;
        const char *says;
    } rows[] = {
        {"{\"quant_method\":\"exl3\",\"bits\":4}", SW_E_UNSUPPORTED, "\"exl3\""},
        {"{}", SW_E_UNSUPPORTED, "quant_method"},
        {"{\"quant_method\":\"gptq\",\"bits\":5}", SW_E_UNSUPPORTED, "5 bits"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}", SW_E_FORMAT, "group_size 0"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"gptq_p\"}",
         SW_E_UNSUPPORTED, "gptq"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\".*down\":{\"bits\":5}}}",
         SW_E_UNSUPPORTED, ".*down"},
        {"{\"quant_method\":\"gptq\",\"bits\":\"4\"}", SW_E_FORMAT, "bits"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"gptq\","
         "\"is_marlin_format\":true}", SW_E_FORMAT, "checkpoint_format is \"gptq\""},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}",
         SW_E_UNSUPPORTED, "marlin-24"},
        {"{\"quant_method\":\"compressed-tensors\"}", SW_E_FORMAT, "config_groups"},
        {"{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":3,\"bits\":4}",
         SW_E_UNSUPPORTED, "version 2"},
        {"{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":2,\"bits\":8,"
         "\"weights\":\"e2m1\"}", SW_E_FORMAT, "bits is 8, but weights are e2m1"},
        {"{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":2,\"bits\":4,"
         "\"weights\":\"e2m1\",\"sym\":false}", SW_E_FORMAT, "sym is false"},
        {"{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":1,\"bits\":3}",
         SW_E_UNSUPPORTED, "version 1"},
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        cJSON *config = cJSON_Parse(rows[r].text);
        sw_spec_scheme scheme;
        sw_err err = {0};

        assert_non_null(config);
        if (sw_spec_scheme_read(&scheme, config, &err) != rows[r].code ||
            !strstr(err.text, rows[r].says))
            fail_msg("row %zu: have %d \"%s\", want %d \"%s\"", r, err.code, err.text,
                     rows[r].code, rows[r].says);
        cJSON_Delete(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_hold_the_documented_codes),
        cmocka_unit_test(half_floats_are_exact),
        cmocka_unit_test(gptq_versions_differ_by_one_in_the_zero_point),
        cmocka_unit_test(each_broken_rule_is_named),
        cmocka_unit_test(tiles_lie_where_the_layout_says),
        cmocka_unit_test(a_room_serves_many_weights),
        cmocka_unit_test(padding_of_tiles_must_be_neutral),
        cmocka_unit_test(shapes_and_dtypes_must_fit),
        cmocka_unit_test(configs_beyond_the_decoder_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
