/* weights_ahead.h - weights of a site, or of some of its experts, read on a thread of their own
 * while a device observes what they will be multiplied by. For pipeline.c and block_solve.c alone.
 *
 * A help, never a need: what could not be read ahead is read, and its error told, by whoever
 * solves.
 */
#ifndef SW_QUANT_RUN_WEIGHTS_AHEAD_H
#define SW_QUANT_RUN_WEIGHTS_AHEAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "quant/run/block_job.h"

typedef struct sw_weights_ahead {
    sw_block_job *job;
    const bool *wanted; /* [SW_SITE_COUNT] */
    int64_t expert_begin, expert_end;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_asked_to_stop;
} sw_weights_ahead;

/* Begin with the weights of wanted sites, experts aside, where the block runs on a device; `wanted`
 * lives until sw_weights_ahead_end, which is called in any case. */
void sw_weights_ahead_begin(sw_weights_ahead *out, sw_block_job *job,
                            const bool wanted[SW_SITE_COUNT]);
/* The same with those of experts [begin, end) that this rank solves, and no others. */
void sw_weights_ahead_begin_experts(sw_weights_ahead *out, sw_block_job *job,
                                    const bool wanted[SW_SITE_COUNT], int64_t begin, int64_t end);
/* When all are read; accepts a zeroed one, and one that has ended. */
void sw_weights_ahead_end(sw_weights_ahead *ahead);
/* Likewise, with those that are read by then: the rest is read by who solves, in as many lanes. */
void sw_weights_ahead_stop(sw_weights_ahead *ahead);
/* The weight of linear i, a room for the caller to keep; NULL: it was not read. */
float *sw_weights_ahead_take(const sw_block_job *job, int64_t i);

#endif
