/* test_mixers.c - the recurrent mixers against loops in double precision written from the formulas,
 * in one call, token by token and in uneven pieces, on one thread and on three.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/engine/mixers/gated_delta.h"
#include "kernels/engine/mixers/gated_norm.h"
#include "kernels/engine/mixers/short_conv.h"
#include "kernels/engine/mixers/ssd.h"
#include "tests/support/toys/random.h"

#define N_SEQS 2
#define N_TOKENS 21
#define N_ROWS (N_SEQS * N_TOKENS)
#define WIDTH_MAX 700
#define STATE_MAX 8192
#define FAR 1e-5 /* relative L2 distance that float32 must keep */

/* How one sequence's tokens are cut into calls; 0 ends a row. */
static const int64_t cuts[][N_TOKENS + 1] = {
    {N_TOKENS},
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {2, 1, 7, 3, 8},
};
#define N_CUTS (sizeof cuts / sizeof cuts[0])

static void fill(float *x, int64_t n, double center, double size, test_rng *rng)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(center + test_gauss(rng) * size);
}

static double distance(const float *have, const double *want, int64_t n)
{
    double off = 0.0, all = 0.0;

    for (int64_t i = 0; i < n; i++) {
        off += ((double)have[i] - want[i]) * ((double)have[i] - want[i]);
        all += want[i] * want[i];
    }
    return sqrt(off / all);
}

static void expect_near(const char *what, const float *have, const double *want, int64_t n)
{
    const double far = distance(have, want, n);

    if (!(far < FAR)) fail_msg("%s: distance %g, allowed %g", what, far, FAR);
}

static double silu(double x) { return x / (1 + exp(-x)); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* ---- short convolution ---- */

typedef struct conv_case {
    int64_t width, n_taps;
    bool has_silu, has_bias, has_gates;
} conv_case;

static const conv_case conv_cases[] = {
    {300, 4, true, false, false}, {257, 4, true, true, false}, {64, 3, false, false, true},
    {5, 2, true, true, true},     {7, 1, false, true, false},
};

typedef struct conv_data {
    float x[N_ROWS * WIDTH_MAX], before[N_ROWS * WIDTH_MAX], after[N_ROWS * WIDTH_MAX];
    float taps[16 * WIDTH_MAX], bias[WIDTH_MAX], have[N_ROWS * WIDTH_MAX];
    float state[N_SEQS * 15 * WIDTH_MAX];
    double want[N_ROWS * WIDTH_MAX];
} conv_data;

static void want_conv(conv_data *d, const conv_case *c)
{
    for (int64_t s = 0; s < N_SEQS; s++)
        for (int64_t t = 0; t < N_TOKENS; t++)
            for (int64_t i = 0; i < c->width; i++) {
                const int64_t at = (s * N_TOKENS + t) * c->width + i;
                double sum = c->has_bias ? (double)d->bias[i] : 0.0;

                for (int64_t j = 0; j < c->n_taps && j <= t; j++) {
                    const int64_t from = at - j * c->width;
                    const double gate = c->has_gates ? (double)d->before[from] : 1.0;

                    sum += (double)d->taps[(c->n_taps - 1 - j) * c->width + i] *
                           (double)d->x[from] * gate;
                }
                if (c->has_silu) sum = silu(sum);
                d->want[at] = c->has_gates ? sum * (double)d->after[at] : sum;
            }
}

static void run_conv(conv_data *d, const conv_case *c, int64_t first, int64_t n_seqs,
                     int64_t seq_len, float *state, int n_threads)
{
    const int64_t at = first * c->width;
    const sw_short_conv conv = {
        .x = d->have + at, .before = c->has_gates ? d->before + at : NULL,
        .after = c->has_gates ? d->after + at : NULL, .taps = d->taps,
        .bias = c->has_bias ? d->bias : NULL, .state = state, .n_seqs = n_seqs,
        .seq_len = seq_len, .width = c->width, .stride = c->width, .n_taps = c->n_taps,
        .has_silu = c->has_silu, .vec = sw_vec_best(), .n_threads = n_threads,
    };

    sw_short_conv_run(&conv);
}

static void test_short_conv(void **state)
{
    static conv_data d;
    test_rng rng = {1};

    (void)state;
    for (size_t i = 0; i < sizeof conv_cases / sizeof conv_cases[0]; i++) {
        const conv_case *c = &conv_cases[i];
        const int64_t n = N_ROWS * c->width, kept = sw_short_conv_state(c->n_taps, c->width);

        fill(d.x, n, 0, 1, &rng);
        fill(d.before, n, 0, 1, &rng);
        fill(d.after, n, 0, 1, &rng);
        fill(d.taps, c->n_taps * c->width, 0, 0.5, &rng);
        fill(d.bias, c->width, 0, 0.5, &rng);
        want_conv(&d, c);
        memcpy(d.have, d.x, (size_t)n * sizeof *d.x);
        run_conv(&d, c, 0, N_SEQS, N_TOKENS, NULL, 3);
        expect_near("convolution without a state", d.have, d.want, n);
        for (size_t cut = 0; cut < N_CUTS; cut++) {
            memcpy(d.have, d.x, (size_t)n * sizeof *d.x);
            memset(d.state, 0, sizeof d.state);
            for (int64_t s = 0; s < N_SEQS; s++)
                for (int64_t k = 0, t = s * N_TOKENS; cuts[cut][k]; t += cuts[cut][k++])
                    run_conv(&d, c, t, 1, cuts[cut][k], d.state + s * kept, 1);
            expect_near("convolution in pieces", d.have, d.want, n);
        }
    }
}

/* ---- gated delta rule ---- */

typedef struct delta_case {
    int64_t n_heads, n_key_heads, d_k, d_v;
    bool is_by_channel;
} delta_case;

static const delta_case delta_cases[] = {
    {4, 2, 16, 32, false}, {3, 3, 8, 70, false}, {2, 2, 32, 32, true}, {6, 2, 5, 7, true},
};

typedef struct delta_data {
    float q[N_ROWS * WIDTH_MAX], k[N_ROWS * WIDTH_MAX], v[N_ROWS * WIDTH_MAX];
    float a[N_ROWS * WIDTH_MAX], b[N_ROWS * WIDTH_MAX], a_log[WIDTH_MAX], dt_bias[WIDTH_MAX];
    float state[N_SEQS * STATE_MAX], have[N_ROWS * WIDTH_MAX], scratch[3 * STATE_MAX];
    double want[N_ROWS * WIDTH_MAX];
} delta_data;

static double g_of(const delta_data *d, const delta_case *c, int64_t row, int64_t h, int64_t i)
{
    const int64_t n = c->is_by_channel ? c->d_k : 1, at = h * n + (c->is_by_channel ? i : 0);
    const double step = log(1 + exp((double)d->a[row * c->n_heads * n + at] +
                                    (double)d->dt_bias[at]));

    return exp(-exp((double)d->a_log[h]) * step);
}

static double size_of(const float *x, int64_t n)
{
    double sum = 1e-6;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void want_delta_token(delta_data *d, const delta_case *c, double *s, int64_t row, int64_t h)
{
    const int64_t key = row * c->n_key_heads + h / (c->n_heads / c->n_key_heads);
    const int64_t at = row * c->n_heads + h;
    const float *q = d->q + key * c->d_k, *k = d->k + key * c->d_k, *v = d->v + at * c->d_v;
    const double q_size = size_of(q, c->d_k) * sqrt((double)c->d_k), k_size = size_of(k, c->d_k);
    const double beta = sigmoid((double)d->b[at]);

    for (int64_t i = 0; i < c->d_k; i++)
        for (int64_t j = 0; j < c->d_v; j++) s[i * c->d_v + j] *= g_of(d, c, row, h, i);
    for (int64_t j = 0; j < c->d_v; j++) {
        double seen = 0.0, out = 0.0;

        for (int64_t i = 0; i < c->d_k; i++) seen += s[i * c->d_v + j] * (double)k[i] / k_size;
        for (int64_t i = 0; i < c->d_k; i++) {
            s[i * c->d_v + j] += (double)k[i] / k_size * beta * ((double)v[j] - seen);
            out += s[i * c->d_v + j] * (double)q[i] / q_size;
        }
        d->want[at * c->d_v + j] = out;
    }
}

static void want_delta(delta_data *d, const delta_case *c)
{
    for (int64_t seq = 0; seq < N_SEQS; seq++)
        for (int64_t h = 0; h < c->n_heads; h++) {
            double s[STATE_MAX] = {0};

            for (int64_t t = 0; t < N_TOKENS; t++)
                want_delta_token(d, c, s, seq * N_TOKENS + t, h);
        }
}

static void run_delta(delta_data *d, const delta_case *c, int64_t first, int64_t n_seqs,
                      int64_t seq_len, float *state, int n_threads)
{
    const int64_t keys = c->n_key_heads * c->d_k, values = c->n_heads * c->d_v;
    const int64_t per_head = c->is_by_channel ? c->d_k : 1;
    const sw_gated_delta job = {
        .q = d->q + first * keys, .k = d->k + first * keys, .v = d->v + first * values,
        .q_stride = keys, .k_stride = keys, .v_stride = values, .b = d->b + first * c->n_heads,
        .a = d->a + first * c->n_heads * per_head, .a_log = d->a_log, .dt_bias = d->dt_bias,
        .is_by_channel = c->is_by_channel, .state = state, .out = d->have + first * values,
        .n_seqs = n_seqs, .seq_len = seq_len, .n_heads = c->n_heads,
        .n_key_heads = c->n_key_heads, .d_k = c->d_k, .d_v = c->d_v, .vec = sw_vec_best(),
        .scratch = d->scratch, .n_threads = n_threads,
    };

    assert_true(sw_gated_delta_scratch(c->d_k, c->d_v, n_threads) <= 3 * STATE_MAX);
    sw_gated_delta_run(&job);
}

static void fill_delta(delta_data *d, const delta_case *c, test_rng *rng)
{
    const int64_t per_head = c->is_by_channel ? c->d_k : 1;

    fill(d->q, N_ROWS * c->n_key_heads * c->d_k, 0, 1, rng);
    fill(d->k, N_ROWS * c->n_key_heads * c->d_k, 0, 1, rng);
    fill(d->v, N_ROWS * c->n_heads * c->d_v, 0, 1, rng);
    fill(d->a, N_ROWS * c->n_heads * per_head, 0, 1, rng);
    fill(d->b, N_ROWS * c->n_heads, 0, 1, rng);
    fill(d->a_log, c->n_heads, 0, 1, rng);
    fill(d->dt_bias, c->n_heads * per_head, -2, 1, rng);
}

static void test_gated_delta(void **state)
{
    static delta_data d;
    test_rng rng = {2};

    (void)state;
    for (size_t i = 0; i < sizeof delta_cases / sizeof delta_cases[0]; i++) {
        const delta_case *c = &delta_cases[i];
        const int64_t n = N_ROWS * c->n_heads * c->d_v;
        const int64_t size = sw_gated_delta_state(c->n_heads, c->d_k, c->d_v);

        fill_delta(&d, c, &rng);
        want_delta(&d, c);
        run_delta(&d, c, 0, N_SEQS, N_TOKENS, NULL, 3);
        expect_near("delta rule without a state", d.have, d.want, n);
        for (size_t cut = 0; cut < N_CUTS; cut++) {
            memset(d.state, 0, sizeof d.state);
            memset(d.have, 0, sizeof d.have);
            for (int64_t s = 0; s < N_SEQS; s++)
                for (int64_t k = 0, t = s * N_TOKENS; cuts[cut][k]; t += cuts[cut][k++])
                    run_delta(&d, c, t, 1, cuts[cut][k], d.state + s * size, 1);
            expect_near("delta rule in pieces", d.have, d.want, n);
        }
    }
}

/* ---- Mamba-2 ---- */

typedef struct ssd_case {
    int64_t n_heads, n_groups, d_head, d_state;
    double dt_min, dt_max;
} ssd_case;

static const ssd_case ssd_cases[] = {
    {4, 2, 16, 8, 0, HUGE_VAL}, {3, 1, 65, 16, 0.3, 0.9}, {4, 4, 7, 5, 0.001, HUGE_VAL},
};

typedef struct ssd_data {
    float rows[N_ROWS * WIDTH_MAX]; /* x, B, C, dt */
    float a_log[WIDTH_MAX], d[WIDTH_MAX], dt_bias[WIDTH_MAX], state[N_SEQS * STATE_MAX];
    float have[N_ROWS * WIDTH_MAX], scratch[3 * STATE_MAX];
    double want[N_ROWS * WIDTH_MAX];
} ssd_data;

static int64_t ssd_stride(const ssd_case *c)
{
    return c->n_heads * c->d_head + 2 * c->n_groups * c->d_state + c->n_heads;
}

static void want_ssd(ssd_data *d, const ssd_case *c)
{
    const int64_t wide = c->n_heads * c->d_head, groups = c->n_groups * c->d_state;

    for (int64_t h = 0; h < c->n_heads; h++) {
        const int64_t g = h * c->n_groups / c->n_heads * c->d_state;
        double s[STATE_MAX] = {0};

        for (int64_t t = 0; t < N_ROWS; t++) {
            const float *x = d->rows + t * ssd_stride(c), *b = x + wide + g;
            const double raw = log(1 + exp((double)x[wide + 2 * groups + h] +
                                           (double)d->dt_bias[h]));
            const double dt = fmin(fmax(raw, c->dt_min), c->dt_max);

            if (t % N_TOKENS == 0) memset(s, 0, sizeof s);
            for (int64_t i = 0; i < c->d_head; i++) {
                const double in = (double)x[h * c->d_head + i];
                double out = (double)d->d[h] * in;

                for (int64_t n = 0; n < c->d_state; n++) {
                    double *cell = &s[i * c->d_state + n];

                    *cell = *cell * exp(-exp((double)d->a_log[h]) * dt) + dt * in * (double)b[n];
                    out += *cell * (double)b[groups + n];
                }
                d->want[t * wide + h * c->d_head + i] = out;
            }
        }
    }
}

static void run_ssd(ssd_data *d, const ssd_case *c, int64_t first, int64_t n_seqs, int64_t seq_len,
                    float *state, int n_threads)
{
    const int64_t wide = c->n_heads * c->d_head, groups = c->n_groups * c->d_state;
    const float *x = d->rows + first * ssd_stride(c);
    const sw_ssd job = {
        .x = x, .b = x + wide, .c = x + wide + groups, .dt = x + wide + 2 * groups,
        .stride = ssd_stride(c), .a_log = d->a_log, .d = d->d, .dt_bias = d->dt_bias,
        .dt_min = c->dt_min, .dt_max = c->dt_max, .state = state, .out = d->have + first * wide,
        .n_seqs = n_seqs, .seq_len = seq_len, .n_heads = c->n_heads, .n_groups = c->n_groups,
        .d_head = c->d_head, .d_state = c->d_state, .vec = sw_vec_best(), .scratch = d->scratch,
        .n_threads = n_threads,
    };

    assert_true(sw_ssd_scratch(c->d_head, c->d_state, n_threads) <= 3 * STATE_MAX);
    sw_ssd_run(&job);
}

static void test_ssd(void **state)
{
    static ssd_data d;
    test_rng rng = {3};

    (void)state;
    for (size_t i = 0; i < sizeof ssd_cases / sizeof ssd_cases[0]; i++) {
        const ssd_case *c = &ssd_cases[i];
        const int64_t n = N_ROWS * c->n_heads * c->d_head;
        const int64_t size = sw_ssd_state(c->n_heads, c->d_head, c->d_state);

        fill(d.rows, N_ROWS * ssd_stride(c), 0, 1, &rng);
        fill(d.a_log, c->n_heads, 0.5, 0.5, &rng);
        fill(d.d, c->n_heads, 1, 0.3, &rng);
        fill(d.dt_bias, c->n_heads, -1, 1, &rng);
        want_ssd(&d, c);
        run_ssd(&d, c, 0, N_SEQS, N_TOKENS, NULL, 3);
        expect_near("state space without a state", d.have, d.want, n);
        for (size_t cut = 0; cut < N_CUTS; cut++) {
            memset(d.state, 0, sizeof d.state);
            memset(d.have, 0, sizeof d.have);
            for (int64_t s = 0; s < N_SEQS; s++)
                for (int64_t k = 0, t = s * N_TOKENS; cuts[cut][k]; t += cuts[cut][k++])
                    run_ssd(&d, c, t, 1, cuts[cut][k], d.state + s * size, 1);
            expect_near("state space in pieces", d.have, d.want, n);
        }
    }
}

/* ---- norm and gate ---- */

typedef struct norm_case {
    int64_t width, group, w_width;
    bool is_sigmoid, gates_first;
} norm_case;

static const norm_case norm_cases[] = {
    {96, 32, 32, false, false}, {64, 16, 16, true, false}, {96, 96, 96, false, true},
    {90, 30, 90, false, true},  {33, 33, 0, false, true},
};

static void want_norm(double *want, const norm_case *c, const float *x, const float *z,
                      const float *w)
{
    for (int64_t at = 0; at < c->width; at += c->group) {
        double y[WIDTH_MAX], mean = 0.0;

        for (int64_t i = 0; i < c->group; i++) {
            const double v = (double)z[at + i], gate = c->is_sigmoid ? sigmoid(v) : silu(v);

            y[i] = (double)x[at + i] * (c->gates_first ? gate : 1.0);
            mean += y[i] * y[i] / (double)c->group;
            want[at + i] = c->gates_first ? 1.0 : gate;
        }
        for (int64_t i = 0; i < c->group; i++) {
            want[at + i] *= y[i];
            if (c->w_width)
                want[at + i] *= (double)w[(at + i) % c->w_width] / sqrt(mean + 1e-5);
        }
    }
}

static void test_gated_norm(void **state)
{
    static float x[N_ROWS * WIDTH_MAX], z[N_ROWS * WIDTH_MAX], w[WIDTH_MAX];
    static double want[N_ROWS * WIDTH_MAX];
    test_rng rng = {4};

    (void)state;
    for (size_t i = 0; i < sizeof norm_cases / sizeof norm_cases[0]; i++) {
        const norm_case *c = &norm_cases[i];
        const int64_t stride = c->width + 5;
        const sw_gated_norm job = {
            .x = x, .z = z, .w = c->w_width ? w : NULL, .n = N_ROWS, .width = c->width,
            .z_stride = stride, .group = c->group, .w_width = c->w_width, .eps = 1e-5,
            .is_sigmoid = c->is_sigmoid, .gates_first = c->gates_first, .vec = sw_vec_best(),
            .n_threads = 2,
        };

        fill(x, N_ROWS * c->width, 0, 2, &rng);
        fill(z, N_ROWS * stride, 0, 2, &rng);
        fill(w, c->width, 1, 0.3, &rng);
        for (int64_t t = 0; t < N_ROWS; t++)
            want_norm(want + t * c->width, c, x + t * c->width, z + t * stride, w);
        sw_gated_norm_run(&job);
        expect_near("norm and gate", x, want, N_ROWS * c->width);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_conv), cmocka_unit_test(test_gated_delta),
        cmocka_unit_test(test_ssd), cmocka_unit_test(test_gated_norm),
    };
    return cmocka_run_group_tests_name("mixers", tests, NULL, NULL);
}
