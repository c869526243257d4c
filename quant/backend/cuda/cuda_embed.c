/* cuda_embed.c - where streams (streams.h) begin, looked up in the model's table on the device. */
#include "formats/base/size.h"
#include "quant/backend/cuda/cuda_sizes.h"
#include "quant/backend/cuda/cuda_streams.h"

/* Ids beyond the vocabulary are for the engine on the host to name. */
static bool are_of(const sw_weight *table, const uint32_t *ids, int64_t n)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < n; i++) most = ids[i] > most ? ids[i] : most;
    return (int64_t)most < table->n_out;
}

static bool can_look_up(const sw_streams *s, const sw_lm *ends, const uint32_t *ids)
{
    const sw_cuda_streams *on = s->own;
    const sw_weight *table = &ends->embed;
    const int64_t n = s->n_seqs * s->seq_len;

    return sw_cuda_looks_up(sw_device_left_bytes(on->gpu), table->n_out, table->k_in, n) &&
           table->dense_dtype == SW_DTYPE_BF16 && !on->d_side && sw_lm_only_looks_up(ends) &&
           are_of(table, ids, n);
}

/* The table and the ids are there only while rows are made of them. */
static sw_code look_up(float *d_x, const sw_cuda_streams *on, const sw_weight *table,
                       const uint32_t *ids, int64_t n, sw_err *err)
{
    const int64_t n_table = table->n_out * table->k_in;
    uint16_t *d_table = NULL;
    uint32_t *d_ids = NULL;
    sw_code rc = sw_device_take((void **)&d_table, on->gpu, n_table, (int64_t)sizeof *d_table,
                                "table of tokens", err);

    if (rc == SW_OK)
        rc = sw_device_take((void **)&d_ids, on->gpu, n, (int64_t)sizeof *d_ids, "tokens", err);
    if (rc == SW_OK)
        rc = sw_device_upload(on->gpu, d_table, table->dense, n_table * (int64_t)sizeof *d_table,
                              err);
    if (rc == SW_OK)
        rc = sw_device_upload(on->gpu, d_ids, ids, n * (int64_t)sizeof *d_ids, err);
    if (rc == SW_OK) rc = sw_device_engine_embed(on->engine, d_x, d_table, d_ids, n, err);
    sw_device_put(on->gpu, d_ids);
    sw_device_put(on->gpu, d_table);
    return rc;
}

sw_code sw_cuda_streams_embed(bool *is_done, sw_streams *s, const sw_lm *ends, const uint32_t *ids,
                              sw_err *err)
{
    const sw_cuda_streams *on = s->own;
    const int64_t n = s->n_seqs * s->seq_len;
    sw_code rc;

    *is_done = false;
    if (!can_look_up(s, ends, ids)) return SW_OK;
    rc = look_up(on->d_x, on, &ends->embed, ids, n, err);
    if (rc == SW_OK && on->d_x0)
        rc = sw_solver_copy(on->solver, on->d_x0, on->d_x,
                            n * s->model->hidden * (int64_t)sizeof *on->d_x, err);
    *is_done = rc == SW_OK;
    return rc;
}
