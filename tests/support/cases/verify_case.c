/* verify_case.c - see verify_case.h. */
#include "tests/support/cases/verify_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *const tokens = VERIFY_TOKENS;

sw_verify_options verify_options_for(const char *dir)
{
    sw_verify_options o = {.checkpoint_dir = dir, .original_dir = VERIFY_MODEL,
                           .text_paths = &tokens, .n_texts = 1, .window = VERIFY_WINDOW,
                           .n_threads = 2};

    return o;
}

void verify_run(sw_report *r, const sw_verify_options *o)
{
    sw_err err = {0};

    if (sw_verify_run(r, o, &err) != SW_OK) fail_msg("%s", err.text);
}

void verify_expect_pass(const sw_report *r)
{
    sw_err err = {0};

    if (sw_report_verdict(r, &err) != SW_OK) fail_msg("%s", err.text);
}

void verify_expect_fail(const sw_report *r, const char *what, const char *says)
{
    sw_err err = {0};

    assert_int_equal(sw_report_verdict(r, &err), SW_E_GATE);
    for (int64_t i = 0; i < r->n_findings; i++)
        if (!strcmp(r->findings[i].what, what) && strstr(r->findings[i].text, says)) return;
    fail_msg("have \"%s\", want %s: %s", err.text, what, says);
}
