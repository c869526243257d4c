/* metrics.h - the figures a quantized model is judged by, with their definitions.
 *
 * All sums run in double and in index order, so a figure does not depend on the thread count.
 * Natural logarithms throughout: NLL and KL are in nats per predicted token.
 */
#ifndef SW_VERIFY_BASE_METRICS_H
#define SW_VERIFY_BASE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/device.h"

/* An estimate with its confidence interval. */
typedef struct sw_interval {
    double at, low, high;
} sw_interval;

/* Running sums of two vectors, from which the relative error and the cosine follow. */
typedef struct sw_vec_sums {
    double err2;  /* sum (have - want)^2 */
    double want2; /* sum want^2 */
    double have2; /* sum have^2 */
    double dot;   /* sum have * want */
} sw_vec_sums;

void sw_vec_add(sw_vec_sums *sums, const float *have, const float *want, int64_t n);
double sw_vec_total(const double *x, int64_t n); /* their sum */
/* ||have - want|| / ||want||; 0 when both are zero, infinity when only `want` is. */
double sw_vec_rel_err(const sw_vec_sums *sums);
/* <have, want> / (||have|| ||want||); 1 when both are zero, 0 when one is. */
double sw_vec_cosine(const sw_vec_sums *sums);

typedef enum sw_metric_id {
#define SW_METRIC(id, field, key, line, shown, reads) SW_METRIC_##id,
#include "verify/base/metrics.def"
#undef SW_METRIC
    SW_METRIC_COUNT
} sw_metric_id;

/* What one predicted position says. p = softmax(ref), q = softmax(have). */
typedef struct sw_position {
    double nll_ref;    /* -log p(target) */
    double nll_have;   /* -log q(target) */
    double kl;         /* KL(p || q) = sum_i p_i (log p_i - log q_i), never below 0 */
    double metrics[SW_METRIC_COUNT];
} sw_position;

/* What the metrics of metrics.def are computed from. */
typedef struct sw_logits_pair {
    const float *ref, *have; /* [vocab] */
    int64_t vocab;
    uint32_t target;         /* the token that follows */
    int64_t ref_top, have_top; /* the largest of each, ties to the lower id */
    const double *ref_exp;   /* [vocab] exp(ref - its largest) */
    double ref_sum, have_sum; /* of exp(logit - the largest) */
} sw_logits_pair;

#define SW_METRIC(id, field, key, line, shown, reads)                                              \
    double sw_metric_##field(const sw_logits_pair *pair);
#include "verify/base/metrics.def"
#undef SW_METRIC

/* -log softmax(logits)[target] = log sum_i exp(x_i - max) - (x_target - max). */
double sw_nll(const float *logits, int64_t vocab, uint32_t target);
/* Both distributions at once. scratch holds vocab doubles. */
void sw_position_compare(sw_position *out, const float *ref, const float *have, int64_t vocab,
                         uint32_t target, double *scratch);

/* Does any metric read logits themselves? If not, sw_position_of makes a position of what a device
 * says about it. */
bool sw_metrics_read_logits(void);
void sw_position_of(sw_position *out, const sw_lm_score *score);

/* The value below which a share p (0..1) of `values` lies: linear between order statistics,
 * at position p * (n - 1). Sorts `values`; n >= 1. */
double sw_percentile(double *values, int64_t n, double p);

typedef struct sw_bootstrap {
    uint64_t seed;     /* of SplitMix64 */
    int64_t n_samples; /* resamples; 1000 when 0 */
    double level;      /* of the interval; 0.95 when 0 */
} sw_bootstrap;

/* Percentile bootstrap (Efron & Tibshirani 1993, chapter 13) of the means of several statistics
 * over n_units units (windows): each resample draws n_units units with replacement and takes the
 * mean of every statistic over the same draw, so that differences of statistics are paired.
 *   stats  in   [n_stats] pointers to [n_units] values
 *   out    out  [n_stats] mean and interval
 * SW_E_USAGE without units. */
sw_code sw_bootstrap_means(sw_interval *out, const double *const *stats, int n_stats,
                           int64_t n_units, const sw_bootstrap *how, sw_err *err) SW_MUST_USE;

/* A difference is significant when its interval does not contain zero. */
static inline bool sw_interval_has_zero(const sw_interval *i)
{
    return i->low <= 0.0 && i->high >= 0.0;
}

#endif
