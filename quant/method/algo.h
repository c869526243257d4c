/* algo.h - quantization methods as table rows: views in, views out.
 *
 * A method turns one weight into codes, scales and zeros. It knows no file, no model and no
 * packing. Everything it decided on its own (damping, retries, fallbacks) is in the report.
 */
#ifndef SW_QUANT_METHOD_ALGO_H
#define SW_QUANT_METHOD_ALGO_H

#include "formats/num/num.h"
#include "quant/method/factor.h"

typedef struct sw_solve_report {
    const char *method;      /* what really ran: "gptq", "rtn", "clip" */
    bool is_fallback;        /* not the method that was asked for */
    char why[120];           /* reason of the fallback */
    double damp;             /* fraction of the mean diagonal that was added */
    int n_damp_retries;
    double input_strength;   /* see target.h; 0 without cross terms */
    double residual_strength;
    int64_t n_dead;          /* inputs that calibration never saw */
    int64_t n_tokens;        /* that the statistics rest on */
    int64_t n_routed;        /* tokens that reached the expert; -1 for what is no expert */
    double shared_weight;    /* of the all-token statistics in an expert's, 0..1 (experts.h) */
    double power;            /* tr(W H W^T), what the relative errors are relative to */
    double error_rtn;        /* relative output error tr(E H E^T) / tr(W H W^T) of plain rounding,
                                E being what its values miss of those aimed at (target.h) */
    double error;            /* the same of what was written; -1 without statistics */
    double scale_min, scale_max; /* of their magnitudes */
    int64_t n_by_ocp[3];     /* power-of-two scales below, at and above what pow2.h FLOOR says */
} sw_solve_report;

/* What rows cost: added up in row order they are what the report says. */
typedef struct sw_row_figures {
    double loss;     /* tr(E H E^T) of the result, E against what is aimed at */
    double loss_rtn; /* of plain rounding */
    double power;    /* tr(W H W^T) */
} sw_row_figures;

typedef struct sw_solve_problem {
    const float *w;             /* [n_out, k_in] in memory, or */
    float *values;              /* the same where it is solved: the decoded result takes its
                                   place, and q is NULL */
    double fused_amax;          /* see frame.h; 0: of w alone */
    int64_t n_out, k_in;
    sw_qspec spec;
    const sw_factor *factor;    /* NULL when the method needs no statistics */
    const double *importance;   /* [k_in] what an error in each input weighs, in memory; without a
                                   factor alone; NULL: the same */
    const double *target_shift; /* [n_out, k_in] added to w as the value to aim at, at the place
                                   where the factor is; or NULL */
    sw_place place;             /* where a problem without a factor is solved; one with a factor
                                   is where that is */
    int refine_rounds;          /* see refine.h */
    int n_threads;
    const bool *is_exact;       /* [k_in] columns that are kept elsewhere: 0 in w and shift, and
                                   their codes stay at the zero point; or NULL */
    sw_row_figures *figures;    /* [n_out], zeroed, of a problem with a factor: what rows cost, or
                                   several of them at the first one's; or NULL */
    bool is_trial;              /* what rows cost is not asked for: the report may leave it out */
} sw_solve_problem;

typedef struct sw_transform sw_transform; /* transform.h */

typedef struct sw_algo {
    const char *name;
    const char *summary;
    bool needs_statistics;
    bool repairs_errors;           /* later columns make good what earlier ones lost */
    const sw_transform *transform; /* of the block before its linears are solved, or NULL */
    /* q is allocated by the caller with the problem's spec and shape. */
    sw_code (*solve)(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err);
} sw_algo;

/* The name that a report's method has for this text, which may come from another process; NULL: no
 * solver is called so. */
const char *sw_solver_name(const char *text);

/* Each at the problem's place, or in memory where its backend cannot solve the spec. */

/* Plain rounding, codes to nearest. Scales come from the group's range; those of small floats that
 * no rows share are searched for the least squared error of the weights. */
sw_code sw_rtn_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                     sw_err *err) SW_MUST_USE;
/* Rounding on searched ranges: see clip.c. */
sw_code sw_clip_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                      sw_err *err) SW_MUST_USE;
/* GPTQ (Frantar et al., arXiv 2210.17323) with what it grew since: see gptq.c. */
sw_code sw_gptq_solve(sw_qtensor *q, const sw_solve_problem *p, sw_solve_report *report,
                      sw_err *err) SW_MUST_USE;

/* The table of methods: algos.def with the transforms of awq.c and smooth.c. */

extern const sw_algo sw_algos[];
extern const int sw_n_algos;
const sw_algo *sw_algo_find(const char *name); /* NULL when unknown */

#endif
