/* arch.c - tensor names as data, and the row of every architecture. */
#include <string.h>

#include "formats/model/families/families.h"
#include "formats/model/programs.h"

#define NAMES_LINEARS                                                                      \
    [SW_SLOT_Q] = "self_attn.q_proj", [SW_SLOT_K] = "self_attn.k_proj",                    \
    [SW_SLOT_V] = "self_attn.v_proj", [SW_SLOT_O] = "self_attn.o_proj"
#define NAMES_ATTENTION                                                                    \
    NAMES_LINEARS, [SW_SLOT_NORM_ATTN] = "input_layernorm",                                \
    [SW_SLOT_NORM_MLP] = "post_attention_layernorm",                                       \
    [SW_SLOT_NORM_Q] = "self_attn.q_norm", [SW_SLOT_NORM_K] = "self_attn.k_norm"
#define NAMES_MLP                                                                          \
    [SW_SLOT_GATE] = "mlp.gate_proj", [SW_SLOT_UP] = "mlp.up_proj",                        \
    [SW_SLOT_DOWN] = "mlp.down_proj"
#define NAMES_AFTER                                                                        \
    [SW_SLOT_NORM_AFTER_ATTN] = "post_attention_layernorm",                                \
    [SW_SLOT_NORM_AFTER_MLP] = "post_feedforward_layernorm"

#define NAMES_plain {NAMES_ATTENTION, NAMES_MLP}
#define NAMES_qwen3_moe {NAMES_ATTENTION, NAMES_MLP, [SW_SLOT_ROUTER] = "mlp.gate"}
#define NAMES_mixtral {NAMES_ATTENTION, [SW_SLOT_ROUTER] = "block_sparse_moe.gate"}
#define NAMES_olmo2                                                                        \
    {NAMES_LINEARS, NAMES_MLP, NAMES_AFTER, [SW_SLOT_NORM_Q_ROW] = "self_attn.q_norm",     \
     [SW_SLOT_NORM_K_ROW] = "self_attn.k_norm"}
#define NAMES_gemma                                                                        \
    {NAMES_LINEARS, NAMES_MLP, NAMES_AFTER, [SW_SLOT_NORM_ATTN] = "input_layernorm",       \
     [SW_SLOT_NORM_MLP] = "pre_feedforward_layernorm",                                     \
     [SW_SLOT_NORM_Q] = "self_attn.q_norm", [SW_SLOT_NORM_K] = "self_attn.k_norm"}
#define NAMES_gemma3n                                                                      \
    {NAMES_LINEARS, NAMES_MLP, NAMES_AFTER, [SW_SLOT_NORM_ATTN] = "input_layernorm",       \
     [SW_SLOT_NORM_MLP] = "pre_feedforward_layernorm",                                     \
     [SW_SLOT_NORM_Q] = "self_attn.q_norm", [SW_SLOT_NORM_K] = "self_attn.k_norm",         \
     [SW_SLOT_LOW_RANK_A] = "laurel.linear_left",                                          \
     [SW_SLOT_LOW_RANK_B] = "laurel.linear_right",                                         \
     [SW_SLOT_NORM_LOW_RANK] = "laurel.post_laurel_norm",                                  \
     [SW_SLOT_COPY_ROUTER] = "altup.modality_router",                                      \
     [SW_SLOT_COPY_PREDICT] = "altup.prediction_coefs",                                    \
     [SW_SLOT_COPY_CORRECT] = "altup.correction_coefs",                                    \
     [SW_SLOT_COPY_NORM] = "altup.router_norm",                                            \
     [SW_SLOT_COPY_SCALE] = "altup.correct_output_scale",                                  \
     [SW_SLOT_SIDE_GATE] = "per_layer_input_gate",                                         \
     [SW_SLOT_SIDE_OUT] = "per_layer_projection",                                          \
     [SW_SLOT_NORM_SIDE] = "post_per_layer_input_norm"}
/* In a sparse layer the MLP beside the experts is the expert of every token. */
#define NAMES_gemma4                                                                       \
    {NAMES_LINEARS, NAMES_MLP, NAMES_AFTER, [SW_SLOT_NORM_ATTN] = "input_layernorm",       \
     [SW_SLOT_NORM_MLP] = "pre_feedforward_layernorm",                                     \
     [SW_SLOT_NORM_Q] = "self_attn.q_norm", [SW_SLOT_NORM_K] = "self_attn.k_norm",         \
     [SW_SLOT_SHARED_GATE] = "mlp.gate_proj", [SW_SLOT_SHARED_UP] = "mlp.up_proj",         \
     [SW_SLOT_SHARED_DOWN] = "mlp.down_proj", [SW_SLOT_ROUTER] = "router.proj",            \
     [SW_SLOT_ROUTER_NORM] = "router.scale",                                               \
     [SW_SLOT_EXPERT_SCALE] = "router.per_expert_scale",                                   \
     [SW_SLOT_NORM_DENSE_OUT] = "post_feedforward_layernorm_1",                            \
     [SW_SLOT_NORM_EXPERTS] = "pre_feedforward_layernorm_2",                               \
     [SW_SLOT_NORM_EXPERTS_OUT] = "post_feedforward_layernorm_2",                          \
     [SW_SLOT_LAYER_SCALE] = "layer_scalar",                                               \
     [SW_SLOT_SIDE_GATE] = "per_layer_input_gate",                                         \
     [SW_SLOT_SIDE_OUT] = "per_layer_projection",                                          \
     [SW_SLOT_NORM_SIDE] = "post_per_layer_input_norm"}
#define NAMES_phi3                                                                         \
    {[SW_SLOT_QKV] = "self_attn.qkv_proj", [SW_SLOT_O] = "self_attn.o_proj",               \
     [SW_SLOT_GATE_UP] = "mlp.gate_up_proj", [SW_SLOT_DOWN] = "mlp.down_proj",             \
     [SW_SLOT_NORM_ATTN] = "input_layernorm", [SW_SLOT_NORM_MLP] = "post_attention_layernorm"}
#define NAMES_opt                                                                          \
    {[SW_SLOT_Q] = "self_attn.q_proj", [SW_SLOT_K] = "self_attn.k_proj",                   \
     [SW_SLOT_V] = "self_attn.v_proj", [SW_SLOT_O] = "self_attn.out_proj",                 \
     [SW_SLOT_UP] = "fc1", [SW_SLOT_DOWN] = "fc2",                                         \
     [SW_SLOT_NORM_ATTN] = "self_attn_layer_norm", [SW_SLOT_NORM_MLP] = "final_layer_norm"}
#define NAMES_gpt2                                                                         \
    {[SW_SLOT_QKV] = "attn.c_attn", [SW_SLOT_O] = "attn.c_proj", [SW_SLOT_UP] = "mlp.c_fc",  \
     [SW_SLOT_DOWN] = "mlp.c_proj", [SW_SLOT_NORM_ATTN] = "ln_1", [SW_SLOT_NORM_MLP] = "ln_2"}

#define NAMES_gpt_oss \
    {NAMES_ATTENTION, [SW_SLOT_ROUTER] = "mlp.router", [SW_SLOT_SINKS] = "self_attn.sinks"}
#define NAMES_deepseek_v3                                                                  \
    {NAMES_MLP, [SW_SLOT_Q] = "self_attn.q_proj",                                          \
     [SW_SLOT_Q_A] = "self_attn.q_a_proj", [SW_SLOT_Q_B] = "self_attn.q_b_proj",           \
     [SW_SLOT_KV_A] = "self_attn.kv_a_proj_with_mqa", [SW_SLOT_KV_B] = "self_attn.kv_b_proj", \
     [SW_SLOT_O] = "self_attn.o_proj", [SW_SLOT_NORM_Q_A] = "self_attn.q_a_layernorm",     \
     [SW_SLOT_NORM_KV_A] = "self_attn.kv_a_layernorm",                                     \
     [SW_SLOT_NORM_ATTN] = "input_layernorm", [SW_SLOT_NORM_MLP] = "post_attention_layernorm", \
     [SW_SLOT_SHARED_GATE] = "mlp.shared_experts.gate_proj",                               \
     [SW_SLOT_SHARED_UP] = "mlp.shared_experts.up_proj",                                   \
     [SW_SLOT_SHARED_DOWN] = "mlp.shared_experts.down_proj", [SW_SLOT_ROUTER] = "mlp.gate",  \
     [SW_SLOT_ROUTER_SHIFT] = "mlp.gate.e_score_correction_bias",                          \
     [SW_SLOT_INDEX_Q] = "self_attn.indexer.wq_b", [SW_SLOT_INDEX_K] = "self_attn.indexer.wk", \
     [SW_SLOT_INDEX_WEIGHT] = "self_attn.indexer.weights_proj",                            \
     [SW_SLOT_NORM_INDEX] = "self_attn.indexer.k_norm"}

#define NAMES_HYPER(slot, name)                                                            \
    [SW_SLOT_HYPER_##slot] = name "_fn", [SW_SLOT_HYPER_##slot##_BASE] = name "_base",     \
    [SW_SLOT_HYPER_##slot##_SCALE] = name "_scale"
#define NAMES_deepseek_v4                                                                  \
    {[SW_SLOT_Q_A] = "attn.wq_a", [SW_SLOT_Q_B] = "attn.wq_b", [SW_SLOT_K] = "attn.wkv",   \
     [SW_SLOT_O_A] = "attn.wo_a", [SW_SLOT_O] = "attn.wo_b", [SW_SLOT_SINKS] = "attn.attn_sink", \
     [SW_SLOT_NORM_Q_A] = "attn.q_norm", [SW_SLOT_NORM_K_ROW] = "attn.kv_norm",            \
     [SW_SLOT_NORM_ATTN] = "attn_norm", [SW_SLOT_NORM_MLP] = "ffn_norm",                   \
     [SW_SLOT_COMPRESS_KV] = "attn.compressor.wkv",                                        \
     [SW_SLOT_COMPRESS_GATE] = "attn.compressor.wgate",                                    \
     [SW_SLOT_COMPRESS_POSITIONS] = "attn.compressor.ape",                                 \
     [SW_SLOT_NORM_COMPRESS] = "attn.compressor.norm",                                     \
     [SW_SLOT_INDEX_Q] = "attn.indexer.wq_b",                                              \
     [SW_SLOT_INDEX_WEIGHT] = "attn.indexer.weights_proj",                                 \
     [SW_SLOT_INDEX_KV] = "attn.indexer.compressor.wkv",                                   \
     [SW_SLOT_INDEX_GATE] = "attn.indexer.compressor.wgate",                               \
     [SW_SLOT_INDEX_POSITIONS] = "attn.indexer.compressor.ape",                            \
     [SW_SLOT_NORM_INDEX] = "attn.indexer.compressor.norm", NAMES_HYPER(ATTN, "hc_attn"),  \
     NAMES_HYPER(MLP, "hc_ffn"), [SW_SLOT_ROUTER] = "ffn.gate",                            \
     [SW_SLOT_ROUTER_SHIFT] = "ffn.gate.bias", [SW_SLOT_TOKEN_EXPERTS] = "ffn.gate.tid2eid", \
     [SW_SLOT_SHARED_GATE] = "ffn.shared_experts.w1",                                      \
     [SW_SLOT_SHARED_UP] = "ffn.shared_experts.w3",                                        \
     [SW_SLOT_SHARED_DOWN] = "ffn.shared_experts.w2"}

#define NAMES_glm4                                                                         \
    {NAMES_LINEARS, [SW_SLOT_GATE_UP] = "mlp.gate_up_proj", [SW_SLOT_DOWN] = "mlp.down_proj",  \
     [SW_SLOT_NORM_ATTN] = "input_layernorm", [SW_SLOT_NORM_MLP] = "post_attention_layernorm", \
     [SW_SLOT_NORM_AFTER_ATTN] = "post_self_attn_layernorm",                               \
     [SW_SLOT_NORM_AFTER_MLP] = "post_mlp_layernorm"}
#define NAMES_SHARED(shared)                                                               \
    [SW_SLOT_SHARED_GATE] = shared ".gate_proj", [SW_SLOT_SHARED_UP] = shared ".up_proj",  \
    [SW_SLOT_SHARED_DOWN] = shared ".down_proj"
#define NAMES_ROW_NORMS                                                                    \
    [SW_SLOT_NORM_Q_ROW] = "self_attn.q_norm", [SW_SLOT_NORM_K_ROW] = "self_attn.k_norm"
#define NAMES_AROUND                                                                       \
    NAMES_LINEARS, [SW_SLOT_NORM_ATTN] = "input_layernorm",                                \
    [SW_SLOT_NORM_MLP] = "post_attention_layernorm"
#define NAMES_glm4_moe                                                                     \
    {NAMES_ATTENTION, NAMES_MLP, NAMES_SHARED("mlp.shared_experts"),                       \
     [SW_SLOT_ROUTER] = "mlp.gate",                                                        \
     [SW_SLOT_ROUTER_SHIFT] = "mlp.gate.e_score_correction_bias"}
#define NAMES_minimax_m2                                                                   \
    {NAMES_AROUND, NAMES_ROW_NORMS, [SW_SLOT_ROUTER] = "block_sparse_moe.gate",            \
     [SW_SLOT_ROUTER_SHIFT] = "block_sparse_moe.e_score_correction_bias"}
#define NAMES_qwen2_moe                                                                    \
    {NAMES_AROUND, NAMES_MLP, NAMES_SHARED("mlp.shared_expert"),                           \
     [SW_SLOT_ROUTER] = "mlp.gate", [SW_SLOT_SHARED_ROUTER] = "mlp.shared_expert_gate"}
#define NAMES_olmoe {NAMES_AROUND, NAMES_ROW_NORMS, [SW_SLOT_ROUTER] = "mlp.gate"}
#define NAMES_ernie4_5_moe                                                                 \
    {NAMES_AROUND, NAMES_MLP, NAMES_SHARED("mlp.shared_experts"),                          \
     [SW_SLOT_ROUTER] = "mlp.gate",                                                        \
     [SW_SLOT_ROUTER_SHIFT] = "mlp.moe_statics.e_score_correction_bias"}
#define NAMES_exaone4                                                                      \
    {NAMES_LINEARS, NAMES_MLP, NAMES_AFTER, [SW_SLOT_NORM_Q] = "self_attn.q_norm",         \
     [SW_SLOT_NORM_K] = "self_attn.k_norm"}
#define NAMES_HUNYUAN                                                                      \
    NAMES_AROUND, [SW_SLOT_NORM_Q] = "self_attn.query_layernorm",                          \
    [SW_SLOT_NORM_K] = "self_attn.key_layernorm"
#define NAMES_hunyuan {NAMES_HUNYUAN, NAMES_MLP}
#define NAMES_hunyuan_moe \
    {NAMES_HUNYUAN, NAMES_SHARED("mlp.shared_mlp"), [SW_SLOT_ROUTER] = "mlp.gate.wg"}
#define NAMES_llama4                                                                       \
    {NAMES_AROUND, [SW_SLOT_GATE] = "feed_forward.gate_proj",                              \
     [SW_SLOT_UP] = "feed_forward.up_proj", [SW_SLOT_DOWN] = "feed_forward.down_proj",     \
     NAMES_SHARED("feed_forward.shared_expert"), [SW_SLOT_ROUTER] = "feed_forward.router"}
#define NAMES_starcoder2 \
    {NAMES_AROUND, [SW_SLOT_UP] = "mlp.c_fc", [SW_SLOT_DOWN] = "mlp.c_proj"}
#define NAMES_stablelm                                                                     \
    {NAMES_AROUND, NAMES_MLP, [SW_SLOT_NORM_Q] = "self_attn.q_layernorm",                  \
     [SW_SLOT_NORM_K] = "self_attn.k_layernorm"}
#define NAMES_GROUPED(attention)                                                           \
    [SW_SLOT_QKV] = attention ".query_key_value", [SW_SLOT_O] = attention ".dense",        \
    [SW_SLOT_UP] = "mlp.dense_h_to_4h", [SW_SLOT_DOWN] = "mlp.dense_4h_to_h",              \
    [SW_SLOT_NORM_ATTN] = "input_layernorm", [SW_SLOT_NORM_MLP] = "post_attention_layernorm"
#define NAMES_gpt_neox {NAMES_GROUPED("attention")}
#define NAMES_falcon                                                                       \
    {NAMES_GROUPED("self_attention"), [SW_SLOT_NORM_BRANCH_ATTN] = "ln_attn",              \
     [SW_SLOT_NORM_BRANCH_MLP] = "ln_mlp"}
#define NAMES_bloom {NAMES_GROUPED("self_attention")}

#define NOT_FUSED {NULL, NULL}, SW_FUSED_TURNS
#define EXPERTS_none {NULL, NULL, NULL}, NOT_FUSED
#define EXPERTS_gated                                                                      \
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"},    \
    NOT_FUSED
#define EXPERTS_gpt_oss                                                                    \
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"},    \
    {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}, SW_FUSED_TURNS
#define EXPERTS_columns                                                                    \
    {"mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj"},    \
    {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}, SW_FUSED_COLUMNS
#define EXPERTS_mixtral                                                                    \
    {"block_sparse_moe.experts.%d.w1", "block_sparse_moe.experts.%d.w3",                   \
     "block_sparse_moe.experts.%d.w2"},                                                    \
    NOT_FUSED

#define EXPERTS_deepseek_v4 \
    {"ffn.experts.%d.w1", "ffn.experts.%d.w3", "ffn.experts.%d.w2"}, NOT_FUSED
#define EXPERTS_llama4                                                                     \
    {"feed_forward.experts.%d.gate_proj", "feed_forward.experts.%d.up_proj",               \
     "feed_forward.experts.%d.down_proj"},                                                 \
    {"feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"}, SW_FUSED_COLUMNS
#define EXPERTS_gemma4                                                                     \
    {"experts.%d.gate_proj", "experts.%d.up_proj", "experts.%d.down_proj"},                \
    {"experts.gate_up_proj", "experts.down_proj"}, SW_FUSED_ROWS

#define ENDS(prefix, layers, embed, positions, norm, head, has_norm_bias)                  \
    {prefix,                                                                               \
     {[SW_END_LAYERS] = prefix layers, [SW_END_EMBED] = prefix embed,                      \
      [SW_END_POSITIONS] = positions, [SW_END_NORM] = prefix norm, [SW_END_HEAD] = head},  \
     has_norm_bias}
#define ENDS_plain ENDS("model.", "layers", "embed_tokens", NULL, "norm", "lm_head", false)
#define ENDS_opt                                                                           \
    ENDS("model.decoder.", "layers", "embed_tokens", "model.decoder.embed_positions",      \
         "final_layer_norm", "lm_head", true)
#define ENDS_gpt2 ENDS("transformer.", "h", "wte", "transformer.wpe", "ln_f", "lm_head", true)
#define ENDS_bias ENDS("model.", "layers", "embed_tokens", NULL, "norm", "lm_head", true)
#define ENDS_neox                                                                          \
    ENDS("gpt_neox.", "layers", "embed_in", NULL, "final_layer_norm", "embed_out", true)
#define ENDS_falcon ENDS("transformer.", "h", "word_embeddings", NULL, "ln_f", "lm_head", true)
#define ENDS_bloom                                                                         \
    {"transformer.",                                                                       \
     {[SW_END_LAYERS] = "transformer.h", [SW_END_EMBED] = "transformer.word_embeddings",   \
      [SW_END_EMBED_NORM] = "transformer.word_embeddings_layernorm",                       \
      [SW_END_NORM] = "transformer.ln_f", [SW_END_HEAD] = "lm_head"},                      \
     true}
#define ENDS_deepseek_v4                                                                   \
    {"",                                                                                   \
     {[SW_END_LAYERS] = "layers", [SW_END_EMBED] = "embed", [SW_END_STREAMS] = "hc_head_fn", \
      [SW_END_STREAMS_BASE] = "hc_head_base", [SW_END_STREAMS_SCALE] = "hc_head_scale",    \
      [SW_END_NORM] = "norm", [SW_END_HEAD] = "head"},                                     \
     false}
#define ENDS_gemma4                                                                        \
    {"model.",                                                                             \
     {[SW_END_LAYERS] = "model.layers", [SW_END_EMBED] = "model.embed_tokens",             \
      [SW_END_SIDE_TABLE] = "model.embed_tokens_per_layer",                                \
      [SW_END_SIDE_PROJECTION] = "model.per_layer_model_projection",                       \
      [SW_END_SIDE_NORM] = "model.per_layer_projection_norm",                              \
      [SW_END_NORM] = "model.norm", [SW_END_HEAD] = "lm_head"},                            \
     false}
#define ENDS_gemma3n                                                                       \
    {"model.",                                                                             \
     {[SW_END_LAYERS] = "model.layers", [SW_END_EMBED] = "model.embed_tokens",             \
      [SW_END_SIDE_TABLE] = "model.embed_tokens_per_layer",                                \
      [SW_END_SIDE_PROJECTION] = "model.per_layer_model_projection",                       \
      [SW_END_SIDE_NORM] = "model.per_layer_projection_norm",                              \
      [SW_END_COPIES_IN] = "model.altup_projections",                                      \
      [SW_END_COPIES_OUT] = "model.altup_unembed_projections",                             \
      [SW_END_NORM] = "model.norm", [SW_END_HEAD] = "lm_head"},                            \
     false}

#include "formats/model/families/names_hybrid.h"

const sw_arch sw_archs[] = {
#define SW_ARCH(id, hf, program, names, experts, tips, theta, eps, dim, activation,         \
                mlp_factor, tied, transposed, reader, note)                                 \
    {#id, hf, note, theta, eps, dim, mlp_factor, SW_MLP_##activation, tied, transposed,     \
     ENDS_##tips, &sw_kinds_##program, NAMES_##names, EXPERTS_##experts,                    \
     sw_family_##reader},
#include "formats/model/families/archs.def"
#include "formats/model/families/archs_hybrid.def"
#undef SW_ARCH
};
const int sw_n_archs = N_OPS(sw_archs);

const sw_arch *sw_arch_find(const char *model_type)
{
    for (int i = 0; i < sw_n_archs; i++)
        if (!strcmp(sw_archs[i].name, model_type)) return &sw_archs[i];
    return NULL;
}
