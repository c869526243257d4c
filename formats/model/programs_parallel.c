/* programs_parallel.c - the block programs of decoders with layer norms, some of which run
 * attention and MLP beside each other. See programs.h.
 */
#include "formats/model/programs.h"

#define OPS_MEAN_QKV MEAN_NORM(N, X, NORM_ATTN), OPS_LINEAR_QKV(N)
#define OPS_MEAN_TO_MLP OPS_ADD, MEAN_NORM(N, X, NORM_MLP)
#define HEAD_MEAN_NORM(dst, slot) \
    {SW_OP_HEAD_LAYER_NORM, SW_BUF_##dst, SW_BUF_##dst, SW_SLOT_##slot, NO_SITE}
#define OPS_HEAD_MEAN_NORM HEAD_MEAN_NORM(Q, NORM_Q), HEAD_MEAN_NORM(K, NORM_K)

static const sw_op ops_cohere_turned[] = {
    OPS_MEAN_QKV, OPS_ROPE, OPS_ATTEND, OPS_GATED_TO(M, N), OPS_ADD_BOTH,
};
static const sw_op ops_cohere_unturned[] = {
    OPS_MEAN_QKV, OPS_ATTEND, OPS_GATED_TO(M, N), OPS_ADD_BOTH,
};
static const sw_op ops_starcoder2[] = {
    OPS_MEAN_QKV, OPS_ROPE, OPS_ATTEND, OPS_MEAN_TO_MLP, OPS_UNGATED,
};
static const sw_op ops_stablelm[] = {
    OPS_MEAN_QKV, OPS_ROPE, OPS_ATTEND, OPS_MEAN_TO_MLP, OPS_MLP,
};
static const sw_op ops_stablelm_normed[] = {
    OPS_MEAN_QKV, OPS_HEAD_MEAN_NORM, OPS_ROPE, OPS_ATTEND, OPS_MEAN_TO_MLP, OPS_MLP,
};
static const sw_op ops_stablelm_parallel[] = {
    OPS_MEAN_QKV, OPS_ROPE, OPS_ATTEND, OPS_GATED_TO(M, N), OPS_ADD_BOTH,
};
static const sw_op ops_stablelm_parallel_normed[] = {
    OPS_MEAN_QKV, OPS_HEAD_MEAN_NORM, OPS_ROPE, OPS_ATTEND, OPS_GATED_TO(M, N), OPS_ADD_BOTH,
};
static const sw_op ops_neox[] = {
    MEAN_NORM(N, X, NORM_ATTN), OPS_GROUPED_QKV(N), OPS_ROPE, OPS_ATTEND, OPS_MEAN_TO_MLP,
    OPS_UNGATED,
};
static const sw_op ops_neox_parallel[] = {
    MEAN_NORM(N, X, NORM_ATTN), OPS_GROUPED_QKV(N), OPS_ROPE, OPS_ATTEND,
    MEAN_NORM(N, X, NORM_MLP), OPS_UNGATED_TO(M, N), OPS_ADD_BOTH,
};
static const sw_op ops_falcon_parallel[] = {
    MEAN_NORM(N, X, NORM_ATTN), OPS_GROUPED_QKV(N), OPS_ROPE, OPS_ATTEND, OPS_UNGATED_TO(M, N),
    OPS_ADD_BOTH,
};
static const sw_op ops_falcon_two_norms[] = {
    MEAN_NORM(N, X, NORM_BRANCH_ATTN), OPS_GROUPED_QKV(N), OPS_ROPE, OPS_ATTEND,
    MEAN_NORM(N, X, NORM_BRANCH_MLP), OPS_UNGATED_TO(M, N), OPS_ADD_BOTH,
};
static const sw_op ops_bloom[] = {
    MEAN_NORM(N, X, NORM_ATTN), OPS_GROUPED_QKV(N), OPS_ATTEND, OPS_MEAN_TO_MLP, OPS_UNGATED,
};

const sw_kinds sw_kinds_cohere2 = {{
    [SW_KIND_TURNED] = {PROGRAM(ops_cohere_turned), NO_PROGRAM},
    [SW_KIND_UNTURNED] = {PROGRAM(ops_cohere_unturned), NO_PROGRAM},
}};
const sw_kinds sw_kinds_starcoder2 = {{{PROGRAM(ops_starcoder2), NO_PROGRAM}}};
const sw_kinds sw_kinds_stablelm = {{
    [SW_KIND_SERIAL] = {PROGRAM(ops_stablelm), NO_PROGRAM},
    [SW_KIND_PARALLEL] = {PROGRAM(ops_stablelm_parallel), NO_PROGRAM},
    [SW_KIND_WITH_HEAD_NORMS + SW_KIND_SERIAL] = {PROGRAM(ops_stablelm_normed), NO_PROGRAM},
    [SW_KIND_WITH_HEAD_NORMS + SW_KIND_PARALLEL] = {PROGRAM(ops_stablelm_parallel_normed),
                                                    NO_PROGRAM},
}};
const sw_kinds sw_kinds_gpt_neox = {{
    [SW_KIND_SERIAL] = {PROGRAM(ops_neox), NO_PROGRAM},
    [SW_KIND_PARALLEL] = {PROGRAM(ops_neox_parallel), NO_PROGRAM},
}};
const sw_kinds sw_kinds_falcon = {{
    [SW_KIND_SERIAL] = {PROGRAM(ops_neox), NO_PROGRAM},
    [SW_KIND_PARALLEL] = {PROGRAM(ops_falcon_parallel), NO_PROGRAM},
    [SW_KIND_PARALLEL_TWO_NORMS] = {PROGRAM(ops_falcon_two_norms), NO_PROGRAM},
}};
const sw_kinds sw_kinds_bloom = {{{PROGRAM(ops_bloom), NO_PROGRAM}}};
