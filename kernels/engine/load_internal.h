/* load_internal.h - how the pieces of a block are loaded; for kernels/engine alone. */
#ifndef SW_KERNELS_ENGINE_LOAD_INTERNAL_H
#define SW_KERNELS_ENGINE_LOAD_INTERNAL_H

#include "formats/model/stored.h"
#include "kernels/engine/engine.h"

/* What the linears of a block are loaded from. */
typedef struct sw_loader {
    const sw_model *m;
    const sw_st *st;
    const sw_linear_source *source; /* or NULL */
} sw_loader;

/* n values of `view` as floats in the arena. */
sw_code sw_decode_floats(float **out, sw_arena *arena, const sw_cview *view, int64_t n,
                         sw_err *err) SW_MUST_USE;
/* The vector "<path><suffix>". */
sw_code sw_load_floats(float **out, sw_arena *arena, const sw_st *st, const char *path,
                       const char *suffix, int64_t n, sw_err *err) SW_MUST_USE;
/* The same of a slot, with a bias where it has one. */
sw_code sw_load_vector(sw_block *block, const sw_loader *from, sw_slot slot, const char *suffix,
                       bool has_bias, sw_err *err) SW_MUST_USE;
/* "<slot>.weight" as a norm is meant, whatever it is stored less of. */
sw_code sw_load_norm(sw_block *block, const sw_loader *from, sw_slot slot, bool has_bias,
                     sw_err *err) SW_MUST_USE;
sw_code sw_load_linear(sw_weight *out, sw_block *block, const sw_loader *from, sw_slot slot,
                       int64_t expert, sw_err *err) SW_MUST_USE;
/* Two linears of the block. */
sw_code sw_load_two(sw_block *block, const sw_loader *from, sw_slot first, sw_slot second,
                    sw_err *err) SW_MUST_USE;

/* What DeepSeek-V4 has (operations/load_streams.c): how streams are mixed, from three slots, one
 * behind the other; how they are merged, in the last block; sinks and what compressed keys are made
 * of; the experts of each token. */
sw_code sw_load_mixture(sw_block *block, const sw_loader *from, sw_slot first,
                        sw_err *err) SW_MUST_USE;
sw_code sw_load_merge(sw_block *block, const sw_loader *from, sw_err *err) SW_MUST_USE;
sw_code sw_load_near_far(sw_block *block, const sw_loader *from, sw_slot sinks,
                         sw_err *err) SW_MUST_USE;
sw_code sw_load_token_experts(sw_block *block, const sw_loader *from, sw_slot slot,
                              sw_err *err) SW_MUST_USE;

#endif
