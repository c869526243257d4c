/* test_launch_plan.c - plans of launches against lists that were written from the block programs by
 * hand: six families, prefill, decoding with and without products that take in what stands around
 * them, taps, stops and halves. launch_text.h says how a list reads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/programs.h"
#include "tests/support/cases/launch_text.h"

#define ALL_FUSABLE 0x3f /* whatever follows a product of one token, with a norm before it or not */

/* Weights of which nothing is joined, those of q, k, v and of gate, up joined, and the latter with
 * a kernel for every product of one token. */
static const sw_launch_weights apart, joined = {.is_qkv_joined = true, .is_gate_joined = true};
static sw_launch_weights fusable(void)
{
    sw_launch_weights w = joined;

    memset(w.fusable, ALL_FUSABLE, sizeof w.fusable);
    return w;
}

/* Steps: a prompt into a cache, from the middle of a model; one token. */
static const sw_launch_step prompt = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                      .has_cache = true, .begins_with_sum = true,
                                      .may_leave_sum = true};
static const sw_launch_step one_token = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                         .has_cache = true, .is_decode = true, .is_fused = true,
                                         .may_leave_sum = true};
static void test_llama_prompt(void **state)
{
    sw_launch_step first = prompt, last = prompt;
    sw_model m;

    (void)state;
    read_model(&m, "arch/llama");
    check_plan(&m, 0, &joined, &prompt,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    first.begins_with_sum = false;
    check_plan(&m, 0, &apart, &first,
               "N = norm_attn(X)\n"
               "Q = q(N)\n"
               "K = k(N)\n"
               "V = v(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    last.may_leave_sum = false;
    check_plan(&m, 0, &joined, &last,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "X += T\n");
}

static void test_llama_decode(void **state)
{
    const sw_launch_weights all = fusable();
    sw_launch_weights some = fusable();
    sw_launch_step several = one_token;
    sw_model m;

    (void)state;
    read_model(&m, "arch/llama");
    check_plan(&m, 0, &all, &one_token,
               "one Q = q(norm_attn(X))\n"
               "one A = attention(Q) turn Q turn K\n"
               "one X += o(A)\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one X += down(G)\n");
    /* no kernel normalizes rows of q's width, and none at all takes o and down */
    some.is_qkv_joined = some.is_gate_joined = false;
    some.fusable[SW_SLOT_Q] = SW_LAUNCH_FUSABLE(SW_AFTER_STORE, false);
    some.fusable[SW_SLOT_O] = some.fusable[SW_SLOT_DOWN] = 0;
    check_plan(&m, 0, &some, &one_token,
               "N = norm_attn(X)\n"
               "Q = q(N)\n"
               "one K = k(N)\n"
               "one V = v(N)\n"
               "one A = attention(Q) turn Q turn K\n"
               "T = o(A)\n"
               "X += T\n"
               "one G = gate(norm_mlp(X))\n"
               "one U = up(norm_mlp(X))\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    several.is_fused = false;
    several.begins_with_sum = true;
    check_plan(&m, 0, &all, &several,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "one A = attention(Q) turn Q turn K\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
}

/* What calibration asks of a block. */
static void test_llama_sites(void **state)
{
    const sw_launch_step plain = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL};
    sw_launch_step tapped = plain, stopped = plain, half = plain, rest = plain;
    sw_model m;

    (void)state;
    read_model(&m, "arch/llama");
    tapped.has_tap = tapped.shows_kv = true;
    check_plan(&m, 0, &joined, &tapped,
               "N = norm_attn(X)\n"
               "show N at attn_in\n"
               "Q = q(N)\n"
               "heads turn Q turn K\n"
               "show K V\n"
               "A = attention(Q)\n"
               "show A at o_in\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "show N at mlp_in\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "show G at down_in\n"
               "T = down(G)\n"
               "X += T\n");
    stopped.has_tap = true;
    stopped.stop_at = SW_SITE_O_IN;
    check_plan(&m, 0, &joined, &stopped,
               "N = norm_attn(X)\n"
               "show N at attn_in\n"
               "Q = q(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "show A at o_in\n");
    half.half = SW_HALF_ATTENTION;
    check_plan(&m, 0, &joined, &half,
               "N = norm_attn(X)\n"
               "Q = q(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "X += T\n");
    rest.half = SW_HALF_MLP;
    rest.from = SW_SITE_DOWN_IN;
    check_plan(&m, 0, &joined, &rest, "T = down(given)\nX += T\n");
    stopped.stop_at = SW_SITE_ATTN_IN; /* what comes behind the last block */
    check_plan(&m, m.n_layers, &joined, &stopped, "N = norm_final(X)\nshow N at attn_in\n");
}

static void test_qwen3(void **state)
{
    const sw_launch_weights all = fusable();
    sw_launch_step no_cache = prompt;
    sw_model m;

    (void)state;
    read_model(&m, "arch/qwen3");
    no_cache.has_cache = no_cache.begins_with_sum = false;
    check_plan(&m, 0, &joined, &no_cache,
               "N = norm_attn(X)\n"
               "Q = q(N)\n"
               "heads norm_q norm_k turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    check_plan(&m, 0, &all, &one_token,
               "one Q = q(norm_attn(X))\n"
               "one A = attention(Q) norm_q norm_k turn Q turn K\n"
               "one X += o(A)\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one X += down(G)\n");
}

/* Norms behind each half: its output is stored, and added by the norm that follows. */
static void test_gemma3(void **state)
{
    const sw_launch_weights all = fusable();
    sw_launch_step one = one_token;
    sw_model m;

    (void)state;
    read_model(&m, "arch/gemma3_text");
    check_plan(&m, 0, &joined, &prompt,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "heads norm_q norm_k turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "T = norm_after_mlp(T)\n"
               "leaves X += T\n");
    one.begins_with_sum = true;
    check_plan(&m, 0, &all, &one,
               "X += T\n"
               "one Q = q(norm_attn(X))\n"
               "one A = attention(Q) norm_q norm_k turn Q turn K\n"
               "one T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "X += T\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one T = down(G)\n"
               "T = norm_after_mlp(T)\n"
               "leaves X += T\n");
}

/* Linears that read the residual stream itself. */
static void test_olmo2(void **state)
{
    const sw_launch_weights all = fusable();
    sw_launch_step one = one_token;
    sw_model m;

    (void)state;
    read_model(&m, "arch/olmo2");
    one.begins_with_sum = true;
    check_plan(&m, 0, &all, &one,
               "X += T\n"
               "N = bf16(X)\n"
               "Q = q(N)\n"
               "Q = norm_q_row(Q)\n"
               "K = norm_k_row(K)\n"
               "one A = attention(Q) turn Q turn K\n"
               "one T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "X += T\n"
               "N = bf16(X)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "one T = down(G)\n"
               "T = norm_after_mlp(T)\n"
               "leaves X += T\n");
}

static void test_gpt_oss(void **state)
{
    const sw_launch_weights all = fusable();
    sw_launch_step stopped = {.from = SW_SITE_COUNT, .stop_at = SW_SITE_DOWN_IN, .has_tap = true};
    sw_model m;

    (void)state;
    read_model(&m, "arch/gpt_oss");
    check_plan(&m, 0, &joined, &prompt,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q, sinks)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "T = experts(N)\n"
               "leaves X += T\n");
    check_plan(&m, 0, &all, &one_token,
               "one Q = q(norm_attn(X))\n"
               "one A = attention(Q, sinks) turn Q turn K\n"
               "one X += o(A)\n"
               "N = norm_mlp(X)\n"
               "T = experts(N)\n"
               "leaves X += T\n");
    /* this tap sees down_in inside the experts, where the run ends; T is not added any more */
    check_plan(&m, 0, &joined, &stopped,
               "N = norm_attn(X)\n"
               "show N at attn_in\n"
               "Q = q(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q, sinks)\n"
               "show A at o_in\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "show N at mlp_in\n"
               "T = experts(N)\n");
}

/* q, k, v and gate, up are stored as one; their buffers are columns of one. */
static void test_phi3(void **state)
{
    const sw_launch_weights all = fusable();
    sw_model m;

    (void)state;
    read_model(&m, "arch/phi3");
    check_plan(&m, 0, &apart, &prompt,
               "N = norm_attn(X += T)\n"
               "QKV = qkv(N)\n"
               "heads turn Q turn K\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "GATE_UP = gate_up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    check_plan(&m, 0, &all, &one_token,
               "one QKV = qkv(norm_attn(X))\n"
               "one A = attention(Q) turn Q turn K\n"
               "one X += o(A)\n"
               "one G = glu gate_up(norm_mlp(X))\n"
               "one X += down(G)\n");
}

/* Layer norms have a bias, which no product takes in. */
static void test_gpt2(void **state)
{
    sw_launch_weights w = fusable();
    sw_model m;

    (void)state;
    read_model(&m, "arch/gpt2");
    w.is_qkv_joined = w.is_gate_joined = false;
    w.has_norm_bias[SW_SLOT_NORM_ATTN] = w.has_norm_bias[SW_SLOT_NORM_MLP] = true;
    check_plan(&m, 0, &w, &one_token,
               "N = norm_attn(X)\n"
               "one QKV = qkv(N)\n"
               "one A = attention(Q)\n"
               "one X += o(A)\n"
               "N = norm_mlp(X)\n"
               "one U = up(N)\n"
               "U = act(U)\n"
               "one X += down(U)\n");
}

/* Layer 0 is dense, layer 1 has experts and one for every token. What that one puts out is not
 * added to X before the routed experts have read its norm: they add theirs to it first. */
static void test_deepseek(void **state)
{
    sw_launch_weights all = fusable();
    sw_model m;

    (void)state;
    read_model(&m, "arch/deepseek_v3");
    check_plan(&m, 0, &joined, &prompt,
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
               "heads\n"
               "A = attention(Q)\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    all.is_qkv_joined = all.is_gate_joined = false;
    check_plan(&m, 1, &all, &one_token,
               "one Q_A = q_a(norm_attn(X))\n"
               "Q_A = norm_q_a(Q_A)\n"
               "one Q = q_b(Q_A)\n"
               "one KV_A = kv_a(norm_attn(X))\n"
               "LATENT = norm_kv_a(LATENT)\n"
               "one KV_B = kv_b(LATENT)\n"
               "turn Q\n"
               "turn K_ROPE\n"
               "K V = latent(KV_B)\n"
               "one A = attention(Q)\n"
               "one X += o(A)\n"
               "one SG = shared_gate(norm_mlp(X))\n"
               "one SU = shared_up(norm_mlp(X))\n"
               "SG = act(SG) * SU\n"
               "one T = shared_down(SG)\n"
               "N = norm_mlp(X)\n"
               "T += experts(N)\n"
               "leaves X += T\n");
}

/* Who looks at routed experts alone does not wait for the shared one. */
static void test_experts_alone(void **state)
{
    sw_launch_step step = {.from = SW_SITE_COUNT, .half = SW_HALF_MLP, .stop_at = SW_SITE_DOWN_IN,
                           .has_tap = true};
    sw_model m;

    (void)state;
    read_model(&m, "arch/deepseek_v3");
    check_plan(&m, 1, &apart, &step,
               "N = norm_mlp(X)\n"
               "show N at mlp_in\n"
               "SG = shared_gate(N)\n"
               "SU = shared_up(N)\n"
               "SG = act(SG) * SU\n"
               "show SG at shared_down_in\n"
               "T = shared_down(SG)\n"
               "T += experts(N)\n");
    step.is_for_experts = true;
    check_plan(&m, 1, &apart, &step,
               "N = norm_mlp(X)\n"
               "show N at mlp_in\n"
               "T += experts(N)\n");
    read_model(&m, "recipes/qwen2_moe");
    check_plan(&m, 0, &apart, &step,
               "N = norm_mlp(X)\n"
               "show N at mlp_in\n"
               "T += experts(N)\n");
}

/* A program that no family has, in which T, Q and the residual stream are used again: what waits
 * for a launch must get one before. */
static void test_order(void **state)
{
    static const sw_op ops[] = {
        HEAD_NORM(Q, NORM_Q), ATTENTION(NO_SLOT), OPS_O, OPS_ADD, ATTENTION(NO_SLOT), OPS_O,
        NORM(T, T, NORM_AFTER_ATTN), OPS_ADD, LINEAR(Q, N, Q, ATTN_IN), ROUTED(MOE), OPS_ADD,
    };
    const sw_kinds kinds = {{{PROGRAM(ops), NO_PROGRAM}}};
    const sw_arch arch = {.name = "two branches", .kinds = &kinds};
    const sw_model m = {.arch = &arch, .n_layers = 1, .residual_scale = 1.0};
    const sw_launch_weights all = fusable();
    sw_launch_step tapped = prompt, stopped = prompt, one = one_token;

    (void)state;
    tapped.has_cache = stopped.has_cache = false;
    tapped.has_tap = one.begins_with_sum = true;
    stopped.stop_at = SW_SITE_ATTN_IN;
    check_plan(&m, 0, &apart, &tapped,
               "heads norm_q\n"
               "A = attention(Q)\n"
               "X += T\n"
               "show A at o_in\n"
               "T = o(A)\n"
               "A = attention(Q)\n"
               "X += T\n"
               "T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "X += T\n"
               "show N at attn_in\n"
               "Q = q(N)\n"
               "show N at mlp_in\n"
               "T = experts(N)\n"
               "leaves X += T\n");
    check_plan(&m, 0, &apart, &stopped,
               "heads norm_q\n"
               "A = attention(Q)\n"
               "X += T\n"
               "T = o(A)\n"
               "A = attention(Q)\n"
               "X += T\n"
               "T = o(A)\n"
               "T = norm_after_attn(T)\n");
    check_plan(&m, 0, &all, &one,
               "one A = attention(Q) norm_q\n"
               "one X += o(A)\n"
               "one A = attention(Q)\n"
               "X += T\n"
               "one T = o(A)\n"
               "T = norm_after_attn(T)\n"
               "one Q = q(N)\n"
               "X += T\n"
               "T = experts(N)\n"
               "leaves X += T\n");
}

static void check_refusal(const sw_op *ops, int n_ops, const char *want)
{
    const sw_kinds kinds = {{{{ops, n_ops}, NO_PROGRAM}}};
    const sw_arch arch = {.name = "a test", .kinds = &kinds};
    const sw_model m = {.arch = &arch, .n_layers = 1};
    sw_launch_plan plan;
    sw_err err = {0};

    assert_int_equal(sw_launch_plan_make(&plan, &m, 0, &apart, &prompt, &err), SW_E_BUG);
    if (!strstr(err.text, want)) fail_msg("have \"%s\", want \"%s\"", err.text, want);
}

static void test_refusals(void **state)
{
    static const sw_op unknown[] = {{SW_OP_COUNT, SW_BUF_X, SW_BUF_T, NO_SLOT, NO_SITE}};
    sw_op many[SW_LAUNCHES_MAX + 1];

    (void)state;
    for (int i = 0; i <= SW_LAUNCHES_MAX; i++) many[i] = (sw_op)PLAIN_OP(ADD, X, T);
    check_refusal(unknown, 1, "which devices do not have");
    check_refusal(many, N_OPS(many), "more than 96 launches");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_prompt), cmocka_unit_test(test_llama_decode),
        cmocka_unit_test(test_llama_sites),  cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_gemma3),       cmocka_unit_test(test_olmo2),
        cmocka_unit_test(test_gpt_oss),      cmocka_unit_test(test_phi3),
        cmocka_unit_test(test_gpt2),         cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_experts_alone), cmocka_unit_test(test_order),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
