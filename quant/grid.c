/* grid.c - see grid.h. */
#include "quant/grid.h"

#include <math.h>
#include <string.h>

#include "formats/base/hot.h"

#define ROWS SW_SLAB_ROWS
#define SHRINK_FIRST 1.08 /* above 1: amax/7 against amax/7.5 is within reach */
#define SHRINK_LAST 0.32
#define SHRINK_STEPS 38
#define POLISH_ROUNDS 3
#define ZERO_REACH 1 /* neighbouring zero points tried on either side */

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

/* A stored scale must be finite and above zero, whatever the group holds. */
double sw_grid_stored_scale(double s, sw_dtype dtype)
{
    double rounded = (double)sw_num_round_to((float)s, dtype);

    if (!(s > 0)) return 1.0;
    if (!(rounded > 0)) return dtype == SW_DTYPE_F16 ? 0x1p-24 : 0x1p-126;
    if (!isfinite(rounded)) return dtype == SW_DTYPE_F16 ? 65504.0 : (double)0x1.fep127f;
    return rounded;
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
        *scale = sw_grid_stored_scale(shrink * amax / (0.5 * code_max), spec->scale_dtype);
        *zero = spec->num->sym_zero;
        return;
    }
    *scale = sw_grid_stored_scale(shrink * (high - low) / code_max, spec->scale_dtype);
    *zero = clamp_zero(rint(0.5 * code_max - 0.5 * (low + high) / *scale) + shift, spec);
}

void sw_grid_range(double *scale, double *zero, const double *w, int64_t n, const sw_qspec *spec)
{
    double low[ROWS], high[ROWS];

    group_range(low, high, w, n);
    for (int r = 0; r < ROWS; r++) shrunk(scale + r, zero + r, low[r], high[r], 1.0, 0, spec);
}

SW_HOT void sw_grid_codes(double *codes, const double *w, const double *scale, const double *zero,
                          int code_max)
{
    double top = code_max;

    for (int r = 0; r < ROWS; r++) {
        double c = rint(w[r] / scale[r]) + zero[r];
        c = c < 0.0 ? 0.0 : c;
        codes[r] = c > top ? top : c;
    }
}

static SW_HOT void grid_error(double *error, const double *w, const double *weight, int64_t n,
                              const double *scale, const double *zero, int code_max)
{
    double inverse[ROWS], top = code_max;

    for (int r = 0; r < ROWS; r++) {
        error[r] = 0.0;
        inverse[r] = 1.0 / scale[r];
    }
    for (int64_t j = 0; j < n; j++) {
        const double *col = w + j * ROWS;
        double h = weight[j];
        for (int r = 0; r < ROWS; r++) {
            double c = rint(col[r] * inverse[r]) + zero[r], d;
            c = c < 0.0 ? 0.0 : c;
            c = c > top ? top : c;
            d = col[r] - scale[r] * (c - zero[r]);
            error[r] += h * d * d;
        }
    }
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

void sw_grid_fit(double *scale, double *zero, const double *w, const double *weight, int64_t n,
                 const sw_qspec *spec)
{
    double low[ROWS], high[ROWS], error[ROWS], best[ROWS], s[ROWS], z[ROWS], wc[ROWS], cc[ROWS];
    int reach = spec->is_symmetric ? 0 : ZERO_REACH, code_max = spec->num->code_max;

    group_range(low, high, w, n);
    sw_grid_range(scale, zero, w, n, spec);
    grid_error(best, w, weight, n, scale, zero, code_max);
    for (int step = 0; step < SHRINK_STEPS; step++) {
        double shrink =
            SHRINK_FIRST + (SHRINK_LAST - SHRINK_FIRST) * step / (double)(SHRINK_STEPS - 1);
        for (int shift = -reach; shift <= reach; shift++) {
            for (int r = 0; r < ROWS; r++)
                shrunk(s + r, z + r, low[r], high[r], shrink, shift, spec);
            grid_error(error, w, weight, n, s, z, code_max);
            keep_better(best, scale, zero, error, s, z);
        }
    }
    for (int round = 0; round < POLISH_ROUNDS; round++) {
        polish_sums(wc, cc, w, weight, n, scale, zero, code_max);
        memcpy(z, zero, sizeof z);
        for (int r = 0; r < ROWS; r++)
            s[r] = cc[r] > 0 && wc[r] > 0 ? sw_grid_stored_scale(wc[r] / cc[r], spec->scale_dtype)
                                          : scale[r];
        grid_error(error, w, weight, n, s, z, code_max);
        keep_better(best, scale, zero, error, s, z);
    }
}
