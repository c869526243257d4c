/* steps_case.h - what a session decodes step by step beside a whole sequence at once. */
#ifndef SW_TESTS_GPU_SUPPORT_STEPS_CASE_H
#define SW_TESTS_GPU_SUPPORT_STEPS_CASE_H

#include "kernels/device.h"
#include "tests/support/toys/open_model.h"

#define STEPS_PROMPT 20 /* tokens before the first step */
#define STEPS_N 12

/* One sequence, in a graph from the second step on: the logits after STEPS_N steps are within
 * `limit` of those that the whole sequence has last, and not of those before, else the test fails
 * in the words of `name`. ids: STEPS_PROMPT tokens. */
void steps_check(sw_device *gpu, const open_model *m, const uint32_t *ids, double limit,
                 const char *name);

#endif
