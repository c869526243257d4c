/* signals.c - see signals.h. Handlers call nothing but what POSIX lets them. */
#include "tools/cli/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/status.h"
#include "formats/io/leftovers.h"
#include "formats/io/watch.h"

#define MESSAGE_BYTES 6144

/* Handlers can reach nothing but static objects. These are set before any is installed. */
static struct {
    const char *command;
    bool is_json, is_long;
    struct sigaction bus_before;
} caught;
static volatile sig_atomic_t stop_requested;
static atomic_flag has_lost_input = ATOMIC_FLAG_INIT;

/* What each signal that ends a process does to a long command. */
typedef enum answer {
    ASKS,     /* the first asks to stop, the second ends the process */
    ONLY_ASKS, /* it is raised again and again, until the work has stopped */
    ENDS,     /* the process cannot go on */
} answer;

static const struct {
    int number;
    answer answer;
    bool is_always; /* also where it is ignored, as shells do for what they run in the background */
} signals[] = {
    {SIGINT, ASKS, true},       {SIGTERM, ASKS, true},       {SIGQUIT, ASKS, true},
    {SIGHUP, ASKS, false},      {SIGUSR1, ASKS, false},      {SIGUSR2, ASKS, false},
    {SIGALRM, ASKS, false},     {SIGVTALRM, ASKS, false},    {SIGPROF, ASKS, false},
    {SIGPOLL, ASKS, false},     {SIGPWR, ASKS, false},       {SIGSTKFLT, ASKS, false},
    {SIGPIPE, ONLY_ASKS, false}, {SIGXCPU, ONLY_ASKS, false}, {SIGSEGV, ENDS, false},
    {SIGILL, ENDS, false},      {SIGFPE, ENDS, false},       {SIGABRT, ENDS, false},
    {SIGTRAP, ENDS, false},     {SIGSYS, ENDS, false},
};

bool sw_signals_ask_to_stop(void) { return stop_requested != 0; }

static answer answer_of(int number)
{
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signals[i].number == number) return signals[i].answer;
    return ENDS;
}

/* As if nobody had caught it; it is delivered when the handler returns. */
static void end_by(int number)
{
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void on_signal(int number)
{
    const answer a = caught.is_long ? answer_of(number) : ENDS;

    if (a == ONLY_ASKS || (a == ASKS && !stop_requested)) {
        stop_requested = 1;
        return;
    }
    sw_leftovers_remove();
    end_by(number);
}

/* --- the message of a lost input, put together without the help of stdio --- */

typedef struct message {
    char text[MESSAGE_BYTES];
    size_t n;
} message;

static void add(message *m, const char *text)
{
    size_t n = strlen(text);

    if (n > sizeof m->text - m->n) n = sizeof m->text - m->n;
    memcpy(m->text + m->n, text, n);
    m->n += n;
}

static void add_number(message *m, uint64_t v)
{
    char digits[24];
    size_t at = sizeof digits;

    digits[--at] = '\0';
    do digits[--at] = (char)('0' + v % 10);
    while (v /= 10);
    add(m, digits + at);
}

/* Paths come from outside: control bytes become '?', and what JSON escapes is escaped. */
static void add_outside(message *m, const char *text, bool is_json)
{
    for (char one[3]; *text; text++) {
        bool is_control = (unsigned char)*text < 0x20 || *text == 0x7f;
        size_t n = 0;
        if (is_json && (*text == '"' || *text == '\\')) one[n++] = '\\';
        one[n++] = is_control ? '?' : *text;
        one[n] = '\0';
        add(m, one);
    }
}

static void add_lost(message *m, const char *path, uint64_t offset, uint64_t size_bytes,
                     bool is_json)
{
    struct stat info;

    add_outside(m, path, is_json);
    add(m, ": cannot be read at offset ");
    add_number(m, offset);
    add(m, " of ");
    add_number(m, size_bytes);
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size >= size_bytes) {
        add(m, ": its disk failed, or it was cut short while this run read it");
        return;
    }
    add(m, ": it was cut short to ");
    add_number(m, (uint64_t)info.st_size);
    add(m, " bytes while this run read it");
}

static void say(const message *m, int fd)
{
    for (size_t at = 0; at < m->n;) {
        ssize_t done = write(fd, m->text + at, m->n - at);
        if (done <= 0) return;
        at += (size_t)done;
    }
}

static void say_lost(const char *path, uint64_t offset, uint64_t size_bytes)
{
    message m = {.n = 0};

    if (isatty(STDERR_FILENO) == 1) add(&m, "\r\033[K");
    add(&m, "swage ");
    add(&m, caught.command);
    add(&m, ": ");
    add_lost(&m, path, offset, size_bytes, false);
    add(&m, "\n");
    say(&m, STDERR_FILENO);
    if (!caught.is_json) return;
    m.n = 0;
    add(&m, "{\n  \"swage\": \"" SW_VERSION "\",\n  \"result\": \"swage.error/1\",\n"
            "  \"command\": \"");
    add(&m, caught.command);
    add(&m, "\",\n  \"code\": \"io\",\n  \"exit\": 5,\n  \"message\": \"");
    add_lost(&m, path, offset, size_bytes, true);
    add(&m, "\"\n}\n");
    say(&m, STDOUT_FILENO);
}

/* Any thread may be the one that reads. It does not go back to work, and nobody else publishes what
 * it has not finished. */
static void on_bus(int number, siginfo_t *info, void *context)
{
    uint64_t offset = 0, size_bytes = 0;
    const char *path = NULL;

    (void)context;
    if (atomic_flag_test_and_set(&has_lost_input))
        for (;;) (void)pause(); /* another thread is about to end the process */
    sw_leftovers_remove();
    if (info->si_code > 0 && sw_watch_find(&path, &offset, &size_bytes, info->si_addr)) {
        say_lost(path, offset, size_bytes);
        _exit(SW_E_IO);
    }
    (void)sigaction(number, &caught.bus_before, NULL);
    (void)raise(number);
}

static void catch_one(int number, bool is_always)
{
    struct sigaction before, action;

    if (sigaction(number, NULL, &before) != 0 || (before.sa_flags & SA_SIGINFO) ||
        (before.sa_handler != SIG_DFL && !(is_always && before.sa_handler == SIG_IGN)))
        return;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    (void)sigaction(number, &action, NULL);
}

void sw_signals_catch(const char *command, bool is_json, bool is_long)
{
    struct sigaction action;

    caught.command = command;
    caught.is_json = is_json;
    caught.is_long = is_long;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        catch_one(signals[i].number, signals[i].is_always);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus;
    action.sa_flags = (int)SA_SIGINFO;
    (void)sigaction(SIGBUS, &action, &caught.bus_before);
}
