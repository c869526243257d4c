/* test_dialect_floats.c - bytes of small-float checkpoints against worked examples of the formats'
 * descriptions, and the quantization_config that says which format it is. */
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
#include "quant/method/algo.h"
#include "quant/run/scheme.h"

typedef struct stored {
    uint8_t bytes[SW_DIALECT_TENSORS_MAX][512];
    void *data[SW_DIALECT_TENSORS_MAX];
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n;
} stored;

static void store(stored *out, const char *dialect, const sw_qtensor *q)
{
    const sw_dialect *d = sw_dialect_find(dialect);
    sw_err err = {0};

    memset(out, 0, sizeof *out);
    for (int i = 0; i < SW_DIALECT_TENSORS_MAX; i++) out->data[i] = out->bytes[i];
    out->n = d->declare(out->parts, &q->spec, q->n_out, q->k_in);
    if (d->encode(out->data, q, &err) != SW_OK) fail_msg("%s", err.text);
}

static const uint8_t *part(const stored *s, const char *suffix)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->parts[i].suffix, suffix)) return s->bytes[i];
    fail_msg("no part %s", suffix);
    return NULL;
}

static void make(sw_qtensor *q, const char *scheme, int64_t n_out, int64_t k_in)
{
    sw_qspec spec = sw_scheme_spec(sw_scheme_find(scheme));
    sw_err err = {0};

    assert_int_equal(sw_qtensor_alloc(q, &spec, n_out, k_in, &err), SW_OK);
}

/* x_i = (-1)^i (i % 8) 0.35, largest 2.45: exponent byte 0x7e under every rule. */
static void an_mxfp4_block(void **state)
{
    static const uint8_t want[4] = {0x90, 0xc3, 0xe5, 0xe6};
    sw_qtensor q;
    stored s;

    (void)state;
    make(&q, "MXFP4A16", 1, 32);
    q.scales[0] = sw_pow2_scale(2.45f, q.spec.num);
    for (int i = 0; i < 32; i++)
        q.codes[i] = sw_e2m1_encode((i % 2 ? -1.0f : 1.0f) * (float)(i % 8) * 0.35f / q.scales[0]);
    store(&s, "compressed-tensors", &q);
    assert_int_equal(part(&s, "weight_scale")[0], 0x7e);
    for (int i = 0; i < 16; i++) assert_int_equal(part(&s, "weight_packed")[i], want[i % 4]);
    sw_qtensor_free(&q);
}

static void fp4_pairs_have_the_even_input_low(void **state)
{
    static const float values[8] = {0.5f, -6, 1, 3, -0.0f, 2, 4, -1.5f};
    static const uint8_t want[4] = {0xf1, 0x52, 0x48, 0xb6};
    sw_qtensor q;
    stored s;

    (void)state;
    make(&q, "NVFP4A16", 1, 16);
    q.scales[0] = 1.0f;
    for (int i = 0; i < 8; i++) q.codes[i] = sw_e2m1_encode(values[i]);
    store(&s, "compressed-tensors", &q);
    assert_memory_equal(part(&s, "weight_packed"), want, 4);
    sw_qtensor_free(&q);
}

/* Largest weight of the tensor 3, so the stored divisor is 448 * 6 / 3 = 896. */
static void an_nvfp4_block(void **state)
{
    static const float x[16] = {.1f, -.2f, .3f, -.4f, .5f, -.6f, .7f, -.8f,
                                .9f, -1, 1.1f, -1.2f, 0, .05f, -.05f, 2.4f};
    static const uint8_t want[8] = {0x91, 0xa2, 0xb3, 0xc4, 0xd4, 0xd5, 0x00, 0x78};
    sw_qtensor q;
    stored s;
    float divisor;

    (void)state;
    make(&q, "NVFP4A16", 1, 16);
    q.global_scale = 1.0f / 896.0f;
    q.scales[0] = sw_num_round_to(2.4f / 6.0f / q.global_scale, SW_DTYPE_F8_E4M3);
    assert_true(q.scales[0] == 352.0f);
    for (int i = 0; i < 16; i++)
        q.codes[i] = sw_e2m1_encode(x[i] / (q.scales[0] * q.global_scale));
    store(&s, "compressed-tensors", &q);
    assert_int_equal(part(&s, "weight_scale")[0], 0x7b);
    assert_memory_equal(part(&s, "weight_packed"), want, 8);
    divisor = sw_f32_from_bits(sw_load_le32(part(&s, "weight_global_scale")));
    assert_true(1.0f / divisor == q.global_scale && divisor > 895.999f && divisor < 896.001f);
    sw_qtensor_free(&q);
}

static void integers_with_quantized_inputs_are_plain_bytes(void **state)
{
    static const uint8_t codes[4] = {0, 128, 129, 255}, want[4] = {0x80, 0x00, 0x01, 0x7f};
    sw_qtensor q;
    stored s;

    (void)state;
    make(&q, "W8A8", 1, 4);
    memcpy(q.codes, codes, 4);
    q.scales[0] = 0.5f;
    store(&s, "compressed-tensors", &q);
    assert_memory_equal(part(&s, "weight"), want, 4);
    assert_int_equal(part(&s, "weight_scale")[1], 0x38); /* fp16 0.5 */
    sw_qtensor_free(&q);
}

static void configs_say_the_format_and_come_back(void **state)
{
    static const struct { const char *scheme, *says; } rows[] = {
        {"W8A8", "\"format\":\"int-quantized\""}, {"W4A8", "\"format\":\"pack-quantized\""},
        {"W4AFP8", "\"format\":\"pack-quantized\""},
        {"FP8", "\"strategy\":\"tensor\""}, {"FP8_DYNAMIC", "\"format\":\"float-quantized\""},
        {"FP8_BLOCK", "\"block_structure\":[128,128]"}, {"MXFP4A16", "mxfp4-pack-quantized"},
        {"MXFP4", "\"scale_dtype\":\"torch.uint8\""}, {"MXFP8", "mxfp8-quantized"},
        {"NVFP4A16", "nvfp4-pack-quantized"}, {"NVFP4", "\"dynamic\":\"local\""}};
    static const char *const dialects[] = {"compressed-tensors", "swage"};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const sw_dialect *d = sw_dialect_find(dialects[i % 2]);
        sw_qconfig config = {.spec = sw_scheme_spec(sw_scheme_find(rows[i / 2].scheme))};
        sw_qconfig back = {0};
        sw_arena arena = {0};
        cJSON *object = NULL;
        sw_err err = {0};
        char *text;

        back.spec.scale_dtype = config.spec.scale_dtype;
        if (d->write_config(&object, &config, &err) != SW_OK) fail_msg("%s", err.text);
        text = cJSON_PrintUnformatted(object);
        if (i % 2 == 0 && !strstr(text, rows[i / 2].says))
            fail_msg("%s: %s does not say %s", rows[i / 2].scheme, text, rows[i / 2].says);
        assert_ptr_equal(sw_dialect_detect(object), d);
        if (d->read_config(&back, object, &arena, &err) != SW_OK)
            fail_msg("%s: %s", rows[i / 2].scheme, err.text);
        if (!sw_qspec_same(&back.spec, &config.spec)) fail_msg("%s: %s", rows[i / 2].scheme, text);
        cJSON_free(text);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

static void what_cannot_be_said_is_refused(void **state)
{
    static const struct { const char *scheme, *dialect, *says; } rows[] = {
        {"FP8_E5M2", "compressed-tensors", "no format for e5m2"},
        {"FP8_BLOCK_POW2", "compressed-tensors", "powers of two"},
        {"W8A8", "gptq", "inputs as they are"},
        {"NVFP4A16", "gptq_v2", "--format compressed-tensors or swage"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec spec = sw_scheme_spec(sw_scheme_find(rows[i].scheme));
        sw_err err = {0};

        assert_int_equal(sw_dialect_find(rows[i].dialect)->can_hold(&spec, 128, 256, &err),
                         SW_E_UNSUPPORTED);
        if (!strstr(err.text, rows[i].says)) fail_msg("\"%s\"", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_mxfp4_block),
        cmocka_unit_test(fp4_pairs_have_the_even_input_low),
        cmocka_unit_test(an_nvfp4_block),
        cmocka_unit_test(integers_with_quantized_inputs_are_plain_bytes),
        cmocka_unit_test(configs_say_the_format_and_come_back),
        cmocka_unit_test(what_cannot_be_said_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
