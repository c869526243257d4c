/* cpu_streams.c - see cpu.h. */
#include "quant/backend/cpu/cpu.h"

#include <string.h>

static sw_code take_stream(float **out, sw_spill *spill, int64_t n, const char *spill_dir,
                           sw_err *err)
{
    sw_code rc;

    if (!spill_dir) return SW_MEM_GET(out, n, "calibration stream", err);
    rc = sw_spill_open(spill, spill_dir, (size_t)n * sizeof **out, err);
    if (rc == SW_OK) *out = spill->data;
    return rc;
}

sw_code sw_cpu_streams_new(sw_streams *s, bool with_original, const char *spill_dir, sw_err *err)
{
    int64_t n = s->n_seqs * s->seq_len * s->model->hidden;
    sw_cpu_streams *own = NULL;
    sw_code rc = SW_MEM_GET(&own, 1, "calibration streams", err);

    if (rc != SW_OK) return rc;
    s->own = own;
    rc = sw_engine_new(&s->engine, s->model, s->chunk_seqs * s->seq_len, s->seq_len,
                       s->place.n_threads, err);
    if (rc == SW_OK) rc = take_stream(&own->x, &own->spill, n, spill_dir, err);
    if (rc == SW_OK && with_original)
        rc = take_stream(&own->x0, &own->spill0, n, spill_dir, err);
    return rc;
}

void sw_cpu_streams_free(sw_streams *s)
{
    sw_cpu_streams *own = s->own;

    if (!own) return;
    if (!own->spill.data) sw_mem_put(own->x);
    if (!own->spill0.data) sw_mem_put(own->x0);
    sw_spill_close(&own->spill);
    sw_spill_close(&own->spill0);
    sw_mem_put(own);
}

static void release(const sw_streams *s, const sw_spill *spill, const float *x, int64_t seq)
{
    int64_t per_seq = s->seq_len * s->model->hidden;

    sw_spill_release(spill, x + seq * per_seq,
                     (size_t)(sw_streams_seqs_at(s, seq) * per_seq) * sizeof *x);
}

void sw_cpu_release_chunk(const sw_streams *s, int64_t seq)
{
    const sw_cpu_streams *own = s->own;

    release(s, &own->spill, own->x, seq);
    if (own->x0) release(s, &own->spill0, own->x0, seq);
}

sw_code sw_cpu_streams_embed(bool *is_done, sw_streams *s, const sw_lm *ends, const uint32_t *ids,
                             sw_err *err)
{
    (void)s, (void)ends, (void)ids, (void)err;
    *is_done = false; /* the engine that would do it is the caller's */
    return SW_OK;
}

sw_code sw_cpu_streams_fill(sw_streams *s, const float *x, int64_t seq, sw_err *err)
{
    const sw_cpu_streams *own = s->own;
    int64_t per_seq = s->seq_len * s->model->hidden;
    size_t n_bytes = (size_t)(sw_streams_seqs_at(s, seq) * per_seq) * sizeof *x;

    (void)err;
    memcpy(own->x + seq * per_seq, x, n_bytes);
    if (own->x0) memcpy(own->x0 + seq * per_seq, x, n_bytes);
    sw_cpu_release_chunk(s, seq);
    return SW_OK;
}

/* Nothing is kept of a block. */
void sw_cpu_streams_forget(sw_streams *s) { (void)s; }

/* Blocks are where they are. */
void sw_cpu_streams_expect(sw_streams *s, const sw_block *original) { (void)s, (void)original; }

/* What tokens have besides, of the stream that x is. */
static float *side_of(const sw_streams *s, const float *x)
{
    const sw_cpu_streams *own = s->own;

    return x == own->x ? s->side : s->side0;
}

sw_code sw_cpu_run_chunk(sw_streams *s, const sw_block *block, const float *from, int64_t seq,
                         const sw_tap *tap, sw_site stop_at, sw_err *err)
{
    int64_t n_seqs = sw_streams_seqs_at(s, seq), per_seq = s->seq_len * s->model->hidden;

    memcpy(s->work, from + seq * per_seq, (size_t)(n_seqs * per_seq) * sizeof *from);
    sw_streams_give_side(s, side_of(s, from), seq, n_seqs, 0);
    return sw_engine_half(s->engine, block, s->work, n_seqs, s->seq_len, s->ahead, tap, stop_at,
                          err);
}

sw_code sw_cpu_visit(sw_streams *s, const sw_block *block, const sw_tap *tap,
                     const bool is_wanted[SW_SITE_COUNT], const sw_progress *progress,
                     sw_err *err)
{
    const sw_cpu_streams *own = s->own;
    sw_site stop_at = (sw_site)0;
    sw_code rc = SW_OK;

    for (int site = 0; site < SW_SITE_COUNT; site++)
        if (is_wanted[site]) stop_at = (sw_site)site;
    for (int64_t seq = 0; seq < s->n_seqs && rc == SW_OK; seq += s->chunk_seqs)
        if ((rc = sw_progress_check(progress, err)) == SW_OK)
            rc = sw_cpu_run_chunk(s, block, own->x, seq, tap, stop_at, err);
    return rc;
}

static sw_code advance_one(sw_streams *s, float *x, const sw_block *block, int64_t seq,
                           sw_half half, sw_err *err)
{
    int64_t per_seq = s->seq_len * s->model->hidden, n_seqs = sw_streams_seqs_at(s, seq);
    float *side = side_of(s, x);
    sw_code rc;

    sw_streams_give_side(s, side, seq, n_seqs, 0);
    rc = sw_engine_half(s->engine, block, x + seq * per_seq, n_seqs, s->seq_len, half, NULL,
                        (sw_site)SW_RUN_ALL, err);
    sw_streams_take_side(s, side, seq, n_seqs);
    return rc;
}

sw_code sw_cpu_streams_observed(sw_streams *s, sw_site_stats *stats, const sw_block *quantized,
                                sw_err *err)
{
    (void)s;
    (void)stats;
    (void)quantized;
    (void)err;
    return SW_OK;
}

sw_code sw_cpu_streams_advance(sw_streams *s, const sw_block *quantized, const sw_block *original,
                               sw_half half, const sw_progress *progress, sw_err *err)
{
    const sw_cpu_streams *own = s->own;
    sw_code rc = SW_OK;

    for (int64_t seq = 0; seq < s->n_seqs && rc == SW_OK; seq += s->chunk_seqs) {
        if ((rc = sw_progress_check(progress, err)) != SW_OK) break;
        rc = advance_one(s, own->x, quantized, seq, half, err);
        if (rc == SW_OK && own->x0) rc = advance_one(s, own->x0, original, seq, half, err);
        if (rc == SW_OK) sw_cpu_release_chunk(s, seq);
    }
    return rc;
}
