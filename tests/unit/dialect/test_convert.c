/* test_convert.c - whole checkpoints from dialect to dialect: what is exact comes back byte for
 * byte, what is not is refused by name or rounded again and said so. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tools/convert/convert_job.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static const sw_dialect *target_of(const char *name)
{
    return sw_dialect_find(name) ? sw_dialect_find(name) : sw_dense_find(name);
}

typedef struct outcome {
    int64_t n_of[SW_FATE_COUNT];
    double worst;
} outcome;

static sw_code convert(outcome *out, const scratch *s, const char *from, const char *to,
                       const char *target, bool may_requantize, sw_err *err)
{
    char source[SW_PATH_BYTES];
    sw_convert_options o = {.source_dir = source, .out_dir = scratch_path(s, to),
                            .target = target_of(target), .may_requantize = may_requantize,
                            .n_threads = 2};
    sw_convert_job *job = NULL;
    sw_code rc;

    (void)snprintf(source, sizeof source, "%s", scratch_path(s, from));
    must(SW_MEM_GET(&job, 1, "job", err), err);
    if ((rc = sw_convert_plan(job, &o, NULL, err)) == SW_OK) rc = sw_convert_run(job, err);
    if (out) memcpy(out->n_of, job->n_of, sizeof out->n_of);
    for (int64_t i = 0; out && i < job->n_linears; i++)
        out->worst = fmax(out->worst, job->linears[i].error);
    sw_convert_free(job);
    sw_mem_put(job);
    return rc;
}

/* s/"a": a checkpoint of made-up weights of the architecture, in `dialect`. */
static void make(ckpt_case *c, const scratch *s, const char *arch, const char *dialect, int bits,
                 bool is_symmetric, int64_t group, bool is_scattered)
{
    sw_err err = {0};

    ckpt_source(s, arch);
    ckpt_open(c, s, sw_dialect_find(dialect), bits, is_symmetric, group);
    ckpt_round(c);
    c->config.desc_act = c->config.spec.is_scattered = is_scattered;
    for (int64_t i = 0; i < c->n && is_scattered; i++) {
        must(SW_MEM_GET(&c->q[i].g_idx, c->q[i].k_in, "g_idx", &err), &err);
        c->q[i].spec.is_scattered = true;
        for (int64_t k = 0; k < c->q[i].k_in; k++)
            c->q[i].g_idx[k] = (int32_t)(k * 7 % c->q[i].n_groups);
    }
    must(ckpt_write(c, s, "a", sw_dialect_find(dialect), false, 0, false, &err), &err);
}

static void same_tensors(const scratch *s, const char *a, const char *b)
{
    size_t n_a = 0, n_b = 0;
    char *x = ckpt_text(s, a, "model.safetensors", &n_a);
    char *y = ckpt_text(s, b, "model.safetensors", &n_b);

    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    sw_mem_put(x);
    sw_mem_put(y);
}

/* Wherever they lie in their files. */
static void same_by_name(const scratch *s, const char *a, const char *b)
{
    sw_st *x = NULL, *y = NULL;
    sw_err err = {0};

    must(sw_st_open(&x, scratch_path(s, a), &err), &err);
    must(sw_st_open(&y, scratch_path(s, b), &err), &err);
    assert_int_equal(sw_st_count(x), sw_st_count(y));
    for (int64_t i = 0; i < sw_st_count(x); i++) {
        const sw_st_tensor *t = sw_st_at(x, i), *u = sw_st_at(y, i);
        assert_string_equal(t->name, u->name);
        assert_int_equal(t->view.dtype, u->view.dtype);
        assert_int_equal(t->view.size_bytes, u->view.size_bytes);
        assert_memory_equal(t->view.data, u->view.data, t->view.size_bytes);
    }
    sw_st_close(x);
    sw_st_close(y);
}

static void there_and_back_is_byte_for_byte(void **state)
{
    static const struct {
        const char *from, *to;
        int bits;
        bool is_symmetric;
        int64_t group;
        bool is_scattered;
    } rows[] = {
        {"gptq", "compressed-tensors", 4, true, 32, false},
        {"gptq", "gptq_v2", 4, false, 32, false},
        {"gptq_v2", "gptq", 8, false, 0, false}, /* no zero point is 0: looked at, then taken */
        {"gptq_v2", "compressed-tensors", 3, false, 32, false},
        {"compressed-tensors", "swage", 8, true, 0, false},
        {"swage", "gptq_v2", 2, false, 32, false},
        {"gptq", "compressed-tensors", 4, true, 32, true},
        {"compressed-tensors", "gptq_v2", 4, false, 32, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outcome there = {{0}, 0}, back = {{0}, 0};
        sw_err err = {0};
        scratch s;
        ckpt_case c;
        scratch_open(&s);
        make(&c, &s, "qwen2", rows[i].from, rows[i].bits, rows[i].is_symmetric, rows[i].group,
             rows[i].is_scattered);
        must(convert(&there, &s, "a", "b", rows[i].to, false, &err), &err);
        must(convert(&back, &s, "b", "c", rows[i].from, false, &err), &err);
        assert_int_equal(there.n_of[SW_FATE_EXACT], c.n);
        assert_int_equal(back.n_of[SW_FATE_EXACT], c.n);
        same_tensors(&s, "a", "c");
        ckpt_close(&c);
        scratch_close(&s);
    }
}

static void what_cannot_be_held_is_refused_by_name_and_leaves_nothing(void **state)
{
    static const struct {
        const char *from, *to;
        bool is_symmetric;
        int64_t group;
        bool is_scattered;
        const char *why;
    } rows[] = {
        {"gptq", "fp8", true, 32, false, "holds e4m3 weights, not int4"},
        {"gptq", "swage", true, 32, true, "act-order"},
        {"compressed-tensors", "gptq", true, 8, false, "no loader takes group size 8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_err err = {0};
        scratch s;
        ckpt_case c;
        scratch_open(&s);
        make(&c, &s, "llama", rows[i].from, 4, rows[i].is_symmetric, rows[i].group,
             rows[i].is_scattered);
        assert_int_equal(convert(NULL, &s, "a", "refused", rows[i].to, false, &err),
                         SW_E_UNSUPPORTED);
        if (!strstr(err.text, rows[i].why) || !strstr(err.text, "--allow-requantize") ||
            strncmp(err.text, "model.layers.0.", 15) != 0)
            fail_msg("row %zu: %s", i, err.text);
        assert_false(scratch_has(&s, "refused"));
        ckpt_close(&c);
        scratch_close(&s);
    }
}

static void rounding_again_is_said_and_near(void **state)
{
    outcome out = {{0}, 0};
    sw_err err = {0};
    scratch s;
    ckpt_case c;
    size_t n;
    char *manifest;

    (void)state;
    scratch_open(&s);
    make(&c, &s, "llama", "gptq", 8, true, 32, true);
    must(convert(&out, &s, "a", "b", "swage", true, &err), &err);
    assert_int_equal(out.n_of[SW_FATE_REQUANTIZED], c.n);
    assert_true(out.worst > 0 && out.worst < 0.02); /* groups of other columns, eight bits */
    manifest = ckpt_text(&s, "b", "manifest.json", &n);
    assert_non_null(strstr(manifest, "\"fate\": \"requantized\""));
    assert_non_null(strstr(manifest, "act-order"));
    sw_mem_put(manifest);
    ckpt_close(&c);
    scratch_close(&s);
}

/* Every weight of b is that of a, decoded and rounded once to the dtype. */
static void expect_decoded(const scratch *s, const ckpt_case *c, sw_dtype dtype)
{
    sw_checkpoint dense;
    sw_err err = {0};

    must(sw_checkpoint_open(&dense, scratch_path(s, "b"), &err), &err);
    assert_null(dense.dialect);
    assert_int_equal(dense.model.dtype, dtype);
    for (int64_t i = 0; i < c->n; i++) {
        const sw_qtensor *q = &c->q[i];
        bool is_turned = dense.model.arch->has_transposed_linears;
        char name[300];
        float *want = NULL, *have = NULL;
        snprintf(name, sizeof name, "%s.weight", c->paths[i]);
        const sw_st_tensor *t = sw_st_find(dense.st, name);
        assert_non_null(t);
        assert_int_equal(t->view.dtype, dtype);
        assert_int_equal(t->view.shape[is_turned], q->n_out);
        must(SW_MEM_GET(&want, q->n_out * q->k_in, "want", &err), &err);
        must(SW_MEM_GET(&have, q->n_out * q->k_in, "have", &err), &err);
        sw_qtensor_decode(want, q);
        must(sw_float_decode_n(have, t->view.data, dtype, q->n_out * q->k_in, &err), &err);
        for (int64_t n = 0; n < q->n_out; n++)
            for (int64_t k = 0; k < q->k_in; k++)
                assert_true(have[is_turned ? k * q->n_out + n : n * q->k_in + k] ==
                            sw_num_round_to(want[n * q->k_in + k], dtype));
        sw_mem_put(want);
        sw_mem_put(have);
    }
    sw_checkpoint_close(&dense);
}

static void plain_floats_are_the_values_of_the_codes(void **state)
{
    static const struct { const char *arch, *name; sw_dtype dtype; } rows[] = {
        {"llama", "f32", SW_DTYPE_F32}, {"qwen2", "bf16", SW_DTYPE_BF16},
        {"gpt2", "f16", SW_DTYPE_F16}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outcome out = {{0}, 0};
        sw_err err = {0};
        scratch s;
        ckpt_case c;
        size_t n;
        char *config;
        scratch_open(&s);
        make(&c, &s, rows[i].arch, "gptq_v2", 4, false, 32, false);
        must(convert(&out, &s, "a", "b", rows[i].name, false, &err), &err);
        assert_int_equal(out.n_of[SW_FATE_DECODED], c.n);
        expect_decoded(&s, &c, rows[i].dtype);
        config = ckpt_text(&s, "b", "config.json", &n);
        assert_null(strstr(config, "quantization_config"));
        assert_false(ckpt_has(&s, "b", "quantize_config.json"));
        sw_mem_put(config);
        ckpt_close(&c);
        scratch_close(&s);
    }
}

static bool make_large(void *ctx, const char *name, sw_cview *view)
{
    static uint8_t bytes[1 << 20];

    (void)ctx;
    if (strcmp(name, "model.norm.weight") != 0) return true;
    assert_in_range(view->size_bytes, 2, sizeof bytes);
    memcpy(bytes, view->data, view->size_bytes);
    bytes[0] = 0x80;
    bytes[1] = 0x47; /* 65536 in bf16 */
    view->data = bytes;
    return true;
}

static void a_dense_model_changes_its_dtype(void **state)
{
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    must(convert(NULL, &s, "source", "wide", "f32", false, &err), &err);
    must(convert(NULL, &s, "wide", "back", "bf16", false, &err), &err);
    same_by_name(&s, "source", "back");
    must(convert(NULL, &s, "source", "as it is", "bf16", false, &err), &err);
    same_tensors(&s, "as it is", "back"); /* the order depends on the names alone */
    assert_int_equal(convert(NULL, &s, "source", "no", "gptq", true, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "swage quantize"));
    ckpt_rewrite(&s, "source", make_large, NULL);
    memset(&err, 0, sizeof err);
    assert_int_equal(convert(NULL, &s, "source", "half", "f16", false, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "model.norm.weight"));
    assert_non_null(strstr(err.text, "65536 is beyond F16"));
    assert_false(scratch_has(&s, "half"));
    scratch_close(&s);
}

/* What `quantize` sees of a quantized source are the floats that `convert --to f32` writes. */
static void a_quantized_source_is_its_decoded_weights(void **state)
{
    static const char *const dialects[] = {"gptq", "compressed-tensors", "swage"};

    (void)state;
    for (int d = 0; d < 3; d++) {
        sw_checkpoint coded, plain;
        sw_linear_source source;
        sw_err err = {0};
        scratch s;
        ckpt_case c;
        scratch_open(&s);
        make(&c, &s, "qwen2", dialects[d], 8, true, 32, d < 2);
        must(convert(NULL, &s, "a", "b", "f32", false, &err), &err);
        must(sw_checkpoint_open(&coded, scratch_path(&s, "a"), &err), &err);
        must(sw_checkpoint_open(&plain, scratch_path(&s, "b"), &err), &err);
        source = sw_decoding_source(&coded);
        for (int64_t layer = 0; layer < coded.model.n_layers; layer++) {
            sw_block x, y;
            must(sw_block_load_from(&x, &coded.model, coded.st, &source, layer, &err), &err);
            must(sw_block_load(&y, &plain.model, plain.st, layer, &err), &err);
            for (int slot = SW_SLOT_Q; slot <= SW_SLOT_DOWN; slot++) {
                const sw_weight *a = &x.linear[slot], *b = &y.linear[slot];
                assert_int_equal(a->dense_dtype, SW_DTYPE_F32);
                assert_int_equal(b->dense_dtype, SW_DTYPE_F32);
                assert_memory_equal(a->dense, b->dense, (size_t)(4 * a->n_out * a->k_in));
            }
            sw_block_free(&x);
            sw_block_free(&y);
        }
        sw_checkpoint_close(&coded);
        sw_checkpoint_close(&plain);
        ckpt_close(&c);
        scratch_close(&s);
    }
}

/* Others store the scale of static inputs as their model's floats are. */
static bool halve_input_scales(void *ctx, const char *name, sw_cview *view)
{
    static const uint8_t two_to_minus_6[2] = {0x80, 0x3c}; /* BF16 */

    (void)ctx;
    if (!strstr(name, ".input_scale")) return true;
    view->dtype = SW_DTYPE_BF16;
    view->data = two_to_minus_6;
    view->size_bytes = sizeof two_to_minus_6;
    return true;
}

static void input_scales_are_read_in_half_floats(void **state)
{
    static const char *const dirs[] = {"a", "b"};
    sw_checkpoint ckpt;
    sw_err err = {0};
    scratch s;
    ckpt_case c;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, sw_dialect_find("compressed-tensors"), 8, true, 0);
    c.config.spec = *sw_gen_float_spec(0);
    assert_int_equal(c.config.spec.act.scope, SW_ACT_TENSOR);
    for (int64_t i = 0; i < c.n; i++) {
        sw_qtensor_free(&c.q[i]);
        sw_gen_float_qtensor(&c.q[i], 0, c.linears[i].n_out, c.linears[i].k_in, (uint64_t)i);
    }
    must(ckpt_write(&c, &s, "a", sw_dialect_find("compressed-tensors"), false, 0, false, &err),
         &err);
    ckpt_rewrite(&s, "a", halve_input_scales, NULL);
    must(convert(NULL, &s, "a", "b", "fp8", false, &err), &err);
    for (int d = 0; d < 2; d++) {
        must(sw_checkpoint_open(&ckpt, scratch_path(&s, dirs[d]), &err), &err);
        for (int64_t i = 0; i < c.n; i++) {
            sw_qtensor q = {0};
            must(sw_checkpoint_qtensor(&q, &ckpt, c.paths[i], c.linears[i].n_out,
                                       c.linears[i].k_in, &err), &err);
            assert_true(q.input_scale == 0x1p-6f);
            assert_memory_equal(q.codes, c.q[i].codes, (size_t)(q.n_out * q.k_in));
            sw_qtensor_free(&q);
        }
        sw_checkpoint_close(&ckpt);
    }
    ckpt_close(&c);
    scratch_close(&s);
}

/* The tiles beside are those that a conversion to tiles gives, and no later one copies them. */
static void a_sidecar_holds_the_same_tiles(void **state)
{
    sw_convert_options o = {.target = sw_dialect_find("gptq_v2"), .with_sidecar = true,
                            .n_threads = 2};
    char source[SW_PATH_BYTES], out[SW_PATH_BYTES];
    size_t n_a, n_b;
    sw_convert_job *job = NULL;
    sw_err err = {0};
    scratch s;
    ckpt_case c;
    sw_st *side = NULL, *tiles = NULL;

    (void)state;
    scratch_open(&s);
    make(&c, &s, "qwen2", "compressed-tensors", 4, false, 32, false);
    (void)snprintf(source, sizeof source, "%s", scratch_path(&s, "a"));
    (void)snprintf(out, sizeof out, "%s", scratch_path(&s, "b"));
    o.source_dir = source;
    o.out_dir = out;
    must(SW_MEM_GET(&job, 1, "job", &err), &err);
    must(sw_convert_plan(job, &o, NULL, &err), &err);
    must(sw_convert_run(job, &err), &err);
    sw_convert_free(job);
    must(convert(NULL, &s, "b", "t", "swage", false, &err), &err);
    assert_false(ckpt_has(&s, "t", "model.tiles"));
    char *bytes = ckpt_text(&s, "b", "model.tiles", &n_a);
    must(sw_st_open_bytes(&side, bytes, n_a, "tiles", &err), &err);
    must(sw_st_open(&tiles, scratch_path(&s, "t"), &err), &err);
    assert_in_range(sw_st_count(side), 3 * c.n, 8 * c.n);
    assert_string_equal(sw_st_metadata(side, "layout") ? sw_st_metadata(side, "layout") : "",
                        sw_st_metadata(tiles, "layout") ? sw_st_metadata(tiles, "layout") : "");
    for (int64_t i = 0; i < sw_st_count(side); i++) {
        const sw_st_tensor *a = sw_st_at(side, i), *b = sw_st_find(tiles, a->name);
        assert_non_null(b);
        assert_int_equal(a->view.size_bytes, b->view.size_bytes);
        assert_memory_equal(a->view.data, b->view.data, a->view.size_bytes);
    }
    char *manifest = ckpt_text(&s, "b", "manifest.json", &n_b);
    assert_non_null(strstr(manifest, "model.tiles"));
    sw_mem_put(manifest);
    sw_st_close(side);
    sw_st_close(tiles);
    sw_mem_put(bytes);
    sw_mem_put(job);
    o.target = sw_dialect_find("swage");
    must(SW_MEM_GET(&job, 1, "job", &err), &err);
    assert_int_equal(sw_convert_plan(job, &o, NULL, &err), SW_E_USAGE);
    sw_convert_free(job);
    sw_mem_put(job);
    ckpt_close(&c);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back_is_byte_for_byte),
        cmocka_unit_test(what_cannot_be_held_is_refused_by_name_and_leaves_nothing),
        cmocka_unit_test(rounding_again_is_said_and_near),
        cmocka_unit_test(plain_floats_are_the_values_of_the_codes),
        cmocka_unit_test(a_dense_model_changes_its_dtype),
        cmocka_unit_test(a_quantized_source_is_its_decoded_weights),
        cmocka_unit_test(input_scales_are_read_in_half_floats),
        cmocka_unit_test(a_sidecar_holds_the_same_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
