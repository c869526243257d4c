/* hooks_gemma4.c - Gemma 4: two sizes of heads, shared keys, inputs of single layers. See
 * gguf_keys.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/keys/gguf_keys.h"

typedef sw_gguf_config_writer writer;
typedef sw_gguf_config_reader reader;

#define STILL 1e29f /* a divisor that stops a pair from turning */

static int64_t has_window(const sw_model *m, int64_t l) { return m->is_window_layer[l]; }
static int64_t width_of(const sw_model *m, int64_t l) { return sw_model_sizes(m, l).intermediate; }
static int64_t keys_of(const sw_model *m, int64_t l) { return sw_model_sizes(m, l).n_kv_heads; }

static int64_t n_shared(const sw_model *m)
{
    int64_t n = 0;

    for (int64_t l = 0; l < m->n_layers; l++) n += m->shares_kv[l] != 0;
    return n;
}

static sw_code write_ropes(const writer *c, int64_t head_dim)
{
    const sw_model *m = c->m;
    sw_code rc;

    if (m->rope.kind != SW_ROPE_PROPORTIONAL || !m->has_window_rope ||
        m->window_rope.kind != SW_ROPE_DEFAULT)
        return sw_gguf_refuse(c, "expect a proportional rope where all is seen, and a plain one in "
                              "windows");
    if ((rc = sw_gguf_write_real(c, "rope.freq_base", m->rope.theta)) != SW_OK ||
        (rc = sw_gguf_write_real(c, "rope.freq_base_swa", m->window_rope.theta)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "rope.dimension_count", head_dim)) != SW_OK)
        return rc;
    return sw_gguf_write_int(c, "rope.dimension_count_swa", m->head_dim);
}

static sw_code write_experts(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc;

    if (!m->n_experts) return SW_OK;
    if ((rc = sw_gguf_write_int(c, "expert_count", m->n_experts)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "expert_used_count", m->n_experts_used)) != SW_OK)
        return rc;
    return sw_gguf_write_int(c, "expert_feed_forward_length", m->moe_intermediate);
}

static sw_code write_gemma4(const writer *c)
{
    const sw_model *m = c->m;
    int64_t full = 0;
    sw_code rc;

    while (full < m->n_layers && m->is_window_layer[full]) full++;
    if (full == m->n_layers) return sw_gguf_refuse(c, "expect a layer that sees all");
    full = sw_model_sizes(m, full).head_dim;
    if ((rc = sw_gguf_write_int(c, "attention.key_length", full)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "attention.value_length", full)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "attention.key_length_swa", m->head_dim)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "attention.value_length_swa", m->head_dim)) != SW_OK ||
        (rc = sw_gguf_write_layers(c, "attention.head_count_kv", SW_GGUF_I32, keys_of)) != SW_OK ||
        (rc = sw_gguf_write_layers(c, "feed_forward_length", SW_GGUF_I32, width_of)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "attention.shared_kv_layers", n_shared(m))) != SW_OK ||
        (rc = sw_gguf_write_int(c, "embedding_length_per_layer_input", m->side_inputs)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "attention.sliding_window", m->sliding_window)) != SW_OK ||
        (rc = sw_gguf_write_layers(c, "attention.sliding_window_pattern", SW_GGUF_BOOL,
                                   has_window)) != SW_OK ||
        (rc = write_ropes(c, full)) != SW_OK || (rc = write_experts(c)) != SW_OK)
        return rc;
    return m->logits_cap > 0.0
               ? sw_gguf_write_real(c, "final_logit_softcapping", m->logits_cap) : SW_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Find which part of the pairs turns, from the divisors that the file has. */
static sw_code read_part(double *part, reader *r)
{
    const sw_gguf_tensor *t = sw_gguf_find(r->g, "rope_freqs.weight");
    int64_t n = 0;

    if (!t || t->n_dims != 1 || t->type != SW_BLOCK_F32 || t->shape[0] < 1)
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: tensor \"rope_freqs.weight\" is no list of floats",
                       sw_gguf_file_path(r->g, 0));
    for (; n < t->shape[0]; n++) {
        float one;

        memcpy(&one, (const char *)t->data + 4 * n, sizeof one);
        if (one > STILL) break;
        if (fabsf(one - 1.0f) > 0.0f)
            return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: rope_freqs.weight divides by %g; want 1, "
                           "or 1e30 for pairs that do not turn", sw_gguf_file_path(r->g, 0),
                           (double)one);
    }
    *part = (double)n / (double)t->shape[0];
    return SW_OK;
}

static sw_code read_ropes(reader *r)
{
    cJSON *both = cJSON_AddObjectToObject(r->config, "rope_parameters");
    cJSON *full = both ? cJSON_AddObjectToObject(both, "full_attention") : NULL;
    cJSON *window = both ? cJSON_AddObjectToObject(both, "sliding_attention") : NULL;
    double theta = 1e6, local = 1e4, part = 1.0;
    sw_code rc;

    if ((rc = sw_gguf_added(r, full ? window : NULL)) != SW_OK ||
        (rc = sw_gguf_read_real(&theta, r, "rope.freq_base")) != SW_OK ||
        (rc = sw_gguf_read_real(&local, r, "rope.freq_base_swa")) != SW_OK ||
        (rc = read_part(&part, r)) != SW_OK ||
        (rc = sw_gguf_add_text(r, full, "rope_type", "proportional")) != SW_OK ||
        (rc = sw_gguf_add_real(r, full, "rope_theta", theta)) != SW_OK ||
        (rc = sw_gguf_added(r, cJSON_AddNumberToObject(full, "partial_rotary_factor", part))) ||
        (rc = sw_gguf_add_text(r, window, "rope_type", "default")) != SW_OK)
        return rc;
    return sw_gguf_add_real(r, window, "rope_theta", local);
}

/* A layer that sees all tokens may have other heads than a window layer, and a layer that takes its
 * keys from another may have an MLP twice as wide. */
static sw_code read_layers(reader *r, const int64_t *has, int64_t n_sharing)
{
    int64_t widths[SW_LAYERS_MAX], keys[SW_LAYERS_MAX], window_keys = 0, full_keys = 0;
    const int64_t last = r->n_layers - 1;
    bool is_there;
    sw_code rc;

    if ((rc = sw_gguf_read_layers(widths, &is_there, r, "feed_forward_length")) != SW_OK ||
        (rc = sw_gguf_read_layers(keys, &is_there, r, "attention.head_count_kv")) != SW_OK)
        return rc;
    for (int64_t l = 0; l < r->n_layers; l++) *(has[l] ? &window_keys : &full_keys) = keys[l];
    if (!window_keys) window_keys = full_keys;
    for (int64_t l = 0; l < r->n_layers; l++) {
        const int64_t want = l <= last - n_sharing || widths[last] == widths[0] ? widths[0]
                                                                                : 2 * widths[0];

        if (widths[l] == want && keys[l] == (has[l] ? window_keys : full_keys)) continue;
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: layer %lld has sizes that no config.json of "
                       "gemma4 says", sw_gguf_file_path(r->g, 0), (long long)l);
    }
    if ((rc = sw_gguf_add_int(r, "intermediate_size", widths[0])) != SW_OK ||
        (rc = sw_gguf_add_bool(r, "use_double_wide_mlp", widths[last] != widths[0])) != SW_OK ||
        (rc = sw_gguf_add_int(r, "num_key_value_heads", window_keys)) != SW_OK)
        return rc;
    return sw_gguf_add_int(r, "num_global_key_value_heads", full_keys);
}

static sw_code read_experts(reader *r)
{
    int64_t n = 0, used = 0, width = 0;
    sw_code rc = sw_gguf_read_count(&n, r, "expert_count", 0.0);

    if (rc != SW_OK || !n) return rc;
    if ((rc = sw_gguf_read_count(&used, r, "expert_used_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&width, r, "expert_feed_forward_length", SW_GGUF_REQUIRED)) ||
        (rc = sw_gguf_add_bool(r, "enable_moe_block", true)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "num_experts", n)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "top_k_experts", used)) != SW_OK)
        return rc;
    return sw_gguf_add_int(r, "moe_intermediate_size", width);
}

/* Return whether some layer with keys of its own uses them as values too. */
static bool has_keys_as_values(const reader *r, const int64_t *has, int64_t n_sharing)
{
    char name[SW_GGUF_KEY_BYTES];

    for (int64_t l = 0; l < r->n_layers - n_sharing; l++) {
        (void)snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)l);
        if (!has[l] && !sw_gguf_has_tensor(r, name)) return true;
    }
    return false;
}

static sw_code read_numbers(reader *r, int64_t *n_sharing)
{
    static const struct {
        const char *leaf, *json;
        double when_absent;
    } rows[] = {{"attention.sliding_window", "sliding_window", SW_GGUF_REQUIRED},
                {"embedding_length_per_layer_input", "hidden_size_per_layer_input", 0.0},
                {"attention.key_length_swa", "head_dim", SW_GGUF_REQUIRED},
                {"attention.key_length", "global_head_dim", SW_GGUF_REQUIRED},
                {"attention.shared_kv_layers", "num_kv_shared_layers", 0.0}};
    double cap = 0.0;
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++)
        if ((rc = sw_gguf_read_count(n_sharing, r, rows[i].leaf, rows[i].when_absent)) == SW_OK)
            rc = sw_gguf_add_int(r, rows[i].json, *n_sharing);
    if (rc == SW_OK) rc = sw_gguf_read_real(&cap, r, "final_logit_softcapping");
    if (rc != SW_OK || *n_sharing >= r->n_layers)
        return rc ? rc : SW_FAIL(r->err, SW_E_FORMAT, "%s: attention.shared_kv_layers is %lld",
                                 sw_gguf_file_path(r->g, 0), (long long)*n_sharing);
    return cap > 0.0 ? sw_gguf_add_real(r, r->config, "final_logit_softcapping", cap) : SW_OK;
}

static sw_code read_gemma4(reader *r)
{
    static const char *const words[] = {"full_attention", "sliding_attention"};
    int64_t has[SW_LAYERS_MAX], n_sharing = 0;
    bool is_there;
    sw_code rc;

    if ((rc = read_numbers(r, &n_sharing)) != SW_OK ||
        (rc = sw_gguf_read_layers(has, &is_there, r, "attention.sliding_window_pattern")) != SW_OK)
        return rc;
    if (!is_there)
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: key gemma4.attention.sliding_window_pattern is "
                       "missing", sw_gguf_file_path(r->g, 0));
    for (int64_t l = 0; l < r->n_layers; l++) has[l] = has[l] != 0;
    if ((rc = sw_gguf_add_words(r, "layer_types", has, words)) != SW_OK ||
        (rc = read_layers(r, has, n_sharing)) != SW_OK || (rc = read_ropes(r)) != SW_OK ||
        (rc = read_experts(r)) != SW_OK)
        return rc;
    return sw_gguf_add_bool(r, "attention_k_eq_v", has_keys_as_values(r, has, n_sharing));
}

const sw_gguf_hooks sw_gguf_hooks_gemma4 = {
    .has_own_rope = true, .has_own_heads = true, .has_own_widths = true, .knows_windows = true,
    .write = write_gemma4, .read = read_gemma4};
