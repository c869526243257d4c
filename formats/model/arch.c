/* arch.c - block programs and tensor names as data, and the questions asked of them.
 *
 * A decoder block is x += o(attention(norm(x))), x += mlp(norm(x)); families differ in what
 * stands between, which is why programs are put together from four pieces.
 */
#include <stdio.h>
#include <string.h>

#include "formats/model/families.h"
#include "formats/model/model.h"

#define OPS_QKV                                                                            \
    {SW_OP_RMS_NORM, SW_BUF_N, SW_BUF_X, SW_SLOT_NORM_ATTN, SW_SITE_COUNT},                \
    {SW_OP_LINEAR, SW_BUF_Q, SW_BUF_N, SW_SLOT_Q, SW_SITE_ATTN_IN},                        \
    {SW_OP_LINEAR, SW_BUF_K, SW_BUF_N, SW_SLOT_K, SW_SITE_ATTN_IN},                        \
    {SW_OP_LINEAR, SW_BUF_V, SW_BUF_N, SW_SLOT_V, SW_SITE_ATTN_IN}
#define OPS_HEAD_NORM                                                                      \
    {SW_OP_HEAD_NORM, SW_BUF_Q, SW_BUF_Q, SW_SLOT_NORM_Q, SW_SITE_COUNT},                  \
    {SW_OP_HEAD_NORM, SW_BUF_K, SW_BUF_K, SW_SLOT_NORM_K, SW_SITE_COUNT}
#define OPS_ATTENTION                                                                      \
    {SW_OP_ROPE, SW_BUF_Q, SW_BUF_Q, SW_SLOT_COUNT, SW_SITE_COUNT},                        \
    {SW_OP_ROPE, SW_BUF_K, SW_BUF_K, SW_SLOT_COUNT, SW_SITE_COUNT},                        \
    {SW_OP_ATTENTION, SW_BUF_A, SW_BUF_Q, SW_SLOT_COUNT, SW_SITE_COUNT},                   \
    {SW_OP_LINEAR, SW_BUF_T, SW_BUF_A, SW_SLOT_O, SW_SITE_O_IN},                           \
    {SW_OP_ADD, SW_BUF_X, SW_BUF_T, SW_SLOT_COUNT, SW_SITE_COUNT},                         \
    {SW_OP_RMS_NORM, SW_BUF_N, SW_BUF_X, SW_SLOT_NORM_MLP, SW_SITE_COUNT}
#define OPS_MLP                                                                            \
    {SW_OP_LINEAR, SW_BUF_G, SW_BUF_N, SW_SLOT_GATE, SW_SITE_MLP_IN},                      \
    {SW_OP_LINEAR, SW_BUF_U, SW_BUF_N, SW_SLOT_UP, SW_SITE_MLP_IN},                        \
    {SW_OP_SWIGLU, SW_BUF_G, SW_BUF_U, SW_SLOT_COUNT, SW_SITE_COUNT},                      \
    {SW_OP_LINEAR, SW_BUF_T, SW_BUF_G, SW_SLOT_DOWN, SW_SITE_DOWN_IN},                     \
    {SW_OP_ADD, SW_BUF_X, SW_BUF_T, SW_SLOT_COUNT, SW_SITE_COUNT}
#define OPS_MOE                                                                            \
    {SW_OP_MOE, SW_BUF_T, SW_BUF_N, SW_SLOT_ROUTER, SW_SITE_MLP_IN},                       \
    {SW_OP_ADD, SW_BUF_X, SW_BUF_T, SW_SLOT_COUNT, SW_SITE_COUNT}

static const sw_op ops_plain[] = {OPS_QKV, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_plain_moe[] = {OPS_QKV, OPS_ATTENTION, OPS_MOE};
static const sw_op ops_head_norm[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_head_norm_moe[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_MOE};

#define N_OPS(ops) ((int)(sizeof(ops) / sizeof((ops)[0])))
#define PROGRAM_none NULL, 0
#define PROGRAM_plain ops_plain, N_OPS(ops_plain)
#define PROGRAM_plain_moe ops_plain_moe, N_OPS(ops_plain_moe)
#define PROGRAM_head_norm ops_head_norm, N_OPS(ops_head_norm)
#define PROGRAM_head_norm_moe ops_head_norm_moe, N_OPS(ops_head_norm_moe)

#define NAMES_ATTENTION                                                                    \
    [SW_SLOT_Q] = "self_attn.q_proj", [SW_SLOT_K] = "self_attn.k_proj",                    \
    [SW_SLOT_V] = "self_attn.v_proj", [SW_SLOT_O] = "self_attn.o_proj",                    \
    [SW_SLOT_NORM_ATTN] = "input_layernorm", [SW_SLOT_NORM_MLP] = "post_attention_layernorm", \
    [SW_SLOT_NORM_Q] = "self_attn.q_norm", [SW_SLOT_NORM_K] = "self_attn.k_norm"
#define NAMES_MLP                                                                          \
    [SW_SLOT_GATE] = "mlp.gate_proj", [SW_SLOT_UP] = "mlp.up_proj",                        \
    [SW_SLOT_DOWN] = "mlp.down_proj"

#define NAMES_plain {NAMES_ATTENTION, NAMES_MLP}
#define NAMES_qwen3_moe {NAMES_ATTENTION, NAMES_MLP, [SW_SLOT_ROUTER] = "mlp.gate"}
#define NAMES_mixtral {NAMES_ATTENTION, [SW_SLOT_ROUTER] = "block_sparse_moe.gate"}
#define EXPERTS_none {NULL, NULL, NULL}
#define EXPERTS_qwen3_moe \
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"}
#define EXPERTS_mixtral                                                                    \
    {"block_sparse_moe.experts.%d.w1", "block_sparse_moe.experts.%d.w3",                   \
     "block_sparse_moe.experts.%d.w2"}

const sw_arch sw_archs[] = {
#define SW_ARCH(id, hf, dense, sparse, names, experts, theta, eps, dim, reader, note)       \
    {#id, hf, note, theta, eps, dim, PROGRAM_##dense, PROGRAM_##sparse, NAMES_##names,      \
     EXPERTS_##experts, sw_family_##reader},
#include "formats/model/archs.def"
#undef SW_ARCH
};
const int sw_n_archs = N_OPS(sw_archs);

const sw_arch *sw_arch_find(const char *model_type)
{
    for (int i = 0; i < sw_n_archs; i++)
        if (!strcmp(sw_archs[i].name, model_type)) return &sw_archs[i];
    return NULL;
}

bool sw_model_is_sparse(const sw_model *m, int64_t layer)
{
    return m->n_experts > 0 && !m->is_dense_layer[layer] && (layer + 1) % m->sparse_step == 0;
}

const sw_op *sw_model_ops(const sw_model *m, int64_t layer, int *n_ops)
{
    bool is_sparse = sw_model_is_sparse(m, layer);

    *n_ops = is_sparse ? m->arch->n_sparse_ops : m->arch->n_dense_ops;
    return is_sparse ? m->arch->sparse_ops : m->arch->dense_ops;
}

static bool is_mlp_slot(sw_slot slot)
{
    return slot == SW_SLOT_GATE || slot == SW_SLOT_UP || slot == SW_SLOT_DOWN;
}

void sw_model_slot_shape(const sw_model *m, int64_t layer, sw_slot slot, int64_t *n_out,
                         int64_t *k_in)
{
    const int64_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const int64_t mlp = sw_model_is_sparse(m, layer) ? m->moe_intermediate : m->intermediate;
    const int64_t shapes[SW_SLOT_COUNT][2] = {
        [SW_SLOT_Q] = {q, m->hidden},          [SW_SLOT_K] = {kv, m->hidden},
        [SW_SLOT_V] = {kv, m->hidden},         [SW_SLOT_O] = {m->hidden, q},
        [SW_SLOT_GATE] = {mlp, m->hidden},     [SW_SLOT_UP] = {mlp, m->hidden},
        [SW_SLOT_DOWN] = {m->hidden, mlp},     [SW_SLOT_ROUTER] = {m->n_experts, m->hidden},
        [SW_SLOT_NORM_ATTN] = {1, m->hidden},  [SW_SLOT_NORM_MLP] = {1, m->hidden},
        [SW_SLOT_NORM_Q] = {1, m->head_dim},   [SW_SLOT_NORM_K] = {1, m->head_dim},
    };

    *n_out = shapes[slot][0];
    *k_in = shapes[slot][1];
}

bool sw_model_slot_path(char out[256], const sw_model *m, int64_t layer, sw_slot slot,
                        int64_t expert)
{
    const char *name = m->arch->slot_names[slot];
    const char *gap;

    if (expert >= 0) name = is_mlp_slot(slot) ? m->arch->expert_names[slot - SW_SLOT_GATE] : NULL;
    if (!name) return false;
    gap = strstr(name, "%d");
    if (gap)
        (void)snprintf(out, 256, "model.layers.%lld.%.*s%lld%s", (long long)layer,
                       (int)(gap - name), name, (long long)expert, gap + 2);
    else
        (void)snprintf(out, 256, "model.layers.%lld.%s", (long long)layer, name);
    return true;
}

bool sw_model_slot_has_bias(const sw_model *m, sw_slot slot)
{
    if (slot == SW_SLOT_Q || slot == SW_SLOT_K || slot == SW_SLOT_V) return m->has_qkv_bias;
    if (slot == SW_SLOT_O) return m->has_o_bias;
    return is_mlp_slot(slot) && m->has_mlp_bias;
}

int64_t sw_model_linears(const sw_model *m, int64_t layer, sw_linear_ref *out, int64_t max)
{
    static const sw_site sites[] = {
        [SW_SLOT_Q] = SW_SITE_ATTN_IN,   [SW_SLOT_K] = SW_SITE_ATTN_IN,
        [SW_SLOT_V] = SW_SITE_ATTN_IN,   [SW_SLOT_O] = SW_SITE_O_IN,
        [SW_SLOT_GATE] = SW_SITE_MLP_IN, [SW_SLOT_UP] = SW_SITE_MLP_IN,
        [SW_SLOT_DOWN] = SW_SITE_DOWN_IN,
    };
    const bool is_sparse = sw_model_is_sparse(m, layer);
    const int64_t n_mlps = is_sparse ? m->n_experts : 1;
    const int64_t n = SW_SLOT_GATE + 3 * n_mlps;

    for (int64_t i = 0; i < n && i < max; i++) {
        const int64_t in_mlp = i - SW_SLOT_GATE;
        sw_linear_ref *ref = &out[i];

        ref->layer = layer;
        ref->slot = (sw_slot)(in_mlp < 0 ? i : SW_SLOT_GATE + in_mlp % 3);
        ref->expert = is_sparse && in_mlp >= 0 ? in_mlp / 3 : -1;
        ref->site = sites[ref->slot];
        sw_model_slot_shape(m, layer, ref->slot, &ref->n_out, &ref->k_in);
    }
    return n;
}
