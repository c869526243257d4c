/* test_report.c - the report as JSON and as a table: what must be in them, what JSON cannot say,
 * and that neither loses a finding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cases/printed_report.h"

static const sw_report_tensor made_up[] = {
    {.name = "a.q_proj", .n_out = 64, .k_in = 128, .group_elems = 0, .bits = 4,
     .is_symmetric = true, .scale_min = 0.5, .scale_max = 2, .weight_err = 0.1,
     .weight_bound = 0.4, .step_rms = 1.5, .cosine = 0.99, .worst_cell = 1.1, .rounded = 0.8,
     .output_err = 0.05},
    {.name = "a.k_proj", .n_out = 64, .k_in = 128, .group_elems = 32, .bits = 4,
     .scale_min = 0.5, .scale_max = 2, .weight_err = 0.2, .weight_bound = 0.4, .step_rms = 1,
     .cosine = 0.98, .worst_cell = 1, .rounded = 1, .output_err = -1},
};

static void make(sw_report *r)
{
    sw_err err = {0};

    memset(r, 0, sizeof *r);
    r->checkpoint_dir = "out";
    r->original_dir = "model";
    r->dialect = "swage";
    r->scheme = "4 bits, group 128, symmetric";
    r->architecture = "llama";
    assert_int_equal(SW_ARENA_TAKE(&r->tensors, &r->arena, 2, &err), SW_OK);
    memcpy(r->tensors, made_up, sizeof made_up);
    r->n_tensors = 2;
    r->coverage = (sw_report_coverage){.is_measured = true, .n_original = 5, .n_identical = 3,
                                       .n_quantized = 2};
    r->eval = (sw_report_eval){
        .is_measured = true, .has_original = true, .window = 512, .n_windows = 3,
        .n_predictions = 1533, .bootstrap = {0, 1000, 0.95}, .nll = {3, 2.9, 3.1},
        .ppl = {20, 18, 22}, .nll_original = {2.9, 2.8, 3}, .ppl_original = {18, 16, 20},
        .nll_diff = {0.1, -0.1, 0.3}, .ppl_ratio = {1.1, 0.9, 1.35}, .kl = {0.06, 0.05, 0.07},
        .kl_p99 = 0.5, .kl_max = 2, .top1 = {0.9, 0.88, 0.92},
        .gap = {true, 4, 3.000001, 3, 2.5e-7, 1e-12}};
    r->gates[SW_GATE_MAX_KL] = (sw_gate){.is_set = true, .limit = 0.05};
    sw_report_judge(r);
}

static const cJSON *at(const cJSON *object, const char *a, const char *b)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, a);

    if (b) member = cJSON_GetObjectItemCaseSensitive(member, b);
    if (!member) fail_msg("no %s %s in the report", a, b ? b : "");
    return member;
}

static void json_holds_the_figures(void **state)
{
    cJSON *json = NULL;
    const cJSON *tensors, *gate;
    sw_report r;
    sw_err err = {0};

    (void)state;
    make(&r);
    r.eval.kl_max = (double)INFINITY;
    assert_int_equal(sw_report_json(&json, &r, &err), SW_OK);
    assert_int_equal(at(json, "report_version", NULL)->valueint, 1);
    assert_non_null(strstr(at(json, "tool", NULL)->valuestring, SW_VERSION));
    assert_string_equal(at(json, "verdict", NULL)->valuestring, "failed");
    assert_non_null(strstr(at(json, "reason", NULL)->valuestring, "--max-kl"));
    assert_int_equal(at(json, "coverage", "identical")->valueint, 3);
    tensors = at(json, "tensors", NULL);
    assert_int_equal(cJSON_GetArraySize(tensors), 2);
    assert_int_equal(at(cJSON_GetArrayItem(tensors, 0), "group_size", NULL)->valueint, -1);
    assert_true(cJSON_IsNull(at(cJSON_GetArrayItem(tensors, 1), "output_error", NULL)));
    assert_true(cJSON_IsNull(at(at(json, "evaluation", NULL), "kl_max", NULL)));
    assert_int_equal(at(at(json, "evaluation", NULL), "kernel_gap", "windows")->valueint, 4);
    assert_true(cJSON_IsFalse(at(at(json, "evaluation", NULL), "difference_is_significant",
                                 NULL)));
    gate = at(json, "gates", "max_kl");
    assert_true(cJSON_IsFalse(at(gate, "passed", NULL)));
    assert_float_equal(at(gate, "have", NULL)->valuedouble, 0.06, 0);
    assert_null(cJSON_GetObjectItemCaseSensitive(at(json, "gates", NULL), "min_top1"));
    cJSON_Delete(json);
    sw_report_free(&r);
}

static void table_says_what_decides(void **state)
{
    static const char *const words[] = {
        "swage, 4 bits, group 128, symmetric", "5 in the original: 2 quantized, 3 bit-identical",
        "not significant", "2.50e-07  relative, of logits",
        "KL(original || checkpoint)", "top-1 agreement", "90.000%",
        "gate        max_kl: have 0.06, limit 0.05, FAILED", "verdict     FAILED: --max-kl",
    };
    char *text;
    sw_report r;

    (void)state;
    make(&r);
    text = printed_report(&r, 0);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i])) fail_msg("no \"%s\" in:\n%s", words[i], text);
    assert_true(strstr(text, "a.k_proj") < strstr(text, "a.q_proj")); /* the worst first */
    assert_in_range(widest_line(text, "verdict"), 60, 100);
    free(text);
    sw_report_free(&r);
}

/* On a terminal lines continue on the next one; no number is cut, and no word is lost. */
static void tables_fit_the_terminal(void **state)
{
    static const char *const whole[] = {"20.000%", "0.980000", "2.50e-07", "90.000%", "limit"};
    char *wide, *text;
    sw_report r;

    (void)state;
    make(&r);
    wide = printed_report(&r, 0);
    for (int columns = 60; columns <= 120; columns += 20) {
        text = printed_report(&r, columns);
        if (widest_line(text, NULL) > columns) fail_msg("%d columns:\n%s", columns, text);
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
            if (!strstr(text, whole[i]))
                fail_msg("%d columns: no %s in:\n%s", columns, whole[i], text);
            assert_non_null(strstr(wide, whole[i]));
        }
        for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n"))
            if (!strstr(wide, word)) fail_msg("%d columns: %s", columns, word);
        free(text);
    }
    free(wide);
    sw_report_free(&r);
}

static void findings_are_kept_counted_and_capped(void **state)
{
    char *text;
    cJSON *json = NULL;
    sw_report r;
    sw_err err = {0}, verdict = {0};

    (void)state;
    make(&r);
    for (int i = 0; i < SW_FINDINGS_MAX + 5; i++)
        assert_int_equal(sw_report_find(&r, "decode", "a.q_proj", &err, "scale %d is nan", i),
                         SW_OK);
    for (int i = 0; i < SW_REMARKS_MAX + 2; i++)
        assert_int_equal(sw_report_remark(&r, &err, "no. %d is gone", i), SW_OK);
    assert_int_equal(r.n_remarks, SW_REMARKS_MAX + 2);
    assert_int_equal(r.n_findings, SW_FINDINGS_MAX + 5);
    assert_int_equal(sw_report_verdict(&r, &verdict), SW_E_GATE);
    assert_non_null(strstr(verdict.text, "1005 findings, first: decode: scale 0 is nan"));
    assert_int_equal(sw_report_json(&json, &r, &err), SW_OK);
    assert_int_equal(cJSON_GetArraySize(at(json, "findings", NULL)), SW_FINDINGS_MAX);
    assert_int_equal(at(json, "n_findings", NULL)->valueint, SW_FINDINGS_MAX + 5);
    assert_int_equal(cJSON_GetArraySize(at(json, "remarks", NULL)), SW_REMARKS_MAX);
    text = printed_report(&r, 0);
    assert_non_null(strstr(text, "and 985 more"));
    assert_non_null(strstr(text, "remark      no. 3 is gone\n"));
    cJSON_Delete(json);
    free(text);
    sw_report_free(&r);
}

static void a_gate_without_figures_fails(void **state)
{
    sw_report r;
    sw_err err = {0};

    (void)state;
    make(&r);
    r.eval = (sw_report_eval){.is_measured = false};
    r.gates[SW_GATE_MAX_KL].limit = 100;
    sw_report_judge(&r);
    assert_int_equal(sw_report_verdict(&r, &err), SW_E_GATE);
    sw_report_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_holds_the_figures),
        cmocka_unit_test(table_says_what_decides),
        cmocka_unit_test(tables_fit_the_terminal),
        cmocka_unit_test(findings_are_kept_counted_and_capped),
        cmocka_unit_test(a_gate_without_figures_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
