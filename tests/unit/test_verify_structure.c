/* test_verify_structure.c - checkpoints whose config and tensors do not agree, tensors that are there
 * twice or hold no numbers, and models that are not quantized: found, or judged as what they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/num/half.h"
#include "tests/support/edit_json.h"
#include "tests/support/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/verify_case.h"
#include "tools/convert_job.h"

#define MOE "tests/golden/arch/qwen3_moe"

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
        {"compressed-tensors", GROUP "format", "\"float-quantized\"", "config", "float-quantized"},
        {"compressed-tensors", QC "ignore", "[\"re:(\"]", "config", "is no pattern"},
        {"compressed-tensors", GROUP "targets", "[\"re:.*mlp.*\", \"re:.*attn.*\"]", NULL, NULL},
        {"gptq", QC "dynamic", "{\"-:^model.layers.0.self_attn.q_proj$\": {}}", "config", STORED},
        {"gptq", QC "lm_head", "true", "config", "lm_head is not stored quantized"},
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

static void convert(const char *source, const char *out, const char *to)
{
    const sw_convert_options o = {.source_dir = source, .out_dir = out, .format = to, .n_threads = 1};
    sw_convert_report report = {0};
    sw_err err = {0};

    if (sw_convert_run(&report, &o, &err) != SW_OK) fail_msg("%s", err.text);
    sw_convert_report_free(&report);
}

int main(void) { return 0; }
