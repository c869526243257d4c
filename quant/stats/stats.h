/* stats.h - calibration statistics of a whole model in a file (zpack.h), and back.
 *
 * They are taken with every linear as it came, so a run from a file does not see the errors that
 * its own earlier layers make; in exchange one file serves any scheme. What tries candidates does
 * so on windows of the text that the file holds, at most some 20 thousand tokens, run through the
 * model again: their activations would be a thousand times larger. Tensors, with L the layer, E
 * the expert, k the width of the site, all float32 unless said otherwise:
 *
 *   layers.L.SITE.hessian      [k (k + 1) / 2] mean of x x^T over tokens: upper triangle, by rows
 *   layers.L.SITE.abs_max      [k] largest |x| of each channel
 *   layers.L.SITE.abs_mean     [k] mean |x|
 *   layers.L.SITE.tokens       I64 [1]
 *   layers.L.SITE.range        I64 [SW_RANGE_BINS] counts of |x| (ranges.h), all experts' together
 *   The layer after the last block is what a head of its own reads.
 *   layers.L.kv_abs_max        [2] largest key, as it is cached, and largest value
 *   layers.L.experts.E.tokens  I64 [1] routed to it
 *   layers.L.experts.E.in.*    hessian, abs_max, abs_mean of the routed tokens, and weight F64 [1]
 *                              (experts.h); hessian and weight are not there with policy `all`
 *   layers.L.experts.E.down.*  the same, and all [k (k + 1) / 2], all_tokens I64 [1] of every token
 *
 *   windows.ids                U32 [n * length] n windows of the text, one after the other
 *   windows.parts              U8 [n] what each is for: bits of windows.h, and SW_STATS_LEAD;
 *                              neither is there when the text was to be kept out
 *
 * SITE is attn_in, q_b_in, kv_b_in, o_in, mlp_in, shared_down_in or down_in. Metadata: kind
 * "swage.stats/2", model_sha256 (manifest.h), ids_sha256 of the calibration windows, samples,
 * seq_len, experts (the policy).
 */
#ifndef SW_QUANT_STATS_STATS_H
#define SW_QUANT_STATS_STATS_H

#include "formats/file/zpack.h"
#include "quant/stats/kv_scales.h"
#include "quant/stats/ranges.h"
#include "quant/stats/site_scales.h"

#define SW_STATS_KIND "swage.stats/2"
#define SW_STATS_LEAD                                                                              \
    (1 << SW_BLOCK_PROBE_PARTS) /* a window that divergence is measured on (kl_probe.h) */
#define SW_STATS_PROBES (SW_STATS_LEAD - 1) /* all that searches run and are judged on */

/* Every layer's statistics into `w`, which the caller commits. `options`: experts, n_threads, the
 * backend that does all of it, and the team whose ranks share the text: each calls it, rank 0 alone
 * has a `w`, the others' is NULL, and the file is that of one rank. SW_E_FORMAT: activations that
 * are not finite. SW_E_UNSUPPORTED, SW_E_NOMEM: the model is not for the backend's device. */
sw_code sw_stats_collect(sw_zpack_writer *w, const sw_model *model, const sw_st *st,
                         const sw_calib *calib, const sw_quant_options *options,
                         const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* The windows of the text that searches and judgements will run. */
sw_code sw_stats_put_windows(sw_zpack_writer *w, const sw_calib *calib, sw_err *err) SW_MUST_USE;

/* Before anything is made from `z`: it is a statistics file, of the model with this identity, and
 * can serve the policy. SW_E_FORMAT, SW_E_USAGE (another model, another policy). */
sw_code sw_stats_check(const sw_zpack *z, const char *model_sha256, const sw_model *model,
                       sw_experts policy, sw_err *err) SW_MUST_USE;

/* Does `z`, of this model, hold what the policy needs? SW_E_USAGE. */
sw_code sw_stats_check_experts(const sw_zpack *z, const sw_model *model, sw_experts policy,
                               sw_err *err) SW_MUST_USE;

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

/* The range of a site's inputs, of all experts' at DOWN_IN of a sparse layer. Where `scales` has
 * divided them since, amax is exact and the counts are still of the undivided. */
sw_code sw_stats_read_range(sw_range *out, const sw_zpack *z, const sw_model *model, int64_t layer,
                            sw_site site, const sw_site_scales *scales, sw_err *err) SW_MUST_USE;
sw_code sw_stats_read_kv(sw_kv_range *out, const sw_zpack *z, int64_t layer,
                         sw_err *err) SW_MUST_USE;

typedef struct sw_stats_windows {
    sw_calib calib; /* of `ids` */
    uint32_t *ids;
    uint8_t *parts; /* [calib.n_seqs] */
} sw_stats_windows;

/* The windows that are for any of `parts`. SW_E_USAGE: the file was to hold no text; `who` needs
 * it. SW_E_FORMAT: windows that cannot be, ids beyond the vocabulary. */
sw_code sw_stats_windows_read(sw_stats_windows *out, const sw_zpack *z, const sw_model *model,
                              int parts, const char *who, sw_err *err) SW_MUST_USE;
void sw_stats_windows_free(sw_stats_windows *windows); /* accepts a zeroed one */

const char *sw_site_name(sw_site site);

#endif
