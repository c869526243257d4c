/* test_wrappers.c - the decoder inside a model with towers: its config, its names, what is left,
 * and which programs a device runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "formats/file/config_text.h"
#include "formats/io/file_content.h"
#include "kernels/engine/device_engine.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/edit_json.h"
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

/* Up to index_topk a device sees all keys; beyond, it chooses them one by one. */
static void test_reach_of_a_device(void **state)
{
    open_model m;
    scratch s;
    sw_err err = {0};

    (void)state;
    open_recipe(&m, &s, "glm_moe_dsa_sparse");
    assert_int_equal(sw_device_supports(&m.model, &err), SW_OK);
    assert_true(sw_device_chooses_keys(&m.model));
    close_recipe(&m, &s);
}

/* Which layers choose keys, by each of the keys that say so. */
static void test_layers_that_choose(void **state)
{
    static const struct {
        const char *keys;
        int64_t n_layers;
        const char *want; /* F: chooses, S: shares; NULL: refused */
        const char *why;
    } rows[] = {
        {"", 4, "FFFF", NULL},
        {",\"indexer_types\":[\"full\",\"shared\",\"full\",\"shared\",\"full\"]", 4, "FSFS", NULL},
        {",\"index_topk_freq\":4,\"index_skip_topk_offset\":3", 8, "FFFSSSFS", NULL},
        {",\"index_topk_freq\":2", 5, "FFSFS", NULL},
        {",\"index_topk_pattern\":\"FSSF\",\"index_topk_freq\":2", 4, "FSSF", NULL},
        {",\"index_topk_pattern\":\"FSS\"", 4, NULL, "index_topk_pattern"},
        {",\"indexer_types\":[\"full\"]", 2, NULL, "indexer_types"},
        {",\"indexer_types\":[\"full\",\"none\"]", 2, NULL, "\"none\""},
        {",\"indexer_types\":[\"shared\",\"full\"]", 2, NULL, "first layer"},
        {",\"q_lora_rank\":null", 2, NULL, "q_lora_rank"},
        {",\"index_head_dim\":8", 2, NULL, "index_head_dim"},
        {",\"index_topk\":0", 2, NULL, "index_topk"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[600];
        cJSON *config = NULL;
        sw_model m;
        sw_err err = {0};
        sw_code rc;

        (void)snprintf(text, sizeof text, "{\"model_type\":\"glm_moe_dsa\",\"hidden_size\":64,"
                       "\"intermediate_size\":64,\"num_attention_heads\":4,\"vocab_size\":32,"
                       "\"max_position_embeddings\":64,\"num_hidden_layers\":%lld%s}",
                       (long long)rows[i].n_layers, rows[i].keys);
        assert_non_null(config = cJSON_Parse(text));
        rc = sw_model_read(&m, config, &err);
        cJSON_Delete(config);
        assert_int_equal(rc == SW_OK, rows[i].want != NULL);
        if (rc != SW_OK && !strstr(err.text, rows[i].why)) fail_msg("%s", err.text);
        for (int64_t l = 0; rc == SW_OK && l < m.n_layers; l++)
            if (sw_model_cache_width(&m, l) != (rows[i].want[l] == 'F' ? 128 : 0))
                fail_msg("row %zu: layer %lld", i, (long long)l);
        if (rc == SW_OK)
            assert_int_equal(sw_model_side_width(&m), strchr(rows[i].want, 'S') ? 2048 : 0);
    }
}

/* Published configs of DeepSeek-V4 say of every layer how many tokens its keys stand for, and name
 * the base of compressed keys beside the other. */
static void test_ratios(void **state)
{
    const char *text =
        "{\"model_type\":\"deepseek_v4\",\"hidden_size\":64,\"num_attention_heads\":8,"
        "\"vocab_size\":32,\"num_key_value_heads\":1,\"max_position_embeddings\":64,"
        "\"num_hidden_layers\":4,\"compress_ratios\":[0,4,128,4,0],\"num_hash_layers\":2,"
        "\"rope_theta\":10000,"
        "\"compress_rope_theta\":160000,\"swiglu_limit\":10.0,\"rope_scaling\":{\"type\":\"yarn\","
        "\"factor\":16,\"original_max_position_embeddings\":32,\"beta_fast\":32,\"beta_slow\":1}}";
    static const int64_t rates[] = {0, 4, 128, 4};
    cJSON *config = cJSON_Parse(text);
    float frequencies[32], scale;
    sw_model m;
    sw_err err = {0};

    (void)state;
    if (sw_model_read(&m, config, &err) != SW_OK) fail_msg("%s", err.text);
    cJSON_Delete(config);
    for (int64_t l = 0; l < 4; l++) {
        int n_ops;
        const sw_op *ops = sw_model_ops(&m, l, &n_ops);
        bool is_by_token = false;

        assert_int_equal(sw_model_compress_rate(&m, l), rates[l]);
        assert_int_equal(sw_model_chooses_far_keys(&m, l), rates[l] == 4);
        assert_int_equal(m.is_window_layer[l], rates[l] == 0);
        for (int i = 0; i < n_ops; i++) is_by_token |= ops[i].kind == SW_OP_ROUTE_TOKENS;
        assert_int_equal(is_by_token, l < 2);
    }
    assert_true(m.window_rope.kind == SW_ROPE_DEFAULT && m.window_rope.theta == 1e4);
    assert_true(m.rope.kind == SW_ROPE_YARN && m.rope.theta == 1.6e5);
    sw_rope_frequencies(frequencies, &scale, &m, &m.rope, 64);
    assert_true(scale == 1.0f);
}

/* The scheme in the decoder's object is read there, judged, and taken out where another takes its
 * place. */
static void test_scheme_inside(void **state)
{
    char *text = NULL, path[SW_PATH_BYTES + 16];
    cJSON *config = NULL, *scheme;
    sw_verify_options o;
    sw_report r;
    scratch s;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    scratch_make_dir(&s, "original");
    if (recipe_model_make(scratch_path(&s, "original"), "tests/golden/recipes/mistral3",
                          "config.json", &err) != SW_OK)
        fail_msg("%s", err.text);
    quantized_dir_make(scratch_path(&s, "q"), scratch_path(&s, "original"), "compressed-tensors", 8,
                       true, 32);
    (void)snprintf(path, sizeof path, "%s/config.json", scratch_path(&s, "q"));
    assert_int_equal(sw_json_read(&config, path, &sw_json_caps_config, &err), SW_OK);
    scheme = cJSON_DetachItemFromObjectCaseSensitive(config, "quantization_config");
    assert_int_equal(sw_json_print(&text, scheme, false, &err), SW_OK);
    edit_json(scratch_path(&s, "q"), "config.json", "quantization_config", NULL);
    edit_json(scratch_path(&s, "q"), "config.json", "text_config.quantization_config", text);
    edit_remove(scratch_path(&s, "q"), "manifest.json");
    o = verify_options_for(scratch_path(&s, "q"));
    o.original_dir = scratch_path(&s, "original");
    verify_run(&r, &o);
    verify_expect_pass(&r);
    assert_int_equal(r.n_tensors, 14);
    sw_report_free(&r);
    cJSON_Delete(scheme);
    cJSON_Delete(config);
    sw_mem_put(text);
    scratch_close(&s);
}

/* As text: the members around it stay as they are written. */
static void test_splice_inside(void **state)
{
    static const char before[] = "{\n \"text_config\": {\n  \"a\": [1, {\"b\": 2}],\n"
                                 "  \"quantization_config\": {\"x\": 1},\n  \"c\": 3\n },\n"
                                 " \"vision_config\": {\"quantization_config\": 1}\n}\n";
    static const char want[] = "{\n \"text_config\": {\n  \"a\": [1, {\"b\": 2}],\n"
                               "  \"c\": 3},\n"
                               " \"vision_config\": {\"quantization_config\": 1}\n}\n";
    char *have = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_config_splice(&have, before, strlen(before), NULL, NULL, &err), SW_OK);
    assert_string_equal(have, want);
    sw_mem_put(have);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_keys_beside),
        cmocka_unit_test(test_what_a_device_runs), cmocka_unit_test(test_what_a_device_refuses),
        cmocka_unit_test(test_reach_of_a_device), cmocka_unit_test(test_layers_that_choose),
        cmocka_unit_test(test_ratios), cmocka_unit_test(test_scheme_inside),
        cmocka_unit_test(test_splice_inside),
    };
    return cmocka_run_group_tests_name("wrappers", tests, NULL, NULL);
}
