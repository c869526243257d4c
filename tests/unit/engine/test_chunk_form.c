/* test_chunk_form.c - the chunked form of the gated delta rules and of Mamba-2, as the device has
 * it (kernels/cuda/ops/mixers/chunk_form.cuh), in plain C against the walk over tokens: in double
 * precision the two are the same; with the operands of products in BF16 the distance is bounded.
 * Where each channel of keys decays by itself, queries and keys take the decays along.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/half.h"
#include "tests/support/toys/random.h"

enum { CHUNK = 64, BLOCK = 16, TOKENS = 200, KEYS = 32, COLUMNS = 24 };

/* One head of one sequence. */
typedef struct head_case {
    const char *name;
    bool corrects;     /* the delta rule; else Mamba-2 */
    bool is_by_channel;
    double log_decay;  /* the mean of a token's, below 0 */
    double key_center; /* beside normal keys: how much they are alike */
    double far_bf16;   /* relative L2 that BF16 operands keep */
} head_case;

static const head_case cases[] = {
    {"delta rule", true, false, -0.3, 0, 1e-2},
    {"delta rule that forgets nothing", true, false, -1e-4, 0, 1e-2},
    {"delta rule that forgets all", true, false, -400, 0, 1e-2},
    {"delta rule of keys that are alike", true, false, -0.05, 1.5, 2e-2},
    {"delta rule by channel", true, true, -0.3, 0, 1e-2},
    {"delta rule by channel that forgets nothing", true, true, -1e-4, 0, 1e-2},
    {"delta rule by channel that forgets all", true, true, -400, 0, 1e-2},
    {"delta rule by channel of keys that are alike", true, true, -0.05, 1.5, 2e-2},
    {"Mamba-2", false, false, -0.2, 0, 1e-2},
    {"Mamba-2 that forgets nothing", false, false, -1e-4, 0.5, 1e-2},
};

static double q[TOKENS][KEYS], k[TOKENS][KEYS], v[TOKENS][COLUMNS];
static double step[TOKENS], log_decay[TOKENS][KEYS], state[KEYS][COLUMNS];
static double want[TOKENS][COLUMNS], have[TOKENS][COLUMNS];
static bool rounds; /* operands of products to BF16 */

static double operand(double x)
{
    return rounds ? (double)sw_bf16_decode(sw_bf16_encode((float)x)) : x;
}

static void draw(const head_case *c)
{
    test_rng rng = {5};

    for (int t = 0; t < TOKENS; t++) {
        double kk = 0, qq = 0;

        for (int i = 0; i < KEYS; i++) {
            q[t][i] = test_gauss(&rng);
            k[t][i] = test_gauss(&rng) + c->key_center;
            kk += k[t][i] * k[t][i], qq += q[t][i] * q[t][i];
        }
        for (int i = 0; i < KEYS; i++) {
            k[t][i] /= sqrt(kk);
            q[t][i] /= sqrt(qq * KEYS);
        }
        for (int j = 0; j < COLUMNS; j++) v[t][j] = test_gauss(&rng);
        step[t] = test_uniform(&rng);
        for (int i = 0; i < KEYS; i++)
            log_decay[t][i] = i && !c->is_by_channel ? log_decay[t][0]
                                                     : c->log_decay * 2 * test_uniform(&rng);
    }
}

static void walk(const head_case *c)
{
    memset(state, 0, sizeof state);
    for (int t = 0; t < TOKENS; t++) {
        for (int j = 0; j < COLUMNS; j++) {
            double d = v[t][j], out = 0;

            for (int i = 0; i < KEYS; i++) state[i][j] *= exp(log_decay[t][i]);
            for (int i = 0; c->corrects && i < KEYS; i++) d -= state[i][j] * k[t][i];
            for (int i = 0; i < KEYS; i++) state[i][j] += step[t] * d * k[t][i];
            for (int i = 0; i < KEYS; i++) out += state[i][j] * q[t][i];
            want[t][j] = out;
        }
    }
}

static double dot_keys(const double *a, const double *b)
{
    double sum = 0;

    for (int i = 0; i < KEYS; i++) sum += operand(a[i]) * operand(b[i]);
    return sum;
}

/* Rows of a chunk from token t0 on. */
typedef struct chunk_rows {
    int t0, n;
    bool is_by_channel;
    double sum[CHUNK][KEYS];      /* of log_decay, from the chunk's first token on */
    double inverse[CHUNK][CHUNK]; /* of I + L */
    double d[CHUNK][COLUMNS];
} chunk_rows;

static void sum_decays(chunk_rows *c, int t0)
{
    c->t0 = t0;
    c->n = TOKENS - t0 < CHUNK ? TOKENS - t0 : CHUNK;
    for (int t = 0; t < c->n; t++)
        for (int r = 0; r < KEYS; r++)
            c->sum[t][r] = (t ? c->sum[t - 1][r] : 0) + log_decay[t0 + t][r];
}

/* Row t of x times row i of the keys, decays between the two along. By channel a product of
 * matrices has those before the block of 16 tokens that t is in on one side and those since on the
 * other, so that no exponent is above 0; within the block each pair has its own. */
static double pair(const chunk_rows *c, const double (*x)[KEYS], int t, int i)
{
    const double *before = t < BLOCK ? NULL : c->sum[t / BLOCK * BLOCK - 1];
    double sum = 0;

    if (!c->is_by_channel)
        return exp(c->sum[t][0] - c->sum[i][0]) * dot_keys(x[c->t0 + t], k[c->t0 + i]);
    for (int r = 0; r < KEYS; r++) {
        const double a = operand(x[c->t0 + t][r]), b = operand(k[c->t0 + i][r]);

        if (t / BLOCK == i / BLOCK)
            sum += a * b * exp(c->sum[t][r] - c->sum[i][r]);
        else
            sum += operand(a * exp(c->sum[t][r] - before[r])) *
                   operand(b * exp(before[r] - c->sum[i][r]));
    }
    return sum;
}

/* An operand that takes a decay along, which by channel is rounded with it. */
static double decayed(const chunk_rows *c, double x, double log_keep)
{
    return c->is_by_channel ? operand(operand(x) * exp(log_keep)) : operand(x);
}

static void invert(chunk_rows *c)
{
    for (int j = 0; j < c->n; j++) {
        for (int t = 0; t < c->n; t++) {
            double x = t == j;

            for (int i = j; i < t; i++)
                x -= step[c->t0 + t] * pair(c, k, t, i) * c->inverse[i][j];
            c->inverse[t][j] = x;
        }
    }
}

/* D = U - W S of a column. */
static void correct(chunk_rows *c, int column)
{
    for (int t = 0; t < c->n; t++) {
        double u = 0;

        for (int i = 0; i <= t; i++)
            u += operand(c->inverse[t][i] * step[c->t0 + i]) * operand(v[c->t0 + i][column]);
        for (int r = 0; r < KEYS; r++) {
            double w = 0;

            for (int i = 0; i <= t; i++)
                w += operand(c->inverse[t][i] * step[c->t0 + i] *
                             (c->is_by_channel ? 1 : exp(c->sum[i][r]))) *
                     decayed(c, k[c->t0 + i][r], c->sum[i][r]);
            u -= operand(w) * operand(state[r][column]);
        }
        c->d[t][column] = u;
    }
}

static void put_out(const chunk_rows *c, const head_case *hc, int column)
{
    for (int t = 0; t < c->n; t++) {
        double out = 0;

        for (int r = 0; r < KEYS; r++)
            out += decayed(c, q[c->t0 + t][r], c->sum[t][r]) * operand(state[r][column]);
        if (!c->is_by_channel) out *= exp(c->sum[t][0]);
        for (int i = 0; i <= t; i++) {
            const double p = pair(c, q, t, i);

            out += operand(p * (hc->corrects ? 1 : step[c->t0 + i])) * operand(c->d[i][column]);
        }
        have[c->t0 + t][column] = out;
    }
}

static void go_on(const chunk_rows *c, const head_case *hc, int column)
{
    for (int r = 0; r < KEYS; r++) {
        const double *last = c->sum[c->n - 1];
        double sum = exp(last[r]) * state[r][column];

        for (int i = 0; i < c->n; i++) {
            const double to_end = last[r] - c->sum[i][r];
            const double by = c->is_by_channel ? 1 : exp(to_end);

            sum += decayed(c, k[c->t0 + i][r], to_end) *
                   operand(c->d[i][column] * by * (hc->corrects ? 1 : step[c->t0 + i]));
        }
        state[r][column] = sum;
    }
}

static void by_chunks(const head_case *hc)
{
    static chunk_rows c;

    memset(state, 0, sizeof state);
    c.is_by_channel = hc->is_by_channel;
    for (int t0 = 0; t0 < TOKENS; t0 += CHUNK) {
        sum_decays(&c, t0);
        if (hc->corrects) invert(&c);
        for (int j = 0; j < COLUMNS; j++) {
            if (hc->corrects) correct(&c, j);
            for (int t = 0; !hc->corrects && t < c.n; t++) c.d[t][j] = operand(v[t0 + t][j]);
            put_out(&c, hc, j);
            go_on(&c, hc, j);
        }
    }
}

static double distance(void)
{
    double off = 0, all = 0;

    for (int t = 0; t < TOKENS; t++) {
        for (int j = 0; j < COLUMNS; j++) {
            off += (have[t][j] - want[t][j]) * (have[t][j] - want[t][j]);
            all += want[t][j] * want[t][j];
        }
    }
    return sqrt(off / all);
}

static void test_form(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double exact, rounded;

        draw(&cases[i]);
        walk(&cases[i]);
        rounds = false;
        by_chunks(&cases[i]);
        exact = distance();
        rounds = true;
        by_chunks(&cases[i]);
        rounded = distance();
        print_message("%s: %.1e, with BF16 operands %.1e\n", cases[i].name, exact, rounded);
        if (!(exact < 1e-12)) fail_msg("%s: %g", cases[i].name, exact);
        if (!(rounded < cases[i].far_bf16)) fail_msg("%s, BF16: %g", cases[i].name, rounded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_form)};

    return cmocka_run_group_tests_name("recurrent mixers by chunks", tests, NULL, NULL);
}
