/* followed.c - see followed.h. */
#include "quant/stats/followed.h"

#include "formats/base/size.h"
#include "quant/stats/pieces.h"

#define PIECES_APART_MIN 4 /* with so many whole pieces are followed, or not */

sw_follow sw_follow_settled(sw_follow wanted, int64_t n_tokens, int64_t n_chunks)
{
    if (wanted == SW_FOLLOW_AUTO)
        wanted = n_tokens >= SW_FOLLOW_HALF_TOKENS ? SW_FOLLOW_HALF : SW_FOLLOW_ALL;
    return wanted == SW_FOLLOW_HALF && n_chunks < SW_FOLLOW_HALF_CHUNKS ? SW_FOLLOW_ALL : wanted;
}

int64_t sw_followed_end(const sw_text_cut *cut, int64_t piece)
{
    const int64_t begin = sw_piece_chunk(cut->n_chunks, cut->n_pieces, piece);
    const int64_t end = sw_piece_chunk(cut->n_chunks, cut->n_pieces, piece + 1);

    if (cut->follow == SW_FOLLOW_NONE) return begin;
    if (cut->follow != SW_FOLLOW_HALF) return end;
    if (cut->n_pieces >= PIECES_APART_MIN) return piece % 2 == 0 ? end : begin;
    return begin + sw_ceil_div(end - begin, 2);
}

int64_t sw_followed_before(const sw_text_cut *cut, int64_t chunk)
{
    int64_t n = 0;

    for (int64_t piece = 0; piece < cut->n_pieces; piece++) {
        const int64_t begin = sw_piece_chunk(cut->n_chunks, cut->n_pieces, piece);
        const int64_t end = sw_min_i64(chunk, sw_followed_end(cut, piece));

        n += sw_max_i64(0, end - begin);
    }
    return n;
}

bool sw_is_followed(const sw_text_cut *cut, int64_t chunk)
{
    return sw_followed_before(cut, chunk + 1) > sw_followed_before(cut, chunk);
}

bool sw_is_held(const sw_text_cut *cut, int64_t chunk)
{
    const int64_t n = sw_followed_before(cut, cut->n_chunks), at = sw_followed_before(cut, chunk);

    if (!sw_is_followed(cut, chunk)) return false;
    return n < SW_HELD_EVERY ? n > 1 && at == n - 1 : at % SW_HELD_EVERY == SW_HELD_EVERY - 1;
}
