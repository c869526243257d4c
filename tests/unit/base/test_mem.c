/* test_mem.c - buffers and arenas: aligned, zeroed, bounded, and given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/mem.h"

static void expect_zero(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;

    for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
}

static void test_buffers(void **state)
{
    static const int64_t sizes[] = {0, 1, 63, 64, 65, 4096, 1000003};

    (void)state;
    for (int round = 0; round < 2; round++) /* the second time memory is used memory */
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            unsigned char *p = NULL;
            sw_err err = {0};
            assert_int_equal(SW_MEM_GET(&p, sizes[i], "test", &err), SW_OK);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % SW_MEM_ALIGN_BYTES, 0);
            expect_zero(p, (size_t)sizes[i]);
            memset(p, 0xa5, (size_t)sizes[i]);
            sw_mem_put(p);
        }
    sw_mem_put(NULL);
}

static void test_impossible_sizes(void **state)
{
    static const struct {
        int64_t n;
        size_t elem;
    } bad[] = {{-1, 1}, {INT64_MIN, 1}, {INT64_MAX, 1}, {INT64_MAX, 8},
               {(int64_t)1 << 33, (size_t)1 << 33}, {(int64_t)1 << 62, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char marker, *p = &marker;
        sw_arena arena = {0};
        sw_err err = {0};
        assert_int_equal(sw_mem_get((void **)&p, bad[i].n, bad[i].elem, "thing", &err), SW_E_NOMEM);
        assert_memory_equal(err.text, "thing: ", 7);
        assert_int_equal(sw_arena_take((void **)&p, &arena, bad[i].n, bad[i].elem, NULL),
                         SW_E_NOMEM);
        assert_ptr_equal(p, &marker);
        assert_null(arena.head);
    }
}

static void test_arena_takes(void **state)
{
    sw_arena arena = {0};
    unsigned char *prev = NULL;
    sw_err err = {0};

    (void)state;
    for (int i = 0; i < 2000; i++) { /* several chunks, and one larger than a chunk */
        size_t n = i == 1000 ? 1000000 : (size_t)(i % 257);
        unsigned char *p = NULL;
        assert_int_equal(SW_ARENA_TAKE(&p, &arena, n, &err), SW_OK);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_ptr_not_equal(p, prev);
        expect_zero(p, n);
        memset(p, 0xff, n);
        prev = p;
    }
    sw_arena_free(&arena);
    assert_null(arena.head);
    assert_int_equal(arena.taken_bytes, 0);
    sw_arena_free(&arena);
}

/* Reset gives back all since the mark and nothing before it; taken again, it is zero again. */
static void test_arena_reset(void **state)
{
    sw_arena arena = {0};
    sw_arena_mark start = sw_arena_save(&arena), mark;
    char *kept = NULL, *lost = NULL, *again = NULL;
    size_t taken;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_arena_text(&kept, &arena, "keep me", 7, &err), SW_OK);
    mark = sw_arena_save(&arena);
    taken = arena.taken_bytes;
    assert_int_equal(SW_ARENA_TAKE(&lost, &arena, 100, &err), SW_OK);
    memset(lost, 0x5a, 100);
    for (int i = 0; i < 5; i++) {
        char *far = NULL;
        assert_int_equal(SW_ARENA_TAKE(&far, &arena, 50000, &err), SW_OK);
        memset(far, 0x5a, 50000);
    }
    assert_true(arena.taken_bytes > taken + 250000);
    sw_arena_reset(&arena, mark);
    assert_int_equal(arena.taken_bytes, taken);
    assert_string_equal(kept, "keep me");
    assert_int_equal(SW_ARENA_TAKE(&again, &arena, 100, &err), SW_OK);
    assert_ptr_equal(again, lost);
    expect_zero(again, 100);
    sw_arena_reset(&arena, start); /* a mark from before the first chunk frees everything */
    assert_null(arena.head);
    assert_int_equal(arena.taken_bytes, 0);
}

static void test_arena_texts(void **state)
{
    sw_arena arena = {0};
    char *text = NULL, *vast = NULL;
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_arena_text(&text, &arena, "abcdef", 3, &err), SW_OK);
    assert_string_equal(text, "abc");
    assert_int_equal(sw_arena_text(&text, &arena, NULL, 0, &err), SW_OK);
    assert_string_equal(text, "");
    assert_int_equal(sw_arena_print(&text, &arena, &err, "%s.%d", "layer", 7), SW_OK);
    assert_string_equal(text, "layer.7");
    assert_int_equal(sw_arena_print(&vast, &arena, &err, "%0100000d", 5), SW_OK);
    assert_int_equal(strlen(vast), 100000);
    assert_string_equal(text, "layer.7");
    sw_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers),     cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_arena_takes), cmocka_unit_test(test_arena_reset),
        cmocka_unit_test(test_arena_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
