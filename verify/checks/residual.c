/* residual.c - see plausible.h. */
#include "verify/checks/plausible.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "verify/base/apart.h"

/* Rows that are looked at together, and elements of a row or column that tell its level. */
enum { BAND_ROWS = 64, SAMPLES_MAX = 256 };

/* Compensation is held to carry at least this share of a row's rounding to each of its inputs:
 * where scales are small integers times a shared one, small cells are off by as much. */
#define CARRY_MIN 0.25
/* Of squares of normal noise of variance 1: the median and the lower quartile. */
#define SQUARE_MEDIAN 0.4549
#define SQUARE_QUARTILE 0.1015
/* Searched ranges cut off what lies beyond them, by at most so many of their widths: at 2 bits, of
 * few tokens that hardly use an input, 2.8 were seen. */
#define CLIP_MAX 2.5
#define CLIP_MAX_2_BITS 4.0
/* A loss counts beyond this many standard deviations of the noise. */
#define LOSS_SIGMAS 6.0
#define NO_NOISE 1e6 /* excess of an error where there can be none */

/* cols 0: the whole row. Sound weights measure at most the figure on the right, over all methods
 * and formats; the tails of single elements grow with the size of a model. */
static const struct {
    int64_t rows, cols;
    double excess_max;
} shapes[] = {
    {1, 1, 300},   /* 65; 133 at 2 bits */
    {1, 8, 40},    /* 13; 18 */
    {1, 16, 25},   /* 7.8; 10 */
    {1, 32, 14},   /* 5.9 */
    {1, 64, 9},    /* 3.8 */
    {1, 128, 7},   /* 3.0 */
    {1, 0, 5.5},   /* 2.4 */
    {8, 8, 10},    /* 4.3 */
    {16, 4, 10},
    {16, 16, 6},   /* 2.5 */
    {64, 1, 20},   /* 7.9 */
    {64, 8, 8},
    {64, 16, 6},   /* 2.2 */
    {64, 0, 4},    /* 1.5 */
};
#define N_SHAPES (int)(sizeof shapes / sizeof *shapes)

/* By bits, of the narrowest linear of the checkpoint: shares that windows of 8 elements on, rows,
 * columns and the whole weight may lose, and the least cosine of a row. */
typedef struct limits {
    int bits;
    double window, row, column, whole, cosine;
} limits;

static const limits by_bits[] = {
    {2, 0.65, 0.60, 0.85, 0.50, 0.40}, /* sound: 0.13 0.32 0.54 0.24 0.78 */
    {3, 0.45, 0.35, 0.65, 0.20, 0.60}, /* 0.02 0.13 0.30 0.08 0.89 */
    {4, 0.35, 0.25, 0.50, 0.10, 0.65}, /* 0.02 0.09 0.24 0.03 0.81 */
    {8, 0.25, 0.12, 0.30, 0.03, 0.93}, /* 0.00 0.04 0.10 0.005 0.98 */
};

typedef enum sum { EXCESS, LOST, POWER, NOISE, N_SUMS } sum;

typedef struct finding {
    double over; /* the figure over its limit; above 1 it is one */
    char text[SW_RESIDUAL_TEXT_BYTES];
} finding;

typedef struct residual {
    const sw_spec_weight *w;
    const float *original;
    const limits *limits;
    double lowest, highest; /* levels of codes without a zero point */
    double *carry2;         /* [k_in] share of a row's rounding that compensation carries there */
    double usual_carry2;    /* the median of them */
    double *row2;           /* [n_out] mean square of plain rounding in a row */
    double *samples;        /* [SAMPLES_MAX] */
    double *err, *noise2;   /* [BAND_ROWS, k_in] */
    double *column[N_SUMS]; /* [k_in] over all rows; EXCESS is not used */
    double *sums[N_SUMS];   /* [BAND_ROWS + 1, k_in + 1] over the rectangle above and to the left */
    finding worst;
} residual;

static void residual_free(residual *r)
{
    sw_mem_put(r->carry2);
    sw_mem_put(r->row2);
    sw_mem_put(r->samples);
    sw_mem_put(r->err);
    sw_mem_put(r->noise2);
    for (int s = 0; s < N_SUMS; s++) {
        sw_mem_put(r->column[s]);
        sw_mem_put(r->sums[s]);
    }
}

static sw_code residual_new(residual *r, const sw_spec_weight *w, const float *original,
                            sw_err *err)
{
    const int n_limits = sizeof by_bits / sizeof *by_bits;
    int bits = w->bits_min ? w->bits_min : w->bits, at = n_limits - 1;
    sw_code rc;

    while (at > 0 && by_bits[at].bits > bits) at--;
    *r = (residual){.w = w, .original = original, .limits = &by_bits[at]};
    if ((rc = SW_MEM_GET(&r->carry2, w->k_in, "carried noise", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->row2, w->n_out, "rounding noise", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->samples, SAMPLES_MAX, "samples of noise", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->err, BAND_ROWS * w->k_in, "errors", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->noise2, BAND_ROWS * w->k_in, "noise", err)) != SW_OK)
        return rc;
    for (int s = 0; s < N_SUMS; s++)
        if ((rc = SW_MEM_GET(&r->column[s], w->k_in, "sums of columns", err)) != SW_OK ||
            (rc = SW_MEM_GET(&r->sums[s], (BAND_ROWS + 1) * (w->k_in + 1), "sums of windows",
                             err)) != SW_OK)
            return rc;
    for (int code = 0; code < 1 << w->bits && (w->exponent_bits || w->levels); code++) {
        double level = sw_spec_level(w, code, 0);

        if (!isfinite(level)) continue;
        r->lowest = fmin(r->lowest, level);
        r->highest = fmax(r->highest, level);
    }
    return SW_OK;
}

/* The error of an element and the variance of rounding it; what a searched range cut off is noise
 * of that row, but no error of its own. Zeros of an outlier, which is stored as it is. */
static void look(const residual *r, int64_t n, int64_t k, double *err, double *rounding2)
{
    const sw_spec_weight *w = r->w;
    int64_t at = n * w->n_groups + w->group_of[k];
    double offset = w->offsets ? (double)w->offsets[at] : 0;
    double v = (double)r->original[n * w->k_in + k], s = (double)w->scales[at] * (double)w->global;
    double lowest = r->lowest, highest = r->highest, level, at_level, step, beyond;
    const double clip_max = w->bits == 2 ? CLIP_MAX_2_BITS : CLIP_MAX;

    *err = *rounding2 = 0;
    if (w->is_outlier && w->is_outlier[k]) return;
    *err = v - (double)w->values[n * w->k_in + k];
    if (!(fabs(s) > 0)) return;
    if (!w->exponent_bits && !w->levels) {
        lowest = -w->zeros[at];
        highest = (1 << w->bits) - 1 + lowest;
    }
    level = sw_spec_level(w, w->codes[n * w->k_in + k], w->zeros[at]);
    at_level = (v - offset) / s;
    step = s * sw_spec_step(w, fmin(fmax(at_level, lowest), highest));
    *rounding2 = step * step / 12;
    beyond = level >= highest ? at_level - highest : level <= lowest ? lowest - at_level : 0;
    if (!(beyond > 0 && beyond < clip_max * (highest - lowest))) return;
    *err = 0;
    *rounding2 += beyond * beyond * s * s;
}

/* The value below which `share` of n values lie; reorders them. */
static double quantile(double *values, int64_t n, double share)
{
    int64_t low = 0, high = n - 1, at = (int64_t)(share * (double)(n - 1));

    if (n < 1) return 0;
    while (low < high) { /* what is left between them holds the wanted one */
        double pivot = values[(low + high) / 2];
        int64_t i = low, j = high;

        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i > j) break;
            double kept = values[i];
            values[i++] = values[j];
            values[j--] = kept;
        }
        if (at <= j) high = j;
        else if (at >= i) low = i;
        else break;
    }
    return values[at];
}

/* What reaches input k from others, in shares of each row's rounding: as most rows have it. */
static double carried(const residual *r, int64_t k)
{
    const sw_spec_weight *w = r->w;
    int64_t stride = sw_ceil_div(w->n_out, SAMPLES_MAX), n_samples = 0;
    double rounding = 0, err, rounding2;

    for (int64_t n = 0; n < w->n_out; n += stride) {
        if (!(r->row2[n] > 0)) continue;
        look(r, n, k, &err, &rounding2);
        r->samples[n_samples++] = err * err / r->row2[n];
        rounding += rounding2 / r->row2[n];
    }
    if (!n_samples) return CARRY_MIN;
    rounding /= (double)n_samples;
    return fmax(CARRY_MIN, quantile(r->samples, n_samples, 0.5) / SQUARE_MEDIAN - rounding);
}

static void measure_noise(residual *r)
{
    const sw_spec_weight *w = r->w;
    int64_t stride = sw_ceil_div(w->k_in, SAMPLES_MAX), n_samples = 0;

    for (int64_t n = 0; n < w->n_out; n++) {
        double err, rounding2, all = 0;

        for (int64_t k = 0; k < w->k_in; k++) {
            look(r, n, k, &err, &rounding2);
            all += rounding2;
        }
        r->row2[n] = all / (double)w->k_in;
    }
    for (int64_t k = 0; k < w->k_in; k++) r->carry2[k] = carried(r, k);
    for (int64_t k = 0; k < w->k_in; k += stride) r->samples[n_samples++] = r->carry2[k];
    r->usual_carry2 = quantile(r->samples, n_samples, 0.5);
}

/* Errors and noise of row n, the i-th of its band. A row may be noisier than others: what it
 * answers for was changed by the layers before it. Its quieter part says by how much. */
static void fill_row(residual *r, int64_t n, int64_t i)
{
    const int64_t k_in = r->w->k_in, stride = sw_ceil_div(k_in, SAMPLES_MAX);
    double *err = r->err + i * k_in, *noise2 = r->noise2 + i * k_in, level;
    int64_t n_samples = 0;

    for (int64_t k = 0; k < k_in; k++) {
        look(r, n, k, &err[k], &noise2[k]);
        noise2[k] += r->carry2[k] * r->row2[n];
        if (k % stride == 0 && noise2[k] > 0)
            r->samples[n_samples++] = err[k] * err[k] / noise2[k];
    }
    level = quantile(r->samples, n_samples, 0.25) / SQUARE_QUARTILE;
    for (int64_t k = 0; k < k_in && level > 1; k++) noise2[k] *= level;
}

static void report(residual *r, double over, int64_t n, int64_t rows, int64_t k, int64_t cols,
                   const char *what)
{
    int at;

    if (over <= 1 || over <= r->worst.over) return;
    r->worst.over = over;
    at = rows == 1 ? snprintf(r->worst.text, sizeof r->worst.text, "channel %lld", (long long)n)
                   : snprintf(r->worst.text, sizeof r->worst.text, "channels %lld to %lld",
                              (long long)n, (long long)(n + rows - 1));
    if (cols == 1)
        at += snprintf(r->worst.text + at, sizeof r->worst.text - (size_t)at, ", input %lld",
                       (long long)k);
    else if (cols < r->w->k_in)
        at += snprintf(r->worst.text + at, sizeof r->worst.text - (size_t)at,
                       ", inputs %lld to %lld", (long long)k, (long long)(k + cols - 1));
    (void)snprintf(r->worst.text + at, sizeof r->worst.text - (size_t)at, ": %s", what);
}

static void report_excess(residual *r, double have, double most, int64_t n, int64_t rows,
                          int64_t k, int64_t cols)
{
    char what[160];
    sw_apart a;

    if (have <= most) return;
    a = sw_apart_places(sqrt(have), sqrt(most), 1);
    (void)snprintf(what, sizeof what, "the error is %s times what rounding explains there, want "
                   "at most %s", a.have, a.limit);
    report(r, have / most, n, rows, k, cols, what);
}

/* sums: of original * error, original^2, and original^2 * noise^2. */
static void report_loss(residual *r, double lost, double power, double noise, double most,
                        int64_t n, int64_t rows, int64_t k, int64_t cols)
{
    double limit = power > 0 ? most + LOSS_SIGMAS * sqrt(noise) / power : 0;
    char what[200];
    sw_apart a;

    if (!(power > 0) || fabs(lost) / power <= limit) return;
    a = sw_apart_places(100 * fabs(lost / power), 100 * limit, 0);
    (void)snprintf(what, sizeof what, "%s%s %% of the original weight is not in the codes, want "
                   "0 +- %s %%%s", lost < 0 ? "-" : "", a.have, a.limit,
                   lost / power < 0.8 ? "" : lost / power < 1.2 ? ": they are constant or belong "
                   "elsewhere" : lost / power < 2.2 ? ": signs are turned" : "");
    report(r, fabs(lost) / power / limit, n, rows, k, cols, what);
}

static double box(const residual *r, sum s, int64_t i0, int64_t i1, int64_t k0, int64_t k1)
{
    const double *t = r->sums[s];
    const int64_t width = r->w->k_in + 1;

    return t[i1 * width + k1] - t[i0 * width + k1] - t[i1 * width + k0] + t[i0 * width + k0];
}

/* The tables of a band that begins at row n0. */
static void add_up(residual *r, int64_t n0, int64_t rows)
{
    const int64_t k_in = r->w->k_in, width = k_in + 1;

    for (int s = 0; s < N_SUMS; s++) memset(r->sums[s], 0, (size_t)width * sizeof(double));
    for (int64_t i = 0; i < rows; i++) {
        double of_row[N_SUMS] = {0};

        for (int s = 0; s < N_SUMS; s++) r->sums[s][(i + 1) * width] = 0;
        for (int64_t k = 0; k < k_in; k++) {
            double e = r->err[i * k_in + k], noise2 = r->noise2[i * k_in + k];
            double v = (double)r->original[(n0 + i) * k_in + k];

            if (!(r->w->is_outlier && r->w->is_outlier[k])) {
                of_row[EXCESS] += noise2 > 0 ? e * e / noise2 : fabs(e) > 0 ? NO_NOISE : 0;
                of_row[LOST] += v * e;
                of_row[POWER] += v * v;
                of_row[NOISE] += v * v * noise2;
                r->column[LOST][k] += v * e;
                r->column[POWER][k] += v * v;
                /* its own carry is no measure where all of a column is lost */
                r->column[NOISE][k] += v * v * fmin(noise2, noise2 - (r->carry2[k] -
                                       r->usual_carry2) * r->row2[n0 + i]);
            }
            for (int s = 0; s < N_SUMS; s++)
                r->sums[s][(i + 1) * width + k + 1] =
                    r->sums[s][i * width + k + 1] + of_row[s];
        }
    }
}

/* Windows of one shape over a band; long ones overlap by half. */
static void scan(residual *r, int shape, int64_t n0, int64_t rows)
{
    const int64_t k_in = r->w->k_in;
    int64_t a = shapes[shape].rows, b = shapes[shape].cols ? shapes[shape].cols : k_in;
    int64_t step = b > 4 ? b / 2 : b;
    double loss_max = b == k_in ? r->limits->row : r->limits->window;

    if (a > rows) a = rows;
    if (b > k_in) return;
    for (int64_t i = 0; i < rows; i += a)
        for (int64_t k = 0; k + b <= k_in; k += step) {
            int64_t i0 = i + a <= rows ? i : rows - a; /* the last one overlaps */

            report_excess(r, box(r, EXCESS, i0, i0 + a, k, k + b) / (double)(a * b),
                          shapes[shape].excess_max, n0 + i0, a, k, b);
            if (a * b >= 8)
                report_loss(r, box(r, LOST, i0, i0 + a, k, k + b),
                            box(r, POWER, i0, i0 + a, k, k + b),
                            box(r, NOISE, i0, i0 + a, k, k + b), loss_max, n0 + i0, a, k, b);
        }
}

static void judge_band(residual *r, int64_t n0, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) fill_row(r, n0 + i, i);
    add_up(r, n0, rows);
    for (int shape = 0; shape < N_SHAPES; shape++) scan(r, shape, n0, rows);
}

/* A row most of which is lost is its own measure of noise; its cosine is not. */
static void judge_row(residual *r, int64_t n)
{
    const sw_spec_weight *w = r->w;
    double dot = 0, have2 = 0, want2 = 0, noise = 0, least;
    char what[120];
    sw_apart a;

    for (int64_t k = 0; k < w->k_in; k++) {
        double v = (double)r->original[n * w->k_in + k], h = (double)w->values[n * w->k_in + k];

        dot += v * h;
        have2 += h * h;
        want2 += v * v;
    }
    if (!(want2 > 0)) return;
    noise = r->row2[n] * (1 + r->usual_carry2) * (double)w->k_in / want2;
    /* weights below their step are lost to rounding */
    least = r->limits->cosine / sqrt(1 + noise) - LOSS_SIGMAS * sqrt(noise / (double)w->k_in);
    if (dot >= least * sqrt(have2 * want2) && (have2 > 0 || least <= 0)) return;
    a = sw_apart_places(have2 > 0 ? dot / sqrt(have2 * want2) : 0, least, 3);
    (void)snprintf(what, sizeof what, "cosine to the original %s, want at least %s", a.have,
                   a.limit);
    report(r, 1 + least, n, 1, 0, w->k_in, what);
}

static void judge_columns(residual *r)
{
    const sw_spec_weight *w = r->w;
    double lost = 0, power = 0, noise = 0;

    for (int64_t k = 0; k < w->k_in; k++) {
        lost += r->column[LOST][k];
        power += r->column[POWER][k];
        noise += r->column[NOISE][k];
        report_loss(r, r->column[LOST][k], r->column[POWER][k], r->column[NOISE][k],
                    r->limits->column, 0, w->n_out, k, 1);
    }
    report_loss(r, lost, power, noise, r->limits->whole, 0, w->n_out, 0, w->k_in);
}

sw_code sw_residual_check(char why[SW_RESIDUAL_TEXT_BYTES], const sw_spec_weight *w,
                          const float *original, sw_err *err)
{
    residual r;
    sw_code rc = residual_new(&r, w, original, err);

    why[0] = '\0';
    if (rc == SW_OK) {
        measure_noise(&r);
        for (int64_t n = 0; n < w->n_out; n += BAND_ROWS)
            judge_band(&r, n, sw_min_i64(BAND_ROWS, w->n_out - n));
        for (int64_t n = 0; n < w->n_out; n++) judge_row(&r, n);
        judge_columns(&r);
        (void)snprintf(why, SW_RESIDUAL_TEXT_BYTES, "%s", r.worst.text);
    }
    residual_free(&r);
    return rc;
}
