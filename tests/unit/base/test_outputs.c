/* test_outputs.c - what is not ours is neither removed nor replaced. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/base/hash.h"
#include "formats/io/file_content.h"
#include "formats/io/out_internal.h"
#include "formats/io/watch.h"
#include "tests/support/scratch.h"

/* The mark of a work directory called `own`, in the directory `name`, with names of files. */
static void put_mark(const scratch *s, const char *name, const char *own, const char *files)
{
    char path[SW_PATH_BYTES], text[1024];
    int n = snprintf(text, sizeof text,
                     "swage-work 1\nUnfinished work of swage, which removes it when it is done.\n"
                     "%s\n", own);

    for (const char *at = files; *at; at += strlen(at) + 1)
        n += 1 + snprintf(text + n, sizeof text - (size_t)n, "%s", at);
    (void)snprintf(path, sizeof path, "%s/" SW_WORK_MARK, name);
    scratch_write(s, path, text, (size_t)n);
}

static sw_code open_hold(const scratch *s, bool is_restart, sw_err *err)
{
    sw_out_dir out = {0};
    sw_code rc;

    memset(err, 0, sizeof *err);
    rc = sw_out_dir_open_kept(&out, scratch_path(s, "out"), false, is_restart, err);
    if (rc == SW_OK) sw_out_dir_abandon(&out);
    return rc;
}

static void expect_refused(const scratch *s, sw_code code, const char *part)
{
    sw_err err = {0};

    for (int is_restart = 0; is_restart < 2; is_restart++) {
        assert_int_equal(open_hold(s, is_restart != 0, &err), code);
        if (!strstr(err.text, part)) fail_msg("\"%s\" lacks \"%s\"", err.text, part);
    }
}

/* --- directories that only look like ours --- */

static void test_hold_of_the_user(void **state)
{
    const scratch *s = *state;

    scratch_make_dir(s, "out.partial");
    scratch_make_dir(s, "out.partial/checkpoint-500");
    scratch_write_text(s, "out.partial/journal-of-training.md", "mine");
    expect_refused(s, SW_E_USAGE, "out.partial: holds ");
    scratch_expect(s, "out.partial/journal-of-training.md", "mine");
    assert_int_equal(scratch_count(s, "out.partial"), 2);
    assert_int_equal(remove(scratch_path(s, "out.partial/checkpoint-500")), 0);
    /* names as exact as they can be, as versions without marks left them too */
    assert_int_equal(remove(scratch_path(s, "out.partial/journal-of-training.md")), 0);
    scratch_make_dir(s, "out.partial/checkpoint");
    scratch_write_text(s, "out.partial/journal", "mine");
    scratch_write_text(s, "out.partial/checkpoint/model.safetensors", "mine");
    expect_refused(s, SW_E_USAGE, "no " SW_WORK_MARK " of this directory");
    scratch_expect(s, "out.partial/journal", "mine");
    scratch_expect(s, "out.partial/checkpoint/model.safetensors", "mine");
    /* a mark of another directory, which was copied or renamed, is no mark */
    put_mark(s, "out.partial", "other.partial", "model.safetensors\0");
    expect_refused(s, SW_E_USAGE, "no " SW_WORK_MARK " of this directory");
    scratch_write_text(s, "out.partial/" SW_WORK_MARK, "swage-work 1\nsomething else");
    expect_refused(s, SW_E_USAGE, "no " SW_WORK_MARK " of this directory");
    scratch_expect(s, "out.partial/checkpoint/model.safetensors", "mine");
    assert_int_equal(scratch_count(s, "out.partial"), 3);
}

/* In a directory of ours only what we put there goes. */
static void test_hold_with_strangers(void **state)
{
    static const char *const names[] = {"thesis.md", "checkpoint/thesis.md", "journal.md",
                                        "checkpoint/a.tmp-x", "checkpoint/b.part"};
    const scratch *s = *state;
    char name[128];
    sw_err err = {0};

    scratch_make_dir(s, "out.partial");
    scratch_make_dir(s, "out.partial/checkpoint");
    put_mark(s, "out.partial", "out.partial", "a\0model.safetensors\0");
    scratch_write_text(s, "out.partial/checkpoint/a", "ours");
    scratch_write_text(s, "out.partial/checkpoint/a.tmp-17", "ours");
    scratch_write_text(s, "out.partial/checkpoint/model.safetensors.part", "ours");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(name, sizeof name, "out.partial/%s", names[i]);
        scratch_write_text(s, name, "mine");
        expect_refused(s, SW_E_USAGE, names[i]);
        scratch_expect(s, name, "mine");
        scratch_expect(s, "out.partial/checkpoint/a", "ours");
        assert_int_equal(remove(scratch_path(s, name)), 0);
    }
    /* a link by a name of ours leads to somebody's file */
    scratch_write_text(s, "precious", "mine");
    assert_int_equal(remove(scratch_path(s, "out.partial/checkpoint/a")), 0);
    assert_int_equal(symlink(scratch_path(s, "precious"),
                             scratch_path(s, "out.partial/checkpoint/a")), 0);
    expect_refused(s, SW_E_USAGE, "checkpoint/a");
    scratch_expect(s, "precious", "mine");
    assert_int_equal(remove(scratch_path(s, "out.partial/checkpoint/a")), 0);
    /* and without strangers it is taken up, and goes */
    assert_int_equal(open_hold(s, false, &err), SW_OK);
    assert_false(sw_path_exists(scratch_path(s, "out.partial")));
}

/* A stranger that comes while we work is not published, and not removed. */
static void test_stranger_comes(void **state)
{
    const scratch *s = *state;
    char path[SW_PATH_BYTES];
    sw_out_dir out = {0};
    sw_err err = {0};

    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), false, &err), SW_OK);
    assert_int_equal(sw_path_join(path, out.work_path, "a", &err), SW_OK);
    assert_int_equal(sw_file_put(path, "ours", 4, &err), SW_OK);
    assert_true(sw_out_dir_owns(&out, "a"));
    assert_int_equal(sw_path_join(path, out.work_path, "notes.md", &err), SW_OK);
    scratch_write_text(s, path + strlen(s->dir) + 1, "mine");
    assert_false(sw_out_dir_owns(&out, "notes.md"));
    assert_int_equal(sw_out_dir_commit(&out, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "holds checkpoint/notes.md"));
    assert_false(sw_path_exists(scratch_path(s, "out")));
    scratch_expect(s, path + strlen(s->dir) + 1, "mine");
    assert_int_equal(sw_path_join(path, out.work_path, "a", &err), SW_OK);
    assert_false(sw_path_exists(path));
}

/* The sweep goes by name and mark and lock, not by name alone. */
static void test_sweep(void **state)
{
    static const char *const not_ours[] = {"out.partial-2024", "out.partial-7.0", "out.partial-7",
                                           "out.partial-7.x", "out.partial-8.0", "out.old-7"};
    const scratch *s = *state;
    char name[128];
    sw_out_dir out = {0};
    sw_err err = {0};

    for (size_t i = 0; i < sizeof not_ours / sizeof *not_ours; i++) {
        scratch_make_dir(s, not_ours[i]);
        (void)snprintf(name, sizeof name, "%s/z", not_ours[i]);
        scratch_write_text(s, name, "mine");
    }
    put_mark(s, "out.partial-8.0", "out.partial-2.0", "z\0"); /* somebody's copy of one of ours */
    assert_int_equal(symlink(scratch_path(s, "out.partial-2024"),
                             scratch_path(s, "out.partial-9.0")), 0);
    scratch_make_dir(s, "out.partial-10.0");
    scratch_make_dir(s, "out.partial-10.0/checkpoint");
    put_mark(s, "out.partial-10.0", "out.partial-10.0", "a\0");
    scratch_write_text(s, "out.partial-10.0/checkpoint/a", "ours");
    scratch_make_dir(s, "out.partial-11.0"); /* ours, but somebody has put something there */
    scratch_make_dir(s, "out.partial-11.0/checkpoint");
    put_mark(s, "out.partial-11.0", "out.partial-11.0", "a\0");
    scratch_write_text(s, "out.partial-11.0/checkpoint/a", "ours");
    scratch_write_text(s, "out.partial-11.0/checkpoint/b", "mine");
    scratch_make_dir(s, "out.partial-12.0");
    scratch_write_text(s, "out.partial-12.0/" SW_WORK_MARK,
                       "swage-work 1\nUnfin"); /* killed while it was made, */
    scratch_make_dir(s, "out.partial-13.0"); /* and before it was marked */
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), false, &err), SW_OK);
    sw_out_dir_abandon(&out);
    for (size_t i = 0; i < sizeof not_ours / sizeof *not_ours; i++) {
        (void)snprintf(name, sizeof name, "%s/z", not_ours[i]);
        scratch_expect(s, name, "mine");
    }
    assert_false(sw_path_exists(scratch_path(s, "out.partial-10.0")));
    assert_false(sw_path_exists(scratch_path(s, "out.partial-12.0")));
    assert_false(sw_path_exists(scratch_path(s, "out.partial-13.0")));
    scratch_expect(s, "out.partial-11.0/checkpoint/b", "mine");
    assert_true(sw_path_exists(scratch_path(s, "out.partial-9.0")));
}

/* What is the matter with it, not "another run". */
static void test_hold_that_cannot_be(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    sw_err err = {0};
    int status;
    pid_t child;

    scratch_make_dir(s, "elsewhere");
    assert_int_equal(symlink("elsewhere", scratch_path(s, "out.partial")), 0);
    expect_refused(s, SW_E_USAGE, "is a link");
    assert_int_equal(scratch_count(s, "elsewhere"), 0);
    assert_int_equal(remove(scratch_path(s, "out.partial")), 0);
    assert_int_equal(symlink("nowhere", scratch_path(s, "out.partial")), 0);
    expect_refused(s, SW_E_USAGE, "is a link");
    assert_int_equal(remove(scratch_path(s, "out.partial")), 0);
    scratch_write_text(s, "out.partial", "mine");
    expect_refused(s, SW_E_USAGE, "is in the way");
    scratch_expect(s, "out.partial", "mine");
    assert_int_equal(remove(scratch_path(s, "out.partial")), 0);
    scratch_make_dir(s, "out.partial");
    assert_int_equal(chmod(scratch_path(s, "out.partial"), 0), 0);
    assert_int_equal(chmod(s->dir, 0755), 0);
    child = fork();
    if (child == 0) { /* root may read everything */
        if (geteuid() == 0 && setuid(65534) != 0) _exit(1);
        _exit(open_hold(s, false, &err) == SW_E_IO &&
                      strstr(err.text, "out.partial: cannot be opened: Permission denied")
                  ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(scratch_path(s, "out.partial"), 0755), 0);
    assert_int_equal(sw_out_dir_open_kept(&out, scratch_path(s, "out"), false, false, &err), SW_OK);
    expect_refused(s, SW_E_USAGE, "another run is at work");
    sw_out_dir_abandon(&out);
}

/* A kill leaves an empty directory, or half a mark, or the old output aside. */
static void test_after_kills(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    sw_err err = {0};

    scratch_make_dir(s, "out.partial");
    assert_int_equal(open_hold(s, false, &err), SW_OK);
    assert_int_equal(scratch_count(s, NULL), 0);
    scratch_make_dir(s, "out.partial");
    scratch_write_text(s, "out.partial/" SW_WORK_MARK, "swage-work 1\nUnf");
    assert_int_equal(open_hold(s, false, &err), SW_OK);
    assert_int_equal(scratch_count(s, NULL), 0);
    scratch_make_dir(s, "out.partial-10.0"); /* on a file system without exchange */
    scratch_make_dir(s, "out.partial-10.0/checkpoint");
    scratch_make_dir(s, "out.partial-10.0/old");
    put_mark(s, "out.partial-10.0", "out.partial-10.0", "a\0");
    scratch_write_text(s, "out.partial-10.0/checkpoint/a", "new");
    scratch_write_text(s, "out.partial-10.0/old/a", "old");
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), false, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "exists"));
    scratch_expect(s, "out/a", "old");
    assert_int_equal(scratch_count(s, NULL), 1);
}

/* --- what --force may replace --- */

static void expect_kept(const scratch *s, const char *part)
{
    sw_out_dir out = {0};
    sw_err err = {0};

    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_E_USAGE);
    if (!strstr(err.text, part)) fail_msg("\"%s\" lacks \"%s\"", err.text, part);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_dir_open_kept(&out, scratch_path(s, "out"), true, true, &err),
                     SW_E_USAGE);
    assert_int_equal(scratch_count(s, NULL), 1);
}

static void test_force(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    sw_err err = {0};

    scratch_make_dir(s, "out");
    scratch_write_text(s, "out/manifest.json", "{\"name\": \"a web page\"}");
    expect_kept(s, "holds manifest.json, which is no manifest of swage's");
    scratch_write_text(s, "out/manifest.json", "no JSON");
    expect_kept(s, "holds manifest.json, which is no manifest of swage's");
    scratch_write_text(s, "out/config.json", "{}");
    scratch_manifest(s, "out");
    scratch_write_text(s, "out/README.md", "mine");
    expect_kept(s, "holds README.md, which swage did not write");
    assert_int_equal(remove(scratch_path(s, "out/README.md")), 0);
    scratch_make_dir(s, "out/runs");
    expect_kept(s, "holds runs, which swage did not write");
    assert_int_equal(remove(scratch_path(s, "out/runs")), 0);
    scratch_write_text(s, "out/config.json", "[]");
    expect_kept(s, "holds config.json, which was changed after swage wrote it");
    scratch_write_text(s, "out/config.json", "{} ");
    expect_kept(s, "holds config.json, which was changed after swage wrote it");
    scratch_write_text(s, "out/config.json", "{}");
    sw_watch_begin();
    assert_int_equal(sw_sha256_file((char[SW_SHA256_HEX_BYTES]){0},
                                    scratch_path(s, "out/config.json"), &err), SW_OK);
    expect_kept(s, "holds config.json, which is an input of this run");
    sw_watch_end();
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_OK);
    scratch_write_text(s, "out/late.md", "mine"); /* and when it comes later */
    assert_int_equal(sw_out_dir_commit(&out, &err), SW_E_USAGE);
    scratch_expect(s, "out/late.md", "mine");
    scratch_expect(s, "out/config.json", "{}");
    assert_int_equal(scratch_count(s, NULL), 1);
}

/* Of a large file the size counts, and its bytes where it is younger than the manifest. */
static void test_force_on_large_files(void **state)
{
    const scratch *s = *state;
    char path[SW_PATH_BYTES];
    const off_t size = (off_t)65 << 20;
    struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    sw_out_dir out = {0};
    sw_err err = {0};
    int fd;

    (void)snprintf(path, sizeof path, "%s", scratch_path(s, "out/model.safetensors"));
    scratch_make_dir(s, "out");
    scratch_write_text(s, "out/model.safetensors", "");
    assert_int_equal(truncate(path, size), 0); /* a hole: nothing is written */
    scratch_manifest(s, "out");
    assert_int_equal(truncate(path, size - 1), 0);
    expect_kept(s, "holds model.safetensors, which was changed");
    (void)usleep(20000);
    assert_int_equal(truncate(path, size), 0); /* younger, but the same */
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_OK);
    sw_out_dir_abandon(&out);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 5), 1);
    close(fd);
    expect_kept(s, "holds model.safetensors, which was changed");
    assert_int_equal(utimensat(AT_FDCWD, path, past, 0), 0); /* older: taken at its size */
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_OK);
    sw_out_dir_abandon(&out);
}

/* --- single files --- */

static void test_file_is_not_replaced(void **state)
{
    const scratch *s = *state;
    sw_out_file one = {0}, two = {0};
    sw_err err = {0};

    assert_int_equal(sw_out_open_new(&one, scratch_path(s, "f"), false, &err), SW_OK);
    assert_int_equal(sw_out_write_at(&one, 0, "one", 3, &err), SW_OK);
    /* the second of two is turned away at once */
    assert_int_equal(sw_out_open_new(&two, scratch_path(s, "f"), false, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "another run is at work on it"));
    scratch_write_text(s, "f", "mine"); /* and what comes from elsewhere wins */
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_commit(&one, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "--force"));
    scratch_expect(s, "f", "mine");
    assert_int_equal(scratch_count(s, NULL), 1);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_file_put_new(scratch_path(s, "f"), "new", 3, false, &err), SW_E_USAGE);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_file_put_new(scratch_path(s, "f"), "new", 3, true, &err), SW_OK);
    scratch_expect(s, "f", "new");
    assert_int_equal(scratch_count(s, NULL), 1);
    scratch_make_dir(s, "d");
    assert_int_equal(sw_file_put_new(scratch_path(s, "d"), "x", 1, true, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "is a directory"));
    memset(&err, 0, sizeof err);
    assert_int_equal(mkfifo(scratch_path(s, "pipe"), 0644), 0);
    assert_int_equal(sw_file_put_new(scratch_path(s, "pipe"), "x", 1, true, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "not a regular file"));
}

/* The race itself: the name is taken between the look and the rename. */
static void test_rename_new(void **state)
{
    const scratch *s = *state;

    scratch_write_text(s, "a", "a");
    scratch_write_text(s, "b", "b");
    assert_int_equal(sw_rename_new(scratch_path(s, "a"), scratch_path(s, "b")), EEXIST);
    scratch_expect(s, "a", "a");
    scratch_expect(s, "b", "b");
    scratch_make_dir(s, "d");
    scratch_make_dir(s, "e");
    assert_int_equal(sw_rename_new(scratch_path(s, "d"), scratch_path(s, "e")), EEXIST);
    assert_int_equal(sw_rename_new(scratch_path(s, "a"), scratch_path(s, "c")), 0);
    scratch_expect(s, "c", "a");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_hold_of_the_user),    TEST(test_hold_with_strangers),
        TEST(test_stranger_comes),      TEST(test_sweep),
        TEST(test_hold_that_cannot_be), TEST(test_after_kills),
        TEST(test_force),               TEST(test_file_is_not_replaced),
        TEST(test_rename_new),          TEST(test_force_on_large_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
