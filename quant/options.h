/* options.h - the types of a run: what was asked for, and the text it is calibrated on.
 *
 * These are the ground of quant/: every room knows them, and they know no room.
 */
#ifndef SW_QUANT_OPTIONS_H
#define SW_QUANT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/num/num.h"
#include "kernels/engine/engine.h"

/* Order in which columns are quantized. Groups are always contiguous in the stored weight. */
typedef enum sw_order {
    SW_ORDER_NONE,   /* as stored */
    SW_ORDER_STATIC, /* falling Hessian diagonal; scales fixed beforehand ("act-order") */
    SW_ORDER_GAR,    /* falling diagonal inside groups, groups by their largest diagonal */
    SW_ORDER_COUNT
} sw_order;

typedef enum sw_sequential {
    SW_SEQUENTIAL_SITE,  /* every site sees the sites before it quantized */
    SW_SEQUENTIAL_LAYER, /* all sites of a block are observed in one pass: faster */
    SW_SEQUENTIAL_COUNT
} sw_sequential;

/* What an expert is calibrated on. */
typedef enum sw_experts {
    SW_EXPERTS_SHRINK, /* a blend of both, by evidence (experts.h) */
    SW_EXPERTS_ROUTED, /* the tokens that the router sends to it */
    SW_EXPERTS_ALL,    /* every token */
    SW_EXPERTS_COUNT
} sw_experts;

/* How far a linear's target follows the cross terms (target.h). */
typedef struct sw_strengths {
    double input;    /* a, 0..1 */
    double residual; /* b, 0..1 */
} sw_strengths;

/* What an error in each input of a linear weighs, without any statistics of a run's own: positive,
 * [ref->k_in]; or *has false, and all weigh the same. */
typedef struct sw_importance {
    void *self;
    sw_code (*get)(void *self, bool *has, double *out, const sw_linear_ref *ref, sw_err *err);
} sw_importance;

struct sw_team;

typedef struct sw_quant_options {
    const struct sw_algo *algo;
    sw_qspec spec;
    sw_order order;
    sw_sequential sequential;
    double damp;              /* first damping tried, fraction of the mean diagonal */
    int refine_rounds;        /* see refine.h */
    sw_strengths cap;         /* most that a target may lean on the cross terms; 0, 0: off */
    sw_experts experts;       /* what the experts of a sparse layer are calibrated on */
    const sw_num *kv_num;     /* find scales for a cache of these codes, E4M3 or INT8; needs calib
                               * and sink->put_kv. NULL: none */
    const sw_linear_source *source; /* of linears that the checkpoint does not store as floats;
                                       NULL: it stores all so */
    const sw_importance *importance; /* for methods without statistics; NULL: none */
    const char *spill_dir;    /* activations live in a file there; NULL: in memory. Same bytes */
    const struct sw_backend *backend; /* what computes (backend.h); NULL: the CPU */
    void *device;             /* that the backend was opened on, borrowed; NULL on the CPU */
    int n_threads;
    struct sw_team *team;     /* the ranks that share the run, borrowed; NULL: one. Same bytes */
} sw_quant_options;

/* Calibration tokens: n_seqs windows of seq_len ids; borrowed. */
typedef struct sw_calib {
    const uint32_t *ids;
    int64_t n_seqs, seq_len;
} sw_calib;

#endif
