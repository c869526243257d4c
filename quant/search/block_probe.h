/* block_probe.h - calibration windows set aside for choosing a transform and for judging it.
 *
 * A choice is searched on some windows of the quantized model's stream and accepted on others:
 * every eighth window is held out, so what looks better by chance is not written. Windows run
 * through the half of a block that the streams have before them; the streams do not move.
 */
#ifndef SW_QUANT_SEARCH_BLOCK_PROBE_H
#define SW_QUANT_SEARCH_BLOCK_PROBE_H

#include "quant/search/side.h"
#include "quant/stats/streams.h"

typedef enum sw_block_probe_part {
    SW_BLOCK_PROBE_SEARCH, /* for statistics: at most 16384 tokens */
    SW_BLOCK_PROBE_TRIAL,  /* some of them, for running candidates: at most 4096 */
    SW_BLOCK_PROBE_HELD,   /* none of them, for accepting one: at most 4096 */
    SW_BLOCK_PROBE_PARTS
} sw_block_probe_part;

typedef struct sw_block_probe {
    sw_streams *streams;
    int64_t *seqs[SW_BLOCK_PROBE_PARTS]; /* windows of the streams */
    int64_t n_seqs[SW_BLOCK_PROBE_PARTS];
} sw_block_probe;

/* parts [n_seqs]: bit 1 << part of each window that serves a part. Pure. */
void sw_block_probe_parts(uint8_t *parts, int64_t n_seqs, int64_t seq_len);

/* Tokens of the larger of the parts that candidates run on. */
int64_t sw_block_probe_trial_tokens(int64_t n_seqs, int64_t seq_len);

/* Windows as sw_block_probe_parts says, unless the streams bring their own parts. With a single
 * calibration window nothing is held out, and n_seqs[SW_BLOCK_PROBE_HELD] is 0. */
sw_code sw_block_probe_new(sw_block_probe *out, sw_streams *streams, sw_err *err) SW_MUST_USE;
void sw_block_probe_free(sw_block_probe *probe); /* accepts a zeroed one */
/* Where searches on these windows keep what they try. */
sw_side sw_block_probe_side(const sw_block_probe *probe, int n_threads);
int64_t sw_block_probe_tokens(const sw_block_probe *probe, sw_block_probe_part part);

/* Show `tap` what a site's linears read, up to and with `site`; of streams in memory. */
sw_code sw_block_probe_tap(const sw_block_probe *probe, sw_block_probe_part part,
                           const sw_block *block, sw_site site, const sw_tap *tap,
                           sw_err *err) SW_MUST_USE;

/* y [n_tokens, hidden] = the residual stream after the half of the block that `site` is in; on the
 * card where the streams are there. */
sw_code sw_block_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                              const sw_block *block, sw_site site, sw_err *err) SW_MUST_USE;

/* Hessians of a site: hess[0], or hess[e] per expert for the inputs of `down` in a sparse layer;
 * finished. The caller made them, on the side where the streams are, and frees them. */
sw_code sw_block_probe_hessians(sw_hessian *hess, int64_t n_hess, const sw_block_probe *probe,
                                sw_block_probe_part part, const sw_block *block, sw_site site,
                                sw_err *err) SW_MUST_USE;

#endif
