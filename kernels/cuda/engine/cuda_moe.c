/* cuda_moe.c - a sparse feed-forward layer on the device. Routing is done on the device; then
 * grouped products take all of it where there are some for its weights (cuda_routed.c). Elsewhere,
 * and where a tap wants to see rows, a step of few tokens runs a product for each pair of a token
 * and one of its experts, and more tokens are listed by expert, one product an expert.
 * See kernels/engine/moe.c for what it computes. */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "kernels/cuda/experts/routed.h"

sw_code sw_device_moe_new(sw_device_engine *e, sw_err *err)
{
    const sw_model *m = e->m;
    const int64_t n = e->max_tokens, n_used = n * m->n_experts_used;
    const int64_t flags_bytes = (int64_t)sw_routed_flags_bytes(&e->device);
    sw_device_store *s = &e->store;
    sw_device_moe *moe = &e->moe;
    sw_moe_scratch *host = &moe->host;
    sw_code rc;

    if (m->moe_intermediate % 8 || m->moe_hidden % 8)
        return SW_FAIL(err, SW_E_UNSUPPORTED, "experts of %lld and %lld; on the device they are "
                       "multiples of 8; use --device cpu", (long long)m->moe_hidden,
                       (long long)m->moe_intermediate);
    if (m->router == SW_ROUTER_INPUT &&
        ((rc = SW_STORE_TAKE(&moe->d_in_share, s, n_used, "expert weights", err)) != SW_OK ||
         (rc = SW_STORE_TAKE(&moe->d_scaled, s, n * m->moe_hidden, "expert inputs", err)) != SW_OK))
        return rc;
    if ((rc = SW_STORE_TAKE(&moe->d_logits, s, n * m->n_experts, "router", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_chosen, s, n_used, "chosen experts", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_share, s, n_used, "expert weights", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_tokens, s, n_used, "routed tokens", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_token_share, s, n_used, "routed weights", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_flags, s, flags_bytes / 4, "expert flags", err)) != SW_OK ||
        (rc = sw_device_fill(e->gpu, moe->d_flags, 0, flags_bytes, err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_sum, s, n * m->moe_hidden, "expert sums", err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_rows, s, n_used * m->moe_hidden, "expert inputs", err)) ||
        (rc = SW_STORE_TAKE(&moe->d_out, s, n_used * m->moe_hidden, "expert outputs", err)) ||
        (rc = SW_STORE_TAKE(&moe->d_gate, s, n_used * 2 * m->moe_intermediate, "expert gates",
                            err)) != SW_OK ||
        (rc = SW_STORE_TAKE(&moe->d_counts, s, 2 * m->n_experts, "expert counts", err)) != SW_OK ||
        (rc = SW_MEM_GET(&moe->counts, 2 * m->n_experts, "expert counts", err)) != SW_OK ||
        (rc = SW_MEM_GET(&host->tokens, n_used, "routed tokens", err)) != SW_OK)
        return rc;
    return SW_MEM_GET(&host->starts, m->n_experts + 1, "expert starts", err);
}

sw_code sw_device_run_router(sw_device_run *run, sw_bf16_rows src, sw_err *err)
{
    sw_device_engine *e = run->e;

    return sw_device_linear(e, e->moe.d_logits, e->m->n_experts, true, src, run->n_tokens,
                            &run->block->linear[SW_SLOT_ROUTER], err);
}

/* The experts of each token out of the router's logits; of `src`, unless they are there. */
static sw_code choose(sw_device_run *run, sw_bf16_rows src, bool is_routed, sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_model *m = e->m;
    const bool has_ids = m->keeps_token_ids;
    const sw_f32_rows ids = sw_device_side_rows(e, has_ids ? sw_model_side_of_token(m) : 0);
    const sw_device_weight *router = &run->block->linear[SW_SLOT_ROUTER];
    const bool multiplies = !is_routed && router->d_dense &&
                            sw_cuda_route_can_multiply(run->n_tokens, router->k_in);
    const sw_route_args a = {.logits = e->moe.d_logits, .x = src,
                             .w = multiplies ? router->d_dense : NULL,
                             .bias = router->d_bias, .k_in = router->k_in,
                             .shift = run->block->norm[SW_SLOT_ROUTER_SHIFT],
                             .expert_scale = run->block->norm[SW_SLOT_EXPERT_SCALE],
                             .chosen = e->moe.d_chosen, .share = e->moe.d_share,
                             .in_share = e->moe.d_in_share,
                             .n = run->n_tokens, .n_experts = (int)m->n_experts,
                             .n_used = (int)m->n_experts_used,
                             .n_groups = (int)m->n_expert_groups,
                             .n_groups_used = (int)m->n_groups_used,
                             .router = (int)m->router, .table = run->block->token_experts,
                             .ids = ids.d, .ids_stride = ids.stride,
                             .norm_topk = m->norm_topk, .logit_scale = (float)m->router_scale,
                             .share_floor = (float)m->route_floor,
                             .route_scale = (float)m->route_scale};
    sw_code rc = SW_OK;

    if (!is_routed && !multiplies) rc = sw_device_run_router(run, src, err);
    return rc == SW_OK ? sw_cuda_route(&a, e->how, err) : rc;
}

/* Where the pairs of each expert begin. */
static void add_up(int64_t *starts, const int32_t *counts, int64_t n_experts)
{
    starts[0] = 0;
    for (int64_t x = 0; x < n_experts; x++)
        starts[x + 1] = starts[x] + counts[2 * x] + counts[2 * x + 1];
}

/* Tokens by expert, and within each by the half that a tap asks for; token order stays. The host
 * hears how many there are, and a tap which. */
static sw_code list_tokens(sw_device_run *run, sw_err *err)
{
    sw_device_engine *e = run->e;
    sw_device_moe *moe = &e->moe;
    const sw_device_tap *tap = run->tap;
    const int64_t n = run->n_tokens * e->m->n_experts_used;
    const sw_list_args a = {.chosen = moe->d_chosen,
                            .share = moe->d_in_share ? moe->d_in_share : moe->d_share,
                            .tokens = moe->d_tokens, .token_share = moe->d_token_share,
                            .counts = moe->d_counts, .n_pairs = n,
                            .first_token = tap ? tap->first_token : 0,
                            .stretch = tap ? tap->stretch : 0,
                            .n_used = (int)e->m->n_experts_used,
                            .n_experts = (int)e->m->n_experts};
    sw_code rc = sw_cuda_list(&a, e->how, err);

    if (rc == SW_OK && tap)
        rc = sw_device_download(e->gpu, moe->host.tokens, moe->d_tokens, n * 4, err);
    if (rc == SW_OK)
        rc = sw_device_download(e->gpu, moe->counts, moe->d_counts, 2 * e->m->n_experts * 4, err);
    if (rc == SW_OK) add_up(moe->host.starts, moe->counts, e->m->n_experts);
    return rc;
}

static sw_code show(const sw_device_run *run, sw_site site, int64_t expert, sw_bf16_rows x,
                    int64_t n, int64_t k_in, const int32_t *tokens, sw_err *err)
{
    if (!run->tap) return SW_OK;
    return run->tap->see(run->tap->self, site, expert, x.d, n, k_in, x.stride, tokens, err);
}

/* gate = what `down` of expert x reads of these n rows. */
static sw_code make_gate(sw_device_run *run, int64_t x, sw_bf16_rows gate, sw_bf16_rows rows,
                         int64_t n, sw_err *err)
{
    sw_device_engine *e = run->e;
    const int64_t wide = e->m->moe_intermediate;
    sw_device_weight *const *w = run->block->experts;
    const sw_bf16_rows up = {gate.d + wide, gate.stride};
    const sw_act_args act = {.g = gate, .u = run->block->is_expert_ungated ? (sw_bf16_rows){0} : up,
                             .n = n, .width = wide, .act = (int)e->m->act,
                             .limit = (float)e->m->act_limit};
    sw_code rc = sw_device_linear(e, gate.d, gate.stride, false, rows, n, &w[0][x], err);

    if (rc == SW_OK && !run->block->is_expert_fused)
        rc = sw_device_linear(e, up.d, up.stride, false, rows, n, &w[1][x], err);
    return rc == SW_OK ? sw_cuda_act(&act, e->how, err) : rc;
}

/* Rows 0, all_every, ... of the batch through expert x, whether they are routed to it or not. */
static sw_code show_all(sw_device_run *run, int64_t x, sw_bf16_rows src, sw_err *err)
{
    const sw_device_tap *tap = run->tap;
    const int64_t wide = run->e->m->moe_intermediate;
    const int64_t n = sw_ceil_div(run->n_tokens, tap->all_every);
    const sw_device_moe *moe = &run->e->moe;
    const sw_model *m = run->e->m;
    const sw_bf16_rows gate = {moe->d_gate, 2 * wide};
    sw_bf16_rows rows = {src.d, src.stride * tap->all_every};
    sw_code rc = SW_OK;

    if (moe->d_in_share) {
        const sw_bf16_rows scaled = {moe->d_scaled, m->moe_hidden};

        rc = sw_cuda_scale_by_logit(scaled, rows, moe->d_logits + x, m->n_experts * tap->all_every,
                                    n, m->moe_hidden, run->e->how, err);
        rows = scaled;
    }
    if (rc == SW_OK) rc = make_gate(run, x, gate, rows, n, err);
    return rc == SW_OK ? tap->see_all(tap->self, x, gate.d, n, wide, gate.stride, err) : rc;
}

/* Rows [start, start + n) of the sorted ones through their expert. */
static sw_code run_expert(sw_device_run *run, int64_t x, int64_t start, int64_t n, sw_err *err)
{
    sw_device_engine *e = run->e;
    const int64_t hidden = e->m->moe_hidden, wide = e->m->moe_intermediate;
    const float *shares = e->moe.d_in_share ? e->moe.d_share /* ones */ : e->moe.d_token_share;
    const sw_bf16_rows rows = {e->moe.d_rows + start * hidden, hidden};
    const sw_bf16_rows gate = {e->moe.d_gate + start * 2 * wide, 2 * wide};
    const sw_bf16_rows out = {e->moe.d_out + start * hidden, hidden};
    const int32_t *tokens = e->moe.host.tokens + start;
    sw_code rc = show(run, SW_SITE_MLP_IN, x, rows, n, hidden, tokens, err);

    if (rc != SW_OK || (run->stop_at == SW_SITE_DOWN_IN && run->tap && run->tap->is_in_only))
        return rc;
    if ((rc = make_gate(run, x, gate, rows, n, err)) != SW_OK ||
        (rc = show(run, SW_SITE_DOWN_IN, x, gate, n, wide, tokens, err)) != SW_OK ||
        run->stop_at == SW_SITE_DOWN_IN)
        return rc;
    rc = sw_device_linear(e, out.d, out.stride, false, gate, n, &run->block->experts[2][x], err);
    if (rc != SW_OK) return rc;
    return sw_cuda_scatter(e->moe.d_sum, out, e->moe.d_tokens + start, shares + start, n, hidden,
                           e->how, err);
}

/* A run up to what downs read runs those alone that the tap asks for. */
static bool is_asked_for(const sw_device_run *run, int64_t x)
{
    const sw_device_tap *tap = run->tap;

    return !tap || !tap->expert_end || run->stop_at != SW_SITE_DOWN_IN ||
           (x >= tap->expert_begin && x < tap->expert_end);
}

/* ---- few tokens: all on the device ---- */

#define PAIRS_MAX 64 /* of token and expert, each of which reads its expert's weights by itself */

/* The product of every pair with its expert: gates and ups, or downs. */
static sw_fused_args product_of(const sw_device_engine *e, const sw_device_block *b, bool is_down,
                                sw_bf16_rows rows, int64_t n_tokens)
{
    const sw_model *m = e->m;
    const sw_device_weight *w = &b->experts[is_down ? 2 : 0][0];
    sw_fused_args a = {.rows = rows,
                       .tiles = w->tiles,
                       .n = 1,
                       .n_sms = e->device.n_sms,
                       .sm = e->device.sm,
                       .act_of_x = w->act,
                       .act = (int)m->act,
                       .limit = (float)m->act_limit,
                       .experts = b->d_experts[is_down],
                       .chosen = e->moe.d_chosen,
                       .n_pairs = n_tokens * m->n_experts_used,
                       .pairs_per_row = is_down || e->moe.d_in_share ? 1 : m->n_experts_used};

    a.tiles.n_out = w->n_out;
    a.tiles.k_in = w->k_in;
    a.out = is_down || b->is_expert_ungated ? SW_FUSED_STORE : SW_FUSED_GLU;
    a.y = is_down ? (sw_bf16_rows){e->moe.d_out, m->moe_hidden}
                  : (sw_bf16_rows){e->moe.d_gate, m->moe_intermediate};
    return a;
}

bool sw_device_moe_stays(const sw_device_block *b, int64_t n_tokens)
{
    const sw_device_engine *e = b->e;
    sw_fused_args up, down;

    if (!b->experts[0] || sw_device_routed_can(b)) return true;
    if (!b->d_experts[0] || !b->d_experts[1] || n_tokens * e->m->n_experts_used > PAIRS_MAX)
        return false;
    up = product_of(e, b, false, e->buf[SW_BUF_N], n_tokens);
    down = product_of(e, b, true, up.y, n_tokens);
    return sw_cuda_experts_can(&up) && sw_cuda_experts_can(&down);
}

/* What experts read, a row for each pair, where the router's weights scale it. */
static sw_code spread(sw_bf16_rows *rows, sw_device_run *run, sw_bf16_rows src, sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_model *m = e->m;

    *rows = src;
    if (!e->moe.d_in_share) return SW_OK;
    *rows = (sw_bf16_rows){e->moe.d_rows, m->moe_hidden};
    return sw_cuda_spread(*rows, src, e->moe.d_in_share, (int)m->n_experts_used, run->n_tokens,
                          m->moe_hidden, e->how, err);
}

static sw_code run_on_device(sw_device_run *run, sw_bf16_rows dst, sw_bf16_rows src, bool adds,
                             sw_err *err)
{
    sw_device_engine *e = run->e;
    const sw_model *m = e->m;
    sw_fused_args up = product_of(e, run->block, false, src, run->n_tokens);
    const sw_fused_args down = product_of(e, run->block, true, up.y, run->n_tokens);
    const sw_act_args act = {.g = up.y, .n = up.n_pairs, .width = m->moe_intermediate,
                             .act = (int)m->act, .limit = (float)m->act_limit};
    const sw_combine_args sum = {.dst = dst, .rows = down.y, .chosen = e->moe.d_chosen,
                                 .share = e->moe.d_share, .n = run->n_tokens,
                                 .width = m->moe_hidden, .n_used = (int)m->n_experts_used,
                                 .adds = adds};
    sw_code rc;

    if ((rc = spread(&up.rows, run, src, err)) != SW_OK ||
        (rc = sw_cuda_experts(&up, e->how, err)) != SW_OK)
        return rc;
    if (run->block->is_expert_ungated && (rc = sw_cuda_act(&act, e->how, err)) != SW_OK) return rc;
    if ((rc = sw_cuda_experts(&down, e->how, err)) != SW_OK) return rc;
    return sw_cuda_combine(&sum, e->how, err);
}

/* The listed rows of the experts that are asked for, which lie beside each other. */
static sw_code gather_asked(sw_device_run *run, sw_bf16_rows src, sw_err *err)
{
    const sw_device_moe *moe = &run->e->moe;
    const int64_t hidden = run->e->m->moe_hidden, n_experts = run->e->m->n_experts;
    int64_t begin = 0, end = n_experts, first, n;

    while (begin < n_experts && !is_asked_for(run, begin)) begin++;
    while (end > begin && !is_asked_for(run, end - 1)) end--;
    first = moe->host.starts[begin];
    n = moe->host.starts[end] - first;
    if (!n) return SW_OK;
    return sw_cuda_gather((sw_bf16_rows){moe->d_rows + first * hidden, hidden}, src,
                          moe->d_tokens + first,
                          moe->d_in_share ? moe->d_token_share + first : NULL, n, hidden,
                          run->e->how, err);
}

/* By lists: a product for each expert. */
static sw_code run_listed(sw_device_run *run, sw_bf16_rows dst, sw_bf16_rows src, bool adds,
                          sw_err *err)
{
    sw_device_engine *e = run->e;
    const int64_t hidden = e->m->moe_hidden;
    const int64_t *starts = e->moe.host.starts;
    sw_code rc;

    if ((rc = list_tokens(run, err)) != SW_OK || (rc = gather_asked(run, src, err)) != SW_OK)
        return rc;
    if (run->stop_at != SW_SITE_DOWN_IN)
        rc = sw_device_fill(e->gpu, e->moe.d_sum, 0, run->n_tokens * hidden * 4, err);
    for (int64_t x = 0; x < e->m->n_experts && rc == SW_OK; x++) {
        if (!is_asked_for(run, x)) continue;
        if (run->tap && run->tap->see_all) rc = show_all(run, x, src, err);
        if (rc == SW_OK && starts[x + 1] > starts[x])
            rc = run_expert(run, x, starts[x], starts[x + 1] - starts[x], err);
    }
    if (rc != SW_OK || run->stop_at == SW_SITE_DOWN_IN) return rc;
    return sw_cuda_to_bf16(dst, e->moe.d_sum, adds ? dst : (sw_bf16_rows){0}, run->n_tokens, hidden,
                           e->how, err);
}

sw_code sw_device_run_moe(sw_device_run *run, sw_bf16_rows dst, sw_bf16_rows src, bool adds,
                          bool is_routed, sw_err *err)
{
    sw_code rc = choose(run, src, is_routed, err);

    if (rc != SW_OK) return rc;
    if (!run->tap && run->stop_at != SW_SITE_DOWN_IN && sw_device_routed_can(run->block)) {
        if ((rc = spread(&src, run, src, err)) != SW_OK) return rc;
        return sw_device_run_routed(run, dst, src, adds, err);
    }
    if (run->is_decode && sw_device_moe_stays(run->block, run->n_tokens))
        return run_on_device(run, dst, src, adds, err);
    return run_listed(run, dst, src, adds, err);
}
