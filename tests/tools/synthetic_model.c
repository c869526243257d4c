/* synthetic_model.c - write a Llama- or Mixtral-shaped model of random weights, to measure memory
 * and time.
 *
 *   synthetic_model DIR HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS VOCAB [DIALECT | experts=N]
 *
 * bf16, untied, in one file, with tokens.u16 beside it: random ids for --calib. With a dialect the
 * linears of the blocks are random 4-bit codes under scales of groups of 128 instead, the same in
 * every block, in shards. Of N experts a token uses two. The same arguments give the same bytes.
 * Exit code 1 says on stderr what went wrong.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/mem.h"
#include "formats/dialect/dialect.h"
#include "formats/file/config_text.h"
#include "formats/file/safetensors.h"
#include "formats/num/half.h"
#include "tests/support/toys/random.h"

#define N_TOKENS 65536
#define SHARD_BYTES ((uint64_t)5 << 30)
#define TABLE 65536 /* weights are drawn from a table of normal deviates: fast, and as good here */

typedef struct shape {
    int64_t hidden, intermediate, layers, heads, kv_heads, vocab;
    const sw_dialect *dialect; /* NULL: bf16 */
    int64_t experts;           /* 0: none */
} shape;

typedef sw_code (*visit_fn)(void *ctx, const char *name, int64_t rows, int64_t cols, sw_err *err);

typedef struct tensor {
    const char *name;
    int64_t rows, cols;
} tensor;

static sw_code visit_experts(const shape *s, int64_t layer, visit_fn visit, void *ctx, sw_err *err)
{
    const tensor tensors[] = {{"w1", s->intermediate, s->hidden},
                              {"w3", s->intermediate, s->hidden},
                              {"w2", s->hidden, s->intermediate}};
    char name[160];
    sw_code rc;

    (void)snprintf(name, sizeof name, "model.layers.%" PRId64 ".block_sparse_moe.gate.weight",
                   layer);
    rc = visit(ctx, name, s->experts, s->hidden, err);
    for (int64_t i = 0; i < 3 * s->experts && rc == SW_OK; i++) {
        const tensor *t = &tensors[i % 3];
        (void)snprintf(name, sizeof name,
                       "model.layers.%" PRId64 ".block_sparse_moe.experts.%" PRId64 ".%s.weight",
                       layer, i / 3, t->name);
        rc = visit(ctx, name, t->rows, t->cols, err);
    }
    return rc;
}

static sw_code visit_layer(const shape *s, int64_t layer, visit_fn visit, void *ctx, sw_err *err)
{
    const int64_t kv = s->hidden / s->heads * s->kv_heads;
    const tensor tensors[] = {
        {"self_attn.q_proj", s->hidden, s->hidden}, {"self_attn.k_proj", kv, s->hidden},
        {"self_attn.v_proj", kv, s->hidden},        {"self_attn.o_proj", s->hidden, s->hidden},
        {"input_layernorm", s->hidden, 0},          {"post_attention_layernorm", s->hidden, 0},
        {"mlp.gate_proj", s->intermediate, s->hidden}, {"mlp.up_proj", s->intermediate, s->hidden},
        {"mlp.down_proj", s->hidden, s->intermediate},
    };
    const size_t n = sizeof tensors / sizeof *tensors - (s->experts ? 3 : 0);
    sw_code rc = s->experts ? visit_experts(s, layer, visit, ctx, err) : SW_OK;

    for (size_t i = 0; i < n && rc == SW_OK; i++) {
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

/* What is written, with the encoded linears of one block, which all blocks have. */
#define SHAPES_MAX 8
typedef struct encoded {
    int64_t rows, cols;
    void *parts[SW_DIALECT_TENSORS_MAX];
} encoded;

typedef struct filler {
    sw_st_writer *w;
    const sw_dialect *dialect;
    sw_qspec spec;
    encoded linears[SHAPES_MAX];
    uint16_t table[TABLE];
    test_rng rng;
} filler;

static bool is_packed(const filler *f, const char *name)
{
    return f->dialect && strstr(name, "_proj.");
}

/* Part `i` of the linear whose dense name is `name`. */
static void part_name(char out[192], const char *name, const sw_part *part)
{
    (void)snprintf(out, 192, "%.*s.%s", (int)(strrchr(name, '.') - name), name, part->suffix);
}

static sw_code declare(void *ctx, const char *name, int64_t rows, int64_t cols, sw_err *err)
{
    const filler *f = ctx;
    const int64_t dims[] = {rows, cols};
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    sw_code rc = SW_OK;
    int n;

    if (!is_packed(f, name))
        return sw_st_writer_declare(f->w, name, SW_DTYPE_BF16, cols ? 2 : 1, dims, err);
    n = f->dialect->declare(parts, &f->spec, rows, cols);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        char at[192];
        part_name(at, name, &parts[i]);
        rc = sw_st_writer_declare(f->w, at, parts[i].dtype, parts[i].n_dims, parts[i].shape, err);
    }
    return rc;
}

static sw_code encode(encoded *e, filler *f, int64_t rows, int64_t cols, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = f->dialect->declare(parts, &f->spec, rows, cols);
    sw_qtensor q = {0};
    sw_code rc = sw_qtensor_alloc(&q, &f->spec, rows, cols, err);

    for (int64_t i = 0; rc == SW_OK && i < rows * cols; i++)
        q.codes[i] = (uint8_t)(test_u64(&f->rng) & 15);
    for (int64_t i = 0; rc == SW_OK && i < rows * q.n_groups; i++)
        q.scales[i] = sw_num_round_to((float)(0.001 + 0.01 * test_uniform(&f->rng)),
                                      f->spec.scale_dtype);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        uint64_t n_bytes = 0;
        if ((rc = sw_shape_bytes(&n_bytes, parts[i].dtype, parts[i].n_dims, parts[i].shape,
                                 err)) == SW_OK)
            rc = sw_mem_get(&e->parts[i], (int64_t)n_bytes, 1, "parts", err);
    }
    if (rc == SW_OK) rc = f->dialect->encode(e->parts, &q, err);
    e->rows = rows;
    e->cols = cols;
    sw_qtensor_free(&q);
    return rc;
}

static sw_code fill_packed(filler *f, const char *name, int64_t rows, int64_t cols, sw_err *err)
{
    sw_part parts[SW_DIALECT_TENSORS_MAX];
    int n = f->dialect->declare(parts, &f->spec, rows, cols);
    encoded *e = f->linears;
    sw_code rc = SW_OK;

    while (e->rows && (e->rows != rows || e->cols != cols)) e++;
    if (!e->rows) rc = encode(e, f, rows, cols, err);
    for (int i = 0; i < n && rc == SW_OK; i++) {
        uint64_t n_bytes = 0;
        char at[192];
        part_name(at, name, &parts[i]);
        if ((rc = sw_shape_bytes(&n_bytes, parts[i].dtype, parts[i].n_dims, parts[i].shape,
                                 err)) == SW_OK)
            rc = sw_st_writer_put(f->w, at, e->parts[i], (size_t)n_bytes, err);
    }
    return rc;
}

static sw_code fill(void *ctx, const char *name, int64_t rows, int64_t cols, sw_err *err)
{
    filler *f = ctx;
    int64_t n = cols ? rows * cols : rows;
    uint16_t *data = NULL;
    sw_code rc;

    if (is_packed(f, name)) return fill_packed(f, name, rows, cols, err);
    if ((rc = SW_MEM_GET(&data, n, "weights", err)) != SW_OK) return rc;
    for (int64_t i = 0; i < n; i++)
        data[i] = cols ? f->table[test_u64(&f->rng) % TABLE] : sw_bf16_encode(1.0f);
    rc = sw_st_writer_put(f->w, name, data, (size_t)n * sizeof *data, err);
    sw_mem_put(data);
    return rc;
}

static sw_qspec synthetic_spec(const sw_dialect *dialect)
{
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 128};

    if (dialect) spec.scale_dtype = dialect->scale_dtype(SW_DTYPE_BF16);
    return spec;
}

/* ", "quantization_config": {...}" or nothing; owned by the caller. */
static sw_code config_text(char **out, const sw_dialect *dialect, sw_err *err)
{
    static const char *const head[] = {"lm_head"};
    const sw_qconfig config = {.spec = synthetic_spec(dialect), .ignore = head, .n_ignore = 1};
    cJSON *object = NULL;
    sw_code rc = SW_OK;

    if (dialect) rc = dialect->write_config(&object, &config, err);
    if (rc == SW_OK && object) rc = sw_json_pretty(out, object, 1, err);
    cJSON_Delete(object);
    return rc;
}

static sw_code write_weights(const char *dir, const shape *s, sw_err *err)
{
    filler *f = NULL;
    sw_code rc = SW_MEM_GET(&f, 1, "table", err);

    if (rc != SW_OK) return rc;
    f->rng.state = 1;
    f->dialect = s->dialect;
    f->spec = synthetic_spec(s->dialect);
    for (int i = 0; i < TABLE; i++)
        f->table[i] = sw_bf16_encode((float)(0.02 * test_gauss(&f->rng)));
    if ((rc = sw_st_writer_new(&f->w, dir, s->dialect ? SHARD_BYTES : 0, err)) == SW_OK &&
        (rc = visit_all(s, declare, f, err)) == SW_OK &&
        (rc = sw_st_writer_begin(f->w, err)) == SW_OK && (rc = visit_all(s, fill, f, err)) == SW_OK)
        rc = sw_st_writer_commit(f->w, err);
    sw_st_writer_free(f->w);
    for (int i = 0; i < SHAPES_MAX; i++)
        for (int p = 0; p < SW_DIALECT_TENSORS_MAX; p++) sw_mem_put(f->linears[i].parts[p]);
    sw_mem_put(f);
    return rc;
}

static sw_code write_rest(const char *dir, const shape *s, sw_err *err)
{
    char path[SW_PATH_BYTES], text[4096], *config = NULL;
    static uint16_t ids[N_TOKENS];
    test_rng rng = {2};
    sw_code rc = config_text(&config, s->dialect, err);
    int n = snprintf(text, sizeof text,
                     "{\"architectures\": [\"%s\"], \"model_type\": \"%s\",\n"
                     " \"num_local_experts\": %" PRId64 ", \"num_experts_per_tok\": 2,\n"
                     " \"hidden_size\": %" PRId64 ", \"intermediate_size\": %" PRId64 ",\n"
                     " \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64 ",\n"
                     " \"num_key_value_heads\": %" PRId64 ", \"vocab_size\": %" PRId64 ",\n"
                     " \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-05,\n"
                     " \"rope_theta\": 10000.0, \"hidden_act\": \"silu\",\n"
                     " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"%s%s}\n",
                     s->experts ? "MixtralForCausalLM" : "LlamaForCausalLM",
                     s->experts ? "mixtral" : "llama", s->experts, s->hidden, s->intermediate,
                     s->layers, s->heads, s->kv_heads, s->vocab,
                     config ? ",\n \"quantization_config\": " : "", config ? config : "");

    for (int i = 0; i < N_TOKENS; i++) ids[i] = (uint16_t)(test_u64(&rng) % (uint64_t)s->vocab);
    sw_mem_put(config);
    if (rc != SW_OK || (rc = sw_path_join(path, dir, "config.json", err)) != SW_OK ||
        (rc = sw_file_put(path, text, (size_t)n, err)) != SW_OK ||
        (rc = sw_path_join(path, dir, "tokens.u16", err)) != SW_OK)
        return rc;
    return sw_file_put(path, ids, sizeof ids, err);
}

int main(int argc, char *argv[])
{
    int64_t v[6];
    sw_err err = {0};
    const char *kind = argc == 9 ? argv[8] : NULL;
    const int64_t experts = kind && !strncmp(kind, "experts=", 8) ? strtoll(kind + 8, NULL, 10) : 0;
    const sw_dialect *dialect = kind && !experts ? sw_dialect_find(kind) : NULL;
    shape s;

    if (argc < 8 || argc > 9 || (kind && !experts && !dialect)) {
        fprintf(stderr, "synthetic_model DIR HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS VOCAB "
                "[DIALECT | experts=N]\n");
        return 2;
    }
    for (int i = 0; i < 6; i++) v[i] = strtoll(argv[i + 2], NULL, 10);
    s = (shape){v[0], v[1], v[2], v[3], v[4], v[5], dialect, experts};
    (void)mkdir(argv[1], 0755);
    if (write_weights(argv[1], &s, &err) == SW_OK && write_rest(argv[1], &s, &err) == SW_OK)
        return 0;
    fprintf(stderr, "synthetic_model: %s\n", err.text);
    return 1;
}
