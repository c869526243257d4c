/* plausible.c - see plausible.h. */
#include "verify/checks/plausible.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "verify/base/apart.h"
#include "verify/checks/nearest.h"
#include "verify/checks/run_sums.h"

/* The same over a whole weight, where chance evens out, as factor of the root mean square. Scales
 * that came from other rows or groups of like size pass every bound on single groups. Sound
 * weights measure at most 1.13 (MXFP8 by gptq; 1.10 at 2 bits, 1.03 in integers and NVFP4).
 * Weights of few values, like ternary ones, may have a scale without any error: nobody has to find
 * it, so plain rounding by the stored scale is the least that counts, as it is for single groups.
 * Scales that were rounded after the codes were chosen are off by up to 2^-8, in BF16. */
#define REFIT_MAX 1.35
#define REFIT_MAX_2_BITS 1.6
#define REFIT_WEIGHTS_MIN 512
#define SCALE_ROUNDING 0x1p-8

/* Error beyond this many times plain rounding's is no rounding. GPTQ gives up weight error for
 * output error, and more of it to make good what was lost upstream: on trained models it measures
 * 1.8 (8 bits) to 2.4 (experts that saw few tokens). */
#define STEP_RMS_MAX 4.0

/* How much smaller the error of a group of n weights of a row may become by another scale and
 * zero point. Sound weights, GPTQ's too, measure at most 1.5 (n = 32), 1.4 (64), 1.2 (128 on);
 * at 2 bits 2.3, 2.1 and 2.0; at fp4 for rounded inputs 2.9 (n = 32) and 3.9 (16). */
static double misfit_max(double n, const sw_spec_weight *w)
{
    /* a small scale among large ones of its block is off by half of a step that all share */
    const double shared = w->has_scale_steps ? 3 : 1;
    bool is_coarse = w->bits == 2 || (w->bits == 4 && w->exponent_bits);

    return (1.25 + 8 / sqrt(n)) * (is_coarse ? 1.5 : 1) * shared;
}

/* How much more a group may have where the other groups of its row have as much. A target that
 * makes good what was lost upstream moves whole rows: one row of tiny-llama by awq+gptq, with
 * 1,000 to 4,000 tokens of calibration text, measures up to 2.2 in both of its groups of 128. */
#define ROW_MISFIT_MAX 1.3

/* Sound weights measure at least 0.69 (2 bits), 0.91 (3), 0.97 (4), 0.9999 (8). */
static double cosine_min(int bits)
{
    return bits <= 2 ? 0.4 : bits == 3 ? 0.7 : bits == 4 ? 0.9 : 0.99;
}

/* Linears aim at what makes good the errors of those before them, so in a mixed checkpoint the
 * narrowest width decides how far any of them may be from its original: 4-bit output projections
 * of a model at 3.25 bits in all measure a cosine of 0.87. */
static int least_bits(const sw_spec_weight *w) { return w->bits_min ? w->bits_min : w->bits; }

static double step_rms_max(const sw_spec_weight *w)
{
    return STEP_RMS_MAX * (1 << (w->bits - least_bits(w)));
}

/* A rival reading must be better by this share of the error, not by rounding noise. */
#define RIVAL_MARGIN 0.02

typedef enum rival {
    NEXT_GROUP, PREV_GROUP, FAR_GROUP, NEXT_CHANNEL, PREV_CHANNEL, FAR_CHANNEL, ZERO_UP,
    ZERO_DOWN, SWAP_INPUTS, SWAP_CHANNELS, SWAP_ROWS8, N_RIVALS
} rival;

static const char *const rival_text[N_RIVALS] = {
    [NEXT_GROUP] = "the scales of the next group: scales are off by one group",
    [PREV_GROUP] = "the scales of the previous group: scales are off by one group",
    [FAR_GROUP] = "the scales of the group half a row away: scales are out of order",
    [NEXT_CHANNEL] = "the scales of the next channel: scales are off by one channel",
    [PREV_CHANNEL] = "the scales of the previous channel: scales are off by one channel",
    [FAR_CHANNEL] = "the scales of the channel half the rows away: scales are out of order",
    [ZERO_UP] = "every zero point one higher: zero points are wrong",
    [ZERO_DOWN] = "every zero point one lower: zero points are wrong",
    [SWAP_INPUTS] = "the codes of neighbouring inputs swapped: nibbles are swapped",
    [SWAP_CHANNELS] = "the codes of neighbouring channels swapped: nibbles are swapped",
    [SWAP_ROWS8] = "the codes of channels 8 apart swapped: nibbles are swapped",
};

/* Squared errors of a cell: as stored, by the best scale and zero point, and by rounding alone. */
typedef struct fit {
    double own2, line2, round2;
} fit;

/* Sums over the columns of one group of one row; c = level of the code (decode_spec.h), r2 the
 * squares of the steps around it. */
typedef struct cell {
    double n, w1, w2, c1, c2, wc, r2;
    fit fit; /* once all columns are in */
} cell;

typedef struct sums {
    sw_vec_sums vec;
    double err2, round2;         /* squared error, and what rounding alone would give */
    double n_fit, own2, fit2;    /* weights, squared error, and that by the best lines */
    sw_vec_sums rival[N_RIVALS]; /* the rival against the original, where it exists */
    sw_vec_sums own[N_RIVALS];   /* ours over the same weights; dot, have2, want2 of both */
    double worst_cell, worst_over; /* misfit, and misfit over its limit */
    int64_t worst_n, worst_g;
    sw_nearest nearest;
} sums;

/* Squared error of a cell. */
static double cell_error(const cell *x, double s)
{
    return x->w2 - 2 * s * x->wc + s * s * x->c2;
}

/* Squared error of the best line w = a c + b. */
static double cell_fit(const cell *x)
{
    double ww = x->w2 - x->w1 * x->w1 / x->n, cc = x->c2 - x->c1 * x->c1 / x->n;
    double wc = x->wc - x->w1 * x->c1 / x->n, left = cc > 0 ? ww - wc * wc / cc : ww;

    return left > 0 ? left : 0;
}

static void add_reading(sw_vec_sums *reading, double dot, double have2, double want2)
{
    reading->dot += dot;
    reading->have2 += have2;
    reading->want2 += want2;
}

/* A cell read with scale s and zero points moved by d, beside itself as stored. */
static void add_cell_rival(sums *all, rival r, const cell *x, double own_scale, double s, double d)
{
    add_reading(&all->own[r], own_scale * x->wc, own_scale * own_scale * x->c2, x->w2);
    add_reading(&all->rival[r], s * (x->wc - d * x->w1),
                s * s * (x->c2 - 2 * d * x->c1 + d * d * x->n), x->w2);
}

/* No fit is held to less than rounding gives. */
static double least2(const fit *f) { return fmax(f->line2, f->round2); }

/* Weights of 0 under a scale of 0 have no error, and nothing to hold it against. */
static double misfit_of(double own2, double best2) { return own2 > 0 ? sqrt(own2 / best2) : 0; }

/* The groups of a row beside their limits. */
static void add_misfits(sums *all, const sw_spec_weight *w, const cell *cells, int64_t n)
{
    double row_own2 = 0, row_best2 = 0;

    for (int64_t g = 0; g < w->n_groups; g++) {
        row_own2 += cells[g].fit.own2;
        row_best2 += least2(&cells[g].fit);
    }
    for (int64_t g = 0; g < w->n_groups; g++) {
        const double own2 = cells[g].fit.own2, best2 = least2(&cells[g].fit);
        const double others = row_best2 - best2 > 0
                                  ? misfit_of(row_own2 - own2, row_best2 - best2) : 1;
        const double more = fmax(fmin(others, ROW_MISFIT_MAX), 1);
        const double misfit = misfit_of(own2, best2);
        const double over = misfit / (misfit_max(cells[g].n, w) * more);

        if (cells[g].n < 1 || over <= all->worst_over) continue;
        all->worst_over = over;
        all->worst_cell = misfit;
        all->worst_n = n;
        all->worst_g = g;
    }
}

static void add_cell(sums *all, const sw_spec_weight *w, cell *x, int64_t n, int64_t g)
{
    const float *scales = w->scales + n * w->n_groups;
    double global = (double)w->global, s = (double)scales[g] * global;

    if (x->n < 1) return;
    x->fit = (fit){cell_error(x, s), cell_fit(x), x->r2 * s * s / 12};
    all->round2 += x->fit.round2;
    if (x->n > 2) { /* a line takes two of n degrees of freedom */
        all->n_fit += x->n;
        all->own2 += x->fit.own2;
        all->fit2 += fmax(x->fit.line2 * x->n / (x->n - 2), x->fit.round2);
    }
    if (g + 1 < w->n_groups)
        add_cell_rival(all, NEXT_GROUP, x, s, (double)scales[g + 1] * global, 0);
    if (g > 0) add_cell_rival(all, PREV_GROUP, x, s, (double)scales[g - 1] * global, 0);
    if (w->n_groups > 3)
        add_cell_rival(all, FAR_GROUP, x, s,
                       (double)scales[(g + w->n_groups / 2) % w->n_groups] * global, 0);
    if (n + 1 < w->n_out)
        add_cell_rival(all, NEXT_CHANNEL, x, s, (double)scales[g + w->n_groups] * global, 0);
    if (n > 0) add_cell_rival(all, PREV_CHANNEL, x, s, (double)scales[g - w->n_groups] * global, 0);
    if (w->n_out > 3)
        add_cell_rival(all, FAR_CHANNEL, x, s,
                       (double)w->scales[(n + w->n_out / 2) % w->n_out * w->n_groups + g] * global,
                       0);
    if (w->exponent_bits || w->levels) return;
    add_cell_rival(all, ZERO_UP, x, s, s, 1);
    add_cell_rival(all, ZERO_DOWN, x, s, s, -1);
}

static int highest_code(const sw_spec_weight *w)
{
    if (w->levels) return w->n_levels - 1;
    return w->exponent_bits ? sw_spec_float_last(w->exponent_bits, w->mantissa_bits)
                            : (1 << w->bits) - 1;
}

static int lowest_code(const sw_spec_weight *w)
{
    return w->exponent_bits ? highest_code(w) | 1 << (w->bits - 1) : 0;
}

enum { BAND_ROWS = 16 }; /* rows 8 apart lie in one */

/* What rows are looked at with. */
typedef struct row_work {
    const sw_linear_rows *original;
    sw_spec_rows codes;
    cell *cells;          /* [n_groups] */
    float *levels;        /* [BAND_ROWS, k_in] of the band, under a zero point of 0 */
    float *want, *have;   /* [k_in] */
    float *turned;        /* [k_in] levels of neighbouring inputs */
    float *centred;       /* [k_in] */
    double *steps, *sizes; /* [k_in] */
    double size_of[256];  /* of the step around each code's level */
    float lowest, highest; /* levels of the ends of the grid */
} row_work;

static void work_free(row_work *k)
{
    sw_spec_rows_free(&k->codes);
    sw_mem_put(k->cells);
    sw_mem_put(k->levels);
    sw_mem_put(k->steps);
}

static sw_code work_new(row_work *k, const sw_spec_weight *w, const sw_linear_rows *original,
                        sw_err *err)
{
    const int64_t k_in = w->k_in;
    sw_code rc;

    *k = (row_work){.original = original};
    if ((rc = sw_spec_rows_new(&k->codes, w, err)) != SW_OK ||
        (rc = SW_MEM_GET(&k->cells, w->n_groups, "groups of a row", err)) != SW_OK ||
        (rc = SW_MEM_GET(&k->levels, (BAND_ROWS + 4) * k_in, "levels of rows", err)) != SW_OK ||
        (rc = SW_MEM_GET(&k->steps, 2 * k_in, "steps of a row", err)) != SW_OK)
        return rc;
    k->want = k->levels + BAND_ROWS * k_in;
    k->have = k->want + k_in;
    k->turned = k->have + k_in;
    k->centred = k->turned + k_in;
    k->sizes = k->steps + k_in;
    for (int64_t i = 0; i < k_in; i++) k->sizes[i] = 1;
    for (int code = 0; code < 256; code++)
        k->size_of[code] = isnan(k->codes.levels[code])
                               ? 1 : sw_spec_step(w, (double)k->codes.levels[code]);
    k->lowest = k->codes.levels[lowest_code(w)];
    k->highest = k->codes.levels[highest_code(w)];
    return SW_OK;
}

/* Of a rival that stands beside its own reading, which the sums of the run have. */
static void add_swap(sums *all, rival r, const sw_run_sums *own, const sw_run *run,
                     const float *others)
{
    const sw_run_reading have = sw_run_read(run, others);
    const double s = run->scale;

    add_reading(&all->own[r], s * own->wc, s * s * own->c2, own->w2);
    add_reading(&all->rival[r], s * have.wc, s * s * have.c2, own->w2);
}

static void add_run(sums *all, row_work *work, const sw_spec_run *place, int64_t n)
{
    const sw_spec_weight *w = work->codes.w;
    const int64_t at = n * w->n_groups + place->group, k = place->k;
    const int64_t k_in = w->k_in, first = n / BAND_ROWS * BAND_ROWS;
    const float zero = w->exponent_bits || w->levels ? 0 : (float)w->zeros[at];
    const sw_run run = {place->n, (double)w->scales[at] * (double)w->global,
                        w->offsets ? (double)w->offsets[at] : 0, zero, work->want + k,
                        work->levels + (n - first) * k_in + k, work->sizes + k};
    const sw_nearest_run nearest = {work->steps + k, work->sizes + k, work->centred + k,
                                    work->lowest - zero, work->highest - zero, w->fold_err,
                                    place->n};
    const sw_run_sums own = sw_run_sum(work->centred + k, work->steps + k, &run);
    cell *x = &work->cells[place->group];

    x->n += (double)place->n;
    x->w1 += own.w1;
    x->w2 += own.w2;
    x->c1 += own.c1;
    x->c2 += own.c2;
    x->wc += own.wc;
    x->r2 += own.r2;
    all->err2 += own.err2;
    sw_nearest_add_run(&all->nearest, n, k, &nearest);
    add_swap(all, SWAP_INPUTS, &own, &run, work->turned + k);
    if ((n ^ 1) < w->n_out)
        add_swap(all, SWAP_CHANNELS, &own, &run, work->levels + ((n ^ 1) - first) * k_in + k);
    if ((n ^ 8) < w->n_out)
        add_swap(all, SWAP_ROWS8, &own, &run, work->levels + ((n ^ 8) - first) * k_in + k);
}

/* An odd last input has no neighbour and stands for itself. */
static void turn_pairs(float *turned, const float *levels, int64_t k_in)
{
    for (int64_t k = 0; k + 1 < k_in; k += 2) {
        turned[k] = levels[k + 1];
        turned[k + 1] = levels[k];
    }
    if (k_in % 2) turned[k_in - 1] = levels[k_in - 1];
}

static void add_row(sums *all, row_work *work, int64_t n)
{
    const sw_spec_weight *w = work->codes.w;
    const int64_t k_in = w->k_in;
    const float *levels = work->levels + n % BAND_ROWS * k_in;

    memset(work->cells, 0, (size_t)w->n_groups * sizeof *work->cells);
    sw_linear_rows_get(work->want, work->original, n, 0, k_in);
    sw_spec_rows_values(work->have, levels, &work->codes, n, 0, k_in);
    turn_pairs(work->turned, levels, k_in);
    for (int64_t k = 0; k < k_in && (w->exponent_bits || w->levels); k++)
        work->sizes[k] = work->size_of[w->codes[n * k_in + k]];
    for (int64_t i = 0; i < work->codes.n_runs; i++) /* codes of outliers say nothing */
        if (!work->codes.runs[i].is_outlier) add_run(all, work, &work->codes.runs[i], n);
    sw_nearest_end_row(&all->nearest);
    for (int64_t g = 0; g < w->n_groups; g++) add_cell(all, w, &work->cells[g], n, g);
    add_misfits(all, w, work->cells, n);
    sw_vec_add(&all->vec, work->have, work->want, k_in);
}

static sw_code add_rows(sums *all, const sw_spec_weight *w, const sw_linear_rows *original,
                        sw_err *err)
{
    row_work work;
    sw_code rc = work_new(&work, w, original, err);

    for (int64_t n = 0; n < w->n_out && rc == SW_OK; n++) {
        for (int64_t i = n; i < sw_min_i64(n + BAND_ROWS, w->n_out) && n % BAND_ROWS == 0; i++)
            sw_spec_rows_levels(work.levels + (i - n) * w->k_in, &work.codes, i, 0, w->k_in);
        add_row(all, &work, n);
    }
    work_free(&work);
    return rc;
}

/* Share of the original's power that a reading leaves unexplained, whatever its overall scale:
 * GPTQ fits scales to outputs, which at 2 bits shrinks or stretches the whole weight. */
static double unexplained(const sw_vec_sums *s)
{
    double cosine = sw_vec_cosine(s);

    return 1 - cosine * cosine;
}

/* The rival that explains most of what the stored reading does not, or N_RIVALS; *gain is the
 * share of it. */
static rival best_rival(double *gain, const sums *all)
{
    rival best = N_RIVALS;

    *gain = RIVAL_MARGIN;
    for (int r = 0; r < N_RIVALS; r++) {
        double own = unexplained(&all->own[r]);
        double share = own > 0 ? 1 - unexplained(&all->rival[r]) / own : 0;

        if (share > *gain && all->rival[r].dot > 0) {
            *gain = share;
            best = (rival)r;
        }
    }
    return best;
}

/* The error over that with the best scales; *most is what it may be at most. */
static double refit(double *most, const sums *all, const sw_spec_weight *w)
{
    double floor2 = SCALE_ROUNDING * SCALE_ROUNDING * all->vec.want2;

    *most = w->bits == 2 ? REFIT_MAX_2_BITS : REFIT_MAX;
    if (all->n_fit < REFIT_WEIGHTS_MIN || !(all->own2 > floor2)) return 1;
    return sqrt((all->own2 - floor2) / fmax(all->fit2, floor2 / 16));
}

static sw_code look_transposed(bool *is_so, const sw_spec_weight *w,
                               const sw_linear_rows *original, sw_err *err)
{
    const int64_t k_in = w->k_in;
    sw_linear_rows have = {0};
    float *want = NULL, *row = NULL;
    sw_vec_sums turned = {0};
    sw_code rc;

    *is_so = false;
    if (w->n_out != k_in) return SW_OK;
    if ((rc = SW_MEM_GET(&want, k_in * k_in, "original weight", err)) != SW_OK ||
        (rc = SW_MEM_GET(&row, k_in, "row", err)) != SW_OK ||
        (rc = sw_linear_rows_of_codes(&have, w, err)) != SW_OK)
        goto done;
    for (int64_t n = 0; n < k_in; n++) sw_linear_rows_get(want + n * k_in, original, n, 0, k_in);
    for (int64_t n = 0; n < k_in; n++) {
        sw_linear_rows_get(row, &have, n, 0, k_in);
        for (int64_t k = 0; k < k_in; k++) sw_vec_add(&turned, row + k, want + k * k_in + n, 1);
    }
    *is_so = sw_vec_cosine(&turned) >= cosine_min(least_bits(w));
done:
    sw_linear_rows_free(&have);
    sw_mem_put(want);
    sw_mem_put(row);
    return rc;
}

static sw_code explain(char why[SW_PLAUSIBLE_TEXT_BYTES], const sw_report_tensor *t,
                       const sums *all, const sw_spec_weight *w, const sw_linear_rows *original,
                       sw_err *err)
{
    double gain, least = cosine_min(least_bits(w)), refit_max, over = refit(&refit_max, all, w);
    rival best = best_rival(&gain, all);
    const sw_apart cosine = sw_apart_places(t->cosine, least, 4);
    const sw_apart error = sw_apart_digits(t->weight_err, t->weight_bound, 4);
    const sw_apart group = sw_apart_places(all->worst_cell, all->worst_cell / all->worst_over, 1);
    const sw_apart scales = sw_apart_places(over, refit_max, 2);
    bool is_transposed = false;
    sw_code rc = SW_OK;

    why[0] = '\0';
    if (t->cosine < least) rc = look_transposed(&is_transposed, w, original, err);
    if (is_transposed)
        (void)snprintf(why, SW_PLAUSIBLE_TEXT_BYTES, "fits the original better when transposed");
    else if (best != N_RIVALS)
        (void)snprintf(why, SW_PLAUSIBLE_TEXT_BYTES, "%.0f %% of its error goes with %s",
                       100 * gain, rival_text[best]);
    else if (!(t->cosine >= least))
        (void)snprintf(why, SW_PLAUSIBLE_TEXT_BYTES, "cosine to the original %s, want at least "
                       "%s: not this weight, or in another order", cosine.have, cosine.limit);
    else if (!(t->weight_err <= t->weight_bound))
        (void)snprintf(why, SW_PLAUSIBLE_TEXT_BYTES, "relative error %s, want at most %s, "
                       "which is %.0f times what rounding to %d bits explains", error.have,
                       error.limit, step_rms_max(w), t->bits);
    else if (!(all->worst_over <= 1))
        (void)snprintf(why, SW_PLAUSIBLE_TEXT_BYTES, "channel %lld, group %lld: the error is %s "
                       "times that with its best scale and zero point, want at most %s",
                       (long long)all->worst_n, (long long)all->worst_g, group.have, group.limit);
    else if (!(over <= refit_max))
        (void)snprintf(why, SW_PLAUSIBLE_TEXT_BYTES, "the error is %s times that with the best "
                       "scales of all groups, want at most %s: scales are of other weights",
                       scales.have, scales.limit);
    else
        sw_nearest_check(why, SW_PLAUSIBLE_TEXT_BYTES, &all->nearest);
    return rc;
}

static void measure_scales(sw_report_tensor *t, const sw_spec_weight *w)
{
    t->scale_min = t->scale_max = fabs((double)w->scales[0]);
    for (int64_t i = 1; i < w->n_out * w->n_groups; i++) {
        const double scale = fabs((double)w->scales[i]);

        if (scale < t->scale_min) t->scale_min = scale;
        if (scale > t->scale_max) t->scale_max = scale;
    }
}

sw_code sw_plausible_check_rows(sw_report_tensor *t, char why[SW_PLAUSIBLE_TEXT_BYTES],
                                const sw_spec_weight *w, const sw_linear_rows *original,
                                sw_err *err)
{
    sums all = {.worst_cell = 0};
    sw_code rc = SW_OK;

    why[0] = '\0';
    measure_scales(t, w);
    t->weight_err = t->weight_bound = t->step_rms = t->worst_cell = t->rounded = -1;
    if (!original) return SW_OK;
    if ((rc = add_rows(&all, w, original, err)) != SW_OK) return rc;
    t->step_rms = sqrt(all.err2 / all.round2);
    t->weight_err = sw_vec_rel_err(&all.vec);
    t->weight_bound = step_rms_max(w) * sqrt(all.round2 / all.vec.want2);
    t->cosine = sw_vec_cosine(&all.vec);
    t->worst_cell = all.worst_cell;
    t->rounded = (double)all.nearest.n_nearest / (double)(w->n_out * w->k_in);
    rc = explain(why, t, &all, w, original, err);
    if (rc == SW_OK && !why[0]) rc = sw_residual_check(why, w, original, err);
    if (rc == SW_OK && !why[0])
        rc = sw_plain_blocks_check(why, SW_PLAUSIBLE_TEXT_BYTES, w, original, err);
    return rc;
}

sw_code sw_plausible_check(sw_report_tensor *t, char why[SW_PLAUSIBLE_TEXT_BYTES],
                           const sw_spec_weight *w, const float *original, sw_err *err)
{
    const sw_linear_rows rows = sw_linear_rows_of(original, w->n_out, w->k_in);

    return sw_plausible_check_rows(t, why, w, original ? &rows : NULL, err);
}
