/* block_probe.c - see block_probe.h. */
#include "quant/search/block_probe.h"

#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "quant/team/team.h"

/* The windows of a part that are here, and how many there are before each piece of the text. */
static sw_code list_windows(sw_block_probe *p, sw_block_probe_part part, const uint8_t *parts,
                            sw_err *err)
{
    const sw_streams *s = p->streams;
    int64_t n = 0;
    sw_code rc = SW_MEM_GET(&p->seqs[part], s->n_seqs, "probe windows", err);

    for (int64_t piece = 0; piece < s->n_pieces && rc == SW_OK; piece++) {
        const int64_t end = sw_streams_piece_seq(s, piece + 1);

        for (int64_t seq = sw_streams_piece_seq(s, piece); seq < end; seq++) {
            if (!(parts[seq] >> part & 1)) continue;
            n++;
            if (piece >= p->here.begin && piece < p->here.end)
                p->seqs[part][p->n_here[part]++] = seq - s->first_seq;
        }
        p->before[part][piece + 1] = n;
    }
    return rc;
}

sw_code sw_block_probe_new(sw_block_probe *out, sw_streams *streams, sw_err *err)
{
    const uint8_t *parts = streams->parts;
    uint8_t *own = NULL;
    sw_block_probe p = {.streams = streams,
                        .here = sw_streams_pieces(streams, sw_team_rank(streams->carrier.team))};
    sw_code rc = SW_OK;

    if (!parts &&
        (rc = SW_MEM_GET(&own, streams->n_text_seqs, "probe windows", err)) == SW_OK) {
        sw_block_probe_parts(own, streams->n_text_seqs, streams->seq_len);
        parts = own;
    }
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS && rc == SW_OK; part++)
        rc = list_windows(&p, (sw_block_probe_part)part, parts, err);
    sw_mem_put(own);
    if (rc == SW_OK)
        *out = p;
    else
        sw_block_probe_free(&p);
    return rc;
}

void sw_block_probe_free(sw_block_probe *probe)
{
    if (probe->streams) sw_block_probe_forget(probe);
    for (int part = 0; part < SW_BLOCK_PROBE_PARTS; part++) sw_mem_put(probe->seqs[part]);
    memset(probe, 0, sizeof *probe);
}

void sw_block_probe_forget(const sw_block_probe *probe)
{
    sw_backend_of(&probe->streams->place)->probe_forget(probe);
}

const sw_place *sw_block_probe_place(const sw_block_probe *probe)
{
    return &probe->streams->place;
}

sw_half sw_block_probe_half(const sw_block_probe *probe, const sw_block *block, sw_site site)
{
    const sw_streams *s = probe->streams;
    const sw_half half = sw_engine_half_of(s->model, block->layer, site);

    return half == SW_HALF_MLP || half == SW_HALF_BOTH ? s->ahead : half;
}

/* --- which windows --- */

int64_t sw_block_probe_windows(const sw_block_probe *probe, sw_block_probe_part part)
{
    return probe->before[part][probe->streams->n_pieces];
}

int64_t sw_block_probe_tokens(const sw_block_probe *probe, sw_block_probe_part part)
{
    return sw_block_probe_windows(probe, part) * probe->streams->seq_len;
}

int64_t sw_block_probe_tokens_here(const sw_block_probe *probe, sw_block_probe_part part)
{
    return probe->n_here[part] * probe->streams->seq_len;
}

int64_t sw_block_probe_tokens_before(const sw_block_probe *probe, sw_block_probe_part part)
{
    return probe->before[part][probe->here.begin] * probe->streams->seq_len;
}

int64_t sw_block_probe_from(const sw_block_probe *probe, sw_block_probe_part part, int64_t piece)
{
    return probe->before[part][piece] - probe->before[part][probe->here.begin];
}

int64_t sw_block_probe_batch(const sw_block_probe *probe, sw_block_probe_part part, int64_t at)
{
    int64_t piece = probe->here.begin;

    while (sw_block_probe_from(probe, part, piece + 1) <= at) piece++;
    return sw_min_i64(probe->streams->chunk_seqs,
                      sw_block_probe_from(probe, part, piece + 1) - at);
}

/* --- figures to all ranks --- */

/* Items of each rank, size bytes each; before [pieces + 1]: how many there are before a piece. */
static sw_code gather(void *items, size_t size, const int64_t *before, const sw_streams *s,
                      sw_err *err)
{
    const int n_ranks = sw_team_size(s->carrier.team);
    size_t *begins = NULL;
    sw_code rc;

    if (n_ranks == 1) return SW_OK;
    if ((rc = SW_MEM_GET(&begins, n_ranks + 1, "figures of ranks", err)) != SW_OK) return rc;
    for (int rank = 0; rank < n_ranks; rank++)
        begins[rank + 1] = (size_t)before[sw_streams_pieces(s, rank).end] * size;
    rc = sw_team_gather(s->carrier.team, items, begins, err);
    sw_mem_put(begins);
    return rc;
}

sw_code sw_block_probe_gather(double *by_token, const sw_block_probe *probe,
                              sw_block_probe_part part, sw_err *err)
{
    const sw_streams *s = probe->streams;

    return gather(by_token, (size_t)s->seq_len * sizeof *by_token, probe->before[part], s, err);
}

/* The largest of all ranks. */
static sw_code gather_amax(float *amax, int64_t k, sw_team *team, sw_err *err)
{
    const size_t n_bytes = (size_t)k * sizeof *amax;
    float *theirs = NULL;
    sw_code rc = SW_OK;

    if (sw_team_size(team) == 1) return SW_OK;
    if (sw_team_rank(team) > 0) rc = sw_team_send(team, 0, amax, n_bytes, err);
    else rc = SW_MEM_GET(&theirs, k, "input ranges", err);
    for (int rank = 1; theirs && rank < sw_team_size(team) && rc == SW_OK; rank++) {
        rc = sw_team_receive(team, rank, theirs, n_bytes, err);
        for (int64_t j = 0; j < k; j++) amax[j] = fmaxf(amax[j], theirs[j]);
    }
    sw_mem_put(theirs);
    return rc == SW_OK ? sw_team_broadcast(team, 0, amax, n_bytes, err) : rc;
}

/* --- what runs --- */

sw_code sw_block_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                              const sw_block *block, sw_site site, sw_err *err)
{
    return sw_backend_of(&probe->streams->place)->probe_output(y, probe, part, block, site, err);
}

int64_t sw_probe_rows_before(const sw_probe_rows *rows, int64_t piece)
{
    int64_t n = 0;

    for (int64_t i = 0; i < piece; i++) n += rows->of_piece[i];
    return n;
}

sw_code sw_probe_rows_gather(double *by_row, const sw_probe_rows *rows,
                             const sw_block_probe *probe, sw_err *err)
{
    int64_t before[SW_PIECES_MAX + 1];

    for (int64_t i = 0; i <= SW_PIECES_MAX; i++) before[i] = sw_probe_rows_before(rows, i);
    return gather(by_row, sizeof *by_row, before, probe->streams, err);
}

void sw_probe_rows_begin(sw_probe_rows *rows, const sw_block_probe *probe,
                         sw_block_probe_part part, int64_t piece)
{
    const int64_t *before = probe->before[part];
    const int64_t n = sw_max_i64(1, sw_block_probe_windows(probe, part));

    rows->of_piece[piece] = -rows->n_rows;
    rows->n_until = rows->n_rows + rows->n_max * before[piece + 1] / n -
                    rows->n_max * before[piece] / n;
}

void sw_probe_rows_end(sw_probe_rows *rows, int64_t piece)
{
    rows->of_piece[piece] += rows->n_rows;
}

sw_code sw_block_probe_rows(sw_probe_rows *rows, const sw_block_probe *probe,
                            sw_block_probe_part part, const sw_block *block, sw_err *err)
{
    const sw_streams *s = probe->streams;
    int64_t before[SW_PIECES_MAX + 1]; /* one count a piece */
    sw_code rc = sw_backend_of(&s->place)->probe_rows(rows, probe, part, block, err);

    for (int64_t i = 0; i <= SW_PIECES_MAX; i++) before[i] = i;
    if (rc == SW_OK) rc = gather(rows->of_piece, sizeof *rows->of_piece, before, s, err);
    return rc == SW_OK ? gather_amax(rows->amax, rows->k, s->carrier.team, err) : rc;
}

sw_hessian *sw_block_probe_sum(sw_site_stats *stats, sw_site site, int64_t expert)
{
    const int64_t e = expert - stats->expert_begin;

    if (!stats->is_wanted[site]) return NULL;
    if (expert < 0) return stats->site[site].k_in ? &stats->site[site] : NULL;
    return site == SW_SITE_DOWN_IN && e >= 0 && e < stats->n_experts ? &stats->experts[e].down.all
                                                                     : NULL;
}

sw_code sw_block_probe_hessians(sw_site_stats *stats, const sw_block_probe *probe,
                                sw_block_probe_part part, const sw_block *block, sw_site site,
                                sw_err *err)
{
    sw_streams *s = probe->streams;
    sw_sums sums = {.stats = stats, .n_pieces = s->n_pieces, .is_for_all = true};
    sw_code rc = sw_backend_of(&s->place)->probe_hessians(&sums, probe, part, block, site, err);

    if (rc == SW_OK) rc = sw_sums_gather(&sums, &s->carrier, err);
    sw_sums_free(&sums);
    return rc;
}
