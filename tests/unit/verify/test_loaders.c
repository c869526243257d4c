/* test_loaders.c - every loading rule of engines has a checkpoint that breaks it, and sound ones
 * break none that would stop an engine or change its numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/io/file_content.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "verify/loaders/loaders.h"

enum { FP8_TENSOR = 0, FP8_BLOCKS = 3, NVFP4 = 8, FP8_CHANNELS = 9, INTEGERS = -1 };

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

typedef struct broken {
    scratch s;
    ckpt_case c;
    sw_checkpoint opened;
} broken;

static void use_floats(ckpt_case *c, int which, bool is_equal)
{
    for (int64_t i = 0; i < c->n; i++) {
        int64_t n_out = c->q[i].n_out, k_in = c->q[i].k_in;
        sw_qtensor_free(&c->q[i]);
        sw_gen_float_qtensor(&c->q[i], which, n_out, k_in, (uint64_t)i);
        for (int64_t s = 0; is_equal && which == FP8_TENSOR && s < n_out; s++)
            c->q[i].scales[s] = 0.25f;
    }
    c->config.spec = *sw_gen_float_spec(which);
}

/* Linears with `part` in their path are left as they are. */
static void drop(ckpt_case *c, const char *part)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c->n; i++) {
        if (strstr(c->paths[i], part)) {
            sw_qtensor_free(&c->q[i]);
            continue;
        }
        if (n != i) {
            memmove(c->paths[n], c->paths[i], sizeof c->paths[n]);
            c->q[n] = c->q[i];
            memset(&c->q[i], 0, sizeof c->q[i]);
        }
        c->linears[n] = c->linears[i];
        c->linears[n].module_path = c->paths[n];
        n++;
    }
    c->n = n;
}

/* The first `have` in a file of the output becomes `want`, of the same length. */
static void edit(broken *b, const char *file, const char *have, const char *want)
{
    char name[64];
    size_t n, length = strlen(have);
    char *text = ckpt_text(&b->s, "out", file, &n), *at = text;

    while (at + length <= text + n && memcmp(at, have, length) != 0) at++;
    if (at + length > text + n) fail_msg("%s has no %s", file, have);
    assert_int_equal(strlen(want), length);
    memcpy(at, want, length);
    snprintf(name, sizeof name, "out/%s", file);
    assert_int_equal(unlink(scratch_path(&b->s, name)), 0);
    scratch_write(&b->s, name, text, n);
    sw_mem_put(text);
}

/* Before it is written. */
static void drop_k(broken *b) { drop(&b->c, "0.self_attn.k_proj"); }
static void drop_o(broken *b) { drop(&b->c, "0.self_attn.o_proj"); }
/* Those of 128 outputs. */
static void keep_wide(broken *b)
{
    drop(&b->c, "k_proj");
    drop(&b->c, "v_proj");
}
static void drop_expert(broken *b) { drop(&b->c, ".experts.1."); }
static void quantize_head(broken *b)
{
    ckpt_add_head(&b->c, sw_dialect_find("gptq"));
}
static void other_global(broken *b) { b->c.q[1].global_scale = 1.0f / 1024.0f; }
static void ignore_part(broken *b)
{
    static const char *const list[] = {"o_pro"};
    b->c.config.ignore = list;
    b->c.config.n_ignore = 1;
}
static void ignore_whole(broken *b)
{
    static const char *const list[] = {"model.layers.1.self_attn.o_proj"};
    b->c.config.ignore = list;
    b->c.config.n_ignore = 1;
}
static void fp8_head(broken *b)
{
    sw_qspec spec = b->c.config.spec;

    b->c.config.spec = (sw_qspec){.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 32,
                                  .scale_dtype = SW_DTYPE_F16};
    ckpt_add_head(&b->c, sw_dialect_find("gptq"));
    b->c.config.spec = spec;
    use_floats(&b->c, FP8_TENSOR, false);
}
static void scatter(broken *b)
{
    sw_qtensor *q = &b->c.q[0];
    sw_err err = {0};
    must(SW_MEM_GET(&q->g_idx, q->k_in, "g_idx", &err), &err);
    for (int64_t k = 0; k < q->k_in; k++) q->g_idx[k] = (int32_t)(k % q->n_groups);
    b->c.config.desc_act = true;
}
/* 8-bit integers a token on the way into every product. */
static void round_inputs(broken *b)
{
    const sw_act act = {sw_num_by_bits(8), SW_ACT_TOKEN, 0, SW_DTYPE_F32};

    for (int64_t i = 0; i < b->c.n; i++) b->c.q[i].spec.act = act;
    b->c.config.spec.act = act;
}
static void add_zeros(broken *b)
{
    sw_err err = {0};

    for (int64_t i = 0; i < b->c.n; i++) {
        sw_qtensor *q = &b->c.q[i];
        int64_t n = q->n_out * q->n_groups;
        must(SW_MEM_GET(&q->zeros, n, "zeros", &err), &err);
        memset(q->zeros, 2, (size_t)n);
        q->spec.is_symmetric = false;
    }
    b->c.config.spec.is_symmetric = false;
}

/* After. */
static bool to_bf16(void *ctx, const char *name, sw_cview *view)
{
    if (strstr(name, ctx)) view->dtype = SW_DTYPE_BF16;
    return true;
}
static bool without(void *ctx, const char *name, sw_cview *view)
{
    (void)view;
    return !strstr(name, ctx);
}
static void scales_in_bf16(broken *b) { ckpt_rewrite(&b->s, "out", to_bf16, (char[]){".scales"}); }
static void no_head(broken *b) { ckpt_rewrite(&b->s, "out", without, (char[]){"lm_head"}); }
static void forget_o(broken *b)
{
    edit(b, "config.json", "model.layers.0.self_attn.o_proj", "model.layers.0.self_attn.x_proj");
}
static void old_key(broken *b)
{
    edit(b, "config.json", "\"ignored_layers\"", "\"ignored_layerz\"");
}
static void odd_group(broken *b)
{
    edit(b, "config.json", "\"group_size\": 32", "\"group_size\":  8");
}
static void no_side_file(broken *b)
{
    assert_int_equal(unlink(scratch_path(&b->s, "out/hf_quant_config.json")), 0);
}
static void other_format(broken *b)
{
    edit(b, "model.safetensors", "\"format\":\"pt\"", "\"format\":\"np\"");
}
static void tie(broken *b)
{
    edit(b, "config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
}
static void cut_index(broken *b)
{
    const char *path = scratch_path(&b->s, "out/model.safetensors.index.json");
    cJSON *root = NULL, *map;
    char *text;
    sw_err err = {0};

    must(sw_json_read(&root, path, &sw_json_caps_config, &err), &err);
    map = cJSON_GetObjectItem(root, "weight_map");
    cJSON_DeleteItemFromObject(map, "model.norm.weight");
    text = cJSON_Print(root);
    assert_int_equal(unlink(path), 0);
    scratch_write(&b->s, "out/model.safetensors.index.json", text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(root);
}

/* <y> is numbered on as it states, <x> is not. */
static void move_ids(broken *b)
{
    static const char text[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"a\"},{\"id\":1,\"content\":\"<x>\"},"
        "{\"id\":4,\"content\":\"<y>\"}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
        "\"b\":2,\"c\":3},\"merges\":[]}}";

    scratch_write(&b->s, "out/tokenizer.json", text, sizeof text - 1);
}

/* Once it is open: another shape than any toy model has. */
static void odd_width(broken *b) { b->opened.model.intermediate = 250; }
static void half_word(broken *b) { b->opened.model.intermediate = 264; }
static void in_mistral3(broken *b)
{
    assert_true(cJSON_ReplaceItemInObject(b->opened.config, "model_type",
                                          cJSON_CreateString("mistral3")));
}

static void with_int8_cache(broken *b) { b->opened.qconfig.kv_num = &sw_nums[SW_NUM_INT8]; }

static const struct {
    const char *id, *dialect, *arch, *subject;
    int which, bits, group;
    uint64_t shard_bytes;
    void (*before)(broken *), (*after)(broken *), (*open)(broken *);
} rows[] = {
    {"fused-scheme", "compressed-tensors", "llama", "layers.0.self_attn.k_proj", INTEGERS, 4, 32, 0,
     drop_k, NULL, NULL},
    {"experts-scheme", "compressed-tensors", "qwen3_moe", "experts.1.", INTEGERS, 4, 32, 0,
     drop_expert, NULL, NULL},
    {"fused-global", "modelopt", "llama", "layers.0.self_attn.k_proj", NVFP4, 4, 32, 0,
     other_global, NULL, NULL},
    {"fused-scale", "fp8", "llama", "layers.0.self_attn.k_proj", FP8_TENSOR, 4, 32, 0, NULL, NULL,
     NULL},
    {"fp8-block-shape", "fp8", "llama", "k_proj", FP8_BLOCKS, 4, 32, 0, NULL, NULL, NULL},
    {"cutlass-shape", "fp8", "llama", "gate_proj", FP8_TENSOR, 4, 32, 0, NULL, NULL, odd_width},
    {"ct-bits", "compressed-tensors", "llama", "q_proj", INTEGERS, 3, 32, 0, NULL, NULL, NULL},
    {"ct-expert-bits", "compressed-tensors", "qwen3_moe", "experts.0.", INTEGERS, 3, 32, 0, NULL,
     NULL, NULL},
    {"ct-expert-groups", "compressed-tensors", "qwen3_moe", "experts.0.", INTEGERS, 8, 0, 0, NULL,
     NULL, NULL},
    {"modelopt-experts", "modelopt", "qwen3_moe", "experts.0.", FP8_CHANNELS, 4, 32, 0, NULL, NULL,
     NULL},
    {"ct-zero-bits", "compressed-tensors", "llama", "q_proj", INTEGERS, 3, 32, 0, add_zeros, NULL,
     NULL},
    {"ct-zero-points", "compressed-tensors", "llama", "q_proj", INTEGERS, 4, 32, 0, add_zeros, NULL,
     NULL},
    {"w4a8-shape", "compressed-tensors", "llama", "q_proj", INTEGERS, 4, 32, 0, round_inputs, NULL,
     NULL},
    {"w4a8-integers", "compressed-tensors", "llama", "q_proj", INTEGERS, 4, 128, 0, round_inputs,
     NULL, NULL},
    {"kv-int8", "compressed-tensors", "llama", "kv_cache_scheme", INTEGERS, 4, 32, 0, NULL, NULL,
     with_int8_cache},
    {"gptq-kind", "gptq_v2", "llama", "q_proj", INTEGERS, 4, 32, 0, add_zeros, NULL, NULL},
    {"gptq-shape", "gptq", "llama", "gate_proj", INTEGERS, 4, 32, 0, NULL, NULL, odd_width},
    {"gptq-group", "gptq", "llama", "q_proj", INTEGERS, 4, 32, 0, NULL, odd_group, NULL},
    {"awq-scales", "awq", "llama", "q_proj", INTEGERS, 4, 32, 0, NULL, scales_in_bf16, NULL},
    {"ignore-substring", "modelopt", "llama", "layers.0.self_attn.o_proj", NVFP4, 4, 32, 0,
     ignore_part, NULL, NULL},
    {"ignore-missing", "compressed-tensors", "llama", "layers.0.self_attn.o_proj", INTEGERS, 4, 32,
     0, drop_o, forget_o, NULL},
    {"ignore-quantized", "compressed-tensors", "llama", "layers.1.self_attn.o_proj", INTEGERS, 4,
     32, 0, ignore_whole, NULL, NULL},
    {"fp8-ignore-key", "fp8", "llama", "config.json", FP8_TENSOR, 4, 32, 0, NULL, old_key, NULL},
    {"fp8-tensor-names", "fp8", "llama", "layers.0.self_attn.q_proj", FP8_TENSOR, 4, 32, 0, NULL,
     NULL, NULL},
    {"fp8-mistral3", "fp8", "llama", "layers.0.self_attn.q_proj", FP8_BLOCKS, 4, 32, 0, keep_wide,
     NULL, in_mistral3},
    {"gpt-oss-experts", "compressed-tensors", "gpt_oss", "experts.0.", INTEGERS, 4, 32, 0, NULL,
     NULL, NULL},
    {"fp8-hf-names", "fp8_hf", "llama", "config.json", FP8_TENSOR, 4, 32, 0, NULL, NULL, NULL},
    {"modelopt-int4", "modelopt", "llama", "q_proj", INTEGERS, 4, 32, 0, NULL, NULL, NULL},
    {"modelopt-file", "modelopt", "llama", "hf_quant_config.json", NVFP4, 4, 32, 0, NULL,
     no_side_file, NULL},
    {"pt-format", "compressed-tensors", "llama", "model.safetensors", INTEGERS, 4, 32, 0, NULL,
     other_format, NULL},
    {"index-complete", "compressed-tensors", "llama", "model.norm.weight", INTEGERS, 4, 32, 200000,
     NULL, cut_index, NULL},
    {"tied-head", "compressed-tensors", "llama", "lm_head.weight", INTEGERS, 4, 32, 0, NULL, tie,
     NULL},
    {"head-missing", "compressed-tensors", "llama", "lm_head", INTEGERS, 4, 32, 0, NULL, no_head,
     NULL},
    {"head-fp8", "fp8", "llama", "lm_head", FP8_TENSOR, 4, 32, 0, fp8_head, NULL, NULL},
    {"head-newer", "compressed-tensors", "llama", "lm_head", INTEGERS, 4, 32, 0, quantize_head,
     NULL, NULL},
    {"head-blocks", "gptq", "llama", "lm_head", INTEGERS, 4, 32, 0, quantize_head, NULL, NULL},
    {"awq-gemv", "awq_gemv", "llama", "config.json", INTEGERS, 4, 32, 0, NULL, NULL, NULL},
    {"marlin-order", "marlin", "llama", "config.json", INTEGERS, 4, 128, 0, keep_wide, NULL, NULL},
    {"machete-only", "machete", "llama", "config.json", INTEGERS, 4, 64, 0, keep_wide, NULL, NULL},
    {"swage-only", "swage", "llama", "config.json", INTEGERS, 4, 32, 0, NULL, NULL, NULL},
    {"tp-rows", "compressed-tensors", "llama", "o_proj", INTEGERS, 4, 128, 0, NULL, NULL, NULL},
    {"tp-columns", "gptq_v2", "llama", "gate_proj", INTEGERS, 4, 32, 0, NULL, NULL, half_word},
    {"act-order", "gptq", "llama", "layers.0.self_attn.q_proj", INTEGERS, 4, 32, 0, scatter, NULL,
     NULL},
    {"marlin-shape", "compressed-tensors", "llama", "q_proj", INTEGERS, 4, 16, 0, NULL, NULL, NULL},
    {"machete-shape", "compressed-tensors", "llama", "q_proj", INTEGERS, 4, 32, 0, NULL, NULL,
     NULL},
    {"added-ids", "compressed-tensors", "llama", "<x>", INTEGERS, 4, 32, 0, NULL, move_ids, NULL},
};

static void make(broken *b, size_t r, bool is_broken)
{
    const sw_dialect *d = sw_dialect_find(rows[r].dialect);
    sw_err err = {0};

    memset(b, 0, sizeof *b);
    scratch_open(&b->s);
    ckpt_source(&b->s, rows[r].arch);
    ckpt_open(&b->c, &b->s, d, rows[r].bits, true, rows[r].group);
    if (rows[r].which != INTEGERS) use_floats(&b->c, rows[r].which, !is_broken);
    if (is_broken && rows[r].before) rows[r].before(b);
    must(ckpt_write(&b->c, &b->s, "out", d, false, rows[r].shard_bytes, false, &err), &err);
    if (is_broken && rows[r].after) rows[r].after(b);
    must(sw_checkpoint_open(&b->opened, scratch_path(&b->s, "out"), &err), &err);
    if (is_broken && rows[r].open) rows[r].open(b);
}

static void unmake(broken *b)
{
    sw_checkpoint_close(&b->opened);
    ckpt_close(&b->c);
    scratch_close(&b->s);
}

static const sw_load_finding *find(const sw_load_findings *f, const char *id)
{
    for (int64_t i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].rule->id, id)) return &f->at[i];
    return NULL;
}

static void each_rule_is_broken_by_its_checkpoint(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        broken b;
        sw_load_findings found;
        const sw_load_finding *f;
        sw_err err = {0};

        make(&b, r, true);
        must(sw_loaders_check(&found, &b.opened, &err), &err);
        f = find(&found, rows[r].id);
        if (!f) fail_msg("%s is not found", rows[r].id);
        if (!strstr(f->subject, rows[r].subject))
            fail_msg("%s: found at \"%s\", want \"%s\"", rows[r].id, f->subject, rows[r].subject);
        assert_true(f->n_subjects >= 1 && f->detail[0]);
        if (!strcmp(rows[r].id, "added-ids")) {
            assert_int_equal(f->n_subjects, 1);
            assert_non_null(strstr(f->detail, "states id 1, and it is read as 3"));
        }
        sw_loaders_free(&found);
        unmake(&b);
    }
}

static void each_rule_has_a_row_here(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_load_rules; i++) {
        const sw_load_rule *rule = &sw_load_rules[i];
        bool is_there = !strncmp(rule->id, "gguf-", 5); /* in test_loaders_gguf.c */
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            is_there = is_there || !strcmp(rows[r].id, rule->id);
        if (!is_there) fail_msg("%s has no checkpoint that breaks it", rule->id);
        assert_true(rule->engines[0] && rule->consequence[0] && rule->remedy[0]);
        assert_non_null(sw_load_effect_name(rule->effect));
    }
}

/* True of every checkpoint of its kind, and no fault of one. */
static bool is_by_nature(const sw_load_rule *rule)
{
    return !strcmp(rule->id, "fp8-tensor-names") || !strcmp(rule->id, "fp8-hf-names") ||
           !strcmp(rule->id, "modelopt-int4") || !strcmp(rule->id, "ct-bits");
}

/* The same checkpoints before they were broken, where the breaking is more than a shape. */
static void sound_checkpoints_stop_no_engine(void **state)
{
    int n_sound = 0;

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        bool is_act = rows[r].before || rows[r].after || rows[r].open;
        broken b;
        sw_load_findings found;
        sw_err err = {0};

        if (!is_act && strcmp(rows[r].id, "fused-scale") != 0) continue;
        if (rows[r].before == keep_wide) continue; /* whole, it holds linears that do not fit */
        make(&b, r, false);
        must(sw_loaders_check(&found, &b.opened, &err), &err);
        for (int64_t i = 0; i < found.n; i++)
            if (found.at[i].rule->effect != SW_LOAD_LIMITED && !is_by_nature(found.at[i].rule))
                fail_msg("%s, sound: %s at %s: %s", rows[r].id, found.at[i].rule->id,
                         found.at[i].subject, found.at[i].detail);
        n_sound++;
        sw_loaders_free(&found);
        unmake(&b);
    }
    assert_true(n_sound >= 16);
}

/* A dense model breaks nothing. */
static void dense_models_are_no_matter(void **state)
{
    sw_load_findings found;
    sw_checkpoint dense;
    sw_err err = {0};

    (void)state;
    must(sw_checkpoint_open(&dense, "tests/golden/arch/gemma2", &err), &err);
    must(sw_loaders_check(&found, &dense, &err), &err);
    for (int64_t i = 0; i < found.n; i++)
        fail_msg("%s at %s: %s", found.at[i].rule->id, found.at[i].subject, found.at[i].detail);
    sw_loaders_free(&found);
    sw_checkpoint_close(&dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_is_broken_by_its_checkpoint),
        cmocka_unit_test(each_rule_has_a_row_here),
        cmocka_unit_test(sound_checkpoints_stop_no_engine),
        cmocka_unit_test(dense_models_are_no_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
