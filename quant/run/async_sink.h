/* async_sink.h - results handed on by threads of their own, so that packing and writing overlap
 * with the work on what follows.
 *
 * What is taken or ended waits in line, and reaches the sink behind in the same order; all
 * else waits until the line is empty and goes straight through. So that sink sees the calls of one
 * thread at a time, as it would without, but for `store`, where it has one: that one is called for
 * several linears of a block at once. Its first failure is what the next call returns.
 */
#ifndef SW_QUANT_RUN_ASYNC_SINK_H
#define SW_QUANT_RUN_ASYNC_SINK_H

#include "quant/method/algo.h"
#include "quant/sink.h"

typedef struct sw_async_sink sw_async_sink;

#define SW_ASYNC_WAITING_BYTES ((int64_t)384 << 20)

/* `behind` is borrowed; n_threads store, or one where it has no `store`. At most some linears wait
 * or are stored at a time: SW_ASYNC_WAITING_BYTES of
 * codes, or one. */
sw_code sw_async_sink_new(sw_async_sink **out, const sw_quant_sink *behind, int n_threads,
                          sw_err *err) SW_MUST_USE;
/* What a run gets instead of the sink behind. */
const sw_quant_sink *sw_async_sink_front(const sw_async_sink *async);
/* Wait for all that was put. */
sw_code sw_async_sink_drain(sw_async_sink *async, sw_err *err) SW_MUST_USE;
/* What still waits is dropped; accepts NULL. */
void sw_async_sink_free(sw_async_sink *async);

#endif
