/* parallel.c - see parallel.h. OpenMP underneath. */
#include "formats/base/parallel.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/size.h"

#define PROBED_MAX 256 /* threads, of more that are wanted */
#define PROBED_SPARE 3 /* beside them: their stacks are what others may take before a team starts */

static void *pass_gate(void *gate)
{
    (void)pthread_mutex_lock(gate);
    (void)pthread_mutex_unlock(gate);
    return NULL;
}

/* 0, or why so many threads cannot run at once. */
static int probe(int n_threads)
{
    int n_wanted = n_threads < PROBED_MAX ? n_threads - 1 : PROBED_MAX - 1, n = 0, failed = 0;
    pthread_t threads[PROBED_MAX];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&gate); /* all of them live until the last was started */
    while (n < n_wanted && !(failed = pthread_create(&threads[n], NULL, pass_gate, &gate))) n++;
    (void)pthread_mutex_unlock(&gate);
    for (int i = 0; i < n; i++) (void)pthread_join(threads[i], NULL);
    return failed;
}

sw_code sw_parallel_reserve(int n_threads, sw_err *err)
{
    const int failed = probe(n_threads);

    if (!failed) return SW_OK;
    return SW_FAIL(err, SW_E_NOMEM, "cannot start %d threads: %s; give fewer --threads, or lift "
                   "the limit (ulimit -v, -u)", n_threads, strerror(failed));
}

/* OpenMP has a team for every thread that calls it, and ends the process where it cannot start one.
 * So the first of a size is tried before, one thread at a time, and started at once. */
static bool can_start(int n_threads)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    /* of this model, since the shared library has the same objects as the program */
    static _Thread_local int n_tried __attribute__((tls_model("initial-exec"))) = 1;
    bool can;

    if (n_threads <= n_tried) return true;
    (void)pthread_mutex_lock(&one_at_a_time);
    if ((can = probe(n_threads + PROBED_SPARE) == 0)) {
#pragma omp parallel num_threads(n_threads)
        (void)omp_get_thread_num();
        n_tried = n_threads;
    }
    (void)pthread_mutex_unlock(&one_at_a_time);
    return can;
}

void sw_parallel_for(int n_threads, int64_t n_items, int64_t chunk_items, sw_parallel_fn fn,
                     void *ctx)
{
    int64_t n_chunks = sw_ceil_div(n_items, chunk_items);
    int n_used = (int)sw_min_i64(n_threads, n_chunks);

    if (n_used <= 1 || omp_in_parallel() || !can_start(n_used)) {
        for (int64_t c = 0; c < n_chunks; c++)
            fn(ctx, c * chunk_items, sw_min_i64((c + 1) * chunk_items, n_items), 0);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_used)
    for (int64_t c = 0; c < n_chunks; c++)
        fn(ctx, c * chunk_items, sw_min_i64((c + 1) * chunk_items, n_items), omp_get_thread_num());
}

int sw_cpu_count(void)
{
    cpu_set_t set;

    /* fails on machines with more processors than the set holds */
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return (int)sw_max_i64(sysconf(_SC_NPROCESSORS_ONLN), 1);
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}
