/* decode_chain.h - products of one token and attention between them, one after the other in one
 * launch; inside cuda/.
 *
 * Where every product costs a few microseconds, what lies between two kernels costs as much: the
 * last CTAs of one, the start of the next, a memory that nobody asks for anything meanwhile. A
 * chain is a list of such steps that one kernel walks, a CTA on each multiprocessor: between two
 * steps all CTAs meet, and the weights of the steps to come are on their way all the time.
 *
 * A caller adds steps in place of launching them, and runs the chain before it enqueues anything
 * else that depends on them. On devices of compute capability 9.0.
 */
#ifndef SW_KERNELS_CUDA_DECODE_DECODE_CHAIN_H
#define SW_KERNELS_CUDA_DECODE_DECODE_CHAIN_H

#include "kernels/cuda/ops/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_decode_chain sw_decode_chain;

/* An empty chain for a device; *out stays NULL where chains do not run. `shape` is that of the
 * attention it will take: heads, capacity, one sequence, n_sms; d_scratch has
 * sw_cuda_chain_scratch_bytes of it, zeroed at first, and serves this chain alone. */
sw_code sw_cuda_chain_new(sw_decode_chain **out, const sw_attn_args *shape, int sm, void *d_scratch,
                          sw_err *err) SW_MUST_USE;
int64_t sw_cuda_chain_scratch_bytes(const sw_attn_args *shape);
void sw_cuda_chain_free(sw_decode_chain *c); /* accepts NULL */

/* Add a step; *is_taken, or true: it is one that a chain has. A product that does not go with those
 * before, or finds no room, runs these first. There are chains of bytes with a scale a channel;
 * what has groups runs before, in kernels of its own. Arguments as of sw_cuda_one and
 * sw_cuda_attention_decode (whose scratch is the chain's own); attention never comes first, and
 * never reads int8. */
sw_code sw_cuda_chain_product(bool *is_taken, sw_decode_chain *c, const sw_fused_args *a,
                              sw_launch how, sw_err *err) SW_MUST_USE;
bool sw_cuda_chain_attention(sw_decode_chain *c, const sw_attn_args *a, const sw_heads_args *heads);
/* Enqueue what has been added, if anything; the chain is empty then. Accepts NULL, as does clear,
 * which forgets it. */
sw_code sw_cuda_chain_run(sw_decode_chain *c, sw_launch how, sw_err *err) SW_MUST_USE;
void sw_cuda_chain_clear(sw_decode_chain *c);

#ifdef __cplusplus
}
#endif
#endif
