/* test_launch_mixers.c - plans of launches of layers with a recurrent mixer against lists that were
 * written from the block programs by hand, and where a run can begin that is given the inputs of a
 * linear. launch_text.h says how a list reads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "formats/model/programs.h"
#include "tests/support/cases/launch_text.h"

static const sw_launch_weights joined = {.is_qkv_joined = true, .is_gate_joined = true};
static const sw_launch_step prompt = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                      .has_cache = true, .begins_with_sum = true,
                                      .may_leave_sum = true};

/* Decays and steps are linears that are not observed; they read the norm that the products before
 * them have only made along the way. */
static void test_gated_delta(void **state)
{
    const sw_launch_step tapped = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                   .has_tap = true, .half = SW_HALF_ATTENTION};
    const sw_launch_step one = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                .has_cache = true, .is_decode = true, .is_fused = true,
                                .may_leave_sum = true};
    sw_launch_weights all = joined;
    sw_model m;

    (void)state;
    read_model(&m, "recipes/qwen3_5_text");
    check_plan(&m, 0, &joined, &tapped,
               "N = norm_attn(X)\n"
               "show N at mix_in\n"
               "MIX = mix_in(N)\n"
               "MIX_Z = mix_z(N)\n"
               "MIX_B = mix_b(N)\n"
               "MIX_A = mix_a(N)\n"
               "MIX_O = gated_delta(MIX)\n"
               "show MIX_O at mix_out_in\n"
               "T = mix_out(MIX_O)\n"
               "X += T\n");
    memset(all.fusable, 0x3f, sizeof all.fusable);
    all.fusable[SW_SLOT_MIX_B] = all.fusable[SW_SLOT_MIX_A] = 0;
    check_plan(&m, 0, &all, &one,
               "one MIX = mix_in(norm_attn(X))\n"
               "one MIX_Z = mix_z(norm_attn(X))\n"
               "N = norm_attn(X)\n"
               "MIX_B = mix_b(N)\n"
               "MIX_A = mix_a(N)\n"
               "MIX_O = gated_delta(MIX)\n"
               "one X += mix_out(MIX_O)\n"
               "one G = glu gate(norm_mlp(X))\n"
               "one X += down(G)\n");
}

static void test_kimi_delta(void **state)
{
    sw_model m;

    (void)state;
    read_model(&m, "recipes/kimi_linear");
    check_plan(&m, 0, &joined, &prompt,
               "N = norm_attn(X += T)\n"
               "Q = q(N)\n"
               "MIX_B = mix_b(N)\n"
               "MIX_A_RANK = mix_a_rank(N)\n"
               "MIX_A = mix_a(MIX_A_RANK)\n"
               "MIX_Z_RANK = mix_z_rank(N)\n"
               "MIX_Z = mix_z_gate(MIX_Z_RANK)\n"
               "MIX_O = kimi_delta(Q)\n"
               "T = o(MIX_O)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
}

/* Rows by head of keys are read as they are. */
static void test_grouped_delta(void **state)
{
    static const sw_op ops[] = {
        NORM(N, X, NORM_ATTN), LINEAR(MIX_GROUPED, N, MIX_IN, MIX_IN),
        {SW_OP_KEPT_LINEAR, SW_BUF_MIX_BA, SW_BUF_N, SW_SLOT_MIX_BA, NO_SITE},
        PLAIN_OP(UNGROUP, MIX, MIX_GROUPED), PLAIN_OP(UNGROUP, MIX_B, MIX_BA),
        PLAIN_OP(GATED_DELTA, MIX_O, MIX), LINEAR(T, MIX_O, MIX_OUT, MIX_OUT_IN), OPS_ADD,
    };
    const sw_kinds kinds = {{{PROGRAM(ops), NO_PROGRAM}}};
    const sw_arch arch = {.name = "a mixer alone", .kinds = &kinds};
    const sw_model m = {.arch = &arch, .n_layers = 1};

    (void)state;
    check_plan(&m, 0, &joined, &prompt,
               "N = norm_attn(X += T)\n"
               "MIX_GROUPED = mix_in(N)\n"
               "MIX_BA = mix_ba(N)\n"
               "MIX_O = gated_delta(MIX)\n"
               "T = mix_out(MIX_O)\n"
               "leaves X += T\n");
}

static void test_other_mixers(void **state)
{
    const sw_launch_step rest = {.from = SW_SITE_MIX_OUT_IN, .stop_at = (sw_site)SW_RUN_ALL,
                                 .half = SW_HALF_ATTENTION};
    sw_model m;

    (void)state;
    read_model(&m, "recipes/mamba2");
    check_plan(&m, 0, &joined, &prompt,
               "N = norm_attn(X += T)\n"
               "MIX = mix_in(N)\n"
               "MIX_O = ssd(MIX)\n"
               "T = mix_out(MIX_O)\n"
               "leaves X += T\n");
    read_model(&m, "recipes/lfm2");
    check_plan(&m, 0, &joined, &prompt,
               "N = norm_attn(X += T)\n"
               "MIX = mix_in(N)\n"
               "MIX_O = short_conv(MIX)\n"
               "T = mix_out(MIX_O)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
    check_plan(&m, 0, &joined, &rest, "T = mix_out(given)\nX += T\n");
}

static void test_beginnings(void **state)
{
    sw_model m;

    (void)state;
    read_model(&m, "recipes/lfm2");
    assert_true(sw_launch_plan_can_begin(&m, 0, SW_HALF_ATTENTION, SW_SITE_MIX_OUT_IN));
    assert_true(sw_launch_plan_can_begin(&m, 0, SW_HALF_MLP, SW_SITE_DOWN_IN));
    assert_false(sw_launch_plan_can_begin(&m, 0, SW_HALF_ATTENTION, SW_SITE_O_IN));
    assert_true(sw_launch_plan_can_begin(&m, 1, SW_HALF_ATTENTION, SW_SITE_O_IN));
    read_model(&m, "recipes/qwen3_5_text"); /* several linears read what is given to the first */
    assert_false(sw_launch_plan_can_begin(&m, 0, SW_HALF_ATTENTION, SW_SITE_MIX_IN));
    assert_true(sw_launch_plan_can_begin(&m, 0, SW_HALF_ATTENTION, SW_SITE_MIX_OUT_IN));
    read_model(&m, "arch/gemma3_text");
    assert_true(sw_launch_plan_can_begin(&m, 0, SW_HALF_MLP, SW_SITE_DOWN_IN));
    read_model(&m, "recipes/falcon_h1"); /* the mixer beside attention reads what both read */
    assert_false(sw_launch_plan_can_begin(&m, 0, SW_HALF_ATTENTION, SW_SITE_O_IN));
    assert_false(sw_launch_plan_can_begin(&m, 0, SW_HALF_ATTENTION, SW_SITE_MIX_OUT_IN));
    read_model(&m, "recipes/cohere2"); /* the attention beside the MLP is not there any more */
    assert_false(sw_launch_plan_can_begin(&m, 0, SW_HALF_MLP, SW_SITE_DOWN_IN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gated_delta),   cmocka_unit_test(test_kimi_delta),
        cmocka_unit_test(test_grouped_delta), cmocka_unit_test(test_other_mixers),
        cmocka_unit_test(test_beginnings),
    };

    return cmocka_run_group_tests_name("launches of mixers", tests, NULL, NULL);
}
