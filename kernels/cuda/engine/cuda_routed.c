/* cuda_routed.c - a sparse feed-forward layer of the engine by the grouped products of experts/:
 * all of it on the device, for any number of tokens. See cuda_moe.c for what it takes the place
 * of. Where the router's weights scale what experts read, each pair of a token and an expert has a
 * row of its own, and counts as a token with one expert. */
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/experts/routed.h"

/* The layer as these products want it; whether there are any for its weights. */
static bool is_routed(sw_routed *out, sw_routed_plan *plan, const sw_device_block *b,
                      int64_t n_tokens, sw_bf16_rows dst, sw_bf16_rows src, bool adds)
{
    const sw_device_engine *e = b->e;
    const sw_model *m = e->m;
    sw_err unsupported = {0};

    if (!b->d_experts[0] || !b->d_experts[1] || b->is_expert_ungated ||
        !b->experts[0][0].tiles.codes ||
        !b->experts[2][0].tiles.codes)
        return false;
    *out = (sw_routed){.n_tokens = n_tokens, .n_experts = (int)m->n_experts,
                       .top_k = e->moe.d_in_share ? 1 : (int)m->n_experts_used, .x = src, .y = dst,
                       .adds = adds,
                       .chosen = e->moe.d_chosen, .share = e->moe.d_share,
                       .act_of_x = b->experts[0][0].act, .up = b->experts[0][0].tiles,
                       .down = b->experts[2][0].tiles, .ups = b->d_experts[0],
                       .downs = b->d_experts[1], .act = (int)m->act,
                       .limit = (float)m->act_limit, .flags = e->moe.d_flags,
                       .may_overlap = e->how.overlaps};
    out->up.n_out = b->experts[0][0].n_out;
    return b->experts[0][0].act.scope == b->experts[2][0].act.scope &&
           sw_routed_plan_for(plan, out, &e->device, 0, &unsupported) == SW_OK;
}

bool sw_device_routed_can(const sw_device_block *b)
{
    const sw_bf16_rows x = b->e->buf[SW_BUF_N];
    sw_routed_plan plan;
    sw_routed p;

    return is_routed(&p, &plan, b, 1, x, x, false);
}

sw_code sw_device_run_routed(sw_device_run *run, sw_bf16_rows dst, sw_bf16_rows src, bool adds,
                             sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_model *m = e->m;
    const bool is_spread = e->moe.d_in_share != NULL;
    const sw_bf16_rows out = {e->moe.d_out, m->moe_hidden};
    const int64_t n_pairs = run->n_tokens * m->n_experts_used;
    const sw_combine_args sum = {.dst = dst, .rows = out, .chosen = e->moe.d_chosen,
                                 .share = e->moe.d_share, .n = run->n_tokens,
                                 .width = m->moe_hidden, .n_used = (int)m->n_experts_used,
                                 .adds = adds};
    sw_routed_plan plan;
    sw_routed p;
    sw_code rc;

    if (!is_routed(&p, &plan, run->block, is_spread ? n_pairs : run->n_tokens,
                   is_spread ? out : dst, src, adds && !is_spread))
        return SW_FAIL(err, SW_E_BUG, "experts that no grouped product takes");
    rc = sw_device_grow_work(e, (int64_t)sw_routed_workspace_bytes(&p, &plan), err);
    if (rc == SW_OK) rc = sw_routed_run(&p, &plan, e->d_gemm_work, e->how.stream, err);
    return rc == SW_OK && is_spread ? sw_cuda_combine(&sum, e->how, err) : rc;
}
