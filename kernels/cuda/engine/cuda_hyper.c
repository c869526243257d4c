/* cuda_hyper.c - several residual streams on a device, and what else only models with them have.
 * The same for the CPU is kernels/engine/operations/hyper.c, the kernels are those of
 * ops/engine_streams.h.
 */
#include "kernels/cuda/engine/cuda_engine_internal.h"

#define PLACE_ALIGN 256 /* bytes: what an array may lose where blocks take turns in a place */

sw_code sw_device_hyper_new(sw_device_engine *e, sw_err *err)
{
    const int64_t n = e->m->n_copies;

    if (!e->m->hyper_rounds) return SW_OK;
    return SW_STORE_TAKE(&e->d_stream_coefs, &e->store, e->max_tokens * n * (n + 1),
                         "shares of residual streams", err);
}

/* ---- tensors of a block ---- */

static void merge_sizes(int64_t sizes[3], const sw_model *m)
{
    sizes[0] = m->n_copies * m->n_copies * m->hidden;
    sizes[1] = m->n_copies;
    sizes[2] = 1;
}

static int64_t table_bytes(const sw_model *m)
{
    return m->vocab * m->n_experts_used * (int64_t)sizeof(int32_t);
}

int64_t sw_device_hyper_bytes(const sw_model *m, const sw_block *from)
{
    int64_t sum = from->token_experts ? table_bytes(m) + PLACE_ALIGN : 0, sizes[3];

    merge_sizes(sizes, m);
    for (int i = 0; i < 3 && from->merge[i]; i++)
        sum += sizes[i] * (int64_t)sizeof(float) + PLACE_ALIGN;
    return sum;
}

sw_code sw_device_hyper_load(sw_device_block *b, const sw_block *from, sw_err *err)
{
    const sw_model *m = b->e->m;
    int64_t sizes[3];
    void *d = NULL;
    sw_code rc = SW_OK;

    merge_sizes(sizes, m);
    for (int i = 0; i < 3 && from->merge[i] && rc == SW_OK; i++) {
        rc = sw_device_store_copy(&d, &b->store, from->merge[i], sizes[i] * (int64_t)sizeof(float),
                                  "residual streams", err);
        b->merge[i] = d;
    }
    if (rc != SW_OK || !from->token_experts) return rc;
    rc = sw_device_store_copy(&d, &b->store, from->token_experts, table_bytes(m),
                              "experts of tokens", err);
    b->token_experts = d;
    return rc;
}

/* ---- operations ---- */

static sw_streams_args streams_at(const sw_device_engine *e, float *d_x, int64_t n)
{
    const sw_model *m = e->m;

    return (sw_streams_args){.x = d_x,
                             .streams = sw_device_side_rows(e, sw_model_side_of_copies(m)),
                             .coefs = e->d_stream_coefs, .n = n, .width = m->hidden,
                             .n_streams = (int)m->n_copies, .n_rounds = (int)m->hyper_rounds,
                             .norm_eps = (float)m->norm_eps, .eps = (float)m->hyper_eps};
}

static sw_streams_args streams_of(const sw_device_run *run)
{
    return streams_at(run->e, run->d_x, run->n_tokens);
}

sw_code sw_device_hyper_begin(const sw_device_engine *e, float *d_x, const uint32_t *d_ids,
                              int64_t n, sw_err *err)
{
    const sw_model *m = e->m;
    sw_code rc = SW_OK;

    if (m->hyper_rounds) {
        const sw_streams_args a = streams_at(e, d_x, n);

        rc = sw_cuda_streams_begin(&a, e->how, err);
    }
    if (rc != SW_OK || !m->keeps_token_ids) return rc;
    return sw_cuda_keep_ids(sw_device_side_rows(e, sw_model_side_of_token(m)), d_ids, n,
                            e->how, err);
}

sw_code sw_device_mix_streams(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    float *const *of_block = run->block->norm + l->slot;
    sw_streams_args a = streams_of(run);

    a.fn = of_block[0];
    a.base = of_block[1];
    a.scale = of_block[2];
    return sw_cuda_streams_mix(&a, run->block->buf[l->dst], run->e->how, err);
}

sw_code sw_device_add_streams(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_streams_args a = streams_of(run);

    return sw_cuda_streams_add(&a, run->block->buf[l->src], run->e->how, err);
}

sw_code sw_device_merge_streams(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    sw_streams_args a = streams_of(run);

    (void)l;
    a.fn = run->block->merge[0];
    a.base = run->block->merge[1];
    a.scale = run->block->merge[2];
    return sw_cuda_streams_merge(&a, run->e->how, err);
}
