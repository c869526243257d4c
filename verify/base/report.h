/* report.h - the verdict on a quantized checkpoint: one structure, one JSON object, one table.
 *
 * A report is filled by sw_verify_run and owns its memory through one arena. Whether the
 * checkpoint passes is a question to the finished report (sw_report_verdict), so that a failed
 * gate still leaves every figure to look at.
 */
#ifndef SW_VERIFY_BASE_REPORT_H
#define SW_VERIFY_BASE_REPORT_H

#include "formats/base/hash.h"
#include "formats/base/json.h"
#include "formats/base/mem.h"
#include "formats/text/unspelled.h"
#include "kernels/engine/device_engine.h"
#include "verify/base/metrics.h"
#include "verify/base/speed_report.h"
#include "verify/loaders/loaders.h"

#define SW_REPORT_VERSION 1

/* One input file. */
typedef struct sw_report_file {
    const char *role; /* "checkpoint", "original", "text" */
    const char *path;
    uint64_t size_bytes;
    char sha256[SW_SHA256_HEX_BYTES];
} sw_report_file;

/* One quantized linear. Errors are below 0 when not measured. */
typedef struct sw_report_tensor {
    const char *name; /* module path */
    int64_t n_out, k_in, group_elems;
    int bits;
    bool is_symmetric;
    double scale_min, scale_max; /* of their magnitudes */
    double weight_err;   /* ||W' - W|| / ||W||, W' decoded, W original */
    double weight_bound; /* what rounding and compensation can explain, see plausible.h */
    double step_rms;     /* rms error over that of plain rounding, scale / sqrt(12) */
    double cosine;       /* of W' and W */
    double worst_cell;   /* how much another scale and zero would help the worst group of a row */
    double rounded;      /* share of weights whose code is the nearest one */
    double output_err;   /* ||X (W' - W)^T|| / ||X W^T|| on the text's activations */
} sw_report_tensor;

/* Something that makes the checkpoint fail whatever the gates say. */
typedef struct sw_finding {
    const char *what; /* "decode", "implausible", "missing", "differs", "unexpected", ... */
    const char *name; /* tensor, module or file */
    const char *text; /* one sentence with have and want */
} sw_finding;

/* What became of the original's tensors. */
typedef struct sw_report_coverage {
    bool is_measured;    /* an original was given */
    int64_t n_original, n_identical, n_quantized, n_missing, n_differing, n_unexpected;
    int64_t n_rounded;   /* floats of a GGUF that are the original's in another dtype */
    int64_t n_rescaled;  /* floats that changed just as their readers or producers did */
    uint64_t original_bytes, identical_bytes, checkpoint_bytes;
} sw_report_coverage;

/* The gap between the integer kernels and dequantized weights, on the first windows. */
typedef struct sw_report_gap {
    bool is_measured;
    int64_t n_windows;
    double nll_kernel, nll_dequantized;
    double logits_err; /* ||kernel - dequantized|| / ||dequantized|| over all logits */
    double kl;         /* mean KL(dequantized || kernel) */
} sw_report_gap;

typedef struct sw_report_eval {
    bool is_measured, has_original;
    int64_t n_tokens;  /* in the text */
    sw_unspelled unspelled;   /* of the texts; the first is in the file below */
    const char *unspelled_in; /* NULL: none */
    int64_t window, n_windows, n_predictions, vocab;
    bool has_bos;
    char device[256];  /* the device that both models ran on; "": the CPU */
    sw_device_lm_linears linears; /* what that device made of the checkpoint's */
    sw_bootstrap bootstrap;
    sw_interval nll, ppl;                   /* of the checkpoint, integer kernels */
    sw_interval nll_original, ppl_original; /* the rest only with an original */
    sw_interval nll_diff;                   /* checkpoint - original, paired */
    sw_interval ppl_ratio;                  /* exp(nll_diff) */
    bool is_significant;                    /* nll_diff's interval does not contain zero */
    sw_interval kl;                         /* KL(original || checkpoint) */
    double kl_p99, kl_max;
#define SW_METRIC(id, field, key, line, shown, reads) sw_interval field;
#include "verify/base/metrics.def"
#undef SW_METRIC
    /* Where KL is beyond what so many bits explain of most models: that of the original from itself
     * with noise as large as rounding, over the first windows. */
    bool is_probed;
    double noise_kl, noise; /* and how large the noise is, of outputs of linears */
    sw_report_gap gap;
} sw_report_eval;

/* What the original's router did with the tokens that output errors were measured on. */
typedef struct sw_report_experts {
    int64_t n_tokens, n_experts; /* experts of all layers; 0: none, or not measured */
    int64_t n_unreached, tokens_min, tokens_max;
} sw_report_experts;

/* One task file. Shares of its items, with intervals over them. */
typedef struct sw_report_task {
    const char *name, *kind; /* "arc", "multiple choice" */
    int64_t n_items;
    int64_t n_cut;           /* sequences that were too long and lost their beginning */
    bool has_original;       /* the figures below that name it, the differences and flips */
    bool has_norm;           /* those per byte of the choice: of multiple choice */
    sw_interval acc, acc_norm;
    sw_interval acc_original, acc_norm_original;
    sw_interval acc_diff, acc_norm_diff; /* checkpoint - original, paired */
    sw_interval flips, flips_norm;       /* answers that are not the original's, right or wrong */
} sw_report_task;

/* Those of tasks look at the worst of them. */
typedef enum sw_gate_id {
#define SW_GATE(id, key, option, side, about, have, highest, help) SW_GATE_##id,
#include "verify/base/gates.def"
#undef SW_GATE
    SW_GATE_COUNT
} sw_gate_id;

/* limit as given by the user; is_set false: no such gate. is_undecided: times scatter too much. */
typedef struct sw_gate {
    bool is_set, has_passed, is_undecided;
    double limit, have;
} sw_gate;

typedef struct sw_report {
    const char *checkpoint_dir, *original_dir; /* original_dir may be NULL */
    const char *dialect, *scheme;              /* "gptq_v2", "4 bits, group 128, symmetric" */
    const char *architecture;
    sw_report_file *files;
    int64_t n_files;
    sw_report_tensor *tensors;
    int64_t n_tensors;
    sw_finding *findings;
    int64_t n_findings;      /* found in all; at most SW_FINDINGS_MAX are kept in findings[] */
    sw_report_coverage coverage;
    sw_report_eval eval;
    sw_report_experts experts;
    sw_report_task *tasks;
    int64_t n_tasks;
    sw_report_speed speed;
    sw_gate gates[SW_GATE_COUNT];
    sw_load_findings loaders; /* what engines would refuse or misread; no verdict depends on it */
    const char *note;        /* why a part was not run, or NULL */
    const char **remarks;    /* what is not as in the original and makes nothing fail */
    int64_t n_remarks;       /* in all; at most SW_REMARKS_MAX are kept */
    double seconds;
    sw_arena arena;
} sw_report;

#define SW_FINDINGS_MAX 1000
#define SW_REMARKS_MAX 50

/* "max_kl", ...: the JSON key; the option is "--max-kl". */
const char *sw_gate_name(sw_gate_id id);
/* What a gate is about, and whether it compares two models. */
typedef enum sw_gate_topic { SW_GATE_OF_TEXT, SW_GATE_OF_TASKS, SW_GATE_OF_SPEED } sw_gate_topic;
sw_gate_topic sw_gate_is_about(sw_gate_id id, bool *needs_original);
/* Fill has_passed and have of every set gate from eval, tasks and speed. */
void sw_report_judge(sw_report *report);
/* SW_OK, or SW_E_GATE: names every failed gate with have and want, then the first finding.
 * SW_E_NOISY: nothing has failed, but a gate on speed could not be decided. */
sw_code sw_report_verdict(const sw_report *report, sw_err *err) SW_MUST_USE;

sw_code sw_report_find(sw_report *report, const char *what, const char *name, sw_err *err,
                       const char *fmt, ...) SW_PRINTF(5, 6) SW_MUST_USE;

/* Something to say that is no finding. */
sw_code sw_report_remark(sw_report *report, sw_err *err, const char *fmt, ...)
    SW_PRINTF(3, 4) SW_MUST_USE;

/* "gates" and "verdict", "reason" of an object. */
sw_code sw_report_gates_json(cJSON *object, const sw_report *report, sw_err *err) SW_MUST_USE;
/* The versioned object; freed by cJSON_Delete. */
sw_code sw_report_json(cJSON **out, const sw_report *report, sw_err *err) SW_MUST_USE;
void sw_report_free(sw_report *report); /* accepts a zeroed one */

#endif
