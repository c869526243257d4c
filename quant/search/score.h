/* score.h - what rounding sampled rows of weights costs under each of several scales. */
#ifndef SW_QUANT_SEARCH_SCORE_H
#define SW_QUANT_SEARCH_SCORE_H

#include "quant/backend.h"
#include "quant/method/slab.h"

/* A backend fits and rounds every sample under every scale, plainly; sw_backend.score. */
typedef struct sw_score_job {
    float *sample;                /* [n_samples][SW_SLAB_ROWS, k] in memory, read only */
    const sw_qspec *const *specs; /* [n_samples] what each becomes */
    int64_t n_samples, k;
    const double *worth;          /* [k] what a squared error in each unscaled column costs */
    int n;                        /* scales */
    const void *self;             /* of scale_of, which is called from several threads: scale [k] */
    void (*scale_of)(double *scale, const void *self, int which);
} sw_score_job;

/* *out [2 k], to be freed with sw_mem_put: a scale, and then what an error in a weight times that
 * scale costs. */
sw_code sw_score_scale(double **out, const sw_score_job *job, int which, sw_err *err) SW_MUST_USE;

#endif
