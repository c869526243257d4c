/* hooks_hybrid.c - families with recurrent mixers. See gguf_keys.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/keys/gguf_keys.h"
#include "formats/model/programs.h"

typedef sw_gguf_config_writer writer;
typedef sw_gguf_config_reader reader;

/* A layer that keeps no keys is recurrent, and has 0 heads of keys in the file. */
static int64_t keys_of(const sw_model *m, int64_t l)
{
    return sw_model_has_attention(m, l) ? m->n_kv_heads : 0;
}

static sw_code write_keys_of(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc = sw_gguf_write_layers(c, "attention.head_count_kv", SW_GGUF_I32, keys_of);

    if (rc == SW_OK) rc = sw_gguf_write_int(c, "attention.key_length", m->head_dim);
    return rc ? rc : sw_gguf_write_int(c, "attention.value_length", m->v_head_dim);
}

/* Read head_count_kv of each layer. *one is the number of heads in layers that have keys, and 0
 * where no layer has. */
static sw_code read_keys_of(int64_t *keys, int64_t *one, reader *r)
{
    bool is_there;
    sw_code rc = sw_gguf_read_layers(keys, &is_there, r, "attention.head_count_kv");

    *one = 0;
    for (int64_t l = 0; l < r->n_layers && rc == SW_OK; l++) {
        if (keys[l] && *one && keys[l] != *one)
            return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: attention.head_count_kv differs between "
                           "layers", sw_gguf_file_path(r->g, 0));
        if (keys[l]) *one = keys[l];
    }
    return rc;
}

static sw_code add_heads(reader *r, int64_t n_keys)
{
    int64_t heads = 0, hidden = 0, head_dim = 0;
    sw_code rc;

    if ((rc = sw_gguf_read_count(&heads, r, "attention.head_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&hidden, r, "embedding_length", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&head_dim, r, "attention.key_length",
                                 heads ? (double)(hidden / heads) : 0.0)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "num_key_value_heads", n_keys ? n_keys : heads)) != SW_OK)
        return rc;
    return sw_gguf_add_int(r, "head_dim", head_dim);
}

/* --- gated delta nets --------------------------------------------------------------------- */

static int64_t is_recurrent(const sw_model *m, int64_t l) { return !sw_model_has_attention(m, l); }

/* The file has a period where every so many layers have attention, otherwise a list. */
static sw_code write_kinds(const writer *c)
{
    const sw_model *m = c->m;
    int64_t every = 1;
    bool is_regular = true;

    while (every <= m->n_layers && is_recurrent(m, every - 1)) every++;
    for (int64_t l = 0; l < m->n_layers; l++)
        is_regular = is_regular && is_recurrent(m, l) == ((l + 1) % every != 0);
    if (is_regular) return sw_gguf_write_int(c, "full_attention_interval", every);
    if (c->arch->order != SW_GGUF_V_HEADS)
        return sw_gguf_refuse(c, "expect attention in every so many layers");
    return sw_gguf_write_layers(c, "attention.recurrent_layers", SW_GGUF_BOOL, is_recurrent);
}

/* A picture has positions along three axes, each of which turns so many pairs. A text has the same
 * position on all axes. */
static sw_code write_sections(const writer *c)
{
    const int64_t pairs = c->m->rope_dim / 2, third = (pairs + 2) / 3;
    const int64_t sections[] = {third, (pairs + 1) / 3, pairs - third - (pairs + 1) / 3, 0};
    char key[SW_GGUF_KEY_BYTES];
    sw_code rc;

    if (c->arch->order != SW_GGUF_V_HEADS) return SW_OK;
    (void)snprintf(key, sizeof key, "%s.rope.dimension_sections", c->arch->gguf);
    rc = sw_gguf_put_array(c->w, key, SW_GGUF_I32, 4, c->err);
    for (int i = 0; i < 4 && rc == SW_OK; i++)
        rc = sw_gguf_put_elem_int(c->w, sections[i], c->err);
    return rc;
}

static sw_code write_delta(const writer *c)
{
    const sw_mixer *x = &c->m->mixer;
    sw_code rc;

    if (x->d_head != x->d_state) return sw_gguf_refuse(c, "expect heads of keys and values alike");
    for (int64_t l = 0; l < c->m->n_layers && c->m->n_experts; l++)
        if (!sw_model_is_sparse(c->m, l)) return sw_gguf_refuse(c, "expect experts in every layer");
    if (c->m->has_qkv_bias) return sw_gguf_refuse(c, "know no biases of attention");
    if ((rc = sw_gguf_write_int(c, "ssm.conv_kernel", x->n_taps)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "ssm.state_size", x->d_state)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "ssm.group_count", x->n_groups)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "ssm.time_step_rank", x->n_heads)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "ssm.inner_size", sw_mixer_width(x))) != SW_OK ||
        (rc = write_sections(c)) != SW_OK)
        return rc;
    return write_kinds(c);
}

static sw_code read_delta(reader *r)
{
    static const char *const words[] = {"full_attention", "linear_attention"};
    static const char *const sizes[][3] = {
        {"ssm.conv_kernel", "linear_conv_kernel_dim", NULL},
        {"ssm.state_size", "linear_key_head_dim", "linear_value_head_dim"},
        {"ssm.group_count", "linear_num_key_heads", NULL},
        {"ssm.time_step_rank", "linear_num_value_heads", NULL}};
    int64_t kinds[SW_LAYERS_MAX], every = 4, n = 0;
    bool is_there;
    sw_code rc = SW_OK;

    for (int i = 0; i < 4 && rc == SW_OK; i++) {
        if ((rc = sw_gguf_read_count(&n, r, sizes[i][0], SW_GGUF_REQUIRED)) == SW_OK)
            rc = sw_gguf_add_int(r, sizes[i][1], n);
        if (rc == SW_OK && sizes[i][2]) rc = sw_gguf_add_int(r, sizes[i][2], n);
    }
    if (rc != SW_OK ||
        (rc = sw_gguf_read_layers(kinds, &is_there, r, "attention.recurrent_layers")) != SW_OK ||
        (rc = sw_gguf_read_count(&every, r, "full_attention_interval", 4.0)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < r->n_layers; l++)
        kinds[l] = is_there ? kinds[l] != 0 : !every || (l + 1) % every != 0;
    return sw_gguf_add_words(r, "layer_types", kinds, words);
}

const sw_gguf_hooks sw_gguf_hooks_qwen_delta = {.write = write_delta, .read = read_delta};

/* --- short convolutions ------------------------------------------------------------------- */

static sw_code write_lfm2(const writer *c)
{
    const sw_model *m = c->m;
    int64_t n = 0;
    sw_code rc = write_keys_of(c);

    if (rc != SW_OK || !m->n_experts) return rc;
    while (n < m->n_layers && !sw_model_is_sparse(m, n)) n++;
    return sw_gguf_write_int(c, "leading_dense_block_count", n);
}

static sw_code read_lfm2(reader *r)
{
    static const char *const words[] = {"conv", "full_attention"};
    int64_t keys[SW_LAYERS_MAX], n_keys, n_dense;
    sw_code rc;

    if ((rc = read_keys_of(keys, &n_keys, r)) != SW_OK || (rc = add_heads(r, n_keys)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < r->n_layers; l++) keys[l] = keys[l] != 0;
    if ((rc = sw_gguf_add_words(r, "layer_types", keys, words)) != SW_OK ||
        r->arch->experts == SW_GGUF_DENSE)
        return rc;
    rc = sw_gguf_read_count(&n_dense, r, "leading_dense_block_count", 0.0);
    return rc ? rc : sw_gguf_add_int(r, "num_dense_layers", n_dense);
}

const sw_gguf_hooks sw_gguf_hooks_lfm2 = {
    .has_own_heads = true, .write = write_lfm2, .read = read_lfm2};

/* --- Mamba-2
 * -------------------------------------------------------------------------------------- */

/* Refuse what loaders do not run. They have a norm by groups behind the gate, a bias on the
 * convolution, and steps of any size. */
static sw_code check_ssd(const writer *c, bool norms_groups, double least)
{
    const sw_mixer *x = &c->m->mixer;

    if (!x->has_norm || x->norms_first || (x->n_groups > 1 && x->norms_groups != norms_groups))
        return sw_gguf_refuse(c, "norm the mixer's output by groups, behind its gate");
    if (x->has_bias) return sw_gguf_refuse(c, "know no biases of the mixer's linears");
    if (x->dt_min > least || !isinf(x->dt_max))
        return sw_gguf_refuse(c, "know no limits of time steps");
    return sw_gguf_write_int(c, "ssm.inner_size", sw_mixer_width(x));
}

static sw_code write_mamba2(const writer *c)
{
    sw_code rc = check_ssd(c, true, 0.0);

    if (rc == SW_OK && c->m->mixer.n_groups > 1)
        rc = sw_gguf_refuse(c, "norm the mixer's output by groups");
    return rc ? rc : sw_gguf_write_int(c, "feed_forward_length", 0);
}

/* Read the width of a head, and that of all heads as a multiple of the hidden size. */
static sw_code read_width(reader *r, const char *head_json, const char *expand_json)
{
    int64_t inner = 0, heads = 0, hidden = 0;
    sw_code rc;

    if ((rc = sw_gguf_read_count(&inner, r, "ssm.inner_size", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&heads, r, "ssm.time_step_rank", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&hidden, r, "embedding_length", SW_GGUF_REQUIRED)) != SW_OK)
        return rc;
    if (!heads || inner % heads || !hidden || (expand_json && inner % hidden))
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: ssm.inner_size is %lld, for %lld heads",
                       sw_gguf_file_path(r->g, 0), (long long)inner, (long long)heads);
    rc = sw_gguf_add_int(r, head_json, inner / heads);
    return rc || !expand_json ? rc : sw_gguf_add_int(r, expand_json, inner / hidden);
}

/* Return whether the convolution of the first layer with a mixer has a bias. */
static bool has_conv_bias(const reader *r)
{
    char name[SW_GGUF_KEY_BYTES];

    for (int64_t l = 0; l < r->n_layers; l++) {
        (void)snprintf(name, sizeof name, "blk.%lld.ssm_conv1d.weight", (long long)l);
        if (!sw_gguf_has_tensor(r, name)) continue;
        (void)snprintf(name, sizeof name, "blk.%lld.ssm_conv1d.bias", (long long)l);
        return sw_gguf_has_tensor(r, name);
    }
    return true;
}

static sw_code read_mamba2(reader *r)
{
    sw_code rc = read_width(r, "head_dim", "expand");

    return rc ? rc : sw_gguf_add_bool(r, "use_conv_bias", has_conv_bias(r));
}

const sw_gguf_hooks sw_gguf_hooks_mamba2 = {
    .has_own_rope = true, .has_own_heads = true, .has_own_widths = true, .has_no_heads = true,
    .write = write_mamba2, .read = read_mamba2};

static bool turns(const sw_model *m)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (m->kind[l] == SW_KIND_ATTENTION) return true;
    return false;
}

/* What is said of Mamba-2 in some layers, and attention in the others. */
static sw_code write_some_mamba(const writer *c)
{
    const sw_mixer *x = &c->m->mixer;
    sw_code rc;

    if (2 * c->m->hidden != sw_mixer_width(x))
        return sw_gguf_refuse(c, "expect a mixer of twice the hidden size");
    if ((rc = check_ssd(c, true, 0.0)) != SW_OK || (rc = write_keys_of(c)) != SW_OK ||
        (rc = sw_gguf_write_bool(c, "rope.scaling.finetuned", turns(c->m))) != SW_OK)
        return rc;
    return x->n_groups > 1 ? sw_gguf_refuse(c, "norm the mixer's output by groups") : SW_OK;
}

/* In a model without experts the shared MLP is the MLP. */
static sw_code write_granite_hybrid(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc = write_some_mamba(c);

    if (rc != SW_OK) return rc;
    if (m->n_experts) rc = sw_gguf_write_int(c, "expert_feed_forward_length", m->moe_intermediate);
    return rc ? rc : sw_gguf_write_int(c, "feed_forward_length",
                                       m->n_experts ? m->moe_intermediate
                                                    : m->shared_intermediate);
}

static sw_code read_granite_hybrid(reader *r)
{
    static const char *const words[] = {"mamba", "attention"};
    int64_t keys[SW_LAYERS_MAX], n_keys, width;
    char key[SW_GGUF_KEY_BYTES];
    bool is_turned = true;
    sw_code rc;

    if ((rc = read_keys_of(keys, &n_keys, r)) != SW_OK || (rc = add_heads(r, n_keys)) != SW_OK ||
        (rc = read_width(r, "mamba_d_head", "mamba_expand")) != SW_OK ||
        (rc = sw_gguf_bool(&is_turned, r->g, sw_gguf_key_of(key, r, "rope.scaling.finetuned"),
                           r->err)) != SW_OK ||
        (rc = sw_gguf_read_count(&width, r, "feed_forward_length", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "intermediate_size", width)) != SW_OK ||
        (rc = sw_gguf_add_bool(r, "mamba_conv_bias", has_conv_bias(r))) != SW_OK ||
        (rc = sw_gguf_add_text(r, r->config, "position_embedding_type",
                               is_turned ? "rope" : "nope")) != SW_OK)
        return rc;
    if (r->arch->experts == SW_GGUF_DENSE &&
        (rc = sw_gguf_add_int(r, "shared_intermediate_size", width)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < r->n_layers; l++) keys[l] = keys[l] != 0;
    return sw_gguf_add_words(r, "layers_block_type", keys, words);
}

const sw_gguf_hooks sw_gguf_hooks_granite_hybrid = {
    .has_own_heads = true, .has_own_widths = true, .write = write_granite_hybrid,
    .read = read_granite_hybrid};

/* The loaders of Granite run this family too: files without the factors of Granite are of it. */
static sw_code write_bamba(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc;

    if (m->has_qkv_bias || m->has_mlp_bias) return sw_gguf_refuse(c, "know no biases");
    if ((rc = write_some_mamba(c)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "rope.dimension_count", m->rope_dim)) != SW_OK)
        return rc;
    return sw_gguf_write_int(c, "feed_forward_length", m->intermediate);
}

static sw_code read_bamba(reader *r)
{
    cJSON *list = cJSON_AddArrayToObject(r->config, "attn_layer_indices");
    int64_t keys[SW_LAYERS_MAX], n_keys = 0, width = 0, turned = 0;
    char key[SW_GGUF_KEY_BYTES];
    bool is_turned = true;
    sw_code rc = sw_gguf_added(r, list);

    if (rc != SW_OK || (rc = read_keys_of(keys, &n_keys, r)) != SW_OK ||
        (rc = add_heads(r, n_keys)) != SW_OK ||
        (rc = read_width(r, "mamba_d_head", "mamba_expand")) != SW_OK ||
        (rc = sw_gguf_read_count(&width, r, "feed_forward_length", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "intermediate_size", width)) != SW_OK ||
        (rc = sw_gguf_read_count(&turned, r, "rope.dimension_count", 0.0)) != SW_OK ||
        (turned && (rc = sw_gguf_add_int(r, "attn_rotary_emb", turned)) != SW_OK))
        return rc;
    rc = sw_gguf_bool(&is_turned, r->g, sw_gguf_key_of(key, r, "rope.scaling.finetuned"), r->err);
    if (rc != SW_OK) return rc;
    if (!is_turned)
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: %s is false, and there is no "
                       "attention.scale: neither Granite nor Bamba is like that",
                       sw_gguf_file_path(r->g, 0), key);
    for (int64_t l = 0; l < r->n_layers; l++) {
        cJSON *one = keys[l] ? cJSON_CreateNumber((double)l) : NULL;

        if (keys[l] && (!one || !cJSON_AddItemToArray(list, one))) return sw_gguf_added(r, NULL);
    }
    return sw_gguf_add_bool(r, "mamba_conv_bias", has_conv_bias(r));
}

const sw_gguf_hooks sw_gguf_hooks_bamba = {
    .has_own_heads = true, .has_own_widths = true, .write = write_bamba, .read = read_bamba};

/* --- Nemotron-H: one mixer or one MLP a layer
 * ----------------------------------------------------- */

#define LEAST_STEP 0.001

static int64_t nemotron_width(const sw_model *m, int64_t l)
{
    return m->kind[l] == SW_KIND_MLP ? m->intermediate
           : sw_model_is_sparse(m, l) ? m->moe_intermediate : 0;
}

/* The published models raise steps to at least a thousandth; loaders take steps as they are. */
static sw_code write_nemotron(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc;

    for (int64_t l = 0; l < m->n_layers && m->n_experts; l++)
        if (m->kind[l] == SW_KIND_MLP)
            return sw_gguf_refuse(c, "expect experts in every layer that has an MLP");
    if ((rc = check_ssd(c, true, LEAST_STEP)) != SW_OK || (rc = write_keys_of(c)) != SW_OK ||
        (rc = sw_gguf_write_real(c, "attention.layer_norm_epsilon", m->norm_eps)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "rope.dimension_count", m->rope_dim)) != SW_OK)
        return rc;
    if (m->moe_hidden != m->hidden &&
        (rc = sw_gguf_write_int(c, "moe_latent_size", m->moe_hidden)) != SW_OK)
        return rc;
    return sw_gguf_write_layers(c, "feed_forward_length", SW_GGUF_I32, nemotron_width);
}

static sw_code read_nemotron(reader *r)
{
    static const char *const words[] = {"mamba", "attention", "mlp", "moe"};
    int64_t keys[SW_LAYERS_MAX], widths[SW_LAYERS_MAX], n_keys, latent = 0, width = 0;
    const bool is_sparse = r->arch->experts == SW_GGUF_SPARSE;
    char name[SW_GGUF_KEY_BYTES];
    bool is_there;
    sw_code rc;

    if ((rc = read_keys_of(keys, &n_keys, r)) != SW_OK || (rc = add_heads(r, n_keys)) != SW_OK ||
        (rc = read_width(r, "mamba_head_dim", NULL)) != SW_OK ||
        (rc = sw_gguf_read_layers(widths, &is_there, r, "feed_forward_length")) != SW_OK ||
        (rc = sw_gguf_read_count(&latent, r, "moe_latent_size", 0.0)) != SW_OK ||
        (latent && (rc = sw_gguf_add_int(r, "moe_latent_size", latent)) != SW_OK))
        return rc;
    for (int64_t l = 0; l < r->n_layers; l++) {
        (void)snprintf(name, sizeof name, "blk.%lld.ffn_up.weight", (long long)l);
        if (sw_gguf_has_tensor(r, name)) width = widths[l];
        keys[l] = keys[l] ? 1 : !widths[l] ? 0 : is_sparse && !sw_gguf_has_tensor(r, name) ? 3 : 2;
    }
    for (int64_t l = 0; l < r->n_layers && !width; l++) width = widths[l]; /* of experts */
    if ((rc = sw_gguf_add_int(r, "intermediate_size", width ? width : 1)) != SW_OK ||
        (rc = sw_gguf_add_real(r, r->config, "time_step_min", LEAST_STEP)) != SW_OK ||
        (rc = sw_gguf_add_bool(r, "use_conv_bias", has_conv_bias(r))) != SW_OK)
        return rc;
    return sw_gguf_add_words(r, "layers_block_type", keys, words);
}

const sw_gguf_hooks sw_gguf_hooks_nemotron = {
    .has_own_rope = true, .has_own_heads = true, .has_own_widths = true,
    .write = write_nemotron, .read = read_nemotron};
