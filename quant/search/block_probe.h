/* block_probe.h - calibration windows set aside for choosing a transform and for judging it.
 *
 * A choice is searched on some windows of the quantized model's stream and accepted on others:
 * every eighth window is held out, so what looks better by chance is not written. Windows run
 * through the half of a block that the streams have before them; the streams do not move.
 *
 * Of several ranks each runs the windows that are here, those of its pieces of the text (pieces.h).
 * No batch and no sum mixes two pieces, and what is found goes to every rank: they come to the
 * same choice, and any number of ranks to the same bytes. What says nothing else is of the whole
 * text; what runs windows or hands figures on is called by every rank.
 */
#ifndef SW_QUANT_SEARCH_BLOCK_PROBE_H
#define SW_QUANT_SEARCH_BLOCK_PROBE_H

#include "quant/stats/streams.h"
#include "quant/stats/sums.h"

typedef struct sw_block_probe {
    sw_streams *streams;
    sw_piece_run here;                   /* pieces of the text that are */
    int64_t *seqs[SW_BLOCK_PROBE_PARTS]; /* windows of the streams, of those that are here */
    int64_t n_here[SW_BLOCK_PROBE_PARTS];
    /* windows before each piece; and behind the last, how many there are */
    int64_t before[SW_BLOCK_PROBE_PARTS][SW_PIECES_MAX + 1];
} sw_block_probe;

/* Windows as sw_block_probe_parts says, unless the streams bring their own parts. With a single
 * calibration window nothing is held out. */
sw_code sw_block_probe_new(sw_block_probe *out, sw_streams *streams, sw_err *err) SW_MUST_USE;
void sw_block_probe_free(sw_block_probe *probe); /* accepts a zeroed one */
/* Gives back what a device keeps of blocks between the runs below. To be called before a block
 * that it has run is freed, and where its memory is wanted. */
void sw_block_probe_forget(const sw_block_probe *probe);
/* Where searches on these windows keep what they try. */
const sw_place *sw_block_probe_place(const sw_block_probe *probe);
/* The half of this block that `site` is in, as far as the streams have it before them. */
sw_half sw_block_probe_half(const sw_block_probe *probe, const sw_block *block, sw_site site);
int64_t sw_block_probe_windows(const sw_block_probe *probe, sw_block_probe_part part);
int64_t sw_block_probe_tokens(const sw_block_probe *probe, sw_block_probe_part part);
int64_t sw_block_probe_tokens_here(const sw_block_probe *probe, sw_block_probe_part part);
/* Tokens of the text before those that are here. */
int64_t sw_block_probe_tokens_before(const sw_block_probe *probe, sw_block_probe_part part);
/* For backends. Of the windows that are here the first of a piece, which is here or follows the
 * last that is; and how many run at a time from number `at` on: of one piece. */
int64_t sw_block_probe_from(const sw_block_probe *probe, sw_block_probe_part part, int64_t piece);
int64_t sw_block_probe_batch(const sw_block_probe *probe, sw_block_probe_part part, int64_t at);

/* by_token [tokens of the part]: what each rank has set for its own, to all. */
sw_code sw_block_probe_gather(double *by_token, const sw_block_probe *probe,
                              sw_block_probe_part part, sw_err *err) SW_MUST_USE;

/* y [tokens that are here, hidden], at the streams' place: the residual stream after the half of
 * the block that `site` is in. */
sw_code sw_block_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                              const sw_block *block, sw_site site, sw_err *err) SW_MUST_USE;

/* What is kept of what a site's linears read, or those of one expert (-1: none). Of each piece
 * every `every`-th row is, at most its share of n_max by its tokens. */
typedef struct sw_probe_rows {
    sw_site site;
    int64_t expert, k, every, n_max;
    float *amax;     /* [k], zeroed, in memory: the largest magnitude of each channel, an infinity
                        where one is not finite */
    float *rows;     /* [n_max, k], at the streams' place: those that are here */
    int64_t n_rows;  /* of them */
    int64_t n_until; /* as many may be here when the present piece is done */
    int64_t of_piece[SW_PIECES_MAX]; /* kept of each piece of the text */
} sw_probe_rows;
/* Rows of the pieces before one of the text; of those before SW_PIECES_MAX: all. */
int64_t sw_probe_rows_before(const sw_probe_rows *rows, int64_t piece);
/* For backends: before rows of a piece are kept, and after. */
void sw_probe_rows_begin(sw_probe_rows *rows, const sw_block_probe *probe,
                         sw_block_probe_part part, int64_t piece);
void sw_probe_rows_end(sw_probe_rows *rows, int64_t piece);
/* by_row [rows of the text]: what each rank has set for its own, to all. */
sw_code sw_probe_rows_gather(double *by_row, const sw_probe_rows *rows,
                             const sw_block_probe *probe, sw_err *err) SW_MUST_USE;
/* Fill amax, rows, n_rows and of_piece from a part. */
sw_code sw_block_probe_rows(sw_probe_rows *rows, const sw_block_probe *probe,
                            sw_block_probe_part part, const sw_block *block,
                            sw_err *err) SW_MUST_USE;

/* Sums of what linears of a site read, settled, at every rank: stats->site[site], or `down.all` of
 * the experts that stats hold for the inputs of their `down`. The caller made them, at the streams'
 * place, and frees them. */
sw_code sw_block_probe_hessians(sw_site_stats *stats, const sw_block_probe *probe,
                                sw_block_probe_part part, const sw_block *block, sw_site site,
                                sw_err *err) SW_MUST_USE;
/* For backends: the sum that rows of a site go to, or of one expert (-1: none); NULL: none does. */
sw_hessian *sw_block_probe_sum(sw_site_stats *stats, sw_site site, int64_t expert);

#endif
