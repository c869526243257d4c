/* test_fault_engine.c - memory running out while a model is read, loaded and run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/io/file_content.h"
#include "kernels/engine/generate.h"
#include "tests/fault/fault.h"

typedef struct taken {
    uint32_t ids[16];
    int64_t n;
} taken;

static sw_code take(void *self, uint32_t id, sw_err *err)
{
    taken *t = self;

    (void)err;
    t->ids[t->n++] = id;
    return SW_OK;
}

static sw_code read_model(sw_model *m, const char *dir, sw_err *err)
{
    char path[256];
    cJSON *config = NULL;
    sw_code rc;

    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    if ((rc = sw_json_read(&config, path, &sw_json_caps_config, err)) != SW_OK) return rc;
    rc = sw_model_read(m, config, err);
    cJSON_Delete(config);
    return rc;
}

/* Sampling needs scratch of its own, a cache of 300 tokens grows once. */
static sw_code talk(sw_engine *engine, const sw_lm *lm, taken *t, sw_err *err)
{
    static const uint32_t prompt[254] = {1, 2, 3};
    const sw_generate_options options = {.sampling = {.temperature = 1, .top_k = 5, .top_p = 1},
                                         .max_new = 6, .ignores_eos = true};
    const sw_token_sink sink = {t, take};
    sw_session *session = NULL;
    sw_code rc = sw_session_new(&session, engine, lm, 300, err);

    if (rc == SW_OK) rc = sw_generate(session, lm, prompt, 254, &options, &sink, NULL, err);
    sw_session_free(session);
    return rc;
}

static sw_code attempt(void *ctx, sw_err *err)
{
    const char *dir = ctx;
    sw_model m;
    sw_st *st = NULL;
    sw_lm lm = {0};
    sw_engine *engine = NULL;
    taken t = {0};
    sw_code rc;

    if ((rc = read_model(&m, dir, err)) != SW_OK) goto done;
    if ((rc = sw_st_open(&st, dir, err)) != SW_OK) goto done;
    if ((rc = sw_lm_load(&lm, &m, st, err)) != SW_OK) goto done;
    if ((rc = sw_engine_new(&engine, &m, 128, 0, 1, err)) != SW_OK) goto done;
    if ((rc = talk(engine, &lm, &t, err)) != SW_OK) goto done;
    assert_int_equal(t.n, 6);
done:
    if (rc != SW_OK && !lm.final_norm) assert_null(lm.blocks);
    sw_engine_free(engine);
    sw_lm_free(&lm);
    sw_st_close(st);
    return rc;
}

/* The directory must hold one checkpoint, so the one with a reference beside it will not do. */
static void test_dense(void **state)
{
    static char dir[] = "calib_data/tiny-llama";

    (void)state;
    fault_run(&(fault_plan){.name = "dense", .kinds = FAULT_MEMORY | FAULT_READ,
                            .attempt = attempt, .ctx = dir, .max_runs = 400});
}

static void test_sparse(void **state)
{
    static char dir[] = "tests/golden/models/tiny-moe";

    (void)state;
    fault_run(&(fault_plan){.name = "sparse", .kinds = FAULT_MEMORY | FAULT_READ,
                            .attempt = attempt, .ctx = dir, .max_runs = 400});
}

/* Copies of transposed experts, biases, sinks. */
static void test_fused_experts(void **state)
{
    static char dir[] = "tests/golden/arch/gpt_oss";

    (void)state;
    fault_run(&(fault_plan){.name = "fused experts", .kinds = FAULT_MEMORY | FAULT_READ,
                            .attempt = attempt, .ctx = dir, .max_runs = 400});
}

static void test_latent(void **state)
{
    static char dir[] = "tests/golden/arch/deepseek_v3";

    (void)state;
    fault_run(&(fault_plan){.name = "latent attention", .kinds = FAULT_MEMORY | FAULT_READ,
                            .attempt = attempt, .ctx = dir, .max_runs = 400});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_fused_experts),
        cmocka_unit_test(test_latent),
    };
    return cmocka_run_group_tests_name("fault: engine", tests, NULL, NULL);
}
