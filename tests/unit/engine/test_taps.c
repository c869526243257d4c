/* test_taps.c - what taps see, and where a run stops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/toys/open_model.h"
#include "tests/support/toys/random.h"

#define TOKENS 40
#define SEEN_MAX 64

typedef struct seen {
    sw_site site;
    int64_t expert, n_tokens, k_in;
    float *x, *residual;
    int32_t *tokens;
} seen;

typedef struct record {
    seen calls[SEEN_MAX];
    int n;
    int64_t hidden;
    sw_code answer;
} record;

static void *copy(const void *bytes, int64_t n_bytes)
{
    void *out = bytes ? malloc((size_t)n_bytes) : NULL;

    if (bytes) memcpy(out, bytes, (size_t)n_bytes);
    return out;
}

static sw_code see(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                   int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    record *r = self;
    seen *s = &r->calls[r->n++];

    assert_true(r->n <= SEEN_MAX);
    *s = (seen){site, expert, n_tokens, k_in, copy(x, n_tokens * k_in * 4),
                copy(residual, n_tokens * r->hidden * 4), copy(token_ids, n_tokens * 4)};
    return r->answer ? SW_FAIL(err, r->answer, "the tap says no") : SW_OK;
}

static void forget(record *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->calls[i].x);
        free(r->calls[i].residual);
        free(r->calls[i].tokens);
    }
    r->n = 0;
}

/* One block on random hidden rows; x is what the rows became. */
static sw_code run(const open_model *m, record *r, sw_site stop_at, float *x)
{
    sw_engine *engine = open_engine(m, TOKENS, 2);
    sw_tap tap = {.self = r, .see = see};
    test_rng rng = {41};
    sw_code rc;

    r->hidden = m->model.hidden;
    for (int64_t i = 0; i < TOKENS * m->model.hidden; i++) x[i] = (float)test_gauss(&rng);
    rc = sw_engine_block(engine, &m->lm.blocks[1], x, 2, TOKENS / 2, NULL, &tap, stop_at, NULL);
    sw_engine_free(engine);
    return rc;
}

static void same_call(const seen *a, const seen *b, int64_t hidden)
{
    assert_true(a->site == b->site && a->expert == b->expert && a->n_tokens == b->n_tokens);
    assert_int_equal(a->k_in, b->k_in);
    assert_memory_equal(a->x, b->x, (size_t)(a->n_tokens * a->k_in) * 4);
    assert_true(!a->residual == !b->residual && !a->tokens == !b->tokens);
    if (a->residual)
        assert_memory_equal(a->residual, b->residual, (size_t)(a->n_tokens * hidden) * 4);
    if (a->tokens) assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * 4);
}

/* A run that stops at a site sees the calls of a full run up to it, and leaves x alone. */
static void check_stops(const char *dir, bool is_sparse)
{
    open_model m;
    record full = {0}, part = {0};
    int64_t n;
    float *x, *before;

    open_model_dir(&m, dir);
    n = TOKENS * m.model.hidden;
    x = calloc((size_t)n, sizeof *x);
    before = calloc((size_t)n, sizeof *x);
    assert_int_equal(run(&m, &full, (sw_site)SW_RUN_ALL, x), SW_OK);
    for (int site = 0; site < SW_SITE_COUNT; site++) {
        int n_calls = 0;
        test_rng rng = {41};

        if (!sw_model_site_width(&m.model, 1, (sw_site)site)) continue; /* not in this block */
        for (int64_t i = 0; i < n; i++) before[i] = (float)test_gauss(&rng);
        assert_int_equal(run(&m, &part, (sw_site)site, x), SW_OK);
        assert_memory_equal(x, before, (size_t)n * sizeof *x);
        while (n_calls < full.n && (int)full.calls[n_calls].site <= site) n_calls++;
        if (is_sparse && site == SW_SITE_MLP_IN) n_calls = 3;    /* the router's input alone */
        if (is_sparse && site == SW_SITE_DOWN_IN) n_calls = full.n; /* every expert's */
        assert_int_equal(part.n, n_calls);
        for (int i = 0; i < part.n; i++) same_call(&part.calls[i], &full.calls[i], m.model.hidden);
        forget(&part);
    }
    forget(&full);
    free(x);
    free(before);
    open_model_close(&m);
}

static void test_stops(void **state)
{
    (void)state;
    check_stops("tests/golden/arch/qwen2", false);
    check_stops("tests/golden/arch/qwen3", false);
    check_stops("tests/golden/arch/mixtral", true);
    check_stops("tests/golden/arch/qwen3_moe", true);
    check_stops("tests/golden/arch/olmo2", false);
    check_stops("tests/golden/arch/gemma2", false);
    check_stops("tests/golden/arch/gpt2", false);
    check_stops("tests/golden/arch/gpt_oss", true);
}

/* The halves one after the other give the bytes and the calls of the whole. */
static void check_halves(const char *dir)
{
    open_model m;
    record whole = {0}, halves = {0};
    sw_tap tap = {.self = &halves, .see = see};
    test_rng rng = {41};
    sw_engine *engine;
    int64_t n;
    int n_first = 0;
    float *x, *y;

    open_model_dir(&m, dir);
    n = TOKENS * m.model.hidden;
    x = calloc((size_t)n, sizeof *x);
    y = calloc((size_t)n, sizeof *y);
    assert_int_equal(run(&m, &whole, (sw_site)SW_RUN_ALL, x), SW_OK);
    halves.hidden = m.model.hidden;
    for (int64_t i = 0; i < n; i++) y[i] = (float)test_gauss(&rng);
    engine = open_engine(&m, TOKENS, 2);
    assert_int_equal(sw_engine_half(engine, &m.lm.blocks[1], y, 2, TOKENS / 2, SW_HALF_ATTENTION,
                                    &tap, (sw_site)SW_RUN_ALL, NULL), SW_OK);
    for (int site = 0; site < SW_SITE_MLP_IN; site++)
        n_first += sw_model_site_width(&m.model, 1, (sw_site)site) > 0;
    assert_int_equal(halves.n, n_first);
    assert_int_equal(sw_engine_half(engine, &m.lm.blocks[1], y, 2, TOKENS / 2, SW_HALF_MLP, &tap,
                                    (sw_site)SW_RUN_ALL, NULL), SW_OK);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    assert_int_equal(halves.n, whole.n);
    for (int i = 0; i < whole.n; i++)
        same_call(&halves.calls[i], &whole.calls[i], m.model.hidden);
    sw_engine_free(engine);
    forget(&whole);
    forget(&halves);
    free(x);
    free(y);
    open_model_close(&m);
}

static void test_halves(void **state)
{
    (void)state;
    check_halves("tests/golden/arch/qwen3");
    check_halves("tests/golden/arch/mixtral");
    check_halves("tests/golden/arch/olmo2");
    check_halves("tests/golden/arch/gemma3_text");
    check_halves("tests/golden/arch/phi3");
    check_halves("tests/golden/arch/opt");
    check_halves("tests/golden/arch/gpt_oss");
    check_halves("tests/golden/arch/deepseek_v3");
}

static void test_sites_of_a_dense_block(void **state)
{
    static const sw_site sites[] = {SW_SITE_ATTN_IN, SW_SITE_O_IN, SW_SITE_MLP_IN,
                                    SW_SITE_DOWN_IN};
    static const int64_t widths[] = {128, 256, 128, 256};
    open_model m;
    record r = {0};
    float *x;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/qwen3"); /* heads times head_dim is not hidden there */
    x = calloc(TOKENS * 128, sizeof *x);
    assert_int_equal(run(&m, &r, (sw_site)SW_RUN_ALL, x), SW_OK);
    assert_int_equal(r.n, 4);
    for (int i = 0; i < r.n; i++) {
        assert_true(r.calls[i].site == sites[i] && r.calls[i].expert == -1);
        assert_true(r.calls[i].n_tokens == TOKENS && r.calls[i].k_in == widths[i]);
        assert_true(r.calls[i].residual && !r.calls[i].tokens);
    }
    /* the residual moves once, between attention and the feed-forward half */
    assert_memory_equal(r.calls[0].residual, r.calls[1].residual, TOKENS * 128 * 4);
    assert_memory_equal(r.calls[2].residual, r.calls[3].residual, TOKENS * 128 * 4);
    assert_memory_not_equal(r.calls[1].residual, r.calls[2].residual, TOKENS * 128 * 4);
    forget(&r);
    free(x);
    open_model_close(&m);
}

/* Every token meets n_experts_used different experts, and an expert's rows are those tokens'. */
static void test_experts_get_their_tokens(void **state)
{
    open_model m;
    record r = {0};
    int met[TOKENS] = {0};
    float *x;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/mixtral");
    x = calloc(TOKENS * 128, sizeof *x);
    assert_int_equal(run(&m, &r, (sw_site)SW_RUN_ALL, x), SW_OK);
    assert_true(r.calls[2].site == SW_SITE_MLP_IN && r.calls[2].expert == -1);
    for (int i = 3; i < r.n; i++) {
        const seen *s = &r.calls[i];

        assert_true(s->expert >= 0 && s->expert >= r.calls[i - 1].expert && !s->residual);
        for (int64_t t = 0; t < s->n_tokens; t++) {
            assert_true(t == 0 || s->tokens[t] > s->tokens[t - 1]);
            if (s->site != SW_SITE_MLP_IN) continue;
            met[s->tokens[t]]++;
            assert_memory_equal(s->x + t * 128, r.calls[2].x + s->tokens[t] * 128, 128 * 4);
        }
    }
    for (int t = 0; t < TOKENS; t++) assert_int_equal(met[t], m.model.n_experts_used);
    forget(&r);
    free(x);
    open_model_close(&m);
}

/* The shared expert is neither run nor shown, and routed ones read and make the same. */
static void test_routed_experts_alone(void **state)
{
    open_model m;
    record r[2] = {{.n = 0}};
    float *x;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/deepseek_v3");
    x = calloc((size_t)(TOKENS * m.model.hidden), sizeof *x);
    for (int alone = 0; alone < 2; alone++) {
        sw_tap tap = {.self = &r[alone], .see = see, .is_experts_only = alone};
        sw_engine *engine = open_engine(&m, TOKENS, 2);
        test_rng rng = {41};

        r[alone].hidden = m.model.hidden;
        for (int64_t i = 0; i < TOKENS * m.model.hidden; i++) x[i] = (float)test_gauss(&rng);
        assert_int_equal(sw_engine_block(engine, &m.lm.blocks[1], x, 2, TOKENS / 2, NULL, &tap,
                                         SW_SITE_DOWN_IN, NULL), SW_OK);
        sw_engine_free(engine);
    }
    assert_int_equal(r[1].n, r[0].n - 1);
    for (int i = 0, j = 0; i < r[0].n; i++)
        if (r[0].calls[i].site != SW_SITE_SHARED_DOWN_IN)
            same_call(&r[0].calls[i], &r[1].calls[j++], m.model.hidden);
    forget(&r[0]);
    forget(&r[1]);
    free(x);
    open_model_close(&m);
}

/* Equal router logits: the lower index wins, and NaN inputs still reach different experts. */
typedef struct all_seen {
    record *routed;
    int n, every;
} all_seen;

static sw_code see_every_token(void *self, int64_t expert, const float *x, int64_t n_tokens,
                               int64_t k_in, sw_err *err)
{
    all_seen *a = self;
    (void)err;
    assert_int_equal(expert, a->n++);
    assert_int_equal(n_tokens, (TOKENS + a->every - 1) / a->every);
    for (int i = 0; i < a->routed->n; i++) {
        const seen *s = &a->routed->calls[i];
        if (s->site != SW_SITE_DOWN_IN || s->expert != expert) continue;
        for (int64_t t = 0; t < s->n_tokens; t++)
            if (s->tokens[t] % a->every == 0)
                assert_true(relative_l2(x + s->tokens[t] / a->every * k_in, s->x + t * k_in,
                                        k_in) < 1e-5);
    }
    return SW_OK;
}

static sw_code see_nothing(void *self, sw_site site, int64_t expert, const float *x,
                           int64_t n_tokens, int64_t k_in, const float *residual,
                           const int32_t *token_ids, sw_err *err)
{
    (void)self, (void)site, (void)expert, (void)x, (void)n_tokens, (void)k_in, (void)residual;
    (void)token_ids, (void)err;
    return SW_OK;
}

/* What every expert would make of every token agrees, where it was routed, with what it made. */
static void test_every_token_through_every_expert(void **state)
{
    open_model m;
    record r = {0};
    float *x, *y;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/mixtral");
    x = calloc(TOKENS * 128, sizeof *x);
    y = calloc(TOKENS * 128, sizeof *y);
    assert_int_equal(run(&m, &r, (sw_site)SW_RUN_ALL, x), SW_OK);
    for (int every = 1; every < 4; every += 2) {
        all_seen a = {&r, 0, every};
        sw_tap tap = {.self = &a, .see = see_nothing, .see_all = see_every_token,
                      .all_every = every};
        sw_engine *engine = open_engine(&m, TOKENS, 2);
        test_rng rng = {41};
        for (int i = 0; i < TOKENS * 128; i++) y[i] = (float)test_gauss(&rng);
        assert_int_equal(sw_engine_block(engine, &m.lm.blocks[1], y, 2, TOKENS / 2, NULL, &tap,
                                         (sw_site)SW_RUN_ALL, NULL), SW_OK);
        assert_int_equal(a.n, m.model.n_experts);
        assert_memory_equal(x, y, TOKENS * 128 * sizeof *x); /* looking changes nothing */
        sw_engine_free(engine);
    }
    forget(&r);
    free(x);
    free(y);
    open_model_close(&m);
}

static void test_router_ties_and_nan(void **state)
{
    open_model m;
    record r = {0};
    float *x, *zeros;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/mixtral");
    x = calloc(TOKENS * 128, sizeof *x);
    zeros = calloc((size_t)(m.model.n_experts * 128), sizeof *zeros);
    m.lm.blocks[1].linear[SW_SLOT_ROUTER].dense = zeros;
    m.lm.blocks[1].linear[SW_SLOT_ROUTER].dense_dtype = SW_DTYPE_F32;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(run(&m, &r, (sw_site)SW_RUN_ALL, x), SW_OK);
        assert_int_equal(r.n, 3 + 2 * 2); /* experts 0 and 1 got everything */
        assert_true(r.calls[3].expert == 0 && r.calls[5].expert == 1);
        assert_true(r.calls[3].n_tokens == TOKENS && r.calls[5].n_tokens == TOKENS);
        forget(&r);
        for (int64_t i = 0; i < m.model.n_experts * 128; i++) zeros[i] = (float)NAN;
    }
    free(zeros);
    free(x);
    open_model_close(&m);
}

static void test_a_tap_can_refuse(void **state)
{
    open_model m;
    record r = {.answer = SW_E_CANCELLED};
    float *x;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/llama");
    x = calloc(TOKENS * 128, sizeof *x);
    assert_int_equal(run(&m, &r, (sw_site)SW_RUN_ALL, x), SW_E_CANCELLED);
    assert_int_equal(r.n, 1);
    forget(&r);
    free(x);
    open_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_sites_of_a_dense_block),
        cmocka_unit_test(test_experts_get_their_tokens),
        cmocka_unit_test(test_every_token_through_every_expert),
        cmocka_unit_test(test_routed_experts_alone),
        cmocka_unit_test(test_router_ties_and_nan),
        cmocka_unit_test(test_a_tap_can_refuse),
    };
    return cmocka_run_group_tests_name("taps", tests, NULL, NULL);
}
