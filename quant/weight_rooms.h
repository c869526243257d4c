/* weight_rooms.h - memory for the weights of a block, one weight a room, that blocks use in turn.
 *
 * What is given back is kept for the next weight of its size: the system clears new memory page by
 * page, which takes ten times as long as writing to it. Rooms hold what was there before.
 */
#ifndef SW_QUANT_WEIGHT_ROOMS_H
#define SW_QUANT_WEIGHT_ROOMS_H

#include <pthread.h>
#include <stdint.h>

#include "formats/base/status.h"

struct sw_weight_room;

typedef struct sw_weight_rooms {
    pthread_mutex_t mutex;
    struct sw_weight_room *free;
} sw_weight_rooms;

void sw_weight_rooms_begin(sw_weight_rooms *rooms);
/* *out: n_elems floats, for sw_weight_room_put, from any thread. Where none of that size is free,
 * as much as is wanted goes back to the system first, so that sizes of other blocks do not add up;
 * n_threads touch new memory. SW_E_NOMEM. */
sw_code sw_weight_room_take(float **out, sw_weight_rooms *rooms, int64_t n_elems, int n_threads,
                            sw_err *err) SW_MUST_USE;
void sw_weight_room_put(sw_weight_rooms *rooms, float *room); /* accepts NULL */
/* All that is free goes back to the system. */
void sw_weight_rooms_empty(sw_weight_rooms *rooms);
/* When every room has been put back. */
void sw_weight_rooms_end(sw_weight_rooms *rooms);

#endif
