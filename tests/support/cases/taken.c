/* taken.c - see stats_case.h. */
#include "tests/support/cases/stats_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void taken_add(taken *k, const sw_qtensor *q, const sw_solve_report *report)
{
    size_t n_codes = (size_t)(q->n_out * q->k_in);
    size_t n_scales = (size_t)(q->n_out * q->n_groups) * sizeof *q->scales;
    sw_err err = {0};

    assert_int_equal(sw_qtensor_check(q, &err), SW_OK);
    k->n++;
    k->n_fallbacks += report->is_fallback;
    k->error += report->error;
    k->error_rtn += report->error_rtn;
    k->bytes = realloc(k->bytes, k->n_bytes + n_codes + n_scales);
    assert_non_null(k->bytes);
    memcpy(k->bytes + k->n_bytes, q->codes, n_codes);
    memcpy(k->bytes + k->n_bytes + n_codes, q->scales, n_scales);
    k->n_bytes += n_codes + n_scales;
}

void assert_same_taken(const taken *a, const taken *b)
{
    assert_int_equal(a->n_bytes, b->n_bytes);
    assert_memory_equal(a->bytes, b->bytes, a->n_bytes);
}

bool takes_all(void *self, const sw_linear_ref *ref, const char *path)
{
    (void)self, (void)ref, (void)path;
    return true;
}

sw_code takes_no_change(void *self, const char *name, const float *values, int64_t n, sw_err *err)
{
    (void)self, (void)name, (void)values, (void)n, (void)err;
    return SW_OK;
}
