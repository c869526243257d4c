/* damage_text.c - see damage_text.h. */
#include "tests/support/damage_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG "config.json"
#define Q "quantization_config."

const damage_field damage_fields[] = {
    {"rope_theta 5e5", CONFIG, "rope_theta", "500000.0", "rope_theta", "rope"},
    {"rope_theta 9000", CONFIG, "rope_theta", "9000.0", "rope_theta", "rope"},
    {"linear rope scaling", CONFIG, "rope_scaling", "{\"type\": \"linear\", \"factor\": 4.0}",
     "rope_theta", "rope"},
    {"rope of half of the heads", CONFIG, "partial_rotary_factor", "0.5", "rope_theta", "rotary"},
    {"gelu for silu", CONFIG, "hidden_act", "\"gelu\"", "hidden_act", "act"},
    {"relu for silu", CONFIG, "hidden_act", "\"relu\"", "hidden_act", "act"},
    {"sliding_window 64", CONFIG, "sliding_window", "64", "rms_norm_eps", "window"},
    {"rms_norm_eps 1e-2", CONFIG, "rms_norm_eps", "0.01", "rms_norm_eps", "eps"},
    {"rms_norm_eps 1e-6", CONFIG, "rms_norm_eps", "0.000001", "rms_norm_eps", "eps"},
    {"norm_topk_prob false", CONFIG, "norm_topk_prob", "false", "norm_topk_prob",
     "norm_topk_prob"},
    {"num_experts_per_tok 1", CONFIG, "num_experts_per_tok", "1", "num_experts_per_tok",
     "experts_per_tok"},
    {"num_experts_per_tok 3", CONFIG, "num_experts_per_tok", "3", "num_experts_per_tok",
     "experts_per_tok"},
    {"routed_scaling_factor 2", CONFIG, "routed_scaling_factor", "2.0", "num_experts",
     "routed_scaling_factor"},
    {"bos_token_id 7", CONFIG, "bos_token_id", "7", "bos_token_id", "bos"},
    {"eos_token_id 7", CONFIG, "eos_token_id", "7", "eos_token_id", "eos"},
    {"max_position_embeddings 128", CONFIG, "max_position_embeddings", "128",
     "max_position_embeddings", "position"},
    {"attention_multiplier", CONFIG, "attention_multiplier", "0.5", "rms_norm_eps",
     "attention_multiplier"},
    {"query_pre_attn_scalar", CONFIG, "query_pre_attn_scalar", "16", "rms_norm_eps",
     "query_pre_attn_scalar"},
    {"final_logit_softcapping", CONFIG, "final_logit_softcapping", "3.0", "rms_norm_eps",
     "softcap"},
    {"logit_scale", CONFIG, "logit_scale", "0.0625", "rms_norm_eps", "logit_scale"},
    {"attention_bias true", CONFIG, "attention_bias", "true", "attention_bias", "bias"},
    {"head_dim 32, twice the heads", CONFIG, "head_dim", "32", "head_dim", "head"},
    {"tie_word_embeddings false", CONFIG, "tie_word_embeddings", "false", "tie_word_embeddings",
     "head"},
    {"dtype float16", CONFIG, "torch_dtype", "\"float16\"", "torch_dtype", "dtype"},
    {"no layer but one", CONFIG, "num_hidden_layers", "1", "num_hidden_layers", "layers"},
    {"key-value heads doubled", CONFIG, "num_key_value_heads", "4", "num_key_value_heads", "head"},
    {"another model_type", CONFIG, "model_type", "\"mistral\"", "model_type", "mistral"},
    {"config.json cut off", CONFIG, NULL, NULL, NULL, "config.json"},
    {"targets empty", CONFIG, Q "config_groups.group_0.targets", "[]",
     Q "format", "target"},
    {"targets of the MLP only", CONFIG, Q "config_groups.group_0.targets", "[\"re:.*mlp.*\"]",
     Q "format", "self_attn"},
    {"attention in ignore", CONFIG, Q "ignore", "[\"re:.*self_attn.*\"]", Q "config_groups",
     "self_attn"},
    {"side projection taken off the list", CONFIG, Q "ignore", "[\"lm_head\"]",
     "text_config.hidden_size_per_layer_input", "per_layer_model_projection"},
    {"8 bits", CONFIG, Q "config_groups.group_0.weights.num_bits", "8",
     Q "format", "model.layers"},
    {"groups of 64 in the config", CONFIG, Q "config_groups.group_0.weights.group_size", "64",
     Q "format", ""},
    {"asymmetric in the config", CONFIG, Q "config_groups.group_0.weights.symmetric", "false",
     Q "format", ""},
    {"inputs in groups of 64", CONFIG, Q "config_groups.group_0.input_activations.group_size", "64",
     Q "config_groups.group_0.input_activations.strategy", "group_size"},
    {"inputs of static scale", CONFIG, Q "config_groups.group_0.input_activations.dynamic", "false",
     Q "config_groups.group_0.input_activations.strategy", "input"},
    {"integers in the config", CONFIG, Q "config_groups.group_0.weights.type", "\"int\"",
     Q "format", ""},
    {"bits of gptq 8", CONFIG, Q "bits", "8", Q "bits", ""},
    {"group_size of gptq 64", CONFIG, Q "group_size", "64", Q "group_size", ""},
    {"gptq_v2 for gptq or gptq for it", CONFIG, Q "checkpoint_format", "\"gptq\"",
     Q "checkpoint_format", ""},
    {"sym of gptq false", CONFIG, Q "sym", "false", Q "sym", ""},
    {"zero_point of awq false", CONFIG, Q "zero_point", "false", Q "zero_point", ""},
    {"gemv for gemm", CONFIG, Q "version", "\"gemv\"", Q "zero_point", ""},
    {"block of 64 x 64", CONFIG, Q "weight_block_size", "[64, 64]", Q "weight_block_size", ""},
    {"another quant_method", CONFIG, Q "quant_method", "\"bitsandbytes\"", Q "quant_method", ""},
    {"generation_config.json cut off", "generation_config.json", NULL, NULL, NULL,
     "generation_config.json"},
    {"eos of generation_config.json", "generation_config.json", "eos_token_id", "9", NULL, "eos"},
    {"tokenizer.json cut off", "tokenizer.json", NULL, NULL, NULL, "tokenizer"},
};
const int n_damage_fields = sizeof damage_fields / sizeof *damage_fields;

/* The object that holds the last key of `path`, which comes back in *key; NULL: there is none. */
static cJSON *holder(cJSON *root, const char *path, const char **key)
{
    char part[64];

    for (const char *dot; root && (dot = strchr(path, '.')); path = dot + 1) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        root = cJSON_GetObjectItemCaseSensitive(root, part);
    }
    *key = path;
    return cJSON_IsObject(root) ? root : NULL;
}

char *damage_field_apply(const damage_field *field, const char *text)
{
    cJSON *root = cJSON_Parse(text), *at, *value, *old;
    const char *key;
    char *out = NULL;

    if (root && !field->value) {
        out = cJSON_PrintUnformatted(root);
        if (out) out[strlen(out) / 2] = '\0';
    } else if (root && (!field->needs || ((at = holder(root, field->needs, &key)) &&
                                          cJSON_GetObjectItemCaseSensitive(at, key))) &&
               (at = holder(root, field->path, &key)) && (value = cJSON_Parse(field->value))) {
        old = cJSON_GetObjectItemCaseSensitive(at, key);
        if (old && cJSON_Compare(old, value, true)) {
            cJSON_Delete(value);
        } else {
            cJSON_DeleteItemFromObjectCaseSensitive(at, key);
            cJSON_AddItemToObject(at, key, value);
            out = cJSON_Print(root);
        }
    }
    cJSON_Delete(root);
    return out;
}

char *damage_swap_ids(const char *text)
{
    cJSON *root = cJSON_Parse(text), *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    cJSON *vocab = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    cJSON *a = cJSON_GetArrayItem(vocab, 900), *b = cJSON_GetArrayItem(vocab, 901);
    char *out = NULL;

    if (cJSON_IsNumber(a) && cJSON_IsNumber(b)) {
        double id = a->valuedouble;

        cJSON_SetNumberValue(a, b->valuedouble);
        cJSON_SetNumberValue(b, id);
        out = cJSON_PrintUnformatted(root);
    }
    cJSON_Delete(root);
    return out;
}

const char *const damage_list_names[DAMAGE_LIST_COUNT] = {
    [DAMAGE_FLOATS_BESIDE] = "floats beside codes", [DAMAGE_NO_NORM] = "a norm missing",
    [DAMAGE_NO_CODES] = "codes missing", [DAMAGE_TWO_SHAPES] = "codes of another shape",
    [DAMAGE_EXTRA] = "a tensor too many",
};

static void must(sw_code rc, const sw_err *err)
{
    if (rc == SW_OK) return;
    fprintf(stderr, "judge_corpus: %s\n", err->text);
    exit(1);
}

/* What becomes of one tensor; false: it is left out. */
static bool keeps(damage_list_kind kind, const sw_st_tensor *t, const char *codes, sw_cview *view)
{
    *view = t->view;
    if (kind == DAMAGE_NO_NORM) return !strstr(t->name, "layers.0.input_layernorm");
    if (strcmp(t->name, codes)) return true;
    if (kind == DAMAGE_NO_CODES) return false;
    if (kind == DAMAGE_TWO_SHAPES && view->n_dims >= 2) {
        view->shape[0] = t->view.shape[1];
        view->shape[1] = t->view.shape[0];
    }
    return true;
}

bool damage_list_apply(damage_list_kind kind, const char *dir, const sw_st *st, const char *path,
                       const char *codes)
{
    static const int64_t shape[] = {4, 4};
    static const uint16_t zeros[16];
    const sw_st_tensor *t = sw_st_find(st, codes);
    sw_st_writer *w = NULL;
    char extra[512] = "";
    sw_err err = {0};
    sw_cview view;

    if (kind == DAMAGE_FLOATS_BESIDE) (void)snprintf(extra, sizeof extra, "%s.weight", path);
    if (kind == DAMAGE_EXTRA) (void)snprintf(extra, sizeof extra, "model.layers.0.lora.weight");
    if (!t || (*extra && sw_st_find(st, extra)) ||
        (kind == DAMAGE_TWO_SHAPES &&
         (t->view.n_dims < 2 || t->view.shape[0] == t->view.shape[1])))
        return false;
    must(sw_st_writer_new(&w, dir, 0, &err), &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            t = sw_st_at(st, i);
            if (!keeps(kind, t, codes, &view)) continue;
            must(pass ? sw_st_writer_put(w, t->name, view.data, view.size_bytes, &err)
                      : sw_st_writer_declare(w, t->name, view.dtype, view.n_dims, view.shape, &err),
                 &err);
        }
        if (*extra)
            must(pass ? sw_st_writer_put(w, extra, zeros, sizeof zeros, &err)
                      : sw_st_writer_declare(w, extra, SW_DTYPE_BF16, 2, shape, &err), &err);
        if (!pass) must(sw_st_writer_begin(w, &err), &err);
    }
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    return true;
}
