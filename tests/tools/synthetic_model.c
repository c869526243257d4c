/* synthetic_model.c - write a Llama-shaped model of random weights, for measuring memory and time.
 *
 *   synthetic_model DIR HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS VOCAB
 *
 * bf16, untied, in one file, with tokens.u16 beside it: random ids for --calib. The same
 * arguments give the same bytes. Exit code 1 says on stderr what went wrong.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/mem.h"
#include "formats/file/safetensors.h"
#include "formats/num/half.h"
#include "tests/support/random.h"

#define N_TOKENS 65536
#define TABLE 65536 /* weights are drawn from a table of normal deviates: fast, and as good here */

typedef struct shape {
    int64_t hidden, intermediate, layers, heads, kv_heads, vocab;
} shape;

typedef sw_code (*visit_fn)(void *ctx, const char *name, int64_t rows, int64_t cols, sw_err *err);

static sw_code visit_layer(const shape *s, int64_t layer, visit_fn visit, void *ctx, sw_err *err)
{
    const int64_t kv = s->hidden / s->heads * s->kv_heads;
    const struct { const char *name; int64_t rows, cols; } tensors[] = {
        {"self_attn.q_proj", s->hidden, s->hidden}, {"self_attn.k_proj", kv, s->hidden},
        {"self_attn.v_proj", kv, s->hidden},        {"self_attn.o_proj", s->hidden, s->hidden},
        {"mlp.gate_proj", s->intermediate, s->hidden}, {"mlp.up_proj", s->intermediate, s->hidden},
        {"mlp.down_proj", s->hidden, s->intermediate}, {"input_layernorm", s->hidden, 0},
        {"post_attention_layernorm", s->hidden, 0},
    };
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof tensors / sizeof *tensors && rc == SW_OK; i++) {
        char name[160];
        (void)snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s.weight", layer,
                       tensors[i].name);
        rc = visit(ctx, name, tensors[i].rows, tensors[i].cols, err);
    }
    return rc;
}

static sw_code visit_all(const shape *s, visit_fn visit, void *ctx, sw_err *err)
{
    sw_code rc = visit(ctx, "model.embed_tokens.weight", s->vocab, s->hidden, err);

    for (int64_t layer = 0; layer < s->layers && rc == SW_OK; layer++)
        rc = visit_layer(s, layer, visit, ctx, err);
    if (rc == SW_OK) rc = visit(ctx, "model.norm.weight", s->hidden, 0, err);
    return rc == SW_OK ? visit(ctx, "lm_head.weight", s->vocab, s->hidden, err) : rc;
}

static sw_code declare(void *ctx, const char *name, int64_t rows, int64_t cols, sw_err *err)
{
    const int64_t dims[] = {rows, cols};

    return sw_st_writer_declare(ctx, name, SW_DTYPE_BF16, cols ? 2 : 1, dims, err);
}

typedef struct filler {
    sw_st_writer *w;
    uint16_t table[TABLE];
    test_rng rng;
} filler;

static sw_code fill(void *ctx, const char *name, int64_t rows, int64_t cols, sw_err *err)
{
    filler *f = ctx;
    int64_t n = cols ? rows * cols : rows;
    uint16_t *data = NULL;
    sw_code rc = SW_MEM_GET(&data, n, "weights", err);

    if (rc != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++)
        data[i] = cols ? f->table[test_u64(&f->rng) % TABLE] : sw_bf16_encode(1.0f);
    rc = sw_st_writer_put(f->w, name, data, (size_t)n * sizeof *data, err);
    sw_mem_put(data);
    return rc;
}

static sw_code write_weights(const char *dir, const shape *s, sw_err *err)
{
    filler *f = NULL;
    sw_code rc = SW_MEM_GET(&f, 1, "table", err);

    if (rc != SW_OK) return rc;
    f->rng.state = 1;
    for (int i = 0; i < TABLE; i++)
        f->table[i] = sw_bf16_encode((float)(0.02 * test_gauss(&f->rng)));
    if ((rc = sw_st_writer_new(&f->w, dir, 0, err)) == SW_OK &&
        (rc = visit_all(s, declare, f->w, err)) == SW_OK &&
        (rc = sw_st_writer_begin(f->w, err)) == SW_OK && (rc = visit_all(s, fill, f, err)) == SW_OK)
        rc = sw_st_writer_commit(f->w, err);
    sw_st_writer_free(f->w);
    sw_mem_put(f);
    return rc;
}

static sw_code write_rest(const char *dir, const shape *s, sw_err *err)
{
    char path[SW_PATH_BYTES], text[1024];
    static uint16_t ids[N_TOKENS];
    test_rng rng = {2};
    sw_code rc;
    int n = snprintf(text, sizeof text,
                     "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
                     " \"hidden_size\": %" PRId64 ", \"intermediate_size\": %" PRId64 ",\n"
                     " \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64 ",\n"
                     " \"num_key_value_heads\": %" PRId64 ", \"vocab_size\": %" PRId64 ",\n"
                     " \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-05,\n"
                     " \"rope_theta\": 10000.0, \"hidden_act\": \"silu\",\n"
                     " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}\n",
                     s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads, s->vocab);

    for (int i = 0; i < N_TOKENS; i++) ids[i] = (uint16_t)(test_u64(&rng) % (uint64_t)s->vocab);
    if ((rc = sw_path_join(path, dir, "config.json", err)) != SW_OK ||
        (rc = sw_file_put(path, text, (size_t)n, err)) != SW_OK ||
        (rc = sw_path_join(path, dir, "tokens.u16", err)) != SW_OK)
        return rc;
    return sw_file_put(path, ids, sizeof ids, err);
}

int main(int argc, char *argv[])
{
    int64_t v[6];
    sw_err err = {0};
    shape s;

    if (argc != 8) {
        fprintf(stderr, "synthetic_model DIR HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS VOCAB\n");
        return 2;
    }
    for (int i = 0; i < 6; i++) v[i] = strtoll(argv[i + 2], NULL, 10);
    s = (shape){v[0], v[1], v[2], v[3], v[4], v[5]};
    (void)mkdir(argv[1], 0755);
    if (write_weights(argv[1], &s, &err) == SW_OK && write_rest(argv[1], &s, &err) == SW_OK)
        return 0;
    fprintf(stderr, "synthetic_model: %s\n", err.text);
    return 1;
}
