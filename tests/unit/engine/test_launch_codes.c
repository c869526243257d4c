/* test_launch_codes.c - plans of launches where norms, gates and products leave what comes behind
 * them, codes or what GLU makes of gates and ups, against lists that were written by hand.
 * launch_text.h says how a list reads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/cases/launch_text.h"

#define ALL_FUSABLE 0x3f /* whatever follows a product of one token, with a norm before it or not */

static const sw_launch_weights joined = {.is_qkv_joined = true, .is_gate_joined = true};

/* One token of one sequence, and of each of several. */
static const sw_launch_step one_token = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                         .has_cache = true, .is_decode = true, .is_fused = true,
                                         .may_leave_sum = true};
static const sw_launch_step sequences = {.from = SW_SITE_COUNT, .stop_at = (sw_site)SW_RUN_ALL,
                                         .has_cache = true, .is_decode = true,
                                         .may_leave_sum = true};

/* Several sequences, with weights whose inputs are quantized: norms and gates leave codes where one
 * product alone reads them, and nobody else sees them. */
static void test_codes(void **state)
{
    sw_launch_weights coded = joined;
    sw_model m;

    (void)state;
    memset(coded.takes_codes, true, sizeof coded.takes_codes);
    read_model(&m, "arch/llama");
    check_plan(&m, 0, &coded, &sequences,
               "N = norm_attn(X) as codes for q\n"
               "Q = q(codes N)\n"
               "one A = attention(Q) turn Q turn K\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T) as codes for gate\n"
               "G = gate(codes N)\n"
               "G = act(G) * U as codes for down\n"
               "T = down(codes G)\n"
               "leaves X += T\n");
    coded.takes_codes[SW_SLOT_Q] = coded.takes_codes[SW_SLOT_DOWN] = false;
    coded.is_gate_joined = false;
    memset(coded.takes_glu, true, sizeof coded.takes_glu); /* gates and ups are apart */
    check_plan(&m, 0, &coded, &sequences,
               "N = norm_attn(X)\n"
               "Q = q(N)\n"
               "one A = attention(Q) turn Q turn K\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T)\n"
               "G = gate(N)\n"
               "U = up(N)\n"
               "G = act(G) * U\n"
               "T = down(G)\n"
               "leaves X += T\n");
}

/* One token, where gates and ups are a product that takes codes: the norm before it leaves them,
 * unless another product of one token reads its rows. */
static void test_codes_of_one(void **state)
{
    sw_launch_weights w = joined;
    sw_model m;

    (void)state;
    memset(w.fusable, ALL_FUSABLE, sizeof w.fusable);
    w.fusable[SW_SLOT_GATE] = 0;
    w.takes_glu[SW_SLOT_GATE] = w.takes_codes[SW_SLOT_GATE] = w.takes_codes[SW_SLOT_Q] = true;
    read_model(&m, "arch/llama");
    check_plan(&m, 0, &w, &one_token,
               "one Q = q(norm_attn(X))\n"
               "one A = attention(Q) turn Q turn K\n"
               "one X += o(A)\n"
               "N = norm_mlp(X) as codes for gate\n"
               "G = act(gate(codes N)) * up\n"
               "one X += down(G)\n");
    w.is_qkv_joined = w.takes_codes[SW_SLOT_GATE] = false;
    w.fusable[SW_SLOT_Q] = 0;
    w.fusable[SW_SLOT_K] = w.fusable[SW_SLOT_V] = SW_LAUNCH_FUSABLE(SW_AFTER_STORE, false);
    check_plan(&m, 0, &w, &one_token,
               "N = norm_attn(X)\n"
               "Q = q(N)\n"
               "one K = k(N)\n"
               "one V = v(N)\n"
               "one A = attention(Q) turn Q turn K\n"
               "one X += o(A)\n"
               "N = norm_mlp(X)\n"
               "G = act(gate(N)) * up\n"
               "one X += down(G)\n");
}

/* Products of gates and ups that leave what GLU makes of them. */
static void test_gated(void **state)
{
    sw_launch_weights gated = joined;
    sw_model m;

    (void)state;
    for (int s = 0; s < SW_SLOT_COUNT; s++) /* devices are asked of no others */
        gated.takes_glu[s] = sw_launch_has_gates_and_ups(&gated, (sw_slot)s);
    assert_true(gated.takes_glu[SW_SLOT_GATE] && gated.takes_glu[SW_SLOT_GATE_UP]);
    assert_false(gated.takes_glu[SW_SLOT_UP] || gated.takes_glu[SW_SLOT_Q]);
    memset(gated.takes_codes, true, sizeof gated.takes_codes);
    read_model(&m, "arch/llama");
    check_plan(&m, 0, &gated, &sequences,
               "N = norm_attn(X) as codes for q\n"
               "Q = q(codes N)\n"
               "one A = attention(Q) turn Q turn K\n"
               "T = o(A)\n"
               "N = norm_mlp(X += T) as codes for gate\n"
               "G = act(gate(codes N)) * up\n"
               "T = down(G)\n"
               "leaves X += T\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes), cmocka_unit_test(test_codes_of_one),
        cmocka_unit_test(test_gated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
