/* outputs_case.c - see outputs_case.h. */
#include "tests/support/cases/outputs_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/cases/quantized_dir.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/recipe_model.h"
#include "verify/checks/checks.h"

#define MUST(call) \
    do { sw_err err = {0}; if ((call) != SW_OK) fail_msg("%s: %s", #call, err.text); } while (0)

void outputs_case_open(outputs_case *c, const char *model)
{
    test_rng rng = {29};
    char golden[128];
    const char *dir, *source = golden;

    memset(c, 0, sizeof *c);
    (void)snprintf(golden, sizeof golden, "tests/golden/%s", model);
    scratch_open(&c->s);
    if (!strncmp(model, "recipes/", 8)) {
        source = scratch_path(&c->s, "model");
        assert_int_equal(mkdir(source, 0777), 0);
        MUST(recipe_model_make(source, golden, "config.json", &err));
    }
    dir = scratch_path(&c->s, "q");
    quantized_dir_make(dir, source, "swage", 4, true, 32);
    MUST(sw_subject_open(&c->checkpoint, dir, true, &err));
    MUST(sw_subject_open(&c->original, source, false, &err));
    MUST(sw_lm_load(&c->lm, &c->original.model, c->original.st, &err));
    MUST(sw_verify_tensors(&c->report, &c->checkpoint, &c->original, &c->rescale, 2, NULL, &err));
    for (int i = 0; i < OUTPUTS_SEQS * OUTPUTS_LEN; i++)
        c->ids[i] = (uint32_t)(test_uniform(&rng) * (double)c->original.model.vocab);
    MUST(sw_windows_cut(&c->windows, c->ids, OUTPUTS_SEQS * OUTPUTS_LEN, OUTPUTS_LEN, 0, false,
                        &c->original.model, &err));
}

void outputs_case_close(outputs_case *c)
{
    sw_report_free(&c->report);
    sw_lm_free(&c->lm);
    sw_rescale_free(&c->rescale);
    sw_subject_close(&c->original);
    sw_subject_close(&c->checkpoint);
    scratch_close(&c->s);
}

double *outputs_case_judge(outputs_case *c, sw_device *gpu, int n_threads,
                           const sw_progress *progress)
{
    const sw_outputs_job job = {.original = &c->lm, .checkpoint = &c->checkpoint,
                                .rescale = &c->rescale, .windows = &c->windows, .gpu = gpu,
                                .n_threads = n_threads, .progress = progress};
    double *errors = malloc(sizeof *errors * (size_t)c->report.n_tensors);

    memset(&c->report.experts, 0, sizeof c->report.experts);
    for (int64_t i = 0; i < c->report.n_tensors; i++) c->report.tensors[i].output_err = -1;
    MUST(sw_output_errors(&c->report, &job, &err));
    for (int64_t i = 0; i < c->report.n_tensors; i++) errors[i] = c->report.tensors[i].output_err;
    return errors;
}
