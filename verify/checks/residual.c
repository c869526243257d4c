/* residual.c - see plausible.h. */
#include "verify/checks/plausible.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "verify/base/apart.h"
#include "verify/checks/window_sums.h"

/* Rows that are looked at together, elements of a row or column that tell its level, inputs that
 * are sampled at once, and the smallest window that tells a loss. */
enum { BAND_ROWS = 64, SAMPLES_MAX = 256, SAMPLED_INPUTS = 128, LOSS_ELEMS_MIN = 8 };
/* Rows of windows of more than one, below a band. */
enum { N_SOME = 2 };
static const int64_t some_rows[N_SOME] = {8, 16};

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

/* By rows, then by rising columns; cols 0: the whole row. Sound weights measure at most the figure
 * on the right, over all methods and formats; the tails of single elements grow with the size of a
 * model. */
typedef struct window_shape {
    int64_t rows, cols;
    double excess_max;
} window_shape;

static const window_shape shapes[] = {
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

typedef struct finding {
    double over; /* the figure over its limit; above 1 it is one */
    char text[SW_RESIDUAL_TEXT_BYTES];
} finding;

typedef struct row_figures {
    double noise2; /* mean square of plain rounding */
    double dot, have2, want2;
} row_figures;

typedef struct residual {
    const sw_spec_weight *w;
    const sw_linear_rows *original;
    sw_spec_rows codes;
    const limits *limits;
    double lowest, highest; /* levels of codes without a zero point */
    double *carry2;         /* [k_in] share of a row's rounding that compensation carries there */
    double usual_carry2;    /* the median of them */
    row_figures *rows;      /* [n_out] */
    double *samples;        /* [SAMPLED_INPUTS, SAMPLES_MAX] */
    /* of one row, or of some inputs of it */
    float *want, *have, *levels; /* [k_in] */
    double *err, *noise2, *step; /* [k_in] */
    /* sums over inputs of one row and of a band, over quads of one row and of some rows, and over
     * longer windows */
    sw_windows_of row, band, quads, some[N_SOME], longer[2];
    double *column[SW_WINDOW_SUMS]; /* [k_in] over all rows; the excess is not used */
    finding worst;
} residual;

static void residual_free(residual *r)
{
    sw_spec_rows_free(&r->codes);
    sw_mem_put(r->carry2);
    sw_mem_put(r->rows);
    sw_mem_put(r->samples);
    sw_mem_put(r->want);
    sw_mem_put(r->err);
    sw_mem_put(r->column[0]);
    sw_windows_of_free(&r->row);
    sw_windows_of_free(&r->band);
    sw_windows_of_free(&r->quads);
    for (int i = 0; i < N_SOME; i++) sw_windows_of_free(&r->some[i]);
    for (int i = 0; i < 2; i++) sw_windows_of_free(&r->longer[i]);
}

static sw_code take_memory(residual *r, sw_err *err)
{
    const int64_t k_in = r->w->k_in, n_quads = k_in / SW_WINDOW_QUAD;
    sw_code rc;

    if ((rc = sw_spec_rows_new(&r->codes, r->w, err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->carry2, k_in, "carried noise", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->rows, r->w->n_out, "rounding noise", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->samples, SAMPLED_INPUTS * SAMPLES_MAX, "samples of noise",
                         err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->want, 3 * k_in, "rows", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->err, 3 * k_in, "errors", err)) != SW_OK ||
        (rc = SW_MEM_GET(&r->column[0], SW_WINDOW_SUMS * k_in, "sums of columns", err)) != SW_OK ||
        (rc = sw_windows_of_new(&r->row, k_in, err)) != SW_OK ||
        (rc = sw_windows_of_new(&r->band, k_in, err)) != SW_OK ||
        (rc = sw_windows_of_new(&r->quads, n_quads, err)) != SW_OK)
        return rc;
    for (int i = 0; i < N_SOME && rc == SW_OK; i++)
        rc = sw_windows_of_new(&r->some[i], n_quads, err);
    for (int i = 0; i < 2 && rc == SW_OK; i++) rc = sw_windows_of_new(&r->longer[i], n_quads, err);
    r->have = r->want + k_in;
    r->levels = r->have + k_in;
    r->noise2 = r->err + k_in;
    r->step = r->noise2 + k_in;
    for (int s = 1; s < SW_WINDOW_SUMS; s++) r->column[s] = r->column[0] + s * k_in;
    return rc;
}

static bool has_zeros(const sw_spec_weight *w) { return !w->exponent_bits && !w->levels; }

static sw_code residual_new(residual *r, const sw_spec_weight *w, const sw_linear_rows *original,
                            sw_err *err)
{
    const int n_limits = sizeof by_bits / sizeof *by_bits;
    int bits = w->bits_min ? w->bits_min : w->bits, at = n_limits - 1;
    sw_code rc;

    while (at > 0 && by_bits[at].bits > bits) at--;
    *r = (residual){.w = w, .original = original, .limits = &by_bits[at]};
    if ((rc = take_memory(r, err)) != SW_OK) return rc;
    for (int64_t k = 0; k < w->k_in; k++) r->step[k] = 1; /* of integers it stays so */
    for (int code = 0; code < 1 << w->bits && !has_zeros(w); code++) {
        double level = sw_spec_level(w, code, 0);

        if (!isfinite(level)) continue;
        r->lowest = fmin(r->lowest, level);
        r->highest = fmax(r->highest, level);
    }
    return SW_OK;
}

/* A run of one row: what its codes mean. */
typedef struct run_scale {
    double s, offset, lowest, highest, clip_max;
    float zero;
} run_scale;

/* Steps around where the original lies on the grid of small floats; sw_spec_step in a form that
 * compilers make vectors of: a power of two is the exponent's bits alone. */
static SW_HOT void float_steps(double *step, const float *want, int64_t n, run_scale c,
                               double smallest, double mantissa)
{
    const uint64_t exponent_bits = 0x7ff0000000000000u;

    for (int64_t i = 0; i < n; i++) {
        double at = ((double)want[i] - c.offset) / c.s, power;
        uint64_t bits;

        at = at > c.lowest ? at : c.lowest;
        at = at < c.highest ? at : c.highest;
        memcpy(&bits, &at, sizeof bits);
        bits &= exponent_bits;
        memcpy(&power, &bits, sizeof power);
        step[i] = (power > smallest ? power : smallest) * mantissa;
    }
}

static void level_steps(double *step, const float *want, int64_t n, run_scale c,
                        const sw_spec_weight *w)
{
    for (int64_t i = 0; i < n; i++) {
        const double at = ((double)want[i] - c.offset) / c.s;

        step[i] = sw_spec_step(w, fmin(fmax(at, c.lowest), c.highest));
    }
}

/* The error of each element and the variance of rounding it; what a searched range cut off is noise
 * of that row, but no error of its own. */
static SW_HOT void errors_of_run(double *restrict err, double *restrict rounding2,
                                 const double *restrict step, const float *restrict want,
                                 const float *restrict have, const float *restrict levels,
                                 int64_t n, run_scale c)
{
    const double width = c.clip_max * (c.highest - c.lowest), inverse = 1 / c.s;

    for (int64_t i = 0; i < n; i++) {
        const double v = (double)want[i], level = (double)(levels[i] - c.zero);
        const double at = (v - c.offset) * inverse, own = c.s * step[i];
        const double over = at - c.highest, under = c.lowest - at;
        const double below = level <= c.lowest ? under : 0;
        const double beyond = level >= c.highest ? over : below;
        const bool is_cut = (beyond > 0) & (beyond < width);
        const double cut = is_cut ? beyond : 0, e = v - (double)have[i];

        err[i] = is_cut ? 0 : e;
        rounding2[i] = own * own * (1.0 / 12) + cut * cut * c.s * c.s;
    }
}

static void look_at_run(residual *r, const sw_spec_run *run, int64_t n, int64_t at, int64_t count)
{
    const sw_spec_weight *w = r->w;
    const int64_t cell = n * w->n_groups + run->group;
    run_scale c = {.s = (double)w->scales[cell] * (double)w->global, .lowest = r->lowest,
                   .offset = w->offsets ? (double)w->offsets[cell] : 0, .highest = r->highest,
                   .clip_max = w->bits == 2 ? CLIP_MAX_2_BITS : CLIP_MAX};

    if (run->is_outlier || !(fabs(c.s) > 0)) {
        for (int64_t i = at; i < at + count; i++) { /* an outlier is stored as it is */
            r->err[i] = run->is_outlier ? 0 : (double)r->want[i] - (double)r->have[i];
            r->noise2[i] = 0;
        }
        return;
    }
    if (has_zeros(w)) {
        c.zero = (float)w->zeros[cell];
        c.lowest = -w->zeros[cell];
        c.highest = (1 << w->bits) - 1 + c.lowest;
    } else if (w->levels) {
        level_steps(r->step + at, r->want + at, count, c, w);
    } else {
        float_steps(r->step + at, r->want + at, count, c,
                    ldexp(1, 2 - (1 << (w->exponent_bits - 1))), ldexp(1, -w->mantissa_bits));
    }
    errors_of_run(r->err + at, r->noise2 + at, r->step + at, r->want + at, r->have + at,
                  r->levels + at, count, c);
}

/* Row n, inputs from k on: what is wanted and there, err and, in noise2, the variance of rounding,
 * each from its first element on. */
static void look(residual *r, int64_t n, int64_t k, int64_t n_inputs)
{
    sw_linear_rows_get(r->want, r->original, n, k, n_inputs);
    sw_spec_rows_levels(r->levels, &r->codes, n, k, n_inputs);
    sw_spec_rows_values(r->have, r->levels, &r->codes, n, k, n_inputs);
    for (int64_t i = sw_spec_rows_run_at(&r->codes, k); i < r->codes.n_runs; i++) {
        const sw_spec_run *run = &r->codes.runs[i];
        const int64_t from = sw_max_i64(run->k, k);
        const int64_t end = sw_min_i64(run->k + run->n, k + n_inputs);

        if (end <= from) break;
        look_at_run(r, run, n, from - k, end - from);
    }
}

/* The value below which `share` of n <= SAMPLES_MAX values lie; reorders them. What is smaller and
 * what is larger than one of them is told apart without a branch, which would be guessed wrong half
 * of the time. */
static double quantile(double *values, int64_t n, double share)
{
    double others[SAMPLES_MAX], *from = values, *larger = others;
    int64_t at = (int64_t)(share * (double)(n - 1));

    while (n > 0) {
        const double pivot = from[n / 2];
        int64_t n_smaller = 0, n_larger = 0;

        for (int64_t i = 0; i < n; i++) {
            const double v = from[i];
            from[n_smaller] = larger[n_larger] = v;
            n_smaller += v < pivot;
            n_larger += v > pivot;
        }
        if (at >= n_smaller && at < n - n_larger) return pivot;
        if (at < n_smaller) {
            n = n_smaller;
            continue;
        }
        double *kept = from;
        at -= n - n_larger;
        n = n_larger;
        from = larger;
        larger = kept;
    }
    return 0;
}

/* What reaches inputs k to k + n_inputs from others, in shares of each row's rounding: as most rows
 * have it. */
static void measure_carried(residual *r, int64_t k, int64_t n_inputs)
{
    const sw_spec_weight *w = r->w;
    const int64_t stride = sw_ceil_div(w->n_out, SAMPLES_MAX);
    double rounding[SAMPLED_INPUTS] = {0};
    int64_t n_samples = 0;

    for (int64_t n = 0; n < w->n_out; n += stride) {
        const double row2 = r->rows[n].noise2;

        if (!(row2 > 0)) continue;
        look(r, n, k, n_inputs);
        for (int64_t i = 0; i < n_inputs; i++) {
            r->samples[i * SAMPLES_MAX + n_samples] = r->err[i] * r->err[i] / row2;
            rounding[i] += r->noise2[i] / row2;
        }
        n_samples++;
    }
    for (int64_t i = 0; i < n_inputs; i++) {
        double median = n_samples ? quantile(r->samples + i * SAMPLES_MAX, n_samples, 0.5) : 0;

        r->carry2[k + i] = CARRY_MIN;
        if (n_samples)
            r->carry2[k + i] = fmax(CARRY_MIN, median / SQUARE_MEDIAN -
                                                   rounding[i] / (double)n_samples);
    }
}

static void measure_noise(residual *r)
{
    const sw_spec_weight *w = r->w;
    const int64_t k_in = w->k_in, stride = sw_ceil_div(k_in, SAMPLES_MAX);
    int64_t n_samples = 0;

    for (int64_t n = 0; n < w->n_out; n++) {
        sw_vec_sums sums = {0};

        look(r, n, 0, k_in);
        sw_vec_add(&sums, r->have, r->want, k_in);
        r->rows[n] = (row_figures){sw_vec_total(r->noise2, k_in) / (double)k_in, sums.dot,
                                   sums.have2, sums.want2};
    }
    for (int64_t k = 0; k < k_in; k += SAMPLED_INPUTS)
        measure_carried(r, k, sw_min_i64(SAMPLED_INPUTS, k_in - k));
    for (int64_t k = 0; k < k_in; k += stride) r->samples[n_samples++] = r->carry2[k];
    r->usual_carry2 = quantile(r->samples, n_samples, 0.5);
}

static SW_HOT void add_carried(double *restrict noise2, const double *restrict carry2, int64_t n,
                               double row2)
{
    for (int64_t k = 0; k < n; k++) noise2[k] += carry2[k] * row2;
}

static SW_HOT void multiply(double *x, int64_t n, double by)
{
    for (int64_t k = 0; k < n; k++) x[k] *= by;
}

/* Errors and noise of row n. A row may be noisier than others: what it answers for was changed by
 * the layers before it. Its quieter part says by how much. */
static void fill_row(residual *r, int64_t n)
{
    const int64_t k_in = r->w->k_in, stride = sw_ceil_div(k_in, SAMPLES_MAX);
    int64_t n_samples = 0;
    double level;

    look(r, n, 0, k_in);
    add_carried(r->noise2, r->carry2, k_in, r->rows[n].noise2);
    for (int64_t k = 0; k < k_in; k += stride)
        if (r->noise2[k] > 0) r->samples[n_samples++] = r->err[k] * r->err[k] / r->noise2[k];
    level = quantile(r->samples, n_samples, 0.25) / SQUARE_QUARTILE;
    if (level > 1) multiply(r->noise2, k_in, level);
    for (int64_t i = 0; i < r->codes.n_runs; i++) /* nothing of them is lost */
        for (int64_t k = r->codes.runs[i].k; r->codes.runs[i].is_outlier &&
                                             k < r->codes.runs[i].k + r->codes.runs[i].n; k++)
            r->want[k] = 0;
    sw_windows_of_row(&r->row, r->want, r->err, r->noise2, NO_NOISE);
    sw_windows_of_quads(&r->quads, &r->row);
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

/* Its own carry is no measure where all of a column is lost. */
static SW_HOT void add_column_noise(double *restrict to, const float *restrict original,
                                    const double *restrict noise2, const double *restrict carry2,
                                    double usual_carry2, double row2, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const double v = (double)original[k], more = (carry2[k] - usual_carry2) * row2;

        to[k] += v * v * (more > 0 ? noise2[k] - more : noise2[k]);
    }
}

/* Windows of b inputs that begin at every step-th, over rows n to n + a. */
static void scan_windows(residual *r, const sw_windows_of *x, const window_shape *shape, int64_t n,
                         int64_t a, int64_t b, int64_t step)
{
    const double loss_max = a * b < LOSS_ELEMS_MIN ? (double)INFINITY
                            : b == r->w->k_in      ? r->limits->row
                                                   : r->limits->window;

    if (!sw_windows_of_stand_out(x, shape->excess_max * (double)(a * b), loss_max)) return;
    for (int64_t i = 0; i < x->n; i++) {
        report_excess(r, x->at[SW_WINDOW_EXCESS][i] / (double)(a * b), shape->excess_max, n, a,
                      i * step, b);
        if (a * b >= LOSS_ELEMS_MIN)
            report_loss(r, x->at[SW_WINDOW_LOST][i], x->at[SW_WINDOW_POWER][i],
                        x->at[SW_WINDOW_NOISE][i], loss_max, n, a, i * step, b);
    }
}

/* All windows of shapes with so many rows over rows n to n + a, which may be fewer. Sums over
 * single inputs are NULL where no such shape asks for them. */
static void scan(residual *r, int64_t rows, int64_t n, int64_t a, const sw_windows_of *inputs,
                 const sw_windows_of *quads)
{
    const int64_t k_in = r->w->k_in;
    int64_t b = SW_WINDOW_QUAD, step = SW_WINDOW_QUAD;
    const sw_windows_of *x = quads;
    sw_windows_of *longer = r->longer;

    for (const window_shape *s = shapes; s < shapes + N_SHAPES; s++) {
        double all[SW_WINDOW_SUMS];
        const sw_windows_of whole = {{&all[0], &all[1], &all[2], &all[3]}, 1};

        if (s->rows != rows || s->cols > k_in) continue;
        for (; b < s->cols; b *= 2) {
            longer->n = (k_in - 2 * b) / b + 1;
            sw_windows_of_doubled(longer, x, b == SW_WINDOW_QUAD ? 1 : 2);
            step = b;
            x = longer;
            longer = longer == r->longer ? r->longer + 1 : r->longer;
        }
        if (s->cols == 0) sw_windows_of_total(all, inputs);
        if (s->cols == 0) scan_windows(r, &whole, s, n, a, k_in, k_in);
        else if (s->cols == 1) scan_windows(r, inputs, s, n, a, 1, 1);
        else scan_windows(r, x, s, n, a, b, step);
    }
}

/* Rows that do not fill a block are looked at with those before them. */
static void scan_rest(residual *r, int64_t n0, int64_t rows, int i)
{
    const int64_t a = sw_min_i64(some_rows[i], rows), n = n0 + rows - a;

    if (rows % some_rows[i] == 0) return;
    sw_windows_of_clear(&r->some[i]);
    for (int64_t at = n; at < n + a; at++) {
        fill_row(r, at);
        sw_windows_of_add(&r->some[i], &r->quads);
    }
    scan(r, some_rows[i], n, a, NULL, &r->some[i]);
}

static void judge_band(residual *r, int64_t n0, int64_t rows)
{
    const int64_t k_in = r->w->k_in;

    sw_windows_of_clear(&r->band);
    for (int64_t n = n0; n < n0 + rows; n++) {
        fill_row(r, n);
        add_column_noise(r->column[SW_WINDOW_NOISE], r->want, r->noise2, r->carry2,
                         r->usual_carry2, r->rows[n].noise2, k_in);
        scan(r, 1, n, 1, &r->row, &r->quads);
        sw_windows_of_add(&r->band, &r->row);
        for (int i = 0; i < N_SOME; i++) {
            const int64_t a = some_rows[i], at = (n - n0) % a;

            if (at == 0) sw_windows_of_clear(&r->some[i]);
            sw_windows_of_add(&r->some[i], &r->quads);
            if (at == a - 1) scan(r, a, n - at, a, NULL, &r->some[i]);
        }
    }
    for (int i = 0; i < N_SOME; i++) scan_rest(r, n0, rows, i);
    sw_windows_of_quads(&r->quads, &r->band);
    scan(r, BAND_ROWS, n0, rows, &r->band, &r->quads);
    for (int64_t k = 0; k < k_in; k++) {
        r->column[SW_WINDOW_LOST][k] += r->band.at[SW_WINDOW_LOST][k];
        r->column[SW_WINDOW_POWER][k] += r->band.at[SW_WINDOW_POWER][k];
    }
}

/* A row most of which is lost is its own measure of noise; its cosine is not. */
static void judge_row(residual *r, int64_t n)
{
    const sw_spec_weight *w = r->w;
    const row_figures *f = &r->rows[n];
    const double power = sqrt(f->have2 * f->want2);
    double noise, least;
    char what[120];
    sw_apart a;

    if (!(f->want2 > 0)) return;
    noise = f->noise2 * (1 + r->usual_carry2) * (double)w->k_in / f->want2;
    /* weights below their step are lost to rounding */
    least = r->limits->cosine / sqrt(1 + noise) - LOSS_SIGMAS * sqrt(noise / (double)w->k_in);
    if (f->dot >= least * power && (f->have2 > 0 || least <= 0)) return;
    a = sw_apart_places(f->have2 > 0 ? f->dot / power : 0, least, 3);
    (void)snprintf(what, sizeof what, "cosine to the original %s, want at least %s", a.have,
                   a.limit);
    report(r, 1 + least, n, 1, 0, w->k_in, what);
}

static void judge_columns(residual *r)
{
    const sw_spec_weight *w = r->w;
    const double *lost = r->column[SW_WINDOW_LOST], *power = r->column[SW_WINDOW_POWER];
    const double *noise = r->column[SW_WINDOW_NOISE];
    double all_lost = 0, all_power = 0, all_noise = 0;

    for (int64_t k = 0; k < w->k_in; k++) {
        all_lost += lost[k];
        all_power += power[k];
        all_noise += noise[k];
        report_loss(r, lost[k], power[k], noise[k], r->limits->column, 0, w->n_out, k, 1);
    }
    report_loss(r, all_lost, all_power, all_noise, r->limits->whole, 0, w->n_out, 0, w->k_in);
}

sw_code sw_residual_check(char why[SW_RESIDUAL_TEXT_BYTES], const sw_spec_weight *w,
                          const sw_linear_rows *original, sw_err *err)
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
