/* spread_plan.c - see spread_plan.h.
 *
 * Layers keep their order, so a share decides everything: each device in turn takes as many layers
 * as fit that share of its room, which no other cut into the same rooms beats. The least share is
 * found by halving.
 */
#include "kernels/engine/spread/spread_plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SHARES 4096 /* of a room */

static int64_t bytes_of(const sw_spread_need *need, int64_t layer)
{
    return need->layer_bytes[layer] + (layer == 0 ? need->first_bytes : 0) +
           (layer + 1 == need->n_layers ? need->last_bytes : 0);
}

static int64_t sum_of(const sw_spread_need *need)
{
    int64_t sum = 0;

    for (int64_t l = 0; l < need->n_layers; l++) sum += bytes_of(need, l);
    return sum;
}

int64_t sw_spread_whole_bytes(const sw_spread_need *need)
{
    return sum_of(need) + need->each_bytes - need->shared_bytes;
}

static int64_t share_of(int64_t bytes, int share)
{
    return bytes / SHARES * share + bytes % SHARES * share / SHARES;
}

/* Do all layers lie somewhere? */
static bool place(int64_t *ends, const sw_spread_need *need, const sw_spread_room *rooms, int n,
                  int share)
{
    int64_t l = 0;

    for (int i = 0; i < n; i++) {
        int64_t left = share_of(rooms[i].left_bytes, share) - need->each_bytes;

        for (; l < need->n_layers && bytes_of(need, l) <= left; l++) left -= bytes_of(need, l);
        ends[i] = l;
    }
    return l == need->n_layers;
}

static double gb(int64_t bytes) { return 1e-9 * (double)bytes; }

/* "cuda:0 79.1 GB, cuda:1 79.3 GB" as far as it fits. */
static void name_rooms(char *text, size_t size, const sw_spread_room *rooms, int n)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < n && used + 1 < size; i++) {
        (void)snprintf(text + used, size - used, "%scuda:%d %.1f GB", i ? ", " : "",
                       rooms[i].index, gb(rooms[i].left_bytes));
        used = strlen(text);
    }
}

static sw_code refuse(const sw_spread_need *need, const sw_spread_room *rooms, int n, sw_err *err)
{
    int64_t most = 0, room = 0;
    char have[96];

    for (int64_t l = 0; l < need->n_layers; l++)
        most = bytes_of(need, l) > most ? bytes_of(need, l) : most;
    for (int i = 0; i < n; i++) room += rooms[i].left_bytes;
    name_rooms(have, sizeof have, rooms, n);
    return SW_FAIL(err, SW_E_NOMEM, "needs %.1f GB over %d devices that have %.1f GB left (%s), "
                   "the largest layer with its end %.1f GB: take more devices, a larger "
                   "--device-memory, one device (cuda:%d), where blocks wait in host memory, or "
                   "--device cpu",
                   gb(sum_of(need) + n * need->each_bytes), n, gb(room), have, gb(most),
                   rooms[0].index);
}

sw_code sw_spread_plan(int64_t *ends, const sw_spread_need *need, const sw_spread_room *rooms,
                       int n, sw_err *err)
{
    int low = 0, high = SHARES; /* the least share that takes all lies above low */

    if (!place(ends, need, rooms, n, SHARES)) return refuse(need, rooms, n, err);
    while (high - low > 1) {
        const int share = low + (high - low) / 2;

        if (place(ends, need, rooms, n, share))
            high = share;
        else
            low = share;
    }
    (void)place(ends, need, rooms, n, high);
    return SW_OK;
}
