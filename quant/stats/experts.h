/* experts.h - statistics of the experts of a sparse layer, so that a rare one is never garbage.
 *
 * What an expert reads is H_e, the sum over the tokens routed to it. A rare expert has few, and
 * H_e is then noise; the sum over all tokens is solid, but is not what the expert reads. Between
 * means S = H_e / n_e and T = H_all / n_all the estimate is
 *     (1 - d) S + d T,    d = var(S) / |S - T|^2, at most 1,
 * the shrinkage of Ledoit and Wolf (J. Multivariate Anal. 88, 2004) towards a given target
 * (Schaefer and Strimmer, Stat. Appl. Genet. Mol. Biol. 4, 2005, section 2.2). Two things differ.
 * Norms are taken where T is the identity, because what rounding costs depends on the small
 * directions of H as on the large. And var(S) is not taken token by token, since neighbours in a
 * text are alike, but from how far the two halves of the calibration text disagree:
 *     var(S) = |S_1 - S_2|^2 n_1 n_2 / n_e^2.
 * That T is drawn from the same text is left out: the correction trusts S more, and models came
 * out worse with it (tests/bench/moe.csv). Without tokens in either half d = 1.
 */
#ifndef SW_QUANT_STATS_EXPERTS_H
#define SW_QUANT_STATS_EXPERTS_H

#include "quant/stats/channels.h"
#include "quant/stats/hessian.h"

/* Of an expert's inputs by inputs, what takes room at a device beside its sums while it is weighed:
 * a prior of its own, and how far each half is from it; and while it is solved: its factor and the
 * making of it. */
#define SW_WEIGHED_MATRICES 6
#define SW_SOLVED_MATRICES 4

/* One input of one expert. */
typedef struct sw_expert_site {
    sw_hessian half[2]; /* routed tokens, of alternate stretches of the text */
    sw_hessian all;     /* every token, or empty when the experts share one */
    double weight;      /* d, once weighed */
    sw_channels sizes;  /* of the routed tokens, where wanted */
} sw_expert_site;

typedef struct sw_expert_stats {
    sw_expert_site in, down; /* what gate and up read; what down reads */
    int64_t n_tokens;        /* routed to it */
} sw_expert_stats;

void sw_expert_stats_free(sw_expert_stats *stats); /* accepts a zeroed one */
/* What is settled, to a place; does nothing to sums that are there. */
sw_code sw_expert_stats_move(sw_expert_stats *stats, const sw_place *to, sw_err *err) SW_MUST_USE;

/* Norms of many inputs are estimated: the inner product of A and B is the mean of (A z).(B z) over
 * random signs z, and two products with rows of signs are far less than whitening whole matrices. A
 * norm is off by the root of 2 / SW_PRIOR_PROBES at most, where one direction is all of it, and by
 * so much less as more take part. Of fewer inputs norms are exact. */
#define SW_PRIOR_PROBED_INPUTS 1024
#define SW_PRIOR_PROBES 256
static inline bool sw_prior_is_probed(int64_t k) { return k >= SW_PRIOR_PROBED_INPUTS; }
/* *z [SW_PRIOR_PROBES, k] in memory, for sw_mem_put: the same signs in every run and place. */
sw_code sw_prior_probes(double **z, int64_t k, sw_err *err) SW_MUST_USE;

/* All-token statistics made ready for comparing experts with them, at the place where they are. */
typedef struct sw_prior {
    const sw_hessian *all; /* borrowed */
    void *state;           /* the backend's: a factor of the damped mean or sum */
} sw_prior;

/* Of the mean diagonal of the all-token statistics, added to it: directions that calibration never
 * saw count little. */
#define SW_PRIOR_DAMP 0.01

/* `all` must be settled and hold tokens. */
sw_code sw_prior_new(sw_prior *out, const sw_hessian *all, sw_err *err) SW_MUST_USE;
void sw_prior_free(sw_prior *prior); /* accepts a zeroed one */
/* What a prior without a factor fails with: SW_E_FORMAT. */
sw_code sw_prior_indefinite(sw_err *err) SW_MUST_USE;

/* The d of the head comment for settled halves at the same place. */
sw_code sw_prior_weight(double *out, const sw_prior *prior, const sw_hessian half[2],
                        sw_err *err) SW_MUST_USE;

/* Set the weight of every site that the experts hold (some may hold none), `in` against in_all (may
 * be empty where no expert holds one) and `down` against its own, all settled and at one place.
 * *in_prior, zeroed at first: that of in_all, made when it is asked for and good for other experts
 * too; the caller's to free, whatever comes. */
sw_code sw_experts_weigh(sw_expert_stats *experts, int64_t n_experts, const sw_hessian *in_all,
                         sw_prior *in_prior, sw_err *err) SW_MUST_USE;

/* half[0] becomes the blend with weight d of the prior, scaled as a sum over n_tokens (at least 1):
 * those of both halves; half[1] may be empty. d = 1 is the prior alone. */
sw_code sw_expert_blend(sw_hessian half[2], const sw_hessian *all, double d,
                        sw_err *err) SW_MUST_USE;

#endif
