/* plain_families.c - the plain decoder (plain_decoder.h) of families that are not built like llama.
 *
 * Written from the models' published descriptions, each family in its own words.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/toys/plain_decoder.h"

/* One layer on its way: x [n, hidden]. */
typedef struct walk {
    const sw_model *m;
    const sw_st *st;
    const char *layers; /* "model.layers" */
    int64_t layer, n;
    double *x;
} walk;

static double *zeros(int64_t n) { return calloc((size_t)n, sizeof(double)); }

static void full(char out[400], const walk *w, const char *name, const char *end)
{
    (void)snprintf(out, 400, "%s.%lld.%s%s", w->layers, (long long)w->layer, name, end);
}

static bool has(const walk *w, const char *name, const char *end)
{
    char text[400];

    full(text, w, name, end);
    return sw_st_find(w->st, text) != NULL;
}

/* The layer's tensor of this name. */
static matrix of(const walk *w, const char *name, const char *end)
{
    char text[400];

    full(text, w, name, end);
    return plain_tensor(w->st, text);
}

/* y [n, outputs] = x w^T + bias; w is stored [outputs, inputs], or turned in gpt2. */
static double *linear(const walk *w, const char *name, const double *x)
{
    const bool is_turned = !strcmp(w->m->arch->name, "gpt2");
    const matrix a = of(w, name, ".weight");
    const int64_t n_out = is_turned ? a.cols : a.rows, k_in = is_turned ? a.rows : a.cols;
    matrix b = {0};
    double *y = zeros(w->n * n_out);

    if (has(w, name, ".bias")) b = of(w, name, ".bias");
    for (int64_t t = 0; t < w->n; t++)
        for (int64_t o = 0; o < n_out; o++) {
            double sum = b.v ? b.v[o] : 0;

            for (int64_t i = 0; i < k_in; i++)
                sum += x[t * k_in + i] * a.v[is_turned ? i * n_out + o : o * k_in + i];
            y[t * n_out + o] = sum;
        }
    free(a.v);
    free(b.v);
    return y;
}

/* In place, with weights stored as they are or less one. */
static void norm(const walk *w, const char *name, double *x, int64_t n_rows, double eps)
{
    const bool is_gemma = !strncmp(w->m->arch->name, "gemma", 5);
    matrix g = of(w, name, ".weight");

    for (int64_t i = 0; i < g.cols && is_gemma; i++) g.v[i] += 1;
    plain_norm(x, x, &g, n_rows, eps);
    free(g.v);
}

static double *normed(const walk *w, const char *name)
{
    double *y = zeros(w->n * w->m->hidden);

    memcpy(y, w->x, (size_t)(w->n * w->m->hidden) * sizeof *y);
    norm(w, name, y, w->n, w->m->norm_eps);
    return y;
}

static void center(double *y, const double *x, const matrix *g, const matrix *b, int64_t n,
                   double eps)
{
    for (int64_t t = 0; t < n; t++) {
        const double *row = x + t * g->cols;
        double mean = 0, spread = 0;

        for (int64_t i = 0; i < g->cols; i++) mean += row[i] / (double)g->cols;
        for (int64_t i = 0; i < g->cols; i++)
            spread += (row[i] - mean) * (row[i] - mean) / (double)g->cols;
        for (int64_t i = 0; i < g->cols; i++)
            y[t * g->cols + i] = (row[i] - mean) / sqrt(spread + eps) * g->v[i] + b->v[i];
    }
}

static double *layer_normed(const walk *w, const char *name)
{
    matrix g = of(w, name, ".weight");
    matrix b = of(w, name, ".bias");
    double *y = zeros(w->n * w->m->hidden);

    center(y, w->x, &g, &b, w->n, w->m->norm_eps);
    free(g.v);
    free(b.v);
    return y;
}

static void add(walk *w, double *branch)
{
    for (int64_t i = 0; i < w->n * w->m->hidden; i++) w->x[i] += branch[i];
    free(branch);
}

/* Rotate `dim` elements from `at` in every head: halves, or neighbours. */
static void turn(const walk *w, double *x, int64_t n_heads, int64_t head, int64_t at, int64_t dim,
                 bool is_paired)
{
    sw_model m = *w->m;

    if (m.has_window_rope && m.is_window_layer[w->layer]) m.rope = m.window_rope;
    for (int64_t r = 0; r < w->n * n_heads; r++)
        for (int64_t i = 0; i < dim / 2; i++) {
            double *a = x + r * head + at + (is_paired ? 2 * i : i);
            double *b = is_paired ? a + 1 : a + dim / 2, low = *a, high = *b;
            const double angle = plain_frequency(&m, i, w->n) * (double)(r / n_heads);
            const double c = cos(angle) * plain_rope_scale(&m);
            const double s = sin(angle) * plain_rope_scale(&m);

            *a = low * c - high * s;
            *b = high * c + low * s;
        }
}

typedef struct scores {
    double scale, cap;
    const double *sinks; /* per head, or NULL */
    int64_t d, v_d;
} scores;

/* One head at one token, keys from `first` to t. */
static void attend(double *out, const double *q, const double *k, const double *v, int64_t k_step,
                   int64_t v_step, int64_t first, int64_t t, const scores *s, int64_t head)
{
    double *p = zeros(t + 1), sum = s->sinks ? exp(s->sinks[head]) : 0;

    for (int64_t j = first; j <= t; j++) {
        p[j] = plain_dot(q, k + j * k_step, s->d) * s->scale;
        if (s->cap > 0) p[j] = s->cap * tanh(p[j] / s->cap);
        sum += p[j] = exp(p[j]); /* toys have small scores */
    }
    for (int64_t j = first; j <= t; j++)
        for (int64_t i = 0; i < s->v_d; i++) out[i] += p[j] / sum * v[j * v_step + i];
    free(p);
}

static double *attention(const walk *w, const double *q, const double *k, const double *v,
                         const scores *s)
{
    const sw_model *m = w->m;
    const int64_t group = m->n_heads / m->n_kv_heads;
    double *out = zeros(w->n * m->n_heads * s->v_d);

    for (int64_t t = 0; t < w->n; t++)
        for (int64_t h = 0; h < m->n_heads; h++) {
            const int64_t seen = m->is_window_layer[w->layer] ? m->sliding_window : t + 1;

            attend(out + (t * m->n_heads + h) * s->v_d, q + (t * m->n_heads + h) * s->d,
                   k + h / group * s->d, v + h / group * s->v_d, m->n_kv_heads * s->d,
                   m->n_kv_heads * s->v_d, t + 1 > seen ? t + 1 - seen : 0, t, s, h);
        }
    return out;
}

/* Columns [from, from + width) of rows of `stride`. */
static double *columns(const double *x, int64_t n, int64_t stride, int64_t from, int64_t width)
{
    double *y = zeros(n * width);

    for (int64_t t = 0; t < n; t++)
        memcpy(y + t * width, x + t * stride + from, (size_t)width * sizeof *y);
    return y;
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double silu(double x) { return x / (1 + exp(-x)); }
static double relu(double x) { return x > 0 ? x : 0; }

static double *gated(const walk *w, const char *prefix, const double *x, int64_t width,
                     double (*act)(double))
{
    char names[3][200];
    double *g, *u, *y;

    for (int i = 0; i < 3; i++)
        (void)snprintf(names[i], 200, "%s.%s_proj", prefix, i ? i == 1 ? "up" : "down" : "gate");
    g = linear(w, names[0], x);
    u = linear(w, names[1], x);
    for (int64_t i = 0; i < w->n * width; i++) g[i] = act(g[i]) * u[i];
    y = linear(w, names[2], g);
    free(g);
    free(u);
    return y;
}

/* q, k, v each from a linear of its own, attended, through the output linear. */
static double *separate(const walk *w, const double *x, const char *out_name, const scores *s,
                        const char *norms, bool has_rope)
{
    const sw_model *m = w->m;
    double *q = linear(w, "self_attn.q_proj", x), *k = linear(w, "self_attn.k_proj", x);
    double *v = linear(w, "self_attn.v_proj", x), *a, *y;
    const bool by_row = !strcmp(norms, "row");

    if (*norms) {
        norm(w, "self_attn.q_norm", q, by_row ? w->n : w->n * m->n_heads, m->norm_eps);
        norm(w, "self_attn.k_norm", k, by_row ? w->n : w->n * m->n_kv_heads, m->norm_eps);
    }
    if (has_rope) {
        turn(w, q, m->n_heads, s->d, 0, m->rope_dim, false);
        turn(w, k, m->n_kv_heads, s->d, 0, m->rope_dim, false);
    }
    a = attention(w, q, k, v, s);
    y = linear(w, out_name, a);
    free(q);
    free(k);
    free(v);
    free(a);
    return y;
}

static void block_olmo2(walk *w, const scores *s)
{
    double *y = separate(w, w->x, "self_attn.o_proj", s, "row", true);

    norm(w, "post_attention_layernorm", y, w->n, w->m->norm_eps);
    add(w, y);
    y = gated(w, "mlp", w->x, w->m->intermediate, silu);
    norm(w, "post_feedforward_layernorm", y, w->n, w->m->norm_eps);
    add(w, y);
}

static void block_gemma(walk *w, const scores *s)
{
    double *x = normed(w, "input_layernorm"), *y;

    y = separate(w, x, "self_attn.o_proj", s, strcmp(w->m->arch->name, "gemma2") ? "head" : "",
                 true);
    free(x);
    norm(w, "post_attention_layernorm", y, w->n, w->m->norm_eps);
    add(w, y);
    x = normed(w, "pre_feedforward_layernorm");
    y = gated(w, "mlp", x, w->m->intermediate, gelu_tanh);
    free(x);
    norm(w, "post_feedforward_layernorm", y, w->n, w->m->norm_eps);
    add(w, y);
}

/* Attention from one linear that holds q, k and v. */
static double *joint(const walk *w, const char *name, const char *out_name, const double *x,
                     const scores *s, bool has_rope)
{
    const sw_model *m = w->m;
    const int64_t nq = m->n_heads * s->d, nkv = m->n_kv_heads * s->d, all = nq + 2 * nkv;
    double *qkv = linear(w, name, x), *q = columns(qkv, w->n, all, 0, nq);
    double *k = columns(qkv, w->n, all, nq, nkv), *v = columns(qkv, w->n, all, nq + nkv, nkv);
    double *a, *y;

    if (has_rope) {
        turn(w, q, m->n_heads, s->d, 0, m->rope_dim, false);
        turn(w, k, m->n_kv_heads, s->d, 0, m->rope_dim, false);
    }
    a = attention(w, q, k, v, s);
    y = linear(w, out_name, a);
    free(qkv);
    free(q);
    free(k);
    free(v);
    free(a);
    return y;
}

static void block_phi3(walk *w, const scores *s)
{
    const int64_t width = w->m->intermediate;
    double *x = normed(w, "input_layernorm"), *both, *g;

    add(w, joint(w, "self_attn.qkv_proj", "self_attn.o_proj", x, s, true));
    free(x);
    x = normed(w, "post_attention_layernorm");
    both = linear(w, "mlp.gate_up_proj", x);
    g = columns(both, w->n, 2 * width, 0, width);
    for (int64_t i = 0; i < w->n * width; i++)
        g[i] = silu(g[i]) * both[i / width * 2 * width + width + i % width];
    add(w, linear(w, "mlp.down_proj", g));
    free(x);
    free(both);
    free(g);
}

static void ungated(walk *w, const char *norm_name, const char *first, const char *second,
                    double (*act)(double))
{
    double *x = layer_normed(w, norm_name), *u = linear(w, first, x);

    for (int64_t i = 0; i < w->n * w->m->intermediate; i++) u[i] = act(u[i]);
    add(w, linear(w, second, u));
    free(x);
    free(u);
}

static void block_opt(walk *w, const scores *s)
{
    double *x = layer_normed(w, "self_attn_layer_norm");

    add(w, separate(w, x, "self_attn.out_proj", s, "", false));
    free(x);
    ungated(w, "final_layer_norm", "fc1", "fc2", relu);
}

static void block_gpt2(walk *w, const scores *s)
{
    double *x = layer_normed(w, "ln_1");

    add(w, joint(w, "attn.c_attn", "attn.c_proj", x, s, false));
    free(x);
    ungated(w, "ln_2", "mlp.c_fc", "mlp.c_proj", gelu_tanh);
}

/* The `n_used` largest of n, larger first, ties to the lower index. */
static void largest(int64_t *out, const double *x, int64_t n, int64_t n_used)
{
    for (int64_t i = 0; i < n_used; i++) {
        out[i] = -1;
        for (int64_t e = 0; e < n; e++) {
            bool is_taken = false;

            for (int64_t j = 0; j < i; j++) is_taken = is_taken || out[j] == e;
            if (!is_taken && (out[i] < 0 || x[e] > x[out[i]])) out[i] = e;
        }
    }
}

/* One token through one expert of the fused tensors: inputs by rows, gate and up in turns. */
static void oss_expert(double *y, const walk *w, int64_t e, const double *x, double share)
{
    const int64_t h = w->m->hidden, wide = w->m->intermediate;
    matrix in = of(w, "mlp.experts.gate_up_proj", "");
    matrix in_b = of(w, "mlp.experts.gate_up_proj_bias", "");
    matrix out = of(w, "mlp.experts.down_proj", "");
    matrix out_b = of(w, "mlp.experts.down_proj_bias", "");
    double *mid = zeros(wide);

    for (int64_t o = 0; o < wide; o++) {
        double g = in_b.v[e * 2 * wide + 2 * o], u = in_b.v[e * 2 * wide + 2 * o + 1];

        for (int64_t i = 0; i < h; i++) {
            g += x[i] * in.v[(e * h + i) * 2 * wide + 2 * o];
            u += x[i] * in.v[(e * h + i) * 2 * wide + 2 * o + 1];
        }
        g = fmin(g, 7);
        u = fmax(fmin(u, 7), -7);
        mid[o] = (u + 1) * g / (1 + exp(-1.702 * g));
    }
    for (int64_t o = 0; o < h; o++) {
        double sum = out_b.v[e * h + o];

        for (int64_t i = 0; i < wide; i++) sum += mid[i] * out.v[(e * wide + i) * h + o];
        y[o] += share * sum;
    }
    for (int i = 0; i < 5; i++) free((double *[]){in.v, in_b.v, out.v, out_b.v, mid}[i]);
}

static void block_gpt_oss(walk *w, const scores *s)
{
    const sw_model *m = w->m;
    matrix sinks = of(w, "self_attn.sinks", "");
    scores mine = *s;
    double *x = normed(w, "input_layernorm"), *y, *logits;

    mine.sinks = sinks.v;
    add(w, separate(w, x, "self_attn.o_proj", &mine, "", true));
    free(x);
    free(sinks.v);
    x = normed(w, "post_attention_layernorm");
    y = zeros(w->n * m->hidden);
    logits = linear(w, "mlp.router", x);
    for (int64_t t = 0; t < w->n; t++) {
        const double *row = logits + t * m->n_experts;
        int64_t used[16];
        double sum = 0;

        largest(used, row, m->n_experts, m->n_experts_used);
        for (int64_t i = 0; i < m->n_experts_used; i++) sum += exp(row[used[i]]);
        for (int64_t i = 0; i < m->n_experts_used; i++)
            oss_expert(y + t * m->hidden, w, used[i], x + t * m->hidden, exp(row[used[i]]) / sum);
    }
    add(w, y);
    free(x);
    free(logits);
}

/* Latent attention: keys and values are made from one short vector per token. */
static double *latent(const walk *w, const double *x, const scores *s)
{
    const sw_model *m = w->m;
    const int64_t r = m->rope_dim, plain = s->d - r, both = plain + s->v_d, heads = m->n_heads;
    double *qa = m->q_rank ? linear(w, "self_attn.q_a_proj", x) : NULL, *q, *a, *y;
    double *kva = linear(w, "self_attn.kv_a_proj_with_mqa", x), *kvb;
    double *c = columns(kva, w->n, m->kv_rank + r, 0, m->kv_rank);
    double *kr = columns(kva, w->n, m->kv_rank + r, m->kv_rank, r);
    double *k = zeros(w->n * heads * s->d), *v = zeros(w->n * heads * s->v_d);

    if (qa) norm(w, "self_attn.q_a_layernorm", qa, w->n, 1e-6);
    norm(w, "self_attn.kv_a_layernorm", c, w->n, 1e-6);
    q = qa ? linear(w, "self_attn.q_b_proj", qa) : linear(w, "self_attn.q_proj", x);
    kvb = linear(w, "self_attn.kv_b_proj", c);
    turn(w, q, heads, s->d, plain, r, true);
    turn(w, kr, 1, r, 0, r, true);
    for (int64_t i = 0; i < w->n * heads; i++) {
        memcpy(k + i * s->d, kvb + i * both, (size_t)plain * sizeof *k);
        memcpy(k + i * s->d + plain, kr + i / heads * r, (size_t)r * sizeof *k);
        memcpy(v + i * s->v_d, kvb + i * both + plain, (size_t)s->v_d * sizeof *v);
    }
    a = attention(w, q, k, v, s);
    y = linear(w, "self_attn.o_proj", a);
    for (int i = 0; i < 9; i++) free((double *[]){qa, q, a, kva, kvb, c, kr, k, v}[i]);
    return y;
}

/* Two best of each group decide which groups stay; in those the shifted sigmoids decide. */
static void route(int64_t *used, const sw_model *m, const double *p, const double *shift)
{
    const int64_t n = m->n_expert_groups, size = m->n_experts / n;
    double *rank = zeros(m->n_experts), *group = zeros(n);
    int64_t best[2], kept[64];

    for (int64_t e = 0; e < m->n_experts; e++) rank[e] = p[e] + shift[e];
    for (int64_t g = 0; g < n; g++) {
        largest(best, rank + g * size, size, 2);
        group[g] = rank[g * size + best[0]] + rank[g * size + best[1]];
    }
    largest(kept, group, n, m->n_groups_used);
    for (int64_t e = 0; e < m->n_experts; e++) {
        bool stays = false;

        for (int64_t i = 0; i < m->n_groups_used; i++) stays = stays || kept[i] == e / size;
        if (!stays) rank[e] = -1e300;
    }
    largest(used, rank, m->n_experts, m->n_experts_used);
    free(rank);
    free(group);
}

static void add_routed(double *y, const walk *w, const double *x)
{
    const sw_model *m = w->m;
    matrix shift = of(w, "mlp.gate.e_score_correction_bias", "");
    double *p = linear(w, "mlp.gate", x);
    walk one = *w;

    one.n = 1;
    for (int64_t t = 0; t < w->n; t++) {
        double *row = p + t * m->n_experts, sum = 0;
        int64_t used[16];

        for (int64_t e = 0; e < m->n_experts; e++) row[e] = 1 / (1 + exp(-row[e]));
        route(used, m, row, shift.v);
        for (int64_t i = 0; i < m->n_experts_used; i++) sum += row[used[i]];
        for (int64_t i = 0; i < m->n_experts_used; i++) {
            char prefix[100];
            double *out;

            (void)snprintf(prefix, sizeof prefix, "mlp.experts.%lld", (long long)used[i]);
            out = gated(&one, prefix, x + t * m->hidden, m->moe_intermediate, silu);
            for (int64_t j = 0; j < m->hidden; j++)
                y[t * m->hidden + j] += out[j] * row[used[i]] / sum * m->route_scale;
            free(out);
        }
    }
    free(shift.v);
    free(p);
}

static void block_deepseek(walk *w, const scores *s)
{
    const sw_model *m = w->m;
    double *x = normed(w, "input_layernorm"), *y;

    add(w, latent(w, x, s));
    free(x);
    x = normed(w, "post_attention_layernorm");
    if (has(w, "mlp.gate.weight", "")) {
        y = gated(w, "mlp.shared_experts", x, m->moe_intermediate, silu);
        add_routed(y, w, x);
    } else {
        y = gated(w, "mlp", x, m->intermediate, silu);
    }
    add(w, y);
    free(x);
}

static const struct {
    const char *name, *layers, *embed, *norm, *norm_bias;
    void (*block)(walk *w, const scores *s);
} families[] = {
#define USUAL "model.layers", "model.embed_tokens.weight", "model.norm.weight", NULL
    {"olmo2", USUAL, block_olmo2},
    {"gemma2", USUAL, block_gemma},
    {"gemma3_text", USUAL, block_gemma},
    {"phi3", USUAL, block_phi3},
    {"gpt_oss", USUAL, block_gpt_oss},
    {"deepseek_v3", USUAL, block_deepseek},
    {"opt", "model.decoder.layers", "model.decoder.embed_tokens.weight",
     "model.decoder.final_layer_norm.weight", "model.decoder.final_layer_norm.bias", block_opt},
    {"gpt2", "transformer.h", "transformer.wte.weight", "transformer.ln_f.weight",
     "transformer.ln_f.bias", block_gpt2},
};

#define N_FAMILIES (sizeof families / sizeof families[0])

/* Token rows, scaled in gemma, plus learned positions where there are some. */
static void embed(double *x, const sw_model *m, const sw_st *st, const matrix *table,
                  const uint32_t *ids, int64_t n)
{
    const bool is_opt = !strcmp(m->arch->name, "opt"), is_gpt2 = !strcmp(m->arch->name, "gpt2");
    const double scale = !strncmp(m->arch->name, "gemma", 5) ? sqrt((double)m->hidden) : 1;
    matrix p = {0};

    if (is_opt) p = plain_tensor(st, "model.decoder.embed_positions.weight");
    if (is_gpt2) p = plain_tensor(st, "transformer.wpe.weight");
    for (int64_t i = 0; i < n * m->hidden; i++) {
        const int64_t t = i / m->hidden, c = i % m->hidden;

        x[i] = table->v[ids[t] * m->hidden + c] * scale;
        if (p.v) x[i] += p.v[(t + (is_opt ? 2 : 0)) * m->hidden + c];
    }
    free(p.v);
}

static void final_norm(double *x, const sw_model *m, const sw_st *st, const char *name,
                       const char *bias, int64_t n)
{
    matrix g = plain_tensor(st, name), b = {0};

    for (int64_t i = 0; i < g.cols && !strncmp(m->arch->name, "gemma", 5); i++) g.v[i] += 1;
    if (bias) {
        b = plain_tensor(st, bias);
        center(x, x, &g, &b, n, m->norm_eps);
        free(b.v);
    } else {
        plain_norm(x, x, &g, n, m->norm_eps);
    }
    free(g.v);
}

bool plain_family_logits(double *logits, const sw_model *m, const sw_st *st, const uint32_t *ids,
                         int64_t n)
{
    const bool is_gemma2 = !strcmp(m->arch->name, "gemma2");
    const scores s = {m->attention_scale, is_gemma2 ? 50 : 0, NULL, m->head_dim, m->v_head_dim};
    walk w = {m, st, NULL, 0, n, NULL};
    matrix table, head;
    size_t f = 0;

    while (f < N_FAMILIES && strcmp(families[f].name, m->arch->name)) f++;
    if (f == N_FAMILIES) return false;
    w.x = zeros(n * m->hidden);
    w.layers = families[f].layers;
    table = plain_tensor(st, families[f].embed);
    head = m->is_tied ? table : plain_tensor(st, "lm_head.weight");
    embed(w.x, m, st, &table, ids, n);
    for (; w.layer < m->n_layers; w.layer++) families[f].block(&w, &s);
    final_norm(w.x, m, st, families[f].norm, families[f].norm_bias, n);
    for (int64_t i = 0; i < n * m->vocab; i++) {
        logits[i] = plain_dot(w.x + i / m->vocab * m->hidden, head.v + i % m->vocab * m->hidden,
                              m->hidden);
        if (is_gemma2) logits[i] = 30 * tanh(logits[i] / 30);
    }
    if (!m->is_tied) free(head.v);
    free(table.v);
    free(w.x);
    return true;
}
