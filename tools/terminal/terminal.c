/* terminal.c - see terminal.h. */
#include "tools/terminal/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_MIN 20
#define COLUMNS_MAX 2000

const char *sw_color_choice(int i)
{
    static const char *const choices[] = {"auto", "always", "never", NULL};

    return choices[i];
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value;
}

bool sw_terminal_can_redraw(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) == 1 && !(term && !strcmp(term, "dumb"));
}

bool sw_terminal_has_colors(const char *choice, int fd)
{
    if (choice && strcmp(choice, "auto") != 0) return !strcmp(choice, "always");
    if (is_set("NO_COLOR")) return false;
    if (is_set("CLICOLOR_FORCE") && strcmp(getenv("CLICOLOR_FORCE"), "0") != 0) return true;
    return sw_terminal_can_redraw(fd);
}

int sw_terminal_columns(int fd)
{
    const char *given = getenv("COLUMNS");
    long n = given ? strtol(given, NULL, 10) : 0;
    struct winsize size = {0};

    if (n >= COLUMNS_MIN && n <= COLUMNS_MAX) return (int)n;
    if (isatty(fd) != 1 || ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col >= COLUMNS_MIN ? size.ws_col : 0;
}

static bool is_inside(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

int sw_text_columns(const char *text)
{
    int n = 0;

    for (; *text; text++) n += !is_inside(*text);
    return n;
}

/* The bytes of the first n characters. */
static size_t bytes_of(const char *text, int n)
{
    size_t at = 0;

    for (; text[at] && n > 0; n--) {
        at++;
        while (is_inside(text[at])) at++;
    }
    return at;
}

char *sw_name_fit(char *out, size_t out_bytes, const char *name, int columns)
{
    static const char cut[] = "...";
    int n = sw_text_columns(name), kept = columns - (int)sizeof cut + 1;
    size_t head, tail;

    if (columns <= 0 || n <= columns || kept < 2) {
        (void)snprintf(out, out_bytes, "%s", name);
        return out;
    }
    head = bytes_of(name, kept / 2);
    tail = bytes_of(name, n - (kept - kept / 2));
    (void)snprintf(out, out_bytes, "%.*s%s%s", (int)head, name, cut, name + tail);
    return out;
}

const char *sw_color_on(sw_color color, bool has_colors)
{
    static const char *const codes[SW_COLOR_COUNT] = {
        [SW_PLAIN] = "", [SW_BOLD] = "\033[1m", [SW_GREEN] = "\033[32m",
        [SW_YELLOW] = "\033[33m", [SW_RED] = "\033[31m"};

    return has_colors ? codes[color] : "";
}

const char *sw_color_off(bool has_colors) { return has_colors ? "\033[0m" : ""; }
