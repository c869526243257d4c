/* programs.c - the block programs of decoders with attention in every layer. See programs.h. */
#include "formats/model/programs.h"

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
static const sw_op ops_latent[] = {OPS_LATENT(OPS_LATENT_Q), OPS_MLP};
static const sw_op ops_latent_moe[] = {OPS_LATENT(OPS_LATENT_Q), OPS_SHARED_MOE};
/* The same with queries from one linear, for models without a rank for them. */
static const sw_op ops_latent_kv[] = {OPS_LATENT(LINEAR(Q, N, Q, ATTN_IN)), OPS_MLP};
static const sw_op ops_latent_kv_moe[] = {OPS_LATENT(LINEAR(Q, N, Q, ATTN_IN)), OPS_SHARED_MOE};

static const sw_op ops_glm4[] = {
    OPS_QKV, OPS_ROPE, OPS_ATTEND, NORM(T, T, NORM_AFTER_ATTN), OPS_TO_MLP,
    LINEAR(GATE_UP, N, GATE_UP, MLP_IN), PLAIN_OP(SPLIT, G, GATE_UP), PLAIN_OP(GLU, G, U),
    LINEAR(T, G, DOWN, DOWN_IN), NORM(T, T, NORM_AFTER_MLP), OPS_ADD,
};
static const sw_op ops_unturned[] = {OPS_QKV, OPS_ATTEND, OPS_TO_MLP, OPS_MLP};
static const sw_op ops_tempered[] = {
    OPS_QKV, OPS_ROPE, OPS_TEMPER, OPS_ATTEND, OPS_TO_MLP, OPS_MLP,
};
static const sw_op ops_norm_turned[] = {
    OPS_QKV, OPS_ROPE, OPS_HEAD_NORM, OPS_ATTEND, OPS_TO_MLP, OPS_MLP,
};
#define OPS_AFTER_REST                                                                     \
    OPS_ATTEND, NORM(T, T, NORM_AFTER_ATTN), OPS_ADD, OPS_GATED(X),                        \
    NORM(T, T, NORM_AFTER_MLP), OPS_ADD
static const sw_op ops_after_head_norm[] = {
    OPS_LINEAR_QKV(X), OPS_HEAD_NORM, OPS_ROPE, OPS_AFTER_REST,
};
static const sw_op ops_after_unturned[] = {OPS_LINEAR_QKV(X), OPS_HEAD_NORM, OPS_AFTER_REST};

/* What follows the last block, up to the head, which the engine multiplies itself. */
static const sw_op ops_head[] = {NORM(N, X, NORM_FINAL), LINEAR(T, N, HEAD, ATTN_IN)};
static const sw_op ops_mean_head[] = {MEAN_NORM(N, X, NORM_FINAL), LINEAR(T, N, HEAD, ATTN_IN)};
const sw_program sw_head_program = PROGRAM(ops_head);
const sw_program sw_mean_head_program = PROGRAM(ops_mean_head);

const sw_kinds sw_kinds_plain = {{{PROGRAM(ops_plain), NO_PROGRAM}}};
const sw_kinds sw_kinds_plain_moe = {{{NO_PROGRAM, PROGRAM(ops_plain_moe)}}};
const sw_kinds sw_kinds_head_norm = {{{PROGRAM(ops_head_norm), NO_PROGRAM}}};
const sw_kinds sw_kinds_head_norm_moe = {{{PROGRAM(ops_head_norm), PROGRAM(ops_head_norm_moe)}}};
const sw_kinds sw_kinds_after_norm = {{{PROGRAM(ops_after_norm), NO_PROGRAM}}};
const sw_kinds sw_kinds_gemma2 = {{{PROGRAM(ops_gemma2), NO_PROGRAM}}};
const sw_kinds sw_kinds_gemma3 = {{{PROGRAM(ops_gemma3), NO_PROGRAM}}};
const sw_kinds sw_kinds_fused = {{{PROGRAM(ops_fused), NO_PROGRAM}}};
const sw_kinds sw_kinds_opt = {{{PROGRAM(ops_opt), NO_PROGRAM}}};
const sw_kinds sw_kinds_gpt2 = {{{PROGRAM(ops_gpt2), NO_PROGRAM}}};
const sw_kinds sw_kinds_sinks_moe = {{{NO_PROGRAM, PROGRAM(ops_sinks_moe)}}};
const sw_kinds sw_kinds_latent = {{
    [SW_KIND_LATENT] = {PROGRAM(ops_latent), PROGRAM(ops_latent_moe)},
    [SW_KIND_LATENT_KV] = {PROGRAM(ops_latent_kv), PROGRAM(ops_latent_kv_moe)},
}};
const sw_kinds sw_kinds_glm4 = {{{PROGRAM(ops_glm4), NO_PROGRAM}}};
const sw_kinds sw_kinds_turned = {{
    [SW_KIND_TURNED] = {PROGRAM(ops_plain), NO_PROGRAM},
    [SW_KIND_UNTURNED] = {PROGRAM(ops_unturned), NO_PROGRAM},
}};
const sw_kinds sw_kinds_tempered = {{
    {PROGRAM(ops_plain), NO_PROGRAM},
    [SW_KIND_TEMPERED] = {PROGRAM(ops_tempered), NO_PROGRAM},
}};
const sw_kinds sw_kinds_norm_turned = {{{PROGRAM(ops_norm_turned), NO_PROGRAM}}};
const sw_kinds sw_kinds_after_head_norm = {{
    [SW_KIND_TURNED] = {PROGRAM(ops_after_head_norm), NO_PROGRAM},
    [SW_KIND_UNTURNED] = {PROGRAM(ops_after_unturned), NO_PROGRAM},
}};
