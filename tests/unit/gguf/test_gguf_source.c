/* test_gguf_source.c - a GGUF of any type of blocks as a source: judged, quantized, decoded and
 * written again; what dtypes, sizes and side files come out of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/gguf/gguf_generation.h"
#include "formats/gguf/gguf_model.h"
#include "formats/io/file_content.h"
#include "formats/num/blocks.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/cases/verify_case.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/gguf_toy.h"
#include "tools/convert/convert_gguf.h"
#include "tools/convert/convert_job.h"
#include "tools/inspect/inspection.h"

static const sw_progress silent;

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static sw_code to_gguf(sw_gguf_report *report, const char *source, const char *out,
                       const char *type, const char *embed, sw_err *err)
{
    sw_gguf_job job = {.source = source, .out = out, .type = type, .embed_type = embed,
                       .may_requantize = type != NULL, .n_threads = 2};
    sw_code rc = sw_gguf_job_run(&job, err);

    *report = job.report;
    return rc;
}

static sw_code convert(const char *source, const char *out, const char *target, sw_err *err)
{
    const sw_dialect *dense = sw_dense_find(target);
    sw_convert_options o = {.source_dir = source, .out_dir = out, .n_threads = 2,
                            .target = dense ? dense : sw_dialect_find(target)};
    sw_convert_job *job = NULL;
    sw_code rc;

    must(SW_MEM_GET(&job, 1, "job", err), err);
    if ((rc = sw_convert_plan(job, &o, NULL, err)) == SW_OK) rc = sw_convert_run(job, err);
    sw_convert_free(job);
    sw_mem_put(job);
    return rc;
}

static sw_report judge(const char *dir, const char *original)
{
    sw_verify_options o = verify_options_for(dir);
    sw_report r = {0};

    o.original_dir = original;
    o.n_texts = 0;
    verify_run(&r, &o);
    return r;
}

static void expect_dtype(const char *dir, const char *tensor, sw_dtype want)
{
    const sw_st_tensor *t;
    sw_st *st = NULL;
    sw_err err = {0};

    must(sw_st_open(&st, dir, &err), &err);
    t = sw_st_find(st, tensor);
    assert_non_null(t);
    if (t->view.dtype != want)
        fail_msg("%s is %s, want %s", tensor, sw_dtype_name(t->view.dtype), sw_dtype_name(want));
    sw_st_close(st);
}

static bool file_has(const char *path, const char *text)
{
    sw_map map = {0};
    sw_err err = {0};
    bool has;

    must(sw_map_open(&map, path, &err), &err);
    has = memmem(map.data, map.size_bytes, text, strlen(text)) != NULL;
    sw_map_close(&map);
    return has;
}

/* --- every type ----------------------------------------------------------------------------- */

/* Both decoders see the same values in the whole file, and a checkpoint of it holds against it. */
static void check_type(const scratch *s, sw_block_type type)
{
    const gguf_toy toy = {.linear = type, .embed = type, .seed = (uint64_t)type};
    const char *file = scratch_path(s, "t.gguf"), *floats = scratch_path(s, "floats");
    const char *half = scratch_path(s, "half"), *codes = scratch_path(s, "codes");
    sw_err err = {0};
    sw_report r;

    gguf_toy_write(file, &toy);
    must(convert(file, floats, "f32", &err), &err);
    r = judge(file, floats);
    verify_expect_pass(&r);
    assert_int_equal(r.n_tensors, 8);
    for (int64_t i = 0; i < r.n_tensors; i++)
        if (!(r.tensors[i].weight_err <= 0))
            fail_msg("%s: the decoders differ by %g in %s", sw_block_sizes[type].name,
                     r.tensors[i].weight_err, r.tensors[i].name);
    sw_report_free(&r);
    must(convert(file, half, "bf16", &err), &err);
    expect_dtype(half, "model.layers.0.mlp.up_proj.weight", SW_DTYPE_BF16);
    expect_dtype(half, "model.embed_tokens.weight", SW_DTYPE_BF16);
    if (type % 3) return; /* what is floats by now is all the same to quantization */
    quantized_dir_make(codes, file, "compressed-tensors", 4, true, 32);
    expect_dtype(codes, "model.embed_tokens.weight", SW_DTYPE_BF16);
    expect_dtype(codes, "model.norm.weight", SW_DTYPE_BF16);
    r = judge(codes, file);
    verify_expect_pass(&r);
    assert_int_equal(r.coverage.n_quantized, 7);
    assert_int_equal(r.coverage.n_differing + r.coverage.n_missing, 0);
    sw_report_free(&r);
}

static void test_every_type(void **state)
{
    (void)state;
    for (int t = 0; t < SW_BLOCK_TYPE_COUNT; t++) {
        scratch s;

        if (sw_block_sizes[t].elems == 1) continue;
        scratch_open(&s);
        check_type(&s, (sw_block_type)t);
        scratch_close(&s);
    }
}

/* --- factors -------------------------------------------------------------------------------- */

/* NVFP4 keeps a factor of the whole weight in a tensor beside it. */
static void test_factor(void **state)
{
    gguf_toy with = {.linear = SW_BLOCK_NVFP4, .embed = SW_BLOCK_F16, .factor = 0.375f,
                     .extra = "blk.0.attn_q.input_scale"};
    gguf_toy without = {.linear = SW_BLOCK_NVFP4, .embed = SW_BLOCK_F16};
    const sw_st_tensor *a, *b;
    sw_checkpoint one, other;
    sw_st_bytes x = {0}, y = {0};
    sw_gguf_report report;
    sw_gguf *g = NULL;
    sw_report r;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    gguf_toy_write(scratch_path(&s, "a.gguf"), &with);
    gguf_toy_write(scratch_path(&s, "b.gguf"), &without);
    must(sw_checkpoint_open(&one, scratch_path(&s, "a.gguf"), &err), &err);
    must(sw_checkpoint_open(&other, scratch_path(&s, "b.gguf"), &err), &err);
    a = sw_st_find(one.st, "model.layers.0.self_attn.q_proj.weight");
    b = sw_st_find(other.st, "model.layers.0.self_attn.q_proj.weight");
    must(sw_st_fetch(&x, a, &err), &err);
    must(sw_st_fetch(&y, b, &err), &err);
    for (int64_t i = 0; i < 256 * 256; i++)
        assert_true(((const float *)x.data)[i] == 0.375f * ((const float *)y.data)[i]);
    sw_st_drop(&x);
    sw_st_drop(&y);
    sw_checkpoint_close(&one);
    sw_checkpoint_close(&other);
    must(convert(scratch_path(&s, "a.gguf"), scratch_path(&s, "floats"), "f32", &err), &err);
    r = judge(scratch_path(&s, "a.gguf"), scratch_path(&s, "floats"));
    verify_expect_pass(&r);
    for (int64_t i = 0; i < r.n_tensors; i++) assert_true(r.tensors[i].weight_err <= 0);
    sw_report_free(&r);
    r = judge(scratch_path(&s, "b.gguf"), scratch_path(&s, "floats"));
    verify_expect_fail(&r, "implausible", "q_proj");
    sw_report_free(&r);
    /* blocks of another type bring their own scales */
    must(to_gguf(&report, scratch_path(&s, "a.gguf"), scratch_path(&s, "c.gguf"), "Q8_0", NULL,
                 &err), &err);
    must(sw_gguf_open(&g, scratch_path(&s, "c.gguf"), &err), &err);
    assert_null(sw_gguf_find(g, "blk.0.attn_q.scale"));
    assert_null(sw_gguf_find(g, "blk.0.attn_q.input_scale"));
    sw_gguf_close(g);
    r = judge(scratch_path(&s, "c.gguf"), scratch_path(&s, "floats"));
    verify_expect_pass(&r);
    sw_report_free(&r);
    scratch_close(&s);
}

static void test_bad_factor(void **state)
{
    static const struct {
        gguf_toy toy;
        sw_code code;
        const char *says;
    } rows[] = {
        {{.linear = SW_BLOCK_Q8_0, .embed = SW_BLOCK_Q8_0, .factor = 2.0f}, SW_E_UNSUPPORTED,
         "only those of NVFP4"},
        {{.linear = SW_BLOCK_NVFP4, .embed = SW_BLOCK_F16, .factor = INFINITY}, SW_E_FORMAT,
         "attn_q.scale"},
        {{.linear = SW_BLOCK_NVFP4, .embed = SW_BLOCK_F16, .extra = "blk.0.attn_q.scales"},
         SW_E_UNSUPPORTED, "attn_q.scales"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_checkpoint ckpt = {0};
        sw_err err = {0};
        scratch s;

        scratch_open(&s);
        gguf_toy_write(scratch_path(&s, "t.gguf"), &rows[i].toy);
        assert_int_equal(sw_checkpoint_open(&ckpt, scratch_path(&s, "t.gguf"), &err),
                         rows[i].code);
        if (!strstr(err.text, rows[i].says) || !strstr(err.text, "t.gguf"))
            fail_msg("row %zu: %s", i, err.text);
        scratch_close(&s);
    }
}

/* --- dtypes --------------------------------------------------------------------------------- */

static void test_dtypes(void **state)
{
    static const struct {
        gguf_toy toy;
        sw_dtype model, embed, norm;
    } rows[] = {
        /* the norms of a BF16, an F16 and an F32 model */
        {{.linear = SW_BLOCK_Q4_K, .embed = SW_BLOCK_Q6_K}, SW_DTYPE_BF16, SW_DTYPE_BF16,
         SW_DTYPE_BF16},
        {{.linear = SW_BLOCK_Q4_K, .embed = SW_BLOCK_Q6_K, .norm_step = 0.0009765625f},
         SW_DTYPE_F16, SW_DTYPE_F16, SW_DTYPE_F16},
        {{.linear = SW_BLOCK_Q4_K, .embed = SW_BLOCK_Q6_K, .norm_step = 1e-5f}, SW_DTYPE_BF16,
         SW_DTYPE_BF16, SW_DTYPE_F32},
        /* an embedding in floats says nothing about the model, however large it is */
        {{.linear = SW_BLOCK_Q4_K, .embed = SW_BLOCK_F32, .n_rows = 2048}, SW_DTYPE_BF16,
         SW_DTYPE_BF16, SW_DTYPE_BF16},
        {{.linear = SW_BLOCK_IQ2_XXS, .embed = SW_BLOCK_F16, .n_rows = 2048}, SW_DTYPE_BF16,
         SW_DTYPE_F16, SW_DTYPE_BF16},
        /* linears in floats do */
        {{.linear = SW_BLOCK_F16, .embed = SW_BLOCK_Q8_0}, SW_DTYPE_F16, SW_DTYPE_F16,
         SW_DTYPE_F16},
        {{.linear = SW_BLOCK_BF16, .embed = SW_BLOCK_BF16, .norm_step = 0.0009765625f},
         SW_DTYPE_BF16, SW_DTYPE_BF16, SW_DTYPE_F32},
        {{.linear = SW_BLOCK_F32, .embed = SW_BLOCK_F32}, SW_DTYPE_F32, SW_DTYPE_F32,
         SW_DTYPE_F32},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *file, *codes;
        sw_checkpoint ckpt;
        sw_report r;
        sw_err err = {0};
        scratch s;

        scratch_open(&s);
        file = scratch_path(&s, "t.gguf");
        codes = scratch_path(&s, "codes");
        gguf_toy_write(file, &rows[i].toy);
        must(sw_checkpoint_open(&ckpt, file, &err), &err);
        if (ckpt.model.dtype != rows[i].model)
            fail_msg("row %zu: a model in %s", i, sw_dtype_name(ckpt.model.dtype));
        sw_checkpoint_close(&ckpt);
        quantized_dir_make(codes, file, "gptq_v2", 4, true, 32);
        expect_dtype(codes, "model.embed_tokens.weight", rows[i].embed);
        expect_dtype(codes, "model.layers.0.input_layernorm.weight", rows[i].norm);
        /* a cast is said, and only that */
        assert_int_equal(file_has(scratch_path(&s, "codes/manifest.json"), "\"cast\": []"),
                         rows[i].toy.embed == SW_BLOCK_F16 || rows[i].embed == SW_DTYPE_F32 ||
                             rows[i].toy.embed == SW_BLOCK_BF16);
        r = judge(codes, file);
        verify_expect_pass(&r);
        sw_report_free(&r);
        scratch_close(&s);
    }
}

/* --- written again -------------------------------------------------------------------------- */

static void more_keys(sw_gguf_writer *w, sw_err *err)
{
    must(sw_gguf_put_text(w, "general.license", "apache-2.0", err), err);
    must(sw_gguf_put_int(w, "general.file_type", SW_GGUF_U32, 15, err), err);
    must(sw_gguf_put_int(w, "general.alignment", SW_GGUF_U32, 32, err), err);
    must(sw_gguf_put_int(w, "split.count", SW_GGUF_U16, 1, err), err);
    must(sw_gguf_put_real(w, "general.sampling.temp", 0.7, err), err);
    must(sw_gguf_put_int(w, "general.sampling.top_k", SW_GGUF_I32, 20, err), err);
    must(sw_gguf_put_real(w, "general.sampling.top_p", 0.95, err), err);
    must(sw_gguf_put_int(w, "tokenizer.ggml.eot_token_id", SW_GGUF_U32, 258, err), err);
    must(sw_gguf_put_int(w, "tokenizer.ggml.padding_token_id", SW_GGUF_U32, 400, err), err);
    must(sw_gguf_put_array(w, "general.tags", SW_GGUF_TEXT, 2, err), err);
    must(sw_gguf_put_elem_text(w, "one", 3, err), err);
    must(sw_gguf_put_elem_text(w, "two", 3, err), err);
}

static void same_key(const sw_gguf_value *a, const sw_gguf_value *b)
{
    if (!b) fail_msg("key %s is gone", a->key);
    if (a->kind != b->kind || a->n_bytes != b->n_bytes || memcmp(a->data, b->data, a->n_bytes) ||
        (a->kind == SW_GGUF_ARRAY && (a->elem_kind != b->elem_kind || a->n != b->n)))
        fail_msg("key %s differs", a->key);
}

static void test_written_again(void **state)
{
    const gguf_toy toy = {.linear = SW_BLOCK_IQ3_S, .embed = SW_BLOCK_Q5_K, .keys = more_keys};
    sw_gguf *a = NULL, *b = NULL;
    sw_gguf_report report;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    gguf_toy_write(scratch_path(&s, "a.gguf"), &toy);
    must(to_gguf(&report, scratch_path(&s, "a.gguf"), scratch_path(&s, "b.gguf"), NULL, NULL, &err),
         &err);
    assert_int_equal(report.n_exact, 11);
    assert_int_equal(report.n_rounded + report.n_requantized + report.n_fallback, 0);
    assert_int_equal(report.types[0], SW_BLOCK_IQ3_S);
    assert_int_equal(report.types[1], SW_BLOCK_Q5_K);
    must(sw_gguf_open(&a, scratch_path(&s, "a.gguf"), &err), &err);
    must(sw_gguf_open(&b, scratch_path(&s, "b.gguf"), &err), &err);
    for (int64_t i = 0; i < sw_gguf_count(a); i++) {
        const sw_gguf_tensor *x = sw_gguf_at(a, i), *y = sw_gguf_at(b, i);

        assert_string_equal(x->name, y->name);
        assert_int_equal(x->type, y->type);
        assert_int_equal(x->place, y->place);
        assert_int_equal(x->size_bytes, y->size_bytes);
        assert_memory_equal(x->data, y->data, x->size_bytes);
    }
    for (int64_t i = 0; i < sw_gguf_n_keys(a); i++) {
        const sw_gguf_value *v = sw_gguf_key_at(a, i);

        if (strcmp(v->key, "general.alignment") != 0 && strcmp(v->key, "split.count") != 0)
            same_key(v, sw_gguf_key(b, v->key));
    }
    assert_int_equal(sw_gguf_n_keys(b), sw_gguf_n_keys(a) - 2);
    sw_gguf_close(b);
    /* only what was asked for changes */
    must(to_gguf(&report, scratch_path(&s, "a.gguf"), scratch_path(&s, "c.gguf"), NULL, "F16",
                 &err), &err);
    assert_int_equal(report.n_exact, 10);
    assert_int_equal(report.n_rounded, 1);
    must(sw_gguf_open(&b, scratch_path(&s, "c.gguf"), &err), &err);
    assert_int_equal(sw_gguf_find(b, "token_embd.weight")->type, SW_BLOCK_F16);
    assert_int_equal(sw_gguf_find(b, "blk.0.attn_k.weight")->type, SW_BLOCK_IQ3_S);
    sw_gguf_close(b);
    sw_gguf_close(a);
    scratch_close(&s);
}

/* --- generation_config.json ------------------------------------------------------------------ */

static void greedy_keys(sw_gguf_writer *w, sw_err *err)
{
    must(sw_gguf_put_real(w, "general.sampling.temp", 0.0, err), err);
    must(sw_gguf_put_text(w, "general.sampling.top_k", "many", err), err);
    must(sw_gguf_put_real(w, "general.sampling.min_p", (double)NAN, err), err);
    must(sw_gguf_put_int(w, "tokenizer.ggml.eot_token_id", SW_GGUF_U32, 257, err), err);
}

static void test_generation(void **state)
{
    static const struct {
        void (*keys)(sw_gguf_writer *w, sw_err *err);
        const char *want;
    } rows[] = {
        {NULL, "{\"bos_token_id\":256,\"eos_token_id\":257}"},
        {more_keys, "{\"bos_token_id\":256,\"eos_token_id\":[257,258],\"temperature\":0.7,"
                    "\"top_k\":20,\"top_p\":0.95,\"do_sample\":true}"},
        {greedy_keys, "{\"bos_token_id\":256,\"eos_token_id\":257,\"do_sample\":false}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const gguf_toy toy = {.linear = SW_BLOCK_Q4_0, .embed = SW_BLOCK_Q8_0,
                              .keys = rows[i].keys};
        cJSON *json = NULL;
        char *text;
        sw_err err = {0};
        scratch s;

        scratch_open(&s);
        gguf_toy_write(scratch_path(&s, "t.gguf"), &toy);
        must(convert(scratch_path(&s, "t.gguf"), scratch_path(&s, "out"),
                     i ? "bf16" : "compressed-tensors", &err), &err);
        must(sw_json_read(&json, scratch_path(&s, "out/generation_config.json"),
                          &sw_json_caps_config, &err), &err);
        text = cJSON_PrintUnformatted(json);
        assert_non_null(text);
        assert_string_equal(text, rows[i].want);
        cJSON_free(text);
        cJSON_Delete(json);
        assert_true(file_has(scratch_path(&s, "out/manifest.json"), "generation_config.json"));
        scratch_close(&s);
    }
}

/* --- sizes ---------------------------------------------------------------------------------- */

/* What a file takes is what it has, not what its blocks are decoded to. */
static void test_sizes(void **state)
{
    const gguf_toy toy = {.linear = SW_BLOCK_Q4_1, .embed = SW_BLOCK_Q6_K};
    const int64_t n_linear = (5 * 256 + 2 * 128) * 256;
    const int64_t n_embed = GGUF_TOY_VOCAB * 256;
    const uint64_t embed_bytes = (uint64_t)n_embed / 256 * 210;
    uint64_t data_bytes = 0;
    sw_inspection in;
    sw_report r;
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    gguf_toy_write(scratch_path(&s, "t.gguf"), &toy);
    must(sw_inspection_open(&in, scratch_path(&s, "t.gguf"), false, &silent, &err), &err);
    assert_int_equal(in.by_block[SW_BLOCK_Q4_1].n_tensors, 7);
    assert_int_equal(in.by_block[SW_BLOCK_Q4_1].n_elems, n_linear);
    assert_int_equal(in.by_block[SW_BLOCK_Q4_1].n_bytes, n_linear / 32 * 20);
    assert_int_equal(in.by_block[SW_BLOCK_Q6_K].n_bytes, embed_bytes);
    assert_int_equal(in.by_block[SW_BLOCK_F32].n_bytes, 3 * 256 * 4);
    data_bytes = in.total.n_bytes;
    assert_int_equal(data_bytes, (uint64_t)n_linear / 32 * 20 + embed_bytes + 3 * 256 * 4);
    assert_int_equal(in.n_groups, 1);
    assert_string_equal(in.groups[0].blocks, "Q4_1");
    assert_int_equal(in.groups[0].n_bytes, n_linear / 32 * 20);
    if (in.n_problems) fail_msg("%s", in.problems[0].text);
    for (int d = 0; d < SW_DTYPE_COUNT; d++) assert_int_equal(in.by_dtype[d].n_tensors, 0);
    sw_inspection_close(&in);
    quantized_dir_make(scratch_path(&s, "codes"), scratch_path(&s, "t.gguf"), "gptq_v2", 8, true,
                       32);
    r = judge(scratch_path(&s, "codes"), scratch_path(&s, "t.gguf"));
    verify_expect_pass(&r);
    assert_int_equal(r.coverage.original_bytes, data_bytes);
    sw_report_free(&r);
    scratch_close(&s);
}

/* --- rounded a second time ------------------------------------------------------------------- */

/* Converts with leave to round; the cost and the scheme of the worst linear. */
static sw_convert_cost rounded_again(sw_qspec *to, const scratch *s, const char *target,
                                     const char *scheme)
{
    sw_convert_options o = {.source_dir = scratch_path(s, "t.gguf"),
                            .out_dir = scratch_path(s, "out"), .n_threads = 2,
                            .target = sw_dialect_find(target), .may_requantize = true,
                            .may_replace = true, .scheme = scheme ? sw_scheme_find(scheme) : NULL};
    sw_convert_job *job = NULL;
    sw_convert_cost cost;
    cJSON *json = cJSON_CreateObject();
    sw_err err = {0};

    must(SW_MEM_GET(&job, 1, "job", &err), &err);
    must(sw_convert_plan(job, &o, NULL, &err), &err);
    must(sw_convert_run(job, &err), &err);
    cost = sw_convert_cost_of(job);
    if (cost.n) *to = cost.at->to;
    assert_true(sw_convert_cost_json(json, job));
    assert_int_equal(sw_json_member(json, "requantized_error") != NULL, cost.n > 0);
    cJSON_Delete(json);
    sw_convert_free(job);
    sw_mem_put(job);
    return cost;
}

/* Zero points take up most of what a minimum says, and eight bits nearly all of it. */
static void test_cost(void **state)
{
    const gguf_toy toy = {.linear = SW_BLOCK_Q4_1, .embed = SW_BLOCK_Q6_K};
    const gguf_toy exact = {.linear = SW_BLOCK_Q4_0, .embed = SW_BLOCK_Q6_K};
    sw_convert_cost four, eight;
    sw_qspec to;
    scratch s;

    (void)state;
    scratch_open(&s);
    gguf_toy_write(scratch_path(&s, "t.gguf"), &toy);
    four = rounded_again(&to, &s, "compressed-tensors", NULL);
    assert_int_equal(four.n, 7);
    assert_string_equal(to.num->name, "int4");
    assert_false(to.is_symmetric);
    assert_int_equal(to.group_elems, 32);
    assert_true(four.mean > 0 && four.mean <= four.worst && four.worst < 0.12);
    assert_string_equal(four.wider, "W8A16");
    eight = rounded_again(&to, &s, "compressed-tensors", four.wider);
    assert_string_equal(to.num->name, "int8");
    assert_true(eight.worst > 0 && eight.worst < four.mean / 8);
    assert_null(eight.wider);
    gguf_toy_write(scratch_path(&s, "t.gguf"), &exact);
    assert_int_equal(rounded_again(&to, &s, "compressed-tensors", NULL).n, 0);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),    cmocka_unit_test(test_factor),
        cmocka_unit_test(test_bad_factor),    cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_written_again), cmocka_unit_test(test_generation),
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_cost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
