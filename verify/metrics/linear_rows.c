/* linear_rows.c - see linear_rows.h. */
#include "verify/metrics/linear_rows.h"

#include <math.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/mem.h"
#include "formats/num/num.h"
#include "verify/decoders/decode_spec_parts.h"

sw_linear_rows sw_linear_rows_of(const float *values, int64_t n_out, int64_t k_in)
{
    return (sw_linear_rows){.n_out = n_out, .k_in = k_in, .values = values};
}

sw_code sw_linear_rows_of_codes(sw_linear_rows *out, const sw_spec_weight *w, sw_err *err)
{
    sw_linear_rows r = {.n_out = w->n_out, .k_in = w->k_in, .values = w->values};
    sw_code rc = SW_MEM_GET(&r.levels, w->k_in, "levels of a row", err);

    if (rc == SW_OK) rc = sw_spec_rows_new(&r.codes, w, err);
    if (rc != SW_OK) sw_mem_put(r.levels);
    else *out = r;
    return rc;
}

/* Channels by inputs in a tensor of its own, of a dtype that is read in place. */
static const sw_st_tensor *find_stored(const sw_subject *subject, const sw_subject_linear *l)
{
    const sw_st_tensor *t = sw_spec_find(subject->st, l->path, "weight");
    const bool is_turned = subject->model.arch->has_transposed_linears &&
                           l->ref.slot != SW_SLOT_HEAD;
    float none;

    if (!t || is_turned || t->view.n_dims != 2 || t->view.shape[0] != l->ref.n_out ||
        t->view.shape[1] != l->ref.k_in || sw_dtype_bits(t->view.dtype) % 8 ||
        sw_float_decode_n(&none, &none, t->view.dtype, 0, NULL) != SW_OK)
        return NULL;
    return t;
}

/* Outliers lie beside the codes; then all values are decoded. */
static sw_code open_codes(sw_linear_rows *r, const sw_subject *subject,
                          const sw_subject_linear *l, sw_err *err)
{
    sw_spec_room room = {.codes = NULL};
    sw_spec_weight *w = &r->own_codes;
    sw_code rc = sw_spec_decode_codes(w, &room, &subject->scheme, subject->st, l->path,
                                      l->ref.n_out, l->ref.k_in, err);

    w->has_lent_codes = false; /* the room's memory goes with them */
    if (rc != SW_OK) sw_mem_put(room.codes);
    for (int64_t k = 0; rc == SW_OK && k < w->k_in; k++) {
        if (!w->is_outlier[k]) continue;
        sw_spec_weight_free(w);
        rc = sw_spec_decode(w, &subject->scheme, subject->st, l->path, l->ref.n_out, l->ref.k_in,
                            err);
        break;
    }
    if (rc != SW_OK) sw_err_prefix(err, "%s", subject->dir);
    if (rc == SW_OK && (rc = SW_MEM_GET(&r->levels, w->k_in, "levels of a row", err)) == SW_OK)
        rc = sw_spec_rows_new(&r->codes, w, err);
    return rc;
}

sw_code sw_linear_rows_open(sw_linear_rows *out, const sw_subject *subject,
                            const sw_subject_linear *l, sw_err *err)
{
    const bool is_quantized = sw_original_is_quantized(subject, l->path);
    const sw_st_tensor *t = is_quantized ? NULL : find_stored(subject, l);
    sw_code rc;

    *out = (sw_linear_rows){.n_out = l->ref.n_out, .k_in = l->ref.k_in};
    if (is_quantized) {
        rc = open_codes(out, subject, l, err);
    } else if (t) {
        rc = sw_st_fetch(&out->own_bytes, t, err);
        out->stored = out->own_bytes.data;
        out->dtype = t->view.dtype;
        out->st = subject->st;
        out->tensor = t;
    } else {
        rc = sw_original_weight(&out->own_values, subject, l, err);
        out->values = out->own_values;
    }
    if (rc != SW_OK) sw_linear_rows_free(out);
    return rc;
}

void sw_linear_rows_free(sw_linear_rows *rows)
{
    if (rows->tensor) sw_st_forget_tensor(rows->st, rows->tensor);
    sw_spec_rows_free(&rows->codes);
    sw_spec_weight_free(&rows->own_codes);
    sw_st_drop(&rows->own_bytes);
    sw_mem_put(rows->own_values);
    sw_mem_put(rows->levels);
    memset(rows, 0, sizeof *rows);
}

sw_linear_rows sw_linear_rows_lent(const sw_linear_rows *rows, float *levels)
{
    sw_linear_rows lent = *rows;

    lent.levels = levels;
    return lent;
}

static SW_HOT void multiply(float *w, const double *by, int64_t n, double over)
{
    for (int64_t i = 0; i < n; i++) w[i] = (float)((double)w[i] * by[i] / over);
}

static SW_HOT void divide(float *w, int64_t n, double over)
{
    for (int64_t i = 0; i < n; i++) w[i] = (float)((double)w[i] / over);
}

void sw_linear_rows_get(float *out, const sw_linear_rows *rows, int64_t n, int64_t k,
                        int64_t n_inputs)
{
    const int64_t at = n * rows->k_in + k;
    const double over = rows->rows ? rows->rows[n] : 1;

    if (rows->values) {
        memcpy(out, rows->values + at, (size_t)n_inputs * sizeof *out);
    } else if (rows->stored) {
        const char *from = rows->stored + at * (sw_dtype_bits(rows->dtype) / 8);

        if (sw_float_decode_n(out, from, rows->dtype, n_inputs, NULL) != SW_OK)
            memset(out, 0, (size_t)n_inputs * sizeof *out); /* never: tried when opened */
    } else {
        sw_spec_rows_levels(rows->levels, &rows->codes, n, k, n_inputs);
        sw_spec_rows_values(out, rows->levels, &rows->codes, n, k, n_inputs);
    }
    if (rows->columns) multiply(out, rows->columns + k, n_inputs, over);
    else if (rows->rows) divide(out, n_inputs, over);
}

static SW_HOT void add_row(sw_column_sums *sums, const float *have, const float *want)
{
    double *restrict dot = sums->dot, *restrict have2 = sums->have2, *restrict want2 = sums->want2;
    const int64_t k_in = sums->k_in;

    for (int64_t k = 0; k < k_in; k++) {
        const double h = (double)have[k], w = (double)want[k];

        dot[k] += h * w;
        have2[k] += h * h;
        want2[k] += w * w;
    }
}

static void add_steps(sw_column_sums *sums, const sw_spec_rows *codes, const float *want,
                      int64_t n)
{
    for (int64_t at = 0; at < codes->n_runs; at++) {
        const sw_spec_run *run = &codes->runs[at];
        const double scale = (double)codes->w->scales[n * codes->w->n_groups + run->group];

        for (int64_t k = run->k; k < run->k + run->n; k++)
            sums->steps[k] += fabs((double)want[k] * scale);
    }
}

sw_code sw_column_sums_new(sw_column_sums *out, const sw_linear_rows *have,
                           const sw_linear_rows *want, sw_err *err)
{
    sw_column_sums sums = {.n_out = have->n_out, .k_in = have->k_in};
    float *rows = NULL;
    sw_code rc;

    if ((rc = SW_MEM_GET(&sums.dot, 4 * sums.k_in, "sums of inputs", err)) != SW_OK) return rc;
    sums.have2 = sums.dot + sums.k_in;
    sums.want2 = sums.have2 + sums.k_in;
    sums.steps = sums.want2 + sums.k_in;
    if ((rc = SW_MEM_GET(&rows, 2 * sums.k_in, "rows", err)) != SW_OK) {
        sw_column_sums_free(&sums);
        return rc;
    }
    for (int64_t n = 0; n < sums.n_out; n++) {
        sw_linear_rows_get(rows, have, n, 0, sums.k_in);
        sw_linear_rows_get(rows + sums.k_in, want, n, 0, sums.k_in);
        add_row(&sums, rows, rows + sums.k_in);
        if (have->codes.w) add_steps(&sums, &have->codes, rows + sums.k_in, n);
    }
    sw_mem_put(rows);
    *out = sums;
    return SW_OK;
}

void sw_column_sums_free(sw_column_sums *sums)
{
    sw_mem_put(sums->dot);
    memset(sums, 0, sizeof *sums);
}
