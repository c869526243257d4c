/* test_engine_spread.c - a model whose layers lie on several devices: logits and tokens are the
 * bytes that they are on one. Every family of tests/golden and some schemes, cut in two and in
 * three at every layer or at some. The devices are one card opened several times, each with a
 * stream and a pool of its own: the same calls as between cards. Exit 77 without a GPU.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/base/size.h"
#include "formats/io/file.h"
#include "kernels/engine/device_engine.h"
#include "quant/run/scheme.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/recipe_model.h"

#define PARTS_MAX 3
#define CHUNK 16   /* tokens of a call: prompts come in several */
#define LENGTH 96  /* positions at most, of models that have so many */
#define STEPS_MAX 64
#define N_SEQS 3
#define CAP_BYTES ((int64_t)4 << 30)
#ifdef SW_CHECKED
#define CUTS_MAX 1 /* of a kind */
#else
#define CUTS_MAX 8
#endif

static sw_device *gpus[PARTS_MAX];

/* What a model gives: logits of whole sequences; after a prompt; tokens, and logits behind them, of
 * one sequence and of several. */
typedef struct outcome {
    float *whole, *alone, *beside;
    uint32_t ids[STEPS_MAX], ids_beside[N_SEQS * STEPS_MAX];
    int64_t n_steps, length, vocab;
} outcome;

static void outcome_new(outcome *o, const sw_model *m)
{
    memset(o, 0, sizeof *o);
    o->vocab = m->vocab;
    o->length = sw_min_i64(LENGTH, m->max_positions);
    o->n_steps = sw_min_i64(STEPS_MAX, o->length / 2);
    o->whole = calloc((size_t)(CHUNK * o->vocab), 4);
    o->alone = calloc((size_t)(2 * o->vocab), 4);
    o->beside = calloc((size_t)(N_SEQS * o->vocab), 4);
    assert_true(o->whole && o->alone && o->beside);
}

static void outcome_free(outcome *o)
{
    free(o->whole), free(o->alone), free(o->beside);
}

static uint32_t token(int64_t i, int64_t vocab) { return (uint32_t)((i * 37 + 11) % vocab); }

/* A prompt of several calls, steps, a few tokens more, steps. */
static void decode_alone(outcome *o, sw_device_lm *lm)
{
    const sw_sampling greedy = {0, 0, 1, 0};
    const int64_t n_prompt = o->length / 2 - 5;
    sw_device_session *s = NULL;
    uint32_t ids[LENGTH];

    for (int64_t i = 0; i < LENGTH; i++) ids[i] = token(i, o->vocab);
    MUST(sw_device_session_new(&s, lm, 1, o->length, &greedy, err));
    MUST(sw_device_session_feed(s, 0, ids, n_prompt, err));
    MUST(sw_device_session_logits(s, o->alone, err));
    MUST(sw_device_session_step(s, o->ids, o->n_steps / 2, err));
    MUST(sw_device_session_feed(s, 0, ids + n_prompt, 5, err));
    MUST(sw_device_session_step(s, o->ids + o->n_steps / 2, o->n_steps - o->n_steps / 2, err));
    MUST(sw_device_session_logits(s, o->alone + o->vocab, err));
    sw_device_session_free(s);
}

/* Sequences of several lengths, drawn at random. */
static void decode_beside(outcome *o, sw_device_lm *lm)
{
    const sw_sampling warm = {0.9, 20, 0.95, 7};
    sw_device_session *s = NULL;
    uint32_t ids[LENGTH];

    for (int64_t i = 0; i < LENGTH; i++) ids[i] = token(3 * i + 1, o->vocab);
    MUST(sw_device_session_new(&s, lm, N_SEQS, o->length, &warm, err));
    for (int i = 0; i < N_SEQS; i++)
        MUST(sw_device_session_feed(s, i, ids + i, 3 + o->length / 8 * i, err));
    MUST(sw_device_session_step(s, o->ids_beside, o->n_steps, err));
    MUST(sw_device_session_logits(s, o->beside, err));
    sw_device_session_free(s);
}

/* Sequences one after the other with nothing that waits between them; all logits of the last. */
static void run_whole(outcome *o, sw_device_lm *lm)
{
    uint32_t ids[CHUNK];

    for (int64_t run = 0; run < 3; run++) {
        for (int64_t i = 0; i < CHUNK; i++) ids[i] = token(5 * i + run, o->vocab);
        MUST(sw_device_lm_forward(lm, ids, 2, CHUNK / 2, err));
    }
    MUST(sw_device_lm_head(lm, o->whole, 0, CHUNK, err));
}

static void run_parts(outcome *o, const open_model *m, const int64_t *ends, int n_parts)
{
    sw_device_engine *engines[PARTS_MAX] = {NULL};
    sw_device_lm_linears counts;
    sw_device_lm *lm = NULL;

    outcome_new(o, &m->model);
    for (int i = 0; i < n_parts; i++)
        MUST(sw_device_engine_new(&engines[i], gpus[i], &m->model, CHUNK, o->length, err));
    if (n_parts == 1)
        MUST(sw_device_lm_new(&lm, engines[0], &m->lm, err));
    else
        MUST(sw_device_lm_spread(&lm, engines, ends, n_parts, &m->lm, err));
    sw_device_lm_count(&counts, lm);
    assert_int_equal(counts.n_devices, n_parts);
    assert_int_equal(counts.n_streamed_blocks, 0);
    run_whole(o, lm);
    decode_alone(o, lm);
    decode_beside(o, lm);
    sw_device_lm_free(lm);
    for (int i = 0; i < n_parts; i++) sw_device_engine_free(engines[i]);
}

static void expect_same(const outcome *have, const outcome *want, const char *name,
                        const int64_t *ends, int n_parts)
{
    const size_t row = 4 * (size_t)want->vocab;
    const char *what = NULL;

    if (memcmp(have->whole, want->whole, CHUNK * row)) what = "whole sequences";
    else if (memcmp(have->alone, want->alone, row)) what = "a prompt";
    else if (memcmp(have->ids, want->ids, sizeof want->ids)) what = "tokens of one sequence";
    else if (memcmp(have->alone, want->alone, 2 * row)) what = "logits behind steps";
    else if (memcmp(have->ids_beside, want->ids_beside, sizeof want->ids_beside))
        what = "tokens of several sequences";
    else if (memcmp(have->beside, want->beside, N_SEQS * row)) what = "logits of several sequences";
    if (what)
        fail_msg("%s, %d parts, the first of %lld layers, the second up to %lld: %s are others",
                 name, n_parts, (long long)ends[0], (long long)ends[1], what);
}

static void check_cut(const char *name, const open_model *m, const outcome *want, int64_t first,
                      int64_t second, int n_parts)
{
    const int64_t ends[PARTS_MAX] = {first, second, m->model.n_layers};
    outcome have;

    run_parts(&have, m, ends, n_parts);
    expect_same(&have, want, name, ends, n_parts);
    outcome_free(&have);
}

static void check_cuts(const char *name, const open_model *m)
{
    const int64_t n = m->model.n_layers;
    outcome want;
    int n_cuts[2] = {0};

    run_parts(&want, m, NULL, 1);
    for (int64_t cut = 1; cut < n && n_cuts[0] < CUTS_MAX; cut++, n_cuts[0]++)
        check_cut(name, m, &want, cut, n, 2);
    for (int64_t cut = 1; cut + 1 < n && n_cuts[1] < CUTS_MAX; cut++, n_cuts[1]++)
        check_cut(name, m, &want, cut, cut + 1, 3);
    printf("  %-28s %lld layers, cut in two %d times, in three %d\n", name, (long long)n,
           n_cuts[0], n_cuts[1]);
    outcome_free(&want);
}

/* ---- families ---- */

static void check_recipe(const char *name)
{
    char from[300];
    scratch s;
    open_model m;

    (void)snprintf(from, sizeof from, "tests/golden/recipes/%s", name);
    scratch_open(&s);
    MUST(recipe_model_make(s.dir, from, "config.json", err));
    open_model_dir(&m, s.dir);
    check_cuts(name, &m);
    open_model_close(&m);
    scratch_close(&s);
}

static void check_arch(const char *name)
{
    char from[300];
    open_model m;

    (void)snprintf(from, sizeof from, "tests/golden/arch/%s", name);
    open_model_dir(&m, from);
    check_cuts(name, &m);
    open_model_close(&m);
}

/* Every directory of `in` that begins with a letter. */
static void for_each(const char *in, void (*check)(const char *name))
{
    struct dirent **found = NULL;
    const int n = scandir(in, &found, NULL, alphasort);

    assert_true(n > 2);
    for (int i = 0; i < n; i++) {
        if (found[i]->d_name[0] >= 'a' && found[i]->d_name[0] <= 'z') check(found[i]->d_name);
        free(found[i]);
    }
    free(found);
}

static void test_recipes(void **state)
{
    (void)state;
    for_each("tests/golden/recipes", check_recipe);
}

static void test_arch(void **state)
{
    (void)state;
    for_each("tests/golden/arch", check_arch);
}

/* ---- forms of weights and of keys and values ---- */

static void test_scheme(void **state)
{
    const sw_qspec spec = sw_scheme_spec(sw_scheme_find(*state));
    quantized_lm q;

    quantized_lm_open(&q, "calib_data/tiny-llama", &spec, NULL);
    check_cuts(*state, &q.m);
    quantized_lm_close(&q);
}

static void check_codes(const char *name, const char *dir, sw_kv_kind kind)
{
    open_model m;

    open_model_dir(&m, dir);
    for (int64_t l = 0; l < m.model.n_layers; l++)
        m.lm.blocks[l].kv = (sw_kv_form){kind, 0.02f + 0.01f * (float)l, 0.03f};
    check_cuts(name, &m);
    open_model_close(&m);
}

/* Keys and values of eight bits, whose scales go with the layer; also those that layers share. */
static void test_codes(void **state)
{
    scratch s;

    (void)state;
    check_codes("tiny-llama, e4m3", "calib_data/tiny-llama", SW_KV_E4M3);
    check_codes("tiny-llama, int8", "calib_data/tiny-llama", SW_KV_INT8);
    scratch_open(&s);
    MUST(recipe_model_make(s.dir, "tests/golden/recipes/gemma4_text", "config.json", err));
    check_codes("gemma4_text, e4m3", s.dir, SW_KV_E4M3);
    scratch_close(&s);
}

/* ---- parts that are none ---- */

static void test_refusals(void **state)
{
    static const int64_t ends[][2] = {{0, 6}, {6, 6}, {4, 3}, {3, 5}, {3, 7}};
    sw_device_engine *engines[3] = {NULL};
    sw_device_lm *lm = NULL;
    sw_err why = {0};
    open_model m;

    (void)state;
    open_model_dir(&m, "calib_data/tiny-llama");
    for (int i = 0; i < 2; i++)
        MUST(sw_device_engine_new(&engines[i], gpus[i], &m.model, CHUNK, LENGTH, err));
    MUST(sw_device_engine_new(&engines[2], gpus[1], &m.model, CHUNK / 2, LENGTH, err));
    assert_int_equal(m.model.n_layers, 6);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        sw_err err = {0};

        assert_int_equal(sw_device_lm_spread(&lm, engines, ends[i], 2, &m.lm, &err), SW_E_BUG);
        assert_null(lm);
    }
    assert_int_equal(sw_device_lm_spread(&lm, engines + 1, (const int64_t[]){3, 6}, 2, &m.lm, &why),
                     SW_E_BUG); /* which take calls of another size */
    for (int i = 0; i < 3; i++) sw_device_engine_free(engines[i]);
    open_model_close(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipes),
        cmocka_unit_test(test_arch),
        {"W4A16", test_scheme, NULL, NULL, (void *)(uintptr_t)"W4A16"},
        {"W8A8", test_scheme, NULL, NULL, (void *)(uintptr_t)"W8A8"},
        {"FP8_DYNAMIC", test_scheme, NULL, NULL, (void *)(uintptr_t)"FP8_DYNAMIC"},
        {"NVFP4A16", test_scheme, NULL, NULL, (void *)(uintptr_t)"NVFP4A16"},
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_refusals),
    };
    const int missing = device_missing();
    int failed = 0;

    if (missing) return missing;
    for (int i = 0; i < PARTS_MAX; i++) {
        sw_err err = {0};

        if (sw_device_open(&gpus[i], 0, CAP_BYTES, &err) == SW_OK) continue;
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("layers on several devices", tests, NULL, NULL);
    for (int i = 0; i < PARTS_MAX; i++) sw_device_close(gpus[i]);
    return failed;
}
