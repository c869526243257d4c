/* hooks_sparse.c - families with experts: which layers have them, and latent attention. See
 * gguf_keys.h.
 */
#include <math.h>
#include <string.h>

#include "formats/gguf/keys/gguf_keys.h"
#include "formats/model/programs.h"

typedef sw_gguf_config_writer writer;
typedef sw_gguf_config_reader reader;

static sw_code write_sparse(const writer *c)
{
    for (int64_t l = 0; l < c->m->n_layers; l++)
        if (!sw_model_is_sparse(c->m, l)) return sw_gguf_refuse(c, "expect experts in every layer");
    return SW_OK;
}

const sw_gguf_hooks sw_gguf_hooks_sparse = {.write = write_sparse};

/* The norms of queries and keys go over whole rows here, which are as wide as the model. */
static sw_code write_olmoe(const writer *c)
{
    if (c->m->n_kv_heads != c->m->n_heads)
        return sw_gguf_refuse(c, "expect as many keys as queries");
    return write_sparse(c);
}

const sw_gguf_hooks sw_gguf_hooks_olmoe = {.write = write_olmoe};

/* The layers without experts come first, so that their number tells which they are. */
static sw_code write_lead(const writer *c)
{
    const sw_model *m = c->m;
    int64_t n = 0;

    while (n < m->n_layers && !sw_model_is_sparse(m, n)) n++;
    for (int64_t l = n; l < m->n_layers; l++)
        if (!sw_model_is_sparse(m, l))
            return sw_gguf_refuse(c, "expect layers without experts in front alone");
    return sw_gguf_write_int(c, "leading_dense_block_count", n);
}

static sw_code read_lead(reader *r, const char *json)
{
    int64_t n = 0;
    sw_code rc = sw_gguf_read_count(&n, r, "leading_dense_block_count", 0.0);

    return rc ? rc : sw_gguf_add_int(r, json, n);
}

static sw_code read_glm4_moe(reader *r)
{
    sw_code rc = read_lead(r, "first_k_dense_replace");

    return rc ? rc : sw_gguf_hooks_biased.read(r);
}

const sw_gguf_hooks sw_gguf_hooks_glm4_moe = {.write = write_lead, .read = read_glm4_moe};

static sw_code write_ernie_moe(const writer *c)
{
    if (fabs(c->m->route_floor) > 1e-6) return sw_gguf_refuse(c, "know no floor of the weights");
    return write_lead(c);
}

static sw_code read_ernie_moe(reader *r)
{
    sw_code rc = read_lead(r, "moe_layer_start_index");

    return rc ? rc : sw_gguf_hooks_biased.read(r);
}

const sw_gguf_hooks sw_gguf_hooks_ernie_moe = {.write = write_ernie_moe, .read = read_ernie_moe};

/* Loaders give experts the width of a dense MLP, though no layer of this model has one. */
static sw_code write_hunyuan_moe(const writer *c)
{
    if (c->m->moe_intermediate != c->m->intermediate)
        return sw_gguf_refuse(c, "expect experts as wide as intermediate_size");
    return write_sparse(c);
}

static sw_code read_hunyuan_moe(reader *r) { return sw_gguf_hooks_biased.read(r); }

const sw_gguf_hooks sw_gguf_hooks_hunyuan_moe = {
    .write = write_hunyuan_moe, .read = read_hunyuan_moe};

/* --- latent attention --------------------------------------------------------------------- */

/* Loaders multiply queries by the transposed keys, so attention sees one head of latent vectors. */
static sw_code write_latent_heads(const writer *c)
{
    const sw_model *m = c->m;
    const struct {
        const char *leaf;
        int64_t v;
    } rows[] = {{"attention.key_length", m->kv_rank + m->rope_dim},
                {"attention.value_length", m->kv_rank},
                {"attention.key_length_mla", m->head_dim},
                {"attention.value_length_mla", m->v_head_dim},
                {"rope.dimension_count", m->rope_dim}};
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++)
        rc = sw_gguf_write_int(c, rows[i].leaf, rows[i].v);
    return rc;
}

static sw_code write_latent(const writer *c)
{
    sw_code rc;

    if (!c->m->is_rope_paired) return sw_gguf_refuse(c, "turn neighbours (rope_interleave)");
    if (!c->m->q_rank && c->m->n_layers != 27 && c->m->n_layers != 26)
        return sw_gguf_refuse(c, "expect queries of a low rank but with 26 or 27 layers");
    if ((rc = sw_gguf_write_int(c, "attention.head_count_kv", 1)) != SW_OK ||
        (rc = write_latent_heads(c)) != SW_OK)
        return rc;
    return write_lead(c);
}

static sw_code read_latent_heads(reader *r)
{
    int64_t key = 0, value = 0, turned = 0;
    sw_code rc;

    if ((rc = sw_gguf_read_count(&key, r, "attention.key_length_mla", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&value, r, "attention.value_length_mla", SW_GGUF_REQUIRED)) ||
        (rc = sw_gguf_read_count(&turned, r, "rope.dimension_count", SW_GGUF_REQUIRED)) != SW_OK)
        return rc;
    if (turned >= key)
        return SW_FAIL(r->err, SW_E_FORMAT, "%s: rope.dimension_count is %lld, of heads of %lld",
                       sw_gguf_file_path(r->g, 0), (long long)turned, (long long)key);
    if ((rc = sw_gguf_add_int(r, "qk_nope_head_dim", key - turned)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "qk_rope_head_dim", turned)) != SW_OK)
        return rc;
    return sw_gguf_add_int(r, "v_head_dim", value);
}

static sw_code read_latent(reader *r)
{
    sw_code rc;

    if ((rc = read_latent_heads(r)) != SW_OK ||
        (rc = read_lead(r, "first_k_dense_replace")) != SW_OK)
        return rc;
    if (sw_json_member(r->config, "q_lora_rank")) return SW_OK;
    return sw_gguf_added(r, cJSON_AddNullToObject(r->config, "q_lora_rank"));
}

const sw_gguf_hooks sw_gguf_hooks_latent = {
    .has_own_heads = true, .yarn_part = 0.1, .write = write_latent, .read = read_latent};

/* --- the same with keys that are chosen --------------------------------------------------- */

#define LONG_CONTEXT (1 << 20)

static int64_t has_own_choice(const sw_model *m, int64_t l)
{
    return m->kind[l] == SW_KIND_LATENT_INDEXED;
}

static sw_code write_indexed(const writer *c)
{
    sw_code rc = write_latent(c);

    if (rc != SW_OK) return rc;
    if (c->arch->choice == SW_GGUF_CHOOSES_PAIRS)
        return sw_gguf_write_layers(c, "attention.indexer.types", SW_GGUF_BOOL, has_own_choice);
    return c->m->indexer.is_shared ? sw_gguf_refuse(c, "choose keys in every layer") : SW_OK;
}

/* A file without the list is of a model that chooses in every layer or, where its context is long,
 * in the first three and in every fourth from there. */
static sw_code read_indexed(reader *r)
{
    static const char *const words[] = {"shared", "full"};
    int64_t is_full[SW_LAYERS_MAX], context = 0;
    bool is_there;
    sw_code rc = read_latent(r);

    if (rc != SW_OK || r->arch->choice != SW_GGUF_CHOOSES_PAIRS) return rc;
    if ((rc = sw_gguf_read_layers(is_full, &is_there, r, "attention.indexer.types")) != SW_OK ||
        (rc = sw_gguf_read_count(&context, r, "context_length", SW_GGUF_REQUIRED)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < r->n_layers; l++)
        is_full[l] = is_there ? is_full[l] != 0 : context < LONG_CONTEXT || l < 2 || l % 4 == 2;
    return sw_gguf_add_words(r, "indexer_types", is_full, words);
}

const sw_gguf_hooks sw_gguf_hooks_indexed = {
    .has_own_heads = true, .yarn_part = 0.1, .write = write_indexed, .read = read_indexed};

/* --- Kimi: delta attention, and latent attention without rotation in some layers ---------- */

static int64_t kimi_keys(const sw_model *m, int64_t l)
{
    return sw_model_state_elems(m, l) ? 0 : 1;
}

static sw_code write_kimi(const writer *c)
{
    const sw_model *m = c->m;
    sw_code rc;

    if (m->mixer.n_heads != m->n_heads) return sw_gguf_refuse(c, "expect as many heads everywhere");
    if ((rc = sw_gguf_write_layers(c, "attention.head_count_kv", SW_GGUF_I32, kimi_keys)) ||
        (rc = sw_gguf_write_int(c, "ssm.conv_kernel", m->mixer.n_taps)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "kda.head_dim", m->mixer.d_head)) != SW_OK ||
        (rc = write_latent_heads(c)) != SW_OK)
        return rc;
    return write_lead(c);
}

/* The config of this family counts layers from 1. */
static sw_code add_counted(reader *r, cJSON *to, const char *key, const int64_t *keys, bool want)
{
    cJSON *list = cJSON_AddArrayToObject(to, key);

    for (int64_t l = 0; list && l < r->n_layers; l++) {
        cJSON *one = (keys[l] != 0) == want ? cJSON_CreateNumber((double)(l + 1)) : NULL;

        if ((keys[l] != 0) == want && (!one || !cJSON_AddItemToArray(list, one)))
            return sw_gguf_added(r, NULL);
    }
    return sw_gguf_added(r, list);
}

static sw_code read_kimi(reader *r)
{
    cJSON *linear = cJSON_AddObjectToObject(r->config, "linear_attn_config");
    int64_t keys[SW_LAYERS_MAX], heads = 0, head_dim = 0, taps = 0;
    bool is_there;
    sw_code rc;

    if ((rc = sw_gguf_added(r, linear)) != SW_OK ||
        (rc = sw_gguf_read_layers(keys, &is_there, r, "attention.head_count_kv")) != SW_OK ||
        (rc = sw_gguf_read_count(&heads, r, "attention.head_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&head_dim, r, "kda.head_dim", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&taps, r, "ssm.conv_kernel", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = add_counted(r, linear, "kda_layers", keys, false)) != SW_OK ||
        (rc = add_counted(r, linear, "full_attn_layers", keys, true)) != SW_OK ||
        (rc = sw_gguf_added(r, cJSON_AddNumberToObject(linear, "num_heads", (double)heads))) ||
        (rc = sw_gguf_added(r, cJSON_AddNumberToObject(linear, "head_dim", (double)head_dim))) ||
        (rc = sw_gguf_added(r, cJSON_AddNumberToObject(linear, "short_conv_kernel_size",
                                                       (double)taps))) ||
        (rc = sw_gguf_add_bool(r, "mla_use_nope", true)) != SW_OK ||
        (rc = read_latent_heads(r)) != SW_OK)
        return rc;
    return read_lead(r, "first_k_dense_replace");
}

const sw_gguf_hooks sw_gguf_hooks_kimi = {
    .has_own_rope = true, .has_own_heads = true, .write = write_kimi, .read = read_kimi};
