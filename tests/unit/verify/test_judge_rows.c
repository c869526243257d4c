/* test_judge_rows.c - the fast loops of the judge against the plain sentences that they stand for:
 * codes out of streams, values row by row, sums over runs and windows, counts of nearest codes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/toys/random.h"
#include "verify/base/metrics.h"
#include "verify/checks/nearest.h"
#include "verify/checks/plausible.h"
#include "verify/checks/run_sums.h"
#include "verify/checks/window_sums.h"
#include "verify/decoders/decode_spec_parts.h"
#include "verify/metrics/linear_rows.h"

#define SLACK 1e-12 /* of sums in another order */

static uint64_t below(test_rng *rng, uint64_t n) { return test_u64(rng) % n; }

static void assert_close(double have, double want, double size)
{
    if (!(fabs(have - want) <= SLACK * (size + 1)))
        fail_msg("have %.17g, want %.17g", have, want);
}

static void test_codes_of_a_stream(void **state)
{
    unsigned char words[4 * 3 * 80];
    uint8_t have[77];
    test_rng rng = {3};

    (void)state;
    for (size_t i = 0; i < sizeof words; i++) words[i] = (unsigned char)below(&rng, 256);
    for (int bits = 1; bits <= 8; bits++)
        for (int is_padded = 0; is_padded < 2; is_padded++)
            for (int stride = 1; stride <= 3; stride++) {
                const sw_spec_stream s = {words, stride, bits, is_padded ? 32 / bits : 0};

                sw_spec_codes(have, &s, 77);
                for (int i = 0; i < 77; i++)
                    assert_int_equal(have[i], sw_spec_code_at(&s, i));
            }
}

enum { N_OUT = 5, K_IN = 43, N_GROUPS = 4 };

typedef struct toy {
    sw_spec_weight w;
    uint8_t codes[N_OUT * K_IN];
    float scales[N_OUT * N_GROUPS], offsets[N_OUT * N_GROUPS];
    int32_t zeros[N_OUT * N_GROUPS], group_of[K_IN];
    bool is_outlier[K_IN];
} toy;

/* Groups in disorder, as where inputs were taken by their size; two outliers. */
static void fill_toy(toy *t, bool is_float, bool has_offsets)
{
    test_rng rng = {11};

    *t = (toy){.w = {.n_out = N_OUT, .k_in = K_IN, .n_groups = N_GROUPS, .bits = 4,
                     .global = 0.75f}};
    for (int i = 0; i < N_OUT * K_IN; i++) t->codes[i] = (uint8_t)below(&rng, 16);
    for (int i = 0; i < N_OUT * N_GROUPS; i++) {
        t->scales[i] = (float)(0.01 + 0.001 * (double)below(&rng, 50));
        t->offsets[i] = (float)(0.1 * test_gauss(&rng));
        t->zeros[i] = is_float ? 0 : (int32_t)below(&rng, 16);
    }
    for (int k = 0; k < K_IN; k++)
        t->group_of[k] = k < 20 ? k / 10 : (int32_t)below(&rng, N_GROUPS);
    t->is_outlier[7] = t->is_outlier[K_IN - 1] = true;
    t->w.codes = t->codes;
    t->w.scales = t->scales;
    t->w.zeros = t->zeros;
    t->w.group_of = t->group_of;
    t->w.is_outlier = t->is_outlier;
    if (has_offsets) t->w.offsets = t->offsets;
    if (is_float) {
        t->w.exponent_bits = 2;
        t->w.mantissa_bits = 1;
    }
}

static float value_of(const toy *t, int64_t n, int64_t k)
{
    const int64_t cell = n * N_GROUPS + t->group_of[k];
    const float level = (float)sw_spec_level(&t->w, t->codes[n * K_IN + k], t->zeros[cell]);
    const float v = t->scales[cell] * level * t->w.global;

    return t->w.offsets ? v + t->offsets[cell] : v;
}

static void check_rows(const toy *t)
{
    double columns[K_IN], rows[N_OUT];
    sw_linear_rows r;
    float have[K_IN];
    sw_err err = {0};

    for (int k = 0; k < K_IN; k++) columns[k] = 1 + 0.01 * k;
    for (int n = 0; n < N_OUT; n++) rows[n] = 2 + n;
    assert_int_equal(sw_linear_rows_of_codes(&r, &t->w, &err), SW_OK);
    for (int with = 0; with < 4; with++) {
        r.columns = with & 1 ? columns : NULL;
        r.rows = with & 2 ? rows : NULL;
        for (int64_t n = 0; n < N_OUT; n++)
            for (int64_t from = 0; from < K_IN; from += 9)
                for (int64_t count = 1; from + count <= K_IN; count += 6) {
                    sw_linear_rows_get(have, &r, n, from, count);
                    for (int64_t k = from; k < from + count; k++) {
                        double want = (double)value_of(t, n, k);

                        if (with) want = (double)(float)(want * (with & 1 ? columns[k] : 1) /
                                                         (with & 2 ? rows[n] : 1));
                        assert_true((double)have[k - from] >= want);
                        assert_true((double)have[k - from] <= want);
                    }
                }
    }
    sw_linear_rows_free(&r);
}

static void test_rows_of_codes(void **state)
{
    static toy t;

    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        fill_toy(&t, kind & 1, kind & 2);
        check_rows(&t);
    }
}

static void test_runs_cover_a_row(void **state)
{
    static toy t;
    sw_spec_rows rows;
    sw_err err = {0};
    int64_t at = 0;

    (void)state;
    fill_toy(&t, false, false);
    assert_int_equal(sw_spec_rows_new(&rows, &t.w, &err), SW_OK);
    for (int64_t i = 0; i < rows.n_runs; i++) {
        const sw_spec_run *run = &rows.runs[i];

        assert_int_equal(run->k, at);
        for (int64_t k = run->k; k < run->k + run->n; k++) {
            assert_int_equal(t.group_of[k], run->group);
            assert_int_equal(t.is_outlier[k], run->is_outlier);
            assert_int_equal(sw_spec_rows_run_at(&rows, k), i);
        }
        at += run->n;
    }
    assert_int_equal(at, K_IN);
    sw_spec_rows_free(&rows);
}

static void test_sums_of_columns(void **state)
{
    static toy t;
    static float want[N_OUT * K_IN];
    const sw_linear_rows original = sw_linear_rows_of(want, N_OUT, K_IN);
    sw_linear_rows have;
    sw_column_sums sums;
    test_rng rng = {5};
    sw_err err = {0};

    (void)state;
    fill_toy(&t, false, false);
    for (int i = 0; i < N_OUT * K_IN; i++) want[i] = (float)test_gauss(&rng);
    assert_int_equal(sw_linear_rows_of_codes(&have, &t.w, &err), SW_OK);
    assert_int_equal(sw_column_sums_new(&sums, &have, &original, &err), SW_OK);
    for (int64_t k = 0; k < K_IN; k++) {
        double dot = 0, have2 = 0, want2 = 0, steps = 0;

        for (int64_t n = 0; n < N_OUT; n++) {
            const double h = (double)value_of(&t, n, k), w = (double)want[n * K_IN + k];

            dot += h * w;
            have2 += h * h;
            want2 += w * w;
            steps += fabs(w * (double)t.scales[n * N_GROUPS + t.group_of[k]]);
        }
        assert_close(sums.dot[k], dot, 1);
        assert_close(sums.have2[k], have2, 1);
        assert_close(sums.want2[k], want2, 1);
        assert_close(sums.steps[k], steps, 1);
    }
    sw_column_sums_free(&sums);
    sw_linear_rows_free(&have);
}

enum { RUN_MAX = 60 };

static void check_run(const sw_run *run)
{
    float centred[RUN_MAX], others[RUN_MAX];
    double steps[RUN_MAX];
    const sw_run_sums have = sw_run_sum(centred, steps, run);
    sw_run_sums want = {0};
    sw_run_reading read, turned = {0};

    for (int64_t i = 0; i < run->n; i++) {
        const double w = (double)run->original[i] - run->offset;
        const double c = (double)(run->levels[i] - run->zero), e = w - run->scale * c;

        others[i] = run->levels[run->n - 1 - i];
        turned.wc += w * (double)(others[i] - run->zero);
        turned.c2 += (double)(others[i] - run->zero) * (double)(others[i] - run->zero);
        want.w1 += w;
        want.w2 += w * w;
        want.c1 += c;
        want.c2 += c * c;
        want.wc += w * c;
        want.r2 += run->sizes[i] * run->sizes[i];
        want.err2 += e * e;
        assert_close((double)centred[i], c, 0);
        assert_close(steps[i], fabs(run->scale) > 0 ? e / (run->scale * run->sizes[i]) : 0, 1e3);
    }
    assert_close(have.w1, want.w1, want.w2);
    assert_close(have.w2, want.w2, want.w2);
    assert_close(have.c1, want.c1, want.c2);
    assert_close(have.c2, want.c2, want.c2);
    assert_close(have.wc, want.wc, want.c2);
    assert_close(have.r2, want.r2, want.r2);
    assert_close(have.err2, want.err2, want.err2);
    read = sw_run_read(run, others);
    assert_close(read.wc, turned.wc, turned.c2);
    assert_close(read.c2, turned.c2, turned.c2);
}

static void test_sums_of_a_run(void **state)
{
    float original[RUN_MAX], levels[RUN_MAX];
    double sizes[RUN_MAX];
    test_rng rng = {17};

    (void)state;
    for (int i = 0; i < RUN_MAX; i++) {
        original[i] = (float)test_gauss(&rng);
        levels[i] = (float)below(&rng, 16);
        sizes[i] = 1 + (double)below(&rng, 3);
    }
    for (int64_t n = 1; n <= RUN_MAX; n++) {
        check_run(&(sw_run){n, 0.1, 0.3, 8, original, levels, sizes});
        check_run(&(sw_run){n, 0, 0, 8, original, levels, sizes});
        check_run(&(sw_run){n, -2.5, 0, 0, original, levels, sizes});
    }
}

/* Steps at and about every limit, codes at both ends, and a slack. */
static void test_nearest_by_runs(void **state)
{
    static const double marks[] = {0, 1.0 / 32, 0.25, 0.4, 0.5, 0.5001, 0.6, 0.75, 0.76, 0.8,
                                   1, 1.2, 1.25, 1.5, 1.51, 2, 7.5, 1e300};
    enum { N_MARKS = sizeof marks / sizeof *marks, N = 240 };
    double steps[N], sizes[N];
    float levels[N];
    test_rng rng = {23};

    (void)state;
    for (int round = 0; round < 50; round++) {
        sw_nearest one = {0}, all = {0};

        for (int64_t n = 0; n < 4; n++) {
            const sw_nearest_run run = {steps, sizes, levels, -8, 7, round % 2 * 0.01, N};

            for (int k = 0; k < N; k++) {
                const int n_marks = n < 2 ? 2 : N_MARKS; /* some rows lie on codes */
                const bool is_low = below(&rng, 2);

                steps[k] = marks[below(&rng, (uint64_t)n_marks)] * (is_low ? -1 : 1);
                sizes[k] = 1 + (double)below(&rng, 2);
                levels[k] = (float)below(&rng, 16) - 8;
                if (n < 2 && k == 100) steps[k] = 2; /* a stray */
            }
            sw_nearest_add_run(&all, n, 0, &run);
            sw_nearest_end_row(&all);
            for (int k = 0; k < N; k++) {
                const bool is_clipped = levels[k] <= -8 ? steps[k] < 0
                                                        : levels[k] >= 7 && steps[k] > 0;

                sw_nearest_add(&one, n, k, steps[k],
                               run.slack * fabs((double)levels[k] / sizes[k]), is_clipped);
            }
            sw_nearest_end_row(&one);
        }
        assert_int_equal(all.n, one.n);
        assert_int_equal(all.n_nearest, one.n_nearest);
        assert_int_equal(all.n_told, one.n_told);
        assert_int_equal(all.n_told_nearest, one.n_told_nearest);
        assert_int_equal(all.n_exact, one.n_exact);
        assert_int_equal(all.n_exact_nearest, one.n_exact_nearest);
        assert_memory_equal(&all.outliers, &one.outliers, sizeof one.outliers);
        assert_memory_equal(&all.strays, &one.strays, sizeof one.strays);
    }
}

enum { WIDTH = 150 };

static void check_windows(const sw_windows_of *have, const sw_windows_of *inputs, int64_t b,
                          int64_t step)
{
    assert_int_equal(have->n, (WIDTH - b) / step + 1);
    for (int64_t i = 0; i < have->n; i++)
        for (int s = 0; s < SW_WINDOW_SUMS; s++) {
            double want = 0, size = 0;

            for (int64_t k = i * step; k < i * step + b; k++) {
                want += inputs->at[s][k];
                size += fabs(inputs->at[s][k]);
            }
            assert_close(have->at[s][i], want, size);
        }
}

static void test_windows(void **state)
{
    float original[WIDTH];
    double err[WIDTH], noise2[WIDTH], total[SW_WINDOW_SUMS];
    sw_windows_of row = {{0}, 0}, quads = {{0}, 0}, longer[2] = {{{0}, 0}};
    test_rng rng = {29};
    sw_err none = {0};
    int at = 0;

    (void)state;
    for (int k = 0; k < WIDTH; k++) {
        original[k] = (float)test_gauss(&rng);
        err[k] = k % 7 ? 0.1 * test_gauss(&rng) : 0;
        noise2[k] = k % 5 ? 0.01 : 0;
    }
    assert_int_equal(sw_windows_of_new(&row, WIDTH, &none), SW_OK);
    assert_int_equal(sw_windows_of_new(&quads, WIDTH / SW_WINDOW_QUAD, &none), SW_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sw_windows_of_new(&longer[i], WIDTH / SW_WINDOW_QUAD, &none), SW_OK);
    sw_windows_of_row(&row, original, err, noise2, 1e6);
    for (int k = 0; k < WIDTH; k++) {
        const double v = (double)original[k];

        assert_close(row.at[SW_WINDOW_EXCESS][k], noise2[k] > 0 ? err[k] * err[k] / noise2[k]
                                                 : fabs(err[k]) > 0 ? 1e6 : 0, 0);
        assert_close(row.at[SW_WINDOW_LOST][k], v * err[k], 0);
        assert_close(row.at[SW_WINDOW_POWER][k], v * v, 0);
        assert_close(row.at[SW_WINDOW_NOISE][k], v * v * noise2[k], 0);
    }
    sw_windows_of_quads(&quads, &row);
    check_windows(&quads, &row, SW_WINDOW_QUAD, SW_WINDOW_QUAD);
    for (int64_t b = SW_WINDOW_QUAD; 2 * b <= WIDTH; b *= 2, at = !at) {
        longer[at].n = (WIDTH - 2 * b) / b + 1;
        sw_windows_of_doubled(&longer[at], b == SW_WINDOW_QUAD ? &quads : &longer[!at],
                              b == SW_WINDOW_QUAD ? 1 : 2);
        check_windows(&longer[at], &row, 2 * b, b);
    }
    sw_windows_of_total(total, &row);
    for (int s = 0; s < SW_WINDOW_SUMS; s++) {
        double want = 0;

        for (int k = 0; k < WIDTH; k++) want += row.at[s][k];
        assert_close(total[s], want, fabs(want));
    }
    sw_windows_of_free(&row);
    sw_windows_of_free(&quads);
    for (int i = 0; i < 2; i++) sw_windows_of_free(&longer[i]);
}

/* One window of many is beyond a limit; the last one, which fills no vector. */
static void test_windows_that_stand_out(void **state)
{
    sw_windows_of w = {{0}, 0};
    sw_err none = {0};

    (void)state;
    assert_int_equal(sw_windows_of_new(&w, 37, &none), SW_OK);
    for (int i = 0; i < 37; i++) w.at[SW_WINDOW_POWER][i] = 4;
    assert_false(sw_windows_of_stand_out(&w, 3, 0.5));
    w.at[SW_WINDOW_LOST][36] = -2.5;
    assert_true(sw_windows_of_stand_out(&w, 3, 0.5));
    assert_false(sw_windows_of_stand_out(&w, 3, 0.7));
    assert_false(sw_windows_of_stand_out(&w, 3, (double)INFINITY));
    w.at[SW_WINDOW_EXCESS][36] = 3.5;
    assert_true(sw_windows_of_stand_out(&w, 3, (double)INFINITY));
    assert_false(sw_windows_of_stand_out(&w, 4, 0.7));
    w.at[SW_WINDOW_EXCESS][36] = (double)NAN;
    assert_true(sw_windows_of_stand_out(&w, 4, 0.7));
    sw_windows_of_free(&w);
}

enum { ROWS = 296, INPUTS = 160, GROUP = 32 };

/* Plainly rounded weights of which the codes lack the share `lost`, and errors of `size` steps in a
 * block of them. */
static const char *damaged(double size, const int64_t at[4], double lost)
{
    static uint8_t codes[ROWS * INPUTS];
    static float original[ROWS * INPUTS], scales[ROWS * INPUTS / GROUP];
    static int32_t zeros[ROWS * INPUTS / GROUP], group_of[INPUTS];
    static bool is_outlier[INPUTS];
    static char why[SW_RESIDUAL_TEXT_BYTES];
    const sw_spec_weight w = {.n_out = ROWS, .k_in = INPUTS, .n_groups = INPUTS / GROUP, .bits = 4,
                              .codes = codes, .scales = scales, .zeros = zeros, .global = 1,
                              .group_of = group_of, .is_outlier = is_outlier};
    const sw_linear_rows rows = sw_linear_rows_of(original, ROWS, INPUTS);
    test_rng rng = {41};
    sw_err err = {0};

    for (int i = 0; i < ROWS * INPUTS / GROUP; i++) {
        scales[i] = 0.01f;
        zeros[i] = 8;
    }
    for (int64_t n = 0; n < ROWS; n++)
        for (int64_t k = 0; k < INPUTS; k++) {
            const bool is_in = n >= at[0] && n < at[0] + at[1] && k >= at[2] && k < at[2] + at[3];
            double steps = test_uniform(&rng) - 0.5;

            group_of[k] = (int32_t)(k / GROUP);
            codes[n * INPUTS + k] = (uint8_t)(test_uniform(&rng) < 0.5 ? 4 : 12);
            if (is_in) steps = size * ((n + k) % 2 ? -1 : 1); /* nothing of the weight is lost */
            original[n * INPUTS + k] = (float)(0.01 * ((codes[n * INPUTS + k] - 8) / (1 - lost) +
                                                       steps));
        }
    assert_int_equal(sw_residual_check(why, &w, &rows, &err), SW_OK);
    return why;
}

/* As an error in a block grows, the first to notice is the window of its shape. */
static void test_every_shape_of_window(void **state)
{
    static const struct {
        int64_t at[4]; /* row, rows, input, inputs */
        const char *said;
    } cases[] = {
        {{67, 1, 33, 1}, "channel 67, input 33:"},
        {{70, 1, 28, 8}, "channel 70, inputs 28 to 35:"},
        {{295, 1, 144, 16}, "channel 295, inputs 144 to 159:"},
        {{5, 1, 16, 32}, "channel 5, inputs 16 to 47:"},
        {{40, 8, 152, 8}, "channels 40 to 47, inputs 152 to 159:"},
        {{16, 16, 4, 4}, "channels 16 to 31, inputs 4 to 7:"},
        {{32, 16, 40, 16}, "channels 32 to 47, inputs 40 to 55:"},
        {{280, 16, 40, 16}, "channels 280 to 295, inputs 40 to 55:"}, /* rows that fill no block */
        {{64, 64, 77, 1}, "channels 64 to 127, input 77:"},
        {{64, 64, 80, 8}, "channels 64 to 127, inputs 80 to 87:"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = "";

        for (double size = 0.3; size < 20 && !why[0]; size *= 1.03)
            why = damaged(size, cases[i].at, 0);
        if (strncmp(why, cases[i].said, strlen(cases[i].said)) != 0)
            fail_msg("have \"%s\", want \"%s\"", why, cases[i].said);
    }
}

/* What no window shows, all of them together do. */
static void test_loss_of_the_whole(void **state)
{
    static const char want[] = "channels 0 to 295: 15 % of the original weight";
    const int64_t none[4] = {0, 0, 0, 0};
    const char *why;

    (void)state;
    assert_string_equal(damaged(0, none, 0), "");
    why = damaged(0, none, 0.15);
    if (strncmp(why, want, strlen(want)) != 0) fail_msg("have \"%s\", want \"%s\"", why, want);
}

static void test_vector_sums(void **state)
{
    float have[RUN_MAX], want[RUN_MAX];
    double wide[RUN_MAX];
    test_rng rng = {31};

    (void)state;
    for (int i = 0; i < RUN_MAX; i++) {
        have[i] = (float)test_gauss(&rng);
        want[i] = (float)test_gauss(&rng);
        wide[i] = test_gauss(&rng);
    }
    for (int64_t n = 0; n <= RUN_MAX; n++) {
        sw_vec_sums sums = {.err2 = 1, .dot = 2};
        double err2 = 1, dot = 2, all = 0;

        sw_vec_add(&sums, have, want, n);
        for (int64_t i = 0; i < n; i++) {
            const double h = (double)have[i], w = (double)want[i];

            err2 += (h - w) * (h - w);
            dot += h * w;
            all += wide[i];
        }
        assert_close(sums.err2, err2, err2);
        assert_close(sums.dot, dot, err2);
        assert_close(sw_vec_total(wide, n), all, err2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_of_a_stream),
        cmocka_unit_test(test_rows_of_codes),
        cmocka_unit_test(test_runs_cover_a_row),
        cmocka_unit_test(test_sums_of_columns),
        cmocka_unit_test(test_sums_of_a_run),
        cmocka_unit_test(test_nearest_by_runs),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_windows_that_stand_out),
        cmocka_unit_test(test_every_shape_of_window),
        cmocka_unit_test(test_loss_of_the_whole),
        cmocka_unit_test(test_vector_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
