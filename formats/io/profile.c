/* profile.c - see profile.h. */
#include "formats/io/profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/mem.h"
#include "formats/base/print_buf.h"
#include "formats/io/file.h"

typedef struct recorded {
    const char *step;
    char what[96];
    int64_t start_ns, end_ns;
    long thread;
} recorded;

static struct {
    pthread_mutex_t mutex;
    atomic_bool is_on;
    int64_t begin_ns;
    recorded *spans;
    int64_t n, n_room, n_lost;
} profile = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double sw_clock_s(void) { return 1e-9 * (double)now_ns(); }

void sw_profile_begin(void)
{
    sw_profile_end();
    profile.begin_ns = now_ns();
    atomic_store(&profile.is_on, true);
}

bool sw_profile_is_on(void) { return atomic_load_explicit(&profile.is_on, memory_order_relaxed); }

void sw_profile_end(void)
{
    atomic_store(&profile.is_on, false);
    (void)pthread_mutex_lock(&profile.mutex);
    sw_mem_put(profile.spans);
    profile.spans = NULL;
    profile.n = profile.n_room = profile.n_lost = 0;
    (void)pthread_mutex_unlock(&profile.mutex);
}

sw_span sw_span_open(const char *step)
{
    if (!sw_profile_is_on()) return (sw_span){NULL, 0};
    return (sw_span){step, now_ns()};
}

/* Room for one more, with the mutex held. */
static recorded *next_place(void)
{
    int64_t n_room = profile.n_room ? 2 * profile.n_room : 1024;
    recorded *more = NULL;
    sw_err err = {0};

    if (profile.n < profile.n_room) return &profile.spans[profile.n++];
    if (SW_MEM_GET(&more, n_room, "spans of the profile", &err) != SW_OK) return NULL;
    if (profile.n) memcpy(more, profile.spans, (size_t)profile.n * sizeof *more);
    sw_mem_put(profile.spans);
    profile.spans = more;
    profile.n_room = n_room;
    return &profile.spans[profile.n++];
}

void sw_span_close(sw_span span, const char *what)
{
    const int64_t end_ns = now_ns();
    recorded *to;

    if (!span.step || !sw_profile_is_on()) return;
    (void)pthread_mutex_lock(&profile.mutex);
    to = next_place();
    if (to) {
        *to = (recorded){.step = span.step, .start_ns = span.start_ns, .end_ns = end_ns,
                         .thread = syscall(SYS_gettid)};
        (void)snprintf(to->what, sizeof to->what, "%s", what ? what : "");
    } else {
        profile.n_lost++;
    }
    (void)pthread_mutex_unlock(&profile.mutex);
}

double sw_profile_seconds(const char *step)
{
    int64_t sum_ns = 0;

    (void)pthread_mutex_lock(&profile.mutex);
    for (int64_t i = 0; i < profile.n; i++)
        if (!strcmp(profile.spans[i].step, step))
            sum_ns += profile.spans[i].end_ns - profile.spans[i].start_ns;
    (void)pthread_mutex_unlock(&profile.mutex);
    return 1e-9 * (double)sum_ns;
}

int64_t sw_profile_lost(void)
{
    int64_t n;

    (void)pthread_mutex_lock(&profile.mutex);
    n = profile.n_lost;
    (void)pthread_mutex_unlock(&profile.mutex);
    return n;
}

static sw_code print_span(sw_print_buf *buf, const recorded *span, sw_err *err)
{
    sw_code rc = sw_print_fmt(buf, err, "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":%ld,\"name\":",
                              buf->n_bytes > 32 ? "," : "", span->thread);

    if (rc == SW_OK) rc = sw_print_quote(buf, span->step, err);
    if (rc == SW_OK)
        rc = sw_print_fmt(buf, err, ",\"ts\":%.3f,\"dur\":%.3f",
                          1e-3 * (double)(span->start_ns - profile.begin_ns),
                          1e-3 * (double)(span->end_ns - span->start_ns));
    if (rc != SW_OK || !span->what[0])
        return rc == SW_OK ? sw_print_fmt(buf, err, "}") : rc;
    rc = sw_print_fmt(buf, err, ",\"args\":{\"of\":");
    if (rc == SW_OK) rc = sw_print_quote(buf, span->what, err);
    return rc == SW_OK ? sw_print_fmt(buf, err, "}}") : rc;
}

sw_code sw_profile_write(const char *path, sw_err *err)
{
    sw_print_buf buf = {0};
    sw_code rc;

    (void)pthread_mutex_lock(&profile.mutex);
    rc = sw_print_fmt(&buf, err, "{\"traceEvents\":[");
    for (int64_t i = 0; i < profile.n && rc == SW_OK; i++)
        rc = print_span(&buf, &profile.spans[i], err);
    (void)pthread_mutex_unlock(&profile.mutex);
    if (rc == SW_OK) rc = sw_print_fmt(&buf, err, "\n]}\n");
    if (rc == SW_OK) rc = sw_file_put(path, buf.at, buf.n_bytes, err);
    sw_mem_put(buf.at);
    return rc;
}
