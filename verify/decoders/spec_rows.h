/* spec_rows.h - a decoded linear row by row, without the memory of all its values.
 *
 * Codes take a byte a weight, their values four: who looks at every weight once has a row of values
 * at a time. Inputs of one group that follow each other make a run, over which scale, zero point
 * and offset are constants and loops have no index to look up.
 */
#ifndef SW_VERIFY_DECODERS_SPEC_ROWS_H
#define SW_VERIFY_DECODERS_SPEC_ROWS_H

#include "verify/decoders/decode_spec.h"

/* Inputs [k, k + n) of one group, all of them outliers or none. */
typedef struct sw_spec_run {
    int64_t k, n;
    int32_t group;
    bool is_outlier;
} sw_spec_run;

typedef struct sw_spec_rows {
    const sw_spec_weight *w; /* borrowed */
    float levels[256];       /* of each code under a zero point of 0; NaN: no code */
    sw_spec_run *runs;       /* by rising k, together all inputs */
    int64_t n_runs;
} sw_spec_rows;

/* `w` must outlive it. Freed by sw_spec_rows_free, which accepts a zeroed one. */
sw_code sw_spec_rows_new(sw_spec_rows *out, const sw_spec_weight *w, sw_err *err) SW_MUST_USE;
void sw_spec_rows_free(sw_spec_rows *rows);
/* The first run that reaches beyond input k. */
int64_t sw_spec_rows_run_at(const sw_spec_rows *rows, int64_t k);

/* out[n_inputs]: levels of row n, inputs from k on, as if every zero point were 0. */
void sw_spec_rows_levels(float *out, const sw_spec_rows *rows, int64_t n, int64_t k,
                         int64_t n_inputs);
/* out[n_inputs]: their values, from the levels. Of outliers only where the weight has values. */
void sw_spec_rows_values(float *out, const float *levels, const sw_spec_rows *rows, int64_t n,
                         int64_t k, int64_t n_inputs);

#endif
