/* pipeline.h - quantize a model block by block, each fed by the quantized output of the last.
 *
 * Two streams of activations run side by side: the quantized model's and the original's. For
 * each input site of a block (attention input, o, mlp input, down) the calibration tokens are
 * run up to that site with everything before it already quantized; its Hessian and cross terms
 * are summed; its linears are solved and take their quantized values; the next site follows.
 * Memory is O(one block + the two streams). Knows no file format: weights come from an opened
 * checkpoint's tensors, results go to a sink.
 */
#ifndef SW_QUANT_RUN_PIPELINE_H
#define SW_QUANT_RUN_PIPELINE_H

#include "formats/base/progress.h"
#include "formats/file/safetensors.h"
#include "formats/file/zpack.h"
#include "formats/model/model.h"
#include "kernels/engine/engine.h"
#include "quant/method/algo.h"
#include "quant/stats/experts.h"
#include "quant/method/target.h"

typedef enum sw_sequential {
    SW_SEQUENTIAL_SITE,  /* every site sees the sites before it quantized */
    SW_SEQUENTIAL_LAYER, /* all sites of a block are observed in one pass: faster */
    SW_SEQUENTIAL_COUNT
} sw_sequential;

typedef struct sw_quant_options {
    const sw_algo *algo;
    sw_qspec spec;
    sw_order order;
    sw_sequential sequential;
    double damp;              /* first damping tried, fraction of the mean diagonal */
    int refine_rounds;        /* see refine.h */
    sw_strengths cap;         /* most that a target may lean on the cross terms; 0, 0: off */
    sw_experts experts;       /* what the experts of a sparse layer are calibrated on */
    bool has_kv_scales;       /* find scales for a cache in e4m3; needs calib and sink->put_kv */
    const sw_linear_source *source; /* of linears that the checkpoint does not store as floats;
                                       NULL: it stores all so */
    const char *spill_dir;    /* activations live in a file there; NULL: in memory. Same bytes */
    sw_solver *solver;        /* a device for what it can solve, borrowed; NULL: none */
    int n_threads;
} sw_quant_options;

/* GPTQ with the settings that measured best (tests/bench/quality.csv). */
sw_quant_options sw_quant_defaults(void);

/* Calibration tokens: n_seqs windows of seq_len ids; borrowed. */
typedef struct sw_calib {
    const uint32_t *ids;
    int64_t n_seqs, seq_len;
} sw_calib;

/* What became of a group of linears that a transform looked at (transform.h). */
typedef struct sw_transform_report {
    const char *method;
    char producer[256];       /* module path of what makes the group's input */
    bool is_accepted;
    bool is_pow2;             /* only powers of two were allowed */
    double loss_before, loss; /* mean squared error of the output on held-out windows */
    double scale_min, scale_max; /* of their magnitudes */
    char choice[64];
    char why_not[120];
} sw_transform_report;

/* Where results go, in block order. `ref` names the linear, `path` its module. */
typedef struct sw_quant_sink {
    void *self;
    sw_code (*put)(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                   const sw_solve_report *report, sw_err *err);
    /* false: leave this linear as it is */
    bool (*is_selected)(void *self, const sw_linear_ref *ref, const char *path);
    /* what a selected linear becomes, borrowed until the run ends; NULL: options->spec for all */
    const sw_qspec *(*spec_of)(void *self, const sw_linear_ref *ref, const char *path);
    /* For methods with a transform; NULL where none is used. `change`: a tensor that is not
     * quantized has other values now, n of them. `transformed`: a figure for the manifest. */
    sw_code (*change)(void *self, const char *tensor_name, const float *values, int64_t n,
                      sw_err *err);
    sw_code (*transformed)(void *self, const sw_transform_report *report, sw_err *err);
    /* Where options->has_kv_scales: those of a layer, before the block ends (kv_scales.h). */
    sw_code (*put_kv)(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err);
    /* What lets a run continue: all of these or none, get_changed only for a transform. */
    int64_t (*n_done)(void *self); /* blocks, from the first on, that an earlier run put */
    sw_code (*get)(void *self, sw_qtensor *q, const char *path, sw_err *err); /* as it was put */
    sw_code (*get_changed)(void *self, bool *is_changed, float *values, int64_t n,
                           const char *tensor_name, sw_err *err);
    sw_code (*end_block)(void *self, int64_t layer, sw_err *err); /* all of a block is put */
} sw_quant_sink;

/* `calib` may be NULL for methods that need no statistics. SW_E_FORMAT: a weight with a NaN or an
 * infinity (named), an indefinite Hessian. SW_E_CANCELLED when the user stops it. */
sw_code sw_quant_run(const sw_model *model, const sw_st *st, const sw_calib *calib,
                     const sw_quant_options *options, const sw_quant_sink *sink,
                     const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* The same from statistics of this model (stats.h, checked with sw_stats_check): no calibration
 * text is run, and no block sees what quantizing the blocks before it has changed. */
sw_code sw_quant_run_stats(const sw_model *model, const sw_st *st, const sw_zpack *stats,
                           const sw_quant_options *options, const sw_quant_sink *sink,
                           const sw_progress *progress, sw_err *err) SW_MUST_USE;

#endif
