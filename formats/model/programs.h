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

#define N_OPS(ops) ((int)(sizeof(ops) / sizeof((ops)[0])))
#define PROGRAM(ops) {ops, N_OPS(ops)}
#define NO_PROGRAM {0, 0}

extern const sw_kinds sw_kinds_plain, sw_kinds_plain_moe, sw_kinds_head_norm,
    sw_kinds_head_norm_moe, sw_kinds_after_norm, sw_kinds_gemma2, sw_kinds_gemma3, sw_kinds_fused,
    sw_kinds_opt, sw_kinds_gpt2, sw_kinds_sinks_moe, sw_kinds_latent, sw_kinds_qwen3_5,
    sw_kinds_lfm2, sw_kinds_lfm2_moe, sw_kinds_mamba2, sw_kinds_bamba, sw_kinds_kimi_linear;

/* What follows the last block: the final norm and the head, by the kind of norm. */
extern const sw_program sw_head_program, sw_mean_head_program;

/* Kinds of sw_kinds_latent: queries through low-rank factors, or from one linear. */
enum { SW_KIND_LATENT, SW_KIND_LATENT_KV };
/* Kinds of hybrid decoders; the last two where a layer is an MLP or nothing but experts. */
enum { SW_KIND_RECURRENT, SW_KIND_ATTENTION, SW_KIND_MLP, SW_KIND_EXPERTS };

#endif
