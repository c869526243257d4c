/* status.c - see status.h. */
#include "formats/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Names from files end up here: a line feed or an escape sequence must not reach a terminal. */
static void make_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

sw_code sw_fail_at(sw_err *err, sw_code code, const char *src_file, int src_line, const char *fmt,
                   ...)
{
    va_list args;

    if (!err || err->code != SW_OK) return code;
    err->code = code;
    err->src_file = src_file;
    err->src_line = src_line;
    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    make_one_line(err->text);
    return code;
}

void sw_err_prefix(sw_err *err, const char *fmt, ...)
{
    char joined[SW_ERR_TEXT_BYTES];
    va_list args;
    size_t at;
    int n;

    if (!err || err->code == SW_OK) return;
    va_start(args, fmt);
    n = vsnprintf(joined, sizeof joined, fmt, args);
    va_end(args);
    if (n < 0) return;
    at = (size_t)n < sizeof joined ? (size_t)n : sizeof joined - 1;
    for (const char *tail = ": "; *tail && at + 1 < sizeof joined; tail++) joined[at++] = *tail;
    for (const char *p = err->text; *p && at + 1 < sizeof joined; p++) joined[at++] = *p;
    joined[at] = '\0';
    memcpy(err->text, joined, sizeof joined);
    make_one_line(err->text);
}

static const struct {
    sw_code code;
    const char *name;
} code_names[] = {
    {SW_OK, "ok"},           {SW_E_GATE, "gate"}, {SW_E_USAGE, "usage"},
    {SW_E_FORMAT, "format"}, {SW_E_IO, "io"},     {SW_E_UNSUPPORTED, "unsupported"},
    {SW_E_NOMEM, "memory"},  {SW_E_CUDA, "cuda"}, {SW_E_CANCELLED, "cancelled"},
    {SW_E_BUG, "bug"},       {SW_E_NOISY, "noisy"},
};

const char *sw_code_name(sw_code code)
{
    for (size_t i = 0; i < sizeof code_names / sizeof code_names[0]; i++)
        if (code_names[i].code == code) return code_names[i].name;
    return "unknown";
}
