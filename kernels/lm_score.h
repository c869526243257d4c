/* lm_score.h - what a device says about one predicted position, in place of its logits. */
#ifndef SW_KERNELS_LM_SCORE_H
#define SW_KERNELS_LM_SCORE_H

#include <stdint.h>

/* Figures of sw_position_compare (verify/base/metrics.h), in double and to 1e-12 of it. Without a
 * reference those of it are 0. */
typedef struct sw_lm_score {
    double nll, nll_ref;  /* -log softmax(logits)[token that follows] */
    double kl;            /* KL(softmax(ref) || softmax(logits)), never below 0; a NaN stays one */
    double sum, sum_ref;  /* of exp(logit - the largest) */
    int64_t top, top_ref; /* ids of the largest, ties to the lower */
} sw_lm_score;

#endif
