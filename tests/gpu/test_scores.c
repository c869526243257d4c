/* test_scores.c - what the device says about rows of logits against sw_position_compare on the CPU.
 * Exit 77 without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/ops/engine_ops.h"
#include "kernels/device.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/toys/random.h"
#include "verify/base/metrics.h"

static sw_device *gpu;
static sw_launch how;

#define SCORE_ERR 1e-12

/* Equal, not numbers both, or this close. */
static void expect_score(const char *what, double have, double want, int row)
{
    if (have == want || (isnan(have) && isnan(want))) return;
    if (fabs(have - want) <= SCORE_ERR * (1 + fabs(want))) return;
    fail_msg("%s of row %d: %.17g, want %.17g", what, row, have, want);
}

static int first_largest(const float *x, int n)
{
    int top = 0;

    for (int i = 1; i < n; i++)
        if (x[i] > x[top]) top = i;
    return top;
}

/* Rows: random, the same twice, ties for the largest, all alike, masked, with a NaN, far apart. */
static void fill_scored(float *have, float *ref, int vocab, uint64_t seed)
{
    test_rng rng = {seed};

    for (int i = 0; i < 8 * vocab; i++) {
        ref[i] = (float)(4 * test_gauss(&rng));
        have[i] = ref[i] + (float)(i / vocab == 1 ? 0 : 0.5 * test_gauss(&rng));
    }
    for (int i = 0; i < vocab; i++) {
        if (i % 3 == 2) have[2 * vocab + i] = ref[2 * vocab + i] = 20;
        have[3 * vocab + i] = ref[3 * vocab + i] = -7;
        if (i % 2) have[4 * vocab + i] = -INFINITY;
    }
    have[5 * vocab + vocab / 2] = NAN;
    have[6 * vocab + vocab - 1] = ref[6 * vocab] = 90;
}

static void check_scores(int vocab, bool has_ref)
{
    enum { ROWS = 8 };
    const size_t n_bytes = 4 * (size_t)(ROWS * vocab);
    float *have = malloc(n_bytes), *ref = malloc(n_bytes);
    double *scratch = malloc(sizeof(double) * (size_t)vocab);
    uint32_t targets[ROWS];
    sw_lm_score scores[ROWS], *d_scores;
    const float *d_have, *d_ref;

    fill_scored(have, ref, vocab, (uint64_t)vocab);
    for (int i = 0; i < ROWS; i++) targets[i] = (uint32_t)(i * 37 % vocab) & ~1u;
    d_have = device_copy(gpu, have, (int64_t)n_bytes);
    d_ref = device_copy(gpu, ref, (int64_t)n_bytes);
    memset(scores, 0xff, sizeof scores);
    d_scores = device_copy(gpu, scores, sizeof scores);
    MUST(sw_cuda_score_logits(d_scores, d_have, has_ref ? d_ref : NULL,
                              device_copy(gpu, targets, sizeof targets), ROWS, vocab, how, err));
    MUST(sw_device_download(gpu, scores, d_scores, sizeof scores, err));
    for (int i = 0; i < ROWS; i++) {
        const float *y = have + i * vocab, *x = ref + i * vocab;
        sw_position want = {.nll_have = sw_nll(y, vocab, targets[i])}, got = {0};

        if (has_ref) sw_position_compare(&want, x, y, vocab, targets[i], scratch);
        sw_position_of(&got, &scores[i]);
        expect_score("NLL", got.nll_have, want.nll_have, i);
        expect_score("NLL of the reference", got.nll_ref, want.nll_ref, i);
        expect_score("KL", got.kl, want.kl, i);
        if (i == 5) continue; /* which has a NaN, and no largest */
        assert_int_equal(scores[i].top, first_largest(y, vocab));
        assert_int_equal(scores[i].top_ref, has_ref ? first_largest(x, vocab) : 0);
        assert_true(got.kl >= 0);
        for (int m = 0; m < SW_METRIC_COUNT; m++)
            expect_score("a metric", got.metrics[m], want.metrics[m], i);
    }
    free(have), free(ref), free(scratch);
}

static void test_scores(void **state)
{
    static const int vocabs[] = {3, 255, 512, 5003};

    (void)state;
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        check_scores(vocabs[v], true);
        check_scores(vocabs[v], false);
    }
}

/* The largest of several sequences: ties are the lowest id's wherever they lie, the last place
 * counts, rows of minus infinity and of what is no number are told. */
static void check_largest(int64_t vocab)
{
    enum { SEQS = 6 };
    float *logits = malloc(4 * SEQS * (size_t)vocab);
    const int64_t at[SEQS] = {0, vocab - 1, vocab / 2, vocab / 8 - 1, 7 * vocab / 8, 3};
    test_rng rng = {9};
    int32_t zeros[SEQS] = {0}, bad = 0;
    uint32_t have[SEQS] = {0};
    sw_pick_args a = {.n_seqs = SEQS, .vocab = vocab, .top_p = 1};

    for (int64_t i = 0; i < SEQS * vocab; i++) logits[i] = (float)test_gauss(&rng) - 9;
    for (int s = 0; s < SEQS; s++)
        for (int64_t i = at[s]; i < vocab; i += 1 + vocab / 5) logits[s * vocab + i] = 5;
    a.logits = device_copy(gpu, logits, 4 * SEQS * vocab);
    a.ids = device_copy(gpu, have, sizeof have);
    a.n_logged = device_copy(gpu, zeros, sizeof zeros);
    a.not_finite = device_copy(gpu, &bad, 4);
    MUST(sw_cuda_pick(&a, how, err));
    MUST(sw_device_download(gpu, have, a.ids, sizeof have, err));
    for (int s = 0; s < SEQS; s++) assert_int_equal(have[s], at[s]);
    MUST(sw_device_download(gpu, &bad, a.not_finite, 4, err));
    assert_int_equal(bad, 0);
    logits[4 * vocab + vocab - 2] = NAN;
    for (int64_t i = 0; i < vocab; i++) logits[vocab + i] = -INFINITY;
    for (int s = 1; s < 5; s += 3) {
        a.logits = device_copy(gpu, logits + s * vocab, 4 * vocab);
        a.n_seqs = 1;
        MUST(sw_device_fill(gpu, a.not_finite, 0, 4, err));
        MUST(sw_cuda_pick(&a, how, err));
        MUST(sw_device_download(gpu, &bad, a.not_finite, 4, err));
        assert_int_equal(bad, 1);
    }
    free(logits);
}

static void test_largest(void **state)
{
    (void)state;
    check_largest(5000);
    check_largest(128);
    check_largest(4099);
    check_largest(32004);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores),
                                       cmocka_unit_test(test_largest)};
    int failed = device_open(&gpu);

    if (failed) return failed;
    how = device_launch(gpu);
    failed = cmocka_run_group_tests_name("scores", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
