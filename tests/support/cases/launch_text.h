/* launch_text.h - a plan of launches as text that a test can compare, a launch to a line.
 *
 *   N = norm_attn(X += T)           a norm, here with the addition before it; "X += T" alone
 *   Q = q(N)                        a product; "given" in place of N: rows of the caller
 *   one G = glu gate(norm_mlp(X))   a product of one token with the norm before it and the
 *                                   activation behind it
 *   heads norm_q norm_k turn Q turn K
 *   one A = attention(Q) turn Q     attention of one query, with what it does to the heads first
 *   Q = head_norm(Q, norm_q)        an operation by itself: its name, source and slot
 *   show N at mlp_in                what a tap sees
 *   leaves X += T                   at the end, when that is left to the block that runs next
 */
#ifndef SW_TESTS_SUPPORT_CASES_LAUNCH_TEXT_H
#define SW_TESTS_SUPPORT_CASES_LAUNCH_TEXT_H

#include "kernels/engine/launch_plan.h"

#define LAUNCH_TEXT_BYTES 4096

void launch_plan_text(char text[LAUNCH_TEXT_BYTES], const sw_launch_plan *plan);

/* The model of tests/golden/<name>/config.json. These two fail the running cmocka test. */
void read_model(sw_model *m, const char *name);
/* Make the plan of a layer for a step, and compare its text. */
void check_plan(const sw_model *m, int64_t layer, const sw_launch_weights *w,
                const sw_launch_step *step, const char *want);

#endif
