/* weight_rooms.c - see weight_rooms.h. */
#include "quant/weight_rooms.h"

#include "formats/base/mem.h"

/* What lies in front of the floats, which stay as aligned as what sw_mem_get gives. */
typedef struct sw_weight_room {
    _Alignas(SW_MEM_ALIGN_BYTES) struct sw_weight_room *next; /* that is free */
    int64_t n_elems;
} sw_weight_room;

#define HEAD_ELEMS ((int64_t)(sizeof(sw_weight_room) / sizeof(float)))

static float *floats_of(sw_weight_room *room) { return (float *)(void *)(room + 1); }

static sw_weight_room *room_of(float *floats) { return (sw_weight_room *)(void *)floats - 1; }

void sw_weight_rooms_begin(sw_weight_rooms *rooms)
{
    (void)pthread_mutex_init(&rooms->mutex, NULL);
    rooms->free = NULL;
}

/* NULL: none of this size is free. With the mutex held, as drop. */
static sw_weight_room *find(sw_weight_rooms *rooms, int64_t n_elems)
{
    sw_weight_room **at = &rooms->free, *room;

    while (*at && (*at)->n_elems != n_elems) at = &(*at)->next;
    room = *at;
    if (room) *at = room->next;
    return room;
}

static void drop(sw_weight_rooms *rooms, int64_t n_elems)
{
    while (rooms->free && n_elems > 0) {
        sw_weight_room *room = rooms->free;

        rooms->free = room->next;
        n_elems -= room->n_elems;
        sw_mem_put(room);
    }
}

sw_code sw_weight_room_take(float **out, sw_weight_rooms *rooms, int64_t n_elems, int n_threads,
                            sw_err *err)
{
    float *memory = NULL;
    sw_weight_room *room;
    sw_code rc;

    (void)pthread_mutex_lock(&rooms->mutex);
    room = find(rooms, n_elems);
    if (!room) drop(rooms, n_elems);
    (void)pthread_mutex_unlock(&rooms->mutex);
    if (!room) {
        rc = SW_MEM_GET_WIDE(&memory, HEAD_ELEMS + n_elems, "weight", n_threads, err);
        if (rc != SW_OK) return rc;
        room = (sw_weight_room *)(void *)memory;
        room->n_elems = n_elems;
    }
    *out = floats_of(room);
    return SW_OK;
}

void sw_weight_room_put(sw_weight_rooms *rooms, float *room)
{
    sw_weight_room *head;

    if (!room) return;
    head = room_of(room);
    (void)pthread_mutex_lock(&rooms->mutex);
    head->next = rooms->free;
    rooms->free = head;
    (void)pthread_mutex_unlock(&rooms->mutex);
}

void sw_weight_rooms_empty(sw_weight_rooms *rooms)
{
    (void)pthread_mutex_lock(&rooms->mutex);
    drop(rooms, INT64_MAX);
    (void)pthread_mutex_unlock(&rooms->mutex);
}

void sw_weight_rooms_end(sw_weight_rooms *rooms)
{
    sw_weight_rooms_empty(rooms);
    (void)pthread_mutex_destroy(&rooms->mutex);
}
