/* linears.c - the linears of a layer and the sites where their inputs are observed. See model.h. */
#include "formats/model/model.h"

static bool is_mlp_slot(sw_slot slot)
{
    return slot == SW_SLOT_GATE || slot == SW_SLOT_UP || slot == SW_SLOT_DOWN;
}

bool sw_model_slot_has_bias(const sw_model *m, sw_slot slot)
{
    if (slot == SW_SLOT_Q || slot == SW_SLOT_K || slot == SW_SLOT_V || slot == SW_SLOT_QKV)
        return m->has_qkv_bias;
    if (slot == SW_SLOT_O) return m->has_o_bias;
    if (slot == SW_SLOT_ROUTER) return m->has_router_bias;
    if (slot == SW_SLOT_MIX_IN || slot == SW_SLOT_MIX_OUT) return m->mixer.has_bias;
    return (is_mlp_slot(slot) || slot == SW_SLOT_GATE_UP) && m->has_mlp_bias;
}

static sw_linear_ref make_ref(const sw_model *m, int64_t layer, sw_slot slot, int64_t expert,
                              sw_site site)
{
    sw_linear_ref ref = {.layer = layer, .slot = slot, .expert = expert, .site = site};

    sw_model_slot_shape(m, layer, slot, &ref.n_out, &ref.k_in);
    return ref;
}

static bool is_routed(const sw_op *op)
{
    return op->kind == SW_OP_MOE || op->kind == SW_OP_MOE_ADD;
}

/* Of a family without a row. What is before a module, and what it shares its input with, is not
 * known, so that each stands for itself. */
static int64_t found_linears(const sw_model *m, int64_t layer, sw_linear_ref *out, int64_t max)
{
    const sw_found_linear *l;
    int64_t n = 0;

    for (; (l = sw_found_at(m, layer, n)) != NULL; n++)
        if (n < max)
            out[n] = (sw_linear_ref){.layer = layer, .slot = SW_SLOT_FOUND, .expert = n,
                                     .site = SW_SITE_ATTN_IN, .n_out = l->n_out, .k_in = l->k_in};
    return n;
}

int64_t sw_model_linears(const sw_model *m, int64_t layer, sw_linear_ref *out, int64_t max)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);
    int64_t n = 0;

    if (m->found) return found_linears(m, layer, out, max);
    for (int i = 0; i < n_ops; i++) {
        if (ops[i].kind == SW_OP_LINEAR && n++ < max)
            out[n - 1] = make_ref(m, layer, ops[i].slot, -1, ops[i].site);
        if (!is_routed(&ops[i])) continue;
        for (int64_t e = 0; e < 3 * m->n_experts; e++)
            if (m->arch->expert_names[e % 3] && n++ < max)
                out[n - 1] = make_ref(m, layer, (sw_slot)(SW_SLOT_GATE + e % 3), e / 3,
                                      e % 3 == 2 ? SW_SITE_DOWN_IN : SW_SITE_MLP_IN);
    }
    return n;
}

bool sw_slot_is_row_cut(sw_slot slot)
{
    return slot == SW_SLOT_O || slot == SW_SLOT_DOWN || slot == SW_SLOT_SHARED_DOWN ||
           slot == SW_SLOT_MIX_OUT;
}

int sw_model_kept_linears(const sw_model *m, int64_t layer, sw_slot *out, int max)
{
    int n_ops, n = 0;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_ops; i++)
        if ((ops[i].kind == SW_OP_KEPT_LINEAR || ops[i].kind == SW_OP_ROW_GATE ||
             is_routed(&ops[i])) && n++ < max)
            out[n - 1] = ops[i].slot;
    return n;
}

int64_t sw_model_site_width(const sw_model *m, int64_t layer, sw_site site)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_ops; i++) {
        if (ops[i].kind == SW_OP_LINEAR && ops[i].site == site)
            return make_ref(m, layer, ops[i].slot, -1, site).k_in;
        if (is_routed(&ops[i]) && site == SW_SITE_MLP_IN) return m->moe_hidden;
        if (is_routed(&ops[i]) && site == SW_SITE_DOWN_IN) return m->moe_intermediate;
    }
    return 0;
}

bool sw_model_site_writes_residual(const sw_model *m, int64_t layer, sw_site site)
{
    int n_ops, at = 0;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    if (m->residual_scale != 1.0) return false;
    while (at < n_ops && !(ops[at].kind == SW_OP_LINEAR && ops[at].site == site)) at++;
    for (int i = at + 1; i < n_ops; i++) {
        if (ops[i].kind == SW_OP_ADD && ops[i].dst == SW_BUF_X) return ops[i].src == ops[at].dst;
        if (ops[i].dst == ops[at].dst && !is_routed(&ops[i])) return false;
    }
    return false;
}
