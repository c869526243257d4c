/* sweep_job.h - a sweep asked for: the checkpoints of quantize_many.h, each measured once. */
#ifndef SW_TOOLS_SWEEP_SWEEP_JOB_H
#define SW_TOOLS_SWEEP_SWEEP_JOB_H

#include "tools/quantize/run/quantize_many.h"
#include "tools/sweep/sweep_choice.h"
#include "verify/metrics/kept_states.h"

/* What the command line says: what quantize takes, and more. */
typedef struct sw_sweep_options {
    sw_quantize_options quantize;
    sw_opt_list texts;
    int64_t window, max_windows;
    double max_kl;
    uint64_t max_bytes;
    int keep_best;
} sw_sweep_options;

typedef struct sw_sweep_interval {
    double at, low, high;
} sw_sweep_interval;

/* One checkpoint of it, in the order of many->jobs. */
typedef struct sw_sweep_row {
    const sw_quantize_job *job;
    char result_path[SW_PATH_BYTES]; /* DIR/NAME.verify.json */
    char key[SW_SHA256_HEX_BYTES];   /* of all that its figures depend on; "": not measured */
    bool was_measured_before, is_measured;
    sw_err failure; /* of making or measuring it; code SW_OK: none */
    sw_sweep_interval kl;
    double ppl_ratio, top1, bits_per_weight;
} sw_sweep_row;

typedef struct sw_sweep_job {
    const sw_sweep_options *o;
    sw_quantize_job base;    /* options and recipe of all of them */
    sw_quantize_many many;
    sw_sweep_row *rows;      /* [many.n], in the arena of the run */
    sw_sweep_point *points;  /* [many.n] */
    sw_device *gpu;          /* of this rank, that they are measured on; NULL: here */
    sw_kept_states states;   /* of the original, while there is more than one to measure */
    cJSON *before;           /* sweep.json of an earlier run, or NULL */
    int chosen;              /* index of the point to take; -1: none keeps the limits */
} sw_sweep_job;

/* Judge every checkpoint that is there against the original over the text, but for those whose
 * figures an earlier run found for the same bytes; the results lie beside the checkpoints, and
 * sweep.json is written after each. What goes wrong with one is its row's failure. Every rank calls
 * it: they share the windows of the text, and rank 0 knows the figures, writes, and decides what
 * there is to measure. A rank that is lost ends the run. */
sw_code sw_sweep_measure(sw_sweep_job *sweep, sw_err *err) SW_MUST_USE;

/* DIR/sweep.json, as an object and as a file. */
sw_code sw_sweep_json(cJSON **out, const sw_sweep_job *sweep, sw_err *err) SW_MUST_USE;
sw_code sw_sweep_write(const sw_sweep_job *sweep, sw_err *err) SW_MUST_USE;
/* DIR/sweep.html: the page of tools/report/report.h for all that were measured. */
sw_code sw_sweep_page(const sw_sweep_job *sweep, sw_err *err) SW_MUST_USE;
/* The table, and what to take. */
void sw_sweep_print(const sw_sweep_job *sweep);
/* --keep-best: remove all but the chosen one, with their results. */
sw_code sw_sweep_keep_best(const sw_sweep_job *sweep, sw_err *err) SW_MUST_USE;

#endif
