/* test_outputs.c - errors of outputs on a device against those of the processor. Exit 77 without a
 * GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/gpu/support/device_case.h"
#include "tests/support/cases/outputs_case.h"
#include "verify/metrics/outputs_run.h"

enum { THREADS = 20 }; /* more than the toys' linears, so that all of these wait for each other */

/* Of a figure: what it does that the original runs in BF16. */
#define SHIFT_MAX 0.001
/* An expert that other tokens reach has another figure; the mean of all hardly. */
#define SHIFT_EXPERT 0.1
#define SHIFT_EXPERTS 0.005

static double shift(double have, double want) { return fabs(have / want - 1); }

static void count_note(void *self, const char *text)
{
    printf("note: %s\n", text);
    ++*(int *)self;
}

static sw_device *open_of(int64_t cap_bytes)
{
    sw_device *gpu = NULL;

    MUST(sw_device_open(&gpu, 0, cap_bytes, err));
    return gpu;
}

static void expect_close(const outputs_case *c, const double *have, const double *want)
{
    double most = 0, mean = 0;
    int64_t n = 0;

    for (int64_t i = 0; i < c->report.n_tensors; i++) {
        const char *name = c->report.tensors[i].name;
        const bool is_expert = strstr(name, ".experts.") != NULL;
        const double off = shift(have[i], want[i]);

        if (is_expert && (have[i] < 0 || want[i] < 0)) continue; /* no token reached it */
        if (!(off <= (is_expert ? SHIFT_EXPERT : SHIFT_MAX)))
            fail_msg("%s: %.6g, want %.6g", name, have[i], want[i]);
        most = fmax(most, off);
        mean += have[i] / want[i] - 1;
        n++;
    }
    printf("%lld linears: off by %.2e at most, %.2e in the mean\n", (long long)n, most,
           mean / (double)n);
    assert_true(n > 10 && fabs(mean / (double)n) < SHIFT_EXPERTS);
}

/* Returns the most bytes that the device held. */
static int64_t check(const char *arch, int64_t cap_bytes)
{
    int n_notes = 0;
    const sw_progress progress = {.self = &n_notes, .note = count_note};
    sw_device *gpu = open_of(cap_bytes);
    double *have, *want;
    int64_t taken, left, peak;
    outputs_case c;

    outputs_case_open(&c, arch);
    want = outputs_case_judge(&c, NULL, 2, NULL);
    taken = sw_device_taken_bytes(gpu);
    have = outputs_case_judge(&c, gpu, THREADS, &progress);
    left = sw_device_taken_bytes(gpu);
    peak = sw_device_peak_bytes(gpu);
    printf("%s: ", arch);
    assert_int_equal(n_notes, 0);
    assert_int_equal(left, taken);
    expect_close(&c, have, want);
    free(have), free(want);
    outputs_case_close(&c);
    sw_device_close(gpu);
    return peak;
}

static void dense_linears_have_the_same_errors(void **state)
{
    (void)state;
    (void)check("arch/llama", 0);
    (void)check("arch/gemma2", 0);
}

/* Copies of the stream, inputs of single layers, and keys that later layers share. */
static void what_tokens_have_besides_goes_along(void **state)
{
    (void)state;
    (void)check("recipes/gemma3n", 0);
}

static void experts_have_alike_errors(void **state)
{
    (void)state;
    (void)check("arch/qwen3_moe", 0);
}

/* What is left beside all else gives rounds of 131072 values at most, of the model's 300000. */
static void rounds_may_cut_linears(void **state)
{
    const int64_t rounds_bytes = 2 * SW_OUTPUT_ROUND_ELEMS * (int64_t)sizeof(float);

    (void)state;
    (void)check("arch/llama", check("arch/llama", 0) - rounds_bytes + ((int64_t)8 << 20));
}

/* The processor's figures, to the bit, and a word about it. */
static void what_has_no_room_runs_on_the_processor(void **state)
{
    int n_notes = 0;
    const sw_progress progress = {.self = &n_notes, .note = count_note};
    sw_device *gpu = open_of((int64_t)1 << 20);
    double *have, *want;
    outputs_case c;

    (void)state;
    outputs_case_open(&c, "arch/llama");
    want = outputs_case_judge(&c, NULL, 2, NULL);
    have = outputs_case_judge(&c, gpu, 2, &progress);
    assert_int_equal(n_notes, 1);
    assert_memory_equal(have, want, sizeof *have * (size_t)c.report.n_tensors);
    assert_int_equal(sw_device_taken_bytes(gpu), 0);
    free(have), free(want);
    outputs_case_close(&c);
    sw_device_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_linears_have_the_same_errors),
        cmocka_unit_test(what_tokens_have_besides_goes_along),
        cmocka_unit_test(experts_have_alike_errors),
        cmocka_unit_test(rounds_may_cut_linears),
        cmocka_unit_test(what_has_no_room_runs_on_the_processor),
    };

    return device_missing() ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
