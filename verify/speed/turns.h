/* turns.h - two candidates timed in turns, and what can be said of times that scatter.
 *
 * A machine has other work, warms up and changes its clocks. A round runs the first candidate and
 * then the second, so that what slows one slows the other as well, and the ratio of a round is
 * nearer to the truth than the ratio of two medians. Nothing here assumes how times are
 * distributed: intervals are order statistics of the rounds.
 *
 * The clock is the caller's, so that tests decide what time it is.
 */
#ifndef SW_VERIFY_SPEED_TURNS_H
#define SW_VERIFY_SPEED_TURNS_H

#include "formats/base/progress.h"
#include "verify/base/speed_report.h"

#define SW_TURNS_MIN 6   /* rounds: of fewer no interval holds 95 % */
#define SW_TURNS_MAX 101

typedef struct sw_clock {
    double (*now_us)(void *self);
    void *self;
} sw_clock;
/* The monotonic clock of the system. */
extern const sw_clock sw_clock_real;

typedef struct sw_turn_taker {
    void *self;
    sw_code (*run)(void *self, sw_err *err); /* returns when the work is done, not enqueued */
} sw_turn_taker;

typedef struct sw_turns {
    int n_takers, n_rounds;
    double us[SW_SPEED_SIDES][SW_TURNS_MAX]; /* of each round, in its order */
} sw_turns;

/* n_takers (1 or 2) run in turns: a round that is thrown away, then n_rounds of SW_TURNS_MIN to
 * SW_TURNS_MAX. A taker's failure ends it, SW_E_CANCELLED between rounds; SW_E_USAGE: so few or
 * many rounds. */
sw_code sw_turns_run(sw_turns *out, const sw_turn_taker *takers, int n_takers, int n_rounds,
                     const sw_clock *clock, const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* The median of n values (n >= 1) and the narrowest interval of two of them, equally far from the
 * ends, that holds the median of what they are drawn from with 95 % or more, whatever the
 * distribution (the sign test; Conover, Practical Nonparametric Statistics, 3.2). Below
 * SW_TURNS_MIN values it is all of them, and holds less. */
sw_speed_figure sw_turns_figure(const double *values, int n);
/* The distance between the quartiles of one taker's times over their median. */
double sw_turns_spread(const sw_turns *turns, int taker);
/* `amount` over each round's seconds: with a batch's tokens for `amount`, tokens per second. */
sw_speed_figure sw_turns_rate(const sw_turns *turns, int taker, double amount);
/* The second taker's time over the first's, by rounds. */
sw_speed_figure sw_turns_speedup(const sw_turns *turns);

#endif
