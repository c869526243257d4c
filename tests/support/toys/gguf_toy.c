/* gguf_toy.c - see gguf_toy.h. */
#include "tests/support/toys/gguf_toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"
#include "formats/num/half.h"
#include "tests/support/toys/qtensor_gen.h"

static void must(sw_code rc, const sw_err *err)
{
    if (rc != SW_OK) fail_msg("%s", err->text);
}

/* --- blocks --------------------------------------------------------------------------------- */

/* Where halves lie, or -1. */
static const struct {
    sw_block_type type;
    int at[2];
} halves[] = {
    {SW_BLOCK_Q4_0, {0, -1}},   {SW_BLOCK_Q4_1, {0, 2}},     {SW_BLOCK_Q5_0, {0, -1}},
    {SW_BLOCK_Q5_1, {0, 2}},    {SW_BLOCK_Q8_0, {0, -1}},    {SW_BLOCK_Q2_K, {80, 82}},
    {SW_BLOCK_Q3_K, {108, -1}}, {SW_BLOCK_Q4_K, {0, 2}},     {SW_BLOCK_Q5_K, {0, 2}},
    {SW_BLOCK_Q6_K, {208, -1}}, {SW_BLOCK_IQ4_NL, {0, -1}},  {SW_BLOCK_IQ4_XS, {0, -1}},
    {SW_BLOCK_IQ1_S, {0, -1}},  {SW_BLOCK_IQ2_XXS, {0, -1}}, {SW_BLOCK_IQ2_XS, {0, -1}},
    {SW_BLOCK_IQ2_S, {0, -1}},  {SW_BLOCK_IQ3_XXS, {0, -1}}, {SW_BLOCK_IQ3_S, {0, -1}},
    {SW_BLOCK_TQ1_0, {52, -1}}, {SW_BLOCK_TQ2_0, {64, -1}},
};

static void set_scales(uint8_t *b, sw_block_type type)
{
    const unsigned low = b[0], half = 0x1400 | (low & 0xff) << 2; /* 0.001 to 0.002 */

    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        for (int k = 0; k < 2 && halves[i].type == type; k++)
            if (halves[i].at[k] >= 0) sw_store_le16(b + halves[i].at[k], (uint16_t)half);
    if (type == SW_BLOCK_MXFP4) b[0] = (uint8_t)(118 + low % 4);
    for (int k = 0; k < 4 && type == SW_BLOCK_NVFP4; k++) b[k] = (uint8_t)(8 + b[k] % 16);
    for (int k = 0; k < 4 && type == SW_BLOCK_IQ1_M; k++)
        b[49 + 2 * k] = (uint8_t)((b[49 + 2 * k] & 15) | (half >> 4 * k & 15) << 4);
    if (type == SW_BLOCK_F16) sw_store_le16(b, (uint16_t)(half | (low & 1) << 15));
    if (type == SW_BLOCK_BF16)
        sw_store_le16(b, (uint16_t)(0x3c00 | (low & 127) | (low & 128) << 8));
    if (type == SW_BLOCK_F32) sw_store_le32(b, 0x3c000000u | low << 12 | (low & 1) << 31);
}

void gguf_toy_blocks(uint8_t *out, sw_block_type type, int64_t n, uint64_t *seed)
{
    const sw_block_size *size = &sw_block_sizes[type];
    const int64_t n_bytes = sw_block_bytes(type, n);

    for (int64_t i = 0; i < n_bytes; i++) out[i] = (uint8_t)(sw_gen_next(seed) >> 24);
    for (int64_t at = 0; at < n_bytes; at += size->bytes) set_scales(out + at, type);
}

/* --- keys ----------------------------------------------------------------------------------- */

static void put_sizes(sw_gguf_writer *w, sw_err *err)
{
    static const struct {
        const char *key;
        int64_t v;
    } keys[] = {
        {"llama.block_count", 1},         {"llama.context_length", 128},
        {"llama.embedding_length", 256},  {"llama.feed_forward_length", 256},
        {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2},
        {"llama.attention.key_length", 64}, {"llama.attention.value_length", 64},
        {"llama.rope.dimension_count", 64}, {"llama.vocab_size", GGUF_TOY_VOCAB},
    };

    must(sw_gguf_put_text(w, "general.architecture", "llama", err), err);
    must(sw_gguf_put_text(w, "general.name", "A toy", err), err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        must(sw_gguf_put_int(w, keys[i].key, SW_GGUF_U32, keys[i].v, err), err);
    must(sw_gguf_put_real(w, "llama.attention.layer_norm_rms_epsilon", 1e-5, err), err);
}

/* Bytes stand for the characters that byte-level tokenizers write them as. */
static void put_byte(sw_gguf_writer *w, int byte, int *n_aliases, sw_err *err)
{
    const bool is_plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int c = is_plain ? byte : 256 + (*n_aliases)++;
    const char text[2] = {(char)(c < 128 ? c : 0xc0 | c >> 6), (char)(0x80 | (c & 63))};

    must(sw_gguf_put_elem_text(w, text, c < 128 ? 1 : 2, err), err);
}

static void put_tokens(sw_gguf_writer *w, sw_err *err)
{
    int n_aliases = 0;

    must(sw_gguf_put_text(w, "tokenizer.ggml.model", "gpt2", err), err);
    must(sw_gguf_put_text(w, "tokenizer.ggml.pre", "gpt-2", err), err);
    must(sw_gguf_put_array(w, "tokenizer.ggml.tokens", SW_GGUF_TEXT, GGUF_TOY_VOCAB, err), err);
    for (int byte = 0; byte < 256; byte++) put_byte(w, byte, &n_aliases, err);
    for (int i = 0; i < 4; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "<|%d|>", i);
        must(sw_gguf_put_elem_text(w, text, strlen(text), err), err);
    }
    must(sw_gguf_put_array(w, "tokenizer.ggml.token_type", SW_GGUF_I32, GGUF_TOY_VOCAB, err), err);
    for (int i = 0; i < GGUF_TOY_VOCAB; i++)
        must(sw_gguf_put_elem_int(w, i < 256 ? 1 : 3, err), err);
    must(sw_gguf_put_array(w, "tokenizer.ggml.merges", SW_GGUF_TEXT, 0, err), err);
    must(sw_gguf_put_int(w, "tokenizer.ggml.bos_token_id", SW_GGUF_U32, 256, err), err);
    must(sw_gguf_put_int(w, "tokenizer.ggml.eos_token_id", SW_GGUF_U32, 257, err), err);
}

/* --- tensors -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t n_out; /* 0: a vector */
    bool is_embed;
} tensors[] = {
    {"token_embd.weight", GGUF_TOY_VOCAB, true}, {"blk.0.attn_norm.weight", 0, false},
    {"blk.0.attn_q.weight", 256, false},         {"blk.0.attn_k.weight", 128, false},
    {"blk.0.attn_v.weight", 128, false},         {"blk.0.attn_output.weight", 256, false},
    {"blk.0.ffn_norm.weight", 0, false},         {"blk.0.ffn_gate.weight", 256, false},
    {"blk.0.ffn_up.weight", 256, false},         {"blk.0.ffn_down.weight", 256, false},
    {"output_norm.weight", 0, false},
};
#define N_TENSORS (sizeof tensors / sizeof *tensors)

static int64_t rows_of(const gguf_toy *toy, size_t i)
{
    return tensors[i].is_embed && toy->n_rows ? toy->n_rows : tensors[i].n_out;
}

static void declare_all(sw_gguf_writer *w, const gguf_toy *toy, sw_err *err)
{
    const int64_t one = 1;

    for (size_t i = 0; i < N_TENSORS; i++) {
        const int64_t shape[] = {rows_of(toy, i), GGUF_TOY_WIDTH};

        must(sw_gguf_declare(w, tensors[i].name,
                             !tensors[i].n_out    ? SW_BLOCK_F32
                             : tensors[i].is_embed ? toy->embed : toy->linear,
                             tensors[i].n_out ? 2 : 1, shape + !tensors[i].n_out, err), err);
    }
    if (toy->factor > 0)
        must(sw_gguf_declare(w, "blk.0.attn_q.scale", SW_BLOCK_F32, 1, &one, err), err);
    if (toy->extra) must(sw_gguf_declare(w, toy->extra, SW_BLOCK_F32, 1, &one, err), err);
}

static void put_all(sw_gguf_writer *w, const gguf_toy *toy, sw_err *err)
{
    static uint8_t bytes[GGUF_TOY_ROWS_MAX * GGUF_TOY_WIDTH * 4];
    const float half = 0.5f, step = toy->norm_step > 0 ? toy->norm_step : 0.0078125f;
    uint64_t seed = toy->seed + 1;
    float norm[GGUF_TOY_WIDTH];

    for (int i = 0; i < GGUF_TOY_WIDTH; i++) norm[i] = 1.0f + step * (float)(i % 100);
    for (size_t i = 0; i < N_TENSORS; i++) {
        const sw_block_type type = tensors[i].is_embed ? toy->embed : toy->linear;
        const int64_t n = rows_of(toy, i) * GGUF_TOY_WIDTH;

        gguf_toy_blocks(bytes, type, n, &seed);
        must(sw_gguf_put(w, tensors[i].name, 0, n ? (const void *)bytes : norm,
                         n ? (size_t)sw_block_bytes(type, n) : sizeof norm, err), err);
    }
    if (toy->factor > 0)
        must(sw_gguf_put(w, "blk.0.attn_q.scale", 0, &toy->factor, sizeof toy->factor, err), err);
    if (toy->extra) must(sw_gguf_put(w, toy->extra, 0, &half, sizeof half, err), err);
}

void gguf_toy_write(const char *path, const gguf_toy *toy)
{
    sw_gguf_writer *w = NULL;
    sw_err err = {0};

    must(sw_gguf_writer_new(&w, path, &err), &err);
    put_sizes(w, &err);
    put_tokens(w, &err);
    if (toy->keys) toy->keys(w, &err);
    declare_all(w, toy, &err);
    must(sw_gguf_begin(w, &err), &err);
    put_all(w, toy, &err);
    must(sw_gguf_commit(w, &err), &err);
    sw_gguf_writer_free(w);
}
