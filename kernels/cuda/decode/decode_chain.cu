/* decode_chain.cu - the host's side of a chain: see decode_chain.h. */
#include "formats/base/mem.h"
#include "kernels/cuda/decode/decode_chain_kernel.cuh"

#define MEETING_BYTES 256 /* before the scratch of attention, which it keeps aligned */

struct sw_decode_chain {
    chain_steps steps;
    one_kind kind; /* of all products */
    int n_ctas, own_bytes; /* of shared memory, beside the ring */
    char *d_scratch;
};

/* By one_kind; where there is none `start` is NULL: chains are of products of bytes, a scale a
 * channel, with quantized inputs. */
static const struct {
    int (*product_bytes)(int n_units);
    sw_code (*start)(const chain_steps *c, int n_ctas, int shared_bytes, sw_launch how,
                     sw_err *err);
} chain_rows[ONE_COUNT] = {
    {},
    {},
    {product_bytes<ONE_INT8>, start_chain<ONE_INT8>},
    {product_bytes<ONE_E4M3>, start_chain<ONE_E4M3>},
    {},
};

static int n_splits(const sw_attn_args *shape)
{
    return splits_of(shape, shape->n_sms / (shape->n_kv_heads * head_tiles(shape)));
}

extern "C" int64_t sw_cuda_chain_scratch_bytes(const sw_attn_args *shape)
{
    return MEETING_BYTES + scratch_bytes(shape, n_splits(shape));
}

extern "C" sw_code sw_cuda_chain_new(sw_decode_chain **out, const sw_attn_args *shape, int sm,
                                     void *d_scratch, sw_err *err)
{
    sw_decode_chain *c = NULL;
    sw_code rc;

    if (sm != 90 || shape->n_seqs != 1) return SW_OK; /* compiled for sm_90a alone */
    if ((rc = SW_MEM_GET(&c, 1, "steps of a chain", err)) != SW_OK) return rc;
    c->n_ctas = shape->n_sms;
    c->d_scratch = (char *)d_scratch;
    c->steps.splits = n_splits(shape);
    c->steps.n_jobs = c->steps.splits * shape->n_kv_heads * head_tiles(shape);
    c->steps.counters = counter_bytes(shape);
    c->steps.meeting = (unsigned *)d_scratch;
    *out = c;
    return SW_OK;
}

extern "C" void sw_cuda_chain_free(sw_decode_chain *c) { sw_mem_put(c); }

extern "C" void sw_cuda_chain_clear(sw_decode_chain *c)
{
    if (!c) return;
    c->steps.n_steps = c->steps.n_products = c->steps.n_attentions = 0;
    c->own_bytes = 0;
}

/* Of a CTA: the ring, the arguments, and what a step needs. */
static int shared_bytes(int own_bytes)
{
    return RING_BYTES + (int)sizeof(chain_steps) + own_bytes;
}

extern "C" sw_code sw_cuda_chain_run(sw_decode_chain *c, sw_launch how, sw_err *err)
{
    sw_code rc;

    if (!c || !c->steps.n_steps) return SW_OK;
    rc = chain_rows[c->kind].start(&c->steps, c->n_ctas, shared_bytes(c->own_bytes), how, err);
    sw_cuda_chain_clear(c);
    return rc;
}

/* Place for one more step of so much shared memory. */
static void add_step(sw_decode_chain *c, int what, int own_bytes)
{
    c->steps.step[c->steps.n_steps++] = (uint8_t)what;
    if (c->own_bytes < own_bytes) c->own_bytes = own_bytes;
}

extern "C" sw_code sw_cuda_chain_product(bool *is_taken, sw_decode_chain *c, const sw_fused_args *a,
                                         sw_launch how, sw_err *err)
{
    const one_kind kind = one_can(a) && !a->experts ? one_kind_of(a) : ONE_COUNT;
    chain_steps *steps = &c->steps;
    sw_code rc = SW_OK;

    if (kind == ONE_COUNT || !chain_rows[kind].start) return SW_OK;
    const int own_bytes = chain_rows[kind].product_bytes((int)(a->tiles.k_in / UNIT_K));

    if (shared_bytes(own_bytes) > SHARED_MAX) return SW_OK;
    if (steps->n_products == CHAIN_PRODUCTS || (steps->n_steps && c->kind != kind))
        rc = sw_cuda_chain_run(c, how, err);
    if (rc != SW_OK) return rc;
    c->kind = kind;
    add_step(c, steps->n_products, own_bytes);
    steps->products[steps->n_products] = one_args_of(a);
    steps->each[steps->n_products] =
        (int)sw_blocks(steps->products[steps->n_products].n_strips, c->n_ctas);
    steps->n_products++;
    *is_taken = true;
    return SW_OK;
}

extern "C" bool sw_cuda_chain_attention(sw_decode_chain *c, const sw_attn_args *a,
                                        const sw_heads_args *heads)
{
    const int64_t splits = splits_of(a, a->n_sms / (a->n_kv_heads * head_tiles(a)));
    sw_attn_args settled = sw_settle_scales(a);
    chain_steps *steps = &c->steps;

    if (!steps->n_steps || steps->n_attentions == CHAIN_ATTENTIONS || a->n_seqs != 1 || a->chunk ||
        a->kv.kind == SW_KV_INT8 || a->head_dim > DIM_MAX || a->v_head_dim > DIM_MAX ||
        a->head_dim % 8 || a->v_head_dim % 8 || splits != steps->splits)
        return false;
    settled.scratch = c->d_scratch + MEETING_BYTES;
    add_step(c, CHAIN_PRODUCTS + steps->n_attentions, attention_bytes);
    steps->attention[steps->n_attentions++] = {settled, *heads};
    return true;
}
