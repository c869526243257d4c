/* launch_text.c - see launch_text.h. */
#include "tests/support/cases/launch_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/io/file_content.h"

static const char *const buffers[SW_BUF_COUNT] = {
    [SW_BUF_X] = "X", [SW_BUF_N] = "N", [SW_BUF_Q] = "Q", [SW_BUF_K] = "K", [SW_BUF_V] = "V",
    [SW_BUF_A] = "A", [SW_BUF_G] = "G", [SW_BUF_U] = "U", [SW_BUF_T] = "T", [SW_BUF_QKV] = "QKV",
    [SW_BUF_GATE_UP] = "GATE_UP", [SW_BUF_Q_A] = "Q_A", [SW_BUF_KV_A] = "KV_A",
    [SW_BUF_LATENT] = "LATENT", [SW_BUF_K_ROPE] = "K_ROPE", [SW_BUF_KV_B] = "KV_B",
    [SW_BUF_SHARED_G] = "SG", [SW_BUF_SHARED_U] = "SU", [SW_BUF_M] = "M", [SW_BUF_R] = "R",
    [SW_BUF_SIDE] = "SIDE", [SW_BUF_Q_GATED] = "Q_GATED", [SW_BUF_Q_GATE] = "Q_GATE",
    [SW_BUF_ATTN_N] = "ATTN_N", [SW_BUF_MIX_N] = "MIX_N", [SW_BUF_MIX_T] = "MIX_T",
    [SW_BUF_EXPERT_IN] = "EXPERT_IN", [SW_BUF_EXPERT_OUT] = "EXPERT_OUT",
    [SW_BUF_SHARED_GATE_UP] = "SHARED_GATE_UP",
    [SW_BUF_MIX] = "MIX", [SW_BUF_MIX_Z] = "MIX_Z", [SW_BUF_MIX_B] = "MIX_B",
    [SW_BUF_MIX_A] = "MIX_A", [SW_BUF_MIX_GROUPED] = "MIX_GROUPED", [SW_BUF_MIX_BA] = "MIX_BA",
    [SW_BUF_MIX_A_RANK] = "MIX_A_RANK", [SW_BUF_MIX_Z_RANK] = "MIX_Z_RANK",
    [SW_BUF_MIX_O] = "MIX_O", [SW_BUF_O_RANK] = "O_RANK",
};
static const char *const slots[SW_SLOT_COUNT] = {
    [SW_SLOT_Q] = "q", [SW_SLOT_K] = "k", [SW_SLOT_V] = "v", [SW_SLOT_O] = "o",
    [SW_SLOT_GATE] = "gate", [SW_SLOT_UP] = "up", [SW_SLOT_DOWN] = "down", [SW_SLOT_QKV] = "qkv",
    [SW_SLOT_GATE_UP] = "gate_up", [SW_SLOT_Q_A] = "q_a", [SW_SLOT_Q_B] = "q_b",
    [SW_SLOT_KV_A] = "kv_a", [SW_SLOT_KV_B] = "kv_b", [SW_SLOT_SHARED_GATE] = "shared_gate",
    [SW_SLOT_SHARED_UP] = "shared_up", [SW_SLOT_SHARED_DOWN] = "shared_down",
    [SW_SLOT_ROUTER] = "router", [SW_SLOT_NORM_ATTN] = "norm_attn",
    [SW_SLOT_NORM_MLP] = "norm_mlp", [SW_SLOT_NORM_AFTER_ATTN] = "norm_after_attn",
    [SW_SLOT_NORM_AFTER_MLP] = "norm_after_mlp", [SW_SLOT_NORM_Q] = "norm_q",
    [SW_SLOT_NORM_K] = "norm_k", [SW_SLOT_NORM_Q_ROW] = "norm_q_row",
    [SW_SLOT_NORM_K_ROW] = "norm_k_row", [SW_SLOT_NORM_Q_A] = "norm_q_a",
    [SW_SLOT_NORM_KV_A] = "norm_kv_a", [SW_SLOT_NORM_FINAL] = "norm_final",
    [SW_SLOT_SINKS] = "sinks", [SW_SLOT_ROUTER_NORM] = "router_norm",
    [SW_SLOT_NORM_DENSE_OUT] = "norm_dense_out", [SW_SLOT_NORM_EXPERTS] = "norm_experts",
    [SW_SLOT_NORM_EXPERTS_OUT] = "norm_experts_out", [SW_SLOT_NORM_SIDE] = "norm_side",
    [SW_SLOT_NORM_LOW_RANK] = "norm_low_rank", [SW_SLOT_SIDE_GATE] = "side_gate",
    [SW_SLOT_SIDE_OUT] = "side_out", [SW_SLOT_LOW_RANK_A] = "low_rank_a",
    [SW_SLOT_LOW_RANK_B] = "low_rank_b", [SW_SLOT_LAYER_SCALE] = "layer_scale",
    [SW_SLOT_COPY_SCALE] = "copy_scale", [SW_SLOT_SHARED_ROUTER] = "shared_router",
    [SW_SLOT_LATENT_IN] = "latent_in", [SW_SLOT_LATENT_OUT] = "latent_out",
    [SW_SLOT_MIX_IN] = "mix_in", [SW_SLOT_MIX_Z] = "mix_z",
    [SW_SLOT_MIX_OUT] = "mix_out", [SW_SLOT_MIX_A] = "mix_a", [SW_SLOT_MIX_B] = "mix_b",
    [SW_SLOT_MIX_BA] = "mix_ba", [SW_SLOT_MIX_A_RANK] = "mix_a_rank",
    [SW_SLOT_MIX_Z_RANK] = "mix_z_rank", [SW_SLOT_MIX_Z_GATE] = "mix_z_gate",
    [SW_SLOT_O_A] = "o_a", [SW_SLOT_HYPER_ATTN] = "hyper_attn", [SW_SLOT_HYPER_MLP] = "hyper_mlp",
};
static const char *const operations[SW_OP_COUNT] = {
    [SW_OP_HEAD_NORM] = "head_norm", [SW_OP_HEAD_LAYER_NORM] = "head_layer_norm",
    [SW_OP_SPLIT_GROUPS] = "split_groups", [SW_OP_SPLIT_HEADS] = "split_heads",
    [SW_OP_ADD] = "add", [SW_OP_COPY] = "copy",
    [SW_OP_CLIP] = "clip", [SW_OP_TEMPER] = "temper", [SW_OP_SCALE] = "scale",
    [SW_OP_HALVE] = "halve", [SW_OP_MUL_VECTOR] = "mul_vector", [SW_OP_FACTOR] = "factor",
    [SW_OP_GATE] = "gate", [SW_OP_ROW_GATE] = "row_gate", [SW_OP_ROUTE] = "route",
    [SW_OP_KEEP_KV] = "keep_kv", [SW_OP_TAKE_KV] = "take_kv",
    [SW_OP_SIDE_INPUT] = "side_input", [SW_OP_PREDICT] = "predict",
    [SW_OP_CORRECT] = "correct", [SW_OP_ADD_COPIES] = "add_copies", [SW_OP_MERGE] = "merge",
    [SW_OP_INDEX] = "index", [SW_OP_TAKE_INDEX] = "take_index",
    [SW_OP_CUT] = "cut", [SW_OP_NEAR_FAR] = "near_far", [SW_OP_GROUP_LINEAR] = "group_linear",
    [SW_OP_MIX_STREAMS] = "mix_streams", [SW_OP_ADD_STREAMS] = "add_streams",
    [SW_OP_MERGE_STREAMS] = "merge_streams",
};
static const char *const sites[SW_SITE_COUNT] = {
    [SW_SITE_ATTN_IN] = "attn_in", [SW_SITE_Q_B_IN] = "q_b_in", [SW_SITE_KV_B_IN] = "kv_b_in",
    [SW_SITE_O_IN] = "o_in", [SW_SITE_MIX_IN] = "mix_in", [SW_SITE_MIX_OUT_IN] = "mix_out_in",
    [SW_SITE_MLP_IN] = "mlp_in",
    [SW_SITE_SHARED_DOWN_IN] = "shared_down_in", [SW_SITE_DOWN_IN] = "down_in",
};

static void say(char *text, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text + used, LAUNCH_TEXT_BYTES - used, format, args);
    va_end(args);
}

static void say_heads(char *text, const sw_launch_heads *h)
{
    if (h->q_norm != SW_SLOT_COUNT) say(text, " %s", slots[h->q_norm]);
    if (h->k_norm != SW_SLOT_COUNT) say(text, " %s", slots[h->k_norm]);
    if (h->turns_q) say(text, " turn Q");
    if (h->turns_k) say(text, " turn K");
}

static void say_fused(char *text, const sw_planned_launch *l)
{
    const char *const dst = l->after == SW_AFTER_ADD ? "X" : buffers[l->dst];

    say(text, "one %s %s %s%s(", dst, l->after == SW_AFTER_ADD ? "+=" : "=",
        l->after == SW_AFTER_GLU ? "glu " : "", slots[l->slot]);
    if (l->norm == SW_SLOT_COUNT)
        say(text, "%s)", buffers[l->src]);
    else
        say(text, "%s(X))", slots[l->norm]);
}

static void say_attention(char *text, const sw_planned_launch *l)
{
    if (l->kind == SW_LAUNCH_DECODE) say(text, "one ");
    say(text, "%s = attention(%s%s)", buffers[l->dst], buffers[l->src],
        l->slot == SW_SLOT_COUNT ? "" : ", sinks");
    if (l->kind == SW_LAUNCH_DECODE) say_heads(text, &l->heads);
    if (l->is_kv_taken) say(text, " of another layer");
}

static void say_op(char *text, const sw_planned_launch *l)
{
    say(text, "%s = %s(%s", buffers[l->dst], operations[l->op], buffers[l->src]);
    if (l->slot != SW_SLOT_COUNT) say(text, ", %s", slots[l->slot]);
    say(text, ")");
}

static void say_launch(char *text, const sw_planned_launch *l)
{
    const char *const dst = buffers[l->dst], *const src = l->is_given ? "given" : buffers[l->src];
    const char *const slot = l->slot == SW_SLOT_COUNT ? "" : slots[l->slot];

    switch (l->kind) {
    case SW_LAUNCH_SUM: say(text, "X += %s", src); break;
    case SW_LAUNCH_NORM: say(text, "%s = %s(%s%s)", dst, slot, src, l->adds ? " += T" : ""); break;
    case SW_LAUNCH_TO_BF16: say(text, "%s = bf16(X)", dst); break;
    case SW_LAUNCH_SHOW: say(text, "show %s at %s", src, sites[l->site]); break;
    case SW_LAUNCH_SHOW_KV: say(text, "show K V"); break;
    case SW_LAUNCH_LINEAR:
        say(text, l->after == SW_AFTER_GLU ? "%s = act(%s(%s%s)) * up" : "%s = %s(%s%s)", dst, slot,
            l->has_codes ? "codes " : "", src);
        break;
    case SW_LAUNCH_FUSED: say_fused(text, l); break;
    case SW_LAUNCH_HEADS: say(text, "heads"), say_heads(text, &l->heads); break;
    case SW_LAUNCH_ROPE: say(text, "turn %s", dst); break;
    case SW_LAUNCH_LATENT_KV: say(text, "K V = latent(%s)", src); break;
    case SW_LAUNCH_ATTENTION:
    case SW_LAUNCH_DECODE: say_attention(text, l); break;
    case SW_LAUNCH_GLU: say(text, "%s = act(%s) * %s", dst, dst, src); break;
    case SW_LAUNCH_ACT: say(text, "%s = act(%s)", dst, dst); break;
    case SW_LAUNCH_GATED_DELTA: say(text, "%s = gated_delta(%s)", dst, src); break;
    case SW_LAUNCH_KIMI_DELTA: say(text, "%s = kimi_delta(%s)", dst, src); break;
    case SW_LAUNCH_SSD: say(text, "%s = ssd(%s)", dst, src); break;
    case SW_LAUNCH_SHORT_CONV: say(text, "%s = short_conv(%s)", dst, src); break;
    case SW_LAUNCH_EXPERTS:
        say(text, "%s %s experts(%s%s)", dst, l->adds ? "+=" : "=", src,
            l->is_routed ? ", routed" : "");
        break;
    case SW_LAUNCH_OP: say_op(text, l); break;
    default: say(text, "?"); break;
    }
    if (l->coded_for != SW_SLOT_COUNT) say(text, " as codes for %s", slots[l->coded_for]);
    say(text, "\n");
}

void launch_plan_text(char text[LAUNCH_TEXT_BYTES], const sw_launch_plan *plan)
{
    text[0] = 0;
    for (int i = 0; i < plan->n_launches; i++) say_launch(text, &plan->launch[i]);
    if (plan->leaves_sum) say(text, "leaves X += T\n");
}

void read_model(sw_model *m, const char *name)
{
    char path[256];
    sw_err err = {0};
    cJSON *config = NULL;

    (void)snprintf(path, sizeof path, "tests/golden/%s/config.json", name);
    if (sw_json_read(&config, path, &sw_json_caps_config, &err) != SW_OK ||
        sw_model_read(m, config, &err) != SW_OK)
        fail_msg("%s", err.text);
    cJSON_Delete(config);
}

void check_plan(const sw_model *m, int64_t layer, const sw_launch_weights *w,
                const sw_launch_step *step, const char *want)
{
    char have[LAUNCH_TEXT_BYTES];
    sw_launch_plan plan;
    sw_err err = {0};

    if (sw_launch_plan_make(&plan, m, layer, w, step, &err) != SW_OK) fail_msg("%s", err.text);
    launch_plan_text(have, &plan);
    if (strcmp(have, want)) fail_msg("%s, have:\n%swant:\n%s", m->arch->name, have, want);
}
