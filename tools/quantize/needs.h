/* needs.h - the peak of a run's memory, predicted before it begins.
 *
 * "Memory" is the resident set as the system counts it (ru_maxrss): what was allocated, and pages
 * of mapped files while they are being read. The page cache is not in it.
 */
#ifndef SW_TOOLS_QUANTIZE_NEEDS_H
#define SW_TOOLS_QUANTIZE_NEEDS_H

#include "formats/file/safetensors.h"
#include "quant/run/device_forecast.h"
#include "tools/cli/term.h"
#include "tools/recipe/selection.h"

typedef struct sw_needs {
    sw_forecast forecast;
    sw_device_forecast device; /* cap_bytes 0: there is none */
    double base_bytes;    /* the process itself */
    double measure_bytes; /* of sensitivities, before the pipeline */
    double copy_bytes;    /* looking at the largest tensor that is only copied */
    double solve_bytes;   /* the pipeline, with its streams in memory */
    double spilled_bytes; /* with its streams on disk */
    double check_bytes;   /* reading the result back */
    double peak_bytes, peak_spilled_bytes;
} sw_needs;

/* What a run will be given. */
typedef struct sw_needs_request {
    const sw_model *model;
    const sw_st *st;
    const sw_selection *selection;
    const sw_quant_options *options;
    const sw_calib *calib, *measured; /* these as in sw_forecast_request */
    bool has_stats, is_measured_on_stats;
    int n_ranks; /* 0 is 1; the needs are those of one of them */
    int64_t device_bytes; /* that a run may take of its device; 0: it has none */
} sw_needs_request;

sw_code sw_needs_new(sw_needs *out, const sw_needs_request *request, sw_err *err) SW_MUST_USE;

/* Fit into `bound` bytes: *spill_dir, in `arena`, becomes the directory of `out_dir` when the
 * streams must go to disk, and is left alone when they need not. SW_E_USAGE names the least that
 * serves. */
sw_code sw_needs_bound(const char **spill_dir, const sw_needs *needs, uint64_t bound,
                       const char *out_dir, sw_arena *arena, const sw_progress *progress,
                       sw_err *err) SW_MUST_USE;

double sw_peak_bytes(void);     /* the largest resident set of this process so far */
double sw_resident_bytes(void); /* its resident set now */

#endif
