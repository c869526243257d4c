/* test_engine.c - what the engine promises beyond one forward pass: caches, batches, threads,
 * windows, rope kinds, early stops, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/toys/open_model.h"
#include "tests/support/toys/plain_decoder.h"
#include "tests/support/toys/random.h"

#define SEQ 48
static const char *const toy_dirs[] = {
    "tests/golden/arch/llama", "tests/golden/arch/mistral", "tests/golden/arch/qwen2",
    "tests/golden/arch/qwen3", "tests/golden/arch/qwen3_moe", "tests/golden/arch/mixtral",
    "tests/golden/arch/olmo2", "tests/golden/arch/gemma2", "tests/golden/arch/gemma3_text",
    "tests/golden/arch/phi3", "tests/golden/arch/opt", "tests/golden/arch/gpt2",
    "tests/golden/arch/gpt_oss", "tests/golden/arch/deepseek_v3",
};
#define N_TOYS (sizeof toy_dirs / sizeof toy_dirs[0])

static uint32_t *some_ids(int64_t n, int64_t vocab, uint64_t seed)
{
    uint32_t *ids = calloc((size_t)n, sizeof *ids);
    test_rng rng = {seed};

    for (int64_t i = 0; i < n; i++) ids[i] = (uint32_t)(test_u64(&rng) % (uint64_t)vocab);
    return ids;
}

/* Feeding a session in pieces of 1, 2, 3, ... tokens gives the logits of the whole sequence. */
static void check_cache(const char *dir, int64_t n, double limit)
{
    open_model m;
    uint32_t *ids;
    float *whole, *step;
    sw_engine *engine;
    sw_session *session = NULL;
    sw_err err = {0};
    int64_t vocab;

    open_model_dir(&m, dir);
    vocab = m.model.vocab;
    ids = some_ids(n, vocab, 3);
    whole = model_logits(&m, 1, ids, 1, n);
    step = calloc((size_t)vocab, sizeof *step);
    engine = open_engine(&m, 7, 1); /* pieces above 7 are fed in several calls */
    assert_int_equal(sw_session_new(&session, engine, &m.lm, n, &err), SW_OK);
    for (int64_t t = 0, piece = 1; t < n; t += piece, piece = piece % 11 + 1) {
        if (piece > n - t) piece = n - t;
        assert_int_equal(sw_session_feed(session, step, ids + t, piece, &err), SW_OK);
        assert_true(relative_l2(step, whole + (t + piece - 1) * vocab, vocab) <= limit);
    }
    assert_int_equal(sw_session_room(session), 0);
    assert_int_equal(sw_session_feed(session, step, ids, 1, &err), SW_E_USAGE);
    assert_int_equal(sw_session_length(session), n);
    sw_session_free(session);
    sw_engine_free(engine);
    sw_mem_put(whole);
    free(step);
    free(ids);
    open_model_close(&m);
}

static void test_cache_equals_prefill(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TOYS; i++) check_cache(toy_dirs[i], 120, 1e-5);
    check_cache("calib_data/tiny-llama", 300, 1e-5); /* past the first growth of the cache */
}

/* An expert gets more tokens from a batch than from one sequence, and so perhaps another kernel
 * row, which adds up in another order; all else has the same shapes and must be the same bits. */
static void test_batch_equals_one_by_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TOYS; i++) {
        open_model m;
        uint32_t *ids;
        float *all;

        open_model_dir(&m, toy_dirs[i]);
        ids = some_ids(5 * SEQ, m.model.vocab, 11);
        all = model_logits(&m, 1, ids, 5, SEQ);
        for (int64_t s = 0; s < 5; s++) {
            int64_t n = SEQ * m.model.vocab;
            float *one = model_logits(&m, 1, ids + s * SEQ, 1, SEQ);
            double differs = relative_l2(one, all + s * n, n);

            if (!(differs <= (m.model.n_experts ? 1e-6 : 0.0)))
                fail_msg("%s: sequence %lld of a batch differs from itself alone, by %g",
                         toy_dirs[i], (long long)s, differs);
            sw_mem_put(one);
        }
        sw_mem_put(all);
        free(ids);
        open_model_close(&m);
    }
}

static void test_threads_do_not_show(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TOYS; i++) {
        open_model m;
        uint32_t *ids;
        float *want;
        int64_t n;

        open_model_dir(&m, toy_dirs[i]);
        n = m.model.max_positions < 150 ? m.model.max_positions : 150;
        ids = some_ids(3 * n, m.model.vocab, 5);
        want = model_logits(&m, 1, ids, 3, n);
        for (int n_threads = 2; n_threads <= 3; n_threads++) {
            float *have = model_logits(&m, n_threads, ids, 3, n);

            assert_memory_equal(have, want, (size_t)(3 * n * m.model.vocab) * sizeof *want);
            sw_mem_put(have);
        }
        sw_mem_put(want);
        free(ids);
        open_model_close(&m);
    }
}

static void against_plain(open_model *m, int64_t n, const char *what, double limit)
{
    uint32_t *ids = some_ids(n, m->model.vocab, 17);
    float *have = model_logits(m, 1, ids, 1, n);
    double *want = calloc((size_t)(n * m->model.vocab), sizeof *want), error;

    plain_logits(want, &m->model, m->st, ids, n);
    error = relative_l2_double(have, want, n * m->model.vocab);
    if (!(error <= limit)) fail_msg("%s: error %g", what, error);
    free(want);
    sw_mem_put(have);
    free(ids);
}

/* Windows narrower, equal to and wider than the engine's blocks of 128 queries and 512 keys. */
static void test_windows(void **state)
{
    static const struct {
        int64_t window, n;
    } cases[] = {{1, 40}, {2, 130}, {16, 48}, {100, 260}, {128, 300}, {513, 700}, {1000, 700}};
    open_model m;
    char what[64];

    (void)state;
    open_model_dir(&m, "tests/golden/arch/mistral");
    m.model.max_positions = 1024;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        m.model.sliding_window = cases[i].window;
        (void)snprintf(what, sizeof what, "window %lld", (long long)cases[i].window);
        against_plain(&m, cases[i].n, what, 1e-5);
    }
    m.model.sliding_window = 9; /* one layer with a window, one without */
    m.model.is_window_layer[0] = false;
    against_plain(&m, 200, "window in layer 1", 1e-5);
    open_model_close(&m);
}

static void test_window_with_cache(void **state)
{
    open_model m;
    uint32_t *ids;
    float *whole, *step;
    sw_engine *engine;
    sw_session *session = NULL;
    sw_err err = {0};

    (void)state;
    open_model_dir(&m, "tests/golden/arch/mistral");
    m.model.max_positions = 1024;
    m.model.sliding_window = 530; /* a query block's keys straddle three key blocks */
    ids = some_ids(700, m.model.vocab, 23);
    whole = model_logits(&m, 1, ids, 1, 700);
    step = calloc((size_t)m.model.vocab, sizeof *step);
    engine = open_engine(&m, 256, 1);
    assert_int_equal(sw_session_new(&session, engine, &m.lm, 700, &err), SW_OK);
    for (int64_t t = 0, piece = 100; t < 700; t += piece, piece = 150) {
        assert_int_equal(sw_session_feed(session, step, ids + t, piece, &err), SW_OK);
        assert_true(relative_l2(step, whole + (t + piece - 1) * m.model.vocab, m.model.vocab) <
                    1e-5);
    }
    sw_session_free(session);
    sw_engine_free(engine);
    sw_mem_put(whole);
    free(step);
    free(ids);
    open_model_close(&m);
}

static void test_rope_kinds(void **state)
{
    static const sw_rope kinds[] = {
        {.kind = SW_ROPE_LINEAR, .theta = 1e4, .factor = 4},
        {.kind = SW_ROPE_DYNAMIC, .theta = 1e4, .factor = 2},
        {.kind = SW_ROPE_LLAMA3, .theta = 5e5, .factor = 8, .low_freq_factor = 1,
         .high_freq_factor = 4, .original_max_positions = 32},
        {.kind = SW_ROPE_YARN, .theta = 1e4, .factor = 4, .beta_fast = 32, .beta_slow = 1,
         .attention_factor = -1, .truncate = true, .original_max_positions = 64},
    };
    open_model m;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/llama");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        m.model.rope = kinds[i];
        m.model.max_positions = 100;
        against_plain(&m, 90, sw_rope_kind_name(kinds[i].kind), 1e-5);
    }
    open_model_close(&m);
}

/* Beyond the trained length `dynamic` changes all angles with the length; the engine then must
 * not reuse angles of another length. max_seq lets positions run further than max_positions. */
static void test_dynamic_rope_beyond_training(void **state)
{
    open_model m;
    sw_engine *engine = NULL;
    uint32_t *ids;
    float *have;
    double *want;
    sw_err err = {0};

    (void)state;
    open_model_dir(&m, "tests/golden/arch/llama");
    m.model.rope = (sw_rope){.kind = SW_ROPE_DYNAMIC, .theta = 1e4, .factor = 2};
    m.model.max_positions = 32;
    ids = some_ids(80, m.model.vocab, 29);
    have = calloc((size_t)(80 * m.model.vocab), sizeof *have);
    want = calloc((size_t)(80 * m.model.vocab), sizeof *want);
    assert_int_equal(sw_engine_new(&engine, &m.model, 80, 80, 1, &err), SW_OK);
    for (int64_t round = 0; round < 4; round++) {
        const int64_t n = (int64_t[]){20, 80, 50, 32}[round];

        assert_int_equal(sw_engine_logits(engine, &m.lm, have, ids, 1, n, &err), SW_OK);
        plain_logits(want, &m.model, m.st, ids, n);
        assert_true(relative_l2_double(have, want, n * m.model.vocab) < 1e-5);
    }
    sw_engine_free(engine);
    assert_int_equal(sw_engine_new(&engine, &m.model, 80, 0, 1, &err), SW_OK);
    assert_int_equal(sw_engine_logits(engine, &m.lm, have, ids, 1, 33, &err), SW_E_USAGE);
    sw_engine_free(engine);
    free(want);
    free(have);
    free(ids);
    open_model_close(&m);
}

static void test_refusals(void **state)
{
    open_model m;
    sw_engine *engine;
    sw_session *session = NULL;
    uint32_t ids[40] = {0};
    float *logits, x[1];
    sw_kv kv = {0};
    sw_err err = {0};

    (void)state;
    open_model_dir(&m, "tests/golden/arch/llama");
    logits = calloc((size_t)(40 * m.model.vocab), sizeof *logits);
    engine = open_engine(&m, 16, 1);
    assert_int_equal(sw_engine_logits(engine, &m.lm, logits, ids, 1, 17, &err), SW_E_USAGE);
    memset(&err, 0, sizeof err);
    ids[3] = (uint32_t)m.model.vocab;
    assert_int_equal(sw_engine_logits(engine, &m.lm, logits, ids, 1, 8, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "token 3 has id 320"));
    assert_int_equal(sw_engine_block(engine, &m.lm.blocks[0], x, 1, 1, &kv, NULL,
                                     (sw_site)SW_RUN_ALL, NULL), SW_E_USAGE);
    assert_int_equal(sw_session_new(&session, engine, &m.lm, 513, NULL), SW_E_USAGE);
    /* a failed feed leaves the session as it was */
    assert_int_equal(sw_session_new(&session, engine, &m.lm, 40, NULL), SW_OK);
    assert_int_equal(sw_session_feed(session, logits, ids, 3, NULL), SW_OK);
    ids[30] = (uint32_t)m.model.vocab;
    assert_int_equal(sw_session_feed(session, logits, ids + 4, 30, NULL), SW_E_FORMAT);
    assert_int_equal(sw_session_length(session), 3);
    assert_int_equal(sw_session_feed(session, logits, ids + 4, 20, NULL), SW_OK);
    sw_session_free(session);
    sw_engine_free(engine);
    free(logits);
    open_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_equals_prefill),
        cmocka_unit_test(test_batch_equals_one_by_one),
        cmocka_unit_test(test_threads_do_not_show),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_window_with_cache),
        cmocka_unit_test(test_rope_kinds),
        cmocka_unit_test(test_dynamic_rope_beyond_training),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
