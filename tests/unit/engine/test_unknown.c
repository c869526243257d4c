/* Families without a row: what names and shapes of tensors say, and what another row may serve. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/model/unknown/found.h"
#include "tests/support/toys/st_build.h"

#define BF16 SW_DTYPE_BF16

static void add(st_build *b, const char *name, int32_t n_dims, int64_t a, int64_t c, int64_t d)
{
    const int64_t shape[] = {a, c, d};

    (void)st_build_add(b, name, BF16, n_dims, shape, NULL);
}

static void read_config(sw_model *m, const char *text)
{
    cJSON *config = cJSON_Parse(text);
    sw_err err = {0};

    assert_non_null(config);
    sw_arch_allow_unknown(true);
    assert_int_equal(sw_model_read(m, config, &err), SW_OK);
    sw_arch_allow_unknown(false);
    assert_ptr_equal(m->arch, &sw_arch_unknown);
    cJSON_Delete(config);
}

static bool has_kept(const sw_found *f, const char *path)
{
    for (int64_t i = 0; i < f->n_kept; i++)
        if (!strcmp(f->kept[i], path)) return true;
    return false;
}

static void layers_are_told_by_names(void **state)
{
    static const struct {
        const char *name;
        int64_t layer; /* -1: none */
        const char *own;
    } rows[] = {
        {"model.layers.12.self_attn.q_proj.weight", 12, "self_attn.q_proj.weight"},
        {"h.0.attn.weight", 0, "attn.weight"},
        {"transformer.blocks.3.w", 3, "w"},
        {"model.layers.x.q.weight", -1, ""},
        {"model.layers.4", -1, ""},
        {"model.layers.1234567.q.weight", -1, ""},
        {"model.visual.blocks.3.mlp.weight", -1, ""},
        {"vision_tower.layers.0.q.weight", -1, ""},
        {"mtp.layers.0.q.weight", -1, ""},
        {"model.embed_tokens.weight", -1, ""},
        {"", -1, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t layer = -7;
        size_t at = 0;

        assert_int_equal(sw_found_in_layer(&layer, &at, rows[i].name), rows[i].layer >= 0);
        if (rows[i].layer < 0) continue;
        assert_int_equal(layer, rows[i].layer);
        assert_string_equal(rows[i].name + at, rows[i].own);
    }
}

static void matrices_become_linears_or_stay(void **state)
{
    st_build b = {.n = 0};
    sw_arena arena = {0};
    sw_err err = {0};
    sw_model m;
    char path[256];
    sw_linear_ref refs[8];
    (void)state;
    add(&b, "x.embed_tokens.weight", 2, 96, 64, 0);
    add(&b, "x.layers.0.attn.wq.weight", 2, 64, 64, 0);
    add(&b, "x.layers.0.norm.weight", 1, 64, 0, 0);
    add(&b, "x.layers.0.mlp.gate.weight", 2, 64, 64, 0);       /* a router by its name */
    add(&b, "x.layers.0.mlp.chooser.weight", 2, 40, 64, 0);    /* by its rows, one an expert */
    add(&b, "x.layers.0.mlp.small.weight", 2, 8, 64, 0);       /* narrow */
    add(&b, "x.layers.0.conv.in_proj.weight", 2, 96, 64, 0);   /* around a convolution */
    add(&b, "x.layers.0.conv.conv.weight", 3, 64, 1, 3);
    add(&b, "x.layers.1.attn.wq.weight", 2, 32, 64, 0);
    add(&b, "x.layers.2.attn.wq.weight", 2, 64, 64, 0);        /* beyond num_hidden_layers */
    add(&b, "x.layers.1.c_fc.weight", 2, 64, 96, 0);           /* turned, as its bias tells */
    add(&b, "x.layers.1.c_fc.bias", 1, 96, 0, 0);
    read_config(&m, "{\"model_type\":\"frob\",\"num_hidden_layers\":2,\"num_experts\":40,"
                    "\"hidden_size\":64}");
    assert_int_equal(sw_found_new(&m, st_build_open(&b), NULL, 0, &arena, &err), SW_OK);
    assert_int_equal(sw_model_linears(&m, 0, refs, 8), 2);
    assert_true(sw_model_slot_path(path, &m, 0, refs[0].slot, refs[0].expert));
    assert_string_equal(path, "x.layers.0.attn.wq");
    assert_true(sw_model_slot_path(path, &m, 0, refs[1].slot, refs[1].expert));
    assert_string_equal(path, "x.layers.0.conv.in_proj");
    assert_int_equal(refs[1].n_out, 96);
    assert_int_equal(sw_model_linears(&m, 1, refs, 8), 1);
    assert_int_equal(sw_model_linears(&m, 2, refs, 8), 0);
    assert_false(sw_model_slot_path(path, &m, 1, SW_SLOT_FOUND, 1));
    assert_true(has_kept(m.found, "x.layers.0.mlp.gate"));
    assert_true(has_kept(m.found, "x.layers.0.mlp.chooser"));
    assert_true(has_kept(m.found, "x.layers.0.mlp.small"));
    assert_true(has_kept(m.found, "x.layers.0.conv.conv"));
    assert_int_equal(m.found->n_kept, 4);
    assert_int_equal(m.found->n_unclear, 1);
    assert_string_equal(m.found->unclear[0].name, "x.layers.1.c_fc.weight");
    assert_string_equal(sw_model_end(&m, SW_END_LAYERS), "x.layers");
    assert_string_equal(sw_model_end(&m, SW_END_EMBED), "x.embed_tokens");
    assert_false(sw_model_owns(&m, "x.layers.2.attn.wq.weight"));
    sw_arena_free(&arena);
    st_build_free(&b);
}

/* gate_up [4, a, b] and down [4, c, d] of hidden 64. */
static int way(const char *config, int64_t a, int64_t b_, int64_t c, int64_t d, bool has_bias)
{
    st_build b = {.n = 0};
    const char *why = NULL;
    sw_model m;
    int found;

    if (a) add(&b, "layers.0.mlp.experts.gate_up_proj", 3, 4, a, b_);
    if (c) add(&b, "layers.0.mlp.experts.down_proj", 3, 4, c, d);
    if (has_bias) add(&b, "layers.0.mlp.experts.gate_up_proj_bias", 2, 4, a, 0);
    read_config(&m, config);
    found = sw_found_way_round(&why, &m, st_build_open(&b),
                               a ? "layers.0.mlp.experts.gate_up_proj"
                                 : "layers.0.mlp.experts.down_proj");
    assert_non_null(why);
    st_build_free(&b);
    return found;
}

static void experts_in_one_tensor_are_decided_or_left_open(void **state)
{
    static const char known[] = "{\"model_type\":\"frob\",\"num_experts\":4,\"hidden_size\":64,"
                                "\"moe_intermediate_size\":48}";
    static const char square[] = "{\"model_type\":\"frob\",\"num_experts\":4,\"hidden_size\":64,"
                                 "\"moe_intermediate_size\":64}";
    static const char half[] = "{\"model_type\":\"frob\",\"num_experts\":4,\"hidden_size\":64,"
                               "\"moe_intermediate_size\":32}";
    static const char silent[] = "{\"model_type\":\"frob\",\"num_experts\":4,\"hidden_size\":64}";
    static const char other[] = "{\"model_type\":\"frob\",\"num_experts\":5,\"hidden_size\":64}";
    (void)state;
    assert_int_equal(way(known, 96, 64, 64, 48, false), -1);
    assert_int_equal(way(known, 64, 96, 48, 64, false), 1);
    assert_int_equal(way(silent, 96, 64, 64, 48, false), -1);
    assert_int_equal(way(silent, 64, 96, 48, 64, false), 1);
    assert_int_equal(way(half, 64, 64, 64, 32, false), -1);  /* the other tensor tells */
    assert_int_equal(way(square, 128, 64, 64, 64, false), -1);
    assert_int_equal(way(half, 64, 64, 0, 0, false), 0);     /* nobody does */
    assert_int_equal(way(square, 0, 0, 64, 64, false), 0);
    assert_int_equal(way(known, 96, 64, 48, 64, false), 0);  /* the two disagree */
    assert_int_equal(way(known, 80, 64, 64, 40, false), 0);  /* not as wide as config.json says */
    assert_int_equal(way(other, 96, 64, 64, 48, false), 0);
    assert_int_equal(way(known, 96, 64, 64, 48, true), 0);   /* gate and up may take turns */
}

static void an_unknown_family_is_refused_with_its_neighbours(void **state)
{
    cJSON *config = cJSON_Parse("{\"model_type\":\"qwen3_mos\"}");
    sw_err err = {0};
    sw_model m;
    (void)state;
    assert_int_equal(sw_model_read(&m, config, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"qwen3_mos\" is not supported; the nearest are qwen3_moe"));
    assert_non_null(strstr(err.text, "--arch-like FAMILY"));
    assert_non_null(strstr(err.text, "--method rtn"));
    cJSON_Delete(config);
}

static void another_row_stands_in_until_it_is_taken_away(void **state)
{
    cJSON *config = cJSON_Parse(
        "{\"model_type\":\"frob\",\"hidden_size\":64,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"vocab_size\":96,\"intermediate_size\":96,"
        "\"max_position_embeddings\":64}");
    cJSON *known = cJSON_Duplicate(config, true);
    sw_err err = {0};
    sw_model m;
    (void)state;
    assert_true(cJSON_ReplaceItemInObject(known, "model_type", cJSON_CreateString("mistral")));
    assert_int_equal(sw_arch_stand_in("lama", &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "llama"));
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_arch_stand_in("llama", &err), SW_OK);
    assert_int_equal(sw_model_read(&m, known, &err), SW_OK);
    assert_false(m.is_like);
    assert_false(sw_arch_stood_in());
    assert_int_equal(sw_model_read(&m, config, &err), SW_OK);
    assert_true(m.is_like);
    assert_true(sw_arch_stood_in());
    assert_string_equal(m.arch->name, "llama");
    assert_int_equal(sw_arch_stand_in(NULL, &err), SW_OK);
    assert_int_equal(sw_model_read(&m, config, &err), SW_E_UNSUPPORTED);
    cJSON_Delete(known);
    cJSON_Delete(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_told_by_names),
        cmocka_unit_test(matrices_become_linears_or_stay),
        cmocka_unit_test(experts_in_one_tensor_are_decided_or_left_open),
        cmocka_unit_test(an_unknown_family_is_refused_with_its_neighbours),
        cmocka_unit_test(another_row_stands_in_until_it_is_taken_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
