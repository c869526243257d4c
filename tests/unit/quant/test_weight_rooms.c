/* test_weight_rooms.c - memory that weights use in turn: what is found again, what goes back. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "formats/base/mem.h"
#include "quant/weight_rooms.h"

#define SMALL 1000
#define LARGE 3000

static float *take(sw_weight_rooms *rooms, int64_t n)
{
    float *room = NULL;
    sw_err err = {0};

    assert_int_equal(sw_weight_room_take(&room, rooms, n, 1, &err), SW_OK);
    assert_int_equal((uintptr_t)room % SW_MEM_ALIGN_BYTES, 0);
    for (int64_t i = 0; i < n; i++) room[i] = (float)i; /* a checked build sees one too many */
    return room;
}

static void a_room_is_found_again(void **state)
{
    sw_weight_rooms rooms;
    float *a, *b, *c;

    (void)state;
    sw_weight_rooms_begin(&rooms);
    a = take(&rooms, SMALL);
    b = take(&rooms, SMALL);
    c = take(&rooms, LARGE);
    assert_ptr_not_equal(a, b);
    sw_weight_room_put(&rooms, a);
    sw_weight_room_put(&rooms, c);
    assert_ptr_equal(take(&rooms, SMALL), a);
    assert_ptr_equal(take(&rooms, LARGE), c);
    sw_weight_room_put(&rooms, a);
    sw_weight_room_put(&rooms, b);
    sw_weight_room_put(&rooms, c);
    sw_weight_room_put(&rooms, NULL);
    sw_weight_rooms_end(&rooms);
}

/* Rooms that nobody wants go before another size takes more. */
static void sizes_do_not_add_up(void **state)
{
    sw_weight_rooms rooms;
    float *small[4], *large;

    (void)state;
    sw_weight_rooms_begin(&rooms);
    for (int i = 0; i < 4; i++) small[i] = take(&rooms, SMALL);
    for (int i = 0; i < 4; i++) sw_weight_room_put(&rooms, small[i]);
    large = take(&rooms, LARGE); /* in place of three of them */
    assert_ptr_equal(take(&rooms, SMALL), small[0]);
    assert_null(rooms.free);
    sw_weight_room_put(&rooms, small[0]);
    sw_weight_room_put(&rooms, large);
    sw_weight_rooms_empty(&rooms);
    assert_null(rooms.free);
    sw_weight_rooms_end(&rooms);
}

static void no_memory_is_said(void **state)
{
    sw_weight_rooms rooms;
    float *room = NULL;
    sw_err err = {0};

    (void)state;
    sw_weight_rooms_begin(&rooms);
    assert_int_equal(sw_weight_room_take(&room, &rooms, INT64_MAX / 2, 1, &err), SW_E_NOMEM);
    assert_null(room);
    sw_weight_rooms_end(&rooms);
}

#define THREADS 4
#define TURNS 500

static void *take_turns(void *self)
{
    sw_weight_rooms *rooms = self;

    for (int i = 0; i < TURNS; i++) {
        sw_err err = {0};
        float *room = NULL;

        if (sw_weight_room_take(&room, rooms, SMALL + i % 2, 1, &err) != SW_OK) return NULL;
        for (int j = 0; j < SMALL; j++) room[j] = (float)i;
        for (int j = 0; j < SMALL; j++)
            if (room[j] != (float)i) return NULL; /* another has it too */
        sw_weight_room_put(rooms, room);
    }
    return rooms;
}

static void a_room_has_one_taker(void **state)
{
    pthread_t threads[THREADS];
    sw_weight_rooms rooms;

    (void)state;
    sw_weight_rooms_begin(&rooms);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &rooms), 0);
    for (int i = 0; i < THREADS; i++) {
        void *done = NULL;

        (void)pthread_join(threads[i], &done);
        assert_ptr_equal(done, &rooms);
    }
    sw_weight_rooms_end(&rooms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_room_is_found_again),
        cmocka_unit_test(sizes_do_not_add_up),
        cmocka_unit_test(no_memory_is_said),
        cmocka_unit_test(a_room_has_one_taker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
