/* pieces.c - see pieces.h. */
#include "quant/stats/pieces.h"

#include "formats/base/size.h"

int64_t sw_pieces_of(int64_t n_chunks, int64_t k_max)
{
    const int64_t most = k_max > SW_PIECES_WIDE_INPUTS ? SW_PIECES_WIDE : SW_PIECES_MAX;

    return sw_max_i64(1, sw_min_i64(n_chunks, most));
}

int64_t sw_piece_chunk(int64_t n_chunks, int64_t n_pieces, int64_t piece)
{
    return piece * n_chunks / n_pieces;
}

int64_t sw_piece_of_rank(int64_t n_pieces, int rank, int n_ranks)
{
    return sw_ceil_div(rank * n_pieces, n_ranks);
}

/* The first piece of the second half. */
static int64_t middle(int64_t n_pieces) { return sw_ceil_div(n_pieces, 2); }

bool sw_pieces_join(sw_piece_run a, sw_piece_run b, int64_t n_pieces)
{
    const int64_t half = middle(n_pieces);

    if (a.end != b.begin) return false;
    if (b.begin == half) return a.begin == 0 && b.end == n_pieces;
    return (a.begin == 0 || a.begin == half) && b.end - b.begin == 1;
}

int sw_pieces_alive(int64_t begin, int64_t end, int64_t n_pieces, bool goes_on)
{
    sw_piece_run left[SW_PIECES_MAX];
    int most = 0;

    for (int64_t piece = begin; piece < end; piece++) {
        const int n = sw_pieces_left(left, begin, piece, n_pieces);
        const bool joins = n && sw_pieces_join(left[n - 1], (sw_piece_run){piece, piece + 1},
                                               n_pieces);
        const int alive = goes_on && joins ? n : n + 1;

        if (alive > most) most = alive;
    }
    return most;
}

int sw_pieces_alive_at(int64_t n_pieces, int rank, int n_ranks, bool goes_on)
{
    const int n = sw_pieces_alive(sw_piece_of_rank(n_pieces, rank, n_ranks),
                                  sw_piece_of_rank(n_pieces, rank + 1, n_ranks), n_pieces,
                                  goes_on);

    return n > 1 || n_ranks == 1 ? n : 2;
}

int sw_pieces_left(sw_piece_run *out, int64_t begin, int64_t end, int64_t n_pieces)
{
    int n = 0;

    for (int64_t piece = begin; piece < end; piece++) {
        out[n++] = (sw_piece_run){piece, piece + 1};
        while (n > 1 && sw_pieces_join(out[n - 2], out[n - 1], n_pieces)) {
            out[n - 2].end = out[n - 1].end;
            n--;
        }
    }
    return n;
}
