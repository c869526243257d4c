/* linear_rows.h - a linear of either model, row by row, wherever its values lie.
 *
 * Values that a file stores as they are wanted are read from there, those of codes come out of the
 * codes; only what lies otherwise (turned, all experts' in one tensor) is laid out in memory first.
 */
#ifndef SW_VERIFY_METRICS_LINEAR_ROWS_H
#define SW_VERIFY_METRICS_LINEAR_ROWS_H

#include "verify/decoders/spec_rows.h"
#include "verify/metrics/original.h"

typedef struct sw_linear_rows {
    int64_t n_out, k_in;
    const float *values;  /* [n_out, k_in], or NULL ... */
    const char *stored;   /* ... then as the file has them, of `dtype`, or NULL ... */
    sw_dtype dtype;
    sw_spec_rows codes;   /* ... then in codes */
    float *levels;        /* scratch of a row in codes; so each thread opens its own */
    /* factors of a rescaled linear, borrowed (rescale.h): what inputs are multiplied and channels
     * divided by; NULL: nothing */
    const double *columns, *rows;
    const sw_st *st;      /* whose mapped tensor is read; what was read need not stay in memory */
    const sw_st_tensor *tensor;
    float *own_values;    /* what it has to free */
    sw_st_bytes own_bytes;
    sw_spec_weight own_codes;
} sw_linear_rows;

/* Errors as sw_original_weight. `out` may not move while it is open. Freed by sw_linear_rows_free,
 * which accepts a zeroed one. */
sw_code sw_linear_rows_open(sw_linear_rows *out, const sw_subject *subject,
                            const sw_subject_linear *l, sw_err *err) SW_MUST_USE;
/* Of values [n_out, k_in] in memory, borrowed. Nothing to free. */
sw_linear_rows sw_linear_rows_of(const float *values, int64_t n_out, int64_t k_in);
/* Of a decoded weight, borrowed. */
sw_code sw_linear_rows_of_codes(sw_linear_rows *out, const sw_spec_weight *w,
                                sw_err *err) SW_MUST_USE;
void sw_linear_rows_free(sw_linear_rows *rows);
/* The same rows for one more thread, all borrowed: levels [k_in] is its scratch. */
sw_linear_rows sw_linear_rows_lent(const sw_linear_rows *rows, float *levels);

/* out[n_inputs]: values of row n, inputs from k on, times their factors. */
void sw_linear_rows_get(float *out, const sw_linear_rows *rows, int64_t n, int64_t k,
                        int64_t n_inputs);

/* Over all rows, by input: of what is there and what is wanted. Rows are added in their order. */
typedef struct sw_column_sums {
    double *dot, *have2, *want2; /* [k_in] */
    double *steps;               /* [k_in] sum |want * scale|, of codes; else zeros */
    int64_t n_out, k_in;
} sw_column_sums;
/* Freed by sw_column_sums_free, which accepts a zeroed one. */
sw_code sw_column_sums_new(sw_column_sums *out, const sw_linear_rows *have,
                           const sw_linear_rows *want, sw_err *err) SW_MUST_USE;
void sw_column_sums_free(sw_column_sums *sums);

#endif
