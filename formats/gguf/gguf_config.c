/* gguf_config.c - the reading half of gguf_config.h. */
#include "formats/gguf/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WAVE_LOW 1.0     /* llama3 scaling as published; the rest follows from the divisors */
#define WAVE_HIGH 4.0

typedef sw_gguf_config_reader reader;

/* Write sizes under the names that the reader of every family knows. */
static sw_code add_heads(const reader *r, int64_t hidden)
{
    const sw_gguf_hooks *hooks = r->arch->hooks;
    int64_t heads = 0, head_dim = 0, value_dim = 0, kv_heads = 0;
    sw_code rc;

    if (hooks && hooks->has_no_heads) return SW_OK;
    if ((rc = sw_gguf_read_count(&heads, r, "attention.head_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "num_attention_heads", heads)) != SW_OK ||
        (hooks && hooks->has_own_heads))
        return rc;
    if ((rc = sw_gguf_read_count(&kv_heads, r, "attention.head_count_kv", (double)heads)) ||
        (rc = sw_gguf_read_count(&head_dim, r, "attention.key_length",
                                 heads > 0 ? (double)(hidden / heads) : 0.0)) != SW_OK ||
        (rc = sw_gguf_read_count(&value_dim, r, "attention.value_length", (double)head_dim)))
        return rc;
    if (value_dim != head_dim)
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: keys of %lld and values of %lld elements",
                       sw_gguf_file_path(r->g, 0), (long long)head_dim, (long long)value_dim);
    rc = sw_gguf_add_int(r, "num_key_value_heads", kv_heads ? kv_heads : heads);
    return rc ? rc : sw_gguf_add_int(r, "head_dim", head_dim);
}

static sw_code add_sizes(reader *r)
{
    const sw_gguf_hooks *hooks = r->arch->hooks;
    int64_t hidden = 0, context = 0, width = 0;
    sw_code rc;

    if ((rc = sw_gguf_read_count(&hidden, r, "embedding_length", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&r->n_layers, r, "block_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&context, r, "context_length", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "hidden_size", hidden)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "num_hidden_layers", r->n_layers)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "max_position_embeddings", context)) != SW_OK ||
        (rc = add_heads(r, hidden)) != SW_OK || (hooks && hooks->has_own_widths))
        return rc;
    rc = sw_gguf_read_count(&width, r, "feed_forward_length", SW_GGUF_REQUIRED);
    return rc || !width ? rc : sw_gguf_add_int(r, "intermediate_size", width); /* 0: no such MLP */
}

/* Every layer has tensors, so a count beyond their number is wrong. Without this check a small file
 * could ask for any amount of memory by its count alone. */
static sw_code check_layers(const reader *r)
{
    int64_t n_layers = 0;
    sw_code rc = sw_gguf_read_count(&n_layers, r, "block_count", SW_GGUF_REQUIRED);

    if (rc != SW_OK || (n_layers <= sw_gguf_count(r->g) && n_layers <= SW_LAYERS_MAX)) return rc;
    return SW_FAIL(r->err, SW_E_FORMAT, "%s: block_count is %lld, and there are %lld tensors",
                   sw_gguf_file_path(r->g, 0), (long long)n_layers,
                   (long long)sw_gguf_count(r->g));
}

/* --- rope ------------------------------------------------------------------------------- */

/* Return the trained length that a divisor between 1 and the factor tells, or 0 for a divisor that
 * is one of these two and tells nothing. */
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

/* The file has divisors, which say how each frequency is scaled; config.json has the rule that
 * makes them. Find the numbers of the rule, and compare its divisors with those of the file. */
static sw_code add_llama3(const reader *r, const sw_gguf_tensor *t, double theta)
{
    sw_gguf_rope_tensor want[SW_GGUF_ROPE_TENSORS_MAX];
    float have[SW_ROPE_PAIRS_MAX];
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
    m.rope = (sw_rope){.kind = SW_ROPE_LLAMA3, .theta = theta, .factor = factor,
                       .low_freq_factor = WAVE_LOW, .high_freq_factor = WAVE_HIGH,
                       .original_max_positions = (int64_t)length};
    (void)sw_gguf_rope_tensors(want, &n_want, &m);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(have[i] - want[0].values[i]) <= 1e-4f * want[0].values[i]))
            return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: " SW_GGUF_ROPE_TENSOR " follows no rule "
                           "that is known here", sw_gguf_file_path(r->g, 0));
    scaling = cJSON_AddObjectToObject(r->config, "rope_scaling");
    if ((rc = sw_gguf_added(r, scaling)) != SW_OK ||
        (rc = sw_gguf_added(r, cJSON_AddStringToObject(scaling, "rope_type", "llama3"))) != SW_OK ||
        (rc = sw_gguf_add_real(r, scaling, "factor", factor)) != SW_OK ||
        (rc = sw_gguf_add_real(r, scaling, "low_freq_factor", WAVE_LOW)) != SW_OK ||
        (rc = sw_gguf_add_real(r, scaling, "high_freq_factor", WAVE_HIGH)) != SW_OK)
        return rc;
    return sw_gguf_added(
        r, cJSON_AddNumberToObject(scaling, "original_max_position_embeddings", length));
}

/* config.json has two factors where the file has one number, or a part of it. */
static sw_code add_mscale(const reader *r, cJSON *scaling)
{
    double mscale = 0.0;
    sw_code rc = sw_gguf_read_real(&mscale, r, "rope.scaling.yarn_log_multiplier");

    if (r->arch->hooks && r->arch->hooks->may_cut_rope)
        rc = rc ? rc : sw_gguf_added(r, cJSON_AddFalseToObject(scaling, "truncate"));
    if (rc != SW_OK || !(mscale > 0.0)) return rc;
    if (r->arch->hooks && r->arch->hooks->yarn_part > 0.0) mscale /= r->arch->hooks->yarn_part;
    rc = sw_gguf_add_real(r, scaling, "mscale", mscale);
    return rc ? rc : sw_gguf_add_real(r, scaling, "mscale_all_dim", mscale);
}

static sw_code add_scaling(const reader *r, const char *type)
{
    double factor = 1.0, attention = -1.0, fast = 32.0, slow = 1.0;
    int64_t length = 0;
    cJSON *scaling;
    sw_code rc;

    if ((rc = sw_gguf_read_real(&factor, r, "rope.scaling.factor")) != SW_OK) return rc;
    if (strcmp(type, "linear") && strcmp(type, "yarn"))
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: rope.scaling.type \"%.40s\"; there are none, "
                       "linear, yarn", sw_gguf_file_path(r->g, 0), type);
    scaling = cJSON_AddObjectToObject(r->config, "rope_scaling");
    if ((rc = sw_gguf_added(r, scaling)) != SW_OK ||
        (rc = sw_gguf_added(r, cJSON_AddStringToObject(scaling, "rope_type", type))) != SW_OK ||
        (rc = sw_gguf_add_real(r, scaling, "factor", factor)) != SW_OK || !strcmp(type, "linear"))
        return rc;
    if ((rc = sw_gguf_read_count(&length, r, "rope.scaling.original_context_length",
                                 SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_real(&attention, r, "rope.scaling.attn_factor")) != SW_OK ||
        (rc = sw_gguf_read_real(&fast, r, "rope.scaling.yarn_beta_fast")) != SW_OK ||
        (rc = sw_gguf_read_real(&slow, r, "rope.scaling.yarn_beta_slow")) != SW_OK ||
        (rc = sw_gguf_add_real(r, scaling, "beta_fast", fast)) != SW_OK ||
        (rc = sw_gguf_add_real(r, scaling, "beta_slow", slow)) != SW_OK)
        return rc;
    if (attention >= 0.0)
        rc = sw_gguf_add_real(r, scaling, "attention_factor",
                              attention * sw_gguf_yarn_factor(&(sw_rope){.factor = factor}));
    if (rc == SW_OK) rc = add_mscale(r, scaling);
    if (rc != SW_OK) return rc;
    return sw_gguf_added(r, cJSON_AddNumberToObject(scaling, "original_max_position_embeddings",
                                            (double)length));
}

/* Add two lists with a factor for each pair: within the trained length, and beyond it. */
static sw_code add_longrope(reader *r)
{
    static const char *const names[][2] = {{SW_GGUF_LONG_TENSOR, "long_factor"},
                                           {SW_GGUF_SHORT_TENSOR, "short_factor"}};
    cJSON *scaling = cJSON_AddObjectToObject(r->config, "rope_scaling");
    int64_t length = 0, n = 0;
    float factors[SW_ROPE_PAIRS_MAX];
    sw_code rc = sw_gguf_added(r, scaling);

    if (rc == SW_OK) rc = sw_gguf_add_text(r, scaling, "rope_type", "longrope");
    for (int i = 0; i < 2 && rc == SW_OK; i++) {
        const sw_gguf_tensor *t = sw_gguf_find(r->g, names[i][0]);
        cJSON *list = cJSON_AddArrayToObject(scaling, names[i][1]);

        if (!t)
            return SW_FAIL(r->err, SW_E_FORMAT, "%s: tensor \"%s\" is missing",
                           sw_gguf_file_path(r->g, 0), names[i][0]);
        if ((rc = sw_gguf_added(r, list)) != SW_OK ||
            (rc = read_divisors(factors, &n, r, t)) != SW_OK)
            return rc;
        for (int64_t k = 0; k < n; k++) {
            cJSON *one = cJSON_CreateNumber((double)factors[k]);
            if (!one || !cJSON_AddItemToArray(list, one)) return sw_gguf_added(r, NULL);
        }
    }
    if (rc == SW_OK)
        rc = sw_gguf_read_count(&length, r, "rope.scaling.original_context_length",
                                SW_GGUF_REQUIRED);
    return rc ? rc : sw_gguf_add_int(r, "original_max_position_embeddings", length);
}

/* Say how many elements of a head turn, where they are not all of them. */
static sw_code add_part(reader *r)
{
    const cJSON *dim = sw_json_member(r->config, "head_dim");
    int64_t turned = 0;
    sw_code rc = sw_gguf_read_count(&turned, r, "rope.dimension_count", 0.0);

    if (rc != SW_OK || !turned || !dim || dim->valuedouble == (double)turned) return rc;
    if ((double)turned > dim->valuedouble)
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: rope.dimension_count is %lld, of heads of %g",
                       sw_gguf_file_path(r->g, 0), (long long)turned, dim->valuedouble);
    if (!strcmp(r->arch->model_type, "minimax_m2")) return sw_gguf_add_int(r, "rotary_dim", turned);
    return sw_gguf_added(r, cJSON_AddNumberToObject(
                                r->config,
                                strcmp(r->arch->model_type, "gpt_neox") ? "partial_rotary_factor"
                                                                        : "rotary_pct",
                                (double)turned / dim->valuedouble));
}

static sw_code add_rope(reader *r)
{
    const sw_gguf_tensor *divisors = sw_gguf_find(r->g, SW_GGUF_ROPE_TENSOR);
    const char *type = "none";
    double theta = 1e4;
    char key[SW_GGUF_KEY_BYTES];
    sw_code rc;

    if (r->arch->hooks && r->arch->hooks->has_own_rope) return SW_OK;
    if ((rc = sw_gguf_read_real(&theta, r, "rope.freq_base")) != SW_OK ||
        (rc = sw_gguf_add_real(r, r->config, "rope_theta", theta)) != SW_OK ||
        (rc = add_part(r)) != SW_OK ||
        (rc = sw_gguf_text(&type, r->g, sw_gguf_key_of(key, r, "rope.scaling.type"), &r->arena,
                           r->err)))
        return rc;
    if (divisors) return add_llama3(r, divisors, theta);
    if (sw_gguf_has_tensor(r, SW_GGUF_LONG_TENSOR)) return add_longrope(r);
    return strcmp(type, "none") ? add_scaling(r, type) : SW_OK;
}

static sw_code add_token(const reader *r, const char *key, const char *name)
{
    int64_t id = -1;
    sw_code rc = sw_gguf_int(&id, r->g, key, -1, UINT32_MAX, r->err);

    if (rc != SW_OK || id < 0 || id == UINT32_MAX) return rc;
    return sw_gguf_add_int(r, name, id);
}

static sw_code add_rest(const reader *r, const char *dtype)
{
    const sw_gguf_arch *a = r->arch;
    const sw_gguf_tensor *embed = sw_gguf_find(r->g, "token_embd.weight");
    double eps = 1e-5;
    sw_code rc;

    if (!embed || embed->n_dims != 2)
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: tensor \"token_embd.weight\" is missing",
                       sw_gguf_file_path(r->g, 0));
    rc = sw_gguf_read_real(&eps, r, a->eps_key ? a->eps_key : SW_GGUF_EPS);
    if (rc != SW_OK || (rc = sw_gguf_add_int(r, "vocab_size", embed->shape[0])) != SW_OK ||
        (rc = sw_gguf_add_real(r, r->config, a->eps_json ? a->eps_json : "rms_norm_eps", eps)) ||
        (rc = sw_gguf_add_bool(r, "tie_word_embeddings", !sw_gguf_has_tensor(r, "output.weight"))))
        return rc;
    if ((rc = sw_gguf_add_text(r, r->config, "torch_dtype", dtype)) != SW_OK ||
        (rc = add_token(r, "tokenizer.ggml.bos_token_id", "bos_token_id")) != SW_OK ||
        (rc = add_token(r, "tokenizer.ggml.eos_token_id", "eos_token_id")) != SW_OK)
        return rc;
    return sw_gguf_add_text(r, r->config, a->act_json ? a->act_json : "hidden_act",
                            a->act ? a->act : "silu");
}

/* Tell a row of archs whether the file has a key. */
static bool has_key(const void *file, const char *leaf)
{
    const reader *r = file;
    char key[SW_GGUF_KEY_BYTES];

    (void)snprintf(key, sizeof key, "%s.%s", r->name, leaf);
    return sw_gguf_key(r->g, key) != NULL;
}

static sw_code begin(reader *r)
{
    int64_t n_experts = 0;
    char key[SW_GGUF_KEY_BYTES];
    cJSON *classes, *text;
    sw_code rc = sw_gguf_text(&r->name, r->g, "general.architecture", &r->arena, r->err);

    if (rc == SW_OK && (!r->name || strlen(r->name) > 40))
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: key general.architecture is missing",
                       sw_gguf_file_path(r->g, 0));
    if (rc != SW_OK) return rc;
    (void)snprintf(key, sizeof key, "%s.expert_count", r->name);
    if ((rc = sw_gguf_int(&n_experts, r->g, key, 0, SW_EXPERTS_MAX, r->err)) != SW_OK) return rc;
    rc = sw_gguf_arch_of_file(&r->arch, r->name, n_experts > 0, has_key, r, r->err);
    if (rc != SW_OK) {
        sw_err_prefix(r->err, "%s", sw_gguf_file_path(r->g, 0));
        return rc;
    }
    if ((rc = sw_gguf_added(r, classes = cJSON_AddArrayToObject(r->config, "architectures"))))
        return rc;
    text = cJSON_CreateString(r->arch->as_class ? r->arch->as_class
                                                : sw_arch_find(r->arch->model_type)->hf_class);
    if (!text || !cJSON_AddItemToArray(classes, text)) return sw_gguf_added(r, NULL);
    return sw_gguf_add_text(r, r->config, "model_type",
                            r->arch->as_type ? r->arch->as_type : r->arch->model_type);
}

sw_code sw_gguf_config_read(cJSON **out, const sw_gguf_arch **arch, const sw_gguf *g,
                            const char *dtype, sw_err *err)
{
    reader r = {.g = g, .config = cJSON_CreateObject(), .err = err};
    sw_code rc = sw_gguf_added(&r, r.config);

    if (rc == SW_OK) rc = begin(&r);
    if (rc == SW_OK) rc = check_layers(&r);
    if (rc == SW_OK) rc = add_sizes(&r);
    if (rc == SW_OK) rc = add_rope(&r);
    if (rc == SW_OK) rc = add_rest(&r, dtype);
    if (rc == SW_OK) rc = sw_gguf_read_keys(&r, r.arch->keys);
    if (rc == SW_OK && r.arch->hooks && r.arch->hooks->read) rc = r.arch->hooks->read(&r);
    sw_arena_free(&r.arena);
    if (rc != SW_OK) {
        cJSON_Delete(r.config);
        return rc;
    }
    *out = r.config;
    *arch = r.arch;
    return SW_OK;
}
