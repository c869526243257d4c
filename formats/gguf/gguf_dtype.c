/* gguf_dtype.c - see gguf_dtype.h. */
#include "formats/gguf/gguf_dtype.h"

#include <string.h>

#include "formats/gguf/gguf_config.h"
#include "formats/num/blocks.h"
#include "formats/num/num.h"

static const struct {
    sw_block_type type;
    sw_dtype dtype;
    const char *text; /* as torch_dtype has it */
} plain_types[] = {
    {SW_BLOCK_F32, SW_DTYPE_F32, "float32"},
    {SW_BLOCK_F16, SW_DTYPE_F16, "float16"},
    {SW_BLOCK_BF16, SW_DTYPE_BF16, "bfloat16"},
};
enum { F32, F16, BF16, N_PLAIN };

/* Return whether every value of this F32 tensor would be the same after rounding to `dtype`. */
static bool fits(const sw_gguf_tensor *t, const sw_gguf_name *how, sw_dtype dtype)
{
    for (int64_t i = 0; i < (int64_t)(t->size_bytes / 4); i++) {
        float stored, value;

        sw_block_decode(&stored, (const char *)t->data + 4 * i, SW_BLOCK_F32, 1);
        value = stored;
        sw_gguf_read_values(&value, how, 1);
        value = sw_num_round_to(value, dtype);
        sw_gguf_store_values(&value, how, 1);
        if (value != stored) return false;
    }
    return true;
}

/* Tell by its name how a vector is stored: in these families the file has 1 plus what the model has
 * for a norm. */
static sw_gguf_name vector_of(const sw_gguf *g, const sw_gguf_tensor *t)
{
    static const char *const archs[] = {"gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe"};
    const sw_gguf_value *v = sw_gguf_key(g, "general.architecture");
    sw_gguf_name how = {.kind = SW_GGUF_SAME};

    if (!strstr(t->name, "norm.weight") || strstr(t->name, "ssm_norm") || !v ||
        v->kind != SW_GGUF_TEXT)
        return how;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (v->n == strlen(archs[i]) && !memcmp(v->data, archs[i], (size_t)v->n))
            how = (sw_gguf_name){.kind = SW_GGUF_OFFSET, .offset = 1.0};
    return how;
}

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

/* Return whether this is a vector of the model: scales and factors of blocks are none. */
static bool is_vector(const sw_gguf_tensor *t)
{
    return t->n_dims == 1 && t->type == SW_BLOCK_F32 && strcmp(t->name, SW_GGUF_ROPE_TENSOR) &&
           !ends_in(t->name, "scale") && !ends_in(t->name, "ssm_a");
}

/* Return the 16-bit float type that holds every vector of the file without rounding. */
static int half_of_vectors(const sw_gguf *g)
{
    bool holds[N_PLAIN] = {true, true, true};

    for (int64_t i = 0; i < sw_gguf_count(g); i++) {
        const sw_gguf_tensor *t = sw_gguf_at(g, i);

        const sw_gguf_name how = vector_of(g, t);

        for (int p = F16; p < N_PLAIN && is_vector(t); p++)
            holds[p] = holds[p] && fits(t, &how, plain_types[p].dtype);
    }
    return holds[F16] && !holds[BF16] ? F16 : BF16;
}

/* Converters keep these tensors of a layer in F32, so they do not tell what the model had. */
static bool is_always_wide(const sw_gguf_tensor *t)
{
    static const char *const parts[] = {"ffn_gate_inp", ".ssm_conv", ".ssm_a", ".ssm_b", ".ssm_d",
                                        ".ssm_norm", ".ssm_f", ".ssm_g", "shortconv.conv"};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(t->name, parts[i])) return true;
    return false;
}

sw_dtype sw_gguf_model_dtype(const sw_gguf *g)
{
    uint64_t elems[N_PLAIN] = {0}, in_blocks = 0;
    int most = 0;

    for (int64_t i = 0; i < sw_gguf_count(g); i++) {
        const sw_gguf_tensor *t = sw_gguf_at(g, i);
        const sw_block_size *size = &sw_block_sizes[t->type];
        const uint64_t n = t->size_bytes / (uint64_t)size->bytes * (uint64_t)size->elems;

        if (t->n_dims == 1 || strncmp(t->name, "blk.", 4) || is_always_wide(t)) continue;
        for (int p = 0; p < N_PLAIN; p++)
            if (t->type == plain_types[p].type) elems[p] += n;
        if (size->elems > 1) in_blocks += n;
    }
    for (int p = 0; p < N_PLAIN; p++)
        if (elems[p] > elems[most]) most = p;
    if (elems[most] < in_blocks) most = half_of_vectors(g);
    return plain_types[most].dtype;
}

const char *sw_gguf_dtype_text(sw_dtype dtype)
{
    for (int p = 0; p < N_PLAIN; p++)
        if (plain_types[p].dtype == dtype) return plain_types[p].text;
    return "float32";
}

sw_dtype sw_gguf_dtype_of(const sw_gguf_tensor *t, const sw_gguf_name *name, sw_dtype model)
{
    if (t->type == SW_BLOCK_F32 && !name->is_linear && !name->is_table)
        return fits(t, name, model) ? model : SW_DTYPE_F32;
    for (int p = 0; p < N_PLAIN; p++)
        if (t->type == plain_types[p].type) return plain_types[p].dtype;
    return SW_DTYPE_F32;
}
