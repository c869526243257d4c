/* test_profile.c - spans of a run: recorded only when asked for, of all threads, in a file that
 * parses; and the digests of several files at once, which are those of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "formats/base/json.h"
#include "formats/base/parallel.h"
#include "formats/io/file.h"
#include "formats/io/file_content.h"
#include "formats/io/profile.h"

enum { SPANS = 40 };

static void record_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        char what[32];
        sw_span span = sw_span_open("work");

        (void)snprintf(what, sizeof what, "piece \"%d\"", (int)i);
        sw_span_close(span, what);
    }
}

static void test_nothing_unless_asked(void **state)
{
    sw_span span = sw_span_open("work");

    (void)state;
    assert_false(sw_profile_is_on());
    assert_null(span.step);
    sw_span_close(span, NULL);
    sw_profile_begin();
    assert_true(sw_profile_seconds("work") == 0);
    sw_span_close(span, NULL); /* opened before: no start is known */
    assert_true(sw_profile_seconds("work") == 0);
    sw_profile_end();
}

static void test_seconds_add_up(void **state)
{
    sw_span outer;

    (void)state;
    sw_profile_begin();
    outer = sw_span_open("outer");
    for (int i = 0; i < 3; i++) {
        sw_span inner = sw_span_open("inner");
        (void)usleep(2000);
        sw_span_close(inner, NULL);
    }
    sw_span_close(outer, NULL);
    assert_true(sw_profile_seconds("inner") >= 0.006);
    assert_true(sw_profile_seconds("outer") >= sw_profile_seconds("inner"));
    assert_int_equal(sw_profile_lost(), 0);
    sw_profile_end();
    assert_true(sw_profile_seconds("outer") == 0);
}

static void test_file_has_every_span(void **state)
{
    static const sw_json_caps caps = {.max_bytes = 1 << 20, .max_depth = 8, .max_values = 10000};
    char path[] = "/tmp/swage-profile.XXXXXX";
    const cJSON *events, *event;
    bool seen[SPANS] = {false};
    cJSON *root = NULL;
    sw_err err = {0};
    int fd = mkstemp(path), n = 0;

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    sw_profile_begin();
    sw_parallel_for(4, SPANS, 1, record_some, NULL);
    assert_int_equal(sw_profile_write(path, &err), SW_OK);
    sw_profile_end();
    assert_int_equal(sw_json_read(&root, path, &caps, &err), SW_OK);
    events = sw_json_member(root, "traceEvents");
    cJSON_ArrayForEach(event, events)
    {
        const char *of = cJSON_GetStringValue(sw_json_member(sw_json_member(event, "args"), "of"));
        int i = -1;

        assert_string_equal(cJSON_GetStringValue(sw_json_member(event, "name")), "work");
        assert_string_equal(cJSON_GetStringValue(sw_json_member(event, "ph")), "X");
        assert_true(cJSON_GetNumberValue(sw_json_member(event, "ts")) >= 0);
        assert_true(cJSON_GetNumberValue(sw_json_member(event, "dur")) >= 0);
        assert_int_equal(sscanf(of, "piece \"%d\"", &i), 1);
        assert_false(seen[i]);
        seen[i] = true;
        n++;
    }
    assert_int_equal(n, SPANS);
    cJSON_Delete(root);
    (void)unlink(path);
}

static void test_digests_of_files(void **state)
{
    enum { N = 5 };
    char dir[] = "/tmp/swage-digests.XXXXXX", paths[N][64];
    char have[N][SW_SHA256_HEX_BYTES], want[SW_SHA256_HEX_BYTES];
    const char *at[N];
    sw_err err = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < N; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "%s/%d", dir, i);
        at[i] = paths[i];
        assert_int_equal(sw_file_put(paths[i], paths[i], strlen(paths[i]), &err), SW_OK);
    }
    assert_int_equal(sw_sha256_files(have, at, N, &err), SW_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(sw_sha256_hex(want, paths[i], strlen(paths[i]), &err), SW_OK);
        assert_string_equal(have[i], want);
    }
    (void)unlink(paths[1]);
    (void)unlink(paths[3]);
    assert_int_equal(sw_sha256_files(have, at, N, &err), SW_E_IO);
    assert_non_null(strstr(err.text, paths[1])); /* the first in their order */
    for (int i = 0; i < N; i += 2) (void)unlink(paths[i]);
    (void)rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_unless_asked),
        cmocka_unit_test(test_seconds_add_up),
        cmocka_unit_test(test_file_has_every_span),
        cmocka_unit_test(test_digests_of_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
