/* test_dialect_modelopt.c - quant_method "modelopt" against the worked example of its description,
 * read by both decoders; its configs in both files; what is refused; faults that both see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/num/half.h"
#include "formats/num/small.h"
#include "quant/run/scheme.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/st_build.h"
#include "verify/base/subject.h"

static const sw_dialect *modelopt(void) { return sw_dialect_find("modelopt"); }

static sw_qspec spec_of(const char *scheme)
{
    sw_qspec spec = sw_scheme_spec(sw_scheme_find(scheme));

    sw_dialect_fit_spec(&spec, modelopt(), SW_DTYPE_BF16);
    return spec;
}

/* Largest weight of the tensor 3: weight_scale_2 is 3 / (448 * 6), 896 its reciprocal. */
static void an_nvfp4_block_by_hand(void **state)
{
    static const float w[16] = {.1f, -.2f, .3f, -.4f, .5f, -.6f, .7f, -.8f,
                                .9f, -1, 1.1f, -1.2f, 0, .05f, -.05f, 2.4f};
    static const uint8_t want[8] = {0x91, 0xa2, 0xb3, 0xc4, 0xd4, 0xd5, 0x00, 0x78};
    sw_qspec spec = spec_of("NVFP4");
    sw_spec_scheme scheme = st_build_scheme(modelopt(), &spec);
    sw_spec_weight second = {0};
    st_build b = {.n = 0};
    sw_qtensor q, back;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_qtensor_alloc(&q, &spec, 1, 16, &err), SW_OK);
    q.global_scale = 3.0f / 2688.0f;
    q.input_scale = 0.5f / 2688.0f;
    q.scales[0] = sw_num_round_to(2.4f / 6.0f / q.global_scale, SW_DTYPE_F8_E4M3);
    for (int i = 0; i < 16; i++)
        q.codes[i] = sw_e2m1_encode(w[i] / (q.scales[0] * q.global_scale));
    st_build_encode(&b, modelopt(), "p", &q);
    assert_memory_equal(st_build_data(&b, "p.weight"), want, 8);
    assert_int_equal(st_build_data(&b, "p.weight_scale")[0], 0x7b);
    assert_int_equal(sw_load_le32(st_build_data(&b, "p.weight_scale_2")),
                     sw_f32_bits(3.0f / 2688.0f)); /* multiplies */
    assert_int_equal(sw_load_le32(st_build_data(&b, "p.input_scale")),
                     sw_f32_bits(0.5f / 2688.0f));
    const void *parts[] = {st_build_data(&b, "p.weight"), st_build_data(&b, "p.weight_scale"),
                           st_build_data(&b, "p.weight_scale_2"),
                           st_build_data(&b, "p.input_scale")};
    assert_int_equal(sw_qtensor_alloc(&back, &spec, 1, 16, &err), SW_OK);
    assert_int_equal(modelopt()->decode(&back, parts, &err), SW_OK);
    sw_gen_assert_same(&back, &q);
    assert_int_equal(sw_spec_decode(&second, &scheme, st_build_open(&b), "p", 1, 16, &err), SW_OK);
    assert_float_equal(second.values[15], 6.0f * 352.0f * (3.0f / 2688.0f), 1e-6);
    assert_float_equal(second.values[0], 0.5f * 352.0f * (3.0f / 2688.0f), 1e-6);
    sw_spec_weight_free(&second);
    sw_qtensor_free(&q);
    sw_qtensor_free(&back);
    st_build_free(&b);
}

/* Two outputs, four inputs, groups of two: bytes go down the outputs, in two's complement. */
static void an_int4_weight_by_hand(void **state)
{
    static const uint8_t codes[2][4] = {{8, 9, 15, 0}, {7, 8, 1, 15}}; /* 0 1 7 -8; -1 0 -7 7 */
    static const uint8_t want[4] = {0xf0, 0x01, 0x97, 0x78};
    static const float factors[] = {1, 1, 4, 4}, mixed[] = {1, 2, 4, 4}, none[] = {1, 1, 0, 0};
    sw_qspec spec = spec_of("W4A16");
    sw_qtensor q, back;
    st_build b = {.n = 0};
    sw_err err = {0};

    (void)state;
    spec.group_elems = 2;
    assert_int_equal(sw_qtensor_alloc(&q, &spec, 2, 4, &err), SW_OK);
    memcpy(q.codes, codes, sizeof codes);
    for (int i = 0; i < 4; i++) q.scales[i] = 0.1f * (float)(i + 1);
    st_build_encode(&b, modelopt(), "p", &q);
    assert_memory_equal(st_build_data(&b, "p.weight"), want, 4);
    assert_int_equal(sw_load_le32(st_build_data(&b, "p.weight_scale") + 4), sw_f32_bits(0.2f));
    assert_int_equal(sw_load_le32(st_build_data(&b, "p.pre_quant_scale")), sw_f32_bits(1.0f));
    const void *parts[] = {st_build_data(&b, "p.weight"), st_build_data(&b, "p.weight_scale"),
                           NULL};
    assert_int_equal(sw_qtensor_alloc(&back, &spec, 2, 4, &err), SW_OK);
    assert_int_equal(modelopt()->decode(&back, parts, &err), SW_OK);
    sw_gen_assert_same(&back, &q);
    parts[2] = factors;
    assert_int_equal(modelopt()->decode(&back, parts, &err), SW_OK);
    assert_true(back.scales[0] >= 0.1f && back.scales[0] <= 0.1f);
    assert_true(back.scales[3] >= 4 * 0.4f && back.scales[3] <= 4 * 0.4f);
    parts[2] = mixed;
    assert_int_equal(modelopt()->decode(&back, parts, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "single inputs"));
    parts[2] = none;
    memset(&err, 0, sizeof err);
    assert_int_equal(modelopt()->decode(&back, parts, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "pre_quant_scale[2] is 0"));
    assert_int_equal(modelopt()->can_hold(&spec, 3, 4, &err), SW_E_UNSUPPORTED);
    sw_qtensor_free(&q);
    sw_qtensor_free(&back);
    st_build_free(&b);
}

/* The same weight in both dialects: the same bytes of codes and scales, and one global scale the
 * reciprocal of the other. */
static void compressed_tensors_has_the_reciprocal(void **state)
{
    st_build a = {.n = 0}, b = {.n = 0};
    sw_qtensor q;
    float multiplier, divisor;

    (void)state;
    sw_gen_float_qtensor(&q, 8, 4, 32, 7);
    st_build_encode(&a, modelopt(), "p", &q);
    st_build_encode(&b, sw_dialect_find("compressed-tensors"), "p", &q);
    assert_memory_equal(st_build_data(&a, "p.weight"), st_build_data(&b, "p.weight_packed"), 64);
    assert_memory_equal(st_build_data(&a, "p.weight_scale"), st_build_data(&b, "p.weight_scale"),
                        8);
    multiplier = sw_f32_from_bits(sw_load_le32(st_build_data(&a, "p.weight_scale_2")));
    divisor = sw_f32_from_bits(sw_load_le32(st_build_data(&b, "p.weight_global_scale")));
    assert_float_equal(multiplier * divisor, 1.0f, 1e-6);
    assert_true(divisor > 100.0f && multiplier < 0.01f);
    multiplier = sw_f32_from_bits(sw_load_le32(st_build_data(&a, "p.input_scale")));
    divisor = sw_f32_from_bits(sw_load_le32(st_build_data(&b, "p.input_global_scale")));
    assert_float_equal(multiplier * divisor, 1.0f, 1e-6);
    sw_qtensor_free(&q);
    st_build_free(&a);
    st_build_free(&b);
}

static void shapes_are_those_that_loaders_ask_for(void **state)
{
    static const struct { const char *scheme; int n; int32_t dims; int64_t shape[4]; sw_dtype dtype;
                          const char *last; } rows[] = {
        {"FP8", 3, 0, {0}, SW_DTYPE_F32, "input_scale"},
        {"FP8_DYNAMIC", 2, 1, {256}, SW_DTYPE_F32, "weight_scale"},
        {"FP8_BLOCK", 2, 4, {2, 1, 3, 1}, SW_DTYPE_F32, "weight_scale"},
        {"MXFP8", 2, 2, {256, 12}, SW_DTYPE_U8, "weight_scale"},
        {"NVFP4", 4, 2, {256, 24}, SW_DTYPE_F8_E4M3, "input_scale"},
        {"NVFP4A16", 3, 2, {256, 24}, SW_DTYPE_F8_E4M3, "weight_scale_2"},
        {"W4A16", 3, 2, {256, 3}, SW_DTYPE_F32, "pre_quant_scale"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_part parts[SW_DIALECT_TENSORS_MAX];
        sw_qspec spec = spec_of(rows[i].scheme);
        sw_err err = {0};

        if (modelopt()->can_hold(&spec, 256, 384, &err) != SW_OK) fail_msg("%s", err.text);
        assert_int_equal(modelopt()->declare(parts, &spec, 256, 384), rows[i].n);
        assert_string_equal(parts[1].suffix, "weight_scale");
        assert_int_equal(parts[1].dtype, rows[i].dtype);
        assert_int_equal(parts[1].n_dims, rows[i].dims);
        assert_memory_equal(parts[1].shape, rows[i].shape, sizeof rows[i].shape);
        assert_string_equal(parts[rows[i].n - 1].suffix, rows[i].last);
    }
}

static void configs_come_back_from_both_files(void **state)
{
    static const struct { const char *scheme, *says; } rows[] = {
        {"FP8", "\"quant_algo\":\"FP8\""},
        {"FP8_DYNAMIC", "\"quant_algo\":\"FP8_PER_CHANNEL_PER_TOKEN\""},
        {"FP8_BLOCK", "\"quant_algo\":\"FP8_PB_WO\""}, {"MXFP8", "\"quant_algo\":\"MXFP8\""},
        {"NVFP4", "\"quant_algo\":\"NVFP4\""}, {"NVFP4A16", "\"quant_algo\":\"W4A16_NVFP4\""},
        {"W4A16", "\"quant_algo\":\"W4A16_AWQ\""}};
    static const char *const ignore[] = {"a.b"};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        sw_qconfig config = {.spec = spec_of(rows[i / 2].scheme), .ignore = ignore, .n_ignore = 1};
        sw_qconfig back = {0};
        sw_spec_scheme second;
        sw_arena arena = {0};
        cJSON *object = NULL;
        sw_err err = {0};
        char *text;

        assert_int_equal(i % 2 ? modelopt()->write_side(&object, &config, &err)
                               : modelopt()->write_config(&object, &config, &err), SW_OK);
        text = cJSON_PrintUnformatted(object);
        if (!strstr(text, rows[i / 2].says)) fail_msg("%s", text);
        assert_ptr_equal(sw_dialect_detect(object), modelopt());
        if (modelopt()->read_config(&back, object, &arena, &err) != SW_OK) fail_msg("%s", err.text);
        assert_true(sw_qspec_same(&back.spec, &config.spec));
        assert_int_equal(back.n_ignore, 2);
        assert_string_equal(back.ignore[1], "lm_head");
        if (sw_spec_scheme_read(&second, object, &err) != SW_OK) fail_msg("%s", err.text);
        assert_int_equal(second.bits, config.spec.num->bits);
        assert_int_equal(second.group_elems, config.spec.group_elems);
        cJSON_free(text);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

#define HEAD "{\"quant_method\":\"modelopt\","

static void configs_of_others_are_read_or_refused(void **state)
{
    static const struct { const char *text; sw_code code; const char *says; } rows[] = {
        {"{\"producer\":{\"name\":\"modelopt\",\"version\":\"0.40.0\"},\"quantization\":{"
         "\"quant_algo\":\"NVFP4\",\"kv_cache_quant_algo\":\"FP8\",\"group_size\":16,"
         "\"exclude_modules\":[\"lm_head\",\"model.layers.0.self_attn*\"]}}", SW_OK, "lm_head"},
        {"{\"quant_method\":\"modelopt_fp4\",\"quant_algo\":\"nvfp4\",\"ignore\":[\"x\"]}", SW_OK,
         "x"},
        {HEAD "\"quant_algo\":\"fp8_pb_wo\",\"ignore\":[\"y\"]}", SW_OK, "y"},
        {HEAD "\"quant_algo\":\"W4A16_AWQ\",\"group_size\":64,\"has_zero_point\":false,"
         "\"pre_quant_scale\":true,\"ignore\":[\"z\"]}", SW_OK, "z"},
        {HEAD "\"quant_algo\":\"W4A16_AWQ\",\"has_zero_point\":true}", SW_E_UNSUPPORTED,
         "has_zero_point"},
        {HEAD "\"quant_algo\":\"W4A16_AWQ\",\"group_size\":-1}", SW_E_FORMAT, "group_size -1"},
        {HEAD "\"quant_algo\":\"w4a8_awq\"}", SW_E_UNSUPPORTED, "W4A8_AWQ cannot be read: its"},
        {HEAD "\"quant_algo\":\"NVFP4\",\"group_size\":32}", SW_E_UNSUPPORTED, "group_size 32"},
        {HEAD "\"quant_algo\":3}", SW_E_FORMAT, "quant_algo"},
        {HEAD "\"quant_algo\":\"MIXED_PRECISION\"}", SW_E_FORMAT, "without quantized_layers"},
        {HEAD "\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{\"quant_algo\":"
         "\"INT3\"}}}", SW_E_UNSUPPORTED, "quantized_layers: a: quant_algo \"INT3\""},
        {HEAD "\"quant_algo\":\"FP8\",\"ignore\":\"lm_head\"}", SW_E_FORMAT, "ignore: not a list"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *object = cJSON_Parse(rows[i].text);
        sw_qconfig back = {0};
        sw_arena arena = {0};
        sw_err err = {0};
        sw_code rc;

        assert_ptr_equal(sw_dialect_detect(object), modelopt());
        rc = modelopt()->read_config(&back, object, &arena, &err);
        if (rc != rows[i].code) fail_msg("row %zu: %d \"%s\"", i, rc, err.text);
        if (rc != SW_OK && !strstr(err.text, rows[i].says)) fail_msg("\"%s\"", err.text);
        if (rc == SW_OK) assert_string_equal(back.ignore[0], rows[i].says);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

static void each_linear_may_have_its_own(void **state)
{
    static const char *const text = HEAD "\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{"
        "\"m.0.mlp.experts\":{\"quant_algo\":\"NVFP4\",\"group_size\":16},"
        "\"m.0.q_proj\":{\"quant_algo\":\"FP8\"}}}";
    static const struct { const char *path; int bits; } rows[] = {
        {"m.0.q_proj", 8}, {"m.0.mlp.experts.3.up_proj", 4}, {"m.0.mlp.experts_x", 0},
        {"m.0.k_proj", 0}};
    cJSON *object = cJSON_Parse(text);
    sw_qconfig config = {0};
    sw_spec_scheme whole, one;
    sw_rules *rules = NULL;
    sw_arena arena = {0};
    sw_err err = {0};

    (void)state;
    assert_int_equal(modelopt()->read_config(&config, object, &arena, &err), SW_OK);
    assert_int_equal(sw_rules_new(&rules, &config, &err), SW_OK);
    assert_int_equal(sw_spec_scheme_read(&whole, object, &err), SW_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec spec = {.num = NULL};
        sw_err why = {0};
        sw_code rc = sw_rules_find(&spec, rules, rows[i].path, &why);
        sw_code second = sw_spec_scheme_of(&one, &whole, rows[i].path, &why);

        assert_int_equal(rc, rows[i].bits ? SW_OK : SW_E_FORMAT);
        assert_int_equal(second, rc);
        if (rc == SW_OK) assert_int_equal(spec.num->bits, rows[i].bits);
        if (rc == SW_OK) assert_int_equal(one.bits, rows[i].bits);
    }
    sw_rules_free(rules);
    cJSON_Delete(object);
    sw_arena_free(&arena);
}

static void what_cannot_be_said_is_refused(void **state)
{
    static const struct { const char *scheme; int64_t n_out, k_in; const char *says; } rows[] = {
        {"W4A16_ASYM", 128, 256, "int4 without zero points"},
        {"W8A16", 128, 256, "int4 without zero points"},
        {"W4A16", 127, 256, "outputs in pairs"},
        {"FP8_E5M2", 128, 256, "for others use --format"},
        {"FP8_BLOCK_POW2", 128, 256, "for others use --format"},
        {"MXFP4", 128, 256, "for others use --format"},
        {"FP8_BLOCK", 144, 256, "144 outputs are no multiple of 128"},
        {"NVFP4", 128, 200, "do not divide the 200 inputs"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec one = spec_of(rows[i].scheme);
        sw_err why = {0};
        assert_int_equal(modelopt()->can_hold(&one, rows[i].n_out, rows[i].k_in, &why),
                         SW_E_UNSUPPORTED);
        if (!strstr(why.text, rows[i].says)) fail_msg("\"%s\"", why.text);
    }
}

/* A broken file is named by the second decoder. */
static void planted_faults_are_caught(void **state)
{
    static const struct { int which; const char *tensor; int64_t at; uint32_t bits;
                          const char *says; } rows[] = {
        {0, "p.weight_scale", 0, 0x7f800000, "p.weight_scale is inf"},
        {0, "p.input_scale", 0, 0, "p.input_scale is 0"},
        {8, "p.weight_scale_2", 0, 0xbf800000, "p.weight_scale_2 is -1"},
        {8, "p.weight_scale_2", -1, SW_DTYPE_I32, "p.weight_scale_2 is I32"},
        {8, "p.weight_scale", 0, 0x7f, "scale of channel 0, group 0 is nan"},
        {8, "p.weight", -1, SW_DTYPE_I8, "p.weight is I8"},
        {9, "p.weight_scale", 8, 0x7f800000, "scale of channel 2, group 0 is inf"},
        {3, "p.weight_scale", 4, 0x7fc00000, "scale of channel 0, group 1 is nan"},
        {6, "p.weight_scale", 0, 0xff, "scale of channel 0, group 0 is nan"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_spec_scheme scheme = st_build_scheme(modelopt(), sw_gen_float_spec(rows[i].which));
        sw_spec_weight w = {0};
        st_build b = {.n = 0};
        sw_qtensor q;
        sw_err err = {0};

        sw_gen_float_qtensor(&q, rows[i].which, 128, 256, i);
        st_build_encode(&b, modelopt(), "p", &q);
        if (sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 128, 256, &err) != SW_OK)
            fail_msg("row %zu: %s", i, err.text);
        sw_spec_weight_free(&w);
        for (int t = 0; t < b.n && rows[i].at < 0; t++)
            if (!strcmp(b.tensors[t].name, rows[i].tensor))
                b.tensors[t].view.dtype = (sw_dtype)rows[i].bits;
        if (rows[i].at >= 0)
            sw_store_le32(st_build_data(&b, rows[i].tensor) + rows[i].at, rows[i].bits);
        assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", 128, 256, &err),
                         SW_E_FORMAT);
        if (!strstr(err.text, rows[i].says)) fail_msg("have \"%s\", want \"%s\"", err.text,
                                                      rows[i].says);
        sw_qtensor_free(&q);
        st_build_free(&b);
    }
}

static void give_float_weights(ckpt_case *c)
{
    static const int which = 8;

    c->config.spec = *sw_gen_float_spec(which);
    for (int64_t i = 0; i < c->n; i++) {
        int64_t n_out = c->q[i].n_out, k_in = c->q[i].k_in;
        sw_qtensor_free(&c->q[i]);
        sw_gen_float_qtensor(&c->q[i], which, n_out, k_in, (uint64_t)i);
    }
}

/* A whole directory, read with its config.json and then with hf_quant_config.json alone. */
static void a_directory_is_read_by_either_config(void **state)
{
    scratch s;
    ckpt_case c;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("swage"), 4, true, 32);
    give_float_weights(&c);
    if (ckpt_write(&c, &s, "out", modelopt(), false, 0, false, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_true(ckpt_has(&s, "out", "hf_quant_config.json"));
    for (int i = 0; i < 2; i++) {
        sw_checkpoint back;
        sw_subject judged;
        sw_qtensor q;

        if (sw_checkpoint_open(&back, scratch_path(&s, "out"), &err) != SW_OK)
            fail_msg("%s", err.text);
        assert_ptr_equal(back.dialect, modelopt());
        if (sw_checkpoint_qtensor(&q, &back, c.paths[0], c.linears[0].n_out, c.linears[0].k_in,
                                  &err) != SW_OK)
            fail_msg("%s", err.text);
        sw_gen_assert_same(&q, &c.q[0]);
        sw_qtensor_free(&q);
        sw_checkpoint_close(&back);
        if (sw_subject_open(&judged, scratch_path(&s, "out"), true, &err) != SW_OK)
            fail_msg("%s", err.text);
        assert_true(judged.is_quantized);
        assert_string_equal(judged.scheme.reader->name, "modelopt");
        sw_subject_close(&judged);
        if (!i) { /* the dense model's, which says nothing of a scheme */
            size_t n;
            char *text = ckpt_text(&s, "source", "config.json", &n);
            assert_int_equal(sw_file_put(scratch_path(&s, "out/config.json"), text, n,
                                         &err), SW_OK);
            sw_mem_put(text);
        }
    }
    ckpt_close(&c);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_nvfp4_block_by_hand),
        cmocka_unit_test(an_int4_weight_by_hand),
        cmocka_unit_test(compressed_tensors_has_the_reciprocal),
        cmocka_unit_test(shapes_are_those_that_loaders_ask_for),
        cmocka_unit_test(configs_come_back_from_both_files),
        cmocka_unit_test(configs_of_others_are_read_or_refused),
        cmocka_unit_test(each_linear_may_have_its_own),
        cmocka_unit_test(what_cannot_be_said_is_refused),
        cmocka_unit_test(planted_faults_are_caught),
        cmocka_unit_test(a_directory_is_read_by_either_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
