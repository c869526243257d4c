/* checkpoint_speed.h - how fast a checkpoint runs beside its original, in one run and in turns.
 *
 * Decoding: n sequences that hold `context` tokens draw or are fed one token each, together.
 * Prefill: n prompts to the logits of their last tokens, as many at once as the engine takes.
 * Linears: each kind by itself at as many tokens as a batch or a prompt brings it. All of it is run
 * by the kernels and the engine that serve the checkpoint; a turn is as many steps as take some
 * 25 ms, so that the clock and the start of a graph do not show.
 */
#ifndef SW_VERIFY_SPEED_CHECKPOINT_SPEED_H
#define SW_VERIFY_SPEED_CHECKPOINT_SPEED_H

#include "verify/base/speed_report.h"
#include "verify/speed/linear_kinds.h"
#include "verify/speed/model_cost.h"
#include "verify/speed/runner.h"
#include "verify/speed/turns.h"

/* What is measured, of models that somebody else has made. */
typedef struct sw_speed_trial {
    const sw_speed_request *request;
    sw_speed_runner runner[SW_SPEED_SIDES];
    sw_model_cost cost[SW_SPEED_SIDES];
    int n_sides;            /* 1: no original */
    int64_t max_tokens;     /* of one call */
    const sw_linear_kinds *kinds;
    double experts_share;   /* of the tokens that an expert gets; 1 in a dense model */
    const sw_clock *clock;
    const sw_progress *progress;
} sw_speed_trial;

/* Fill cells and linears, from out's roof; they lie in the arena. Errors are the runners'. */
sw_code sw_speed_try(sw_report_speed *out, sw_arena *arena, sw_speed_trial *trial,
                     sw_err *err) SW_MUST_USE;

/* The checkpoint at `dir` against the one at `original_dir` (NULL: alone), both as they are stored,
 * on `gpu` or (NULL) on the CPU. kv_kind: of the checkpoint; the original keeps floats. SW_E_USAGE:
 * more rounds, batches or tokens than there can be. Others as sw_checkpoint_open_codes and
 * sw_lm_open.
 * `out` is set on success only, and lies in the arena. */
typedef struct sw_speed_job {
    const char *dir, *original_dir;
    const sw_speed_request *request;
    sw_kv_kind kv_kind;
    sw_device *gpu;
    int n_threads;
    const sw_progress *progress;
} sw_speed_job;
sw_code sw_checkpoint_speed(sw_report_speed *out, sw_arena *arena, const sw_speed_job *job,
                            sw_err *err) SW_MUST_USE;

/* SW_E_USAGE: a request that nothing can be measured by. */
sw_code sw_speed_request_check(const sw_speed_request *request, sw_err *err) SW_MUST_USE;

#endif
