/* programs.h - short forms to write block programs with, and the programs; inside formats/model.
 *
 * A decoder block is x += o(attention(norm(x))), x += mlp(norm(x)); families differ in what
 * stands between, which is why programs are put together from pieces.
 */
#ifndef SW_FORMATS_MODEL_PROGRAMS_H
#define SW_FORMATS_MODEL_PROGRAMS_H

#include "formats/model/program.h"

/* NO_SLOT and NO_SITE where none is meant. */
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

/* What comes after the projections, up to what the MLP reads. */
#define OPS_ATTEND ATTENTION(NO_SLOT), OPS_O
#define OPS_TO_MLP OPS_ADD, NORM(N, X, NORM_MLP)
#define OPS_ROW_NORM NORM(Q, Q, NORM_Q_ROW), NORM(K, K, NORM_K_ROW)
#define OPS_TEMPER PLAIN_OP(TEMPER, Q, Q)
#define OPS_SHARED                                                                         \
    LINEAR(SHARED_G, N, SHARED_GATE, MLP_IN), LINEAR(SHARED_U, N, SHARED_UP, MLP_IN),      \
    PLAIN_OP(GLU, SHARED_G, SHARED_U), LINEAR(T, SHARED_G, SHARED_DOWN, SHARED_DOWN_IN)
#define OPS_SHARED_MOE OPS_SHARED, ROUTED(MOE_ADD), OPS_ADD
#define OPS_GATED_TO(out, src)                                                             \
    LINEAR(G, src, GATE, MLP_IN), LINEAR(U, src, UP, MLP_IN), PLAIN_OP(GLU, G, U),         \
    LINEAR(out, G, DOWN, DOWN_IN)
#define OPS_UNGATED_TO(out, src)                                                           \
    LINEAR(U, src, UP, MLP_IN), PLAIN_OP(ACT, U, U), LINEAR(out, U, DOWN, DOWN_IN)
#define OPS_GROUPED_QKV(src) LINEAR(QKV, src, QKV, ATTN_IN), PLAIN_OP(SPLIT_GROUPS, Q, QKV)
/* Attention's output in T and the MLP's in M, both added to what they have read. */
#define OPS_ADD_BOTH PLAIN_OP(ADD, T, M), OPS_ADD

#define OPS_SIDE PLAIN_OP(SIDE_INPUT, T, X), NORM(T, T, NORM_SIDE), OPS_ADD

#define N_OPS(ops) ((int)(sizeof(ops) / sizeof((ops)[0])))
#define PROGRAM(ops) {ops, N_OPS(ops)}
#define NO_PROGRAM {0, 0}

extern const sw_kinds sw_kinds_plain, sw_kinds_plain_moe, sw_kinds_head_norm,
    sw_kinds_head_norm_moe, sw_kinds_after_norm, sw_kinds_gemma2, sw_kinds_gemma3, sw_kinds_fused,
    sw_kinds_opt, sw_kinds_gpt2, sw_kinds_sinks_moe, sw_kinds_latent;
extern const sw_kinds sw_kinds_glm4, sw_kinds_turned, sw_kinds_tempered, sw_kinds_after_head_norm,
    sw_kinds_norm_turned;
extern const sw_kinds sw_kinds_glm4_moe, sw_kinds_row_norm_moe, sw_kinds_gated_shared,
    sw_kinds_clipped_moe, sw_kinds_shared_moe, sw_kinds_norm_turned_moe, sw_kinds_llama4;
extern const sw_kinds sw_kinds_cohere2, sw_kinds_starcoder2, sw_kinds_stablelm,
    sw_kinds_gpt_neox, sw_kinds_falcon, sw_kinds_bloom, sw_kinds_gemma4, sw_kinds_gemma3n;
extern const sw_kinds sw_kinds_qwen3_5, sw_kinds_lfm2, sw_kinds_lfm2_moe, sw_kinds_mamba2,
    sw_kinds_bamba, sw_kinds_kimi_linear, sw_kinds_qwen3_5_moe, sw_kinds_qwen3_next,
    sw_kinds_granite_hybrid, sw_kinds_falcon_h1, sw_kinds_nemotron_h, sw_kinds_deepseek_v4;

/* Layers of one kind are of another where the checkpoint has a weight for a slot. */
typedef struct sw_stored_kind {
    const sw_kinds *kinds;
    int from;
    sw_slot slot;
    int to;
} sw_stored_kind;
extern const sw_stored_kind sw_stored_kinds[];
extern const int sw_n_stored_kinds;

/* What follows the last block: the final norm and the head, by the kind of norm. */
extern const sw_program sw_head_program, sw_mean_head_program;

/* Kinds of sw_kinds_latent: queries through low-rank factors, or from one linear; through factors
 * with keys chosen by the layer, or by a layer before it. */
enum { SW_KIND_LATENT, SW_KIND_LATENT_KV, SW_KIND_LATENT_INDEXED, SW_KIND_LATENT_AS_INDEXED };
/* Layers whose queries and keys turn with the position, and layers where they do not. */
enum { SW_KIND_TURNED, SW_KIND_UNTURNED };
/* Of sw_kinds_tempered: queries that grow with the position. */
enum { SW_KIND_TEMPERED = 1 };
enum { SW_KIND_BARE, SW_KIND_NORMED };      /* heads, in sw_kinds_glm4_moe */
enum { SW_KIND_UNCLIPPED, SW_KIND_CLIPPED }; /* q, k and v, in sw_kinds_clipped_moe */
enum { SW_KIND_ROUTED, SW_KIND_SHARED };    /* without or with a shared expert */
/* Of llama4. */
enum { SW_KIND_CHUNK, SW_KIND_CHUNK_NORMED, SW_KIND_ALL, SW_KIND_ALL_TEMPERED };
/* Of gemma4: values of their own, keys as values, both of another layer, or that with linears for
 * them whose results nobody reads; each without and with an input for the layer alone. */
enum {
    SW_KIND_OWN_V, SW_KIND_K_AS_V, SW_KIND_SHARED_KV, SW_KIND_UNUSED_KV, SW_KIND_WITH_SIDE
};
/* Attention and MLP one after the other or beside each other; heads may have norms. */
enum { SW_KIND_SERIAL, SW_KIND_PARALLEL, SW_KIND_WITH_HEAD_NORMS, SW_KIND_PARALLEL_TWO_NORMS };
/* Of deepseek_v4: near keys alone, or compressed ones too, chosen or all; experts by their scores,
 * or by the token. */
enum { SW_KIND_NEAR, SW_KIND_FAR_CHOSEN, SW_KIND_FAR, SW_KIND_BY_TOKEN };
/* Layers of hybrid decoders; attention may turn or not, the last three are an MLP or
 * experts alone. */
enum { SW_KIND_RECURRENT, SW_KIND_ATTENTION, SW_KIND_STILL_ATTENTION, SW_KIND_MLP,
       SW_KIND_EXPERTS, SW_KIND_LATENT_EXPERTS };

#endif
