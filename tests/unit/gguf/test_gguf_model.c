/* test_gguf_model.c - models as GGUF and back: tensors, descriptions and tokenizers survive, what
 * has no form is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/checkpoint/model_text.h"
#include "formats/gguf/gguf_model.h"
#include "kernels/engine/lm_open.h"
#include "tests/support/cases/quantized_dir.h"
#include "tests/support/scratch.h"
#include "tests/support/toys/open_model.h"
#include "tools/convert/convert_gguf.h"
#include "tools/convert/convert_job.h"

#define SEQ_LEN 40
#define BUNDLED "calib_data/tiny-llama"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

static sw_code to_gguf(sw_gguf_report *report, const char *source, const char *out,
                       const char *type, bool may_requantize, bool no_tokenizer, sw_err *err)
{
    sw_gguf_job job = {.source = source, .out = out, .type = type, .embed_type = "BF16",
                       .may_requantize = may_requantize, .no_tokenizer = no_tokenizer,
                       .n_threads = 2};
    sw_code rc = sw_gguf_job_run(&job, err);

    if (report) *report = job.report;
    return rc;
}

static void to_dense(const char *source, const char *out, const char *dtype)
{
    sw_convert_options o = {.source_dir = source, .out_dir = out, .target = sw_dense_find(dtype),
                            .n_threads = 2};
    sw_convert_job *job = NULL;
    sw_err err = {0};

    must(SW_MEM_GET(&job, 1, "job", &err), &err);
    must(sw_convert_plan(job, &o, NULL, &err), &err);
    must(sw_convert_run(job, &err), &err);
    sw_convert_free(job);
    sw_mem_put(job);
}

/* Logits of one fixed sequence in floats; freed by sw_mem_put. */
static float *logits_of(const char *path, int64_t seq_len, int64_t *n_logits)
{
    sw_lm_options options = {.dequantize = true, .n_threads = 2};
    uint32_t ids[SEQ_LEN];
    sw_checkpoint ckpt;
    open_model m = {0};
    sw_err err = {0};
    float *logits;

    must(sw_checkpoint_open(&ckpt, path, &err), &err);
    must(sw_lm_open(&m.lm, &ckpt, &options, &err), &err);
    m.model = ckpt.model;
    m.st = ckpt.st;
    for (int i = 0; i < seq_len; i++) ids[i] = (uint32_t)((i * 37 + 11) % ckpt.model.vocab);
    logits = model_logits(&m, 2, ids, 1, seq_len);
    *n_logits = seq_len * ckpt.model.vocab;
    sw_lm_free(&m.lm);
    sw_checkpoint_close(&ckpt);
    return logits;
}

static void same_logits(const char *what, const char *a_path, const char *b_path, int64_t seq_len)
{
    int64_t n_a, n_b;
    float *a = logits_of(a_path, seq_len, &n_a), *b = logits_of(b_path, seq_len, &n_b);

    assert_int_equal(n_a, n_b);
    if (memcmp(a, b, (size_t)n_a * sizeof *a))
        fail_msg("%s: logits differ, relative %g", what, relative_l2(a, b, n_a));
    sw_mem_put(a);
    sw_mem_put(b);
}

static void same_tensors(const char *what, const char *a_path, const char *b_path)
{
    sw_st *a = NULL, *b = NULL;
    sw_err err = {0};

    must(sw_st_open(&a, a_path, &err), &err);
    must(sw_st_open(&b, b_path, &err), &err);
    assert_int_equal(sw_st_count(a), sw_st_count(b));
    for (int64_t i = 0; i < sw_st_count(a); i++) {
        const sw_st_tensor *x = sw_st_at(a, i), *y = sw_st_at(b, i);

        assert_string_equal(x->name, y->name);
        if (x->view.dtype != y->view.dtype || x->view.size_bytes != y->view.size_bytes ||
            memcmp(x->view.data, y->view.data, x->view.size_bytes))
            fail_msg("%s: %s differs", what, x->name);
    }
    sw_st_close(a);
    sw_st_close(b);
}

/* bf16 -> GGUF -> bf16: the same bytes; and the engine runs the file as it runs the directory. */
static void test_families(void **state)
{
    static const char *const archs[] = {"llama", "llama3", "mistral", "mixtral", "qwen2", "qwen3",
                                        "qwen3_moe", "gemma2", "gemma3_text"};

    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        char source[128], file[SW_PATH_BYTES], back[SW_PATH_BYTES];
        sw_gguf_report report;
        sw_err err = {0};
        scratch s;

        scratch_open(&s);
        (void)snprintf(source, sizeof source, "tests/golden/arch/%s", archs[i]);
        (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
        (void)snprintf(back, sizeof back, "%s", scratch_path(&s, "back"));
        must(to_gguf(&report, source, file, NULL, false, true, &err), &err);
        assert_int_equal(report.n_rounded + report.n_requantized, 0);
        /* as GGUF a mistral ends where its window does */
        same_logits(archs[i], file, source, strcmp(archs[i], "mistral") ? SEQ_LEN : 16);
        to_dense(file, back, "bf16");
        same_tensors(archs[i], back, source);
        scratch_close(&s);
    }
}

/* A file in blocks, opened as a model, is the model of its decoded weights. */
static void test_types(void **state)
{
    static const struct {
        const char *type;
        int64_t n_fallback; /* inputs of 128 are no block of 256 */
    } rows[] = {{"F16", 0}, {"Q8_0", 0}, {"Q4_0", 0}, {"Q4_1", 0}, {"Q4_K", 12}, {"Q6_K", 12}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char file[SW_PATH_BYTES], back[SW_PATH_BYTES];
        sw_gguf_report report;
        sw_err err = {0};
        scratch s;

        scratch_open(&s);
        (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
        (void)snprintf(back, sizeof back, "%s", scratch_path(&s, "back"));
        must(to_gguf(&report, "tests/golden/arch/llama", file, rows[i].type, false, true, &err),
             &err);
        assert_int_equal(report.n_fallback, rows[i].n_fallback);
        to_dense(file, back, "f32");
        same_logits(rows[i].type, file, back, SEQ_LEN);
        scratch_close(&s);
    }
}

/* Codes and scales in another order of bytes: nothing is rounded, and it is the same model. */
static void test_copy_codes(void **state)
{
    static const struct {
        int bits;
        int64_t group;
        const char *type;
        sw_code code;
    } rows[] = {{8, 32, NULL, SW_OK}, {4, 32, NULL, SW_OK}, {4, 32, "Q8_0", SW_E_UNSUPPORTED},
                {4, 64, NULL, SW_E_USAGE}, {4, 64, "Q4_0", SW_E_UNSUPPORTED}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char source[SW_PATH_BYTES], file[SW_PATH_BYTES];
        sw_gguf_report report = {0};
        sw_err err = {0};
        sw_code rc;
        scratch s;

        scratch_open(&s);
        (void)snprintf(source, sizeof source, "%s", scratch_path(&s, "gptq"));
        (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
        quantized_dir_make(source, "tests/golden/arch/llama", "gptq", rows[i].bits, true,
                           rows[i].group);
        rc = to_gguf(&report, source, file, rows[i].type, false, true, &err);
        if (rc != rows[i].code) fail_msg("row %zu: %s", i, err.text);
        if (rc == SW_OK) {
            assert_int_equal(report.n_requantized, 0);
            assert_true(report.n_exact >= 14);
            same_logits("carried", file, source, SEQ_LEN);
        } else {
            assert_false(sw_path_exists(file));
            assert_non_null(strstr(err.text, "--allow-requantize"));
            memset(&err, 0, sizeof err);
            must(to_gguf(&report, source, file, "Q8_0", true, true, &err), &err);
            assert_int_equal(report.n_requantized, 14);
        }
        scratch_close(&s);
    }
}

/* --- tokenizers ------------------------------------------------------------------------------- */

static void same_ids(sw_tokenizer *a, sw_tokenizer *b, const char *text, size_t n_bytes)
{
    sw_ids have = {0}, want = {0};
    sw_err err = {0};

    must(sw_tokenizer_encode(a, &want, text, n_bytes, true, &err), &err);
    must(sw_tokenizer_encode(b, &have, text, n_bytes, true, &err), &err);
    assert_int_equal(have.n, want.n);
    assert_memory_equal(have.ids, want.ids, (size_t)want.n * sizeof *want.ids);
    sw_ids_free(&have);
    sw_ids_free(&want);
}

/* On real text, special tokens included, through the file and through a directory made of it. */
static void test_byte_level(void **state)
{
    static const char special[] = "<|begin_of_text|>It's 12345\n\n  caf\xc3\xa9<|end_of_text|>";
    char file[SW_PATH_BYTES], back[SW_PATH_BYTES];
    sw_tokenizer *tok[3] = {NULL};
    const char *const paths[] = {BUNDLED, file, back};
    sw_map text = {0};
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    (void)snprintf(file, sizeof file, "%s", scratch_path(&s, "m.gguf"));
    (void)snprintf(back, sizeof back, "%s", scratch_path(&s, "back"));
    must(to_gguf(NULL, BUNDLED, file, "Q8_0", false, false, &err), &err);
    assert_true(sw_model_has_tokenizer(file));
    to_dense(file, back, "bf16");
    must(sw_map_open(&text, "README.md", &err), &err);
    for (int i = 0; i < 3; i++) must(sw_model_tokenizer(&tok[i], paths[i], &err), &err);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(sw_tokenizer_vocab(tok[i]), sw_tokenizer_vocab(tok[0]));
        same_ids(tok[0], tok[i], (const char *)text.data, text.size_bytes);
        same_ids(tok[0], tok[i], special, sizeof special - 1);
    }
    for (int i = 0; i < 3; i++) sw_tokenizer_free(tok[i]);
    sw_map_close(&text);
    scratch_close(&s);
}

#define BLANK "\xe2\x96\x81"

/* Sentencepiece in small: merges become scores, and scores merges. */
static const char pieces[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
    "{\"id\":1,\"content\":\"<s>\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\""
    BLANK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" BLANK "\"}]},"
    "\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}},"
    "\"decoder\":null,\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
    "\"fuse_unk\":true,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"" BLANK
    "\":4,\"a\":5,\"b\":6,\"c\":7,\"ab\":8,\"" BLANK "a\":9,\"abc\":10,\"bc\":11,\"" BLANK
    "ab\":12},\"merges\":[[\"b\",\"c\"],[\"a\",\"b\"],[\"" BLANK "\",\"a\"],[\"" BLANK
    "a\",\"b\"],[\"" BLANK "\",\"ab\"],[\"ab\",\"c\"],[\"a\",\"bc\"]]}}";

static void test_pieces(void **state)
{
    static const char *const texts[] = {"abc", "ab", "a", "bcabc ab abab cba", " a  b", "\xc3\xa9",
                                        "aabbccabcabcab"};
    sw_gguf_vocab_source source = {.n_tokens = 16, .bos_id = -1, .eos_id = -1};
    sw_json_caps caps = {.max_bytes = sizeof pieces, .max_depth = 16, .max_values = 1000};
    sw_tokenizer *want = NULL, *have = NULL;
    sw_gguf_writer *w = NULL;
    cJSON *json = NULL, *config = cJSON_Parse("{\"bos_token\":{\"content\":\"<s>\"}}");
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    must(sw_json_parse(&json, pieces, sizeof pieces - 1, &caps, "pieces", &err), &err);
    source.tokenizer = json;
    source.config = config;
    must(sw_gguf_writer_new(&w, scratch_path(&s, "p.gguf"), &err), &err);
    must(sw_gguf_vocab_write(w, &source, &err), &err);
    must(sw_gguf_begin(w, &err), &err);
    must(sw_gguf_commit(w, &err), &err);
    sw_gguf_writer_free(w);
    must(sw_tokenizer_open_bytes(&want, pieces, sizeof pieces - 1, "pieces", &err), &err);
    must(sw_model_tokenizer(&have, scratch_path(&s, "p.gguf"), &err), &err);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        same_ids(want, have, texts[i], strlen(texts[i]));
    sw_tokenizer_free(want);
    sw_tokenizer_free(have);
    cJSON_Delete(json);
    cJSON_Delete(config);
    scratch_close(&s);
}

/* --- refusals --------------------------------------------------------------------------------- */

typedef struct bad {
    const char *arch, *without, *extra, *pre;
    int64_t hidden;
    sw_code code;
    const char *part;
} bad;

static void put_sizes(sw_gguf_writer *w, const bad *b, sw_err *err)
{
    static const struct {
        const char *key;
        int64_t v;
    } keys[] = {{"context_length", 64}, {"block_count", 1}, {"feed_forward_length", 64},
                {"attention.head_count", 2}};
    char key[80];

    must(sw_gguf_put_text(w, "general.architecture", b->arch, err), err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        (void)snprintf(key, sizeof key, "%s.%s", b->arch, keys[i].key);
        must(sw_gguf_put_int(w, key, SW_GGUF_U32, keys[i].v, err), err);
    }
    (void)snprintf(key, sizeof key, "%s.embedding_length", b->arch);
    must(sw_gguf_put_int(w, key, SW_GGUF_U32, b->hidden, err), err);
    must(sw_gguf_put_text(w, "tokenizer.ggml.model", "gpt2", err), err);
    must(sw_gguf_put_text(w, "tokenizer.ggml.pre", b->pre ? b->pre : "gpt-2", err), err);
    must(sw_gguf_put_array(w, "tokenizer.ggml.tokens", SW_GGUF_TEXT, 1, err), err);
    must(sw_gguf_put_elem_text(w, "a", 1, err), err);
}

static void put_tensor(sw_gguf_writer *w, const char *name, bool is_vector, sw_err *err)
{
    const int64_t shape[] = {64, 64};

    must(sw_gguf_declare(w, name, SW_BLOCK_F32, is_vector ? 1 : 2, shape, err), err);
}

static void write_bad(const char *path, const bad *b)
{
    static const char *const names[] = {
        "token_embd.weight", "output.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
        "blk.0.attn_v.weight", "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "output_norm.weight",
        "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"};
    const size_t n = sizeof names / sizeof *names;
    static const float zeros[64 * 64];
    sw_gguf_writer *w = NULL;
    sw_err err = {0};

    must(sw_gguf_writer_new(&w, path, &err), &err);
    put_sizes(w, b, &err);
    for (size_t i = 0; i < n; i++)
        if (!b->without || strcmp(b->without, names[i])) put_tensor(w, names[i], i >= 9, &err);
    if (b->extra) put_tensor(w, b->extra, false, &err);
    must(sw_gguf_begin(w, &err), &err);
    for (size_t i = 0; i < n; i++)
        if (!b->without || strcmp(b->without, names[i]))
            must(sw_gguf_put(w, names[i], 0, zeros, i >= 9 ? 256 : sizeof zeros, &err), &err);
    if (b->extra) must(sw_gguf_put(w, b->extra, 0, zeros, sizeof zeros, &err), &err);
    must(sw_gguf_commit(w, &err), &err);
    sw_gguf_writer_free(w);
}

static void test_refusals(void **state)
{
    static const bad rows[] = {
        {"llama", NULL, NULL, NULL, 64, SW_OK, ""},
        {"mamba", NULL, NULL, NULL, 64, SW_E_UNSUPPORTED, "\"mamba\""},
        {"llama", "blk.0.ffn_up.weight", NULL, NULL, 64, SW_E_FORMAT, "blk.0.ffn_up.weight"},
        {"llama", NULL, "blk.0.extra.weight", NULL, 64, SW_E_UNSUPPORTED, "blk.0.extra.weight"},
        {"llama", NULL, NULL, NULL, 96, SW_E_FORMAT, "token_embd.weight"},
        {"llama", "token_embd.weight", NULL, NULL, 64, SW_E_FORMAT, "token_embd.weight"},
        {"qwen2", NULL, NULL, NULL, 64, SW_E_FORMAT, "blk.0.attn_q.bias"},
    };
    sw_tokenizer *tok = NULL;
    bad pre = rows[0];
    sw_err err = {0};
    scratch s;

    (void)state;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_checkpoint ckpt = {0};

        memset(&err, 0, sizeof err);
        write_bad(scratch_path(&s, "b.gguf"), &rows[i]);
        if (sw_checkpoint_open(&ckpt, scratch_path(&s, "b.gguf"), &err) != rows[i].code ||
            !strstr(err.text, rows[i].part))
            fail_msg("row %zu: %s", i, err.text);
        sw_checkpoint_close(&ckpt);
    }
    pre.pre = "unheard-of";
    write_bad(scratch_path(&s, "b.gguf"), &pre);
    assert_int_equal(sw_model_tokenizer(&tok, scratch_path(&s, "b.gguf"), &err), SW_E_UNSUPPORTED);
    memset(&err, 0, sizeof err);
    assert_int_equal(to_gguf(NULL, "tests/golden/arch/opt", scratch_path(&s, "o.gguf"), NULL,
                             false, true, &err), SW_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "opt"));
    assert_int_equal(scratch_count(&s, NULL), 1);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),   cmocka_unit_test(test_types),
        cmocka_unit_test(test_copy_codes), cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_pieces),     cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
