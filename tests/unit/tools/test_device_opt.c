/* test_device_opt.c - the --device option: which words there are, and what a build without CUDA
 * answers (test programs link that one). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tools/device/device_opt.h"
#include "tools/device/like_devices.h"

static void test_words(void **state)
{
    static const struct {
        const char *word;
        sw_code want;
        const char *text; /* in the message */
    } cases[] = {
        {NULL, SW_OK, NULL},         {"cpu", SW_OK, NULL},
        {"auto", SW_OK, NULL}, /* there is no device for this program */
        {"cuda", SW_E_CUDA, "--device cpu"}, {"cuda:0", SW_E_CUDA, "--device cpu"},
        {"cuda:", SW_E_USAGE, "cuda:N"},     {"cuda:x", SW_E_USAGE, "cuda:N"},
        {"cuda:-1", SW_E_USAGE, "cuda:N"},   {"cudax", SW_E_USAGE, "cudax"},
        {"gpu", SW_E_USAGE, "gpu"},          {"", SW_E_USAGE, "--device"},
    };

    (void)state;
    assert_false(sw_device_is_built());
    assert_int_equal(sw_device_count(), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sw_device *gpu = (sw_device *)(uintptr_t)1;
        sw_err err = {0};

        if (sw_device_option_open(&gpu, cases[i].word, 0, &err) != cases[i].want)
            fail_msg("%s: %s", cases[i].word, err.text);
        assert_null(gpu);
        if (cases[i].text && !strstr(err.text, cases[i].text))
            fail_msg("%s: \"%s\" does not say %s", cases[i].word, err.text, cases[i].text);
    }
}

/* Of a host with other cards beside: those of the first one's name, capability and memory. */
static void test_like(void **state)
{
    static const sw_device_info host[] = {
        {.name = "H200", .arch = 90, .total_bytes = 141},
        {.name = "A100", .arch = 80, .total_bytes = 80},
        {.name = "H200", .arch = 90, .total_bytes = 141},
        {.name = "H200", .arch = 90, .total_bytes = 70},
        {.name = "H20", .arch = 90, .total_bytes = 141},
        {.name = "H200", .arch = 89, .total_bytes = 141},
    };
    int like[6], n_other = 7;

    (void)state;
    assert_int_equal(sw_like_devices(like, host, 0), 0);
    assert_int_equal(sw_like_devices(like, host, 1), 1);
    assert_int_equal(sw_like_devices(like, host, 6), 2);
    assert_int_equal(like[0], 0);
    assert_int_equal(like[1], 2);
    assert_int_equal(sw_like_devices_here(like, 6, &n_other), 0); /* this program has none */
    assert_int_equal(n_other, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_like)};

    return cmocka_run_group_tests_name("device option", tests, NULL, NULL);
}
