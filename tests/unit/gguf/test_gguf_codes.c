/* test_gguf_codes.c - blocks of GGUF that are codes, scales and zero points: out into the dialects
 * that hold them and back, nothing changed; all other blocks are refused with the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/checkpoint/model_path.h"
#include "formats/dialect/dialect_gguf.h"
#include "formats/gguf/gguf_model.h"
#include "formats/num/half.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/qtensor_gen.h"
#include "tools/convert/convert_gguf.h"
#include "tools/convert/convert_job.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static sw_code to_gguf(sw_gguf_report *report, const char *source, const char *out,
                       const char *type, sw_err *err)
{
    sw_gguf_job job = {.source = source, .out = out, .may_replace = true, .type = type,
                       .embed_type = "BF16", .no_tokenizer = true, .n_threads = 2};
    sw_code rc = sw_gguf_job_run(&job, err);

    *report = job.report;
    return rc;
}

static sw_code convert(int64_t n_of[SW_FATE_COUNT], const char *source, const char *out,
                       const char *target, bool may_requantize, sw_err *err)
{
    sw_convert_options o = {.source_dir = source, .out_dir = out, .n_threads = 2,
                            .target = sw_dialect_find(target), .may_requantize = may_requantize};
    sw_convert_job *job = NULL;
    sw_code rc;

    must(SW_MEM_GET(&job, 1, "job", err), err);
    if ((rc = sw_convert_plan(job, &o, NULL, err)) == SW_OK) rc = sw_convert_run(job, err);
    memcpy(n_of, job->n_of, sizeof job->n_of);
    sw_convert_free(job);
    sw_mem_put(job);
    return rc;
}

/* Every linear of both, compared as codes, scales and zero points. */
static void same_linears(const char *what, const char *a_path, const char *b_path)
{
    sw_checkpoint a, b;
    int64_t n_seen = 0;
    sw_err err = {0};

    must(sw_checkpoint_open_codes(&a, a_path, &err), &err);
    must(sw_checkpoint_open_codes(&b, b_path, &err), &err);
    for (int64_t layer = 0; layer < a.model.n_layers; layer++) {
        sw_linear_ref refs[64];
        int64_t n = sw_model_linears(&a.model, layer, refs, 64);

        for (int64_t i = 0; i < n; i++) {
            sw_qtensor x, y;
            char path[256];

            assert_true(sw_model_slot_path(path, &a.model, layer, refs[i].slot, refs[i].expert));
            if (!sw_checkpoint_is_quantized(&a, path) || !sw_checkpoint_is_quantized(&b, path))
                fail_msg("%s: %s is not quantized", what, path);
            must(sw_checkpoint_qtensor(&x, &a, path, refs[i].n_out, refs[i].k_in, &err), &err);
            must(sw_checkpoint_qtensor(&y, &b, path, refs[i].n_out, refs[i].k_in, &err), &err);
            sw_gen_assert_same(&y, &x);
            sw_qtensor_free(&x);
            sw_qtensor_free(&y);
            n_seen++;
        }
    }
    assert_true(n_seen > 0);
    sw_checkpoint_close(&a);
    sw_checkpoint_close(&b);
}

static void same_files(const char *what, const char *a_path, const char *b_path)
{
    sw_gguf *a = NULL, *b = NULL;
    sw_err err = {0};

    must(sw_gguf_open(&a, a_path, &err), &err);
    must(sw_gguf_open(&b, b_path, &err), &err);
    assert_int_equal(sw_gguf_count(a), sw_gguf_count(b));
    for (int64_t i = 0; i < sw_gguf_count(a); i++) {
        const sw_gguf_tensor *x = sw_gguf_at(a, i), *y = sw_gguf_at(b, i);

        assert_string_equal(x->name, y->name);
        if (x->type != y->type || x->size_bytes != y->size_bytes ||
            memcmp(x->data, y->data, x->size_bytes))
            fail_msg("%s: %s differs", what, x->name);
    }
    sw_gguf_close(a);
    sw_gguf_close(b);
}

/* dialect -> GGUF -> another dialect -> GGUF: the same weights, and the same bytes of tensors. */
static void test_there_and_back(void **state)
{
    static const struct {
        const char *arch, *from, *to;
        int bits; /* 0: NVFP4A16, where each expert has a factor of its own */
    } rows[] = {
        {"llama", "gptq", "compressed-tensors", 4}, {"llama", "compressed-tensors", "awq", 4},
        {"qwen2", "swage", "gptq_v2", 8},           {"mixtral", "gptq_v2", "swage", 4},
        {"qwen3_moe", "compressed-tensors", "gptq", 8}, {"gemma3_text", "awq", "gptq", 4},
        {"llama", "modelopt", "compressed-tensors", 0},
        {"mixtral", "compressed-tensors", "swage", 0}, {"phi3", "swage", "modelopt", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char model[128], source[SW_PATH_BYTES], file[SW_PATH_BYTES], dir[SW_PATH_BYTES];
        char again[SW_PATH_BYTES];
        int64_t n_of[SW_FATE_COUNT];
        sw_gguf_report report;
        sw_err err = {0};
        scratch s;

        scratch_open(&s);
        (void)snprintf(model, sizeof model, "tests/golden/arch/%s", rows[i].arch);
        (void)snprintf(source, sizeof source, "%s", scratch_path(&s, "source"));
        (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
        (void)snprintf(dir, sizeof dir, "%s", scratch_path(&s, "dir"));
        (void)snprintf(again, sizeof again, "%s", scratch_path(&s, "again.gguf"));
        if (rows[i].bits) quantized_dir_make(source, model, rows[i].from, rows[i].bits, true, 32);
        else quantized_dir_of_scheme(source, model, rows[i].from, "NVFP4A16");
        must(to_gguf(&report, source, file, NULL, &err), &err);
        assert_int_equal(report.n_requantized + report.n_rounded, 0);
        same_linears(rows[i].arch, source, file);
        must(convert(n_of, file, dir, rows[i].to, false, &err), &err);
        assert_int_equal(n_of[SW_FATE_REQUANTIZED] + n_of[SW_FATE_DECODED], 0);
        same_linears(rows[i].to, source, dir);
        must(to_gguf(&report, dir, again, NULL, &err), &err);
        assert_int_equal(report.n_requantized + report.n_rounded, 0);
        same_files(rows[i].arch, file, again);
        must(to_gguf(&report, file, scratch_path(&s, "third.gguf"), NULL, &err), &err);
        same_files("file to file", file, scratch_path(&s, "third.gguf"));
        scratch_close(&s);
    }
}

/* --- Q4_1 --------------------------------------------------------------------------------- */

/* Minima that are whole numbers of scales, of either sign and of zero; in `spoilt`, all but one. */
static void whole_minima(sw_gguf *g, const char *spoilt)
{
    uint64_t state = 5;

    for (int64_t i = 0; i < sw_gguf_count(g); i++) {
        const sw_gguf_tensor *t = sw_gguf_at(g, i);
        uint8_t *b = (uint8_t *)(uintptr_t)t->data;

        if (t->type != SW_BLOCK_Q4_1) continue;
        for (uint64_t at = 0; at < t->size_bytes; at += 20) {
            const uint64_t v = sw_gen_next(&state);
            const float d = sw_f16_decode((uint16_t)((v & 0x83e0) + 0x2000)); /* six bits */

            sw_store_le16(b + at, v % 16 ? sw_f16_encode(d) : 0);
            sw_store_le16(b + at + 2, v % 16 ? sw_f16_encode(0.0f - d * (float)(v >> 32 & 15)) : 0);
        }
        if (!strcmp(t->name, spoilt)) b[t->size_bytes - 18] ^= 1;
    }
}

static void write_q4_1(const char *path, const char *model, const char *spoilt)
{
    sw_gguf_report report;
    sw_gguf *g = NULL;
    uint8_t *bytes;
    size_t n;
    sw_err err = {0};

    must(to_gguf(&report, model, path, "Q4_1", &err), &err);
    bytes = scratch_take(&n, path);
    must(sw_gguf_open_bytes(&g, bytes, n, "copy", &err), &err);
    whole_minima(g, spoilt);
    sw_gguf_close(g);
    scratch_put_back(path, bytes, n);
}

static void test_minima(void **state)
{
    static const char *const models[] = {"tests/golden/arch/llama", "tests/golden/arch/mixtral"};
    static const char *const spoilt[] = {"blk.1.attn_k.weight", "blk.1.ffn_up_exps.weight"};
    static const char *const names[] = {"model.layers.1.self_attn.k_proj", "experts.3.w3"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        char file[SW_PATH_BYTES], dir[SW_PATH_BYTES], again[SW_PATH_BYTES];
        int64_t n_of[SW_FATE_COUNT];
        sw_gguf_report report;
        sw_err err = {0};
        scratch s;

        scratch_open(&s);
        (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
        (void)snprintf(dir, sizeof dir, "%s", scratch_path(&s, "dir"));
        (void)snprintf(again, sizeof again, "%s", scratch_path(&s, "again.gguf"));
        write_q4_1(file, models[i], "");
        must(convert(n_of, file, dir, "gptq_v2", false, &err), &err);
        same_linears("zero points", file, dir);
        must(to_gguf(&report, dir, again, NULL, &err), &err);
        assert_int_equal(report.n_requantized + report.n_rounded, 0);
        same_files("zero points", file, again);
        write_q4_1(again, models[i], spoilt[i]);
        assert_int_equal(convert(n_of, again, scratch_path(&s, "no"), "gptq_v2", false, &err),
                         SW_E_UNSUPPORTED);
        if (!strstr(err.text, names[i]) || !strstr(err.text, "whole number"))
            fail_msg("%s", err.text);
        assert_false(sw_path_exists(scratch_path(&s, "no")));
        memset(&err, 0, sizeof err);
        must(convert(n_of, again, dir, "gptq_v2", true, &err) == SW_E_USAGE ? SW_OK : SW_E_BUG,
             &err); /* is there already */
        memset(&err, 0, sizeof err);
        must(convert(n_of, again, scratch_path(&s, "yes"), "gptq_v2", true, &err), &err);
        assert_true(n_of[SW_FATE_REQUANTIZED] >= 1 && n_of[SW_FATE_EXACT] > 0);
        scratch_close(&s);
    }
}

/* --- the others --------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    static const struct {
        const char *type, *model, *word;
    } rows[] = {{"Q6_K", "calib_data/tiny-llama", "Q6_K"},
                {"F16", "tests/golden/arch/llama", "not quantized"}};
    int64_t n_of[SW_FATE_COUNT];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_gguf_report report;
        sw_err err = {0};
        char file[SW_PATH_BYTES];
        scratch s;

        scratch_open(&s);
        (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
        must(to_gguf(&report, rows[i].model, file, rows[i].type, &err), &err);
        assert_int_equal(convert(n_of, file, scratch_path(&s, "no"), "gptq", false, &err),
                         SW_E_UNSUPPORTED);
        if (!strstr(err.text, rows[i].word)) fail_msg("%s: %s", rows[i].type, err.text);
        if (rows[i].type[0] == 'Q') {
            memset(&err, 0, sizeof err);
            assert_int_equal(to_gguf(&report, file, scratch_path(&s, "n.gguf"), "Q8_0", &err),
                             SW_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, "--allow-requantize"));
        }
        assert_false(sw_path_exists(scratch_path(&s, "no")));
        scratch_close(&s);
    }
}

/* A directory with a single file, or a single set of splits, is that file. */
static void test_directory(void **state)
{
    static const char *const names[] = {"a-00002-of-00002.gguf", "a-00001-of-00002.gguf",
                                        "b.gguf"};
    char at[SW_PATH_BYTES];
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    assert_false(sw_gguf_locate(at, s.dir));
    for (int i = 0; i < 2; i++)
        must(sw_file_put(scratch_path(&s, names[i]), "GGUF", 4, &err), &err);
    assert_true(sw_gguf_locate(at, s.dir));
    assert_string_equal(at, scratch_path(&s, names[1]));
    must(sw_file_put(scratch_path(&s, names[2]), "GGUF", 4, &err), &err);
    assert_false(sw_gguf_locate(at, s.dir)); /* which of them? */
    assert_int_equal(remove(scratch_path(&s, names[0])) + remove(scratch_path(&s, names[1])), 0);
    assert_true(sw_gguf_locate(at, s.dir));
    assert_string_equal(at, scratch_path(&s, names[2]));
    must(sw_file_put(scratch_path(&s, "config.json"), "{}", 2, &err), &err);
    assert_false(sw_gguf_locate(at, s.dir)); /* a model directory with a stray file */
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_minima),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
