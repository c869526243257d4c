/* transform.h - moving a factor per channel between what makes a site's input and what reads it,
 * so that the readers quantize better; composed with any solver.
 *
 * For x W^T = (x / s)(W s)^T the factor s goes into the norm or the rows that make x (folds of
 * formats/model), the model computes what it computed, and W s (or x / s) meets a kinder grid.
 * A method proposes the scales of a group; they are used only if windows that the search did not
 * see come out better with them, through the solver that will run. Nothing is lost in the fold:
 * a norm is rounded to what will be stored first and the factor that its readers get is the
 * quotient of the two; where a tensor stays in floats the factors are powers of two.
 *
 * Of several ranks all look at every group together: each runs its windows (block_probe.h) and
 * solves its rows, and all decide from the same figures.
 */
#ifndef SW_QUANT_SEARCH_TRANSFORM_H
#define SW_QUANT_SEARCH_TRANSFORM_H

#include "quant/backend.h"
#include "quant/method/algo.h"
#include "quant/method/slab.h"
#include "quant/search/block_probe.h"
#include "quant/search/evidence.h"
#include "quant/sink.h"
#include "quant/stats/site_scales.h"

/* Linears that read one site, and what makes their input. */
typedef struct sw_group {
    const sw_model *model;
    const sw_quant_options *options;
    sw_fold fold;
    int64_t expert, k;            /* expert -1: all that read the site; k channels */
    const sw_linear_ref *readers; /* those that will be quantized */
    const sw_qspec *specs;        /* [n_readers] what they become; one group size for all */
    int64_t n_readers;
    float *const *weights;        /* [n_readers] of [n_tried, k], in memory, */
    sw_place place;               /* where trials are made; `hess` is there too, and */
    float *const *placed;         /* [n_readers] the same */
    const int64_t *n_tried;       /* [n_readers] rows of each that trials solve; NULL: all */
    const sw_hessian *hess;       /* of the site, on the search windows */
    const sw_block_probe *probe;
    const sw_block *original;
    sw_block *quantized;          /* methods may put weights in for a trial, and take them out */
    const struct sw_transform_job *job; /* for rounding scales as the fold will (fold.h) */
} sw_group;

/* What a method proposes and measured. */
typedef struct sw_proposal {
    double *scale;         /* [k], allocated by the caller; all 1 is identity */
    bool is_better;        /* on the held-out windows */
    double loss_before, loss; /* mean or relative squared error there, without and with it */
    char choice[64];       /* "activations^0.45 / weights^0.55" */
    char why_not[120];     /* when it is not better */
} sw_proposal;

/* A group as its method needs it to say what memory it will take. */
typedef struct sw_transform_need {
    int64_t k, n_max;    /* inputs, outputs of the widest reader */
    int64_t n_outputs;   /* of all readers, */
    int64_t n_tried;     /* and those that trials solve */
    int64_t n_readers;
    int64_t probe_elems; /* [tokens, hidden] of the larger of the parts that candidates run on */
    bool is_solved;      /* by a solver that factorizes */
    int n_threads;
} sw_transform_need;

/* What the search for a group's scales does, counted as forecast.h counts. */
typedef struct sw_transform_work {
    double factors;      /* factorizations of k x k */
    double solves;       /* of all readers, by the solver that will run */
    double fit_weights;  /* elements fitted to a grid and rounded, besides: by one of the ranks, */
    double round_weights; /* and by each of them */
    double told_weights; /* elements that ranks solve and tell each other */
    double half_runs;    /* runs of the half block that the group is in, on the trial tokens */
    double product_rows; /* rows of inputs multiplied with all readers */
} sw_transform_work;

struct sw_transform {
    const char *name;
    bool is_for_rows;      /* folds into linears too, not only into norms */
    bool needs_acts;       /* nothing to do where activations stay in floats */
    int64_t rows_max;      /* of a reader that trials solve, about; 0: they need all */
    sw_code (*propose)(sw_proposal *out, const sw_group *group, sw_err *err);
    int64_t (*bytes)(const sw_transform_need *need); /* that propose allocates at its peak */
    sw_transform_work (*work)(const sw_transform_need *need); /* that it does at most */
};

extern const sw_transform sw_transform_awq, sw_transform_smooth;

/* What a block lends while its sites are transformed. */
typedef struct sw_transform_job {
    const sw_model *model;
    const sw_st *st;               /* whose dtypes the changed tensors keep */
    const sw_quant_options *options;
    const sw_quant_sink *sink;
    sw_streams *streams;
    sw_block *original, *quantized; /* changed alike; `original` owns what is allocated */
    const sw_linear_ref *linears;   /* those that will be quantized */
    const sw_qspec *specs;          /* [n_linears] what they become */
    int64_t n_linears;
    sw_site_scales *scales;         /* unless NULL: gets what was accepted */
} sw_transform_job;

/* Transform the groups whose producers are solved, or folded into, at the wanted sites: before
 * those sites are observed. SW_E_FORMAT: activations that are not finite. */
sw_code sw_transform_sites(const sw_transform_job *job, const bool is_wanted[SW_SITE_COUNT],
                           sw_err *err) SW_MUST_USE;

/* Rows of a reader that trials solve: all, or a sample at an even distance. Where rows share scales
 * those that do are taken together, and all where scales are found from the whole. */
int64_t sw_transform_rows(const sw_transform *t, const sw_qspec *spec, int64_t n_out);
/* The same of one of a group. */
static inline int64_t sw_group_rows(const sw_group *group, int64_t reader)
{
    return group->n_tried ? group->n_tried[reader] : group->readers[reader].n_out;
}
/* Room at the group's place for every reader's values. */
sw_code sw_group_values_new(float ***out, const sw_group *group, sw_err *err) SW_MUST_USE;
void sw_group_values_free(float **values, const sw_group *group); /* accepts NULL */
/* Rank 0's scale [k] at every rank: where their processors differ, so may its last bits. */
sw_code sw_group_agree(double *scale, const sw_group *group, sw_err *err) SW_MUST_USE;
/* The trials that methods judge by. Readers quantized as they would be with scale (NULL: 1), by
 * the options' solver, in their unscaled meaning: values [n_readers] of [n_tried, k]. Each rank
 * solves some rows, and all get all. */
sw_code sw_group_solve(float *const *values, const sw_group *group, const double *scale,
                       sw_err *err) SW_MUST_USE;
/* What it allocates at its peak, besides `values`. */
int64_t sw_group_solve_bytes(const sw_transform_need *need);
/* The half block of a trial: the quantized one, with values for the group's readers. */
typedef struct sw_trial_block {
    const sw_group *group;
    void *own; /* what the backend keeps; NULL: the group's own block has the values lent */
} sw_trial_block;
sw_code sw_trial_block_new(sw_trial_block *out, const sw_group *group, sw_err *err) SW_MUST_USE;
void sw_trial_block_free(sw_trial_block *block); /* accepts a zeroed one; takes back what it lent */
/* values [n_readers] at the group's place, lent until the block is freed or others are. */
sw_code sw_trial_block_lend(sw_trial_block *block, float *const *values, sw_err *err) SW_MUST_USE;
/* As sw_block_probe_output. */
sw_code sw_trial_block_output(float *y, const sw_trial_block *block, sw_block_probe_part part,
                              sw_err *err) SW_MUST_USE;
/* Set the losses, in the given unit, and is_better or why_not by what held-out text says; never
 * better where the search itself saw no gain. */
void sw_proposal_judge(sw_proposal *proposal, const sw_evidence *evidence, double unit,
                       bool is_found);
/* s /= sqrt(max * min) over channels that are finite and above 0; the rest become 1. */
void sw_scale_normalize(double *scale, int64_t k);

/* What rounding sampled rows of weights costs under each of several scales. */

/* A backend fits and rounds every sample under every scale, plainly; sw_backend.score. */
typedef struct sw_score_job {
    float *sample;                /* [n_samples][SW_SLAB_ROWS, k] in memory, read only */
    const sw_qspec *const *specs; /* [n_samples] what each becomes */
    int64_t n_samples, k;
    const double *worth;          /* [k] what a squared error in each unscaled column costs */
    int n;                        /* scales */
    const void *self;             /* of scale_of, which is called from several threads: scale [k] */
    void (*scale_of)(double *scale, const void *self, int which);
} sw_score_job;

/* *out [2 k], to be freed with sw_mem_put: a scale, and then what an error in a weight times that
 * scale costs. */
sw_code sw_score_scale(double **out, const sw_score_job *job, int which, sw_err *err) SW_MUST_USE;

#endif
