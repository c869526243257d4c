/* test_gguf_families.c - a toy of every family as GGUF in F32 and back: the engine computes the
 * same logits, in Q8_0 it passes the judge, and what loaders cannot run is refused. Tensors and
 * keys are those that loaders ask for, by a list of our own for families that differ most.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/file/gguf.h"
#include "formats/gguf/gguf_names.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/model/programs.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tests/support/toys/recipe_model.h"
#include "tools/convert/convert_gguf.h"
#include "verify/verify.h"

#define GOLDEN "tests/golden/"
#define DISTANCE_MAX 1e-5
#define SEQ_LEN 48
#define MUST(call_with_err)                                              \
    do {                                                                 \
        sw_err e_text = {0}, *err = &e_text;                             \
        if ((call_with_err) != SW_OK) fail_msg("%s", e_text.text);       \
    } while (0)

/* `other`: keys of config.json that the toy gets instead of its own, so that it is as loaders want
 * it; with another number of layers its tensors are not those of the recipe. `refused`: a part of
 * the message when there is no form as GGUF. */
typedef struct family {
    const char *dir;
    int64_t seq_len;
    const char *other, *refused;
} family;

/* Gemma 3n with the sizes that loaders expect: 20 layers with keys of their own, and two more. */
#define FIVE_KINDS                                                                         \
    "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"," \
    "\"full_attention\","
#define FIVE(text) text "," text "," text "," text "," text
#define GEMMA3N_22                                                                         \
    "{\"num_hidden_layers\":22,\"num_kv_shared_layers\":2,\"altup_num_inputs\":4,"         \
    "\"laurel_rank\":64,\"hidden_size_per_layer_input\":256,\"intermediate_size\":64,"      \
    "\"layer_types\":[" FIVE_KINDS FIVE_KINDS FIVE_KINDS FIVE_KINDS                        \
    "\"sliding_attention\",\"sliding_attention\"],\"activation_sparsity_pattern\":["        \
    FIVE("0.95") "," FIVE("0.95") "," FIVE("0") "," FIVE("0") ",0,0]}"

static const family families[] = {
    {"recipes/gemma3", 0, "{\"query_pre_attn_scalar\":32}", NULL},
    {"recipes/gemma4", 0, NULL, NULL},
    {"recipes/gemma4_text", 0, NULL, NULL},
    {"recipes/gemma4_moe", 0, NULL, NULL},
    {"recipes/qwen2_5_vl", 0, NULL, NULL},
    {"recipes/qwen3_vl", 0, NULL, NULL},
    {"recipes/qwen3_vl_moe", 0, NULL, NULL},
    {"recipes/qwen3_5", 0, NULL, NULL},
    {"recipes/qwen3_5_text", 0, NULL, NULL},
    {"recipes/qwen3_5_moe", 0, NULL, NULL},
    {"recipes/qwen3_5_moe_text", 0, NULL, NULL},
    {"recipes/qwen3_5_mtp", 0, NULL, NULL},
    {"recipes/qwen3_next", 0, "{\"linear_key_head_dim\":32,\"linear_num_key_heads\":1}", NULL},
    {"recipes/mistral3", 0, NULL, NULL},
    {"recipes/mistral3_ministral3", 0, NULL, NULL},
    {"recipes/glm4", 0, NULL, NULL},
    {"recipes/glm4_moe", 0, NULL, NULL},
    {"recipes/glm4_moe_mtp", 0, NULL, NULL},
    {"recipes/glm4_moe_lite", 0, NULL, NULL},
    {"recipes/minimax_m2", 0, NULL, NULL},
    {"recipes/qwen2_moe", 0, NULL, NULL},
    {"recipes/olmoe", 0, "{\"clip_qkv\":null}", "as many keys as queries"},
    {"recipes/olmo3", 0, NULL, NULL},
    {"recipes/smollm3", 0, "{\"no_rope_layers\":null}", NULL},
    {"recipes/cohere2", 0, NULL, NULL},
    {"recipes/ernie4_5", 0, NULL, NULL},
    {"recipes/ernie4_5_moe", 0, NULL, NULL},
    {"recipes/exaone4", 0, "{\"sliding_window\":null,\"layer_types\":null}", NULL},
    {"recipes/hunyuan_v1_dense", 0, NULL, NULL},
    {"recipes/hunyuan_v1_moe", 0, NULL, NULL},
    {"recipes/seed_oss", 0, NULL, NULL},
    {"recipes/phi4", 0, NULL, NULL},
    {"recipes/phi4_short", 0, NULL, NULL},
    {"recipes/granite", 0, NULL, NULL},
    {"recipes/llama4", 0, "{\"attention_chunk_size\":8192,\"floor_scale\":8192}", NULL},
    {"recipes/llama4_text", 0, "{\"attention_chunk_size\":8192,\"floor_scale\":8192}", NULL},
    {"recipes/starcoder2", 16, NULL, NULL},
    {"recipes/stablelm", 0, NULL, NULL},
    {"recipes/stablelm_2_12b", 0, NULL, NULL},
    {"recipes/gpt_neox", 0, NULL, NULL},
    {"recipes/falcon", 0, NULL, NULL},
    {"recipes/falcon_new", 0, NULL, NULL},
    {"recipes/bloom", 0, NULL, NULL},
    {"recipes/lfm2", 0, NULL, NULL},
    {"recipes/lfm2_moe", 0, NULL, NULL},
    {"recipes/mamba2", 0, "{\"n_groups\":1,\"state_size\":32}", NULL},
    {"recipes/granitemoehybrid", 0, "{\"mamba_n_groups\":1,\"mamba_d_state\":32}", NULL},
    {"recipes/granitemoehybrid_dense", 0,
     "{\"mamba_n_groups\":1,\"mamba_d_state\":32,\"intermediate_size\":192}", NULL},
    {"recipes/nemotron_h", 0, NULL, "every layer that has an MLP"},
    {"recipes/nemotron_h_latent", 0, NULL, NULL},
    {"recipes/kimi_linear", 0, NULL, NULL},
    {"recipes/deepseek_v32", 0, NULL, NULL},
    {"recipes/deepseek_v32_sparse", 0, NULL, NULL},
    {"recipes/glm_moe_dsa", 0, NULL, NULL},
    {"recipes/glm_moe_dsa_sparse", 0, NULL, NULL},
    {"recipes/bamba", 0, "{\"mamba_n_groups\":1,\"mamba_d_state\":32}", NULL},
    {"recipes/falcon_h1", 0, NULL, "not known here as GGUF"},
    {"recipes/gemma3n", 0, GEMMA3N_22, NULL},
    {"recipes/gemma3n", 0, NULL, "laurel_rank 64"},
    /* what the same toys are without the changes above */
    {"recipes/gemma3", 0, NULL, "divide scores by another number"},
    {"recipes/qwen3_next", 0, NULL, "heads of keys and values alike"},
    {"recipes/olmoe", 0, NULL, "do not clip"},
    {"recipes/smollm3", 0, NULL, "every fourth"},
    {"recipes/exaone4", 0, NULL, "windows in the model of 64 layers"},
    {"recipes/llama4", 0, NULL, "let queries grow every 8192 positions"},
    {"recipes/mamba2", 0, NULL, "by groups"},
    {"recipes/bamba", 0, NULL, "by groups"},
    {"arch/gpt_oss", 0, NULL, NULL},
    {"arch/deepseek_v3", 0, NULL, NULL},
    {"arch/olmo2", 0, NULL, NULL},
    {"arch/phi3", 0, NULL, NULL},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* The keys of `other` in the config.json of the directory, or in the decoder's object in it. */
static void change_config(const char *dir, const char *other)
{
    char path[SW_PATH_BYTES];
    cJSON *config = NULL, *to, *changes = cJSON_Parse(other), *item, *next;
    char *text;

    MUST(sw_path_join(path, dir, "config.json", err));
    MUST(sw_json_read(&config, path, &sw_json_caps_config, err));
    to = cJSON_GetObjectItemCaseSensitive(config, "text_config");
    if (!to) to = config;
    for (item = changes->child; item; item = next) {
        next = item->next;
        cJSON_DetachItemViaPointer(changes, item);
        cJSON_DeleteItemFromObjectCaseSensitive(to, item->string);
        cJSON_AddItemToObject(to, item->string, item);
    }
    text = cJSON_Print(config);
    MUST(sw_file_put(path, text, strlen(text), err));
    cJSON_free(text);
    cJSON_Delete(config);
    cJSON_Delete(changes);
}

/* A recipe of all tensors that the model of `dir` has, in `dir` too. */
static void write_recipe(const char *dir)
{
    const sw_gguf_arch *arch = NULL;
    sw_gguf_names names = {0};
    char path[SW_PATH_BYTES];
    sw_arena arena = {0};
    cJSON *config = NULL;
    sw_model m;
    FILE *f;

    MUST(sw_path_join(path, dir, "config.json", err));
    MUST(sw_json_read(&config, path, &sw_json_caps_config, err));
    MUST(sw_model_read(&m, config, err));
    for (int64_t l = 0; l < m.n_layers; l++)
        if (m.shares_kv[l]) m.kind[l] = SW_KIND_UNUSED_KV; /* they are stored */
    MUST(sw_gguf_arch_of_model(&arch, &m, err));
    MUST(sw_gguf_names_new(&names, &m, arch, &arena, err));
    MUST(sw_path_join(path, dir, "recipe.json", err));
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"seed_rule\":\"by name\",\"tensors\":[");
    for (int64_t i = 0; i < names.n; i++) {
        const sw_gguf_name *name = &names.names[i];
        const bool is_factor = name->n_dims == 1;

        fprintf(f, "%s\n{\"name\":\"%s\",\"dtype\":\"BF16\",\"shape\":[%lld",
                i ? "," : "", name->hf, (long long)name->shape[0]);
        if (!is_factor) fprintf(f, ",%lld", (long long)name->shape[1]);
        fprintf(f, "],\"center\":%s,\"scale\":0.25}", is_factor ? "1.0" : "0.0");
    }
    fprintf(f, "]}\n");
    assert_int_equal(fclose(f), 0);
    sw_arena_free(&arena);
    cJSON_Delete(config);
}

/* The toy in the scratch directory. */
static void make_toy(char dir[SW_PATH_BYTES], const scratch *s, const family *f)
{
    char from[128];

    (void)snprintf(from, sizeof from, GOLDEN "%s", f->dir);
    (void)snprintf(dir, SW_PATH_BYTES, "%s", from);
    if (!strncmp(f->dir, "arch/", 5)) return;
    (void)snprintf(dir, SW_PATH_BYTES, "%s", s->dir);
    MUST(recipe_model_make(dir, from, "config.json", err));
    if (f->other) change_config(dir, f->other);
    if (!f->other || !strstr(f->other, "num_hidden_layers")) return;
    write_recipe(dir);
    MUST(recipe_model_make(dir, dir, "config.json", err));
}

static sw_code to_gguf(const char *source, const char *out, const char *type, sw_err *err)
{
    sw_gguf_job job = {.source = source, .out = out, .type = type, .embed_type = type,
                       .no_tokenizer = true, .may_replace = true, .n_threads = 2};

    return sw_gguf_job_run(&job, err);
}

/* Logits of one fixed sequence in floats; freed by sw_mem_put. */
static float *logits_of(const char *path, int64_t seq_len, int64_t *n_logits)
{
    sw_lm_options options = {.dequantize = true, .n_threads = 2};
    uint32_t ids[SEQ_LEN];
    sw_checkpoint ckpt;
    open_model m = {0};
    float *logits;

    MUST(sw_checkpoint_open(&ckpt, path, err));
    MUST(sw_lm_open(&m.lm, &ckpt, &options, err));
    m.model = ckpt.model;
    m.st = ckpt.st;
    for (int i = 0; i < seq_len; i++) ids[i] = (uint32_t)((i * 37 + 11) % ckpt.model.vocab);
    logits = model_logits(&m, 2, ids, 1, seq_len);
    *n_logits = seq_len * ckpt.model.vocab;
    sw_lm_free(&m.lm);
    sw_checkpoint_close(&ckpt);
    return logits;
}

static void compare(const family *f, const char *file, const char *dir)
{
    const int64_t seq_len = f->seq_len ? f->seq_len : SEQ_LEN;
    int64_t n_a, n_b;
    float *a = logits_of(file, seq_len, &n_a), *b = logits_of(dir, seq_len, &n_b);
    double far;

    assert_int_equal(n_a, n_b);
    far = relative_l2(a, b, n_a);
    sw_mem_put(a);
    sw_mem_put(b);
    if (!(far <= DISTANCE_MAX)) fail_msg("%s: %.3g", f->dir, far);
    print_message("           %s: %.2g\n", f->dir, far);
}

/* In blocks of Q8_0 it passes the judge. */
static void judge(const family *f, const char *dir, const char *file)
{
    sw_verify_options o = {.checkpoint_dir = file, .original_dir = dir, .n_threads = 2};
    sw_report report = {0};
    sw_err verdict = {0};

    MUST(to_gguf(dir, file, "Q8_0", err));
    MUST(sw_verify_run(&report, &o, err));
    if (sw_report_verdict(&report, &verdict) != SW_OK) fail_msg("%s: %s", f->dir, verdict.text);
    sw_report_free(&report);
}

static void test_family(void **state)
{
    const family *f = *state;
    char dir[SW_PATH_BYTES], file[SW_PATH_BYTES];
    sw_err err = {0};
    sw_code rc;
    scratch s;

    scratch_open(&s);
    make_toy(dir, &s, f);
    (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
    rc = to_gguf(dir, file, "F32", &err);
    if (f->refused) {
        assert_int_equal(rc, SW_E_UNSUPPORTED);
        if (!strstr(err.text, f->refused)) fail_msg("%s: %s", f->dir, err.text);
    } else {
        if (rc != SW_OK) fail_msg("%s: %s", f->dir, err.text);
        compare(f, file, dir);
        judge(f, dir, file);
    }
    scratch_close(&s);
}

/* --- what loaders ask for ------------------------------------------------------------------- */

/* "key=value" of a whole number, or "tensor shape" with the outermost axis first. */
typedef struct asked {
    const char *dir, *what[24]; /* dir: of families[] */
} asked;

static const asked askeds[] = {
    {"recipes/qwen3_5_moe_text",
     {"ssm.conv_kernel=4", "ssm.state_size=32", "ssm.group_count=2", "ssm.time_step_rank=4",
      "ssm.inner_size=128", "full_attention_interval=2", "expert_count=4", "expert_used_count=2",
      "blk.0.attn_qkv.weight 256 128", "blk.0.attn_gate.weight 128 128",
      "blk.0.ssm_conv1d.weight 256 4", "blk.0.ssm_dt.bias 4", "blk.0.ssm_a 4",
      "blk.0.ssm_alpha.weight 4 128", "blk.0.ssm_beta.weight 4 128", "blk.0.ssm_norm.weight 32",
      "blk.0.ssm_out.weight 128 128", "blk.0.post_attention_norm.weight 128",
      "blk.1.attn_q.weight 256 128", "blk.1.attn_q_norm.weight 64",
      "blk.0.ffn_gate_inp.weight 4 128", "blk.0.ffn_down_shexp.weight 128 64"}},
    {"recipes/qwen3_next",
     {"blk.0.ssm_ba.weight 8 128", "blk.0.attn_qkv.weight 192 128",
      "blk.0.attn_gate.weight 128 128",
      "blk.0.ssm_conv1d.weight 192 4", "blk.0.ffn_gate_exps.weight 4 64 128"}},
    {"recipes/gemma4_moe",
     {"attention.key_length=64", "attention.key_length_swa=32", "rope.dimension_count=64",
      "rope.dimension_count_swa=32", "attention.shared_kv_layers=0",
      "embedding_length_per_layer_input=0", "rope_freqs.weight 32", "blk.0.ffn_gate.weight 128 128",
      "blk.0.ffn_gate_inp.scale 128", "blk.0.ffn_down_exps.scale 4",
      "blk.0.post_ffw_norm_1.weight 128",
      "blk.0.pre_ffw_norm_2.weight 128", "blk.0.layer_output_scale.weight 1"}},
    {"recipes/gemma3n",
     {"attention.shared_kv_layers=2", "altup.num_inputs=4", "embedding_length_per_layer_input=256",
      "altup_proj.weight 3 128 128", "altup_unembd_proj.weight 3 128 128",
      "per_layer_token_embd.weight 320 5632", "per_layer_model_proj.weight 5632 128",
      "per_layer_proj_norm.weight 256", "blk.0.laurel_l.weight 64 128",
      "blk.0.laurel_r.weight 128 64", "blk.0.laurel_post_norm.weight 128",
      "blk.0.altup_predict_coef.weight 16 4", "blk.0.altup_correct_coef.weight 4 4",
      "blk.0.altup_router.weight 4 128", "blk.0.altup_router_norm.weight 128",
      "blk.0.altup_correct_scale.weight 128", "blk.0.inp_gate.weight 256 128",
      "blk.0.proj.weight 128 256", "blk.0.post_norm.weight 128", "blk.21.attn_v.weight 64 128",
      "blk.21.attn_k_norm.weight 32"}},
    {"recipes/glm4_moe_lite",
     {"attention.head_count_kv=1", "attention.key_length=48", "attention.value_length=32",
      "attention.key_length_mla=32", "attention.value_length_mla=32", "expert_gating_func=2"}},
    {"recipes/deepseek_v32_sparse",
     {"attention.indexer.head_count=8", "attention.indexer.key_length=32",
      "attention.indexer.top_k=16", "blk.1.indexer.attn_q_b.weight 256 48",
      "blk.1.indexer.attn_k.weight 32 128", "blk.1.indexer.proj.weight 8 128",
      "blk.1.indexer.k_norm.weight 32", "blk.1.indexer.k_norm.bias 32",
      "expert_group_count=2", "attention.key_length_mla=32"}},
    {"recipes/llama4_text",
     {"interleave_moe_layer_step=2", "feed_forward_length=128", "expert_feed_forward_length=96",
      "blk.1.ffn_up_exps.weight 4 96 128", "blk.1.ffn_up_shexp.weight 96 128"}},
    {"arch/gpt_oss",
     {"attention.sliding_window=16", "blk.0.attn_sinks.weight 4", "blk.0.ffn_gate_exps.bias 4 256",
      "blk.0.ffn_gate_inp.bias 4", "blk.0.post_attention_norm.weight 128"}},
    {"recipes/lfm2_moe",
     {"blk.0.shortconv.conv.weight 128 3", "blk.0.shortconv.in_proj.weight 384 128",
      "token_embd_norm.weight 128", "shortconv.l_cache=3"}},
    {"recipes/mamba2", {"blk.0.ssm_a 8 1", "blk.0.ssm_d 8 1", "attention.head_count=0",
                           "feed_forward_length=0", "blk.0.ssm_norm.weight 1 256"}},
    {"recipes/bamba",
     {"feed_forward_length=256", "rope.dimension_count=16", "blk.0.ssm_in.weight 584 128",
      "blk.0.ssm_norm.weight 1 256", "blk.1.ffn_norm.weight 128", "blk.1.attn_q.weight 128 128",
      "blk.2.ffn_down.weight 128 256"}},
    {"recipes/stablelm_2_12b", {"blk.0.attn_q_norm.weight 4 32"}},
    {"recipes/minimax_m2", {"blk.0.exp_probs_b.bias 4", "expert_gating_func=2"}},
};

static void check_key(const sw_gguf *g, const char *arch, const char *text)
{
    const char *end = strchr(text, '=');
    char key[96];
    int64_t have = INT64_MIN;

    (void)snprintf(key, sizeof key, "%s.%.*s", arch, (int)(end - text), text);
    MUST(sw_gguf_int(&have, g, key, INT64_MIN, INT64_MAX, err));
    if (have != strtoll(end + 1, NULL, 10)) fail_msg("%s is %lld", text, (long long)have);
}

static void check_tensor(const sw_gguf *g, const char *text)
{
    const char *end = strchr(text, ' ');
    const sw_gguf_tensor *t;
    char name[96], *next = (char *)(uintptr_t)end;
    int32_t n = 0;

    (void)snprintf(name, sizeof name, "%.*s", (int)(end - text), text);
    t = sw_gguf_find(g, name);
    if (!t) fail_msg("%s is not there", text);
    for (; *next; n++)
        if (n >= t->n_dims || t->shape[n] != strtoll(next, &next, 10))
            fail_msg("%s: axis %d is another", text, (int)n);
    assert_int_equal(n, t->n_dims);
}

static void test_asked(void **state)
{
    const asked *a = *state;
    const family *f = families;
    char dir[SW_PATH_BYTES], file[SW_PATH_BYTES];
    const char *arch = NULL;
    sw_arena arena = {0};
    sw_gguf *g = NULL;
    scratch s;

    while (strcmp(f->dir, a->dir)) f++;
    scratch_open(&s);
    make_toy(dir, &s, f);
    (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
    MUST(to_gguf(dir, file, "F32", err));
    MUST(sw_gguf_open(&g, file, err));
    MUST(sw_gguf_text(&arch, g, "general.architecture", &arena, err));
    for (int i = 0; i < 24 && a->what[i]; i++)
        if (strchr(a->what[i], '=')) check_key(g, arch, a->what[i]);
        else check_tensor(g, a->what[i]);
    sw_gguf_close(g);
    sw_arena_free(&arena);
    scratch_close(&s);
}

int main(void)
{
    enum { N_ASKED = sizeof askeds / sizeof *askeds };
    struct CMUnitTest tests[N_FAMILIES + N_ASKED];

    for (size_t i = 0; i < N_FAMILIES; i++)
        tests[i] = (struct CMUnitTest){.name = families[i].dir, .test_func = test_family,
                                       .initial_state = (void *)(uintptr_t)&families[i]};
    for (size_t i = 0; i < N_ASKED; i++)
        tests[N_FAMILIES + i] =
            (struct CMUnitTest){.name = askeds[i].dir, .test_func = test_asked,
                                .initial_state = (void *)(uintptr_t)&askeds[i]};
    return cmocka_run_group_tests_name("families as GGUF", tests, NULL, NULL);
}
