/* sink.h - where the results of a run go. */
#ifndef SW_QUANT_SINK_H
#define SW_QUANT_SINK_H

#include "quant/options.h"

struct sw_solve_report; /* algo.h */

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
                   const struct sw_solve_report *report, sw_err *err);
    /* put in two steps, for callers with several threads; NULL: there are none. `note`: what is
     * said of a linear, one at a time and in order. `store`: what it holds, after its note, any
     * number of linears side by side, all before the block ends. */
    sw_code (*note)(void *self, const sw_linear_ref *ref, const char *path, const sw_qtensor *q,
                    const struct sw_solve_report *report, sw_err *err);
    sw_code (*store)(void *self, const char *path, const sw_qtensor *q, sw_err *err);
    /* put, but the sink keeps what q holds and leaves it empty; NULL: put has to do. */
    sw_code (*take)(void *self, const sw_linear_ref *ref, const char *path, sw_qtensor *q,
                    const struct sw_solve_report *report, sw_err *err);
    /* false: leave this linear as it is */
    bool (*is_selected)(void *self, const sw_linear_ref *ref, const char *path);
    /* what a selected linear becomes, borrowed until the run ends; NULL: options->spec for all */
    const sw_qspec *(*spec_of)(void *self, const sw_linear_ref *ref, const char *path);
    /* For methods with a transform; NULL where none is used. `change`: a tensor that is not
     * quantized has other values now, n of them. `transformed`: a figure for the manifest. */
    sw_code (*change)(void *self, const char *tensor_name, const float *values, int64_t n,
                      sw_err *err);
    sw_code (*transformed)(void *self, const sw_transform_report *report, sw_err *err);
    /* With options->kv_num: those of a layer, before the block ends (kv_scales.h). */
    sw_code (*put_kv)(void *self, int64_t layer, float k_scale, float v_scale, sw_err *err);
    /* What lets a run continue: all of these or none, get_changed only for a transform. */
    int64_t (*n_done)(void *self); /* blocks, from the first on, that an earlier run put */
    sw_code (*get)(void *self, sw_qtensor *q, const char *path, sw_err *err); /* as it was put */
    sw_code (*get_changed)(void *self, bool *is_changed, float *values, int64_t n,
                           const char *tensor_name, sw_err *err);
    sw_code (*end_block)(void *self, int64_t layer, sw_err *err); /* all of a block is put */
} sw_quant_sink;

#endif
