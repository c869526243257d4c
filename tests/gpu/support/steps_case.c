/* steps_case.c - what a session decodes step by step beside a whole sequence at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cuda/engine/cuda_engine_internal.h"
#include "tests/gpu/support/device_case.h"
#include "tests/gpu/support/steps_case.h"

#define N_TOKENS (STEPS_PROMPT + STEPS_N)

/* The logits after all steps, and of the sequence that they have made. */
static void decode_both(sw_device *gpu, const open_model *m, const uint32_t *prompt, float *steps,
                        float *whole)
{
    const sw_sampling greedy = {0, 0, 1, 0};
    uint32_t ids[N_TOKENS];
    sw_device_engine *engine = NULL;
    sw_device_lm *lm = NULL;
    sw_device_session *s = NULL;

    memcpy(ids, prompt, STEPS_PROMPT * sizeof *ids);
    MUST(sw_device_engine_new(&engine, gpu, &m->model, N_TOKENS, N_TOKENS, err));
    MUST(sw_device_lm_new(&lm, engine, &m->lm, err));
    MUST(sw_device_session_new(&s, lm, 1, N_TOKENS, &greedy, err));
    MUST(sw_device_session_feed(s, 0, ids, STEPS_PROMPT, err));
    MUST(sw_device_session_step(s, ids + STEPS_PROMPT, STEPS_N, err));
    MUST(sw_device_session_logits(s, steps, err));
    MUST(sw_device_lm_forward(lm, ids, 1, N_TOKENS, err));
    MUST(sw_device_lm_head(lm, whole, 0, N_TOKENS, err));
    sw_device_session_free(s);
    sw_device_lm_free(lm);
    sw_device_engine_free(engine);
}

void steps_check(sw_device *gpu, const open_model *m, const uint32_t *ids, double limit,
                 const char *name)
{
    const int64_t vocab = m->model.vocab;
    float *have = malloc(sizeof *have * (size_t)vocab);
    float *want = malloc(sizeof *want * (size_t)(N_TOKENS * vocab));
    double error, before;

    decode_both(gpu, m, ids, have, want);
    error = relative_l2(have, want + (N_TOKENS - 1) * vocab, vocab);
    before = relative_l2(have, want + (N_TOKENS - 2) * vocab, vocab);
    print_message("  decoded: %.2e from prefill, %.2e from the token before\n", error, before);
    if (!(error <= limit) || before <= limit)
        fail_msg("%s: decoded %g off, the token before %g", name, error, before);
    free(have), free(want);
}
