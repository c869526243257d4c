/* load.c - weights of a block and of a whole model, out of a dense checkpoint. See engine.h. */
#include <stdio.h>
#include <string.h>

#include "kernels/engine/engine.h"

static bool is_float_dtype(sw_dtype dtype)
{
    return dtype == SW_DTYPE_F32 || dtype == SW_DTYPE_F16 || dtype == SW_DTYPE_BF16;
}

/* The tensor `path`.`leaf`, [rows, cols], or [cols] when rows is 0. */
static sw_code find(const sw_cview **out, const sw_st *st, const char *path, const char *leaf,
                    int64_t rows, int64_t cols, sw_err *err)
{
    char name[300], have[128], want[64];
    const sw_st_tensor *tensor;
    const sw_cview *view;
    const int n_dims = rows ? 2 : 1;

    (void)snprintf(name, sizeof name, "%s.%s", path, leaf);
    if (!(tensor = sw_st_find(st, name)))
        return SW_FAIL(err, SW_E_FORMAT, "%s: missing from the checkpoint", name);
    view = &tensor->view;
    if (!is_float_dtype(view->dtype))
        return SW_FAIL(err, SW_E_FORMAT, "%s: %s, but the engine needs F32, F16 or BF16; is this "
                       "checkpoint quantized already?", name, sw_dtype_name(view->dtype));
    if (view->n_dims != n_dims || view->shape[n_dims - 1] != cols ||
        (rows && view->shape[0] != rows)) {
        sw_view_describe(have, sizeof have, view);
        if (rows)
            (void)snprintf(want, sizeof want, "[%lld, %lld]", (long long)rows, (long long)cols);
        else
            (void)snprintf(want, sizeof want, "[%lld]", (long long)cols);
        return SW_FAIL(err, SW_E_FORMAT, "%s: %s, but config.json asks for %s", name, have, want);
    }
    *out = view;
    return SW_OK;
}

/* Norms and biases are small and read often, so they are kept as floats. */
static sw_code load_floats(float **out, sw_arena *arena, const sw_st *st, const char *path,
                           const char *leaf, int64_t n, sw_err *err)
{
    const sw_cview *view = NULL;
    float *values = NULL;
    sw_code rc;

    if ((rc = find(&view, st, path, leaf, 0, n, err)) != SW_OK) return rc;
    if ((rc = SW_ARENA_TAKE(&values, arena, n, err)) != SW_OK) return rc;
    if ((rc = sw_float_decode_n(values, view->data, view->dtype, n, err)) != SW_OK) return rc;
    *out = values;
    return SW_OK;
}

static sw_code load_weight(sw_weight *out, const sw_st *st, const char *path, int64_t n_out,
                           int64_t k_in, sw_err *err)
{
    const sw_cview *view = NULL;
    sw_code rc = find(&view, st, path, "weight", n_out, k_in, err);

    if (rc != SW_OK) return rc;
    *out = (sw_weight){.n_out = n_out, .k_in = k_in, .dense = view->data,
                       .dense_dtype = view->dtype};
    return SW_OK;
}

/* What the linears of a block are loaded from. */
typedef struct loader {
    const sw_model *m;
    const sw_st *st;
    const sw_linear_source *source; /* or NULL */
} loader;

static sw_code load_linear(sw_weight *out, sw_block *block, const loader *from, sw_slot slot,
                           int64_t expert, sw_err *err)
{
    const sw_model *m = from->m;
    char path[256];
    int64_t n_out, k_in;
    float *bias = NULL;
    sw_code rc;

    if (!sw_model_slot_path(path, m, block->layer, slot, expert))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, m->arch->name);
    sw_model_slot_shape(m, block->layer, slot, &n_out, &k_in);
    *out = (sw_weight){.n_out = n_out, .k_in = k_in};
    if (from->source)
        rc = from->source->get(from->source->self, out, &block->arena, path, n_out, k_in, err);
    else
        rc = SW_OK;
    if (rc == SW_OK && !out->tiles && !out->dense)
        rc = load_weight(out, from->st, path, n_out, k_in, err);
    if (rc == SW_OK && sw_model_slot_has_bias(m, slot)) {
        rc = load_floats(&bias, &block->arena, from->st, path, "bias", n_out, err);
        out->bias = bias;
    }
    return rc;
}

static sw_code load_norm(sw_block *block, const sw_model *m, const sw_st *st, sw_slot slot,
                         sw_err *err)
{
    char path[256];
    int64_t one, width;

    if (!sw_model_slot_path(path, m, block->layer, slot, -1))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, m->arch->name);
    sw_model_slot_shape(m, block->layer, slot, &one, &width);
    return load_floats(&block->norm[slot], &block->arena, st, path, "weight", width, err);
}

static sw_code load_experts(sw_block *block, const loader *from, sw_err *err)
{
    const sw_model *m = from->m;
    sw_code rc = load_linear(&block->linear[SW_SLOT_ROUTER], block, from, SW_SLOT_ROUTER, -1, err);

    for (int i = 0; i < 3 && rc == SW_OK; i++) {
        rc = SW_ARENA_TAKE(&block->experts[i], &block->arena, m->n_experts, err);
        for (int64_t e = 0; e < m->n_experts && rc == SW_OK; e++)
            rc = load_linear(&block->experts[i][e], block, from, (sw_slot)(SW_SLOT_GATE + i), e,
                             err);
    }
    return rc;
}

/* Whatever slots the block's program names. */
sw_code sw_block_load_from(sw_block *out, const sw_model *m, const sw_st *st,
                           const sw_linear_source *source, int64_t layer, sw_err *err)
{
    const loader from = {m, st, source};
    sw_block block = {.layer = layer};
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);
    sw_code rc = SW_OK;

    for (int i = 0; i < n_ops && rc == SW_OK; i++) {
        const sw_op *op = &ops[i];

        if (op->kind == SW_OP_LINEAR)
            rc = load_linear(&block.linear[op->slot], &block, &from, op->slot, -1, err);
        else if (op->kind == SW_OP_RMS_NORM || op->kind == SW_OP_HEAD_NORM)
            rc = load_norm(&block, m, st, op->slot, err);
        else if (op->kind == SW_OP_MOE)
            rc = load_experts(&block, &from, err);
    }
    if (rc == SW_OK)
        *out = block;
    else
        sw_block_free(&block);
    return rc;
}

sw_code sw_block_load(sw_block *out, const sw_model *m, const sw_st *st, int64_t layer,
                      sw_err *err)
{
    return sw_block_load_from(out, m, st, NULL, layer, err);
}

void sw_block_free(sw_block *block)
{
    sw_arena_free(&block->arena);
    memset(block, 0, sizeof *block);
}

sw_weight *sw_block_weight(sw_block *block, sw_slot slot, int64_t expert)
{
    return expert < 0 ? &block->linear[slot] : &block->experts[slot - SW_SLOT_GATE][expert];
}

sw_code sw_lm_load_ends(sw_lm *out, const sw_model *m, const sw_st *st, sw_err *err)
{
    sw_lm lm = {.model = m};
    sw_code rc;

    rc = load_weight(&lm.embed, st, "model.embed_tokens", m->vocab, m->hidden, err);
    lm.head = lm.embed;
    if (rc == SW_OK && !m->is_tied)
        rc = load_weight(&lm.head, st, "lm_head", m->vocab, m->hidden, err);
    if (rc == SW_OK)
        rc = load_floats(&lm.final_norm, &lm.arena, st, "model.norm", "weight", m->hidden, err);
    if (rc == SW_OK)
        *out = lm;
    else
        sw_lm_free(&lm);
    return rc;
}

sw_code sw_lm_load(sw_lm *out, const sw_model *m, const sw_st *st, sw_err *err)
{
    sw_lm lm = {0};
    sw_code rc;

    if ((rc = sw_lm_load_ends(&lm, m, st, err)) != SW_OK) return rc;
    rc = SW_ARENA_TAKE(&lm.blocks, &lm.arena, m->n_layers, err);
    for (int64_t i = 0; i < m->n_layers && rc == SW_OK; i++)
        rc = sw_block_load(&lm.blocks[i], m, st, i, err);
    if (rc == SW_OK)
        *out = lm;
    else
        sw_lm_free(&lm);
    return rc;
}

void sw_lm_free(sw_lm *lm)
{
    for (int64_t i = 0; lm->blocks && i < lm->model->n_layers; i++) sw_block_free(&lm->blocks[i]);
    sw_arena_free(&lm->arena);
    memset(lm, 0, sizeof *lm);
}
