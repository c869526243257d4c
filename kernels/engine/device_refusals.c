/* device_refusals.c - which models the engine of a device can run. See device_engine.h.
 *
 * The device's engine knows a part of the operations, and takes some of them in one order only:
 * head norms and rotations are done together, where attention reads. A program beyond that is
 * refused here, before anything is computed.
 */
#include "kernels/engine/device_engine.h"
#include "kernels/engine/launch_plan.h"

static bool turns_before(const sw_op *ops, int at)
{
    for (int i = 0; i < at; i++)
        if (ops[i].kind == SW_OP_ROPE && ops[i].dst == ops[at].dst) return true;
    return false;
}

/* What of a layer's program the device does not have; NULL: nothing. */
static const char *missing_in(const sw_op *ops, int n_ops)
{
    for (int i = 0; i < n_ops; i++)
        if (ops[i].kind >= SW_OP_GATED_DELTA && ops[i].kind <= SW_OP_SHORT_CONV)
            return "recurrent mixers";
    for (int i = 0; i < n_ops; i++) {
        const sw_op *op = &ops[i];

        if (!sw_launch_plan_knows(op->kind)) return "an operation of its layers";
        if (op->kind == SW_OP_HEAD_NORM && op->slot == SW_SLOT_COUNT)
            return "head norms without a weight";
        if (op->kind == SW_OP_HEAD_NORM && turns_before(ops, i))
            return "head norms behind the rotation";
        if (op->kind == SW_OP_ADD && (op->dst != SW_BUF_X || op->src != SW_BUF_T))
            return "two branches beside each other";
    }
    return NULL;
}

/* What the whole model has and the device has not; NULL: nothing. */
static const char *missing_overall(const sw_model *m)
{
    const bool has_router = m->n_experts > 0;

    if (m->residual_scale != 1.0) return "a factor on what is added to the residual stream";
    if (m->logits_scale != 1.0) return "a factor on the logits";
    if (m->attention_chunk) return "attention within chunks";
    if (m->has_alibi) return "attention that fades with the distance";
    if (m->has_embed_norm) return "a norm on embeddings";
    if (sw_model_side_width(m) > (m->indexer.is_shared ? m->indexer.top_k : 0))
        return "inputs or keys beside the residual stream";
    if (has_router && (m->router == SW_ROUTER_INPUT || m->route_floor > 0.0 ||
                       m->arch->slot_names[SW_SLOT_EXPERT_SCALE] || m->router_scale != 1.0 ||
                       (m->router == SW_ROUTER_SOFTMAX &&
                        m->arch->slot_names[SW_SLOT_ROUTER_SHIFT])))
        return "its way to choose experts";
    if (m->rope.dim && m->rope.dim != m->rope_dim) return "rotations of several sizes";
    return NULL;
}

sw_code sw_device_supports(const sw_model *m, sw_err *err)
{
    const char *missing = missing_overall(m);
    int64_t layer = 0;

    if (missing)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s needs what the engine of the device does not "
                       "have (%s); use --device cpu", m->arch->name, missing);

    for (; layer < m->n_layers && !missing; layer++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(m, layer, &n_ops);

        missing = m->sizes_of[layer] ? "heads of several sizes" : missing_in(ops, n_ops);
    }
    if (!missing) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: layer %lld needs what the engine of the device does "
                   "not have (%s); use --device cpu", m->arch->name, (long long)layer - 1, missing);
}

sw_code sw_device_reaches(const sw_model *m, int64_t n_tokens, sw_err *err)
{
    if (!m->indexer.top_k || n_tokens <= m->indexer.top_k) return SW_OK;
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%lld tokens in a sequence; beyond index_topk = %lld "
                   "attention chooses its keys, which the engine of the device cannot; use "
                   "--device cpu", (long long)n_tokens, (long long)m->indexer.top_k);
}
