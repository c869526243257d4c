/* streams.c - see streams.h. */
#include "quant/stats/streams.h"

#include <string.h>

#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "quant/stats/pieces.h"
#include "quant/stats/sums.h"
#include "quant/team/team.h"

#define STRETCHES_MIN 8 /* alternate parts of the text for the halves of experts.h */
#define ALL_TOKENS_PER_INPUT 16 /* rows that a prior is made of, at least */

int64_t sw_streams_chunk_seqs(const sw_calib *calib)
{
    return sw_min_i64(calib->n_seqs, sw_max_i64(1, SW_STREAM_CHUNK_TOKENS / calib->seq_len));
}

bool sw_streams_hold_back(const sw_calib *calib)
{
    return calib->n_seqs > sw_streams_chunk_seqs(calib);
}

int64_t sw_streams_seqs_at(const sw_streams *s, int64_t seq)
{
    return sw_min_i64(s->chunk_seqs, s->n_seqs - seq);
}

static size_t side_bytes(const sw_streams *s, int64_t n_seqs)
{
    return (size_t)(n_seqs * s->seq_len * s->side_width) * sizeof(float);
}

void sw_streams_take_side(const sw_streams *s, float *side, int64_t seq, int64_t n_seqs)
{
    if (side)
        memcpy(side + seq * s->seq_len * s->side_width, sw_engine_side(s->engine),
               side_bytes(s, n_seqs));
}

void sw_streams_give_side(const sw_streams *s, const float *side, int64_t seq, int64_t n_seqs,
                          int64_t at)
{
    if (side)
        memcpy(sw_engine_side(s->engine) + at * s->seq_len * s->side_width,
               side + seq * s->seq_len * s->side_width, side_bytes(s, n_seqs));
}

/* Chunk by chunk by the engine; ids: of the windows that are here. */
static sw_code embed_chunks(sw_streams *s, const sw_lm *ends, const uint32_t *ids, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t seq = 0; seq < s->n_seqs && rc == SW_OK; seq += s->chunk_seqs) {
        const int64_t n_seqs = sw_streams_seqs_at(s, seq);

        rc = sw_engine_embed(s->engine, ends, s->work, ids + seq * s->seq_len, n_seqs, s->seq_len,
                             0, err);
        if (rc == SW_OK) sw_streams_take_side(s, s->side, seq, n_seqs);
        if (rc == SW_OK) sw_streams_take_side(s, s->side0, seq, n_seqs);
        if (rc == SW_OK) rc = sw_backend_of(&s->place)->streams_fill(s, s->work, seq, err);
    }
    return rc;
}

static sw_code embed(sw_streams *s, const sw_st *st, const sw_calib *calib, sw_err *err)
{
    const sw_span span = sw_span_open("embed");
    const uint32_t *ids = calib->ids + s->first_seq * s->seq_len;
    bool is_done = false;
    sw_lm ends = {0};
    sw_code rc = sw_lm_load_tables(&ends, s->model, st, err);

    if (rc == SW_OK)
        rc = sw_backend_of(&s->place)->streams_embed(&is_done, s, &ends, ids, err);
    if (rc == SW_OK && !is_done) rc = embed_chunks(s, &ends, ids, err);
    sw_lm_free(&ends);
    sw_st_forget(st);
    sw_span_close(span, NULL);
    return rc;
}

static sw_code new_sides(sw_streams *s, sw_err *err)
{
    const int64_t n = s->n_seqs * s->seq_len;
    sw_code rc = SW_OK;

    s->side_width = sw_model_side_width(s->model);
    if (s->side_width) rc = SW_MEM_GET(&s->side, n * s->side_width, "side rows", err);
    if (rc == SW_OK && s->side_width && s->has_original)
        rc = SW_MEM_GET(&s->side0, n * s->side_width, "side rows", err);
    return rc;
}

static int64_t chunks_of(const sw_streams *s) { return sw_ceil_div(s->n_text_seqs, s->chunk_seqs); }

int64_t sw_streams_piece_seq(const sw_streams *s, int64_t piece)
{
    return sw_min_i64(s->n_text_seqs,
                      sw_piece_chunk(chunks_of(s), s->n_pieces, piece) * s->chunk_seqs);
}

sw_piece_run sw_streams_pieces(const sw_streams *s, int rank)
{
    const int n_ranks = sw_team_size(s->carrier.team);

    return (sw_piece_run){sw_piece_of_rank(s->n_pieces, rank, n_ranks),
                          sw_piece_of_rank(s->n_pieces, rank + 1, n_ranks)};
}

sw_code sw_streams_new(sw_streams *out, const sw_place *at, const sw_model *model, const sw_st *st,
                       const sw_calib *calib, bool with_original, const char *spill_dir,
                       sw_err *err)
{
    return sw_streams_new_shared(out, at, model, st, calib, with_original, spill_dir, NULL, err);
}

sw_code sw_streams_new_shared(sw_streams *out, const sw_place *at, const sw_model *model,
                              const sw_st *st, const sw_calib *calib, bool with_original,
                              const char *spill_dir, struct sw_team *team, sw_err *err)
{
    sw_streams s = {.model = model, .n_text_seqs = calib->n_seqs, .seq_len = calib->seq_len,
                    .chunk_seqs = sw_streams_chunk_seqs(calib), .place = *at,
                    .carrier = {.team = team}, .has_original = with_original};
    sw_piece_run here;
    sw_code rc;

    s.n_pieces = sw_pieces_of(chunks_of(&s), sw_streams_k_max(model));
    here = sw_streams_pieces(&s, sw_team_rank(team));
    s.first_seq = sw_streams_piece_seq(&s, here.begin);
    s.n_seqs = sw_streams_piece_seq(&s, here.end) - s.first_seq;
    rc = sw_backend_of(at)->streams_new(&s, with_original, spill_dir, err);
    if (rc == SW_OK)
        rc = SW_MEM_GET(&s.work, s.chunk_seqs * s.seq_len * model->hidden, "calibration chunk",
                        err);
    if (rc == SW_OK) rc = new_sides(&s, err);
    if (rc == SW_OK) rc = embed(&s, st, calib, err);
    if (rc != SW_OK)
        sw_streams_free(&s);
    else
        *out = s;
    return rc;
}

void sw_streams_forget(sw_streams *s) { sw_backend_of(&s->place)->streams_forget(s); }

void sw_streams_free(sw_streams *s)
{
    sw_carrier_end(&s->carrier, false);
    sw_backend_of(&s->place)->streams_free(s);
    sw_engine_free(s->engine);
    sw_mem_put(s->work);
    sw_mem_put(s->side);
    sw_mem_put(s->side0);
    memset(s, 0, sizeof *s);
}

void sw_streams_end(sw_streams *s, sw_code code)
{
    sw_carrier_end(&s->carrier, code == SW_OK);
    sw_streams_free(s);
}

int64_t sw_streams_stretch(const sw_streams *s)
{
    return sw_max_i64(1, sw_min_i64(s->seq_len, s->n_text_seqs * s->seq_len / STRETCHES_MIN));
}

int64_t sw_streams_token_at(const sw_streams *s, int64_t seq)
{
    return (s->first_seq + seq) * s->seq_len;
}

int64_t sw_streams_k_max(const sw_model *model)
{
    int64_t most = 0;

    for (int64_t layer = 0; layer < model->n_layers; layer++)
        for (int site = 0; site < SW_SITE_COUNT; site++)
            most = sw_max_i64(most, sw_model_site_width(model, layer, (sw_site)site));
    return most;
}

int sw_streams_sums_alive(const sw_streams *s, bool goes_on)
{
    const sw_team *team = s->carrier.team;

    return sw_pieces_alive_at(s->n_pieces, sw_team_rank(team), sw_team_size(team), goes_on);
}

int64_t sw_streams_piece_end(const sw_streams *s, int64_t seq)
{
    int64_t piece = 0;

    while (sw_streams_piece_seq(s, piece + 1) <= s->first_seq + seq) piece++;
    return sw_streams_piece_seq(s, piece + 1) - s->first_seq;
}

bool sw_streams_is_held(const sw_streams *s, int64_t seq)
{
    return sw_streams_chunk_is_held((s->first_seq + seq) / s->chunk_seqs, chunks_of(s));
}

/* Every eighth chunk, or the last one when there are fewer. */
bool sw_streams_chunk_is_held(int64_t chunk, int64_t n_chunks)
{
    if (n_chunks < SW_STREAM_HELD_EVERY) return n_chunks > 1 && chunk == n_chunks - 1;
    return chunk % SW_STREAM_HELD_EVERY == SW_STREAM_HELD_EVERY - 1;
}

/* Every token through every expert costs n_experts / n_experts_used times the layer: for a prior,
 * so many rows as an expert gets on average will do, if they are enough for its inputs. */
int64_t sw_streams_all_every(const sw_streams *s, sw_experts policy)
{
    const sw_model *m = s->model;
    int64_t n = s->n_text_seqs * s->seq_len;
    int64_t wanted = sw_max_i64(ALL_TOKENS_PER_INPUT * m->moe_intermediate,
                                n / m->n_experts * m->n_experts_used);

    return policy == SW_EXPERTS_ALL ? 1 : sw_max_i64(1, n / wanted);
}

sw_code sw_streams_observe(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                           const sw_block *original, const sw_progress *progress, sw_err *err)
{
    sw_sums sums = {.stats = stats, .n_pieces = s->n_pieces};
    const sw_piece_run here = sw_streams_pieces(s, sw_team_rank(s->carrier.team));
    sw_span span = sw_span_open("observe");
    sw_code rc = SW_OK;

    if (!stats->experts && !sw_site_stats_has_sites(stats)) return SW_OK;
    for (int64_t piece = here.begin; piece < here.end && rc == SW_OK; piece++) {
        sw_site_stats *part = NULL;
        s->from = sw_streams_piece_seq(s, piece) - s->first_seq;
        s->to = sw_streams_piece_seq(s, piece + 1) - s->first_seq;
        if ((rc = sw_sums_begin(&part, &sums, piece, err)) != SW_OK) break;
        rc = sw_backend_of(&s->place)->streams_observe(s, part, quantized, original, progress,
                                                       err);
        if (rc == SW_OK) rc = sw_sums_end(&sums, err);
    }
    for (int i = 0; i < sums.n && rc == SW_OK; i++) rc = sw_site_stats_settle(sums.parts[i], err);
    sw_span_close(span, NULL);
    if (rc == SW_OK) rc = sw_sums_gather(&sums, &s->carrier, err);
    if (rc == SW_OK) rc = sw_backend_of(&s->place)->streams_observed(s, stats, quantized, err);
    sw_sums_free(&sums);
    return rc;
}

sw_code sw_streams_advance(sw_streams *s, const sw_block *quantized, const sw_block *original,
                           sw_half to, const sw_progress *progress, sw_err *err)
{
    sw_half half = to == SW_HALF_ATTENTION ? to : s->ahead;
    sw_span span = sw_span_open("advance");
    sw_code rc = sw_backend_of(&s->place)
                     ->streams_advance(s, quantized, original, half, progress, err);

    sw_span_close(span, NULL);
    if (rc == SW_OK) s->ahead = to == SW_HALF_ATTENTION ? SW_HALF_MLP : SW_HALF_BOTH;
    return rc;
}
