/* pieces.h - the fixed pieces of a calibration text, whose sums are added in one fixed order.
 *
 * Sums of floats depend on their order in the last digits. So the text is cut into pieces of whole
 * chunks by its length alone, each is summed by itself, and the sums are added in an order that
 * every number of ranks can keep: both halves of the pieces from left to right, then the second
 * half to the first. A rank owns neighbouring pieces. It adds what it may, and what is left goes to
 * a rank that has the pieces before it. In a run of one rank at most three sums live at a time.
 *
 * Pure functions of numbers.
 */
#ifndef SW_QUANT_STATS_PIECES_H
#define SW_QUANT_STATS_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#define SW_PIECES_MAX 8
#define SW_PIECES_WIDE 2
#define SW_PIECES_WIDE_INPUTS 20480 /* from more than these on */

/* Neighbouring pieces [begin, end) whose sums have become one. */
typedef struct sw_piece_run {
    int64_t begin, end;
} sw_piece_run;

/* Pieces of a text of so many chunks, for a model whose widest linear has k_max inputs; at least 1.
 * Where one sum takes much of a device there are two, so that no more than two sums live at a
 * time. */
int64_t sw_pieces_of(int64_t n_chunks, int64_t k_max);
/* The first chunk of one of n_pieces; n_chunks for the piece after the last. */
int64_t sw_piece_chunk(int64_t n_chunks, int64_t n_pieces, int64_t piece);
/* The first piece of a rank; n_pieces for the rank after the last. */
int64_t sw_piece_of_rank(int64_t n_pieces, int rank, int n_ranks);

/* May the sum of `b` be added to that of `a` now? */
bool sw_pieces_join(sw_piece_run a, sw_piece_run b, int64_t n_pieces);
/* The runs, in order, that a rank is left with which sums the pieces [begin, end), into out
 * [SW_PIECES_MAX]; how many there are. */
int sw_pieces_left(sw_piece_run *out, int64_t begin, int64_t end, int64_t n_pieces);
/* How many sums live at a time, at most, while a rank sums them. goes_on: a piece that may be added
 * to the sum before it goes there as it is summed. */
int sw_pieces_alive(int64_t begin, int64_t end, int64_t n_pieces, bool goes_on);
/* The same at one of several ranks, where another's sum may come beside the own. */
int sw_pieces_alive_at(int64_t n_pieces, int rank, int n_ranks, bool goes_on);

#endif
