/* grid.c - see grid.h. */
#include "quant/method/grid.h"

#include <math.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/size.h"
#include "formats/num/pow2.h"

#define ROWS SW_SLAB_ROWS
#define SHRINK_FIRST 1.08 /* above 1: amax/7 against amax/7.5 is within reach */
#define SHRINK_LAST 0.32
#define SHRINK_STEPS 38
#define POLISH_ROUNDS 3
#define POW2_FIRST (-2) /* powers of two tried around the one of the range */
#define POW2_STEPS 4
#define ZERO_REACH 1 /* neighbouring zero points tried on either side */
#define LOOK_COLS 16 /* columns of a candidate's error between looks whether it is lost */

static SW_HOT void group_range(double *low, double *high, const double *w, int64_t n)
{
    for (int r = 0; r < ROWS; r++) low[r] = high[r] = 0.0;
    for (int64_t j = 0; j < n; j++) {
        const double *col = w + j * ROWS;
        for (int r = 0; r < ROWS; r++) {
            low[r] = col[r] < low[r] ? col[r] : low[r];
            high[r] = col[r] > high[r] ? col[r] : high[r];
        }
    }
}

/* A stored scale must be finite and not zero, whatever the group holds. */
double sw_grid_stored_scale(double s, const sw_qspec *spec)
{
    static const struct { sw_dtype dtype; double least, most; } ends[] = {
        {SW_DTYPE_F16, 0x1p-24, 65504.0}, {SW_DTYPE_F8_E4M3, 0x1p-9, 448.0}};
    sw_dtype dtype = spec->is_pow2_scale ? SW_DTYPE_F8_E8M0 : spec->scale_dtype;
    double rounded = (double)sw_num_round_to((float)s, dtype), least = 0x1p-126,
           most = spec->is_pow2_scale ? 0x1p127 : (double)0x1.fep127f;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (dtype == ends[i].dtype) least = ends[i].least, most = ends[i].most;
    if (s < 0 && spec->is_sign_free) return -sw_grid_stored_scale(-s, spec);
    if (!(s > 0)) return 1.0;
    if (!(rounded > 0)) return least;
    return isfinite(rounded) ? rounded : most;
}

/* The nearest value of a small float, ties to even: v in steps of its binade. A double at 1.5 *
 * 2^52 steps has no bit for less than a step, so adding it rounds; taking it away again is
 * exact. */
static inline double nearest_small(double v, double normal, double step, double top)
{
    double a = fabs(v), binade, large;
    uint64_t bits;

    a = a > top ? top : a; /* which is a value itself: nothing below it is rounded beyond */
    memcpy(&bits, &a, sizeof bits);
    bits &= 0x7ff0000000000000u;
    memcpy(&binade, &bits, sizeof binade);
    large = (binade > normal ? binade : normal) * (0x1.8p52 * step);
    a = (a + large) - large;
    return v < 0 ? -a : a;
}

typedef struct small_shape {
    double normal, step, top;
} small_shape;

static small_shape shape_of(const sw_num *num)
{
    return (small_shape){(double)num->normal, ldexp(1.0, -num->mantissa_bits), (double)num->top};
}

static double clamp_zero(double z, const sw_qspec *spec)
{
    return z < spec->zero_min ? spec->zero_min : z > spec->num->code_max ? spec->num->code_max : z;
}

/* Scale and zero of one row for a range shrunk to `shrink` of [low, high]. */
static void shrunk(double *scale, double *zero, double low, double high, double shrink, int shift,
                   const sw_qspec *spec)
{
    int code_max = spec->num->code_max;

    if (spec->is_symmetric) {
        double amax = -low > high ? -low : high;
        *scale = sw_grid_stored_scale(shrink * amax / (0.5 * code_max), spec);
        *zero = spec->num->sym_zero;
        return;
    }
    *scale = sw_grid_stored_scale(shrink * (high - low) / code_max, spec);
    *zero = clamp_zero(rint(0.5 * code_max - 0.5 * (low + high) / *scale) + shift, spec);
}

/* A small float's scale from the range alone; its "zero" is none. */
static void small_range(double *scale, double *zero, double low, double high, const sw_qspec *spec)
{
    double amax = -low > high ? -low : high;

    *zero = 0.0;
    *scale = spec->is_pow2_scale ? (double)sw_pow2_weight_scale((float)amax, spec)
                                 : sw_grid_stored_scale(amax / (double)spec->num->top, spec);
}

void sw_grid_of_range(double *scale, double *zero, double low, double high, const sw_qspec *spec)
{
    if (spec->num->values) small_range(scale, zero, low, high, spec);
    else shrunk(scale, zero, low, high, 1.0, 0, spec);
}

void sw_grid_range(double *scale, double *zero, const double *w, int64_t n, const sw_qspec *spec)
{
    double low[ROWS], high[ROWS];

    group_range(low, high, w, n);
    for (int r = 0; r < ROWS; r++) sw_grid_of_range(scale + r, zero + r, low[r], high[r], spec);
}

static SW_HOT void int_codes(double *codes, const double *w, const double *scale,
                             const double *zero, int code_max)
{
    double top = code_max;

    for (int r = 0; r < ROWS; r++) {
        double c = rint(w[r] / scale[r]) + zero[r];
        c = c < 0.0 ? 0.0 : c;
        codes[r] = c > top ? top : c;
    }
}

static SW_HOT void small_codes(double *codes, const double *w, const double *scale, small_shape s)
{
    for (int r = 0; r < ROWS; r++)
        codes[r] = nearest_small(w[r] / scale[r], s.normal, s.step, s.top);
}

void sw_grid_codes(double *codes, const double *w, const double *scale, const double *zero,
                   const sw_num *num)
{
    if (num->values) small_codes(codes, w, scale, shape_of(num));
    else int_codes(codes, w, scale, zero, num->code_max);
}

static SW_HOT double int_step(double *code, double *step, const double *wish, const double *scale,
                              const double *zero, double top)
{
    double moved = 0.0;

    for (int r = 0; r < ROWS; r++) {
        double c = rint(wish[r]) + zero[r];
        c = c < 0.0 ? 0.0 : c;
        c = c > top ? top : c;
        step[r] = scale[r] * (c - code[r]);
        moved += fabs(c - code[r]);
        code[r] = c;
    }
    return moved;
}

static SW_HOT double small_step(double *code, double *step, const double *wish,
                                const double *scale, small_shape s)
{
    double moved = 0.0;

    for (int r = 0; r < ROWS; r++) {
        double c = nearest_small(wish[r], s.normal, s.step, s.top);
        step[r] = scale[r] * (c - code[r]);
        moved += fabs(c - code[r]);
        code[r] = c;
    }
    return moved;
}

bool sw_grid_step(double *code, double *step, const double *wish, const double *scale,
                  const double *zero, const sw_num *num)
{
    return (num->values ? small_step(code, step, wish, scale, shape_of(num))
                        : int_step(code, step, wish, scale, zero, num->code_max)) > 0.0;
}

/* Has every row an error that is not below its best one? Further columns lower none. */
static bool all_lost(const double *error, const double *best)
{
    for (int r = 0; r < ROWS; r++)
        if (!(error[r] >= best[r])) return false;
    return true;
}

/* low, high [ROWS]: how far codes reach from the zero point. */
static SW_HOT void add_grid_errors(double *restrict error, const double *restrict w,
                                   const double *restrict weight, int64_t n,
                                   const double *restrict scale, const double *restrict inverse,
                                   const double *restrict low, const double *restrict high)
{
    for (int64_t j = 0; j < n; j++) {
        const double *restrict col = w + j * ROWS;
        double h = weight[j];
        for (int r = 0; r < ROWS; r++) {
            double c = rint(col[r] * inverse[r]), d;
            c = low[r] > c ? low[r] : c;
            c = high[r] < c ? high[r] : c;
            d = col[r] - scale[r] * c;
            error[r] += h * d * d;
        }
    }
}

/* Given up where it is below `best` in no row: a candidate that is not kept. */
static void grid_error(double *error, const double *best, const double *w, const double *weight,
                       int64_t n, const double *scale, const double *zero, int code_max)
{
    double inverse[ROWS], low[ROWS], high[ROWS];

    for (int r = 0; r < ROWS; r++) {
        error[r] = 0.0;
        inverse[r] = 1.0 / scale[r];
        low[r] = -zero[r];
        high[r] = code_max - zero[r];
    }
    for (int64_t j = 0; j < n && !all_lost(error, best); j += LOOK_COLS)
        add_grid_errors(error, w + j * ROWS, weight + j, sw_min_i64(LOOK_COLS, n - j), scale,
                        inverse, low, high);
}

/* Least-squares scale for the codes that the present scale gives. */
static SW_HOT void polish_sums(double *wc, double *cc, const double *w, const double *weight,
                               int64_t n, const double *scale, const double *zero, int code_max)
{
    double inverse[ROWS], top = code_max;

    for (int r = 0; r < ROWS; r++) {
        wc[r] = cc[r] = 0.0;
        inverse[r] = 1.0 / scale[r];
    }
    for (int64_t j = 0; j < n; j++) {
        const double *col = w + j * ROWS;
        double h = weight[j];
        for (int r = 0; r < ROWS; r++) {
            double c = rint(col[r] * inverse[r]) + zero[r];
            c = c < 0.0 ? 0.0 : c;
            c = (c > top ? top : c) - zero[r];
            wc[r] += h * col[r] * c;
            cc[r] += h * c * c;
        }
    }
}

static SW_HOT void small_error(double *error, const double *w, const double *weight, int64_t n,
                               const double *scale, small_shape s)
{
    double inverse[ROWS];

    for (int r = 0; r < ROWS; r++) {
        error[r] = 0.0;
        inverse[r] = 1.0 / scale[r];
    }
    for (int64_t j = 0; j < n; j++) {
        const double *col = w + j * ROWS;
        double h = weight[j];
        for (int r = 0; r < ROWS; r++) {
            double c = nearest_small(col[r] * inverse[r], s.normal, s.step, s.top);
            double d = col[r] - scale[r] * c;
            error[r] += h * d * d;
        }
    }
}

static SW_HOT void small_sums(double *wc, double *cc, const double *w, const double *weight,
                              int64_t n, const double *scale, small_shape s)
{
    double inverse[ROWS];

    for (int r = 0; r < ROWS; r++) {
        wc[r] = cc[r] = 0.0;
        inverse[r] = 1.0 / scale[r];
    }
    for (int64_t j = 0; j < n; j++) {
        const double *col = w + j * ROWS;
        double h = weight[j];
        for (int r = 0; r < ROWS; r++) {
            double c = nearest_small(col[r] * inverse[r], s.normal, s.step, s.top);
            wc[r] += h * col[r] * c;
            cc[r] += h * c * c;
        }
    }
}

/* Keep a candidate in the rows where it is better. */
static void keep_better(double *best_error, double *best_scale, double *best_zero,
                        const double *error, const double *scale, const double *zero)
{
    for (int r = 0; r < ROWS; r++) {
        if (!(error[r] < best_error[r])) continue;
        best_error[r] = error[r];
        best_scale[r] = scale[r];
        best_zero[r] = zero[r];
    }
}

/* Candidates of a small float: the range shrunk step by step, or the powers of two around it. */
static void try_small(double *best, double *scale, double *zero, const double *w,
                      const double *weight, int64_t n, const sw_qspec *spec)
{
    double range[ROWS], error[ROWS], s[ROWS], z[ROWS] = {0};
    int n_steps = spec->is_pow2_scale ? POW2_STEPS : SHRINK_STEPS;

    memcpy(range, scale, sizeof range);
    for (int step = 0; step < n_steps; step++) {
        double shrink = spec->is_pow2_scale
                            ? ldexp(1.0, POW2_FIRST + step)
                            : SHRINK_FIRST + (SHRINK_LAST - SHRINK_FIRST) * step /
                                                 (double)(SHRINK_STEPS - 1);
        for (int r = 0; r < ROWS; r++) s[r] = sw_grid_stored_scale(range[r] * shrink, spec);
        small_error(error, w, weight, n, s, shape_of(spec->num));
        keep_better(best, scale, zero, error, s, z);
    }
}

static void fit_small(double *scale, double *zero, const double *w, const double *weight,
                      int64_t n, const sw_qspec *spec)
{
    double best[ROWS], error[ROWS], s[ROWS], z[ROWS] = {0}, wc[ROWS], cc[ROWS];
    small_shape shape = shape_of(spec->num);

    sw_grid_range(scale, zero, w, n, spec);
    if (spec->pow2_rule) return; /* the range decides, and nothing else */
    small_error(best, w, weight, n, scale, shape);
    try_small(best, scale, zero, w, weight, n, spec);
    for (int round = 0; round < POLISH_ROUNDS && !spec->is_pow2_scale; round++) {
        small_sums(wc, cc, w, weight, n, scale, shape);
        for (int r = 0; r < ROWS; r++)
            s[r] = cc[r] > 0 && wc[r] > 0 ? sw_grid_stored_scale(wc[r] / cc[r], spec) : scale[r];
        small_error(error, w, weight, n, s, shape);
        keep_better(best, scale, zero, error, s, z);
    }
}

static void fit_int(double *scale, double *zero, const double *w, const double *weight, int64_t n,
                 const sw_qspec *spec)
{
    double low[ROWS], high[ROWS], error[ROWS], best[ROWS], s[ROWS], z[ROWS], wc[ROWS], cc[ROWS];
    int reach = spec->is_symmetric ? 0 : ZERO_REACH, code_max = spec->num->code_max;

    group_range(low, high, w, n);
    sw_grid_range(scale, zero, w, n, spec);
    for (int r = 0; r < ROWS; r++) error[r] = INFINITY;
    grid_error(best, error, w, weight, n, scale, zero, code_max);
    for (int step = 0; step < SHRINK_STEPS; step++) {
        double shrink =
            SHRINK_FIRST + (SHRINK_LAST - SHRINK_FIRST) * step / (double)(SHRINK_STEPS - 1);
        for (int shift = -reach; shift <= reach; shift++) {
            for (int r = 0; r < ROWS; r++)
                shrunk(s + r, z + r, low[r], high[r], shrink, shift, spec);
            grid_error(error, best, w, weight, n, s, z, code_max);
            keep_better(best, scale, zero, error, s, z);
        }
        if (!sw_qspec_tries_signs(spec)) continue;
        for (int r = 0; r < ROWS; r++) s[r] = -s[r]; /* no shifts here: the spec is symmetric */
        grid_error(error, best, w, weight, n, s, z, code_max);
        keep_better(best, scale, zero, error, s, z);
    }
    for (int round = 0; round < POLISH_ROUNDS; round++) {
        polish_sums(wc, cc, w, weight, n, scale, zero, code_max);
        memcpy(z, zero, sizeof z);
        for (int r = 0; r < ROWS; r++)
            s[r] = cc[r] > 0 && wc[r] * scale[r] > 0 ? sw_grid_stored_scale(wc[r] / cc[r], spec)
                                                     : scale[r];
        grid_error(error, best, w, weight, n, s, z, code_max);
        keep_better(best, scale, zero, error, s, z);
    }
}

void sw_grid_fit(double *scale, double *zero, const double *w, const double *weight, int64_t n,
                 const sw_qspec *spec)
{
    (spec->num->values ? fit_small : fit_int)(scale, zero, w, weight, n, spec);
}
