/* families.h - the config keys that only some decoder families have; inside formats/model. */
#ifndef SW_FORMATS_MODEL_FAMILIES_FAMILIES_H
#define SW_FORMATS_MODEL_FAMILIES_FAMILIES_H

#include "formats/model/model.h"

/* Each fills what sw_model_read leaves to the family: biases, window, experts. The sizes that
 * every family has are in *model already. Errors name the key. */
sw_code sw_family_read_llama(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_mistral(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_olmo2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_gemma2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_gemma3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_phi3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_opt(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_gpt2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen3_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_gpt_oss(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_deepseek_v3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_deepseek_v4(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_mixtral(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen3_5(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen3_5_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen3_next(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_lfm2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_lfm2_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_mamba2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_kimi_linear(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_granite_hybrid(sw_model *model, const cJSON *config,
                                      sw_err *err) SW_MUST_USE;
sw_code sw_family_read_falcon_h1(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_nemotron_h(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_bamba(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;

sw_code sw_family_read_glm4(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_glm4_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_minimax_m2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_qwen2_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_olmoe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_olmo3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_smollm3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_cohere2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_ernie4_5(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_ernie4_5_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_exaone4(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_hunyuan(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_hunyuan_moe(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_seed_oss(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_granite(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_llama4(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_ministral3(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_starcoder2(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_stablelm(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_gpt_neox(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_falcon(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_gemma3n(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_gemma4(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_read_bloom(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;

/* Pieces that several families are read by. */
/* A whole number in [min, max]; absent or null: when_absent. */
sw_code sw_family_int(int64_t *out, const cJSON *config, const char *key, int64_t when_absent,
                      int64_t min, int64_t max, sw_err *err) SW_MUST_USE;
/* A number in [-max, max]; absent or null: *out stays. */
sw_code sw_family_real(double *out, const cJSON *config, const char *key, double max,
                       sw_err *err) SW_MUST_USE;
/* no_rope_layers, or every so many layers: SW_KIND_TURNED and SW_KIND_UNTURNED. */
sw_code sw_family_unturned_layers(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
/* Those kinds, by whether a layer has a window. */
void sw_family_turn_in_windows(sw_model *model);
/* The four factors of Granite models. */
sw_code sw_family_multipliers(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
/* The last n_shared layers read the keys and values of the last layer of their type before them. */
sw_code sw_family_share_keys(sw_model *model, int64_t n_shared, sw_err *err) SW_MUST_USE;
/* Older configs of Gemmas have one rope object and the base of window layers beside it. */
sw_code sw_family_local_rope(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
void sw_family_kind_everywhere(sw_model *model, int kind);
/* A number above 0 and at most `max`, or null or absent for "none": *out stays. */
sw_code sw_family_positive(double *out, const cJSON *config, const char *key, double max,
                           sw_err *err) SW_MUST_USE;
/* A key that must have one value, whether said or not: SW_E_UNSUPPORTED. */
sw_code sw_family_insist(const cJSON *config, const char *key, bool want, sw_err *err) SW_MUST_USE;
/* A cap on scores or logits: a present null switches it off; an absent key leaves when_absent. */
sw_code sw_family_cap(double *out, const cJSON *config, const char *key, double when_absent,
                      sw_err *err) SW_MUST_USE;
/* A present null means "no window"; an absent key means `when_absent`. */
sw_code sw_family_window(int64_t *out, const cJSON *config, int64_t when_absent,
                         sw_err *err) SW_MUST_USE;
void sw_family_window_everywhere(sw_model *model);
/* layer_types, or when there is none every layer but each `period`-th a window layer. */
sw_code sw_family_layer_types(sw_model *model, const cJSON *config, int64_t period,
                              sw_err *err) SW_MUST_USE;
/* use_sliding_window switches sliding_window on. */
sw_code sw_family_optional_window(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
/* mlp_only_layers. */
sw_code sw_family_dense_layers(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
/* The router of DeepSeek-V3 and its kin: experts, groups, factor. */
sw_code sw_family_sigmoid_router(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
/* Widths of routed and shared experts, and which layers are dense. */
sw_code sw_family_shared_expert(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
/* What chooses keys in latent attention, where the config has it, and in which layers it is. */
sw_code sw_family_indexer(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
sw_code sw_family_attention_bias(sw_model *model, const cJSON *config, sw_err *err) SW_MUST_USE;
/* Every spelling of the expert count exists for some family; the program reads any. */
sw_code sw_family_experts(sw_model *model, const cJSON *config, int64_t n_default,
                          int64_t used_default, sw_err *err) SW_MUST_USE;

#endif
