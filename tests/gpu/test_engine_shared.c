/* test_engine_shared.c - experts beside one of every token, in widths of whole units of 128: there
 * decoding one sequence fuses the shared expert's products with what stands around them, and must
 * still add what the routed experts put out. Steps against the same text at once, and that against
 * the CPU. Exit 77 without a GPU that has those products.
 *
 * The models are recipes of tests/golden/recipes with wider experts, so their weights are random.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/io/file_content.h"
#include "kernels/engine/device_engine.h"
#include "quant/run/scheme.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/random.h"
#include "tests/support/toys/recipe_model.h"

#define WIDE 128
#define PROMPT 20
#define STEPS 12
#define TOKENS (PROMPT + STEPS)
/* Of the step in the middle, as a step whose experts are others is far off: relative L2 of logits
 * by two ways in BF16, with inputs in codes by E4M3 too. */
#define W4A16_LIMIT 2e-2
#define FP8_LIMIT 1.2e-1

static sw_device *gpu;

typedef struct shared_case {
    const char *recipe, *scheme;
    double limit;
} shared_case;

static const shared_case cases[] = {
    {"hunyuan_v1_moe", "W4A16", W4A16_LIMIT},
    {"hunyuan_v1_moe", "FP8_DYNAMIC", FP8_LIMIT},
    {"qwen2_moe", "W4A16", W4A16_LIMIT},      /* with a gate on the shared expert */
    {"glm4_moe", "W4A16", W4A16_LIMIT},       /* its first layer is dense */
    {"llama4_text", "W4A16", W4A16_LIMIT},    /* routers scale what experts read */
};
#define N_CASES (sizeof cases / sizeof cases[0])

static cJSON *read_json(const char *dir, const char *file)
{
    static const sw_json_caps caps = {.max_bytes = 4 << 20, .max_depth = 8, .max_values = 1 << 20};
    char path[256];
    cJSON *json = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    MUST(sw_json_read(&json, path, &caps, err));
    return json;
}

static void write_json(const char *dir, const char *file, cJSON *json)
{
    char path[SW_PATH_BYTES], *text = cJSON_PrintUnformatted(json);
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0) fail_msg("%s: cannot be written", path);
    cJSON_free(text);
    cJSON_Delete(json);
}

/* Experts and the shared one WIDE channels wide. */
static void widen(const char *dir, const char *recipe)
{
    static const char *const keys[] = {"moe_intermediate_size", "shared_expert_intermediate_size"};
    char from[128];
    cJSON *config, *all, *tensor, *dim;

    (void)snprintf(from, sizeof from, "tests/golden/recipes/%s", recipe);
    config = read_json(from, "config.json");
    for (size_t i = 0; i < 2; i++)
        if (cJSON_GetObjectItem(config, keys[i]))
            cJSON_SetNumberValue(cJSON_GetObjectItem(config, keys[i]), WIDE);
    if (!cJSON_GetObjectItem(config, keys[0]))
        cJSON_SetNumberValue(cJSON_GetObjectItem(config, "intermediate_size"), WIDE);
    write_json(dir, "config.json", config);
    write_json(dir, "generation_config.json", read_json(from, "generation_config.json"));
    all = read_json(from, "recipe.json");
    cJSON_ArrayForEach(tensor, cJSON_GetObjectItem(all, "tensors"))
    {
        const char *name = cJSON_GetObjectItem(tensor, "name")->valuestring;

        if (!strstr(name, ".mlp.") && !strstr(name, ".feed_forward.")) continue;
        cJSON_ArrayForEach(dim, cJSON_GetObjectItem(tensor, "shape"))
            if (dim->valueint == 64 || dim->valueint == 96)
                cJSON_SetNumberValue(dim, WIDE);
            else if (dim->valueint == 192) /* gates and ups in one */
                cJSON_SetNumberValue(dim, 2 * WIDE);
    }
    write_json(dir, "recipe.json", all);
}

/* Logits [TOKENS, vocab] of the text at once. */
static float *at_once(const open_model *m, const uint32_t *ids)
{
    float *logits = malloc(4 * (size_t)(TOKENS * m->model.vocab));
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;

    MUST(sw_device_engine_new(&engine, gpu, &m->model, TOKENS, TOKENS, err));
    MUST(sw_device_lm_new(&lm, engine, &m->lm, err));
    MUST(sw_device_lm_forward(lm, ids, 1, TOKENS, err));
    MUST(sw_device_lm_head(lm, logits, 0, TOKENS, err));
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
    return logits;
}

/* Logits [STEPS, vocab] behind each token that one sequence draws, which go into ids. */
static float *by_steps(const open_model *m, uint32_t *ids)
{
    const sw_sampling greedy = {0, 0, 1, 0};
    float *logits = malloc(4 * (size_t)(STEPS * m->model.vocab));
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;
    sw_device_session *s = NULL;

    MUST(sw_device_engine_new(&engine, gpu, &m->model, TOKENS, TOKENS, err));
    MUST(sw_device_lm_new(&lm, engine, &m->lm, err));
    MUST(sw_device_session_new(&s, lm, 1, TOKENS, &greedy, err));
    MUST(sw_device_session_feed(s, 0, ids, PROMPT, err));
    for (int64_t t = 0; t < STEPS; t++) {
        MUST(sw_device_session_step(s, ids + PROMPT + t, 1, err));
        MUST(sw_device_session_logits(s, logits + t * m->model.vocab, err));
    }
    sw_device_session_free(s);
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
    return logits;
}

/* Every expert of the last layer with the `down` of the next one: as far off as none at all. */
static void mix_up(open_model *m)
{
    const int64_t n = m->model.n_experts;
    sw_weight *downs = m->lm.blocks[m->model.n_layers - 1].experts[2], first = downs[0];

    memmove(downs, downs + 1, (size_t)(n - 1) * sizeof *downs);
    downs[n - 1] = first;
}

static void test_shared(void **state)
{
    const shared_case *c = *state;
    const sw_scheme *scheme = sw_scheme_find(c->scheme);
    sw_qspec spec = sw_scheme_spec(scheme);
    uint32_t ids[TOKENS];
    float *stepped, *whole, *other, *on_cpu;
    quantized_lm q;
    double error, fault, far;
    scratch from, s;
    int64_t vocab;

    scratch_open(&from);
    scratch_open(&s);
    widen(from.dir, c->recipe);
    MUST(recipe_model_make(s.dir, from.dir, "config.json", err));
    if (spec.scale_dtype == SW_DTYPE_F16) spec.scale_dtype = SW_DTYPE_BF16;
    quantized_lm_open(&q, s.dir, &spec, NULL);
    vocab = q.m.model.vocab;
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (7 * i + 3) % (uint32_t)vocab;
    stepped = by_steps(&q.m, ids);
    whole = at_once(&q.m, ids);
    on_cpu = model_logits(&q.m, 4, ids, 1, TOKENS);
    error = relative_l2_median(stepped, whole + PROMPT * vocab, STEPS, vocab);
    far = relative_l2_median(whole, on_cpu, TOKENS, vocab);
    mix_up(&q.m);
    other = at_once(&q.m, ids);
    fault = relative_l2_median(stepped, other + PROMPT * vocab, STEPS, vocab);
    print_message("%s %s: steps %.2e from the text at once, %.2e with other experts; that %.2e "
                  "from the CPU\n", c->recipe, c->scheme, error, fault, far);
    if (!(error <= c->limit) || fault <= 2 * c->limit || !(far <= c->limit))
        fail_msg("%s %s: %g, %g with other experts, %g from the CPU", c->recipe, c->scheme, error,
                 fault, far);
    sw_mem_put(on_cpu);
    free(stepped), free(whole), free(other);
    quantized_lm_close(&q);
    scratch_close(&s);
    scratch_close(&from);
}

int main(void)
{
    struct CMUnitTest tests[N_CASES];
    int failed = device_open(&gpu);

    if (failed) return failed;
    if (sw_device_about(gpu)->arch != 90) {
        printf("skipped: no GPU of compute capability 9.0\n");
        sw_device_close(gpu);
        return 77;
    }
    for (size_t i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].recipe, .test_func = test_shared,
                                       .initial_state = (void *)(uintptr_t)&cases[i]};
    failed = cmocka_run_group_tests_name("shared experts on the device", tests, NULL, NULL);
    sw_device_close(gpu);
    return failed;
}
