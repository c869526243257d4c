/* load.c - weights of a block and of a whole model, out of a dense checkpoint. See engine.h. */
#include <stdio.h>
#include <string.h>

#include "formats/model/stored.h"
#include "kernels/engine/load_internal.h"

/* Norms and biases are small and read often, so they are kept as floats. */
sw_code sw_decode_floats(float **out, sw_arena *arena, const sw_cview *view, int64_t n,
                             sw_err *err)
{
    float *values = NULL;
    sw_code rc;

    if ((rc = SW_ARENA_TAKE(&values, arena, n, err)) != SW_OK) return rc;
    if ((rc = sw_float_decode_n(values, view->data, view->dtype, n, err)) == SW_OK) *out = values;
    return rc;
}

/* A vector may be stored with axes of one around it, unless it is a module's weight or bias. */
static sw_code find_floats(const sw_st_tensor **out, const sw_st *st, const char *name,
                           bool is_bare, int64_t n, sw_err *err)
{
    const sw_st_tensor *t = is_bare ? sw_st_find(st, name) : NULL;
    bool has_axes = t && t->view.n_dims > 1 && sw_view_elems(&t->view) == n;

    for (int32_t i = 0; has_axes && i < t->view.n_dims; i++)
        has_axes = t->view.shape[i] == 1 || t->view.shape[i] == n;
    return has_axes ? sw_stored_tensor(out, st, name, t->view.n_dims, t->view.shape, err)
                    : sw_stored_tensor(out, st, name, 1, &n, err);
}

sw_code sw_load_floats(float **out, sw_arena *arena, const sw_st *st, const char *path,
                           const char *suffix, int64_t n, sw_err *err)
{
    const sw_st_tensor *tensor = NULL;
    sw_st_bytes bytes = {0};
    char name[300];
    sw_cview view;
    sw_code rc;

    (void)snprintf(name, sizeof name, "%s%s", path, suffix);
    if ((rc = find_floats(&tensor, st, name, !*suffix, n, err)) != SW_OK) return rc;
    if ((rc = sw_st_fetch(&bytes, tensor, err)) != SW_OK) return rc;
    view = tensor->view;
    view.data = bytes.data;
    rc = sw_decode_floats(out, arena, &view, n, err);
    sw_st_drop(&bytes);
    return rc;
}

/* Bytes that no file has as they are meant live as long as the arena. */
static sw_code make_dense(const void **out, sw_arena *arena, const sw_st_tensor *t, sw_err *err)
{
    char *made = NULL;
    sw_code rc;

    *out = t->view.data;
    if (!t->maker) return SW_OK;
    if ((rc = SW_ARENA_TAKE(&made, arena, t->view.size_bytes, err)) != SW_OK) return rc;
    *out = made;
    return t->maker->make(t->maker, made, err);
}

static sw_code load_table(sw_weight *out, sw_arena *arena, const sw_st *st, const char *path,
                          int64_t n_rows, int64_t width, sw_err *err)
{
    const int64_t shape[] = {n_rows, width};
    const sw_st_tensor *tensor = NULL;
    char name[300];
    sw_code rc;

    (void)snprintf(name, sizeof name, "%s.weight", path);
    if ((rc = sw_stored_tensor(&tensor, st, name, 2, shape, err)) != SW_OK) return rc;
    *out = (sw_weight){.n_out = n_rows, .k_in = width, .dense_dtype = tensor->view.dtype};
    return make_dense(&out->dense, arena, tensor, err);
}

/* A table [hidden, hidden] for each copy of the residual stream but the first. */
static sw_code load_tables(sw_weight **out, sw_arena *arena, const sw_model *m, const sw_st *st,
                           sw_end end, sw_err *err)
{
    sw_weight *tables = NULL;
    char path[SW_END_BYTES + 24];
    sw_code rc = SW_ARENA_TAKE(&tables, arena, m->n_copies - 1, err);

    for (int64_t i = 0; i + 1 < m->n_copies && rc == SW_OK; i++) {
        (void)snprintf(path, sizeof path, "%s.%lld", sw_model_end(m, end), (long long)i);
        rc = load_table(&tables[i], arena, st, path, m->hidden, m->hidden, err);
    }
    if (rc == SW_OK) *out = tables;
    return rc;
}

/* A linear in the mapping where it lies as rows, else a copy that does. */
static sw_code load_dense(sw_weight *out, sw_block *block, const sw_loader *from, sw_slot slot,
                          int64_t expert, sw_err *err)
{
    sw_stored stored = {0};
    char *rows = NULL;
    sw_code rc = sw_stored_weight(&stored, from->m, from->st, block->layer, slot, expert, err);

    if (rc != SW_OK) return rc;
    out->dense_dtype = stored.tensor->view.dtype;
    if (sw_stored_is_plain(&stored) && stored.first && !stored.tensor->maker) {
        out->dense = (const char *)stored.tensor->view.data +
                     stored.first * sw_dtype_bits(out->dense_dtype) / 8;
        return SW_OK;
    }
    if (sw_stored_is_plain(&stored) && !stored.first)
        return make_dense(&out->dense, &block->arena, stored.tensor, err);
    out->dense = NULL;
    rc = SW_ARENA_TAKE(&rows, &block->arena,
                       out->n_out * out->k_in * sw_dtype_bits(out->dense_dtype) / 8, err);
    if (rc != SW_OK) return rc;
    sw_stored_copy(rows, &stored);
    out->dense = rows;
    return SW_OK;
}

static sw_code load_bias(sw_weight *out, sw_block *block, const sw_loader *from, sw_slot slot,
                         int64_t expert, sw_err *err)
{
    sw_stored stored = {0};
    sw_cview view;
    char *values = NULL;
    float *bias = NULL;
    sw_code rc = sw_stored_bias(&stored, from->m, from->st, block->layer, slot, expert, err);

    if (rc != SW_OK) return rc;
    view = stored.tensor->view;
    if ((rc = make_dense(&view.data, &block->arena, stored.tensor, err)) != SW_OK) return rc;
    if (!sw_stored_is_plain(&stored) || stored.first) {
        rc = SW_ARENA_TAKE(&values, &block->arena, out->n_out * sw_dtype_bits(view.dtype) / 8, err);
        if (rc != SW_OK) return rc;
        sw_stored_copy(values, &stored);
        view.data = values;
    }
    if ((rc = sw_decode_floats(&bias, &block->arena, &view, out->n_out, err)) == SW_OK)
        out->bias = bias;
    return rc;
}

sw_code sw_load_linear(sw_weight *out, sw_block *block, const sw_loader *from, sw_slot slot,
                           int64_t expert, sw_err *err)
{
    const sw_model *m = from->m;
    char path[256];
    int64_t n_out, k_in;
    sw_code rc = SW_OK;

    if (!sw_model_slot_path(path, m, block->layer, slot, expert))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, m->arch->name);
    if (slot == SW_SLOT_FOUND) {
        n_out = sw_found_at(m, block->layer, expert)->n_out;
        k_in = sw_found_at(m, block->layer, expert)->k_in;
    } else {
        sw_model_slot_shape(m, block->layer, slot, &n_out, &k_in);
    }
    *out = (sw_weight){.n_out = n_out, .k_in = k_in};
    if (from->source)
        rc = from->source->get(from->source->self, out, &block->arena, path, n_out, k_in, err);
    if (rc == SW_OK && !out->tiles && !out->dense)
        rc = load_dense(out, block, from, slot, expert, err);
    if (rc == SW_OK && sw_model_slot_has_bias(m, slot))
        rc = load_bias(out, block, from, slot, expert, err);
    return rc;
}

/* A norm's weight and perhaps bias, or a vector that has the name of its slot and no suffix. */
sw_code sw_load_vector(sw_block *block, const sw_loader *from, sw_slot slot, const char *suffix,
                           bool has_bias, sw_err *err)
{
    const sw_model *m = from->m;
    char path[256];
    int64_t one, width;
    sw_code rc;

    if (!sw_model_slot_path(path, m, block->layer, slot, -1))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, m->arch->name);
    sw_model_slot_shape(m, block->layer, slot, &one, &width);
    rc = sw_load_floats(&block->norm[slot], &block->arena, from->st, path, suffix, width, err);
    if (rc == SW_OK && has_bias)
        rc = sw_load_floats(&block->norm_bias[slot], &block->arena, from->st, path, ".bias", width,
                         err);
    return rc;
}

/* A vector that some checkpoints store with axes of one around it. */
static sw_code load_squeezed(sw_block *block, const sw_loader *from, sw_slot slot, sw_err *err)
{
    const sw_st_tensor *tensor;
    float **out = &block->norm[slot];
    sw_st_bytes bytes = {0};
    sw_cview view;
    char path[256];
    int64_t one, n;
    sw_code rc;

    if (!sw_model_slot_path(path, from->m, block->layer, slot, -1))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, from->m->arch->name);
    sw_model_slot_shape(from->m, block->layer, slot, &one, &n);
    tensor = sw_st_find(from->st, path);
    if (!tensor || tensor->view.n_dims == 1 || sw_view_elems(&tensor->view) != n)
        return sw_load_floats(out, &block->arena, from->st, path, "", n, err);
    rc = sw_stored_tensor(&tensor, from->st, path, tensor->view.n_dims, tensor->view.shape, err);
    if (rc != SW_OK || (rc = sw_st_fetch(&bytes, tensor, err)) != SW_OK) return rc;
    view = tensor->view;
    view.data = bytes.data;
    rc = sw_decode_floats(out, &block->arena, &view, n, err);
    sw_st_drop(&bytes);
    return rc;
}

/* Stored [width, 1, n_taps], used as [n_taps, width]. */
static sw_code load_conv(sw_block *block, const sw_loader *from, sw_slot slot, sw_err *err)
{
    const sw_st_tensor *tensor = NULL;
    sw_st_bytes bytes = {0};
    sw_cview view;
    char path[256], name[300];
    float *stored = NULL, *taps = NULL;
    int64_t shape[3] = {0, 1, 0};
    sw_code rc;

    if (!sw_model_slot_path(path, from->m, block->layer, slot, -1))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name in %s", (int)slot, from->m->arch->name);
    sw_model_slot_shape(from->m, block->layer, slot, &shape[2], &shape[0]);
    (void)snprintf(name, sizeof name, "%s.weight", path);
    if ((rc = sw_stored_tensor(&tensor, from->st, name, 3, shape, err)) != SW_OK ||
        (rc = sw_st_fetch(&bytes, tensor, err)) != SW_OK)
        return rc;
    view = tensor->view;
    view.data = bytes.data;
    rc = sw_decode_floats(&stored, &block->arena, &view, shape[0] * shape[2], err);
    sw_st_drop(&bytes);
    if (rc == SW_OK) rc = SW_ARENA_TAKE(&taps, &block->arena, shape[0] * shape[2], err);
    if (rc != SW_OK) return rc;
    for (int64_t c = 0; c < shape[0]; c++)
        for (int64_t t = 0; t < shape[2]; t++) taps[t * shape[0] + c] = stored[c * shape[2] + t];
    block->norm[slot] = taps;
    if (!from->m->mixer.has_conv_bias) return SW_OK;
    return sw_load_floats(&block->norm_bias[slot], &block->arena, from->st, path, ".bias", shape[0],
                       err);
}

/* What a recurrent mixer has beside its linears. */
static sw_code load_mixer(sw_block *block, const sw_loader *from, sw_op_kind kind, sw_err *err)
{
    static const sw_slot kimi[] = {SW_SLOT_CONV_Q, SW_SLOT_CONV_K, SW_SLOT_CONV_V};
    static const sw_slot others[] = {SW_SLOT_CONV};
    static const sw_slot vectors[] = {SW_SLOT_A_LOG, SW_SLOT_DT_BIAS, SW_SLOT_D};
    const bool is_kimi = kind == SW_OP_KIMI_DELTA, has_norm = from->m->mixer.has_norm;
    const int n_vectors = kind == SW_OP_SHORT_CONV ? 0 : kind == SW_OP_SSD ? 3 : 2;
    sw_code rc = SW_OK;

    for (int i = 0; i < (is_kimi ? 3 : 1) && rc == SW_OK; i++)
        rc = load_conv(block, from, is_kimi ? kimi[i] : others[i], err);
    for (int i = 0; i < n_vectors && rc == SW_OK; i++)
        rc = load_squeezed(block, from, vectors[i], err);
    if (rc == SW_OK && has_norm)
        rc = sw_load_vector(block, from, SW_SLOT_NORM_MIX, ".weight", false, err);
    return rc;
}

static void add_offset(float *norm, double offset, int64_t n)
{
    for (int64_t i = 0; i < n; i++) norm[i] = (float)offset + norm[i];
}

sw_code sw_load_norm(sw_block *block, const sw_loader *from, sw_slot slot, bool has_bias,
                         sw_err *err)
{
    int64_t one, width;
    sw_code rc = sw_load_vector(block, from, slot, ".weight", has_bias, err);

    if (rc != SW_OK) return rc;
    sw_model_slot_shape(from->m, block->layer, slot, &one, &width);
    add_offset(block->norm[slot], from->m->norm_offset, width);
    return SW_OK;
}

/* Without biases in the checkpoint they are zeros. */
static sw_code load_layer_norm(sw_block *block, const sw_loader *from, sw_slot slot, sw_err *err)
{
    const bool has_bias = !from->m->has_bare_layer_norms;
    int64_t one, width;
    sw_code rc = sw_load_norm(block, from, slot, has_bias, err);

    sw_model_slot_shape(from->m, block->layer, slot, &one, &width);
    if (rc == SW_OK && !has_bias)
        rc = SW_ARENA_TAKE(&block->norm_bias[slot], &block->arena, width, err);
    return rc;
}

/* A tensor for each head of the buffer, one behind the other. */
static sw_code load_head_norms(sw_block *block, const sw_loader *from, const sw_op *op, sw_err *err)
{
    const sw_sizes s = sw_model_sizes(from->m, block->layer);
    const int64_t n = op->dst == SW_BUF_Q ? s.n_heads : s.n_kv_heads, dim = s.head_dim;
    float *all = NULL, *one = NULL;
    char path[256], name[300];
    sw_code rc;

    if (!sw_model_slot_path(path, from->m, block->layer, op->slot, -1))
        return SW_FAIL(err, SW_E_BUG, "slot %d has no name", (int)op->slot);
    rc = SW_ARENA_TAKE(&all, &block->arena, n * dim, err);
    if (rc == SW_OK) rc = SW_ARENA_TAKE(&block->norm_bias[op->slot], &block->arena, n * dim, err);
    for (int64_t h = 0; h < n && rc == SW_OK; h++) {
        (void)snprintf(name, sizeof name, "%s.norms.%lld", path, (long long)h);
        rc = sw_load_floats(&one, &block->arena, from->st, name, ".weight", dim, err);
        if (rc == SW_OK) memcpy(all + h * dim, one, (size_t)dim * sizeof *all);
    }
    block->norm[op->slot] = all;
    return rc;
}

static sw_code load_experts(sw_block *block, const sw_loader *from, sw_err *err)
{
    static const sw_slot vectors[] = {SW_SLOT_ROUTER_SHIFT, SW_SLOT_EXPERT_SCALE};
    const sw_model *m = from->m;
    sw_code rc =
        sw_load_linear(&block->linear[SW_SLOT_ROUTER], block, from, SW_SLOT_ROUTER, -1, err);

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0] && rc == SW_OK; i++)
        if (m->arch->slot_names[vectors[i]] && !block->token_experts)
            rc = sw_load_vector(block, from, vectors[i], "", false, err);
    for (int i = 0; i < 3 && rc == SW_OK; i++) {
        if (!m->arch->expert_names[i]) continue;
        rc = SW_ARENA_TAKE(&block->experts[i], &block->arena, m->n_experts, err);
        for (int64_t e = 0; e < m->n_experts && rc == SW_OK; e++)
            rc = sw_load_linear(&block->experts[i][e], block, from, (sw_slot)(SW_SLOT_GATE + i), e,
                             err);
    }
    return rc;
}

sw_code sw_load_two(sw_block *block, const sw_loader *from, sw_slot first, sw_slot second,
                        sw_err *err)
{
    sw_code rc = sw_load_linear(&block->linear[first], block, from, first, -1, err);

    return rc ? rc : sw_load_linear(&block->linear[second], block, from, second, -1, err);
}

static sw_code load_copies(sw_block *block, const sw_loader *from, sw_err *err)
{
    sw_code rc = sw_load_norm(block, from, SW_SLOT_COPY_NORM, false, err);

    return rc ? rc : sw_load_two(block, from, SW_SLOT_COPY_ROUTER, SW_SLOT_COPY_PREDICT, err);
}

static sw_code load_indexer(sw_block *block, const sw_loader *from, sw_err *err)
{
    sw_code rc = sw_load_two(block, from, SW_SLOT_INDEX_Q, SW_SLOT_INDEX_K, err);

    if (rc == SW_OK)
        rc = sw_load_linear(&block->linear[SW_SLOT_INDEX_WEIGHT], block, from, SW_SLOT_INDEX_WEIGHT,
                         -1, err);
    return rc ? rc : load_layer_norm(block, from, SW_SLOT_NORM_INDEX, err);
}

/* Whatever slots an operation names. */
static sw_code load_op(sw_block *block, const sw_loader *from, const sw_op *op, sw_err *err)
{
    switch (op->kind) {
    case SW_OP_LINEAR:
    case SW_OP_KEPT_LINEAR:
    case SW_OP_GROUP_LINEAR:
    case SW_OP_ROW_GATE:
        return sw_load_linear(&block->linear[op->slot], block, from, op->slot, -1, err);
    case SW_OP_HEAD_NORM:
        if (op->slot == SW_SLOT_COUNT) return SW_OK;
        return sw_load_norm(block, from, op->slot, false, err);
    case SW_OP_RMS_NORM:
        if (op->slot == SW_SLOT_ROUTER_NORM) /* no module of its own */
            return sw_load_vector(block, from, op->slot, "", false, err);
        return sw_load_norm(block, from, op->slot, false, err);
    case SW_OP_LAYER_NORM:
        return load_layer_norm(block, from, op->slot, err);
    case SW_OP_HEAD_LAYER_NORM:
        return load_head_norms(block, from, op, err);
    case SW_OP_ROUTE:
        return SW_OK; /* loaded with the experts */
    case SW_OP_SIDE_INPUT:
        return sw_load_two(block, from, SW_SLOT_SIDE_GATE, SW_SLOT_SIDE_OUT, err);
    case SW_OP_NEAR_FAR:
        return sw_load_near_far(block, from, op->slot, err);
    case SW_OP_MIX_STREAMS:
        return sw_load_mixture(block, from, op->slot, err);
    case SW_OP_MERGE_STREAMS:
        return sw_load_merge(block, from, err);
    case SW_OP_ROUTE_TOKENS:
        return sw_load_token_experts(block, from, op->slot, err);
    case SW_OP_INDEX:
        return load_indexer(block, from, err);
    case SW_OP_LOW_RANK:
        return sw_load_two(block, from, SW_SLOT_LOW_RANK_A, SW_SLOT_LOW_RANK_B, err);
    case SW_OP_PREDICT:
        return load_copies(block, from, err);
    case SW_OP_CORRECT:
        return sw_load_linear(&block->linear[SW_SLOT_COPY_CORRECT], block, from,
                           SW_SLOT_COPY_CORRECT, -1, err);
    case SW_OP_MERGE:
        return block->layer + 1 == from->m->n_layers
                   ? load_tables(&block->copies_out, &block->arena, from->m, from->st,
                                 SW_END_COPIES_OUT, err)
                   : SW_OK;
    case SW_OP_SCALE:
    case SW_OP_MUL_VECTOR:
        return sw_load_vector(block, from, op->slot, "", false, err);
    case SW_OP_MOE:
    case SW_OP_MOE_ADD:
        return load_experts(block, from, err);
    case SW_OP_GATED_DELTA:
    case SW_OP_KIMI_DELTA:
    case SW_OP_SSD:
    case SW_OP_SHORT_CONV:
        return load_mixer(block, from, op->kind, err);
    case SW_OP_ATTENTION:
        return op->slot == SW_SLOT_COUNT ? SW_OK
                                         : sw_load_vector(block, from, op->slot, "", false, err);
    default:
        return SW_OK;
    }
}

/* All linears of a layer without a program: nothing runs them. */
static sw_code load_found(sw_block *block, const sw_loader *from, sw_err *err)
{
    const int64_t n = sw_model_linears(from->m, block->layer, NULL, 0);
    sw_code rc = SW_ARENA_TAKE(&block->experts[0], &block->arena, n, err);

    for (int64_t i = 0; i < n && rc == SW_OK; i++)
        rc = sw_load_linear(&block->experts[0][i], block, from, SW_SLOT_FOUND, i, err);
    return rc;
}

sw_code sw_block_load_from(sw_block *out, const sw_model *m, const sw_st *st,
                           const sw_linear_source *source, int64_t layer, sw_err *err)
{
    const sw_loader from = {m, st, source};
    sw_block block = {.layer = layer};
    int n_ops;
    const sw_op *ops = sw_model_ops(m, layer, &n_ops);
    sw_code rc = SW_OK;

    for (int i = 0; i < n_ops && rc == SW_OK; i++) rc = load_op(&block, &from, &ops[i], err);
    if (rc == SW_OK && m->found) rc = load_found(&block, &from, err);
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
    if (slot == SW_SLOT_FOUND) return &block->experts[0][expert];
    return expert < 0 ? &block->linear[slot] : &block->experts[slot - SW_SLOT_GATE][expert];
}

static sw_code load_embed_norm(sw_lm *lm, const sw_model *m, const sw_st *st, sw_err *err)
{
    const char *path = sw_model_end(m, SW_END_EMBED_NORM);
    sw_code rc = sw_load_floats(&lm->embed_norm, &lm->arena, st, path, ".weight", m->hidden, err);

    return rc == SW_OK
               ? sw_load_floats(&lm->embed_norm_bias, &lm->arena, st, path, ".bias", m->hidden, err)
               : rc;
}

/* The table's rows are the checkpoint's to say: it may leave out what is no text. */
static sw_code load_side_tables(sw_lm *lm, const sw_model *m, const sw_st *st, sw_err *err)
{
    const int64_t wide = m->n_layers * m->side_inputs;
    const char *path = sw_model_end(m, SW_END_SIDE_TABLE);
    const sw_st_tensor *table;
    int64_t n_rows = m->vocab;
    char name[300];
    sw_code rc;

    (void)snprintf(name, sizeof name, "%s.weight", path);
    table = sw_st_find(st, name);
    if (table && table->view.n_dims == 2) n_rows = table->view.shape[0];
    if (n_rows < 1) return SW_FAIL(err, SW_E_FORMAT, "%s: no rows", name);
    if ((rc = load_table(&lm->side_table, &lm->arena, st, path, n_rows, wide, err)) ||
        (rc = load_table(&lm->side_projection, &lm->arena, st,
                         sw_model_end(m, SW_END_SIDE_PROJECTION), wide, m->hidden, err)))
        return rc;
    return sw_load_floats(&lm->side_norm, &lm->arena, st, sw_model_end(m, SW_END_SIDE_NORM),
                          ".weight", m->side_inputs, err);
}

sw_code sw_lm_load_tables(sw_lm *out, const sw_model *m, const sw_st *st, sw_err *err)
{
    sw_lm lm = {.model = m};
    sw_code rc;

    rc = load_table(&lm.embed, &lm.arena, st, sw_model_end(m, SW_END_EMBED), m->vocab, m->hidden,
                    err);
    if (rc == SW_OK && m->n_position_rows)
        rc = load_table(&lm.positions, &lm.arena, st, sw_model_end(m, SW_END_POSITIONS),
                        m->n_position_rows, m->hidden, err);
    if (rc == SW_OK && m->n_copies && !m->hyper_rounds)
        rc = load_tables(&lm.copies_in, &lm.arena, m, st, SW_END_COPIES_IN, err);
    if (rc == SW_OK && m->side_inputs) rc = load_side_tables(&lm, m, st, err);
    if (rc == SW_OK && m->has_embed_norm) rc = load_embed_norm(&lm, m, st, err);
    if (rc == SW_OK)
        *out = lm;
    else
        sw_lm_free(&lm);
    return rc;
}

static sw_code load_head(sw_lm *lm, const sw_model *m, const sw_st *st,
                         const sw_linear_source *source, sw_err *err)
{
    const char *path = sw_model_end(m, SW_END_HEAD);
    sw_weight *head = &lm->head;
    sw_code rc = SW_OK;

    *head = lm->embed;
    if (m->is_tied) return SW_OK;
    *head = (sw_weight){.n_out = m->vocab, .k_in = m->hidden};
    if (source)
        rc = source->get(source->self, head, &lm->arena, path, m->vocab, m->hidden, err);
    if (rc != SW_OK || head->tiles || head->dense) return rc;
    return load_table(head, &lm->arena, st, path, m->vocab, m->hidden, err);
}

sw_code sw_lm_load_ends(sw_lm *out, const sw_model *m, const sw_st *st,
                        const sw_linear_source *source, sw_err *err)
{
    const char *norm = sw_model_end(m, SW_END_NORM);
    sw_lm lm = {.model = m};
    sw_code rc = sw_lm_load_tables(&lm, m, st, err);

    if (rc == SW_OK) rc = load_head(&lm, m, st, source, err);
    if (rc == SW_OK)
        rc = sw_load_floats(&lm.final_norm, &lm.arena, st, norm, ".weight", m->hidden, err);
    if (rc == SW_OK && m->arch->ends.has_norm_bias)
        rc = m->has_bare_layer_norms
                 ? SW_ARENA_TAKE(&lm.final_norm_bias, &lm.arena, m->hidden, err)
                 : sw_load_floats(&lm.final_norm_bias, &lm.arena, st, norm, ".bias", m->hidden,
                                  err);
    if (rc == SW_OK) {
        add_offset(lm.final_norm, m->norm_offset, m->hidden);
        *out = lm;
    } else {
        sw_lm_free(&lm);
    }
    return rc;
}

sw_code sw_lm_load(sw_lm *out, const sw_model *m, const sw_st *st, sw_err *err)
{
    sw_lm lm = {0};
    sw_code rc;

    if ((rc = sw_lm_load_ends(&lm, m, st, NULL, err)) != SW_OK) return rc;
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
