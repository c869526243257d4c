/* outputs_case.h - a toy, a checkpoint of it and a text, for tests of errors of outputs. */
#ifndef SW_TESTS_SUPPORT_CASES_OUTPUTS_CASE_H
#define SW_TESTS_SUPPORT_CASES_OUTPUTS_CASE_H

#include "tests/support/scratch.h"
#include "verify/metrics/outputs.h"

/* As many tokens as the original runs: of most linears every second row is multiplied. */
enum { OUTPUTS_SEQS = 8, OUTPUTS_LEN = 128 };

typedef struct outputs_case {
    sw_subject checkpoint, original;
    sw_rescale rescale;
    sw_lm lm; /* the original */
    uint32_t ids[OUTPUTS_SEQS * OUTPUTS_LEN];
    sw_windows windows;
    sw_report report; /* its tensors are there */
    scratch s;
} outputs_case;

/* "arch/NAME" or "recipes/NAME" of tests/golden, rounded to 4 bits by groups of 32. Fails the
 * running test on any error. */
void outputs_case_open(outputs_case *c, const char *model);
void outputs_case_close(outputs_case *c);
/* Errors of all tensors [report.n_tensors], freed by the caller; of NULL by the processor. */
double *outputs_case_judge(outputs_case *c, sw_device *gpu, int n_threads,
                           const sw_progress *progress);

#endif
