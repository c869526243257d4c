/* quantize_report.h - what `swage quantize` writes into manifest.json and says at the end. */
#ifndef SW_TOOLS_QUANTIZE_QUANTIZE_REPORT_H
#define SW_TOOLS_QUANTIZE_QUANTIZE_REPORT_H

#include "quant/run/pipeline.h"
#include "tools/calibrate/calibration.h"
#include "tools/calibrate/expert_report.h"
#include "tools/cli/cmd.h"
#include "tools/recipe/linear_counts.h"
#include "tools/recipe/selection.h"

/* Everything that was decided, in the words of the command line. */
typedef struct sw_quantize_settings {
    const char *scheme, *method, *format, *order, *sequential;
    sw_quant_options quant;
    double target_bits, predicted_kl; /* 0: no --target-bits; nothing was chosen by measuring */
    uint64_t target_bytes;      /* 0: no --target-size */
    bool has_chosen_outliers;         /* --outliers auto */
    int64_t seed;
} sw_quantize_settings;

typedef struct sw_quantize_report {
    cJSON *manifest; /* owned; "tensors" grows as linears are finished */
    cJSON *tensors;  /* inside manifest */
    int64_t n_linears, n_fallbacks;
    char first_fallback[400];
    double error_sum, error_max, rtn_sum; /* relative output errors, where measured */
    int64_t n_errors;
    char worst[256];
    sw_linear_counts counts;
    cJSON *seen; /* lengths of the manifest's lists at the last call of gained or restore */
} sw_quantize_report;

/* Start the manifest: tool version, settings, calibration, selection. It says nothing of times,
 * threads or output paths, so that the same inputs give the same bytes.
 * calibration is NULL for methods that need none. */
sw_code sw_quantize_report_new(sw_quantize_report *out, const sw_quantize_settings *settings,
                               const sw_calibration *calibration, const sw_opt_list *files,
                               const sw_selection *selection, sw_err *err) SW_MUST_USE;
void sw_quantize_report_free(sw_quantize_report *report); /* accepts a zeroed one */
sw_code sw_quantize_report_add(sw_quantize_report *report, const char *path,
                               const sw_linear_ref *ref, const sw_qspec *spec,
                               const sw_solve_report *solve, float input_scale,
                               sw_err *err) SW_MUST_USE;

/* {"rows": {...}}: what the manifest's lists have gained since the last call, list by list, for
 * the journal; freed by cJSON_Delete. restore appends it again in a later run. */
sw_code sw_quantize_report_gained(cJSON **out, sw_quantize_report *report, sw_err *err) SW_MUST_USE;
sw_code sw_quantize_report_restore(sw_quantize_report *report, const cJSON *gained,
                                   sw_err *err) SW_MUST_USE;
/* A group that a transform looked at, whether it was taken or not. */
sw_code sw_quantize_report_transform(sw_quantize_report *report,
                                     const sw_transform_report *transform,
                                     sw_err *err) SW_MUST_USE;

/* Scales of a layer's cache. */
sw_code sw_quantize_report_kv(sw_quantize_report *report, int64_t layer, float k_scale,
                              float v_scale, sw_err *err) SW_MUST_USE;

typedef struct sw_quantize_outcome {
    const char *out_dir;
    uint64_t source_bytes, out_bytes; /* of tensors */
    uint64_t file_bytes;              /* of all files of the output */
    double seconds;
    double bits_per_weight; /* stored for the quantized linears, scales and all */
    bool is_mixed;          /* they have several schemes */
    const cJSON *timeline;  /* borrowed: the steps of timeline.h */
} sw_quantize_outcome;

/* What --json prints; it refers to the report, which must outlive it. Freed by cJSON_Delete. */
sw_code sw_quantize_report_json(cJSON **out, const sw_quantize_report *report,
                                const sw_quantize_outcome *outcome, sw_err *err) SW_MUST_USE;
/* The result on stdout: a few lines, or one object that repeats the manifest's figures. */
sw_code sw_quantize_report_print(sw_run *run, const sw_quantize_report *report,
                                 const sw_quantize_settings *settings,
                                 const sw_quantize_outcome *outcome, sw_err *err) SW_MUST_USE;

#endif
