/* cpu_probe.c - windows that searches run (block_probe.h, transform.h), in memory on the CPU. */
#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "quant/backend/cpu/cpu.h"

#define SIZE_MAX_FINITE 3.4e38f

/* Windows [at, at + n) of a part through the block; the result stays in the streams' work. */
static sw_code run_batch(const sw_block_probe *p, sw_block_probe_part part, int64_t at, int64_t n,
                         const sw_block *block, sw_half half, const sw_tap *tap, sw_site stop_at,
                         sw_err *err)
{
    sw_streams *s = p->streams;
    const sw_cpu_streams *own = s->own;
    int64_t per_seq = s->seq_len * s->model->hidden;

    for (int64_t i = 0; i < n; i++) {
        const int64_t seq = p->seqs[part][at + i];

        memcpy(s->work + i * per_seq, own->x + seq * per_seq, (size_t)per_seq * sizeof *own->x);
        sw_streams_give_side(s, s->side, seq, 1, i);
    }
    return sw_engine_half(s->engine, block, s->work, n, s->seq_len, half, tap, stop_at, err);
}

/* Show `tap` what a site's linears read in a piece of the text, up to and with `site`. */
static sw_code tap_piece(const sw_block_probe *probe, sw_block_probe_part part, int64_t piece,
                         const sw_block *block, sw_site site, const sw_tap *tap, sw_err *err)
{
    const int64_t end = sw_block_probe_from(probe, part, piece + 1);
    int64_t n;
    sw_code rc = SW_OK;

    for (int64_t at = sw_block_probe_from(probe, part, piece); at < end && rc == SW_OK; at += n) {
        n = sw_block_probe_batch(probe, part, at);
        rc = run_batch(probe, part, at, n, block, sw_block_probe_half(probe, block, site), tap,
                       site, err);
    }
    return rc;
}

sw_code sw_cpu_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                            const sw_block *block, sw_site site, sw_err *err)
{
    const sw_streams *s = probe->streams;
    int64_t per_seq = s->seq_len * s->model->hidden, n;
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < probe->n_here[part] && rc == SW_OK; at += n) {
        n = sw_block_probe_batch(probe, part, at);
        rc = run_batch(probe, part, at, n, block, sw_block_probe_half(probe, block, site), NULL,
                       (sw_site)SW_RUN_ALL, err);
        if (rc == SW_OK) memcpy(y + at * per_seq, s->work, (size_t)(n * per_seq) * sizeof *y);
    }
    return rc;
}

static sw_code add_rows(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                        int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    sw_hessian *sum = sw_block_probe_sum(self, site, expert);

    (void)k_in;
    (void)residual;
    (void)token_ids;
    return sum ? sw_hessian_add(sum, x, NULL, NULL, n_tokens, err) : SW_OK;
}

sw_code sw_cpu_probe_hessians(sw_sums *sums, const sw_block_probe *probe,
                              sw_block_probe_part part, const sw_block *block, sw_site site,
                              sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t piece = probe->here.begin; piece < probe->here.end && rc == SW_OK; piece++) {
        sw_site_stats *stats = NULL;
        sw_tap tap = {.see = add_rows};

        if ((rc = sw_sums_begin(&stats, sums, piece, err)) != SW_OK) break;
        tap.self = stats;
        tap.expert_begin = stats->expert_begin;
        tap.expert_end = stats->expert_begin + stats->n_experts;
        rc = tap_piece(probe, part, piece, block, site, &tap, err);
        if (rc == SW_OK) rc = sw_site_stats_settle(stats, err);
        if (rc == SW_OK) rc = sw_sums_end(sums, err);
    }
    return rc;
}

typedef struct row_tap {
    sw_probe_rows *kept;
    int64_t n_seen;
} row_tap;

static sw_code keep(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                    int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    row_tap *tap = self;
    sw_probe_rows *kept = tap->kept;

    (void)residual;
    (void)token_ids;
    (void)err;
    if (site != kept->site || expert != kept->expert) return SW_OK;
    for (int64_t t = 0; t < n_tokens; t++) {
        const float *row = x + t * k_in;
        for (int64_t j = 0; j < k_in; j++) {
            float a = fabsf(row[j]);
            if (!(a <= SIZE_MAX_FINITE)) a = INFINITY;
            if (a > kept->amax[j]) kept->amax[j] = a;
        }
        if (tap->n_seen++ % kept->every == 0 && kept->n_rows < kept->n_until)
            memcpy(kept->rows + kept->n_rows++ * k_in, row, (size_t)k_in * sizeof *row);
    }
    return SW_OK;
}

sw_code sw_cpu_probe_rows(sw_probe_rows *rows, const sw_block_probe *probe,
                          sw_block_probe_part part, const sw_block *block, sw_err *err)
{
    sw_code rc = SW_OK;

    for (int64_t piece = probe->here.begin; piece < probe->here.end && rc == SW_OK; piece++) {
        row_tap seen = {.kept = rows};
        sw_tap tap = {.self = &seen, .see = keep};

        sw_probe_rows_begin(rows, probe, part, piece);
        rc = tap_piece(probe, part, piece, block, rows->site, &tap, err);
        sw_probe_rows_end(rows, piece);
    }
    return rc;
}

/* Blocks lie in memory anyway. */
void sw_cpu_probe_forget(const sw_block_probe *probe) { (void)probe; }

/* Readers of the group's quantized block get these values, or (NULL) those of the original. */
static void lend(const sw_group *group, float *const *values)
{
    for (int64_t i = 0; i < group->n_readers; i++) {
        const sw_linear_ref *ref = &group->readers[i];
        sw_weight *w = sw_block_weight(group->quantized, ref->slot, ref->expert);
        const sw_weight *own =
            sw_block_weight((sw_block *)(uintptr_t)group->original, ref->slot, ref->expert);

        w->dense = values ? values[i] : own->dense;
        w->dense_dtype = values ? SW_DTYPE_F32 : own->dense_dtype;
    }
}

/* A trial runs in the group's own block. */
sw_code sw_cpu_trial_new(sw_trial_block *block, sw_err *err)
{
    (void)block;
    (void)err;
    return SW_OK;
}

void sw_cpu_trial_free(sw_trial_block *block) { lend(block->group, NULL); }

sw_code sw_cpu_trial_lend(sw_trial_block *block, float *const *values, sw_err *err)
{
    (void)err;
    lend(block->group, values);
    return SW_OK;
}

sw_code sw_cpu_trial_output(float *y, const sw_trial_block *block, sw_block_probe_part part,
                            sw_err *err)
{
    const sw_group *g = block->group;

    return sw_cpu_probe_output(y, g->probe, part, g->quantized, g->fold.site, err);
}
