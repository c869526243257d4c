/* test_hybrids.c - decoders with recurrent mixers on the device: logits of two sequences side by
 * side against another implementation's, then a session of both that is fed in uneven pieces and
 * steps on, against whole sequences. Exit 77 without a GPU.
 *
 * One argument: the models whose name it matches (* and ? as in a shell).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/device_engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/recipe_model.h"

#define RECIPES "tests/golden/recipes/"
#define LIMIT 2e-2        /* relative L2 of logits, of BF16 arithmetic, */
#define ROUTED_LIMIT 6e-2 /* or where rounding may send a token to other experts */
#define STEPS 8
#define LEN_MAX 64

static const char *const names[] = {"mamba2", "bamba", "lfm2"};
#define N_NAMES (sizeof names / sizeof names[0])

static sw_device *gpu;

/* What the last call left is within the limit of row `t` of `want`, and nearer to it than to the
 * row before. */
static void expect_row(const char *what, const float *have, const float *want, int64_t t,
                       int64_t vocab, double limit)
{
    const double error = relative_l2(have, want + t * vocab, vocab);

    print_message("  %s: %.2e\n", what, error);
    if (!(error <= limit)) fail_msg("%s: %g", what, error);
    assert_true(relative_l2(have, want + (t - 1) * vocab, vocab) > error);
}

/* Two texts, the second from token 3 of the first on, in pieces of which some are one token. */
static void check_session(sw_device_lm *lm, const reference_logits *ref, double limit)
{
    static const int64_t pieces[2][5] = {{20, 0}, {1, 7, 1, 2, 9}};
    const sw_sampling greedy = {0, 0, 1, 0};
    const int64_t vocab = ref->vocab, n = 20 + STEPS;
    uint32_t drawn[2 * STEPS], all[2 * LEN_MAX];
    float *have = malloc(8 * (size_t)vocab), *want = malloc(8 * (size_t)(n * vocab));
    sw_device_session *s = NULL;

    MUST(sw_device_session_new(&s, lm, 2, n, &greedy, err));
    for (int i = 0; i < 2; i++) {
        memcpy(all + i * n, ref->ids + 3 * i, 20 * sizeof *all);
        for (int64_t p = 0, t = 0; p < 5 && pieces[i][p]; t += pieces[i][p++])
            MUST(sw_device_session_feed(s, i, all + i * n + t, pieces[i][p], err));
    }
    MUST(sw_device_session_logits(s, have, err));
    MUST(sw_device_session_step(s, drawn, STEPS, err));
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < STEPS; t++) all[i * n + 20 + t] = drawn[2 * t + i];
    MUST(sw_device_lm_forward(lm, all, 2, n, err));
    MUST(sw_device_lm_head(lm, want, 0, 2 * n, err));
    for (int i = 0; i < 2; i++)
        expect_row("fed", have + i * vocab, want, i * n + 19, vocab, limit);
    MUST(sw_device_session_logits(s, have, err));
    for (int i = 0; i < 2; i++)
        expect_row("stepped", have + i * vocab, want, i * n + n - 1, vocab, limit);
    sw_device_session_free(s);
    free(have), free(want);
}

/* The reference's text twice, as sequences of one batch. */
static void check_forward(sw_device_lm *lm, const char *name, const reference_logits *ref,
                          double limit)
{
    const int64_t n = ref->seq_len, n_logits = n * ref->vocab;
    float *have = malloc(8 * (size_t)n_logits);
    uint32_t ids[2 * LEN_MAX];

    for (int i = 0; i < 2; i++) memcpy(ids + i * n, ref->ids, (size_t)n * sizeof *ids);
    MUST(sw_device_lm_forward(lm, ids, 2, n, err));
    MUST(sw_device_lm_head(lm, have, 0, 2 * n, err));
    for (int i = 0; i < 2; i++) {
        const double error = relative_l2(have + i * n_logits, ref->logits, n_logits);

        print_message("%s: %.2e\n", name, error);
        if (!(error <= limit)) fail_msg("%s: %g", name, error);
    }
    free(have);
}

static void test_hybrid(void **state)
{
    const char *name = *state;
    char from[128], path[160];
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;
    reference_logits ref;
    open_model m;
    double limit;
    scratch s;

    scratch_open(&s);
    (void)snprintf(from, sizeof from, RECIPES "%s", name);
    (void)snprintf(path, sizeof path, "%s/reference.safetensors", from);
    MUST(recipe_model_make(s.dir, from, "config.json", err));
    open_model_dir(&m, s.dir);
    reference_open(&ref, path);
    assert_true(ref.seq_len <= LEN_MAX && ref.n_seqs == 1);
    limit = m.model.n_experts ? ROUTED_LIMIT : LIMIT;
    MUST(sw_device_engine_new(&engine, gpu, &m.model, 2 * LEN_MAX, LEN_MAX, err));
    MUST(sw_device_lm_new(&lm, engine, &m.lm, err));
    check_forward(lm, name, &ref, limit);
    check_session(lm, &ref, limit);
    check_session(lm, &ref, limit); /* over what the first has left in memory */
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
    reference_close(&ref);
    open_model_close(&m);
    scratch_close(&s);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[N_NAMES];
    int failed = device_open(&gpu);

    if (failed) return failed;
    for (size_t i = 0; i < N_NAMES; i++)
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = test_hybrid,
                                       .initial_state = (void *)(uintptr_t)names[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("hybrids on the device", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
