/* cuda_ops.c - launches of operations that only some families have, one function a kind. See
 * formats/model/program.h for what each computes, engine_family.h for the kernels.
 */
#include <math.h>

#include "kernels/cuda/engine/cuda_engine_internal.h"

static sw_bf16_rows buffer(const sw_device_run *run, sw_buf b) { return run->block->buf[b]; }

/* ---- element by element ---- */

/* On the rows of a buffer, or in place on the residual stream where that only takes a factor. */
static sw_code on_elements(sw_device_run *run, const sw_planned_launch *l, sw_elements_kind kind,
                           float factor, sw_err *err)
{
    const sw_model *m = run->e->m;
    const sw_elements_args a = {.kind = kind, .dst = buffer(run, l->dst),
                                .src = buffer(run, l->src), .n = run->n_tokens,
                                .width = run->block->width[l->dst], .factor = factor,
                                .vector = l->slot == SW_SLOT_COUNT ? NULL
                                                                   : run->block->norm[l->slot],
                                .first = run->d_first, .seq_len = run->seq_len,
                                .every = m->temper_every, .shift = m->temper_shift};

    if (l->dst == SW_BUF_X)
        return SW_FAIL(err, SW_E_BUG, "operation %d on the residual stream", (int)l->op);
    return sw_cuda_elements(&a, run->e->how, err);
}

static sw_code scale_stream(sw_device_run *run, float factor, const float *d_number, sw_err *err)
{
    return sw_cuda_scale_f32(run->d_x, factor, d_number, run->n_tokens * run->e->m->hidden,
                             run->e->how, err);
}

static sw_code op_add(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return on_elements(run, l, SW_ELEMENTS_ADD, 1.0f, err);
}

static sw_code op_copy(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return on_elements(run, l, SW_ELEMENTS_COPY, 1.0f, err);
}

static sw_code op_gate(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return on_elements(run, l, SW_ELEMENTS_GATE, 1.0f, err);
}

static sw_code op_factor(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return on_elements(run, l, SW_ELEMENTS_FACTOR, (float)run->e->m->factor[l->dst], err);
}

static sw_code op_clip(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return on_elements(run, l, SW_ELEMENTS_CLIP, (float)run->e->m->qkv_clip, err);
}

static sw_code op_temper(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return on_elements(run, l, SW_ELEMENTS_TEMPER, (float)run->e->m->temper_beta, err);
}

static sw_code op_mul_vector(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return on_elements(run, l, SW_ELEMENTS_VECTOR, 1.0f, err);
}

static sw_code op_scale(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    if (l->dst != SW_BUF_X) return SW_FAIL(err, SW_E_BUG, "a factor on buffer %d", (int)l->dst);
    return scale_stream(run, 1.0f, run->block->norm[l->slot], err);
}

static sw_code op_halve(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const float factor = (float)(1.0 / sqrt(2.0));

    if (l->dst == SW_BUF_X) return scale_stream(run, factor, NULL, err);
    return on_elements(run, l, SW_ELEMENTS_FACTOR, factor, err);
}

/* ---- heads and columns ---- */

static sw_code norm_heads(sw_device_run *run, const sw_planned_launch *l, bool has_weight_each,
                          sw_err *err)
{
    const sw_device_block *b = run->block;
    const bool has_weight = l->slot != SW_SLOT_COUNT;
    sw_head_norm_args a = {.x = buffer(run, l->dst), .n = run->n_tokens,
                           .n_heads = (int)(b->width[l->dst] / b->sizes.head_dim),
                           .head_dim = (int)b->sizes.head_dim, .has_weight_each = has_weight_each,
                           .eps = (float)run->e->m->norm_eps};

    if (has_weight) a.weight = b->norm[l->slot];
    if (has_weight_each) a.bias = b->norm_bias[l->slot];
    return sw_cuda_head_norm(&a, run->e->how, err);
}

static sw_code op_head_norm(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return norm_heads(run, l, false, err);
}

static sw_code op_head_layer_norm(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return norm_heads(run, l, true, err);
}

static sw_code op_split_groups(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_sizes *s = &run->block->sizes;
    const int64_t dim = s->head_dim, shared = s->n_heads / s->n_kv_heads * dim;
    const sw_regroup_args a = {.src = buffer(run, l->src), .n = run->n_tokens, .n_parts = 3,
                               .n_groups = s->n_kv_heads, .group_width = shared + 2 * dim,
                               .part = {{buffer(run, SW_BUF_Q), 0, shared},
                                        {buffer(run, SW_BUF_K), shared, dim},
                                        {buffer(run, SW_BUF_V), shared + dim, dim}}};

    return sw_cuda_regroup(&a, run->e->how, err);
}

static sw_code op_split_heads(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_sizes *s = &run->block->sizes;
    const int64_t dim = s->head_dim;
    const sw_regroup_args a = {.src = buffer(run, l->src), .n = run->n_tokens, .n_parts = 2,
                               .n_groups = s->n_heads, .group_width = 2 * dim,
                               .part = {{buffer(run, l->dst), 0, dim},
                                        {buffer(run, SW_BUF_Q_GATE), dim, dim}}};

    return sw_cuda_regroup(&a, run->e->how, err);
}

/* ---- what a row decides ---- */

static sw_code op_row_gate(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_device_weight *w = &run->block->linear[l->slot];

    if (!w->d_dense) return SW_FAIL(err, SW_E_BUG, "a gate of rows that is not dense");
    return sw_cuda_row_gate(buffer(run, l->dst), buffer(run, l->src), w->d_dense, run->n_tokens,
                            run->block->width[l->dst], w->k_in, run->e->how, err);
}

static sw_code op_cut(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return sw_cuda_cut(buffer(run, l->dst), (float)run->e->m->gate_cut, run->n_tokens,
                       run->block->width[l->dst], run->e->how, err);
}

static sw_code op_route(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    return sw_device_run_router(run, buffer(run, l->src), err);
}

/* ---- beside the residual stream ---- */

/* The layer's own input, by the gate in dst. */
static sw_code op_side_input(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_model *m = run->e->m;
    const int64_t at = sw_model_side_of_input(m, run->block->layer);

    return sw_cuda_side_gate(buffer(run, l->dst), sw_device_side_rows(run->e, at), (int)m->act,
                             (float)m->act_limit, run->n_tokens, m->side_inputs, run->e->how, err);
}

static sw_code op_keep_kv(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_device_engine *e = run->e;
    const int64_t at = sw_model_side_of_kv(e->m, run->block->layer);
    const int64_t k = run->block->width[SW_BUF_K], v = run->block->width[SW_BUF_V];
    sw_code rc = sw_cuda_widen(sw_device_side_rows(e, at), buffer(run, SW_BUF_K), run->n_tokens, k,
                               e->how, err);

    (void)l;
    if (rc != SW_OK) return rc;
    return sw_cuda_widen(sw_device_side_rows(e, at + k), buffer(run, SW_BUF_V), run->n_tokens, v,
                         e->how, err);
}

static sw_code op_take_kv(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_device_engine *e = run->e;
    const int64_t at = sw_model_side_of_kv(e->m, e->m->shares_kv[run->block->layer] - 1);
    const int64_t k = run->block->width[SW_BUF_K], v = run->block->width[SW_BUF_V];
    sw_code rc = sw_cuda_narrow(buffer(run, SW_BUF_K), sw_device_side_rows(e, at), run->n_tokens, k,
                                e->how, err);

    (void)l;
    if (rc != SW_OK) return rc;
    return sw_cuda_narrow(buffer(run, SW_BUF_V), sw_device_side_rows(e, at + k), run->n_tokens, v,
                          e->how, err);
}

/* ---- copies of the residual stream ---- */

static sw_copies_args copies_of(const sw_device_run *run, sw_slot coefs)
{
    const sw_device_engine *e = run->e;
    const sw_device_block *b = run->block;
    sw_copies_args a = {.x = run->d_x,
                        .copies = sw_device_side_rows(e, sw_model_side_of_copies(e->m)),
                        .norm = b->norm[SW_SLOT_COPY_NORM],
                        .router = b->linear[SW_SLOT_COPY_ROUTER].d_dense, .n = run->n_tokens,
                        .width = e->m->hidden, .n_copies = (int)e->m->n_copies,
                        .eps = (float)e->m->norm_eps};

    if (coefs != SW_SLOT_COUNT) a.coefs = b->linear[coefs].d_dense;
    return a;
}

static sw_code op_predict(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_copies_args a = copies_of(run, SW_SLOT_COPY_PREDICT);

    (void)l;
    return sw_cuda_predict(&a, run->e->how, err);
}

static sw_code op_correct(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_copies_args a = copies_of(run, SW_SLOT_COPY_CORRECT);

    (void)l;
    return sw_cuda_correct(&a, run->e->how, err);
}

static sw_code op_add_copies(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_copies_args a = copies_of(run, SW_SLOT_COUNT);

    return sw_cuda_add_copies(&a, buffer(run, l->src), run->e->how, err);
}

/* Copy by copy through its linear; what comes out stands in the copy's place. */
static sw_code op_merge(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    const sw_device_engine *e = run->e;
    const sw_copies_args a = copies_of(run, SW_SLOT_COUNT);
    const sw_bf16_rows from = buffer(run, SW_BUF_R), made = buffer(run, SW_BUF_T);
    sw_code rc = SW_OK;

    (void)l;
    for (int64_t i = 1; i < a.n_copies && rc == SW_OK; i++) {
        const sw_f32_rows copy = {a.copies.d + i * a.width, a.copies.stride};

        if ((rc = sw_cuda_narrow(from, copy, a.n, a.width, e->how, err)) != SW_OK ||
            (rc = sw_device_linear(run->e, made.d, made.stride, false, from, a.n,
                                   &run->block->copies_out[i - 1], err)) != SW_OK)
            return rc;
        rc = sw_cuda_match(copy, made, run->d_x, a.n, a.width, e->how, err);
    }
    return rc == SW_OK ? sw_cuda_merge(&a, e->how, err) : rc;
}

static sw_code (*const op_table[SW_OP_COUNT])(sw_device_run *run, const sw_planned_launch *l,
                                              sw_err *err) = {
    [SW_OP_ADD] = op_add,
    [SW_OP_COPY] = op_copy,
    [SW_OP_GATE] = op_gate,
    [SW_OP_FACTOR] = op_factor,
    [SW_OP_CLIP] = op_clip,
    [SW_OP_TEMPER] = op_temper,
    [SW_OP_MUL_VECTOR] = op_mul_vector,
    [SW_OP_SCALE] = op_scale,
    [SW_OP_HALVE] = op_halve,
    [SW_OP_HEAD_NORM] = op_head_norm,
    [SW_OP_HEAD_LAYER_NORM] = op_head_layer_norm,
    [SW_OP_SPLIT_GROUPS] = op_split_groups,
    [SW_OP_SPLIT_HEADS] = op_split_heads,
    [SW_OP_ROW_GATE] = op_row_gate,
    [SW_OP_CUT] = op_cut,
    [SW_OP_ROUTE] = op_route,
    [SW_OP_SIDE_INPUT] = op_side_input,
    [SW_OP_KEEP_KV] = op_keep_kv,
    [SW_OP_TAKE_KV] = op_take_kv,
    [SW_OP_PREDICT] = op_predict,
    [SW_OP_CORRECT] = op_correct,
    [SW_OP_ADD_COPIES] = op_add_copies,
    [SW_OP_MERGE] = op_merge,
    [SW_OP_MIX_STREAMS] = sw_device_mix_streams,
    [SW_OP_ADD_STREAMS] = sw_device_add_streams,
    [SW_OP_MERGE_STREAMS] = sw_device_merge_streams,
    [SW_OP_INDEX] = sw_device_index,
    [SW_OP_TAKE_INDEX] = sw_device_take_index,
    [SW_OP_NEAR_FAR] = sw_device_near_far,
    [SW_OP_GROUP_LINEAR] = sw_device_group_linear,
};

sw_code sw_device_run_op(sw_device_run *run, const sw_planned_launch *l, sw_err *err)
{
    if (!op_table[l->op]) return SW_FAIL(err, SW_E_BUG, "operation %d has no kernel", (int)l->op);
    return op_table[l->op](run, l, err);
}
