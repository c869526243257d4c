/* test_device_opt.c - the --device option: which words there are, and what a build without CUDA
 * answers (test programs link that one). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tools/device/device_opt.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words)};

    return cmocka_run_group_tests_name("device option", tests, NULL, NULL);
}
