/* turns.c - see turns.h. */
#include "verify/speed/turns.h"

#include <stdlib.h>
#include <string.h>

#include "formats/io/profile.h"

#define LEVEL 0.95

static double real_now_us(void *self)
{
    (void)self;
    return 1e6 * sw_clock_s();
}

const sw_clock sw_clock_real = {real_now_us, NULL};

static sw_code take_turn(double *us, const sw_turn_taker *taker, const sw_clock *clock, sw_err *err)
{
    const double start = clock->now_us(clock->self);
    sw_code rc = taker->run(taker->self, err);

    *us = clock->now_us(clock->self) - start;
    if (!(*us > 0)) *us = 1e-3; /* a clock that stood still: its step is no time at all */
    return rc;
}

sw_code sw_turns_run(sw_turns *out, const sw_turn_taker *takers, int n_takers, int n_rounds,
                     const sw_clock *clock, const sw_progress *progress, sw_err *err)
{
    if (n_rounds < SW_TURNS_MIN || n_rounds > SW_TURNS_MAX)
        return SW_FAIL(err, SW_E_USAGE, "%d rounds; give %d to %d", n_rounds, SW_TURNS_MIN,
                       SW_TURNS_MAX);
    out->n_takers = n_takers;
    out->n_rounds = n_rounds;
    for (int round = -1; round < n_rounds; round++) {
        sw_code rc = sw_progress_check(progress, err);

        for (int i = 0; i < n_takers && rc == SW_OK; i++) {
            double us = 0;

            rc = take_turn(&us, &takers[i], clock, err);
            if (round >= 0) out->us[i][round] = us;
        }
        if (rc != SW_OK) return rc;
    }
    return SW_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* How many values are left out at each end: the most for which both tails of the binomial
 * distribution with n throws of a fair coin stay within what LEVEL leaves. */
static int left_out(int n)
{
    double term = 1, below = 0; /* term: the chance of k heads */
    int k = 0;

    for (int i = 0; i < n; i++) term *= 0.5;
    for (; 2 * k < n; k++) {
        below += term;
        if (2 * below > 1 - LEVEL) break;
        term *= (double)(n - k) / (double)(k + 1);
    }
    return k > 0 ? k - 1 : 0;
}

sw_speed_figure sw_turns_figure(const double *values, int n)
{
    double sorted[SW_TURNS_MAX];
    const int out = left_out(n);

    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return (sw_speed_figure){
        .median = {0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]), sorted[out], sorted[n - 1 - out]},
        .lowest = sorted[0], .highest = sorted[n - 1]};
}

double sw_turns_spread(const sw_turns *turns, int taker)
{
    double sorted[SW_TURNS_MAX];
    const int n = turns->n_rounds;

    memcpy(sorted, turns->us[taker], (size_t)n * sizeof *sorted);
    return (sw_percentile(sorted, n, 0.75) - sw_percentile(sorted, n, 0.25)) /
           sw_percentile(sorted, n, 0.5);
}

sw_speed_figure sw_turns_rate(const sw_turns *turns, int taker, double amount)
{
    double rates[SW_TURNS_MAX];

    for (int i = 0; i < turns->n_rounds; i++) rates[i] = 1e6 * amount / turns->us[taker][i];
    return sw_turns_figure(rates, turns->n_rounds);
}

sw_speed_figure sw_turns_speedup(const sw_turns *turns)
{
    double ratios[SW_TURNS_MAX];

    for (int i = 0; i < turns->n_rounds; i++)
        ratios[i] = turns->us[SW_SPEED_ORIGINAL][i] / turns->us[SW_SPEED_CHECKPOINT][i];
    return sw_turns_figure(ratios, turns->n_rounds);
}
