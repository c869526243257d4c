/* windows.c - see windows.h. */
#include "verify/metrics/windows.h"

#include <string.h>

#include "formats/base/size.h"
#include "verify/base/metrics.h"

#define DEFAULT_LENGTH_MAX 2048
#define HEAD_BYTES ((int64_t)32 << 20)

sw_code sw_windows_cut(sw_windows *out, const uint32_t *ids, int64_t n_ids, int64_t length,
                       int64_t max_windows, bool with_bos, const sw_model *model, sw_err *err)
{
    sw_windows w = {.ids = ids, .length = length, .has_bos = with_bos};
    int64_t n_bos = with_bos ? 1 : 0;

    if (with_bos && model->bos_id < 0)
        return SW_FAIL(err, SW_E_USAGE, "BOS was asked for, but config.json names none");
    if (length && (length < 2 || length > model->max_positions))
        return SW_FAIL(err, SW_E_USAGE, "windows of %lld tokens; this model takes 2..%lld",
                       (long long)length, (long long)model->max_positions);
    if (n_ids + n_bos < 2)
        return SW_FAIL(err, SW_E_USAGE, "the text has %lld tokens; a prediction needs 2",
                       (long long)n_ids);
    if (!length) w.length = sw_min_i64(DEFAULT_LENGTH_MAX, model->max_positions);
    w.length = sw_min_i64(w.length, n_ids + n_bos);
    w.stride = w.length - n_bos;
    w.n = n_ids / w.stride;
    if (max_windows > 0) w.n = sw_min_i64(w.n, max_windows);
    if (with_bos) w.bos = (uint32_t)model->bos_id;
    *out = w;
    return SW_OK;
}

void sw_windows_copy(uint32_t *dst, const sw_windows *w, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t *to = dst + i * w->length;

        if (w->has_bos) *to++ = w->bos;
        memcpy(to, w->ids + (first + i) * w->stride, (size_t)w->stride * sizeof *to);
    }
}

int64_t sw_windows_of_rank(const sw_windows *w, int rank, int n_ranks)
{
    const int64_t batch = sw_windows_batch(w), n_batches = sw_ceil_div(w->n, batch);

    return sw_min_i64(w->n, n_batches * rank / n_ranks * batch);
}

sw_code sw_runner_new(sw_runner *out, const sw_lm *lm, const sw_windows *w, int n_threads,
                      sw_err *err)
{
    int64_t n_tokens = sw_windows_batch(w) * w->length;
    sw_runner r = {.lm = lm};
    sw_code rc;

    if ((rc = SW_MEM_GET(&r.x, n_tokens * lm->model->hidden, "activations", err)) != SW_OK ||
        (rc = sw_engine_new(&r.engine, lm->model, n_tokens, w->length, n_threads, err)) != SW_OK) {
        sw_runner_free(&r);
        return rc;
    }
    *out = r;
    return SW_OK;
}

sw_code sw_runner_new_on(sw_runner *out, sw_device *gpu, sw_device_set *gpus, const sw_lm *lm,
                         const sw_windows *w, const sw_progress *progress, sw_err *err)
{
    sw_device_set alone = {.n = 1, .gpus = {gpu}};
    sw_runner r = {.lm = lm};
    sw_code rc = sw_device_model_open(&r.on_gpus, gpus ? gpus : &alone, lm,
                                      sw_windows_batch(w) * w->length, w->length, err);

    if (rc != SW_OK) return rc;
    r.gpu_lm = r.on_gpus.lm;
    if (r.on_gpus.text[0]) sw_progress_note(progress, "%s", r.on_gpus.text);
    *out = r;
    return SW_OK;
}

void sw_runner_free(sw_runner *r)
{
    sw_device_model_close(&r->on_gpus);
    sw_engine_free(r->engine);
    sw_mem_put(r->x);
    memset(r, 0, sizeof *r);
}

sw_code sw_runner_blocks(sw_runner *r, const uint32_t *ids, int64_t n_seqs, int64_t length,
                         sw_err *err)
{
    sw_code rc;

    if (r->gpu_lm) return sw_device_lm_forward(r->gpu_lm, ids, n_seqs, length, err);
    rc = sw_engine_embed(r->engine, r->lm, r->x, ids, n_seqs, length, 0, err);
    for (int64_t l = 0; rc == SW_OK && l < r->lm->model->n_layers; l++)
        rc = sw_engine_block(r->engine, &r->lm->blocks[l], r->x, n_seqs, length, NULL, NULL,
                             SW_RUN_ALL, err);
    return rc;
}

sw_code sw_runner_head(sw_runner *r, float *logits, int64_t row0, int64_t n, sw_err *err)
{
    if (r->gpu_lm) return sw_device_lm_head(r->gpu_lm, logits, row0, n, err);
    return sw_engine_head(r->engine, r->lm, logits, r->x + row0 * r->lm->model->hidden, n, err);
}

bool sw_runner_can_score(const sw_runner *have, const sw_runner *ref)
{
    if (!have->gpu_lm || sw_metrics_read_logits()) return false;
    return !ref || (ref->gpu_lm && sw_device_lm_scores_with(have->gpu_lm, ref->gpu_lm));
}

sw_code sw_runner_scores(sw_runner *have, sw_runner *ref, sw_lm_score *scores,
                         const uint32_t *targets, int64_t n, sw_err *err)
{
    return sw_device_lm_scores(have->gpu_lm, ref ? ref->gpu_lm : NULL, scores, targets, 0, n, err);
}

int64_t sw_runner_head_rows(int64_t vocab)
{
    int64_t rows = HEAD_BYTES / (vocab * (int64_t)sizeof(float));

    return sw_max_i64(8, sw_min_i64(512, rows));
}
