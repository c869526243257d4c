/* nearest.c - see nearest.h. */
#include "verify/checks/nearest.h"

#include <math.h>
#include <stdio.h>

#include "formats/base/hot.h"

/* Of codes a plain choice has at most half a step, and what a scale of 16 bits leaves. */
#define HALF_STEP (0.5 + 1e-4)
#define TOLD_STEPS 0.25
#define EXACT_STEPS (1.0 / 32) /* codes of 4 bits that went through BF16 are off by half of it */
/* A code that is off by more was not the nearest, though scales moved a little afterwards. */
#define OUTLIER_STEPS 0.75
/* In an exact channel a step is what making good others' errors may move a code by. */
#define STRAY_STEPS 1.5

/* Of weights that tell: plain rounding measures 1, to other scales in the end 0.984; GPTQ of
 * sources in floats 0.70 to 0.82, of sources in codes of 4 bits 0.69 to 0.90; searched scales
 * folded into norms of 16 bits 0.96. Fewer than TOLD_MIN could be nearest by chance: of 256 at
 * 0.90 all but 5 are once in a million times. */
#define PLAIN_SHARE 0.98
#define TOLD_MIN 256
/* Exact channels of sound weights have all their codes, or lose more of them than this. */
#define EXACT_SHARE 0.99

static void add_far(sw_nearest_far *to, int64_t n, int64_t k)
{
    if (to->n++) return;
    to->at_n = n;
    to->at_k = k;
}

void sw_nearest_add(sw_nearest *t, int64_t n, int64_t k, double steps, double slack,
                    bool is_clipped)
{
    const double off = fabs(steps), left = fabs(off - floor(off + 0.5));
    const bool is_nearest = is_clipped || off <= HALF_STEP;

    t->row_n++;
    t->row_nearest += is_nearest;
    if (off > EXACT_STEPS && (is_clipped || left > EXACT_STEPS)) t->row_is_inexact = true;
    if (is_clipped) return;
    if (left > TOLD_STEPS) {
        t->n_told++;
        t->n_told_nearest += is_nearest;
    }
    if (off > OUTLIER_STEPS + slack) add_far(&t->outliers, n, k);
    if (off > STRAY_STEPS + slack) add_far(&t->row_strays, n, k);
}

/* What sw_nearest_add counts of a run. */
typedef struct run_counts {
    int64_t nearest, inexact, told, told_nearest, far;
} run_counts;

#define NEAREST_WHOLE 0x1.8p52 /* added and taken away again: the nearest whole number */

/* Where two whole numbers are as near, which one is taken does not show. */
static SW_HOT run_counts count_run(const sw_nearest_run *run)
{
    int64_t n_nearest = 0, inexact = 0, n_told = 0, told_nearest = 0, far = 0;

    for (int64_t i = 0; i < run->n_inputs; i++) {
        const double steps = run->steps[i], off = fabs(steps);
        const double left = fabs(off - (off + NEAREST_WHOLE - NEAREST_WHOLE));
        const bool is_clipped = (run->levels[i] <= run->lowest) & (steps < 0);
        const bool is_cut = is_clipped | ((run->levels[i] >= run->highest) & (steps > 0));
        const bool is_nearest = is_cut | (off <= HALF_STEP);
        const bool is_told = (left > TOLD_STEPS) & !is_cut;

        n_nearest += is_nearest;
        inexact += (off > EXACT_STEPS) & (is_cut | (left > EXACT_STEPS));
        n_told += is_told;
        told_nearest += is_told & is_nearest;
        far += (off > OUTLIER_STEPS) & !is_cut;
    }
    return (run_counts){n_nearest, inexact, n_told, told_nearest, far};
}

void sw_nearest_add_run(sw_nearest *t, int64_t n, int64_t k, const sw_nearest_run *run)
{
    const run_counts c = count_run(run);

    t->row_n += run->n_inputs;
    t->row_nearest += c.nearest;
    t->n_told += c.told;
    t->n_told_nearest += c.told_nearest;
    if (c.inexact) t->row_is_inexact = true;
    for (int64_t i = 0; c.far && i < run->n_inputs; i++) {
        const double steps = run->steps[i], off = fabs(steps);
        const double slack = run->slack * fabs((double)run->levels[i] / run->sizes[i]);

        if (run->levels[i] <= run->lowest ? steps < 0 : run->levels[i] >= run->highest && steps > 0)
            continue;
        if (off > OUTLIER_STEPS + slack) add_far(&t->outliers, n, k + i);
        if (off > STRAY_STEPS + slack) add_far(&t->row_strays, n, k + i);
    }
}

void sw_nearest_end_row(sw_nearest *t)
{
    t->n += t->row_n;
    t->n_nearest += t->row_nearest;
    if (!t->row_is_inexact) {
        t->n_exact += t->row_n;
        t->n_exact_nearest += t->row_nearest;
        if (t->row_strays.n) {
            if (!t->strays.n) t->strays = t->row_strays;
            else t->strays.n += t->row_strays.n;
        }
    }
    t->row_n = t->row_nearest = 0;
    t->row_is_inexact = false;
    t->row_strays = (sw_nearest_far){0, 0, 0};
}

void sw_nearest_check(char *why, size_t size, const sw_nearest *t)
{
    const sw_nearest_far *far = &t->outliers, *stray = &t->strays;

    why[0] = '\0';
    if (t->n_told >= TOLD_MIN) {
        if (far->n && (double)t->n_told_nearest >= PLAIN_SHARE * (double)t->n_told)
            (void)snprintf(why, size, "plainly rounded, but %lld %s not the nearest, first at "
                           "channel %lld, input %lld", (long long)far->n,
                           far->n == 1 ? "code is" : "codes are", (long long)far->at_n,
                           (long long)far->at_k);
    } else if (stray->n && (double)t->n_exact_nearest >= EXACT_SHARE * (double)t->n_exact) {
        (void)snprintf(why, size, "the original lies on codes, but %lld of whole channels of them "
                       "%s others, first at channel %lld, input %lld", (long long)stray->n,
                       stray->n == 1 ? "is" : "are", (long long)stray->at_n,
                       (long long)stray->at_k);
    }
}
