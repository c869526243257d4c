/* hooks_windows.c - families whose layers differ in what they see: windows, chunks, positions.
 * See gguf_keys.h.
 */
#include <math.h>
#include <string.h>

#include "formats/gguf/keys/gguf_keys.h"
#include "formats/model/programs.h"

typedef sw_gguf_config_writer writer;
typedef sw_gguf_config_reader reader;

static const char *const layer_words[] = {"full_attention", "sliding_attention"};

static int64_t has_window(const sw_model *m, int64_t l) { return m->is_window_layer[l]; }

/* --- a window and a list of the layers that have it --------------------------------------- */

static sw_code write_windows(const writer *c)
{
    sw_code rc;

    if (!c->m->sliding_window) return SW_OK;
    rc = sw_gguf_write_int(c, "attention.sliding_window", c->m->sliding_window);
    return rc ? rc : sw_gguf_write_layers(c, "attention.sliding_window_pattern", SW_GGUF_BOOL,
                                          has_window);
}

/* A single number is a period: the last layer of each period sees everything. */
static sw_code read_pattern(int64_t *has, reader *r, int64_t period)
{
    char key[SW_GGUF_KEY_BYTES];
    const sw_gguf_value *v = sw_gguf_key(
        r->g, sw_gguf_key_of(key, r, "attention.sliding_window_pattern"));
    bool is_there;
    sw_code rc = sw_gguf_read_layers(has, &is_there, r, "attention.sliding_window_pattern");

    if (rc != SW_OK || (v && v->kind == SW_GGUF_ARRAY)) {
        for (int64_t l = 0; l < r->n_layers && rc == SW_OK; l++) has[l] = has[l] != 0;
        return rc;
    }
    if (is_there) period = has[0];
    for (int64_t l = 0; l < r->n_layers; l++) has[l] = period > 0 && (l + 1) % period != 0;
    return SW_OK;
}

static sw_code read_windows_every(reader *r, int64_t period, int64_t when_absent)
{
    int64_t window = 0, has[SW_LAYERS_MAX];
    sw_code rc = sw_gguf_read_count(&window, r, "attention.sliding_window", (double)when_absent);

    if (rc != SW_OK || !window) return rc;
    if ((rc = read_pattern(has, r, period)) != SW_OK) return rc;
    if ((rc = sw_gguf_add_int(r, "sliding_window", window)) != SW_OK) return rc;
    return sw_gguf_add_words(r, "layer_types", has, layer_words);
}

static sw_code read_windows(reader *r) { return read_windows_every(r, 4, 0); }

const sw_gguf_hooks sw_gguf_hooks_windows = {
    .knows_windows = true, .write = write_windows, .read = read_windows};

/* Tensors tell which biases there are, so no key is read for them. */
static sw_code read_gpt_oss(reader *r) { return read_windows_every(r, 2, 0); }

static sw_code write_gpt_oss(const writer *c)
{
    if (!c->m->has_o_bias) return sw_gguf_refuse(c, "expect biases of attention");
    return write_windows(c);
}

const sw_gguf_hooks sw_gguf_hooks_gpt_oss = {
    .knows_windows = true, .may_cut_rope = true, .write = write_gpt_oss, .read = read_gpt_oss};

/* Loaders rotate in window layers by the same base as in others, and without scaling. */
static sw_code write_olmo3(const writer *c)
{
    const sw_model *m = c->m;

    if (m->has_window_rope &&
        (m->window_rope.kind != SW_ROPE_DEFAULT || fabs(m->window_rope.theta - m->rope.theta) > 0))
        return sw_gguf_refuse(c, "turn window layers by the same base, without scaling");
    return write_windows(c);
}

const sw_gguf_hooks sw_gguf_hooks_olmo3 = {
    .knows_windows = true, .write = write_olmo3, .read = read_windows};

/* Loaders know windows in the model of 64 layers alone, and there rotate in window layers alone. */
static sw_code write_exaone4(const writer *c)
{
    if (!c->m->sliding_window) return SW_OK;
    if (c->m->n_layers != 64) return sw_gguf_refuse(c, "know windows in the model of 64 layers");
    return write_windows(c);
}

static sw_code read_exaone4(reader *r)
{
    return r->n_layers == 64
               ? read_windows_every(r, 4, 4096)
               : sw_gguf_added(r, cJSON_AddNullToObject(r->config, "sliding_window"));
}

const sw_gguf_hooks sw_gguf_hooks_exaone4 = {
    .knows_windows = true, .write = write_exaone4, .read = read_exaone4};

/* Every fourth layer has no rotation. */
static sw_code write_smollm3(const writer *c)
{
    for (int64_t l = 0; l < c->m->n_layers; l++)
        if ((c->m->kind[l] == SW_KIND_UNTURNED) != ((l + 1) % 4 == 0))
            return sw_gguf_refuse(c, "turn all layers but every fourth");
    return SW_OK;
}

static sw_code read_smollm3(reader *r)
{
    sw_code rc = sw_gguf_add_int(r, "no_rope_layer_interval", 4);

    return rc ? rc : sw_gguf_hooks_biased.read(r);
}

const sw_gguf_hooks sw_gguf_hooks_smollm3 = {.write = write_smollm3, .read = read_smollm3};

/* --- Gemma -------------------------------------------------------------------------------- */

/* Loaders divide scores by sqrt(head_dim), and in the largest model of each generation, which they
 * know by its number of layers, by sqrt(hidden / heads). */
static int64_t largest_of(const char *gguf) { return strcmp(gguf, "gemma2") ? 62 : 46; }

static sw_code check_scores(const writer *c)
{
    const sw_model *m = c->m;
    const bool is_largest = m->n_layers == largest_of(c->arch->gguf);
    const double scalar = is_largest ? (double)(m->hidden / m->n_heads) : (double)m->head_dim;

    if (fabs(m->attention_scale * sqrt(scalar) - 1.0) > 1e-6)
        return sw_gguf_refuse(c, "divide scores by another number (query_pre_attn_scalar)");
    return SW_OK;
}

static sw_code write_cap(const writer *c)
{
    return c->m->logits_cap > 0.0
               ? sw_gguf_write_real(c, "final_logit_softcapping", c->m->logits_cap) : SW_OK;
}

static sw_code write_gemma2(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc = check_scores(c);

    for (int64_t l = 0; l < m->n_layers; l++)
        if (m->is_window_layer[l] != ((l + 1) % 2 != 0))
            return sw_gguf_refuse(c, "expect windows in every second layer");
    if (rc == SW_OK && m->sliding_window)
        rc = sw_gguf_write_int(c, "attention.sliding_window", m->sliding_window);
    if (rc == SW_OK && m->attention_cap > 0.0)
        rc = sw_gguf_write_real(c, "attn_logit_softcapping", m->attention_cap);
    return rc ? rc : write_cap(c);
}

static sw_code write_gemma3(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc = check_scores(c);

    if (rc == SW_OK && m->attention_cap > 0.0) return sw_gguf_refuse(c, "know no cap of scores");
    if (rc == SW_OK) rc = write_cap(c);
    if (rc != SW_OK || !m->sliding_window) return rc;
    if (m->window_rope.kind != SW_ROPE_DEFAULT)
        return sw_gguf_refuse(c, "know no scaled rope for window layers");
    rc = sw_gguf_write_real(c, "rope.freq_base_swa", m->window_rope.theta);
    return rc ? rc : write_windows(c);
}

/* Write the cap, or null where there is none: without the key the default of the family would
 * hold. */
static sw_code read_cap(reader *r, const char *leaf)
{
    double cap = 0.0;
    sw_code rc = sw_gguf_read_real(&cap, r, leaf);

    if (rc != SW_OK) return rc;
    return cap > 0.0 ? sw_gguf_add_real(r, r->config, leaf, cap)
                     : sw_gguf_added(r, cJSON_AddNullToObject(r->config, leaf));
}

static sw_code read_scalar(reader *r)
{
    int64_t heads = 1, hidden = 0, head_dim = 0;
    sw_code rc;

    if ((rc = sw_gguf_read_count(&heads, r, "attention.head_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&hidden, r, "embedding_length", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&head_dim, r, "attention.key_length", 256.0)) != SW_OK)
        return rc;
    if (r->n_layers == largest_of(r->arch->gguf) && heads > 0) head_dim = hidden / heads;
    if ((rc = sw_gguf_add_int(r, "query_pre_attn_scalar", head_dim)) != SW_OK ||
        (rc = read_cap(r, "attn_logit_softcapping")) != SW_OK)
        return rc;
    return read_cap(r, "final_logit_softcapping");
}

static sw_code read_gemma2(reader *r)
{
    sw_code rc = read_scalar(r);

    return rc ? rc : read_windows_every(r, 2, 4096);
}

static sw_code read_gemma3(reader *r)
{
    double local = 1e4;
    sw_code rc;

    if ((rc = read_scalar(r)) != SW_OK ||
        (rc = sw_gguf_read_real(&local, r, "rope.freq_base_swa")) != SW_OK ||
        (rc = sw_gguf_add_real(r, r->config, "rope_local_base_freq", local)) != SW_OK)
        return rc;
    return read_windows_every(r, 6, 0);
}

const sw_gguf_hooks sw_gguf_hooks_gemma2 = {
    .knows_windows = true, .write = write_gemma2, .read = read_gemma2};
const sw_gguf_hooks sw_gguf_hooks_gemma3 = {
    .knows_windows = true, .write = write_gemma3, .read = read_gemma3};

/* What loaders of Gemma 3n take for granted: layers with keys of their own, the width of the path
 * beside attention and of the inputs of single layers, and which layers cut their gates, and how.
 */
#define OWN_KEYS_3N 20
#define LOW_RANK_3N 64
#define SIDE_3N 256
#define CUT_LAYERS_3N 10
#define CUT_SHARE_3N 0.95
#define CUT_3N 1.6448533535003662 /* deviations above the mean for that share */
#define CAP_3N 30.0

static sw_code check_gemma3n(const writer *c)
{
    const sw_model *m = c->m;

    if (m->n_copies != 4 || m->low_rank != LOW_RANK_3N || m->side_inputs != SIDE_3N)
        return sw_gguf_refuse(c, "expect altup_num_inputs 4, laurel_rank 64 and "
                                 "hidden_size_per_layer_input 256");
    if (fabs(m->logits_cap - CAP_3N) > 1e-6) return sw_gguf_refuse(c, "cap logits at 30");
    if (m->window_rope.kind != SW_ROPE_DEFAULT)
        return sw_gguf_refuse(c, "know no scaled rope for window layers");
    for (int64_t l = 0; l < m->n_layers; l++) {
        const bool cuts = l < CUT_LAYERS_3N;

        if (m->is_cut_layer[l] != cuts || (cuts && fabs(m->gate_cut - CUT_3N) > 1e-5))
            return sw_gguf_refuse(c, "leave out 0.95 of the gates of the first 10 layers");
        if ((m->shares_kv[l] != 0) != (l >= OWN_KEYS_3N))
            return sw_gguf_refuse(c, "expect keys of their own in the first 20 layers");
        if (m->shares_kv[l] && m->kind[l] != SW_KIND_UNUSED_KV)
            return sw_gguf_refuse(c, "expect linears for keys in layers that share them too");
        if (m->is_window_layer[l] != ((l + 1) % 5 != 0))
            return sw_gguf_refuse(c, "expect every fifth layer to see all");
    }
    return SW_OK;
}

static int64_t n_shared(const sw_model *m) { return m->n_layers - OWN_KEYS_3N; }

static sw_code write_gemma3n(const writer *c)
{
    sw_code rc = check_gemma3n(c);

    if (rc != SW_OK ||
        (rc = sw_gguf_write_int(c, "attention.shared_kv_layers", n_shared(c->m))) != SW_OK ||
        (rc = sw_gguf_write_real(c, "rope.freq_base_swa", c->m->window_rope.theta)) != SW_OK)
        return rc;
    return write_windows(c);
}

/* The share of the gates that each layer leaves out. */
static sw_code add_cuts(reader *r)
{
    cJSON *list = cJSON_AddArrayToObject(r->config, "activation_sparsity_pattern");

    for (int64_t l = 0; list && l < r->n_layers; l++) {
        cJSON *one = cJSON_CreateNumber(l < CUT_LAYERS_3N ? CUT_SHARE_3N : 0.0);

        if (!one || !cJSON_AddItemToArray(list, one)) return sw_gguf_added(r, NULL);
    }
    return sw_gguf_added(r, list);
}

static sw_code read_gemma3n(reader *r)
{
    double local = 1e4;
    sw_code rc;

    if (r->n_layers <= OWN_KEYS_3N)
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: gemma3n of %lld layers; the first "
                       "%d have keys of their own, and others share them",
                       sw_gguf_file_path(r->g, 0), (long long)r->n_layers, OWN_KEYS_3N);
    if ((rc = sw_gguf_add_int(r, "num_kv_shared_layers", r->n_layers - OWN_KEYS_3N)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "laurel_rank", LOW_RANK_3N)) != SW_OK ||
        (rc = sw_gguf_add_real(r, r->config, "final_logit_softcapping", CAP_3N)) != SW_OK ||
        (rc = sw_gguf_read_real(&local, r, "rope.freq_base_swa")) != SW_OK ||
        (rc = sw_gguf_add_real(r, r->config, "rope_local_base_freq", local)) != SW_OK ||
        (rc = add_cuts(r)) != SW_OK)
        return rc;
    return read_windows_every(r, 5, 512);
}

const sw_gguf_hooks sw_gguf_hooks_gemma3n = {
    .knows_windows = true, .write = write_gemma3n, .read = read_gemma3n};


/* --- Llama 4 and Ministral 3 -------------------------------------------------------------- */

#define CHUNK 8192
#define GROWTH 0.1

/* Loaders take the length of a chunk, the growth of queries and the layers that see all, every
 * fourth, for granted. In a text no longer than a chunk only the last of these matters. */
static sw_code check_llama4(const writer *c)
{
    const sw_model *m = c->m;
    const int64_t seen = m->attention_chunk < m->max_positions ? m->attention_chunk
                                                               : m->max_positions;
    const bool has_norms = m->n_experts != 128;

    for (int64_t l = 0; l < m->n_layers; l++) {
        const bool sees_all = (l + 1) % 4 == 0;
        const int kind = m->kind[l];

        if (m->is_window_layer[l] == sees_all)
            return sw_gguf_refuse(c, "expect every fourth layer to see all");
        if (!sees_all && (kind == SW_KIND_CHUNK_NORMED) != has_norms)
            return sw_gguf_refuse(c, "expect norms of queries and keys but with 128 experts");
        if (sees_all && (kind != SW_KIND_ALL_TEMPERED || m->temper_every != CHUNK ||
                         fabs(m->temper_beta - GROWTH) > 1e-9) &&
            (seen > CHUNK || (kind == SW_KIND_ALL_TEMPERED && m->temper_every <= seen)))
            return sw_gguf_refuse(c, "let queries grow every 8192 positions by 0.1");
    }
    return SW_OK;
}

static int64_t sparse_step(const sw_model *m)
{
    int64_t first = 0;

    while (first < m->n_layers && !sw_model_is_sparse(m, first)) first++;
    return first + 1;
}

static sw_code write_llama4(const writer *c)
{
    const sw_model *m = c->m;
    const int64_t step = sparse_step(m);
    sw_code rc = check_llama4(c);

    for (int64_t l = 0; l < m->n_layers; l++)
        if (sw_model_is_sparse(m, l) != ((l + 1) % step == 0))
            return sw_gguf_refuse(c, "expect experts in every so many layers");
    if (rc == SW_OK && m->has_qkv_bias) return sw_gguf_refuse(c, "know no biases");
    if (rc == SW_OK) rc = sw_gguf_write_int(c, "feed_forward_length", m->intermediate);
    if (rc == SW_OK) rc = sw_gguf_write_int(c, "expert_feed_forward_length", m->moe_intermediate);
    return rc ? rc : sw_gguf_write_int(c, "interleave_moe_layer_step", step);
}

static sw_code read_llama4(reader *r)
{
    int64_t dense, experts, step, used;
    sw_code rc;

    if ((rc = sw_gguf_read_count(&dense, r, "feed_forward_length", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&experts, r, "expert_feed_forward_length", SW_GGUF_REQUIRED)) ||
        (rc = sw_gguf_read_count(&step, r, "interleave_moe_layer_step", SW_GGUF_REQUIRED)) ||
        (rc = sw_gguf_read_count(&used, r, "expert_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "intermediate_size_mlp", dense)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "intermediate_size", experts)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "interleave_moe_layer_step", step)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "attention_chunk_size", CHUNK)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "floor_scale", CHUNK)) != SW_OK ||
        (rc = sw_gguf_add_real(r, r->config, "attn_scale", GROWTH)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "no_rope_layer_interval", 4)) != SW_OK ||
        (rc = sw_gguf_add_bool(r, "attn_temperature_tuning", true)) != SW_OK)
        return rc;
    return sw_gguf_add_bool(r, "use_qk_norm", used != 128);
}

const sw_gguf_hooks sw_gguf_hooks_llama4 = {
    .has_own_widths = true, .write = write_llama4, .read = read_llama4};

static sw_code write_mistral3(const writer *c)
{
    const sw_model *m = c->m;

    if (!(m->temper_beta > 0.0)) return SW_OK;
    if (m->temper_shift || m->temper_every != m->rope.original_max_positions)
        return sw_gguf_refuse(c, "let queries grow with every trained length");
    return sw_gguf_write_real(c, "attention.temperature_scale", m->temper_beta);
}

static sw_code read_mistral3(reader *r)
{
    double beta = 0.0;
    cJSON *scaling = cJSON_GetObjectItemCaseSensitive(r->config, "rope_scaling");
    sw_code rc = sw_gguf_read_real(&beta, r, "attention.temperature_scale");

    if (rc != SW_OK || !(beta > 0.0)) return rc;
    if (!scaling)
        return SW_FAIL(r->err, SW_E_UNSUPPORTED, "%s: attention.temperature_scale without yarn",
                       sw_gguf_file_path(r->g, 0));
    return sw_gguf_add_real(r, scaling, "llama_4_scaling_beta", beta);
}

const sw_gguf_hooks sw_gguf_hooks_mistral3 = {
    .yarn_part = 1.0, .write = write_mistral3, .read = read_mistral3};
