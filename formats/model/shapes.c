/* shapes.c - which program a layer has, and the sizes of its weights and buffers. See model.h. */
#include "formats/model/model.h"
#include "formats/model/programs.h"

bool sw_model_is_sparse(const sw_model *m, int64_t layer)
{
    return m->n_experts > 0 && layer < m->n_layers && !m->is_dense_layer[layer] &&
           (layer + 1) % m->sparse_step == 0;
}

sw_sizes sw_model_sizes(const sw_model *m, int64_t layer)
{
    const sw_sizes same = {m->n_heads,    m->n_kv_heads, m->head_dim,
                           m->v_head_dim, m->rope_dim,   m->intermediate};

    if (layer >= m->n_layers || !m->sizes_of[layer]) return same;
    return m->other_sizes[m->sizes_of[layer] - 1];
}

static const sw_program *program_of(const sw_model *m, int64_t layer)
{
    const sw_layer_kind *kind;

    if (layer == m->n_layers)
        return m->arch->ends.has_norm_bias ? &sw_mean_head_program : &sw_head_program;
    kind = &m->arch->kinds->kind[m->kind[layer]];
    return sw_model_is_sparse(m, layer) ? &kind->sparse : &kind->dense;
}

const sw_op *sw_model_ops(const sw_model *m, int64_t layer, int *n_ops)
{
    const sw_program *program = program_of(m, layer);

    *n_ops = (layer == m->n_layers && m->is_tied) || m->arch == &sw_arch_unknown
                 ? 0 : program->n_ops;
    return program->ops;
}

/* In latent attention the part of a head that is not rotated. */
static int64_t unrotated(const sw_sizes *s) { return s->head_dim - s->rope_dim; }

/* What the last linear of attention reads. */
static int64_t o_in(const sw_model *m, const sw_sizes *s)
{
    return m->o_groups ? m->o_groups * m->o_rank : s->n_heads * s->v_head_dim;
}

/* Kinds tell it in the one family that has such keys. */
static int far_kind(const sw_model *m, int64_t layer)
{
    if (!m->o_groups || layer >= m->n_layers) return SW_KIND_NEAR;
    return m->kind[layer] % SW_KIND_BY_TOKEN;
}

int64_t sw_model_compress_rate(const sw_model *m, int64_t layer)
{
    const int kind = far_kind(m, layer);

    return kind == SW_KIND_NEAR ? 0 : m->compress_rates[kind == SW_KIND_FAR_CHOSEN ? 0 : 1];
}

bool sw_model_chooses_far_keys(const sw_model *m, int64_t layer)
{
    return far_kind(m, layer) == SW_KIND_FAR_CHOSEN;
}

void sw_model_slot_shape(const sw_model *m, int64_t layer, sw_slot slot, int64_t *n_out,
                         int64_t *k_in)
{
    const sw_sizes s = sw_model_sizes(m, layer);
    const int64_t q = s.n_heads * s.head_dim, kv = s.n_kv_heads * s.head_dim;
    const int64_t gated = m->has_query_gate ? 2 * q : q;
    const int64_t mlp = sw_model_is_sparse(m, layer) ? m->moe_intermediate : s.intermediate;
    const int64_t h = m->hidden, shared = m->shared_intermediate;
    const int64_t mlp_h = sw_model_is_sparse(m, layer) ? m->moe_hidden : h;
    const int64_t rate = sw_model_compress_rate(m, layer), mixed = m->n_copies * (m->n_copies + 2);
    const int64_t far = sw_model_chooses_far_keys(m, layer) ? 2 * s.head_dim : s.head_dim;
    const int64_t shapes[SW_SLOT_COUNT][2] = {
        [SW_SLOT_Q] = {gated, h},              [SW_SLOT_K] = {kv, h},
        [SW_SLOT_V] = {kv, h},                 [SW_SLOT_O] = {h, o_in(m, &s)},
        [SW_SLOT_GATE] = {mlp, mlp_h},         [SW_SLOT_UP] = {mlp, mlp_h},
        [SW_SLOT_LATENT_IN] = {mlp_h, h},      [SW_SLOT_LATENT_OUT] = {h, mlp_h},
        [SW_SLOT_DOWN] = {mlp_h, mlp},         [SW_SLOT_ROUTER] = {m->n_experts, h},
        [SW_SLOT_QKV] = {q + 2 * kv, h},       [SW_SLOT_GATE_UP] = {2 * mlp, h},
        [SW_SLOT_Q_A] = {m->q_rank, h},        [SW_SLOT_Q_B] = {q, m->q_rank},
        [SW_SLOT_KV_A] = {m->kv_rank + s.rope_dim, h},
        [SW_SLOT_KV_B] = {s.n_heads * (unrotated(&s) + s.v_head_dim), m->kv_rank},
        [SW_SLOT_SHARED_GATE] = {shared, h},   [SW_SLOT_SHARED_UP] = {shared, h},
        [SW_SLOT_SHARED_GATE_UP] = {2 * shared, h},
        [SW_SLOT_SHARED_DOWN] = {h, shared},   [SW_SLOT_ROUTER_SHIFT] = {1, m->n_experts},
        [SW_SLOT_NORM_ATTN] = {1, h},          [SW_SLOT_NORM_MLP] = {1, h},
        [SW_SLOT_NORM_AFTER_ATTN] = {1, h},    [SW_SLOT_NORM_AFTER_MLP] = {1, h},
        [SW_SLOT_NORM_Q] = {1, s.head_dim},    [SW_SLOT_NORM_K] = {1, s.head_dim},
        [SW_SLOT_NORM_Q_ROW] = {1, q},         [SW_SLOT_NORM_K_ROW] = {1, kv},
        [SW_SLOT_NORM_Q_A] = {1, m->q_rank},   [SW_SLOT_NORM_KV_A] = {1, m->kv_rank},
        [SW_SLOT_SINKS] = {1, s.n_heads},
        [SW_SLOT_HEAD] = {m->vocab, h},        [SW_SLOT_NORM_FINAL] = {1, h},
        [SW_SLOT_ROUTER_NORM] = {1, h},        [SW_SLOT_EXPERT_SCALE] = {1, m->n_experts},
        [SW_SLOT_SHARED_ROUTER] = {1, h},      [SW_SLOT_NORM_DENSE_OUT] = {1, h},
        [SW_SLOT_NORM_EXPERTS] = {1, h},       [SW_SLOT_NORM_EXPERTS_OUT] = {1, h},
        [SW_SLOT_LAYER_SCALE] = {1, 1},        [SW_SLOT_NORM_BRANCH_ATTN] = {1, h},
        [SW_SLOT_NORM_BRANCH_MLP] = {1, h},    [SW_SLOT_NORM_SIDE] = {1, h},
        [SW_SLOT_LOW_RANK_A] = {m->low_rank, h}, [SW_SLOT_LOW_RANK_B] = {h, m->low_rank},
        [SW_SLOT_NORM_LOW_RANK] = {1, h},      [SW_SLOT_COPY_ROUTER] = {m->n_copies, h},
        [SW_SLOT_COPY_PREDICT] = {m->n_copies * m->n_copies, m->n_copies},
        [SW_SLOT_COPY_CORRECT] = {m->n_copies, m->n_copies},
        [SW_SLOT_COPY_NORM] = {1, h},          [SW_SLOT_COPY_SCALE] = {1, h},
        [SW_SLOT_SIDE_GATE] = {m->side_inputs, h}, [SW_SLOT_SIDE_OUT] = {h, m->side_inputs},
        [SW_SLOT_INDEX_Q] = {m->indexer.n_heads * m->indexer.head_dim, m->q_rank},
        [SW_SLOT_INDEX_K] = {m->indexer.head_dim, h},
        [SW_SLOT_INDEX_WEIGHT] = {m->indexer.n_heads, h},
        [SW_SLOT_NORM_INDEX] = {1, m->indexer.head_dim},
        [SW_SLOT_INDEX_KV] = {2 * m->indexer.head_dim, h},
        [SW_SLOT_INDEX_GATE] = {2 * m->indexer.head_dim, h},
        [SW_SLOT_INDEX_POSITIONS] = {rate, 2 * m->indexer.head_dim},
        [SW_SLOT_COMPRESS_KV] = {far, h},      [SW_SLOT_COMPRESS_GATE] = {far, h},
        [SW_SLOT_COMPRESS_POSITIONS] = {rate, far}, [SW_SLOT_NORM_COMPRESS] = {1, s.head_dim},
        [SW_SLOT_O_A] = {o_in(m, &s), m->o_groups ? q / m->o_groups : 0},
        [SW_SLOT_HYPER_ATTN] = {mixed, m->n_copies * h}, [SW_SLOT_HYPER_ATTN_BASE] = {1, mixed},
        [SW_SLOT_HYPER_ATTN_SCALE] = {1, 3},   [SW_SLOT_HYPER_MLP] = {mixed, m->n_copies * h},
        [SW_SLOT_HYPER_MLP_BASE] = {1, mixed}, [SW_SLOT_HYPER_MLP_SCALE] = {1, 3},
        [SW_SLOT_TOKEN_EXPERTS] = {m->vocab, m->n_experts_used},
    };

    if (sw_mixer_slot_shape(&m->mixer, h, slot, n_out, k_in)) return;
    *n_out = shapes[slot][0];
    *k_in = shapes[slot][1];
}

/* Does the operation write `buf` beside its destination, or read it beside its source? */
static bool uses_beside(const sw_op *op, sw_buf buf)
{
    switch (op->kind) {
    case SW_OP_SPLIT:
        return buf > op->dst && buf <= (op->dst == SW_BUF_Q ? SW_BUF_V : op->dst + 1);
    case SW_OP_SIDE_INPUT:
        return buf == SW_BUF_SIDE;
    case SW_OP_MIX_STREAMS:
    case SW_OP_LOW_RANK:
    case SW_OP_PREDICT:
    case SW_OP_CORRECT:
    case SW_OP_MERGE:
        return buf == SW_BUF_R; /* for what stands between */
    case SW_OP_SPLIT_GROUPS:
    case SW_OP_TAKE_KV:
        return buf == SW_BUF_K || buf == SW_BUF_V;
    case SW_OP_SPLIT_HEADS:
        return buf == SW_BUF_Q_GATE;
    case SW_OP_UNGROUP:
        return buf == op->dst + 1;
    case SW_OP_LATENT_KV:
        return buf == SW_BUF_V || buf == SW_BUF_K_ROPE;
    default:
        return false;
    }
}

static bool uses_buf(const sw_op *ops, int n_ops, sw_buf buf)
{
    for (int i = 0; i < n_ops; i++)
        if (ops[i].dst == buf || ops[i].src == buf || uses_beside(&ops[i], buf)) return true;
    return false;
}

int64_t sw_model_layer_buf_width(const sw_model *m, int64_t layer, sw_buf buf)
{
    const sw_sizes s = sw_model_sizes(m, layer);
    const int64_t q = s.n_heads * s.head_dim, kv = s.n_kv_heads * s.head_dim;
    const int64_t shared = m->shared_intermediate;
    const int64_t widths[SW_BUF_COUNT] = {
        [SW_BUF_X] = m->hidden, [SW_BUF_N] = m->hidden, [SW_BUF_T] = m->hidden,
        [SW_BUF_Q] = q, [SW_BUF_K] = kv, [SW_BUF_V] = s.n_kv_heads * s.v_head_dim,
        [SW_BUF_A] = s.n_heads * s.v_head_dim,
        [SW_BUF_G] = s.intermediate, [SW_BUF_U] = s.intermediate,
        [SW_BUF_QKV] = q + 2 * kv, [SW_BUF_GATE_UP] = 2 * s.intermediate,
        [SW_BUF_Q_A] = m->q_rank, [SW_BUF_KV_A] = m->kv_rank + s.rope_dim,
        [SW_BUF_LATENT] = m->kv_rank, [SW_BUF_K_ROPE] = s.rope_dim,
        [SW_BUF_KV_B] = s.n_heads * (unrotated(&s) + s.v_head_dim),
        [SW_BUF_SHARED_G] = shared, [SW_BUF_SHARED_U] = shared,
        [SW_BUF_SHARED_GATE_UP] = 2 * shared,
        [SW_BUF_EXPERT_IN] = m->moe_hidden, [SW_BUF_EXPERT_OUT] = m->moe_hidden,
        [SW_BUF_ATTN_N] = m->hidden, [SW_BUF_MIX_N] = m->hidden, [SW_BUF_MIX_T] = m->hidden,
        [SW_BUF_Q_GATED] = 2 * q, [SW_BUF_Q_GATE] = q,
        [SW_BUF_M] = m->hidden, [SW_BUF_R] = m->hidden, [SW_BUF_SIDE] = m->side_inputs,
        [SW_BUF_O_RANK] = m->o_groups * m->o_rank,
    };
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    if (!uses_buf(ops, n_ops, buf)) return 0;
    return widths[buf] ? widths[buf] : sw_mixer_buf_width(&m->mixer, buf);
}

int64_t sw_model_buf_width(const sw_model *m, sw_buf buf)
{
    int64_t widest = buf == SW_BUF_N ? m->hidden : 0; /* the final norm needs it in any case */

    for (int64_t layer = 0; layer < m->n_layers; layer++) {
        const int64_t width = sw_model_layer_buf_width(m, layer, buf);

        if (width > widest) widest = width;
    }
    return widest;
}

static int64_t kv_width(const sw_model *m, int64_t layer)
{
    const sw_sizes s = sw_model_sizes(m, layer);

    return s.n_kv_heads * (s.head_dim + s.v_head_dim);
}

static bool is_shared(const sw_model *m, int64_t source)
{
    for (int64_t l = source + 1; l < m->n_layers; l++)
        if (m->shares_kv[l] == source + 1) return true;
    return false;
}

/* Where the keys of `layer` begin; of n_layers, where all end. */
static int64_t kv_at(const sw_model *m, int64_t layer)
{
    int64_t at = m->n_layers * m->side_inputs;

    for (int64_t l = 0; l < layer; l++)
        if (is_shared(m, l)) at += kv_width(m, l);
    return at;
}

int64_t sw_model_side_width(const sw_model *m)
{
    return kv_at(m, m->n_layers) + m->n_copies * m->hidden + (m->keeps_token_ids ? 1 : 0) +
           (m->indexer.is_shared ? m->indexer.top_k : 0);
}

int64_t sw_model_side_of_token(const sw_model *m)
{
    return m->keeps_token_ids ? kv_at(m, m->n_layers) + m->n_copies * m->hidden : -1;
}

int64_t sw_model_side_of_index(const sw_model *m)
{
    return m->indexer.is_shared ? sw_model_side_width(m) - m->indexer.top_k : -1;
}

int64_t sw_model_side_of_copies(const sw_model *m)
{
    return m->n_copies ? kv_at(m, m->n_layers) : -1;
}

int64_t sw_model_side_of_input(const sw_model *m, int64_t layer)
{
    return m->side_inputs ? layer * m->side_inputs : -1;
}

int64_t sw_model_side_of_kv(const sw_model *m, int64_t layer)
{
    return is_shared(m, layer) ? kv_at(m, layer) : -1;
}

static bool has_op(const sw_model *m, int64_t layer, sw_op_kind kind)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_ops; i++)
        if (ops[i].kind == kind) return true;
    return false;
}

bool sw_model_has_attention(const sw_model *m, int64_t layer)
{
    return has_op(m, layer, SW_OP_ATTENTION);
}

int64_t sw_model_cache_width(const sw_model *m, int64_t layer)
{
    const int64_t dim = sw_model_sizes(m, layer).head_dim, index_dim = m->indexer.head_dim;

    if (has_op(m, layer, SW_OP_INDEX)) return index_dim;
    if (!has_op(m, layer, SW_OP_NEAR_FAR)) return 0;
    if (sw_model_chooses_far_keys(m, layer)) return 5 * dim + 4 * index_dim;
    return sw_model_compress_rate(m, layer) ? 3 * dim : dim;
}

int64_t sw_model_state_elems(const sw_model *m, int64_t layer)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_ops; i++)
        if (ops[i].kind >= SW_OP_GATED_DELTA && ops[i].kind <= SW_OP_SHORT_CONV)
            return sw_mixer_conv_state(&m->mixer) + sw_mixer_matrix_state(&m->mixer);
    return 0;
}
