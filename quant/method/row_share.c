/* row_share.c - see row_share.h. */
#include "quant/method/row_share.h"

#include "formats/base/size.h"
#include "quant/stats/pieces.h"

/* Rows that are cut together: those of the backend, those that share scales, or all. */
static int64_t unit_of(const sw_solve_problem *p)
{
    const sw_qspec *spec = &p->spec;
    const int64_t shared = sw_qspec_rows(spec, p->n_out);
    const int64_t least = sw_backend_of(p->factor ? &p->factor->place : &p->place)->rows_together;
    int64_t unit = least;

    if (spec->n_outliers) return p->n_out;
    if (shared <= 1 || (spec->scale_rows == SW_ROWS_ALL && !spec->group_elems)) return unit;
    if (spec->scale_rows == SW_ROWS_ALL) return p->n_out;
    while (unit % shared) unit += least;
    return unit;
}

sw_rows sw_share_rows_by(int64_t unit, int64_t n_out, int rank, int n_ranks)
{
    const int64_t n_units = sw_ceil_div(n_out, unit);
    sw_rows rows = {sw_piece_of_rank(n_units, rank, n_ranks) * unit,
                    sw_piece_of_rank(n_units, rank + 1, n_ranks) * unit};

    rows.begin = sw_min_i64(rows.begin, n_out);
    rows.end = sw_min_i64(rows.end, n_out);
    return rows;
}

sw_rows sw_share_rows(const sw_solve_problem *p, int rank, int n_ranks)
{
    return sw_share_rows_by(unit_of(p), p->n_out, rank, n_ranks);
}
