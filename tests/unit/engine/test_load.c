/* test_load.c - weights that do not fit the configuration, each refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/toys/open_model.h"

/* Loads blocks and ends after `spoil` has changed the description; the code and a part of the
 * message must come, and nothing may stay allocated (the sanitizers look). */
static void must_refuse(const char *dir, void (*spoil)(sw_model *), const char *want)
{
    open_model m;
    sw_lm lm = {0};
    sw_err err = {0};
    sw_model spoilt;

    open_model_dir(&m, dir);
    spoilt = m.model;
    spoil(&spoilt);
    assert_int_equal(sw_lm_load(&lm, &spoilt, m.st, &err), SW_E_FORMAT);
    if (!strstr(err.text, want)) fail_msg("\"%s\" does not say \"%s\"", err.text, want);
    assert_null(lm.blocks);
    open_model_close(&m);
}

static void wider_mlp(sw_model *m) { m->intermediate++; }
static void more_words(sw_model *m) { m->vocab++; }
static void one_more_layer(sw_model *m) { m->n_layers++; }
static void with_bias(sw_model *m) { m->has_o_bias = true; }
static void untied(sw_model *m) { m->is_tied = false; }
static void longer_heads(sw_model *m) { m->head_dim *= 2; }
static void one_more_expert(sw_model *m) { m->n_experts++; }
static void wider_experts(sw_model *m) { m->moe_intermediate *= 2; }

static void test_shapes(void **state)
{
    (void)state;
    must_refuse("tests/golden/arch/llama", wider_mlp,
                "model.layers.0.mlp.gate_proj.weight: BF16 [256, 128], but config.json asks for "
                "[257, 128]");
    must_refuse("tests/golden/arch/llama", more_words, "model.embed_tokens.weight");
    must_refuse("tests/golden/arch/llama", one_more_layer,
                "model.layers.2.input_layernorm.weight: missing");
    must_refuse("tests/golden/arch/llama", with_bias, "self_attn.o_proj.bias: missing");
    must_refuse("tests/golden/arch/qwen2", untied, "lm_head.weight: missing");
    must_refuse("tests/golden/arch/qwen3", longer_heads, "self_attn.q_proj.weight");
    must_refuse("tests/golden/arch/qwen3_moe", one_more_expert, "mlp.gate.weight");
    must_refuse("tests/golden/arch/mixtral", wider_experts, "block_sparse_moe.experts.0.w1.weight");
}

/* The same file with every BF16 called I16: whoever packs weights in integers is not dense. */
static void test_integers_are_not_weights(void **state)
{
    static const char have[] = "\"dtype\":\"BF16\"", want[] = "\"dtype\":\"I16\" ";
    open_model m;
    sw_map map = {0};
    sw_st *st = NULL;
    sw_lm lm = {0};
    sw_err err = {0};
    char *bytes;
    int n_changed = 0;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/llama");
    assert_int_equal(sw_map_open(&map, "tests/golden/arch/llama/model.safetensors", &err), SW_OK);
    bytes = malloc(map.size_bytes);
    memcpy(bytes, map.data, map.size_bytes);
    for (size_t i = 0; i + sizeof have < 8192; i++)
        if (!memcmp(bytes + i, have, sizeof have - 1)) {
            memcpy(bytes + i, want, sizeof want - 1);
            n_changed++;
        }
    assert_true(n_changed > 10);
    assert_int_equal(sw_st_open_bytes(&st, bytes, map.size_bytes, "memory", &err), SW_OK);
    assert_int_equal(sw_lm_load(&lm, &m.model, st, &err), SW_E_FORMAT);
    assert_non_null(strstr(err.text, "quantized already?"));
    sw_st_close(st);
    free(bytes);
    sw_map_close(&map);
    open_model_close(&m);
}

static void test_weights_lie_in_the_file(void **state)
{
    open_model m;
    const sw_st_tensor *t;

    (void)state;
    open_model_dir(&m, "tests/golden/arch/mixtral");
    t = sw_st_find(m.st, "model.layers.1.block_sparse_moe.experts.3.w2.weight");
    assert_ptr_equal(sw_block_weight(&m.lm.blocks[1], SW_SLOT_DOWN, 3)->dense, t->view.data);
    t = sw_st_find(m.st, "model.layers.0.self_attn.k_proj.weight");
    assert_ptr_equal(sw_block_weight(&m.lm.blocks[0], SW_SLOT_K, -1)->dense, t->view.data);
    open_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_integers_are_not_weights),
        cmocka_unit_test(test_weights_lie_in_the_file),
    };
    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
