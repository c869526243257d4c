/* unknown.c - a model_type without a row: what may serve it instead. See model.h. */
#include <stdio.h>
#include <string.h>

#include "formats/model/model.h"
#include "formats/model/wrappers.h"

#define NAME_MAX_BYTES 64
#define NEAR_MAX 2
#define GUESS_BYTES (2 * NAME_MAX_BYTES + 40)

/* What was said for the whole program. */
static const char *stand_in;
static bool has_stood_in, allows_unknown;

static const sw_kinds no_kinds;

const sw_arch sw_arch_unknown = {
    .name = "unknown",
    .hf_class = "",
    .notes = "weights alone: linears by the names and shapes of their tensors",
    .default_theta = 1e4,
    .default_eps = 1e-6,
    .ends = {"", {[SW_END_LAYERS] = "model.layers", [SW_END_EMBED] = "model.embed_tokens",
                  [SW_END_NORM] = "model.norm", [SW_END_HEAD] = "lm_head"}, false},
    .kinds = &no_kinds,
    .fused_order = SW_FUSED_ROWS,
};

static int least(int a, int b) { return a < b ? a : b; }

/* Edits that turn one name into the other. */
static int distance(const char *a, const char *b)
{
    const int n = (int)strnlen(a, NAME_MAX_BYTES), m = (int)strnlen(b, NAME_MAX_BYTES);
    int row[NAME_MAX_BYTES + 1];

    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int before = row[0];

        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int above = row[j];

            row[j] = least(before + (a[i - 1] != b[j - 1]), 1 + least(above, row[j - 1]));
            before = above;
        }
    }
    return row[m];
}

/* Another name is near when it can be a misspelling or another version: half of it is the same. */
static void nearest(const char *out[NEAR_MAX], const char *name)
{
    int best[NEAR_MAX];

    for (int k = 0; k < NEAR_MAX; k++) {
        out[k] = NULL;
        best[k] = least((int)strnlen(name, NAME_MAX_BYTES), 2 * NAME_MAX_BYTES) / 2;
    }
    for (int i = 0; i < sw_n_archs; i++) {
        int far = distance(name, sw_archs[i].name), k = NEAR_MAX;

        while (k > 0 && far < best[k - 1]) k--;
        if (k == NEAR_MAX) continue;
        for (int later = NEAR_MAX - 1; later > k; later--) {
            out[later] = out[later - 1];
            best[later] = best[later - 1];
        }
        out[k] = sw_archs[i].name;
        best[k] = far;
    }
}

/* "the nearest are a and b; ", or "". */
static void guess_text(char out[GUESS_BYTES], const char *name)
{
    const char *near[NEAR_MAX];

    nearest(near, name);
    out[0] = '\0';
    if (near[0])
        (void)snprintf(out, GUESS_BYTES, "the nearest %s %s%s%s; ", near[1] ? "are" : "is", near[0],
                       near[1] ? " and " : "", near[1] ? near[1] : "");
}

sw_code sw_arch_stand_in(const char *family, sw_err *err)
{
    char guess[GUESS_BYTES];

    has_stood_in = false;
    stand_in = NULL;
    if (!family) return SW_OK;
    guess_text(guess, family);
    if (!sw_arch_find(sw_config_row_name(family)))
        return SW_FAIL(err, SW_E_USAGE, "--arch-like does not know the family \"%.60s\"; %s`swage "
                       "list architectures` names those that it does", family, guess);
    stand_in = family;
    return SW_OK;
}

bool sw_arch_stood_in(void) { return has_stood_in; }

void sw_arch_allow_unknown(bool is_allowed) { allows_unknown = is_allowed; }

const char *sw_arch_family(const char *model_type)
{
    return stand_in && !sw_arch_find(sw_config_row_name(model_type)) ? stand_in : model_type;
}

const sw_arch *sw_arch_for(const char *model_type, bool *is_like)
{
    const char *family = sw_arch_family(model_type);

    *is_like = family != model_type;
    has_stood_in = has_stood_in || *is_like;
    return sw_arch_find(sw_config_row_name(family));
}

sw_code sw_arch_refuse(const char *model_type, sw_err *err)
{
    char guess[GUESS_BYTES];

    if (allows_unknown) return SW_OK;
    guess_text(guess, model_type);
    return SW_FAIL(err, SW_E_UNSUPPORTED, "model_type: \"%.60s\" is not supported; %s`swage list "
                   "architectures` names those that are. --arch-like FAMILY reads it as one of "
                   "them; quantize --method rtn rounds its weights without knowing it", model_type,
                   guess);
}

/* An integer within 1..max under the first key that has one; else *out stays. */
static void take(int64_t *out, const cJSON *config, const char *const keys[5], double max)
{
    for (int i = 0; i < 5 && keys[i]; i++) {
        const cJSON *member = sw_json_member(config, keys[i]);

        if (!cJSON_IsNumber(member) || !(member->valuedouble >= 1 && member->valuedouble <= max) ||
            (double)(int64_t)member->valuedouble != member->valuedouble)
            continue;
        *out = (int64_t)member->valuedouble;
        return;
    }
}

void sw_model_read_unknown(sw_model *m, const cJSON *config)
{
    const struct {
        int64_t *value;
        double max;
        const char *keys[5];
    } sizes[] = {
        {&m->hidden, 1 << 20, {"hidden_size", "n_embd", "d_model", "dim"}},
        {&m->n_layers, SW_LAYERS_MAX, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}},
        {&m->vocab, 1 << 24, {"vocab_size"}},
        {&m->intermediate, 1 << 22, {"intermediate_size", "ffn_dim", "n_inner"}},
        {&m->n_heads, 4096, {"num_attention_heads", "n_head", "n_heads"}},
        {&m->n_kv_heads, 4096, {"num_key_value_heads", "num_attention_heads", "n_head"}},
        {&m->head_dim, 4096, {"head_dim"}},
        {&m->n_experts, SW_EXPERTS_MAX,
         {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}},
        {&m->moe_intermediate, 1 << 22, {"moe_intermediate_size", "expert_intermediate_size"}},
        {&m->max_positions, 0x80000000, {"max_position_embeddings", "n_positions"}},
    };

    m->n_heads = m->n_kv_heads = m->max_positions = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        take(sizes[i].value, config, sizes[i].keys, sizes[i].max);
    if (m->n_heads % m->n_kv_heads) m->n_kv_heads = m->n_heads;
    if (!m->head_dim) m->head_dim = m->hidden > m->n_heads ? m->hidden / m->n_heads : 1;
    m->v_head_dim = m->head_dim;
    m->moe_hidden = m->hidden;
}
