/* config.c - config.json into sw_model: the keys that every family has.
 *
 * Every size is capped before it is used. The caps are far above any model in sight and low
 * enough that a product of any three of them fits in 63 bits, so nothing below here has to
 * check a weight's shape for overflow again.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/model/model.h"
#include "formats/model/wrappers.h"

#define HIDDEN_MAX ((int64_t)1 << 20)
#define MLP_MAX ((int64_t)1 << 22)
#define HEADS_MAX 4096
#define HEAD_DIM_MAX 4096
#define VOCAB_MAX ((int64_t)1 << 24)
#define POSITIONS_UNBOUND ((int64_t)1 << 20)
#define POSITIONS_MAX ((int64_t)1 << 31)
#define TOKEN_ID_MAX ((int64_t)1 << 32)
#define KEYS_MAX 4 /* names of one size */

/* model_type decides; a config without one is told by its class name. */
static sw_code find_arch(sw_model *m, const cJSON *config, sw_err *err)
{
    const cJSON *class_name = cJSON_GetArrayItem(sw_json_member(config, "architectures"), 0);
    const char *name = NULL;
    sw_code rc;

    if ((rc = sw_json_text(&name, config, "model_type", err)) != SW_OK) return rc;
    if (!name && !cJSON_IsString(class_name))
        return SW_FAIL(err, SW_E_FORMAT, "model_type: missing, and no architectures either");
    for (int i = 0; i < sw_n_archs && !name; i++)
        if (!strcmp(sw_archs[i].hf_class, class_name->valuestring)) name = sw_archs[i].name;
    if (!name) name = class_name->valuestring;
    m->arch = sw_arch_for(name, &m->is_like);
    if (m->arch) return SW_OK;
    m->arch = &sw_arch_unknown;
    return sw_arch_refuse(name, err);
}

/* The key of a size, or the older name that some families give it; NULL when neither is there. */
static const char *size_key(const cJSON *config, const char *const keys[KEYS_MAX])
{
    for (int i = 0; i < KEYS_MAX && keys[i]; i++)
        if (sw_json_member(config, keys[i])) return keys[i];
    return NULL;
}

/* Some configs repeat a size for every layer. */
static sw_code read_size(int64_t *out, const cJSON *config, const char *key, int64_t max,
                         sw_err *err)
{
    const cJSON *member = sw_json_member(config, key), *item;
    sw_code rc;

    if (!cJSON_IsArray(member) || !member->child) return sw_json_int(out, config, key, 1, max, err);
    cJSON_ArrayForEach(item, member)
    {
        int64_t one = 0;

        if ((rc = sw_json_as_int(&one, item, 1, max, key, err)) != SW_OK) return rc;
        if (item != member->child && one != *out)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: differs between layers", key);
        *out = one;
    }
    return SW_OK;
}

/* Does any program of the family have such an operation? SW_SLOT_COUNT: with whatever slot. */
static bool has_op(const sw_arch *arch, sw_op_kind kind, sw_slot slot)
{
    for (int k = 0; k < 2 * SW_KINDS_MAX; k++) {
        const sw_layer_kind *both = &arch->kinds->kind[k / 2];
        const sw_program *p = k % 2 ? &both->sparse : &both->dense;

        for (int i = 0; i < p->n_ops; i++)
            if (p->ops[i].kind == kind && (slot == SW_SLOT_COUNT || p->ops[i].slot == slot))
                return true;
    }
    return false;
}

/* Families without attention, or without a dense MLP, have no such sizes; a value that does no harm
 * takes their place. A list of layers says how many there are. Where nothing depends on positions
 * there may be any number of them. */
static bool is_spare(sw_model *m, const cJSON *config, const int64_t *size)
{
    const cJSON *types = sw_json_member(config, "layers_block_type");
    const sw_arch *a = m->arch;

    if (size == &m->n_layers && cJSON_IsArray(types) && cJSON_GetArraySize(types) > 0 &&
        cJSON_GetArraySize(types) <= SW_LAYERS_MAX)
        m->n_layers = cJSON_GetArraySize(types);
    else if (size == &m->n_heads && !has_op(a, SW_OP_ATTENTION, SW_SLOT_COUNT))
        m->n_heads = 1;
    else if (size == &m->max_positions && !has_op(a, SW_OP_ROPE, SW_SLOT_COUNT) &&
             !a->ends.names[SW_END_POSITIONS])
        m->max_positions = POSITIONS_UNBOUND;
    else if (size == &m->intermediate && !has_op(a, SW_OP_LINEAR, SW_SLOT_DOWN))
        m->intermediate = 0;
    else
        return false;
    return true;
}

static sw_code read_sizes(sw_model *m, const cJSON *config, sw_err *err)
{
    const struct {
        const char *keys[KEYS_MAX];
        int64_t *value, max;
    } sizes[] = {
        {{"hidden_size", "n_embd", "n_embed"}, &m->hidden, HIDDEN_MAX},
        {{"num_hidden_layers", "n_layer"}, &m->n_layers, SW_LAYERS_MAX},
        {{"num_attention_heads", "n_head"}, &m->n_heads, HEADS_MAX},
        {{"vocab_size"}, &m->vocab, VOCAB_MAX},
        {{"max_position_embeddings", "n_positions", "seq_length", "model_max_length"},
         &m->max_positions, POSITIONS_MAX},
        {{"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"}, &m->intermediate, MLP_MAX},
    };
    sw_code rc;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *key = size_key(config, sizes[i].keys);

        if (!key && sizes[i].value == &m->intermediate && m->arch->default_mlp_factor) {
            m->intermediate = m->arch->default_mlp_factor * m->hidden;
            continue;
        }
        if (!key && is_spare(m, config, sizes[i].value)) continue;
        if (!key) return SW_FAIL(err, SW_E_FORMAT, "%s: missing", sizes[i].keys[0]);
        rc = read_size(sizes[i].value, config, key, sizes[i].max, err);
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

static sw_code read_dtype(sw_model *m, const cJSON *config, sw_err *err)
{
    static const struct {
        const char *name;
        sw_dtype dtype;
    } rows[] = {
        {"bfloat16", SW_DTYPE_BF16}, {"float16", SW_DTYPE_F16}, {"float32", SW_DTYPE_F32},
        {"half", SW_DTYPE_F16},      {"float", SW_DTYPE_F32},
    };
    const char *key = sw_json_member(config, "dtype") ? "dtype" : "torch_dtype";
    const char *name = NULL;
    sw_code rc;

    if ((rc = sw_json_text(&name, config, key, err)) != SW_OK) return rc;
    m->is_dtype_open = !name;
    if (!name) name = "float32";
    if (!strncmp(name, "torch.", 6)) name += 6;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name)) continue;
        m->dtype = rows[i].dtype;
        return SW_OK;
    }
    return SW_FAIL(err, SW_E_UNSUPPORTED,
                   "%s: \"%.60s\" is not supported; there are bfloat16, float16, float32", key,
                   name);
}

static sw_code read_eps(double *out, const cJSON *config, double eps, sw_err *err)
{
    static const char *const keys[] = {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps",
                                       "norm_epsilon", "norm_eps"};
    bool is_said = false;
    sw_code rc;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !is_said; i++) {
        is_said = sw_json_member(config, keys[i]) != NULL;
        if ((rc = sw_json_real(&eps, config, keys[i], err)) != SW_OK) return rc;
        if (!(eps >= 0.0 && eps < 1.0))
            return SW_FAIL(err, SW_E_FORMAT, "%s: %g, must be in [0, 1)", keys[i], eps);
    }
    *out = eps;
    return SW_OK;
}

/* Families name the key differently; where two are given, the later in this list is meant. */
static sw_code read_activation(sw_mlp_act *out, const cJSON *config, sw_err *err)
{
    static const char *const keys[] = {"activation", "activation_function", "hidden_act",
                                       "hidden_activation", "mlp_hidden_act"};
    static const struct {
        const char *name;
        sw_mlp_act act;
    } rows[] = {
#define SW_ACTIVATION(id, symbol)
#define SW_ACTIVATION_NAME(name, id) {name, SW_MLP_##id},
#include "formats/model/activations.def"
#undef SW_ACTIVATION_NAME
    };
#define SW_ACTIVATION_NAME(name, id) ", " name
    static const char names[] =
#include "formats/model/activations.def"
        ;
#undef SW_ACTIVATION
#undef SW_ACTIVATION_NAME
    const size_t n_rows = sizeof rows / sizeof rows[0];
    sw_code rc;

    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        const char *name = NULL;
        size_t i = 0;

        if ((rc = sw_json_text(&name, config, keys[k], err)) != SW_OK) return rc;
        while (name && i < n_rows && strcmp(rows[i].name, name)) i++;
        if (i == n_rows)
            return SW_FAIL(err, SW_E_UNSUPPORTED, "%s: \"%.60s\" is not supported; there are %s",
                           keys[k], name, names + strlen(", "));
        if (name) *out = rows[i].act;
    }
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

/* What a family without a word on it has. */
static void set_defaults(sw_model *m)
{
    m->sparse_step = 1;
    m->n_expert_groups = m->n_groups_used = 1;
    m->route_scale = m->router_scale = m->embed_scale = 1.0;
    m->residual_scale = m->logits_scale = 1.0;
    m->act = m->arch->default_act;
    m->is_tied = m->arch->is_tied_by_default;
}

/* Sizes that a family derives may come out as nothing. */
static sw_code check_widths(const sw_model *m, int64_t layer, const sw_op *ops, int n_ops,
                            sw_err *err)
{
    for (int i = 0; i < n_ops; i++) {
        const bool is_routed = ops[i].kind == SW_OP_MOE || ops[i].kind == SW_OP_MOE_ADD;
        int64_t n_out = m->moe_intermediate, k_in = 1;

        if (ops[i].kind == SW_OP_LINEAR)
            sw_model_slot_shape(m, layer, ops[i].slot, &n_out, &k_in);
        else if (!is_routed)
            continue;
        if (n_out > 0 && k_in > 0) continue;
        return SW_FAIL(err, SW_E_FORMAT, "layer %lld has a linear of no width; is a key missing, "
                       "intermediate_size for instance?", (long long)layer);
    }
    return SW_OK;
}

/* Not every kind of layer of a family comes dense and sparse. */
static sw_code check_programs(const sw_model *m, sw_err *err)
{
    sw_code rc;

    for (int64_t l = 0; l < m->n_layers; l++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(m, l, &n_ops);

        if ((rc = check_widths(m, l, ops, n_ops, err)) != SW_OK) return rc;
        if (n_ops) continue;
        return SW_FAIL(err, SW_E_UNSUPPORTED, "layer %lld is %s, and %s has no such layers",
                       (long long)l, sw_model_is_sparse(m, l) ? "sparse" : "dense",
                       m->arch->name);
    }
    return SW_OK;
}

/* What is known of a family without a row: the dtype decides what scales are stored as. */
static sw_code read_bare(sw_model *out, sw_model *m, const cJSON *config, sw_err *err)
{
    sw_code rc = read_dtype(m, config, err);

    if (rc == SW_OK) rc = sw_json_bool(&m->is_tied, config, "tie_word_embeddings", err);
    if (rc == SW_OK) rc = read_special_ids(m, config, err);
    if (rc != SW_OK) return rc;
    sw_model_read_unknown(m, config);
    *out = *m;
    return SW_OK;
}

static sw_code read_decoder(sw_model *out, const cJSON *config, sw_err *err)
{
    sw_model m;
    sw_code rc;

    memset(&m, 0, sizeof m); /* padding too, so that equal models are equal bytes */
    if ((rc = find_arch(&m, config, err)) != SW_OK) return rc;
    set_defaults(&m);
    if (m.arch == &sw_arch_unknown) return read_bare(out, &m, config, err);
    if ((rc = read_sizes(&m, config, err)) != SW_OK) return rc;
    m.moe_hidden = m.hidden;
    if ((rc = read_heads(&m, config, err)) != SW_OK) return rc;
    m.v_head_dim = m.head_dim;
    m.attention_scale = 1.0 / sqrt((double)m.head_dim);
    if ((rc = read_dtype(&m, config, err)) != SW_OK) return rc;
    if ((rc = read_eps(&m.norm_eps, config, m.arch->default_eps, err)) != SW_OK) return rc;
    if ((rc = read_activation(&m.act, config, err)) != SW_OK) return rc;
    if ((rc = sw_json_bool(&m.is_tied, config, "tie_word_embeddings", err)) != SW_OK) return rc;
    if ((rc = read_special_ids(&m, config, err)) != SW_OK) return rc;
    if ((rc = sw_rope_read(&m, config, err)) != SW_OK) return rc;
    if (m.arch->read_extra && (rc = m.arch->read_extra(&m, config, err)) != SW_OK) return rc;
    if ((rc = check_programs(&m, err)) == SW_OK) *out = m;
    return rc;
}

sw_code sw_model_read(sw_model *out, const cJSON *config, sw_err *err)
{
    cJSON *decoder = NULL;
    sw_code rc;

    if (!cJSON_IsObject(config))
        return SW_FAIL(err, SW_E_FORMAT, "the model configuration is not a JSON object");
    if ((rc = sw_config_unwrap(&decoder, config, err)) == SW_OK)
        rc = read_decoder(out, decoder, err);
    cJSON_Delete(decoder);
    return rc;
}
