/* test_launch_families.c - plans of launches of families that have operations of their own, against
 * lists that were written from the block programs by hand. test_launch_plan.c has the others,
 * launch_text.h says how a list reads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cases/launch_text.h"

typedef enum step_kind {
    WHOLE,  /* whole sequences without a cache, from the middle of a model */
    PROMPT, /* the same into a cache */
    LONG,   /* the same of a text that may have more keys than are seen */
    ONE,    /* one token, products of all weights, gates and ups joined */
    ONE_LONG
} step_kind;

static void check_step(const char *name, int64_t layer, step_kind kind, const char *want)
{
    const bool is_one = kind >= ONE;
    const sw_launch_step step = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                 .has_cache = kind != WHOLE, .is_decode = is_one,
                                 .may_choose = kind == LONG || kind == ONE_LONG,
                                 .is_fused = is_one, .begins_with_sum = true,
                                 .may_leave_sum = true};
    sw_launch_weights weights = {.is_qkv_joined = false, .is_gate_joined = is_one};
    static sw_model m;

    if (is_one) memset(weights.fusable, 0x3f, sizeof weights.fusable);
    read_model(&m, name);
    check_plan(&m, layer, &weights, &step, want);
}

/* What is added to the stream takes a factor, which no product of one token has. */
static void test_granite(void **state)
{
    (void)state;
    check_step("recipes/granite", 0, ONE,
               "X += T\n"
               "one Q = q(norm_attn(X))\n"
               "one K = k(norm_attn(X))\n"
               "one V = v(norm_attn(X))\n"
               "one A = attention(Q) turn Q turn K\n"
               "one T = o(A)\n"
               "X += T\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one T = down(G)\n"
               "leaves X += T\n");
}

/* Two branches that read one norm: T stays until M is added to it. */
static void test_branches(void **state)
{
    (void)state;
    check_step("recipes/cohere2", 0, PROMPT,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "K = k(N)\n"
               "V = v(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "M = down(G)\n"
               "T = add(M)\n"
               "leaves X += T\n");
    check_step("recipes/gpt_neox", 0, WHOLE,
               "N = norm_attn(X += T)\n"
               "QKV = qkv(N)\n"
               "Q = split_groups(QKV)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X)\n"
               "U = up(N)\n"
               "U = act(U)\n"
               "M = down(U)\n"
               "T = add(M)\n"
               "leaves X += T\n");
}

/* Scores that fall with the distance: the kernel of many queries takes one as well. */
static void test_bloom(void **state)
{
    (void)state;
    check_step("recipes/bloom", 0, ONE,
               "X += T\n"
               "one QKV = qkv(norm_attn(X))\n"
               "Q = split_groups(QKV)\n"
               "heads\n"
               "A = attention(Q)\n"
               "one X += o(A)\n"
               "U = act(U)\n"
               "one X += down(U)\n");
}

/* Norms behind the rotation and without a weight; queries that grow are rotated before attention,
 * and so are the keys, whose angles the kernel of one query looks up for the queries. */
static void test_heads(void **state)
{
    (void)state;
    check_step("recipes/llama4_text", 0, PROMPT,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "K = k(N)\n"
               "V = v(N)\n"
               "turn Q\n"
               "Q = head_norm(Q)\n"
               "turn K\n"
               "K = head_norm(K)\n"
               "heads\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    check_step("recipes/mistral3_ministral3", 0, ONE,
               "X += T\n"
               "one Q = q(norm_attn(X))\n"
               "one K = k(norm_attn(X))\n"
               "one V = v(norm_attn(X))\n"
               "turn Q\n"
               "Q = temper(Q)\n"
               "turn K\n"
               "one A = attention(Q)\n"
               "one X += o(A)\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one X += down(G)\n");
}

/* The shared expert's gate reads the norm, so that is made before it, and T waits for experts. */
static void test_qwen2_moe(void **state)
{
    (void)state;
    check_step("recipes/qwen2_moe", 1, ONE,
               "X += T\n"
               "one Q = q(norm_attn(X))\n"
               "one K = k(norm_attn(X))\n"
               "one V = v(norm_attn(X))\n"
               "one A = attention(Q) turn Q turn K\n"
               "one X += o(A)\n"
               "one SG = shared_gate(norm_mlp(X))\n"
               "one SU = shared_up(norm_mlp(X))\n"
               "SG = act(SG) * SU\n"
               "one T = shared_down(SG)\n"
               "N = norm_mlp(X)\n"
               "T = row_gate(N, shared_router)\n"
               "T += experts(N)\n"
               "leaves X += T\n");
}

/* Layer 0 keeps keys and values where there is no cache. Every layer has an input of its own, and
 * ends with a factor on the stream. */
static void test_gemma4(void **state)
{
    (void)state;
    check_step("recipes/gemma4", 0, WHOLE,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "K = k(N)\n"
               "V = v(N)\n"
               "V = head_norm(V)\n"
               "heads norm_q norm_k turn Q turn K\n"
               "A = attention(Q)\n"
               "K = keep_kv(V)\n"
               "T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "T = norm_after_mlp(T)\n"
               "X += T\n"
               "N = bf16(X)\n"
               "SIDE = side_gate(N)\n"
               "SIDE = side_input(SIDE)\n"
               "T = side_out(SIDE)\n"
               "T = norm_side(T)\n"
               "X += T\n"
               "X = scale(X, layer_scale)\n");
    check_step("recipes/gemma4", 0, ONE,
               "X += T\n"
               "one Q = q(norm_attn(X))\n"
               "one K = k(norm_attn(X))\n"
               "one V = v(norm_attn(X))\n"
               "V = head_norm(V)\n"
               "one A = attention(Q) norm_q norm_k turn Q turn K\n"
               "one T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "X += T\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one T = down(G)\n"
               "T = norm_after_mlp(T)\n"
               "X += T\n"
               "N = bf16(X)\n"
               "SIDE = side_gate(N)\n"
               "SIDE = side_input(SIDE)\n"
               "T = side_out(SIDE)\n"
               "T = norm_side(T)\n"
               "X += T\n"
               "X = scale(X, layer_scale)\n");
}

/* Layer 3 takes those of another one. */
static void test_gemma4_shared(void **state)
{
    (void)state;
    check_step("recipes/gemma4", 3, ONE,
               "X += T\n"
               "one Q = q(norm_attn(X))\n"
               "one A = attention(Q) norm_q turn Q of another layer\n"
               "one T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "X += T\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one T = down(G)\n"
               "T = norm_after_mlp(T)\n"
               "X += T\n"
               "N = bf16(X)\n"
               "SIDE = side_gate(N)\n"
               "SIDE = side_input(SIDE)\n"
               "T = side_out(SIDE)\n"
               "T = norm_side(T)\n"
               "X += T\n"
               "X = scale(X, layer_scale)\n");
}

/* The router reads a norm of its own. */
static void test_gemma4_moe(void **state)
{
    (void)state;
    check_step("recipes/gemma4_moe", 1, PROMPT,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "K = k(N)\n"
               "V = copy(K)\n"
               "V = head_norm(V)\n"
               "heads norm_q norm_k turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "N = norm_mlp(X += T)\n"
               "SG = shared_gate(N)\n"
               "SU = shared_up(N)\n"
               "SG = act(SG) * SU\n"
               "M = shared_down(SG)\n"
               "M = norm_dense_out(M)\n"
               "R = router_norm(X)\n"
               "R = route(R)\n"
               "N = norm_experts(X)\n"
               "T = experts(N, routed)\n"
               "T = norm_experts_out(T)\n"
               "T = add(M)\n"
               "T = norm_after_mlp(T)\n"
               "X += T\n"
               "X = scale(X, layer_scale)\n");
}

/* Copies of the stream are guessed before the layer and corrected after it; layer 3 takes keys and
 * values, cuts no gates, and as the last merges the copies. */
static void test_gemma3n(void **state)
{
    (void)state;
    check_step("recipes/gemma3n", 3, WHOLE,
               "X += T\n"
               "X = predict(X)\n"
               "N = norm_attn(X)\n"
               "R = low_rank_a(N)\n"
               "M = low_rank_b(R)\n"
               "M = norm_low_rank(M)\n"
               "M = add(N)\n"
               "Q = q(N)\n"
               "K = take_kv(K)\n"
               "heads norm_q turn Q\n"
               "A = attention(Q) of another layer\n"
               "T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "T = add(M)\n"
               "X += T\n"
               "X = halve(X)\n"
               "N = norm_mlp(X)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "T = norm_after_mlp(T)\n"
               "X += T\n"
               "X = correct(X)\n"
               "N = bf16(X)\n"
               "N = mul_vector(N, copy_scale)\n"
               "SIDE = side_gate(N)\n"
               "SIDE = side_input(SIDE)\n"
               "T = side_out(SIDE)\n"
               "T = norm_side(T)\n"
               "X = add_copies(T)\n"
               "X = merge(X)\n");
}

/* Residual streams: what a half reads is mixed from them first. Experts of the first layer are
 * told by a table, which the router has. */
static void test_deepseek_v4(void **state)
{
    (void)state;
    check_step("recipes/deepseek_v4", 2, ONE,
               "X += T\n"
               "M = mix_streams(X, hyper_attn)\n"
               "N = norm_attn(M)\n"
               "one Q_A = q_a(N)\n"
               "Q_A = norm_q_a(Q_A)\n"
               "one Q = q_b(Q_A)\n"
               "Q = head_norm(Q)\n"
               "one K = k(N)\n"
               "K = norm_k_row(K)\n"
               "turn K\n"
               "turn Q\n"
               "A = near_far(Q, sinks)\n"
               "O_RANK = group_linear(A, o_a)\n"
               "one T = o(O_RANK)\n"
               "X = add_streams(T)\n"
               "M = mix_streams(X, hyper_mlp)\n"
               "N = norm_mlp(M)\n"
               "one SG = shared_gate(N)\n"
               "one SU = shared_up(N)\n"
               "SG = act(SG) * SU\n"
               "one T = shared_down(SG)\n"
               "T += experts(N)\n"
               "X = add_streams(T)\n"
               "X = merge_streams(X)\n");
    check_step("recipes/deepseek_v4", 0, WHOLE,
               "X += T\n"
               "M = mix_streams(X, hyper_attn)\n"
               "N = norm_attn(M)\n"
               "Q_A = q_a(N)\n"
               "Q_A = norm_q_a(Q_A)\n"
               "Q = q_b(Q_A)\n"
               "Q = head_norm(Q)\n"
               "K = k(N)\n"
               "K = norm_k_row(K)\n"
               "turn K\n"
               "turn Q\n"
               "A = near_far(Q, sinks)\n"
               "O_RANK = group_linear(A, o_a)\n"
               "T = o(O_RANK)\n"
               "X = add_streams(T)\n"
               "M = mix_streams(X, hyper_mlp)\n"
               "N = norm_mlp(M)\n"
               "SG = shared_gate(N)\n"
               "SU = shared_up(N)\n"
               "SG = act(SG) * SU\n"
               "T = shared_down(SG)\n"
               "T += experts(N)\n"
               "X = add_streams(T)\n");
}

/* Where a run may begin with rows that were kept: what comes before must not be missed. */
static void test_can_begin(void **state)
{
    static const struct {
        const char *recipe;
        int64_t layer;
        sw_half half;
        sw_site site;
        bool can;
    } rows[] = {
        {"recipes/granite", 0, SW_HALF_ATTENTION, SW_SITE_O_IN, true},
        {"recipes/granite", 0, SW_HALF_MLP, SW_SITE_DOWN_IN, true},
        {"recipes/gemma4", 0, SW_HALF_MLP, SW_SITE_DOWN_IN, true},
        {"recipes/gemma4", 0, SW_HALF_ATTENTION, SW_SITE_O_IN, false},  /* keys are kept before */
        {"recipes/gemma4", 3, SW_HALF_ATTENTION, SW_SITE_O_IN, true},
        {"recipes/gemma3n", 3, SW_HALF_ATTENTION, SW_SITE_O_IN, false}, /* the stream is another */
        {"recipes/gemma3n", 3, SW_HALF_MLP, SW_SITE_DOWN_IN, false},
        /* the other branch is missed; and the router's norm */
        {"recipes/cohere2", 0, SW_HALF_BOTH, SW_SITE_DOWN_IN, false},
        {"recipes/qwen2_moe", 0, SW_HALF_MLP, SW_SITE_SHARED_DOWN_IN, false},
        {"recipes/qwen2_moe", 0, SW_HALF_MLP, SW_SITE_DOWN_IN, false},  /* no linear of the layer */
        {"recipes/deepseek_v4", 0, SW_HALF_ATTENTION, SW_SITE_O_IN, false}, /* shares of streams */
        {"recipes/deepseek_v4", 0, SW_HALF_MLP, SW_SITE_SHARED_DOWN_IN, false},
    };
    static sw_model m;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_model(&m, rows[i].recipe);
        if (sw_launch_plan_can_begin(&m, rows[i].layer, rows[i].half, rows[i].site) != rows[i].can)
            fail_msg("%s, layer %lld, site %d", rows[i].recipe, (long long)rows[i].layer,
                     (int)rows[i].site);
    }
}

/* Keys are chosen before attention, unless all are seen. */
static void test_chosen_keys(void **state)
{
    (void)state;
    check_step("recipes/glm_moe_dsa_sparse", 0, WHOLE,
               "N = norm_attn(X += T)\n"
               "Q_A = q_a(N)\n"
               "Q_A = norm_q_a(Q_A)\n"
               "Q = q_b(Q_A)\n"
               "KV_A = kv_a(N)\n"
               "LATENT = norm_kv_a(LATENT)\n"
               "KV_B = kv_b(LATENT)\n"
               "turn Q\n"
               "turn K_ROPE\n"
               "K V = latent(KV_B)\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    check_step("recipes/glm_moe_dsa_sparse", 0, LONG,
               "N = norm_attn(X += T)\n"
               "Q_A = q_a(N)\n"
               "Q_A = norm_q_a(Q_A)\n"
               "Q = q_b(Q_A)\n"
               "KV_A = kv_a(N)\n"
               "LATENT = norm_kv_a(LATENT)\n"
               "KV_B = kv_b(LATENT)\n"
               "turn Q\n"
               "turn K_ROPE\n"
               "K V = latent(KV_B)\n"
               "Q_A = index(N)\n"
               "heads\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
}

/* Attention is then not the kernel for one query; the second layer takes the first one's choice. */
static void test_chosen_keys_of_one(void **state)
{
    (void)state;
    check_step("recipes/glm_moe_dsa_sparse", 0, ONE_LONG,
               "X += T\n"
               "one Q_A = q_a(norm_attn(X))\n"
               "Q_A = norm_q_a(Q_A)\n"
               "one Q = q_b(Q_A)\n"
               "one KV_A = kv_a(norm_attn(X))\n"
               "LATENT = norm_kv_a(LATENT)\n"
               "one KV_B = kv_b(LATENT)\n"
               "turn Q\n"
               "turn K_ROPE\n"
               "K V = latent(KV_B)\n"
               "N = norm_attn(X)\n"
               "Q_A = index(N)\n"
               "heads\n"
               "A = attention(Q)\n"
               "one X += o(A)\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one X += down(G)\n");
    check_step("recipes/glm_moe_dsa_sparse", 1, ONE_LONG,
               "X += T\n"
               "one Q_A = q_a(norm_attn(X))\n"
               "Q_A = norm_q_a(Q_A)\n"
               "one Q = q_b(Q_A)\n"
               "one KV_A = kv_a(norm_attn(X))\n"
               "LATENT = norm_kv_a(LATENT)\n"
               "one KV_B = kv_b(LATENT)\n"
               "turn Q\n"
               "turn K_ROPE\n"
               "K V = latent(KV_B)\n"
               "Q = take_index(Q)\n"
               "heads\n"
               "A = attention(Q)\n"
               "one X += o(A)\n"
               "one SG = shared_gate(norm_mlp(X))\n"
               "one SU = shared_up(norm_mlp(X))\n"
               "SG = act(SG) * SU\n"
               "one T = shared_down(SG)\n"
               "N = norm_mlp(X)\n"
               "T += experts(N)\n"
               "leaves X += T\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_granite),   cmocka_unit_test(test_branches),
        cmocka_unit_test(test_bloom),     cmocka_unit_test(test_heads),
        cmocka_unit_test(test_qwen2_moe), cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_gemma4_shared), cmocka_unit_test(test_gemma4_moe),
        cmocka_unit_test(test_gemma3n),   cmocka_unit_test(test_deepseek_v4),
        cmocka_unit_test(test_chosen_keys), cmocka_unit_test(test_chosen_keys_of_one),
        cmocka_unit_test(test_can_begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
