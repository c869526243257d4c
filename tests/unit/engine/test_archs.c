/* test_archs.c - every architecture from its dense checkpoint to a quantized one that is judged.
 *
 * Rounded and calibrated, in dialects with and without tiles; verify then reads the result with its
 * second decoder, compares every tensor with the original, and runs both over tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/recipe_model.h"

#define DIR_OF "tests/golden/arch/"
#define RECIPE_OF "tests/golden/recipes/"
#define GAP_MAX 1e-5
#define MAX_KL 0.05 /* at 8 bits; random weights, so a router changes its mind easily */

typedef struct arch_case {
    const char *name;
    int64_t n_linears; /* in the toy of two layers */
    int64_t group;
} arch_case;

/* Families whose recipe is called otherwise. */
static const char *const recipe_names[][2] = {
    {"ministral3", "mistral3_ministral3"}, {"qwen3_vl_moe_text", "qwen3_vl_moe"},
    {"gemma3n_text", "gemma3n"},
};

static const arch_case archs[] = {
    {"llama", 14, 32},   {"mistral", 14, 32},     {"qwen2", 14, 32},     {"qwen3", 14, 32},
    {"olmo2", 14, 32},   {"gemma2", 14, 32},      {"gemma3_text", 14, 32}, {"phi3", 8, 32},
    {"opt", 12, 32},     {"gpt2", 8, 32},         {"mixtral", 32, 32},   {"qwen3_moe", 32, 32},
    {"gpt_oss", 32, 32}, {"deepseek_v3", 8 + 5 + 3 + 12, 0}, /* dense first; a rank of 48 */
    {"olmo3", 14, 32},      {"glm4", 12, 32},      {"smollm3", 14, 32},
    {"ministral3", 14, 32}, {"ernie4_5", 14, 32},
    {"exaone4", 14, 32},    {"hunyuan_v1_dense", 14, 32}, {"seed_oss", 14, 32},
    {"granite", 14, 32},    {"cohere2", 14, 32},   {"starcoder2", 12, 32},
    {"stablelm", 14, 32},   {"gpt_neox", 8, 32},   {"falcon", 8, 32},
    {"bloom", 8, 32},       {"qwen2_moe", 38, 32}, {"olmoe", 32, 32},
    {"glm4_moe", 26, 32},   {"minimax_m2", 32, 32}, {"ernie4_5_moe", 26, 32},
    {"hunyuan_v1_moe", 38, 32}, {"llama4_text", 52, 32},
    {"qwen3_vl_moe_text", 32, 32}, {"gemma4_text", 24, 32},
    {"gemma3n_text", 28, 32},
    {"qwen3_5_text", 6 + 7 + 6, 32}, {"lfm2", 5 + 7 + 5, 32},
    {"lfm2_moe", 5 + 4 + 12 + 2 + 12, 32}, {"mamba2", 4, 32}, {"bamba", 5 + 7 + 5, 32},
    {"qwen3_5_moe_text", 3 + 4 + 3 + 3 * 15, 32}, {"qwen3_next", 2 + 4 + 2 + 3 * 15, 32},
    {"granitemoehybrid", 2 * 16 + 18, 32}, {"falcon_h1", 2 * 9, 32},
    {"nemotron_h", 2 + 10 + 4 + 2 + 2, 32},
    {"deepseek_v32_sparse", 8 + 5 + 3 + 12, 0}, {"glm_moe_dsa_sparse", 8 + 5 + 3 + 12, 0},
    {"deepseek_v4", 3 * (4 + 3 + 12), 0},
    {"kimi_linear", 7 + 4 + 3 + 12 + 4 + 3 + 12, 32},
};
#define N_ARCHS (sizeof archs / sizeof archs[0])

/* The dense checkpoint of a case, stored or made of its recipe, and tokens for it. */
typedef struct original {
    char dir[SW_PATH_BYTES], tokens[SW_PATH_BYTES + 32];
} original;

static void find_original(original *o, const arch_case *a, const scratch *s)
{
    const char *name = a->name;
    char recipe[128];
    sw_err err = {0};
    bool is_stored;

    (void)snprintf(o->dir, sizeof o->dir, DIR_OF "%s", a->name);
    for (size_t i = 0; i < sizeof recipe_names / sizeof recipe_names[0]; i++)
        if (!strcmp(a->name, recipe_names[i][0])) name = recipe_names[i][1];
    (void)snprintf(recipe, sizeof recipe, RECIPE_OF "%s", name);
    is_stored = sw_path_exists(o->dir);
    (void)snprintf(o->tokens, sizeof o->tokens, "%s/reference.safetensors",
                   is_stored ? o->dir : recipe);
    if (is_stored) return;
    (void)snprintf(o->dir, sizeof o->dir, "%s", scratch_path(s, "original"));
    scratch_make_dir(s, "original");
    if (recipe_model_make(o->dir, recipe, "config.json", &err) != SW_OK) fail_msg("%s", err.text);
}

/* The checkpoint stands up to its original, through kernels that agree with the decoder. */
static void judge(const arch_case *a, const original *from, const char *dir, double max_kl)
{
    const char *text = from->tokens;
    sw_verify_options o = verify_options_for(dir);
    sw_report r;

    o.original_dir = from->dir;
    o.text_paths = &text;
    verify_run(&r, &o);
    verify_expect_pass(&r);
    if (r.n_tensors != a->n_linears)
        fail_msg("%s: %lld linears quantized, want %lld", a->name, (long long)r.n_tensors,
                 (long long)a->n_linears);
    if (!(r.eval.gap.logits_err < GAP_MAX))
        fail_msg("%s: kernels and floats differ by %g", a->name, r.eval.gap.logits_err);
    if (!(r.eval.kl.at > 0 && r.eval.kl.at < max_kl))
        fail_msg("%s: divergence %g, want at most %g", a->name, r.eval.kl.at, max_kl);
    sw_report_free(&r);
}

static void test_rounded(void **state)
{
    const arch_case *a = *state;
    original from;
    scratch s;

    scratch_open(&s);
    find_original(&from, a, &s);
    quantized_dir_make(scratch_path(&s, "q"), from.dir, "swage", 8, true, a->group);
    judge(a, &from, scratch_path(&s, "q"), MAX_KL);
    scratch_close(&s);
}

static void test_calibrated(void **state)
{
    const arch_case *a = *state;
    original from;
    reference_logits ref;
    sw_calib calib;
    scratch s;

    scratch_open(&s);
    find_original(&from, a, &s);
    reference_open(&ref, from.tokens);
    calib = (sw_calib){ref.ids, ref.n_seqs, ref.seq_len};
    quantized_dir_calibrate(scratch_path(&s, "q"), from.dir, "compressed-tensors", 8, true,
                            a->group, &calib);
    judge(a, &from, scratch_path(&s, "q"), MAX_KL);
    reference_close(&ref);
    scratch_close(&s);
}

/* Whoever adds a row adds its fixture. */
static void test_no_row_is_forgotten(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_archs; i++) {
        bool is_there = false;

        for (size_t k = 0; k < N_ARCHS; k++)
            is_there = is_there || !strcmp(archs[k].name, sw_archs[i].name);
        if (!is_there) fail_msg("%s has no case here", sw_archs[i].name);
    }
}

int main(void)
{
    struct CMUnitTest tests[2 * N_ARCHS + 1];

    for (size_t i = 0; i < N_ARCHS; i++) {
        void *a = (void *)(uintptr_t)&archs[i];

        tests[2 * i] = (struct CMUnitTest){.name = archs[i].name, .test_func = test_rounded,
                                           .initial_state = a};
        tests[2 * i + 1] = (struct CMUnitTest){.name = archs[i].name,
                                               .test_func = test_calibrated, .initial_state = a};
    }
    tests[2 * N_ARCHS] = (struct CMUnitTest)cmocka_unit_test(test_no_row_is_forgotten);
    return cmocka_run_group_tests_name("archs", tests, NULL, NULL);
}
