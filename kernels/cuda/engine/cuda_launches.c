/* cuda_launches.c - the launches of a plan, one function a kind. See launch_plan.h for what each of
 * them does, engine_ops.h for the kernels.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"

_Static_assert(SW_LAUNCH_DECODE_DIM == SW_DECODE_DIM_MAX, "what the plan knows of the kernel");

static sw_bf16_rows buffer(const sw_device_run *run, sw_buf b) { return run->block->buf[b]; }

static const float *weight_in(const sw_device_run *run, sw_slot slot)
{
    return slot == SW_SLOT_COUNT ? NULL : run->block->norm[slot];
}

/* The input of a linear: as the caller has given it, dense, or in its buffer. */
static sw_bf16_rows input_of(const sw_device_run *run, const sw_planned_launch *l)
{
    if (!l->is_given) return buffer(run, l->src);
    return (sw_bf16_rows){(sw_bf16 *)(uintptr_t)run->d_given, run->block->linear[l->slot].k_in};
}

/* ---- the residual stream ---- */

static sw_code launch_sum(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_norm_args a = {.x = run->d_x, .add = buffer(run, l->src), .n = run->n_tokens,
                            .width = run->e->m->hidden, .eps = (float)run->e->m->norm_eps,
                            .factor = (float)run->e->m->residual_scale};

    return sw_cuda_norm(&a, run->e->how, err);
}

static sw_code launch_norm(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_model *m = run->e->m;
    const bool is_between = l->slot == SW_SLOT_NORM_Q_A || l->slot == SW_SLOT_NORM_KV_A;
    sw_norm_args a = {.dst = buffer(run, l->dst), .weight = run->block->norm[l->slot],
                      .bias = run->block->norm_bias[l->slot], .n = run->n_tokens,
                      .factor = (float)m->residual_scale,
                      .eps = (float)(is_between ? m->rank_norm_eps : m->norm_eps)};

    if (l->src == SW_BUF_X) {
        a.x = run->d_x;
        a.width = m->hidden;
    } else {
        a.src = buffer(run, l->src);
        a.width = run->block->width[l->src];
    }
    if (l->adds) a.add = buffer(run, SW_BUF_T);
    if (l->coded_for != SW_SLOT_COUNT) {
        sw_made_codes codes;
        const sw_code rc = sw_device_codes_for(&codes, run->e, run->n_tokens,
                                               &run->block->linear[l->coded_for], err);

        return rc == SW_OK ? sw_cuda_norm_codes(&a, &codes, run->e->how, err) : rc;
    }
    return sw_cuda_norm(&a, run->e->how, err);
}

static sw_code launch_to_bf16(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return sw_cuda_to_bf16(buffer(run, l->dst), run->d_x, (sw_bf16_rows){0}, run->n_tokens,
                           run->e->m->hidden, run->e->how, err);
}

/* ---- what a tap sees ---- */

/* Inputs of a linear, which a run that stops before it does without. */
static int64_t inputs_of(const sw_device_run *run, sw_slot slot)
{
    int64_t n_out, k_in = run->block->linear[slot].k_in;

    if (slot == SW_SLOT_ROUTER) return run->e->m->moe_hidden; /* the experts' */
    if (!k_in) sw_model_slot_shape(run->e->m, run->block->layer, slot, &n_out, &k_in);
    return k_in;
}

static sw_code launch_show(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_bf16_rows x = input_of(run, l);

    return run->tap->see(run->tap->self, l->site, -1, x.d, run->n_tokens, inputs_of(run, l->slot),
                         x.stride, NULL, err);
}

static sw_code launch_show_kv(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const int64_t *width = run->block->width;
    const sw_bf16_rows k = buffer(run, SW_BUF_K), v = buffer(run, SW_BUF_V);

    (void)l;
    return run->tap->see_kv(run->tap->self, k.d, k.stride, width[SW_BUF_K], v.d, v.stride,
                            width[SW_BUF_V], run->n_tokens, err);
}

/* ---- products ---- */

/* Of a weight that is BF16 rows. */
static sw_dense_args dense_args(const sw_device_run *run, const sw_planned_launch *l)
{
    const sw_device_weight *w = &run->block->linear[l->slot];
    sw_dense_args a = sw_device_dense_args(run->e, input_of(run, l), run->n_tokens, w);

    a.y = buffer(run, l->dst).d;
    a.y_stride = buffer(run, l->dst).stride;
    if (l->after == SW_AFTER_ADD) a.sum = run->d_x;
    if (l->norm != SW_SLOT_COUNT) {
        a.x = run->d_x;
        a.norm = run->block->norm[l->norm];
        a.eps = (float)run->e->m->norm_eps;
    }
    return a;
}

/* Steps of few tokens: the weights have been there since long before. */
static bool is_few(const sw_device_run *run, const sw_device_weight *w, const sw_dense_args *a)
{
    return run->is_decode && w->d_dense && w->act.scope == SW_ACT_NONE && sw_cuda_dense_can(a);
}

static sw_code launch_linear(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_bf16_rows y = buffer(run, l->dst);
    const sw_device_weight *w = &run->block->linear[l->slot];
    const sw_dense_args few = dense_args(run, l);

    if (l->after == SW_AFTER_GLU)
        return sw_device_gated_linear(run, y, input_of(run, l), l->has_codes, w, err);
    if (l->has_codes) return sw_device_coded_linear(run->e, y, run->n_tokens, w, err);
    if (is_few(run, w, &few)) return sw_cuda_dense(&few, run->e->how, err);
    return sw_device_linear(run->e, y.d, y.stride, false, input_of(run, l), run->n_tokens, w,
                            err);
}

static sw_fused_args fused_args(const sw_device_run *run, const sw_planned_launch *l)
{
    static const sw_fused_out outs[SW_AFTER_COUNT] = {
        [SW_AFTER_STORE] = SW_FUSED_STORE,
        [SW_AFTER_ADD] = SW_FUSED_ADD,
        [SW_AFTER_GLU] = SW_FUSED_GLU,
    };
    const sw_model *m = run->e->m;
    const sw_device_weight *w = &run->block->linear[l->slot];
    sw_fused_args a = {.rows = buffer(run, l->src),
                       .tiles = w->tiles,
                       .bias = w->d_bias,
                       .out = outs[l->after],
                       .y = buffer(run, l->dst),
                       .act = (int)m->act,
                       .limit = (float)m->act_limit,
                       .n = run->n_tokens,
                       .n_sms = run->e->device.n_sms,
                       .sm = run->e->device.sm,
                       .act_of_x = w->act,
                       .input_scale = w->input_scale,
                       .eps = (float)m->norm_eps};

    if (l->after == SW_AFTER_ADD) a.sum = run->d_x;
    if (l->norm != SW_SLOT_COUNT) {
        a.x = run->d_x;
        a.norm = run->block->norm[l->norm];
    }
    return a;
}

static sw_code launch_fused(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_fused_args a = fused_args(run, l);
    const sw_dense_args dense = dense_args(run, l);

    return a.tiles.codes ? sw_cuda_one(&a, run->e->how, err)
                         : sw_cuda_dense(&dense, run->e->how, err);
}

/* Gates and ups of bytes are faster by the kernel of several tokens, with the norm in a kernel of
 * its own: products of one token take E4M3 by way of F16, six instructions for each of them. */
static bool is_faster_apart(const sw_device_run *run, sw_slot slot, sw_launch_after after)
{
    return after == SW_AFTER_GLU && run->block->linear[slot].tiles.container_bits == 8 &&
           run->e->device.sm == 90 && sw_device_takes_glu(run, slot);
}

static bool can_fuse(const sw_device_run *run, const sw_planned_launch *l)
{
    const sw_device_weight *w = &run->block->linear[l->slot];
    const sw_fused_args a = fused_args(run, l);
    const sw_dense_args dense = dense_args(run, l);

    if (w->tiles.codes)
        return sw_cuda_one_can(&a) && !is_faster_apart(run, l->slot, l->after);
    return l->after != SW_AFTER_GLU && is_few(run, w, &dense);
}

uint8_t sw_device_fusable(const sw_device_run *run, sw_slot slot)
{
    sw_planned_launch l = {.dst = SW_BUF_T, .src = SW_BUF_N, .slot = slot};
    unsigned bits = 0;

    for (int after = 0; after < SW_AFTER_COUNT; after++)
        for (int has_norm = 0; has_norm < 2; has_norm++) {
            l.after = (sw_launch_after)after;
            l.norm = has_norm ? SW_SLOT_NORM_ATTN : SW_SLOT_COUNT;
            if (can_fuse(run, &l)) bits |= SW_LAUNCH_FUSABLE(after, has_norm);
        }
    return (uint8_t)bits;
}

/* ---- attention ---- */

static sw_heads_args heads_of(const sw_device_run *run)
{
    const sw_model *m = run->e->m;
    const sw_sizes *s = &run->block->sizes;

    return (sw_heads_args){.first = run->d_first, .n = run->n_tokens, .seq_len = run->seq_len,
                           .n_heads = (int)s->n_heads, .n_kv_heads = (int)s->n_kv_heads,
                           .head_dim = (int)s->head_dim, .v_head_dim = (int)s->v_head_dim,
                           .rope_dim = (int)s->rope_dim, .is_paired = m->is_rope_paired,
                           .eps = (float)m->norm_eps};
}

static void turn(sw_heads_args *a, const sw_device_run *run)
{
    const sw_device_engine *e = run->e;
    const bool is_other = e->m->has_window_rope && e->m->is_window_layer[run->block->layer];
    const sw_device_angles *angles = is_other ? &e->window_angles : &e->angles;

    a->cos = angles->d_cos;
    a->sin = angles->d_sin;
}

static sw_code launch_rope(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_sizes *s = &run->block->sizes;
    sw_heads_args a = heads_of(run);

    turn(&a, run);
    a.q = buffer(run, l->dst);
    if (l->dst == SW_BUF_K) a.n_heads = a.n_kv_heads;
    if (l->dst == SW_BUF_K_ROPE) {
        a.n_heads = 1; /* one part that all heads share */
        a.head_dim = (int)s->rope_dim;
    } else if (run->e->m->kv_rank || run->e->m->is_rope_last) {
        a.rope_at = (int)(s->head_dim - s->rope_dim);
    }
    return sw_cuda_heads(&a, run->e->how, err);
}

static sw_code launch_latent_kv(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_sizes *s = &run->block->sizes;
    const sw_latent_args a = {.k = buffer(run, SW_BUF_K), .v = buffer(run, SW_BUF_V),
                              .kv_b = buffer(run, SW_BUF_KV_B),
                              .turned = buffer(run, SW_BUF_K_ROPE), .n = run->n_tokens,
                              .n_heads = (int)s->n_heads, .head_dim = (int)s->head_dim,
                              .v_head_dim = (int)s->v_head_dim, .rope_dim = (int)s->rope_dim};

    (void)l;
    return sw_cuda_latent_kv(&a, run->e->how, err);
}

/* Head norms, rotations, and keys and values into the cache unless they are another layer's. */
static sw_heads_args heads_args(const sw_device_run *run, const sw_planned_launch *l)
{
    const sw_launch_heads *h = &l->heads;
    const bool is_kept = run->kv && !l->is_kv_taken;
    sw_heads_args a = heads_of(run);

    a.q_norm = weight_in(run, h->q_norm);
    a.k_norm = weight_in(run, h->k_norm);
    if (h->turns_q || h->turns_k) turn(&a, run);
    if (h->turns_q || a.q_norm) a.q = buffer(run, SW_BUF_Q);
    if (h->turns_k || a.k_norm || is_kept) a.k = buffer(run, SW_BUF_K);
    if (is_kept) {
        a.v = buffer(run, SW_BUF_V);
        a.kv = run->kv->form;
        a.k_cache = run->kv->d_k;
        a.v_cache = run->kv->d_v;
        a.capacity = run->kv->capacity;
    }
    return a;
}

static sw_code launch_heads(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_heads_args a = heads_args(run, l);

    return sw_cuda_heads(&a, run->e->how, err);
}

static sw_attn_args attention_args(const sw_device_run *run, const sw_planned_launch *l)
{
    const sw_device_engine *e = run->e;
    const sw_model *m = e->m;
    const sw_sizes *s = &run->block->sizes;
    const int64_t k_width = run->block->width[SW_BUF_K], v_width = run->block->width[SW_BUF_V];
    const bool is_window = m->is_window_layer[run->block->layer];
    sw_attn_args a = {.q = buffer(run, l->src), .out = buffer(run, l->dst),
                      .k = buffer(run, SW_BUF_K), .v = buffer(run, SW_BUF_V),
                      .sinks = weight_in(run, l->slot),
                      .first = run->d_first, .n_seqs = run->n_seqs, .seq_len = run->seq_len,
                      .n_heads = (int)s->n_heads, .n_kv_heads = (int)s->n_kv_heads,
                      .head_dim = (int)s->head_dim, .v_head_dim = (int)s->v_head_dim,
                      .window = is_window ? m->sliding_window : 0,
                      .chunk = is_window ? (int)sw_min_i64(m->attention_chunk, INT32_MAX) : 0,
                      .scale = (float)m->attention_scale, .cap = (float)m->attention_cap,
                      .scratch = run->d_decode_scratch, .n_sms = e->device.n_sms,
                      .sm = e->device.sm};

    a.k_seq = run->seq_len * a.k.stride;
    a.v_seq = run->seq_len * a.v.stride;
    if (run->kv) {
        a.kv = run->kv->form;
        a.k = (sw_bf16_rows){run->kv->d_k, k_width};
        a.v = (sw_bf16_rows){run->kv->d_v, v_width};
        a.capacity = run->kv->capacity;
        a.end = run->end;
        a.k_seq = a.capacity * k_width;
        a.v_seq = a.capacity * v_width;
    }
    return a;
}

static sw_code launch_attention(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    sw_attn_args a = attention_args(run, l);

    a.scratch = run->d_wide;
    a.scratch_bytes = run->wide_bytes;
    if (run->has_chosen)
        return sw_cuda_chosen_attention(&a, run->e->choice.chosen, run->e->m->indexer.top_k,
                                        run->e->how, err);
    return sw_cuda_attention(&a, run->e->d_slopes, run->e->how, err);
}

static sw_code launch_decode(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    sw_attn_args a = attention_args(run, l);
    const sw_heads_args heads = heads_args(run, l);

    a.cache_is_there = run->follows_embedding && heads.k.d;
    return sw_cuda_attention_decode(&a, &heads, run->e->how, err);
}

/* ---- between products, and experts ---- */

static sw_act_args act_args(const sw_device_run *run, sw_buf dst, sw_bf16_rows up)
{
    return (sw_act_args){.g = buffer(run, dst), .u = up, .n = run->n_tokens,
                         .width = run->block->width[dst], .act = (int)run->e->m->act,
                         .limit = (float)run->e->m->act_limit};
}

static sw_code launch_glu(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_act_args a = act_args(run, l->dst, buffer(run, l->src));
    sw_made_codes codes;
    sw_code rc;

    if (l->coded_for == SW_SLOT_COUNT) return sw_cuda_act(&a, run->e->how, err);
    rc = sw_device_codes_for(&codes, run->e, run->n_tokens, &run->block->linear[l->coded_for], err);
    return rc == SW_OK ? sw_cuda_act_codes(&a, &codes, run->e->how, err) : rc;
}

static sw_code launch_act(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_act_args a = act_args(run, l->dst, (sw_bf16_rows){0});

    return sw_cuda_act(&a, run->e->how, err);
}

static sw_code launch_experts(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return sw_device_run_moe(run, buffer(run, l->dst), buffer(run, l->src), l->adds, l->is_routed,
                             err);
}

static sw_code (*const launch_table[SW_LAUNCH_COUNT])(sw_device_run *run,
                                                      const sw_planned_launch *l, sw_err *err) = {
    [SW_LAUNCH_SUM] = launch_sum,
    [SW_LAUNCH_NORM] = launch_norm,
    [SW_LAUNCH_TO_BF16] = launch_to_bf16,
    [SW_LAUNCH_SHOW] = launch_show,
    [SW_LAUNCH_SHOW_KV] = launch_show_kv,
    [SW_LAUNCH_LINEAR] = launch_linear,
    [SW_LAUNCH_FUSED] = launch_fused,
    [SW_LAUNCH_HEADS] = launch_heads,
    [SW_LAUNCH_ROPE] = launch_rope,
    [SW_LAUNCH_LATENT_KV] = launch_latent_kv,
    [SW_LAUNCH_ATTENTION] = launch_attention,
    [SW_LAUNCH_DECODE] = launch_decode,
    [SW_LAUNCH_GLU] = launch_glu,
    [SW_LAUNCH_ACT] = launch_act,
    [SW_LAUNCH_GATED_DELTA] = sw_device_run_gated_delta,
    [SW_LAUNCH_KIMI_DELTA] = sw_device_run_kimi_delta,
    [SW_LAUNCH_SSD] = sw_device_run_ssd,
    [SW_LAUNCH_SHORT_CONV] = sw_device_run_short_conv,
    [SW_LAUNCH_EXPERTS] = launch_experts,
    [SW_LAUNCH_OP] = sw_device_run_op,
};

sw_code sw_device_launch(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return launch_table[l->kind](run, l, err);
}
