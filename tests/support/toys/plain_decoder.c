/* plain_decoder.c - see plain_decoder.h. */
#include "tests/support/toys/plain_decoder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/num.h"

matrix plain_tensor(const sw_st *st, const char *name)
{
    const sw_st_tensor *t = sw_st_find(st, name);
    matrix m = {0};
    float *f;
    int64_t n;

    if (!t) fail_msg("no tensor %s", name);
    m.cols = t->view.shape[t->view.n_dims - 1];
    m.rows = sw_view_elems(&t->view) / m.cols;
    n = m.rows * m.cols;
    f = calloc((size_t)n, sizeof *f);
    m.v = calloc((size_t)n, sizeof *m.v);
    assert_int_equal(sw_float_decode_n(f, t->view.data, t->view.dtype, n, NULL), SW_OK);
    for (int64_t i = 0; i < n; i++) m.v[i] = (double)f[i];
    free(f);
    return m;
}

static matrix in_layer(const sw_st *st, int64_t layer, const char *name)
{
    char full[600];

    (void)snprintf(full, sizeof full, "model.layers.%lld.%s", (long long)layer, name);
    return plain_tensor(st, full);
}

/* y [n, rows] = x [n, cols] w^T, plus the bias beside it when the checkpoint has one. */
static double *linear(const sw_st *st, int64_t layer, const char *name, const double *x, int64_t n)
{
    char leaf[300];
    matrix w, b = {0};
    double *y;

    (void)snprintf(leaf, sizeof leaf, "%s.weight", name);
    w = in_layer(st, layer, leaf);
    (void)snprintf(leaf, sizeof leaf, "model.layers.%lld.%s.bias", (long long)layer, name);
    if (sw_st_find(st, leaf)) b = plain_tensor(st, leaf);
    y = calloc((size_t)(n * w.rows), sizeof *y);
    for (int64_t t = 0; t < n; t++)
        for (int64_t r = 0; r < w.rows; r++) {
            double sum = b.v ? b.v[r] : 0.0;

            for (int64_t c = 0; c < w.cols; c++) sum += w.v[r * w.cols + c] * x[t * w.cols + c];
            y[t * w.rows + r] = sum;
        }
    free(w.v);
    free(b.v);
    return y;
}

void plain_norm(double *y, const double *x, const matrix *w, int64_t n, double eps)
{
    for (int64_t t = 0; t < n; t++) {
        double sum = 0.0;

        for (int64_t i = 0; i < w->cols; i++) sum += x[t * w->cols + i] * x[t * w->cols + i];
        for (int64_t i = 0; i < w->cols; i++)
            y[t * w->cols + i] =
                x[t * w->cols + i] / sqrt(sum / (double)w->cols + eps) * w->v[i];
    }
}

static double yarn_ramp(const sw_model *m, int64_t i)
{
    const double d = (double)m->rope_dim, orig = (double)m->rope.original_max_positions;
    double low = d * log(orig / (2 * M_PI * m->rope.beta_fast)) / (2 * log(m->rope.theta));
    double high = d * log(orig / (2 * M_PI * m->rope.beta_slow)) / (2 * log(m->rope.theta));
    double r;

    if (m->rope.truncate) low = floor(low), high = ceil(high);
    if (low < 0) low = 0;
    if (high > d - 1) high = d - 1;
    if (low == high) high += 0.001;
    r = ((double)i - low) / (high - low);
    return r < 0 ? 0 : r > 1 ? 1 : r;
}

double plain_frequency(const sw_model *m, int64_t i, int64_t n_positions)
{
    const double d = (double)m->rope_dim, factor = m->rope.factor, max = (double)m->max_positions;
    const double f = pow(m->rope.theta, -2.0 * (double)i / d);
    const double turns = (double)m->rope.original_max_positions * f / (2 * M_PI);

    switch (m->rope.kind) {
    case SW_ROPE_LINEAR: return f / factor;
    case SW_ROPE_DYNAMIC: {
        const double len = n_positions > m->max_positions ? (double)n_positions : max;
        const double base =
            m->rope.theta * pow(factor * len / max - (factor - 1), d / (d - 2));

        return pow(base, -2.0 * (double)i / d);
    }
    case SW_ROPE_LLAMA3: {
        const double low = m->rope.low_freq_factor, high = m->rope.high_freq_factor;
        const double s = (turns - low) / (high - low);

        return turns > high ? f : turns < low ? f / factor : (1 - s) * f / factor + s * f;
    }
    case SW_ROPE_YARN: {
        const double r = yarn_ramp(m, i);

        return f / factor * r + f * (1 - r);
    }
    case SW_ROPE_LONGROPE:
        return f / (double)(n_positions > m->rope.original_max_positions
                                ? m->rope.long_factors[i] : m->rope.short_factors[i]);
    default: return f;
    }
}

double plain_rope_scale(const sw_model *m)
{
    const sw_rope *r = &m->rope;

    if (r->kind != SW_ROPE_YARN && r->kind != SW_ROPE_LONGROPE) return 1.0;
    if (r->attention_factor >= 0) return r->attention_factor;
    if (r->factor <= 1) return 1.0;
    if (r->kind == SW_ROPE_LONGROPE)
        return sqrt(1 + log(r->factor) / log((double)r->original_max_positions));
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return (0.1 * r->mscale * log(r->factor) + 1) /
               (0.1 * r->mscale_all_dim * log(r->factor) + 1);
    return 0.1 * log(r->factor) + 1;
}

static void rotate(double *x, const sw_model *m, int64_t n, int64_t n_heads)
{
    const int64_t d = m->head_dim;

    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < n_heads; h++)
            for (int64_t i = 0; i < d / 2; i++) {
                double *pair = x + (t * n_heads + h) * d + i;
                const double angle = plain_frequency(m, i, n) * (double)t;
                const double c = cos(angle) * plain_rope_scale(m);
                const double s = sin(angle) * plain_rope_scale(m);
                const double low = pair[0], high = pair[d / 2];

                pair[0] = low * c - high * s;
                pair[d / 2] = high * c + low * s;
            }
}

double plain_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* One head at one token: softmax over the keys it may see. */
static void attend(double *out, const double *q, const double *k, const double *v, int64_t stride,
                   int64_t d, int64_t first, int64_t last)
{
    double *p = calloc((size_t)last + 1, sizeof *p), top = -HUGE_VAL, sum = 0.0;

    for (int64_t j = first; j <= last; j++) {
        p[j] = plain_dot(q, k + j * stride, d) / sqrt((double)d);
        if (p[j] > top) top = p[j];
    }
    for (int64_t j = first; j <= last; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t j = first; j <= last; j++)
        for (int64_t i = 0; i < d; i++) out[i] += p[j] / sum * v[j * stride + i];
    free(p);
}

static double *attention(const sw_model *m, const sw_st *st, int64_t layer, const double *x,
                         int64_t n)
{
    const int64_t d = m->head_dim, group = m->n_heads / m->n_kv_heads, kv = m->n_kv_heads * d;
    double *q = linear(st, layer, "self_attn.q_proj", x, n);
    double *k = linear(st, layer, "self_attn.k_proj", x, n);
    double *v = linear(st, layer, "self_attn.v_proj", x, n);
    double *a = calloc((size_t)(n * m->n_heads * d), sizeof *a), *y;
    char name[300];

    (void)snprintf(name, sizeof name, "model.layers.%lld.self_attn.q_norm.weight",
                   (long long)layer);
    if (sw_st_find(st, name)) {
        matrix wq = in_layer(st, layer, "self_attn.q_norm.weight");
        matrix wk = in_layer(st, layer, "self_attn.k_norm.weight");

        plain_norm(q, q, &wq, n * m->n_heads, m->norm_eps);
        plain_norm(k, k, &wk, n * m->n_kv_heads, m->norm_eps);
        free(wq.v);
        free(wk.v);
    }
    rotate(q, m, n, m->n_heads);
    rotate(k, m, n, m->n_kv_heads);
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < m->n_heads; h++) {
            const int64_t window = m->is_window_layer[layer] ? m->sliding_window : t + 1;
            const int64_t first = t - window + 1 > 0 ? t - window + 1 : 0;

            attend(a + (t * m->n_heads + h) * d, q + (t * m->n_heads + h) * d, k + h / group * d,
                   v + h / group * d, kv, d, first, t);
        }
    y = linear(st, layer, "self_attn.o_proj", a, n);
    free(q);
    free(k);
    free(v);
    free(a);
    return y;
}

static double *gated(const sw_st *st, int64_t layer, const char *gate_name, const char *up_name,
                     const char *down_name, const double *x, int64_t n, int64_t width)
{
    double *g = linear(st, layer, gate_name, x, n), *u = linear(st, layer, up_name, x, n), *y;

    for (int64_t i = 0; i < n * width; i++) g[i] = g[i] / (1.0 + exp(-g[i])) * u[i];
    y = linear(st, layer, down_name, g, n);
    free(g);
    free(u);
    return y;
}

static void add_expert(double *y, const sw_model *m, const sw_st *st, int64_t layer, int64_t e,
                       const double *x, double share)
{
    const bool is_mixtral = !strcmp(m->arch->name, "mixtral");
    const char *leaves[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
    char names[3][200];
    double *one;

    for (int i = 0; i < 3; i++)
        (void)snprintf(names[i], sizeof names[i], "%s.experts.%lld.%s",
                       is_mixtral ? "block_sparse_moe" : "mlp", (long long)e,
                       leaves[is_mixtral][i]);
    one = gated(st, layer, names[0], names[1], names[2], x, 1, m->moe_intermediate);
    for (int64_t i = 0; i < m->hidden; i++) y[i] += share * one[i];
    free(one);
}

static double *sparse(const sw_model *m, const sw_st *st, int64_t layer, const double *x, int64_t n)
{
    const char *router = !strcmp(m->arch->name, "mixtral") ? "block_sparse_moe.gate" : "mlp.gate";
    double *y = calloc((size_t)(n * m->hidden), sizeof *y), *p = linear(st, layer, router, x, n);

    for (int64_t t = 0; t < n; t++) {
        double *row = p + t * m->n_experts, top = -HUGE_VAL, sum = 0.0, taken = 0.0;
        int64_t order[SW_EXPERTS_MAX];

        for (int64_t e = 0; e < m->n_experts; e++) top = fmax(top, row[e]);
        for (int64_t e = 0; e < m->n_experts; e++) sum += row[e] = exp(row[e] - top);
        for (int64_t e = 0; e < m->n_experts; e++) { /* insertion sort, larger first */
            int64_t at = e;

            for (; at > 0 && row[order[at - 1]] < row[e]; at--) order[at] = order[at - 1];
            order[at] = e;
        }
        for (int64_t i = 0; i < m->n_experts_used; i++) taken += row[order[i]];
        for (int64_t i = 0; i < m->n_experts_used; i++)
            add_expert(y + t * m->hidden, m, st, layer, order[i], x + t * m->hidden,
                       row[order[i]] / (m->norm_topk ? taken : sum));
    }
    free(p);
    return y;
}

static void half_block(double *x, double *branch, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += branch[i];
    free(branch);
}

static void llama_logits(double *logits, const sw_model *m, const sw_st *st, const uint32_t *ids,
                         int64_t n)
{
    matrix embed = plain_tensor(st, "model.embed_tokens.weight");
    matrix last = plain_tensor(st, "model.norm.weight");
    matrix head = m->is_tied ? embed : plain_tensor(st, "lm_head.weight");
    double *x = calloc((size_t)(n * m->hidden), sizeof *x), *y = calloc((size_t)(n * m->hidden), 8);

    for (int64_t t = 0; t < n; t++)
        memcpy(x + t * m->hidden, embed.v + ids[t] * m->hidden, (size_t)m->hidden * sizeof *x);
    for (int64_t l = 0; l < m->n_layers; l++) {
        matrix w1 = in_layer(st, l, "input_layernorm.weight");
        matrix w2 = in_layer(st, l, "post_attention_layernorm.weight");

        plain_norm(y, x, &w1, n, m->norm_eps);
        half_block(x, attention(m, st, l, y, n), n * m->hidden);
        plain_norm(y, x, &w2, n, m->norm_eps);
        if (sw_model_is_sparse(m, l))
            half_block(x, sparse(m, st, l, y, n), n * m->hidden);
        else
            half_block(x, gated(st, l, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", y, n,
                                m->intermediate), n * m->hidden);
        free(w1.v);
        free(w2.v);
    }
    plain_norm(y, x, &last, n, m->norm_eps);
    for (int64_t t = 0; t < n; t++)
        for (int64_t i = 0; i < m->vocab; i++)
            logits[t * m->vocab + i] =
                plain_dot(y + t * m->hidden, head.v + i * m->hidden, m->hidden);
    if (!m->is_tied) free(head.v);
    free(embed.v);
    free(last.v);
    free(x);
    free(y);
}

void plain_logits(double *logits, const sw_model *m, const sw_st *st, const uint32_t *ids,
                  int64_t n)
{
    if (!plain_family_logits(logits, m, st, ids, n)) llama_logits(logits, m, st, ids, n);
}
