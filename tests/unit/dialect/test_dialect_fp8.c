/* test_dialect_fp8.c - quant_method "fp8" against the worked example of its description, read by
 * both decoders; its config as published files have it; what is refused; faults that both see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect.h"
#include "formats/num/half.h"
#include "formats/num/pow2.h"
#include "formats/num/small.h"
#include "quant/run/scheme.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tests/support/toys/st_build.h"
#include "verify/decoders/decode_spec.h"

#define N_OUT 144
#define K_IN 256

static const sw_dialect *fp8(void) { return sw_dialect_find("fp8"); }

static sw_qspec spec_of(const char *scheme) { return sw_scheme_spec(sw_scheme_find(scheme)); }

/* A block whose largest weight is 2.24 has the scale 0.005, so 1.0 is 200 steps: halfway between
 * 192 and 208, and the even fraction is that of 192. Powers of two: 2^-7, and 128 steps. */
static void the_worked_example(void **state)
{
    static const struct {
        const char *scheme;
        uint8_t code;
        float scale, value;
    } rows[] = {{"FP8_BLOCK", 0x74, 0.005f, 0.96f}, {"FP8_BLOCK_POW2", 0x70, 0x1p-7f, 1.0f}};

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        sw_qspec spec = spec_of(rows[r].scheme);
        sw_spec_scheme scheme = st_build_scheme(fp8(), &spec);
        sw_qtensor q, back;
        sw_spec_weight w = {0};
        st_build b = {.n = 0};
        sw_err err = {0};

        assert_int_equal(sw_qtensor_alloc(&q, &spec, N_OUT, K_IN, &err), SW_OK);
        for (int64_t i = 0; i < N_OUT * q.n_groups; i++) q.scales[i] = 1.0f;
        for (int64_t n = 128; n < N_OUT; n++) /* the lower right block, of 16 rows */
            q.scales[n * 2 + 1] = spec.is_pow2_scale ? sw_pow2_scale(2.24f, spec.num)
                                                     : 2.24f / 448.0f;
        q.codes[143 * K_IN + 255] = sw_e4m3_encode(1.0f / q.scales[143 * 2 + 1]);
        st_build_encode(&b, fp8(), "p", &q);
        assert_int_equal(st_build_data(&b, "p.weight")[143 * K_IN + 255], rows[r].code);
        assert_true(sw_f32_from_bits(sw_load_le32(st_build_data(&b, "p.weight_scale_inv") + 12)) ==
                    rows[r].scale);
        const void *parts[] = {st_build_data(&b, "p.weight"),
                               st_build_data(&b, "p.weight_scale_inv")};
        assert_int_equal(sw_qtensor_alloc(&back, &spec, N_OUT, K_IN, &err), SW_OK);
        assert_int_equal(fp8()->decode(&back, parts, &err), SW_OK);
        sw_gen_assert_same(&back, &q);
        assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", N_OUT, K_IN, &err),
                         SW_OK);
        assert_float_equal(w.values[143 * K_IN + 255], rows[r].value, 1e-7);
        sw_spec_weight_free(&w);
        sw_qtensor_free(&q);
        sw_qtensor_free(&back);
        st_build_free(&b);
    }
}

static void one_scale_a_tensor(void **state)
{
    sw_qspec spec = spec_of("FP8");
    sw_spec_scheme scheme = st_build_scheme(fp8(), &spec);
    const sw_part *scale, *input;
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_spec_weight w = {0};
    st_build b = {.n = 0};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    assert_int_equal(fp8()->declare(parts, &spec, N_OUT, K_IN), 3);
    scale = &parts[1];
    input = &parts[2];
    assert_string_equal(scale->suffix, "weight_scale");
    assert_string_equal(input->suffix, "input_scale");
    sw_gen_float_qtensor(&q, 0, N_OUT, K_IN, 5);
    q.input_scale = 0.25f;
    st_build_encode(&b, fp8(), "p", &q);
    assert_int_equal(sw_load_le32(st_build_data(&b, "p.input_scale")), 0x3e800000);
    for (int i = 0; i < 2; i++) { /* as [1], and as a scalar */
        for (int t = 1; t < b.n && i; t++) b.tensors[t].view.n_dims = 0;
        if (sw_spec_decode(&w, &scheme, st_build_open(&b), "p", N_OUT, K_IN, &err) != SW_OK)
            fail_msg("%s", err.text);
        assert_true(w.input_scale == 0.25f && w.scales[N_OUT - 1] == q.scales[0]);
        assert_memory_equal(w.codes, q.codes, N_OUT * K_IN);
        sw_spec_weight_free(&w);
    }
    sw_qtensor_free(&q);
    st_build_free(&b);
}

/* The same weight under the names of transformers: the same bytes; each config finds its own. */
static void one_scale_under_other_names(void **state)
{
    const sw_dialect *hf = sw_dialect_find("fp8_hf");
    sw_qspec spec = spec_of("FP8"), blocks = spec_of("FP8_BLOCK");
    sw_spec_scheme scheme = st_build_scheme(hf, &spec);
    sw_qconfig config = {.spec = spec}, back = {0};
    sw_spec_weight w = {0};
    st_build a = {.n = 0}, b = {.n = 0};
    sw_arena arena = {0};
    cJSON *object = NULL;
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    sw_gen_float_qtensor(&q, 0, N_OUT, K_IN, 5);
    q.input_scale = 0.25f;
    st_build_encode(&a, fp8(), "p", &q);
    st_build_encode(&b, hf, "p", &q);
    assert_memory_equal(st_build_data(&a, "p.weight"), st_build_data(&b, "p.weight"), N_OUT * K_IN);
    assert_memory_equal(st_build_data(&a, "p.weight_scale"),
                        st_build_data(&b, "p.weight_scale_inv"), 4); /* no reciprocal */
    assert_memory_equal(st_build_data(&a, "p.input_scale"),
                        st_build_data(&b, "p.activation_scale"), 4);
    if (sw_spec_decode(&w, &scheme, st_build_open(&b), "p", N_OUT, K_IN, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_true(w.input_scale == 0.25f && w.scales[N_OUT - 1] == q.scales[0]);
    assert_int_equal(hf->write_config(&object, &config, &err), SW_OK);
    assert_ptr_equal(sw_dialect_detect(object), hf);
    assert_int_equal(hf->read_config(&back, object, &arena, &err), SW_OK);
    assert_true(sw_qspec_same(&back.spec, &spec));
    assert_int_equal(hf->can_hold(&blocks, 256, 256, &err), SW_E_UNSUPPORTED);
    cJSON_Delete(object);
    sw_arena_free(&arena);
    sw_spec_weight_free(&w);
    sw_qtensor_free(&q);
    st_build_free(&a);
    st_build_free(&b);
}

static void configs_are_those_of_published_files(void **state)
{
    static const struct { const char *scheme, *text; } rows[] = {
        {"FP8_BLOCK", "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":"
         "\"dynamic\",\"weight_block_size\":[128,128],\"ignored_layers\":[\"a.b\",\"lm_head\"],"
         "\"modules_to_not_convert\":[\"a.b\",\"lm_head\"]}"},
        {"FP8_BLOCK_POW2", "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":"
         "\"dynamic\",\"weight_block_size\":[128,128],\"scale_fmt\":\"ue8m0\",\"ignored_layers\":"
         "[\"a.b\",\"lm_head\"],\"modules_to_not_convert\":[\"a.b\",\"lm_head\"]}"},
        {"FP8", "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"static\","
         "\"ignored_layers\":[\"a.b\",\"lm_head\"],\"modules_to_not_convert\":"
         "[\"a.b\",\"lm_head\"]}"}};
    static const char *const ignore[] = {"a.b"};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qconfig config = {.spec = spec_of(rows[i].scheme), .ignore = ignore, .n_ignore = 1};
        sw_qconfig back = {0};
        sw_arena arena = {0};
        cJSON *object = NULL;
        sw_err err = {0};
        char *text;

        assert_int_equal(fp8()->write_config(&object, &config, &err), SW_OK);
        text = cJSON_PrintUnformatted(object);
        assert_string_equal(text, rows[i].text);
        assert_ptr_equal(sw_dialect_detect(object), fp8());
        assert_int_equal(fp8()->read_config(&back, object, &arena, &err), SW_OK);
        assert_true(sw_qspec_same(&back.spec, &config.spec));
        assert_int_equal(back.n_ignore, 2);
        assert_string_equal(back.ignore[0], "a.b");
        cJSON_free(text);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

#define HEAD "{\"quant_method\":\"fp8\","

static void configs_of_others_are_read_or_refused(void **state)
{
    static const struct { const char *text; sw_code code; const char *says; } rows[] = {
        {HEAD "\"weight_block_size\":[128,128],\"scale_fmt\":\"float\"}", SW_OK, NULL},
        {HEAD "\"weight_block_size\":null,\"ignored_layers\":null}", SW_OK, NULL},
        {HEAD "\"ignored_layers\":[],\"modules_to_not_convert\":[\"x\"]}", SW_OK, "x"},
        {HEAD "\"fmt\":\"e5m2\"}", SW_E_UNSUPPORTED, "fmt \"e5m2\""},
        {HEAD "\"activation_scheme\":\"none\"}", SW_E_UNSUPPORTED, "activation_scheme \"none\""},
        {HEAD "\"weight_block_size\":[1,128]}", SW_E_UNSUPPORTED, "[128, 128]"},
        {HEAD "\"weight_block_size\":[128,128],\"scale_fmt\":\"e4m3\"}", SW_E_UNSUPPORTED,
         "scale_fmt"},
        {HEAD "\"weight_block_size\":[128,128],\"activation_scheme\":\"static\"}",
         SW_E_UNSUPPORTED, "dynamic inputs"},
        {HEAD "\"ignored_layers\":\"lm_head\"}", SW_E_FORMAT, "ignored_layers: not a list"},
        {HEAD "\"modules_to_not_convert\":[1]}", SW_E_FORMAT, "modules_to_not_convert"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *object = cJSON_Parse(rows[i].text);
        sw_qconfig back = {0};
        sw_arena arena = {0};
        sw_err err = {0};
        sw_code rc = fp8()->read_config(&back, object, &arena, &err);

        if (rc != rows[i].code) fail_msg("row %zu: %d \"%s\"", i, rc, err.text);
        if (rc != SW_OK && !strstr(err.text, rows[i].says)) fail_msg("\"%s\"", err.text);
        if (rc == SW_OK && rows[i].says) assert_string_equal(back.ignore[0], rows[i].says);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

static void what_cannot_be_said_is_refused(void **state)
{
    static const struct { const char *scheme; int64_t k_in; const char *says; } rows[] = {
        {"W4A16", 256, "e4m3 weights, not int4"},
        {"FP8_DYNAMIC", 256, "128 x 128"},
        {"FP8_E5M2", 256, "not e5m2"},
        {"MXFP8", 256, "128 x 128"},
        {"NVFP4", 256, "not e2m1"},
        {"FP8_BLOCK", 192, "do not divide the 192 inputs; choose a scheme"}};
    sw_qspec spec = spec_of("FP8_BLOCK");
    sw_qrule rules[2] = {{"a", true, spec}, {"b", true, spec_of("FP8")}};
    sw_qconfig config = {.rules = rules, .n_rules = 2};
    cJSON *object = NULL;
    sw_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec one = spec_of(rows[i].scheme);
        sw_err why = {0};
        assert_int_equal(fp8()->can_hold(&one, 128, rows[i].k_in, &why), SW_E_UNSUPPORTED);
        if (!strstr(why.text, rows[i].says)) fail_msg("\"%s\"", why.text);
        if (!strstr(why.text, "use --format") && !strstr(why.text, "choose"))
            fail_msg("no remedy: \"%s\"", why.text);
    }
    spec.act.scope = SW_ACT_NONE; /* weights alone */
    assert_int_equal(fp8()->can_hold(&spec, 128, 256, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "quantize the inputs too"));
    assert_int_equal(fp8()->write_config(&object, &config, &err), SW_E_UNSUPPORTED);
    assert_null(object);
}

/* A broken file is named by the second decoder, and a shifted one differs from what was meant. */
static void planted_faults_are_caught(void **state)
{
    static const struct { int which; const char *tensor; int64_t at; uint32_t bits;
                          const char *says; } rows[] = {
        {3, "p.weight_scale_inv", 4, 0x7fc00000, "scale of channel 0, group 1 is nan"},
        {3, "p.weight_scale_inv", 8, 0x7f800000, "scale of channel 128, group 0 is inf"},
        {3, "p.weight_scale_inv", 0, 0xff800000, "is -inf"},
        {3, "p.weight_scale_inv", 0, 0x48000000, "leave half precision"},
        {4, "p.weight_scale_inv", 12, 0x3f400000, "group 1 is 0.75, want a power of two"},
        {3, "p.weight", 4, 0x7f, "code of channel 0, input 4 is 0x7f"},
        {0, "p.weight_scale", 0, 0x7f800000, "p.weight_scale is inf"},
        {0, "p.input_scale", 0, 0, "p.input_scale is 0"},
        {3, "p.weight_scale_inv", -1, SW_DTYPE_I32, "p.weight_scale_inv is I32"},
        {0, "p.input_scale", -1, SW_DTYPE_I32, "p.input_scale is I32"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_spec_scheme scheme = st_build_scheme(fp8(), sw_gen_float_spec(rows[i].which));
        sw_spec_weight w = {0};
        st_build b = {.n = 0};
        sw_qtensor q;
        sw_err err = {0};

        sw_gen_float_qtensor(&q, rows[i].which, N_OUT, K_IN, i);
        st_build_encode(&b, fp8(), "p", &q);
        assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", N_OUT, K_IN, &err),
                         SW_OK);
        sw_spec_weight_free(&w);
        for (int t = 0; t < b.n && rows[i].at < 0; t++)
            if (!strcmp(b.tensors[t].name, rows[i].tensor))
                b.tensors[t].view.dtype = (sw_dtype)rows[i].bits;
        if (rows[i].at >= 0)
            sw_store_le32(st_build_data(&b, rows[i].tensor) + rows[i].at, rows[i].bits);
        assert_int_equal(sw_spec_decode(&w, &scheme, st_build_open(&b), "p", N_OUT, K_IN, &err),
                         SW_E_FORMAT);
        if (!strstr(err.text, rows[i].says)) fail_msg("have \"%s\", want \"%s\"", err.text,
                                                      rows[i].says);
        sw_qtensor_free(&q);
        st_build_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_example),
        cmocka_unit_test(one_scale_a_tensor),
        cmocka_unit_test(one_scale_under_other_names),
        cmocka_unit_test(configs_are_those_of_published_files),
        cmocka_unit_test(configs_of_others_are_read_or_refused),
        cmocka_unit_test(what_cannot_be_said_is_refused),
        cmocka_unit_test(planted_faults_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
