/* gguf_archs.c - see gguf_archs.h. */
#include "formats/gguf/keys/gguf_archs.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/keys/gguf_keys.h"

/* --- names ---------------------------------------------------------------------------------- */

static const char *const common_stems[SW_SLOT_COUNT] = {
    [SW_SLOT_Q] = "attn_q",
    [SW_SLOT_K] = "attn_k",
    [SW_SLOT_V] = "attn_v",
    [SW_SLOT_O] = "attn_output",
    [SW_SLOT_QKV] = "attn_qkv",
    [SW_SLOT_GATE] = "ffn_gate",
    [SW_SLOT_UP] = "ffn_up",
    [SW_SLOT_DOWN] = "ffn_down",
    [SW_SLOT_GATE_UP] = "ffn_up",
    [SW_SLOT_SHARED_GATE] = "ffn_gate_shexp",
    [SW_SLOT_SHARED_UP] = "ffn_up_shexp",
    [SW_SLOT_SHARED_DOWN] = "ffn_down_shexp",
    [SW_SLOT_ROUTER] = "ffn_gate_inp",
    [SW_SLOT_SHARED_ROUTER] = "ffn_gate_inp_shexp",
    [SW_SLOT_ROUTER_SHIFT] = "exp_probs_b",
    [SW_SLOT_ROUTER_NORM] = "ffn_gate_inp",
    [SW_SLOT_EXPERT_SCALE] = "ffn_down_exps",
    [SW_SLOT_Q_A] = "attn_q_a",
    [SW_SLOT_Q_B] = "attn_q_b",
    [SW_SLOT_KV_A] = "attn_kv_a_mqa",
    [SW_SLOT_NORM_ATTN] = "attn_norm",
    [SW_SLOT_NORM_MLP] = "ffn_norm",
    [SW_SLOT_NORM_AFTER_ATTN] = "post_attention_norm",
    [SW_SLOT_NORM_AFTER_MLP] = "post_ffw_norm",
    [SW_SLOT_NORM_Q] = "attn_q_norm",
    [SW_SLOT_NORM_K] = "attn_k_norm",
    [SW_SLOT_NORM_Q_ROW] = "attn_q_norm",
    [SW_SLOT_NORM_K_ROW] = "attn_k_norm",
    [SW_SLOT_NORM_Q_A] = "attn_q_a_norm",
    [SW_SLOT_NORM_KV_A] = "attn_kv_a_norm",
    [SW_SLOT_INDEX_Q] = "indexer.attn_q_b",
    [SW_SLOT_INDEX_K] = "indexer.attn_k",
    [SW_SLOT_INDEX_WEIGHT] = "indexer.proj",
    [SW_SLOT_NORM_INDEX] = "indexer.k_norm",
    [SW_SLOT_NORM_FINAL] = "output_norm",
    [SW_SLOT_NORM_DENSE_OUT] = "post_ffw_norm_1",
    [SW_SLOT_NORM_EXPERTS] = "pre_ffw_norm_2",
    [SW_SLOT_NORM_EXPERTS_OUT] = "post_ffw_norm_2",
    [SW_SLOT_SINKS] = "attn_sinks",
    [SW_SLOT_LAYER_SCALE] = "layer_output_scale",
    [SW_SLOT_SIDE_GATE] = "inp_gate",
    [SW_SLOT_SIDE_OUT] = "proj",
    [SW_SLOT_NORM_SIDE] = "post_norm",
    [SW_SLOT_LOW_RANK_A] = "laurel_l",
    [SW_SLOT_LOW_RANK_B] = "laurel_r",
    [SW_SLOT_NORM_LOW_RANK] = "laurel_post_norm",
    [SW_SLOT_COPY_ROUTER] = "altup_router",
    [SW_SLOT_COPY_PREDICT] = "altup_predict_coef",
    [SW_SLOT_COPY_CORRECT] = "altup_correct_coef",
    [SW_SLOT_COPY_NORM] = "altup_router_norm",
    [SW_SLOT_COPY_SCALE] = "altup_correct_scale",
    [SW_SLOT_MIX_IN] = "ssm_in",
    [SW_SLOT_MIX_OUT] = "ssm_out",
    [SW_SLOT_MIX_Z] = "attn_gate",
    [SW_SLOT_MIX_A] = "ssm_alpha",
    [SW_SLOT_MIX_B] = "ssm_beta",
    [SW_SLOT_MIX_BA] = "ssm_ba",
    [SW_SLOT_CONV] = "ssm_conv1d",
    [SW_SLOT_CONV_Q] = "ssm_conv1d_q",
    [SW_SLOT_CONV_K] = "ssm_conv1d_k",
    [SW_SLOT_CONV_V] = "ssm_conv1d_v",
    [SW_SLOT_A_LOG] = "ssm_a",
    [SW_SLOT_D] = "ssm_d",
    [SW_SLOT_DT_BIAS] = "ssm_dt",
    [SW_SLOT_NORM_MIX] = "ssm_norm",
};

#define END {SW_SLOT_COUNT, NULL}
/* These files name the norm before the MLP after the attention that precedes it. */
#define POST_NORM {SW_SLOT_NORM_MLP, "post_attention_norm"}
static const sw_gguf_stem post_norm[] = {POST_NORM, END};
/* In a layer with experts, the file calls the MLP beside them the expert of every token. */
static const sw_gguf_stem beside[] = {
    {SW_SLOT_SHARED_GATE, "ffn_gate"}, {SW_SLOT_SHARED_UP, "ffn_up"},
    {SW_SLOT_SHARED_DOWN, "ffn_down"}, END};
static const sw_gguf_stem delta[] = {POST_NORM, {SW_SLOT_MIX_IN, "attn_qkv"}, END};
static const sw_gguf_stem two_norms[] = {
    {SW_SLOT_NORM_BRANCH_ATTN, "attn_norm_2"}, {SW_SLOT_NORM_BRANCH_MLP, "attn_norm"}, END};
static const sw_gguf_stem one_norm[] = {
    {SW_SLOT_NORM_MLP, "attn_norm"}, {SW_SLOT_LATENT_IN, "ffn_latent_down"},
    {SW_SLOT_LATENT_OUT, "ffn_latent_up"}, END};
static const sw_gguf_stem short_conv[] = {
    {SW_SLOT_MIX_IN, "shortconv.in_proj"}, {SW_SLOT_MIX_OUT, "shortconv.out_proj"},
    {SW_SLOT_CONV, "shortconv.conv"}, {SW_SLOT_NORM_FINAL, "token_embd_norm"}, END};
static const sw_gguf_stem kimi[] = {
    {SW_SLOT_MIX_A_RANK, "ssm_f_a"}, {SW_SLOT_MIX_A, "ssm_f_b"}, {SW_SLOT_MIX_Z_RANK, "ssm_g_a"},
    {SW_SLOT_MIX_Z_GATE, "ssm_g_b"}, END};
/* In a model without experts, Granite's shared MLP is the MLP. */
static const sw_gguf_stem alone[] = {{SW_SLOT_SHARED_DOWN, "ffn_down"}, END};

/* --- keys ----------------------------------------------------------------------------------- */

#define KEY(kind, leaf, json, field, value) \
    {SW_GGUF_KEY_##kind, leaf, json, offsetof(sw_model, field), value, NULL}
#define INT(leaf, json, field) KEY(INT, leaf, json, field, SW_GGUF_REQUIRED)
#define FILE_INT(leaf, value) {SW_GGUF_FILE_INT, leaf, NULL, SW_GGUF_NO_FIELD, value, NULL}
#define FIXED(kind, json, field, value, why) \
    {SW_GGUF_FIXED_##kind, NULL, json, offsetof(sw_model, field), value, why}
#define SAYS(kind, json, value) \
    {SW_GGUF_FIXED_##kind, NULL, json, SW_GGUF_NO_FIELD, value, NULL}
#define LAST {0, NULL, NULL, 0, 0.0, NULL}
#define EXPERTS(json)                                \
    INT("expert_count", json, n_experts),            \
    INT("expert_used_count", "num_experts_per_tok", n_experts_used)
#define EXPERT_WIDTH INT("expert_feed_forward_length", "moe_intermediate_size", moe_intermediate)
/* config.json calls the width of these experts intermediate_size. */
#define SAME_WIDTH KEY(INT, "expert_feed_forward_length", NULL, moe_intermediate, SW_GGUF_UNSAID)
#define SHARED_WIDTH(json) INT("expert_shared_feed_forward_length", json, shared_intermediate)
#define RENORMALIZED(json)                                                                  \
    FIXED(BOOL, json, norm_topk, 1.0, "renormalize the weights of experts, this model does not")
#define AS_THEY_ARE(json)                                                                   \
    FIXED(BOOL, json, norm_topk, 0.0, "do not renormalize the weights of experts, this model does")
#define SIGMOID FILE_INT("expert_gating_func", 2)
#define ROUTE_SCALE KEY(REAL, "expert_weights_scale", "routed_scaling_factor", route_scale, 1.0)
#define ROUTE_NORM KEY(BOOL, "expert_weights_norm", "norm_topk_prob", norm_topk, 0.0)
#define GROUPS                                                                              \
    KEY(INT, "expert_group_count", "n_group", n_expert_groups, 1.0),                        \
    KEY(INT, "expert_group_used_count", "topk_group", n_groups_used, 1.0)
#define SHARED_COUNT(json) KEY(SHARE, "expert_shared_count", json, shared_intermediate, 1.0)

static const sw_gguf_key_row mixtral[] = {EXPERTS("num_local_experts"), RENORMALIZED(NULL), LAST};
static const sw_gguf_key_row qwen3_moe[] = {
    EXPERTS("num_experts"), EXPERT_WIDTH, SAYS(INT, "decoder_sparse_step", 1.0),
    RENORMALIZED("norm_topk_prob"), LAST};
static const sw_gguf_key_row qwen2_moe[] = {
    EXPERTS("num_experts"), EXPERT_WIDTH, SHARED_WIDTH("shared_expert_intermediate_size"),
    SAYS(INT, "decoder_sparse_step", 1.0), AS_THEY_ARE("norm_topk_prob"), LAST};
static const sw_gguf_key_row qwen3_5_moe[] = {
    EXPERTS("num_experts"), EXPERT_WIDTH, SHARED_WIDTH("shared_expert_intermediate_size"),
    RENORMALIZED(NULL), LAST};
static const sw_gguf_key_row qwen3_next[] = {
    EXPERTS("num_experts"), EXPERT_WIDTH, SHARED_WIDTH("shared_expert_intermediate_size"),
    SAYS(INT, "decoder_sparse_step", 1.0), RENORMALIZED("norm_topk_prob"), LAST};
static const sw_gguf_key_row olmoe[] = {
    EXPERTS("num_experts"), AS_THEY_ARE("norm_topk_prob"),
    FIXED(REAL, NULL, qkv_clip, 0.0, "do not clip queries, keys and values"), LAST};
static const sw_gguf_key_row glm4_moe[] = {
    EXPERTS("n_routed_experts"), EXPERT_WIDTH, SHARED_COUNT("n_shared_experts"), ROUTE_SCALE,
    ROUTE_NORM, GROUPS, SIGMOID, LAST};
#define LATENT                                                                              \
    EXPERTS("n_routed_experts"), EXPERT_WIDTH, SHARED_COUNT("n_shared_experts"), ROUTE_SCALE, \
    ROUTE_NORM, GROUPS, SIGMOID, KEY(INT, "attention.q_lora_rank", "q_lora_rank", q_rank,  \
                                     SW_GGUF_UNSAID),                                      \
    INT("attention.kv_lora_rank", "kv_lora_rank", kv_rank)
static const sw_gguf_key_row deepseek[] = {LATENT, LAST};
static const sw_gguf_key_row indexed[] = {
    LATENT, INT("attention.indexer.head_count", "index_n_heads", indexer.n_heads),
    INT("attention.indexer.key_length", "index_head_dim", indexer.head_dim),
    INT("attention.indexer.top_k", "index_topk", indexer.top_k), LAST};
static const sw_gguf_key_row minimax[] = {
    EXPERTS("num_local_experts"), SAME_WIDTH, SIGMOID,
    {SW_GGUF_FIXED_TEXT, NULL, "scoring_func", SW_GGUF_NO_FIELD, 0.0, "sigmoid"},
    SAYS(BOOL, "use_routing_bias", 1.0), SAYS(BOOL, "use_qk_norm", 1.0), LAST};
static const sw_gguf_key_row gpt_oss[] = {
    EXPERTS("num_local_experts"), SAME_WIDTH,
    FIXED(BOOL, "attention_bias", has_qkv_bias, 1.0, "expect biases of attention"),
    FIXED(REAL, "swiglu_limit", act_limit, 7.0, "clamp gates at 7"), LAST};
static const sw_gguf_key_row llama4[] = {EXPERTS("num_local_experts"), LAST};
static const sw_gguf_key_row ernie_moe[] = {
    INT("expert_count", "moe_num_experts", n_experts),
    INT("expert_used_count", "moe_k", n_experts_used), EXPERT_WIDTH,
    SHARED_COUNT("moe_num_shared_experts"),
    KEY(INT, "expert_shared_feed_forward_length", NULL, shared_intermediate, SW_GGUF_UNSAID),
    FILE_INT("interleave_moe_layer_step", 1), SAYS(INT, "moe_layer_interval", 1.0), LAST};
static const sw_gguf_key_row hunyuan_moe[] = {
    INT("expert_count", "num_experts", n_experts), INT("expert_used_count", "moe_topk",
                                                       n_experts_used),
    SAME_WIDTH, SHARED_COUNT("num_shared_expert"),
    KEY(INT, "expert_shared_feed_forward_length", NULL, shared_intermediate, SW_GGUF_UNSAID),
    LAST};
static const sw_gguf_key_row cohere2[] = {
    KEY(REAL, "logit_scale", "logit_scale", logits_scale, SW_GGUF_REQUIRED), LAST};
#define MULTIPLIERS                                                                         \
    KEY(INVERSE, "logit_scale", "logits_scaling", logits_scale, 1.0),                       \
    KEY(REAL, "residual_scale", "residual_multiplier", residual_scale, 1.0),                \
    KEY(REAL, "embedding_scale", "embedding_multiplier", embed_scale, 1.0),                 \
    KEY(REAL, "attention.scale", "attention_multiplier", attention_scale, SW_GGUF_REQUIRED)
static const sw_gguf_key_row gemma3n[] = {
    KEY(INT, "altup.num_inputs", "altup_num_inputs", n_copies, 4.0),
    FILE_INT("altup.active_idx", 0),
    KEY(INT, "embedding_length_per_layer_input", "hidden_size_per_layer_input", side_inputs,
        256.0),
    LAST};
static const sw_gguf_key_row granite[] = {MULTIPLIERS, LAST};
#define SSM(taps, state, groups, heads)                                                     \
    INT("ssm.conv_kernel", taps, mixer.n_taps), INT("ssm.state_size", state, mixer.d_state), \
    INT("ssm.group_count", groups, mixer.n_groups),                                         \
    INT("ssm.time_step_rank", heads, mixer.n_heads)
#define MAMBA_SSM SSM("mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads")
static const sw_gguf_key_row mamba2[] = {SSM("conv_kernel", "state_size", "n_groups", "num_heads"),
                                     LAST};
static const sw_gguf_key_row granite_hybrid[] = {
    MULTIPLIERS, MAMBA_SSM, EXPERTS("num_local_experts"),
    SHARED_WIDTH("shared_intermediate_size"), RENORMALIZED(NULL), LAST};
static const sw_gguf_key_row granite_hybrid_dense[] = {
    MULTIPLIERS, MAMBA_SSM, SAYS(INT, "num_local_experts", 0.0), LAST};
static const sw_gguf_key_row bamba[] = {MAMBA_SSM, LAST};
#define NEMOTRON SSM("conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads")
static const sw_gguf_key_row nemotron[] = {NEMOTRON, LAST};
static const sw_gguf_key_row nemotron_moe[] = {
    NEMOTRON, EXPERTS("n_routed_experts"), EXPERT_WIDTH,
    SHARED_WIDTH("moe_shared_expert_intermediate_size"), FILE_INT("expert_shared_count", 1),
    ROUTE_SCALE, ROUTE_NORM, GROUPS, LAST};
static const sw_gguf_key_row lfm2[] = {
    INT("shortconv.l_cache", "conv_L_cache", mixer.n_taps),
    SAYS(BOOL, "block_auto_adjust_ff_dim", 0.0),
    FIXED(BOOL, "conv_bias", mixer.has_bias, 0.0, "know no biases of convolutions"), LAST};
static const sw_gguf_key_row lfm2_moe[] = {
    INT("shortconv.l_cache", "conv_L_cache", mixer.n_taps),
    FIXED(BOOL, "conv_bias", mixer.has_bias, 0.0, "know no biases of convolutions"),
    EXPERTS("num_experts"), EXPERT_WIDTH, SIGMOID, SAYS(BOOL, "use_expert_bias", 1.0),
    RENORMALIZED("norm_topk_prob"),
    FIXED(REAL, NULL, route_scale, 1.0, "know no factor on the weights of experts"), LAST};
static const sw_gguf_key_row kimi_linear[] = {
    EXPERTS("num_experts"), EXPERT_WIDTH, SHARED_COUNT("num_shared_experts"), ROUTE_SCALE,
    RENORMALIZED("moe_renormalize"), SIGMOID,
    INT("attention.kv_lora_rank", "kv_lora_rank", kv_rank), LAST};

/* --- the rows --------------------------------------------------------------------------------- */

#define ROW(gguf, model_type, experts) gguf, #model_type, SW_GGUF_##experts
#define TURNS .turns_pairs = true
#define HOOKS(name) .hooks = &sw_gguf_hooks_##name
#define LAYER_NORM(json) .eps_key = "attention.layer_norm_epsilon", .eps_json = json
#define ACT(key, text) .act_json = key, .act = text

static const sw_gguf_arch archs[] = {
    {ROW("llama", llama, DENSE), TURNS, HOOKS(biased)},
    {ROW("llama", mistral, DENSE), TURNS, HOOKS(biased)},
    {ROW("llama", mixtral, SPARSE), TURNS, .keys = mixtral, HOOKS(sparse)},
    {ROW("qwen2", qwen2, DENSE), .if_key = NULL},
    {ROW("qwen3", qwen3, DENSE), HOOKS(biased)},
    {ROW("qwen3moe", qwen3_moe, SPARSE), .keys = qwen3_moe, HOOKS(sparse)},
    {ROW("qwen3moe", qwen3_vl_moe_text, SPARSE), .keys = qwen3_moe, HOOKS(sparse)},
    {ROW("qwen2vl", qwen2, DENSE), .is_read_only = true},
    {ROW("qwen3vl", qwen3, DENSE), HOOKS(biased), .is_read_only = true},
    {ROW("qwen3vlmoe", qwen3_moe, SPARSE), .keys = qwen3_moe, HOOKS(sparse), .is_read_only = true},
    {ROW("gemma2", gemma2, DENSE), ACT("hidden_activation", "gelu_pytorch_tanh"), HOOKS(gemma2)},
    {ROW("gemma3", gemma3_text, DENSE), ACT("hidden_activation", "gelu_pytorch_tanh"),
     HOOKS(gemma3)},
    {ROW("gemma3n", gemma3n_text, DENSE), ACT("hidden_activation", "gelu_pytorch_tanh"),
     .keys = gemma3n, HOOKS(gemma3n)},
    {ROW("gemma4", gemma4_text, EITHER), ACT("hidden_activation", "gelu_pytorch_tanh"),
     .stems = beside, HOOKS(gemma4)},
    {ROW("qwen35", qwen3_5_text, DENSE), .order = SW_GGUF_V_HEADS, .stems = delta,
     HOOKS(qwen_delta)},
    {ROW("qwen35moe", qwen3_5_moe_text, SPARSE), .order = SW_GGUF_V_HEADS, .stems = delta,
     .keys = qwen3_5_moe, HOOKS(qwen_delta)},
    {ROW("qwen3next", qwen3_next, SPARSE), .order = SW_GGUF_UNGROUPED, .stems = delta,
     .keys = qwen3_next, HOOKS(qwen_delta)},
    {ROW("qwen2moe", qwen2_moe, SPARSE), .keys = qwen2_moe, HOOKS(sparse)},
    {ROW("glm4", glm4, DENSE), TURNS, HOOKS(biased)},
    {ROW("glm4moe", glm4_moe, SPARSE), .stems = post_norm, .keys = glm4_moe, HOOKS(glm4_moe)},
    {ROW("deepseek2", deepseek_v3, SPARSE), TURNS, .keys = deepseek, HOOKS(latent)},
    {ROW("deepseek32", deepseek_v3, SPARSE), TURNS, .choice = SW_GGUF_CHOOSES_HALVES,
     .as_type = "deepseek_v32", .as_class = "DeepseekV32ForCausalLM", .keys = indexed,
     HOOKS(indexed)},
    {ROW("glm-dsa", deepseek_v3, SPARSE), TURNS, .choice = SW_GGUF_CHOOSES_PAIRS,
     .as_type = "glm_moe_dsa", .as_class = "GlmMoeDsaForCausalLM", .keys = indexed,
     HOOKS(indexed)},
    {ROW("minimax-m2", minimax_m2, SPARSE), .keys = minimax, HOOKS(sparse)},
    {ROW("gpt-oss", gpt_oss, SPARSE), .stems = post_norm, .keys = gpt_oss, HOOKS(gpt_oss)},
    {ROW("llama4", llama4_text, SPARSE), TURNS, .keys = llama4, HOOKS(llama4)},
    {ROW("mistral3", ministral3, DENSE), TURNS, HOOKS(mistral3)},
    {ROW("olmo2", olmo3, DENSE), .if_key = "attention.sliding_window", HOOKS(olmo3)},
    {ROW("olmo2", olmo2, DENSE), HOOKS(biased)},
    {ROW("olmoe", olmoe, SPARSE), .keys = olmoe, HOOKS(olmoe)},
    {ROW("smollm3", smollm3, DENSE), TURNS, HOOKS(smollm3)},
    {ROW("cohere2", cohere2, DENSE), TURNS, LAYER_NORM("layer_norm_eps"), .keys = cohere2,
     HOOKS(windows)},
    {ROW("exaone4", exaone4, DENSE), HOOKS(exaone4)},
    {ROW("seed_oss", seed_oss, DENSE), .stems = post_norm, HOOKS(biased)},
    {ROW("ernie4_5", ernie4_5, DENSE), TURNS, HOOKS(biased)},
    {ROW("ernie4_5-moe", ernie4_5_moe, SPARSE), TURNS, .keys = ernie_moe, HOOKS(ernie_moe)},
    {ROW("hunyuan-dense", hunyuan_v1_dense, DENSE), HOOKS(biased)},
    {ROW("hunyuan-moe", hunyuan_v1_moe, SPARSE), .keys = hunyuan_moe, HOOKS(hunyuan_moe)},
    {ROW("phi3", phi3, DENSE), .if_key = NULL},
    {ROW("starcoder2", starcoder2, DENSE), LAYER_NORM("norm_epsilon"),
     ACT("hidden_act", "gelu_pytorch_tanh"), HOOKS(biased)},
    {ROW("stablelm", stablelm, DENSE), LAYER_NORM("layer_norm_eps"), HOOKS(stablelm)},
    {ROW("gptneox", gpt_neox, DENSE), LAYER_NORM("layer_norm_eps"), ACT("hidden_act", "gelu"),
     HOOKS(gpt_neox)},
    {ROW("falcon", falcon, DENSE), LAYER_NORM("layer_norm_epsilon"), ACT("activation", "gelu"),
     .stems = two_norms, HOOKS(falcon)},
    {ROW("bloom", bloom, DENSE), LAYER_NORM("layer_norm_epsilon"),
     ACT("hidden_act", "gelu_pytorch_tanh")},
    {ROW("granite", granite, DENSE), TURNS, .keys = granite, HOOKS(biased)},
    {ROW("granitehybrid", granitemoehybrid, SPARSE), TURNS, .keys = granite_hybrid,
     HOOKS(granite_hybrid)},
    {ROW("granitehybrid", granitemoehybrid, DENSE), TURNS, .stems = alone,
     .if_key = "attention.scale", .keys = granite_hybrid_dense, HOOKS(granite_hybrid)},
    {ROW("granitehybrid", bamba, DENSE), TURNS, .keys = bamba, HOOKS(bamba)},
    {ROW("mamba2", mamba2, DENSE), .eps_json = "layer_norm_epsilon", .keys = mamba2,
     HOOKS(mamba2)},
    {ROW("lfm2", lfm2, DENSE), .eps_json = "norm_eps", .stems = short_conv, .keys = lfm2,
     HOOKS(lfm2)},
    {ROW("lfm2moe", lfm2_moe, SPARSE), .eps_json = "norm_eps", .stems = short_conv,
     .keys = lfm2_moe, HOOKS(lfm2)},
    {ROW("nemotron_h", nemotron_h, DENSE), .eps_json = "layer_norm_epsilon",
     ACT("mlp_hidden_act", "relu2"), .stems = one_norm, .keys = nemotron, HOOKS(nemotron)},
    {ROW("nemotron_h_moe", nemotron_h, SPARSE), .eps_json = "layer_norm_epsilon",
     ACT("mlp_hidden_act", "relu2"), .stems = one_norm, .keys = nemotron_moe,
     HOOKS(nemotron)},
    {ROW("kimi-linear", kimi_linear, SPARSE), .stems = kimi, .keys = kimi_linear, HOOKS(kimi)},
};
#define N_ARCHS (sizeof archs / sizeof *archs)

static sw_code unknown(const char *what, const char *name, bool is_file, sw_err *err)
{
    char list[1200] = "";
    size_t at = 0;

    for (size_t i = 0; i < N_ARCHS && at < sizeof list; i++) {
        const char *one = is_file ? archs[i].gguf : archs[i].model_type;
        bool is_new = is_file || !archs[i].is_read_only;

        for (size_t k = 0; k < i && is_new; k++)
            is_new = strcmp(one, is_file ? archs[k].gguf : archs[k].model_type) != 0;
        if (is_new)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", one);
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "%s \"%.60s\" is not known here as GGUF; there are %s",
                   what, name, list);
}

static sw_gguf_choice choice_of(const sw_model *m)
{
    if (!m->indexer.top_k) return SW_GGUF_SEES_ALL;
    return m->indexer.is_paired ? SW_GGUF_CHOOSES_PAIRS : SW_GGUF_CHOOSES_HALVES;
}

sw_code sw_gguf_arch_of_model(const sw_gguf_arch **out, const sw_model *m, sw_err *err)
{
    const char *model_type = m->arch->name;
    const bool is_sparse = m->n_experts > 0;

    for (size_t i = 0; i < N_ARCHS; i++) {
        const sw_gguf_arch *a = &archs[i];

        if (strcmp(a->model_type, model_type) || a->is_read_only ||
            a->choice != choice_of(m) ||
            (a->experts != SW_GGUF_EITHER && (a->experts == SW_GGUF_SPARSE) != is_sparse))
            continue;
        *out = a;
        return SW_OK;
    }
    return unknown("model_type", model_type, false, err);
}

sw_code sw_gguf_arch_of_file(const sw_gguf_arch **out, const char *gguf, bool has_experts,
                             sw_gguf_has_key has_key, const void *file, sw_err *err)
{
    for (size_t i = 0; i < N_ARCHS; i++) {
        const sw_gguf_arch *a = &archs[i];

        if (strcmp(a->gguf, gguf) || (a->if_key && !has_key(file, a->if_key)) ||
            (a->experts != SW_GGUF_EITHER && (a->experts == SW_GGUF_SPARSE) != has_experts))
            continue;
        *out = a;
        return SW_OK;
    }
    return unknown("architecture", gguf, true, err);
}

const char *sw_gguf_stem_of(const sw_gguf_arch *arch, sw_slot slot)
{
    for (const sw_gguf_stem *s = arch->stems; s && s->stem; s++)
        if (s->slot == slot) return s->stem;
    return common_stems[slot];
}
