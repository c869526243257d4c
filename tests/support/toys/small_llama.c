/* small_llama.c - see small_llama.h. */
#include "tests/support/toys/small_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "formats/io/file.h"
#include "tests/support/toys/recipe_model.h"

enum { LAYERS = 2, HIDDEN = 64, WIDTH = 96, KEYS = 32, VOCAB = 320 };

static const char config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"dtype\":\"bfloat16\","
    "\"bos_token_id\":0,\"eos_token_id\":1,\"hidden_act\":\"silu\",\"hidden_size\":64,"
    "\"intermediate_size\":96,\"max_position_embeddings\":512,\"num_attention_heads\":2,"
    "\"num_hidden_layers\":2,\"num_key_value_heads\":1,\"head_dim\":32,\"rms_norm_eps\":1e-06,"
    "\"rope_theta\":10000.0,\"tie_word_embeddings\":false,\"vocab_size\":320}\n";
static const char generation[] = "{\"bos_token_id\":0,\"eos_token_id\":1}\n";

/* cols 0: a vector around 1, a norm. */
static const struct {
    const char *name;
    int rows, cols;
} of_layer[] = {
    {"input_layernorm", HIDDEN, 0},          {"mlp.down_proj", HIDDEN, WIDTH},
    {"mlp.gate_proj", WIDTH, HIDDEN},        {"mlp.up_proj", WIDTH, HIDDEN},
    {"post_attention_layernorm", HIDDEN, 0}, {"self_attn.k_proj", KEYS, HIDDEN},
    {"self_attn.o_proj", HIDDEN, HIDDEN},    {"self_attn.q_proj", HIDDEN, HIDDEN},
    {"self_attn.v_proj", KEYS, HIDDEN},
};

typedef struct text {
    char bytes[8192];
    size_t n;
} text;

static void add_tensor(text *t, const char *name, int rows, int cols)
{
    char shape[32];

    (void)snprintf(shape, sizeof shape, cols ? "%d,%d" : "%d", rows, cols);
    t->n += (size_t)snprintf(t->bytes + t->n, sizeof t->bytes - t->n,
                             "%s{\"name\":\"%s.weight\",\"dtype\":\"BF16\",\"shape\":[%s],"
                             "\"center\":%s,\"scale\":0.26}",
                             t->n ? "," : "{\"tensors\":[", name, shape, cols ? "0" : "1");
    assert_true(t->n + 4 < sizeof t->bytes);
}

static void put(const char *dir, const char *name, const char *bytes)
{
    char path[SW_PATH_BYTES];
    sw_err err = {0};

    if (sw_path_join(path, dir, name, &err) != SW_OK ||
        sw_file_put(path, bytes, strlen(bytes), &err) != SW_OK)
        fail_msg("%s", err.text);
}

void small_llama_make(const char *dir)
{
    static text recipe;
    char from[SW_PATH_BYTES];
    sw_err err = {0};

    recipe.n = 0;
    add_tensor(&recipe, "lm_head", VOCAB, HIDDEN);
    add_tensor(&recipe, "model.embed_tokens", VOCAB, HIDDEN);
    for (int l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < sizeof of_layer / sizeof *of_layer; i++) {
            char name[96];
            (void)snprintf(name, sizeof name, "model.layers.%d.%s", l, of_layer[i].name);
            add_tensor(&recipe, name, of_layer[i].rows, of_layer[i].cols);
        }
    add_tensor(&recipe, "model.norm", HIDDEN, 0);
    (void)snprintf(recipe.bytes + recipe.n, sizeof recipe.bytes - recipe.n, "]}");
    (void)snprintf(from, sizeof from, "%s.recipe", dir);
    assert_int_equal(mkdir(from, 0755) | mkdir(dir, 0755), 0);
    put(from, "recipe.json", recipe.bytes);
    put(from, "config.json", config);
    put(from, "generation_config.json", generation);
    if (recipe_model_make(dir, from, "config.json", &err) != SW_OK) fail_msg("%s", err.text);
}
