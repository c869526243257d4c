/* text_share.c - see text_share.h. */
#include "quant/run/text_share.h"

#include "formats/base/size.h"
#include "quant/stats/pieces.h"
#include "quant/stats/streams.h"

static int64_t chunks_of(const sw_calib *calib)
{
    return sw_ceil_div(calib->n_seqs, sw_streams_chunk_seqs(calib));
}

int64_t sw_text_pieces(const sw_model *model, const sw_calib *calib)
{
    return sw_pieces_of(chunks_of(calib), sw_streams_k_max(model));
}

double sw_text_share_most(const sw_model *model, const sw_calib *calib, int n_ranks)
{
    const int64_t n_chunks = chunks_of(calib), n_pieces = sw_text_pieces(model, calib);
    int64_t most = 0;

    for (int rank = 0; rank < n_ranks; rank++) {
        int64_t begin = sw_piece_of_rank(n_pieces, rank, n_ranks);
        int64_t end = sw_piece_of_rank(n_pieces, rank + 1, n_ranks);
        most = sw_max_i64(most, sw_piece_chunk(n_chunks, n_pieces, end) -
                                    sw_piece_chunk(n_chunks, n_pieces, begin));
    }
    return (double)most / (double)n_chunks;
}

/* Of a run of pieces: is any chunk kept back, and is any not? */
static int kinds_in(sw_piece_run run, int64_t n_chunks, int64_t n_pieces, bool with_held)
{
    const int64_t end = sw_piece_chunk(n_chunks, n_pieces, run.end);
    bool has[2] = {false, false};

    for (int64_t c = sw_piece_chunk(n_chunks, n_pieces, run.begin); c < end; c++)
        has[with_held && sw_streams_chunk_is_held(c, n_chunks)] = true;
    return has[0] + has[1];
}

double sw_text_sums_between(const sw_model *model, const sw_calib *calib, int n_ranks,
                            bool with_held)
{
    const int64_t n_chunks = chunks_of(calib), n_pieces = sw_text_pieces(model, calib);
    const int in_all = kinds_in((sw_piece_run){0, n_pieces}, n_chunks, n_pieces, with_held);
    sw_piece_run runs[SW_PIECES_MAX];
    int n = 0, most = 0; /* of all ranks, of the one with most */

    for (int rank = 0; rank < n_ranks; rank++) {
        const int n_runs = sw_pieces_left(runs, sw_piece_of_rank(n_pieces, rank, n_ranks),
                                          sw_piece_of_rank(n_pieces, rank + 1, n_ranks), n_pieces);
        int own = 0;

        for (int i = 0; i < n_runs; i++) own += kinds_in(runs[i], n_chunks, n_pieces, with_held);
        n += own;
        most = own > most ? own : most;
    }
    /* a stretch of each run comes, all but the own leave; then what is added, both ways */
    return (double)(n - most + (n_ranks - 1) * (most + 2 * in_all)) / n_ranks;
}
