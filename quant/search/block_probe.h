/* block_probe.h - calibration windows set aside for choosing a transform and for judging it.
 *
 * A choice is searched on some windows of the quantized model's stream and accepted on others:
 * every eighth window is held out, so what looks better by chance is not written. Windows run
 * through the half of a block that the streams have before them; the streams do not move.
 */
#ifndef SW_QUANT_SEARCH_BLOCK_PROBE_H
#define SW_QUANT_SEARCH_BLOCK_PROBE_H

#include "quant/stats/streams.h"

typedef struct sw_block_probe {
    sw_streams *streams;
    int64_t *seqs[SW_BLOCK_PROBE_PARTS]; /* windows of the streams */
    int64_t n_seqs[SW_BLOCK_PROBE_PARTS];
} sw_block_probe;

/* Windows as sw_block_probe_parts says, unless the streams bring their own parts. With a single
 * calibration window nothing is held out, and n_seqs[SW_BLOCK_PROBE_HELD] is 0. */
sw_code sw_block_probe_new(sw_block_probe *out, sw_streams *streams, sw_err *err) SW_MUST_USE;
void sw_block_probe_free(sw_block_probe *probe); /* accepts a zeroed one */
/* Where searches on these windows keep what they try. */
const sw_place *sw_block_probe_place(const sw_block_probe *probe);
/* The half of this block that `site` is in, as far as the streams have it before them. */
sw_half sw_block_probe_half(const sw_block_probe *probe, const sw_block *block, sw_site site);
int64_t sw_block_probe_tokens(const sw_block_probe *probe, sw_block_probe_part part);

/* y [n_tokens, hidden], at the streams' place: the residual stream after the half of the block that
 * `site` is in. */
sw_code sw_block_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                              const sw_block *block, sw_site site, sw_err *err) SW_MUST_USE;

/* What is kept of what a site's linears read, or those of one expert (-1: none). */
typedef struct sw_probe_rows {
    sw_site site;
    int64_t expert, k, every, n_max; /* every `every`-th row is kept, at most n_max */
    float *amax;    /* [k], zeroed, in memory: the largest magnitude of each channel, an infinity
                       where one is not finite */
    float *rows;    /* [n_max, k], at the streams' place */
    int64_t n_rows; /* kept */
} sw_probe_rows;
/* Fill rows->amax, rows->rows and rows->n_rows from a part. */
sw_code sw_block_probe_rows(sw_probe_rows *rows, const sw_block_probe *probe,
                            sw_block_probe_part part, const sw_block *block,
                            sw_err *err) SW_MUST_USE;

/* Hessians of a site: hess[0], or hess[e] per expert for the inputs of `down` in a sparse layer;
 * finished. The caller made them, at the streams' place, and frees them. */
sw_code sw_block_probe_hessians(sw_hessian *hess, int64_t n_hess, const sw_block_probe *probe,
                                sw_block_probe_part part, const sw_block *block, sw_site site,
                                sw_err *err) SW_MUST_USE;

#endif
