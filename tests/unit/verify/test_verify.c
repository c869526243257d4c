/* test_verify.c - whole directories judged: sound ones pass with the right figures, spoilt ones
 * fail for the right reason, and neither depends on the thread count. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/file/safetensors.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/scratch.h"
#include "verify/metrics/perplexity.h"
#include "verify/metrics/windows.h"
#include "verify/verify.h"

#define MOE "tests/golden/arch/qwen3_moe"
#define MOE_TOKENS MOE "/reference.safetensors"
static const struct {
    const char *dialect;
    int bits;
    bool is_symmetric;
    int64_t group;
} schemes[] = {
    {"gptq", 4, true, 64}, {"gptq_v2", 3, false, 32}, {"compressed-tensors", 4, false, 128},
    {"compressed-tensors", 8, true, 0}, {"swage", 4, true, 128}, {"swage", 2, false, 32},
};

static void sound_checkpoints_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        scratch s;
        const char *dir;
        sw_verify_options o;
        sw_report r;

        scratch_open(&s);
        dir = scratch_path(&s, "q");
        quantized_dir_make(dir, VERIFY_MODEL, schemes[i].dialect, schemes[i].bits,
                           schemes[i].is_symmetric, schemes[i].group);
        o = verify_options_for(dir);
        verify_run(&r, &o);
        verify_expect_pass(&r);
        assert_string_equal(r.dialect, schemes[i].dialect);
        assert_int_equal(r.n_tensors, 14);
        assert_int_equal(r.coverage.n_quantized, 14);
        assert_int_equal(r.coverage.n_identical + 14, r.coverage.n_original);
        for (int64_t t = 0; t < r.n_tensors; t++) {
            assert_true(r.tensors[t].rounded >= 0.9999);
            /* random weights: errors of outputs and of weights are alike */
            assert_true(r.tensors[t].weight_err > 0);
            assert_true(r.tensors[t].output_err < 1.6 * r.tensors[t].weight_err);
            assert_true(r.tensors[t].output_err > 0.6 * r.tensors[t].weight_err);
            assert_true(r.tensors[t].step_rms < 1.1);
        }
        assert_int_equal(r.eval.n_predictions, 2 * (VERIFY_WINDOW - 1));
        assert_true(r.eval.gap.is_measured && r.eval.gap.logits_err < 1e-5);
        assert_true(r.eval.kl.at > 0 && r.eval.kl.low <= r.eval.kl.at);
        assert_true(r.eval.kl_p99 <= r.eval.kl_max && r.eval.kl_p99 > r.eval.kl.at);
        sw_report_free(&r);
        scratch_close(&s);
    }
}

/* The original's NLL out of the logits that another implementation computed. */
static double reference_nll(void)
{
    const sw_st_tensor *ids, *logits;
    sw_st *st = NULL;
    sw_err err = {0};
    double sum = 0;

    assert_int_equal(sw_st_open(&st, VERIFY_TOKENS, &err), SW_OK);
    ids = sw_st_find(st, "input_ids");
    logits = sw_st_find(st, "logits");
    for (int64_t row = 0; row < 2 * VERIFY_WINDOW; row++) {
        int64_t vocab = logits->view.shape[2];
        const float *x = (const float *)logits->view.data + row * vocab;

        if (row % VERIFY_WINDOW == VERIFY_WINDOW - 1) continue;
        sum += sw_nll(x, vocab, sw_load_le32((const uint8_t *)ids->view.data + 4 * (row + 1)));
    }
    sw_st_close(st);
    return sum / (2 * (VERIFY_WINDOW - 1));
}

static void figures_follow_from_each_other(void **state)
{
    scratch s;
    sw_verify_options o;
    sw_report r, alone;
    sw_report_eval *e = &r.eval;

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "swage", 4, true, 32);
    verify_run(&r, &o);
    assert_true(fabs(e->nll_original.at - reference_nll()) < 1e-5);
    assert_true(fabs(e->nll.at - e->nll_original.at - e->nll_diff.at) < 1e-12);
    assert_true(fabs(e->ppl_ratio.at - exp(e->nll_diff.at)) < 1e-12);
    assert_true(fabs(e->ppl.at - exp(e->nll.at)) < 1e-9);
    assert_int_equal(e->is_significant, !sw_interval_has_zero(&e->nll_diff));
    o.original_dir = NULL; /* the checkpoint's own figures stay what they were */
    verify_run(&alone, &o);
    verify_expect_pass(&alone);
    assert_true(fabs(alone.eval.nll.at - e->nll.at) < 1e-12);
    assert_false(alone.eval.has_original);
    assert_true(alone.tensors[0].weight_err < 0 && alone.tensors[0].scale_min > 0);
    sw_report_free(&alone);
    sw_report_free(&r);
    scratch_close(&s);
}

static char *json_text(const sw_report *r)
{
    cJSON *json = NULL;
    sw_err err = {0};
    char *text;

    assert_int_equal(sw_report_json(&json, r, &err), SW_OK);
    cJSON_DeleteItemFromObject(json, "seconds");
    text = cJSON_Print(json);
    cJSON_Delete(json);
    assert_non_null(text);
    return text;
}

static void the_report_does_not_depend_on_threads(void **state)
{
    static const int threads[] = {1, 2, 3};
    scratch s;
    sw_verify_options o;
    char *first = NULL;

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "compressed-tensors", 4, false, 32);
    for (int i = 0; i < 3; i++) {
        sw_report r;
        char *text;

        o.n_threads = threads[i];
        verify_run(&r, &o);
        text = json_text(&r);
        if (first) assert_string_equal(text, first);
        else first = strdup(text);
        cJSON_free(text);
        sw_report_free(&r);
    }
    free(first);
    scratch_close(&s);
}

static void experts_are_judged_one_by_one(void **state)
{
    const char *text = MOE_TOKENS;
    scratch s;
    sw_verify_options o;
    sw_report r;
    int n_seen = 0;

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    o.original_dir = MOE;
    o.text_paths = &text;
    quantized_dir_make(o.checkpoint_dir, MOE, "swage", 4, true, 32);
    verify_run(&r, &o);
    verify_expect_pass(&r);
    for (int64_t i = 0; i < r.n_tensors; i++) n_seen += r.tensors[i].output_err > 0;
    assert_true(r.n_tensors > 20 && n_seen > 10);
    assert_true(r.eval.gap.is_measured && r.eval.gap.logits_err < 1e-5);
    sw_report_free(&r);
    scratch_close(&s);
}

static void gates_decide(void **state)
{
    scratch s;
    sw_verify_options o;
    sw_report r;
    sw_err err = {0}, err2 = {0};

    (void)state;
    scratch_open(&s);
    o = verify_options_for(scratch_path(&s, "q"));
    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "swage", 4, true, 32);
    o.has_gate[SW_GATE_MAX_KL] = o.has_gate[SW_GATE_MIN_TOP1] = true;
    o.gate[SW_GATE_MAX_KL] = 1e-9;
    o.gate[SW_GATE_MIN_TOP1] = 0;
    verify_run(&r, &o);
    assert_int_equal(sw_report_verdict(&r, &err), SW_E_GATE);
    assert_non_null(strstr(err.text, "--max-kl failed: have "));
    assert_non_null(strstr(err.text, "want at most 1e-09"));
    assert_null(strstr(err.text, "top1"));
    r.gates[SW_GATE_MAX_KL].limit = 10;
    r.gates[SW_GATE_MIN_TOP1].limit = 1.01;
    sw_report_judge(&r);
    assert_int_equal(sw_report_verdict(&r, &err2), SW_E_GATE);
    assert_non_null(strstr(err2.text, "--min-top1 failed"));
    assert_null(strstr(err2.text, "max-kl"));
    r.eval.kl.at = (double)NAN; /* a figure that is none never passes */
    r.gates[SW_GATE_MIN_TOP1].limit = 0;
    sw_report_judge(&r);
    assert_false(r.gates[SW_GATE_MAX_KL].has_passed);
    sw_report_free(&r);
    scratch_close(&s);
}

/* The gap is between what the kernels run and what the second decoder reads. */
static void a_disagreement_of_the_decoders_opens_the_gap(void **state)
{
    static const uint32_t ids[VERIFY_WINDOW] = {5, 17, 99, 200, 3, 41};
    sw_lm_options options = {.n_threads = 1};
    sw_report_gap same = {.n_windows = 0}, other = {.n_windows = 0};
    sw_checkpoint *served = calloc(1, sizeof *served);
    sw_subject *agrees = calloc(1, sizeof *agrees), *differs = calloc(1, sizeof *differs);
    sw_windows w;
    scratch s;
    sw_lm lm;
    sw_err err = {0};

    (void)state;
    assert_true(served && agrees && differs);
    scratch_open(&s);
    quantized_dir_make(scratch_path(&s, "a"), VERIFY_MODEL, "swage", 4, true, 32);
    quantized_dir_make(scratch_path(&s, "b"), VERIFY_MODEL, "gptq_v2", 4, false, 32);
    assert_int_equal(sw_checkpoint_open(served, scratch_path(&s, "a"), &err), SW_OK);
    assert_int_equal(sw_lm_open(&lm, served, &options, &err), SW_OK);
    assert_int_equal(sw_subject_open(agrees, scratch_path(&s, "a"), true, &err), SW_OK);
    assert_int_equal(sw_subject_open(differs, scratch_path(&s, "b"), true, &err), SW_OK);
    assert_int_equal(sw_windows_cut(&w, ids, VERIFY_WINDOW, VERIFY_WINDOW, 0, false,
                                    &served->model, &err), SW_OK);
    assert_int_equal(sw_kernel_gap(&same, &lm, agrees, &w, 1, 1, &err), SW_OK);
    assert_int_equal(sw_kernel_gap(&other, &lm, differs, &w, 1, 1, &err), SW_OK);
    assert_true(same.is_measured && same.logits_err < 1e-5 && same.kl < 1e-9);
    assert_true(other.logits_err > 1e-2 && other.kl > 1e-6);
    sw_lm_free(&lm);
    sw_checkpoint_close(served);
    sw_subject_close(agrees);
    sw_subject_close(differs);
    free(served);
    free(agrees);
    free(differs);
    scratch_close(&s);
}

/* An original that is quantized: a conversion of it has no error at all, another scheme that of
 * the way from code to code, and a code of its own that is changed is found. */
static void a_quantized_original_is_decoded(void **state)
{
    scratch s;
    sw_report same, other, spoilt;
    sw_verify_options o;

    (void)state;
    scratch_open(&s);
    quantized_dir_make(scratch_path(&s, "orig"), VERIFY_MODEL, "gptq", 4, true, 64);
    quantized_dir_make(scratch_path(&s, "same"), VERIFY_MODEL, "gptq_v2", 4, true, 64);
    quantized_dir_make(scratch_path(&s, "wide"), VERIFY_MODEL, "gptq_v2", 8, true, 64);
    quantized_dir_make(scratch_path(&s, "odd"), VERIFY_MODEL, "swage", 2, true, 32);
    /* made from the floats, each of them, not from the original: its manifest would say so */
    assert_int_equal(remove(scratch_path(&s, "same/manifest.json")), 0);
    assert_int_equal(remove(scratch_path(&s, "wide/manifest.json")), 0);
    assert_int_equal(remove(scratch_path(&s, "odd/manifest.json")), 0);
    o = verify_options_for(scratch_path(&s, "same"));
    o.original_dir = scratch_path(&s, "orig");
    verify_run(&same, &o);
    verify_expect_pass(&same);
    assert_int_equal(same.n_tensors, 14);
    for (int64_t t = 0; t < same.n_tensors; t++) {
        assert_true(same.tensors[t].weight_err == 0);
        assert_true(same.tensors[t].output_err < 1e-6);
    }
    assert_true(same.eval.kl.at < 1e-9);
    assert_int_equal(same.coverage.n_missing + same.coverage.n_unexpected, 0);
    o.checkpoint_dir = scratch_path(&s, "wide");
    verify_run(&other, &o);
    for (int64_t t = 0; t < other.n_tensors; t++)
        assert_true(other.tensors[t].weight_err > 0.01 && other.tensors[t].weight_err < 0.2);
    o.checkpoint_dir = scratch_path(&s, "odd");
    verify_run(&spoilt, &o);
    assert_true(spoilt.tensors[0].weight_err > 0.2);
    sw_report_free(&same);
    sw_report_free(&other);
    sw_report_free(&spoilt);
    scratch_close(&s);
}

static void wrong_requests_are_refused(void **state)
{
    scratch s;
    sw_report r;
    sw_verify_options good, o;
    sw_err errs[7] = {{0}};

    (void)state;
    scratch_open(&s);
    good = verify_options_for(scratch_path(&s, "q"));
    quantized_dir_make(good.checkpoint_dir, VERIFY_MODEL, "swage", 4, true, 32);
    o = good;
    o.original_dir = MOE;
    verify_run(&r, &o);
    verify_expect_fail(&r, "config", "model_type is llama, the original has qwen3_moe");
    sw_report_free(&r);
    o = good;
    o.n_texts = 0;
    o.has_gate[SW_GATE_MAX_KL] = true;
    assert_int_equal(sw_verify_run(&r, &o, &errs[3]), SW_E_USAGE);
    assert_non_null(strstr(errs[3].text, "max_kl"));
    o = good;
    o.window = 513;
    assert_int_equal(sw_verify_run(&r, &o, &errs[4]), SW_E_USAGE);
    assert_non_null(strstr(errs[4].text, "513"));
    o = good;
    o.checkpoint_dir = "nowhere";
    assert_int_equal(sw_verify_run(&r, &o, &errs[5]), SW_E_IO);
    scratch_close(&s);
}

static void windows_are_cut_by_the_protocol(void **state)
{
    static uint32_t ids[1000], cut[64];
    sw_model m = {.max_positions = 512, .bos_id = 9};
    sw_windows w;
    sw_err errs[3] = {{0}};

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) ids[i] = 100 + i;
    assert_int_equal(sw_windows_cut(&w, ids, 1000, 0, 0, false, &m, NULL), SW_OK);
    assert_true(w.length == 512 && w.n == 1);
    assert_int_equal(sw_windows_cut(&w, ids, 1000, 32, 0, false, &m, NULL), SW_OK);
    assert_true(w.length == 32 && w.n == 31); /* the last 8 tokens are left out */
    sw_windows_copy(cut, &w, 30, 1);
    assert_true(cut[0] == 100 + 960 && cut[31] == 100 + 991);
    assert_int_equal(sw_windows_cut(&w, ids, 1000, 32, 5, true, &m, NULL), SW_OK);
    assert_true(w.n == 5 && w.stride == 31);
    sw_windows_copy(cut, &w, 1, 2);
    assert_true(cut[0] == 9 && cut[1] == 131 && cut[31] == 161 && cut[32] == 9 && cut[33] == 162);
    assert_int_equal(sw_windows_cut(&w, ids, 20, 32, 0, false, &m, NULL), SW_OK);
    assert_true(w.length == 20 && w.n == 1);
    assert_int_equal(sw_windows_cut(&w, ids, 1, 32, 0, false, &m, &errs[0]), SW_E_USAGE);
    assert_int_equal(sw_windows_cut(&w, ids, 1000, 1, 0, false, &m, &errs[1]), SW_E_USAGE);
    m.bos_id = -1;
    assert_int_equal(sw_windows_cut(&w, ids, 1000, 32, 0, true, &m, &errs[2]), SW_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_checkpoints_pass),
        cmocka_unit_test(figures_follow_from_each_other),
        cmocka_unit_test(the_report_does_not_depend_on_threads),
        cmocka_unit_test(experts_are_judged_one_by_one),
        cmocka_unit_test(gates_decide),
        cmocka_unit_test(a_disagreement_of_the_decoders_opens_the_gap),
        cmocka_unit_test(a_quantized_original_is_decoded),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(windows_are_cut_by_the_protocol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
