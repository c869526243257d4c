/* decode_model.c - see decode_model.h. */
#include "verify/speed/decode_model.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/size.h"

#define HEAD_OFFSET 64 /* rows: the head is the embedding's buffer from there on */
#define BF16_STORE 1   /* of sw_speed_stores */

static const struct {
    const char *name, *config;
    bool has_bf16_scales; /* as checkpoints of BF16 models have them */
} shapes[] = {
    {"1b", "{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,"
           "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
           "\"head_dim\":64,\"vocab_size\":128256,\"max_position_embeddings\":131072,"
           "\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\"}", false},
    {"8b", "{\"model_type\":\"llama\",\"hidden_size\":4096,\"intermediate_size\":14336,"
           "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
           "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
           "\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\"}", false},
    {"70b", "{\"model_type\":\"llama\",\"hidden_size\":8192,\"intermediate_size\":28672,"
            "\"num_hidden_layers\":80,\"num_attention_heads\":64,\"num_key_value_heads\":8,"
            "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
            "\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\"}", false},
    {"30b-a3b", "{\"model_type\":\"qwen3_moe\",\"hidden_size\":2048,\"intermediate_size\":6144,"
                "\"moe_intermediate_size\":768,\"num_experts\":128,\"num_experts_per_tok\":8,"
                "\"norm_topk_prob\":true,\"num_hidden_layers\":48,\"num_attention_heads\":32,"
                "\"num_key_value_heads\":4,\"head_dim\":128,\"vocab_size\":151936,"
                "\"max_position_embeddings\":40960,\"rms_norm_eps\":1e-6,"
                "\"rope_theta\":1000000.0,\"hidden_act\":\"silu\",\"torch_dtype\":\"bfloat16\"}",
     true},
    {"mixtral", "{\"model_type\":\"mixtral\",\"hidden_size\":4096,\"intermediate_size\":14336,"
                "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"num_hidden_layers\":32,"
                "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"vocab_size\":32000,"
                "\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-5,"
                "\"rope_theta\":1000000.0,\"hidden_act\":\"silu\",\"torch_dtype\":\"bfloat16\"}",
     true},
    {"gpt-oss-20b", "{\"model_type\":\"gpt_oss\",\"hidden_size\":2880,\"intermediate_size\":2880,"
                    "\"num_local_experts\":32,\"num_experts_per_tok\":4,"
                    "\"num_hidden_layers\":24,\"num_attention_heads\":64,"
                    "\"num_key_value_heads\":8,\"head_dim\":64,\"vocab_size\":201088,"
                    "\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
                    "\"rope_theta\":150000.0,\"rope_scaling\":{\"rope_type\":\"yarn\","
                    "\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,"
                    "\"original_max_position_embeddings\":4096},\"sliding_window\":128,"
                    "\"attention_bias\":true,\"swiglu_limit\":7.0,\"torch_dtype\":\"bfloat16\"}",
     true},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof *shapes))

const char *sw_decode_shape_name(int i) { return i < N_SHAPES ? shapes[i].name : NULL; }

void sw_made_up_free(sw_made_up *m)
{
    for (int i = 0; i < m->n_sets; i++) sw_speed_weights_free(&m->sets[i]);
    sw_speed_weights_free(&m->table);
    sw_arena_free(&m->arena);
}

static sw_code read_shape(sw_model *out, bool *has_bf16_scales, const char *name, sw_err *err)
{
    char all[128] = "";
    size_t used = 0;

    for (int i = 0; i < N_SHAPES; i++) {
        cJSON *config;
        sw_code rc;

        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, " %s", shapes[i].name);
        if (strcmp(shapes[i].name, name) != 0) continue;
        if ((config = cJSON_Parse(shapes[i].config)) == NULL)
            return SW_FAIL(err, SW_E_NOMEM, "the description of %s", name);
        rc = sw_model_read(out, config, err);
        cJSON_Delete(config);
        *has_bf16_scales = shapes[i].has_bf16_scales;
        return rc;
    }
    return SW_FAIL(err, SW_E_USAGE, "no shape %s; there are:%s", name, all);
}

/* A weight of this shape and store: the one that is there already, else a new one. */
static sw_code take_weight(sw_weight *out, sw_made_up *m, sw_speed_options o, int store,
                           sw_err *err)
{
    int i = 0;
    sw_code rc;

    while (i < m->n_sets && !(m->stores[i] == store && m->shapes[i].n_out == o.n_out &&
                              m->shapes[i].k_in == o.k_in))
        i++;
    if (i == SW_MADE_UP_SETS) return SW_FAIL(err, SW_E_BUG, "more shapes than a model has");
    if (i == m->n_sets) {
        if ((rc = sw_speed_weights_new(&m->sets[i], &o, store, 0, err)) != SW_OK) return rc;
        m->stores[i] = store;
        m->shapes[i] = o;
        m->n_sets++;
    }
    *out = m->sets[i].weights[0];
    return SW_OK;
}

static sw_code take_linears(sw_block *b, sw_made_up *m, const sw_speed_options *like, int store,
                            sw_err *err)
{
    const int64_t n = sw_model_linears(&m->model, b->layer, NULL, 0);
    sw_linear_ref *refs = NULL;
    sw_slot kept[SW_KEPT_MAX];
    sw_code rc = SW_ARENA_TAKE(&refs, &m->arena, n, err);

    if (rc != SW_OK) return rc;
    (void)sw_model_linears(&m->model, b->layer, refs, n);
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        const sw_linear_ref *r = &refs[i];
        sw_weight *to = r->expert < 0 ? &b->linear[r->slot]
                                      : &b->experts[r->slot - SW_SLOT_GATE][r->expert];
        sw_speed_options o = *like;

        o.n_out = r->n_out, o.k_in = r->k_in;
        rc = take_weight(to, m, o, store, err);
        if (sw_model_slot_has_bias(&m->model, r->slot)) to->bias = m->zeros;
    }
    for (int i = sw_model_kept_linears(&m->model, b->layer, kept, SW_KEPT_MAX) - 1;
         i >= 0 && rc == SW_OK; i--) {
        sw_speed_options o = *like;

        sw_model_slot_shape(&m->model, b->layer, kept[i], &o.n_out, &o.k_in);
        rc = take_weight(&b->linear[kept[i]], m, o, BF16_STORE, err);
        if (sw_model_slot_has_bias(&m->model, kept[i])) b->linear[kept[i]].bias = m->zeros;
    }
    return rc;
}

/* Weights of norms, and sinks of attention. */
static void take_vectors(sw_block *b, const sw_made_up *m)
{
    int n;
    const sw_op *ops = sw_model_ops(&m->model, b->layer, &n);

    for (int i = 0; i < n; i++)
        if (ops[i].slot < SW_SLOT_COUNT &&
            (ops[i].kind == SW_OP_RMS_NORM || ops[i].kind == SW_OP_HEAD_NORM ||
             ops[i].kind == SW_OP_ATTENTION))
            b->norm[ops[i].slot] = m->ones;
}

static sw_code make_ends(sw_made_up *m, sw_err *err)
{
    const sw_model *model = &m->model;
    const sw_speed_options o = {.n_out = model->vocab + HEAD_OFFSET, .k_in = model->hidden};
    const int64_t widest = 2 * sw_max_i64(sw_max_i64(model->hidden, model->intermediate),
                                          sw_max_i64(model->moe_intermediate, model->n_experts) +
                                              model->n_heads * model->head_dim);
    sw_code rc = sw_speed_weights_new(&m->table, &o, BF16_STORE, 0, err);

    if (rc != SW_OK) return rc;
    m->lm.model = model;
    m->lm.embed = m->table.weights[0];
    m->lm.embed.n_out = model->vocab;
    m->lm.head = m->lm.embed;
    m->lm.head.dense = (const char *)m->lm.embed.dense + HEAD_OFFSET * model->hidden * 2;
    if ((rc = SW_ARENA_TAKE(&m->ones, &m->arena, widest, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&m->zeros, &m->arena, widest, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < widest; i++) m->ones[i] = 1.0f;
    m->lm.final_norm = m->ones;
    return SW_OK;
}

sw_code sw_made_up_new(sw_made_up *m, const sw_decode_options *o, int store, sw_err *err)
{
    sw_speed_options like = {.group_elems = o->group_elems};
    sw_code rc;

    if ((rc = read_shape(&m->model, &like.has_bf16_scales, o->shape, err)) != SW_OK ||
        (rc = make_ends(m, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&m->lm.blocks, &m->arena, m->model.n_layers, err)) != SW_OK)
        return rc;
    for (int64_t l = 0; l < m->model.n_layers && rc == SW_OK; l++) {
        sw_block *b = &m->lm.blocks[l];

        b->layer = l;
        b->kv = (sw_kv_form){o->kv_kind, 1.0f, 1.0f};
        for (int i = 0; i < 3 && m->model.n_experts && rc == SW_OK; i++)
            rc = SW_ARENA_TAKE(&b->experts[i], &m->arena, m->model.n_experts, err);
        if (rc == SW_OK) rc = take_linears(b, m, &like, store, err);
        take_vectors(b, m);
    }
    return rc;
}
