/* sums.c - see sums.h. */
#include "quant/stats/sums.h"

#include <string.h>

#include "formats/io/profile.h"
#include "quant/stats/size_sums.h"
#include "quant/team/team.h"

int sw_sums_owner(int64_t expert, int n_ranks) { return (int)(expert % n_ranks); }

/* --- on one rank --- */

/* Where the sums are; all of one observation are at one place. */
static const sw_place *place_of(sw_site_stats *stats)
{
    const int64_t n = sw_site_stats_n_sums(stats);
    int64_t i = 0;

    while (i + 1 < n && !sw_site_stats_sum(stats, i)->k_in) i++;
    return &sw_site_stats_sum(stats, i)->place;
}

/* Sizes of channels are sums of floats too, which no backend adds so. */
static bool has_sizes(sw_site_stats *stats)
{
    for (int64_t i = 0; i < sw_site_stats_n_sizes(stats); i++)
        if (sw_site_stats_sizes(stats, i)->k_in) return true;
    return false;
}

/* Is a piece to be summed into what the last run has? */
static bool goes_on(const sw_sums *sums, int64_t piece)
{
    return sums->n > 0 &&
           sw_pieces_join(sums->runs[sums->n - 1], (sw_piece_run){piece, piece + 1},
                          sums->n_pieces) &&
           sw_backend_of(place_of(sums->stats))->adds_pieces && !has_sizes(sums->stats);
}

/* Empty sums for another run. */
static sw_code new_part(sw_site_stats **out, const sw_site_stats *like, sw_err *err)
{
    const sw_span span = sw_span_open("room for sums");
    sw_site_stats *part = NULL;
    sw_code rc = SW_MEM_GET(&part, 1, "sums of a piece", err);

    if (rc == SW_OK && (rc = sw_site_stats_like(part, like, err)) != SW_OK) {
        sw_mem_put(part);
        part = NULL;
    }
    *out = part;
    sw_span_close(span, NULL);
    return rc;
}

sw_code sw_sums_begin(sw_site_stats **part, sw_sums *sums, int64_t piece, sw_err *err)
{
    const int at = sums->n;
    sw_code rc = SW_OK;

    if (goes_on(sums, piece)) {
        sums->runs[at - 1].end = piece + 1;
        *part = sums->parts[at - 1];
        return SW_OK;
    }
    sums->runs[at] = (sw_piece_run){piece, piece + 1};
    sums->parts[at] = sums->stats;
    if (at > 0) rc = new_part(&sums->parts[at], sums->stats, err);
    if (rc != SW_OK) return rc;
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
    const int64_t n = sw_site_stats_n_sums(sums->stats);
    sw_code rc = gather_counts(sums, c->team, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        if (sw_site_stats_sum(sums->stats, i)->k_in &&
            (sums->is_for_all || sw_site_stats_sum_expert(sums->stats, i) < 0))
            rc = sum_for_all(sums, i, c, err);
    return rc == SW_OK && !sums->is_for_all ? sw_sums_for_owners(sums, c, err) : rc;
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
