/* lanes.h - items worked on beside each other at a place, finished one by one in their order.
 *
 * Small solves leave most of a device idle: several threads, each with a stream of its own, fill
 * it, and copies and conversions of one item run beside the solving of another. Which lane takes
 * an item is free and never shows in a result. A place with one lane does one after the other.
 */
#ifndef SW_QUANT_LANES_H
#define SW_QUANT_LANES_H

#include "quant/backend.h"

typedef struct sw_lane_work {
    void *self;
    int64_t item_bytes; /* that an item takes at the place, beside what a step takes by itself */
    /* Item `item` at place `at`, in any thread; must touch nothing that another item does. */
    sw_code (*work)(void *self, int64_t item, const sw_place *at, sw_err *err);
    /* What has to follow the order of items, one at a time, in any thread: an item that is ready
     * early waits for its turn, while its lane goes on with others. Or NULL. */
    sw_code (*done)(void *self, int64_t item, sw_err *err);
} sw_lane_work;

/* All items [0, n_items), in at most lanes_max lanes; one item, or one lane, at `at` itself. The
 * first failure in the order of items is passed on: all before it are done, and of those behind it
 * some have been worked on, but none is done. */
sw_code sw_lanes_run(const sw_place *at, int lanes_max, int64_t n_items, const sw_lane_work *work,
                     sw_err *err) SW_MUST_USE;

/* Lets steps of what lies at *place be taken in the lane `at`, where both are of one backend. */
static inline void sw_lane_enter(sw_place *place, const sw_place *at)
{
    if (sw_backend_of(at) == sw_backend_of(place)) *place = *at;
}

/* Any number that a place has. */
#define SW_LANES_ANY 64

#endif
