/* test_file.c - reading by mmap; output that is complete or absent, whoever dies in between. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
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

#include "formats/io/file.h"
#include "formats/io/spill.h"
#include "tests/support/scratch.h"

static void expect_content(const scratch *s, const char *name, const char *want)
{
    sw_err err = {0};
    sw_map map = {0};

    if (sw_map_open(&map, scratch_path(s, name), &err) != SW_OK) fail_msg("%s", err.text);
    assert_int_equal(map.size_bytes, strlen(want));
    assert_memory_equal(map.data, want, map.size_bytes);
    sw_map_close(&map);
}

static void expect_io(const char *path, const char *word)
{
    sw_map map = {0};
    sw_err err = {0};

    assert_int_equal(sw_map_open(&map, path, &err), SW_E_IO);
    assert_null(map.data);
    if (strncmp(err.text, path, strlen(path)) != 0 || !strstr(err.text, word))
        fail_msg("\"%s\" lacks \"%s\"", err.text, word);
}

static void test_map(void **state)
{
    const scratch *s = *state;
    sw_map map = {0};
    sw_err err = {0};

    sw_map_close(&map);
    scratch_write(s, "empty", "", 0);
    assert_int_equal(sw_map_open(&map, scratch_path(s, "empty"), &err), SW_OK);
    assert_non_null(map.data);
    assert_int_equal(map.size_bytes, 0);
    sw_map_close(&map);
    scratch_write(s, "f", "content", 7);
    expect_content(s, "f", "content");
    expect_io(scratch_path(s, "absent"), "No such file");
    expect_io(s->dir, "not a regular file");
    assert_int_equal(mkfifo(scratch_path(s, "pipe"), 0644), 0);
    (void)alarm(30); /* at once, not when a writer comes */
    expect_io(scratch_path(s, "pipe"), "not a regular file");
    (void)alarm(0);
    assert_int_equal(symlink("nowhere", scratch_path(s, "dangling")), 0);
    expect_io(scratch_path(s, "dangling"), "No such file");
}

/* Forgetting pages loses nothing, at any alignment. */
static void test_forget(void **state)
{
    const scratch *s = *state;
    size_t n = 5 * 4096 + 123;
    char *bytes = malloc(n);
    sw_map map = {0};
    sw_err err = {0};

    for (size_t i = 0; i < n; i++) bytes[i] = (char)(i * 31);
    scratch_write(s, "f", bytes, n);
    assert_int_equal(sw_map_open(&map, scratch_path(s, "f"), &err), SW_OK);
    assert_memory_equal(map.data, bytes, n);
    sw_map_forget(map.data + 1, n - 2);
    sw_map_forget(map.data, n);
    sw_map_forget(map.data + 100, 5);
    sw_map_forget(map.data, 0);
    assert_memory_equal(map.data, bytes, n);
    sw_map_close(&map);
    free(bytes);
}

static void test_paths(void **state)
{
    static const char *const plain[] = {"a", "model.safetensors", "..a", "a..", ".hidden",
                                        "\xc3\xa9"};
    static const char *const other[] = {"", ".", "..", "/", "a/b", "/a", "a/",
                                        "..\\a", "a\nb", "\x01"};
    char out[SW_PATH_BYTES], vast[SW_PATH_BYTES];
    sw_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        assert_true(sw_path_is_plain_name(plain[i]));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_false(sw_path_is_plain_name(other[i]));
    assert_int_equal(sw_path_join(out, "d", "f", &err), SW_OK);
    assert_string_equal(out, "d/f");
    assert_int_equal(sw_path_join(out, "d/", "f", &err), SW_OK);
    assert_string_equal(out, "d/f");
    memset(vast, 'v', sizeof vast - 1);
    vast[sizeof vast - 1] = '\0';
    assert_int_equal(sw_path_join(out, "d", vast, &err), SW_E_IO);
}

static void test_out_file(void **state)
{
    const scratch *s = *state;
    sw_out_file out = {0};
    sw_err err = {0};

    scratch_write(s, "f", "old", 3);
    assert_int_equal(sw_out_open(&out, scratch_path(s, "f"), &err), SW_OK);
    assert_int_equal(sw_out_reserve(&out, 6, &err), SW_OK);
    assert_int_equal(sw_out_write_at(&out, 3, "new", 3, &err), SW_OK);
    assert_int_equal(sw_out_write_at(&out, 0, "all", 3, &err), SW_OK);
    expect_content(s, "f", "old"); /* nothing to see before the commit */
    assert_int_equal(sw_out_commit(&out, &err), SW_OK);
    expect_content(s, "f", "allnew");
    assert_int_equal(scratch_count(s, NULL), 1);
    sw_out_abandon(&out); /* a closed one */
    expect_content(s, "f", "allnew");
    assert_int_equal(sw_out_open(&out, scratch_path(s, "f"), &err), SW_OK);
    assert_int_equal(sw_out_write_at(&out, 0, "half", 4, &err), SW_OK);
    sw_out_abandon(&out);
    expect_content(s, "f", "allnew");
    assert_int_equal(scratch_count(s, NULL), 1);
}

static void test_out_file_refusals(void **state)
{
    const scratch *s = *state;
    sw_out_file out = {0};
    sw_err err = {0};

    assert_int_equal(sw_out_open(&out, scratch_path(s, "no/such/f"), &err), SW_E_IO);
    assert_non_null(strstr(err.text, "no/such/f"));
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_open(&out, scratch_path(s, "vast"), &err), SW_OK);
    assert_int_equal(sw_out_reserve(&out, (uint64_t)1 << 60, &err), SW_E_IO);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_reserve(&out, UINT64_MAX, &err), SW_E_IO);
    sw_out_abandon(&out);
    assert_int_equal(scratch_count(s, NULL), 0);
    memset(&err, 0, sizeof err);
    assert_int_equal(mkdir(scratch_path(s, "d"), 0755), 0);
    assert_int_equal(sw_file_put(scratch_path(s, "d"), "x", 1, &err), SW_E_IO);
    assert_int_equal(scratch_count(s, NULL), 1);
}

/* A link at the temporary name, planted or left behind, is not written through. */
static void test_out_file_ignores_links(void **state)
{
    const scratch *s = *state;
    char temp[64];
    sw_err err = {0};

    scratch_write(s, "victim", "precious", 8);
    (void)snprintf(temp, sizeof temp, "f.tmp-%ld", (long)getpid());
    assert_int_equal(symlink(scratch_path(s, "victim"), scratch_path(s, temp)), 0);
    assert_int_equal(sw_file_put(scratch_path(s, "f"), "fresh", 5, &err), SW_OK);
    expect_content(s, "victim", "precious");
    expect_content(s, "f", "fresh");
    assert_int_equal(scratch_count(s, NULL), 2);
    /* and one at the final name is replaced, not followed */
    assert_int_equal(symlink(scratch_path(s, "victim"), scratch_path(s, "g")), 0);
    assert_int_equal(sw_file_put(scratch_path(s, "g"), "fresh", 5, &err), SW_OK);
    expect_content(s, "victim", "precious");
    expect_content(s, "g", "fresh");
}

static void put_in(const sw_out_dir *out, const char *name, const char *text)
{
    char path[SW_PATH_BYTES];
    sw_err err = {0};

    assert_int_equal(sw_path_join(path, out->work_path, name, &err), SW_OK);
    assert_int_equal(sw_file_put(path, text, strlen(text), &err), SW_OK);
}

/* The manifest of what is in it so far. */
static void put_manifest(const sw_out_dir *out)
{
    scratch s;

    (void)snprintf(s.dir, sizeof s.dir, "%s", out->home_path);
    put_in(out, "manifest.json", "");
    scratch_manifest(&s, "checkpoint");
}

static void test_out_dir(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    sw_err err = {0};

    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out//"), false, &err), SW_OK);
    assert_string_equal(out.path, scratch_path(s, "out"));
    put_in(&out, "a", "1");
    assert_false(sw_path_exists(out.path));
    assert_int_equal(sw_out_dir_commit(&out, &err), SW_OK);
    expect_content(s, "out/a", "1");
    assert_int_equal(scratch_count(s, NULL), 1);
    sw_out_dir_abandon(&out); /* a closed one */
    expect_content(s, "out/a", "1");
}

static void test_out_dir_exists(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    sw_err err = {0};

    assert_int_equal(mkdir(scratch_path(s, "out"), 0755), 0);
    scratch_write(s, "out/old", "old", 3);
    scratch_manifest(s, "out");
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), false, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "--force"));
    assert_int_equal(scratch_count(s, NULL), 1);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_OK);
    put_in(&out, "new", "new");
    put_manifest(&out);
    expect_content(s, "out/old", "old"); /* until the commit */
    assert_int_equal(sw_out_dir_commit(&out, &err), SW_OK);
    expect_content(s, "out/new", "new");
    assert_int_equal(scratch_count(s, "out"), 2);
    assert_int_equal(scratch_count(s, NULL), 1);
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_OK);
    put_in(&out, "newer", "newer");
    sw_out_dir_abandon(&out);
    expect_content(s, "out/new", "new");
    assert_int_equal(scratch_count(s, NULL), 1);
}

/* The path comes into being while we work. */
static void test_out_dir_appears(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    sw_err err = {0};

    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), false, &err), SW_OK);
    assert_int_equal(mkdir(scratch_path(s, "out"), 0755), 0);
    assert_int_equal(sw_out_dir_commit(&out, &err), SW_E_USAGE);
    assert_false(out.is_open);
    assert_int_equal(scratch_count(s, NULL), 1);
    assert_int_equal(scratch_count(s, "out"), 0);
}

/* --force is no licence to delete what cannot be an output. */
static void test_out_dir_spares_others(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    sw_err err = {0};

    scratch_write(s, "file", "precious", 8);
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "file"), true, &err), SW_E_USAGE);
    expect_content(s, "file", "precious");
    assert_int_equal(mkdir(scratch_path(s, "home"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(s, "home/photos"), 0755), 0);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "home"), true, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "holds photos, which swage did not write"));
    assert_int_equal(symlink("nowhere", scratch_path(s, "dangling")), 0);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "dangling"), true, &err), SW_E_USAGE);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_dir_open(&out, "", true, &err), SW_E_USAGE);
    memset(&err, 0, sizeof err);
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "no/such/out"), true, &err), SW_E_IO);
    assert_false(scratch_has(s, "partial"));
}

/* A link to a directory stands for the directory, wherever that is. */
static void test_out_dir_through_link(void **state)
{
    const scratch *s = *state;
    struct stat info;
    sw_out_dir out = {0};
    sw_err err = {0};

    assert_int_equal(mkdir(scratch_path(s, "disk"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(s, "disk/real"), 0755), 0);
    assert_int_equal(symlink("disk/real", scratch_path(s, "out")), 0);
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_OK);
    put_in(&out, "a", "1");
    assert_int_equal(scratch_count(s, "disk"), 2); /* the work is on the disk of the target */
    assert_int_equal(sw_out_dir_commit(&out, &err), SW_OK);
    assert_int_equal(lstat(scratch_path(s, "out"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    expect_content(s, "disk/real/a", "1");
    assert_int_equal(scratch_count(s, "disk"), 1);
}

/* Two runs at once keep out of each other's way. */
static void test_out_dir_twice(void **state)
{
    const scratch *s = *state;
    sw_out_dir one = {0}, two = {0};
    sw_err err = {0};

    assert_int_equal(sw_out_dir_open(&one, scratch_path(s, "out"), true, &err), SW_OK);
    put_in(&one, "a", "one");
    put_manifest(&one);
    assert_int_equal(sw_out_dir_open(&two, scratch_path(s, "out"), true, &err), SW_OK);
    put_in(&two, "a", "two");
    assert_int_equal(sw_out_dir_commit(&one, &err), SW_OK);
    expect_content(s, "out/a", "one");
    assert_int_equal(sw_out_dir_commit(&two, &err), SW_OK);
    expect_content(s, "out/a", "two");
    assert_int_equal(scratch_count(s, NULL), 1);
}

/* What a killed process left is swept by the next run; what a living one holds is not. */
static void test_out_dir_killed(void **state)
{
    const scratch *s = *state;
    sw_out_dir out = {0};
    int ready[2], status;
    char byte;
    sw_err err = {0};
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        if (sw_out_dir_open(&out, scratch_path(s, "out"), true, &err) != SW_OK) _exit(1);
        put_in(&out, "half", "half");
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) (void)pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_true(scratch_has(s, "half"));
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), true, &err), SW_OK);
    assert_true(scratch_has(s, "half")); /* it lives, so its work is left alone */
    sw_out_dir_abandon(&out);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_false(sw_path_exists(scratch_path(s, "out")));
    assert_true(scratch_has(s, "half"));
    assert_int_equal(mkdir(scratch_path(s, "out.partial-note"), 0755), 0); /* not ours */
    assert_int_equal(sw_out_dir_open(&out, scratch_path(s, "out"), false, &err), SW_OK);
    assert_false(scratch_has(s, "half"));
    assert_true(scratch_has(s, "out.partial-note"));
    sw_out_dir_abandon(&out);
    close(ready[0]);
    close(ready[1]);
}

static void test_disk_free(void **state)
{
    const scratch *s = *state;
    uint64_t here = 0, below = 0, relative = 0;
    sw_err err = {0};

    assert_int_equal(sw_disk_free_bytes(&here, s->dir, &err), SW_OK);
    assert_true(here > 0);
    assert_int_equal(sw_disk_free_bytes(&below, scratch_path(s, "no/such/dir/"), &err), SW_OK);
    assert_true(below > 0);
    assert_int_equal(sw_disk_free_bytes(&relative, "no-such-name", &err), SW_OK);
    scratch_write(s, "f", "x", 1);
    relative = 7;
    assert_int_equal(sw_disk_free_bytes(&relative, scratch_path(s, "f/g"), &err), SW_E_IO);
    assert_int_equal(relative, 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

static void test_spill_keeps_what_was_written(void **state)
{
    const size_t n = 3u << 20;
    scratch s;
    sw_spill spill = {0};
    sw_err err = {0};
    unsigned char *at;

    (void)state;
    scratch_open(&s);
    assert_int_equal(sw_spill_open(&spill, s.dir, n, &err), SW_OK);
    at = spill.data;
    assert_int_equal(at[n - 1], 0);
    for (size_t i = 0; i < n; i++) at[i] = (unsigned char)(i * 7 + (i >> 12));
    sw_spill_release(&spill, at + 100, n - 200);
    for (size_t i = 0; i < n; i++)
        if (at[i] != (unsigned char)(i * 7 + (i >> 12))) fail_msg("byte %zu has changed", i);
    assert_int_equal(scratch_count(&s, NULL), 0); /* no name, so nothing stays behind */
    sw_spill_close(&spill);
    sw_spill_close(&spill);
    assert_int_equal(sw_spill_open(&spill, s.dir, (size_t)1 << 60, &err), SW_E_IO);
    assert_null(spill.data);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spill_keeps_what_was_written),
        TEST(test_map),                  TEST(test_forget),
        TEST(test_paths),                TEST(test_out_file),
        TEST(test_out_file_refusals),    TEST(test_out_file_ignores_links),
        TEST(test_out_dir),              TEST(test_out_dir_exists),
        TEST(test_out_dir_appears),      TEST(test_out_dir_spares_others),
        TEST(test_out_dir_through_link), TEST(test_out_dir_twice),
        TEST(test_out_dir_killed),       TEST(test_disk_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
