/* gguf_names.c - see gguf_names.h: the walk over a model's block programs. Entries are made by
 * gguf_entries.c.
 */
#include "formats/gguf/gguf_names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf_entries.h"

static sw_code add_norm_at(sw_gguf_builder *b, const char *hf, const char *gguf, int64_t width,
                           bool has_bias)
{
    sw_gguf_name *name;
    sw_code rc = sw_gguf_entry_vector(&name, b, hf, "weight", gguf, "weight", width);

    if (rc == SW_OK && name && fabs(b->m->norm_offset) > 0.0) {
        name->kind = SW_GGUF_OFFSET;
        name->offset = b->m->norm_offset;
    }
    if (rc != SW_OK || !has_bias) return rc;
    return sw_gguf_entry_vector(&name, b, hf, "bias", gguf, "bias", width);
}

static sw_code add_norm(sw_gguf_builder *b, sw_slot slot, bool has_bias)
{
    char hf[256], gguf[64];
    int64_t one, width;
    sw_code rc = sw_gguf_entry_paths(hf, gguf, b, slot, -1);

    if (rc != SW_OK) return rc;
    sw_model_slot_shape(b->m, b->layer, slot, &one, &width);
    return add_norm_at(b, hf, gguf, width, has_bias);
}

/* The model has a tensor for each head, the file has one for all heads. */
static sw_code add_head_norms(sw_gguf_builder *b, const sw_op *op)
{
    const sw_sizes s = sw_model_sizes(b->m, b->layer);
    const int64_t n = op->dst == SW_BUF_Q ? s.n_heads : s.n_kv_heads;
    char hf[256], gguf[64], path[300];
    sw_code rc = sw_gguf_entry_paths(hf, gguf, b, op->slot, -1);

    for (int64_t h = 0; h < n && rc == SW_OK; h++) {
        sw_gguf_name *name;

        (void)snprintf(path, sizeof path, "%s.norms.%lld", hf, (long long)h);
        rc = sw_gguf_entry_vector(&name, b, path, "weight", gguf, "weight", s.head_dim);
        if (rc == SW_OK && name) sw_gguf_entry_stack(name, h, n);
    }
    return rc;
}

/* Add a vector whose name in the model is that of its slot, without a suffix. */
static sw_code add_vector(sw_gguf_builder *b, sw_slot slot, const char *leaf, sw_gguf_name **out)
{
    char hf[256], gguf[64];
    int64_t one, width;
    sw_code rc = sw_gguf_entry_paths(hf, gguf, b, slot, -1);

    *out = NULL;
    if (rc != SW_OK) return rc;
    sw_model_slot_shape(b->m, b->layer, slot, &one, &width);
    return sw_gguf_entry_vector(out, b, hf, NULL, gguf, leaf, width);
}

static bool moves_heads(const sw_gguf_builder *b)
{
    const sw_mixer *x = &b->m->mixer;

    return b->arch->order == SW_GGUF_V_HEADS && x->n_groups != x->n_heads;
}

/* Order heads of values, of `width` rows each, that follow `first` other rows. */
static sw_code order_heads(sw_gguf_name *name, sw_gguf_builder *b, int64_t first, int64_t width)
{
    const sw_mixer *x = &b->m->mixer;

    if (!name || !moves_heads(b)) return SW_OK;
    return sw_gguf_entry_order(name, b,
                               (sw_gguf_order_of){.kind = SW_GGUF_ROWS_HEADS, .first = first,
                                                  .groups = x->n_groups,
                                                  .per = x->n_heads / x->n_groups, .width = width});
}

/* Add a number for each head; for Mamba the file has a row for each. */
static sw_code add_head_vector(sw_gguf_builder *b, sw_slot slot, const char *leaf)
{
    const bool is_column = slot != SW_SLOT_DT_BIAS && b->m->mixer.kind != SW_MIXER_DELTA &&
                           b->m->mixer.kind != SW_MIXER_DELTA_GROUPED;
    sw_gguf_name *name;
    sw_code rc = add_vector(b, slot, leaf, &name);

    if (rc != SW_OK || !name) return rc;
    if (slot == SW_SLOT_A_LOG) name->kind = SW_GGUF_NEG_EXP;
    sw_gguf_entry_by_elements(name);
    if (is_column) {
        name->file_dims = 2;
        name->file_shape[1] = 1;
    }
    return order_heads(name, b, 0, 1);
}

static sw_code add_conv(sw_gguf_builder *b, sw_slot slot)
{
    const sw_mixer *x = &b->m->mixer;
    char hf[256], gguf[64];
    int64_t taps, width;
    sw_gguf_name *name;
    sw_code rc = sw_gguf_entry_paths(hf, gguf, b, slot, -1);

    if (rc != SW_OK) return rc;
    sw_model_slot_shape(b->m, b->layer, slot, &taps, &width);
    rc = sw_gguf_entry(&name, b, hf, "weight", gguf, "weight", width, taps);
    if (rc != SW_OK) return rc;
    if (name) {
        name->n_dims = 3;
        name->shape[1] = 1;
        name->shape[2] = taps;
        if (slot != SW_SLOT_CONV) {
            name->file_dims = 3;
            name->file_shape[1] = 1;
            name->file_shape[2] = taps;
        }
    }
    rc = order_heads(name, b, 2 * sw_mixer_keys(x), x->d_head);
    if (rc != SW_OK || !x->has_conv_bias) return rc;
    return sw_gguf_entry_vector(&name, b, hf, "bias", gguf, "bias", width);
}

static sw_code add_mixer_norm(sw_gguf_builder *b)
{
    const sw_mixer *x = &b->m->mixer;
    char hf[256], gguf[64];
    int64_t one, width;
    sw_gguf_name *name;
    sw_code rc = sw_gguf_entry_paths(hf, gguf, b, SW_SLOT_NORM_MIX, -1);

    if (rc != SW_OK) return rc;
    sw_model_slot_shape(b->m, b->layer, SW_SLOT_NORM_MIX, &one, &width);
    rc = sw_gguf_entry_vector(&name, b, hf, "weight", gguf, "weight", width);
    if (rc != SW_OK || !name || x->kind != SW_MIXER_SSD) return rc;
    name->file_dims = 2;
    name->file_shape[0] = x->n_groups;
    name->file_shape[1] = width / x->n_groups;
    return SW_OK;
}

static sw_code add_mixer(sw_gguf_builder *b, sw_op_kind kind)
{
    static const sw_slot kimi[] = {SW_SLOT_CONV_Q, SW_SLOT_CONV_K, SW_SLOT_CONV_V};
    sw_code rc = SW_OK;

    for (int i = 0; i < 3 && kind == SW_OP_KIMI_DELTA && rc == SW_OK; i++)
        rc = add_conv(b, kimi[i]);
    if (kind != SW_OP_KIMI_DELTA) rc = add_conv(b, SW_SLOT_CONV);
    if (kind == SW_OP_SHORT_CONV || rc != SW_OK) return rc;
    if ((rc = add_head_vector(b, SW_SLOT_A_LOG, NULL)) == SW_OK)
        rc = add_head_vector(b, SW_SLOT_DT_BIAS, "bias");
    if (rc == SW_OK && kind == SW_OP_SSD) rc = add_head_vector(b, SW_SLOT_D, NULL);
    return rc == SW_OK && b->m->mixer.has_norm ? add_mixer_norm(b) : rc;
}

/* Return whether loaders turn neighbouring rows of this slot where the model turns halves. */
static bool is_paired(const sw_gguf_builder *b, sw_slot slot)
{
    return b->arch->turns_pairs && !b->m->is_rope_paired &&
           (slot == SW_SLOT_Q || slot == SW_SLOT_K);
}

/* Return whether the model has queries, keys and values head by head, as gpt_neox does. */
static bool splits_groups(const sw_gguf_builder *b)
{
    int n_ops;
    const sw_op *ops = sw_model_ops(b->m, b->layer, &n_ops);

    for (int i = 0; i < n_ops; i++)
        if (ops[i].kind == SW_OP_SPLIT_GROUPS) return true;
    return false;
}

/* Set the order of a linear's rows, or of the elements of its bias. */
static sw_code order_linear(sw_gguf_name *name, sw_gguf_builder *b, sw_slot slot)
{
    const sw_sizes s = sw_model_sizes(b->m, b->layer);
    const sw_mixer *x = &b->m->mixer;
    const bool is_grouped = slot == SW_SLOT_QKV && splits_groups(b);

    if (is_paired(b, slot))
        return sw_gguf_entry_order(name, b,
                                   (sw_gguf_order_of){.kind = SW_GGUF_ROWS_PAIRS,
                                                      .width = s.head_dim, .part = s.rope_dim});
    if (is_grouped)
        return sw_gguf_entry_order(name, b,
                                   (sw_gguf_order_of){.kind = SW_GGUF_ROWS_QKV,
                                                      .groups = s.n_kv_heads,
                                                      .per = s.n_heads / s.n_kv_heads,
                                                      .width = s.head_dim});
    if (slot == SW_SLOT_MIX_IN) return order_heads(name, b, 2 * sw_mixer_keys(x), x->d_head);
    if (slot == SW_SLOT_MIX_Z) return order_heads(name, b, 0, x->d_head);
    if (slot == SW_SLOT_MIX_A || slot == SW_SLOT_MIX_B) return order_heads(name, b, 0, 1);
    return SW_OK;
}

/* The columns of a delta net's output follow its heads of values, so their order is the same. */
static sw_code order_columns(sw_gguf_name *name, sw_gguf_builder *b, sw_slot slot)
{
    const sw_mixer *x = &b->m->mixer;
    sw_gguf_order_of of = {.kind = SW_GGUF_ROWS_HEADS, .n_rows = name->row_elems,
                           .groups = x->n_groups, .width = x->d_head};

    if (slot != SW_SLOT_MIX_OUT || !moves_heads(b)) return SW_OK;
    of.per = x->n_heads / x->n_groups;
    name->cols_run = x->d_head;
    return sw_gguf_order_rows(&name->cols, &b->orders, &of, b->arena, b->err);
}

static sw_code add_linear_as(sw_gguf_builder *b, sw_slot slot, int64_t expert, bool is_quantized)
{
    const int n_tensors = 1 + sw_model_slot_has_bias(b->m, slot);
    char hf[256], gguf[64];
    int64_t n_out, k_in;
    sw_code rc = sw_gguf_entry_paths(hf, gguf, b, slot, expert);

    sw_model_slot_shape(b->m, b->layer, slot, &n_out, &k_in);
    for (int i = 0; i < n_tensors && rc == SW_OK; i++) {
        sw_gguf_name *name;

        rc = i ? sw_gguf_entry_vector(&name, b, hf, "bias", gguf, "bias", n_out)
               : sw_gguf_entry(&name, b, hf, "weight", gguf, "weight", n_out, k_in);
        if (rc != SW_OK || !name) continue;
        name->is_linear = !i && is_quantized;
        name->slot = slot;
        name->expert = expert;
        if (i) sw_gguf_entry_by_elements(name);
        if ((rc = order_linear(name, b, slot)) == SW_OK && !i) rc = order_columns(name, b, slot);
        if (i && !name->rows) { /* it is one row again */
            name->row_elems = name->file_elems = n_out;
            name->all_rows = name->n_rows = 1;
        }
        if (expert >= 0) sw_gguf_entry_stack(name, expert, b->m->n_experts);
    }
    return rc;
}

/* A linear of the model whose pieces are tensors in the file; the list of stems ends with NULL. */
typedef struct split {
    const char *stem;
    int64_t n_rows;
    sw_gguf_order_of of; /* n_rows 0: rows follow each other from model_first on */
    int64_t model_first;
} split;

static sw_code add_split(sw_gguf_builder *b, sw_slot slot, const split *parts, int n,
                         sw_gguf_name **names)
{
    char hf[256], gguf[64];
    int64_t n_out, k_in;
    sw_code rc = SW_OK;

    if (!sw_model_slot_path(hf, b->m, b->layer, slot, -1)) return sw_gguf_entry_refuse(b);
    sw_model_slot_shape(b->m, b->layer, slot, &n_out, &k_in);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        sw_gguf_name *name;

        (void)snprintf(gguf, sizeof gguf, "blk.%lld.%s", (long long)b->layer, parts[i].stem);
        rc = sw_gguf_entry(&name, b, hf, "weight", gguf, "weight", n_out, k_in);
        if (names) names[i] = name;
        if (rc != SW_OK || !name) continue;
        name->is_linear = true;
        name->slot = slot;
        name->part = i;
        name->n_parts = n;
        name->n_rows = name->file_shape[0] = parts[i].n_rows;
        name->model_first = parts[i].model_first;
        if (parts[i].of.n_rows) rc = sw_gguf_entry_order(name, b, parts[i].of);
    }
    return rc;
}

/* The file has keys transposed within each head, so that loaders can multiply queries by them. */
static sw_code add_latent(sw_gguf_builder *b)
{
    const sw_sizes s = sw_model_sizes(b->m, b->layer);
    const int64_t plain = s.head_dim - s.rope_dim, rank = b->m->kv_rank;
    const split parts[] = {
        {"attn_k_b", s.n_heads * rank, {0}, 0},
        {"attn_v_b", s.n_heads * s.v_head_dim,
         {.kind = SW_GGUF_ROWS_TAIL, .n_rows = 1, .groups = s.n_heads, .width = s.v_head_dim,
          .part = plain}, 0},
    };
    sw_gguf_name *names[2];
    sw_code rc = add_split(b, SW_SLOT_KV_B, parts, 2, names);

    for (int i = 0; i < 2 && rc == SW_OK && names[i]; i++) {
        names[i]->is_linear = false;
        names[i]->floats = b->m->dtype == SW_DTYPE_F16    ? SW_BLOCK_F16
                           : b->m->dtype == SW_DTYPE_BF16 ? SW_BLOCK_BF16 : SW_BLOCK_F32;
        names[i]->file_dims = 3;
        names[i]->file_shape[0] = s.n_heads;
        names[i]->file_shape[1] = i ? s.v_head_dim : rank;
        names[i]->file_shape[2] = names[i]->file_elems = i ? rank : plain;
        names[i]->turned_stride = i ? 0 : plain + s.v_head_dim;
    }
    return rc;
}

static sw_code add_ungrouped(sw_gguf_builder *b)
{
    const sw_mixer *x = &b->m->mixer;
    const sw_gguf_order_of of = {.n_rows = 1, .groups = x->n_groups, .width = x->d_head,
                                 .per = x->n_heads / x->n_groups, .part = x->d_state};
    split parts[] = {{"attn_qkv", sw_mixer_conv_width(x), of, 0},
                     {"attn_gate", sw_mixer_width(x), of, 0}};

    parts[0].of.kind = SW_GGUF_ROWS_DELTA_QKV;
    parts[1].of.kind = SW_GGUF_ROWS_DELTA_Z;
    return add_split(b, SW_SLOT_MIX_IN, parts, 2, NULL);
}

/* Granite's shared MLP is an expert of every token, or the only MLP of a model without experts. */
static sw_code add_shared_halves(sw_gguf_builder *b)
{
    const int64_t n = b->m->shared_intermediate;
    const bool is_alone = !b->m->n_experts;
    const split parts[] = {{is_alone ? "ffn_gate" : "ffn_gate_shexp", n, {0}, 0},
                           {is_alone ? "ffn_up" : "ffn_up_shexp", n, {0}, n}};

    return add_split(b, SW_SLOT_SHARED_GATE_UP, parts, 2, NULL);
}

static sw_code add_linear(sw_gguf_builder *b, sw_slot slot)
{
    if (slot == SW_SLOT_KV_B) return add_latent(b);
    if (slot == SW_SLOT_SHARED_GATE_UP) return add_shared_halves(b);
    if (slot == SW_SLOT_MIX_IN && b->arch->order == SW_GGUF_UNGROUPED) return add_ungrouped(b);
    return add_linear_as(b, slot, -1, true);
}

static sw_code add_kept(sw_gguf_builder *b, sw_slot slot)
{
    return add_linear_as(b, slot, -1, false);
}

static sw_code add_experts(sw_gguf_builder *b)
{
    static const struct {
        sw_slot slot;
        const char *leaf;
    } vectors[] = {{SW_SLOT_ROUTER_SHIFT, "bias"}, {SW_SLOT_EXPERT_SCALE, "scale"}};
    sw_gguf_name *name;
    sw_code rc = add_kept(b, SW_SLOT_ROUTER);

    for (int i = 0; i < 2 && rc == SW_OK; i++)
        if (b->m->arch->slot_names[vectors[i].slot])
            rc = add_vector(b, vectors[i].slot, vectors[i].leaf, &name);
    for (int i = 0; i < 3; i++)
        for (int64_t e = 0; e < b->m->n_experts && rc == SW_OK; e++)
            if (b->m->arch->expert_names[i])
                rc = add_linear_as(b, (sw_slot)(SW_SLOT_GATE + i), e, true);
    return rc;
}

static sw_code add_two(sw_gguf_builder *b, sw_slot first, sw_slot second)
{
    sw_code rc = add_kept(b, first);

    return rc ? rc : add_kept(b, second);
}

static sw_code add_bare(sw_gguf_builder *b, sw_slot slot, const char *leaf)
{
    sw_gguf_name *name;

    return slot == SW_SLOT_COUNT ? SW_OK : add_vector(b, slot, leaf, &name);
}

static sw_code add_copies(sw_gguf_builder *b)
{
    sw_code rc = add_norm(b, SW_SLOT_COPY_NORM, false);

    return rc ? rc : add_two(b, SW_SLOT_COPY_ROUTER, SW_SLOT_COPY_PREDICT);
}

/* What chooses keys stays in floats. */
static sw_code add_index(sw_gguf_builder *b)
{
    sw_code rc = add_two(b, SW_SLOT_INDEX_Q, SW_SLOT_INDEX_K);

    if (rc == SW_OK) rc = add_kept(b, SW_SLOT_INDEX_WEIGHT);
    return rc ? rc : add_norm(b, SW_SLOT_NORM_INDEX, true);
}

static sw_code add_op(sw_gguf_builder *b, const sw_op *op)
{
    switch (op->kind) {
    case SW_OP_LINEAR:
        return add_linear(b, op->slot);
    case SW_OP_KEPT_LINEAR:
    case SW_OP_ROW_GATE:
        return add_kept(b, op->slot);
    case SW_OP_RMS_NORM:
        return op->slot == SW_SLOT_ROUTER_NORM ? add_bare(b, op->slot, "scale")
                                               : add_norm(b, op->slot, false);
    case SW_OP_HEAD_NORM:
        return op->slot == SW_SLOT_COUNT ? SW_OK : add_norm(b, op->slot, false);
    case SW_OP_LAYER_NORM:
        return add_norm(b, op->slot, !b->m->has_bare_layer_norms);
    case SW_OP_HEAD_LAYER_NORM:
        return add_head_norms(b, op);
    case SW_OP_ATTENTION:
    case SW_OP_SCALE:
    case SW_OP_MUL_VECTOR:
        return add_bare(b, op->slot, "weight");
    case SW_OP_MOE:
    case SW_OP_MOE_ADD:
        return add_experts(b);
    case SW_OP_SIDE_INPUT:
        return add_two(b, SW_SLOT_SIDE_GATE, SW_SLOT_SIDE_OUT);
    case SW_OP_LOW_RANK:
        return add_two(b, SW_SLOT_LOW_RANK_A, SW_SLOT_LOW_RANK_B);
    case SW_OP_PREDICT:
        return add_copies(b);
    case SW_OP_CORRECT:
        return add_kept(b, SW_SLOT_COPY_CORRECT);
    case SW_OP_INDEX:
        return add_index(b);
    case SW_OP_GATED_DELTA:
    case SW_OP_KIMI_DELTA:
    case SW_OP_SSD:
    case SW_OP_SHORT_CONV:
        return add_mixer(b, op->kind);
    default:
        return SW_OK;
    }
}

static sw_code add_table(sw_gguf_builder *b, sw_end end, const char *gguf, int64_t n_rows,
                         int64_t width)
{
    sw_gguf_name *name;
    sw_code rc = sw_gguf_entry(&name, b, sw_model_end(b->m, end), "weight", gguf, "weight", n_rows,
                               width);

    if (rc == SW_OK && name) name->is_table = true;
    return rc;
}

/* Add a table [hidden, hidden] for each copy of the residual stream except the first. */
static sw_code add_tables(sw_gguf_builder *b, sw_end end, const char *gguf)
{
    const int64_t h = b->m->hidden, n = b->m->n_copies - 1;
    char path[SW_END_BYTES + 24];
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        sw_gguf_name *name;

        (void)snprintf(path, sizeof path, "%s.%lld", sw_model_end(b->m, end), (long long)i);
        rc = sw_gguf_entry(&name, b, path, "weight", gguf, "weight", h, h);
        if (rc != SW_OK || !name) continue;
        name->is_table = true;
        sw_gguf_entry_stack(name, i, n);
    }
    return rc;
}

static sw_code add_begin(sw_gguf_builder *b)
{
    const sw_model *m = b->m;
    const int64_t wide = m->n_layers * m->side_inputs;
    sw_code rc = add_table(b, SW_END_EMBED, "token_embd", m->vocab, m->hidden);

    if (rc == SW_OK && m->n_position_rows) return sw_gguf_entry_refuse(b);
    if (rc == SW_OK && m->has_embed_norm)
        rc = add_norm_at(b, sw_model_end(m, SW_END_EMBED_NORM), "token_embd_norm", m->hidden, true);
    if (rc == SW_OK && wide && (rc = add_table(b, SW_END_SIDE_TABLE, "per_layer_token_embd",
                                               m->vocab, wide)) == SW_OK &&
        (rc = add_table(b, SW_END_SIDE_PROJECTION, "per_layer_model_proj", wide, m->hidden)) ==
            SW_OK)
        rc = add_norm_at(b, sw_model_end(m, SW_END_SIDE_NORM), "per_layer_proj_norm",
                         m->side_inputs, false);
    if (rc == SW_OK && m->n_copies) rc = add_tables(b, SW_END_COPIES_IN, "altup_proj");
    if (rc == SW_OK && m->n_copies) rc = add_tables(b, SW_END_COPIES_OUT, "altup_unembd_proj");
    return rc;
}

/* Where a linear for keys is stored that nobody reads, the file has a norm of these keys too. */
static bool has_unused_keys(const sw_gguf_builder *b, const sw_op *ops, int n_ops)
{
    bool has_linear = false, has_norm = !b->m->arch->slot_names[SW_SLOT_NORM_K];

    for (int i = 0; i < n_ops; i++) {
        has_linear = has_linear || (ops[i].kind == SW_OP_LINEAR && ops[i].slot == SW_SLOT_K);
        has_norm = has_norm || ops[i].slot == SW_SLOT_NORM_K;
    }
    return b->m->shares_kv[b->layer] && has_linear && !has_norm;
}

static sw_code add_all(sw_gguf_builder *b)
{
    const char *norm = sw_gguf_stem_of(b->arch, SW_SLOT_NORM_FINAL);
    sw_code rc;

    b->layer = -1;
    rc = add_begin(b);
    for (int64_t l = 0; l < b->m->n_layers && rc == SW_OK; l++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(b->m, l, &n_ops);

        b->layer = l;
        for (int i = 0; i < n_ops && rc == SW_OK; i++) rc = add_op(b, &ops[i]);
        if (rc == SW_OK && has_unused_keys(b, ops, n_ops)) rc = add_norm(b, SW_SLOT_NORM_K, false);
    }
    b->layer = -1;
    if (rc == SW_OK)
        rc = add_norm_at(b, sw_model_end(b->m, SW_END_NORM), norm, b->m->hidden,
                         b->m->arch->ends.has_norm_bias && !b->m->has_bare_layer_norms);
    if (rc == SW_OK && !b->m->is_tied)
        rc = add_table(b, SW_END_HEAD, "output", b->m->vocab, b->m->hidden);
    return rc;
}

sw_code sw_gguf_names_new(sw_gguf_names *out, const sw_model *m, const sw_gguf_arch *arch,
                          sw_arena *arena, sw_err *err)
{
    sw_gguf_names names = {0};
    sw_gguf_builder b = {.m = m, .arch = arch, .out = &names, .arena = arena, .err = err};
    sw_code rc = add_all(&b);

    if (rc == SW_OK) rc = SW_ARENA_TAKE(&names.names, arena, names.n, err);
    names.n = 0;
    if (rc == SW_OK) rc = add_all(&b);
    if (rc == SW_OK) *out = names;
    return rc;
}
