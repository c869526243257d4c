/* launch_plan.c - see launch_plan.h.
 *
 * One pass over the program. What has been read but is in no launch yet waits in the planner: the
 * addition to the residual stream and the norm of it until something reads X or N, head norms and
 * rotations until attention.
 */
#include "kernels/engine/launch_plan.h"

#include "kernels/engine/engine_internal.h"

#define NO_SLOT SW_SLOT_COUNT

typedef struct planner {
    sw_launch_plan *plan;
    const sw_launch_weights *weights;
    const sw_launch_step *step;
    const sw_op *ops;
    int at, end;            /* in ops; whoever takes several operations moves `at` to the last */
    bool is_latent;         /* rotations are launches of their own */
    bool awaits_sum;        /* X += T */
    sw_slot awaited_norm;   /* N = norm(X) by this slot; NO_SLOT: none */
    sw_launch_heads awaited_heads;
    bool is_given;          /* the caller's rows are for the next linear */
    bool is_seen[SW_SITE_COUNT];
    bool has_stopped, is_full;
} planner;

static const sw_launch_heads no_heads = {NO_SLOT, NO_SLOT, false, false};

static sw_planned_launch *add(planner *p, sw_launch_kind kind, sw_buf dst, sw_buf src, sw_slot slot)
{
    sw_launch_plan *plan = p->plan;
    sw_planned_launch *l;

    if (plan->n_launches == SW_LAUNCHES_MAX) {
        p->is_full = true;
        plan->n_launches--;
    }
    l = &plan->launch[plan->n_launches++];
    *l = (sw_planned_launch){.kind = kind, .dst = dst, .src = src, .slot = slot,
                             .site = SW_SITE_COUNT, .norm = NO_SLOT, .heads = no_heads};
    return l;
}

static void make_sum(planner *p)
{
    if (p->awaits_sum) add(p, SW_LAUNCH_SUM, SW_BUF_X, SW_BUF_T, NO_SLOT);
    p->awaits_sum = false;
}

/* Before dst is written. */
static void make_room(planner *p, sw_buf dst)
{
    if (dst == SW_BUF_T) make_sum(p);
}

static void norm_stream(planner *p, sw_buf dst, sw_slot slot)
{
    add(p, SW_LAUNCH_NORM, dst, SW_BUF_X, slot)->adds = p->awaits_sum;
    p->awaits_sum = false;
}

/* Before N is read by what does not make it along the way. */
static void make_norm(planner *p)
{
    if (p->awaited_norm != NO_SLOT) norm_stream(p, SW_BUF_N, p->awaited_norm);
    p->awaited_norm = NO_SLOT;
}

static void plan_norm(planner *p, const sw_op *op)
{
    if (op->dst == SW_BUF_N) p->awaited_norm = NO_SLOT;
    if (op->src != SW_BUF_X) {
        make_room(p, op->dst);
        add(p, SW_LAUNCH_NORM, op->dst, op->src, op->slot);
    } else if (p->step->is_fused && op->dst == SW_BUF_N && !p->weights->has_norm_bias[op->slot]) {
        make_sum(p);
        p->awaited_norm = op->slot;
    } else {
        norm_stream(p, op->dst, op->slot);
    }
}

/* ---- linears ---- */

/* The rows are made by the product of the slot that they are joined to. */
static bool is_made_already(const planner *p, sw_slot slot)
{
    return (p->weights->is_qkv_joined && (slot == SW_SLOT_K || slot == SW_SLOT_V)) ||
           (p->weights->is_gate_joined && slot == SW_SLOT_UP);
}

static bool is_op(const planner *p, int at, sw_op_kind kind, sw_buf dst, sw_buf src)
{
    if (at >= p->end) return false;
    return p->ops[at].kind == kind && p->ops[at].dst == dst && p->ops[at].src == src;
}

/* What a product of one token would do with the output of this linear, and how many operations
 * behind it that is. */
static sw_launch_after after_linear(const planner *p, const sw_op *op, int *n_ops)
{
    const bool has_ups =
        op->slot == SW_SLOT_GATE_UP || (op->slot == SW_SLOT_GATE && p->weights->is_gate_joined);

    *n_ops = 2; /* between gates and ups and their GLU lies a linear or a split that does nothing */
    if (has_ups && is_op(p, p->at + 2, SW_OP_GLU, SW_BUF_G, SW_BUF_U)) return SW_AFTER_GLU;
    *n_ops = 1;
    if (is_op(p, p->at + 1, SW_OP_ADD, SW_BUF_X, op->dst)) return SW_AFTER_ADD;
    *n_ops = 0;
    return SW_AFTER_STORE;
}

static bool plan_fused(planner *p, const sw_op *op)
{
    const sw_slot norm = op->src == SW_BUF_N ? p->awaited_norm : NO_SLOT;
    int n_ops;
    const sw_launch_after after = after_linear(p, op, &n_ops);
    sw_planned_launch *l;

    if (!p->step->is_fused || op->src == SW_BUF_X ||
        !(p->weights->fusable[op->slot] & SW_LAUNCH_FUSABLE(after, norm != NO_SLOT)))
        return false;
    if (after == SW_AFTER_STORE) make_room(p, op->dst);
    l = add(p, SW_LAUNCH_FUSED, after == SW_AFTER_GLU ? SW_BUF_G : op->dst, op->src, op->slot);
    l->norm = norm;
    l->after = after;
    l->may_chain = p->step->has_chain;
    p->at += n_ops;
    return true;
}

/* The first time that a site is reached. */
static void reach(planner *p, sw_site site, sw_buf src, sw_slot slot, bool is_given)
{
    sw_planned_launch *l;

    if (p->is_seen[site]) return;
    p->is_seen[site] = true;
    p->has_stopped = p->step->stop_at == site;
    if (!p->step->has_tap) return;
    l = add(p, SW_LAUNCH_SHOW, src, src, slot);
    l->site = site;
    l->is_given = is_given;
}

static void plan_linear(planner *p, const sw_op *op)
{
    const bool is_given = p->is_given;
    sw_buf src = op->src;

    if (is_made_already(p, op->slot) || plan_fused(p, op)) return;
    p->is_given = false;
    if (src == SW_BUF_N) make_norm(p);
    if (src == SW_BUF_X && !is_given) {
        make_sum(p);
        add(p, SW_LAUNCH_TO_BF16, SW_BUF_N, SW_BUF_X, NO_SLOT);
        src = SW_BUF_N;
    }
    if (p->step->has_tap) make_sum(p); /* taps may read the residual stream */
    reach(p, op->site, src, op->slot, is_given);
    if (p->has_stopped) return;
    make_room(p, op->dst);
    add(p, SW_LAUNCH_LINEAR, op->dst, src, op->slot)->is_given = is_given;
}

/* ---- attention ---- */

static void plan_head_norm(planner *p, const sw_op *op)
{
    *(op->dst == SW_BUF_Q ? &p->awaited_heads.q_norm : &p->awaited_heads.k_norm) = op->slot;
}

static void plan_rope(planner *p, const sw_op *op)
{
    if (p->is_latent)
        add(p, SW_LAUNCH_ROPE, op->dst, op->src, NO_SLOT);
    else
        *(op->dst == SW_BUF_Q ? &p->awaited_heads.turns_q : &p->awaited_heads.turns_k) = true;
}

static bool has_work(const sw_launch_heads *h)
{
    return h->turns_q || h->turns_k || h->q_norm != NO_SLOT || h->k_norm != NO_SLOT;
}

static void plan_attention(planner *p, const sw_op *op)
{
    const sw_launch_step *step = p->step;
    const sw_launch_heads heads = p->awaited_heads;
    sw_planned_launch *l;

    p->awaited_heads = no_heads;
    if (!step->is_decode && (has_work(&heads) || step->has_cache))
        add(p, SW_LAUNCH_HEADS, SW_BUF_Q, SW_BUF_Q, NO_SLOT)->heads = heads;
    if (step->shows_kv) add(p, SW_LAUNCH_SHOW_KV, SW_BUF_K, SW_BUF_K, NO_SLOT);
    l = add(p, step->is_decode ? SW_LAUNCH_DECODE : SW_LAUNCH_ATTENTION, op->dst, op->src,
            op->slot);
    if (!step->is_decode) return;
    l->heads = heads;
    l->may_chain = step->has_chain;
}

static void plan_latent_kv(planner *p, const sw_op *op)
{
    add(p, SW_LAUNCH_LATENT_KV, op->dst, op->src, NO_SLOT);
}

/* ---- the rest ---- */

static void plan_act(planner *p, const sw_op *op)
{
    add(p, op->kind == SW_OP_GLU ? SW_LAUNCH_GLU : SW_LAUNCH_ACT, op->dst, op->src, NO_SLOT);
}

static void plan_add(planner *p, const sw_op *op)
{
    (void)op;
    make_sum(p);
    p->awaits_sum = true;
}

/* A run that stops at what the downs read stops inside the experts. */
static void plan_experts(planner *p, const sw_op *op)
{
    make_room(p, op->dst);
    make_norm(p);
    reach(p, SW_SITE_MLP_IN, op->src, op->slot, false);
    if (p->has_stopped) return;
    add(p, SW_LAUNCH_EXPERTS, op->dst, op->src, op->slot)->adds = op->kind == SW_OP_MOE_ADD;
    p->has_stopped = p->step->stop_at == SW_SITE_DOWN_IN;
}

/* Buffers on a device are columns of what is split. Keys are never chosen there: longer sequences
 * than need it are refused (sw_device_reaches). */
static void plan_nothing(planner *p, const sw_op *op)
{
    (void)p;
    (void)op;
}

static void (*const plan_table[SW_OP_COUNT])(planner *p, const sw_op *op) = {
    [SW_OP_RMS_NORM] = plan_norm,
    [SW_OP_LAYER_NORM] = plan_norm,
    [SW_OP_LINEAR] = plan_linear,
    [SW_OP_HEAD_NORM] = plan_head_norm,
    [SW_OP_SPLIT] = plan_nothing,
    [SW_OP_INDEX] = plan_nothing,
    [SW_OP_TAKE_INDEX] = plan_nothing,
    [SW_OP_ROPE] = plan_rope,
    [SW_OP_ATTENTION] = plan_attention,
    [SW_OP_LATENT_KV] = plan_latent_kv,
    [SW_OP_GLU] = plan_act,
    [SW_OP_ACT] = plan_act,
    [SW_OP_ADD] = plan_add,
    [SW_OP_MOE] = plan_experts,
    [SW_OP_MOE_ADD] = plan_experts,
};

bool sw_launch_plan_knows(sw_op_kind kind)
{
    return kind < SW_OP_COUNT && plan_table[kind];
}

/* Which operations of the layer are asked for. */
static void find_range(planner *p, int n_ops)
{
    const int middle = sw_ops_of_attention(p->ops, n_ops);
    const sw_launch_step *step = p->step;

    p->at = step->half == SW_HALF_MLP ? middle : 0;
    p->end = step->half == SW_HALF_ATTENTION ? middle : n_ops;
    if (step->from == SW_SITE_COUNT) return;
    p->is_given = true;
    while (p->at < p->end &&
           !(p->ops[p->at].kind == SW_OP_LINEAR && p->ops[p->at].site == step->from))
        p->at++;
}

static sw_code check_op(const sw_op *op, sw_err *err)
{
    if (!sw_launch_plan_knows(op->kind))
        return SW_FAIL(err, SW_E_BUG, "operation %d, which devices do not have", (int)op->kind);
    if (op->kind == SW_OP_ADD && (op->dst != SW_BUF_X || op->src != SW_BUF_T))
        return SW_FAIL(err, SW_E_BUG, "an addition beside the residual stream");
    return SW_OK;
}

sw_code sw_launch_plan_make(sw_launch_plan *out, const sw_model *m, int64_t layer,
                            const sw_launch_weights *weights, const sw_launch_step *step,
                            sw_err *err)
{
    planner p = {.plan = out, .weights = weights, .step = step, .is_latent = m->kv_rank > 0,
                 .awaits_sum = step->begins_with_sum, .awaited_norm = NO_SLOT,
                 .awaited_heads = no_heads};
    int n_ops;

    p.ops = sw_model_ops(m, layer, &n_ops);
    find_range(&p, n_ops);
    out->n_launches = 0;
    for (; p.at < p.end && !p.has_stopped; p.at++) {
        const sw_op *op = &p.ops[p.at];
        const sw_code rc = check_op(op, err);

        if (rc != SW_OK) return rc;
        plan_table[op->kind](&p, op);
    }
    if (!p.has_stopped && !step->may_leave_sum) make_sum(&p);
    out->leaves_sum = p.awaits_sum && !p.has_stopped;
    if (p.is_full)
        return SW_FAIL(err, SW_E_BUG, "a layer of more than %d launches", SW_LAUNCHES_MAX);
    return SW_OK;
}
