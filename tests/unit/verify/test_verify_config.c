/* test_verify_config.c - checkpoints whose weights are sound and whose config, tokenizer or other
 * files say something else than the original's. Each is found and named; without a manifest, since
 * a foreign checkpoint has none. What other writers spell otherwise passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/edit_json.h"
#include "tests/support/scratch.h"
#include "verify/checks/json_diff.h"

#define MOE "tests/golden/arch/qwen3_moe"
#define FILES "calib_data/tiny-llama"

typedef struct edit {
    const char *file, *path, *value; /* value NULL: taken out */
    const char *what, *says;         /* what NULL: it passes, saying that, or NULL: nothing */
} edit;

/* A model with all files that a published one has, and a quantized one of it without manifest. */
typedef struct pair {
    scratch s;
    char original[SW_PATH_BYTES], checkpoint[SW_PATH_BYTES];
} pair;

static void pair_open(pair *p, const char *model)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json"};
    FILE *f;

    scratch_open(&p->s);
    (void)snprintf(p->original, sizeof p->original, "%s", scratch_path(&p->s, "model"));
    (void)snprintf(p->checkpoint, sizeof p->checkpoint, "%s", scratch_path(&p->s, "q"));
    assert_int_equal(mkdir(p->original, 0700), 0);
    edit_copy(p->original, model, "config.json");
    edit_copy(p->original, model, "model.safetensors");
    for (int i = 0; i < 3; i++) edit_copy(p->original, FILES, files[i]);
    edit_json(p->original, "tokenizer_config.json", "chat_template", "\"{{ bos_token }}\"");
    f = fopen(scratch_path(&p->s, "model/special_tokens_map.json"), "w");
    assert_non_null(f);
    (void)fputs("{\"bos_token\": \"<|begin_of_text|>\"}", f);
    fclose(f);
    quantized_dir_make(p->checkpoint, p->original, "compressed-tensors", 4, true, 32);
    edit_remove(p->checkpoint, "manifest.json");
}

static void judge(sw_report *r, const pair *p, bool with_text)
{
    sw_verify_options o = verify_options_for(p->checkpoint);

    o.original_dir = p->original;
    o.n_texts = with_text ? 1 : 0;
    o.gap_windows = -1;
    verify_run(r, &o);
}

static void judge_edits(const char *model, const edit *edits, size_t n)
{
    pair p;

    pair_open(&p, model);
    for (size_t i = 0; i < n; i++) {
        const edit *e = &edits[i];
        sw_report r;

        edit_copy(p.s.dir, p.checkpoint, e->file); /* to be put back */
        edit_json(p.checkpoint, e->file, e->path, e->value);
        judge(&r, &p, false);
        if (e->what)
            verify_expect_fail(&r, e->what, e->says);
        else
            verify_expect_pass(&r);
        if (!e->what) assert_int_equal(r.n_remarks, e->says != NULL);
        if (!e->what && e->says) assert_non_null(strstr(r.remarks[0], e->says));
        sw_report_free(&r);
        edit_copy(p.checkpoint, p.s.dir, e->file);
    }
    scratch_close(&p.s);
}

#define CONFIG(path, value, says) {"config.json", path, value, "config", says}
#define SAME(path, value) {"config.json", path, value, NULL, NULL}
#define SAID(path, value, says) {"config.json", path, value, NULL, says}

static void configs_that_compute_otherwise_fail(void **state)
{
    static const edit edits[] = {
        CONFIG("rope_parameters.rope_theta", "5e5", "rope_theta is 500000, the original has 10000"),
        CONFIG("rope_parameters.rope_theta", "9000", "rope_theta"),
        CONFIG("rope_theta", "9000", "rope_theta is 9000"),
        CONFIG("rope_scaling", "{\"type\": \"linear\", \"factor\": 4}", "rope_scaling"),
        CONFIG("rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 1e4}",
               "rope_type is linear"),
        CONFIG("rope_parameters.mrope_section", "[16, 24, 24]", "mrope_section"),
        CONFIG("partial_rotary_factor", "0.5", "partial_rotary_factor"),
        CONFIG("hidden_act", "\"gelu\"", "hidden_act is \"gelu\""),
        CONFIG("sliding_window", "64", "sliding_window is 64, the original has absent"),
        CONFIG("rms_norm_eps", "1e-2", "rms_norm_eps"),
        CONFIG("rms_norm_eps", "1e-5", "rms_norm_eps"),
        CONFIG("max_position_embeddings", "511", "max_position_embeddings"),
        CONFIG("bos_token_id", "1", "bos_token_id"),
        CONFIG("eos_token_id", "[1, 2]", "eos_token_id"),
        CONFIG("eos_token_id", NULL, "eos_token_id"),
        CONFIG("attention_multiplier", "0.1", "attention_multiplier"),
        CONFIG("final_logit_softcapping", "30.0", "final_logit_softcapping"),
        CONFIG("architectures", "[\"LlamaForSequenceClassification\"]", "architectures"),
        CONFIG("auto_map", "{\"AutoModel\": \"other.Model\"}", "auto_map"),
        CONFIG("dtype", "\"float16\"", "torch_dtype"),
        CONFIG("tie_word_embeddings", "true", "tie_word_embeddings"),
        CONFIG("model_type", "\"mistral\"", "model_type is mistral, the original has llama"),
        CONFIG("num_attention_heads", "2", "num_attention_heads is 2"),
        CONFIG("num_key_value_heads", "1", "num_key_value_heads is 1"),
        CONFIG("num_hidden_layers", "1", "num_hidden_layers is 1"),
        SAME("transformers_version", "\"6.0\""),
        SAME("_name_or_path", "\"elsewhere\""),
        SAME("use_cache", "false"),
        SAID("attention_dropout", "0.1", "attention_dropout is 0.1, the original has 0"),
        SAME("attention_bias", NULL),
        SAME("some_switch", "false"),
        SAME("use_sliding_window", "false"),
        SAME("rope_theta", "10000"),
        SAME("torch_dtype", "\"bfloat16\""),
    };

    (void)state;
    judge_edits(VERIFY_MODEL, edits, sizeof edits / sizeof *edits);
}

static void experts_are_chosen_alike(void **state)
{
    static const edit edits[] = {
        CONFIG("norm_topk_prob", "false", "norm_topk_prob is false"),
        CONFIG("norm_topk_prob", NULL, "norm_topk_prob"),
        CONFIG("num_experts_per_tok", "1", "num_experts_per_tok is 1"),
        CONFIG("mlp_only_layers", "[7]", "mlp_only_layers[0]"),
        CONFIG("use_sliding_window", "true", "use_sliding_window"),
        SAID("router_aux_loss_coef", "0.5", "router_aux_loss_coef is 0.5"),
        /* use_sliding_window is false on both sides */
        SAID("sliding_window", "64", "sliding_window is 64, the original has absent"),
    };

    (void)state;
    judge_edits(MOE, edits, sizeof edits / sizeof *edits);
}

#define FILE_ROW(file, path, value, says) {file, path, value, "differs", says}

static void files_that_say_otherwise_fail(void **state)
{
    static const edit edits[] = {
        FILE_ROW("generation_config.json", "eos_token_id", "2", "eos_token_id is 2"),
        FILE_ROW("generation_config.json", "bos_token_id", "7", "bos_token_id is 7"),
        FILE_ROW("generation_config.json", "temperature", "0.1", "temperature"),
        FILE_ROW("tokenizer_config.json", "model_max_length", "64", "model_max_length is 64"),
        FILE_ROW("tokenizer_config.json", "eos_token", "\"</s>\"", "eos_token"),
        FILE_ROW("tokenizer_config.json", "add_bos_token", "true", "add_bos_token"),
        FILE_ROW("tokenizer_config.json", "chat_template", "\"{{ eos_token }}\"", "chat_template"),
        FILE_ROW("special_tokens_map.json", "bos_token", "\"<s>\"", "bos_token"),
        FILE_ROW("tokenizer.json", "model.unk_token", "\"!\"", "unk_token"),
        {"generation_config.json", "transformers_version", "\"6\"", NULL, NULL},
        {"tokenizer_config.json", "name_or_path", "\"here\"", NULL, NULL},
        {"tokenizer_config.json", "eos_token", "{\"content\": \"<|end_of_text|>\"}", NULL, NULL},
        {"tokenizer.json", "truncation", "{\"max_length\": 512}", NULL, NULL},
    };

    (void)state;
    judge_edits(VERIFY_MODEL, edits, sizeof edits / sizeof *edits);
}

/* Two tokens of tokenizer.json trade their ids. */
static void swap_ids(const char *dir)
{
    edit_json(dir, "tokenizer.json", "model.vocab.A", "35");
    edit_json(dir, "tokenizer.json", "model.vocab.B", "34");
}

static void drop_template(const char *dir)
{
    edit_json(dir, "tokenizer_config.json", "chat_template", NULL);
}

static void cut_generation(const char *dir) { edit_cut(dir, "generation_config.json", 20); }
static void cut_tokenizer(const char *dir) { edit_cut(dir, "tokenizer.json", 5000); }
static void no_generation(const char *dir) { edit_remove(dir, "generation_config.json"); }
static void no_tokenizer(const char *dir) { edit_remove(dir, "tokenizer.json"); }
static void no_tokenizer_config(const char *dir) { edit_remove(dir, "tokenizer_config.json"); }

static void no_vocabulary(const char *dir)
{
    edit_json(dir, "tokenizer.json", "model", "{\"type\": \"BPE\"}");
}

static void rename_in(const char *dir, const char *from, const char *to)
{
    char old_path[SW_PATH_BYTES], new_path[SW_PATH_BYTES];
    sw_err err = {0};

    assert_int_equal(sw_path_join(old_path, dir, from, &err), SW_OK);
    assert_int_equal(sw_path_join(new_path, dir, to, &err), SW_OK);
    assert_int_equal(rename(old_path, new_path), 0);
}

static void new_generation(const char *dir)
{
    edit_json(dir, "generation_config.json", "eos_token_id", "[1, 5]");
}

static void add_code(const char *dir)
{
    edit_copy(dir, FILES, "provenance.json");
    rename_in(dir, "provenance.json", "modeling_other.py");
}

/* Weights of the model beside its own container, which engines that glob would read as well. */
static void add_container(const char *dir)
{
    rename_in(dir, "model.safetensors", "kept");
    edit_copy(dir, VERIFY_MODEL, "model.safetensors");
    rename_in(dir, "model.safetensors", "model-2.safetensors");
    rename_in(dir, "kept", "model.safetensors");
}

static void damaged_files_fail(void **state)
{
    static const struct {
        void (*damage)(const char *dir);
        const char *what, *says;
    } rows[] = {
        {swap_ids, "differs", "model.vocab.A is 35, the original has 34 (and 1 more)"},
        {drop_template, "differs", "chat_template"},
        {cut_generation, "broken", "generation_config.json"},
        {cut_tokenizer, "broken", "tokenizer.json"},
        {no_vocabulary, "differs", "tokenizer.json: model."},
        {no_generation, "missing", "generation_config.json"},
        {no_tokenizer, "missing", "tokenizer.json"},
        {no_tokenizer_config, "missing", "tokenizer_config.json"},
        {add_code, "unexpected", "modeling_other.py"},
        {add_container, "unexpected", "model-2.safetensors"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pair p;
        sw_report r;

        pair_open(&p, VERIFY_MODEL);
        rows[i].damage(p.checkpoint);
        judge(&r, &p, i == 0);
        verify_expect_fail(&r, rows[i].what, rows[i].says);
        sw_report_free(&r);
        scratch_close(&p.s);
    }
}

/* What others stand in for is only said. */
static void a_map_of_special_tokens_may_go(void **state)
{
    sw_verify_options o;
    sw_report r;
    pair p;

    (void)state;
    pair_open(&p, VERIFY_MODEL);
    edit_remove(p.checkpoint, "special_tokens_map.json");
    judge(&r, &p, false);
    verify_expect_pass(&r);
    assert_int_equal(r.n_remarks, 1);
    assert_non_null(strstr(r.remarks[0], "special_tokens_map.json"));
    sw_report_free(&r);
    edit_remove(p.original, "generation_config.json"); /* one that is new says nothing new */
    judge(&r, &p, false);
    verify_expect_pass(&r);
    assert_int_equal(r.n_remarks, 2);
    sw_report_free(&r);
    new_generation(p.checkpoint);
    judge(&r, &p, false);
    verify_expect_fail(&r, "differs", "eos_token_id is not the original's");
    sw_report_free(&r);
    edit_cut(p.checkpoint, "generation_config.json", 20); /* found without an original, too */
    o = verify_options_for(p.checkpoint);
    o.original_dir = NULL;
    o.n_texts = 0;
    verify_run(&r, &o);
    verify_expect_fail(&r, "broken", "generation_config.json");
    sw_report_free(&r);
    scratch_close(&p.s);
}

/* The two spellings of a rope and of a dtype, and a merge as a pair. */
static void other_spellings_pass(void **state)
{
    sw_report r;
    pair p;

    (void)state;
    pair_open(&p, VERIFY_MODEL);
    edit_json(p.checkpoint, "config.json", "rope_parameters", NULL);
    edit_json(p.checkpoint, "config.json", "rope_theta", "10000");
    edit_json(p.checkpoint, "config.json", "dtype", NULL);
    edit_json(p.checkpoint, "config.json", "torch_dtype", "\"bfloat16\"");
    judge(&r, &p, false);
    verify_expect_pass(&r);
    sw_report_free(&r);
    scratch_close(&p.s);
}

static void json_is_compared_by_meaning(void **state)
{
    static const char *const left_out[] = {"free", NULL};
    static const struct {
        const char *have, *want, *path; /* path NULL: the same */
    } rows[] = {
        {"{\"a\":1,\"b\":[1,2]}", "{\"b\":[1,2.0],\"a\":1}", NULL},
        {"{\"a\":null,\"c\":false}", "{}", NULL},
        {"{\"a\":{\"free\":1}}", "{\"a\":{\"free\":2}}", NULL},
        {"[\"a b\"]", "[[\"a\",\"b\"]]", NULL},
        {"[\"a c\"]", "[[\"a\",\"b\"]]", "[0]"},
        {"{\"t\":\"x\"}", "{\"t\":{\"content\":\"x\",\"special\":true}}", NULL},
        {"{\"t\":0}", "{}", "t"},
        {"{\"a\":{\"b\":[1,{\"c\":2}]}}", "{\"a\":{\"b\":[1,{\"c\":3}]}}", "a.b[1].c"},
        {"[1,2]", "[1,2,null]", "[2]"},
        {"{\"a\":\"1\"}", "{\"a\":1}", "a"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *have = cJSON_Parse(rows[i].have), *want = cJSON_Parse(rows[i].want);
        sw_json_diff d;
        sw_err err = {0};

        assert_true(have && want);
        assert_int_equal(sw_json_compare(&d, have, want, left_out, &err), SW_OK);
        assert_int_equal(d.n, rows[i].path ? 1 : 0);
        if (rows[i].path) assert_string_equal(d.path, rows[i].path);
        cJSON_Delete(have);
        cJSON_Delete(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_that_compute_otherwise_fail),
        cmocka_unit_test(experts_are_chosen_alike),
        cmocka_unit_test(files_that_say_otherwise_fail),
        cmocka_unit_test(damaged_files_fail),
        cmocka_unit_test(a_map_of_special_tokens_may_go),
        cmocka_unit_test(other_spellings_pass),
        cmocka_unit_test(json_is_compared_by_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
