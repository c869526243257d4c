/* config_check.c - see checks.h. */
#include "verify/checks/checks.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "verify/checks/json_diff.h"

#define CONFIG "config.json"

typedef enum field_kind {
    FIELD_INT, FIELD_REAL, FIELD_BOOL, FIELD_ENUM, FIELD_LAYERS, FIELD_FACTORS
} field_kind;

typedef struct field {
    const char *key; /* what config.json calls it, mostly */
    field_kind kind;
    size_t offset;
} field;

/* The sizes of tensors. */
static const field sizes[] = {
    {"hidden_size", FIELD_INT, offsetof(sw_model, hidden)},
    {"num_hidden_layers", FIELD_INT, offsetof(sw_model, n_layers)},
    {"intermediate_size", FIELD_INT, offsetof(sw_model, intermediate)},
    {"num_attention_heads", FIELD_INT, offsetof(sw_model, n_heads)},
    {"num_key_value_heads", FIELD_INT, offsetof(sw_model, n_kv_heads)},
    {"head_dim", FIELD_INT, offsetof(sw_model, head_dim)},
    {"vocab_size", FIELD_INT, offsetof(sw_model, vocab)},
    {"num_experts", FIELD_INT, offsetof(sw_model, n_experts)},
    {"moe_intermediate_size", FIELD_INT, offsetof(sw_model, moe_intermediate)},
};

/* Everything else that changes what is computed. */
static const field fields[] = {
    {"max_position_embeddings", FIELD_INT, offsetof(sw_model, max_positions)},
    {"v_head_dim", FIELD_INT, offsetof(sw_model, v_head_dim)},
    {"q_lora_rank", FIELD_INT, offsetof(sw_model, q_rank)},
    {"kv_lora_rank", FIELD_INT, offsetof(sw_model, kv_rank)},
    {"partial_rotary_factor", FIELD_INT, offsetof(sw_model, rope_dim)},
    {"rope_interleave", FIELD_BOOL, offsetof(sw_model, is_rope_paired)},
    {"num_experts_per_tok", FIELD_INT, offsetof(sw_model, n_experts_used)},
    {"shared expert size", FIELD_INT, offsetof(sw_model, shared_intermediate)},
    {"scoring_func", FIELD_ENUM, offsetof(sw_model, router)},
    {"n_group", FIELD_INT, offsetof(sw_model, n_expert_groups)},
    {"topk_group", FIELD_INT, offsetof(sw_model, n_groups_used)},
    {"routed_scaling_factor", FIELD_REAL, offsetof(sw_model, route_scale)},
    {"norm_topk_prob", FIELD_BOOL, offsetof(sw_model, norm_topk)},
    {"decoder_sparse_step", FIELD_INT, offsetof(sw_model, sparse_step)},
    {"mlp_only_layers", FIELD_LAYERS, offsetof(sw_model, is_dense_layer)},
    {"sliding_window", FIELD_INT, offsetof(sw_model, sliding_window)},
    {"layer_types", FIELD_LAYERS, offsetof(sw_model, is_window_layer)},
    {"rms_norm_eps", FIELD_REAL, offsetof(sw_model, norm_eps)},
    {"eps of the norms between low-rank factors", FIELD_REAL, offsetof(sw_model, rank_norm_eps)},
    {"norm offset", FIELD_REAL, offsetof(sw_model, norm_offset)},
    {"hidden_act", FIELD_ENUM, offsetof(sw_model, act)},
    {"swiglu_limit", FIELD_REAL, offsetof(sw_model, act_limit)},
    {"attention scale", FIELD_REAL, offsetof(sw_model, attention_scale)},
    {"attn_logit_softcapping", FIELD_REAL, offsetof(sw_model, attention_cap)},
    {"final_logit_softcapping", FIELD_REAL, offsetof(sw_model, logits_cap)},
    {"embedding scale", FIELD_REAL, offsetof(sw_model, embed_scale)},
    {"rows of positions", FIELD_INT, offsetof(sw_model, n_position_rows)},
    {"row of position 0", FIELD_INT, offsetof(sw_model, first_position_row)},
    {"tie_word_embeddings", FIELD_BOOL, offsetof(sw_model, is_tied)},
    {"attention_bias", FIELD_BOOL, offsetof(sw_model, has_qkv_bias)},
    {"bias of the attention's output", FIELD_BOOL, offsetof(sw_model, has_o_bias)},
    {"mlp_bias", FIELD_BOOL, offsetof(sw_model, has_mlp_bias)},
    {"bias of the router", FIELD_BOOL, offsetof(sw_model, has_router_bias)},
};

#define OF(kind) (1u << SW_ROPE_##kind)

/* Fields of a rope, and the kinds that read them. */
static const struct {
    field field;
    unsigned kinds;
} rope_fields[] = {
    {{"rope_theta", FIELD_REAL, offsetof(sw_rope, theta)}, ~0u},
    {{"factor", FIELD_REAL, offsetof(sw_rope, factor)}, ~OF(DEFAULT)},
    {{"low_freq_factor", FIELD_REAL, offsetof(sw_rope, low_freq_factor)}, OF(LLAMA3)},
    {{"high_freq_factor", FIELD_REAL, offsetof(sw_rope, high_freq_factor)}, OF(LLAMA3)},
    {{"beta_fast", FIELD_REAL, offsetof(sw_rope, beta_fast)}, OF(YARN)},
    {{"beta_slow", FIELD_REAL, offsetof(sw_rope, beta_slow)}, OF(YARN)},
    {{"attention_factor", FIELD_REAL, offsetof(sw_rope, attention_factor)},
     OF(YARN) | OF(LONGROPE)},
    {{"mscale", FIELD_REAL, offsetof(sw_rope, mscale)}, OF(YARN)},
    {{"mscale_all_dim", FIELD_REAL, offsetof(sw_rope, mscale_all_dim)}, OF(YARN)},
    {{"truncate", FIELD_BOOL, offsetof(sw_rope, truncate)}, OF(YARN)},
    {{"short_factor", FIELD_FACTORS, offsetof(sw_rope, short_factors)}, OF(LONGROPE)},
    {{"long_factor", FIELD_FACTORS, offsetof(sw_rope, long_factors)}, OF(LONGROPE)},
    {{"original_max_position_embeddings", FIELD_INT, offsetof(sw_rope, original_max_positions)},
     OF(LLAMA3) | OF(YARN) | OF(LONGROPE)},
};

/* Keys that change no figure: names, notes and what only training reads. */
static const char *const cosmetic[] = {
    "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "dtype", "torch_dtype",
    "quantization_config", "compression_config", "use_cache", "initializer_range",
    "initializer_factor", "init_std", "attention_dropout", "hidden_dropout", "dropout",
    "activation_dropout", "layerdrop", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    "classifier_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob",
    "router_aux_loss_coef", "router_jitter_noise", "aux_loss_alpha", "seq_aux", "output_attentions",
    "output_hidden_states", "output_router_logits", "return_dict", "use_return_dict",
    "gradient_checkpointing", "pretraining_tp", "pad_token_id", "task_specific_params", "id2label",
    "label2id", "torchscript", "problem_type", "finetuning_task", "_attn_implementation",
    "attn_implementation", "_attn_implementation_autoset", "chunk_size_feed_forward",
    "cache_implementation", "unsloth_fixed", "unsloth_version", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", NULL};

/* Those of them that any tool which writes a checkpoint sets anew: not worth a word. */
static const char *const usual[] = {
    "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "dtype", "torch_dtype",
    "quantization_config", "compression_config", "use_cache", "output_attentions",
    "output_hidden_states", "return_dict", "use_return_dict", "gradient_checkpointing",
    "torchscript", "_attn_implementation", "attn_implementation", "_attn_implementation_autoset",
    "cache_implementation", "unsloth_fixed", "unsloth_version", NULL};

/* What the reader of models knows of a rope in full: two spellings of it differ in every key. */
static const char *const rope_keys[] = {
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "rope_local_base_freq", "original_max_position_embeddings", NULL};
static const char *const rope_members[] = {
    "rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
    "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate",
    "short_factor", "long_factor", "original_max_position_embeddings", "partial_rotary_factor",
    "full_attention", "sliding_attention", NULL};

typedef struct checker {
    sw_report *report;
    const sw_subject *checkpoint, *original;
    bool is_made; /* one of the two configs comes out of a GGUF */
    sw_err *err;
} checker;

static bool is_among(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (!strcmp(*list, name)) return true;
    return false;
}

static sw_code found(const checker *c, const char *key, const char *have, const char *want)
{
    for (int64_t i = 0; i < c->report->n_findings && i < SW_FINDINGS_MAX; i++)
        if (!strcmp(c->report->findings[i].what, "config") &&
            !strcmp(c->report->findings[i].name, key))
            return SW_OK; /* said already, by the key itself */
    return sw_report_find(c->report, "config", key, c->err, "%s: %s is %s, the original has %s",
                          CONFIG, key, have, want);
}

/* GGUF keeps reals in single precision. */
static bool is_same_real(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static void field_text(char text[SW_JSON_DIFF_TEXT_BYTES], const field *f, const void *at)
{
    const size_t size = SW_JSON_DIFF_TEXT_BYTES;

    if (f->kind == FIELD_INT) (void)snprintf(text, size, "%lld", (long long)*(const int64_t *)at);
    if (f->kind == FIELD_REAL) (void)snprintf(text, size, "%.9g", *(const double *)at);
    if (f->kind == FIELD_BOOL)
        (void)snprintf(text, size, "%s", *(const bool *)at ? "true" : "false");
    if (f->kind == FIELD_ENUM) (void)snprintf(text, size, "kind %d", *(const int *)at);
    if (f->kind == FIELD_LAYERS || f->kind == FIELD_FACTORS) (void)snprintf(text, size, "a list");
}

/* The field of two structures, which are of one type. */
static sw_code check_field(const checker *c, const field *f, const void *a, const void *b)
{
    const void *have = (const char *)a + f->offset, *want = (const char *)b + f->offset;
    char have_text[SW_JSON_DIFF_TEXT_BYTES], want_text[SW_JSON_DIFF_TEXT_BYTES];
    bool is_same = true;
    int64_t i = 0;

    if (f->kind == FIELD_INT) is_same = *(const int64_t *)have == *(const int64_t *)want;
    if (f->kind == FIELD_REAL) is_same = is_same_real(*(const double *)have, *(const double *)want);
    if (f->kind == FIELD_BOOL) is_same = *(const bool *)have == *(const bool *)want;
    if (f->kind == FIELD_ENUM) is_same = *(const int *)have == *(const int *)want;
    for (; f->kind == FIELD_LAYERS && is_same && i < c->original->model.n_layers; i++)
        is_same = ((const bool *)have)[i] == ((const bool *)want)[i];
    for (; f->kind == FIELD_FACTORS && is_same && i < SW_ROPE_PAIRS_MAX; i++)
        is_same = is_same_real((double)((const float *)have)[i], (double)((const float *)want)[i]);
    if (is_same) return SW_OK;
    field_text(have_text, f, have);
    field_text(want_text, f, want);
    if (f->kind == FIELD_LAYERS || f->kind == FIELD_FACTORS)
        (void)snprintf(want_text, sizeof want_text, "another at place %lld", (long long)i - 1);
    return found(c, f->key, have_text, want_text);
}

/* The angles themselves, where a container says them in its own way. */
static sw_code check_angles(const checker *c, const char *key, const sw_rope *have,
                            const sw_rope *want)
{
    const sw_model *a = &c->checkpoint->model, *b = &c->original->model;
    float x[SW_ROPE_PAIRS_MAX], y[SW_ROPE_PAIRS_MAX], x_scale, y_scale;

    if (a->rope_dim != b->rope_dim || a->rope_dim / 2 > SW_ROPE_PAIRS_MAX) return SW_OK;
    for (int at = 0; at < 2; at++) {
        const int64_t length = at ? b->max_positions : 1;

        sw_rope_frequencies(x, &x_scale, a, have, length);
        sw_rope_frequencies(y, &y_scale, b, want, length);
        for (int64_t i = 0; i < a->rope_dim / 2; i++)
            if (fabs((double)(x[i] - y[i])) > 1e-5 * fabs((double)y[i]))
                return found(c, key, "another angle", "its own");
        if (fabs((double)(x_scale - y_scale)) > 1e-5 * fabs((double)y_scale))
            return found(c, "rope attention_factor", "another", "its own");
    }
    return SW_OK;
}

static sw_code check_rope(const checker *c, const sw_rope *have, const sw_rope *want)
{
    sw_code rc = SW_OK;

    if (c->is_made) return check_angles(c, "rope_theta", have, want);
    if (have->kind != want->kind)
        return found(c, "rope_type", sw_rope_kind_name(have->kind), sw_rope_kind_name(want->kind));
    for (size_t i = 0; i < sizeof rope_fields / sizeof *rope_fields && rc == SW_OK; i++)
        if (rope_fields[i].kinds & 1u << have->kind)
            rc = check_field(c, &rope_fields[i].field, have, want);
    return rc;
}

static sw_code check_ropes(const checker *c)
{
    const sw_model *a = &c->checkpoint->model, *b = &c->original->model;
    sw_code rc = check_rope(c, &a->rope, &b->rope);

    if (rc != SW_OK || !(a->has_window_rope || b->has_window_rope)) return rc;
    return check_rope(c, a->has_window_rope ? &a->window_rope : &a->rope,
                      b->has_window_rope ? &b->window_rope : &b->rope);
}

/* A GGUF may name a token that config.json is silent about, and one of several. */
static sw_code check_tokens(const checker *c)
{
    const sw_model *a = &c->checkpoint->model, *b = &c->original->model;
    char have[24], want[24];
    sw_code rc = SW_OK;

    if (a->bos_id != b->bos_id && !(c->is_made && (a->bos_id < 0 || b->bos_id < 0))) {
        (void)snprintf(have, sizeof have, "%lld", (long long)a->bos_id);
        (void)snprintf(want, sizeof want, "%lld", (long long)b->bos_id);
        rc = found(c, "bos_token_id", have, want);
    }
    if (rc != SW_OK || (c->is_made && (!a->n_eos || !b->n_eos))) return rc;
    for (int64_t i = 0; i < a->n_eos || i < b->n_eos; i++) {
        int64_t x = i < a->n_eos ? a->eos_ids[i] : -1, y = i < b->n_eos ? b->eos_ids[i] : -1;

        if (x == y || (c->is_made && (x < 0 || y < 0))) continue;
        (void)snprintf(have, sizeof have, "%lld", (long long)x);
        (void)snprintf(want, sizeof want, "%lld", (long long)y);
        return found(c, "eos_token_id", have, want);
    }
    return rc;
}

/* Does the reader of models read this key of this config? Then it minds when it is nonsense. */
static sw_code is_read(bool *out, const cJSON *config, const char *key, const sw_model *as_is,
                       sw_err *err)
{
    cJSON *copy = cJSON_Duplicate(config, true), *nonsense = cJSON_CreateString("?");
    sw_model other;
    sw_err ignored = {0};

    if (!copy || !nonsense ||
        !cJSON_ReplaceItemInObjectCaseSensitive(copy, key, nonsense)) {
        cJSON_Delete(copy);
        cJSON_Delete(nonsense);
        return SW_FAIL(err, SW_E_NOMEM, "no memory for a copy of %s", CONFIG);
    }
    memset(&other, 0, sizeof other);
    *out = sw_model_read(&other, copy, &ignored) != SW_OK || memcmp(&other, as_is, sizeof other);
    cJSON_Delete(copy);
    return SW_OK;
}

/* Qwen's configs keep a window that another key switches off. */
static bool has_no_window(const cJSON *a, const cJSON *b)
{
    const cJSON *x = sw_json_member(a, "use_sliding_window");
    const cJSON *y = sw_json_member(b, "use_sliding_window");

    return (cJSON_IsFalse(x) || cJSON_IsFalse(y)) && !cJSON_IsTrue(x) && !cJSON_IsTrue(y);
}

static bool is_of_window(const char *key)
{
    return !strcmp(key, "sliding_window") || !strcmp(key, "max_window_layers");
}

/* A key that one of the two has; the other comparison has judged those that are read. */
static sw_code check_alone(const checker *c, const char *key, const cJSON *have, const cJSON *want)
{
    const sw_subject *owner = have ? c->checkpoint : c->original;
    char have_text[SW_JSON_DIFF_TEXT_BYTES], want_text[SW_JSON_DIFF_TEXT_BYTES];
    sw_model plain;
    bool is_known = false;
    sw_err ignored = {0};
    sw_code rc;

    if (sw_json_is_nothing(have ? have : want) || !strcmp(key, "architectures")) return SW_OK;
    if (!have && !strcmp(key, "auto_map")) return SW_OK; /* engines take code of their own */
    memset(&plain, 0, sizeof plain);
    if (sw_model_read(&plain, owner->config, &ignored) == SW_OK &&
        (rc = is_read(&is_known, owner->config, key, &plain, c->err)) != SW_OK)
        return rc;
    if (is_known) return SW_OK;
    sw_json_brief(have_text, have);
    sw_json_brief(want_text, want);
    return found(c, key, have_text, want_text);
}

/* Members of a rope object that the reader of models does not know. */
static sw_code check_rope_members(const checker *c, const cJSON *have, const cJSON *want)
{
    sw_json_diff diff;
    char key[SW_JSON_DIFF_PATH_BYTES + 24];
    static const cJSON nothing = {.type = cJSON_Object};
    sw_code rc = sw_json_compare(&diff, cJSON_IsObject(have) ? have : &nothing,
                                 cJSON_IsObject(want) ? want : &nothing, rope_members, c->err);

    if (rc != SW_OK || !diff.n) return rc;
    (void)snprintf(key, sizeof key, "rope_scaling.%s", diff.path);
    return found(c, key, diff.have, diff.want);
}

static const cJSON *rope_object(const cJSON *config)
{
    const cJSON *newer = sw_json_member(config, "rope_parameters");

    return newer ? newer : sw_json_member(config, "rope_scaling");
}

/* Older engines read the older keys: what a config says twice must be one thing. */
static sw_code check_older_rope(const checker *c)
{
    static const char *const free_to_lack[] = {"rope_theta", "type", "partial_rotary_factor", NULL};
    const cJSON *a = c->checkpoint->config, *b = c->original->config;
    const cJSON *theta = sw_json_member(a, "rope_theta");
    const cJSON *older = sw_json_member(a, "rope_scaling");
    char text[SW_JSON_DIFF_TEXT_BYTES];
    sw_json_diff diff;
    sw_code rc;

    if (!sw_json_member(a, "rope_parameters")) return SW_OK;
    if (cJSON_IsNumber(theta) && !sw_json_member(b, "rope_theta") &&
        !is_same_real(theta->valuedouble, c->checkpoint->model.rope.theta)) {
        sw_json_brief(text, theta);
        if ((rc = found(c, "rope_theta", text, "another in rope_parameters")) != SW_OK) return rc;
    }
    if (!older || sw_json_member(b, "rope_scaling")) return SW_OK;
    rc = sw_json_compare(&diff, older, sw_json_member(a, "rope_parameters"), free_to_lack, c->err);
    if (rc != SW_OK || !diff.n) return rc;
    sw_json_brief(text, older);
    return found(c, "rope_scaling", text, "absent");
}

/* Another value that nothing computed depends on: said, and no more. */
static sw_code remark_key(const checker *c, const char *key, const cJSON *have, const cJSON *want)
{
    static const char *const none[] = {NULL};
    char have_text[SW_JSON_DIFF_TEXT_BYTES], want_text[SW_JSON_DIFF_TEXT_BYTES];
    sw_json_diff diff;
    sw_code rc = sw_json_compare(&diff, have, want, none, c->err);

    if (rc != SW_OK || !diff.n) return rc;
    sw_json_brief(have_text, have);
    sw_json_brief(want_text, want);
    return sw_report_remark(c->report, c->err, "%s: %s is %s, the original has %s; nothing that is "
                            "computed depends on it", CONFIG, key, have_text, want_text);
}

static sw_code check_key(const checker *c, const char *key)
{
    const cJSON *a = c->checkpoint->config, *b = c->original->config;
    const cJSON *have = sw_json_member(a, key), *want = sw_json_member(b, key);
    char name[SW_JSON_DIFF_PATH_BYTES + 80];
    sw_json_diff diff;
    sw_code rc;

    if (is_among(usual, key) || is_among(rope_keys, key)) return SW_OK;
    if (is_of_window(key) && has_no_window(a, b)) return remark_key(c, key, have, want);
    if (is_among(cosmetic, key)) return have && want ? remark_key(c, key, have, want) : SW_OK;
    if (!have || !want) return check_alone(c, key, have, want);
    if ((rc = sw_json_compare(&diff, have, want, cosmetic, c->err)) != SW_OK || !diff.n) return rc;
    (void)snprintf(name, sizeof name, "%.60s%s%s", key,
                   *diff.path && *diff.path != '[' ? "." : "", diff.path);
    return found(c, *diff.path ? name : key, diff.have, diff.want);
}

static sw_code check_keys(const checker *c)
{
    const cJSON *a = c->checkpoint->config, *b = c->original->config, *member;
    sw_code rc = SW_OK;

    cJSON_ArrayForEach(member, a)
        if (rc == SW_OK) rc = check_key(c, member->string);
    cJSON_ArrayForEach(member, b)
        if (rc == SW_OK && !sw_json_member(a, member->string)) rc = check_key(c, member->string);
    if (rc == SW_OK) rc = check_older_rope(c);
    return rc == SW_OK ? check_rope_members(c, rope_object(a), rope_object(b)) : rc;
}

static const cJSON *dtype_of(const cJSON *config)
{
    const cJSON *newer = sw_json_member(config, "dtype");

    return newer ? newer : sw_json_member(config, "torch_dtype");
}

/* Another dtype is explained by tensors that are stored in it now and were not before. */
static sw_code check_dtype(const checker *c)
{
    const cJSON *have = dtype_of(c->checkpoint->config), *want = dtype_of(c->original->config);
    const sw_st *st = c->checkpoint->st;
    char have_text[SW_JSON_DIFF_TEXT_BYTES], want_text[SW_JSON_DIFF_TEXT_BYTES];

    if (c->checkpoint->model.dtype == c->original->model.dtype) return SW_OK;
    for (int64_t i = 0; i < sw_st_count(st); i++) {
        const sw_st_tensor *t = sw_st_at(st, i), *was = sw_st_find(c->original->st, t->name);

        if (was && t->view.dtype == c->checkpoint->model.dtype && was->view.dtype != t->view.dtype)
            return SW_OK;
    }
    sw_json_brief(have_text, have);
    sw_json_brief(want_text, want);
    return found(c, "torch_dtype", have_text, want_text);
}

static bool has_dense_mlp(const sw_model *m)
{
    for (int64_t l = 0; l < m->n_layers; l++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(m, l, &n_ops);

        for (int i = 0; i < n_ops; i++)
            if (ops[i].kind == SW_OP_LINEAR &&
                (ops[i].slot == SW_SLOT_UP || ops[i].slot == SW_SLOT_GATE_UP))
                return true;
    }
    return false;
}

/* A GGUF does not say how wide an MLP is that no layer has. */
static bool is_unsaid(const checker *c, const field *f)
{
    return c->is_made && f->offset == offsetof(sw_model, intermediate) &&
           !has_dense_mlp(&c->original->model);
}

sw_code sw_verify_sizes(bool *are_same, sw_report *report, const sw_subject *checkpoint,
                        const sw_subject *original, sw_err *err)
{
    const checker c = {report, checkpoint, original, checkpoint->is_gguf || original->is_gguf, err};
    const int64_t n_before = report->n_findings;
    sw_code rc = SW_OK;

    if (!sw_subject_is_alike(checkpoint, original))
        rc = found(&c, "model_type", checkpoint->model.arch->name, original->model.arch->name);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && rc == SW_OK; i++)
        if (!is_unsaid(&c, &sizes[i]))
            rc = check_field(&c, &sizes[i], &checkpoint->model, &original->model);
    *are_same = report->n_findings == n_before;
    return rc;
}

/* GGUF loaders of some families know no windows: a file says that its context ends with the first
 * one, up to where windows change nothing. */
static bool is_cut_to_window(const checker *c)
{
    const sw_model *made = c->checkpoint->is_gguf ? &c->checkpoint->model : &c->original->model;
    const sw_model *other = c->checkpoint->is_gguf ? &c->original->model : &c->checkpoint->model;
    int64_t shorter = other->sliding_window < other->max_positions ? other->sliding_window
                                                                   : other->max_positions;

    return c->is_made && !made->sliding_window && other->sliding_window &&
           made->max_positions == shorter;
}

static bool is_about_windows(const char *key)
{
    return !strcmp(key, "max_position_embeddings") || !strcmp(key, "sliding_window") ||
           !strcmp(key, "layer_types");
}

sw_code sw_verify_config(sw_report *report, const sw_subject *checkpoint,
                         const sw_subject *original, sw_err *err)
{
    const checker c = {report, checkpoint, original, checkpoint->is_gguf || original->is_gguf, err};
    sw_code rc = c.is_made ? SW_OK : check_keys(&c);

    for (size_t i = 0; i < sizeof fields / sizeof *fields && rc == SW_OK; i++)
        if (!is_about_windows(fields[i].key) || !is_cut_to_window(&c))
            rc = check_field(&c, &fields[i], &checkpoint->model, &original->model);
    if (rc == SW_OK) rc = check_ropes(&c);
    if (rc == SW_OK) rc = check_tokens(&c);
    return rc == SW_OK && !c.is_made ? check_dtype(&c) : rc;
}
