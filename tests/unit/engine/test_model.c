/* test_model.c - config.json to a model description: keys of both styles, defaults, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/model.h"

static sw_code read_text(sw_model *m, const char *text, sw_err *err)
{
    cJSON *config = NULL;
    sw_code rc;

    memset(err, 0, sizeof *err);
    assert_int_equal(
        sw_json_parse(&config, text, strlen(text), &sw_json_caps_config, "test", err), SW_OK);
    rc = sw_model_read(m, config, err);
    cJSON_Delete(config);
    return rc;
}

/* A sound llama config plus `extra` members. */
#define BASE                                                                               \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"                  \
    "\"num_attention_heads\":8,\"vocab_size\":100,\"max_position_embeddings\":256"
static sw_code read_with(sw_model *m, const char *type, const char *extra, sw_err *err)
{
    char text[2048];

    (void)snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s%s%s}", type, BASE,
                   *extra ? "," : "", extra);
    return read_text(m, text, err);
}

static void must_read(sw_model *m, const char *type, const char *extra)
{
    sw_err err = {0};
    sw_code rc = read_with(m, type, extra, &err);

    if (rc) fail_msg("%s + %s: %s", type, extra, err.text);
}

static void test_defaults(void **state)
{
    sw_model m;

    (void)state;
    must_read(&m, "llama", "");
    assert_int_equal(m.n_kv_heads, 8);
    assert_int_equal(m.head_dim, 8);
    assert_int_equal(m.bos_id, -1);
    assert_int_equal(m.eos_id, -1);
    assert_int_equal(m.sliding_window, 0);
    assert_true(m.dtype == SW_DTYPE_F32 && m.is_dtype_open);
    must_read(&m, "llama", "\"torch_dtype\":null");
    assert_true(m.is_dtype_open);
    must_read(&m, "llama", "\"dtype\":null,\"torch_dtype\":\"float16\"");
    assert_true(m.dtype == SW_DTYPE_F16 && !m.is_dtype_open);
    must_read(&m, "llama", "");
    assert_false(m.is_tied || m.has_qkv_bias || m.has_o_bias || m.has_mlp_bias);
    assert_true(m.rope.kind == SW_ROPE_DEFAULT && m.rope.theta == 1e4 && m.norm_eps == 1e-6);
    must_read(&m, "mixtral", "");
    assert_true(m.rope.theta == 1e6 && m.norm_eps == 1e-5 && m.norm_topk);
    assert_int_equal(m.n_experts, 8);
    assert_int_equal(m.n_experts_used, 2);
    assert_int_equal(m.moe_intermediate, 96);
    must_read(&m, "qwen3", "");
    assert_int_equal(m.head_dim, 128);
    must_read(&m, "mistral", "");
    assert_int_equal(m.sliding_window, 4096);
    must_read(&m, "llama", "\"head_dim\":null,\"num_key_value_heads\":null");
    assert_int_equal(m.head_dim, 8);
}

static void test_both_styles(void **state)
{
    sw_model older, newer;

    (void)state;
    must_read(&older, "llama",
              "\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\",\"rope_scaling\":{\"type\":"
              "\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":32}");
    must_read(&newer, "llama",
              "\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_type\":\"llama3\","
              "\"rope_theta\":500000.0,\"factor\":8.0,\"low_freq_factor\":1.0,"
              "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":32}");
    assert_memory_equal(&older, &newer, sizeof older);
    assert_int_equal(newer.rope.kind, SW_ROPE_LLAMA3);
    assert_int_equal(newer.rope.original_max_positions, 32);
    assert_int_equal(newer.dtype, SW_DTYPE_BF16);
    must_read(&newer, "qwen3",
              "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":2,"
              "\"rope_theta\":777.0},\"sliding_attention\":null}");
    assert_true(newer.rope.kind == SW_ROPE_LINEAR && newer.rope.theta == 777.0);
    must_read(&newer, "llama",
              "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0},"
              "\"original_max_position_embeddings\":64");
    assert_int_equal(newer.rope.original_max_positions, 64);
    assert_true(newer.rope.attention_factor < 0 && newer.rope.truncate);
}

/* transformers' rule: rope_scaling in place of rope_parameters, its base beside it. */
static void test_two_ropes(void **state)
{
    static const struct {
        const char *extra;
        bool is_contradiction;
        double theta;
    } rows[] = {
        {"\"rope_scaling\":null,\"rope_parameters\":{\"rope_theta\":7e5}", false, 7e5},
        {"\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":7e5}", false, 7e5},
        {"\"rope_theta\":7e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
         "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":7e5}",
         false, 7e5},
        {"\"rope_scaling\":{\"type\":\"default\",\"factor\":2},\"rope_parameters\":{\"rope_theta\":"
         "10000}", false, 1e4},
        /* the base is in rope_parameters alone, where transformers does not look then */
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
         "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":7e5}",
         true, 1e4},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"rope_parameters\":{\"rope_theta\":"
         "10000}", true, 1e4},
        {"\"rope_theta\":7e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
         "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":7e5}",
         true, 7e5},
        {"\"rope_scaling\":{\"partial_rotary_factor\":0.5,\"rope_theta\":7e5},"
         "\"rope_parameters\":{\"rope_theta\":7e5}", true, 7e5},
        /* of layer types, that of full attention is changed */
        {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8},\"rope_parameters\":{"
         "\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":7e5},"
         "\"sliding_attention\":{\"rope_theta\":1e4}}", false, 7e5},
        {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8},\"rope_parameters\":{"
         "\"full_attention\":{\"rope_type\":\"default\",\"rope_theta\":7e5},"
         "\"sliding_attention\":{\"rope_theta\":1e4}}", true, 7e5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sw_err err = {0};
        sw_model m;

        must_read(&m, "llama", rows[i].extra);
        if ((sw_rope_check_once(&m, &err) != SW_OK) != rows[i].is_contradiction ||
            m.rope.theta != rows[i].theta)
            fail_msg("%s: \"%s\", theta %g", rows[i].extra, err.text, m.rope.theta);
        if (rows[i].is_contradiction && !strstr(err.text, "rope_scaling and rope_parameters"))
            fail_msg("%s", err.text);
    }
}

static void test_family_keys(void **state)
{
    sw_model m;

    (void)state;
    must_read(&m, "llama", "\"attention_bias\":true,\"mlp_bias\":true");
    assert_true(sw_model_slot_has_bias(&m, SW_SLOT_Q) && sw_model_slot_has_bias(&m, SW_SLOT_O));
    assert_true(sw_model_slot_has_bias(&m, SW_SLOT_DOWN));
    must_read(&m, "qwen2", "");
    assert_true(sw_model_slot_has_bias(&m, SW_SLOT_V) && !sw_model_slot_has_bias(&m, SW_SLOT_O));
    must_read(&m, "mistral", "\"sliding_window\":null");
    assert_int_equal(m.sliding_window, 0);
    must_read(&m, "qwen2", "\"sliding_window\":32,\"use_sliding_window\":false");
    assert_int_equal(m.sliding_window, 0);
    must_read(&m, "qwen2",
              "\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":3");
    assert_int_equal(m.sliding_window, 32);
    assert_true(!m.is_window_layer[2] && m.is_window_layer[3]);
    must_read(&m, "qwen3",
              "\"sliding_window\":32,\"use_sliding_window\":true,\"layer_types\":["
              "\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]");
    assert_true(m.is_window_layer[0] && !m.is_window_layer[3]);
    must_read(&m, "qwen3_moe", "\"sliding_window\":32,\"use_sliding_window\":true");
    assert_true(m.is_window_layer[0] && m.is_window_layer[3]);
    must_read(&m, "llama", "\"eos_token_id\":[5,7,9],\"bos_token_id\":[3]");
    assert_true(m.n_eos == 3 && m.eos_id == 5 && m.eos_ids[2] == 9 && m.bos_id == 3);
    must_read(&m, "llama", "\"eos_token_id\":null,\"bos_token_id\":-1");
    assert_true(m.n_eos == 0 && m.eos_id == -1 && m.bos_id == -1);
}

#define LONGROPE(short_list, long_list)                                                    \
    "\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"su\","           \
    "\"short_factor\":[" short_list "],\"long_factor\":[" long_list "]}"
#define LATENT "\"q_lora_rank\":48"
static void test_keys_of_sparse_families(void **state)
{
    sw_linear_ref refs[32];
    sw_model m;

    (void)state;
    must_read(&m, "gpt_oss", "");
    assert_true(m.n_experts == 128 && m.n_experts_used == 4 && m.moe_intermediate == 96);
    assert_true(m.act == SW_MLP_SWIGLU_CLAMPED && m.act_limit == 7.0 && m.sliding_window == 128);
    assert_true(m.is_window_layer[0] && !m.is_window_layer[1] && m.head_dim == 64);
    assert_true(sw_model_slot_has_bias(&m, SW_SLOT_ROUTER) && m.has_qkv_bias && m.has_o_bias);
    must_read(&m, "deepseek_v3",
              LATENT ",\"n_shared_experts\":2,\"rope_scaling\":{\"type\":\"yarn\","
              "\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
              "\"original_max_position_embeddings\":64}");
    assert_true(m.q_rank == 48 && m.kv_rank == 512 && m.head_dim == 192 && m.rope_dim == 64);
    assert_true(m.n_kv_heads == 8 && m.v_head_dim == 128 && m.is_rope_paired);
    assert_true(m.n_experts == 256 && m.n_expert_groups == 8 && m.n_groups_used == 4);
    assert_true(m.route_scale == 2.5 && m.norm_topk && m.shared_intermediate == 4096);
    /* 1/sqrt(192) * (0.1 ln 40 + 1)^2 */
    assert_true(m.attention_scale > 0.13523 && m.attention_scale < 0.13524);
    assert_false(sw_model_is_sparse(&m, 2));
    assert_true(sw_model_is_sparse(&m, 3));
    assert_int_equal(sw_model_linears(&m, 0, refs, 32), 5 + 3);
    assert_int_equal(sw_model_linears(&m, 3, refs, 32), 5 + 3 + 3 * 256);
    assert_true(refs[7].slot == SW_SLOT_SHARED_DOWN && refs[7].site == SW_SITE_SHARED_DOWN_IN);
    assert_true(refs[3].slot == SW_SLOT_KV_B && refs[3].n_out == 8 * 256 && refs[3].k_in == 512);
    assert_true(sw_model_site_writes_residual(&m, 3, SW_SITE_SHARED_DOWN_IN));
    must_read(&m, "deepseek_v3", "");
    assert_int_equal(m.q_rank, 1536);
    must_read(&m, "deepseek_v3", "\"q_lora_rank\":null");
    assert_int_equal(sw_model_linears(&m, 0, refs, 32), 4 + 3);
    assert_true(refs[0].slot == SW_SLOT_Q && refs[0].n_out == 8 * 192 && refs[0].k_in == 64);
    assert_int_equal(sw_model_buf_width(&m, SW_BUF_Q_A), 0);
    assert_false(sw_model_site_writes_residual(&m, 3, SW_SITE_DOWN_IN));
    assert_false(sw_model_site_writes_residual(&m, 3, SW_SITE_KV_B_IN));
}

static void test_keys_of_norms_and_scores(void **state)
{
    sw_model m;

    (void)state;
    must_read(&m, "gemma2", "\"head_dim\":16,\"query_pre_attn_scalar\":64");
    assert_true(m.norm_offset == 1.0 && m.embed_scale == 8.0 && m.attention_scale == 0.125);
    assert_true(m.attention_cap == 50.0 && m.logits_cap == 30.0 && m.is_tied);
    assert_true(m.act == SW_MLP_GELU_TANH && m.is_window_layer[0] && !m.is_window_layer[1]);
    assert_true(m.is_window_layer[2] && !m.has_window_rope);
    must_read(&m, "gemma2", "\"attn_logit_softcapping\":null,\"tie_word_embeddings\":false");
    assert_true(m.attention_cap == 0.0 && m.logits_cap == 30.0 && !m.is_tied);
    must_read(&m, "gemma3_text", "\"sliding_window_pattern\":3,\"rope_local_base_freq\":5000");
    assert_true(m.is_window_layer[1] && !m.is_window_layer[2] && m.is_window_layer[3]);
    assert_true(m.has_window_rope && m.window_rope.theta == 5000 && m.rope.theta == 1e6);
    assert_true(m.attention_cap == 0.0 && m.head_dim == 256 && m.attention_scale == 1.0 / 16);
    must_read(&m, "gemma3_text",
              "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,"
              "\"rope_theta\":1e6},\"sliding_attention\":{\"rope_theta\":9000}}");
    assert_true(m.rope.kind == SW_ROPE_LINEAR && m.window_rope.kind == SW_ROPE_DEFAULT);
    assert_true(m.has_window_rope && m.window_rope.theta == 9000);
    must_read(&m, "phi3", "\"head_dim\":16,\"partial_rotary_factor\":0.75");
    assert_true(m.rope_dim == 12 && m.head_dim == 16 && m.sliding_window == 0);
    must_read(&m, "phi3", LONGROPE("1,1.5,2,2.5", "1,4,9,16"));
    assert_true(m.rope.kind == SW_ROPE_LONGROPE && m.rope.factor == 4 &&
                m.rope.original_max_positions == 64);
    assert_true(m.rope.short_factors[3] == 2.5f && m.rope.long_factors[2] == 9.0f);
    must_read(&m, "opt", "\"activation_function\":\"gelu\"");
    assert_true(m.act == SW_MLP_GELU && m.n_position_rows == 258 && m.first_position_row == 2);
    assert_true(sw_model_slot_has_bias(&m, SW_SLOT_UP) && sw_model_slot_has_bias(&m, SW_SLOT_O));
}

/* gpt2 has names of its own for every size. */
static void test_other_names_of_sizes(void **state)
{
    static const char text[] = "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":3,"
                               "\"n_head\":4,\"n_positions\":32,\"vocab_size\":10%s}";
    char full[256];
    sw_linear_ref refs[8];
    sw_model m;
    sw_err err = {0};

    (void)state;
    (void)snprintf(full, sizeof full, text, ",\"n_inner\":null");
    assert_int_equal(read_text(&m, full, &err), SW_OK);
    assert_true(m.hidden == 64 && m.n_layers == 3 && m.head_dim == 16 && m.intermediate == 256);
    assert_true(m.max_positions == 32 && m.n_position_rows == 32 && m.is_tied);
    assert_int_equal(sw_model_linears(&m, 0, refs, 8), 4);
    assert_true(refs[0].slot == SW_SLOT_QKV && refs[0].n_out == 192 && refs[0].k_in == 64);
    (void)snprintf(full, sizeof full, text, ",\"n_inner\":96");
    assert_int_equal(read_text(&m, full, &err), SW_OK);
    assert_int_equal(m.intermediate, 96);
}

/* What the target of a linear may make good: only what goes to the residual stream unchanged. */
static void test_sites(void **state)
{
    sw_model m;

    (void)state;
    must_read(&m, "llama", "");
    assert_true(sw_model_site_writes_residual(&m, 0, SW_SITE_O_IN));
    assert_true(sw_model_site_writes_residual(&m, 0, SW_SITE_DOWN_IN));
    assert_false(sw_model_site_writes_residual(&m, 0, SW_SITE_ATTN_IN));
    assert_false(sw_model_site_writes_residual(&m, 0, SW_SITE_MLP_IN));
    assert_int_equal(sw_model_site_width(&m, 0, SW_SITE_DOWN_IN), 96);
    assert_int_equal(sw_model_site_width(&m, 0, SW_SITE_KV_B_IN), 0);
    must_read(&m, "olmo2", "");
    assert_false(sw_model_site_writes_residual(&m, 0, SW_SITE_O_IN));
    assert_false(sw_model_site_writes_residual(&m, 0, SW_SITE_DOWN_IN));
    must_read(&m, "gemma2", "");
    assert_false(sw_model_site_writes_residual(&m, 0, SW_SITE_O_IN));
    must_read(&m, "phi3", "");
    assert_true(sw_model_site_writes_residual(&m, 0, SW_SITE_DOWN_IN));
    assert_int_equal(sw_model_site_width(&m, 0, SW_SITE_ATTN_IN), 64);
}

static void test_sparse_layers(void **state)
{
    sw_model m;
    sw_linear_ref refs[64];
    int n_ops;
    char path[256];

    (void)state;
    must_read(&m, "qwen3_moe",
              "\"num_local_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
              "\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]");
    assert_false(sw_model_is_sparse(&m, 0) || sw_model_is_sparse(&m, 3));
    assert_true(sw_model_is_sparse(&m, 1));
    assert_int_equal(sw_model_linears(&m, 0, refs, 64), 7);
    assert_int_equal(sw_model_linears(&m, 1, refs, 64), 4 + 12);
    assert_true(refs[4].slot == SW_SLOT_GATE && refs[4].expert == 0 && refs[4].n_out == 32);
    assert_true(refs[15].slot == SW_SLOT_DOWN && refs[15].expert == 3 && refs[15].k_in == 32);
    assert_int_equal(refs[15].site, SW_SITE_DOWN_IN);
    assert_int_equal(sw_model_linears(&m, 1, refs, 5), 16); /* counts past the room given */
    assert_int_equal(sw_model_ops(&m, 1, &n_ops)[n_ops - 2].kind, SW_OP_MOE);
    assert_int_equal(sw_model_ops(&m, 0, &n_ops)[n_ops - 3].kind, SW_OP_GLU);
    assert_true(sw_model_slot_path(path, &m, 1, SW_SLOT_UP, 13));
    assert_string_equal(path, "model.layers.1.mlp.experts.13.up_proj");
    assert_true(sw_model_slot_path(path, &m, 0, SW_SLOT_UP, -1));
    assert_string_equal(path, "model.layers.0.mlp.up_proj");
    assert_true(sw_model_slot_path(path, &m, 1, SW_SLOT_ROUTER, -1));
    assert_string_equal(path, "model.layers.1.mlp.gate");
    must_read(&m, "mixtral", "");
    assert_false(sw_model_slot_path(path, &m, 0, SW_SLOT_GATE, -1));
    assert_false(sw_model_slot_path(path, &m, 0, SW_SLOT_Q, 0));
    assert_true(sw_model_slot_path(path, &m, 0, SW_SLOT_DOWN, 7));
    assert_string_equal(path, "model.layers.0.block_sparse_moe.experts.7.w2");
}

static const struct {
    const char *type, *extra, *word;
    sw_code code;
} refusals[] = {
    {"gpt9", "", "swage list architectures", SW_E_UNSUPPORTED},
    {"llama", "\"hidden_act\":\"tanh\"", "hidden_act", SW_E_UNSUPPORTED},
    {"llama", "\"torch_dtype\":\"float8_e4m3fn\"", "torch_dtype", SW_E_UNSUPPORTED},
    {"llama", "\"num_key_value_heads\":3", "num_key_value_heads", SW_E_FORMAT},
    {"llama", "\"num_key_value_heads\":0", "num_key_value_heads", SW_E_FORMAT},
    {"llama", "\"head_dim\":7", "head_dim", SW_E_FORMAT},
    {"llama", "\"head_dim\":\"8\"", "head_dim", SW_E_FORMAT},
    {"llama", "\"rms_norm_eps\":-1", "rms_norm_eps", SW_E_FORMAT},
    {"llama", "\"rope_theta\":0", "rope_theta", SW_E_FORMAT},
    {"llama", "\"rope_scaling\":3", "rope_scaling", SW_E_FORMAT},
    {"llama", "\"rope_scaling\":{\"type\":\"stretch\"}", "stretch", SW_E_UNSUPPORTED},
    {"phi3", "\"rope_scaling\":{\"type\":\"longrope\"}", "short_factor", SW_E_FORMAT},
    {"phi3", LONGROPE("1,1,1", "1,1,1,1"), "short_factor", SW_E_FORMAT},
    {"phi3", LONGROPE("1,1,1,1", "1,1,0,1"), "long_factor", SW_E_FORMAT},
    {"phi3", LONGROPE("1,1,1,1", "1,1,\"a\",1"), "long_factor", SW_E_FORMAT},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\"}", "factor", SW_E_FORMAT},
    {"llama", "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}", "high_freq_factor",
     SW_E_FORMAT},
    {"llama", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":0.5}", "factor",
     SW_E_FORMAT},
    {"llama", "\"partial_rotary_factor\":0.4", "partial_rotary_factor", SW_E_FORMAT},
    {"phi3", "\"partial_rotary_factor\":1.5", "partial_rotary_factor", SW_E_FORMAT},
    {"gemma2", "\"hidden_activation\":\"mish\"", "hidden_activation", SW_E_UNSUPPORTED},
    {"gemma2", "\"query_pre_attn_scalar\":0", "query_pre_attn_scalar", SW_E_FORMAT},
    {"gemma2", "\"attn_logit_softcapping\":-50", "attn_logit_softcapping", SW_E_FORMAT},
    {"gemma2", "\"final_logit_softcapping\":1e9", "final_logit_softcapping", SW_E_FORMAT},
    {"gemma2", "\"use_bidirectional_attention\":true", "use_bidirectional_attention",
     SW_E_UNSUPPORTED},
    {"gemma3_text", "\"sliding_window_pattern\":0", "sliding_window_pattern", SW_E_FORMAT},
    {"gemma3_text", "\"rope_local_base_freq\":0.5", "rope_local_base_freq", SW_E_FORMAT},
    {"opt", "\"do_layer_norm_before\":false", "do_layer_norm_before", SW_E_UNSUPPORTED},
    {"opt", "\"word_embed_proj_dim\":32", "word_embed_proj_dim", SW_E_UNSUPPORTED},
    {"opt", "\"enable_bias\":false", "enable_bias", SW_E_UNSUPPORTED},
    {"gpt2", "\"scale_attn_by_inverse_layer_idx\":true", "scale_attn_by_inverse_layer_idx",
     SW_E_UNSUPPORTED},
    {"gpt2", "\"layer_norm_epsilon\":2", "layer_norm_epsilon", SW_E_FORMAT},
    {"gpt_oss", "\"swiglu_limit\":-7", "swiglu_limit", SW_E_FORMAT},
    {"gpt_oss", "\"num_experts_per_tok\":129", "num_experts_per_tok", SW_E_FORMAT},
    {"gpt_oss", "\"sliding_window\":\"x\"", "sliding_window", SW_E_FORMAT},
    {"deepseek_v3", "\"q_lora_rank\":0", "q_lora_rank", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"kv_lora_rank\":0", "kv_lora_rank", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"qk_rope_head_dim\":9", "qk_rope_head_dim", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"v_head_dim\":1000000", "v_head_dim", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"attention_bias\":true", "attention_bias", SW_E_UNSUPPORTED},
    {"deepseek_v3", LATENT ",\"scoring_func\":\"softmax\"", "scoring_func", SW_E_UNSUPPORTED},
    {"deepseek_v3", LATENT ",\"topk_method\":\"greedy\"", "topk_method", SW_E_UNSUPPORTED},
    {"deepseek_v3", LATENT ",\"n_group\":7", "n_group", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"n_group\":256", "n_group", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"topk_group\":9", "topk_group", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"n_group\":64,\"topk_group\":1", "topk_group", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"moe_layer_freq\":2", "moe_layer_freq", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"n_shared_experts\":0", "n_shared_experts", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"routed_scaling_factor\":0", "routed_scaling_factor", SW_E_FORMAT},
    {"deepseek_v3", LATENT ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
     "rope_type", SW_E_UNSUPPORTED},
    {"qwen3", "\"rope_parameters\":{\"a\":{\"rope_theta\":2},\"b\":{\"rope_theta\":3}}",
     "layer types", SW_E_UNSUPPORTED},
    {"llama", "\"eos_token_id\":\"x\"", "eos_token_id", SW_E_FORMAT},
    {"llama", "\"eos_token_id\":[1,1.5]", "eos_token_id", SW_E_FORMAT},
    {"llama", "\"attention_bias\":1", "attention_bias", SW_E_FORMAT},
    {"mistral", "\"sliding_window\":0", "sliding_window", SW_E_FORMAT},
    {"qwen3", "\"layer_types\":[\"full_attention\"]", "layer_types", SW_E_FORMAT},
    {"qwen3", "\"layer_types\":[\"x\",\"x\",\"x\",\"x\"]", "layer_types", SW_E_UNSUPPORTED},
    {"qwen3",
     "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\","
     "\"full_attention\"]",
     "sliding_window", SW_E_FORMAT},
    {"mixtral", "\"num_experts_per_tok\":9", "num_experts_per_tok", SW_E_FORMAT},
    {"qwen3_moe", "\"num_experts\":4", "num_experts_per_tok", SW_E_FORMAT},
    {"mixtral", "\"num_local_experts\":100000", "num_local_experts", SW_E_FORMAT},
    {"qwen3_moe", "\"mlp_only_layers\":[-1]", "mlp_only_layers", SW_E_FORMAT},
    {"qwen3_moe", "\"mlp_only_layers\":3", "mlp_only_layers", SW_E_FORMAT},
    {"qwen3_moe", "\"decoder_sparse_step\":0", "decoder_sparse_step", SW_E_FORMAT},
};

/* Every refusal: the right code, and a message that names the key. Outputs stay untouched. */
static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        sw_model m = {.hidden = 12345};
        sw_err err = {0};
        sw_code rc = read_with(&m, refusals[i].type, refusals[i].extra, &err);

        if (rc != refusals[i].code || !strstr(err.text, refusals[i].word))
            fail_msg("case %zu (%s): code %d, \"%s\", want %d and \"%s\"", i, refusals[i].extra, rc,
                     err.text, refusals[i].code, refusals[i].word);
        assert_int_equal(m.hidden, 12345);
    }
}

static void test_missing_sizes(void **state)
{
    static const char *const keys[] = {"hidden_size", "intermediate_size", "num_hidden_layers",
                                       "num_attention_heads", "vocab_size",
                                       "max_position_embeddings"};
    static const char *const values[] = {"null", "0", "-4", "1.5", "1e300", "\"8\""};

    (void)state;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            char text[1024] = "{\"model_type\":\"llama\"";
            sw_model m;
            sw_err err = {0};

            for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
                (void)snprintf(text + strlen(text), sizeof text - strlen(text), ",\"%s\":%s",
                               keys[i], i == k ? values[v] : "64");
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "}");
            assert_int_equal(read_text(&m, text, &err), SW_E_FORMAT);
            if (!strstr(err.text, keys[k])) fail_msg("%s: \"%s\"", keys[k], err.text);
        }
    }
}

static void test_class_name_decides_without_model_type(void **state)
{
    sw_model m;
    sw_err err = {0};

    (void)state;
    assert_int_equal(read_text(&m, "{\"architectures\":[\"Qwen2ForCausalLM\"]," BASE "}", &err),
                     SW_OK);
    assert_string_equal(m.arch->name, "qwen2");
    assert_int_equal(read_text(&m, "{\"architectures\":[\"OPUSForCausalLM\"]," BASE "}", &err),
                     SW_E_UNSUPPORTED);
    assert_int_equal(read_text(&m, "{" BASE "}", &err), SW_E_FORMAT);
    assert_int_equal(read_text(&m, "[1]", &err), SW_E_FORMAT);
}

/* Whatever a program names, the family has a name for. */
static void check_program(const sw_arch *a, const sw_program *program)
{
    for (int i = 0; i < program->n_ops; i++) {
        const sw_op *op = &program->ops[i];
        const bool is_routed = op->kind == SW_OP_MOE || op->kind == SW_OP_MOE_ADD;

        if (is_routed) assert_true(a->expert_names[2] && a->slot_names[SW_SLOT_ROUTER]);
        if (op->slot != SW_SLOT_COUNT && !a->slot_names[op->slot])
            fail_msg("%s has no name for slot %d", a->name, (int)op->slot);
    }
}

static void test_rows_are_sound(void **state)
{
    (void)state;
    for (int i = 0; i < sw_n_archs; i++) {
        const sw_arch *a = &sw_archs[i];

        assert_ptr_equal(sw_arch_find(a->name), a);
        assert_true(a->kinds->kind[0].dense.n_ops || a->kinds->kind[0].sparse.n_ops);
        for (int k = 0; k < SW_KINDS_MAX; k++) {
            check_program(a, &a->kinds->kind[k].dense);
            check_program(a, &a->kinds->kind[k].sparse);
        }
        for (int e = 0; e < SW_END_COUNT; e++) {
            const char *name = a->ends.names[e], *prefix = a->ends.prefix;

            assert_true(name || (e >= SW_END_POSITIONS && e <= SW_END_STREAMS_SCALE));
            if (name && e != SW_END_HEAD) assert_memory_equal(name, prefix, strlen(prefix));
        }
        for (int e = 0; e < 3; e++)
            if (a->expert_names[e]) assert_non_null(strstr(a->expert_names[e], "%d"));
    }
    assert_null(sw_arch_find("llam"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_both_styles),
        cmocka_unit_test(test_two_ropes),
        cmocka_unit_test(test_family_keys),
        cmocka_unit_test(test_keys_of_sparse_families),
        cmocka_unit_test(test_keys_of_norms_and_scores),
        cmocka_unit_test(test_other_names_of_sizes),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_sparse_layers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_missing_sizes),
        cmocka_unit_test(test_class_name_decides_without_model_type),
        cmocka_unit_test(test_rows_are_sound),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
