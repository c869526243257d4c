/* test_doctor.c - findings, and limits of control groups out of made-up trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/scratch.h"
#include "tools/doctor/doctor.h"

static void test_findings_are_counted_by_the_worst(void **state)
{
    static sw_doctor d;
    sw_finding *f;

    (void)state;
    memset(&d, 0, sizeof d);
    (void)sw_doctor_add(&d, "a", "well");
    f = sw_doctor_add(&d, "b", "name with\nline and \x1b[31m");
    assert_string_equal(f->text, "name with?line and ?[31m");
    sw_doctor_mark(&d, f, SW_HEALTH_FAULT, "do %d", 1);
    sw_doctor_mark(&d, f, SW_HEALTH_WARNING, "not that");
    assert_string_equal(f->remedy, "do 1");
    assert_int_equal(d.n_of[SW_HEALTH_OK], 1);
    assert_int_equal(d.n_of[SW_HEALTH_WARNING], 0);
    assert_int_equal(d.n_of[SW_HEALTH_FAULT], 1);
    for (int i = 0; i < 2 * SW_FINDINGS_MAX; i++) (void)sw_doctor_add(&d, "c", "%d", i);
    assert_int_equal(d.n, SW_FINDINGS_MAX);
}

static void put(const scratch *s, const char *name, const char *text)
{
    scratch_write(s, name, text, strlen(text));
}

static void make_dir(const scratch *s, const char *name)
{
    assert_int_equal(mkdir(scratch_path(s, name), 0755), 0);
}

static double limit_of(const scratch *s, const char *file)
{
    return sw_cgroup_limit(s->dir, scratch_path(s, "self"), file);
}

static void test_least_limit_up_to_the_root(void **state)
{
    scratch s;

    (void)state;
    scratch_open(&s);
    make_dir(&s, "a");
    make_dir(&s, "a/b");
    put(&s, "a/b/memory.max", "max\n");
    put(&s, "a/memory.max", "4096000\n");
    put(&s, "memory.max", "8192000\n");
    put(&s, "a/b/cpu.max", "150000 100000\n");
    put(&s, "a/cpu.max", "max 100000\n");
    assert_true(limit_of(&s, "memory.max") == -1); /* there is no file that says the group */
    put(&s, "self", "12:devices:/x\n0::/a/b\n");
    assert_true(limit_of(&s, "memory.max") == 4096000);
    assert_true(limit_of(&s, "cpu.max") == 1.5);
    put(&s, "self", "0::/\n");
    assert_true(limit_of(&s, "memory.max") == 8192000);
    assert_true(limit_of(&s, "cpu.max") == -1);
    put(&s, "self", "0::/outside/of/the/container\n"); /* what is mounted is the group itself */
    assert_true(limit_of(&s, "memory.max") == 8192000);
    put(&s, "memory.max", "no number\n");
    assert_true(limit_of(&s, "memory.max") == -1);
    put(&s, "memory.max", "");
    assert_true(limit_of(&s, "memory.max") == -1);
    scratch_close(&s);
}

static void test_lines_of_system_files(void **state)
{
    scratch s;
    const char *path;
    char line[16];

    (void)state;
    scratch_open(&s);
    put(&s, "info", "MemTotal:\t 12 kB\nMemTotalHuge: 9\nlast: abcdefghijklmnopqrstuvwxyz");
    path = scratch_path(&s, "info");
    assert_true(sw_system_line(line, sizeof line, path, "MemTotal"));
    assert_string_equal(line, "12 kB");
    assert_true(sw_system_line(line, sizeof line, path, "last"));
    assert_string_equal(line, "abcdefghijklmno"); /* cut, and ended */
    assert_false(sw_system_line(line, sizeof line, path, "none"));
    assert_false(sw_system_line(line, sizeof line, "/nonexistent", ""));
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings_are_counted_by_the_worst),
        cmocka_unit_test(test_least_limit_up_to_the_root),
        cmocka_unit_test(test_lines_of_system_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
