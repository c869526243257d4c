/* launch_plan.c - see launch_plan.h.
 *
 * One pass over the program. What has been read but is in no launch yet waits in the planner: the
 * addition to the residual stream and the norm of it until something reads X or N, head norms and
 * rotations until attention or until something else reads or changes the heads.
 */
#include "kernels/engine/launch_plan.h"

#include "kernels/engine/engine_internal.h"

#define NO_SLOT SW_SLOT_COUNT

typedef struct planner {
    sw_launch_plan *plan;
    const sw_launch_weights *weights;
    const sw_launch_step *step;
    const sw_model *m;
    int64_t layer;
    const sw_op *ops;
    int at, end;            /* in ops; whoever takes several operations moves `at` to the last */
    bool is_latent;         /* rotations are launches of their own */
    bool awaits_sum;        /* X += T */
    sw_slot awaited_norm;   /* N = norm(X) by this slot; NO_SLOT: none */
    sw_launch_heads awaited_heads;
    bool is_given;          /* the caller's rows are for the next linear */
    bool is_seen[SW_SITE_COUNT];
    bool is_kv_taken, is_routed;
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
                             .site = SW_SITE_COUNT, .norm = NO_SLOT, .coded_for = NO_SLOT,
                             .heads = no_heads};
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

bool sw_launch_has_gates_and_ups(const sw_launch_weights *weights, sw_slot slot)
{
    return slot == SW_SLOT_GATE_UP || (slot == SW_SLOT_GATE && weights->is_gate_joined);
}

/* What a product of one token would do with the output of this linear, and how many operations
 * behind it that is. */
static sw_launch_after after_linear(const planner *p, const sw_op *op, int *n_ops)
{
    const bool has_ups = sw_launch_has_gates_and_ups(p->weights, op->slot);

    *n_ops = 2; /* between gates and ups and their GLU lies a linear or a split that does nothing */
    if (has_ups && is_op(p, p->at + 2, SW_OP_GLU, SW_BUF_G, SW_BUF_U)) return SW_AFTER_GLU;
    *n_ops = 1;
    if (p->m->residual_scale == 1.0 && is_op(p, p->at + 1, SW_OP_ADD, SW_BUF_X, op->dst))
        return SW_AFTER_ADD;
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

/* The rows of a product's input, made by now. */
static sw_buf rows_of(planner *p, sw_buf src)
{
    if (src == SW_BUF_N) make_norm(p);
    if (src != SW_BUF_X) return src;
    make_sum(p);
    add(p, SW_LAUNCH_TO_BF16, SW_BUF_N, SW_BUF_X, NO_SLOT);
    return SW_BUF_N;
}

static void plan_linear(planner *p, const sw_op *op)
{
    const bool is_given = p->is_given;
    sw_buf src = op->src;
    sw_planned_launch *l;
    int n_ops;

    if (is_made_already(p, op->slot) || plan_fused(p, op)) return;
    p->is_given = false;
    if (src == SW_BUF_N || !is_given) src = rows_of(p, src);
    if (p->step->has_tap) make_sum(p); /* taps may read the residual stream */
    reach(p, op->site, src, op->slot, is_given);
    if (p->has_stopped) return;
    make_room(p, op->dst);
    l = add(p, SW_LAUNCH_LINEAR, op->dst, src, op->slot);
    l->is_given = is_given;
    if (p->step->has_tap || !p->weights->takes_glu[op->slot] ||
        after_linear(p, op, &n_ops) != SW_AFTER_GLU)
        return;
    l->dst = SW_BUF_G;
    l->after = SW_AFTER_GLU;
    p->at += n_ops;
}

/* ---- attention ---- */

static void add_op(planner *p, const sw_op *op)
{
    add(p, SW_LAUNCH_OP, op->dst, op->src, op->slot)->op = op->kind;
}

/* What waits for the heads of Q or K is done where they are, before something else is. */
static void make_heads(planner *p, sw_buf b)
{
    sw_launch_heads *h = &p->awaited_heads;
    sw_slot *norm = b == SW_BUF_Q ? &h->q_norm : &h->k_norm;
    bool *turns = b == SW_BUF_Q ? &h->turns_q : &h->turns_k;

    if (b != SW_BUF_Q && b != SW_BUF_K) return;
    if (*norm != NO_SLOT)
        add_op(p, &(sw_op){SW_OP_HEAD_NORM, b, b, *norm, SW_SITE_COUNT});
    if (*turns) add(p, SW_LAUNCH_ROPE, b, b, NO_SLOT);
    *norm = NO_SLOT;
    *turns = false;
}

/* Attention takes along norms that have a weight and come before the rotation. */
static void plan_head_norm(planner *p, const sw_op *op)
{
    sw_launch_heads *h = &p->awaited_heads;
    const bool is_q = op->dst == SW_BUF_Q;

    if ((is_q || op->dst == SW_BUF_K) && op->slot != NO_SLOT &&
        !(is_q ? h->turns_q : h->turns_k) && (is_q ? h->q_norm : h->k_norm) == NO_SLOT) {
        *(is_q ? &h->q_norm : &h->k_norm) = op->slot;
        return;
    }
    make_heads(p, op->dst);
    add_op(p, op);
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

/* Whether the kernel for one query a sequence has this layer's attention. */
static bool decodes(const planner *p)
{
    const sw_sizes s = sw_model_sizes(p->m, p->layer);

    return p->step->is_decode && !p->step->may_choose && !p->m->has_alibi &&
           s.head_dim <= SW_LAUNCH_DECODE_DIM && s.v_head_dim <= SW_LAUNCH_DECODE_DIM;
}

static void plan_attention(planner *p, const sw_op *op)
{
    const sw_launch_step *step = p->step;
    const bool is_decode = decodes(p);
    sw_launch_heads heads;
    sw_planned_launch *l;

    if (is_decode && p->awaited_heads.turns_k && !p->awaited_heads.turns_q)
        make_heads(p, SW_BUF_K); /* the kernel looks up angles for the queries */
    heads = p->awaited_heads;
    p->awaited_heads = no_heads;
    if (!is_decode && (has_work(&heads) || (step->has_cache && !p->is_kv_taken))) {
        l = add(p, SW_LAUNCH_HEADS, SW_BUF_Q, SW_BUF_Q, NO_SLOT);
        l->heads = heads;
        l->is_kv_taken = p->is_kv_taken;
    }
    if (step->shows_kv) add(p, SW_LAUNCH_SHOW_KV, SW_BUF_K, SW_BUF_K, NO_SLOT);
    l = add(p, is_decode ? SW_LAUNCH_DECODE : SW_LAUNCH_ATTENTION, op->dst, op->src, op->slot);
    l->is_kv_taken = p->is_kv_taken;
    if (is_decode) l->heads = heads;
}

static void plan_latent_kv(planner *p, const sw_op *op)
{
    add(p, SW_LAUNCH_LATENT_KV, op->dst, op->src, NO_SLOT);
}

/* ---- recurrent mixers ---- */

static void plan_mixer(planner *p, const sw_op *op)
{
    static const sw_launch_kind launches[SW_OP_COUNT] = {
        [SW_OP_GATED_DELTA] = SW_LAUNCH_GATED_DELTA,
        [SW_OP_KIMI_DELTA] = SW_LAUNCH_KIMI_DELTA,
        [SW_OP_SSD] = SW_LAUNCH_SSD,
        [SW_OP_SHORT_CONV] = SW_LAUNCH_SHORT_CONV,
    };

    add(p, launches[op->kind], op->dst, op->src, NO_SLOT);
}

/* ---- the rest ---- */

static void plan_act(planner *p, const sw_op *op)
{
    add(p, op->kind == SW_OP_GLU ? SW_LAUNCH_GLU : SW_LAUNCH_ACT, op->dst, op->src, NO_SLOT);
}

/* Whether N is read as it is now by an operation behind this one. */
static bool is_norm_read(const planner *p)
{
    for (int i = p->at + 1; i < p->end; i++) {
        if (p->ops[i].src == SW_BUF_N) return true;
        if (p->ops[i].dst == SW_BUF_N) return false;
    }
    return false;
}

/* Before an operation of its own reads a buffer, */
static void settle_src(planner *p, sw_buf b)
{
    if (b == SW_BUF_N) make_norm(p);
    if (b == SW_BUF_X) make_sum(p);
    make_heads(p, b);
}

/* and before it changes one, which it may read as well. */
static void settle_dst(planner *p, sw_buf b)
{
    make_room(p, b);
    settle_src(p, b);
    if (b != SW_BUF_X || p->awaited_norm == NO_SLOT) return;
    if (is_norm_read(p)) make_norm(p);
    p->awaited_norm = NO_SLOT;
}

static void plan_op(planner *p, const sw_op *op)
{
    settle_src(p, op->src);
    if (op->dst == SW_BUF_N && op->src != SW_BUF_N) p->awaited_norm = NO_SLOT;
    settle_dst(p, op->dst);
    add_op(p, op);
}

static void plan_add(planner *p, const sw_op *op)
{
    if (op->dst != SW_BUF_X) {
        if (op->dst == SW_BUF_N) make_norm(p);
        plan_op(p, op);
        return;
    }
    make_sum(p);
    if (op->src == SW_BUF_T)
        p->awaits_sum = true;
    else
        add(p, SW_LAUNCH_SUM, SW_BUF_X, op->src, NO_SLOT);
}

/* The residual stream is rounded on the way. */
static void plan_copy(planner *p, const sw_op *op)
{
    if (op->src != SW_BUF_X) {
        plan_op(p, op);
        return;
    }
    make_sum(p);
    make_room(p, op->dst);
    if (op->dst == SW_BUF_N) p->awaited_norm = NO_SLOT;
    add(p, SW_LAUNCH_TO_BF16, op->dst, SW_BUF_X, NO_SLOT);
}

/* ---- linears that are never quantized nor observed ---- */

static void plan_product(planner *p, sw_buf dst, sw_buf src, sw_slot slot)
{
    const sw_buf rows = rows_of(p, src);

    settle_dst(p, dst);
    add(p, SW_LAUNCH_LINEAR, dst, rows, slot);
}

static void plan_kept_linear(planner *p, const sw_op *op)
{
    plan_product(p, op->dst, op->src, op->slot);
}

static void plan_low_rank(planner *p, const sw_op *op)
{
    plan_product(p, SW_BUF_R, op->src, SW_SLOT_LOW_RANK_A);
    plan_product(p, op->dst, SW_BUF_R, SW_SLOT_LOW_RANK_B);
}

static void plan_side_input(planner *p, const sw_op *op)
{
    plan_product(p, SW_BUF_SIDE, op->src, SW_SLOT_SIDE_GATE);
    add_op(p, &(sw_op){op->kind, SW_BUF_SIDE, SW_BUF_SIDE, NO_SLOT, SW_SITE_COUNT});
    plan_product(p, op->dst, SW_BUF_SIDE, SW_SLOT_SIDE_OUT);
}

/* ---- what some layers have ---- */

static void plan_cut(planner *p, const sw_op *op)
{
    if (p->m->is_cut_layer[p->layer]) plan_op(p, op);
}

/* It reads N and K beside the queries. */
static void plan_near_far(planner *p, const sw_op *op)
{
    make_norm(p);
    make_heads(p, SW_BUF_K);
    plan_op(p, op);
}

static void plan_merge(planner *p, const sw_op *op)
{
    if (p->layer + 1 == p->m->n_layers) plan_op(p, op);
}

/* With a cache layers find each other's keys and values there. */
static void plan_keep_kv(planner *p, const sw_op *op)
{
    if (!p->step->has_cache && sw_model_side_of_kv(p->m, p->layer) >= 0) add_op(p, op);
}

static void plan_take_kv(planner *p, const sw_op *op)
{
    p->is_kv_taken = true;
    if (!p->step->has_cache) add_op(p, op);
}

static void plan_route(planner *p, const sw_op *op)
{
    settle_src(p, op->src);
    add_op(p, op);
    p->is_routed = true;
}

/* A run that stops at what the downs read stops inside the experts. */
static void plan_experts(planner *p, const sw_op *op)
{
    sw_planned_launch *l;

    make_room(p, op->dst);
    make_norm(p);
    reach(p, SW_SITE_MLP_IN, op->src, op->slot, false);
    if (p->has_stopped) return;
    l = add(p, SW_LAUNCH_EXPERTS, op->dst, op->src, op->slot);
    l->adds = op->kind == SW_OP_MOE_ADD;
    l->is_routed = p->is_routed;
    p->has_stopped = p->step->stop_at == SW_SITE_DOWN_IN;
}

/* Nothing where all keys are seen. */
static void plan_index(planner *p, const sw_op *op)
{
    if (p->step->may_choose) plan_op(p, op);
}

/* Buffers on a device are columns of what is split; mixers read rows by head of keys in place. */
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
    [SW_OP_UNGROUP] = plan_nothing,
    [SW_OP_INDEX] = plan_index,
    [SW_OP_TAKE_INDEX] = plan_index,
    [SW_OP_ROPE] = plan_rope,
    [SW_OP_ATTENTION] = plan_attention,
    [SW_OP_LATENT_KV] = plan_latent_kv,
    [SW_OP_GATED_DELTA] = plan_mixer,
    [SW_OP_KIMI_DELTA] = plan_mixer,
    [SW_OP_SSD] = plan_mixer,
    [SW_OP_SHORT_CONV] = plan_mixer,
    [SW_OP_GLU] = plan_act,
    [SW_OP_ACT] = plan_act,
    [SW_OP_ADD] = plan_add,
    [SW_OP_MOE] = plan_experts,
    [SW_OP_MOE_ADD] = plan_experts,
    [SW_OP_HEAD_LAYER_NORM] = plan_op,
    [SW_OP_SPLIT_GROUPS] = plan_op,
    [SW_OP_SPLIT_HEADS] = plan_op,
    [SW_OP_COPY] = plan_copy,
    [SW_OP_CLIP] = plan_op,
    [SW_OP_TEMPER] = plan_op,
    [SW_OP_SCALE] = plan_op,
    [SW_OP_HALVE] = plan_op,
    [SW_OP_MUL_VECTOR] = plan_op,
    [SW_OP_FACTOR] = plan_op,
    [SW_OP_GATE] = plan_op,
    [SW_OP_ROW_GATE] = plan_op,
    [SW_OP_ROUTE] = plan_route,
    [SW_OP_KEPT_LINEAR] = plan_kept_linear,
    [SW_OP_LOW_RANK] = plan_low_rank,
    [SW_OP_SIDE_INPUT] = plan_side_input,
    [SW_OP_KEEP_KV] = plan_keep_kv,
    [SW_OP_TAKE_KV] = plan_take_kv,
    [SW_OP_PREDICT] = plan_op,
    [SW_OP_CORRECT] = plan_op,
    [SW_OP_ADD_COPIES] = plan_op,
    [SW_OP_MERGE] = plan_merge,
    [SW_OP_CUT] = plan_cut,
    [SW_OP_NEAR_FAR] = plan_near_far,
    [SW_OP_GROUP_LINEAR] = plan_op,
    [SW_OP_MIX_STREAMS] = plan_op,
    [SW_OP_ADD_STREAMS] = plan_op,
    [SW_OP_MERGE_STREAMS] = plan_merge,
    [SW_OP_ROUTE_TOKENS] = plan_nothing, /* the router has the table */
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
    return SW_OK;
}

/* Which operations change what they write instead of making it. */
static bool reads_dst(sw_op_kind kind)
{
    return kind == SW_OP_ADD || kind == SW_OP_MOE_ADD || kind == SW_OP_GLU || kind == SW_OP_GATE ||
           kind == SW_OP_ROW_GATE;
}

bool sw_launch_plan_can_begin(const sw_model *m, int64_t layer, sw_half half, sw_site site)
{
    const sw_launch_step step = {.half = half, .from = site};
    planner p = {.step = &step};
    bool is_made[SW_BUF_COUNT] = {[SW_BUF_X] = true};
    int n_ops, begin;

    p.ops = sw_model_ops(m, layer, &n_ops);
    begin = half == SW_HALF_MLP ? sw_ops_of_attention(p.ops, n_ops) : 0;
    find_range(&p, n_ops);
    for (int i = begin; i < p.at; i++)
        if (p.ops[i].dst == SW_BUF_X ||
            (p.ops[i].kind == SW_OP_KEEP_KV && sw_model_side_of_kv(m, layer) >= 0))
            return false;
    for (int i = p.at; i < p.end; i++) {
        const sw_op *op = &p.ops[i];

        if (i > p.at && !is_made[op->src]) return false;
        if (reads_dst(op->kind) && !is_made[op->dst]) return false;
        if (op->kind == SW_OP_ADD_STREAMS && !is_made[SW_BUF_R]) return false; /* the shares */
        is_made[op->dst] = true;
        if (op->kind == SW_OP_MIX_STREAMS) is_made[SW_BUF_R] = true;
    }
    return p.at < p.end;
}

sw_code sw_launch_plan_make(sw_launch_plan *out, const sw_model *m, int64_t layer,
                            const sw_launch_weights *weights, const sw_launch_step *step,
                            sw_err *err)
{
    planner p = {.plan = out, .weights = weights, .step = step, .m = m, .layer = layer,
                 .is_latent = m->kv_rank > 0,
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
        if (step->is_for_experts && sw_op_is_of_shared_expert(op)) continue;
        plan_table[op->kind](&p, op);
    }
    if (!p.has_stopped && !step->may_leave_sum) make_sum(&p);
    out->leaves_sum = p.awaits_sum && !p.has_stopped;
    sw_launch_plan_codes(out, weights, step);
    if (p.is_full)
        return SW_FAIL(err, SW_E_BUG, "a layer of more than %d launches", SW_LAUNCHES_MAX);
    return SW_OK;
}
