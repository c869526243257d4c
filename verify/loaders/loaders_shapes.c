/* loaders_shapes.c - loader rules about schemes and shapes of linears, see loaders.def. */
#include <stdio.h>
#include <string.h>

#include "verify/loaders/loaders_parts.h"

/* Linears that engines run as one product. */
static const sw_slot fused[][3] = {
    {SW_SLOT_Q, SW_SLOT_K, SW_SLOT_V},
    {SW_SLOT_GATE, SW_SLOT_UP, SW_SLOT_COUNT},
    {SW_SLOT_SHARED_GATE, SW_SLOT_SHARED_UP, SW_SLOT_COUNT},
    {SW_SLOT_Q_A, SW_SLOT_KV_A, SW_SLOT_COUNT},
    {SW_SLOT_MIX_IN, SW_SLOT_MIX_Z, SW_SLOT_COUNT},
};

/* Asked of a linear and one that runs with it. */
typedef sw_code (*pair_check)(sw_load_ctx *ctx, const sw_load_linear *a, const sw_load_linear *b);

static bool is_group(const sw_slot group[3], sw_slot slot)
{
    return group[0] == slot || group[1] == slot || group[2] == slot;
}

/* Every linear against the first of its group: they lie near each other in block order. */
static sw_code for_fused(sw_load_ctx *ctx, pair_check check)
{
    sw_code rc = SW_OK;

    for (size_t g = 0; g < sizeof fused / sizeof *fused; g++)
        for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++) {
            const sw_load_linear *l = &ctx->linears[i], *first = NULL;
            if (!is_group(fused[g], l->ref.slot)) continue;
            for (int64_t k = i - 1; k >= 0 && ctx->linears[k].ref.layer == l->ref.layer; k--)
                if (ctx->linears[k].ref.expert == l->ref.expert &&
                    is_group(fused[g], ctx->linears[k].ref.slot))
                    first = &ctx->linears[k];
            if (first) rc = check(ctx, first, l);
        }
    return rc;
}

static sw_code same_scheme(sw_load_ctx *ctx, const sw_load_linear *a, const sw_load_linear *b)
{
    if (a->is_quantized != b->is_quantized)
        return sw_load_found(ctx, b->path, "%s is quantized, %s is not",
                             a->is_quantized ? a->path : b->path,
                             a->is_quantized ? b->path : a->path);
    if (!a->is_quantized || !a->spec.num || !b->spec.num || sw_qspec_same(&a->spec, &b->spec))
        return SW_OK;
    return sw_load_found(ctx, b->path, "%s has %s in groups of %lld, %s has %s in groups of %lld",
                         a->path, a->spec.num->name, (long long)a->spec.group_elems, b->path,
                         b->spec.num->name, (long long)b->spec.group_elems);
}

sw_code sw_load_fused_scheme(sw_load_ctx *ctx)
{
    return ctx->quant ? for_fused(ctx, same_scheme) : SW_OK;
}

sw_code sw_load_experts_scheme(sw_load_ctx *ctx)
{
    const sw_load_linear *first = NULL;
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++) {
        const sw_load_linear *l = &ctx->linears[i];
        if (!ctx->quant || l->ref.expert < 0) continue;
        if (!first || first->ref.layer != l->ref.layer) first = l;
        rc = same_scheme(ctx, first, l);
    }
    return rc;
}

/* A stored float of one element; false: there is none of that name. */
static bool single(float *out, const sw_load_ctx *ctx, const char *path, const char *suffix)
{
    char name[400];
    const sw_st_tensor *t;

    if ((size_t)snprintf(name, sizeof name, "%s.%s", path, suffix) >= sizeof name) return false;
    t = sw_st_find(ctx->ckpt->st, name);
    return t && sw_view_elems(&t->view) == 1 &&
           sw_float_decode_n(out, t->view.data, t->view.dtype, 1, NULL) == SW_OK;
}

static sw_code same_single(sw_load_ctx *ctx, const sw_load_linear *a, const sw_load_linear *b,
                           const char *const *suffixes)
{
    for (int i = 0; suffixes[i]; i++) {
        float x = 0, y = 0;
        if (!single(&x, ctx, a->path, suffixes[i]) || !single(&y, ctx, b->path, suffixes[i]))
            continue;
        if (x < y || x > y)
            return sw_load_found(ctx, b->path, "%s is %.9g, and %.9g of %s", suffixes[i],
                                 (double)y, (double)x, a->path);
    }
    return SW_OK;
}

static sw_code same_global(sw_load_ctx *ctx, const sw_load_linear *a, const sw_load_linear *b)
{
    static const char *const suffixes[] = {"weight_global_scale", "weight_scale_2",
                                           "input_global_scale", NULL};

    if (!a->is_quantized || !b->is_quantized || !a->spec.num || !a->spec.has_global) return SW_OK;
    return same_single(ctx, a, b, suffixes);
}

sw_code sw_load_fused_global(sw_load_ctx *ctx) { return for_fused(ctx, same_global); }

static sw_code same_scale(sw_load_ctx *ctx, const sw_load_linear *a, const sw_load_linear *b)
{
    static const char *const suffixes[] = {"weight_scale", "input_scale", NULL};

    if (!a->is_quantized || !b->is_quantized || !a->spec.num ||
        a->spec.scale_rows != SW_ROWS_ALL)
        return SW_OK;
    return same_single(ctx, a, b, suffixes);
}

sw_code sw_load_fused_scale(sw_load_ctx *ctx) { return for_fused(ctx, same_scale); }

typedef bool (*linear_test)(const sw_load_ctx *ctx, const sw_load_linear *l);

/* Every quantized linear that the test holds for, with its shape. */
static sw_code for_linears(sw_load_ctx *ctx, linear_test breaks)
{
    sw_code rc = SW_OK;

    for (int64_t i = 0; i < ctx->n_linears && rc == SW_OK; i++) {
        const sw_load_linear *l = &ctx->linears[i];
        if (l->is_quantized && l->spec.num && breaks(ctx, l))
            rc = sw_load_found(ctx, l->path, "%lld outputs, %lld inputs, %s in groups of %lld",
                               (long long)l->ref.n_out, (long long)l->ref.k_in,
                               l->spec.num->name, (long long)l->spec.group_elems);
    }
    return rc;
}

static bool is_dialect(const sw_load_ctx *ctx, const char *prefix)
{
    const sw_dialect *d = ctx->ckpt->dialect;

    return d && !strncmp(d->name, prefix, strlen(prefix));
}

static bool is_marlin_kind(const sw_load_linear *l)
{
    return l->spec.num->kind == SW_NUM_INT && l->spec.act.scope == SW_ACT_NONE &&
           (l->spec.num->bits == 4 || l->spec.num->bits == 8);
}

static bool is_one_of(int64_t v, const int64_t *list)
{
    for (; *list >= 0; list++)
        if (*list == v) return true;
    return false;
}

static bool breaks_blocks(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    (void)ctx;
    return l->spec.scale_rows > 1 &&
           (l->ref.n_out % l->spec.scale_rows || l->ref.k_in % l->spec.group_elems);
}

sw_code sw_load_fp8_block_shape(sw_load_ctx *ctx) { return for_linears(ctx, breaks_blocks); }

static bool breaks_cutlass(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    (void)ctx;
    return (l->spec.act.scope == SW_ACT_TENSOR || l->spec.act.scope == SW_ACT_TOKEN) &&
           (l->ref.n_out % 16 || l->ref.k_in % 16);
}

sw_code sw_load_cutlass_shape(sw_load_ctx *ctx) { return for_linears(ctx, breaks_cutlass); }

static bool breaks_ct_bits(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "compressed-tensors") && l->spec.num->kind == SW_NUM_INT &&
           l->spec.num->bits < 4;
}

sw_code sw_load_ct_bits(sw_load_ctx *ctx) { return for_linears(ctx, breaks_ct_bits); }

static bool breaks_expert_bits(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return l->ref.expert >= 0 && breaks_ct_bits(ctx, l);
}

sw_code sw_load_ct_expert_bits(sw_load_ctx *ctx) { return for_linears(ctx, breaks_expert_bits); }

static bool breaks_expert_groups(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "compressed-tensors") && l->ref.expert >= 0 &&
           l->spec.num->kind == SW_NUM_INT && l->spec.act.scope == SW_ACT_NONE &&
           !l->spec.group_elems;
}

sw_code sw_load_ct_expert_groups(sw_load_ctx *ctx)
{
    return for_linears(ctx, breaks_expert_groups);
}

static bool breaks_modelopt_experts(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "modelopt") && l->ref.expert >= 0 &&
           l->spec.num == &sw_nums[SW_NUM_E4M3] && l->spec.scale_dtype != SW_DTYPE_F8_E8M0 &&
           l->spec.scale_rows != SW_ROWS_ALL;
}

sw_code sw_load_modelopt_experts(sw_load_ctx *ctx)
{
    return for_linears(ctx, breaks_modelopt_experts);
}

static bool breaks_mistral3(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    const char *type = NULL;

    return is_dialect(ctx, "fp8") && l->spec.scale_rows > 1 &&
           sw_json_text(&type, ctx->ckpt->config, "model_type", ctx->err) == SW_OK && type &&
           !strcmp(type, "mistral3");
}

sw_code sw_load_fp8_mistral3(sw_load_ctx *ctx) { return for_linears(ctx, breaks_mistral3); }

static bool breaks_gpt_oss(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return l->ref.expert >= 0 && !ctx->ckpt->dialect->is_stacked &&
           !strcmp(ctx->ckpt->model.arch->name, "gpt_oss");
}

sw_code sw_load_gpt_oss_experts(sw_load_ctx *ctx) { return for_linears(ctx, breaks_gpt_oss); }

/* Integers of compressed-tensors with a zero point a group. */
static bool has_ct_zeros(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "compressed-tensors") && l->spec.num->kind == SW_NUM_INT &&
           !l->spec.is_symmetric;
}

sw_code sw_load_ct_zero_points(sw_load_ctx *ctx) { return for_linears(ctx, has_ct_zeros); }

static bool breaks_zero_bits(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return has_ct_zeros(ctx, l) && l->spec.num->bits != 4 && l->spec.num->bits != 8;
}

sw_code sw_load_ct_zero_bits(sw_load_ctx *ctx) { return for_linears(ctx, breaks_zero_bits); }

static bool is_ct_w4a8(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "compressed-tensors") && l->spec.num->kind == SW_NUM_INT &&
           l->spec.num->bits == 4 && l->spec.act.scope != SW_ACT_NONE;
}

static bool breaks_w4a8_shape(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_ct_w4a8(ctx, l) &&
           (l->spec.group_elems != 128 || l->ref.n_out % 128 || l->ref.k_in % 128);
}

sw_code sw_load_w4a8_shape(sw_load_ctx *ctx) { return for_linears(ctx, breaks_w4a8_shape); }

static bool has_integer_inputs(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_ct_w4a8(ctx, l) && !breaks_w4a8_shape(ctx, l) && !l->spec.act.num->values;
}

sw_code sw_load_w4a8_integers(sw_load_ctx *ctx) { return for_linears(ctx, has_integer_inputs); }

static bool breaks_gptq_kind(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "gptq") &&
           (!l->spec.is_symmetric || (l->spec.num->bits != 4 && l->spec.num->bits != 8));
}

sw_code sw_load_gptq_kind(sw_load_ctx *ctx) { return for_linears(ctx, breaks_gptq_kind); }

static bool breaks_gptq_shape(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "gptq") && (l->ref.n_out % 32 || l->ref.k_in % 32);
}

sw_code sw_load_gptq_shape(sw_load_ctx *ctx) { return for_linears(ctx, breaks_gptq_shape); }

static bool breaks_gptq_group(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    static const int64_t sizes[] = {0, 16, 32, 64, 128, 256, 512, 1024, -1};

    return is_dialect(ctx, "gptq") && !is_one_of(l->spec.group_elems, sizes);
}

sw_code sw_load_gptq_group(sw_load_ctx *ctx) { return for_linears(ctx, breaks_gptq_group); }

static bool breaks_awq(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return is_dialect(ctx, "awq") && l->spec.scale_dtype != SW_DTYPE_F16;
}

sw_code sw_load_awq_scales(sw_load_ctx *ctx) { return for_linears(ctx, breaks_awq); }

static bool breaks_tp_rows(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    (void)ctx;
    return sw_slot_is_row_cut(l->ref.slot) && l->spec.group_elems &&
           (l->ref.k_in % 2 || l->ref.k_in / 2 % l->spec.group_elems);
}

sw_code sw_load_tp_rows(sw_load_ctx *ctx) { return for_linears(ctx, breaks_tp_rows); }

static bool breaks_tp_columns(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    return !sw_slot_is_row_cut(l->ref.slot) &&
           (is_dialect(ctx, "gptq") || is_dialect(ctx, "awq")) &&
           l->ref.n_out % (2 * 32 / l->spec.num->bits);
}

sw_code sw_load_tp_columns(sw_load_ctx *ctx) { return for_linears(ctx, breaks_tp_columns); }

static bool breaks_order(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    (void)ctx;
    return l->spec.is_scattered;
}

sw_code sw_load_act_order(sw_load_ctx *ctx) { return for_linears(ctx, breaks_order); }

static bool breaks_marlin(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    static const int64_t sizes[] = {0, 32, 64, 128, -1};

    return !is_dialect(ctx, "swage") && is_marlin_kind(l) &&
           (l->ref.n_out % 64 || l->ref.k_in % 128 || !is_one_of(l->spec.group_elems, sizes));
}

sw_code sw_load_marlin_shape(sw_load_ctx *ctx) { return for_linears(ctx, breaks_marlin); }

static bool breaks_machete(const sw_load_ctx *ctx, const sw_load_linear *l)
{
    static const int64_t sizes[] = {0, 64, 128, -1};

    return !is_dialect(ctx, "swage") && is_marlin_kind(l) && !breaks_marlin(ctx, l) &&
           (l->ref.n_out % 128 || l->ref.k_in % 64 || !is_one_of(l->spec.group_elems, sizes));
}

sw_code sw_load_machete_shape(sw_load_ctx *ctx) { return for_linears(ctx, breaks_machete); }
