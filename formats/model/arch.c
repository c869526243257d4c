/* arch.c - block programs and tensor names as data, and the questions asked of them.
 *
 * A decoder block is x += o(attention(norm(x))), x += mlp(norm(x)); families differ in what
 * stands between, which is why programs are put together from four pieces.
 */
#include <stdio.h>
#include <string.h>

#include "formats/model/families.h"
#include "formats/model/model.h"

/* Short forms of the operations: NONE where a slot or a site is not meant. */
#define NO_SLOT SW_SLOT_COUNT
#define NO_SITE SW_SITE_COUNT
#define NORM(dst, src, slot) {SW_OP_RMS_NORM, SW_BUF_##dst, SW_BUF_##src, SW_SLOT_##slot, NO_SITE}
#define MEAN_NORM(dst, src, slot) \
    {SW_OP_LAYER_NORM, SW_BUF_##dst, SW_BUF_##src, SW_SLOT_##slot, NO_SITE}
#define HEAD_NORM(dst, slot) {SW_OP_HEAD_NORM, SW_BUF_##dst, SW_BUF_##dst, SW_SLOT_##slot, NO_SITE}
#define LINEAR(dst, src, slot, site) \
    {SW_OP_LINEAR, SW_BUF_##dst, SW_BUF_##src, SW_SLOT_##slot, SW_SITE_##site}
#define PLAIN_OP(kind, dst, src) {SW_OP_##kind, SW_BUF_##dst, SW_BUF_##src, NO_SLOT, NO_SITE}
#define ATTENTION(slot) {SW_OP_ATTENTION, SW_BUF_A, SW_BUF_Q, slot, NO_SITE}
#define ROUTED(kind) {SW_OP_##kind, SW_BUF_T, SW_BUF_N, SW_SLOT_ROUTER, SW_SITE_MLP_IN}

#define OPS_LINEAR_QKV(src)                                                                \
    LINEAR(Q, src, Q, ATTN_IN), LINEAR(K, src, K, ATTN_IN), LINEAR(V, src, V, ATTN_IN)
#define OPS_QKV NORM(N, X, NORM_ATTN), OPS_LINEAR_QKV(N)
#define OPS_HEAD_NORM HEAD_NORM(Q, NORM_Q), HEAD_NORM(K, NORM_K)
#define OPS_ROPE PLAIN_OP(ROPE, Q, Q), PLAIN_OP(ROPE, K, K)
#define OPS_O LINEAR(T, A, O, O_IN)
#define OPS_ADD PLAIN_OP(ADD, X, T)
#define OPS_ATTENTION                                                                      \
    OPS_ROPE, ATTENTION(NO_SLOT), OPS_O, OPS_ADD, NORM(N, X, NORM_MLP)
#define OPS_GATED(src)                                                                     \
    LINEAR(G, src, GATE, MLP_IN), LINEAR(U, src, UP, MLP_IN), PLAIN_OP(GLU, G, U),         \
    LINEAR(T, G, DOWN, DOWN_IN)
#define OPS_MLP OPS_GATED(N), OPS_ADD
#define OPS_MOE ROUTED(MOE), OPS_ADD
#define OPS_UNGATED                                                                        \
    LINEAR(U, N, UP, MLP_IN), PLAIN_OP(ACT, U, U), LINEAR(T, U, DOWN, DOWN_IN), OPS_ADD
#define OPS_GEMMA_REST                                                                     \
    OPS_ROPE, ATTENTION(NO_SLOT), OPS_O, NORM(T, T, NORM_AFTER_ATTN), OPS_ADD,             \
    NORM(N, X, NORM_MLP), OPS_GATED(N), NORM(T, T, NORM_AFTER_MLP), OPS_ADD

static const sw_op ops_plain[] = {OPS_QKV, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_plain_moe[] = {OPS_QKV, OPS_ATTENTION, OPS_MOE};
static const sw_op ops_head_norm[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_head_norm_moe[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_MOE};
static const sw_op ops_after_norm[] = {
    OPS_LINEAR_QKV(X), NORM(Q, Q, NORM_Q_ROW), NORM(K, K, NORM_K_ROW), OPS_ROPE,
    ATTENTION(NO_SLOT), OPS_O, NORM(T, T, NORM_AFTER_ATTN), OPS_ADD,
    OPS_GATED(X), NORM(T, T, NORM_AFTER_MLP), OPS_ADD,
};
static const sw_op ops_gemma2[] = {OPS_QKV, OPS_GEMMA_REST};
static const sw_op ops_gemma3[] = {OPS_QKV, OPS_HEAD_NORM, OPS_GEMMA_REST};
static const sw_op ops_fused[] = {
    NORM(N, X, NORM_ATTN), LINEAR(QKV, N, QKV, ATTN_IN), PLAIN_OP(SPLIT, Q, QKV), OPS_ATTENTION,
    LINEAR(GATE_UP, N, GATE_UP, MLP_IN), PLAIN_OP(SPLIT, G, GATE_UP), PLAIN_OP(GLU, G, U),
    LINEAR(T, G, DOWN, DOWN_IN), OPS_ADD,
};
static const sw_op ops_opt[] = {
    MEAN_NORM(N, X, NORM_ATTN), OPS_LINEAR_QKV(N), ATTENTION(NO_SLOT), OPS_O, OPS_ADD,
    MEAN_NORM(N, X, NORM_MLP), OPS_UNGATED,
};
static const sw_op ops_gpt2[] = {
    MEAN_NORM(N, X, NORM_ATTN), LINEAR(QKV, N, QKV, ATTN_IN), PLAIN_OP(SPLIT, Q, QKV),
    ATTENTION(NO_SLOT), OPS_O, OPS_ADD, MEAN_NORM(N, X, NORM_MLP), OPS_UNGATED,
};

static const sw_op ops_sinks_moe[] = {
    OPS_QKV, OPS_ROPE, ATTENTION(SW_SLOT_SINKS), OPS_O, OPS_ADD, NORM(N, X, NORM_MLP), OPS_MOE,
};
/* Queries and keys through low-rank factors; one rotated key part for all heads. */
#define OPS_LATENT_Q                                                                       \
    LINEAR(Q_A, N, Q_A, ATTN_IN), NORM(Q_A, Q_A, NORM_Q_A), LINEAR(Q, Q_A, Q_B, Q_B_IN)
#define OPS_LATENT(queries)                                                                \
    NORM(N, X, NORM_ATTN), queries, LINEAR(KV_A, N, KV_A, ATTN_IN),                           \
    PLAIN_OP(SPLIT, LATENT, KV_A), NORM(LATENT, LATENT, NORM_KV_A),                        \
    LINEAR(KV_B, LATENT, KV_B, KV_B_IN), PLAIN_OP(ROPE, Q, Q), PLAIN_OP(ROPE, K_ROPE, K_ROPE), \
    PLAIN_OP(LATENT_KV, K, KV_B), ATTENTION(NO_SLOT), OPS_O, OPS_ADD, NORM(N, X, NORM_MLP)
#define OPS_SHARED_MOE                                                                     \
    LINEAR(SHARED_G, N, SHARED_GATE, MLP_IN), LINEAR(SHARED_U, N, SHARED_UP, MLP_IN),      \
    PLAIN_OP(GLU, SHARED_G, SHARED_U), LINEAR(T, SHARED_G, SHARED_DOWN, SHARED_DOWN_IN),   \
    ROUTED(MOE_ADD), OPS_ADD
static const sw_op ops_latent[] = {OPS_LATENT(OPS_LATENT_Q), OPS_MLP};
static const sw_op ops_latent_moe[] = {OPS_LATENT(OPS_LATENT_Q), OPS_SHARED_MOE};
/* The same with queries from one linear, for models without a rank for them. */
static const sw_op ops_latent_kv[] = {OPS_LATENT(LINEAR(Q, N, Q, ATTN_IN)), OPS_MLP};
static const sw_op ops_latent_kv_moe[] = {OPS_LATENT(LINEAR(Q, N, Q, ATTN_IN)), OPS_SHARED_MOE};

/* What follows the last block; its product is the engine's own business. */
static const sw_op ops_head[] = {NORM(N, X, NORM_FINAL), LINEAR(T, N, HEAD, ATTN_IN)};
static const sw_op ops_mean_head[] = {MEAN_NORM(N, X, NORM_FINAL), LINEAR(T, N, HEAD, ATTN_IN)};

#define N_OPS(ops) ((int)(sizeof(ops) / sizeof((ops)[0])))
#define PROGRAM_none NULL, 0
#define PROGRAM_plain ops_plain, N_OPS(ops_plain)
#define PROGRAM_plain_moe ops_plain_moe, N_OPS(ops_plain_moe)
#define PROGRAM_head_norm ops_head_norm, N_OPS(ops_head_norm)
#define PROGRAM_head_norm_moe ops_head_norm_moe, N_OPS(ops_head_norm_moe)
#define PROGRAM_after_norm ops_after_norm, N_OPS(ops_after_norm)
#define PROGRAM_gemma2 ops_gemma2, N_OPS(ops_gemma2)
#define PROGRAM_gemma3 ops_gemma3, N_OPS(ops_gemma3)
#define PROGRAM_fused ops_fused, N_OPS(ops_fused)
#define PROGRAM_sinks_moe ops_sinks_moe, N_OPS(ops_sinks_moe)
#define PROGRAM_latent ops_latent, N_OPS(ops_latent)
#define PROGRAM_latent_moe ops_latent_moe, N_OPS(ops_latent_moe)
#define PROGRAM_opt ops_opt, N_OPS(ops_opt)
#define PROGRAM_gpt2 ops_gpt2, N_OPS(ops_gpt2)

#define NAMES_LINEARS                                                                      \
    [SW_SLOT_Q] = "self_attn.q_proj", [SW_SLOT_K] = "self_attn.k_proj",                    \
    [SW_SLOT_V] = "self_attn.v_proj", [SW_SLOT_O] = "self_attn.o_proj"
#define NAMES_ATTENTION                                                                    \
    NAMES_LINEARS, [SW_SLOT_NORM_ATTN] = "input_layernorm",                                \
    [SW_SLOT_NORM_MLP] = "post_attention_layernorm",                                       \
    [SW_SLOT_NORM_Q] = "self_attn.q_norm", [SW_SLOT_NORM_K] = "self_attn.k_norm"
#define NAMES_MLP                                                                          \
    [SW_SLOT_GATE] = "mlp.gate_proj", [SW_SLOT_UP] = "mlp.up_proj",                        \
    [SW_SLOT_DOWN] = "mlp.down_proj"
#define NAMES_AFTER                                                                        \
    [SW_SLOT_NORM_AFTER_ATTN] = "post_attention_layernorm",                                \
    [SW_SLOT_NORM_AFTER_MLP] = "post_feedforward_layernorm"

#define NAMES_plain {NAMES_ATTENTION, NAMES_MLP}
#define NAMES_qwen3_moe {NAMES_ATTENTION, NAMES_MLP, [SW_SLOT_ROUTER] = "mlp.gate"}
#define NAMES_mixtral {NAMES_ATTENTION, [SW_SLOT_ROUTER] = "block_sparse_moe.gate"}
#define NAMES_olmo2                                                                        \
    {NAMES_LINEARS, NAMES_MLP, NAMES_AFTER, [SW_SLOT_NORM_Q_ROW] = "self_attn.q_norm",     \
     [SW_SLOT_NORM_K_ROW] = "self_attn.k_norm"}
#define NAMES_gemma                                                                        \
    {NAMES_LINEARS, NAMES_MLP, NAMES_AFTER, [SW_SLOT_NORM_ATTN] = "input_layernorm",       \
     [SW_SLOT_NORM_MLP] = "pre_feedforward_layernorm",                                     \
     [SW_SLOT_NORM_Q] = "self_attn.q_norm", [SW_SLOT_NORM_K] = "self_attn.k_norm"}
#define NAMES_phi3                                                                         \
    {[SW_SLOT_QKV] = "self_attn.qkv_proj", [SW_SLOT_O] = "self_attn.o_proj",               \
     [SW_SLOT_GATE_UP] = "mlp.gate_up_proj", [SW_SLOT_DOWN] = "mlp.down_proj",             \
     [SW_SLOT_NORM_ATTN] = "input_layernorm", [SW_SLOT_NORM_MLP] = "post_attention_layernorm"}
#define NAMES_opt                                                                          \
    {[SW_SLOT_Q] = "self_attn.q_proj", [SW_SLOT_K] = "self_attn.k_proj",                   \
     [SW_SLOT_V] = "self_attn.v_proj", [SW_SLOT_O] = "self_attn.out_proj",                 \
     [SW_SLOT_UP] = "fc1", [SW_SLOT_DOWN] = "fc2",                                         \
     [SW_SLOT_NORM_ATTN] = "self_attn_layer_norm", [SW_SLOT_NORM_MLP] = "final_layer_norm"}
#define NAMES_gpt2                                                                         \
    {[SW_SLOT_QKV] = "attn.c_attn", [SW_SLOT_O] = "attn.c_proj", [SW_SLOT_UP] = "mlp.c_fc",  \
     [SW_SLOT_DOWN] = "mlp.c_proj", [SW_SLOT_NORM_ATTN] = "ln_1", [SW_SLOT_NORM_MLP] = "ln_2"}

#define NAMES_gpt_oss \
    {NAMES_ATTENTION, [SW_SLOT_ROUTER] = "mlp.router", [SW_SLOT_SINKS] = "self_attn.sinks"}
#define NAMES_deepseek_v3                                                                  \
    {NAMES_MLP, [SW_SLOT_Q] = "self_attn.q_proj",                                          \
     [SW_SLOT_Q_A] = "self_attn.q_a_proj", [SW_SLOT_Q_B] = "self_attn.q_b_proj",           \
     [SW_SLOT_KV_A] = "self_attn.kv_a_proj_with_mqa", [SW_SLOT_KV_B] = "self_attn.kv_b_proj", \
     [SW_SLOT_O] = "self_attn.o_proj", [SW_SLOT_NORM_Q_A] = "self_attn.q_a_layernorm",     \
     [SW_SLOT_NORM_KV_A] = "self_attn.kv_a_layernorm",                                     \
     [SW_SLOT_NORM_ATTN] = "input_layernorm", [SW_SLOT_NORM_MLP] = "post_attention_layernorm", \
     [SW_SLOT_SHARED_GATE] = "mlp.shared_experts.gate_proj",                               \
     [SW_SLOT_SHARED_UP] = "mlp.shared_experts.up_proj",                                   \
     [SW_SLOT_SHARED_DOWN] = "mlp.shared_experts.down_proj", [SW_SLOT_ROUTER] = "mlp.gate",  \
     [SW_SLOT_ROUTER_SHIFT] = "mlp.gate.e_score_correction_bias"}

#define EXPERTS_none {NULL, NULL, NULL}, {NULL, NULL}
#define EXPERTS_gated                                                                      \
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"},    \
    {NULL, NULL}
#define EXPERTS_gpt_oss                                                                    \
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"},    \
    {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
#define EXPERTS_mixtral                                                                    \
    {"block_sparse_moe.experts.%d.w1", "block_sparse_moe.experts.%d.w3",                   \
     "block_sparse_moe.experts.%d.w2"},                                                    \
    {NULL, NULL}

#define ENDS_plain \
    {"model.", "model.layers", "model.embed_tokens", NULL, "model.norm", "lm_head", false}
#define ENDS_opt                                                                           \
    {"model.", "model.decoder.layers", "model.decoder.embed_tokens",                       \
     "model.decoder.embed_positions", "model.decoder.final_layer_norm", "lm_head", true}
#define ENDS_gpt2                                                                          \
    {"transformer.", "transformer.h", "transformer.wte", "transformer.wpe", "transformer.ln_f", \
     "lm_head", true}

const sw_arch sw_archs[] = {
#define SW_ARCH(id, hf, dense, sparse, names, experts, tips, theta, eps, dim, activation,   \
                mlp_factor, tied, transposed, reader, note)                                 \
    {#id, hf, note, theta, eps, dim, mlp_factor, SW_MLP_##activation, tied, transposed,     \
     ENDS_##tips, PROGRAM_##dense, PROGRAM_##sparse, NAMES_##names, EXPERTS_##experts,      \
     sw_family_##reader},
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
    return m->n_experts > 0 && layer < m->n_layers && !m->is_dense_layer[layer] &&
           (layer + 1) % m->sparse_step == 0;
}

const sw_op *sw_model_ops(const sw_model *m, int64_t layer, int *n_ops)
{
    bool is_sparse = sw_model_is_sparse(m, layer);

    if (layer == m->n_layers) {
        *n_ops = m->is_tied ? 0 : N_OPS(ops_head);
        return m->arch->ends.has_norm_bias ? ops_mean_head : ops_head;
    }
    if (m->kv_rank && !m->q_rank) {
        *n_ops = is_sparse ? N_OPS(ops_latent_kv_moe) : N_OPS(ops_latent_kv);
        return is_sparse ? ops_latent_kv_moe : ops_latent_kv;
    }
    *n_ops = is_sparse ? m->arch->n_sparse_ops : m->arch->n_dense_ops;
    return is_sparse ? m->arch->sparse_ops : m->arch->dense_ops;
}

static bool is_mlp_slot(sw_slot slot)
{
    return slot == SW_SLOT_GATE || slot == SW_SLOT_UP || slot == SW_SLOT_DOWN;
}

/* In latent attention the part of a head that is not rotated. */
static int64_t unrotated(const sw_model *m) { return m->head_dim - m->rope_dim; }

void sw_model_slot_shape(const sw_model *m, int64_t layer, sw_slot slot, int64_t *n_out,
                         int64_t *k_in)
{
    const int64_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const int64_t mlp = sw_model_is_sparse(m, layer) ? m->moe_intermediate : m->intermediate;
    const int64_t h = m->hidden, shared = m->shared_intermediate;
    const int64_t shapes[SW_SLOT_COUNT][2] = {
        [SW_SLOT_Q] = {q, h},                  [SW_SLOT_K] = {kv, h},
        [SW_SLOT_V] = {kv, h},                 [SW_SLOT_O] = {h, m->n_heads * m->v_head_dim},
        [SW_SLOT_GATE] = {mlp, h},             [SW_SLOT_UP] = {mlp, h},
        [SW_SLOT_DOWN] = {h, mlp},             [SW_SLOT_ROUTER] = {m->n_experts, h},
        [SW_SLOT_QKV] = {q + 2 * kv, h},       [SW_SLOT_GATE_UP] = {2 * mlp, h},
        [SW_SLOT_Q_A] = {m->q_rank, h},        [SW_SLOT_Q_B] = {q, m->q_rank},
        [SW_SLOT_KV_A] = {m->kv_rank + m->rope_dim, h},
        [SW_SLOT_KV_B] = {m->n_heads * (unrotated(m) + m->v_head_dim), m->kv_rank},
        [SW_SLOT_SHARED_GATE] = {shared, h},   [SW_SLOT_SHARED_UP] = {shared, h},
        [SW_SLOT_SHARED_DOWN] = {h, shared},   [SW_SLOT_ROUTER_SHIFT] = {1, m->n_experts},
        [SW_SLOT_NORM_ATTN] = {1, h},          [SW_SLOT_NORM_MLP] = {1, h},
        [SW_SLOT_NORM_AFTER_ATTN] = {1, h},    [SW_SLOT_NORM_AFTER_MLP] = {1, h},
        [SW_SLOT_NORM_Q] = {1, m->head_dim},   [SW_SLOT_NORM_K] = {1, m->head_dim},
        [SW_SLOT_NORM_Q_ROW] = {1, q},         [SW_SLOT_NORM_K_ROW] = {1, kv},
        [SW_SLOT_NORM_Q_A] = {1, m->q_rank},   [SW_SLOT_NORM_KV_A] = {1, m->kv_rank},
        [SW_SLOT_SINKS] = {1, m->n_heads},
        [SW_SLOT_HEAD] = {m->vocab, h},        [SW_SLOT_NORM_FINAL] = {1, h},
    };

    *n_out = shapes[slot][0];
    *k_in = shapes[slot][1];
}

static bool uses_buf(const sw_op *ops, int n_ops, sw_buf buf)
{
    for (int i = 0; i < n_ops; i++) {
        const bool is_second = ops[i].kind == SW_OP_SPLIT && buf > ops[i].dst &&
                               buf <= (ops[i].dst == SW_BUF_Q ? SW_BUF_V : ops[i].dst + 1);

        if (ops[i].dst == buf || ops[i].src == buf || is_second) return true;
        if (ops[i].kind == SW_OP_LATENT_KV && (buf == SW_BUF_V || buf == SW_BUF_K_ROPE))
            return true;
    }
    return false;
}

int64_t sw_model_buf_width(const sw_model *m, sw_buf buf)
{
    const sw_arch *a = m->arch;
    const int64_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const int64_t widths[SW_BUF_COUNT] = {
        [SW_BUF_X] = m->hidden, [SW_BUF_N] = m->hidden, [SW_BUF_T] = m->hidden,
        [SW_BUF_Q] = q, [SW_BUF_K] = kv, [SW_BUF_V] = m->n_kv_heads * m->v_head_dim,
        [SW_BUF_A] = m->n_heads * m->v_head_dim,
        [SW_BUF_G] = m->intermediate, [SW_BUF_U] = m->intermediate,
        [SW_BUF_QKV] = q + 2 * kv, [SW_BUF_GATE_UP] = 2 * m->intermediate,
        [SW_BUF_Q_A] = m->q_rank, [SW_BUF_KV_A] = m->kv_rank + m->rope_dim,
        [SW_BUF_LATENT] = m->kv_rank, [SW_BUF_K_ROPE] = m->rope_dim,
        [SW_BUF_KV_B] = m->n_heads * (unrotated(m) + m->v_head_dim),
        [SW_BUF_SHARED_G] = m->shared_intermediate, [SW_BUF_SHARED_U] = m->shared_intermediate,
    };

    if (buf == SW_BUF_N) return widths[buf]; /* the final norm needs it as well */
    return uses_buf(a->dense_ops, a->n_dense_ops, buf) ||
                   uses_buf(a->sparse_ops, a->n_sparse_ops, buf)
               ? widths[buf]
               : 0;
}

static bool has_weight(const sw_st *st, const char *path)
{
    char name[300];

    (void)snprintf(name, sizeof name, "%s.weight", path);
    return sw_st_find(st, name) != NULL;
}

void sw_model_fit_names(sw_model *m, const sw_st *st)
{
    const sw_arch_ends *ends = &m->arch->ends;

    m->has_bare_names =
        !has_weight(st, ends->embed) && has_weight(st, ends->embed + strlen(ends->prefix));
}

const char *sw_model_end(const sw_model *m, const char *name)
{
    const size_t n = strlen(m->arch->ends.prefix);

    return m->has_bare_names && !strncmp(name, m->arch->ends.prefix, n) ? name + n : name;
}

/* "<layers>.L.<name>", with the expert in the name's gap. */
static void slot_text(char out[256], const sw_model *m, int64_t layer, const char *name,
                      int64_t expert)
{
    const char *gap = strstr(name, "%d"), *layers = sw_model_end(m, m->arch->ends.layers);

    if (gap)
        (void)snprintf(out, 256, "%s.%lld.%.*s%lld%s", layers, (long long)layer,
                       (int)(gap - name), name, (long long)expert, gap + 2);
    else
        (void)snprintf(out, 256, "%s.%lld.%s", layers, (long long)layer, name);
}

bool sw_model_slot_path(char out[256], const sw_model *m, int64_t layer, sw_slot slot,
                        int64_t expert)
{
    const sw_arch_ends *ends = &m->arch->ends;
    const char *name = m->arch->slot_names[slot];

    if (slot == SW_SLOT_HEAD || slot == SW_SLOT_NORM_FINAL) {
        (void)snprintf(out, 256, "%s",
                       slot == SW_SLOT_HEAD ? ends->head : sw_model_end(m, ends->norm));
        return true;
    }
    if (expert >= 0) name = is_mlp_slot(slot) ? m->arch->expert_names[slot - SW_SLOT_GATE] : NULL;
    if (!name) return false;
    slot_text(out, m, layer, name, expert);
    return true;
}

bool sw_model_attention_path(char out[256], const sw_model *m, int64_t layer)
{
    char *dot;

    if (m->kv_rank || !sw_model_slot_path(out, m, layer, SW_SLOT_O, -1)) return false;
    dot = strrchr(out, '.');
    if (dot) *dot = '\0';
    return dot;
}

bool sw_model_slot_has_bias(const sw_model *m, sw_slot slot)
{
    if (slot == SW_SLOT_Q || slot == SW_SLOT_K || slot == SW_SLOT_V || slot == SW_SLOT_QKV)
        return m->has_qkv_bias;
    if (slot == SW_SLOT_O) return m->has_o_bias;
    if (slot == SW_SLOT_ROUTER) return m->has_router_bias;
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

int64_t sw_model_linears(const sw_model *m, int64_t layer, sw_linear_ref *out, int64_t max)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);
    int64_t n = 0;

    for (int i = 0; i < n_ops; i++) {
        if (ops[i].kind == SW_OP_LINEAR && n++ < max)
            out[n - 1] = make_ref(m, layer, ops[i].slot, -1, ops[i].site);
        if (!is_routed(&ops[i])) continue;
        for (int64_t e = 0; e < 3 * m->n_experts; e++)
            if (n++ < max)
                out[n - 1] = make_ref(m, layer, (sw_slot)(SW_SLOT_GATE + e % 3), e / 3,
                                      e % 3 == 2 ? SW_SITE_DOWN_IN : SW_SITE_MLP_IN);
    }
    return n;
}

int64_t sw_model_site_width(const sw_model *m, int64_t layer, sw_site site)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    for (int i = 0; i < n_ops; i++) {
        if (ops[i].kind == SW_OP_LINEAR && ops[i].site == site)
            return make_ref(m, layer, ops[i].slot, -1, site).k_in;
        if (is_routed(&ops[i]) && site == SW_SITE_MLP_IN) return m->hidden;
        if (is_routed(&ops[i]) && site == SW_SITE_DOWN_IN) return m->moe_intermediate;
    }
    return 0;
}

bool sw_model_site_writes_residual(const sw_model *m, int64_t layer, sw_site site)
{
    int n_ops, at = 0;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);

    while (at < n_ops && !(ops[at].kind == SW_OP_LINEAR && ops[at].site == site)) at++;
    for (int i = at + 1; i < n_ops; i++) {
        if (ops[i].kind == SW_OP_ADD && ops[i].dst == SW_BUF_X) return ops[i].src == ops[at].dst;
        if (ops[i].dst == ops[at].dst && !is_routed(&ops[i])) return false;
    }
    return false;
}
