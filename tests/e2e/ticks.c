/* ticks.c - preloaded, it gives a process a monotonic clock that is a fifth of a second later at
 * each look: what is drawn at most six times a second is drawn at every step, however fast the
 * machine is. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

#define TICK_NS 200000000L

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static atomic_long n_looks;
    long ns = TICK_NS * (1 + atomic_fetch_add(&n_looks, 1));

    if (clock != CLOCK_MONOTONIC)
        return ((__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    now->tv_sec = ns / 1000000000L;
    now->tv_nsec = ns % 1000000000L;
    return 0;
}
