/* taken.h - what a run of quantizing hands out, added up, and parts of sinks that tests share. */
#ifndef SW_TESTS_SUPPORT_CASES_TAKEN_H
#define SW_TESTS_SUPPORT_CASES_TAKEN_H

#include "quant/run/pipeline.h"

/* Zero-initialise; the caller frees bytes. */
typedef struct taken {
    int n, n_fallbacks;
    double error, error_rtn; /* sums over linears */
    uint8_t *bytes;          /* codes and scales one after the other */
    size_t n_bytes;
} taken;

/* One more linear, which must be a tensor that can be. */
void taken_add(taken *k, const sw_qtensor *q, const sw_solve_report *report);
void assert_same_taken(const taken *a, const taken *b);

/* Of a sink: every linear is selected, and what else changes is not kept. */
bool takes_all(void *self, const sw_linear_ref *ref, const char *path);
sw_code takes_no_change(void *self, const char *name, const float *values, int64_t n, sw_err *err);

#endif
