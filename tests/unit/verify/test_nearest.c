/* test_nearest.c - originals that came out of codes: what GPTQ makes of them passes though nearly
 * every code is the nearest, and what plain rounding makes of them is held to every single code.
 * And ranges that cut off a weight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/method/algo.h"
#include "quant/run/scheme.h"
#include "tests/support/cases/plausible_case.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/st_build.h"
#include "verify/checks/nearest.h"
#include "verify/checks/plausible.h"

enum { N = 256, K = 256, GROUP = 128, TOKENS = 600 };

static float dense[N * K], lattice[N * K];
static sw_hessian stats; /* of inputs with shared directions */
static sw_qspec spec;

static void decode(float *values, const sw_qtensor *q)
{
    for (int64_t i = 0; i < N * K; i++)
        values[i] = (float)(q->codes[i] - 8) * q->scales[i / K * (K / GROUP) + i % K / GROUP];
}

static void solve(sw_qtensor *q, bool by_gptq, const float *w)
{
    plausible_solve(q, &spec, w, N, K, by_gptq ? &stats : NULL);
}

static int make_inputs(void **state)
{
    float *x = malloc(TOKENS * K * sizeof *x);
    test_rng rng = {7};
    sw_err err = {0};
    sw_qtensor q;

    (void)state;
    assert_non_null(x);
    spec = (sw_qspec){.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = GROUP,
                      .scale_dtype = SW_DTYPE_F16};
    for (int i = 0; i < TOKENS; i++) {
        double shared[8];

        for (int j = 0; j < 8; j++) shared[j] = test_gauss(&rng);
        for (int j = 0; j < K; j++)
            x[i * K + j] = (float)(shared[j % 8] + shared[j / 8 % 8] + 0.4 * test_gauss(&rng));
    }
    assert_int_equal(sw_hessian_new(&stats, K, false, 0, 1, &err), SW_OK);
    assert_int_equal(sw_hessian_add(&stats, x, NULL, NULL, TOKENS, &err), SW_OK);
    sw_hessian_finish(&stats);
    free(x);
    for (int i = 0; i < N * K; i++) dense[i] = (float)(0.02 * test_gauss(&rng));
    solve(&q, false, dense);
    decode(lattice, &q);
    sw_qtensor_free(&q);
    return 0;
}

static int free_inputs(void **state)
{
    (void)state;
    sw_hessian_free(&stats);
    return 0;
}

/* The codes of `n_rows` channels, evenly spaced, become floats between them, as where the second
 * quantizer found another scale. */
static void mix(float *source, int n_rows)
{
    memcpy(source, lattice, sizeof lattice);
    for (int i = 0; i < n_rows; i++)
        memcpy(source + i * (N / n_rows) * K, dense + i * (N / n_rows) * K, K * sizeof *source);
}

/* What the judge says of it; *share: of nearest codes among all. */
static const char *verdict(double *share, const sw_qtensor *q, const float *original)
{
    static char why[SW_PLAUSIBLE_TEXT_BYTES];
    sw_report_tensor figures;

    plausible_judge(why, &figures, q, "gptq_v2", original);
    *share = figures.rounded;
    return why;
}

static void gptq_of_codes_passes(void **state)
{
    static const int n_floats[] = {0, 1, 2, 4, 8, 16};
    static float source[N * K];
    int n_above = 0;

    (void)state;
    for (int i = 0; i < 6; i++) {
        const char *why;
        double share;
        sw_qtensor q;

        if (n_floats[i]) mix(source, n_floats[i]);
        else memcpy(source, lattice, sizeof source);
        solve(&q, true, source);
        why = verdict(&share, &q, source);
        if (*why) fail_msg("%d channels of floats: %s", n_floats[i], why);
        n_above += share > 0.99 && share < 1; /* which once was taken for plain rounding */
        sw_qtensor_free(&q);
    }
    assert_in_range(n_above, 3, 6);
}

/* Two codes of channel n trade places. */
static void swap(sw_qtensor *q, int64_t n)
{
    uint8_t *codes = q->codes + n * K, kept;
    int64_t k = 0;

    while (codes[k] - codes[k + 1] < 2 && codes[k + 1] - codes[k] < 2) k++;
    kept = codes[k];
    codes[k] = codes[k + 1];
    codes[k + 1] = kept;
}

/* Channel 5 is one of codes alone; of floats there are so many that they tell, or none. */
static void one_swap_in_plain_rounding_is_found(void **state)
{
    static const struct {
        int n_floats;
        const char *says;
    } rows[] = {{0, "lies on codes"}, {4, "plainly rounded"},
                {N / 2, "plainly rounded"}, {N, "plainly rounded"}};
    static float source[N * K];

    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *why;
        double share;
        sw_qtensor q;

        /* the lattice is that of the codes of all floats */
        if (rows[i].n_floats) mix(source, rows[i].n_floats);
        else memcpy(source, lattice, sizeof source);
        solve(&q, false, rows[i].n_floats ? source : dense);
        why = verdict(&share, &q, source);
        if (*why) fail_msg("%d channels of floats, sound: %s", rows[i].n_floats, why);
        swap(&q, 5);
        why = verdict(&share, &q, source);
        if (!strstr(why, rows[i].says) || !strstr(why, "channel 5"))
            fail_msg("%d channels of floats: \"%s\"", rows[i].n_floats, why);
        sw_qtensor_free(&q);
    }
}

/* One weight lies beyond the highest code, by some widths of the range of its group. */
static void ranges_may_cut_off_a_weight(void **state)
{
    static const struct {
        double widths;
        int bits;
        bool is_sound;
    } rows[] = {{2.8, 2, true}, {5, 2, false}, {2, 4, true}, {2.8, 4, false}};
    static float source[N * K];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int top = (1 << rows[i].bits) - 1, zero = (top + 1) / 2;
        const int64_t at = 60 * K + 200;
        const char *why;
        double share;
        sw_qtensor q;

        spec.num = sw_num_by_bits(rows[i].bits);
        memcpy(source, dense, sizeof source);
        solve(&q, true, source);
        q.codes[at] = (uint8_t)top;
        source[at] = (float)(top - zero + rows[i].widths * top) * q.scales[60 * (K / GROUP) + 1];
        why = verdict(&share, &q, source);
        if (rows[i].is_sound ? *why != '\0' : !strstr(why, "channel 60"))
            fail_msg("%d bits, %g widths: \"%s\"", rows[i].bits, rows[i].widths, why);
        sw_qtensor_free(&q);
    }
    spec.num = sw_num_by_bits(4);
}

/* `n` weights of a channel of 256, each `steps` from its code. */
static void add_row(sw_nearest *t, int64_t at, double steps, int n)
{
    for (int k = 0; k < n; k++) sw_nearest_add(t, at, k, steps, 0, false);
}

static void bounds_are_where_they_are_stated(void **state)
{
    char why[200];

    (void)state;
    for (int n_far = 0; n_far <= 8; n_far++) { /* of 400 that tell, 8 are 2 % */
        sw_nearest t = {0};

        add_row(&t, 0, 0.4, 391 - n_far);
        add_row(&t, 0, 0.7, n_far);
        add_row(&t, 0, -0.4, 8);
        add_row(&t, 0, 1.4, 1);
        sw_nearest_end_row(&t);
        sw_nearest_check(why, sizeof why, &t);
        assert_int_equal(!!*why, n_far < 8);
    }
    for (int n_floats = 0; n_floats <= 1; n_floats++) /* a channel that is not exact proves none */
        for (int off = 1; off <= 2; off++) {
            sw_nearest t = {0};

            add_row(&t, 0, 0, 200);
            add_row(&t, 0, off, 1);
            add_row(&t, 0, 0.3, n_floats);
            sw_nearest_end_row(&t);
            sw_nearest_check(why, sizeof why, &t);
            assert_int_equal(!!*why, off == 2 && !n_floats);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptq_of_codes_passes),
        cmocka_unit_test(one_swap_in_plain_rounding_is_found),
        cmocka_unit_test(ranges_may_cut_off_a_weight),
        cmocka_unit_test(bounds_are_where_they_are_stated),
    };
    return cmocka_run_group_tests(tests, make_inputs, free_inputs);
}
