/* programs_streams.c - the block programs of DeepSeek-V4: several residual streams, near keys and
 * compressed ones. See programs.h.
 */
#include "formats/model/programs.h"

#define STREAMS(kind, dst, src, slot) {SW_OP_##kind, SW_BUF_##dst, SW_BUF_##src, slot, NO_SITE}
#define OPS_NEAR_FAR                                                                       \
    STREAMS(MIX_STREAMS, M, X, SW_SLOT_HYPER_ATTN), NORM(N, M, NORM_ATTN),                 \
    LINEAR(Q_A, N, Q_A, ATTN_IN), NORM(Q_A, Q_A, NORM_Q_A), LINEAR(Q, Q_A, Q_B, Q_B_IN),   \
    {SW_OP_HEAD_NORM, SW_BUF_Q, SW_BUF_Q, NO_SLOT, NO_SITE}, LINEAR(K, N, K, ATTN_IN),     \
    NORM(K, K, NORM_K_ROW), OPS_ROPE,                                                      \
    {SW_OP_NEAR_FAR, SW_BUF_A, SW_BUF_Q, SW_SLOT_SINKS, NO_SITE},                          \
    {SW_OP_GROUP_LINEAR, SW_BUF_O_RANK, SW_BUF_A, SW_SLOT_O_A, NO_SITE},                   \
    LINEAR(T, O_RANK, O, O_IN), STREAMS(ADD_STREAMS, X, T, NO_SLOT)
#define OPS_STREAMS_MOE                                                                    \
    OPS_SHARED, ROUTED(MOE_ADD), STREAMS(ADD_STREAMS, X, T, NO_SLOT),                      \
    PLAIN_OP(MERGE_STREAMS, X, X)
#define OPS_STREAMS_TO_MLP STREAMS(MIX_STREAMS, M, X, SW_SLOT_HYPER_MLP), NORM(N, M, NORM_MLP)
#define BY_TOKEN {SW_OP_ROUTE_TOKENS, SW_BUF_N, SW_BUF_N, SW_SLOT_TOKEN_EXPERTS, NO_SITE}

static const sw_op ops_scored[] = {OPS_NEAR_FAR, OPS_STREAMS_TO_MLP, OPS_STREAMS_MOE};
static const sw_op ops_by_token[] = {OPS_NEAR_FAR, OPS_STREAMS_TO_MLP, BY_TOKEN,
                                     OPS_STREAMS_MOE};

/* What keys a layer has is told by its kind alone (sw_model_compress_rate). */
const sw_kinds sw_kinds_deepseek_v4 = {{
    [SW_KIND_NEAR] = {NO_PROGRAM, PROGRAM(ops_scored)},
    [SW_KIND_FAR_CHOSEN] = {NO_PROGRAM, PROGRAM(ops_scored)},
    [SW_KIND_FAR] = {NO_PROGRAM, PROGRAM(ops_scored)},
    [SW_KIND_BY_TOKEN + SW_KIND_NEAR] = {NO_PROGRAM, PROGRAM(ops_by_token)},
    [SW_KIND_BY_TOKEN + SW_KIND_FAR_CHOSEN] = {NO_PROGRAM, PROGRAM(ops_by_token)},
    [SW_KIND_BY_TOKEN + SW_KIND_FAR] = {NO_PROGRAM, PROGRAM(ops_by_token)},
}};
