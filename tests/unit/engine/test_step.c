/* test_step.c - sequences decoded together say what each says by itself: sw_engine_step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/toys/open_model.h"

#define N_SEQS 3
#define HELD 5   /* tokens before the steps */
#define N_STEPS 3
#define NEAR 2e-4 /* of the norm: kernels for several rows add up in another order */

static uint32_t token(int64_t seq, int64_t t) { return (uint32_t)(1 + (7 * t + 31 * seq) % 90); }

/* Row [hidden] of each sequence after its last step, one sequence at a time. */
static void alone(float *rows, sw_engine *e, const open_model *m)
{
    const int64_t hidden = m->lm.model->hidden;
    sw_err err = {0};

    for (int64_t i = 0; i < N_SEQS; i++) {
        sw_session *s = NULL;

        assert_int_equal(sw_session_new(&s, e, &m->lm, HELD + N_STEPS, &err), SW_OK);
        for (int64_t t = 0; t < HELD + N_STEPS; t++) {
            const uint32_t id = token(i, t);
            assert_int_equal(sw_session_feed_rows(s, rows + i * hidden, &id, 1, &err), SW_OK);
        }
        sw_session_free(s);
    }
}

typedef struct caches {
    sw_kv *kv;        /* [n_layers, N_SEQS] */
    sw_kv *const *at; /* likewise */
    sw_kv **places;
} caches;

static void fill(caches *c, sw_engine *e, const open_model *m, float *x, int64_t held)
{
    const sw_model *model = m->lm.model;
    sw_err err = {0};

    assert_int_equal(SW_MEM_GET(&c->kv, model->n_layers * N_SEQS, "kv", &err), SW_OK);
    assert_int_equal(SW_MEM_GET(&c->places, model->n_layers * N_SEQS, "kv", &err), SW_OK);
    c->at = c->places;
    for (int64_t i = 0; i < model->n_layers * N_SEQS; i++) {
        c->places[i] = &c->kv[i];
        assert_int_equal(sw_kv_reserve(&c->kv[i], model, i / N_SEQS, 64, &err), SW_OK);
    }
    for (int64_t i = 0; i < N_SEQS; i++) {
        uint32_t ids[HELD];

        for (int64_t t = 0; t < held; t++) ids[t] = token(i, t);
        assert_int_equal(sw_engine_embed(e, &m->lm, x, ids, 1, held, 0, &err), SW_OK);
        for (int64_t l = 0; l < model->n_layers; l++)
            assert_int_equal(sw_engine_block(e, &m->lm.blocks[l], x, 1, held,
                                             &c->kv[l * N_SEQS + i], NULL, (sw_site)SW_RUN_ALL,
                                             &err), SW_OK);
    }
}

static void empty(caches *c, const open_model *m)
{
    for (int64_t i = 0; i < m->lm.model->n_layers * N_SEQS; i++) sw_kv_free(&c->kv[i]);
    sw_mem_put(c->kv);
    sw_mem_put(c->places);
}

static void together(float *x, sw_engine *e, const open_model *m)
{
    caches c;
    sw_err err = {0};

    fill(&c, e, m, x, HELD);
    for (int64_t t = HELD; t < HELD + N_STEPS; t++) {
        uint32_t ids[N_SEQS];

        for (int64_t i = 0; i < N_SEQS; i++) ids[i] = token(i, t);
        assert_int_equal(sw_engine_embed(e, &m->lm, x, ids, N_SEQS, 1, t, &err), SW_OK);
        for (int64_t l = 0; l < m->lm.model->n_layers; l++)
            assert_int_equal(sw_engine_step(e, &m->lm.blocks[l], x, N_SEQS, c.at + l * N_SEQS,
                                            &err), SW_OK);
    }
    for (int64_t i = 0; i < N_SEQS; i++) assert_int_equal(c.kv[i].n_cached, HELD + N_STEPS);
    empty(&c, m);
}

static void steps_are_those_of_each(void **state)
{
    open_model m;
    sw_engine *e;
    float *x = NULL, *want = NULL;
    int64_t n;
    sw_err err = {0};

    open_model_dir(&m, *state);
    n = N_SEQS * m.lm.model->hidden;
    e = open_engine(&m, 16, 2);
    assert_true(sw_engine_can_step(m.lm.model));
    assert_int_equal(SW_MEM_GET(&x, 16 * m.lm.model->hidden, "x", &err), SW_OK);
    assert_int_equal(SW_MEM_GET(&want, n, "want", &err), SW_OK);
    alone(want, e, &m);
    together(x, e, &m);
    for (int64_t i = 0; i < N_SEQS; i++) {
        const double off = relative_l2(x + i * n / N_SEQS, want + i * n / N_SEQS, n / N_SEQS);

        if (!(off <= NEAR)) fail_msg("%s: %d is off by %g", (const char *)*state, (int)i, off);
    }
    sw_mem_put(x);
    sw_mem_put(want);
    sw_engine_free(e);
    open_model_close(&m);
}

static void unequal_lengths_are_refused(void **state)
{
    open_model m;
    sw_engine *e;
    caches c;
    float *x = NULL;
    sw_err err = {0};

    (void)state;
    open_model_dir(&m, "tests/golden/arch/llama");
    e = open_engine(&m, 16, 1);
    assert_int_equal(SW_MEM_GET(&x, 16 * m.lm.model->hidden, "x", &err), SW_OK);
    fill(&c, e, &m, x, HELD);
    c.kv[2].n_cached--;
    assert_int_equal(sw_engine_step(e, &m.lm.blocks[0], x, N_SEQS, c.at, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "sequence 2 holds 4 tokens"));
    assert_int_equal(c.kv[0].n_cached, HELD);
    empty(&c, &m);
    sw_mem_put(x);
    sw_engine_free(e);
    open_model_close(&m);
}

int main(void)
{
    static char llama[] = "tests/golden/arch/llama", gpt2[] = "tests/golden/arch/gpt2";
    static char oss[] = "tests/golden/arch/gpt_oss", latent[] = "tests/golden/arch/deepseek_v3";
    static char gemma[] = "tests/golden/arch/gemma3_text", moe[] = "tests/golden/models/tiny-moe";
    const struct CMUnitTest tests[] = {
        {.name = "llama", .test_func = steps_are_those_of_each, .initial_state = llama},
        {.name = "gpt2", .test_func = steps_are_those_of_each, .initial_state = gpt2},
        {.name = "gpt_oss", .test_func = steps_are_those_of_each, .initial_state = oss},
        {.name = "deepseek_v3", .test_func = steps_are_those_of_each, .initial_state = latent},
        {.name = "gemma3", .test_func = steps_are_those_of_each, .initial_state = gemma},
        {.name = "tiny-moe", .test_func = steps_are_those_of_each, .initial_state = moe},
        cmocka_unit_test(unequal_lengths_are_refused),
    };
    return cmocka_run_group_tests_name("steps of several sequences", tests, NULL, NULL);
}
