/* test_chunk_form.c - the chunked form of the gated delta rule and of Mamba-2, as the device has it
 * (kernels/cuda/ops/mixers/chunk_form.cuh), in plain C against the walk over tokens: in double
 * precision the two are the same; with the operands of products in BF16 the distance is bounded.
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

enum { CHUNK = 64, TOKENS = 200, KEYS = 32, COLUMNS = 24 };

/* One head of one sequence. */
typedef struct head_case {
    const char *name;
    bool corrects;     /* the delta rule; else Mamba-2 */
    double log_decay;  /* the mean of a token's, below 0 */
    double key_center; /* beside normal keys: how much they are alike */
    double far_bf16;   /* relative L2 that BF16 operands keep */
} head_case;

static const head_case cases[] = {
    {"delta rule", true, -0.3, 0, 1e-2},
    {"delta rule that forgets nothing", true, -1e-4, 0, 1e-2},
    {"delta rule that forgets all", true, -400, 0, 1e-2},
    {"delta rule of keys that are alike", true, -0.05, 1.5, 2e-2},
    {"Mamba-2", false, -0.2, 0, 1e-2},
    {"Mamba-2 that forgets nothing", false, -1e-4, 0.5, 1e-2},
};

static double q[TOKENS][KEYS], k[TOKENS][KEYS], v[TOKENS][COLUMNS];
static double step[TOKENS], log_decay[TOKENS], state[KEYS][COLUMNS];
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
        log_decay[t] = c->log_decay * 2 * test_uniform(&rng);
    }
}

static void walk(const head_case *c)
{
    memset(state, 0, sizeof state);
    for (int t = 0; t < TOKENS; t++) {
        for (int j = 0; j < COLUMNS; j++) {
            double d = v[t][j], out = 0;

            for (int i = 0; i < KEYS; i++) state[i][j] *= exp(log_decay[t]);
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
    double sum[CHUNK];            /* of log_decay, from the chunk's first token on */
    double inverse[CHUNK][CHUNK]; /* of I + L */
    double d[CHUNK][COLUMNS];
} chunk_rows;

static void sum_decays(chunk_rows *c, int t0)
{
    c->t0 = t0;
    c->n = TOKENS - t0 < CHUNK ? TOKENS - t0 : CHUNK;
    for (int t = 0; t < c->n; t++) c->sum[t] = (t ? c->sum[t - 1] : 0) + log_decay[t0 + t];
}

static void invert(chunk_rows *c)
{
    for (int j = 0; j < c->n; j++) {
        for (int t = 0; t < c->n; t++) {
            double x = t == j;

            for (int i = j; i < t; i++)
                x -= step[c->t0 + t] * exp(c->sum[t] - c->sum[i]) *
                     dot_keys(k[c->t0 + t], k[c->t0 + i]) * c->inverse[i][j];
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
                w += operand(c->inverse[t][i] * step[c->t0 + i] * exp(c->sum[i])) *
                     operand(k[c->t0 + i][r]);
            u -= operand(w) * operand(state[r][column]);
        }
        c->d[t][column] = u;
    }
}

static void put_out(const chunk_rows *c, const head_case *hc, int column)
{
    for (int t = 0; t < c->n; t++) {
        double out = 0;

        for (int r = 0; r < KEYS; r++) out += operand(q[c->t0 + t][r]) * operand(state[r][column]);
        out *= exp(c->sum[t]);
        for (int i = 0; i <= t; i++) {
            const double p = exp(c->sum[t] - c->sum[i]) * dot_keys(q[c->t0 + t], k[c->t0 + i]);

            out += operand(p * (hc->corrects ? 1 : step[c->t0 + i])) * operand(c->d[i][column]);
        }
        have[c->t0 + t][column] = out;
    }
}

static void go_on(const chunk_rows *c, const head_case *hc, int column)
{
    for (int r = 0; r < KEYS; r++) {
        double sum = exp(c->sum[c->n - 1]) * state[r][column];

        for (int i = 0; i < c->n; i++) {
            const double to_end = exp(c->sum[c->n - 1] - c->sum[i]);

            sum += operand(k[c->t0 + i][r]) *
                   operand(c->d[i][column] * to_end * (hc->corrects ? 1 : step[c->t0 + i]));
        }
        state[r][column] = sum;
    }
}

static void by_chunks(const head_case *hc)
{
    static chunk_rows c;

    memset(state, 0, sizeof state);
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
