/* run_sums.c - see run_sums.h. */
#include "verify/checks/run_sums.h"

#include <math.h>

#include "formats/base/hot.h"

enum { LANES = 8 };

typedef struct lanes {
    double w1[LANES], w2[LANES], c1[LANES], c2[LANES], wc[LANES], r2[LANES], err2[LANES];
} lanes;

static double total(const double lane[LANES])
{
    const double low = (lane[0] + lane[1]) + (lane[2] + lane[3]);

    return low + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static SW_HOT void sum_lanes(lanes *sums, const sw_run *run, int64_t n)
{
    const double scale = run->scale, offset = run->offset;
    const float zero = run->zero;
    lanes s = *sums;

    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const double w = (double)run->original[i + j] - offset;
            const double c = (double)(run->levels[i + j] - zero), e = w - scale * c;
            const double size = run->sizes[i + j];

            s.w1[j] += w;
            s.w2[j] += w * w;
            s.c1[j] += c;
            s.c2[j] += c * c;
            s.wc[j] += w * c;
            s.r2[j] += size * size;
            s.err2[j] += e * e;
        }
    *sums = s;
}

/* A scale of 0 has no steps. */
static SW_HOT void count_steps(float *centred, double *steps, const sw_run *run)
{
    const double scale = run->scale, offset = run->offset;
    const double once = fabs(scale) > 0 ? 1 : 0, unit = fabs(scale) > 0 ? scale : 1;
    const float zero = run->zero;

    for (int64_t i = 0; i < run->n; i++) {
        const float c = run->levels[i] - zero;
        const double e = (double)run->original[i] - offset - scale * (double)c;

        centred[i] = c;
        steps[i] = once * (e / (unit * run->sizes[i]));
    }
}

/* What does not fill the lanes goes into the first ones. */
static void sum_rest(lanes *s, const sw_run *run, int64_t from)
{
    for (int64_t i = from; i < run->n; i++) {
        const int64_t j = i - from;
        const double w = (double)run->original[i] - run->offset;
        const double c = (double)(run->levels[i] - run->zero), e = w - run->scale * c;

        s->w1[j] += w;
        s->w2[j] += w * w;
        s->c1[j] += c;
        s->c2[j] += c * c;
        s->wc[j] += w * c;
        s->r2[j] += run->sizes[i] * run->sizes[i];
        s->err2[j] += e * e;
    }
}

sw_run_sums sw_run_sum(float *centred, double *steps, const sw_run *run)
{
    const int64_t whole = run->n / LANES * LANES;
    lanes s = {.w1 = {0}};

    sum_lanes(&s, run, whole);
    sum_rest(&s, run, whole);
    count_steps(centred, steps, run);
    return (sw_run_sums){total(s.w1), total(s.w2), total(s.c1), total(s.c2),
                         total(s.wc), total(s.r2), total(s.err2)};
}

static SW_HOT void read_lanes(double wc[LANES], double c2[LANES], const sw_run *run,
                              const float *others, int64_t n)
{
    const double offset = run->offset;
    const float zero = run->zero;
    double sum_wc[LANES] = {0}, sum_c2[LANES] = {0};

    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const double w = (double)run->original[i + j] - offset;
            const double c = (double)(others[i + j] - zero);

            sum_wc[j] += w * c;
            sum_c2[j] += c * c;
        }
    for (int j = 0; j < LANES; j++) {
        wc[j] = sum_wc[j];
        c2[j] = sum_c2[j];
    }
}

sw_run_reading sw_run_read(const sw_run *run, const float *others)
{
    const int64_t whole = run->n / LANES * LANES;
    double wc[LANES], c2[LANES];

    read_lanes(wc, c2, run, others, whole);
    for (int64_t i = whole; i < run->n; i++) {
        const double w = (double)run->original[i] - run->offset;
        const double c = (double)(others[i] - run->zero);

        wc[i - whole] += w * c;
        c2[i - whole] += c * c;
    }
    return (sw_run_reading){total(wc), total(c2)};
}
