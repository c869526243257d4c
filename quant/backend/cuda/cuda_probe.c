/* cuda_probe.c - windows that searches run (block_probe.h, transform.h), on a CUDA device. */
#include "formats/base/size.h"
#include "quant/backend/cuda/cuda_tried.h"

/* Windows [at, at + n) of a part through the block; the result stays in the streams' d_work. */
static sw_code run_batch(const sw_block_probe *p, sw_block_probe_part part, int64_t at, int64_t n,
                         const sw_device_block *block, sw_half half, const sw_device_tap *tap,
                         sw_site stop_at, sw_err *err)
{
    const sw_streams *s = p->streams;
    const sw_cuda_streams *on = s->own;
    int64_t per_seq = s->seq_len * s->model->hidden;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        int64_t seq = p->seqs[part][at + i];

        rc = sw_solver_copy(on->solver, on->d_work + i * per_seq, on->d_x + seq * per_seq,
                            per_seq * (int64_t)sizeof *on->d_x, err);
        if (rc == SW_OK) rc = sw_cuda_give_side(s, on->d_x, seq, 1, i, err);
    }
    return rc == SW_OK ? sw_device_engine_half(on->engine, block, on->d_work, n, s->seq_len, half,
                                               tap, stop_at, err)
                       : rc;
}

static sw_code output_of(float *d_y, const sw_block_probe *probe, sw_block_probe_part part,
                         const sw_device_block *block, sw_half half, sw_err *err)
{
    const sw_streams *s = probe->streams;
    const sw_cuda_streams *on = s->own;
    int64_t per_seq = s->seq_len * s->model->hidden, n;
    sw_code rc = SW_OK;

    for (int64_t at = 0; at < probe->n_here[part] && rc == SW_OK; at += n) {
        n = sw_block_probe_batch(probe, part, at);
        rc = run_batch(probe, part, at, n, block, half, NULL, (sw_site)SW_RUN_ALL, err);
        if (rc == SW_OK)
            rc = sw_solver_copy(on->solver, d_y + at * per_seq, on->d_work,
                                n * per_seq * (int64_t)sizeof *d_y, err);
    }
    return rc;
}

sw_code sw_cuda_probe_output(float *y, const sw_block_probe *probe, sw_block_probe_part part,
                             const sw_block *block, sw_site site, sw_err *err)
{
    const sw_half half = sw_block_probe_half(probe, block, site);
    sw_device_block *loaded = NULL;
    sw_code rc = sw_cuda_tried_half(&loaded, probe, block, site, (sw_site)SW_RUN_ALL, err);

    return rc == SW_OK ? output_of(y, probe, part, loaded, half, err) : rc;
}

/* Show `tap` what a site's linears read in a piece of the text, up to and with `site`. */
static sw_code tap_piece(const sw_block_probe *probe, sw_block_probe_part part, int64_t piece,
                         const sw_device_block *loaded, sw_half half, sw_site site,
                         const sw_device_tap *tap, sw_err *err)
{
    const int64_t end = sw_block_probe_from(probe, part, piece + 1);
    int64_t n;
    sw_code rc = SW_OK;

    for (int64_t at = sw_block_probe_from(probe, part, piece); at < end && rc == SW_OK; at += n) {
        n = sw_block_probe_batch(probe, part, at);
        rc = run_batch(probe, part, at, n, loaded, half, tap, site, err);
    }
    return rc;
}

static sw_code add_rows(void *self, sw_site site, int64_t expert, const void *d_x,
                        int64_t n_tokens, int64_t k_in, int64_t stride,
                        const int32_t *token_ids, sw_err *err)
{
    sw_hessian *sum = sw_block_probe_sum(self, site, expert);

    (void)k_in;
    (void)token_ids;
    return sum ? sw_cuda_hessian_add_rows(sum, d_x, stride, NULL, NULL, n_tokens, err) : SW_OK;
}

sw_code sw_cuda_probe_hessians(sw_sums *sums, const sw_block_probe *probe,
                               sw_block_probe_part part, const sw_block *block, sw_site site,
                               sw_err *err)
{
    const sw_half half = sw_block_probe_half(probe, block, site);
    sw_device_block *loaded = NULL;
    sw_code rc = sw_cuda_tried_half(&loaded, probe, block, site, site, err);

    for (int64_t piece = probe->here.begin; piece < probe->here.end && rc == SW_OK; piece++) {
        sw_site_stats *stats = NULL;
        sw_device_tap tap = {.see = add_rows};

        if ((rc = sw_sums_begin(&stats, sums, piece, err)) != SW_OK) break;
        tap.self = stats;
        tap.expert_begin = stats->expert_begin;
        tap.expert_end = stats->expert_begin + stats->n_experts;
        rc = tap_piece(probe, part, piece, loaded, half, site, &tap, err);
        if (rc == SW_OK) rc = sw_site_stats_settle(stats, err);
        if (rc == SW_OK) rc = sw_sums_end(sums, err);
    }
    return rc;
}

typedef struct row_tap {
    sw_solver *solver;
    sw_probe_rows *kept;
    float *d_amax;
    int64_t n_seen;
} row_tap;

static sw_code keep(void *self, sw_site site, int64_t expert, const void *d_x, int64_t n_tokens,
                    int64_t k_in, int64_t stride, const int32_t *token_ids, sw_err *err)
{
    row_tap *tap = self;
    sw_probe_rows *k = tap->kept;
    int64_t first = (k->every - tap->n_seen % k->every) % k->every, n;
    sw_code rc;

    (void)token_ids;
    if (site != k->site || expert != k->expert) return SW_OK;
    n = first < n_tokens ? (n_tokens - first - 1) / k->every + 1 : 0;
    n = sw_min_i64(n, k->n_until - k->n_rows);
    rc = sw_solver_watch_sizes(tap->solver, tap->d_amax, NULL, d_x, stride, n_tokens, k_in, err);
    if (rc == SW_OK)
        rc = sw_solver_watch_take(tap->solver, k->rows + k->n_rows * k_in, d_x, stride, first,
                                  k->every, n, k_in, err);
    k->n_rows += n;
    tap->n_seen += n_tokens;
    return rc;
}

sw_code sw_cuda_probe_rows(sw_probe_rows *rows, const sw_block_probe *probe,
                           sw_block_probe_part part, const sw_block *block, sw_err *err)
{
    const sw_half half = sw_block_probe_half(probe, block, rows->site);
    const sw_place *at = &probe->streams->place;
    int64_t n_bytes = rows->k * (int64_t)sizeof *rows->amax;
    sw_device *gpu = sw_cuda_gpu(at);
    sw_device_block *loaded = NULL;
    row_tap seen = {.solver = sw_cuda_solver(at), .kept = rows};
    sw_device_tap tap = {.self = &seen,
                         .see = keep,
                         .expert_begin = sw_max_i64(0, rows->expert),
                         .expert_end = rows->expert + 1};
    sw_code rc = sw_device_take((void **)&seen.d_amax, gpu, n_bytes, 1, "input ranges", err);

    if (rc == SW_OK) rc = sw_device_fill(gpu, seen.d_amax, 0, n_bytes, err);
    if (rc == SW_OK)
        rc = sw_cuda_tried_half(&loaded, probe, block, rows->site, rows->site, err);
    for (int64_t piece = probe->here.begin; piece < probe->here.end && rc == SW_OK; piece++) {
        seen.n_seen = 0;
        sw_probe_rows_begin(rows, probe, part, piece);
        rc = tap_piece(probe, part, piece, loaded, half, rows->site, &tap, err);
        sw_probe_rows_end(rows, piece);
    }
    if (rc == SW_OK) rc = sw_device_download(gpu, rows->amax, seen.d_amax, n_bytes, err);
    sw_device_put(gpu, seen.d_amax);
    return rc;
}

/* A trial runs the half block that searches keep. */
sw_code sw_cuda_trial_new(sw_trial_block *block, sw_err *err)
{
    const sw_group *g = block->group;
    sw_device_block *loaded = NULL;
    sw_code rc = sw_cuda_tried_half(&loaded, g->probe, g->quantized, g->fold.site,
                                    (sw_site)SW_RUN_ALL, err);

    if (rc == SW_OK) block->own = loaded;
    return rc;
}

void sw_cuda_trial_free(sw_trial_block *block) { block->own = NULL; }

sw_code sw_cuda_trial_lend(sw_trial_block *block, float *const *values, sw_err *err)
{
    const sw_group *g = block->group;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < g->n_readers && rc == SW_OK; i++) {
        const sw_linear_ref *ref = &g->readers[i];

        sw_cuda_tried_changed(g->probe, ref->slot, ref->expert);
        rc = sw_device_block_put(block->own, ref->slot, ref->expert, values[i], err);
    }
    return rc;
}

sw_code sw_cuda_trial_output(float *y, const sw_trial_block *block, sw_block_probe_part part,
                             sw_err *err)
{
    const sw_group *g = block->group;

    return output_of(y, g->probe, part, block->own,
                     sw_block_probe_half(g->probe, g->quantized, g->fold.site), err);
}
