/* hooks_plain.c - biases that tensors tell of, and families with layer norms. See gguf_keys.h. */
#include <string.h>

#include "formats/gguf/keys/gguf_keys.h"
#include "formats/model/programs.h"

typedef sw_gguf_config_writer writer;
typedef sw_gguf_config_reader reader;

/* A tensor whose presence tells what config.json has to say. */
typedef struct told {
    const char *model_type, *tensor, *json;
} told;
static const told tolds[] = {
    {"llama", "blk.0.attn_q.bias", "attention_bias"},
    {"llama", "blk.0.ffn_gate.bias", "mlp_bias"},
    {"qwen3", "blk.0.attn_q.bias", "attention_bias"},
    {"glm4", "blk.0.attn_q.bias", "attention_bias"},
    {"glm4_moe", "blk.0.attn_q.bias", "attention_bias"},
    {"glm4_moe", "blk.0.attn_q_norm.weight", "use_qk_norm"},
    {"olmo2", "blk.0.attn_q.bias", "attention_bias"},
    {"smollm3", "blk.0.attn_q.bias", "attention_bias"},
    {"smollm3", "blk.0.ffn_gate.bias", "mlp_bias"},
    {"granite", "blk.0.attn_q.bias", "attention_bias"},
    {"granite", "blk.0.ffn_gate.bias", "mlp_bias"},
    {"ernie4_5", "blk.0.attn_q.bias", "use_bias"},
    {"ernie4_5_moe", "blk.0.attn_q.bias", "use_bias"},
    {"hunyuan_v1_dense", "blk.0.attn_q.bias", "attention_bias"},
    {"hunyuan_v1_moe", "blk.0.attn_q.bias", "attention_bias"},
    {"seed_oss", "blk.0.attn_q.bias", "attention_bias"},
    {"seed_oss", "blk.0.attn_output.bias", "attention_out_bias"},
    {"starcoder2", "blk.0.attn_q.bias", "use_bias"},
    {"stablelm", "blk.0.attn_q.bias", "use_qkv_bias"},
    {"stablelm", "blk.0.attn_q_norm.weight", "qk_layernorm"},
    {"gpt_neox", "blk.0.attn_qkv.bias", "attention_bias"},
    {"falcon", "blk.0.attn_qkv.bias", "bias"},
};

static sw_code read_biased(reader *r)
{
    sw_code rc = SW_OK;

    for (size_t i = 0; i < sizeof tolds / sizeof *tolds && rc == SW_OK; i++)
        if (!strcmp(tolds[i].model_type, r->arch->model_type))
            rc = sw_gguf_add_bool(r, tolds[i].json, sw_gguf_has_tensor(r, tolds[i].tensor));
    return rc;
}

const sw_gguf_hooks sw_gguf_hooks_biased = {.read = read_biased};

/* --- layer norms ---------------------------------------------------------------------------- */

static bool is_of(const sw_model *m, int kind) { return m->kind[0] == kind; }

static sw_code write_stablelm(const writer *c)
{
    const bool is_parallel = is_of(c->m, SW_KIND_PARALLEL) ||
                             is_of(c->m, SW_KIND_WITH_HEAD_NORMS + SW_KIND_PARALLEL);

    if (c->m->is_tied) return sw_gguf_refuse(c, "expect a head of its own");
    return sw_gguf_write_bool(c, "use_parallel_residual", is_parallel);
}

static sw_code read_stablelm(reader *r)
{
    sw_code rc = sw_gguf_add_bool(r, "use_parallel_residual",
                                  !sw_gguf_has_tensor(r, "blk.0.ffn_norm.weight"));

    return rc ? rc : read_biased(r);
}

const sw_gguf_hooks sw_gguf_hooks_stablelm = {.write = write_stablelm, .read = read_stablelm};

static sw_code write_gpt_neox(const writer *c)
{
    if (!c->m->has_qkv_bias || c->m->is_tied)
        return sw_gguf_refuse(c, "expect biases and a head of its own");
    return sw_gguf_write_bool(c, "use_parallel_residual", is_of(c->m, SW_KIND_PARALLEL));
}

static sw_code read_gpt_neox(reader *r)
{
    char key[SW_GGUF_KEY_BYTES];
    bool is_parallel = true;
    sw_code rc = sw_gguf_bool(&is_parallel, r->g, sw_gguf_key_of(key, r, "use_parallel_residual"),
                              r->err);

    if (rc == SW_OK) rc = sw_gguf_add_bool(r, "use_parallel_residual", is_parallel);
    return rc ? rc : read_biased(r);
}

const sw_gguf_hooks sw_gguf_hooks_gpt_neox = {.write = write_gpt_neox, .read = read_gpt_neox};

static sw_code write_falcon(const writer *c)
{
    if (is_of(c->m, SW_KIND_SERIAL))
        return sw_gguf_refuse(c, "expect attention and MLP beside each other");
    if (c->m->has_qkv_bias) return sw_gguf_refuse(c, "know no biases");
    return sw_gguf_write_text(c, "tensor_data_layout", "jploski");
}

/* The newer models have several groups of keys, and one norm or two. */
static sw_code read_falcon(reader *r)
{
    const bool has_two = sw_gguf_has_tensor(r, "blk.0.attn_norm_2.weight");
    int64_t heads = 0, kv_heads = 0;
    sw_code rc;

    if ((rc = sw_gguf_read_count(&heads, r, "attention.head_count", SW_GGUF_REQUIRED)) != SW_OK ||
        (rc = sw_gguf_read_count(&kv_heads, r, "attention.head_count_kv", (double)heads)) ||
        (rc = sw_gguf_add_bool(r, "new_decoder_architecture", has_two || kv_heads > 1)) != SW_OK ||
        (rc = sw_gguf_add_bool(r, "multi_query", kv_heads == 1)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "num_kv_heads", kv_heads)) != SW_OK ||
        (rc = sw_gguf_add_bool(r, "parallel_attn", true)) != SW_OK ||
        (rc = sw_gguf_add_bool(r, "alibi", false)) != SW_OK ||
        (rc = sw_gguf_add_int(r, "num_ln_in_parallel_attn", has_two ? 2 : 1)) != SW_OK)
        return rc;
    return read_biased(r);
}

const sw_gguf_hooks sw_gguf_hooks_falcon = {.write = write_falcon, .read = read_falcon};
