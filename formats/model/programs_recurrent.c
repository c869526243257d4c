/* programs_recurrent.c - block programs of decoders in which some layers have a recurrent mixer
 * (mixer.h) in place of attention or beside it. See programs.h.
 */
#include "formats/model/programs.h"

#define KEPT(dst, src, slot) \
    {SW_OP_KEPT_LINEAR, SW_BUF_##dst, SW_BUF_##src, SW_SLOT_##slot, NO_SITE}
#define OPS_AFTER_MIXER LINEAR(T, MIX_O, MIX_OUT, MIX_OUT_IN), OPS_ADD, NORM(N, X, NORM_MLP)

/* Gated delta nets: decay and step are read off the tokens by two linears of a few rows each. */
#define OPS_DELTA                                                                          \
    NORM(N, X, NORM_ATTN), LINEAR(MIX, N, MIX_IN, MIX_IN), LINEAR(MIX_Z, N, MIX_Z, MIX_IN), \
    KEPT(MIX_B, N, MIX_B), KEPT(MIX_A, N, MIX_A), PLAIN_OP(GATED_DELTA, MIX_O, MIX),       \
    OPS_AFTER_MIXER
#define OPS_DELTA_GROUPED                                                                  \
    NORM(N, X, NORM_ATTN), LINEAR(MIX_GROUPED, N, MIX_IN, MIX_IN),                         \
    KEPT(MIX_BA, N, MIX_BA), PLAIN_OP(UNGROUP, MIX, MIX_GROUPED),                          \
    PLAIN_OP(UNGROUP, MIX_B, MIX_BA), PLAIN_OP(GATED_DELTA, MIX_O, MIX), OPS_AFTER_MIXER
/* Attention whose output is gated: each head of q_proj is followed by the head of its gate. */
#define OPS_GATED_ATTENTION                                                                \
    NORM(N, X, NORM_ATTN), LINEAR(Q_GATED, N, Q, ATTN_IN), LINEAR(K, N, K, ATTN_IN),       \
    LINEAR(V, N, V, ATTN_IN), PLAIN_OP(SPLIT_HEADS, Q, Q_GATED), OPS_HEAD_NORM, OPS_ROPE,  \
    ATTENTION(NO_SLOT), PLAIN_OP(GATE, A, Q_GATE), OPS_O, OPS_ADD, NORM(N, X, NORM_MLP)

/* The expert of every token whose gate and up are stored as one. */
#define OPS_SHARED_FUSED                                                                   \
    LINEAR(SHARED_GATE_UP, N, SHARED_GATE_UP, MLP_IN),                                     \
    PLAIN_OP(SPLIT, SHARED_G, SHARED_GATE_UP), PLAIN_OP(GLU, SHARED_G, SHARED_U),          \
    LINEAR(T, SHARED_G, SHARED_DOWN, SHARED_DOWN_IN)
#define OPS_SHARED_FUSED_MOE OPS_SHARED_FUSED, ROUTED(MOE_ADD), OPS_ADD
#define OPS_STILL_ATTENTION OPS_QKV, OPS_ATTEND, OPS_TO_MLP

/* A mixer that one linear feeds and one reads. */
#define OPS_MIXER(kind)                                                                    \
    NORM(N, X, NORM_ATTN), LINEAR(MIX, N, MIX_IN, MIX_IN), PLAIN_OP(kind, MIX_O, MIX)

/* Kimi delta attention: decays and gates by low-rank factors of their own. */
#define OPS_KIMI_DELTA                                                                     \
    NORM(N, X, NORM_ATTN), LINEAR(Q, N, Q, MIX_IN), LINEAR(K, N, K, MIX_IN),               \
    LINEAR(V, N, V, MIX_IN), KEPT(MIX_B, N, MIX_B), KEPT(MIX_A_RANK, N, MIX_A_RANK),       \
    KEPT(MIX_A, MIX_A_RANK, MIX_A), KEPT(MIX_Z_RANK, N, MIX_Z_RANK),                       \
    KEPT(MIX_Z, MIX_Z_RANK, MIX_Z_GATE), PLAIN_OP(KIMI_DELTA, MIX_O, Q),                   \
    LINEAR(T, MIX_O, O, MIX_OUT_IN), OPS_ADD, NORM(N, X, NORM_MLP)
/* Latent attention without rotation, whose heads still share a part of their keys. */
#define OPS_UNTURNED_LATENT                                                                \
    NORM(N, X, NORM_ATTN), LINEAR(Q, N, Q, ATTN_IN), LINEAR(KV_A, N, KV_A, ATTN_IN),       \
    PLAIN_OP(SPLIT, LATENT, KV_A), NORM(LATENT, LATENT, NORM_KV_A),                        \
    LINEAR(KV_B, LATENT, KV_B, KV_B_IN), PLAIN_OP(LATENT_KV, K, KV_B), ATTENTION(NO_SLOT), \
    OPS_O, OPS_ADD, NORM(N, X, NORM_MLP)
/* The shared expert's output by a gate that reads what it reads. */
#define OPS_GATED_SHARED_MOE                                                               \
    OPS_SHARED, {SW_OP_ROW_GATE, SW_BUF_T, SW_BUF_N, SW_SLOT_SHARED_ROUTER, NO_SITE},      \
    ROUTED(MOE_ADD), OPS_ADD

static const sw_op ops_delta[] = {OPS_DELTA, OPS_MLP};
static const sw_op ops_gated_attention[] = {OPS_GATED_ATTENTION, OPS_MLP};

static const sw_op ops_delta_moe[] = {OPS_DELTA, OPS_GATED_SHARED_MOE};
static const sw_op ops_gated_attention_moe[] = {OPS_GATED_ATTENTION, OPS_GATED_SHARED_MOE};
static const sw_op ops_grouped[] = {OPS_DELTA_GROUPED, OPS_MLP};
static const sw_op ops_grouped_moe[] = {OPS_DELTA_GROUPED, OPS_GATED_SHARED_MOE};
static const sw_op ops_conv[] = {OPS_MIXER(SHORT_CONV), OPS_AFTER_MIXER, OPS_MLP};
static const sw_op ops_conv_moe[] = {OPS_MIXER(SHORT_CONV), OPS_AFTER_MIXER, OPS_MOE};
static const sw_op ops_ssd[] = {OPS_MIXER(SSD), OPS_AFTER_MIXER, OPS_MLP};
static const sw_op ops_ssd_alone[] = {
    OPS_MIXER(SSD), LINEAR(T, MIX_O, MIX_OUT, MIX_OUT_IN), OPS_ADD,
};
static const sw_op ops_kimi_delta[] = {OPS_KIMI_DELTA, OPS_MLP};
static const sw_op ops_kimi_delta_moe[] = {OPS_KIMI_DELTA, OPS_SHARED_MOE};
static const sw_op ops_kimi_latent[] = {OPS_UNTURNED_LATENT, OPS_MLP};
static const sw_op ops_kimi_latent_moe[] = {OPS_UNTURNED_LATENT, OPS_SHARED_MOE};
static const sw_op ops_granite_ssd[] = {OPS_MIXER(SSD), OPS_AFTER_MIXER, OPS_SHARED_FUSED, OPS_ADD};
static const sw_op ops_granite_ssd_moe[] = {
    OPS_MIXER(SSD), OPS_AFTER_MIXER, OPS_SHARED_FUSED_MOE,
};
static const sw_op ops_granite[] = {OPS_QKV, OPS_ATTENTION, OPS_SHARED_FUSED, OPS_ADD};
static const sw_op ops_granite_moe[] = {OPS_QKV, OPS_ATTENTION, OPS_SHARED_FUSED_MOE};
static const sw_op ops_granite_still[] = {OPS_STILL_ATTENTION, OPS_SHARED_FUSED, OPS_ADD};
static const sw_op ops_granite_still_moe[] = {OPS_STILL_ATTENTION, OPS_SHARED_FUSED_MOE};
/* Attention and a state space side by side, with a factor on everything that goes in or out. */
static const sw_op ops_falcon_h1[] = {
    NORM(N, X, NORM_ATTN), PLAIN_OP(FACTOR, ATTN_N, N), OPS_LINEAR_QKV(ATTN_N),
    PLAIN_OP(FACTOR, K, K), OPS_ROPE, ATTENTION(NO_SLOT), LINEAR(M, A, O, O_IN),
    PLAIN_OP(FACTOR, M, M), PLAIN_OP(FACTOR, MIX_N, N), LINEAR(MIX, MIX_N, MIX_IN, MIX_IN),
    PLAIN_OP(SSD, MIX_O, MIX), LINEAR(MIX_T, MIX_O, MIX_OUT, MIX_OUT_IN),
    PLAIN_OP(FACTOR, MIX_T, MIX_T), PLAIN_OP(ADD, M, MIX_T), PLAIN_OP(ADD, X, M),
    NORM(N, X, NORM_MLP), LINEAR(G, N, GATE, MLP_IN), PLAIN_OP(FACTOR, G, G),
    LINEAR(U, N, UP, MLP_IN), PLAIN_OP(GLU, G, U), LINEAR(T, G, DOWN, DOWN_IN),
    PLAIN_OP(FACTOR, T, T), OPS_ADD,
};
/* Layers of one mixer or one MLP each, without gates. */
static const sw_op ops_attention_alone[] = {OPS_QKV, OPS_ATTEND, OPS_ADD};
static const sw_op ops_mlp_alone[] = {NORM(N, X, NORM_MLP), OPS_UNGATED};
#define OPS_SHARED_UNGATED(site)                                                           \
    LINEAR(SHARED_U, N, SHARED_UP, site), PLAIN_OP(ACT, SHARED_U, SHARED_U),               \
    LINEAR(T, SHARED_U, SHARED_DOWN, SHARED_DOWN_IN)
static const sw_op ops_experts_alone[] = {
    NORM(N, X, NORM_MLP), OPS_SHARED_UNGATED(MLP_IN), ROUTED(MOE_ADD), OPS_ADD,
};
static const sw_op ops_latent_experts_alone[] = {
    NORM(N, X, NORM_MLP), OPS_SHARED_UNGATED(SHARED_IN),
    {SW_OP_ROUTE, SW_BUF_N, SW_BUF_N, SW_SLOT_ROUTER, NO_SITE}, KEPT(EXPERT_IN, N, LATENT_IN),
    {SW_OP_MOE, SW_BUF_EXPERT_OUT, SW_BUF_EXPERT_IN, SW_SLOT_ROUTER, SW_SITE_MLP_IN},
    KEPT(M, EXPERT_OUT, LATENT_OUT), PLAIN_OP(ADD, T, M), OPS_ADD,
};
static const sw_op ops_attention[] = {OPS_QKV, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_normed_attention[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_normed_attention_moe[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_MOE};

const sw_kinds sw_kinds_qwen3_5 = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_delta), NO_PROGRAM},
    [SW_KIND_ATTENTION] = {PROGRAM(ops_gated_attention), NO_PROGRAM},
}};
const sw_kinds sw_kinds_qwen3_5_moe = {{
    [SW_KIND_RECURRENT] = {NO_PROGRAM, PROGRAM(ops_delta_moe)},
    [SW_KIND_ATTENTION] = {NO_PROGRAM, PROGRAM(ops_gated_attention_moe)},
}};
const sw_kinds sw_kinds_qwen3_next = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_grouped), PROGRAM(ops_grouped_moe)},
    [SW_KIND_ATTENTION] = {PROGRAM(ops_gated_attention), PROGRAM(ops_gated_attention_moe)},
}};
const sw_kinds sw_kinds_lfm2 = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_conv), NO_PROGRAM},
    [SW_KIND_ATTENTION] = {PROGRAM(ops_normed_attention), NO_PROGRAM},
}};
const sw_kinds sw_kinds_lfm2_moe = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_conv), PROGRAM(ops_conv_moe)},
    [SW_KIND_ATTENTION] = {PROGRAM(ops_normed_attention), PROGRAM(ops_normed_attention_moe)},
}};
const sw_kinds sw_kinds_mamba2 = {{[SW_KIND_RECURRENT] = {PROGRAM(ops_ssd_alone), NO_PROGRAM}}};
const sw_kinds sw_kinds_bamba = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_ssd), NO_PROGRAM},
    [SW_KIND_ATTENTION] = {PROGRAM(ops_attention), NO_PROGRAM},
}};
const sw_kinds sw_kinds_kimi_linear = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_kimi_delta), PROGRAM(ops_kimi_delta_moe)},
    [SW_KIND_ATTENTION] = {PROGRAM(ops_kimi_latent), PROGRAM(ops_kimi_latent_moe)},
}};
const sw_kinds sw_kinds_granite_hybrid = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_granite_ssd), PROGRAM(ops_granite_ssd_moe)},
    [SW_KIND_ATTENTION] = {PROGRAM(ops_granite), PROGRAM(ops_granite_moe)},
    [SW_KIND_STILL_ATTENTION] = {PROGRAM(ops_granite_still), PROGRAM(ops_granite_still_moe)},
}};
const sw_kinds sw_kinds_falcon_h1 = {{{PROGRAM(ops_falcon_h1), NO_PROGRAM}}};
const sw_kinds sw_kinds_nemotron_h = {{
    [SW_KIND_RECURRENT] = {PROGRAM(ops_ssd_alone), NO_PROGRAM},
    [SW_KIND_STILL_ATTENTION] = {PROGRAM(ops_attention_alone), NO_PROGRAM},
    [SW_KIND_MLP] = {PROGRAM(ops_mlp_alone), NO_PROGRAM},
    [SW_KIND_EXPERTS] = {NO_PROGRAM, PROGRAM(ops_experts_alone)},
    [SW_KIND_LATENT_EXPERTS] = {NO_PROGRAM, PROGRAM(ops_latent_experts_alone)},
}};
