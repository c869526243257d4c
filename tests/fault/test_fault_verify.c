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
#include "tools/verify/report_text.h"
#include "verify/verify.h"

#define MODEL "tests/golden/arch/llama"

typedef struct fault_case {
    scratch s;
    char dir[SW_PATH_BYTES];
    sw_verify_options options;
    sw_report report;
} fault_case;

static const char *const text = MODEL "/reference.safetensors";

static void open_case(fault_case *f, const char *dialect)
{
    memset(f, 0, sizeof *f);
    scratch_open(&f->s);
    snprintf(f->dir, sizeof f->dir, "%s", scratch_path(&f->s, "q"));
    quantized_dir_make(f->dir, MODEL, dialect, 4, false, 32);
    f->options = (sw_verify_options){.checkpoint_dir = f->dir, .original_dir = MODEL,
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
                           .ctx = &f, .max_runs = 150};

        open_case(&f, dialects[i]);
        fault_run(&plan);
        scratch_close(&f.s);
    }
}

static void evaluation_survives_faults(void **state)
{
    fault_case f;
    fault_plan plan = {.name = "evaluation", .kinds = FAULT_MEMORY | FAULT_READ,
                       .attempt = judge_and_tell, .after_failure = expect_untouched, .ctx = &f,
                       .max_runs = 150};

    (void)state;
    open_case(&f, "compressed-tensors");
    f.options.text_paths = &text;
    f.options.n_texts = 1;
    f.options.window = 8;
    f.options.max_windows = 2;
    f.options.bootstrap.n_samples = 20;
    fault_run(&plan);
    scratch_close(&f.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_survive_faults),
        cmocka_unit_test(evaluation_survives_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
