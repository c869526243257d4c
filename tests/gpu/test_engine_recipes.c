/* test_engine_recipes.c - every family of tests/golden/recipes on the device: logits of whole
 * sequences and of tokens fed one by one against the reference, tokens that the device has drawn
 * against the CPU engine. Both spellings of each config. Exit 77 without a GPU.
 *
 * What the device refuses is a list that can only shrink: a family that is on it and runs fails.
 * At the end the largest distance of each family is printed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/io/file.h"
#include "kernels/engine/device_engine.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/recipe_model.h"

#define RECIPES "tests/golden/recipes/"
#define LIMIT 2e-2  /* relative L2 of all logits, of BF16 activations from float32 */
#define ROUTED 6e-2 /* where rounding sends a token to other experts than the reference does */
#define PROMPT 20
#define STEPS 12    /* drawn one by one, from the second on in a graph */

/* Toy routers have four experts and random weights: the last chosen and the first left out are
 * near ties for some tokens, and the logits of those move by more than rounding does. */
#define TIES "four experts by random weights: near ties"
/* Frequencies that follow the length of the whole text give steps other keys than the whole
 * sequence has, in the models' own library too. */
#define LENGTHS "its rope follows the length of the text"

typedef struct recipe {
    const char *name;
    double limit;
    const char *why; /* the limit is not LIMIT, or there are no steps; NULL */
    bool has_no_steps;
} recipe;

static const recipe recipes[] = {
    {"gemma3", LIMIT, NULL, false},
    {"qwen2_5_vl", LIMIT, NULL, false},
    {"qwen3_vl", LIMIT, NULL, false},
    {"qwen3_vl_moe", ROUTED, TIES, false},
    {"mistral3", LIMIT, NULL, false},
    {"glm4", LIMIT, NULL, false},
    {"glm4_moe", ROUTED, TIES, false},
    {"glm4_moe_mtp", ROUTED, TIES, false},
    {"glm4_moe_lite", ROUTED, TIES, false},
    {"minimax_m2", ROUTED, TIES, false},
    {"olmo3", LIMIT, NULL, false},
    {"smollm3", LIMIT, NULL, false},
    {"ernie4_5", LIMIT, NULL, false},
    {"exaone4", LIMIT, NULL, false},
    {"seed_oss", LIMIT, NULL, false},
    {"phi4", LIMIT, LENGTHS, true},
    {"phi4_short", LIMIT, NULL, false},
    {"deepseek_v32", ROUTED, TIES, false},
    {"glm_moe_dsa", ROUTED, TIES, false},
    {"starcoder2", LIMIT, NULL, false},
    {"stablelm", LIMIT, NULL, false},
};
#define N_RECIPES (sizeof recipes / sizeof recipes[0])

/* Families that the device refuses, and a part of what it says. */
static const char *const refused[][2] = {
    {"mistral3_ministral3", "an operation of its layers"},
    {"qwen2_moe", "an operation of its layers"},
    {"olmoe", "an operation of its layers"},
    {"cohere2", "a factor on the logits"},
    {"ernie4_5_moe", "its way to choose experts"},
    {"hunyuan_v1_dense", "head norms behind the rotation"},
    {"hunyuan_v1_moe", "head norms behind the rotation"},
    {"granite", "a factor on what is added to the residual stream"},
    {"llama4", "attention within chunks"},
    {"llama4_text", "attention within chunks"},
    {"stablelm_2_12b", "an operation of its layers"},
    {"gpt_neox", "an operation of its layers"},
    {"falcon", "an operation of its layers"},
    {"falcon_new", "an operation of its layers"},
    {"bloom", "attention that fades with the distance"},
    {"gemma3n", "inputs or keys beside the residual stream"},
    {"gemma4", "inputs or keys beside the residual stream"},
    {"gemma4_text", "inputs or keys beside the residual stream"},
    {"gemma4_moe", "its way to choose experts"},
    {"qwen3_5_text", "recurrent mixers"},
    {"qwen3_5", "recurrent mixers"},
    {"qwen3_5_mtp", "recurrent mixers"},
    {"qwen3_5_moe", "recurrent mixers"},
    {"qwen3_5_moe_text", "recurrent mixers"},
    {"qwen3_next", "recurrent mixers"},
    {"lfm2", "recurrent mixers"},
    {"lfm2_moe", "its way to choose experts"},
    {"mamba2", "recurrent mixers"},
    {"bamba", "recurrent mixers"},
    {"kimi_linear", "heads of several sizes"},
    {"granitemoehybrid", "a factor on what is added to the residual stream"},
    {"granitemoehybrid_dense", "a factor on what is added to the residual stream"},
    {"falcon_h1", "a factor on the logits"},
    {"nemotron_h", "recurrent mixers"},
    {"nemotron_h_latent", "recurrent mixers"},
};
#define N_REFUSED (sizeof refused / sizeof refused[0])

static sw_device *gpu;
static double worst[N_RECIPES];

typedef struct on_device {
    const recipe *r;
    const open_model *m;
    sw_device_engine *engine;
    sw_device_lm *lm;
} on_device;

static void on_device_new(on_device *c, const recipe *r, const open_model *m, int64_t max_tokens)
{
    *c = (on_device){.r = r, .m = m};
    MUST(sw_device_engine_new(&c->engine, gpu, &m->model, max_tokens, max_tokens, err));
    MUST(sw_device_lm_new(&c->lm, c->engine, &m->lm, err));
}

static void on_device_free(on_device *c)
{
    sw_device_lm_free(c->lm);
    sw_device_engine_free(c->engine);
}

static void compare(const recipe *r, const char *how, const float *have, const float *want,
                    int64_t n)
{
    const double far = relative_l2(have, want, n);
    double *most = &worst[r - recipes];

    if (!(far <= *most)) *most = far;
    if (!(far <= r->limit)) fail_msg("%s, %s: %.3g", r->name, how, far);
}

/* Every token by itself into a cache, and in two pieces. */
static void check_fed(const on_device *c, const reference_logits *ref)
{
    static const int64_t pieces[] = {1, 29};
    const sw_sampling greedy = {0, 0, 1, 0};
    const int64_t n = ref->seq_len, vocab = ref->vocab;
    float *have = malloc(4 * (size_t)(n * vocab));

    for (size_t i = 0; i < 2; i++) {
        sw_device_session *s = NULL;

        MUST(sw_device_session_new(&s, c->lm, 2, n, &greedy, err));
        for (int64_t t = 0, some; t < n; t += some) {
            float *both = malloc(4 * (size_t)(2 * vocab));

            some = pieces[i] < n - t ? pieces[i] : n - t;
            MUST(sw_device_session_feed(s, 1, ref->ids + t, some, err));
            MUST(sw_device_session_logits(s, both, err));
            memcpy(have + (t + some - 1) * vocab, both + vocab, 4 * (size_t)vocab);
            free(both);
        }
        if (i == 0)
            compare(c->r, "fed one by one", have, ref->logits, n * vocab);
        else
            compare(c->r, "fed in pieces", have + (n - 1) * vocab, ref->logits + (n - 1) * vocab,
                    vocab);
        sw_device_session_free(s);
    }
    free(have);
}

/* The logits behind every token that n_seqs sequences draw, against the CPU's of the same text. */
static void check_drawn(const on_device *c, const reference_logits *ref, int64_t n_seqs)
{
    const sw_sampling greedy = {0, 0, 1, 0};
    const int64_t n = PROMPT + STEPS, vocab = ref->vocab;
    uint32_t *ids = malloc(4 * (size_t)(n_seqs * n)), drawn[2] = {0};
    float *have = malloc(4 * (size_t)(STEPS * n_seqs * vocab)), *want;
    sw_device_session *s = NULL;

    MUST(sw_device_session_new(&s, c->lm, n_seqs, n, &greedy, err));
    for (int64_t i = 0; i < n_seqs; i++) {
        memcpy(ids + i * n, ref->ids + 3 * i, 4 * PROMPT);
        MUST(sw_device_session_feed(s, i, ids + i * n, PROMPT, err));
    }
    for (int64_t t = 0; t < STEPS; t++) {
        MUST(sw_device_session_step(s, drawn, 1, err));
        MUST(sw_device_session_logits(s, have + t * n_seqs * vocab, err));
        for (int64_t i = 0; i < n_seqs; i++) ids[i * n + PROMPT + t] = drawn[i];
    }
    want = model_logits(c->m, 4, ids, n_seqs, n);
    for (int64_t i = 0; i < n_seqs; i++) {
        float *mine = malloc(4 * (size_t)(STEPS * vocab));

        for (int64_t t = 0; t < STEPS; t++)
            memcpy(mine + t * vocab, have + (t * n_seqs + i) * vocab, 4 * (size_t)vocab);
        compare(c->r, n_seqs == 1 ? "drawn alone" : "drawn side by side", mine,
                want + (i * n + PROMPT) * vocab, STEPS * vocab);
        free(mine);
    }
    sw_device_session_free(s);
    sw_mem_put(want);
    free(ids), free(have);
}

static void check_config(const scratch *s, const recipe *r, const char *config)
{
    char from[128], path[160];
    reference_logits ref;
    open_model m;
    on_device c;
    float *have;

    (void)snprintf(from, sizeof from, RECIPES "%s", r->name);
    (void)snprintf(path, sizeof path, "%s/reference.safetensors", from);
    MUST(recipe_model_make(s->dir, from, config, err));
    open_model_dir(&m, s->dir);
    reference_open(&ref, path);
    on_device_new(&c, r, &m, ref.n_seqs * ref.seq_len);
    have = malloc(4 * (size_t)(ref.n_seqs * ref.seq_len * ref.vocab));
    MUST(sw_device_lm_forward(c.lm, ref.ids, ref.n_seqs, ref.seq_len, err));
    MUST(sw_device_lm_head(c.lm, have, 0, ref.n_seqs * ref.seq_len, err));
    compare(r, "whole", have, ref.logits, ref.n_seqs * ref.seq_len * ref.vocab);
    free(have);
    if (!r->has_no_steps) {
        check_fed(&c, &ref);
        check_drawn(&c, &ref, 1);
        check_drawn(&c, &ref, 2);
    }
    on_device_free(&c);
    reference_close(&ref);
    open_model_close(&m);
}

static void for_configs(void (*check)(const scratch *, const recipe *, const char *),
                        const recipe *r)
{
    char path[160];
    scratch s;

    scratch_open(&s);
    check(&s, r, "config.json");
    (void)snprintf(path, sizeof path, RECIPES "%s/config_hub.json", r->name);
    if (sw_path_exists(path)) check(&s, r, "config_hub.json");
    scratch_close(&s);
}

static void test_recipe(void **state)
{
    for_configs(check_config, *state);
}

static void check_refusal(const scratch *s, const recipe *r, const char *config)
{
    sw_err said = {0};
    char from[128];
    open_model m;

    (void)snprintf(from, sizeof from, RECIPES "%s", r->name);
    MUST(recipe_model_make(s->dir, from, config, err));
    open_model_dir(&m, s->dir);
    if (sw_device_supports(&m.model, &said) == SW_OK)
        fail_msg("%s runs: move it to the list of what does", r->name);
    if (!strstr(said.text, r->why)) fail_msg("%s: \"%s\" and not %s", r->name, said.text, r->why);
    open_model_close(&m);
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_REFUSED; i++) {
        const recipe r = {.name = refused[i][0], .why = refused[i][1]};

        if (r.name) for_configs(check_refusal, &r);
    }
}

static void print_worst(void)
{
    for (size_t i = 0; i < N_RECIPES; i++)
        printf("  %-24s %.2e of %g%s%s\n", recipes[i].name, worst[i], recipes[i].limit,
               recipes[i].why ? ": " : "", recipes[i].why ? recipes[i].why : "");
    for (size_t i = 0; i < N_REFUSED; i++)
        if (refused[i][0]) printf("  %-24s refused: %s\n", refused[i][0], refused[i][1]);
}

/* One argument: the families whose name it matches (* and ? as in a shell). */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[N_RECIPES + 1];
    int failed = device_open(&gpu);

    if (failed) return failed;
    for (size_t i = 0; i < N_RECIPES; i++)
        tests[i] = (struct CMUnitTest){.name = recipes[i].name, .test_func = test_recipe,
                                       .initial_state = (void *)(uintptr_t)&recipes[i]};
    tests[N_RECIPES] = (struct CMUnitTest)cmocka_unit_test(test_refusals);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    failed = cmocka_run_group_tests_name("families on the device", tests, NULL, NULL);
    print_worst();
    sw_device_close(gpu);
    return failed;
}
