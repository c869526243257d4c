/* run_sums.h - the sums over one run of a row (spec_rows.h) that plausible.c compares.
 *
 * The hot loops of the judge: every weight of a checkpoint passes them once. Sums are kept in eight
 * lanes that are added up in the end, in the same order whatever the machine.
 */
#ifndef SW_VERIFY_CHECKS_RUN_SUMS_H
#define SW_VERIFY_CHECKS_RUN_SUMS_H

#include <stdint.h>

/* A run of n weights: original = offset + scale * level + error. */
typedef struct sw_run {
    int64_t n;
    double scale, offset;
    float zero;
    const float *original, *levels; /* the latter under a zero point of 0 */
    const double *sizes;            /* of the steps around each level */
} sw_run;

/* w: original less offset; c: level less zero point; r: size of the step. */
typedef struct sw_run_sums {
    double w1, w2, c1, c2, wc, r2, err2;
} sw_run_sums;

/* Also centred[n], the levels less the zero point, and steps[n], the errors in steps. */
sw_run_sums sw_run_sum(float *centred, double *steps, const sw_run *run);

/* As if the codes were `others`, whose levels stand under a zero point of 0: sums of w * c and c^2
 * with their levels for c. */
typedef struct sw_run_reading {
    double wc, c2;
} sw_run_reading;
sw_run_reading sw_run_read(const sw_run *run, const float *others);

#endif
