/* sensitivity.h - what each linear of a model loses under each of several schemes.
 *
 * One pass over the calibration data in the original model, or its statistics from a file. Per
 * linear and scheme the output error tr((W - Q) H (W - Q)^T) is measured on a sample of rows,
 * rounded to nearest or by GPTQ without refinement; rows are independent given H. What such an
 * error is worth is measured as well, per block and input site: with all linears of the site at
 * one scheme and everything else as it is, the KL divergence of the model's predictions
 * (kl_probe.h). Errors are small, so the divergence goes with their square and those of different
 * places add up; the loss of a linear is its share of its site's divergence, scaled by its error.
 */
#ifndef SW_QUANT_SEARCH_SENSITIVITY_H
#define SW_QUANT_SEARCH_SENSITIVITY_H

#include "quant/run/pipeline.h"

typedef struct sw_sensitivity_options {
    const sw_algo *algo;   /* rounding is measured for one without statistics, else GPTQ */
    const sw_qspec *specs; /* [n_specs] schemes to try; a group size may divide some linears only */
    const double *shares;  /* [n_specs] of the inputs that each keeps as outliers; NULL: none */
    int64_t n_specs, probe; /* the scheme whose divergence is measured: must fit every linear */
    double damp;
    const sw_zpack *stats; /* NULL, or stats.h: `calib` is then for the divergence alone */
    const sw_linear_source *source; /* as in sw_quant_options */
    int n_threads;
} sw_sensitivity_options;

/* Where figures go, in block order once all are known. */
typedef struct sw_sensitivity_sink {
    void *self;
    bool (*is_selected)(void *self, const sw_linear_ref *ref, const char *path);
    /* loss [n_specs]: nats per token, INFINITY where the group size does not divide; borrowed */
    sw_code (*put)(void *self, const sw_linear_ref *ref, const char *path, const double *loss,
                   sw_err *err);
} sw_sensitivity_sink;

/* Memory is that of one block, the calibration stream and the probes. The same bytes for any
 * number of threads. Errors as sw_quant_run. */
sw_code sw_sensitivity_run(const sw_model *model, const sw_st *st, const sw_calib *calib,
                           const sw_sensitivity_options *options, const sw_sensitivity_sink *sink,
                           const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
