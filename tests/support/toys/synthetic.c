/* synthetic.c - see synthetic.h.
 *
 * A family is a list of tensors whose sides are named sizes; a shape is the numbers. Vocabularies
 * are 32000, whatever the model's own: token ids then fit 16 bits, and what is measured are the
 * blocks.
 */
#include "tests/support/toys/synthetic.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/print_buf.h"

/* '*' in a name stands for each expert. */
typedef struct part {
    const char *name;
    synthetic_size rows, cols;
    float value;
} part;

typedef struct key {
    const char *name;
    synthetic_size size;
} key;

struct synthetic_family {
    const char *model_type, *architecture;
    const part *parts; /* of a block, up to one without a name */
    const key *keys;   /* of config.json, besides those of all; likewise */
    const char *also;  /* further members of it */
};

#define NORMS \
    {"input_layernorm.weight", SYN_HIDDEN, SYN_NONE, 1}, \
    {"post_attention_layernorm.weight", SYN_HIDDEN, SYN_NONE, 1}
#define ATTENTION \
    {"self_attn.q_proj.weight", SYN_Q, SYN_HIDDEN, 0}, \
    {"self_attn.k_proj.weight", SYN_KV, SYN_HIDDEN, 0}, \
    {"self_attn.v_proj.weight", SYN_KV, SYN_HIDDEN, 0}, \
    {"self_attn.o_proj.weight", SYN_HIDDEN, SYN_Q, 0}
#define MLP(at, width) \
    {at "gate_proj.weight", width, SYN_HIDDEN, 0}, \
    {at "up_proj.weight", width, SYN_HIDDEN, 0}, \
    {at "down_proj.weight", SYN_HIDDEN, width, 0}

static const part llama_parts[] = {NORMS, ATTENTION, MLP("mlp.", SYN_WIDTH), {0}};
static const part mixtral_parts[] = {
    NORMS,
    ATTENTION,
    {"block_sparse_moe.gate.weight", SYN_EXPERTS, SYN_HIDDEN, 0},
    {"block_sparse_moe.experts.*.w1.weight", SYN_WIDTH, SYN_HIDDEN, 0},
    {"block_sparse_moe.experts.*.w3.weight", SYN_WIDTH, SYN_HIDDEN, 0},
    {"block_sparse_moe.experts.*.w2.weight", SYN_HIDDEN, SYN_WIDTH, 0},
    {0},
};
static const part qwen3_moe_parts[] = {
    NORMS,
    ATTENTION,
    {"self_attn.q_norm.weight", SYN_HEAD, SYN_NONE, 1},
    {"self_attn.k_norm.weight", SYN_HEAD, SYN_NONE, 1},
    {"mlp.gate.weight", SYN_EXPERTS, SYN_HIDDEN, 0},
    MLP("mlp.experts.*.", SYN_EXPERT_WIDTH),
    {0},
};
static const part deepseek_v3_parts[] = {
    NORMS,
    {"self_attn.q_a_proj.weight", SYN_Q_RANK, SYN_HIDDEN, 0},
    {"self_attn.q_a_layernorm.weight", SYN_Q_RANK, SYN_NONE, 1},
    {"self_attn.q_b_proj.weight", SYN_Q_UP, SYN_Q_RANK, 0},
    {"self_attn.kv_a_proj_with_mqa.weight", SYN_KV_DOWN, SYN_HIDDEN, 0},
    {"self_attn.kv_a_layernorm.weight", SYN_KV_RANK, SYN_NONE, 1},
    {"self_attn.kv_b_proj.weight", SYN_KV_UP, SYN_KV_RANK, 0},
    {"self_attn.o_proj.weight", SYN_HIDDEN, SYN_O_IN, 0},
    {"mlp.gate.weight", SYN_EXPERTS, SYN_HIDDEN, 0},
    {"mlp.gate.e_score_correction_bias", SYN_EXPERTS, SYN_NONE, 0},
    MLP("mlp.shared_experts.", SYN_EXPERT_WIDTH),
    MLP("mlp.experts.*.", SYN_EXPERT_WIDTH),
    {0},
};

static const key common_keys[] = {
    {"hidden_size", SYN_HIDDEN},          {"intermediate_size", SYN_WIDTH},
    {"num_hidden_layers", SYN_LAYERS},    {"num_attention_heads", SYN_HEADS},
    {"num_key_value_heads", SYN_KV_HEADS}, {"head_dim", SYN_HEAD},
    {"vocab_size", SYN_VOCAB},            {NULL, SYN_NONE},
};
static const key llama_keys[] = {{NULL, SYN_NONE}};
static const key mixtral_keys[] = {
    {"num_local_experts", SYN_EXPERTS}, {"num_experts_per_tok", SYN_TOP}, {NULL, SYN_NONE}};
static const key qwen3_moe_keys[] = {{"num_experts", SYN_EXPERTS},
                                     {"num_experts_per_tok", SYN_TOP},
                                     {"moe_intermediate_size", SYN_EXPERT_WIDTH},
                                     {NULL, SYN_NONE}};
static const key deepseek_v3_keys[] = {
    {"n_routed_experts", SYN_EXPERTS}, {"num_experts_per_tok", SYN_TOP},
    {"moe_intermediate_size", SYN_EXPERT_WIDTH}, {"q_lora_rank", SYN_Q_RANK},
    {"kv_lora_rank", SYN_KV_RANK}, {"qk_nope_head_dim", SYN_NOPE},
    {"qk_rope_head_dim", SYN_ROPE}, {"v_head_dim", SYN_VALUE},
    {"n_group", SYN_GROUPS}, {"topk_group", SYN_TOP_GROUPS}, {NULL, SYN_NONE}};

static const synthetic_family llama = {"llama", "LlamaForCausalLM", llama_parts, llama_keys, ""};
static const synthetic_family mixtral = {"mixtral", "MixtralForCausalLM", mixtral_parts,
                                         mixtral_keys, ""};
static const synthetic_family qwen3_moe = {
    "qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe_parts, qwen3_moe_keys,
    ", \"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": []"};
static const synthetic_family deepseek_v3 = {
    "deepseek_v3", "DeepseekV3ForCausalLM", deepseek_v3_parts, deepseek_v3_keys,
    ", \"first_k_dense_replace\": 0, \"n_shared_experts\": 1, \"norm_topk_prob\": true,"
    " \"routed_scaling_factor\": 2.5, \"num_nextn_predict_layers\": 0, \"attention_bias\": false"};

/* Of the large shapes and, for tests, of toys of the same families. */
static const synthetic shapes[] = {
    {"8b", &llama, {[SYN_HIDDEN] = 4096, [SYN_WIDTH] = 14336, [SYN_LAYERS] = 32, [SYN_HEADS] = 32,
                    [SYN_KV_HEADS] = 8, [SYN_HEAD] = 128, [SYN_VOCAB] = 32000}},
    {"70b", &llama, {[SYN_HIDDEN] = 8192, [SYN_WIDTH] = 28672, [SYN_LAYERS] = 80, [SYN_HEADS] = 64,
                     [SYN_KV_HEADS] = 8, [SYN_HEAD] = 128, [SYN_VOCAB] = 32000}},
    {"30b-a3b", &qwen3_moe,
     {[SYN_HIDDEN] = 2048, [SYN_WIDTH] = 6144, [SYN_LAYERS] = 48, [SYN_HEADS] = 32,
      [SYN_KV_HEADS] = 4, [SYN_HEAD] = 128, [SYN_VOCAB] = 32000, [SYN_EXPERTS] = 128, [SYN_TOP] = 8,
      [SYN_EXPERT_WIDTH] = 768}},
    {"deepseek-v3", &deepseek_v3,
     {[SYN_HIDDEN] = 7168, [SYN_WIDTH] = 18432, [SYN_LAYERS] = 61, [SYN_HEADS] = 128,
      [SYN_KV_HEADS] = 128, [SYN_HEAD] = 64, [SYN_VOCAB] = 32000, [SYN_EXPERTS] = 256,
      [SYN_TOP] = 8, [SYN_EXPERT_WIDTH] = 2048, [SYN_Q_RANK] = 1536, [SYN_KV_RANK] = 512,
      [SYN_NOPE] = 128, [SYN_ROPE] = 64, [SYN_VALUE] = 128, [SYN_GROUPS] = 8,
      [SYN_TOP_GROUPS] = 4}},
    {"toy", &llama, {[SYN_HIDDEN] = 128, [SYN_WIDTH] = 256, [SYN_LAYERS] = 4, [SYN_HEADS] = 4,
                     [SYN_KV_HEADS] = 2, [SYN_HEAD] = 32, [SYN_VOCAB] = 320}},
    {"toy-moe", &qwen3_moe,
     {[SYN_HIDDEN] = 128, [SYN_WIDTH] = 256, [SYN_LAYERS] = 4, [SYN_HEADS] = 4, [SYN_KV_HEADS] = 2,
      [SYN_HEAD] = 32, [SYN_VOCAB] = 320, [SYN_EXPERTS] = 4, [SYN_TOP] = 2,
      [SYN_EXPERT_WIDTH] = 128}},
    {"toy-deepseek", &deepseek_v3,
     {[SYN_HIDDEN] = 128, [SYN_WIDTH] = 256, [SYN_LAYERS] = 4, [SYN_HEADS] = 4, [SYN_KV_HEADS] = 4,
      [SYN_HEAD] = 16, [SYN_VOCAB] = 320, [SYN_EXPERTS] = 4, [SYN_TOP] = 2,
      [SYN_EXPERT_WIDTH] = 128, [SYN_Q_RANK] = 128, [SYN_KV_RANK] = 128, [SYN_NOPE] = 16,
      [SYN_ROPE] = 16, [SYN_VALUE] = 32, [SYN_GROUPS] = 2, [SYN_TOP_GROUPS] = 1}},
};

sw_code synthetic_find(synthetic *out, const char *name, sw_err *err)
{
    char names[160] = "";

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t at = strlen(names);

        if (!strcmp(shapes[i].name, name)) {
            *out = shapes[i];
            return SW_OK;
        }
        (void)snprintf(names + at, sizeof names - at, " %s", shapes[i].name);
    }
    return SW_FAIL(err, SW_E_USAGE, "no shape %s; there are%s", name, names);
}

synthetic synthetic_of(const int64_t sizes[6], int64_t experts)
{
    return (synthetic){
        "", experts ? &mixtral : &llama,
        {[SYN_HIDDEN] = sizes[0], [SYN_WIDTH] = sizes[1], [SYN_LAYERS] = sizes[2],
         [SYN_HEADS] = sizes[3], [SYN_KV_HEADS] = sizes[4], [SYN_HEAD] = sizes[0] / sizes[3],
         [SYN_VOCAB] = sizes[5], [SYN_EXPERTS] = experts, [SYN_TOP] = experts ? 2 : 0}};
}

/* The sizes that follow from others. */
static void derive(int64_t size[SYN_SIZES], const synthetic *s)
{
    memcpy(size, s->size, sizeof s->size);
    size[SYN_Q] = size[SYN_HEADS] * size[SYN_HEAD];
    size[SYN_KV] = size[SYN_KV_HEADS] * size[SYN_HEAD];
    size[SYN_Q_UP] = size[SYN_HEADS] * (size[SYN_NOPE] + size[SYN_ROPE]);
    size[SYN_KV_DOWN] = size[SYN_KV_RANK] + size[SYN_ROPE];
    size[SYN_KV_UP] = size[SYN_HEADS] * (size[SYN_NOPE] + size[SYN_VALUE]);
    size[SYN_O_IN] = size[SYN_HEADS] * size[SYN_VALUE];
}

/* A list to count, where `at` is NULL, and then to fill. */
typedef struct list {
    synthetic_tensor *at;
    int64_t n;
} list;

static void add(list *l, const int64_t size[SYN_SIZES], const part *p, int64_t layer,
                int64_t expert)
{
    synthetic_tensor *t = l->at ? &l->at[l->n] : NULL;
    const char *star = strchr(p->name, '*');
    char block[40] = "";

    l->n++;
    if (!t) return;
    *t = (synthetic_tensor){.rows = size[p->rows], .cols = size[p->cols], .value = p->value};
    if (layer >= 0) (void)snprintf(block, sizeof block, "model.layers.%" PRId64 ".", layer);
    if (star)
        (void)snprintf(t->name, sizeof t->name, "%s%.*s%" PRId64 "%s", block,
                       (int)(star - p->name), p->name, expert, star + 1);
    else
        (void)snprintf(t->name, sizeof t->name, "%s%s", block, p->name);
}

/* An expert's tensors lie together: parts with a star follow each other. */
static const part *add_experts(list *l, const int64_t size[SYN_SIZES], const part *first,
                               int64_t layer)
{
    const part *end = first;

    while (end->name && strchr(end->name, '*')) end++;
    for (int64_t e = 0; e < size[SYN_EXPERTS]; e++)
        for (const part *p = first; p < end; p++) add(l, size, p, layer, e);
    return end;
}

static void list_all(list *l, const synthetic *s)
{
    static const part before = {"model.embed_tokens.weight", SYN_VOCAB, SYN_HIDDEN, 0};
    static const part after[] = {{"model.norm.weight", SYN_HIDDEN, SYN_NONE, 1},
                                 {"lm_head.weight", SYN_VOCAB, SYN_HIDDEN, 0}};
    int64_t size[SYN_SIZES];

    derive(size, s);
    l->n = 0;
    add(l, size, &before, -1, 0);
    for (int64_t layer = 0; layer < size[SYN_LAYERS]; layer++)
        for (const part *p = s->family->parts; p->name;) {
            if (strchr(p->name, '*'))
                p = add_experts(l, size, p, layer);
            else
                add(l, size, p++, layer, 0);
        }
    for (int i = 0; i < 2; i++) add(l, size, &after[i], -1, 0);
}

sw_code synthetic_tensors(synthetic_tensor **out, int64_t *n_out, const synthetic *s, sw_err *err)
{
    list l = {0};
    sw_code rc;

    list_all(&l, s);
    if ((rc = SW_MEM_GET(&l.at, l.n, "list of tensors", err)) != SW_OK) return rc;
    list_all(&l, s);
    *out = l.at;
    *n_out = l.n;
    return SW_OK;
}

static sw_code print_keys(sw_print_buf *buf, const key *keys, const synthetic *s, sw_err *err)
{
    sw_code rc = SW_OK;

    for (; keys->name && rc == SW_OK; keys++)
        rc = sw_print_fmt(buf, err, ",\n \"%s\": %" PRId64, keys->name, s->size[keys->size]);
    return rc;
}

sw_code synthetic_config(char **out, const synthetic *s, sw_err *err)
{
    sw_print_buf buf = {0};
    sw_code rc = sw_print_fmt(
        &buf, err,
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"torch_dtype\": \"bfloat16\",\n"
        " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0,\n"
        " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false",
        s->family->architecture, s->family->model_type);

    if (rc == SW_OK) rc = sw_print_add(&buf, s->family->also, strlen(s->family->also), err);
    if (rc == SW_OK) rc = print_keys(&buf, common_keys, s, err);
    if (rc == SW_OK) rc = print_keys(&buf, s->family->keys, s, err);
    if (rc == SW_OK) {
        *out = buf.at;
        return SW_OK;
    }
    sw_mem_put(buf.at);
    return rc;
}
