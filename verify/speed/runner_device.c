/* runner_device.c - see runner.h: the engine on a CUDA device, whose steps are graphs. */
#include <string.h>

#include "formats/base/size.h"
#include "kernels/engine/device_engine.h"
#include "verify/speed/runner.h"
#include "verify/speed/speed_data.h"

#define SAMPLE_BYTES ((double)(512 << 20)) /* of a kind of linear: beyond any cache */

typedef struct device_runner {
    const sw_lm *lm;
    sw_device *gpu;
    sw_device_engine *engine;
    sw_device_lm *model;
    sw_device_session *session;
    sw_device_linears *linears;
    uint32_t *ids; /* of a prompt, or drawn by steps */
    float *logits; /* [vocab] */
} device_runner;

static void decode_end(void *self)
{
    device_runner *r = self;

    sw_device_session_free(r->session);
    sw_mem_put(r->ids);
    r->session = NULL;
    r->ids = NULL;
}

static sw_code decode_begin(void *self, int64_t batch, int64_t context, int64_t n_steps,
                            sw_err *err)
{
    device_runner *r = self;
    const sw_sampling greedy = {0, 0, 1, 0};
    sw_code rc = SW_MEM_GET(&r->ids, sw_max_i64(context, n_steps * batch), "tokens", err);

    if (rc == SW_OK)
        rc = sw_device_session_new(&r->session, r->model, batch, context + n_steps, &greedy, err);
    for (int64_t i = 0; i < batch && rc == SW_OK; i++) {
        for (int64_t t = 0; t < context; t++) r->ids[t] = sw_speed_runner_token(r->lm, i, t);
        rc = sw_device_session_feed(r->session, i, r->ids, context, err);
    }
    return rc;
}

/* What was drawn comes back with the last step, so that nothing is left to wait for. */
static sw_code decode(void *self, int64_t n_steps, sw_err *err)
{
    device_runner *r = self;

    return sw_device_session_step(r->session, r->ids, n_steps, err);
}

static sw_code prefill(void *self, int64_t n_seqs, int64_t n_tokens, sw_err *err)
{
    device_runner *r = self;
    uint32_t *ids = NULL;
    sw_code rc = SW_MEM_GET(&ids, n_seqs * n_tokens, "tokens", err);

    for (int64_t i = 0; i < n_seqs * n_tokens && rc == SW_OK; i++)
        ids[i] = sw_speed_runner_token(r->lm, i / n_tokens, i % n_tokens);
    if (rc == SW_OK) rc = sw_device_lm_forward(r->model, ids, n_seqs, n_tokens, err);
    if (rc == SW_OK)
        rc = sw_device_lm_head(r->model, r->logits, n_seqs * n_tokens - 1, 1, err);
    sw_mem_put(ids);
    return rc;
}

static sw_code linear_begin(void *self, int64_t *per_pass, const sw_weight *const *weights,
                            int64_t n, int64_t m, sw_err *err)
{
    device_runner *r = self;
    const double some =
        SAMPLE_BYTES / (2 * (double)weights[0]->n_out * (double)weights[0]->k_in + 1);
    const int64_t n_held = sw_min_i64(n, sw_max_i64((int64_t)some, 1)), k_in = weights[0]->k_in;
    float *x = NULL;
    sw_code rc = SW_MEM_GET(&x, m * k_in, "inputs", err);

    if (rc != SW_OK) return rc;
    sw_speed_random_floats(x, m * k_in, 6);
    rc = sw_device_linears_new(&r->linears, r->engine, weights, n_held, x, m, err);
    if (rc == SW_OK) *per_pass = sw_device_linears_per_pass(r->linears);
    sw_mem_put(x);
    return rc;
}

static sw_code linear(void *self, int64_t n_passes, sw_err *err)
{
    device_runner *r = self;

    return sw_device_linears_run(r->linears, n_passes, err);
}

static void linear_end(void *self)
{
    device_runner *r = self;

    sw_device_linears_free(r->linears);
    r->linears = NULL;
}

static const char *kernel(void *self)
{
    const device_runner *r = self;

    return sw_device_linears_kernel(r->linears);
}

static void close_runner(void *self)
{
    device_runner *r = self;

    decode_end(r);
    linear_end(r);
    sw_device_lm_free(r->model);
    sw_device_engine_free(r->engine);
    sw_mem_put(r->logits);
    sw_mem_put(r);
}

/* All that a step reads: not the embedding, unless it is the head as well. */
static double bytes_of_weights(const device_runner *r)
{
    const sw_weight *embed = &r->lm->embed;
    const double all = (double)sw_device_lm_bytes(r->engine, r->lm);

    if (embed->dense == r->lm->head.dense) return all;
    return all - 2.0 * (double)embed->n_out * (double)embed->k_in;
}

sw_code sw_speed_runner_on_device(sw_speed_runner *out, sw_device *gpu, const sw_lm *lm,
                                  int64_t max_tokens, int64_t max_seq, sw_err *err)
{
    sw_device_lm_linears counts;
    device_runner *r = NULL;
    sw_code rc = SW_MEM_GET(&r, 1, "runner", err);

    if (rc != SW_OK) return rc;
    r->lm = lm;
    r->gpu = gpu;
    if ((rc = SW_MEM_GET(&r->logits, lm->head.n_out, "logits", err)) != SW_OK ||
        (rc = sw_device_engine_new(&r->engine, gpu, lm->model, max_tokens, max_seq, err)) !=
            SW_OK ||
        (rc = sw_device_lm_new(&r->model, r->engine, lm, err)) != SW_OK) {
        close_runner(r);
        return rc;
    }
    sw_device_lm_count(&counts, r->model);
    *out = (sw_speed_runner){.self = r, .decode_begin = decode_begin, .decode = decode,
                       .decode_end = decode_end, .prefill = prefill, .linear_begin = linear_begin,
                       .linear = linear, .linear_end = linear_end, .kernel = kernel,
                       .close = close_runner, .n_streamed = counts.n_streamed_blocks,
                       .weight_bytes = bytes_of_weights(r),
                       .kv_elem_bytes = lm->blocks[0].kv.kind ? 1 : 2};
    return SW_OK;
}
