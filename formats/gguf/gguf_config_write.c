/* gguf_config_write.c - the writing half of gguf_config.h. */
#include "formats/gguf/gguf_config.h"

#include <math.h>
#include <string.h>

typedef sw_gguf_config_writer config_writer;

static const sw_gguf_hooks no_hooks = {0};
static const sw_gguf_hooks *hooks_of(const config_writer *c)
{
    return c->arch->hooks ? c->arch->hooks : &no_hooks;
}

/* These loaders know no windows. Up to the end of the window the model computes the same without
 * one, so the file gets the window as the length of its context. */
static bool ends_with_window(const config_writer *c)
{
    static const char *const archs[] = {"llama", "llama4", "phi3", "mistral3", "starcoder2"};

    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (!strcmp(c->arch->gguf, archs[i])) return true;
    return false;
}

static int64_t context_of(const config_writer *c)
{
    const sw_model *m = c->m;
    const int64_t seen = m->attention_chunk ? m->attention_chunk : m->sliding_window;

    if (hooks_of(c)->knows_windows || !seen || seen > m->max_positions) return m->max_positions;
    return seen;
}

static sw_code put_heads(const config_writer *c)
{
    const sw_model *m = c->m;
    const struct {
        const char *leaf;
        int64_t v;
    } rows[] = {
        {"attention.head_count_kv", m->n_kv_heads},
        {"attention.key_length", m->head_dim},
        {"attention.value_length", m->v_head_dim},
        {"rope.dimension_count", m->rope_dim},
    };
    sw_code rc = sw_gguf_write_int(c, "attention.head_count",
                                   hooks_of(c)->has_no_heads ? 0 : m->n_heads);

    if (hooks_of(c)->has_no_heads || hooks_of(c)->has_own_heads) return rc;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++)
        rc = sw_gguf_write_int(c, rows[i].leaf, rows[i].v);
    return rc;
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
    };
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == SW_OK; i++)
        rc = sw_gguf_write_int(c, rows[i].leaf, rows[i].v);
    if (rc == SW_OK && !hooks_of(c)->has_own_widths)
        rc = sw_gguf_write_int(c, "feed_forward_length", m->intermediate);
    if (rc == SW_OK) rc = put_heads(c);
    return rc ? rc : sw_gguf_write_real(c, c->arch->eps_key ? c->arch->eps_key : SW_GGUF_EPS,
                                        m->norm_eps);
}

/* Some store what yarn does to cosines and sines as one number. */
static sw_code put_mscale(const config_writer *c)
{
    const sw_rope *rope = &c->m->rope;
    const double part = hooks_of(c)->yarn_part;

    if (rope->truncate == hooks_of(c)->may_cut_rope)
        return sw_gguf_refuse(c, rope->truncate ? "expect yarn without truncate"
                                                : "know no yarn without truncate");
    if (rope->mscale == 0.0 && rope->mscale_all_dim == 0.0) return SW_OK;
    if (!(part > 0.0) || rope->mscale != rope->mscale_all_dim)
        return sw_gguf_refuse(c, "know no mscale of yarn");
    return sw_gguf_write_real(c, "rope.scaling.yarn_log_multiplier",
                              part * rope->mscale);
}

/* Loaders compute the factor of yarn on cosines by themselves; the key has what is multiplied to
 * it. */
static sw_code put_yarn(const config_writer *c)
{
    const sw_rope *rope = &c->m->rope;
    const double beyond = rope->attention_factor >= 0.0
                              ? rope->attention_factor / sw_gguf_yarn_factor(rope) : 1.0;
    sw_code rc;

    if ((rc = put_mscale(c)) != SW_OK ||
        (rc = sw_gguf_write_int(c, "rope.scaling.original_context_length",
                                rope->original_max_positions)) ||
        (rc = sw_gguf_write_real(c, "rope.scaling.yarn_beta_fast", rope->beta_fast)) != SW_OK ||
        (rc = sw_gguf_write_real(c, "rope.scaling.yarn_beta_slow", rope->beta_slow)) != SW_OK)
        return rc;
    return fabs(beyond - 1.0) > 1e-9 ? sw_gguf_write_real(c, "rope.scaling.attn_factor", beyond)
                                     : SW_OK;
}

double sw_gguf_yarn_factor(const sw_rope *rope)
{
    return rope->factor <= 1.0 || rope->mscale > 0.0 ? 1.0 : 0.1 * log(rope->factor) + 1.0;
}

/* The factors of each pair are tensors, so that only the rest becomes keys. */
static sw_code put_longrope(const config_writer *c)
{
    const sw_rope *rope = &c->m->rope;
    const double stretch = rope->factor <= 1.0
                               ? 1.0 : sqrt(1.0 + log(rope->factor) /
                                                      log((double)rope->original_max_positions));
    sw_code rc;

    if (strcmp(c->arch->gguf, "phi3")) return sw_gguf_refuse(c, "know no longrope");
    if (rope->attention_factor >= 0.0 && fabs(rope->attention_factor - stretch) > 1e-9)
        return sw_gguf_refuse(c, "know the attention factor of longrope by the lengths alone");
    rc = sw_gguf_write_int(c, "rope.scaling.original_context_length",
                           rope->original_max_positions);
    return rc ? rc : sw_gguf_write_real(c, "rope.scaling.attn_factor", stretch);
}

static sw_code put_rope(const config_writer *c)
{
    const sw_rope *rope = &c->m->rope;
    sw_code rc = hooks_of(c)->has_own_rope ? SW_OK
                                           : sw_gguf_write_real(c, "rope.freq_base", rope->theta);

    if (rc != SW_OK || hooks_of(c)->has_own_rope || rope->kind == SW_ROPE_DEFAULT ||
        rope->kind == SW_ROPE_LLAMA3)
        return rc;
    if (rope->kind == SW_ROPE_LONGROPE) return put_longrope(c);
    if (rope->kind != SW_ROPE_LINEAR && rope->kind != SW_ROPE_YARN)
        return SW_FAIL(c->err, SW_E_UNSUPPORTED, "rope type %s has no form as GGUF here; there are "
                       "default, linear, llama3, yarn, longrope", sw_rope_kind_name(rope->kind));
    if ((rc = sw_gguf_write_text(c, "rope.scaling.type", sw_rope_kind_name(rope->kind))) ||
        (rc = sw_gguf_write_real(c, "rope.scaling.factor", rope->factor)) != SW_OK)
        return rc;
    return rope->kind == SW_ROPE_YARN ? put_yarn(c) : SW_OK;
}

static sw_code check_windows(const config_writer *c)
{
    const sw_model *m = c->m;

    if (hooks_of(c)->knows_windows || ends_with_window(c)) return SW_OK;
    for (int64_t l = 0; l < m->n_layers; l++)
        if (m->is_window_layer[l]) return sw_gguf_refuse(c, "know no sliding window");
    return SW_OK;
}

/* Refuse a model for which loaders would take something else for granted, since no key says it. */
static sw_code check_rest(const config_writer *c)
{
    const sw_model *m = c->m;
    const bool turns_whole = !strcmp(c->arch->gguf, "llama") || !strcmp(c->arch->gguf, "falcon");

    if (turns_whole && m->rope_dim != m->head_dim)
        return sw_gguf_refuse(c, "turn whole heads, this model a part");
    if (m->act != m->arch->default_act && m->act != SW_MLP_SWIGLU_CLAMPED)
        return sw_gguf_refuse(c, "know one activation, this model has another");
    return check_windows(c);
}

sw_code sw_gguf_config_write(sw_gguf_writer *w, const sw_model *m, const sw_gguf_arch *arch,
                             const char *name, sw_err *err)
{
    const config_writer c = {w, m, arch, err};
    sw_code rc;

    if ((rc = check_rest(&c)) != SW_OK ||
        (rc = sw_gguf_put_text(w, "general.architecture", arch->gguf, err)) != SW_OK ||
        (rc = sw_gguf_put_text(w, "general.type", "model", err)) != SW_OK ||
        (rc = sw_gguf_put_text(w, "general.name", name, err)) != SW_OK ||
        (rc = put_sizes(&c)) != SW_OK || (rc = put_rope(&c)) != SW_OK ||
        (rc = sw_gguf_write_keys(&c, arch->keys)) != SW_OK)
        return rc;
    return hooks_of(&c)->write ? hooks_of(&c)->write(&c) : SW_OK;
}

static void llama3_divisors(float *out, int64_t n, const sw_model *m)
{
    float scaled[SW_ROPE_PAIRS_MAX], plain[SW_ROPE_PAIRS_MAX], scale;
    sw_rope rope = m->rope;

    sw_rope_frequencies(scaled, &scale, m, &rope, 1);
    rope.kind = SW_ROPE_DEFAULT;
    sw_rope_frequencies(plain, &scale, m, &rope, 1);
    for (int64_t i = 0; i < n; i++) out[i] = plain[i] / scaled[i];
}

/* A pair that does not turn gets a divisor so large that its frequency vanishes. */
static void proportional_divisors(float *out, int64_t n, const sw_rope *rope)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = i < (int64_t)(rope->part * (double)n) ? (float)rope->factor : SW_GGUF_STILL;
}

int sw_gguf_rope_tensors(sw_gguf_rope_tensor out[SW_GGUF_ROPE_TENSORS_MAX], int64_t *n,
                         const sw_model *m)
{
    const sw_rope *rope = &m->rope;

    *n = (rope->dim ? rope->dim : m->rope_dim) / 2;
    out[0].name = SW_GGUF_ROPE_TENSOR;
    if (*n > SW_ROPE_PAIRS_MAX) return 0;
    if (rope->kind == SW_ROPE_PROPORTIONAL) {
        proportional_divisors(out[0].values, *n, rope);
        return 1;
    }
    if (rope->kind == SW_ROPE_LLAMA3) {
        llama3_divisors(out[0].values, *n, m);
        return 1;
    }
    if (rope->kind != SW_ROPE_LONGROPE) return 0;
    out[0].name = SW_GGUF_LONG_TENSOR;
    out[1].name = SW_GGUF_SHORT_TENSOR;
    memcpy(out[0].values, rope->long_factors, sizeof out[0].values);
    memcpy(out[1].values, rope->short_factors, sizeof out[1].values);
    return 2;
}
