/* test_wrappers.c - the decoder inside a model with towers: its config, its names, what is left,
 * and which programs a device runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "kernels/engine/device_engine.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/recipe_model.h"

static void open_recipe(open_model *m, scratch *s, const char *name)
{
    char from[128];
    sw_err err = {0};

    scratch_open(s);
    (void)snprintf(from, sizeof from, "tests/golden/recipes/%s", name);
    if (recipe_model_make(s->dir, from, "config.json", &err) != SW_OK) fail_msg("%s", err.text);
    open_model_dir(m, s->dir);
}

static void close_recipe(open_model *m, scratch *s)
{
    open_model_close(m);
    scratch_close(s);
}

static void test_names(void **state)
{
    static const struct {
        const char *recipe, *layers, *head, *left, *part;
        bool is_extra_head;
    } rows[] = {
        {"qwen3_vl", "model.language_model.layers", "lm_head",
         "model.visual.blocks.0.attn.qkv.weight", "model.visual", false},
        {"gemma3", "language_model.model.layers", "lm_head",
         "multi_modal_projector.mm_soft_emb_norm.weight", "multi_modal_projector", false},
        {"mistral3", "language_model.model.layers", "language_model.lm_head",
         "vision_tower.ln_pre.weight", "vision_tower", false},
        {"qwen2_5_vl", "model.layers", "lm_head", "visual.merger.ln_q.weight", "visual", false},
        {"glm4_moe_mtp", "model.layers", "lm_head", "model.layers.2.eh_proj.weight",
         "model.layers.2", true},
        {"glm4_moe", "model.layers", "lm_head", "mtp.fc.weight", "mtp", true},
        {"bloom", "h", "lm_head", "h.2.ln.weight", "h.2", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_model m;
        scratch s;
        char part[256], path[256];

        open_recipe(&m, &s, rows[i].recipe);
        assert_string_equal(sw_model_end(&m.model, SW_END_LAYERS), rows[i].layers);
        assert_string_equal(sw_model_end(&m.model, SW_END_HEAD), rows[i].head);
        assert_false(sw_model_owns(&m.model, rows[i].left));
        sw_model_part_of(part, &m.model, rows[i].left);
        assert_string_equal(part, rows[i].part);
        assert_int_equal(sw_model_is_extra_head(&m.model, part), rows[i].is_extra_head);
        (void)snprintf(path, sizeof path, "%s.1.anything.weight", rows[i].layers);
        assert_true(sw_model_owns(&m.model, path));
        close_recipe(&m, &s);
    }
}

static void read_text(sw_model *m, const char *text, sw_code want, sw_err *err)
{
    cJSON *config = cJSON_Parse(text);

    assert_non_null(config);
    assert_int_equal(sw_model_read(m, config, err), want);
    cJSON_Delete(config);
}

/* The wrapper says whether the head is tied; the decoder's object what its dtype is. */
static void test_keys_beside(void **state)
{
    static const char text[] =
        "{\"model_type\":\"gemma3\",\"tie_word_embeddings\":false,\"torch_dtype\":\"float16\","
        "\"text_config\":{\"hidden_size\":64,\"num_hidden_layers\":3,\"intermediate_size\":96,"
        "\"tie_word_embeddings\":true,\"model_type\":\"gemma3_text\",\"dtype\":\"bfloat16\"}}";
    static const char deep[] =
        "{\"text_config\":{\"text_config\":{\"text_config\":{\"text_config\":{\"text_config\":"
        "{\"hidden_size\":64}}}}}}";
    sw_model m;
    sw_err err = {0};

    (void)state;
    read_text(&m, text, SW_OK, &err);
    assert_false(m.is_tied);
    assert_int_equal(m.dtype, SW_DTYPE_BF16);
    assert_true(m.n_heads == 8 && m.n_kv_heads == 4 && m.head_dim == 256 && m.vocab == 262208);
    read_text(&m, deep, SW_E_FORMAT, &err);
    assert_non_null(strstr(err.text, "text_config"));
}

/* What a device's engine lacks is said before anything runs. */
static void test_what_a_device_runs(void **state)
{
    static const struct {
        const char *recipe, *why; /* NULL: it runs there */
    } rows[] = {
        {"qwen3_vl", NULL},   {"glm4", NULL},      {"smollm3", NULL},  {"glm4_moe", NULL},
        {"olmo3", NULL},      {"exaone4", NULL},   {"minimax_m2", NULL}, {"deepseek_v32", NULL},
        {"starcoder2", NULL}, {"stablelm", NULL},  {"ernie4_5", NULL}, {"qwen3_vl_moe", NULL},
        {"granite", NULL},    {"llama4", NULL},    {"bloom", NULL},    {"cohere2", NULL},
        {"falcon", NULL},     {"gemma4", NULL},    {"gemma4_moe", NULL}, {"olmoe", NULL},
        {"gemma3n", NULL},    {"qwen2_moe", NULL}, {"ernie4_5_moe", NULL},
        {"hunyuan_v1_dense", NULL}, {"stablelm_2_12b", NULL}, {"mistral3_ministral3", NULL},
        {"lfm2", NULL},       {"falcon_h1", NULL}, {"qwen3_next", NULL}, {"kimi_linear", NULL},
        {"nemotron_h", NULL}, {"bamba", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_model m;
        scratch s;
        sw_err err = {0};

        open_recipe(&m, &s, rows[i].recipe);
        assert_int_equal(sw_device_supports(&m.model, &err),
                         rows[i].why ? SW_E_UNSUPPORTED : SW_OK);
        if (rows[i].why && (!strstr(err.text, rows[i].why) || !strstr(err.text, "--device cpu")))
            fail_msg("%s: \"%s\", want %s", rows[i].recipe, err.text, rows[i].why);
        close_recipe(&m, &s);
    }
}

static void test_what_a_device_refuses(void **state)
{
    open_model m;
    scratch s;
    sw_err err = {0};

    (void)state;
    open_recipe(&m, &s, "bamba");
    m.model.mixer.d_state = 256;
    assert_int_equal(sw_device_supports(&m.model, &err), SW_OK);
    m.model.mixer.d_state = 257;
    assert_int_equal(sw_device_supports(&m.model, &err), SW_E_UNSUPPORTED);
    if (!strstr(err.text, "layer 0") || !strstr(err.text, "more than 256 keys") ||
        !strstr(err.text, "--device cpu"))
        fail_msg("%s", err.text);
    close_recipe(&m, &s);
}

/* Beyond what the indexer chooses from, attention would be another. */
static void test_sparse_attention(void **state)
{
    uint32_t ids[17] = {0};
    float *logits = NULL;
    sw_engine *engine;
    open_model m;
    scratch s;
    sw_err err = {0};

    (void)state;
    open_recipe(&m, &s, "glm_moe_dsa_sparse");
    engine = open_engine(&m, 17, 1);
    assert_int_equal(SW_MEM_GET(&logits, 17 * m.model.vocab, "logits", &err), SW_OK);
    assert_int_equal(sw_engine_logits(engine, &m.lm, logits, ids, 1, 16, &err), SW_OK);
    assert_int_equal(sw_engine_logits(engine, &m.lm, logits, ids, 1, 17, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "index_topk = 16"));
    sw_mem_put(logits);
    sw_engine_free(engine);
    close_recipe(&m, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_keys_beside),
        cmocka_unit_test(test_what_a_device_runs),
        cmocka_unit_test(test_what_a_device_refuses), cmocka_unit_test(test_sparse_attention),
    };
    return cmocka_run_group_tests_name("wrappers", tests, NULL, NULL);
}
