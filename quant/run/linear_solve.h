/* linear_solve.h - one linear of a block: loaded, aimed, solved, decoded, and handed out. For
 * block_solve.c alone, which knows what linears share.
 *
 * Everything up to handing out may be done by several threads, for different linears; handing out
 * follows the order of linears.
 */
#ifndef SW_QUANT_RUN_LINEAR_SOLVE_H
#define SW_QUANT_RUN_LINEAR_SOLVE_H

#include "quant/method/row_share.h"
#include "quant/method/target.h"
#include "quant/run/block_job.h"

/* The statistics that a set of linears shares. */
typedef struct sw_shared_stats {
    sw_hessian *all;         /* every token; NULL: none */
    const sw_factor *factor; /* of `all`; NULL when it cannot serve, and then why */
    const sw_factor *cross;  /* of what the cross terms belong to; NULL: factor */
    const sw_strengths *strengths; /* [n_linears] chosen beforehand, or NULL */
    const sw_site_share *share; /* which rows of the job's linears each rank solves; NULL: this one
                                 * solves all of them */
    int64_t n_routed;        /* tokens that reached the expert; -1: no expert */
    double shared_weight;    /* see experts.h */
    char why_not[120];
} sw_shared_stats;

/* A linear on its way: its weight, which becomes the quantized value, and what it is in codes. */
typedef struct sw_solved {
    float *w;
    sw_qtensor q;
    sw_row_figures *figures; /* [n_out] of shared ones with a factor, or NULL */
    sw_solve_report report;
} sw_solved;

/* The factor as a lane uses it (lanes.h). */
sw_factor sw_factor_in(const sw_factor *factor, const sw_place *at);

/* The original weight, as floats in memory; SW_E_FORMAT when one is not finite. */
sw_code sw_linear_load(float *w, const sw_block_job *job, const sw_linear_ref *ref, int n_threads,
                       sw_err *err) SW_MUST_USE;
/* Of it the rows of a sample alone, each at its place in w, for one who only looks at them: 0 for
 * what is not finite. */
sw_code sw_linear_load_rows(float *w, const sw_block_job *job, const sw_linear_ref *ref,
                            const sw_row_sample *rows, sw_err *err) SW_MUST_USE;
/* Linear i of the job into `out`, or of a shared one the rows of this rank. `out` is empty but for
 * its weight, if that was loaded before (into memory of its own, and the block runs on the result);
 * freed by sw_solved_free whatever comes. */
sw_code sw_linear_solve(sw_solved *out, sw_block_job *job, int64_t i, const sw_shared_stats *shared,
                        const sw_place *at, sw_err *err) SW_MUST_USE;
/* What is told of a linear whose rows are all there, and its values for whoever runs the block:
 * of one that ranks share, for which sw_linear_solve leaves it. */
void sw_linear_finish(sw_solved *out, const sw_block_job *job, int64_t i, int n_threads);
/* Hand it out, and let the block use the quantized value; `out` is empty afterwards. */
sw_code sw_linear_hand_on(sw_solved *out, sw_block_job *job, int64_t i, sw_err *err) SW_MUST_USE;
void sw_solved_free(sw_solved *out, const sw_block_job *job); /* accepts an empty one */

/* A linear of the job that one rank has solved alone. */
typedef struct sw_solved_by {
    int64_t linear;
    int rank;
} sw_solved_by;
/* Room for linear i, which another rank solves, in an empty `out`; freed by sw_solved_free whatever
 * comes. */
sw_code sw_linear_await(sw_solved *out, const sw_block_job *job, int64_t i, int n_threads,
                        sw_err *err) SW_MUST_USE;
/* n of them, of out [n_linears of the job], to all ranks in one go, then handed out in this order;
 * other ranks than the one have room for them before, and they are empty everywhere afterwards. */
sw_code sw_linears_exchange(sw_solved *out, sw_block_job *job, const sw_solved_by *all, int64_t n,
                            sw_err *err) SW_MUST_USE;

/* Lanes that a job's linears may be solved in: without streams weights use one room in turn, and an
 * importance comes from one reader. */
int sw_lanes_for(const sw_block_job *job);
/* Is it of this site, and of this expert, or of any where that is below 0? */
bool sw_is_of_site(const sw_linear_ref *ref, sw_site site, int64_t expert);

/* Of several ranks: those of the job's linears that are worked on side by side, and the cut of
 * them by what a place takes together. */
typedef struct sw_site_cut {
    sw_share_linear *linears; /* [n_linears]; NULL: there is one rank */
    sw_site_share share;
} sw_site_cut;

/* n linears of the job, by number: of rows that are solved, by what shares scales too; or of those
 * that strengths are chosen by (sw_strength_rows). */
sw_code sw_site_cut_new(sw_site_cut *out, const sw_block_job *job, const int64_t *linear,
                        int64_t n, const sw_place *at, bool is_solved, sw_err *err) SW_MUST_USE;
void sw_site_cut_free(sw_site_cut *cut);

/* Strengths (target.h) for every linear of a site, before the tokens that are kept back join the
 * rest. out [n_linears]; loaded [n_linears] gets the weights of those that are solved next, which
 * the caller owns. */
sw_code sw_strengths_find(sw_strengths *out, float **loaded, const sw_block_job *job, sw_site site,
                          const sw_factor *factor, const sw_hessian *seen, const sw_hessian *held,
                          sw_err *err) SW_MUST_USE;

#endif
