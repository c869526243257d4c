/* printed_report.c - see printed_report.h. */
#include "tests/support/cases/printed_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/terminal/terminal.h"
#include "tools/verify/report_text.h"

char *printed_report(const sw_report *report, int columns)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    sw_err err = {0};

    assert_non_null(out);
    if (sw_report_print(out, report, columns, &err) != SW_OK) fail_msg("%s", err.text);
    assert_int_equal(fclose(out), 0);
    return text;
}

int widest_line(const char *text, const char *except)
{
    int widest = 0;

    while (*text) {
        const int n_bytes = (int)strcspn(text, "\n");
        char line[1024];
        int n;

        assert_true(snprintf(line, sizeof line, "%.*s", n_bytes, text) < (int)sizeof line);
        n = sw_text_columns(line);
        if (n > widest && !(except && strncmp(line, except, strlen(except)) == 0)) widest = n;
        text += n_bytes + (text[n_bytes] == '\n');
    }
    return widest;
}
