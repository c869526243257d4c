/* window_sums.c - see window_sums.h. */
#include "verify/checks/window_sums.h"

#include <math.h>
#include <string.h>

#include "formats/base/hot.h"
#include "formats/base/mem.h"
#include "verify/base/metrics.h"

sw_code sw_windows_of_new(sw_windows_of *out, int64_t n, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&out->at[0], SW_WINDOW_SUMS * n, "sums of windows", err);

    if (rc != SW_OK) return rc;
    for (int s = 1; s < SW_WINDOW_SUMS; s++) out->at[s] = out->at[0] + s * n;
    out->n = n;
    return SW_OK;
}

void sw_windows_of_free(sw_windows_of *w)
{
    sw_mem_put(w->at[0]);
    memset(w, 0, sizeof *w);
}

void sw_windows_of_clear(sw_windows_of *w)
{
    memset(w->at[0], 0, (size_t)(SW_WINDOW_SUMS * w->n) * sizeof *w->at[0]);
}

static SW_HOT void fill(double *restrict excess, double *restrict lost, double *restrict power,
                        double *restrict noise, const float *restrict original,
                        const double *restrict err, const double *restrict noise2, int64_t n,
                        double no_noise)
{
    for (int64_t k = 0; k < n; k++) {
        const double v = (double)original[k], e = err[k], s = noise2[k], v2 = v * v;
        const double share = e * e / (s > 0 ? s : 1), without = fabs(e) > 0 ? no_noise : 0;

        excess[k] = s > 0 ? share : without;
        lost[k] = v * e;
        power[k] = v2;
        noise[k] = v2 * s;
    }
}

void sw_windows_of_row(sw_windows_of *out, const float *original, const double *err,
                       const double *noise2, double no_noise)
{
    fill(out->at[SW_WINDOW_EXCESS], out->at[SW_WINDOW_LOST], out->at[SW_WINDOW_POWER],
         out->at[SW_WINDOW_NOISE], original, err, noise2, out->n, no_noise);
}

static SW_HOT void add(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

void sw_windows_of_add(sw_windows_of *to, const sw_windows_of *from)
{
    add(to->at[0], from->at[0], SW_WINDOW_SUMS * from->n);
}

static SW_HOT void add_quads(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (from[4 * i] + from[4 * i + 1]) + (from[4 * i + 2] + from[4 * i + 3]);
}

void sw_windows_of_quads(sw_windows_of *to, const sw_windows_of *inputs)
{
    for (int s = 0; s < SW_WINDOW_SUMS; s++) add_quads(to->at[s], inputs->at[s], to->n);
}

static SW_HOT void add_next(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = from[i] + from[i + 1];
}

static SW_HOT void add_second(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = from[2 * i] + from[2 * i + 2];
}

void sw_windows_of_doubled(sw_windows_of *to, const sw_windows_of *from, int64_t step)
{
    for (int s = 0; s < SW_WINDOW_SUMS; s++)
        (step == 1 ? add_next : add_second)(to->at[s], from->at[s], to->n);
}

void sw_windows_of_total(double out[SW_WINDOW_SUMS], const sw_windows_of *inputs)
{
    for (int s = 0; s < SW_WINDOW_SUMS; s++) out[s] = sw_vec_total(inputs->at[s], inputs->n);
}

static SW_HOT int64_t count_excess(const double *excess, int64_t n, double most)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++) count += !(excess[i] <= most);
    return count;
}

static SW_HOT int64_t count_loss(const double *lost, const double *power, int64_t n, double most)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        count += (power[i] > 0) & !(fabs(lost[i]) <= most * power[i]);
    return count;
}

bool sw_windows_of_stand_out(const sw_windows_of *w, double excess_max, double loss_max)
{
    if (count_excess(w->at[SW_WINDOW_EXCESS], w->n, excess_max)) return true;
    if (isinf(loss_max)) return false;
    return count_loss(w->at[SW_WINDOW_LOST], w->at[SW_WINDOW_POWER], w->n,
                      loss_max * (1 - 0x1p-40)) > 0;
}
