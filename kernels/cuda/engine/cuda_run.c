/* cuda_run.c - runs block programs on the card. See device_engine.h.
 *
 * Operations are those of the table that the CPU engine runs, one kernel or product each, but where
 * two in a row are one pass: an addition to the residual stream waits for the norm that reads it
 * (also across blocks), norms of heads and rotations wait for attention, and products of joined
 * weights make q, k and v, or gate and up, at once.
 */
#include "formats/base/size.h"
#include "kernels/cuda/engine/cuda_engine_internal.h"

static sw_bf16_rows buffer(const sw_device_run *run, sw_buf b) { return run->e->buf[b]; }

sw_code sw_device_run_reach(sw_device_run *run, sw_site site, sw_bf16_rows x, int64_t k_in,
                            sw_err *err)
{
    if (run->is_seen[site]) return SW_OK;
    run->is_seen[site] = true;
    run->has_stopped = run->stop_at == site;
    if (!run->tap) return SW_OK;
    return run->tap->see(run->tap->self, site, -1, x.d, run->n_tokens, k_in, x.stride, NULL, err);
}

/* Before anything is enqueued that is no step of the chain. */
static sw_code end_chain(sw_device_run *run, sw_err *err)
{
    return sw_cuda_chain_run(run->chain, run->e->how, err);
}

/* x [+ T], normed into dst; without dst only the sum. */
static sw_code norm_stream(sw_device_run *run, sw_bf16_rows dst, sw_slot slot, sw_err *err)
{
    const sw_device_block *b = run->block;
    sw_norm_args a = {.dst = dst, .x = run->d_x, .n = run->n_tokens, .width = run->e->m->hidden,
                      .eps = (float)run->e->m->norm_eps};
    sw_code rc = end_chain(run, err);

    if (rc != SW_OK) return rc;
    if (run->is_add_pending) a.add = buffer(run, SW_BUF_T);
    run->is_add_pending = false;
    if (dst.d) {
        a.weight = b->norm[slot];
        a.bias = b->norm_bias[slot];
    }
    return sw_cuda_norm(&a, run->e->how, err);
}

static sw_code flush(sw_device_run *run, sw_err *err)
{
    return run->is_add_pending ? norm_stream(run, (sw_bf16_rows){0}, SW_SLOT_COUNT, err) : SW_OK;
}

/* Before anything is written to dst. */
static sw_code settle(sw_device_run *run, sw_buf dst, sw_err *err)
{
    return dst == SW_BUF_T ? flush(run, err) : SW_OK;
}

/* N, when whoever reads it next does not make it along the way. */
static sw_code make_norm(sw_device_run *run, sw_err *err)
{
    if (!run->is_norm_pending) return SW_OK;
    run->is_norm_pending = false;
    return norm_stream(run, buffer(run, SW_BUF_N), run->norm_slot, err);
}

static sw_code op_norm(sw_device_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const bool is_between = op->slot == SW_SLOT_NORM_Q_A || op->slot == SW_SLOT_NORM_KV_A;
    sw_norm_args a = {.dst = buffer(run, op->dst), .src = buffer(run, op->src),
                      .weight = run->block->norm[op->slot],
                      .bias = run->block->norm_bias[op->slot], .n = run->n_tokens,
                      .width = run->e->width[op->src],
                      .eps = (float)(is_between ? m->rank_norm_eps : m->norm_eps)};
    sw_code rc;

    if (run->is_fused && op->src == SW_BUF_X && op->dst == SW_BUF_N && !a.bias) {
        run->is_norm_pending = true;
        run->norm_slot = op->slot;
        return flush(run, err);
    }
    if (op->src == SW_BUF_X) return norm_stream(run, a.dst, op->slot, err);
    if ((rc = settle(run, op->dst, err)) != SW_OK || (rc = end_chain(run, err)) != SW_OK) return rc;
    return sw_cuda_norm(&a, run->e->how, err);
}

/* The input of a linear; the residual stream itself is rounded into N first. */
static sw_code input_of(sw_bf16_rows *out, sw_device_run *run, const sw_op *op, sw_err *err)
{
    sw_code rc;

    *out = buffer(run, op->src);
    if (run->d_given) {
        *out = (sw_bf16_rows){(sw_bf16 *)(uintptr_t)run->d_given,
                              run->block->linear[op->slot].k_in};
        run->d_given = NULL;
        return SW_OK;
    }
    if (op->src != SW_BUF_X) return SW_OK;
    if ((rc = flush(run, err)) != SW_OK) return rc;
    *out = buffer(run, SW_BUF_N);
    return sw_cuda_to_bf16(*out, run->d_x, (sw_bf16_rows){0}, run->n_tokens, run->e->m->hidden,
                           run->e->how, err);
}

/* The whole width of gates and ups comes out of one product of this slot. */
static bool makes_gates(const sw_device_run *run, sw_slot slot)
{
    return slot == SW_SLOT_GATE_UP || (slot == SW_SLOT_GATE && run->block->is_gate_fused);
}

/* A product with what stands around it, when it is one that can; *is_done says so. */
static sw_code try_fused(bool *is_done, sw_device_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const sw_device_weight *w = &run->block->linear[op->slot];
    sw_fused_args a = {.rows = buffer(run, op->src),
                       .tiles = w->tiles,
                       .bias = w->d_bias,
                       .y = buffer(run, op->dst),
                       .act = (int)m->act,
                       .limit = (float)m->act_limit,
                       .n = run->n_tokens,
                       .n_sms = run->e->card.n_sms,
                       .sm = run->e->card.sm,
                       .act_of_x = w->act,
                       .input_scale = w->input_scale,
                       .eps = (float)m->norm_eps};
    bool is_step = false;
    sw_code rc;

    if (!run->is_fused || op->src == SW_BUF_X) return SW_OK;
    if (makes_gates(run, op->slot)) {
        a.out = SW_LEAN_GLU;
        a.y = buffer(run, SW_BUF_G);
    } else if (sw_model_site_writes_residual(m, run->block->layer, op->site)) {
        a.out = SW_LEAN_ADD;
        a.sum = run->d_x;
    }
    if (op->src == SW_BUF_N && run->is_norm_pending) {
        a.x = run->d_x;
        a.norm = run->block->norm[run->norm_slot];
    }
    if (!sw_cuda_one_can(&a)) return SW_OK;
    if (a.out == SW_LEAN_STORE && (rc = settle(run, op->dst, err)) != SW_OK) return rc;
    *is_done = true;
    run->is_gate_made = a.out == SW_LEAN_GLU;
    run->is_sum_made = a.out == SW_LEAN_ADD;
    if (run->chain) {
        rc = sw_cuda_chain_product(&is_step, run->chain, &a, run->e->how, err);
        if (rc != SW_OK || is_step || (rc = end_chain(run, err)) != SW_OK) return rc;
    }
    return sw_cuda_one(&a, run->e->how, err);
}

static bool is_made_already(const sw_device_block *b, sw_slot slot)
{
    return (b->is_qkv_fused && (slot == SW_SLOT_K || slot == SW_SLOT_V)) ||
           (b->is_gate_fused && slot == SW_SLOT_UP);
}

static sw_code op_linear(sw_device_run *run, const sw_op *op, sw_err *err)
{
    const sw_device_weight *w = &run->block->linear[op->slot];
    const sw_bf16_rows y = buffer(run, op->dst);
    sw_bf16_rows x = {0};
    bool is_done = false;
    sw_code rc;

    if (is_made_already(run->block, op->slot)) return SW_OK;
    if ((rc = try_fused(&is_done, run, op, err)) != SW_OK || is_done) return rc;
    if ((rc = end_chain(run, err)) != SW_OK) return rc;
    if (op->src == SW_BUF_N && (rc = make_norm(run, err)) != SW_OK) return rc;
    if ((rc = input_of(&x, run, op, err)) != SW_OK ||
        (run->tap && (rc = flush(run, err)) != SW_OK) || /* taps may read the residual stream */
        (rc = sw_device_run_reach(run, op->site, x, w->k_in, err)) != SW_OK || run->has_stopped ||
        (rc = settle(run, op->dst, err)) != SW_OK)
        return rc;
    return sw_device_linear(run->e, y.d, y.stride, false, x, run->n_tokens, w, err);
}

static sw_code op_head_norm(sw_device_run *run, const sw_op *op, sw_err *err)
{
    (void)err;
    *(op->dst == SW_BUF_Q ? &run->q_norm : &run->k_norm) = run->block->norm[op->slot];
    return SW_OK;
}

/* Buffers are columns of what is split. */
static sw_code op_split(sw_device_run *run, const sw_op *op, sw_err *err)
{
    (void)run;
    (void)op;
    (void)err;
    return SW_OK;
}

static sw_heads_args heads_of(const sw_device_run *run)
{
    const sw_device_engine *e = run->e;
    const sw_model *m = e->m;

    return (sw_heads_args){.first = run->d_first, .n = run->n_tokens, .seq_len = run->seq_len,
                           .n_heads = (int)m->n_heads, .n_kv_heads = (int)m->n_kv_heads,
                           .head_dim = (int)m->head_dim, .v_head_dim = (int)m->v_head_dim,
                           .rope_dim = (int)m->rope_dim, .is_paired = m->is_rope_paired,
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

/* In latent attention at once, one buffer at a time; elsewhere with what attention prepares. */
static sw_code op_rope(sw_device_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    sw_heads_args a = heads_of(run);
    sw_code rc;

    if (!m->kv_rank) {
        *(op->dst == SW_BUF_Q ? &run->turns_q : &run->turns_k) = true;
        return SW_OK;
    }
    turn(&a, run);
    a.q = buffer(run, op->dst);
    if (op->dst == SW_BUF_K_ROPE) {
        a.n_heads = 1; /* one part that all heads share */
        a.head_dim = (int)m->rope_dim;
    } else {
        a.rope_at = (int)(m->head_dim - m->rope_dim);
    }
    if ((rc = end_chain(run, err)) != SW_OK) return rc;
    return sw_cuda_heads(&a, run->e->how, err);
}

static sw_code op_latent_kv(sw_device_run *run, const sw_op *op, sw_err *err)
{
    const sw_model *m = run->e->m;
    const sw_latent_args a = {.k = buffer(run, SW_BUF_K), .v = buffer(run, SW_BUF_V),
                              .kv_b = buffer(run, SW_BUF_KV_B),
                              .turned = buffer(run, SW_BUF_K_ROPE), .n = run->n_tokens,
                              .n_heads = (int)m->n_heads, .head_dim = (int)m->head_dim,
                              .v_head_dim = (int)m->v_head_dim, .rope_dim = (int)m->rope_dim};
    const sw_code rc = end_chain(run, err);

    (void)op;
    if (rc != SW_OK) return rc;
    return sw_cuda_latent_kv(&a, run->e->how, err);
}

/* Head norms, rotations, and keys and values into the cache: what is left to do of them. */
static sw_heads_args take_heads(sw_device_run *run)
{
    sw_heads_args a = heads_of(run);

    if (run->turns_q || run->turns_k) turn(&a, run);
    if (run->turns_q || run->q_norm) a.q = buffer(run, SW_BUF_Q);
    if (run->turns_k || run->k_norm || run->kv) a.k = buffer(run, SW_BUF_K);
    a.q_norm = run->q_norm;
    a.k_norm = run->k_norm;
    if (run->kv) {
        a.v = buffer(run, SW_BUF_V);
        a.kv = run->block->kv;
        a.k_cache = run->kv->d_k;
        a.v_cache = run->kv->d_v;
        a.capacity = run->kv->capacity;
    }
    run->q_norm = run->k_norm = NULL;
    run->turns_q = run->turns_k = false;
    return a;
}

static sw_code op_attention(sw_device_run *run, const sw_op *op, sw_err *err)
{
    const sw_device_engine *e = run->e;
    const sw_model *m = e->m;
    const int64_t k_width = m->n_kv_heads * m->head_dim, v_width = m->n_kv_heads * m->v_head_dim;
    sw_attn_args a = {.q = buffer(run, op->src), .out = buffer(run, op->dst),
                      .k = buffer(run, SW_BUF_K), .v = buffer(run, SW_BUF_V),
                      .first = run->d_first, .n_seqs = run->n_seqs, .seq_len = run->seq_len,
                      .n_heads = (int)m->n_heads, .n_kv_heads = (int)m->n_kv_heads,
                      .head_dim = (int)m->head_dim, .v_head_dim = (int)m->v_head_dim,
                      .window = m->is_window_layer[run->block->layer] ? m->sliding_window : 0,
                      .scale = (float)m->attention_scale, .cap = (float)m->attention_cap,
                      .scratch = run->d_decode_scratch, .n_sms = e->card.n_sms};
    const sw_heads_args heads = take_heads(run);
    sw_code rc;

    if (!run->is_decode && (heads.q.d || heads.k.d) &&
        (rc = sw_cuda_heads(&heads, e->how, err)) != SW_OK)
        return rc;
    if (run->tap && run->tap->see_kv &&
        (rc = run->tap->see_kv(run->tap->self, a.k.d, a.k.stride, k_width, a.v.d, a.v.stride,
                               v_width, run->n_tokens, err)) != SW_OK)
        return rc;
    if (op->slot != SW_SLOT_COUNT) a.sinks = run->block->norm[op->slot];
    a.k_seq = run->seq_len * a.k.stride;
    a.v_seq = run->seq_len * a.v.stride;
    if (run->kv) {
        a.kv = run->block->kv;
        a.k = (sw_bf16_rows){run->kv->d_k, k_width};
        a.v = (sw_bf16_rows){run->kv->d_v, v_width};
        a.capacity = run->kv->capacity;
        a.k_seq = a.capacity * k_width;
        a.v_seq = a.capacity * v_width;
    }
    if (run->chain && sw_cuda_chain_attention(run->chain, &a, &heads)) return SW_OK;
    if ((rc = end_chain(run, err)) != SW_OK) return rc;
    return run->is_decode ? sw_cuda_attention_decode(&a, &heads, e->how, err)
                          : sw_cuda_attention(&a, e->how, err);
}

static sw_code act_on(sw_device_run *run, sw_buf dst, sw_bf16_rows up, sw_err *err)
{
    const sw_act_args a = {.g = buffer(run, dst), .u = up, .n = run->n_tokens,
                           .width = run->e->width[dst], .act = (int)run->e->m->act,
                           .limit = (float)run->e->m->act_limit};
    const sw_code rc = end_chain(run, err);

    if (rc != SW_OK) return rc;
    return sw_cuda_act(&a, run->e->how, err);
}

static sw_code op_glu(sw_device_run *run, const sw_op *op, sw_err *err)
{
    if (run->is_gate_made && op->dst == SW_BUF_G) {
        run->is_gate_made = false;
        return SW_OK;
    }
    return act_on(run, op->dst, buffer(run, op->src), err);
}

static sw_code op_act(sw_device_run *run, const sw_op *op, sw_err *err)
{
    return act_on(run, op->dst, (sw_bf16_rows){0}, err);
}

static sw_code op_add(sw_device_run *run, const sw_op *op, sw_err *err)
{
    sw_code rc;

    if (run->is_sum_made) {
        run->is_sum_made = false;
        return SW_OK;
    }
    rc = flush(run, err);
    if (op->dst != SW_BUF_X || op->src != SW_BUF_T)
        return SW_FAIL(err, SW_E_BUG, "an addition beside the residual stream");
    run->is_add_pending = rc == SW_OK;
    return rc;
}

static sw_code route(sw_device_run *run, const sw_op *op, bool adds, sw_err *err)
{
    sw_code rc = settle(run, op->dst, err);

    if (rc != SW_OK || (rc = make_norm(run, err)) != SW_OK ||
        (rc = end_chain(run, err)) != SW_OK)
        return rc;
    return sw_device_run_moe(run, buffer(run, op->dst), buffer(run, op->src), adds, err);
}

static sw_code op_moe(sw_device_run *run, const sw_op *op, sw_err *err)
{
    return route(run, op, false, err);
}

static sw_code op_moe_add(sw_device_run *run, const sw_op *op, sw_err *err)
{
    return route(run, op, true, err);
}

static sw_code (*const op_table[])(sw_device_run *run, const sw_op *op, sw_err *err) = {
    [SW_OP_RMS_NORM] = op_norm,
    [SW_OP_LAYER_NORM] = op_norm,
    [SW_OP_LINEAR] = op_linear,
    [SW_OP_HEAD_NORM] = op_head_norm,
    [SW_OP_SPLIT] = op_split,
    [SW_OP_ROPE] = op_rope,
    [SW_OP_ATTENTION] = op_attention,
    [SW_OP_LATENT_KV] = op_latent_kv,
    [SW_OP_GLU] = op_glu,
    [SW_OP_ACT] = op_act,
    [SW_OP_ADD] = op_add,
    [SW_OP_MOE] = op_moe,
    [SW_OP_MOE_ADD] = op_moe_add,
};

sw_code sw_device_run_block(sw_device_run *run, sw_err *err)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(run->e->m, run->block->layer, &n_ops);
    const int middle = sw_ops_of_attention(ops, n_ops);
    const int end = run->half == SW_HALF_ATTENTION ? middle : n_ops;
    int begin = run->half == SW_HALF_MLP ? middle : 0;
    sw_code rc = SW_OK;

    if (run->d_given)
        while (begin < end && !(ops[begin].kind == SW_OP_LINEAR && ops[begin].site == run->from))
            begin++;
    for (int i = begin; i < end && rc == SW_OK && !run->has_stopped; i++)
        rc = op_table[ops[i].kind](run, &ops[i], err);
    if (rc == SW_OK && !run->has_stopped && !run->keeps_pending) rc = flush(run, err);
    return rc;
}

sw_code sw_device_engine_block(sw_device_engine *e, const sw_device_block *block, float *d_x,
                               int64_t n_seqs, int64_t seq_len, const sw_device_tap *tap,
                               sw_site stop_at, sw_err *err)
{
    return sw_device_engine_half(e, block, d_x, n_seqs, seq_len, SW_HALF_BOTH, tap, stop_at, err);
}

static sw_code check_call(const sw_device_engine *e, int64_t n_seqs, int64_t seq_len, sw_err *err)
{
    if (n_seqs >= 1 && seq_len >= 1 && seq_len <= e->max_tokens / n_seqs) return SW_OK;
    return SW_FAIL(err, SW_E_USAGE, "%lld sequences of %lld tokens; at most %lld tokens fit",
                   (long long)n_seqs, (long long)seq_len, (long long)e->max_tokens);
}

sw_code sw_device_engine_rest(sw_device_engine *e, const sw_device_block *block, float *d_x,
                              int64_t n_seqs, int64_t seq_len, sw_half half, sw_site site,
                              const void *d_rows, sw_err *err)
{
    sw_device_run run = {.e = e,
                         .block = block,
                         .d_x = d_x,
                         .n_seqs = n_seqs,
                         .seq_len = seq_len,
                         .n_tokens = n_seqs * seq_len,
                         .half = half,
                         .from = site,
                         .d_given = d_rows,
                         .stop_at = (sw_site)SW_RUN_ALL};
    sw_code rc = check_call(e, n_seqs, seq_len, err);

    return rc == SW_OK ? sw_device_run_block(&run, err) : rc;
}

sw_code sw_device_engine_half(sw_device_engine *e, const sw_device_block *block, float *d_x,
                              int64_t n_seqs, int64_t seq_len, sw_half half,
                              const sw_device_tap *tap, sw_site stop_at, sw_err *err)
{
    sw_device_run run = {.e = e,
                         .block = block,
                         .d_x = d_x,
                         .n_seqs = n_seqs,
                         .seq_len = seq_len,
                         .n_tokens = n_seqs * seq_len,
                         .half = half,
                         .tap = tap,
                         .stop_at = stop_at};
    sw_code rc;

    if ((rc = check_call(e, n_seqs, seq_len, err)) != SW_OK) return rc;
    if ((rc = sw_device_angles_fill(e, 0, seq_len, err)) != SW_OK) return rc;
    return sw_device_run_block(&run, err);
}
