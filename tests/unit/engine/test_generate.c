/* test_generate.c - greedy continuations token for token, and how a run ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "formats/io/file_content.h"
#include "formats/text/tokenizer.h"
#include "kernels/engine/generate.h"
#include "tests/support/toys/open_model.h"

#define NEW_MAX 64

typedef struct taken {
    uint32_t ids[NEW_MAX];
    int64_t n, stop_after;
} taken;

static sw_code take(void *self, uint32_t id, sw_err *err)
{
    taken *t = self;

    assert_true(t->n < NEW_MAX);
    t->ids[t->n++] = id;
    return t->n == t->stop_after ? SW_FAIL(err, SW_E_CANCELLED, "stop") : SW_OK;
}

static const sw_generate_options greedy = {.sampling = {.temperature = 0, .top_p = 1},
                                           .max_new = 24};

static sw_code run(open_model *m, const uint32_t *prompt, int64_t n, int64_t capacity,
                   const sw_generate_options *options, taken *t, sw_generate_result *result)
{
    sw_engine *engine = open_engine(m, 64, 1);
    sw_session *session = NULL;
    sw_token_sink sink = {t, take};
    sw_err err = {0};
    sw_code rc;

    assert_int_equal(sw_session_new(&session, engine, &m->lm, capacity, &err), SW_OK);
    rc = sw_generate(session, &m->lm, prompt, n, options, &sink, result, &err);
    sw_session_free(session);
    sw_engine_free(engine);
    return rc;
}

static void test_greedy(void **state)
{
    const char *name = strrchr(*state, '/') + 1;
    char path[256];
    cJSON *golden = NULL;
    const cJSON *want, *prompt;
    sw_tokenizer *tok = NULL;
    sw_ids ids = {0};
    sw_err err = {0};
    open_model m;
    taken t = {0};
    int n_want;

    assert_int_equal(sw_json_read(&golden, "tests/golden/models/golden.json", &sw_json_caps_config,
                                  &err), SW_OK);
    want = sw_json_member(sw_json_member(golden, name), "greedy");
    prompt = sw_json_member(want, "prompt");
    want = sw_json_member(want, "ids");
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", (const char *)*state);
    assert_int_equal(sw_tokenizer_open(&tok, path, &err), SW_OK);
    assert_int_equal(sw_tokenizer_encode(tok, &ids, prompt->valuestring,
                                         strlen(prompt->valuestring), true, &err), SW_OK);
    open_model_dir(&m, *state);
    assert_int_equal(run(&m, ids.ids, ids.n, 512, &greedy, &t, NULL), SW_OK);
    n_want = cJSON_GetArraySize(want);
    assert_int_equal(ids.n + t.n, n_want);
    for (int i = 0; i < n_want; i++) {
        const uint32_t have = i < ids.n ? ids.ids[i] : t.ids[i - ids.n];

        if (have != (uint32_t)cJSON_GetArrayItem(want, i)->valuedouble)
            fail_msg("%s: token %d is %u, want %g", name, i, have,
                     cJSON_GetArrayItem(want, i)->valuedouble);
    }
    open_model_close(&m);
    sw_ids_free(&ids);
    sw_tokenizer_free(tok);
    cJSON_Delete(golden);
}

static void test_endings(void **state)
{
    static const uint32_t prompt[] = {0, 441, 506};
    sw_generate_options options = greedy;
    sw_generate_result r;
    taken first = {0}, t = {0};
    open_model m;

    (void)state;
    open_model_dir(&m, "calib_data/tiny-llama");
    assert_int_equal(run(&m, prompt, 3, 512, &options, &first, &r), SW_OK);
    assert_true(r.n_new == 24 && !r.met_eos);
    /* the fourth new token made an end token: three come, the rest of the run does not */
    m.model.eos_ids[m.model.n_eos++] = first.ids[3];
    assert_int_equal(run(&m, prompt, 3, 512, &options, &t, &r), SW_OK);
    assert_true(r.met_eos && r.eos == first.ids[3] && r.n_new <= 3 && t.n == r.n_new);
    assert_memory_equal(t.ids, first.ids, (size_t)t.n * sizeof *t.ids);
    options.ignores_eos = true;
    t = (taken){0};
    assert_int_equal(run(&m, prompt, 3, 512, &options, &t, &r), SW_OK);
    assert_memory_equal(t.ids, first.ids, 24 * sizeof *t.ids);
    t = (taken){.stop_after = 5};
    assert_int_equal(run(&m, prompt, 3, 512, &options, &t, &r), SW_E_CANCELLED);
    assert_int_equal(r.n_new, 5);
    t = (taken){0}; /* a full session is an end, not an error */
    assert_int_equal(run(&m, prompt, 3, 10, &options, &t, &r), SW_OK);
    assert_int_equal(r.n_new, 8);
    t = (taken){0};
    assert_int_equal(run(&m, prompt, 0, 10, &options, &t, &r), SW_E_USAGE);
    assert_int_equal(run(&m, prompt, 3, 2, &options, &t, &r), SW_E_USAGE);
    open_model_close(&m);
}

int main(void)
{
    static char tiny[] = "calib_data/tiny-llama", small[] = "tests/golden/models/small-llama";
    static char moe[] = "tests/golden/models/tiny-moe";
    const struct CMUnitTest tests[] = {
        {.name = "greedy tiny-llama", .test_func = test_greedy, .initial_state = tiny},
        {.name = "greedy small-llama", .test_func = test_greedy, .initial_state = small},
        {.name = "greedy tiny-moe", .test_func = test_greedy, .initial_state = moe},
        cmocka_unit_test(test_endings),
    };
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
