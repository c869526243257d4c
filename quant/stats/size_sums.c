/* size_sums.c - see size_sums.h. */
#include "quant/stats/size_sums.h"

#include <string.h>

#include "quant/team/team.h"

static size_t max_bytes(const sw_channels *c) { return (size_t)c->k_in * sizeof *c->abs_max; }

static size_t sum_bytes(const sw_channels *c) { return (size_t)c->k_in * sizeof *c->abs_sum; }

static sw_code send(const sw_channels *c, int to, sw_team *team, sw_err *err)
{
    sw_code rc = sw_team_send(team, to, &c->n_tokens, sizeof c->n_tokens, err);

    if (rc == SW_OK) rc = sw_team_send(team, to, c->abs_max, max_bytes(c), err);
    return rc == SW_OK ? sw_team_send(team, to, c->abs_sum, sum_bytes(c), err) : rc;
}

static sw_code receive(sw_channels *c, int from, sw_team *team, sw_err *err)
{
    sw_code rc = sw_team_receive(team, from, &c->n_tokens, sizeof c->n_tokens, err);

    if (rc == SW_OK) rc = sw_team_receive(team, from, c->abs_max, max_bytes(c), err);
    return rc == SW_OK ? sw_team_receive(team, from, c->abs_sum, sum_bytes(c), err) : rc;
}

static sw_code spread(sw_channels *c, sw_team *team, sw_err *err)
{
    sw_code rc = sw_team_broadcast(team, 0, &c->n_tokens, sizeof c->n_tokens, err);

    if (rc == SW_OK) rc = sw_team_broadcast(team, 0, c->abs_max, max_bytes(c), err);
    return rc == SW_OK ? sw_team_broadcast(team, 0, c->abs_sum, sum_bytes(c), err) : rc;
}

/* Runs of pieces as they come, in the order of the text, each of a copy of its own. */
typedef struct pile {
    sw_channels at[SW_PIECES_MAX]; /* [n] */
    sw_piece_run runs[SW_PIECES_MAX];
    int n;
} pile;

static void drop_last(pile *p) { sw_channels_free(&p->at[--p->n]); }

static void join(pile *p, int64_t n_pieces)
{
    while (p->n > 1 && sw_pieces_join(p->runs[p->n - 2], p->runs[p->n - 1], n_pieces)) {
        sw_channels_merge(&p->at[p->n - 2], &p->at[p->n - 1]);
        p->runs[p->n - 2].end = p->runs[p->n - 1].end;
        drop_last(p);
    }
}

static void copy(sw_channels *to, const sw_channels *from)
{
    memcpy(to->abs_max, from->abs_max, max_bytes(from));
    memcpy(to->abs_sum, from->abs_sum, sum_bytes(from));
    to->n_tokens = from->n_tokens;
}

/* The j-th run that a rank is left with, of sizes number i. */
static sw_code take(pile *p, sw_sums *sums, int64_t i, int j, int rank, sw_team *team, sw_err *err)
{
    const int64_t k_in = sw_site_stats_sizes(sums->stats, i)->k_in;
    sw_code rc = sw_channels_new(&p->at[p->n], k_in, err);

    if (rc != SW_OK) return rc;
    p->n++;
    if (rank != sw_team_rank(team)) return receive(&p->at[p->n - 1], rank, team, err);
    copy(&p->at[p->n - 1], sw_site_stats_sizes(sums->parts[j], i));
    return SW_OK;
}

static sw_code add_all(sw_sums *sums, int64_t i, sw_team *team, sw_err *err)
{
    const int n_ranks = sw_team_size(team);
    pile p = {.n = 0};
    sw_code rc = SW_OK;

    for (int rank = 0; rank < n_ranks && rc == SW_OK; rank++) {
        sw_piece_run runs[SW_PIECES_MAX];
        const int n = sw_pieces_left(runs, sw_piece_of_rank(sums->n_pieces, rank, n_ranks),
                                     sw_piece_of_rank(sums->n_pieces, rank + 1, n_ranks),
                                     sums->n_pieces);

        for (int j = 0; j < n && rc == SW_OK; j++) {
            p.runs[p.n] = runs[j];
            if ((rc = take(&p, sums, i, j, rank, team, err)) == SW_OK) join(&p, sums->n_pieces);
        }
    }
    if (rc == SW_OK && p.n) copy(sw_site_stats_sizes(sums->stats, i), &p.at[0]);
    while (p.n) drop_last(&p);
    return rc;
}

/* Those of number i, to one rank. */
static sw_code gather(sw_sums *sums, int64_t i, int to, sw_team *team, sw_err *err)
{
    sw_code rc = SW_OK;

    if (sw_team_rank(team) == to) return add_all(sums, i, team, err);
    for (int j = 0; j < sums->n && rc == SW_OK; j++)
        rc = send(sw_site_stats_sizes(sums->parts[j], i), to, team, err);
    return rc;
}

sw_code sw_sizes_gather(sw_sums *sums, sw_team *team, sw_err *err)
{
    const int64_t n = sw_site_stats_n_sizes(sums->stats);
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const int64_t expert = sw_site_stats_sizes_expert(sums->stats, i);

        if (!sw_site_stats_sizes(sums->stats, i)->k_in) continue;
        rc = gather(sums, i, expert < 0 ? 0 : sw_sums_owner(expert, sw_team_size(team)), team, err);
        if (rc == SW_OK && expert < 0)
            rc = spread(sw_site_stats_sizes(sums->stats, i), team, err);
    }
    return rc;
}
