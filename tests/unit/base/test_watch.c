/* test_watch.c - inputs that change or are lost while they are read; signals. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/io/watch.h"
#include "tests/support/scratch.h"
#include "tools/cli/signals.h"

/* --- outputs over inputs --- */

/* By every name that leads to it. */
static void test_input_is_no_output(void **state)
{
    static const char *const names[] = {"in", "hard", "soft", "./in", "d/../in"};
    const scratch *s = *state;
    sw_map map = {0};
    sw_err err = {0};

    scratch_write_text(s, "in", "source");
    scratch_make_dir(s, "d");
    assert_int_equal(link(scratch_path(s, "in"), scratch_path(s, "hard")), 0);
    assert_int_equal(symlink("in", scratch_path(s, "soft")), 0);
    sw_watch_begin();
    assert_int_equal(sw_map_open(&map, scratch_path(s, "in"), &err), SW_OK);
    sw_map_close(&map);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(sw_file_put_new(scratch_path(s, names[i]), "x", 1, true, &err),
                         SW_E_USAGE);
        assert_non_null(strstr(err.text, "is an input of this run"));
    }
    scratch_expect(s, "in", "source");
    assert_int_equal(scratch_count(s, NULL), 4);
}

/* --- inputs that change --- */

static void open_input(const scratch *s, bool with_digest)
{
    sw_map map = {0};
    char hex[SW_SHA256_HEX_BYTES];

    (void)remove(scratch_path(s, "in"));
    scratch_write_text(s, "in", "source");
    sw_watch_begin();
    assert_int_equal(sw_map_open(&map, scratch_path(s, "in"), NULL), SW_OK);
    sw_map_close(&map);
    if (with_digest) assert_int_equal(sw_sha256_file(hex, scratch_path(s, "in"), NULL), SW_OK);
}

static void expect_changed(const scratch *s, const char *how)
{
    sw_out_file out = {0};
    sw_out_dir dir = {0};
    sw_err err = {0};

    assert_int_equal(sw_watch_check(&err), SW_E_IO);
    assert_non_null(strstr(err.text, scratch_path(s, "in")));
    if (!strstr(err.text, how)) fail_msg("\"%s\" lacks \"%s\"", err.text, how);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_open_new(&out, scratch_path(s, "f"), false, &err), SW_OK);
    assert_int_equal(sw_out_commit(&out, &err), SW_E_IO);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_dir_open(&dir, scratch_path(s, "g"), false, &err), SW_OK);
    assert_int_equal(sw_out_dir_commit(&dir, &err), SW_E_IO);
    assert_false(sw_path_exists(scratch_path(s, "f")));
    assert_false(sw_path_exists(scratch_path(s, "g")));
}

/* Over the bytes, with the size as it was and the time set back. */
static void overwrite(const scratch *s, const char *bytes)
{
    struct stat was;
    struct timespec times[2];
    int fd = open(scratch_path(s, "in"), O_WRONLY);

    assert_int_equal(fstat(fd, &was), 0);
    assert_int_equal(pwrite(fd, bytes, strlen(bytes), 0), (ssize_t)strlen(bytes));
    times[0] = was.st_atim;
    times[1] = was.st_mtim;
    (void)usleep(20000); /* clocks of file systems tick */
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void test_input_changes(void **state)
{
    const scratch *s = *state;
    sw_err err = {0};

    open_input(s, false);
    assert_int_equal(sw_watch_check(&err), SW_OK);
    (void)usleep(20000);
    scratch_write_text(s, "in", "SOURCE");
    expect_changed(s, "it was changed");
    open_input(s, false);
    scratch_write_text(s, "in", "longer than it was");
    expect_changed(s, "it was changed");
    open_input(s, false);
    assert_int_equal(remove(scratch_path(s, "in")), 0);
    expect_changed(s, "it was removed");
    open_input(s, false);
    scratch_write_text(s, "other", "source");
    assert_int_equal(rename(scratch_path(s, "other"), scratch_path(s, "in")), 0);
    expect_changed(s, "it was replaced");
    open_input(s, true);
    overwrite(s, "SOURCE");
    expect_changed(s, "it was changed");
    open_input(s, true);
    overwrite(s, "source"); /* the same bytes again: its digest says so */
    assert_int_equal(sw_watch_check(&err), SW_OK);
    open_input(s, false);
    overwrite(s, "SOURCE"); /* nobody knows a digest */
    expect_changed(s, "its status was changed");
    sw_watch_end();
    assert_int_equal(sw_watch_check(&err), SW_OK);
}

/* --- what is lost while it is mapped --- */

#define PAGES ((size_t)16 * 4096)

static void make_large(const scratch *s)
{
    char *bytes = calloc(1, PAGES);

    scratch_write(s, "in", bytes, PAGES);
    free(bytes);
}

/* In a process of its own: exit status and what it says on stderr. */
static int run_apart(char said[512], void (*work)(const scratch *), const scratch *s)
{
    int pipes[2], status;
    ssize_t n, at = 0;
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        (void)dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        work(s);
        _exit(99);
    }
    close(pipes[1]);
    while (at < 511 && (n = read(pipes[0], said + at, (size_t)(511 - at))) > 0) at += n;
    said[at] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void read_lost_as(const scratch *s, bool is_json)
{
    volatile const unsigned char *bytes;
    sw_out_file out = {0};
    sw_map map = {0};

    sw_signals_catch("test", is_json, true);
    if (sw_map_open(&map, scratch_path(s, "in"), NULL) != SW_OK ||
        sw_out_open_new(&out, scratch_path(s, "f"), false, NULL) != SW_OK ||
        truncate(scratch_path(s, "in"), 4096) != 0)
        _exit(98);
    bytes = map.data;
    _exit(bytes[3 * 4096 + 17]);
}

static void read_lost(const scratch *s) { read_lost_as(s, false); }

static void read_lost_json(const scratch *s)
{
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    read_lost_as(s, true);
}

static void test_lost_input_is_named(void **state)
{
    const scratch *s = *state;
    char said[512], want[SW_PATH_BYTES + 128];
    int status;

    make_large(s);
    status = run_apart(said, read_lost, s);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SW_E_IO);
    (void)snprintf(want, sizeof want, "swage test: %s: cannot be read at offset 12305 of 65536: it "
                   "was cut short to 4096 bytes while this run read it\n", scratch_path(s, "in"));
    assert_string_equal(said, want);
    assert_int_equal(scratch_count(s, NULL), 1); /* the temporary went with it */
    make_large(s);
    status = run_apart(said, read_lost_json, s);
    assert_int_equal(WEXITSTATUS(status), SW_E_IO);
    assert_non_null(strstr(said, "\"code\": \"io\",\n  \"exit\": 5,\n"));
    assert_non_null(strstr(said, "/in: cannot be read at offset 12305 of 65536"));
}

/* Where the system reads and not we. */
static void test_lost_input_of_a_write(void **state)
{
    const scratch *s = *state;
    sw_out_file out = {0};
    sw_map map = {0};
    sw_err err = {0};

    make_large(s);
    assert_int_equal(sw_map_open(&map, scratch_path(s, "in"), &err), SW_OK);
    assert_int_equal(truncate(scratch_path(s, "in"), 4096), 0);
    assert_int_equal(sw_out_open(&out, scratch_path(s, "f"), &err), SW_OK);
    assert_int_equal(sw_out_write_at(&out, 0, map.data, map.size_bytes, &err), SW_E_IO);
    assert_non_null(strstr(err.text, scratch_path(s, "in")));
    assert_non_null(strstr(err.text, "cannot be read at offset 4096 of 65536"));
    sw_out_abandon(&out);
    sw_map_close(&map);
}

/* --- signals --- */

static void work_until_killed(const scratch *s)
{
    sw_out_file out = {0};
    sw_out_dir dir = {0};

    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    sw_signals_catch("test", false, false);
    if (sw_out_open_new(&out, scratch_path(s, "f"), false, NULL) != SW_OK ||
        sw_out_dir_open(&dir, scratch_path(s, "g"), false, NULL) != SW_OK)
        _exit(98);
    (void)write(STDERR_FILENO, "x", 1);
    for (;;) (void)pause();
}

static void test_signals(void **state)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGXCPU, SIGUSR1,
                                  SIGALRM, SIGSEGV, SIGABRT};
    const scratch *s = *state;
    char byte;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int pipes[2], status;
        pid_t child;
        assert_int_equal(pipe(pipes), 0);
        child = fork();
        if (child == 0) {
            for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
                (void)signal(numbers[k], SIG_DFL); /* cmocka catches some itself */
            (void)dup2(pipes[1], STDERR_FILENO);
            work_until_killed(s);
        }
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        assert_int_equal(scratch_count(s, NULL), 2);
        assert_int_equal(kill(child, numbers[i]), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != numbers[i] || scratch_count(s, NULL))
            fail_msg("signal %d: status %d, %d left", numbers[i], status, scratch_count(s, NULL));
        close(pipes[0]);
        close(pipes[1]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_input_is_no_output),  TEST(test_input_changes),
        TEST(test_lost_input_is_named), TEST(test_lost_input_of_a_write),
        TEST(test_signals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
