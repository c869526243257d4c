/* test_recipes.c - the decoders of tests/golden/recipes against the logits of another
 * implementation, as whole sequences and token by token, and with its residual streams.
 *
 * Every recipe is opened with each spelling of its config: as newer and as published files have it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "formats/checkpoint/checkpoint.h"
#include "formats/io/file.h"
#include "kernels/engine/device_engine.h"
#include "tests/support/edit_json.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/recipe_model.h"

#define RECIPES "tests/golden/recipes/"
#define DISTANCE_MAX 1e-5
#define MUST(call_with_err)                                              \
    do {                                                                 \
        sw_err e_text = {0}, *err = &e_text;                             \
        if ((call_with_err) != SW_OK) fail_msg("%s", err->text);         \
    } while (0)

typedef struct recipe {
    const char *name;
    /* Frequencies that follow the length of the whole text give steps other keys than the whole
     * sequence has, in the models' own library too. */
    bool has_no_steps;
} recipe;

static const recipe recipes[] = {
    {"gemma3", false},
    {"qwen2_5_vl", false},
    {"qwen3_vl", false},
    {"qwen3_vl_moe", false},
    {"mistral3", false},
    {"mistral3_ministral3", false},
    {"glm4", false},
    {"glm4_moe", false},
    {"glm4_moe_mtp", false},
    {"glm4_moe_lite", false},
    {"minimax_m2", false},
    {"qwen2_moe", false},
    {"olmoe", false},
    {"olmo3", false},
    {"smollm3", false},
    {"cohere2", false},
    {"ernie4_5", false},
    {"ernie4_5_moe", false},
    {"exaone4", false},
    {"hunyuan_v1_dense", false},
    {"hunyuan_v1_moe", false},
    {"seed_oss", false},
    {"phi4", true},
    {"phi4_short", false},
    {"granite", false},
    {"llama4", false},
    {"llama4_text", false},
    {"deepseek_v32", false},
    {"glm_moe_dsa", false},
    {"deepseek_v32_sparse", false},
    {"glm_moe_dsa_sparse", false},
    {"starcoder2", false},
    {"stablelm", false},
    {"stablelm_2_12b", false},
    {"gpt_neox", false},
    {"falcon", false},
    {"falcon_new", false},
    {"bloom", false},
    {"gemma3n", false},
    {"gemma4", false},
    {"gemma4_text", false},
    {"gemma4_moe", false},
    {"qwen3_5_text", false},
    {"qwen3_5", false},
    {"qwen3_5_mtp", false},
    {"qwen3_5_moe", false},
    {"qwen3_5_moe_text", false},
    {"qwen3_next", false},
    {"lfm2", false},
    {"lfm2_moe", false},
    {"mamba2", false},
    {"bamba", false},
    {"kimi_linear", false},
    {"granitemoehybrid", false},
    {"granitemoehybrid_dense", false},
    {"falcon_h1", false},
    {"nemotron_h", false},
    {"nemotron_h_latent", false},
    {"deepseek_v4", false},
};
#define N_RECIPES (sizeof recipes / sizeof recipes[0])

/* The logits of every token when each is fed alone. */
static float *stepped_logits(const open_model *m, const uint32_t *ids, int64_t n)
{
    sw_engine *engine = open_engine(m, 8, 1);
    sw_session *session = NULL;
    float *logits = NULL;

    MUST(SW_MEM_GET(&logits, n * m->model.vocab, "logits", err));
    MUST(sw_session_new(&session, engine, &m->lm, n, err));
    for (int64_t t = 0; t < n; t++)
        MUST(sw_session_feed(session, logits + t * m->model.vocab, ids + t, 1, err));
    sw_session_free(session);
    sw_engine_free(engine);
    return logits;
}

static void compare(const recipe *r, const char *config, const char *how, const float *have,
                    const reference_logits *ref)
{
    const double far = relative_l2(have, ref->logits, ref->n_seqs * ref->seq_len * ref->vocab);

    if (!(far <= DISTANCE_MAX)) fail_msg("%s, %s, %s: %.3g", r->name, config, how, far);
    print_message("           %s, %s, %s: %.2g\n", r->name, config, how, far);
}

/* Residual stream `i` of token `t`: the row of x, and further ones of a model that has several. */
static const float *stream_of(const open_model *m, sw_engine *e, const float *x, int64_t t,
                              int64_t i)
{
    const sw_model *model = &m->model;

    return !i ? x + t * model->hidden
              : sw_engine_side(e) + t * sw_model_side_width(model) +
                    sw_model_side_of_copies(model) + i * model->hidden;
}

/* How far the streams behind layer `l` are from those of another implementation, at most. Behind
 * the last layer the first of several has been replaced by their sum. */
static double distance_behind(int64_t l, const open_model *m, sw_engine *e, const float *x,
                              const sw_cview *want)
{
    const int64_t hidden = m->model.hidden, n = m->model.n_copies ? m->model.n_copies : 1;
    const bool is_merged = n > 1 && l + 1 == m->model.n_layers;
    double far = 0.0;

    for (int64_t t = 0; t < sw_view_elems(want) / (n * hidden); t++)
        for (int64_t i = is_merged; i < n; i++)
            far = fmax(far, relative_l2(stream_of(m, e, x, t, i),
                                        (const float *)want->data + (t * n + i) * hidden,
                                        hidden));
    return far;
}

/* The residual stream behind every layer, where the recipe has it; it counts such recipes. */
static int n_with_hidden;
static void check_hidden(const recipe *r, const char *config, const open_model *m,
                         const reference_logits *ref)
{
    const sw_model *model = &m->model;
    const int64_t n = ref->seq_len;
    const int64_t width = model->hidden * (model->n_copies ? model->n_copies : 1);
    double far;
    sw_engine *e = open_engine(m, n, 2);
    float *x = NULL;
    char path[160];
    sw_st *st = NULL;

    (void)snprintf(path, sizeof path, RECIPES "%s/hidden.safetensors", r->name);
    MUST(sw_st_open(&st, path, err));
    assert_int_equal(sw_st_count(st), model->n_layers);
    MUST(SW_MEM_GET(&x, n * model->hidden, "rows", err));
    MUST(sw_engine_embed(e, &m->lm, x, ref->ids, 1, n, 0, err));
    for (int64_t l = 0; l < model->n_layers; l++) {
        const sw_st_tensor *want;

        MUST(sw_engine_block(e, &m->lm.blocks[l], x, 1, n, NULL, NULL, SW_RUN_ALL, err));
        (void)snprintf(path, sizeof path, "hidden.%lld", (long long)l);
        want = sw_st_find(st, path);
        assert_non_null(want);
        assert_int_equal(sw_view_elems(&want->view), n * width);
        far = distance_behind(l, m, e, x, &want->view);
        if (!(far <= DISTANCE_MAX)) fail_msg("%s, %s, %s: %.3g", r->name, config, path, far);
        print_message("           %s, %s, %s: %.2g\n", r->name, config, path, far);
    }
    sw_mem_put(x);
    sw_st_close(st);
    sw_engine_free(e);
    n_with_hidden++;
}

/* A model that is said to look tokens up begins with rows of its table times its scale, and nothing
 * beside them: who has that table on a device makes the rows there. Configs that it is said of, and
 * others. */
static int n_look_up[2];
static void check_look_up(const recipe *r, const open_model *m, const reference_logits *ref)
{
    const sw_weight *table = &m->lm.embed;
    const int64_t n = ref->seq_len, hidden = m->model.hidden;
    const int64_t row_bytes = hidden * sw_dtype_bits(table->dense_dtype) / 8;
    sw_engine *e = open_engine(m, n, 1);
    float *have = NULL, *want = NULL;

    n_look_up[sw_lm_only_looks_up(&m->lm)]++;
    MUST(SW_MEM_GET(&have, n * hidden, "rows", err));
    MUST(SW_MEM_GET(&want, n * hidden, "rows", err));
    MUST(sw_engine_embed(e, &m->lm, have, ref->ids, 1, n, 0, err));
    for (int64_t t = 0; t < n; t++)
        MUST(sw_float_decode_n(want + t * hidden, (const char *)table->dense +
                                                      ref->ids[t] * row_bytes,
                               table->dense_dtype, hidden, err));
    for (int64_t i = 0; i < n * hidden; i++) want[i] *= (float)m->model.embed_scale;
    if (sw_lm_only_looks_up(&m->lm) && memcmp(have, want, sizeof *want * (size_t)(n * hidden)))
        fail_msg("%s: more than a look-up", r->name);
    sw_mem_put(have);
    sw_mem_put(want);
    sw_engine_free(e);
}

static void check_config(const scratch *s, const recipe *r, const char *config)
{
    char from[128], path[160];
    reference_logits ref;
    open_model m;
    float *have;

    (void)snprintf(from, sizeof from, RECIPES "%s", r->name);
    (void)snprintf(path, sizeof path, "%s/reference.safetensors", from);
    MUST(recipe_model_make(s->dir, from, config, err));
    open_model_dir(&m, s->dir);
    reference_open(&ref, path);
    assert_int_equal(ref.vocab, m.model.vocab);
    have = model_logits(&m, 2, ref.ids, ref.n_seqs, ref.seq_len);
    compare(r, config, "whole", have, &ref);
    sw_mem_put(have);
    if (!r->has_no_steps && ref.n_seqs == 1) {
        have = stepped_logits(&m, ref.ids, ref.seq_len);
        compare(r, config, "stepped", have, &ref);
        sw_mem_put(have);
    }
    (void)snprintf(path, sizeof path, "%s/hidden.safetensors", from);
    if (sw_path_exists(path)) check_hidden(r, config, &m, &ref);
    check_look_up(r, &m, &ref);
    reference_close(&ref);
    open_model_close(&m);
}

static void test_recipe(void **state)
{
    const recipe *r = *state;
    char path[160];
    scratch s;

    scratch_open(&s);
    check_config(&s, r, "config.json");
    (void)snprintf(path, sizeof path, RECIPES "%s/config_hub.json", r->name);
    if (sw_path_exists(path)) check_config(&s, r, "config_hub.json");
    scratch_close(&s);
}

/* Six recipes have hidden states, four of them with two configs. */
static void test_hidden_states_were_seen(void **state)
{
    (void)state;
    assert_int_equal(n_with_hidden, 10);
}

static void test_some_only_look_up(void **state)
{
    (void)state;
    print_message("           %d configs look up, %d do not\n", n_look_up[true], n_look_up[false]);
    assert_true(n_look_up[false] >= 5 && n_look_up[true] >= 50);
}

/* A session whose layers keep more than keys and values takes a text in uneven pieces, some longer
 * than the engine, and is as it was after a piece that could not be fed to its end. */
static void test_states_go_back(void **state)
{
    static const int64_t pieces[] = {3, 17, 1, 20, 7};
    const char *name = *state;
    uint32_t broken[20];
    char from[128], path[160];
    reference_logits ref;
    sw_session *session = NULL;
    sw_engine *engine;
    float *logits = NULL;
    open_model m;
    sw_err said = {0};
    scratch s;

    scratch_open(&s);
    (void)snprintf(from, sizeof from, RECIPES "%s", name);
    (void)snprintf(path, sizeof path, "%s/reference.safetensors", from);
    MUST(recipe_model_make(s.dir, from, "config.json", err));
    open_model_dir(&m, s.dir);
    reference_open(&ref, path);
    engine = open_engine(&m, 8, 2);
    MUST(SW_MEM_GET(&logits, m.model.vocab, "logits", err));
    MUST(sw_session_new(&session, engine, &m.lm, ref.seq_len, err));
    for (int64_t i = 0, t = 0; i < 5; t += pieces[i++]) {
        memcpy(broken, ref.ids + t, (size_t)pieces[i] * sizeof *broken);
        broken[pieces[i] - 1] = UINT32_MAX;
        assert_int_equal(sw_session_feed(session, logits, broken, pieces[i], &said), SW_E_FORMAT);
        MUST(sw_session_feed(session, logits, ref.ids + t, pieces[i], err));
        assert_true(relative_l2(logits, ref.logits + (t + pieces[i] - 1) * ref.vocab, ref.vocab) <=
                    2 * DISTANCE_MAX);
    }
    sw_session_free(session);
    sw_engine_free(engine);
    sw_mem_put(logits);
    reference_close(&ref);
    open_model_close(&m);
    scratch_close(&s);
}

/* Of the keys that stand for four tokens each, a query sees the four that score highest; what that
 * makes of the last token's logits was worked out in double, apart from this program. */
static void test_chosen_far_keys(void **state)
{
    static const float want[] = {-2.64366162f, 0.55667096f, -1.98710907f, 1.45434280f,
                                 1.33302648f,  0.21070943f, 0.04152625f,  -2.81687005f};
    reference_logits ref;
    open_model m;
    float *whole, *stepped;
    scratch s;

    (void)state;
    scratch_open(&s);
    MUST(recipe_model_make(s.dir, RECIPES "deepseek_v4", "config.json", err));
    edit_json(s.dir, "config.json", "index_topk", "4");
    open_model_dir(&m, s.dir);
    reference_open(&ref, RECIPES "deepseek_v4/reference.safetensors");
    whole = model_logits(&m, 2, ref.ids, ref.n_seqs, ref.seq_len);
    stepped = stepped_logits(&m, ref.ids, ref.seq_len);
    assert_true(relative_l2(whole + (ref.seq_len - 1) * ref.vocab, want, 8) <= DISTANCE_MAX);
    assert_true(relative_l2(stepped + (ref.seq_len - 1) * ref.vocab, want, 8) <= DISTANCE_MAX);
    sw_mem_put(whole);
    sw_mem_put(stepped);
    reference_close(&ref);
    open_model_close(&m);
    scratch_close(&s);
}

/* A table of experts that names one too many is found before it is used. */
static void test_token_experts_checked(void **state)
{
    static const int64_t expert = 4, same[] = {1, 1};
    sw_checkpoint ckpt = {0};
    sw_block block;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    if (recipe_model_make(s.dir, RECIPES "deepseek_v4", "config.json", &err) != SW_OK)
        fail_msg("%s", err.text);
    edit_tensor(s.dir, "layers.0.ffn.gate.tid2eid", 8 * 639, &expert, sizeof expert);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_checkpoint_open(&ckpt, s.dir, &err), SW_OK);
        assert_int_equal(sw_block_load(&block, &ckpt.model, ckpt.st, 0, &err), SW_E_FORMAT);
        if (!strstr(err.text, i ? "tid2eid: token 319 has expert 1 twice"
                                : "tid2eid: element 639 is 4"))
            fail_msg("%s", err.text);
        err = (sw_err){0};
        sw_checkpoint_close(&ckpt);
        edit_tensor(s.dir, "layers.0.ffn.gate.tid2eid", 8 * 638, same, sizeof same);
    }
    scratch_close(&s);
}

/* Keys that stand for several tokens are not chosen one by one. */
static void test_device_reaches_far_keys(void **state)
{
    open_model m;
    scratch s;

    (void)state;
    scratch_open(&s);
    MUST(recipe_model_make(s.dir, RECIPES "deepseek_v4", "config.json", err));
    open_model_dir(&m, s.dir);
    MUST(sw_device_supports(&m.model, err));
    assert_false(sw_device_chooses_keys(&m.model));
    open_model_close(&m);
    scratch_close(&s);
}

int main(void)
{
    static const char *const with_states[] = {"qwen3_5_text", "bamba", "lfm2", "kimi_linear",
                                              "glm_moe_dsa_sparse", "deepseek_v4"};
    enum { N_STATES = sizeof with_states / sizeof with_states[0] };
    struct CMUnitTest tests[N_RECIPES + N_STATES + 5];

    for (size_t i = 0; i < N_RECIPES; i++)
        tests[i] = (struct CMUnitTest){.name = recipes[i].name, .test_func = test_recipe,
                                       .initial_state = (void *)(uintptr_t)&recipes[i]};
    for (size_t i = 0; i < N_STATES; i++)
        tests[N_RECIPES + i] =
            (struct CMUnitTest){.name = "test_states_go_back", .test_func = test_states_go_back,
                                .initial_state = (void *)(uintptr_t)with_states[i]};
    tests[N_RECIPES + N_STATES] = (struct CMUnitTest)cmocka_unit_test(test_device_reaches_far_keys);
    tests[N_RECIPES + N_STATES + 1] = (struct CMUnitTest)cmocka_unit_test(test_chosen_far_keys);
    tests[N_RECIPES + N_STATES + 2] =
        (struct CMUnitTest)cmocka_unit_test(test_token_experts_checked);
    tests[N_RECIPES + N_STATES + 3] =
        (struct CMUnitTest)cmocka_unit_test(test_hidden_states_were_seen);
    tests[N_RECIPES + N_STATES + 4] = (struct CMUnitTest)cmocka_unit_test(test_some_only_look_up);
    return cmocka_run_group_tests_name("recipes", tests, NULL, NULL);
}
