/* sums.c - see sums.h. */
#include "quant/stats/sums.h"

#include <string.h>

#include "formats/io/profile.h"
#include "quant/stats/size_sums.h"
#include "quant/team/team.h"

int sw_sums_owner(int64_t expert, int n_ranks) { return (int)(expert % n_ranks); }

/* --- on one rank --- */

sw_code sw_sums_begin(sw_site_stats **part, sw_sums *sums, int64_t piece, sw_err *err)
{
    const int at = sums->n;
    sw_code rc;

    sums->runs[at] = (sw_piece_run){piece, piece + 1};
    sums->parts[at] = sums->stats;
    if (at > 0) {
        sums->parts[at] = NULL;
        if ((rc = SW_MEM_GET(&sums->parts[at], 1, "sums of a piece", err)) != SW_OK) return rc;
        if ((rc = sw_site_stats_like(sums->parts[at], sums->stats, err)) != SW_OK) {
            sw_mem_put(sums->parts[at]);
            sums->parts[at] = NULL;
            return rc;
        }
    }
    sums->n++;
    *part = sums->parts[at];
    return SW_OK;
}

static void drop(sw_sums *sums, int at)
{
    if (!sums->parts[at] || sums->parts[at] == sums->stats) return;
    sw_site_stats_free(sums->parts[at]);
    sw_mem_put(sums->parts[at]);
    sums->parts[at] = NULL;
}

sw_code sw_sums_end(sw_sums *sums, sw_err *err)
{
    sw_code rc = SW_OK;

    while (rc == SW_OK && sums->n > 1 &&
           sw_pieces_join(sums->runs[sums->n - 2], sums->runs[sums->n - 1], sums->n_pieces)) {
        const int last = sums->n - 1;

        rc = sw_site_stats_merge(sums->parts[last - 1], sums->parts[last], err);
        sums->runs[last - 1].end = sums->runs[last].end;
        drop(sums, last);
        sums->n--;
    }
    return rc;
}

void sw_sums_free(sw_sums *sums)
{
    for (int i = 0; i < SW_PIECES_MAX; i++) drop(sums, i);
}

/* --- between ranks --- */

static sw_code move_head(const sw_carrier *c, sw_hessian *sum, int other, bool is_had, sw_err *err)
{
    sw_sum_head head = {sum->n_tokens, sum->is_weighed};
    sw_code rc = is_had ? sw_team_send(c->team, other, &head, sizeof head, err)
                        : sw_team_receive(c->team, other, &head, sizeof head, err);

    sum->n_tokens = head.n_tokens;
    return rc == SW_OK && head.is_weighed ? sw_hessian_weigh(sum, err) : rc;
}

/* A sum of which this rank has (is_had) or gets the arrays, to or from another. What saw no token
 * holds zeros, which stay at home. */
static sw_code move_sum(const sw_carrier *c, sw_hessian *sum, int other, bool is_had, sw_err *err)
{
    sw_code rc = move_head(c, sum, other, is_had, err);
    const int64_t k = sum->k_in, n[] = {k * k, sw_hessian_d_elems(sum), sum->n_out_residual * k};
    double *arrays[] = {sum->h, sum->d, sum->r};

    for (int i = 0; i < 3 && rc == SW_OK && sum->n_tokens; i++) {
        const int64_t size = n[i] * (int64_t)sizeof *arrays[i];

        if (!arrays[i]) continue;
        rc = is_had ? c->backend->link_send(c->link, arrays[i], size, other, err)
                    : c->backend->link_receive(c->link, arrays[i], size, other, false, err);
    }
    return rc;
}

/* The runs of all ranks, in the order of the text, as they come to the rank that adds them. */
typedef struct gathering {
    sw_hessian *own;                /* this rank's place for the result */
    sw_hessian *sums[SW_PIECES_MAX];
    sw_piece_run runs[SW_PIECES_MAX];
    sw_hessian taken[SW_PIECES_MAX]; /* of other ranks; zeroed: none */
    int n;
} gathering;

static sw_code add(sw_hessian *into, const sw_hessian *from, sw_err *err)
{
    sw_code rc = SW_OK;

    if (!from->n_tokens) return SW_OK;
    rc = sw_hessian_merge_inputs(into, from, err);
    return rc == SW_OK ? sw_hessian_merge_cross(into, from, err) : rc;
}

static sw_code push(gathering *g, sw_hessian *sum, sw_piece_run run, int64_t n_pieces, sw_err *err)
{
    sw_code rc = SW_OK;

    g->sums[g->n] = sum;
    g->runs[g->n++] = run;
    while (rc == SW_OK && g->n > 1 &&
           sw_pieces_join(g->runs[g->n - 2], g->runs[g->n - 1], n_pieces)) {
        const int last = g->n - 1;

        rc = add(g->sums[last - 1], g->sums[last], err);
        g->runs[last - 1].end = g->runs[last].end;
        if (g->sums[last] == &g->taken[last]) sw_hessian_free(&g->taken[last]);
        g->n--;
    }
    return rc;
}

static sw_code take_run(gathering *g, int rank, sw_piece_run run, int64_t n_pieces,
                        const sw_carrier *c, sw_err *err)
{
    const sw_hessian *like = g->own;
    sw_hessian *to = &g->taken[g->n];
    sw_code rc = sw_hessian_new_like(to, like, err);

    if (rc == SW_OK) rc = move_sum(c, to, rank, false, err);
    return rc == SW_OK ? push(g, to, run, n_pieces, err) : rc;
}

/* The result to where this rank keeps it. */
static void keep(gathering *g)
{
    sw_hessian *sum = g->n ? g->sums[0] : g->own;

    if (sum == g->own) return;
    sw_hessian_free(g->own);
    *g->own = *sum;
    memset(sum, 0, sizeof *sum);
}

/* Sum number i of every rank's stats, all to one rank. */
static sw_code gather_sum(sw_sums *sums, int64_t i, int to, const sw_carrier *c, sw_err *err)
{
    gathering g = {.own = sw_site_stats_sum(sums->stats, i)};
    const int me = sw_team_rank(c->team), n_ranks = sw_team_size(c->team);
    sw_code rc = SW_OK;

    for (int j = 0; me != to && j < sums->n && rc == SW_OK; j++)
        rc = move_sum(c, sw_site_stats_sum(sums->parts[j], i), to, true, err);
    for (int rank = 0; me == to && rank < n_ranks && rc == SW_OK; rank++) {
        sw_piece_run runs[SW_PIECES_MAX];
        const int n = sw_pieces_left(runs, sw_piece_of_rank(sums->n_pieces, rank, n_ranks),
                                     sw_piece_of_rank(sums->n_pieces, rank + 1, n_ranks),
                                     sums->n_pieces);

        for (int j = 0; j < n && rc == SW_OK; j++)
            rc = rank == me ? push(&g, sw_site_stats_sum(sums->parts[j], i), runs[j],
                                   sums->n_pieces, err)
                            : take_run(&g, rank, runs[j], sums->n_pieces, c, err);
    }
    if (rc == SW_OK) keep(&g);
    for (int j = 0; j < SW_PIECES_MAX; j++)
        if (g.taken[j].k_in) sw_hessian_free(&g.taken[j]);
    return rc;
}

/* Tokens that reached each expert: whole numbers, in any order. */
static sw_code gather_counts(sw_sums *sums, sw_team *team, sw_err *err)
{
    const int64_t n = sums->stats->n_experts;
    int64_t *counts = NULL, *theirs;
    sw_code rc;

    if (!n) return SW_OK;
    if ((rc = SW_MEM_GET(&counts, 2 * n, "counts of experts", err)) != SW_OK) return rc;
    theirs = counts + n;
    for (int j = 0; j < sums->n; j++)
        for (int64_t e = 0; e < n; e++) counts[e] += sums->parts[j]->experts[e].n_tokens;
    if (sw_team_rank(team) > 0) {
        rc = sw_team_send(team, 0, counts, (size_t)n * sizeof *counts, err);
    } else {
        for (int rank = 1; rank < sw_team_size(team) && rc == SW_OK; rank++) {
            rc = sw_team_receive(team, rank, theirs, (size_t)n * sizeof *theirs, err);
            for (int64_t e = 0; e < n; e++) counts[e] += theirs[e];
        }
    }
    if (rc == SW_OK) rc = sw_team_broadcast(team, 0, counts, (size_t)n * sizeof *counts, err);
    for (int64_t e = 0; e < n; e++) sums->stats->experts[e].n_tokens = counts[e];
    sw_mem_put(counts);
    return rc;
}

/* Each rank keeps the sums of its own experts. */
static void drop_others(sw_site_stats *stats, sw_team *team)
{
    for (int64_t e = 0; e < stats->n_experts; e++) {
        const int64_t n_tokens = stats->experts[e].n_tokens;

        if (sw_sums_owner(stats->expert_begin + e, sw_team_size(team)) != sw_team_rank(team))
            sw_expert_stats_free(&stats->experts[e]);
        stats->experts[e].n_tokens = n_tokens;
    }
}

/* Sum number i of every rank's stats, for all of them. */
static sw_code sum_for_all(sw_sums *sums, int64_t i, const sw_carrier *c, sw_err *err)
{
    sw_hessian *mine[SW_PIECES_MAX];

    for (int j = 0; j < sums->n; j++) mine[j] = sw_site_stats_sum(sums->parts[j], i);
    return sw_sum_for_all(sw_site_stats_sum(sums->stats, i), mine, sums->n, sums->n_pieces, c, err);
}

static sw_code gather_all(sw_sums *sums, const sw_carrier *c, sw_err *err)
{
    const int n_ranks = sw_team_size(c->team);
    const int64_t n = sw_site_stats_n_sums(sums->stats);
    sw_code rc = gather_counts(sums, c->team, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const int64_t expert = sw_site_stats_sum_expert(sums->stats, i);
        const bool is_for_all = expert < 0 || sums->is_for_all;

        if (!sw_site_stats_sum(sums->stats, i)->k_in) continue;
        rc = is_for_all ? sum_for_all(sums, i, c, err)
                        : gather_sum(sums, i, sw_sums_owner(expert, n_ranks), c, err);
    }
    return rc;
}

/* Where the sums are; all of one observation are at one place. */
static const sw_place *place_of(sw_site_stats *stats)
{
    const int64_t n = sw_site_stats_n_sums(stats);
    int64_t i = 0;

    while (i + 1 < n && !sw_site_stats_sum(stats, i)->k_in) i++;
    return &sw_site_stats_sum(stats, i)->place;
}

sw_code sw_sums_gather(sw_sums *sums, sw_carrier *carrier, sw_err *err)
{
    const sw_place at = *place_of(sums->stats);
    sw_team *team = carrier->team;
    sw_span span;
    sw_code rc;

    if (sw_team_size(team) == 1) return SW_OK;
    span = sw_span_open("gather");
    if ((rc = sw_carrier_for(carrier, &at, err)) == SW_OK) rc = gather_all(sums, carrier, err);
    if (rc == SW_OK) rc = sw_sizes_gather(sums, team, err);
    if (!sums->is_for_all) drop_others(sums->stats, team);
    sw_span_close(span, NULL);
    return rc;
}
