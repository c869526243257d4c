/* cuda_side.c - what tokens have beside their rows of the residual stream when a model begins:
 * inputs of single layers, copies of the stream. See kernels/engine/side.c and copies.c for what is
 * computed, engine_family.h for the kernels.
 */
#include <math.h>

#include "kernels/cuda/engine/cuda_lm.h"

static sw_code load(sw_device_weight *out, sw_device_lm *lm, const sw_weight *from, sw_err *err)
{
    return sw_device_weight_load_dense(out, lm->e, &lm->store, from, err);
}

/* Copies that begin as linears of the embedding; residual streams begin as the embedding itself. */
static bool has_copies(const sw_model *m) { return m->n_copies && !m->hyper_rounds; }

static sw_code load_inputs(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    const sw_model *m = lm->e->m;
    void *d = NULL;
    sw_code rc;

    if ((rc = load(&lm->side_table, lm, &from->side_table, err)) != SW_OK ||
        (rc = load(&lm->side_projection, lm, &from->side_projection, err)) != SW_OK ||
        (rc = sw_device_store_copy(&d, &lm->store, from->side_norm,
                                   m->side_inputs * (int64_t)sizeof(float), "norms", err)) != SW_OK)
        return rc;
    lm->side_norm = d;
    return SW_STORE_TAKE(&lm->d_projected, &lm->store,
                         lm->e->max_tokens * m->n_layers * m->side_inputs, "inputs of layers", err);
}

sw_code sw_device_side_load(sw_device_lm *lm, const sw_lm *from, sw_err *err)
{
    const sw_model *m = lm->e->m;
    sw_code rc = SW_OK;

    if (has_copies(m)) rc = SW_ARENA_TAKE(&lm->copies_in, &lm->store.arena, m->n_copies - 1, err);
    for (int64_t i = 0; has_copies(m) && i < m->n_copies - 1 && rc == SW_OK; i++)
        rc = load(&lm->copies_in[i], lm, &from->copies_in[i], err);
    return rc == SW_OK && m->side_inputs ? load_inputs(lm, from, err) : rc;
}

int64_t sw_device_side_bytes(const sw_device_engine *e, const sw_lm *from)
{
    int64_t sum = 0;

    if (e->m->side_inputs)
        sum = sw_device_weight_bytes(e, &from->side_table) +
              sw_device_weight_bytes(e, &from->side_projection);
    for (int64_t i = 0; has_copies(e->m) && i < e->m->n_copies - 1; i++)
        sum += sw_device_weight_bytes(e, &from->copies_in[i]);
    return sum;
}

/* Copies at first: each its linear of the embedding rows, as large as these. */
static sw_code make_copies(sw_device_lm *lm, const sw_device_run *run, sw_bf16_rows x, sw_err *err)
{
    sw_device_engine *e = lm->e;
    const int64_t hidden = e->m->hidden;
    const sw_bf16_rows made = e->buf[SW_BUF_T];
    sw_code rc = SW_OK;

    for (int64_t i = 1; i < e->m->n_copies && rc == SW_OK; i++) {
        const sw_f32_rows copy =
            sw_device_side_rows(e, sw_model_side_of_copies(e->m) + i * hidden);

        rc = sw_device_linear(e, made.d, made.stride, false, x, run->n_tokens,
                              &lm->copies_in[i - 1], err);
        if (rc == SW_OK)
            rc = sw_cuda_match(copy, made, run->d_x, run->n_tokens, hidden, e->how, err);
    }
    return rc;
}

static sw_code make_inputs(sw_device_lm *lm, const sw_device_run *run, sw_bf16_rows x,
                           const uint32_t *d_ids, sw_err *err)
{
    sw_device_engine *e = lm->e;
    const sw_model *m = e->m;
    const int64_t wide = m->n_layers * m->side_inputs;
    const sw_side_args a = {.side = sw_device_side_rows(e, 0), .made = lm->d_projected,
                            .table = lm->side_table.d_dense, .norm = lm->side_norm, .ids = d_ids,
                            .n = run->n_tokens, .n_rows = lm->side_table.n_out,
                            .n_layers = m->n_layers, .width = m->side_inputs,
                            .scale = (float)(1.0 / sqrt((double)m->hidden)),
                            .eps = (float)m->norm_eps};
    const sw_code rc = sw_device_linear(e, lm->d_projected, wide, true, x, run->n_tokens,
                                        &lm->side_projection, err);

    return rc == SW_OK ? sw_cuda_side(&a, e->how, err) : rc;
}

sw_code sw_device_side_embed(sw_device_lm *lm, const sw_device_run *run, const uint32_t *d_ids,
                             sw_err *err)
{
    sw_device_engine *e = lm->e;
    const sw_bf16_rows x = e->buf[SW_BUF_N];
    sw_code rc;

    rc = sw_device_hyper_begin(e, run->d_x, d_ids, run->n_tokens, err);
    if (rc != SW_OK) return rc;
    if (!has_copies(e->m) && !e->m->side_inputs) return SW_OK;
    rc = sw_cuda_to_bf16(x, run->d_x, (sw_bf16_rows){0}, run->n_tokens, e->m->hidden, e->how, err);
    if (rc == SW_OK && has_copies(e->m)) rc = make_copies(lm, run, x, err);
    return rc == SW_OK && e->m->side_inputs ? make_inputs(lm, run, x, d_ids, err) : rc;
}
