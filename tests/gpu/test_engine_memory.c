/* test_engine_memory.c - a model that does not fit the memory it may use: its blocks pass through
 * the device, and logits and tokens are the bytes that they are with all blocks on the device. Exit
 * 77 without a GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/engine/device_engine.h"
#include "quant/run/scheme.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/cases/quantized_dir.h"

#define SEQ_LEN 64
#define STEPS 24
#define CODES_LIMIT 8e-2 /* relative L2 of logits: a rounding by the device may change a code */
#define CAP_STEP ((int64_t)1 << 20)
#ifdef SW_CHECKED
#define CAPS_ABOVE 1 /* steps with room for all blocks, to begin with */
#else
#define CAPS_ABOVE 16
#endif

static const char *const models[] = {"calib_data/tiny-llama", "tests/golden/arch/qwen3_moe",
                                     "tests/golden/arch/gemma2"};

/* What a run under a cap gave, and how much of the model streamed. */
typedef struct outcome {
    float *logits, *last; /* of a whole sequence, and after the steps */
    uint32_t ids[2 * STEPS];
    int64_t n_streamed, taken_bytes;
} outcome;

static void outcome_free(outcome *o)
{
    free(o->logits);
    free(o->last);
}

static void decode(outcome *o, sw_device_lm *lm, const uint32_t *ids)
{
    const sw_sampling greedy = {0, 0, 1, 0};
    sw_device_session *s = NULL;

    MUST(sw_device_session_new(&s, lm, 2, SEQ_LEN, &greedy, err));
    for (int i = 0; i < 2; i++) MUST(sw_device_session_feed(s, i, ids + 5 * i, 20, err));
    MUST(sw_device_session_step(s, o->ids, STEPS, err));
    MUST(sw_device_session_logits(s, o->last, err));
    sw_device_session_free(s);
}

/* SW_E_NOMEM: not even two blocks fit. */
static sw_code run_under(outcome *o, const open_model *m, int64_t cap_bytes, sw_err *why)
{
    const int64_t vocab = m->model.vocab;
    sw_device_lm_linears linears;
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;
    sw_device *gpu = NULL;
    uint32_t ids[SEQ_LEN];
    sw_code rc;

    memset(o, 0, sizeof *o);
    for (int i = 0; i < SEQ_LEN; i++) ids[i] = (uint32_t)((i * 37 + 11) % vocab);
    if ((rc = sw_device_open(&gpu, 0, cap_bytes, why)) != SW_OK ||
        (rc = sw_device_engine_new(&engine, gpu, &m->model, SEQ_LEN, SEQ_LEN, why)) != SW_OK ||
        (rc = sw_device_lm_new(&lm, engine, &m->lm, why)) != SW_OK)
        goto done;
    sw_device_lm_count(&linears, lm);
    o->n_streamed = linears.n_streamed_blocks;
    o->taken_bytes = sw_device_taken_bytes(gpu);
    o->logits = malloc(4 * (size_t)(SEQ_LEN * vocab));
    o->last = malloc(4 * (size_t)(2 * vocab));
    for (int i = 0; i < 2; i++) { /* the second time another block is in each place */
        MUST(sw_device_lm_forward(lm, ids, 1, SEQ_LEN, err));
        MUST(sw_device_lm_head(lm, o->logits, 0, SEQ_LEN, err));
    }
    decode(o, lm, ids);
done:
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
    sw_device_close(gpu);
    return rc;
}

/* From all blocks on the device down to where not even two fit. */
static void check_caps(const char *name, const open_model *m)
{
    const size_t n_logits = (size_t)(SEQ_LEN * m->model.vocab);
    int64_t most = 0;
    outcome whole, part;
    sw_code rc = SW_OK;
    sw_err why = {0};

    MUST(run_under(&whole, m, 0, err));
    assert_int_equal(whole.n_streamed, 0);
    for (int64_t cap = whole.taken_bytes + CAPS_ABOVE * CAP_STEP; rc == SW_OK; cap -= CAP_STEP) {
        assert_true(cap > 0);
        if ((rc = run_under(&part, m, cap, &why)) != SW_OK) break;
        if (memcmp(part.logits, whole.logits, 4 * n_logits) ||
            memcmp(part.last, whole.last, 8 * (size_t)m->model.vocab) ||
            memcmp(part.ids, whole.ids, sizeof whole.ids))
            fail_msg("%s: with %lld blocks streamed the bytes are others", name,
                     (long long)part.n_streamed);
        most = part.n_streamed > most ? part.n_streamed : most;
        outcome_free(&part);
    }
    print_message("%s: up to %lld of %lld blocks streamed; then: %s\n", name, (long long)most,
                  (long long)m->model.n_layers, why.text);
    assert_int_equal(rc, SW_E_NOMEM);
    assert_int_equal(most, m->model.n_layers);
    outcome_free(&whole);
}

static void test_dense(void **state)
{
    open_model m;

    open_model_dir(&m, *state);
    check_caps(*state, &m);
    open_model_close(&m);
}

static void test_quantized(void **state)
{
    const sw_qspec spec = sw_scheme_spec(sw_scheme_find("W4A16"));
    quantized_lm q;

    (void)state;
    quantized_lm_open(&q, models[0], &spec, NULL);
    check_caps("W4A16", &q.m);
    quantized_lm_close(&q);
}

/* Coarse codes, so that their rounding is more than that of a device. */
static void keep_codes(open_model *m, sw_kv_kind kind)
{
    for (int64_t l = 0; l < m->model.n_layers; l++)
        m->lm.blocks[l].kv = kind == SW_KV_INT8 ? (sw_kv_form){kind, 0.5f, 0.125f}
                                                     : (sw_kv_form){kind, 256.0f, 64.0f};
}

/* Keys and values of codes: those of the CPU's, which a cache of floats is far from. */
static void test_codes(void **state)
{
    const sw_kv_kind kind = *(const sw_kv_kind *)*state;
    float *floats, *codes;
    uint32_t ids[SEQ_LEN];
    double off, cost;
    outcome have;
    open_model m;

    open_model_dir(&m, models[0]);
    for (int i = 0; i < SEQ_LEN; i++) ids[i] = (uint32_t)((i * 37 + 11) % m.model.vocab);
    floats = model_logits(&m, 2, ids, 1, SEQ_LEN);
    keep_codes(&m, kind);
    codes = model_logits(&m, 2, ids, 1, SEQ_LEN);
    MUST(run_under(&have, &m, 0, err));
    off = relative_l2(have.logits, codes, SEQ_LEN * m.model.vocab);
    cost = relative_l2(have.logits, floats, SEQ_LEN * m.model.vocab);
    print_message("codes: %.2e from the CPU's, %.2e from floats\n", off, cost);
    if (!(off <= CODES_LIMIT && cost > 1.4 * off)) fail_msg("%g, %g", off, cost);
    check_caps("codes", &m);
    sw_mem_put(floats), sw_mem_put(codes);
    outcome_free(&have);
    open_model_close(&m);
}

/* One argument: the tests whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    static sw_kv_kind kinds[] = {SW_KV_E4M3, SW_KV_INT8};
    const struct CMUnitTest tests[] = {
        {"tiny-llama", test_dense, NULL, NULL, (void *)(uintptr_t)models[0]},
        {"qwen3_moe", test_dense, NULL, NULL, (void *)(uintptr_t)models[1]},
        {"gemma2", test_dense, NULL, NULL, (void *)(uintptr_t)models[2]},
        {"W4A16", test_quantized, NULL, NULL, NULL},
        {"e4m3 cache", test_codes, NULL, NULL, &kinds[0]},
        {"int8 cache", test_codes, NULL, NULL, &kinds[1]},
    };

    const int missing = device_missing();

    if (missing) return missing;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("models that do not fit", tests, NULL, NULL);
}
