/* exhibit.h - one checkpoint as a report shows it: what its files hold, what its manifest says of
 * how it was made, what `verify` found, and what calibration saw.
 *
 * Everything but the checkpoint itself may be missing. A number that is not known is NaN, and a
 * section shows nothing for it. Texts are borrowed from the JSON values, the checkpoint or the
 * arena, all of which the exhibit owns; they may hold anything.
 */
#ifndef SW_TOOLS_REPORT_DATA_EXHIBIT_H
#define SW_TOOLS_REPORT_DATA_EXHIBIT_H

#include "formats/base/hash.h"
#include "formats/checkpoint/checkpoint.h"
#include "tools/inspect/tensor_look.h"
#include "verify/loaders/loaders.h"

#define SW_EXHIBIT_LOOKS 6  /* linears that are looked at closely */
#define SW_EXHIBIT_KINDS 64 /* kinds of linears that are told apart */

/* One linear of the model. Errors are relative. */
typedef struct sw_exhibit_linear {
    const char *path;
    int kind;               /* index into kinds; -1: beyond SW_EXHIBIT_KINDS */
    int64_t layer, expert;  /* expert -1: none */
    int64_t n_out, k_in;
    bool is_quantized;
    bool has_codes;         /* spec is of it, and its codes can be read as such */
    sw_qspec spec;
    const char *scheme;     /* "4 bits, group 128, symmetric", "Q4_K", "BF16" */
    double bytes;           /* stored, with scales and all */
    /* by the manifest: errors are of the outputs, squared, over the calibration text */
    const char *method, *fallback;
    double calib_err, calib_err_rtn, n_tokens, n_routed, prior_weight, damp, n_damp_retries;
    /* by verify */
    double weight_err, output_err, over_rounding, cosine, group_misfit, nearest_share;
    double scale_min, scale_max; /* by either */
} sw_exhibit_linear;

/* Where bytes go. */
typedef enum sw_exhibit_part {
    SW_PART_CODES, SW_PART_BLOCKS, SW_PART_SCALES, SW_PART_ZEROS, SW_PART_FLOAT_LINEARS,
    SW_PART_ENDS, SW_PART_SMALL, SW_PART_OTHER, SW_PART_COUNT
} sw_exhibit_part;
extern const char *const sw_exhibit_part_names[SW_PART_COUNT];

typedef struct sw_interval3 {
    double at, low, high;
} sw_interval3;

/* Of verify's "evaluation". */
typedef struct sw_exhibit_eval {
    bool is_measured, has_original;
    double n_tokens, window, n_windows, n_predictions, level;
    const char *device;
    sw_interval3 ppl, ppl_original, ppl_ratio, nll_diff, kl, top1;
    bool is_significant;
    double kl_p99, kl_max, gap_logits, gap_kl;
    char key[SW_SHA256_HEX_BYTES]; /* equal where original, text and windows are the same */
} sw_exhibit_eval;

/* The input of some linears of a layer, by statistics of calibration. */
typedef struct sw_exhibit_site {
    int64_t layer, n_channels;
    const char *name;
    double median, p999, most;      /* of |x| over all tokens and channels */
    double channel_median;          /* of the largest |x| of each channel */
    int64_t n_outliers;             /* channels that reach SW_OUTLIER_TIMES of it */
    int64_t top[3];                 /* the channels that reach furthest, -1: none */
    double top_most[3];
} sw_exhibit_site;
#define SW_OUTLIER_TIMES 8

typedef struct sw_exhibit {
    const char *path, *name;        /* name: the last part of path, or all of it */
    sw_checkpoint ckpt;
    cJSON *manifest, *verified, *made; /* NULL: there is none */
    bool is_stale;                  /* the manifest is of other bytes and was dropped */
    const char *kinds[SW_EXHIBIT_KINDS];
    int n_kinds;
    sw_exhibit_linear *linears;     /* by layer, in block order */
    sw_exhibit_linear **by_path;    /* the same, sorted */
    int64_t n_linears, n_quantized;
    int64_t n_strangers;            /* rows of JSON that name no linear of the model */
    double part_bytes[SW_PART_COUNT];
    double bytes, quantized_bytes, n_quantized_weights;
    double original_bytes;          /* of tensors, by verify; else of files, by the manifest */
    bool is_original_of_files;
    sw_load_findings loaders;
    sw_exhibit_eval eval;
    const sw_exhibit_linear *worst[SW_EXHIBIT_LOOKS]; /* the first n_looks, worst first */
    sw_tensor_look *looks;
    int n_looks;
    sw_exhibit_site *sites;
    int64_t n_sites;
    const char *stats_path, *stats_relation; /* how the statistics belong to the checkpoint */
    int n_threads;                  /* that kernels are chosen for */
    sw_arena arena;
} sw_exhibit;

/* Open a checkpoint, read its manifest, and look at everything that is on disk. */
sw_code sw_exhibit_open(sw_exhibit *out, const char *path, int n_threads, sw_err *err) SW_MUST_USE;
void sw_exhibit_close(sw_exhibit *x); /* accepts a zeroed one */

/* The object of verify's JSON; x owns it from here on, whatever comes back. SW_E_FORMAT: it is
 * none. Whether it is about this checkpoint is the caller's to know (results.h). */
sw_code sw_exhibit_add_verified(sw_exhibit *x, cJSON *verified, sw_err *err) SW_MUST_USE;
/* And the object of quantize --json. */
void sw_exhibit_add_made(sw_exhibit *x, cJSON *made);
/* Sites by the statistics in a file of `calibrate`. SW_E_USAGE: not of a model of these shapes. */
sw_code sw_exhibit_add_stats(sw_exhibit *x, const char *path, sw_err *err) SW_MUST_USE;
/* Once all is known: which linears are worst, and their codes, scales and values. */
sw_code sw_exhibit_look(sw_exhibit *x, sw_err *err) SW_MUST_USE;

/* What is known best of what quantizing a linear costs, to order by: NaN where nothing is. */
double sw_exhibit_cost(const sw_exhibit_linear *linear);
/* The quantized linears into order [n_linears], costliest first; returns how many. */
int64_t sw_exhibit_by_cost(const sw_exhibit_linear **order, const sw_exhibit *x);

/* For the files of this folder: fill in what a manifest says of linears; find one by its path. */
void sw_exhibit_read_manifest(sw_exhibit *x);
/* The manifest is not of these bytes after all: forget what it said, and say so. */
void sw_exhibit_drop_manifest(sw_exhibit *x);
/* Nothing was measured: every figure of x->eval is NaN. */
void sw_exhibit_drop_eval(sw_exhibit *x);
sw_exhibit_linear *sw_exhibit_find(const sw_exhibit *x, const char *path);
sw_code sw_exhibit_list_linears(sw_exhibit *x, sw_err *err) SW_MUST_USE;
sw_code sw_exhibit_count_bytes(sw_exhibit *x, sw_err *err) SW_MUST_USE;

/* A member as a number or as a text, NaN or NULL where it is not there or is something else. */
double sw_exhibit_number(const cJSON *object, const char *key);
const char *sw_exhibit_text(const cJSON *object, const char *key);

#endif
