/* test_vec.c - the row-wise arithmetic against double precision, and every table against the
 * baseline byte for byte. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "formats/num/half.h"
#include "kernels/cpu/simd/features.h"
#include "kernels/engine/vec/vec.h"
#include "tests/support/toys/random.h"

#define N_MAX 1031

static int tables(const sw_vec *out[3])
{
    int n = 0;

    out[n++] = &sw_vec_any;
    if (sw_cpu_has_avx2()) out[n++] = &sw_vec_avx2;
    if (sw_cpu_has_avx512()) out[n++] = &sw_vec_avx512;
    return n;
}

/* Distance from the true value in units of the last place of the nearest float. */
static double ulps(float have, double want)
{
    const double size = fmax(fabs(want), 0x1p-126);
    int exponent;

    (void)frexp(size, &exponent);
    return fabs((double)have - want) / ldexp(1.0, exponent - 24);
}

static void test_exp_over_all_exponents(void **state)
{
    float x[4096], y[4096];
    double worst = 0.0;

    (void)state;
    /* a prime stride through all bit patterns visits every exponent and sign thousands of times */
    for (uint64_t bits = 0; bits < 0x100000000u;) {
        int n = 0;

        for (; n < 4096 && bits < 0x100000000u; bits += 1009) {
            const float v = sw_f32_from_bits((uint32_t)bits);

            if (v > -104.0f && v < 88.7f) x[n++] = v;
        }
        sw_vec_best()->exp(y, x, n);
        for (int i = 0; i < n; i++) worst = fmax(worst, ulps(y[i], exp((double)x[i])));
    }
    print_message("exp: worst error %.3f ulp\n", worst);
    assert_true(worst > 0.1 && worst <= 2.0);
}

static void test_exp_at_the_ends(void **state)
{
    const float x[] = {0.0f, -0.0f, -INFINITY, INFINITY, NAN, -1000.0f, 1000.0f, 88.73f, -103.0f,
                       -104.5f, 1e-30f};
    float y[11];

    (void)state;
    sw_vec_best()->exp(y, x, 11);
    assert_true(y[0] == 1.0f && y[1] == 1.0f && y[2] == 0.0f && y[3] == INFINITY);
    assert_true(isnan(y[4]) && y[5] == 0.0f && y[6] == INFINITY && y[7] == INFINITY);
    assert_true(y[8] == 0x1p-149f && y[9] == 0.0f && y[10] == 1.0f);
}

static void fill(float *x, int64_t n, double size, test_rng *rng)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(test_gauss(rng) * size);
}

static void check_formulas(const sw_vec *vec, int64_t n, test_rng *rng)
{
    float x[N_MAX], w[N_MAX], y[N_MAX], u[N_MAX];
    double squares = 0.0, sum = 0.0, top = -HUGE_VAL;

    fill(x, n, 3.0, rng);
    fill(w, n, 1.0, rng);
    for (int64_t i = 0; i < n; i++) {
        squares += (double)x[i] * (double)x[i];
        sum += exp((double)x[i] - 1.0);
        top = fmax(top, (double)x[i]);
    }
    vec->rms_norm(y, x, w, n, 1e-5f);
    for (int64_t i = 0; i < n; i++) {
        const double want = (double)x[i] * (double)w[i] / sqrt(squares / (double)n + 1e-5);

        assert_true(fabs((double)y[i] - want) <= 4e-7 * fabs(want) + 1e-12);
    }
    memcpy(u, w, sizeof u);
    memcpy(y, x, sizeof y);
    vec->swiglu(y, u, n);
    for (int64_t i = 0; i < n; i++) {
        const double want = (double)x[i] / (1 + exp(-(double)x[i])) * (double)u[i];

        assert_true(fabs((double)y[i] - want) <= 6e-7 * fabs(want) + 1e-12);
    }
    assert_true((double)vec->max(x, n) == top);
    memcpy(y, x, sizeof y);
    assert_true(fabs((double)vec->exp_sum(y, 1.0f, n) - sum) <= 2e-6 * sum);
}

static void check_layer_norm(const sw_vec *vec, int64_t n, test_rng *rng)
{
    float x[N_MAX], w[N_MAX], b[N_MAX], y[N_MAX];
    double mean = 0.0, spread = 0.0;

    fill(x, n, 3.0, rng);
    fill(w, n, 1.0, rng);
    fill(b, n, 1.0, rng);
    for (int64_t i = 0; i < n; i++) mean += (double)(x[i] += 20.0f) / (double)n;
    for (int64_t i = 0; i < n; i++)
        spread += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    vec->layer_norm(y, x, w, b, n, 1e-5f);
    for (int64_t i = 0; i < n; i++) {
        const double unit = ((double)x[i] - mean) / sqrt(spread + 1e-5);

        /* the mean is rounded to a float before it is taken off */
        assert_true(fabs((double)y[i] - (unit * (double)w[i] + (double)b[i])) <=
                    1e-6 * (fabs(unit * (double)w[i]) + fabs((double)b[i])) +
                        2e-6 * fabs((double)w[i]) / sqrt(spread + 1e-5));
    }
}

static double true_silu(double x) { return x / (1 + exp(-x)); }
static double true_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double true_relu(double x) { return x < 0 ? 0 : x; }
static double true_relu_squared(double x) { return x < 0 ? 0 : x * x; }
static double true_gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2.0)); }
static double true_cap(double x) { return 2.5 * tanh(x / 2.5); }
static double true_gelu_tanh(double x)
{
    const double z = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

    return x / (1 + exp(-2 * z)); /* = x (1 + tanh z) / 2 */
}

/* Relative. The exponent of gelu_tanh grows with the cube of x, and so does its rounding. */
static double allowed_error(const char *name, double x)
{
    if (!strcmp(name, "relu")) return 0;
    if (!strcmp(name, "relu_squared") || !strcmp(name, "gelu")) return 6e-8;
    return 6e-7 + (strcmp(name, "gelu_tanh") ? 0 : x * x * fabs(x) * 4e-7);
}

/* From -30 to 30, small values and both zeros too. */
static void check_activation(const char *name, void (*act)(float *, int64_t),
                             double (*want_of)(double))
{
    static float x[N_MAX], y[N_MAX];

    for (int i = 0; i < N_MAX; i++)
        x[i] = i < 1000 ? (float)(i - 500) * 0.06f : ldexpf(i % 2 ? 1.1f : -1.1f, 1000 - i);
    x[N_MAX - 1] = -0.0f;
    memcpy(y, x, sizeof x);
    act(y, N_MAX);
    for (int i = 0; i < N_MAX; i++) {
        const double v = (double)x[i], want = want_of(v);

        if (!(fabs((double)y[i] - want) <= allowed_error(name, v) * fabs(want) + 1e-37))
            fail_msg("%s of %g: %.9g, want %.9g", name, v, (double)y[i], want);
    }
}

static const sw_vec *capping;
static void cap_at_2_5(float *x, int64_t n) { capping->softcap(x, 2.5f, n); }

static void test_activations(void **state)
{
    const sw_vec *all[3];
    const int n_tables = tables(all);

    (void)state;
    for (int t = 0; t < n_tables; t++) {
#define SW_ACTIVATION(id, symbol) check_activation(#symbol, all[t]->symbol, true_##symbol);
#define SW_ACTIVATION_NAME(name, id)
#include "formats/model/activations.def"
#undef SW_ACTIVATION
#undef SW_ACTIVATION_NAME
        check_activation("sigmoid", all[t]->sigmoid, true_sigmoid);
        capping = all[t];
        check_activation("softcap", cap_at_2_5, true_cap);
    }
}

static void test_clamped_gate(void **state)
{
    const float g[] = {-20, -1, 0, 3, 7, 7.5f, 100}, u[] = {-9, -7, 0.5f, 2, 6.9f, 8, -100};
    float y[7];

    (void)state;
    memcpy(y, g, sizeof y);
    sw_vec_best()->swiglu_clamped(y, u, 7.0f, 7);
    for (int i = 0; i < 7; i++) {
        const double gate = fmin((double)g[i], 7), up = fmax(fmin((double)u[i], 7), -7);
        const double want = gate / (1 + exp(-1.702 * gate)) * (up + 1);

        assert_true(fabs((double)y[i] - want) <= 3e-6 * fabs(want));
    }
}

static void test_formulas(void **state)
{
    const sw_vec *all[3];
    const int n_tables = tables(all);
    test_rng rng = {7};

    (void)state;
    for (int t = 0; t < n_tables; t++)
        for (int64_t n = 1; n < 80; n++) {
            check_formulas(all[t], n, &rng);
            check_layer_norm(all[t], n, &rng);
        }
    for (int t = 0; t < n_tables; t++) check_formulas(all[t], N_MAX, &rng);
}

static void test_rotation(void **state)
{
    float x[6] = {1, 2, 3, 4, 5, 6};
    const float c[3] = {0.5f, 1.0f, 0.0f}, s[3] = {2.0f, 0.0f, 1.0f};

    (void)state;
    sw_vec_best()->rotate(x, c, s, 3);
    assert_true(x[0] == 0.5f - 8.0f && x[3] == 2.0f + 2.0f);
    assert_true(x[1] == 2.0f && x[4] == 5.0f);
    assert_true(x[2] == -6.0f && x[5] == 3.0f);
    for (int i = 0; i < 6; i++) x[i] = (float)(i + 1);
    sw_vec_best()->rotate_pairs(x, c, s, 3);
    assert_true(x[0] == 0.5f - 4.0f && x[1] == 2.0f + 1.0f);
    assert_true(x[2] == 3.0f && x[3] == 4.0f);
    assert_true(x[4] == -6.0f && x[5] == 5.0f);
}

/* Every operation on the same input: bytes must agree, so that a machine's choice is no result. */
static void all_operations(const sw_vec *vec, float *out, int64_t n)
{
    test_rng rng = {(uint64_t)n};
    float x[N_MAX], w[N_MAX];

    fill(x, n, 5.0, &rng);
    fill(w, n, 1.0, &rng);
    vec->rms_norm(out, x, w, n, 1e-6f);
    vec->swiglu(out, x, n);
    vec->add(out, w, n);
    vec->add_scaled(out, x, 0.37f, n);
    vec->rotate(out, x, w, n / 2);
    vec->scale(out, 1.1f, n);
    vec->layer_norm(out, out, w, x, n, 1e-5f);
    vec->rotate_pairs(out, x, w, n / 2);
    vec->swiglu_clamped(out, x, 1.5f, n);
    vec->mul(out, x, n);
    vec->gelu_tanh(out, n);
    vec->silu(out, n);
    vec->add(out, x, n);
    vec->gelu(out, n);
    vec->sigmoid(out, n);
    vec->add(out, x, n);
    vec->softcap(out, 3.0f, n);
    vec->relu(out, n);
    vec->add(out, x, n);
    if (n >= 8) { /* a state of eight rows, and what is left over of the output */
        vec->state_read(w, out, x, 8, n / 8);
        vec->state_step(w, out, x, w, x, w + n / 8, 8, n / 8);
        vec->add(out, w, n / 8);
    }
    out[n] = vec->max(x, n);
    out[n + 1] = vec->exp_sum(x, 5.0f, n);
    memcpy(out + n + 2, x, (size_t)n * sizeof *x);
}

static void test_tables_agree(void **state)
{
    const sw_vec *all[3];
    const int n_tables = tables(all);
    float want[2 * N_MAX + 2], have[2 * N_MAX + 2];

    (void)state;
    for (int64_t n = 1; n <= N_MAX; n += n < 70 ? 1 : 137) {
        all_operations(all[0], want, n);
        for (int t = 1; t < n_tables; t++) {
            all_operations(all[t], have, n);
            if (memcmp(want, have, (size_t)(2 * n + 2) * sizeof *want))
                fail_msg("table %d differs at length %lld", t, (long long)n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_over_all_exponents), cmocka_unit_test(test_exp_at_the_ends),
        cmocka_unit_test(test_formulas),               cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_tables_agree),            cmocka_unit_test(test_activations),
        cmocka_unit_test(test_clamped_gate),
    };
    return cmocka_run_group_tests_name("vec", tests, NULL, NULL);
}
