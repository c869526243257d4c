/* metrics.c - see metrics.h. */
#include "verify/base/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/hot.h"
#include "formats/base/mem.h"
#include "formats/base/size.h"

#define DEFAULT_SAMPLES 1000
#define DEFAULT_LEVEL 0.95

/* Sums of long vectors are kept in so many lanes, which are added up in the end: as fast as memory,
 * and the same on every machine. */
enum { LANES = 8 };

typedef struct vec_lanes {
    double err2[LANES], want2[LANES], have2[LANES], dot[LANES];
} vec_lanes;

static double total(const double lane[LANES])
{
    const double low = (lane[0] + lane[1]) + (lane[2] + lane[3]);

    return low + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static SW_HOT void add_lanes(vec_lanes *out, const float *have, const float *want, int64_t n)
{
    vec_lanes s = {.err2 = {0}};

    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const double h = (double)have[i + j], w = (double)want[i + j];

            s.err2[j] += (h - w) * (h - w);
            s.want2[j] += w * w;
            s.have2[j] += h * h;
            s.dot[j] += h * w;
        }
    *out = s;
}

void sw_vec_add(sw_vec_sums *sums, const float *have, const float *want, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    vec_lanes s;

    if (whole) {
        add_lanes(&s, have, want, whole);
        sums->err2 += total(s.err2);
        sums->want2 += total(s.want2);
        sums->have2 += total(s.have2);
        sums->dot += total(s.dot);
    }
    for (int64_t i = whole; i < n; i++) {
        double h = (double)have[i], w = (double)want[i];

        sums->err2 += (h - w) * (h - w);
        sums->want2 += w * w;
        sums->have2 += h * h;
        sums->dot += h * w;
    }
}

static SW_HOT void total_lanes(double lane[LANES], const double *x, int64_t n)
{
    double sum[LANES] = {0};

    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += x[i + j];
    for (int j = 0; j < LANES; j++) lane[j] = sum[j];
}

double sw_vec_total(const double *x, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    double lane[LANES], sum;

    total_lanes(lane, x, whole);
    sum = total(lane);
    for (int64_t i = whole; i < n; i++) sum += x[i];
    return sum;
}

double sw_vec_rel_err(const sw_vec_sums *sums)
{
    if (sums->want2 > 0) return sqrt(sums->err2 / sums->want2);
    return sums->err2 > 0 ? (double)INFINITY : 0.0;
}

double sw_vec_cosine(const sw_vec_sums *sums)
{
    if (sums->want2 > 0 && sums->have2 > 0)
        return sums->dot / (sqrt(sums->want2) * sqrt(sums->have2));
    return sums->want2 > 0 || sums->have2 > 0 ? 0.0 : 1.0;
}

/* Index of the largest; the first one among equals. */
static int64_t top_of(const float *x, int64_t n)
{
    int64_t top = 0;

    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[top]) top = i;
    return top;
}

double sw_nll(const float *logits, int64_t vocab, uint32_t target)
{
    double max = (double)logits[top_of(logits, vocab)], sum = 0;

    for (int64_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - max);
    return log(sum) - ((double)logits[target] - max);
}

/* 1 when both would choose the same token. */
double sw_metric_top1(const sw_logits_pair *pair) { return pair->ref_top == pair->have_top; }

static void measure(sw_position *out, const sw_logits_pair *pair)
{
    static double (*const metrics[SW_METRIC_COUNT])(const sw_logits_pair *) = {
#define SW_METRIC(id, field, key, line, shown, reads) sw_metric_##field,
#include "verify/base/metrics.def"
#undef SW_METRIC
    };

    for (int i = 0; i < SW_METRIC_COUNT; i++) out->metrics[i] = metrics[i](pair);
}

void sw_position_compare(sw_position *out, const float *ref, const float *have, int64_t vocab,
                         uint32_t target, double *scratch)
{
    sw_logits_pair pair = {.ref = ref, .have = have, .vocab = vocab, .target = target,
                           .ref_top = top_of(ref, vocab), .have_top = top_of(have, vocab),
                           .ref_exp = scratch};
    double ref_max = (double)ref[pair.ref_top], have_max = (double)have[pair.have_top];
    double ref_sum = 0, have_sum = 0, gap = 0, kl;

    for (int64_t i = 0; i < vocab; i++) {
        scratch[i] = exp((double)ref[i] - ref_max);
        ref_sum += scratch[i];
        have_sum += exp((double)have[i] - have_max);
    }
    /* sum p (log p - log q) = sum p ((x - x_max) - (y - y_max)) - log sum_x + log sum_y */
    for (int64_t i = 0; i < vocab; i++)
        gap += scratch[i] * (((double)ref[i] - ref_max) - ((double)have[i] - have_max));
    kl = gap / ref_sum - log(ref_sum) + log(have_sum);
    out->kl = kl < 0 ? 0.0 : kl; /* rounding only: KL is never negative; a NaN stays one */
    out->nll_ref = log(ref_sum) - ((double)ref[target] - ref_max);
    out->nll_have = log(have_sum) - ((double)have[target] - have_max);
    pair.ref_sum = ref_sum;
    pair.have_sum = have_sum;
    measure(out, &pair);
}

bool sw_metrics_read_logits(void)
{
    enum { TOPS, LOGITS };
    static const int reads[] = {
#define SW_METRIC(id, field, key, line, shown, reads) reads,
#include "verify/base/metrics.def"
#undef SW_METRIC
    };

    for (int i = 0; i < SW_METRIC_COUNT; i++)
        if (reads[i] == LOGITS) return true;
    return false;
}

void sw_position_of(sw_position *out, const sw_lm_score *score)
{
    const sw_logits_pair pair = {.ref_top = score->top_ref, .have_top = score->top,
                                 .ref_sum = score->sum_ref, .have_sum = score->sum};

    out->nll_have = score->nll;
    out->nll_ref = score->nll_ref;
    out->kl = score->kl;
    if (score->sum_ref > 0 || isnan(score->sum_ref)) measure(out, &pair);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double sw_percentile(double *values, int64_t n, double p)
{
    double at, low;
    int64_t i;

    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    at = p * (double)(n - 1);
    low = floor(at);
    i = (int64_t)low;
    if (i + 1 >= n) return values[n - 1];
    return values[i] + (at - low) * (values[i + 1] - values[i]);
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Mean of every statistic over one draw of n_units units, into means[n_stats]. */
static void resample(double *means, const double *const *stats, int n_stats, int64_t n_units,
                     uint64_t *state)
{
    for (int s = 0; s < n_stats; s++) means[s] = 0;
    for (int64_t i = 0; i < n_units; i++) {
        /* high half of the product: uniform over the units to within n_units / 2^64 */
        int64_t unit = (int64_t)(((unsigned __int128)next_random(state) * (uint64_t)n_units) >> 64);

        for (int s = 0; s < n_stats; s++) means[s] += stats[s][unit];
    }
    for (int s = 0; s < n_stats; s++) means[s] /= (double)n_units;
}

static double mean_of(const double *values, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += values[i];
    return sum / (double)n;
}

sw_code sw_bootstrap_means(sw_interval *out, const double *const *stats, int n_stats,
                           int64_t n_units, const sw_bootstrap *how, sw_err *err)
{
    int64_t n_samples = how->n_samples > 0 ? how->n_samples : DEFAULT_SAMPLES;
    double level = how->level > 0 ? how->level : DEFAULT_LEVEL, *means = NULL, *column;
    uint64_t state = how->seed;
    sw_code rc;

    if (n_units < 1) return SW_FAIL(err, SW_E_USAGE, "no windows to take a mean over");
    rc = SW_MEM_GET(&means, (n_samples + 1) * (n_stats + 1), "bootstrap means", err);
    if (rc != SW_OK) return rc;
    column = means + n_samples * n_stats;
    for (int64_t b = 0; b < n_samples; b++)
        resample(means + b * n_stats, stats, n_stats, n_units, &state);
    for (int s = 0; s < n_stats; s++) {
        for (int64_t b = 0; b < n_samples; b++) column[b] = means[b * n_stats + s];
        out[s].at = mean_of(stats[s], n_units);
        out[s].low = sw_percentile(column, n_samples, (1 - level) / 2);
        out[s].high = sw_percentile(column, n_samples, (1 + level) / 2);
    }
    sw_mem_put(means);
    return SW_OK;
}
