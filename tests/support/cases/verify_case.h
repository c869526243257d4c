/* verify_case.h - a toy model judged in tests: options, and what is expected of the report. */
#ifndef SW_TESTS_SUPPORT_CASES_VERIFY_CASE_H
#define SW_TESTS_SUPPORT_CASES_VERIFY_CASE_H

#include "verify/verify.h"

#define VERIFY_MODEL "tests/golden/arch/llama"
#define VERIFY_TOKENS VERIFY_MODEL "/reference.safetensors" /* 2 windows */
enum { VERIFY_WINDOW = 48 };

/* The checkpoint `dir` against VERIFY_MODEL on VERIFY_TOKENS. */
sw_verify_options verify_options_for(const char *dir);
/* Judge; fails the running cmocka test when no report comes. */
void verify_run(sw_report *r, const sw_verify_options *o);
void verify_expect_pass(const sw_report *r);
/* A failed verdict with such a finding whose text holds `says`. */
void verify_expect_fail(const sw_report *r, const char *what, const char *says);

#endif
