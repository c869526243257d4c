/* test_parallel.c - every item once, in the chunks asked for, with any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define N_MAX 1003

typedef struct job {
    int64_t n_items, chunk_items;
    int n_threads;
    int seen[N_MAX];
    float sums[N_MAX]; /* one per chunk */
    bool is_bad;
} job;

static void visit(void *ctx, int64_t begin, int64_t end, int thread)
{
    job *j = ctx;
    float sum = 0;

    if (begin % j->chunk_items || begin >= end || thread < 0 || thread >= j->n_threads ||
        end != sw_min_i64(begin + j->chunk_items, j->n_items))
        j->is_bad = true;
    for (int64_t i = begin; i < end; i++) {
        j->seen[i]++;
        sum += 1.0f / (float)(i + 1);
    }
    j->sums[begin / j->chunk_items] = sum;
}

/* The sum of 1/i by chunks: rounding makes its bits depend on how the items are grouped. */
static float run(int n_threads, int64_t n_items, int64_t chunk_items)
{
    job *j = calloc(1, sizeof *j);
    float total = 0;

    j->n_items = n_items;
    j->chunk_items = chunk_items;
    j->n_threads = n_threads > 1 ? n_threads : 1;
    sw_parallel_for(n_threads, n_items, chunk_items, visit, j);
    assert_false(j->is_bad);
    for (int64_t i = 0; i < N_MAX; i++) assert_int_equal(j->seen[i], i < n_items);
    for (int64_t c = 0; c < sw_ceil_div(n_items, chunk_items); c++) total += j->sums[c];
    free(j);
    return total;
}

static void test_same_result(void **state)
{
    static const int64_t n_items[] = {0, 1, 2, 7, 64, 1000, N_MAX}, chunks[] = {1, 3, 64, 5000};

    (void)state;
    for (size_t i = 0; i < sizeof n_items / sizeof n_items[0]; i++)
        for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
            float one = run(1, n_items[i], chunks[c]);
            for (int n_threads = 2; n_threads <= 4; n_threads++) {
                float many = run(n_threads, n_items[i], chunks[c]);
                assert_memory_equal(&one, &many, sizeof one);
            }
        }
    (void)run(0, 100, 7); /* no threads at all still means this one */
    (void)run(-1, 100, 7);
}

static void inner(void *ctx, int64_t begin, int64_t end, int thread)
{
    int *counts = ctx;

    if (thread != 0) counts[0] = -1000; /* nested work stays on the calling thread */
    for (int64_t i = begin; i < end; i++) counts[i]++;
}

static void outer(void *ctx, int64_t begin, int64_t end, int thread)
{
    int(*counts)[10] = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++) sw_parallel_for(4, 10, 2, inner, counts[i]);
}

static void test_nested(void **state)
{
    int counts[8][10] = {{0}};

    (void)state;
    sw_parallel_for(4, 8, 1, outer, counts);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 10; k++) assert_int_equal(counts[i][k], 1);
}

static void test_cpu_count(void **state)
{
    (void)state;
    assert_in_range(sw_cpu_count(), 1, 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_result),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_cpu_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
