/* matrix.c - one quantized weight in the C interface: made from floats, looked into, decoded. */
#include <math.h>
#include <string.h>

#include "quant/method/algo.h"
#include "quant/run/pipeline.h"
#include "quant/run/scheme.h"
#include "tools/library/library.h"

void sw_matrix_free(sw_matrix *matrix)
{
    if (!matrix) return;
    sw_qtensor_free(&matrix->q);
    sw_mem_put(matrix);
}

int64_t sw_matrix_n_out(const sw_matrix *matrix) { return matrix->q.n_out; }

int64_t sw_matrix_k_in(const sw_matrix *matrix) { return matrix->q.k_in; }

int64_t sw_matrix_n_groups(const sw_matrix *matrix) { return matrix->q.n_groups; }

const uint8_t *sw_matrix_codes(const sw_matrix *matrix) { return matrix->q.codes; }

const float *sw_matrix_scales(const sw_matrix *matrix) { return matrix->q.scales; }

const uint8_t *sw_matrix_zeros(const sw_matrix *matrix) { return matrix->q.zeros; }

const int32_t *sw_matrix_groups(const sw_matrix *matrix) { return matrix->q.g_idx; }

float sw_matrix_global_scale(const sw_matrix *matrix)
{
    return matrix->q.spec.has_global ? matrix->q.global_scale : 1.0f;
}

float sw_matrix_input_scale(const sw_matrix *matrix) { return matrix->q.input_scale; }

void sw_matrix_scheme(sw_scheme_info *out, const sw_matrix *matrix)
{
    sw_library_scheme_info(out, &matrix->q.spec);
}

int sw_matrix_decode(float *values, const sw_matrix *matrix, int64_t row0, int64_t n_rows,
                     sw_error *error)
{
    const int64_t n_out = matrix->q.n_out;
    sw_err err = {0};

    if (row0 < 0 || n_rows < 0 || row0 > n_out || n_rows > n_out - row0)
        return sw_library_end(error, SW_FAIL(&err, SW_E_USAGE, "rows %lld to %lld of %lld",
                              (long long)row0, (long long)row0 + (long long)n_rows,
                              (long long)n_out), &err);
    sw_qtensor_decode_rows(values, &matrix->q, row0, n_rows);
    return SW_ERROR_NONE;
}

/* --- quantizing --- */

static sw_code are_finite(const float *v, int64_t n, const char *what, sw_err *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return SW_FAIL(err, SW_E_FORMAT, "%s %lld is not finite", what, (long long)i);
    return SW_OK;
}

/* Finite, its diagonal not negative, and the same on both sides of it. */
static sw_code check_hessian(const double *h, int64_t k, sw_err *err)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double a = h[i * k + j], b = h[j * k + i];
            if (!isfinite(a) || !isfinite(b) || (i == j && a < 0))
                return SW_FAIL(err, SW_E_USAGE, "the Hessian holds no sum of squares at %lld, %lld",
                               (long long)i, (long long)j);
            if (fabs(a - b) > 1e-6 * sqrt(fabs(h[i * k + i] * h[j * k + j])))
                return SW_FAIL(err, SW_E_USAGE, "the Hessian is not symmetric at %lld, %lld: fill "
                               "both triangles", (long long)i, (long long)j);
        }
    return SW_OK;
}

static sw_code find_spec(sw_qspec *out, const sw_quantize_options *o, int64_t n_out, int64_t k_in,
                         sw_err *err)
{
    const char *name = o->scheme ? o->scheme : "W4A16";
    const sw_scheme *scheme = sw_scheme_find(name);
    const sw_dialect *dialect = NULL;
    sw_code rc;

    if (!scheme)
        return SW_FAIL(err, SW_E_USAGE, "no scheme \"%.64s\"; sw_library_scheme lists them", name);
    *out = sw_scheme_spec(scheme);
    if (o->group_elems < -1 || (o->group_elems && out->num->kind != SW_NUM_INT))
        return SW_FAIL(err, SW_E_USAGE, "%s cannot have groups of %lld", scheme->name,
                       (long long)o->group_elems);
    if (o->group_elems) out->group_elems = o->group_elems > 0 ? o->group_elems : 0;
    if (sw_act_needs_input_scale(&out->act) && !(o->input_scale > 0 && isfinite(o->input_scale)))
        return SW_FAIL(err, SW_E_USAGE, "%s stores a scale of its inputs: give input_scale, above "
                       "zero", scheme->name);
    if (!o->format) return SW_OK;
    if ((rc = sw_library_dialect(&dialect, o->format, err)) != SW_OK) return rc;
    sw_dialect_fit_spec(out, dialect, SW_DTYPE_F16);
    return dialect->can_hold(out, n_out, k_in, err);
}

static sw_code find_method(const sw_algo **out, const sw_quantize_options *o, sw_err *err)
{
    const char *name = o->method ? o->method : o->hessian ? "gptq" : "rtn";
    const sw_algo *algo = sw_algo_find(name);

    if (!algo || algo->transform)
        return SW_FAIL(err, SW_E_USAGE, "no method \"%.64s\" for a matrix alone; there are rtn "
                       "and gptq", name);
    if (algo->needs_statistics && !o->hessian)
        return SW_FAIL(err, SW_E_USAGE, "%s needs a Hessian", algo->name);
    *out = algo;
    return SW_OK;
}

static sw_code check_input(const float *w, int64_t n_out, int64_t k_in,
                           const sw_quantize_options *o, sw_err *err)
{
    sw_code rc;

    if (!w || n_out < 1 || k_in < 1 || n_out > INT64_MAX / 16 / k_in || k_in > INT32_MAX)
        return SW_FAIL(err, SW_E_USAGE, "no weight of %lld x %lld", (long long)n_out,
                       (long long)k_in);
    if ((rc = are_finite(w, n_out * k_in, "weight", err)) != SW_OK || !o->hessian) return rc;
    return check_hessian(o->hessian, k_in, err);
}

/* The Hessian is the caller's: named here, read alone. */
static sw_code factorize(sw_factor *out, const sw_quantize_options *o, int64_t k_in,
                         int64_t group_elems, int n_threads, sw_err *err)
{
    const sw_quant_options defaults = sw_quant_defaults();
    const sw_factor_options how = {defaults.order, group_elems,
                                   o->damp > 0 ? o->damp : defaults.damp};
    const sw_hessian hess = {.k_in = k_in, .n_tokens = o->n_tokens > 0 ? o->n_tokens : 0,
                             .h = (double *)(uintptr_t)o->hessian,
                             .place = sw_place_cpu(n_threads)};

    return sw_factor_new(out, &hess, &how, err);
}

static sw_code solve(sw_matrix *m, sw_solve_report *report, const float *w, int64_t n_out,
                     int64_t k_in, const sw_quantize_options *o, sw_err *err)
{
    sw_solve_problem p = {.w = w, .fused_amax = o->amax, .n_out = n_out, .k_in = k_in,
                          .refine_rounds = sw_quant_defaults().refine_rounds,
                          .n_threads = sw_library_threads(o->n_threads)};
    const sw_algo *algo = NULL;
    sw_factor factor = {0};
    sw_code rc;

    p.place = sw_place_cpu(p.n_threads);
    if ((rc = check_input(w, n_out, k_in, o, err)) != SW_OK ||
        (rc = find_spec(&p.spec, o, n_out, k_in, err)) != SW_OK ||
        (rc = find_method(&algo, o, err)) != SW_OK ||
        (rc = sw_qtensor_alloc(&m->q, &p.spec, n_out, k_in, err)) != SW_OK)
        return rc;
    if (sw_act_needs_input_scale(&p.spec.act)) m->q.input_scale = o->input_scale;
    if (o->hessian) {
        rc = factorize(&factor, o, k_in, p.spec.group_elems, p.n_threads, err);
        if (rc == SW_OK) p.factor = &factor;
    }
    report->error = report->error_rtn = -1;
    if (rc == SW_OK) rc = algo->solve(&m->q, &p, report, err);
    if (rc == SW_OK) rc = sw_qtensor_check(&m->q, err);
    sw_factor_free(&factor);
    return rc;
}

int sw_matrix_quantize(sw_matrix **out, sw_quantize_report *report, const float *w, int64_t n_out,
                       int64_t k_in, const sw_quantize_options *options, sw_error *error)
{
    static const sw_quantize_options defaults = SW_QUANTIZE_OPTIONS_INIT;
    const sw_quantize_options *given = options ? options : &defaults;
    sw_quantize_options o;
    sw_solve_report solved = {0};
    sw_matrix *m = NULL;
    sw_err err = {0};
    sw_code rc = sw_library_options(&o, sizeof o, given, given->size_bytes, &err);

    if (rc == SW_OK) rc = SW_MEM_GET(&m, 1, "matrix", &err);
    if (rc == SW_OK) rc = solve(m, &solved, w, n_out, k_in, &o, &err);
    if (rc != SW_OK) {
        sw_matrix_free(m);
        return sw_library_end(error, rc, &err);
    }
    *out = m;
    if (report)
        *report = (sw_quantize_report){.error = solved.error, .error_rtn = solved.error_rtn,
                                       .damp = solved.damp, .n_dead = solved.n_dead};
    return SW_ERROR_NONE;
}
