/* stats.h - calibration statistics of a whole model in a file (zpack.h), and back.
 *
 * They are taken with every linear as it came, so a run from a file does not see the errors that
 * its own earlier layers make; in exchange one file serves any scheme. Tensors, with L the layer,
 * E the expert, k the width of the site, all float32 unless said otherwise:
 *
 *   layers.L.SITE.hessian      [k (k + 1) / 2] mean of x x^T over tokens: upper triangle, by rows
 *   layers.L.SITE.abs_max      [k] largest |x| of each channel
 *   layers.L.SITE.abs_mean     [k] mean |x|
 *   layers.L.SITE.tokens       I64 [1]
 *   layers.L.experts.E.tokens  I64 [1] routed to it
 *   layers.L.experts.E.in.*    hessian, abs_max, abs_mean of the routed tokens, and weight F64 [1]
 *                              (experts.h); hessian and weight are not there with policy `all`
 *   layers.L.experts.E.down.*  the same, and all [k (k + 1) / 2], all_tokens I64 [1] of every token
 *
 * SITE is attn_in, q_b_in, kv_b_in, o_in, mlp_in, shared_down_in or down_in. Metadata: kind
 * "swage.stats/1", model_sha256 (identity.h), ids_sha256 of the calibration windows, samples,
 * seq_len, experts (the policy).
 */
#ifndef SW_QUANT_STATS_H
#define SW_QUANT_STATS_H

#include "formats/file/zpack.h"
#include "quant/pipeline.h"
#include "quant/streams.h"

#define SW_STATS_KIND "swage.stats/1"

/* Every layer's statistics into `w`, which the caller commits. `options`: experts, n_threads.
 * SW_E_FORMAT: activations that are not finite. */
sw_code sw_stats_collect(sw_zpack_writer *w, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, const sw_quant_options *options,
                         const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* Finished statistics of one layer, or of some of its experts. */
sw_code sw_stats_write(sw_zpack_writer *w, const sw_site_stats *stats, int64_t layer,
                       sw_err *err) SW_MUST_USE;

/* Before anything is made from `z`: it is a statistics file, of the model with this identity, and
 * can serve the policy. SW_E_FORMAT, SW_E_USAGE (another model, another policy). */
sw_code sw_stats_check(const sw_zpack *z, const char *model_sha256, const sw_model *model,
                       sw_experts policy, sw_err *err) SW_MUST_USE;

/* What a layer's site needs for solving, without what is kept per expert; nothing at DOWN_IN of a
 * sparse layer. Freed by sw_site_stats_free. SW_E_FORMAT names a tensor that is missing, has the
 * wrong shape, or holds what no statistics hold: a NaN, an infinity, a negative diagonal, no
 * token. */
sw_code sw_stats_read(sw_site_stats *out, const sw_zpack *z, const sw_model *model, int64_t layer,
                      sw_site site, const sw_quant_options *options, sw_err *err) SW_MUST_USE;

/* The same for experts [begin, end) at MLP_IN or DOWN_IN of a sparse layer. */
sw_code sw_stats_read_experts(sw_site_stats *out, const sw_zpack *z, const sw_model *model,
                              int64_t layer, sw_site site, const sw_quant_options *options,
                              int64_t begin, int64_t end, sw_err *err) SW_MUST_USE;

const char *sw_site_name(sw_site site);

#endif
