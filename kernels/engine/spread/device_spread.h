/* device_spread.h - a model on as many devices of a host as it needs.
 *
 * The first device is open from the beginning; the others are opened once a model has no room on
 * it. A model that fits the first lies there alone, unless it shall be spread.
 */
#ifndef SW_KERNELS_ENGINE_DEVICE_SPREAD_H
#define SW_KERNELS_ENGINE_DEVICE_SPREAD_H

#include "kernels/engine/device_engine.h"
#include "kernels/engine/spread/spread_plan.h"

/* Zero-initialise, and fill in what stands above the line. */
typedef struct sw_device_set {
    int indices[SW_SPREAD_DEVICES_MAX]; /* N of cuda:N; */
    int n;                      /* one: nothing is spread */
    int64_t cap_bytes;          /* of each, as sw_device_open has it */
    bool spreads_all;           /* over all of them, also what fits the first */
    bool may_stream;            /* what they have no room for together lies on the first, with
                                 * blocks in host memory; else that is refused */
    /* ---- */
    sw_device *gpus[SW_SPREAD_DEVICES_MAX];
} sw_device_set;

/* The first of them, as sw_device_open. */
sw_code sw_device_set_open(sw_device_set *set, sw_err *err) SW_MUST_USE;
void sw_device_set_close(sw_device_set *set); /* after all that lies there; also one not opened */

#define SW_DEVICE_MODEL_TEXT_BYTES 640

typedef struct sw_device_model {
    sw_device_engine *engines[SW_SPREAD_DEVICES_MAX];
    int n_engines;
    sw_device_lm *lm;
    char text[SW_DEVICE_MODEL_TEXT_BYTES]; /* where layers lie, or why not on several; "": one
                                            * device, as it was asked for */
} sw_device_model;

/* max_tokens, max_seq: as sw_device_engine_new. `lm` must live as long. SW_E_NOMEM: no room on all
 * of them; else as sw_device_engine_new and sw_device_lm_new. */
sw_code sw_device_model_open(sw_device_model *out, sw_device_set *set, const sw_lm *lm,
                             int64_t max_tokens, int64_t max_seq, sw_err *err) SW_MUST_USE;
void sw_device_model_close(sw_device_model *m); /* accepts a zeroed one */

#endif
