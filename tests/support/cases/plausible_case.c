/* plausible_case.c - see plausible_case.h. */
#include "tests/support/cases/plausible_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/toys/st_build.h"

void plausible_solve(sw_qtensor *q, const sw_qspec *spec, const float *w, int64_t n_out,
                     int64_t k_in, const sw_hessian *stats)
{
    sw_solve_problem p = {.w = w, .n_out = n_out, .k_in = k_in, .spec = *spec, .refine_rounds = 1,
                          .n_threads = 2};
    sw_factor_options options = {SW_ORDER_STATIC, spec->group_elems, 0.01};
    sw_solve_report report = {0};
    sw_factor factor = {0};
    sw_err err = {0};

    assert_int_equal(sw_qtensor_alloc(q, spec, n_out, k_in, &err), SW_OK);
    if (stats) {
        assert_int_equal(sw_factor_new(&factor, stats, &options, &err), SW_OK);
        p.factor = &factor;
        assert_int_equal(sw_gptq_solve(q, &p, &report, &err), SW_OK);
    } else {
        assert_int_equal(sw_rtn_solve(q, &p, &report, &err), SW_OK);
    }
    sw_factor_free(&factor);
}

void plausible_judge(char why[SW_PLAUSIBLE_TEXT_BYTES], sw_report_tensor *figures,
                     const sw_qtensor *q, const char *dialect, const float *original)
{
    const sw_dialect *writer = sw_dialect_find(dialect);
    sw_qconfig config = {.spec = q->spec};
    sw_spec_scheme scheme;
    sw_spec_weight w = {0};
    cJSON *object = NULL;
    st_build built = {0};
    sw_err err = {0};

    *figures = (sw_report_tensor){.bits = q->spec.num->bits};
    assert_int_equal(writer->write_config(&object, &config, &err), SW_OK);
    assert_int_equal(sw_spec_scheme_read(&scheme, object, &err), SW_OK);
    cJSON_Delete(object);
    st_build_encode(&built, writer, "p", q);
    if (sw_spec_decode(&w, &scheme, st_build_open(&built), "p", q->n_out, q->k_in, &err) != SW_OK)
        fail_msg("%s", err.text);
    assert_int_equal(sw_plausible_check(figures, why, &w, original, &err), SW_OK);
    sw_spec_weight_free(&w);
    st_build_free(&built);
}
