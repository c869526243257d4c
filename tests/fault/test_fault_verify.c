/* test_fault_verify.c - memory and mappings failing while a checkpoint is judged and its report is
 * written: no leak, no half-filled report, the right code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/fault/fault.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/recipe_model.h"
#include "tools/verify/report_text.h"
#include "verify/verify.h"

typedef struct fault_case {
    scratch s;
    char dir[SW_PATH_BYTES], model[SW_PATH_BYTES];
    sw_verify_options options;
    sw_report report;
    sw_judge_ranks ranks; /* of an attempt by the first of two, */
    bool has_met;         /* where both hear of a failure, */
    int n_told;           /* or are told what to do */
} fault_case;

static const char *const text = "tests/golden/arch/llama/reference.safetensors";

static void open_case(fault_case *f, const char *dialect)
{
    sw_err err = {0};

    memset(f, 0, sizeof *f);
    scratch_open(&f->s);
    scratch_make_dir(&f->s, "model");
    snprintf(f->dir, sizeof f->dir, "%s", scratch_path(&f->s, "q"));
    snprintf(f->model, sizeof f->model, "%s", scratch_path(&f->s, "model"));
    if (recipe_model_make(f->model, "tests/golden/small_llama", "config.json", &err) != SW_OK)
        fail_msg("%s", err.text);
    quantized_dir_make(f->dir, f->model, dialect, 4, false, 32);
    f->options = (sw_verify_options){.checkpoint_dir = f->dir, .original_dir = f->model,
                                     .n_threads = 1};
}

static sw_code judge_and_tell(void *ctx, sw_err *err)
{
    fault_case *f = ctx;
    cJSON *json = NULL;
    FILE *nowhere;
    sw_report report;
    sw_code rc = sw_verify_run(&f->report, &f->options, err);

    if (rc != SW_OK) return rc;
    report = f->report;
    memset(&f->report, 0, sizeof f->report);
    nowhere = fopen("/dev/null", "w");
    assert_non_null(nowhere);
    if ((rc = sw_report_verdict(&report, err)) == SW_OK &&
        (rc = sw_report_json(&json, &report, err)) == SW_OK)
        rc = sw_report_print(nowhere, &report, 0, err);
    (void)fclose(nowhere);
    cJSON_Delete(json);
    sw_report_free(&report);
    return rc;
}

static void expect_untouched(void *ctx)
{
    static const sw_report empty;
    fault_case *f = ctx;

    assert_memory_equal(&f->report, &empty, sizeof empty);
}

static void tensors_survive_faults(void **state)
{
    static const char *const dialects[] = {"gptq_v2", "compressed-tensors", "swage"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        fault_case f;
        fault_plan plan = {.name = dialects[i], .kinds = FAULT_MEMORY | FAULT_READ,
                           .attempt = judge_and_tell, .after_failure = expect_untouched,
                           .ctx = &f, .max_runs = 60};

        open_case(&f, dialects[i]);
        fault_run(&plan);
        scratch_close(&f.s);
    }
}

/* With a text of two windows to judge it by. */
static void open_text_case(fault_case *f, const char *format)
{
    open_case(f, format);
    f->options.text_paths = &text;
    f->options.n_texts = 1;
    f->options.window = 8;
    f->options.max_windows = 2;
    f->options.bootstrap.n_samples = 20;
}

static void evaluation_survives_faults(void **state)
{
    fault_case f;
    fault_plan plan = {.name = "evaluation", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = judge_and_tell, .after_failure = expect_untouched, .ctx = &f,
                       .max_runs = 80};

    (void)state;
    open_text_case(&f, "compressed-tensors");
    fault_run(&plan);
    scratch_close(&f.s);
}

/* --- the first of two ranks; the other does nothing wrong, and finds zeros --- */

static sw_code meet(void *self, sw_code code, sw_err *err)
{
    fault_case *f = self;

    (void)err;
    f->has_met = f->has_met || code != SW_OK;
    return code;
}

static sw_code broadcast(void *self, int from, void *data, size_t n_bytes, sw_err *err)
{
    fault_case *f = self;

    (void)data;
    (void)n_bytes;
    (void)err;
    assert_int_equal(from, 0);
    f->n_told++;
    return SW_OK;
}

static sw_code receive(void *self, int from, void *data, size_t n_bytes, sw_err *err)
{
    (void)self;
    (void)from;
    (void)err;
    memset(data, 0, n_bytes);
    return SW_OK;
}

static sw_code check_same(void *self, const char *what, const void *data, size_t n_bytes,
                          sw_err *err)
{
    (void)self;
    (void)what;
    (void)data;
    (void)n_bytes;
    (void)err;
    return SW_OK;
}

static void begin_meeting(void *ctx)
{
    fault_case *f = ctx;

    f->has_met = false;
    f->n_told = 0;
}

static sw_code judge_first(void *ctx, sw_err *err)
{
    fault_case *f = ctx;
    sw_report report;
    const sw_code rc = sw_verify_run(&report, &f->options, err);

    if (rc == SW_OK) sw_report_free(&report);
    return rc;
}

/* Else the others would wait for a rank that has gone on to the next checkpoint. */
static void expect_others_know(void *ctx)
{
    const fault_case *f = ctx;

    if (!f->has_met && !f->n_told) fail_msg("a failure of rank 0 that the others wait for");
    assert_true(f->n_told <= 1);
}

static void a_failing_rank_0_leaves_nobody_waiting(void **state)
{
    fault_case f;
    fault_plan plan = {.name = "rank 0", .kinds = FAULT_MEMORY | FAULT_READ,
                       .before = begin_meeting, .attempt = judge_first,
                       .after_failure = expect_others_know, .ctx = &f, .max_runs = 50};

    (void)state;
    open_text_case(&f, "swage");
    f.ranks = (sw_judge_ranks){.self = &f, .size = 2, .meet = meet, .broadcast = broadcast,
                               .receive = receive, .check_same = check_same};
    f.options.ranks = &f.ranks;
    fault_run(&plan);
    scratch_close(&f.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_survive_faults),
        cmocka_unit_test(evaluation_survives_faults),
        cmocka_unit_test(a_failing_rank_0_leaves_nobody_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
