/* hostile.h - what a refusal may cost: a second of the processor and 200 MB. */
#ifndef SW_TESTS_SUPPORT_TOYS_HOSTILE_H
#define SW_TESTS_SUPPORT_TOYS_HOSTILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

/* Sanitizers take their own time and memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SLOW 1
#endif
#endif
#ifndef IS_SLOW
#define IS_SLOW 0
#endif
#define SECONDS_MAX (IS_SLOW ? 20.0 : 1.0)
#define MEMORY_KB_MAX 200000

/* Of this process: other work on the machine does not count. */
static inline double hostile_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Since `begin`, and at most so far; `what` names the input. */
static inline void hostile_assert_cheap(double begin, const char *what)
{
    double seconds = hostile_now_s() - begin;
    struct rusage use;

    if (!(seconds < SECONDS_MAX)) fail_msg("%s: %.2f s", what, seconds);
    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    if (!IS_SLOW && use.ru_maxrss > MEMORY_KB_MAX)
        fail_msg("%s: %ld kB in use at most", what, use.ru_maxrss);
}

#endif
