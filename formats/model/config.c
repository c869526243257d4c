/* config.c - config.json into sw_model: the keys that every family has.
 *
 * Every size is capped before it is used. The caps are far above any model in sight and low
 * enough that a product of any three of them fits in 63 bits, so nothing below here has to
 * check a weight's shape for overflow again.
 */
#include <stdio.h>
#include <string.h>

#include "formats/model/model.h"

#define HIDDEN_MAX ((int64_t)1 << 20)
#define MLP_MAX ((int64_t)1 << 22)
#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096
#define VOCAB_MAX ((int64_t)1 << 24)
#define POSITIONS_MAX ((int64_t)1 << 31)
#define TOKEN_ID_MAX ((int64_t)1 << 32)

static sw_code unknown_arch(const char *name, sw_err *err)
{
    char list[256] = "";

    for (int i = 0; i < sw_n_archs; i++) {
        size_t used = strlen(list);

        (void)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", sw_archs[i].name);
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED, "model_type: \"%.60s\" is not supported; there are %s",
                   name, list);
}

/* model_type decides; a config without one is told by its class name. */
static sw_code find_arch(const sw_arch **out, const cJSON *config, sw_err *err)
{
    const cJSON *class_name = cJSON_GetArrayItem(sw_json_member(config, "architectures"), 0);
    const char *name = NULL;
    sw_code rc;

    if ((rc = sw_json_text(&name, config, "model_type", err)) != SW_OK) return rc;
    if (name) {
        *out = sw_arch_find(name);
        return *out ? SW_OK : unknown_arch(name, err);
    }
    if (!cJSON_IsString(class_name))
        return SW_FAIL(err, SW_E_FORMAT, "model_type: missing, and no architectures either");
    for (int i = 0; i < sw_n_archs; i++)
        if (!strcmp(sw_archs[i].hf_class, class_name->valuestring)) *out = &sw_archs[i];
    return *out ? SW_OK : unknown_arch(class_name->valuestring, err);
}

static sw_code read_sizes(sw_model *m, const cJSON *config, sw_err *err)
{
    const struct {
        const char *key;
        int64_t *value, max;
    } sizes[] = {
        {"hidden_size", &m->hidden, HIDDEN_MAX},
        {"intermediate_size", &m->intermediate, MLP_MAX},
        {"num_hidden_layers", &m->n_layers, SW_LAYERS_MAX},
        {"num_attention_heads", &m->n_heads, HEADS_MAX},
        {"vocab_size", &m->vocab, VOCAB_MAX},
        {"max_position_embeddings", &m->max_positions, POSITIONS_MAX},
    };
    sw_code rc;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!sw_json_member(config, sizes[i].key))
            return SW_FAIL(err, SW_E_FORMAT, "%s: missing", sizes[i].key);
        rc = sw_json_int(sizes[i].value, config, sizes[i].key, 1, sizes[i].max, err);
        if (rc != SW_OK) return rc;
    }
    return SW_OK;
}

static sw_code read_heads(sw_model *m, const cJSON *config, sw_err *err)
{
    sw_code rc;

    m->n_kv_heads = m->n_heads;
    rc = sw_json_int(&m->n_kv_heads, config, "num_key_value_heads", 1, HEADS_MAX, err);
    if (rc != SW_OK) return rc;
    if (m->n_heads % m->n_kv_heads)
        return SW_FAIL(err, SW_E_FORMAT,
                       "num_key_value_heads: %lld does not divide num_attention_heads = %lld",
                       (long long)m->n_kv_heads, (long long)m->n_heads);
    m->head_dim = m->arch->default_head_dim;
    if ((rc = sw_json_int(&m->head_dim, config, "head_dim", 1, HEAD_DIM_MAX, err)) != SW_OK)
        return rc;
    if (!m->head_dim) {
        if (m->hidden % m->n_heads)
            return SW_FAIL(err, SW_E_FORMAT,
                           "num_attention_heads: %lld does not divide hidden_size = %lld, and "
                           "there is no head_dim",
                           (long long)m->n_heads, (long long)m->hidden);
        m->head_dim = m->hidden / m->n_heads;
    }
    if (m->head_dim % 2 || m->head_dim > HEAD_DIM_MAX)
        return SW_FAIL(err, SW_E_FORMAT, "head_dim: %lld, must be even and at most %d",
                       (long long)m->head_dim, HEAD_DIM_MAX);
    return SW_OK;
}

static sw_code read_dtype(sw_dtype *out, const cJSON *config, sw_err *err)
{
    static const struct {
        const char *name;
        sw_dtype dtype;
    } rows[] = {
        {"bfloat16", SW_DTYPE_BF16}, {"float16", SW_DTYPE_F16}, {"float32", SW_DTYPE_F32},
        {"half", SW_DTYPE_F16},      {"float", SW_DTYPE_F32},
    };
    const char *key = sw_json_member(config, "dtype") ? "dtype" : "torch_dtype";
    const char *name = "float32"; /* what loaders assume when the config is silent */
    sw_code rc;

    if ((rc = sw_json_text(&name, config, key, err)) != SW_OK) return rc;
    if (!strncmp(name, "torch.", 6)) name += 6;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name)) continue;
        *out = rows[i].dtype;
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED,
                   "%s: \"%.60s\" is not supported; there are bfloat16, float16, float32", key,
                   name);
}

static sw_code read_eps(double *out, const cJSON *config, double eps, sw_err *err)
{
    sw_code rc = sw_json_real(&eps, config, "rms_norm_eps", err);

    if (rc != SW_OK) return rc;
    if (!(eps >= 0.0 && eps < 1.0))
        return SW_FAIL(err, SW_E_FORMAT, "rms_norm_eps: %g, must be in [0, 1)", eps);
    *out = eps;
    return SW_OK;
}

static sw_code check_activation(const cJSON *config, sw_err *err)
{
    const char *name = "silu";
    sw_code rc = sw_json_text(&name, config, "hidden_act", err);

    if (rc != SW_OK) return rc;
    if (strcmp(name, "silu") && strcmp(name, "swish"))
        return SW_FAIL(err, SW_E_UNSUPPORTED,
                       "hidden_act: \"%.60s\" is not supported; there is silu", name);
    return SW_OK;
}

/* An id, a list of ids, or null. -1 stands for "none" in some published configs. */
static sw_code read_token_ids(int64_t *ids, int64_t *n_ids, const cJSON *config, const char *key,
                              sw_err *err)
{
    const cJSON *member = sw_json_member(config, key);
    const cJSON *item = cJSON_IsArray(member) ? member->child : member;
    int64_t n = 0;
    sw_code rc;

    for (; item; item = cJSON_IsArray(member) ? item->next : NULL) {
        int64_t id = -1;

        if ((rc = sw_json_as_int(&id, item, -1, TOKEN_ID_MAX - 1, key, err)) != SW_OK) return rc;
        if (id < 0) continue;
        if (n == SW_EOS_MAX)
            return SW_FAIL(err, SW_E_FORMAT, "%s: more than %d ids", key, SW_EOS_MAX);
        ids[n++] = id;
    }
    *n_ids = n;
    return SW_OK;
}

static sw_code read_special_ids(sw_model *m, const cJSON *config, sw_err *err)
{
    int64_t bos[SW_EOS_MAX], n_bos = 0;
    sw_code rc;

    if ((rc = read_token_ids(bos, &n_bos, config, "bos_token_id", err)) != SW_OK) return rc;
    rc = read_token_ids(m->eos_ids, &m->n_eos, config, "eos_token_id", err);
    if (rc != SW_OK) return rc;
    m->bos_id = n_bos ? bos[0] : -1;
    m->eos_id = m->n_eos ? m->eos_ids[0] : -1;
    return SW_OK;
}

sw_code sw_model_read(sw_model *out, const cJSON *config, sw_err *err)
{
    sw_model m = {.sparse_step = 1};
    sw_code rc;

    if (!cJSON_IsObject(config))
        return SW_FAIL(err, SW_E_FORMAT, "the model configuration is not a JSON object");
    if ((rc = find_arch(&m.arch, config, err)) != SW_OK) return rc;
    if ((rc = read_sizes(&m, config, err)) != SW_OK) return rc;
    if ((rc = read_heads(&m, config, err)) != SW_OK) return rc;
    if ((rc = read_dtype(&m.dtype, config, err)) != SW_OK) return rc;
    if ((rc = read_eps(&m.norm_eps, config, m.arch->default_eps, err)) != SW_OK) return rc;
    if ((rc = check_activation(config, err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&m.is_tied, config, "tie_word_embeddings", err)) != SW_OK) return rc;
    if ((rc = read_special_ids(&m, config, err)) != SW_OK) return rc;
    if ((rc = sw_rope_read(&m.rope, config, m.arch->default_theta, m.max_positions, m.head_dim,
                           err)) != SW_OK)
        return rc;
    if (m.arch->read_extra && (rc = m.arch->read_extra(&m, config, err)) != SW_OK) return rc;
    *out = m;
    return SW_OK;
}
