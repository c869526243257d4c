/* model_cost.c - see model_cost.h. */
#include "verify/speed/model_cost.h"

#include <math.h>

double sw_weight_bytes(const sw_weight *w)
{
    const sw_tiles *t = w->tiles;

    if (!t) return w->dense ? (double)w->n_out * (double)w->k_in * sw_dtype_bits(w->dense_dtype) / 8
                            : 0;
    return (double)(sw_tiles_stored_bytes(t->spec.num, t->n_out, t->k_in) +
                    sw_tiles_scales_bytes(t->spec.scale_dtype, t->n_out, t->n_groups) +
                    (t->zeros ? sw_tiles_zeros_bytes(t->n_out, t->n_groups) : 0));
}

static void add(double *bytes, double *weights, const sw_weight *w)
{
    *bytes += sw_weight_bytes(w);
    if (w->dense || w->tiles) *weights += (double)w->n_out * (double)w->k_in;
}

static void add_block(sw_model_cost *c, const sw_model *m, const sw_block *b, double kv_elem_bytes)
{
    const sw_sizes s = sw_model_sizes(m, b->layer);

    for (int i = 0; i < SW_SLOT_COUNT; i++) add(&c->dense_bytes, &c->dense_weights, &b->linear[i]);
    for (int part = 0; part < 3; part++)
        for (int64_t x = 0; b->experts[part] && x < m->n_experts; x++)
            add(&c->expert_bytes, &c->expert_weights, &b->experts[part][x]);
    if (!sw_model_has_attention(m, b->layer)) return;
    c->kv_bytes += kv_elem_bytes * (double)(s.n_kv_heads * (s.head_dim + s.v_head_dim));
    c->key_flops += 2 * (double)(s.n_heads * (s.head_dim + s.v_head_dim));
}

sw_model_cost sw_model_cost_of(const sw_lm *lm, double kv_elem_bytes)
{
    const sw_model *m = lm->model;
    sw_model_cost c = {.n_experts = (double)m->n_experts, .n_used = (double)m->n_experts_used};

    for (int64_t l = 0; l < m->n_layers; l++) add_block(&c, m, &lm->blocks[l], kv_elem_bytes);
    add(&c.dense_bytes, &c.dense_weights, &lm->head);
    c.head_weights = (double)lm->head.n_out * (double)lm->head.k_in;
    return c;
}

/* The share of experts that n tokens reach, each choosing n_used of them. */
static double reached(const sw_model_cost *c, double n)
{
    return c->n_experts > 0 ? 1 - pow(1 - c->n_used / c->n_experts, n) : 0;
}

static double used(const sw_model_cost *c)
{
    return c->dense_weights + (c->n_experts > 0 ? c->expert_weights * c->n_used / c->n_experts : 0);
}

sw_work sw_cost_of_step(const sw_model_cost *c, int64_t batch, double context)
{
    const double n = (double)batch;

    return (sw_work){
        .bytes = c->dense_bytes + reached(c, n) * c->expert_bytes + n * context * c->kv_bytes,
        .flops = n * (2 * used(c) + context * c->key_flops)};
}

sw_work sw_cost_of_prefill(const sw_model_cost *c, int64_t n_seqs, int64_t n_tokens)
{
    const double seqs = (double)n_seqs, n = seqs * (double)n_tokens;

    return (sw_work){
        .bytes = c->dense_bytes + reached(c, n) * c->expert_bytes,
        .flops = 2 * (n * (used(c) - c->head_weights) + seqs * c->head_weights) +
                 0.5 * n * (double)n_tokens * c->key_flops};
}

double sw_roof_us(const sw_work *work, double gb_s, double gflop_s, bool *is_by_bytes)
{
    const double by_bytes = 1e-3 * work->bytes / gb_s, by_flops = 1e-3 * work->flops / gflop_s;

    *is_by_bytes = by_bytes >= by_flops;
    return *is_by_bytes ? by_bytes : by_flops;
}
