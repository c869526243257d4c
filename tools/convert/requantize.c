/* requantize.c - see convert_job.h. */
#include "tools/convert/convert_job.h"

#include <math.h>

#include "quant/method/rounding.h"

static sw_code fit_unweighted(sw_slab *slab, const sw_solve_problem *p, sw_err *err)
{
    double *ones = NULL;
    sw_code rc = SW_MEM_GET(&ones, p->k_in, "rounding weights", err);

    if (rc != SW_OK) return rc;
    for (int64_t k = 0; k < p->k_in; k++) ones[k] = 1.0;
    sw_slab_fit(slab, ones, &p->spec);
    sw_mem_put(ones);
    return SW_OK;
}

static sw_code measure(double *error, const sw_qtensor *q, const float *w, sw_err *err)
{
    double lost = 0, power = 0;
    float *row = NULL;
    sw_code rc = SW_MEM_GET(&row, q->k_in, "decoded row", err);

    for (int64_t n = 0; n < q->n_out && rc == SW_OK; n++) {
        sw_qtensor_decode_rows(row, q, n, 1);
        for (int64_t k = 0; k < q->k_in; k++) {
            double want = (double)w[n * q->k_in + k], d = (double)row[k] - want;
            lost += d * d;
            power += want * want;
        }
    }
    sw_mem_put(row);
    if (rc == SW_OK) *error = power > 0 ? sqrt(lost / power) : 0;
    return rc;
}

sw_code sw_requantize(sw_qtensor *out, double *error, const float *w, int64_t n_out, int64_t k_in,
                      const sw_qspec *spec, double fused_amax, int n_threads, sw_err *err)
{
    sw_solve_problem p = {.w = w, .fused_amax = fused_amax, .n_out = n_out, .k_in = k_in,
                          .spec = *spec, .n_threads = n_threads};
    sw_solve_report report = {0};
    sw_qtensor q = {0};
    sw_code rc = sw_qtensor_alloc(&q, spec, n_out, k_in, err);

    if (rc != SW_OK) return rc;
    if ((rc = sw_round_solve(&q, &p, fit_unweighted, &report, err)) == SW_OK)
        rc = measure(error, &q, w, err);
    if (rc == SW_OK)
        *out = q;
    else
        sw_qtensor_free(&q);
    return rc;
}
