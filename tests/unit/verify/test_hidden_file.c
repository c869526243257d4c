/* test_hidden_file.c - states of an original that are kept: the same report with them as without,
 * and a refusal where they are of something else. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/io/file.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/patched_model.h"
#include "verify/metrics/hidden_file.h"
#include "verify/metrics/kept_states.h"

static scratch at;

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&at);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&at);
    return 0;
}

static sw_verify_options options_for(int bits)
{
    sw_verify_options o = verify_options_for(scratch_path(&at, bits == 4 ? "q4" : "q3"));

    quantized_dir_make(o.checkpoint_dir, VERIFY_MODEL, "swage", bits, true, 32);
    return o;
}

static void expect_same_figures(const sw_report *a, const sw_report *b)
{
    assert_memory_equal(&a->eval.nll, &b->eval.nll, sizeof a->eval.nll);
    assert_memory_equal(&a->eval.nll_original, &b->eval.nll_original, sizeof a->eval.nll);
    assert_memory_equal(&a->eval.kl, &b->eval.kl, sizeof a->eval.kl);
    assert_memory_equal(&a->eval.top1, &b->eval.top1, sizeof a->eval.top1);
    assert_true(a->eval.kl_max == b->eval.kl_max);
}

/* Made with one checkpoint, read with another; figures to the last bit. */
static void reports_do_not_change(void **state)
{
    sw_verify_options four = options_for(4), three = options_for(3);
    sw_report plain, kept;

    (void)state;
    verify_run(&plain, &three);
    four.states_path = three.states_path = scratch_path(&at, "text.states");
    verify_run(&kept, &four);
    assert_true(sw_path_exists(four.states_path));
    sw_report_free(&kept);
    verify_run(&kept, &three);
    expect_same_figures(&kept, &plain);
    sw_report_free(&kept);
    sw_report_free(&plain);
}

static void spoil(const char *path)
{
    static const float big[128] = {32.0f};
    FILE *f = fopen(path, "r+b");

    assert_non_null(f);
    assert_int_equal(fseek(f, -2 * (long)sizeof big, SEEK_END), 0); /* the last token but one */
    assert_int_equal(fwrite(big, sizeof big, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

/* The file is what is used: a state changed in it changes the original's figure alone. */
static void states_are_read(void **state)
{
    sw_verify_options o = options_for(4);
    sw_report before, after;

    (void)state;
    o.states_path = scratch_path(&at, "text.states");
    verify_run(&before, &o);
    spoil(o.states_path);
    verify_run(&after, &o);
    assert_true(after.eval.nll_original.at != before.eval.nll_original.at);
    assert_true(after.eval.nll.at == before.eval.nll.at);
    sw_report_free(&before);
    sw_report_free(&after);
}

static void refuse(const sw_verify_options *o, sw_code code, const char *says)
{
    sw_report r;
    sw_err err = {0};

    assert_int_equal(sw_verify_run(&r, o, &err), code);
    if (!strstr(err.text, says)) fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void others_are_refused(void **state)
{
    sw_verify_options good = options_for(4), o;
    sw_report r;

    (void)state;
    good.states_path = scratch_path(&at, "text.states");
    verify_run(&r, &good);
    sw_report_free(&r);
    o = good;
    o.window = VERIFY_WINDOW / 2;
    refuse(&o, SW_E_USAGE, "another cut into windows");
    o = good;
    o.max_windows = 1;
    refuse(&o, SW_E_USAGE, "another text");
    o = good;
    o.original_dir = scratch_path(&at, "other");
    patched_model_make(o.original_dir, VERIFY_MODEL, "norm.weight", 1.0, 7);
    refuse(&o, SW_E_USAGE, "another model");
    o = good;
    o.states_path = VERIFY_TOKENS;
    refuse(&o, SW_E_FORMAT, "not a file of hidden states");
    o = good;
    o.original_dir = NULL;
    refuse(&o, SW_E_USAGE, "need the original");
    o = good;
    o.states_path = "nowhere/text.states";
    refuse(&o, SW_E_IO, "nowhere");
}

/* The same without a file of a name: figures to the last bit, from what was kept. */
static void kept_states_are_read(void **state)
{
    sw_verify_options four = options_for(4), three = options_for(3);
    sw_kept_states kept = {.dir = scratch_path(&at, "q3")};
    sw_report plain, report;

    (void)state;
    verify_run(&plain, &three);
    four.kept = three.kept = &kept;
    verify_run(&report, &four);
    sw_report_free(&report);
    verify_run(&report, &three);
    expect_same_figures(&report, &plain);
    sw_report_free(&report);
    assert_int_equal(kept.n_put, plain.eval.n_windows);
    ((float *)kept.file.data)[0] += 1;
    verify_run(&report, &three);
    assert_true(report.eval.nll.at == plain.eval.nll.at);
    assert_true(report.eval.nll_original.at != plain.eval.nll_original.at);
    sw_report_free(&report);
    three.window = VERIFY_WINDOW / 2; /* another cut: nothing of it is there */
    verify_run(&report, &three);
    assert_int_equal(kept.n_put, report.eval.n_windows);
    assert_int_equal(kept.length, VERIFY_WINDOW / 2);
    sw_report_free(&report);
    sw_report_free(&plain);
    sw_kept_states_close(&kept);
}

/* A batch that is not there, or of another width. */
static void holes_are_found(void **state)
{
    static const uint32_t ids[32];
    static float x[32 * 8];
    sw_windows w = {.ids = ids, .n = 2, .length = 16, .stride = 16};
    const char *path = scratch_path(&at, "text.states");
    sw_hidden_file f;
    sw_err errs[3] = {{0}};

    (void)state;
    assert_int_equal(sw_hidden_file_open(&f, path, "model", &w, 8, NULL), SW_OK);
    assert_int_equal(sw_hidden_file_commit(&f, &errs[0]), SW_E_BUG); /* nothing was put */
    sw_hidden_file_close(&f);
    assert_false(sw_path_exists(path));
    assert_int_equal(sw_hidden_file_open(&f, path, "model", &w, 8, NULL), SW_OK);
    assert_int_equal(sw_hidden_file_put(&f, x, 0, 32, NULL), SW_OK);
    assert_int_equal(sw_hidden_file_commit(&f, NULL), SW_OK);
    sw_hidden_file_close(&f);
    assert_int_equal(sw_hidden_file_open(&f, path, "model", &w, 4, NULL), SW_OK);
    assert_non_null(f.have);
    assert_int_equal(sw_hidden_file_get(x, &f, 0, 32, &errs[1]), SW_E_FORMAT);
    assert_non_null(strstr(errs[1].text, "hidden.00000000"));
    assert_int_equal(sw_hidden_file_get(x, &f, 1, 32, &errs[2]), SW_E_FORMAT);
    sw_hidden_file_close(&f);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        CASE(reports_do_not_change), CASE(states_are_read), CASE(others_are_refused),
        CASE(kept_states_are_read),
        CASE(holes_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
