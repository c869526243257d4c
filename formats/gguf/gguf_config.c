/* gguf_config.c - the reading half of gguf_config.h. */
#include "formats/gguf/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 128
#define COUNT_MAX ((int64_t)1 << 31)
#define GEMMA_PERIOD 6   /* every sixth layer of gemma3 sees everything, ... */
#define GEMMA2_PERIOD 2  /* every second of gemma2 */
#define GEMMA_LOCAL_THETA 1e4
#define WAVE_LOW 1.0     /* llama3 scaling as published; the rest follows from the divisors */
#define WAVE_HIGH 4.0

typedef struct reader {
    const sw_gguf *g;
    const sw_gguf_arch *arch;
    cJSON *config;
    sw_arena arena;
    sw_err *err;
} reader;

static const char *key_of(char out[KEY_BYTES], const reader *r, const char *leaf)
{
    (void)snprintf(out, KEY_BYTES, "%s.%s", r->arch->gguf, leaf);
    return out;
}

static sw_code added(const reader *r, const void *item)
{
    return item ? SW_OK : SW_FAIL(r->err, SW_E_NOMEM, "no memory for the configuration");
}

static sw_code add_int(const reader *r, const char *key, int64_t v)
{
    return added(r, cJSON_AddNumberToObject(r->config, key, (double)v));
}

/* 1e-5 as a float is 9.99999974e-06 as a double: the shortest text that means the same float. */
static double shortest(double v)
{
    char text[32];

    for (int digits = 1; digits < 10; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if ((float)strtod(text, NULL) == (float)v) return strtod(text, NULL);
    }
    return v;
}

static sw_code add_real(const reader *r, cJSON *to, const char *key, double v)
{
    return added(r, cJSON_AddNumberToObject(to, key, shortest(v)));
}

static sw_code read_count(int64_t *out, const reader *r, const char *leaf, int64_t when_absent)
{
    char key[KEY_BYTES];
    sw_code rc;

    *out = when_absent;
    rc = sw_gguf_int(out, r->g, key_of(key, r, leaf), 0, COUNT_MAX, r->err);
    if (rc == SW_OK && *out < 0)
        rc = SW_FAIL(r->err, SW_E_FORMAT, "%s: key %s is missing", sw_gguf_file_path(r->g, 0), key);
    return rc;
}

static sw_code read_real(double *out, const reader *r, const char *leaf)
{
    char key[KEY_BYTES];

    return sw_gguf_real(out, r->g, key_of(key, r, leaf), r->err);
}

#define REQUIRED (-1)

static sw_code add_sizes(const reader *r)
{
    int64_t heads = 0, hidden = 0, head_dim = 0, value_dim = 0;
    const struct {
        const char *leaf, *key;
        int64_t when_absent;
        int64_t *keep;
    } rows[] = {
        {"attention.head_count", "num_attention_heads", REQUIRED, &heads},
        {"embedding_length", "hidden_size", REQUIRED, &hidden},
        {"block_count", "num_hidden_layers", REQUIRED, NULL},
        {"feed_forward_length", "intermediate_size", REQUIRED, NULL},
        {"context_length", "max_position_embeddings", REQUIRED, NULL},
        {"attention.head_count_kv", "num_key_value_heads", 0, NULL},
    };
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++) {
        int64_t v = 0;

        if ((rc = read_count(&v, r, rows[i].leaf, rows[i].when_absent)) != SW_OK) return rc;
        if (rows[i].keep) *rows[i].keep = v;
        if (rows[i].when_absent == 0 && v == 0) v = heads;
        rc = add_int(r, rows[i].key, v);
    }
    if (rc == SW_OK) rc = read_count(&head_dim, r, "attention.key_length",
                                     heads > 0 ? hidden / heads : 0);
    if (rc == SW_OK) rc = read_count(&value_dim, r, "attention.value_length", head_dim);
    if (rc == SW_OK && value_dim != head_dim)
        rc = SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: keys of %lld and values of %lld elements",
                     sw_gguf_file_path(r->g, 0), (long long)head_dim, (long long)value_dim);
    return rc == SW_OK ? add_int(r, "head_dim", head_dim) : rc;
}

/* --- rope ------------------------------------------------------------------------------- */

/* The trained length that a divisor between 1 and the factor points to; 0: it is neither. */
static double trained_length(double divisor, double factor, double wave)
{
    const double s = (1.0 / divisor - 1.0 / factor) / (1.0 - 1.0 / factor);

    return s > 1e-3 && s < 1.0 - 1e-3 ? wave * (s * (WAVE_HIGH - WAVE_LOW) + WAVE_LOW) : 0.0;
}

static sw_code read_divisors(float out[SW_ROPE_PAIRS_MAX], int64_t *n, const reader *r,
                             const sw_gguf_tensor *t)
{
    if (t->n_dims != 1 || t->type != SW_BLOCK_F32 || t->shape[0] > SW_ROPE_PAIRS_MAX)
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: " SW_GGUF_ROPE_TENSOR " is no list of floats",
                       sw_gguf_file_path(r->g, 0));
    *n = t->shape[0];
    memcpy(out, t->data, (size_t)*n * sizeof *out);
    return SW_OK;
}

/* The divisors say how each frequency is scaled; config.json says by which rule. Find the rule,
 * and hold its divisors against those that are there. */
static sw_code add_llama3(const reader *r, const sw_gguf_tensor *t, double theta)
{
    float have[SW_ROPE_PAIRS_MAX], want[SW_ROPE_PAIRS_MAX];
    double factor = 1.0, length = 8192.0;
    sw_model m = {.head_dim = 0};
    int64_t n = 0, n_want = 0;
    cJSON *scaling;
    sw_code rc = read_divisors(have, &n, r, t);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++) factor = fmax(factor, (double)have[i]);
    for (int64_t i = 0; i < n; i++) {
        const double wave = 2.0 * M_PI * pow(theta, (double)i / (double)n);
        const double found = trained_length((double)have[i], factor, wave);
        if (found > 0.0) length = round(found);
    }
    m.rope_dim = m.head_dim = 2 * n;
    m.rope = (sw_rope){.kind = SW_ROPE_LLAMA3, .theta = theta, .factor = shortest(factor),
                       .low_freq_factor = WAVE_LOW, .high_freq_factor = WAVE_HIGH,
                       .original_max_positions = (int64_t)length};
    sw_gguf_rope_divisors(want, &n_want, &m);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(have[i] - want[i]) <= 1e-4f * want[i]))
            return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: " SW_GGUF_ROPE_TENSOR " follows no rule "
                           "that is known here", sw_gguf_file_path(r->g, 0));
    scaling = cJSON_AddObjectToObject(r->config, "rope_scaling");
    if ((rc = added(r, scaling)) != SW_OK ||
        (rc = added(r, cJSON_AddStringToObject(scaling, "rope_type", "llama3"))) != SW_OK ||
        (rc = add_real(r, scaling, "factor", factor)) != SW_OK ||
        (rc = add_real(r, scaling, "low_freq_factor", WAVE_LOW)) != SW_OK ||
        (rc = add_real(r, scaling, "high_freq_factor", WAVE_HIGH)) != SW_OK)
        return rc;
    return added(r, cJSON_AddNumberToObject(scaling, "original_max_position_embeddings", length));
}

static sw_code add_scaling(const reader *r, const char *type)
{
    double factor = 1.0, attention = -1.0, fast = 32.0, slow = 1.0;
    int64_t length = 0;
    cJSON *scaling;
    sw_code rc;

    if ((rc = read_real(&factor, r, "rope.scaling.factor")) != SW_OK) return rc;
    if (strcmp(type, "linear") && strcmp(type, "yarn"))
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: rope.scaling.type \"%.40s\"; there are none, "
                       "linear, yarn", sw_gguf_file_path(r->g, 0), type);
    scaling = cJSON_AddObjectToObject(r->config, "rope_scaling");
    if ((rc = added(r, scaling)) != SW_OK ||
        (rc = added(r, cJSON_AddStringToObject(scaling, "rope_type", type))) != SW_OK ||
        (rc = add_real(r, scaling, "factor", factor)) != SW_OK || !strcmp(type, "linear"))
        return rc;
    if ((rc = read_count(&length, r, "rope.scaling.original_context_length", REQUIRED)) != SW_OK ||
        (rc = read_real(&attention, r, "rope.scaling.attn_factor")) != SW_OK ||
        (rc = read_real(&fast, r, "rope.scaling.yarn_beta_fast")) != SW_OK ||
        (rc = read_real(&slow, r, "rope.scaling.yarn_beta_slow")) != SW_OK ||
        (rc = add_real(r, scaling, "beta_fast", fast)) != SW_OK ||
        (rc = add_real(r, scaling, "beta_slow", slow)) != SW_OK)
        return rc;
    if (attention >= 0.0) rc = add_real(r, scaling, "attention_factor", attention);
    if (rc != SW_OK) return rc;
    return added(r, cJSON_AddNumberToObject(scaling, "original_max_position_embeddings",
                                            (double)length));
}

static sw_code add_rope(reader *r)
{
    const sw_gguf_tensor *divisors = sw_gguf_find(r->g, SW_GGUF_ROPE_TENSOR);
    const char *type = "none";
    double theta = 1e4;
    char key[KEY_BYTES];
    sw_code rc;

    if ((rc = read_real(&theta, r, "rope.freq_base")) != SW_OK ||
        (rc = add_real(r, r->config, "rope_theta", theta)) != SW_OK ||
        (rc = sw_gguf_text(&type, r->g, key_of(key, r, "rope.scaling.type"), &r->arena, r->err)))
        return rc;
    if (divisors) return add_llama3(r, divisors, theta);
    return strcmp(type, "none") ? add_scaling(r, type) : SW_OK;
}

/* --- what only some have ------------------------------------------------------------------ */

static sw_code add_experts(const reader *r)
{
    const bool is_mixtral = !strcmp(r->arch->model_type, "mixtral");
    int64_t n = 0, used = 0, width = 0;
    sw_code rc;

    if (!r->arch->is_moe) return SW_OK;
    if ((rc = read_count(&n, r, "expert_count", REQUIRED)) != SW_OK ||
        (rc = read_count(&used, r, "expert_used_count", REQUIRED)) != SW_OK ||
        (rc = add_int(r, is_mixtral ? "num_local_experts" : "num_experts", n)) != SW_OK ||
        (rc = add_int(r, "num_experts_per_tok", used)) != SW_OK || is_mixtral)
        return rc;
    if ((rc = read_count(&width, r, "expert_feed_forward_length", REQUIRED)) != SW_OK ||
        (rc = add_int(r, "moe_intermediate_size", width)) != SW_OK ||
        (rc = add_int(r, "decoder_sparse_step", 1)) != SW_OK)
        return rc;
    return added(r, cJSON_AddBoolToObject(r->config, "norm_topk_prob", true));
}

static sw_code add_window_layers(const reader *r, int64_t n_layers, int64_t period)
{
    cJSON *types = cJSON_AddArrayToObject(r->config, "layer_types");
    const sw_gguf_value *listed = sw_gguf_key(r->g, "gemma3.attention.sliding_window_pattern");

    if (listed && listed->kind == SW_GGUF_ARRAY &&
        (listed->elem_kind != SW_GGUF_BOOL || listed->n != (uint64_t)n_layers))
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: attention.sliding_window_pattern is no list of a "
                       "boolean per layer", sw_gguf_file_path(r->g, 0));
    for (int64_t l = 0; types && l < n_layers; l++) {
        bool is_window = listed && listed->kind == SW_GGUF_ARRAY
                             ? sw_gguf_elem_int(listed, (uint64_t)l) != 0
                             : (l + 1) % period != 0;
        cJSON *type = cJSON_CreateString(is_window ? "sliding_attention" : "full_attention");
        if (!type || !cJSON_AddItemToArray(types, type)) return added(r, NULL);
    }
    return added(r, types);
}

/* Loaders know the scale of scores by the number of layers: see gguf_config_write.c. */
static sw_code add_gemma(const reader *r)
{
    const bool is_second = !strcmp(r->arch->gguf, "gemma2");
    const int64_t largest = is_second ? 46 : 62;
    int64_t layers = 0, window = 0, heads = 1, hidden = 0, head_dim = 0;
    double scores = 0.0, logits = 0.0, local = GEMMA_LOCAL_THETA;
    sw_code rc;

    if (strncmp(r->arch->gguf, "gemma", 5)) return SW_OK;
    if ((rc = read_count(&layers, r, "block_count", REQUIRED)) != SW_OK ||
        (rc = read_count(&window, r, "attention.sliding_window", is_second ? 4096 : 0)) != SW_OK ||
        (rc = read_count(&heads, r, "attention.head_count", REQUIRED)) != SW_OK ||
        (rc = read_count(&hidden, r, "embedding_length", REQUIRED)) != SW_OK ||
        (rc = read_count(&head_dim, r, "attention.key_length", 256)) != SW_OK ||
        (rc = read_real(&scores, r, "attn_logit_softcapping")) != SW_OK ||
        (rc = read_real(&logits, r, "final_logit_softcapping")) != SW_OK ||
        (rc = read_real(&local, r, "rope.freq_base_swa")) != SW_OK)
        return rc;
    if (layers == largest && heads > 0) head_dim = hidden / heads;
    if ((rc = added(r, cJSON_AddStringToObject(r->config, "hidden_activation",
                                               "gelu_pytorch_tanh"))) != SW_OK ||
        (rc = add_int(r, "query_pre_attn_scalar", head_dim)) != SW_OK)
        return rc;
    if (window > 0 && ((rc = add_int(r, "sliding_window", window)) != SW_OK ||
                       (rc = add_window_layers(r, layers, is_second ? GEMMA2_PERIOD
                                                                    : GEMMA_PERIOD)) != SW_OK))
        return rc;
    if (scores > 0.0) rc = add_real(r, r->config, "attn_logit_softcapping", scores);
    else rc = added(r, cJSON_AddNullToObject(r->config, "attn_logit_softcapping"));
    if (rc == SW_OK && logits > 0.0)
        rc = add_real(r, r->config, "final_logit_softcapping", logits);
    else if (rc == SW_OK)
        rc = added(r, cJSON_AddNullToObject(r->config, "final_logit_softcapping"));
    return rc == SW_OK && !is_second ? add_real(r, r->config, "rope_local_base_freq", local) : rc;
}

static sw_code add_token(const reader *r, const char *key, const char *name)
{
    int64_t id = -1;
    sw_code rc = sw_gguf_int(&id, r->g, key, -1, UINT32_MAX, r->err);

    if (rc != SW_OK || id < 0 || id == UINT32_MAX) return rc;
    return add_int(r, name, id);
}

static sw_code add_rest(const reader *r, const char *dtype)
{
    const sw_gguf_tensor *embed = sw_gguf_find(r->g, "token_embd.weight");
    const bool is_tied = !sw_gguf_find(r->g, "output.weight");
    double eps = 1e-5;
    sw_code rc;

    if (!embed || embed->n_dims != 2)
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: tensor \"token_embd.weight\" is missing",
                       sw_gguf_file_path(r->g, 0));
    if ((rc = add_int(r, "vocab_size", embed->shape[0])) != SW_OK ||
        (rc = read_real(&eps, r, "attention.layer_norm_rms_epsilon")) != SW_OK ||
        (rc = add_real(r, r->config, "rms_norm_eps", eps)) != SW_OK ||
        (rc = added(r, cJSON_AddBoolToObject(r->config, "tie_word_embeddings", is_tied))) ||
        (rc = added(r, cJSON_AddStringToObject(r->config, "torch_dtype", dtype))) != SW_OK ||
        (rc = add_token(r, "tokenizer.ggml.bos_token_id", "bos_token_id")) != SW_OK ||
        (rc = add_token(r, "tokenizer.ggml.eos_token_id", "eos_token_id")) != SW_OK)
        return rc;
    if (!strncmp(r->arch->gguf, "gemma", 5)) return SW_OK;
    rc = added(r, cJSON_AddStringToObject(r->config, "hidden_act", "silu"));
    if (rc == SW_OK && sw_gguf_find(r->g, "blk.0.attn_q.bias") && !strcmp(r->arch->gguf, "llama"))
        rc = added(r, cJSON_AddBoolToObject(r->config, "attention_bias", true));
    if (rc == SW_OK && sw_gguf_find(r->g, "blk.0.ffn_gate.bias"))
        rc = added(r, cJSON_AddBoolToObject(r->config, "mlp_bias", true));
    return rc;
}

static sw_code begin(reader *r)
{
    const char *name = NULL;
    int64_t n_experts = 0;
    char key[KEY_BYTES];
    cJSON *classes, *text;
    sw_code rc = sw_gguf_text(&name, r->g, "general.architecture", &r->arena, r->err);

    if (rc == SW_OK && (!name || strlen(name) > 40))
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: key general.architecture is missing",
                       sw_gguf_file_path(r->g, 0));
    if (rc != SW_OK) return rc;
    (void)snprintf(key, sizeof key, "%s.expert_count", name);
    if ((rc = sw_gguf_int(&n_experts, r->g, key, 0, SW_EXPERTS_MAX, r->err)) != SW_OK) return rc;
    if ((rc = sw_gguf_arch_of_file(&r->arch, name, n_experts > 0, r->err)) != SW_OK) {
        sw_err_prefix(r->err, "%s", sw_gguf_file_path(r->g, 0));
        return rc;
    }
    if ((rc = added(r, classes = cJSON_AddArrayToObject(r->config, "architectures"))) != SW_OK)
        return rc;
    text = cJSON_CreateString(sw_arch_find(r->arch->model_type)->hf_class);
    if (!text || !cJSON_AddItemToArray(classes, text)) return added(r, NULL);
    return added(r, cJSON_AddStringToObject(r->config, "model_type", r->arch->model_type));
}

/* Layers and experts have tensors: what counts alone would make goes with the size of the file. */
static sw_code check_counts(const reader *r)
{
    int64_t n_layers = 0, n_experts = 0;
    char name[KEY_BYTES];
    sw_code rc;

    if ((rc = read_count(&n_layers, r, "block_count", REQUIRED)) != SW_OK ||
        (rc = read_count(&n_experts, r, "expert_count", 0)) != SW_OK)
        return rc;
    if (n_layers > sw_gguf_count(r->g))
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: block_count is %lld, and there are %lld tensors",
                       sw_gguf_file_path(r->g, 0), (long long)n_layers,
                       (long long)sw_gguf_count(r->g));
    for (int64_t l = 0; l < n_layers && n_experts > 0; l++) {
        const sw_gguf_tensor *t;

        (void)snprintf(name, sizeof name, "blk.%lld.ffn_up_exps.weight", (long long)l);
        t = sw_gguf_find(r->g, name);
        if (!t || t->n_dims != 3 || t->shape[0] != n_experts)
            return SW_FAIL(r->err, SW_E_FORMAT, "%s: tensor \"%s\" of %lld experts is missing",
                           sw_gguf_file_path(r->g, 0), name, (long long)n_experts);
    }
    return SW_OK;
}

sw_code sw_gguf_config_read(cJSON **out, const sw_gguf_arch **arch, const sw_gguf *g,
                            const char *dtype, sw_err *err)
{
    reader r = {.g = g, .config = cJSON_CreateObject(), .err = err};
    sw_code rc = added(&r, r.config);

    if (rc == SW_OK) rc = begin(&r);
    if (rc == SW_OK) rc = check_counts(&r);
    if (rc == SW_OK) rc = add_sizes(&r);
    if (rc == SW_OK) rc = add_rope(&r);
    if (rc == SW_OK) rc = add_experts(&r);
    if (rc == SW_OK) rc = add_gemma(&r);
    if (rc == SW_OK) rc = add_rest(&r, dtype);
    sw_arena_free(&r.arena);
    if (rc != SW_OK) {
        cJSON_Delete(r.config);
        return rc;
    }
    *out = r.config;
    *arch = r.arch;
    return SW_OK;
}
