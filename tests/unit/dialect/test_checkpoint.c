/* test_checkpoint.c - whole directories: what is written comes back, nothing is lost, nothing of
 * the old model leaks, the same inputs give the same bytes, and OUT never touches the source. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/base/mem.h"
#include "tests/support/cases/ckpt_case.h"
#include "tests/support/toys/qtensor_gen.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static void expect_text(const char *have, const char *part)
{
    if (!strstr(have, part)) fail_msg("\"%s\" does not say \"%s\"", have, part);
}

static const sw_dialect *row(const char *name) { return sw_dialect_find(name); }

/* Codes, scales, zeros of every linear, and the bytes of every other tensor. */
static void check_contents(const ckpt_case *c, const sw_checkpoint *back)
{
    int64_t n_copied = 0;
    sw_err err = {0};

    for (int64_t i = 0; i < c->n; i++) {
        sw_qtensor q;
        char name[300];
        assert_true(sw_checkpoint_is_quantized(back, c->paths[i]));
        must(sw_checkpoint_qtensor(&q, back, c->paths[i], c->linears[i].n_out, c->linears[i].k_in,
                                   &err), &err);
        sw_gen_assert_same(&q, &c->q[i]);
        sw_qtensor_free(&q);
        snprintf(name, sizeof name, "%s.weight", c->paths[i]);
        assert_null(sw_st_find(back->st, name));
    }
    for (int64_t i = 0; i < sw_st_count(c->source.st); i++) {
        const sw_st_tensor *was = sw_st_at(c->source.st, i);
        const sw_st_tensor *is = sw_st_find(back->st, was->name);
        if (!is) continue;
        n_copied++;
        assert_int_equal(is->view.dtype, was->view.dtype);
        assert_int_equal(is->view.size_bytes, was->view.size_bytes);
        assert_memory_equal(is->view.data, was->view.data, was->view.size_bytes);
    }
    assert_int_equal(n_copied, sw_st_count(c->source.st) - c->n);
}

static void write_and_read(const char *arch, const sw_dialect *dialect, int bits, bool sym,
                           int64_t group)
{
    const char *out;
    scratch s;
    ckpt_case c;
    sw_checkpoint back;
    sw_err err = {0};

    scratch_open(&s);
    ckpt_source(&s, arch);
    ckpt_open(&c, &s, dialect, bits, sym, group);
    must(ckpt_write(&c, &s, "out", dialect, false, 0, false, &err), &err);
    out = scratch_path(&s, "out");
    must(sw_checkpoint_open(&back, out, &err), &err);
    assert_ptr_equal(back.dialect, dialect);
    check_contents(&c, &back);
    assert_false(scratch_has(&s, "partial"));
    sw_checkpoint_close(&back);
    ckpt_close(&c);
    scratch_close(&s);
}

static void every_dialect_round_trips_a_directory(void **state)
{
    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        if (!sw_gen_holds_integers(*d)) continue; /* tests of its own */
        write_and_read("qwen2", *d, 4, true, 128);
        write_and_read("qwen3_moe", *d, 3, false, 32);
        write_and_read("llama", *d, 8, true, 0);
    }
}

static void the_directory_is_complete(void **state)
{
    scratch s;
    ckpt_case c;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "qwen2");
    ckpt_open(&c, &s, row("gptq"), 4, true, 32);
    must(ckpt_write(&c, &s, "out", row("gptq"), false, 0, false, &err), &err);
    static const char *const same[] = {"tokenizer.json", "generation_config.json", "LICENSE"};
    for (int i = 0; i < 3; i++) {
        char *was = ckpt_text(&s, "source", same[i], NULL);
        char *is = ckpt_text(&s, "out", same[i], NULL);
        assert_string_equal(is, was);
        sw_mem_put(was);
        sw_mem_put(is);
    }
    /* config, manifest, weights, and the scheme once more, none of it stale */
    assert_int_equal(scratch_count(&s, "out"), 3 + 4);
    char *side = ckpt_text(&s, "out", "quantize_config.json", NULL);
    expect_text(side, "\"checkpoint_format\": \"gptq\"");
    assert_null(strstr(side, "stale"));
    sw_mem_put(side);
    assert_false(ckpt_has(&s, "out", "pytorch_model.bin"));
    ckpt_close(&c);
    scratch_close(&s);
}

static void config_keeps_every_other_byte(void **state)
{
    scratch s;
    ckpt_case c;
    sw_err err = {0};
    size_t n_was;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "qwen2");
    ckpt_open(&c, &s, row("swage"), 4, true, 32);
    must(ckpt_write(&c, &s, "out", row("swage"), false, 0, false, &err), &err);
    char *was = ckpt_text(&s, "source", "config.json", &n_was);
    char *is = ckpt_text(&s, "out", "config.json", NULL);
    while (n_was && strchr("}\n ", was[n_was - 1])) n_was--;
    assert_memory_equal(is, was, n_was);
    assert_memory_equal(is + n_was, ",\n  \"quantization_config\": {\n    \"quant_method\"", 47);
    expect_text(is, "\"rope_theta\": 10000.0"); /* not 10000 */
    sw_mem_put(was);
    sw_mem_put(is);
    ckpt_close(&c);
    scratch_close(&s);
}

static void check_digest(const scratch *s, const char *dir, const cJSON *entry)
{
    const char *name = cJSON_GetObjectItem(entry, "name")->valuestring;
    char digest[SW_SHA256_HEX_BYTES];
    size_t n_bytes;
    sw_err err = {0};
    char *bytes = ckpt_text(s, dir, name, &n_bytes);

    must(sw_sha256_hex(digest, bytes, n_bytes, &err), &err);
    assert_string_equal(digest, cJSON_GetObjectItem(entry, "sha256")->valuestring);
    assert_int_equal(cJSON_GetObjectItem(entry, "bytes")->valuedouble, n_bytes);
    sw_mem_put(bytes);
}

static void the_manifest_names_inputs_outputs_and_what_stayed(void **state)
{
    scratch s;
    ckpt_case c;
    sw_err err = {0};
    const cJSON *item;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, row("compressed-tensors"), 4, false, 64);
    must(ckpt_write(&c, &s, "out", row("compressed-tensors"), false, 0, false, &err), &err);
    char *text = ckpt_text(&s, "out", "manifest.json", NULL);
    cJSON *manifest = cJSON_Parse(text);
    assert_non_null(manifest);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(manifest, "inputs")), 6);
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(manifest, "inputs"))
        check_digest(&s, "source", item);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(manifest, "outputs")), 5);
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(manifest, "outputs"))
        check_digest(&s, "out", item);
    const cJSON *left = cJSON_GetObjectItem(manifest, "left_behind");
    assert_int_equal(cJSON_GetArraySize(left), 2);
    assert_string_equal(cJSON_GetArrayItem(left, 0)->valuestring, "original");
    assert_string_equal(cJSON_GetArrayItem(left, 1)->valuestring, "pytorch_model.bin");
    assert_null(strstr(text, s.dir));
    cJSON_Delete(manifest);
    sw_mem_put(text);
    ckpt_close(&c);
    scratch_close(&s);
}

static void same_inputs_same_bytes(void **state)
{
    (void)state;
    for (const sw_dialect *const *d = sw_dialects; *d; d++) {
        if (!sw_gen_holds_integers(*d)) continue; /* tests of its own */
        scratch s;
        ckpt_case c;
        sw_err err = {0};
        scratch_open(&s);
        ckpt_source(&s, "llama");
        ckpt_open(&c, &s, *d, 4, false, 32);
        must(ckpt_write(&c, &s, "one", *d, false, 200000, false, &err), &err);
        must(ckpt_write(&c, &s, "another-name", *d, false, 200000, true, &err), &err);
        assert_true(ckpt_has(&s, "one", "model.safetensors.index.json"));
        ckpt_assert_same_dirs(&s, "one", "another-name");
        ckpt_close(&c);
        scratch_close(&s);
    }
}

static void what_is_left_alone_is_told_to_loaders(void **state)
{
    scratch s;
    ckpt_case c;
    sw_err err = {0};
    char router[256];

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "qwen3_moe");
    ckpt_open(&c, &s, row("compressed-tensors"), 4, true, 32);
    for (int64_t i = 0; i < c.n; i++) /* all but the last linear */
        if (i == c.n - 1) sw_qtensor_free(&c.q[i]);
    c.n--;
    must(ckpt_write(&c, &s, "out", row("compressed-tensors"), false, 0, false, &err), &err);
    char *text = ckpt_text(&s, "out", "config.json", NULL);
    char want[300];
    assert_true(sw_model_slot_path(router, &c.source.model, 0, SW_SLOT_ROUTER, -1));
    snprintf(want, sizeof want, "\"%s\"", router);
    expect_text(text, want);
    snprintf(want, sizeof want, "\"%s\"", c.paths[c.n]);
    expect_text(text, want);
    expect_text(text, "\"lm_head\"");
    assert_null(strstr(text, c.paths[0]));
    sw_mem_put(text);
    ckpt_close(&c);
    scratch_close(&s);
}

static void a_quantized_source_is_converted(void **state)
{
    const char *out;
    scratch s;
    ckpt_case c;
    sw_checkpoint middle, back;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "qwen2");
    ckpt_open(&c, &s, row("gptq_v2"), 4, false, 32);
    must(ckpt_write(&c, &s, "middle", row("gptq_v2"), false, 0, false, &err), &err);
    out = scratch_path(&s, "middle");
    must(sw_checkpoint_open(&middle, out, &err), &err);
    out = scratch_path(&s, "out");
    sw_ckpt_writer *w = NULL;
    /* half of it is refused: the rest would contradict the new configuration */
    assert_int_equal(sw_ckpt_writer_new(&w, &middle, out, false, row("swage"), &c.config, c.linears,
                                        c.n - 1, 0, &err), SW_E_USAGE);
    expect_text(err.text, "decode the model first: swage convert");
    expect_text(err.text, c.paths[c.n - 1]);
    err.code = SW_OK;
    must(sw_ckpt_writer_new(&w, &middle, out, false, row("swage"), &c.config, c.linears, c.n, 0,
                            &err), &err);
    for (int64_t i = 0; i < c.n; i++) must(sw_ckpt_writer_put(w, c.paths[i], &c.q[i], &err), &err);
    must(sw_ckpt_writer_commit(w, NULL, &err), &err);
    sw_ckpt_writer_free(w);
    must(sw_checkpoint_open(&back, out, &err), &err);
    assert_ptr_equal(back.dialect, row("swage"));
    check_contents(&c, &back);
    assert_false(ckpt_has(&s, "out", "quantize_config.json"));
    char *text = ckpt_text(&s, "out", "config.json", NULL);
    assert_null(strstr(text, "gptq"));
    sw_mem_put(text);
    sw_checkpoint_close(&back);
    sw_checkpoint_close(&middle);
    ckpt_close(&c);
    scratch_close(&s);
}

/* The last linear is not claimed: "<path>.weight" is there in the model's dtype, as it decodes. */
static void the_rest_of_a_quantized_source_becomes_floats(void **state)
{
    scratch s;
    ckpt_case c;
    sw_checkpoint middle, back;
    sw_err err = {0};
    sw_ckpt_writer *w = NULL;
    const sw_st_tensor *t;
    const char *first;
    char name[300];

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "qwen2");
    ckpt_open(&c, &s, row("gptq_v2"), 4, false, 32);
    must(ckpt_write(&c, &s, "middle", row("gptq_v2"), false, 0, false, &err), &err);
    must(sw_checkpoint_open(&middle, scratch_path(&s, "middle"), &err), &err);
    c.config.decodes_rest = true;
    const int64_t last = c.n - 1, n_elems = c.q[last].n_out * c.q[last].k_in;
    must(sw_ckpt_writer_new(&w, &middle, scratch_path(&s, "out"), false, row("swage"), &c.config,
                            c.linears, last, 0, &err), &err);
    assert_int_equal(sw_ckpt_writer_n_decoded(&first, w), 1);
    assert_string_equal(first, c.paths[last]);
    for (int64_t i = 0; i < last; i++) must(sw_ckpt_writer_put(w, c.paths[i], &c.q[i], &err), &err);
    must(sw_ckpt_writer_commit(w, NULL, &err), &err); /* which adds up all bytes */
    sw_ckpt_writer_free(w);
    must(sw_checkpoint_open(&back, scratch_path(&s, "out"), &err), &err);
    snprintf(name, sizeof name, "%s.weight", c.paths[last]);
    assert_non_null(t = sw_st_find(back.st, name));
    assert_int_equal(t->view.dtype, back.model.dtype);
    assert_int_equal(sw_view_elems(&t->view), n_elems);
    snprintf(name, sizeof name, "%s.qweight", c.paths[last]);
    assert_null(sw_st_find(back.st, name));
    float *want = NULL;
    uint16_t *stored = NULL;
    must(SW_MEM_GET(&want, n_elems, "want", &err), &err);
    must(SW_MEM_GET(&stored, n_elems, "stored", &err), &err);
    sw_qtensor_decode(want, &c.q[last]);
    must(sw_float_encode_n(stored, t->view.dtype, want, n_elems, &err), &err);
    assert_memory_equal(t->view.data, stored, t->view.size_bytes);
    char *text = ckpt_text(&s, "out", "config.json", NULL);
    expect_text(text, c.paths[last]); /* engines are told to leave it */
    sw_mem_put(text);
    sw_mem_put(want);
    sw_mem_put(stored);
    sw_checkpoint_close(&back);
    sw_checkpoint_close(&middle);
    ckpt_close(&c);
    scratch_close(&s);
}

static void expect_refused(ckpt_case *c, const scratch *s, const char *name, bool may_replace,
                           sw_code code, const char *part)
{
    sw_err err = {0};

    assert_int_equal(ckpt_write(c, s, name, row("gptq"), may_replace, 0, false, &err), code);
    expect_text(err.text, part);
    assert_false(scratch_has(s, "partial"));
}

static void out_never_touches_the_source(void **state)
{
    scratch s;
    ckpt_case c;
    sw_err err = {0};
    const char *link_path, *source;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, row("gptq"), 4, true, 32);
    link_path = scratch_path(&s, "alias");
    source = scratch_path(&s, "source");
    assert_int_equal(symlink(source, link_path), 0);
    expect_refused(&c, &s, "source", true, SW_E_USAGE, "may not be the model's directory");
    expect_refused(&c, &s, "source/", true, SW_E_USAGE, "may not be");
    expect_refused(&c, &s, "alias", true, SW_E_USAGE, "may not be");
    expect_refused(&c, &s, "source/new/deeper", false, SW_E_USAGE, "inside it");
    expect_refused(&c, &s, "alias/new", false, SW_E_USAGE, "inside it");
    expect_refused(&c, &s, ".", true, SW_E_USAGE, "around it");
    assert_true(ckpt_has(&s, "source", "model.safetensors"));
    must(ckpt_write(&c, &s, "source-4bit", row("gptq"), false, 0, false, &err), &err);
    expect_refused(&c, &s, "source-4bit", false, SW_E_USAGE, "exists");
    must(ckpt_write(&c, &s, "source-4bit", row("swage"), true, 0, false, &err), &err);
    assert_false(ckpt_has(&s, "source-4bit", "quantize_config.json"));
    ckpt_close(&c);
    scratch_close(&s);
}

static void what_does_not_fit_is_refused_up_front(void **state)
{
    scratch s;
    ckpt_case c;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, row("gptq"), 4, true, 32);
    c.config.spec.group_elems = 96;
    expect_refused(&c, &s, "out", false, SW_E_UNSUPPORTED,
                   "self_attn.q_proj: gptq: groups of 96 do not divide the 128 inputs");
    c.config.spec.group_elems = 32;
    c.linears[3].n_out += 32;
    expect_refused(&c, &s, "out", false, SW_E_FORMAT, "config.json makes it");
    c.linears[3].n_out -= 32;
    snprintf(c.paths[2], sizeof c.paths[2], "model.layers.0.self_attn.z_proj");
    expect_refused(&c, &s, "out", false, SW_E_FORMAT,
                   "\"model.layers.0.self_attn.z_proj.weight\" is missing");
    memcpy(c.paths[2], c.paths[1], sizeof c.paths[2]);
    expect_refused(&c, &s, "out", false, SW_E_BUG, "claimed twice");
    assert_int_equal(scratch_count(&s, NULL), 1);
    ckpt_close(&c);
    scratch_close(&s);
}

static void a_disk_too_small_is_found_before_the_work(void **state)
{
    scratch s;
    ckpt_case c;

    (void)state;
    /* its address space has no room for a view of the file, and that is found first */
    if (strcmp(SW_CONFIG, "tsan") == 0) skip();
    scratch_open(&s);
    ckpt_source(&s, "llama");
    /* a side file with a hole: it takes no room here, but a copy would */
    scratch_write(&s, "source/LICENSE.txt", "x", 1);
    if (truncate(scratch_path(&s, "source/LICENSE.txt"), (off_t)1 << 43) != 0) skip();
    ckpt_open(&c, &s, row("gptq"), 4, true, 32);
    expect_refused(&c, &s, "out", false, SW_E_IO, "8796");
    assert_int_equal(scratch_count(&s, NULL), 1);
    ckpt_close(&c);
    scratch_close(&s);
}

static void misuse_is_caught_and_leaves_nothing(void **state)
{
    const char *out;
    scratch s;
    ckpt_case c;
    sw_ckpt_writer *w = NULL;
    sw_err err = {0};

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    ckpt_open(&c, &s, row("gptq"), 4, true, 32);
    out = scratch_path(&s, "out");
    must(sw_ckpt_writer_new(&w, &c.source, out, false, row("gptq"), &c.config, c.linears, c.n, 0,
                            &err), &err);
    assert_int_equal(sw_ckpt_writer_put(w, "nobody", &c.q[0], &err), SW_E_BUG);
    err.code = SW_OK;
    c.q[0].scales[3] = NAN;
    assert_int_equal(sw_ckpt_writer_put(w, c.paths[0], &c.q[0], &err), SW_E_FORMAT);
    expect_text(err.text, c.paths[0]);
    c.q[0].scales[3] = 1.0f;
    err.code = SW_OK;
    must(sw_ckpt_writer_put(w, c.paths[0], &c.q[0], &err), &err);
    assert_int_equal(sw_ckpt_writer_put(w, c.paths[0], &c.q[0], &err), SW_E_BUG);
    err.code = SW_OK;
    assert_int_equal(sw_ckpt_writer_commit(w, NULL, &err), SW_E_BUG);
    expect_text(err.text, "never put");
    sw_ckpt_writer_free(w);
    assert_int_equal(scratch_count(&s, NULL), 1);
    ckpt_close(&c);
    scratch_close(&s);
}

/* The source again, with tensors of blocks that no model of its kind has. */
static void add_blocks(const scratch *s)
{
    static const char *const extra[] = {"model.more.10.a", "model.more.2.b", "model.more.2.a"};
    static const uint8_t bytes[16] = {1};
    const int64_t shape = 8;
    sw_st *st = NULL;
    sw_st_writer *w = NULL;
    sw_err err = {0};

    must(sw_st_open(&st, scratch_path(s, "source"), &err), &err);
    must(sw_st_writer_new(&w, scratch_path(s, "source"), 0, &err), &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_st_count(st); i++) {
            const sw_st_tensor *t = sw_st_at(st, i);
            const sw_cview *v = &t->view;
            must(pass ? sw_st_writer_put(w, t->name, v->data, v->size_bytes, &err)
                      : sw_st_writer_declare(w, t->name, v->dtype, v->n_dims, v->shape, &err),
                 &err);
        }
        for (int i = 0; i < 3; i++)
            must(pass ? sw_st_writer_put(w, extra[i], bytes, sizeof bytes, &err)
                      : sw_st_writer_declare(w, extra[i], SW_DTYPE_BF16, 1, &shape, &err), &err);
        if (!pass) must(sw_st_writer_begin(w, &err), &err);
    }
    must(sw_st_writer_commit(w, &err), &err);
    sw_st_writer_free(w);
    sw_st_close(st);
}

/* Tensors in the order in which they are made: the digest of the file follows its writing. Blocks
 * by number, a block's linears as the model has them, and a head that is quantized comes last. */
static void tensors_lie_as_they_are_made(void **state)
{
    static const char *const want[] = {
        "model.embed_tokens.weight", "model.norm.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.self_attn.q_proj.qweight", "model.layers.0.self_attn.q_proj.qzeros",
        "model.layers.0.self_attn.q_proj.scales", "model.layers.0.self_attn.k_proj.qweight",
        "model.layers.0.self_attn.v_proj.qweight", "model.layers.0.self_attn.o_proj.qweight",
        "model.layers.0.mlp.gate_proj.qweight", "model.layers.0.mlp.up_proj.qweight",
        "model.layers.0.mlp.down_proj.qweight", "model.layers.0.mlp.down_proj.scales",
        "model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.q_proj.qweight",
        "model.layers.1.mlp.down_proj.scales", "model.more.2.a", "model.more.2.b",
        "model.more.10.a", "lm_head.qweight", "lm_head.scales"};
    const sw_dialect *gptq = sw_dialect_find("gptq");
    const uint8_t *last = NULL;
    sw_st *st = NULL;
    sw_err err = {0};
    ckpt_case c;
    scratch s;

    (void)state;
    scratch_open(&s);
    ckpt_source(&s, "llama");
    add_blocks(&s);
    ckpt_open(&c, &s, gptq, 4, true, 32);
    ckpt_add_head(&c, gptq);
    must(ckpt_write(&c, &s, "out", gptq, false, 0, true, &err), &err);
    must(sw_st_open(&st, scratch_path(&s, "out"), &err), &err);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const sw_st_tensor *t = sw_st_find(st, want[i]);
        if (!t) fail_msg("no %s", want[i]);
        if (t->view.size_bytes % 8) fail_msg("%s says nothing of the order", want[i]);
        if ((const uint8_t *)t->view.data <= last)
            fail_msg("%s lies before %s", want[i], want[i - 1]);
        last = t->view.data;
    }
    sw_st_close(st);
    ckpt_close(&c);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dialect_round_trips_a_directory),
        cmocka_unit_test(the_directory_is_complete),
        cmocka_unit_test(config_keeps_every_other_byte),
        cmocka_unit_test(the_manifest_names_inputs_outputs_and_what_stayed),
        cmocka_unit_test(same_inputs_same_bytes),
        cmocka_unit_test(tensors_lie_as_they_are_made),
        cmocka_unit_test(what_is_left_alone_is_told_to_loaders),
        cmocka_unit_test(a_quantized_source_is_converted),
        cmocka_unit_test(the_rest_of_a_quantized_source_becomes_floats),
        cmocka_unit_test(out_never_touches_the_source),
        cmocka_unit_test(what_does_not_fit_is_refused_up_front),
        cmocka_unit_test(a_disk_too_small_is_found_before_the_work),
        cmocka_unit_test(misuse_is_caught_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
