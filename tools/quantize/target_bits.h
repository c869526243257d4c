/* target_bits.h - give every linear the scheme with which the model loses least at a size.
 *
 * The size is what the dialect stores for the selected linears - codes, scales, zero points and
 * whatever else it keeps beside them - in bits per weight. Linears that an override has given a
 * scheme of their own keep it; fused groups stay equal.
 *
 * Or the size is that of the whole output, all files with their headers. How the linears are
 * described depends on what is chosen, so the budget of the linears is found by trying: choose,
 * count all files, give the linears what is left or take back what is too much.
 *
 * Without a size, outliers are chosen at a price: each fused group keeps the share of its inputs
 * with which loss + price * bytes is least, where the price is what a byte saves when it is spent
 * on all linears alike, on the next width or on groups half as long, whichever saves more. Bytes
 * are those of the numbers themselves here: that tiles hold two and three bits in four is no
 * reason to keep more. At the least of such sums no byte would serve better elsewhere (Everett
 * 1963; for quantizers Shoham and Gersho, "Efficient bit allocation for an arbitrary set of
 * quantizers", 1988, section II).
 */
#ifndef SW_TOOLS_QUANTIZE_TARGET_BITS_H
#define SW_TOOLS_QUANTIZE_TARGET_BITS_H

#include "quant/search/sensitivity.h"
#include "tools/recipe/selection.h"

/* Windows that the measuring pass reads: statistics for a choice, not for solving. */
#define SW_TARGET_WINDOWS_MAX 32

typedef struct sw_target_request {
    double bits;          /* per weight, at most; 0: not asked */
    uint64_t bytes;       /* of the whole output, at most; 0: not asked. Neither: no size, outliers
                           * alone are chosen */
    /* Bytes of all files of the output, at most, with the selection as it is now; for `bytes`. */
    sw_code (*size_of)(void *self, uint64_t *most, sw_err *err);
    void *size_self;
    bool is_dry;          /* nothing is measured or chosen, only what cannot be is refused */
    const sw_qspec *spec; /* the scheme of all that no override names */
    bool keep_group, keep_symmetry; /* asked for by the user: only the width varies */
    double outlier_share; /* of the inputs that all keep, whatever else they become */
    bool chooses_outliers; /* each linear's own share, outlier_share being 0 */
    const sw_dialect *dialect;
    const sw_algo *algo;
    const sw_calib *calib;
    const sw_zpack *stats; /* as in sw_sensitivity_options */
    double damp;
    const sw_linear_source *source; /* as in sw_quant_options */
    int n_threads;
} sw_target_request;

typedef struct sw_target_outcome {
    double bits;  /* per weight, as it came out */
    double loss;  /* predicted divergence from the original, nats per token; without overrides' */
    uint64_t least_bytes; /* where `bytes` is asked: what the smallest choice comes to; also when
                           * that is refused */
} sw_target_outcome;

/* Bits per weight that `dialect` stores for the selected linears as they are now. */
double sw_target_bits_of(const sw_selection *selection, const sw_dialect *dialect);

/* Measure, allocate, and put the schemes into the selection. SW_E_USAGE: a target below what the
 * dialect can hold, with the least there is; found before anything is measured. SW_E_UNSUPPORTED:
 * a dialect without outliers is to choose them. */
sw_code sw_target_bits_choose(sw_target_outcome *out, sw_selection *selection,
                              const sw_model *model, const sw_st *st,
                              const sw_target_request *request, const sw_progress *progress,
                              sw_err *err) SW_MUST_USE;

#endif
