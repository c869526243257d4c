/* programs_sparse.c - the block programs of decoders with routed experts. See programs.h. */
#include "formats/model/programs.h"

static const sw_op ops_bare[] = {OPS_QKV, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_bare_shared[] = {OPS_QKV, OPS_ATTENTION, OPS_SHARED_MOE};
static const sw_op ops_bare_moe[] = {OPS_QKV, OPS_ATTENTION, OPS_MOE};
static const sw_op ops_normed[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_MLP};
static const sw_op ops_normed_shared[] = {OPS_QKV, OPS_HEAD_NORM, OPS_ATTENTION, OPS_SHARED_MOE};
static const sw_op ops_row_norm_moe[] = {OPS_QKV, OPS_ROW_NORM, OPS_ATTENTION, OPS_MOE};
static const sw_op ops_clipped_moe[] = {
    OPS_QKV, OPS_ROW_NORM, PLAIN_OP(CLIP, Q, Q), PLAIN_OP(CLIP, K, K), PLAIN_OP(CLIP, V, V),
    OPS_ATTENTION, OPS_MOE,
};
/* The shared expert's output by a gate that reads what it reads. */
static const sw_op ops_gated_shared[] = {
    OPS_QKV, OPS_ATTENTION, OPS_SHARED,
    {SW_OP_ROW_GATE, SW_BUF_T, SW_BUF_N, SW_SLOT_SHARED_ROUTER, NO_SITE},
    ROUTED(MOE_ADD), OPS_ADD,
};
static const sw_op ops_norm_turned_moe[] = {
    OPS_QKV, OPS_ROPE, OPS_HEAD_NORM, OPS_ATTEND, OPS_TO_MLP, OPS_SHARED_MOE,
};

#define HEAD_NORM_ALONE(buf) {SW_OP_HEAD_NORM, SW_BUF_##buf, SW_BUF_##buf, NO_SLOT, NO_SITE}
#define OPS_CHUNK_NORMED                                                                   \
    OPS_QKV, OPS_ROPE, HEAD_NORM_ALONE(Q), HEAD_NORM_ALONE(K), OPS_ATTEND, OPS_TO_MLP
static const sw_op ops_chunk_normed[] = {OPS_CHUNK_NORMED, OPS_MLP};
static const sw_op ops_chunk_normed_moe[] = {OPS_CHUNK_NORMED, OPS_SHARED_MOE};
static const sw_op ops_all[] = {OPS_QKV, OPS_ATTEND, OPS_TO_MLP, OPS_MLP};
static const sw_op ops_all_moe[] = {OPS_QKV, OPS_ATTEND, OPS_TO_MLP, OPS_SHARED_MOE};
static const sw_op ops_all_tempered[] = {OPS_QKV, OPS_TEMPER, OPS_ATTEND, OPS_TO_MLP, OPS_MLP};
static const sw_op ops_all_tempered_moe[] = {
    OPS_QKV, OPS_TEMPER, OPS_ATTEND, OPS_TO_MLP, OPS_SHARED_MOE,
};

const sw_kinds sw_kinds_glm4_moe = {{
    [SW_KIND_BARE] = {PROGRAM(ops_bare), PROGRAM(ops_bare_shared)},
    [SW_KIND_NORMED] = {PROGRAM(ops_normed), PROGRAM(ops_normed_shared)},
}};
const sw_kinds sw_kinds_row_norm_moe = {{{NO_PROGRAM, PROGRAM(ops_row_norm_moe)}}};
const sw_kinds sw_kinds_gated_shared = {{{PROGRAM(ops_bare), PROGRAM(ops_gated_shared)}}};
const sw_kinds sw_kinds_clipped_moe = {{
    [SW_KIND_UNCLIPPED] = {NO_PROGRAM, PROGRAM(ops_row_norm_moe)},
    [SW_KIND_CLIPPED] = {NO_PROGRAM, PROGRAM(ops_clipped_moe)},
}};
const sw_kinds sw_kinds_shared_moe = {{
    [SW_KIND_ROUTED] = {PROGRAM(ops_bare), PROGRAM(ops_bare_moe)},
    [SW_KIND_SHARED] = {PROGRAM(ops_bare), PROGRAM(ops_bare_shared)},
}};
const sw_kinds sw_kinds_norm_turned_moe = {{{NO_PROGRAM, PROGRAM(ops_norm_turned_moe)}}};
const sw_kinds sw_kinds_llama4 = {{
    [SW_KIND_CHUNK] = {PROGRAM(ops_bare), PROGRAM(ops_bare_shared)},
    [SW_KIND_CHUNK_NORMED] = {PROGRAM(ops_chunk_normed), PROGRAM(ops_chunk_normed_moe)},
    [SW_KIND_ALL] = {PROGRAM(ops_all), PROGRAM(ops_all_moe)},
    [SW_KIND_ALL_TEMPERED] = {PROGRAM(ops_all_tempered), PROGRAM(ops_all_tempered_moe)},
}};
