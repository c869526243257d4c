/* programs_gemma4.c - the block programs of Gemma 3n and 4. See programs.h. */
#include "formats/model/programs.h"

#define NORM_V {SW_OP_HEAD_NORM, SW_BUF_V, SW_BUF_V, NO_SLOT, NO_SITE}
#define KEEP_KV {SW_OP_KEEP_KV, SW_BUF_K, SW_BUF_V, NO_SLOT, NO_SITE}
#define TAKE_KV {SW_OP_TAKE_KV, SW_BUF_K, SW_BUF_K, NO_SLOT, NO_SITE}
#define OPS_ATTENDED ATTENTION(NO_SLOT), KEEP_KV, OPS_O, NORM(T, T, NORM_AFTER_ATTN), OPS_TO_MLP
#define OPS_OWN_V OPS_QKV, OPS_HEAD_NORM, NORM_V, OPS_ROPE, OPS_ATTENDED
/* A value is its key before the key's norm. */
#define OPS_K_AS_V                                                                         \
    NORM(N, X, NORM_ATTN), LINEAR(Q, N, Q, ATTN_IN), LINEAR(K, N, K, ATTN_IN),             \
    PLAIN_OP(COPY, V, K), OPS_HEAD_NORM, NORM_V, OPS_ROPE, OPS_ATTENDED
#define OPS_SHARED_KV NORM(N, X, NORM_ATTN), LINEAR(Q, N, Q, ATTN_IN), OPS_TAKEN_KV
/* Engines load q, k and v as one matrix, so the part that is not read is quantized as well. */
#define OPS_UNUSED_KV OPS_QKV, OPS_TAKEN_KV
#define OPS_TAKEN_KV                                                                       \
    HEAD_NORM(Q, NORM_Q), PLAIN_OP(ROPE, Q, Q), TAKE_KV, ATTENTION(NO_SLOT), OPS_O,        \
    NORM(T, T, NORM_AFTER_ATTN), OPS_TO_MLP

#define OPS_DENSE OPS_GATED(N), NORM(T, T, NORM_AFTER_MLP), OPS_ADD
/* The router reads the residual stream by a norm without a weight, times a vector. */
#define OPS_SPARSE                                                                         \
    LINEAR(SHARED_G, N, SHARED_GATE, SHARED_IN), LINEAR(SHARED_U, N, SHARED_UP, SHARED_IN), \
    PLAIN_OP(GLU, SHARED_G, SHARED_U),                                                     \
    LINEAR(M, SHARED_G, SHARED_DOWN, SHARED_DOWN_IN), NORM(M, M, NORM_DENSE_OUT),          \
    NORM(R, X, ROUTER_NORM), PLAIN_OP(ROUTE, R, R), NORM(N, X, NORM_EXPERTS), ROUTED(MOE), \
    NORM(T, T, NORM_EXPERTS_OUT), PLAIN_OP(ADD, T, M), NORM(T, T, NORM_AFTER_MLP), OPS_ADD
#define OPS_END {SW_OP_SCALE, SW_BUF_X, SW_BUF_X, SW_SLOT_LAYER_SCALE, NO_SITE}

static const sw_op ops_own[] = {OPS_OWN_V, OPS_DENSE, OPS_END};
static const sw_op ops_own_moe[] = {OPS_OWN_V, OPS_SPARSE, OPS_END};
static const sw_op ops_own_side[] = {OPS_OWN_V, OPS_DENSE, OPS_SIDE, OPS_END};
static const sw_op ops_own_side_moe[] = {OPS_OWN_V, OPS_SPARSE, OPS_SIDE, OPS_END};
static const sw_op ops_same[] = {OPS_K_AS_V, OPS_DENSE, OPS_END};
static const sw_op ops_same_moe[] = {OPS_K_AS_V, OPS_SPARSE, OPS_END};
static const sw_op ops_same_side[] = {OPS_K_AS_V, OPS_DENSE, OPS_SIDE, OPS_END};
static const sw_op ops_same_side_moe[] = {OPS_K_AS_V, OPS_SPARSE, OPS_SIDE, OPS_END};
static const sw_op ops_shared[] = {OPS_SHARED_KV, OPS_DENSE, OPS_END};
static const sw_op ops_shared_moe[] = {OPS_SHARED_KV, OPS_SPARSE, OPS_END};
static const sw_op ops_shared_side[] = {OPS_SHARED_KV, OPS_DENSE, OPS_SIDE, OPS_END};
static const sw_op ops_shared_side_moe[] = {OPS_SHARED_KV, OPS_SPARSE, OPS_SIDE, OPS_END};
static const sw_op ops_unused[] = {OPS_UNUSED_KV, OPS_DENSE, OPS_END};
static const sw_op ops_unused_moe[] = {OPS_UNUSED_KV, OPS_SPARSE, OPS_END};
static const sw_op ops_unused_side[] = {OPS_UNUSED_KV, OPS_DENSE, OPS_SIDE, OPS_END};
static const sw_op ops_unused_side_moe[] = {OPS_UNUSED_KV, OPS_SPARSE, OPS_SIDE, OPS_END};

#define SIDE(kind) [SW_KIND_WITH_SIDE + SW_KIND_##kind]
const sw_kinds sw_kinds_gemma4 = {{
    [SW_KIND_OWN_V] = {PROGRAM(ops_own), PROGRAM(ops_own_moe)},
    [SW_KIND_K_AS_V] = {PROGRAM(ops_same), PROGRAM(ops_same_moe)},
    [SW_KIND_SHARED_KV] = {PROGRAM(ops_shared), PROGRAM(ops_shared_moe)},
    [SW_KIND_UNUSED_KV] = {PROGRAM(ops_unused), PROGRAM(ops_unused_moe)},
    SIDE(OWN_V) = {PROGRAM(ops_own_side), PROGRAM(ops_own_side_moe)},
    SIDE(K_AS_V) = {PROGRAM(ops_same_side), PROGRAM(ops_same_side_moe)},
    SIDE(SHARED_KV) = {PROGRAM(ops_shared_side), PROGRAM(ops_shared_side_moe)},
    SIDE(UNUSED_KV) = {PROGRAM(ops_unused_side), PROGRAM(ops_unused_side_moe)},
}};

/* Gemma 3n: copies of the residual stream are guessed before a layer runs on the first of them,
 * and corrected by what it has made (AltUp, Baykal et al. 2023); beside attention runs a low-rank
 * path. */
#define OPS_GUESS                                                                          \
    PLAIN_OP(PREDICT, X, X), NORM(N, X, NORM_ATTN), PLAIN_OP(LOW_RANK, M, N),              \
    NORM(M, M, NORM_LOW_RANK), PLAIN_OP(ADD, M, N)
#define OPS_KEPT ATTENTION(NO_SLOT), KEEP_KV, OPS_O, NORM(T, T, NORM_AFTER_ATTN)
#define OPS_LEARN                                                                          \
    PLAIN_OP(ADD, T, M), OPS_ADD, PLAIN_OP(HALVE, X, X), NORM(N, X, NORM_MLP),             \
    LINEAR(G, N, GATE, MLP_IN), LINEAR(U, N, UP, MLP_IN), PLAIN_OP(CUT, G, G),             \
    PLAIN_OP(GLU, G, U), LINEAR(T, G, DOWN, DOWN_IN), NORM(T, T, NORM_AFTER_MLP), OPS_ADD, \
    PLAIN_OP(CORRECT, X, X), PLAIN_OP(COPY, N, X),                                         \
    {SW_OP_MUL_VECTOR, SW_BUF_N, SW_BUF_N, SW_SLOT_COPY_SCALE, NO_SITE},                   \
    PLAIN_OP(SIDE_INPUT, T, N), NORM(T, T, NORM_SIDE), PLAIN_OP(ADD_COPIES, X, T),         \
    PLAIN_OP(MERGE, X, X)
static const sw_op ops_3n_own[] = {
    OPS_GUESS, OPS_LINEAR_QKV(N), OPS_HEAD_NORM, NORM_V, OPS_ROPE, OPS_KEPT, OPS_LEARN,
};
static const sw_op ops_3n_shared[] = {
    OPS_GUESS, LINEAR(Q, N, Q, ATTN_IN), HEAD_NORM(Q, NORM_Q), PLAIN_OP(ROPE, Q, Q), TAKE_KV,
    ATTENTION(NO_SLOT), OPS_O, NORM(T, T, NORM_AFTER_ATTN), OPS_LEARN,
};
static const sw_op ops_3n_unused[] = {
    OPS_GUESS, OPS_LINEAR_QKV(N), HEAD_NORM(Q, NORM_Q), PLAIN_OP(ROPE, Q, Q), TAKE_KV,
    ATTENTION(NO_SLOT), OPS_O, NORM(T, T, NORM_AFTER_ATTN), OPS_LEARN,
};
const sw_kinds sw_kinds_gemma3n = {{
    [SW_KIND_OWN_V] = {PROGRAM(ops_3n_own), NO_PROGRAM},
    [SW_KIND_SHARED_KV] = {PROGRAM(ops_3n_shared), NO_PROGRAM},
    [SW_KIND_UNUSED_KV] = {PROGRAM(ops_3n_unused), NO_PROGRAM},
}};

const sw_stored_kind sw_stored_kinds[] = {
    {&sw_kinds_gemma3n, SW_KIND_SHARED_KV, SW_SLOT_V, SW_KIND_UNUSED_KV},
    {&sw_kinds_gemma4, SW_KIND_SHARED_KV, SW_SLOT_V, SW_KIND_UNUSED_KV},
    {&sw_kinds_gemma4, SW_KIND_WITH_SIDE + SW_KIND_SHARED_KV, SW_SLOT_V,
     SW_KIND_WITH_SIDE + SW_KIND_UNUSED_KV},
};
const int sw_n_stored_kinds = N_OPS(sw_stored_kinds);
