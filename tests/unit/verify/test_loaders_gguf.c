/* test_loaders_gguf.c - every loading rule of llama.cpp has a file that breaks it and no other, and
 * what is written here breaks none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/file/gguf.h"
#include "tests/support/scratch.h"
#include "tools/convert/convert_gguf.h"
#include "verify/loaders/loaders.h"

#define SIDE 64
#define N_TOKENS 64

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* How a file differs from a sound one. */
typedef struct flaw {
    const char *id, *subject;
    const char *without;  /* this key is left out */
    const char *other;    /* this integer is stored as u64 */
    const char *pre;      /* the pre-tokenizer */
    int64_t rope, bos, n_tokens, n_types; /* 0: as they should be */
    bool is_nested, is_swapped, has_half_norm;
} flaw;

static const flaw flaws[] = {
    {.id = "gguf-key-missing", .subject = "llama.attention.layer_norm_rms_epsilon",
     .without = "llama.attention.layer_norm_rms_epsilon"},
    {.id = "gguf-key-type", .subject = "llama.context_length", .other = "llama.context_length"},
    {.id = "gguf-nested-key", .subject = "general.tags", .is_nested = true},
    {.id = "gguf-order", .subject = "blk.0.attn_", .is_swapped = true},
    {.id = "gguf-rotation", .subject = "rope.dimension_count", .rope = 16},
    {.id = "gguf-vector-type", .subject = "output_norm.weight", .has_half_norm = true},
    {.id = "gguf-no-vocab", .subject = "tokenizer.ggml.model", .without = "tokenizer.ggml.model"},
    {.id = "gguf-vocab-rows", .subject = "token_embd.weight", .n_tokens = 60},
    {.id = "gguf-merges", .subject = "tokenizer.ggml.merges", .without = "tokenizer.ggml.merges"},
    {.id = "gguf-token-lists", .subject = "tokenizer.ggml.token_type", .n_types = 10},
    {.id = "gguf-no-pre", .subject = "tokenizer.ggml.pre", .without = "tokenizer.ggml.pre"},
    {.id = "gguf-pre", .subject = "tokenizer.ggml.pre", .pre = "unheard-of"},
    {.id = "gguf-token-id", .subject = "tokenizer.ggml.bos_token_id", .bos = 1000},
};
#define N_FLAWS (sizeof flaws / sizeof *flaws)

static bool has(const flaw *f, const char *key) { return !f->without || strcmp(f->without, key); }

static void put_int(sw_gguf_writer *w, const flaw *f, const char *key, int64_t v, sw_err *err)
{
    const sw_gguf_kind kind = f->other && !strcmp(f->other, key) ? SW_GGUF_U64 : SW_GGUF_U32;

    if (has(f, key)) must(sw_gguf_put_int(w, key, kind, v, err), err);
}

static void put_text(sw_gguf_writer *w, const flaw *f, const char *key, const char *v, sw_err *err)
{
    if (has(f, key)) must(sw_gguf_put_text(w, key, v, err), err);
}

static void put_sizes(sw_gguf_writer *w, const flaw *f, sw_err *err)
{
    put_text(w, f, "general.architecture", "llama", err);
    put_int(w, f, "llama.context_length", 64, err);
    put_int(w, f, "llama.embedding_length", SIDE, err);
    put_int(w, f, "llama.block_count", 1, err);
    put_int(w, f, "llama.feed_forward_length", SIDE, err);
    put_int(w, f, "llama.attention.head_count", 2, err);
    put_int(w, f, "llama.rope.dimension_count", f->rope ? f->rope : SIDE / 2, err);
    if (has(f, "llama.attention.layer_norm_rms_epsilon"))
        must(sw_gguf_put_real(w, "llama.attention.layer_norm_rms_epsilon", 1e-5, err), err);
    if (f->is_nested) must(sw_gguf_put_array(w, "general.tags", SW_GGUF_ARRAY, 0, err), err);
}

static void put_vocab(sw_gguf_writer *w, const flaw *f, sw_err *err)
{
    const int64_t n = f->n_tokens ? f->n_tokens : N_TOKENS, n_types = f->n_types ? f->n_types : n;
    char token[16];

    put_text(w, f, "tokenizer.ggml.model", "gpt2", err);
    put_text(w, f, "tokenizer.ggml.pre", f->pre ? f->pre : "gpt-2", err);
    must(sw_gguf_put_array(w, "tokenizer.ggml.tokens", SW_GGUF_TEXT, (uint64_t)n, err), err);
    for (int64_t i = 0; i < n; i++) {
        int length = snprintf(token, sizeof token, "t%lld", (long long)i);
        must(sw_gguf_put_elem_text(w, token, (size_t)length, err), err);
    }
    must(sw_gguf_put_array(w, "tokenizer.ggml.token_type", SW_GGUF_I32, (uint64_t)n_types, err),
         err);
    for (int64_t i = 0; i < n_types; i++) must(sw_gguf_put_elem_int(w, 1, err), err);
    if (has(f, "tokenizer.ggml.merges")) {
        must(sw_gguf_put_array(w, "tokenizer.ggml.merges", SW_GGUF_TEXT, 1, err), err);
        must(sw_gguf_put_elem_text(w, "t 1", 3, err), err);
    }
    put_int(w, f, "tokenizer.ggml.bos_token_id", f->bos ? f->bos : 1, err);
}

/* The offsets of two tensors of one size change places. */
static void swap_offsets(const char *path, const char *a, const char *b)
{
    uint8_t *bytes, *at[2] = {NULL, NULL}, kept[8];
    const char *const names[] = {a, b};
    size_t n;

    bytes = scratch_take(&n, path);
    for (int i = 0; i < 2; i++)
        for (size_t p = 0; p + 64 < n && !at[i]; p++)
            if (!memcmp(bytes + p, names[i], strlen(names[i])))
                at[i] = bytes + p + strlen(names[i]) + 4 + 16 + 4; /* n_dims, dims, type */
    assert_true(at[0] && at[1]);
    memcpy(kept, at[0], 8);
    memcpy(at[0], at[1], 8);
    memcpy(at[1], kept, 8);
    scratch_put_back(path, bytes, n);
}

static void write_flawed(const char *path, const flaw *f)
{
    static const char *const names[] = {
        "token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
        "blk.0.attn_output.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight",
        "output_norm.weight"};
    const int n = (int)(sizeof names / sizeof *names);
    static const float zeros[SIDE * SIDE];
    const int64_t shape[] = {SIDE, SIDE};
    sw_gguf_writer *w = NULL;
    sw_err err = {0};

    must(sw_gguf_writer_new(&w, path, &err), &err);
    put_sizes(w, f, &err);
    put_vocab(w, f, &err);
    for (int i = 0; i < n; i++)
        must(sw_gguf_declare(w, names[i], f->has_half_norm && i == n - 1 ? SW_BLOCK_F16
                                                                         : SW_BLOCK_F32,
                             i < 8 ? 2 : 1, shape, &err), &err);
    must(sw_gguf_begin(w, &err), &err);
    for (int i = 0; i < n; i++)
        must(sw_gguf_put(w, names[i], 0, zeros,
                         i < 8 ? sizeof zeros : f->has_half_norm && i == n - 1 ? 2 * SIDE
                                                                               : 4 * SIDE,
                         &err), &err);
    must(sw_gguf_commit(w, &err), &err);
    sw_gguf_writer_free(w);
    if (f->is_swapped) swap_offsets(path, "blk.0.attn_q.weight", "blk.0.attn_k.weight");
}

static void check(sw_load_findings *found, const char *path)
{
    sw_checkpoint ckpt;
    sw_err err = {0};

    must(sw_checkpoint_open(&ckpt, path, &err), &err);
    must(sw_loaders_check(found, &ckpt, &err), &err);
    sw_checkpoint_close(&ckpt);
}

static void each_rule_is_broken_by_its_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FLAWS; i++) {
        sw_load_findings found;
        scratch s;

        scratch_open(&s);
        write_flawed(scratch_path(&s, "m.gguf"), &flaws[i]);
        check(&found, scratch_path(&s, "m.gguf"));
        if (found.n != 1 || strcmp(found.at[0].rule->id, flaws[i].id))
            fail_msg("%s: %lld findings, first %s", flaws[i].id, (long long)found.n,
                     found.n ? found.at[0].rule->id : "none");
        if (!strstr(found.at[0].subject, flaws[i].subject) || !found.at[0].detail[0])
            fail_msg("%s: found at \"%s\"", flaws[i].id, found.at[0].subject);
        sw_loaders_free(&found);
        scratch_close(&s);
    }
}

static void each_rule_has_a_row_here(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_load_rules; i++) {
        bool is_there = strncmp(sw_load_rules[i].id, "gguf-", 5) != 0;
        for (size_t r = 0; r < N_FLAWS; r++)
            is_there = is_there || !strcmp(flaws[r].id, sw_load_rules[i].id);
        if (!is_there) fail_msg("%s has no file that breaks it", sw_load_rules[i].id);
    }
}

static void sound_files_break_none(void **state)
{
    static const char *const models[] = {"calib_data/tiny-llama", "tests/golden/arch/mixtral",
                                         "tests/golden/arch/qwen3", "tests/golden/arch/gemma3_text",
                                         "tests/golden/arch/qwen2"};
    const flaw none = {.id = ""};
    sw_load_findings found;
    scratch s;

    (void)state;
    scratch_open(&s);
    write_flawed(scratch_path(&s, "m.gguf"), &none);
    check(&found, scratch_path(&s, "m.gguf"));
    assert_int_equal(found.n, 0);
    sw_loaders_free(&found);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        sw_gguf_job job = {.source = models[i], .type = "Q8_0", .no_tokenizer = i > 0,
                           .n_threads = 2};
        char file[SW_PATH_BYTES], name[16];
        sw_err err = {0};

        (void)snprintf(name, sizeof name, "%zu.gguf", i);
        (void)snprintf(file, sizeof file, "%s", scratch_path(&s, name));
        job.out = file;
        must(sw_gguf_job_run(&job, &err), &err);
        check(&found, file);
        for (int64_t k = 0; k < found.n; k++)
            if (!job.no_tokenizer || strcmp(found.at[k].rule->id, "gguf-no-vocab"))
                fail_msg("%s: %s at %s: %s", models[i], found.at[k].rule->id, found.at[k].subject,
                         found.at[k].detail);
        sw_loaders_free(&found);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_is_broken_by_its_file),
        cmocka_unit_test(each_rule_has_a_row_here),
        cmocka_unit_test(sound_files_break_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
