/* speed_report.h - how fast a checkpoint runs, beside its original: what `verify --speed` and
 * `bench CHECKPOINT` measured.
 *
 * Both models ran in turns in one process, so that whatever else the machine did met both. Figures
 * are medians over rounds; a speed-up is the median of the rounds' own ratios. Intervals are those
 * of the median by order statistics and hold at least 95 % (speed/turns.h). The spread of a series
 * is the distance between its quartiles over its median.
 */
#ifndef SW_VERIFY_BASE_SPEED_REPORT_H
#define SW_VERIFY_BASE_SPEED_REPORT_H

#include <stdint.h>

#include "formats/base/json.h"
#include "verify/base/metrics.h"

enum { SW_SPEED_CHECKPOINT, SW_SPEED_ORIGINAL, SW_SPEED_SIDES };

#define SW_SPREAD_MAX 0.10 /* beyond it there is no verdict on speed ... */
/* ... unless every round says the same of the limit even when its figure is off by this factor. */
#define SW_SPEED_MARGIN 2.0

/* A figure over rounds: median, interval of it, and the rounds that were lowest and highest. */
typedef struct sw_speed_figure {
    sw_interval median;
    double lowest, highest;
} sw_speed_figure;

#define SW_SPEED_BATCHES_MAX 16

/* What to measure. */
typedef struct sw_speed_request {
    int64_t batches[SW_SPEED_BATCHES_MAX]; /* sequences side by side */
    int n_batches;
    int64_t prompt;  /* tokens of a prompt, and of each sequence before decoding */
    int64_t n_steps; /* of a turn, at most */
    int n_rounds;
} sw_speed_request;

/* Decoding, or prefill, of one batch. */
typedef struct sw_speed_cell {
    bool is_prefill;
    int64_t batch;    /* sequences */
    int64_t at_once;  /* of them in one call; fewer than `batch` run one call after the other */
    int64_t n_steps;  /* tokens of each sequence in a timed turn */
    double us[SW_SPEED_SIDES];         /* of a step, or of a call of prefill; medians */
    double spread[SW_SPEED_SIDES];
    double roof_share[SW_SPEED_SIDES]; /* the time that the roof sets over the time it took */
    bool is_by_bytes[SW_SPEED_SIDES];  /* the roof is the memory's, not arithmetic's */
    sw_speed_figure tokens_s[SW_SPEED_SIDES]; /* of all sequences together */
    sw_speed_figure speedup;           /* original's time over the checkpoint's */
    bool is_noisy;
} sw_speed_cell;

/* Linears of one kind and shape at one number of tokens, each by itself. */
typedef struct sw_speed_linear {
    const char *name;    /* "mlp.down_proj", "mlp.experts.*.up_proj" */
    const char *kernel;  /* that serves the checkpoint's */
    int64_t n_out, k_in, count;
    bool is_prefill;     /* at the tokens of a prompt, not at those of a batch that decodes */
    int64_t m;           /* tokens of a product */
    double us[SW_SPEED_SIDES]; /* of one product */
    double bytes[SW_SPEED_SIDES];
    double roof_share;   /* of the checkpoint's */
    double spread;       /* the larger of the two series' */
    sw_interval speedup; /* of the median, only with an original */
} sw_speed_linear;

typedef struct sw_report_speed {
    bool is_measured, has_original;
    bool is_in_turns;    /* sequences of a batch were decoded one after the other */
    char device[256];    /* "": the CPU, */
    char cpu[96];        /* which is this one */
    int n_threads, n_rounds;
    int64_t prompt, context; /* tokens; context: of each sequence before decoding */
    double read_gb_s, gflop_s; /* the roof, measured in the same run */
    int64_t cache_bytes; /* of the last level; 0: not known */
    double weight_bytes[SW_SPEED_SIDES]; /* all that a step of all experts reads */
    int64_t n_streamed[SW_SPEED_SIDES];  /* blocks that stayed in host memory */
    sw_speed_cell *cells;
    int64_t n_cells;
    sw_speed_linear *linears;
    int64_t n_linears;
} sw_report_speed;

/* What gates look at: the batch that decodes with the least speed-up, or the fewest tokens per
 * second; NULL: none was measured. */
const sw_speed_cell *sw_speed_least_speedup(const sw_report_speed *speed);
const sw_speed_cell *sw_speed_least_tokens(const sw_report_speed *speed);
/* true when times scatter so much that nothing can be said of `limit`. */
bool sw_speed_is_undecided(const sw_speed_cell *cell, const sw_speed_figure *figure, double limit);
/* The cell whose times scatter most, and that spread. NULL: none was measured. */
const sw_speed_cell *sw_speed_noisiest(const sw_report_speed *speed, double *spread);
/* true when a linear is slower than the original's, by more than its interval leaves open. */
bool sw_speed_linear_loses(const sw_speed_linear *linear);

/* "speed" of `object`; a number that JSON cannot say is null. SW_E_NOMEM. */
sw_code sw_speed_json(cJSON *object, const sw_report_speed *speed, sw_err *err) SW_MUST_USE;

#endif
