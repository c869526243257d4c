/* gguf_config_write.c - the writing half of gguf_config.h. */
#include "formats/gguf/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES 128
#define LOCAL_THETA 1e4

typedef struct config_writer {
    sw_gguf_writer *w;
    const sw_model *m;
    const sw_gguf_arch *arch;
    sw_err *err;
} config_writer;

static sw_code put_int(const config_writer *c, const char *leaf, int64_t v)
{
    char key[KEY_BYTES];

    (void)snprintf(key, sizeof key, "%s.%s", c->arch->gguf, leaf);
    return sw_gguf_put_int(c->w, key, SW_GGUF_U32, v, c->err);
}

static sw_code put_real(const config_writer *c, const char *leaf, double v)
{
    char key[KEY_BYTES];

    (void)snprintf(key, sizeof key, "%s.%s", c->arch->gguf, leaf);
    return sw_gguf_put_real(c->w, key, v, c->err);
}

static sw_code put_text(const config_writer *c, const char *leaf, const char *text)
{
    char key[KEY_BYTES];

    (void)snprintf(key, sizeof key, "%s.%s", c->arch->gguf, leaf);
    return sw_gguf_put_text(c->w, key, text, c->err);
}

static sw_code refuse(const config_writer *c, const char *what)
{
    return SW_FAIL(c->err, SW_E_UNSUPPORTED, "%s: loaders of GGUF architecture %s %s",
                   c->m->arch->name, c->arch->gguf, what);
}

static bool is_gemma(const config_writer *c) { return !strncmp(c->arch->gguf, "gemma", 5); }

/* Windows of the llama family are unknown to its loaders; up to the window they change nothing. */
static int64_t context_of(const config_writer *c)
{
    if (is_gemma(c) || !c->m->sliding_window) return c->m->max_positions;
    return c->m->sliding_window < c->m->max_positions ? c->m->sliding_window : c->m->max_positions;
}

static sw_code put_sizes(const config_writer *c)
{
    const sw_model *m = c->m;
    const struct {
        const char *leaf;
        int64_t v;
    } rows[] = {
        {"vocab_size", m->vocab},
        {"context_length", context_of(c)},
        {"embedding_length", m->hidden},
        {"block_count", m->n_layers},
        {"feed_forward_length", m->intermediate},
        {"attention.head_count", m->n_heads},
        {"attention.head_count_kv", m->n_kv_heads},
        {"attention.key_length", m->head_dim},
        {"attention.value_length", m->v_head_dim},
        {"rope.dimension_count", m->rope_dim},
    };
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++)
        rc = put_int(c, rows[i].leaf, rows[i].v);
    if (rc == SW_OK) rc = put_real(c, "attention.layer_norm_rms_epsilon", m->norm_eps);
    return rc;
}

static sw_code put_experts(const config_writer *c)
{
    sw_code rc;

    if (!c->m->n_experts) return SW_OK;
    for (int64_t l = 0; l < c->m->n_layers; l++)
        if (!sw_model_is_sparse(c->m, l)) return refuse(c, "expect experts in every layer");
    if (!c->m->norm_topk) return refuse(c, "renormalize the weights of experts, this model does "
                                        "not");
    if ((rc = put_int(c, "expert_count", c->m->n_experts)) != SW_OK ||
        (rc = put_int(c, "expert_used_count", c->m->n_experts_used)) != SW_OK)
        return rc;
    return strcmp(c->arch->gguf, "llama")
               ? put_int(c, "expert_feed_forward_length", c->m->moe_intermediate) : SW_OK;
}

static sw_code put_rope(const config_writer *c)
{
    const sw_rope *rope = &c->m->rope;
    sw_code rc = put_real(c, "rope.freq_base", rope->theta);

    if (rc != SW_OK || rope->kind == SW_ROPE_DEFAULT || rope->kind == SW_ROPE_LLAMA3) return rc;
    if (rope->kind != SW_ROPE_LINEAR && rope->kind != SW_ROPE_YARN)
        return SW_FAIL(c->err, SW_E_UNSUPPORTED, "rope type %s has no form as GGUF here; there are "
                       "default, linear, llama3, yarn", sw_rope_kind_name(rope->kind));
    if ((rc = put_text(c, "rope.scaling.type", sw_rope_kind_name(rope->kind))) != SW_OK ||
        (rc = put_real(c, "rope.scaling.factor", rope->factor)) != SW_OK ||
        rope->kind == SW_ROPE_LINEAR)
        return rc;
    if (rope->mscale != 0.0 || !rope->truncate)
        return refuse(c, "know neither mscale nor truncate of yarn");
    if ((rc = put_int(c, "rope.scaling.original_context_length", rope->original_max_positions)) ||
        (rc = put_real(c, "rope.scaling.yarn_beta_fast", rope->beta_fast)) != SW_OK ||
        (rc = put_real(c, "rope.scaling.yarn_beta_slow", rope->beta_slow)) != SW_OK)
        return rc;
    return rope->attention_factor >= 0.0
               ? put_real(c, "rope.scaling.attn_factor", rope->attention_factor) : SW_OK;
}

/* What loaders take for granted: scores over sqrt(head_dim), or over sqrt(hidden / heads) in the
 * largest of each generation, which they know by its number of layers. */
static sw_code check_scores(const config_writer *c)
{
    const sw_model *m = c->m;
    const bool is_largest = is_gemma(c) && m->n_layers == (strcmp(c->arch->gguf, "gemma2") ? 62
                                                                                           : 46);
    const double scalar = is_largest ? (double)(m->hidden / m->n_heads) : (double)m->head_dim;

    if (fabs(m->attention_scale * sqrt(scalar) - 1.0) > 1e-6)
        return refuse(c, "divide scores by another number (query_pre_attn_scalar)");
    return SW_OK;
}

static sw_code put_gemma3(const config_writer *c)
{
    const sw_model *m = c->m;
    sw_code rc;

    if (!m->sliding_window) return SW_OK;
    if (m->window_rope.kind != SW_ROPE_DEFAULT)
        return refuse(c, "know no scaled rope for window layers");
    if ((rc = put_real(c, "rope.freq_base_swa", m->window_rope.theta)) != SW_OK) return rc;
    rc = sw_gguf_put_array(c->w, "gemma3.attention.sliding_window_pattern", SW_GGUF_BOOL,
                           (uint64_t)m->n_layers, c->err);
    for (int64_t l = 0; l < m->n_layers && rc == SW_OK; l++)
        rc = sw_gguf_put_elem_int(c->w, m->is_window_layer[l], c->err);
    return rc;
}

static sw_code put_gemma(const config_writer *c)
{
    const sw_model *m = c->m;
    const bool is_second = !strcmp(c->arch->gguf, "gemma2");
    sw_code rc;

    if (!is_gemma(c)) return SW_OK;
    for (int64_t l = 0; l < m->n_layers && is_second; l++)
        if (m->is_window_layer[l] != ((l + 1) % 2 != 0))
            return refuse(c, "expect windows in every second layer");
    if (!is_second && m->attention_cap > 0.0) return refuse(c, "know no cap of scores");
    if (m->sliding_window &&
        (rc = put_int(c, "attention.sliding_window", m->sliding_window)) != SW_OK)
        return rc;
    if (m->attention_cap > 0.0 &&
        (rc = put_real(c, "attn_logit_softcapping", m->attention_cap)) != SW_OK)
        return rc;
    if (m->logits_cap > 0.0 &&
        (rc = put_real(c, "final_logit_softcapping", m->logits_cap)) != SW_OK)
        return rc;
    return is_second ? SW_OK : put_gemma3(c);
}

static sw_code check_windows(const config_writer *c)
{
    if (is_gemma(c) || !strcmp(c->arch->gguf, "llama") || !c->m->sliding_window) return SW_OK;
    for (int64_t l = 0; l < c->m->n_layers; l++)
        if (c->m->is_window_layer[l]) return refuse(c, "know no sliding window");
    return SW_OK;
}

sw_code sw_gguf_config_write(sw_gguf_writer *w, const sw_model *m, const sw_gguf_arch *arch,
                             const char *name, sw_err *err)
{
    const config_writer c = {w, m, arch, err};
    sw_code rc;

    if ((rc = check_scores(&c)) != SW_OK || (rc = check_windows(&c)) != SW_OK) return rc;
    if (m->rope_dim != m->head_dim) return refuse(&c, "turn whole heads, this model a part");
    if ((rc = sw_gguf_put_text(w, "general.architecture", arch->gguf, err)) != SW_OK ||
        (rc = sw_gguf_put_text(w, "general.type", "model", err)) != SW_OK ||
        (rc = sw_gguf_put_text(w, "general.name", name, err)) != SW_OK ||
        (rc = put_sizes(&c)) != SW_OK || (rc = put_rope(&c)) != SW_OK ||
        (rc = put_experts(&c)) != SW_OK)
        return rc;
    return put_gemma(&c);
}

void sw_gguf_rope_divisors(float out[SW_ROPE_PAIRS_MAX], int64_t *n, const sw_model *m)
{
    float scaled[SW_ROPE_PAIRS_MAX], plain[SW_ROPE_PAIRS_MAX], scale;
    sw_rope rope = m->rope;

    *n = 0;
    if (rope.kind != SW_ROPE_LLAMA3 || m->rope_dim > 2 * SW_ROPE_PAIRS_MAX) return;
    sw_rope_frequencies(scaled, &scale, m, &rope, 1);
    rope.kind = SW_ROPE_DEFAULT;
    sw_rope_frequencies(plain, &scale, m, &rope, 1);
    *n = m->rope_dim / 2;
    for (int64_t i = 0; i < *n; i++) out[i] = plain[i] / scaled[i];
}
