/* test_verify_structure.c - checkpoints whose config and tensors do not agree, tensors that are
 * there twice or hold no numbers: found. Chains of conversions and models that are not quantized
 * are judged as what they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/edit_json.h"
#include "tests/support/scratch.h"
#include "tools/convert/convert_job.h"

static void judge(sw_report *r, const char *dir, const char *original, bool with_text)
{
    sw_verify_options o = verify_options_for(dir);

    o.original_dir = original;
    o.n_texts = with_text ? 1 : 0;
    o.gap_windows = -1;
    verify_run(r, &o);
}

/* With an original and without one. */
static void expect_both(const char *dir, const char *original, const char *what, const char *says)
{
    sw_report r;

    judge(&r, dir, original, false);
    verify_expect_fail(&r, what, says);
    sw_report_free(&r);
    judge(&r, dir, NULL, false);
    verify_expect_fail(&r, what, says);
    sw_report_free(&r);
}

typedef struct claim {
    const char *dialect, *path, *value; /* a member of config.json */
    const char *what, *says;            /* NULL: it passes */
} claim;

#define QC "quantization_config."
#define GROUP QC "config_groups.group_0."
#define LAYER "model.layers.0.self_attn.q_proj"
#define STORED LAYER " is stored quantized"

static void configs_that_deny_what_is_stored_fail(void **state)
{
    static const claim rows[] = {
        {"compressed-tensors", GROUP "targets", "[]", "config", STORED},
        {"compressed-tensors", GROUP "targets", "[\"re:.*mlp.*\"]", "config", STORED},
        {"compressed-tensors", GROUP "targets", "[\"Conv1d\"]", "config", STORED},
        {"compressed-tensors", QC "ignore", "[\"re:.*q_proj\", \"lm_head\"]", "config", STORED},
        {"compressed-tensors", QC "ignore", "[]", "config", "lm_head is not stored quantized"},
        {"compressed-tensors", GROUP "format", "\"int-quantized\"", "decode", ""},
        {"compressed-tensors", QC "ignore", "[\"re:(\"]", "config", "is no pattern"},
        {"compressed-tensors", GROUP "targets", "[\"re:.*mlp.*\", \"re:.*attn.*\"]", NULL, NULL},
        {"gptq", QC "dynamic", "{\"-:^model.layers.0.self_attn.q_proj$\": {}}", "config", STORED},
        {"compressed-tensors", QC "transform_config", "{\"r\": 1}", "config", "transform_config"},
        {"gptq", QC "dynamic", "{\"-:^lm_head$\": {}}", NULL, NULL},
        {"gptq", QC "modules_in_block_to_quantize", "[[\"mlp.up_proj\"]]", "config", STORED},
        {"awq", QC "modules_to_not_convert", "[\"self_attn\"]", "config", STORED},
        {"swage", QC "ignore", "[\"" LAYER "\"]", "config", STORED},
        {"swage", "quantization_config", NULL, "missing", LAYER},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *dir;
        sw_report r;
        scratch s;

        scratch_open(&s);
        dir = scratch_path(&s, "q");
        quantized_dir_make(dir, VERIFY_MODEL, rows[i].dialect, 4, true, 32);
        edit_remove(dir, "manifest.json");
        edit_json(dir, "config.json", rows[i].path, rows[i].value);
        if (rows[i].what) {
            expect_both(dir, VERIFY_MODEL, rows[i].what, rows[i].says);
        } else {
            judge(&r, dir, VERIFY_MODEL, false);
            verify_expect_pass(&r);
            sw_report_free(&r);
        }
        scratch_close(&s);
    }
}

#define WEIGHTS GROUP "weights."
#define INPUTS GROUP "input_activations."

/* Fields that decoding does not need: loaders refuse them, or go by them. */
static void config_groups_that_contradict_themselves_fail(void **state)
{
    static const struct {
        const char *dialect, *scheme, *path, *value, *says; /* says NULL: it passes */
    } rows[] = {
        {"compressed-tensors", "FP8_DYNAMIC", WEIGHTS "group_size", "64",
         "group_0.weights.group_size is 64 under strategy \"channel\""},
        {"compressed-tensors", "FP8_DYNAMIC", WEIGHTS "group_size", "-1", NULL},
        {"compressed-tensors", "FP8_DYNAMIC", WEIGHTS "symmetric", "false",
         "group_0.weights.symmetric is false"},
        {"compressed-tensors", "FP8_DYNAMIC", WEIGHTS "dynamic", "true", "weights.dynamic is true"},
        {"compressed-tensors", "FP8_DYNAMIC", WEIGHTS "block_structure", "[64, 64]",
         "weights.block_structure"},
        {"compressed-tensors", "FP8_DYNAMIC", WEIGHTS "actorder", "\"static\"", NULL},
        {"compressed-tensors", "FP8_DYNAMIC", WEIGHTS "actorder", "\"group\"", "weights.actorder"},
        {"compressed-tensors", "FP8_DYNAMIC", INPUTS "group_size", "64",
         "input_activations.group_size is 64"},
        {"compressed-tensors", "MXFP8", INPUTS "group_size", "64",
         "input_activations.group_size is 64 under strategy \"group\": weights have scales"},
        {"compressed-tensors", "W8A16", WEIGHTS "group_size", "64", "weights.group_size is 64"},
        {"compressed-tensors", "W8A8", WEIGHTS "symmetric", "false", "weights.symmetric is false"},
        {"compressed-tensors", "NVFP4A16", WEIGHTS "symmetric", "false", "weights.symmetric"},
        {"compressed-tensors", "NVFP4A16", WEIGHTS "actorder", "\"group\"", NULL},
        {"compressed-tensors", "MXFP8", WEIGHTS "symmetric", "false", "weights.symmetric is false"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *dir;
        sw_report r;
        scratch s;

        scratch_open(&s);
        dir = scratch_path(&s, "q");
        quantized_dir_of_scheme(dir, VERIFY_MODEL, rows[i].dialect, rows[i].scheme);
        edit_remove(dir, "manifest.json");
        edit_json(dir, "config.json", rows[i].path, rows[i].value);
        if (rows[i].says) {
            expect_both(dir, VERIFY_MODEL, "config", rows[i].says);
        } else {
            judge(&r, dir, VERIFY_MODEL, false);
            verify_expect_pass(&r);
            sw_report_free(&r);
        }
        scratch_close(&s);
    }
}

/* modelopt: a second time what the rest of the config says. One loader takes the group size from
 * there, when it stands nowhere else. */
static void config_groups_of_modelopt_must_agree_where_they_are_read(void **state)
{
    const char *dir;
    sw_report r;
    scratch s;

    (void)state;
    scratch_open(&s);
    dir = scratch_path(&s, "q");
    quantized_dir_of_scheme(dir, VERIFY_MODEL, "modelopt", "NVFP4A16");
    edit_remove(dir, "manifest.json");
    edit_json(dir, "config.json", WEIGHTS "group_size", "64");
    judge(&r, dir, VERIFY_MODEL, false);
    verify_expect_pass(&r);
    assert_int_equal(r.n_remarks, 1);
    assert_non_null(strstr(r.remarks[0], "group_0.weights.group_size is 64, and 16 is stored"));
    sw_report_free(&r);
    edit_json(dir, "config.json", QC "group_size", NULL);
    expect_both(dir, VERIFY_MODEL, "config", "group_0.weights.group_size is 64, and 16 is stored");
    edit_json(dir, "config.json", WEIGHTS "group_size", "16");
    judge(&r, dir, VERIFY_MODEL, false);
    verify_expect_pass(&r);
    assert_int_equal(r.n_remarks, 0);
    sw_report_free(&r);
    scratch_close(&s);
}

/* "modules" has a scheme for every linear, so that nothing goes by the one outside. */
static void a_scheme_of_no_linear_is_remarked(void **state)
{
    static const char *const bits[] = {"4", "8"};
    char modules[4096];
    size_t at = 0;
    sw_st *st = NULL;
    sw_err err = {0};
    const char *dir;
    sw_report r;
    scratch s;

    (void)state;
    scratch_open(&s);
    dir = scratch_path(&s, "q");
    quantized_dir_make(dir, VERIFY_MODEL, "swage", 4, true, 32);
    edit_remove(dir, "manifest.json");
    assert_int_equal(sw_st_open(&st, dir, &err), SW_OK);
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const char *name = sw_st_at(st, i)->name, *end = strstr(name, ".tiles");

        if (end)
            at += (size_t)snprintf(modules + at, sizeof modules - at, "%s\"%.*s\": {\"bits\": 4}",
                                   at ? ", " : "{", (int)(end - name), name);
        assert_true(at + 1 < sizeof modules);
    }
    sw_st_close(st);
    (void)snprintf(modules + at, sizeof modules - at, "}");
    edit_json(dir, "config.json", QC "modules", modules);
    for (int i = 0; i < 2; i++) {
        edit_json(dir, "config.json", QC "bits", bits[i]);
        judge(&r, dir, VERIFY_MODEL, false);
        verify_expect_pass(&r);
        assert_int_equal(r.n_remarks, i);
        if (i) assert_non_null(strstr(r.remarks[0], "quantization_config says 8 bits"));
        sw_report_free(&r);
    }
    scratch_close(&s);
}

/* What engines read instead of config.json, or where it does not tell them to look. */
static void other_files_and_orders_must_agree(void **state)
{
    static const uint8_t one[4] = {1, 0, 0, 0};
    const char *dir;
    scratch s;

    (void)state;
    scratch_open(&s);
    dir = scratch_path(&s, "q");
    quantized_dir_make(dir, VERIFY_MODEL, "gptq_v2", 4, true, 32);
    edit_remove(dir, "manifest.json");
    edit_copy(s.dir, dir, "quantize_config.json");
    edit_json(dir, "quantize_config.json", "group_size", "64");
    expect_both(dir, VERIFY_MODEL, "config", "quantize_config.json: group_size is 64");
    edit_copy(dir, s.dir, "quantize_config.json");
    edit_cut(dir, "quantize_config.json", 30);
    expect_both(dir, VERIFY_MODEL, "broken", "quantize_config.json");
    edit_copy(dir, s.dir, "quantize_config.json");
    edit_tensor(dir, LAYER ".g_idx", 0, one, 4); /* input 0 and input 32 trade groups */
    edit_tensor(dir, LAYER ".g_idx", 128, "\0\0\0\0", 4);
    expect_both(dir, VERIFY_MODEL, "config", LAYER ".g_idx: input 0");
    scratch_close(&s);
}

/* The original's own floats beside the codes: what engines take is theirs to choose. */
static void a_linear_in_two_forms_fails(void **state)
{
    static const char *const dialects[] = {"compressed-tensors", "gptq", "awq", "swage"};

    (void)state;
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        const char *name = "model.layers.1.mlp.up_proj.weight", *dir;
        const sw_st_tensor *t;
        sw_st *st = NULL;
        sw_err err = {0};
        sw_report r;
        scratch s;

        scratch_open(&s);
        dir = scratch_path(&s, "q");
        quantized_dir_make(dir, VERIFY_MODEL, dialects[i], 4, true, 32);
        assert_int_equal(sw_st_open(&st, VERIFY_MODEL, &err), SW_OK);
        assert_non_null(t = sw_st_find(st, name));
        edit_add_tensor(dir, name, t->view.dtype, t->view.shape[0], t->view.shape[1], t->view.data);
        sw_st_close(st);
        expect_both(dir, VERIFY_MODEL, "twice", name);
        judge(&r, dir, VERIFY_MODEL, true); /* no crash, and no run, with a text */
        verify_expect_fail(&r, "twice", name);
        assert_false(r.eval.is_measured);
        sw_report_free(&r);
        scratch_close(&s);
    }
}

static void a_part_without_use_fails(void **state)
{
    static const float one = 1;
    const char *name = LAYER ".input_scale", *dir;
    scratch s;

    (void)state;
    scratch_open(&s);
    dir = scratch_path(&s, "q");
    quantized_dir_make(dir, VERIFY_MODEL, "compressed-tensors", 4, true, 32);
    edit_add_tensor(dir, name, SW_DTYPE_F32, 1, 1, &one);
    expect_both(dir, VERIFY_MODEL, "unexpected", name);
    scratch_close(&s);
}

static void what_is_no_number_fails(void **state)
{
    static const struct {
        const char *tensor;
        size_t at;
        uint16_t bits; /* bf16 */
    } rows[] = {
        {"model.norm.weight", 6, 0x7f80},
        {"model.layers.0.input_layernorm.weight", 0, 0x7fc0},
        {"model.embed_tokens.weight", 4000, 0xff80},
        {"lm_head.weight", 128, 0x7fff},
    };
    const char *dir;
    scratch s;

    (void)state;
    scratch_open(&s);
    dir = scratch_path(&s, "q");
    quantized_dir_make(dir, VERIFY_MODEL, "swage", 4, true, 32);
    edit_remove(dir, "manifest.json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        edit_copy(s.dir, dir, "model.safetensors");
        edit_tensor(dir, rows[i].tensor, rows[i].at, &rows[i].bits, 2);
        expect_both(dir, VERIFY_MODEL, "not finite", rows[i].tensor);
        edit_copy(dir, s.dir, "model.safetensors");
    }
    scratch_close(&s);
}

static void convert(const scratch *s, const char *from, const char *to, const char *dialect)
{
    const sw_dialect *dense = sw_dense_find(dialect);
    const sw_convert_options o = {.source_dir = strchr(from, '/') ? from : scratch_path(s, from),
                                  .out_dir = scratch_path(s, to),
                                  .target = dense ? dense : sw_dialect_find(dialect),
                                  .n_threads = 1};
    sw_convert_job *job = calloc(1, sizeof *job);
    sw_err err = {0};
    sw_code rc;

    assert_non_null(job);
    if ((rc = sw_convert_plan(job, &o, NULL, &err)) == SW_OK) rc = sw_convert_run(job, &err);
    if (rc != SW_OK) fail_msg("%s", err.text);
    sw_convert_free(job);
    free(job);
}

/* The way that is recommended: tiles, then the format of an engine; and on from there. */
static void chains_are_followed_to_the_original(void **state)
{
    static const char *const ways[][2] = {{"a", "compressed-tensors"}, {"b", "gptq_v2"},
                                          {"c", "swage"}};
    scratch s;
    sw_report r;

    (void)state;
    scratch_open(&s);
    quantized_dir_make(scratch_path(&s, "a"), VERIFY_MODEL, "swage", 4, true, 32);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char to[2] = {(char)(ways[i][0][0] + 1), '\0'};

        convert(&s, ways[i][0], to, ways[i][1]);
        judge(&r, scratch_path(&s, to), VERIFY_MODEL, false);
        verify_expect_pass(&r);
        sw_report_free(&r);
        judge(&r, scratch_path(&s, to), scratch_path(&s, ways[i][0]), false); /* its own source */
        verify_expect_pass(&r);
        sw_report_free(&r);
    }
    /* one norm is enough to be another original, wherever in the chain */
    convert(&s, VERIFY_MODEL, "other", "bf16");
    edit_tensor(scratch_path(&s, "other"), "model.norm.weight", 0, "\x01", 1);
    edit_remove(scratch_path(&s, "other"), "manifest.json");
    quantized_dir_make(scratch_path(&s, "e"), scratch_path(&s, "other"), "swage", 4, true, 32);
    convert(&s, "e", "f", "compressed-tensors");
    judge(&r, scratch_path(&s, "f"), VERIFY_MODEL, false);
    verify_expect_fail(&r, "other original", "of the original has SHA-256");
    sw_report_free(&r);
    scratch_close(&s);
}

/* A manifest that does not tell its source's: said, and left to the tensors. */
static void an_unknown_source_is_remarked(void **state)
{
    scratch s;
    sw_report r;

    (void)state;
    scratch_open(&s);
    quantized_dir_make(scratch_path(&s, "a"), VERIFY_MODEL, "swage", 4, true, 32);
    convert(&s, "a", "b", "compressed-tensors");
    edit_json(scratch_path(&s, "b"), "manifest.json", "origin", NULL);
    judge(&r, scratch_path(&s, "b"), VERIFY_MODEL, false);
    verify_expect_pass(&r);
    assert_int_equal(r.n_remarks, 1);
    sw_report_free(&r);
    scratch_close(&s);
}

static void a_plain_model_is_judged_too(void **state)
{
    static const uint16_t other = 0x3f80; /* 1 in bf16 */
    sw_report r;
    scratch s;

    (void)state;
    scratch_open(&s);
    judge(&r, VERIFY_MODEL, NULL, true);
    verify_expect_pass(&r);
    assert_true(r.eval.is_measured && r.eval.ppl.at > 1 && r.n_tensors == 0);
    assert_string_equal(r.dialect, "plain");
    sw_report_free(&r);
    quantized_dir_make(scratch_path(&s, "a"), VERIFY_MODEL, "gptq_v2", 4, false, 32);
    convert(&s, "a", "b", "bf16");
    judge(&r, scratch_path(&s, "b"), scratch_path(&s, "a"), true);
    verify_expect_pass(&r);
    assert_true(r.eval.has_original && r.eval.kl.at < 1e-3);
    sw_report_free(&r);
    edit_remove(scratch_path(&s, "b"), "manifest.json");
    edit_tensor(scratch_path(&s, "b"), LAYER ".weight", 256, &other, 2);
    judge(&r, scratch_path(&s, "b"), scratch_path(&s, "a"), false);
    verify_expect_fail(&r, "differs", LAYER ": channel 1, input 0 is 1");
    sw_report_free(&r);
    scratch_close(&s);
}

/* Floats rounded to another dtype are the original's; anything else in them is not. */
static void casts_are_exact_roundings(void **state)
{
    static const uint16_t bits = 0x3c01;
    sw_report r;
    scratch s;

    (void)state;
    scratch_open(&s);
    convert(&s, VERIFY_MODEL, "half", "f16");
    judge(&r, scratch_path(&s, "half"), VERIFY_MODEL, false);
    verify_expect_pass(&r);
    assert_true(r.coverage.n_identical + r.coverage.n_rounded == r.coverage.n_original);
    sw_report_free(&r);
    edit_remove(scratch_path(&s, "half"), "manifest.json");
    edit_tensor(scratch_path(&s, "half"), "model.norm.weight", 8, &bits, 2);
    judge(&r, scratch_path(&s, "half"), VERIFY_MODEL, false);
    verify_expect_fail(&r, "differs", "model.norm.weight");
    sw_report_free(&r);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_that_deny_what_is_stored_fail),
        cmocka_unit_test(config_groups_that_contradict_themselves_fail),
        cmocka_unit_test(config_groups_of_modelopt_must_agree_where_they_are_read),
        cmocka_unit_test(a_scheme_of_no_linear_is_remarked),
        cmocka_unit_test(other_files_and_orders_must_agree),
        cmocka_unit_test(a_linear_in_two_forms_fails),
        cmocka_unit_test(a_part_without_use_fails),
        cmocka_unit_test(what_is_no_number_fails),
        cmocka_unit_test(chains_are_followed_to_the_original),
        cmocka_unit_test(an_unknown_source_is_remarked),
        cmocka_unit_test(a_plain_model_is_judged_too),
        cmocka_unit_test(casts_are_exact_roundings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
