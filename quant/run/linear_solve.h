/* linear_solve.h - one linear of a block: loaded, aimed, solved, handed on. For block_solve.c. */
#ifndef SW_QUANT_RUN_LINEAR_SOLVE_H
#define SW_QUANT_RUN_LINEAR_SOLVE_H

#include "quant/run/block_job.h"

/* The statistics that a set of linears shares. */
typedef struct sw_shared_stats {
    sw_hessian *all;         /* every token; NULL: none */
    const sw_factor *factor; /* of `all`; NULL when it cannot serve, and then why */
    const sw_factor *cross;  /* of what the cross terms belong to; NULL: factor */
    const sw_strengths *strengths; /* [n_linears] chosen beforehand, or NULL */
    struct sw_team *team;    /* whose ranks share the rows of each linear */
    int64_t n_routed;        /* tokens that reached the expert; -1: no expert */
    double shared_weight;    /* see experts.h */
    char why_not[120];
} sw_shared_stats;

/* What became of a linear. */
typedef struct sw_solution {
    sw_qtensor q;
    sw_solve_report report;
} sw_solution;

/* w [n_out, k_in] = the original weight. */
sw_code sw_linear_load(float *w, const sw_block_job *job, const sw_linear_ref *ref,
                       sw_err *err) SW_MUST_USE;
/* Solve linear i, each rank some of its rows, hand it out, and let the block use the quantized
 * value. */
sw_code sw_linear_solve(sw_block_job *job, int64_t i, const sw_shared_stats *shared,
                        sw_err *err) SW_MUST_USE;
/* Solve all of a linear that this rank owns, and keep what becomes of it ... */
sw_code sw_linear_keep(sw_solution *out, sw_block_job *job, int64_t i,
                       const sw_shared_stats *shared, sw_err *err) SW_MUST_USE;
/* ... until every rank has solved its own: from the owner to all, handed out, used and freed. */
sw_code sw_linear_exchange(sw_solution *kept, sw_block_job *job, int64_t i, int owner,
                           sw_err *err) SW_MUST_USE;

#endif
