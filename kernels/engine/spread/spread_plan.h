/* spread_plan.h - which layers of a model lie on which of several devices: a function of sizes
 * alone, so that it can be tested without a device.
 */
#ifndef SW_KERNELS_ENGINE_SPREAD_PLAN_H
#define SW_KERNELS_ENGINE_SPREAD_PLAN_H

#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_SPREAD_DEVICES_MAX 64 /* devices */

/* What has to find room, in bytes. A head that is the embedding counts for both ends. */
typedef struct sw_spread_need {
    int64_t n_layers;
    int64_t *layer_bytes; /* [n_layers] weights, and what a sequence keeps of the layer */
    int64_t first_bytes;  /* goes with the first layer: the embedding, side tables */
    int64_t last_bytes;   /* goes with the last one: norm and head, logits */
    int64_t each_bytes;   /* on every device: rows of a call, workspaces */
    int64_t shared_bytes; /* of both ends what lies on a single device once */
} sw_spread_need;

typedef struct sw_spread_room {
    int index;          /* N of cuda:N */
    int64_t left_bytes; /* that can be taken */
} sw_spread_room;

/* All of it on one device. */
int64_t sw_spread_whole_bytes(const sw_spread_need *need);

/* Device i of the n runs layers from ends[i - 1] (of the first: 0) up to ends[i]; a device that is
 * not needed has none. Every device is filled to the same share of its room, as far as layers can
 * be cut: the least share that takes all. SW_E_NOMEM: they have no room for it together; the
 * message says what it is, what they have, and what helps. */
sw_code sw_spread_plan(int64_t *ends, const sw_spread_need *need, const sw_spread_room *rooms,
                       int n, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
