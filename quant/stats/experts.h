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

/* What an expert is calibrated on. */
typedef enum sw_experts {
    SW_EXPERTS_SHRINK, /* the blend above */
    SW_EXPERTS_ROUTED, /* the tokens that the router sends to it */
    SW_EXPERTS_ALL,    /* every token */
    SW_EXPERTS_COUNT
} sw_experts;

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
/* sw_hessian_settle of all that it holds. */
sw_code sw_expert_stats_settle(sw_expert_stats *stats, sw_err *err) SW_MUST_USE;
/* What is settled, to the solver's device unless it is there; and the other way. */
sw_code sw_expert_stats_move(sw_expert_stats *stats, sw_solver *solver, sw_err *err) SW_MUST_USE;
sw_code sw_expert_stats_fetch(sw_expert_stats *stats, sw_err *err) SW_MUST_USE;

/* All-token statistics made ready for comparing experts with them, on the side where they are. */
typedef struct sw_prior {
    const sw_hessian *all; /* borrowed */
    double *root;          /* [k, k] lower Cholesky factor of the damped mean, by columns; or */
    sw_device_factor on;   /* of the damped sum, on the device of `all` */
} sw_prior;

/* `all` must be settled and hold tokens. */
sw_code sw_prior_new(sw_prior *out, const sw_hessian *all, sw_err *err) SW_MUST_USE;
void sw_prior_free(sw_prior *prior); /* accepts a zeroed one */

/* The d of the head comment for settled halves on the same side. */
sw_code sw_prior_weight(double *out, const sw_prior *prior, const sw_hessian half[2],
                        sw_err *err) SW_MUST_USE;

/* Set the weight of every site that the experts hold, `in` against in_all (may be empty where no
 * expert holds one) and `down` against its own, all settled and on one side. */
sw_code sw_experts_weigh(sw_expert_stats *experts, int64_t n_experts, const sw_hessian *in_all,
                         sw_err *err) SW_MUST_USE;

/* half[0] becomes the blend with weight d of the prior, scaled as a sum over n_tokens (at least 1):
 * those of both halves; half[1] may be empty. d = 1 is the prior alone. */
sw_code sw_expert_blend(sw_hessian half[2], const sw_hessian *all, double d,
                        sw_err *err) SW_MUST_USE;

#endif
