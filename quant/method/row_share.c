/* row_share.c - see row_share.h. */
#include "quant/method/row_share.h"

#include "formats/base/size.h"

int64_t sw_share_unit(const sw_qspec *spec, int64_t n_out, const sw_backend *backend)
{
    const int64_t shared = sw_qspec_rows(spec, n_out), least = backend->rows_together;
    int64_t unit = least;

    if (spec->n_outliers) return n_out;
    if (shared <= 1 || (spec->scale_rows == SW_ROWS_ALL && !spec->group_elems)) return unit;
    if (spec->scale_rows == SW_ROWS_ALL) return n_out;
    while (unit % shared) unit += least;
    return unit;
}

static int64_t rows_in_all(const sw_share_linear *linears, int64_t n)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < n; i++) sum += linears[i].n_out;
    return sum;
}

/* Where a stretch of at most so many rows ends that begins at row `begin` of all. */
static int64_t stretch_end(const sw_share_linear *linears, int64_t n, int64_t begin, int64_t most)
{
    int64_t at = 0; /* the first row of linear i */

    for (int64_t i = 0; i < n; at += linears[i++].n_out) {
        const int64_t from = sw_max_i64(0, begin - at), left = linears[i].n_out - from;
        const int64_t room = begin + most - (at + from);

        if (left > room) return at + from + room / linears[i].unit * linears[i].unit;
    }
    return at;
}

static bool is_enough(const sw_share_linear *linears, int64_t n, int n_ranks, int64_t most)
{
    const int64_t all = rows_in_all(linears, n);
    int64_t end = 0;

    for (int rank = 0; rank < n_ranks && end < all; rank++)
        end = stretch_end(linears, n, end, most);
    return end == all;
}

/* A rank's part of a linear: as many pieces as others have, or one more. */
static sw_rows part_of(const sw_share_linear *l, int rank, int n_ranks)
{
    const int64_t n_pieces = l->n_out ? sw_ceil_div(l->n_out, l->unit) : 0;

    return (sw_rows){sw_min_i64(l->n_out, sw_ceil_div(n_pieces * rank, n_ranks) * l->unit),
                     sw_min_i64(l->n_out, sw_ceil_div(n_pieces * (rank + 1), n_ranks) * l->unit)};
}

/* Rows of the rank with most of them, where each has a part of every linear. */
static int64_t most_by_linear(const sw_share_linear *linears, int64_t n, int n_ranks)
{
    int64_t most = 0;

    for (int rank = 0; rank < n_ranks; rank++) {
        int64_t own = 0;

        for (int64_t i = 0; i < n; i++) {
            const sw_rows rows = part_of(&linears[i], rank, n_ranks);
            own += rows.end - rows.begin;
        }
        most = sw_max_i64(most, own);
    }
    return most;
}

sw_site_share sw_site_share_of(const sw_share_linear *linears, int64_t n, int n_ranks)
{
    const int64_t all = rows_in_all(linears, n);
    const int64_t by_linear = most_by_linear(linears, n, n_ranks);
    int64_t too_few = sw_ceil_div(all, n_ranks) - 1, enough = all;

    while (enough - too_few > 1) {
        const int64_t most = too_few + (enough - too_few) / 2;

        if (is_enough(linears, n, n_ranks, most)) enough = most;
        else too_few = most;
    }
    return (sw_site_share){.linears = linears, .n = n, .n_ranks = n_ranks,
                           .is_by_linear = by_linear <= enough,
                           .most = sw_min_i64(by_linear, enough)};
}

sw_rows sw_site_share_rows(const sw_site_share *share, int64_t i, int rank)
{
    const int64_t n_out = share->linears[i].n_out, at = rows_in_all(share->linears, i);
    int64_t begin = 0, end = 0;

    if (share->is_by_linear) return part_of(&share->linears[i], rank, share->n_ranks);
    for (int r = 0; r <= rank; r++) {
        begin = end;
        end = stretch_end(share->linears, share->n, begin, share->most);
    }
    return (sw_rows){sw_min_i64(n_out, sw_max_i64(0, begin - at)),
                     sw_min_i64(n_out, sw_max_i64(0, end - at))};
}

int sw_site_share_first(const sw_site_share *share, int64_t i)
{
    int rank = 0;

    while (rank + 1 < share->n_ranks && sw_site_share_rows(share, i, rank).end == 0) rank++;
    return rank;
}

double sw_site_share_busiest(const sw_site_share *share)
{
    const int64_t all = rows_in_all(share->linears, share->n);

    return all ? (double)share->most / (double)all : 1;
}
