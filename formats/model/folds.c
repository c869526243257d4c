/* folds.c - where a factor per channel may move, read off the block program. See model.h. */
#include <string.h>

#include "formats/model/model.h"

/* What made the channels of each buffer, one for one; `is_known` when a factor can reach it. */
typedef struct origin {
    bool is_known;
    sw_fold_kind kind;
    sw_slot slot;
    sw_site site; /* of a linear: where it reads */
} origin;

typedef struct walk {
    const sw_model *m;
    origin of[SW_BUF_COUNT];
    bool is_spoilt[SW_SLOT_COUNT]; /* something that is no consumer reads what the slot makes */
    sw_fold folds[SW_FOLDS_MAX];
    int n;
} walk;

static void spoil(walk *w, sw_buf buf)
{
    if (w->of[buf].is_known) w->is_spoilt[w->of[buf].slot] = true;
}

static void make(walk *w, const sw_op *op, sw_fold_kind kind)
{
    w->of[op->dst] = (origin){true, kind, op->slot, op->site};
}

static void consume(walk *w, sw_buf buf, sw_site site)
{
    const origin *from = &w->of[buf];

    if (!from->is_known || w->n == SW_FOLDS_MAX) return;
    for (int i = 0; i < w->n; i++)
        if (w->folds[i].site == site) return;
    w->folds[w->n++] = (sw_fold){from->kind, from->slot, from->site, site, false};
}

/* Each head's rows of v come out again in a head of the attention's output, unless several heads
 * share them. */
static void pass_attention(walk *w, const sw_op *op)
{
    spoil(w, op->src);
    spoil(w, SW_BUF_K);
    if (w->m->n_heads == w->m->n_kv_heads && w->of[SW_BUF_V].kind == SW_FOLD_ROWS) {
        w->of[op->dst] = w->of[SW_BUF_V];
        return;
    }
    spoil(w, SW_BUF_V);
    w->of[op->dst].is_known = false;
}

static void forget(walk *w, const sw_op *op)
{
    spoil(w, op->dst);
    spoil(w, op->src);
    w->of[op->dst].is_known = false;
}

static void pass_moe(walk *w, const sw_op *op)
{
    consume(w, op->src, SW_SITE_MLP_IN);
    if (w->n < SW_FOLDS_MAX && w->m->act != SW_MLP_SWIGLU_CLAMPED)
        w->folds[w->n++] =
            (sw_fold){SW_FOLD_ROWS, SW_SLOT_UP, SW_SITE_MLP_IN, SW_SITE_DOWN_IN, true};
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
    } else if (op->kind == SW_OP_GLU && act != SW_MLP_SWIGLU_CLAMPED) {
        spoil(w, op->dst);
        w->of[op->dst] = w->of[op->src];
    } else if (op->kind == SW_OP_ATTENTION) {
        pass_attention(w, op);
    } else if (op->kind == SW_OP_MOE || op->kind == SW_OP_MOE_ADD) {
        pass_moe(w, op);
    } else if (op->kind != SW_OP_ACT || act != SW_MLP_RELU) {
        forget(w, op);
    }
}

int sw_model_folds(sw_fold out[SW_FOLDS_MAX], const sw_model *m, int64_t layer)
{
    walk w = {.m = m};
    int n_ops, n = 0;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_ops; i++) step(&w, &ops[i]);
    for (int i = 0; i < w.n; i++)
        if (!w.is_spoilt[w.folds[i].producer] || w.folds[i].is_per_expert) out[n++] = w.folds[i];
    return n;
}
