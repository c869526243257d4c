/* test_dialect.c - stored bytes against published patterns, quantization_config as loaders expect
 * it and as others write it, and what must be refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/dialect/dialect.h"
#include "tests/support/toys/qtensor_gen.h"

static const sw_dialect *row(const char *name)
{
    const sw_dialect *dialect = sw_dialect_find(name);

    assert_non_null(dialect);
    return dialect;
}

static void expect_text(const char *have, const char *part)
{
    if (!strstr(have, part)) fail_msg("\"%s\" does not say \"%s\"", have, part);
}

static void the_table_is_complete(void **state)
{
    int n = 0;

    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++, n++) {
        assert_ptr_equal(sw_dialect_find((*d)->name), *d);
        assert_true(strlen((*d)->summary) > 20 && strlen((*d)->summary) < 90);
    }
    assert_in_range(n, 6, 99);
    assert_null(sw_dialect_find("gptq_v3"));
    assert_int_equal(row("gptq")->scale_dtype(SW_DTYPE_BF16), SW_DTYPE_F16);
    assert_int_equal(row("compressed-tensors")->scale_dtype(SW_DTYPE_BF16), SW_DTYPE_BF16);
    assert_int_equal(row("compressed-tensors")->scale_dtype(SW_DTYPE_F16), SW_DTYPE_F16);
    assert_int_equal(row("swage")->scale_dtype(SW_DTYPE_BF16), SW_DTYPE_F16);
}

/* 32 x 32, one group: channel n's codes are (n + k) % 16, zero n % 16 or 8, scale 1 + n / 32. */
static void make_ramp(sw_qtensor *q, bool is_symmetric)
{
    sw_gen_qtensor(q, 4, is_symmetric, 32, SW_DTYPE_F16, 32, 32, SW_GEN_LOWEST, 0, 1);
    for (int n = 0; n < 32; n++) {
        for (int k = 0; k < 32; k++) q->codes[n * 32 + k] = (uint8_t)((n + k) % 16);
        q->scales[n] = 1.0f + (float)n / 32.0f;
        if (q->zeros) q->zeros[n] = (uint8_t)(n % 16);
    }
}

static void gptq_bytes_by_hand(void **state)
{
    uint32_t qweight[4 * 32] = {0}, qzeros[4] = {0}, g_idx[32] = {0};
    uint16_t scales[32] = {0};
    void *const parts[] = {qweight, qzeros, scales, g_idx};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    make_ramp(&q, true);
    assert_int_equal(row("gptq")->encode(parts, &q, &err), SW_OK);
    assert_int_equal(qweight[0], 0x76543210);      /* inputs 0..7 of channel 0 */
    assert_int_equal(qweight[1], 0x87654321);      /* of channel 1 */
    assert_int_equal(qweight[32], 0xfedcba98);     /* inputs 8..15 of channel 0 */
    assert_int_equal(qweight[3 * 32 + 31], 0xedcba987); /* inputs 24..31 of channel 31 */
    for (int i = 0; i < 4; i++) assert_int_equal(qzeros[i], 0x77777777);
    assert_int_equal(scales[0], 0x3c00);
    assert_int_equal(scales[16], 0x3e00);
    assert_int_equal(g_idx[31], 0);
    assert_int_equal(row("gptq_v2")->encode(parts, &q, &err), SW_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(qzeros[i], 0x88888888);
    sw_qtensor_free(&q);
    make_ramp(&q, false);
    assert_int_equal(row("gptq_v2")->encode(parts, &q, &err), SW_OK);
    assert_int_equal(qzeros[0], 0x76543210);
    assert_int_equal(qzeros[1], 0xfedcba98);
    assert_int_equal(row("gptq")->encode(parts, &q, &err), SW_E_UNSUPPORTED);
    expect_text(err.text, "zero point 0 (row 0, group 0)");
    expect_text(err.text, "--format gptq_v2");
    for (int n = 0; n < 32; n += 16) q.zeros[n] = 9;
    err.code = SW_OK;
    assert_int_equal(row("gptq")->encode(parts, &q, &err), SW_OK);
    assert_int_equal(qzeros[0], 0x65432108);
    sw_qtensor_free(&q);
}

static void gptq_v1_zero_points_are_read_field_by_field(void **state)
{
    /* 1, 5, 8, 15, 1, 2, 3, 4, less one each; then the first as 0, by a writer of fields modulo
     * 16: readers take that for 0 or for 16 */
    uint32_t qweight[4 * 32] = {0}, qzeros[4] = {0x3210e740, 0, 0, 0};
    uint16_t scales[32];
    const void *const parts[] = {qweight, qzeros, scales, NULL};
    static const uint8_t want[] = {1, 5, 8, 15, 1, 2, 3, 4, 1};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    for (int n = 0; n < 32; n++) scales[n] = 0x3c00;
    make_ramp(&q, false);
    assert_int_equal(row("gptq")->decode(&q, parts, &err), SW_OK);
    assert_memory_equal(q.zeros, want, sizeof want);
    assert_null(q.g_idx); /* an absent one means k / group */
    qzeros[0] = 0x3210e74f;
    assert_int_equal(row("gptq")->decode(&q, parts, &err), SW_E_FORMAT);
    expect_text(err.text, "qzeros hold 15 at row 0, group 0");
    expect_text(err.text, "written as gptq_v2");
    sw_qtensor_free(&q);
}

static void symmetric_zeros_of_the_other_version_are_refused(void **state)
{
    uint32_t qweight[4 * 32] = {0}, qzeros[4];
    uint16_t scales[32] = {0};
    const void *const parts[] = {qweight, qzeros, scales, NULL};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    make_ramp(&q, true);
    for (int i = 0; i < 4; i++) qzeros[i] = 0x88888888;
    assert_int_equal(row("gptq_v2")->decode(&q, parts, &err), SW_OK);
    assert_int_equal(row("gptq")->decode(&q, parts, &err), SW_E_FORMAT);
    expect_text(err.text, "qzeros hold 9 at row 0, group 0");
    expect_text(err.text, "checkpoint_format");
    qzeros[3] = 0x87888888; /* one field alone */
    err.code = SW_OK;
    assert_int_equal(row("gptq_v2")->decode(&q, parts, &err), SW_E_FORMAT);
    expect_text(err.text, "qzeros hold 7 at row 30, group 0");
    sw_qtensor_free(&q);
}

static void a_g_idx_beyond_the_groups_is_refused(void **state)
{
    uint32_t qweight[4 * 32] = {0}, qzeros[4], g_idx[32] = {0};
    uint16_t scales[32] = {0};
    const void *const parts[] = {qweight, qzeros, scales, g_idx};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    make_ramp(&q, true);
    for (int i = 0; i < 4; i++) qzeros[i] = 0x77777777;
    g_idx[17] = 1;
    assert_int_equal(row("gptq")->decode(&q, parts, &err), SW_E_FORMAT);
    expect_text(err.text, "g_idx[17] = 1, there are 1 groups");
    g_idx[17] = 0xffffffffu;
    err.code = SW_OK;
    assert_int_equal(row("gptq")->decode(&q, parts, &err), SW_E_FORMAT);
    expect_text(err.text, "g_idx[17] = -1");
    sw_qtensor_free(&q);
}

static void compressed_tensors_bytes_by_hand(void **state)
{
    static const int8_t zero_points[] = {-8, -3, 0, 7, 0, 0, 0, 0};
    uint32_t packed[8] = {0}, zeros[1] = {0};
    uint16_t scales[8];
    uint8_t shape[16];
    void *const parts[] = {packed, scales, shape, zeros};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    sw_gen_qtensor(&q, 4, false, 0, SW_DTYPE_BF16, 8, 8, SW_GEN_LOWEST, 0, 1);
    for (int k = 0; k < 8; k++) {
        q.codes[k] = (uint8_t)(-8 + k + 8);
        q.codes[8 + k] = (uint8_t)(k + 8);
        q.zeros[k] = (uint8_t)(zero_points[k] + 8);
        q.scales[k] = -1.0f;
    }
    q.scales[3] = 1.5f;
    assert_int_equal(row("compressed-tensors")->encode(parts, &q, &err), SW_OK);
    assert_int_equal(packed[0], 0x76543210);
    assert_int_equal(packed[1], 0xfedcba98);
    assert_int_equal(zeros[0], 0x8888f850);
    assert_int_equal(scales[3], 0x3fc0);
    assert_int_equal(sw_load_le64(shape), 8);
    assert_int_equal(sw_load_le64(shape + 8), 8);
    sw_store_le64(shape + 8, 9);
    assert_int_equal(row("compressed-tensors")->decode(&q, (const void *const *)parts, &err),
                     SW_E_FORMAT);
    expect_text(err.text, "weight_shape says [8, 9], the model says [8, 8]");
    sw_qtensor_free(&q);
}

/* 32 channels, two groups: orientation shows only when both counts exceed one. */
static void two_groups_lie_where_the_shapes_say(void **state)
{
    uint32_t packed[8 * 32], zeros[8];
    uint16_t scales[64];
    uint8_t other[64 * 4];
    void *const gptq[] = {packed, zeros, scales, other};
    void *const ct[] = {packed, scales, other, zeros};
    sw_qtensor q;
    sw_err err = {0};

    (void)state;
    sw_gen_qtensor(&q, 4, false, 32, SW_DTYPE_F16, 32, 64, SW_GEN_RANDOM, 0, 1);
    for (int n = 0; n < 32; n++)
        for (int g = 0; g < 2; g++) {
            q.scales[2 * n + g] = 1.0f + (float)n / 64.0f + (float)g;
            q.zeros[2 * n + g] = (uint8_t)(g ? 15 - n % 16 : n % 16);
        }
    assert_int_equal(row("gptq_v2")->encode(gptq, &q, &err), SW_OK);
    assert_int_equal(scales[1], 0x3c10);      /* group 0, channel 1: 1 + 1/64 */
    assert_int_equal(scales[32 + 1], 0x4008); /* group 1, channel 1: 2 + 1/64 */
    assert_int_equal(zeros[0], 0x76543210);   /* group 0, channels 0..7 */
    assert_int_equal(zeros[1], 0xfedcba98);   /* group 0, channels 8..15 */
    assert_int_equal(zeros[4], 0x89abcdef);   /* group 1, channels 0..7 */
    assert_int_equal(row("compressed-tensors")->encode(ct, &q, &err), SW_OK);
    assert_int_equal(scales[2], 0x3c10);      /* channel 1, group 0 */
    assert_int_equal(scales[3], 0x4008);      /* channel 1, group 1 */
    assert_int_equal(zeros[0], 0x76543210);   /* channels 0..7, group 0 */
    assert_int_equal(zeros[1], 0x89abcdef);   /* channels 0..7, group 1 */
    assert_int_equal(zeros[2], 0xfedcba98);   /* channels 8..15, group 0 */
    sw_qtensor_free(&q);
}

static void declared_tensors(void **state)
{
    static const struct { const char *dialect, *want; } rows[] = {
        {"gptq", "qweight I32 12x64; qzeros I32 4x6; scales F16 4x64; g_idx I32 128; "},
        {"compressed-tensors", "weight_packed I32 64x12; weight_scale F16 64x4; "
                               "weight_shape I64 2; weight_zero_point I32 6x4; "},
        {"swage", "tiles U8 1x2x1536; tile_scales F16 1x4x64; tile_shape I64 2; "
                  "tile_zeros U8 1x4x64; "}};
    sw_qspec spec = {.num = sw_num_by_bits(3), .is_symmetric = false, .group_elems = 32,
                     .scale_dtype = SW_DTYPE_F16};

    (void)state;
    for (int r = 0; r < 3; r++) {
        sw_part parts[SW_DIALECT_TENSORS_MAX];
        char have[400] = "";
        int n = row(rows[r].dialect)->declare(parts, &spec, 64, 128);
        for (int i = 0; i < n; i++) {
            size_t at = strlen(have);
            at += (size_t)snprintf(have + at, sizeof have - at, "%s %s ", parts[i].suffix,
                                   sw_dtype_name(parts[i].dtype));
            for (int d = 0; d < parts[i].n_dims; d++)
                at += (size_t)snprintf(have + at, sizeof have - at, "%s%d", d ? "x" : "",
                                       (int)parts[i].shape[d]);
            snprintf(have + at, sizeof have - at, "; ");
        }
        assert_string_equal(have, rows[r].want);
    }
}

static void gptq_v1_wants_zero_points_from_one(void **state)
{
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = false, .group_elems = 32,
                     .scale_dtype = SW_DTYPE_F16};
    sw_err err = {0};

    (void)state;
    assert_int_equal(row("gptq")->can_hold(&spec, 64, 64, &err), SW_E_UNSUPPORTED);
    expect_text(err.text, "use --format gptq_v2");
    spec.zero_min = row("gptq")->zero_min;
    err.code = SW_OK;
    assert_int_equal(row("gptq")->can_hold(&spec, 64, 64, &err), SW_OK);
    spec.zero_min = 0;
    assert_int_equal(row("gptq_v2")->can_hold(&spec, 64, 64, &err), SW_OK);
}

static void what_a_dialect_cannot_hold_is_explained(void **state)
{
    static const struct { const char *dialect; int group; int n_out, k_in; const char *reason; }
    rows[] = {
        {"gptq", 128, 64, 192, "192 inputs; 16, 32, 64, 96, 192 or one "},
        {"gptq", 0, 64, 100, "100 inputs are no multiple of 32; use --format compressed-tensors"},
        {"gptq_v2", 32, 33, 64, "33 outputs are no multiple of 32"},
        {"gptq", 48, 64, 96, "no loader takes group size 48"},
        {"compressed-tensors", 128, 64, 192, "do not divide"},
        {"swage", 8, 64, 64, "multiple of 16"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true,
                         .group_elems = rows[i].group, .scale_dtype = SW_DTYPE_F16};
        sw_err err = {0};
        assert_int_equal(row(rows[i].dialect)->can_hold(&spec, rows[i].n_out, rows[i].k_in, &err),
                         SW_E_UNSUPPORTED);
        expect_text(err.text, rows[i].reason);
    }
}

/* Config objects ------------------------------------------------------------------------- */

static cJSON *parse(const char *text)
{
    cJSON *object = cJSON_Parse(text);

    if (!object) fail_msg("bad test JSON: %s", text);
    return object;
}

static void written_configs_are_what_loaders_expect(void **state)
{
    static const struct { const char *dialect, *want; } rows[] = {
        {"gptq", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"desc_act\":false,"
                 "\"sym\":true,\"lm_head\":false,\"true_sequential\":true,\"static_groups\":true,"
                 "\"damp_percent\":0.01,\"checkpoint_format\":\"gptq\",\"pack_dtype\":\"int32\","
                 "\"dynamic\":{\"-:^model\\\\.layers\\\\.0\\\\.mlp\\\\.gate$\":{}},"
                 "\"meta\":{\"quantizer\":[\"swage:" SW_VERSION "\"]}}"},
        {"compressed-tensors",
         "{\"quant_method\":\"compressed-tensors\",\"version\":\"0.16.0\","
         "\"format\":\"pack-quantized\",\"quantization_status\":\"compressed\","
         "\"global_compression_ratio\":null,\"ignore\":[\"model.layers.0.mlp.gate\",\"lm_head\"],"
         "\"kv_cache_scheme\":null,\"sparsity_config\":{},\"transform_config\":{},"
         "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],"
         "\"format\":\"pack-quantized\",\"weights\":{\"num_bits\":4,\"type\":\"int\","
         "\"symmetric\":true,\"strategy\":\"group\",\"group_size\":128,\"block_structure\":null,"
         "\"dynamic\":false,\"actorder\":null,\"observer\":\"minmax\",\"observer_kwargs\":{}},"
         "\"input_activations\":null,\"output_activations\":null}}}"},
        {"swage", "{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":2,"
                  "\"bits\":4,\"group_size\":128,\"sym\":true,"
                  "\"ignore\":[\"model.layers.0.mlp.gate\"]}"}};
    const char *ignore[] = {"model.layers.0.mlp.gate"};
    sw_qconfig config = {.spec = {.num = sw_num_by_bits(4), .is_symmetric = true,
                                  .group_elems = 128, .scale_dtype = SW_DTYPE_F16},
                         .ignore = ignore, .n_ignore = 1, .damp = 0.01};

    (void)state;
    for (int i = 0; i < 3; i++) {
        cJSON *object = NULL;
        sw_err err = {0};
        assert_int_equal(row(rows[i].dialect)->write_config(&object, &config, &err), SW_OK);
        char *have = cJSON_PrintUnformatted(object);
        assert_string_equal(have, rows[i].want);
        cJSON_free(have);
        cJSON_Delete(object);
    }
}

static void configs_come_back(void **state)
{
    static const int widths[] = {2, 3, 4, 8};
    static const int64_t groups[] = {0, 32, 64, 128};
    const char *ignore[] = {"lm_head", "model.layers.1.mlp.experts.3.up_proj"};

    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++)
        for (int i = 0; i < 32; i++) {
            if (!sw_gen_holds_integers(*d)) continue; /* tests of its own */
            sw_qconfig config = {.spec = {.num = sw_num_by_bits(widths[i % 4]),
                                  .is_symmetric = i / 4 % 2, .group_elems = groups[i / 8],
                                  .scale_dtype = SW_DTYPE_F16, .zero_min = 1},
                                 .ignore = ignore, .n_ignore = 2};
            sw_qconfig back = {.spec = {.scale_dtype = SW_DTYPE_F16}};
            sw_arena arena = {0};
            sw_err err = {0};
            cJSON *object = NULL;
            assert_int_equal((*d)->write_config(&object, &config, &err), SW_OK);
            assert_ptr_equal(sw_dialect_detect(object), *d);
            assert_int_equal((*d)->read_config(&back, object, &arena, &err), SW_OK);
            assert_ptr_equal(back.spec.num, config.spec.num);
            assert_int_equal(back.spec.is_symmetric, config.spec.is_symmetric);
            assert_int_equal(back.spec.group_elems, config.spec.group_elems);
            assert_int_equal(back.n_ignore, 2);
            for (int k = 0; k < 2; k++) assert_string_equal(back.ignore[k], ignore[k]);
            cJSON_Delete(object);
            sw_arena_free(&arena);
        }
}

typedef struct foreign {
    const char *text, *dialect;
    int bits, group;
    bool is_symmetric;
} foreign;

#define CT_HEAD "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":"
#define CT_W4 "{\"num_bits\":4,\"group_size\":128,\"strategy\":\"group\"}"

static void what_others_write_is_read(void **state)
{
    static const foreign rows[] = {
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"desc_act\":false}", "gptq", 4,
         128, true},
        {"{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":-1,\"desc_act\":true,\"sym\":false,"
         "\"checkpoint_format\":\"gptq_v2\",\"dynamic\":null}", "gptq_v2", 3, 0, false},
        {"{\"method\":\"gptq\",\"wbits\":8,\"q_group_size\":32,\"zero_point\":true,"
         "\"format\":\"gptq\",\"is_marlin_format\":false,\"unknown\":[1,2]}", "gptq", 8, 32, false},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"sym\":true,"
         "\"dynamic\":{\"-:.*gate.*\":{},\"-:^lm_head$\":{}}}", "gptq", 4, 128, true},
        {CT_HEAD "{\"weights\":" CT_W4 "}}}", "compressed-tensors", 4, 128, true},
        {CT_HEAD "{\"weights\":{\"num_bits\":8,\"group_size\":-1,\"symmetric\":false,"
         "\"actorder\":\"static\"},\"input_activations\":null}},\"format\":\"pack-quantized\"}",
         "compressed-tensors", 8, 0, false},
        {CT_HEAD "{\"weights\":{\"num_bits\":4,\"group_size\":128,\"actorder\":\"group\"}}}}",
         "compressed-tensors", 4, 128, true},
        {CT_HEAD "{\"weights\":{\"num_bits\":4,\"group_size\":128,\"actorder\":true}}}}",
         "compressed-tensors", 4, 128, true},
        {CT_HEAD "{\"weights\":" CT_W4 ",\"format\":\"pack-quantized\"},\"group_1\":{\"weights\":"
         CT_W4 "}},\"format\":\"mixed-precision\",\"sparsity_config\":{\"format\":\"dense\"}}",
         "compressed-tensors", 4, 128, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *object = parse(rows[i].text);
        const sw_dialect *dialect = sw_dialect_detect(object);
        sw_qconfig config = {0};
        sw_arena arena = {0};
        sw_err err = {0};
        assert_ptr_equal(dialect, row(rows[i].dialect));
        if (dialect->read_config(&config, object, &arena, &err) != SW_OK)
            fail_msg("row %zu: %s", i, err.text);
        assert_int_equal(config.spec.num->bits, rows[i].bits);
        assert_int_equal(config.spec.group_elems, rows[i].group);
        assert_int_equal(config.spec.is_symmetric, rows[i].is_symmetric);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

typedef struct refusal {
    const char *text;
    sw_code code;
    const char *reason;
} refusal;

#define GPTQ "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,"

static const refusal refusals[] = {
    {"{\"quant_method\":\"gptq\",\"group_size\":128}", SW_E_FORMAT, "no \"bits\""},
    {"{\"quant_method\":\"gptq\",\"bits\":4}", SW_E_FORMAT, "no \"group_size\""},
    {"{\"quant_method\":\"gptq\",\"bits\":5,\"group_size\":128}", SW_E_UNSUPPORTED, "5-bit"},
    {"{\"quant_method\":\"gptq\",\"bits\":4.5,\"group_size\":128}", SW_E_FORMAT, "bits"},
    {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}", SW_E_UNSUPPORTED, "group_size"},
    {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-2}", SW_E_FORMAT, "group_size"},
    {GPTQ "\"sym\":\"yes\"}", SW_E_FORMAT, "sym"},
    {GPTQ "\"checkpoint_format\":\"marlin_24\"}", SW_E_UNSUPPORTED, "\"marlin_24\""},
    {GPTQ "\"is_marlin_format\":true,\"desc_act\":true}", SW_E_UNSUPPORTED, "desc_act"},
    {GPTQ "\"pack_dtype\":\"int16\"}", SW_E_UNSUPPORTED, "int16"},
    {GPTQ "\"dynamic\":[1]}", SW_E_FORMAT, "dynamic"},
    {"{\"quant_method\":\"compressed-tensors\"}", SW_E_FORMAT, "no config_groups"},
    {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}",
     SW_E_UNSUPPORTED, "marlin-24"},
    {CT_HEAD "{}}}", SW_E_FORMAT, "group_0 has no weights"},
    {CT_HEAD "{\"weights\":{\"num_bits\":6,\"type\":\"float\"}}}}", SW_E_UNSUPPORTED, "float"},
    {CT_HEAD "{\"weights\":{\"num_bits\":8}}}}", SW_E_UNSUPPORTED, "\"tensor\""},
    {CT_HEAD "{\"weights\":{\"num_bits\":4,\"strategy\":\"group\"}}}}", SW_E_FORMAT,
     "without a group_size"},
    {CT_HEAD "{\"weights\":{\"num_bits\":4,\"strategy\":\"channel\",\"group_size\":64}}}}",
     SW_E_FORMAT,
     "weights: group_size is 64 under strategy \"channel\""},
    {CT_HEAD "{\"weights\":" CT_W4 ",\"input_activations\":{\"num_bits\":8,\"dynamic\":true,"
     "\"strategy\":\"token\",\"group_size\":64}}}}", SW_E_FORMAT,
     "input_activations: group_size is 64 under strategy \"token\""},
    {CT_HEAD "{\"weights\":" CT_W4 ",\"input_activations\":{\"num_bits\":8}}}}",
     SW_E_UNSUPPORTED, "input_activations"},
    {CT_HEAD "{\"weights\":" CT_W4 ",\"format\":\"int-quantized\"}}}", SW_E_UNSUPPORTED,
     "int-quantized"},
    {CT_HEAD "{\"weights\":" CT_W4 "}},\"kv_cache_scheme\":{\"num_bits\":4}}",
     SW_E_UNSUPPORTED, "kv_cache_scheme: floats or symmetric integers of 8 bits"},
    {CT_HEAD "{\"weights\":" CT_W4 "}},\"transform_config\":{\"a\":1}}", SW_E_UNSUPPORTED,
     "transforms"},
    {CT_HEAD "{\"weights\":" CT_W4 "}},\"sparsity_config\":{\"format\":\"sparse-24\"}}",
     SW_E_UNSUPPORTED, "sparse"},
    {CT_HEAD "{\"weights\":" CT_W4 "}},\"quantization_status\":\"frozen\"}", SW_E_UNSUPPORTED,
     "frozen"},
    {CT_HEAD "{\"weights\":" CT_W4 "}},\"ignore\":[1]}", SW_E_FORMAT, "ignore"},
    {"{\"quant_method\":\"swage\",\"bits\":4}", SW_E_UNSUPPORTED, "layout"},
    {"{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":3,\"bits\":4}",
     SW_E_UNSUPPORTED, "version 2"},
    {"{\"quant_method\":\"swage\",\"layout\":\"swage-tiles\",\"layout_version\":1,\"bits\":2}",
     SW_E_UNSUPPORTED, "version 1"},
};

static void what_cannot_be_served_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        cJSON *object = parse(refusals[i].text);
        const sw_dialect *dialect = sw_dialect_detect(object);
        sw_qconfig config, untouched;
        sw_arena arena = {0};
        sw_err err = {0};
        memset(&config, 0x5a, sizeof config);
        untouched = config;
        assert_non_null(dialect);
        if (dialect->read_config(&config, object, &arena, &err) != refusals[i].code)
            fail_msg("row %zu: code %d: %s", i, err.code, err.text);
        expect_text(err.text, refusals[i].reason);
        assert_memory_equal(&config, &untouched, sizeof config);
        cJSON_Delete(object);
        sw_arena_free(&arena);
    }
}

static void what_nobody_claims(void **state)
{
    static const char *const rows[] = {
        "{}", "[]", "null", "{\"quant_method\":\"exl3\"}", "{\"quant_method\":4}",
        "{\"bits\":4,\"group_size\":128}"};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *object = parse(rows[i]);
        assert_null(sw_dialect_detect(object));
        cJSON_Delete(object);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete),
        cmocka_unit_test(gptq_bytes_by_hand),
        cmocka_unit_test(gptq_v1_zero_points_are_read_field_by_field),
        cmocka_unit_test(symmetric_zeros_of_the_other_version_are_refused),
        cmocka_unit_test(a_g_idx_beyond_the_groups_is_refused),
        cmocka_unit_test(compressed_tensors_bytes_by_hand),
        cmocka_unit_test(two_groups_lie_where_the_shapes_say),
        cmocka_unit_test(declared_tensors),
        cmocka_unit_test(gptq_v1_wants_zero_points_from_one),
        cmocka_unit_test(what_a_dialect_cannot_hold_is_explained),
        cmocka_unit_test(written_configs_are_what_loaders_expect),
        cmocka_unit_test(configs_come_back),
        cmocka_unit_test(what_others_write_is_read),
        cmocka_unit_test(what_cannot_be_served_is_refused_by_name),
        cmocka_unit_test(what_nobody_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
