/* test_plan_device.c - which device a plan is for: words, sizes, lists; one that is not here; and
 * the memory of a host with several ranks. Test programs link a build without CUDA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tools/plan/plan_device.h"

#define GB ((uint64_t)1000000000)

static void test_words(void **state)
{
    static const struct {
        const char *word;
        int64_t ranks;
        const char *device, *decodes_on; /* wanted */
        int64_t want_ranks;
    } cases[] = {
        {NULL, 0, NULL, "h200", 0},         {"h100", 0, NULL, "h100", 0},
        {"cuda", 0, "cuda", "h200", 0},     {"cuda:3", 0, "cuda:3", "h200", 0},
        {"cuda:0,1", 0, "cuda:0,1", "h200", 2}, {"cuda:0,2,5", 0, "cuda:0,2,5", "h200", 3},
        {"cuda:0,1", 4, "cuda:0,1", "h200", 4}, {"cpu", 0, "cpu", "h200", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_plan_options o = {.decodes_on = "h200"};
        sw_err err = {0};

        o.quantize.device = cases[i].word;
        o.quantize.common.ranks = cases[i].ranks;
        assert_int_equal(sw_plan_device_options(&o, &err), SW_OK);
        assert_string_equal(o.decodes_on, cases[i].decodes_on);
        if (!cases[i].device) assert_null(o.quantize.device);
        else assert_string_equal(o.quantize.device, cases[i].device);
        assert_int_equal(o.quantize.common.ranks, cases[i].want_ranks);
    }
}

static void test_size_without_device(void **state)
{
    sw_plan_options o = {.device_bytes = GB};
    sw_err err = {0};

    (void)state;
    assert_int_equal(sw_plan_device_options(&o, &err), SW_E_USAGE);
    assert_non_null(strstr(err.text, "--device cuda"));
    o.quantize.device = "h100"; /* whose decoding is predicted, no more */
    assert_int_equal(sw_plan_device_options(&o, &err), SW_E_USAGE);
    o.quantize.device = NULL;
    o.quantize.recipe = "recipe.json"; /* which may name one */
    assert_int_equal(sw_plan_device_options(&o, &err), SW_OK);
}

static void test_find(void **state)
{
    static const struct {
        const char *word;
        uint64_t given;
        sw_code want;
        int64_t bytes;
        const char *text; /* in the message */
    } cases[] = {
        {NULL, 0, SW_OK, 0, NULL},
        {"cpu", GB, SW_OK, 0, NULL},
        {"auto", 0, SW_OK, 0, NULL}, /* there is none */
        {"auto", GB, SW_OK, (int64_t)GB, NULL},
        {"cuda", GB, SW_OK, (int64_t)GB, NULL},
        {"cuda:7", GB, SW_OK, (int64_t)GB, NULL},
        {"cuda:1,2", GB, SW_OK, (int64_t)GB, NULL},
        {"cuda", 0, SW_E_CUDA, 0, "--device-memory"},
        {"cuda:0,1", 0, SW_E_CUDA, 0, "--device-memory"},
        {"gpu", GB, SW_E_USAGE, 0, "gpu"},
        {"cuda:x", GB, SW_E_USAGE, 0, "cuda:N"},
        {"a device that nobody has", GB, SW_E_USAGE, 0, "--device"},
        {"cuda", UINT64_MAX, SW_E_USAGE, 0, "--device-memory"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_plan_options o = {.device_bytes = cases[i].given};
        sw_quantize_job job = {.o = &o.quantize};
        sw_err err = {0};

        o.quantize.device = cases[i].word;
        if (sw_plan_device_find(&job, &o, &err) != cases[i].want)
            fail_msg("%s: %s", cases[i].word ? cases[i].word : "none", err.text);
        assert_int_equal(job.device_bytes, cases[i].bytes);
        if (cases[i].text && !strstr(err.text, cases[i].text))
            fail_msg("%s: \"%s\" does not say %s", cases[i].word, err.text, cases[i].text);
    }
}

/* What all map of the files is there once. */
static void test_host(void **state)
{
    static sw_plan plan; /* too large a frame */
    sw_quantize_options o = {.common = {.ranks = 0}};
    const sw_quantize_job job = {.o = &o};

    (void)state;
    plan.needs.peak_bytes = 10;
    plan.needs.forecast.read_bytes = 4;
    assert_int_equal((int64_t)sw_plan_host_bytes(&plan, &job), 10);
    o.common.ranks = 3;
    assert_int_equal((int64_t)sw_plan_host_bytes(&plan, &job), 3 * 6 + 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words), cmocka_unit_test(test_size_without_device),
        cmocka_unit_test(test_find), cmocka_unit_test(test_host)};

    return cmocka_run_group_tests_name("device of a plan", tests, NULL, NULL);
}
