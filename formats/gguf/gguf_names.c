/* gguf_names.c - see gguf_names.h. */
#include "formats/gguf/gguf_names.h"

#include <stdio.h>
#include <string.h>

static const sw_gguf_arch archs[] = {
    {"llama", "llama", false, true},      {"llama", "mistral", false, true},
    {"llama", "mixtral", true, true},     {"qwen2", "qwen2", false, false},
    {"qwen3", "qwen3", false, false},     {"qwen3moe", "qwen3_moe", true, false},
    {"gemma2", "gemma2", false, false},   {"gemma3", "gemma3_text", false, false},
};
#define N_ARCHS (sizeof archs / sizeof *archs)

static sw_code unknown(const char *what, const char *name, bool is_file, sw_err *err)
{
    char list[160] = "";
    size_t at = 0;

    for (size_t i = 0; i < N_ARCHS && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "",
                               is_file ? archs[i].gguf : archs[i].model_type);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s \"%.60s\" is not known here as GGUF; there are %s",
                   what, name, list);
}

sw_code sw_gguf_arch_of_model(const sw_gguf_arch **out, const char *model_type, sw_err *err)
{
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(archs[i].model_type, model_type)) continue;
        *out = &archs[i];
        return SW_OK;
    }
    return unknown("model_type", model_type, false, err);
}

sw_code sw_gguf_arch_of_file(const sw_gguf_arch **out, const char *gguf, bool has_experts,
                             sw_err *err)
{
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(archs[i].gguf, gguf) || archs[i].is_moe != has_experts) continue;
        *out = &archs[i];
        return SW_OK;
    }
    return unknown("architecture", gguf, true, err);
}

/* What comes between "blk.N." and ".weight". */
static const char *const stems[SW_SLOT_COUNT] = {
    [SW_SLOT_Q] = "attn_q",
    [SW_SLOT_K] = "attn_k",
    [SW_SLOT_V] = "attn_v",
    [SW_SLOT_O] = "attn_output",
    [SW_SLOT_GATE] = "ffn_gate",
    [SW_SLOT_UP] = "ffn_up",
    [SW_SLOT_DOWN] = "ffn_down",
    [SW_SLOT_ROUTER] = "ffn_gate_inp",
    [SW_SLOT_NORM_ATTN] = "attn_norm",
    [SW_SLOT_NORM_MLP] = "ffn_norm",
    [SW_SLOT_NORM_AFTER_ATTN] = "post_attention_norm",
    [SW_SLOT_NORM_AFTER_MLP] = "post_ffw_norm",
    [SW_SLOT_NORM_Q] = "attn_q_norm",
    [SW_SLOT_NORM_K] = "attn_k_norm",
};

typedef struct builder {
    const sw_model *m;
    const sw_gguf_arch *arch;
    sw_gguf_names *out; /* names NULL while they are counted */
    sw_arena *arena;
} builder;

/* A new entry, or NULL while counting. */
static sw_code next(sw_gguf_name **out, builder *b, sw_err *err, const char *hf, const char *gguf,
                    const char *leaf)
{
    char *hf_text = NULL, *gguf_text = NULL;
    sw_gguf_name *name;
    sw_code rc;

    *out = NULL;
    if (!b->out->names) {
        b->out->n++;
        return SW_OK;
    }
    if ((rc = sw_arena_print(&hf_text, b->arena, err, "%s.%s", hf, leaf)) != SW_OK ||
        (rc = sw_arena_print(&gguf_text, b->arena, err, "%s.%s", gguf, leaf)) != SW_OK)
        return rc;
    name = &b->out->names[b->out->n++];
    *name = (sw_gguf_name){.hf = hf_text, .gguf = gguf_text, .expert = -1};
    *out = name;
    return SW_OK;
}

static sw_code add_table(builder *b, const char *hf, const char *gguf, sw_err *err)
{
    sw_gguf_name *name;
    sw_code rc = next(&name, b, err, hf, gguf, "weight");

    if (rc != SW_OK || !name) return rc;
    name->n_dims = 2;
    name->shape[0] = b->m->vocab;
    name->shape[1] = b->m->hidden;
    name->is_table = true;
    return SW_OK;
}

static sw_code add_norm(builder *b, const char *hf, const char *gguf, int64_t width, sw_err *err)
{
    sw_gguf_name *name;
    sw_code rc = next(&name, b, err, hf, gguf, "weight");

    if (rc != SW_OK || !name) return rc;
    name->n_dims = 1;
    name->shape[0] = width;
    name->offset = b->m->norm_offset;
    return SW_OK;
}

static sw_code paths_of(char hf[256], char gguf[64], const builder *b, int64_t layer, sw_slot slot,
                        int64_t expert, sw_err *err)
{
    if (!stems[slot] || !sw_model_slot_path(hf, b->m, layer, slot, expert))
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s has tensors that have no name as GGUF",
                       b->m->arch->name);
    (void)snprintf(gguf, 64, "blk.%lld.%s%s", (long long)layer, stems[slot],
                   expert < 0 ? "" : "_exps");
    return SW_OK;
}

static sw_code add_linear(builder *b, int64_t layer, sw_slot slot, int64_t expert, sw_err *err)
{
    const bool is_paired = b->arch->has_paired_rows && (slot == SW_SLOT_Q || slot == SW_SLOT_K);
    const bool has_bias = sw_model_slot_has_bias(b->m, slot);
    char hf[256], gguf[64];
    sw_code rc = paths_of(hf, gguf, b, layer, slot, expert, err);

    for (int i = 0; i <= has_bias && rc == SW_OK; i++) {
        sw_gguf_name *name;

        if ((rc = next(&name, b, err, hf, gguf, i ? "bias" : "weight")) != SW_OK || !name) continue;
        sw_model_slot_shape(b->m, layer, slot, &name->shape[0], &name->shape[1]);
        name->n_dims = i ? 1 : 2;
        name->is_linear = !i && slot != SW_SLOT_ROUTER;
        name->expert = expert;
        name->n_experts = expert < 0 ? 0 : b->m->n_experts;
        name->paired_rows = is_paired ? b->m->head_dim : 0;
    }
    return rc;
}

static sw_code add_experts(builder *b, int64_t layer, sw_err *err)
{
    sw_code rc = add_linear(b, layer, SW_SLOT_ROUTER, -1, err);

    for (int i = 0; i < 3; i++)
        for (int64_t e = 0; e < b->m->n_experts && rc == SW_OK; e++)
            rc = add_linear(b, layer, (sw_slot)(SW_SLOT_GATE + i), e, err);
    return rc;
}

static sw_code add_op(builder *b, int64_t layer, const sw_op *op, sw_err *err)
{
    char hf[256], gguf[64];
    int64_t one, width;
    sw_code rc;

    switch (op->kind) {
    case SW_OP_LINEAR:
        return add_linear(b, layer, op->slot, -1, err);
    case SW_OP_RMS_NORM:
    case SW_OP_HEAD_NORM:
        if ((rc = paths_of(hf, gguf, b, layer, op->slot, -1, err)) != SW_OK) return rc;
        sw_model_slot_shape(b->m, layer, op->slot, &one, &width);
        return add_norm(b, hf, gguf, width, err);
    case SW_OP_MOE:
        return add_experts(b, layer, err);
    case SW_OP_LAYER_NORM:
    case SW_OP_MOE_ADD:
        return SW_FAIL(err, SW_E_UNSUPPORTED, "%s has blocks that are not known as GGUF",
                       b->m->arch->name);
    default:
        return SW_OK;
    }
}

static sw_code add_all(builder *b, sw_err *err)
{
    sw_code rc = add_table(b, sw_model_end(b->m, SW_END_EMBED), "token_embd", err);

    for (int64_t l = 0; l < b->m->n_layers && rc == SW_OK; l++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(b->m, l, &n_ops);

        for (int i = 0; i < n_ops && rc == SW_OK; i++) rc = add_op(b, l, &ops[i], err);
    }
    if (rc == SW_OK)
        rc = add_norm(b, sw_model_end(b->m, SW_END_NORM), "output_norm", b->m->hidden, err);
    if (rc == SW_OK && !b->m->is_tied)
        rc = add_table(b, sw_model_end(b->m, SW_END_HEAD), "output", err);
    return rc;
}

sw_code sw_gguf_names_new(sw_gguf_names *out, const sw_model *m, const sw_gguf_arch *arch,
                          sw_arena *arena, sw_err *err)
{
    sw_gguf_names names = {0};
    builder b = {m, arch, &names, arena};
    sw_code rc = add_all(&b, err);

    if (rc == SW_OK) rc = SW_ARENA_TAKE(&names.names, arena, names.n, err);
    names.n = 0;
    if (rc == SW_OK) rc = add_all(&b, err);
    if (rc == SW_OK) *out = names;
    return rc;
}

void sw_gguf_pair_rows(void *dst, const void *src, int64_t n_rows, int64_t row_bytes,
                       int64_t paired_rows, bool to_file)
{
    const int64_t half = paired_rows / 2;

    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t head = row / paired_rows * paired_rows, at = row % paired_rows;
        const int64_t in_file = head + 2 * (at % half) + at / half;

        memcpy((char *)dst + (to_file ? in_file : row) * row_bytes,
               (const char *)src + (to_file ? row : in_file) * row_bytes, (size_t)row_bytes);
    }
}
