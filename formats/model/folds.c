/* folds.c - where a factor per channel may move, read off the block program. See model.h. */
#include <string.h>

#include "formats/model/model.h"

#define PARTS_MAX 3 /* that a linear's output is split into */

/* What made the channels of each buffer, if a factor can reach it. */
typedef struct origin {
    bool is_known;
    sw_fold from; /* but for its site */
    int part;     /* of what the slot makes */
} origin;

typedef struct walk {
    const sw_model *m;
    int64_t layer;
    origin of[SW_BUF_COUNT];
    /* something that is no consumer reads the part of what the slot makes */
    bool is_spoilt[SW_SLOT_COUNT][PARTS_MAX];
    sw_fold folds[SW_FOLDS_MAX];
    int parts[SW_FOLDS_MAX]; /* of the producers */
    bool is_routed;          /* by an operation of its own */
    int n;
} walk;

static void spoil(walk *w, sw_buf buf)
{
    const origin *from = &w->of[buf];

    if (from->is_known) w->is_spoilt[from->from.producer][from->part] = true;
}

static void make(walk *w, const sw_op *op, sw_fold_kind kind)
{
    int64_t n_out, k_in;

    sw_model_slot_shape(w->m, w->layer, op->slot, &n_out, &k_in);
    w->of[op->dst] = (origin){.is_known = true,
                              .from = {.kind = kind, .producer = op->slot,
                                       .producer_site = op->site, .n_sharing = 1,
                                       .width = kind == SW_FOLD_NORM ? k_in : n_out}};
}

static void consume(walk *w, sw_buf buf, sw_site site)
{
    const origin *from = &w->of[buf];

    if (!from->is_known || w->n == SW_FOLDS_MAX) return;
    for (int i = 0; i < w->n; i++) {
        if (w->folds[i].site == site) return;
        /* one factor cannot serve two sites, since each is divided alone */
        if (w->folds[i].producer == from->from.producer && w->parts[i] == from->part)
            spoil(w, buf);
    }
    w->parts[w->n] = from->part;
    w->folds[w->n] = from->from;
    w->folds[w->n++].site = site;
}

static void pass_split(walk *w, const sw_op *op)
{
    const int n = op->dst == SW_BUF_Q ? 3 : 2;
    int64_t first = 0;

    for (int i = 0; i < n; i++) {
        origin *part = &w->of[(int)op->dst + i];
        *part = w->of[op->src];
        part->part = i;
        part->from.first = first;
        part->from.width = sw_model_layer_buf_width(w->m, w->layer, (sw_buf)((int)op->dst + i));
        first += part->from.width;
    }
}

/* Per head: the key's unrotated part, then the value. */
static void pass_latent(walk *w, const sw_op *op)
{
    const sw_sizes s = sw_model_sizes(w->m, w->layer);
    const int64_t unrotated = s.head_dim - s.rope_dim;
    origin *value = &w->of[SW_BUF_V];

    *value = w->of[op->src];
    value->part = 1;
    value->from.first = unrotated;
    value->from.width = s.v_head_dim;
    value->from.stride = unrotated + s.v_head_dim;
    w->of[op->dst].is_known = false;
}

/* Per key head: its query heads, the key, the value. */
static void pass_groups(walk *w, const sw_op *op)
{
    const sw_sizes s = sw_model_sizes(w->m, w->layer);
    const int64_t queries = s.n_heads / s.n_kv_heads;
    origin *value = &w->of[SW_BUF_V];

    *value = w->of[op->src];
    value->part = 2;
    value->from.first = (queries + 1) * s.head_dim;
    value->from.width = s.head_dim;
    value->from.stride = (queries + 2) * s.head_dim;
    w->of[SW_BUF_Q].is_known = w->of[SW_BUF_K].is_known = false;
}

/* Each head's rows of v come out again in the heads of the attention's output that share it. */
static void pass_attention(walk *w, const sw_op *op)
{
    const origin *value = &w->of[SW_BUF_V];
    const sw_sizes s = sw_model_sizes(w->m, w->layer);
    sw_fold *from = &w->of[op->dst].from;

    spoil(w, op->src);
    spoil(w, SW_BUF_K);
    if (!value->is_known || value->from.kind != SW_FOLD_ROWS) {
        spoil(w, SW_BUF_V);
        w->of[op->dst].is_known = false;
        return;
    }
    w->of[op->dst] = *value;
    from->n_sharing = s.n_heads / s.n_kv_heads;
    if (!from->stride) from->stride = from->width = s.v_head_dim;
}

static void forget(walk *w, const sw_op *op)
{
    spoil(w, op->dst);
    spoil(w, op->src);
    w->of[op->dst].is_known = false;
}

static void pass_moe(walk *w, const sw_op *op)
{
    const bool is_linear = w->m->arch->expert_names[0] ? w->m->act < SW_MLP_SILU_CLAMPED
                                                       : w->m->act == SW_MLP_RELU;

    if (w->is_routed)
        spoil(w, op->src); /* the router, which reads something else, counts as a consumer */
    else
        consume(w, op->src, SW_SITE_MLP_IN);
    if (w->n < SW_FOLDS_MAX && is_linear)
        w->folds[w->n++] = (sw_fold){.kind = SW_FOLD_ROWS, .producer = SW_SLOT_UP,
                                     .producer_site = SW_SITE_MLP_IN, .site = SW_SITE_DOWN_IN,
                                     .is_per_expert = true, .n_sharing = 1,
                                     .width = w->m->moe_intermediate};
    if (op->kind == SW_OP_MOE_ADD) spoil(w, op->dst);
    w->of[op->dst].is_known = false;
}

/* A new kind of operation passes nothing until it is known here. */
static void step(walk *w, const sw_op *op)
{
    const sw_mlp_act act = w->m->act;

    if (op->kind == SW_OP_RMS_NORM || op->kind == SW_OP_LAYER_NORM) {
        spoil(w, op->src);
        make(w, op, SW_FOLD_NORM);
    } else if (op->kind == SW_OP_LINEAR) {
        consume(w, op->src, op->site);
        make(w, op, SW_FOLD_ROWS);
    } else if (op->kind == SW_OP_GLU && act < SW_MLP_SILU_CLAMPED) {
        spoil(w, op->dst);
        w->of[op->dst] = w->of[op->src];
    } else if (op->kind == SW_OP_ATTENTION) {
        pass_attention(w, op);
    } else if (op->kind == SW_OP_SPLIT) {
        pass_split(w, op);
    } else if (op->kind == SW_OP_SPLIT_GROUPS) {
        pass_groups(w, op);
    } else if (op->kind == SW_OP_TAKE_KV) {
        spoil(w, SW_BUF_K);
        spoil(w, SW_BUF_V);
        w->of[SW_BUF_K].is_known = w->of[SW_BUF_V].is_known = false;
    } else if (op->kind == SW_OP_ROUTE) {
        w->is_routed = true;
        spoil(w, op->src);
    } else if (op->kind == SW_OP_LATENT_KV) {
        pass_latent(w, op);
    } else if (op->kind == SW_OP_MOE || op->kind == SW_OP_MOE_ADD) {
        pass_moe(w, op);
    } else if (op->kind == SW_OP_GATE) {
        spoil(w, op->src);
    } else if (op->kind == SW_OP_NEAR_FAR) {
        spoil(w, SW_BUF_N); /* compressed keys are made of it, and chosen by Q_A */
        spoil(w, SW_BUF_Q_A);
        spoil(w, SW_BUF_K);
        forget(w, op);
    } else if (op->kind == SW_OP_ROUTE_TOKENS) {
        return; /* reads nothing */
    } else if (op->kind != SW_OP_TAKE_INDEX && (op->kind != SW_OP_ACT || act != SW_MLP_RELU)) {
        forget(w, op);
    }
}

int sw_model_folds(sw_fold out[SW_FOLDS_MAX], const sw_model *m, int64_t layer)
{
    walk w = {.m = m, .layer = layer};
    int n_ops, n = 0;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    if (layer == m->n_layers) return 0; /* a fold is tried on what its block puts out */
    for (int i = 0; i < n_ops; i++) step(&w, &ops[i]);
    for (int i = 0; i < w.n; i++)
        if (!w.is_spoilt[w.folds[i].producer][w.parts[i]] || w.folds[i].is_per_expert)
            out[n++] = w.folds[i];
    return n;
}

int64_t sw_fold_row(const sw_fold *fold, int64_t channel)
{
    int64_t run = channel / (fold->width * fold->n_sharing);

    return fold->first + run * fold->stride + channel % fold->width;
}
