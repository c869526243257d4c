/* decode_model.h - models of known sizes with made-up weights, for timing. */
#ifndef SW_VERIFY_SPEED_DECODE_MODEL_H
#define SW_VERIFY_SPEED_DECODE_MODEL_H

#include "kernels/engine/engine.h"
#include "verify/speed/decode_speed.h"
#include "verify/speed/speed_data.h"

#define SW_MADE_UP_SETS 24 /* shapes of weights that a model may have, in two stores */

/* The model and what its weights lie in: one of each shape serves all linears of that shape, as
 * the device copies each one by itself. */
typedef struct sw_made_up {
    sw_model model;
    sw_lm lm;
    sw_speed_weights sets[SW_MADE_UP_SETS], table;
    sw_speed_options shapes[SW_MADE_UP_SETS];
    int stores[SW_MADE_UP_SETS], n_sets;
    float *ones, *zeros; /* norms and sinks; biases */
    sw_arena arena;
} sw_made_up;

/* The shape, group size and cache of `o`; `store` of sw_speed_stores for what quantization touches,
 * BF16 for the rest. SW_E_USAGE: an unknown shape. *out is zeroed before, and freed in any case. */
sw_code sw_made_up_new(sw_made_up *out, const sw_decode_options *o, int store,
                       sw_err *err) SW_MUST_USE;
void sw_made_up_free(sw_made_up *m);

#endif
