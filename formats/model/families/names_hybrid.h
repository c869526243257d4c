/* names_hybrid.h - tensor names of decoders with recurrent mixers; a part of arch.c. */
#ifndef SW_FORMATS_MODEL_FAMILIES_NAMES_HYBRID_H
#define SW_FORMATS_MODEL_FAMILIES_NAMES_HYBRID_H

/* A gated delta net beside attention. */
#define NAMES_DELTA                                                                        \
    [SW_SLOT_MIX_OUT] = "linear_attn.out_proj", [SW_SLOT_CONV] = "linear_attn.conv1d",     \
    [SW_SLOT_A_LOG] = "linear_attn.A_log", [SW_SLOT_DT_BIAS] = "linear_attn.dt_bias",      \
    [SW_SLOT_NORM_MIX] = "linear_attn.norm"
#define NAMES_DELTA_APART                                                                  \
    NAMES_DELTA, [SW_SLOT_MIX_IN] = "linear_attn.in_proj_qkv",                             \
    [SW_SLOT_MIX_Z] = "linear_attn.in_proj_z", [SW_SLOT_MIX_A] = "linear_attn.in_proj_a",  \
    [SW_SLOT_MIX_B] = "linear_attn.in_proj_b"
#define NAMES_qwen3_5 {NAMES_ATTENTION, NAMES_MLP, NAMES_DELTA_APART}

#define NAMES_SHARED_GATED                                                                 \
    [SW_SLOT_SHARED_GATE] = "mlp.shared_expert.gate_proj",                                 \
    [SW_SLOT_SHARED_UP] = "mlp.shared_expert.up_proj",                                     \
    [SW_SLOT_SHARED_DOWN] = "mlp.shared_expert.down_proj", [SW_SLOT_ROUTER] = "mlp.gate",   \
    [SW_SLOT_SHARED_ROUTER] = "mlp.shared_expert_gate"
#define NAMES_qwen3_5_moe {NAMES_ATTENTION, NAMES_DELTA_APART, NAMES_SHARED_GATED}
#define NAMES_qwen3_next                                                                   \
    {NAMES_ATTENTION, NAMES_MLP, NAMES_DELTA, NAMES_SHARED_GATED,                          \
     [SW_SLOT_MIX_IN] = "linear_attn.in_proj_qkvz", [SW_SLOT_MIX_BA] = "linear_attn.in_proj_ba"}
#define EXPERTS_rows                                                                       \
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"},    \
    {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}, SW_FUSED_ROWS

#define NAMES_LFM2                                                                         \
    [SW_SLOT_Q] = "self_attn.q_proj", [SW_SLOT_K] = "self_attn.k_proj",                    \
    [SW_SLOT_V] = "self_attn.v_proj", [SW_SLOT_O] = "self_attn.out_proj",                  \
    [SW_SLOT_NORM_Q] = "self_attn.q_layernorm", [SW_SLOT_NORM_K] = "self_attn.k_layernorm", \
    [SW_SLOT_NORM_ATTN] = "operator_norm", [SW_SLOT_NORM_MLP] = "ffn_norm",                \
    [SW_SLOT_MIX_IN] = "conv.in_proj", [SW_SLOT_MIX_OUT] = "conv.out_proj",                \
    [SW_SLOT_CONV] = "conv.conv", [SW_SLOT_GATE] = "feed_forward.w1",                      \
    [SW_SLOT_UP] = "feed_forward.w3", [SW_SLOT_DOWN] = "feed_forward.w2"
#define NAMES_lfm2 {NAMES_LFM2}
#define NAMES_lfm2_moe                                                                     \
    {NAMES_LFM2, [SW_SLOT_ROUTER] = "feed_forward.gate",                                   \
     [SW_SLOT_ROUTER_SHIFT] = "feed_forward.expert_bias"}

/* Mamba-2 under either name. */
#define NAMES_SSD(module)                                                                  \
    [SW_SLOT_MIX_IN] = module ".in_proj", [SW_SLOT_MIX_OUT] = module ".out_proj",          \
    [SW_SLOT_CONV] = module ".conv1d", [SW_SLOT_A_LOG] = module ".A_log",                  \
    [SW_SLOT_D] = module ".D", [SW_SLOT_DT_BIAS] = module ".dt_bias",                      \
    [SW_SLOT_NORM_MIX] = module ".norm"
#define NAMES_mamba2 {NAMES_SSD("mixer"), [SW_SLOT_NORM_ATTN] = "norm"}
#define NAMES_nemotron_h                                                                   \
    {NAMES_SSD("mixer"), [SW_SLOT_NORM_ATTN] = "norm", [SW_SLOT_NORM_MLP] = "norm",        \
     [SW_SLOT_Q] = "mixer.q_proj", [SW_SLOT_K] = "mixer.k_proj",                           \
     [SW_SLOT_V] = "mixer.v_proj", [SW_SLOT_O] = "mixer.o_proj",                           \
     [SW_SLOT_UP] = "mixer.up_proj", [SW_SLOT_DOWN] = "mixer.down_proj",                   \
     [SW_SLOT_SHARED_UP] = "mixer.shared_experts.up_proj",                                 \
     [SW_SLOT_SHARED_DOWN] = "mixer.shared_experts.down_proj",                             \
     [SW_SLOT_LATENT_IN] = "mixer.fc1_latent_proj",                                        \
     [SW_SLOT_LATENT_OUT] = "mixer.fc2_latent_proj", [SW_SLOT_ROUTER] = "mixer.gate",      \
     [SW_SLOT_ROUTER_SHIFT] = "mixer.gate.e_score_correction_bias"}
#define EXPERTS_ungated                                                                    \
    {NULL, "mixer.experts.%d.up_proj", "mixer.experts.%d.down_proj"}, NOT_FUSED
#define NAMES_bamba                                                                        \
    {NAMES_LINEARS, NAMES_SSD("mamba"), [SW_SLOT_NORM_ATTN] = "input_layernorm",           \
     [SW_SLOT_NORM_MLP] = "pre_ff_layernorm", [SW_SLOT_GATE] = "feed_forward.gate_proj",   \
     [SW_SLOT_UP] = "feed_forward.up_proj", [SW_SLOT_DOWN] = "feed_forward.down_proj"}

#define EXPERTS_lfm2                                                                       \
    {"feed_forward.experts.%d.w1", "feed_forward.experts.%d.w3",                           \
     "feed_forward.experts.%d.w2"},                                                        \
    NOT_FUSED

#define NAMES_granite_hybrid                                                               \
    {NAMES_LINEARS, NAMES_SSD("mamba"), [SW_SLOT_NORM_ATTN] = "input_layernorm",           \
     [SW_SLOT_NORM_MLP] = "post_attention_layernorm",                                      \
     [SW_SLOT_SHARED_GATE_UP] = "shared_mlp.input_linear",                                 \
     [SW_SLOT_SHARED_DOWN] = "shared_mlp.output_linear",                                   \
     [SW_SLOT_ROUTER] = "block_sparse_moe.router.layer"}
#define NAMES_falcon_h1 NAMES_bamba
/* One tensor for all experts, named like linears. Once quantized they are written one by one: vLLM
 * (GraniteMoeHybridModel.get_expert_mapping) reads experts.N.gate_proj, up_proj and down_proj with
 * whatever suffix, and the tensors of all only as weights or with scales of three dimensions. */
#define EXPERTS_granite                                                                    \
    {"block_sparse_moe.experts.%d.gate_proj", "block_sparse_moe.experts.%d.up_proj",       \
     "block_sparse_moe.experts.%d.down_proj"},                                             \
    {"block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"},     \
    SW_FUSED_ROWS

#define NAMES_kimi_linear                                                                  \
    {NAMES_LINEARS, NAMES_MLP, [SW_SLOT_NORM_ATTN] = "input_layernorm",                    \
     [SW_SLOT_NORM_MLP] = "post_attention_layernorm",                                      \
     [SW_SLOT_KV_A] = "self_attn.kv_a_proj_with_mqa", [SW_SLOT_KV_B] = "self_attn.kv_b_proj", \
     [SW_SLOT_NORM_KV_A] = "self_attn.kv_a_layernorm", [SW_SLOT_MIX_B] = "self_attn.b_proj", \
     [SW_SLOT_MIX_A_RANK] = "self_attn.f_a_proj", [SW_SLOT_MIX_A] = "self_attn.f_b_proj",  \
     [SW_SLOT_MIX_Z_RANK] = "self_attn.g_a_proj", [SW_SLOT_MIX_Z_GATE] = "self_attn.g_b_proj", \
     [SW_SLOT_CONV_Q] = "self_attn.q_conv1d", [SW_SLOT_CONV_K] = "self_attn.k_conv1d",     \
     [SW_SLOT_CONV_V] = "self_attn.v_conv1d", [SW_SLOT_A_LOG] = "self_attn.A_log",         \
     [SW_SLOT_DT_BIAS] = "self_attn.dt_bias", [SW_SLOT_NORM_MIX] = "self_attn.o_norm",     \
     [SW_SLOT_SHARED_GATE] = "block_sparse_moe.shared_experts.gate_proj",                  \
     [SW_SLOT_SHARED_UP] = "block_sparse_moe.shared_experts.up_proj",                      \
     [SW_SLOT_SHARED_DOWN] = "block_sparse_moe.shared_experts.down_proj",                  \
     [SW_SLOT_ROUTER] = "block_sparse_moe.gate",                                           \
     [SW_SLOT_ROUTER_SHIFT] = "block_sparse_moe.gate.e_score_correction_bias"}
#define EXPERTS_kimi EXPERTS_mixtral

#define ENDS_lfm2 ENDS("model.", "layers", "embed_tokens", NULL, "embedding_norm", "lm_head", false)
#define ENDS_backbone ENDS("backbone.", "layers", "embeddings", NULL, "norm_f", "lm_head", false)
#define ENDS_final_norm \
    ENDS("model.", "layers", "embed_tokens", NULL, "final_layernorm", "lm_head", false)

#endif
