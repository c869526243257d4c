/* term.c - see term.h. */
#include "tools/cli/term.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/profile.h"
#include "tools/cli/signals.h"

#define BAR_INTERVAL_S (1.0 / 6)
#define LINE_INTERVAL_S 10.0
#define BAR_CELLS 24

void sw_term_clear(sw_term *term)
{
    if (!term->has_bar) return;
    (void)fputs("\r\033[K", stderr);
    term->has_bar = false;
}

static void format_eta(char out[32], double elapsed_s, int64_t done, int64_t total)
{
    double left_s = done > 0 ? elapsed_s * (double)(total - done) / (double)done : 0;

    out[0] = '\0';
    if (done <= 0 || done >= total || elapsed_s < 0.5) return;
    if (left_s < 90)
        (void)snprintf(out, 32, ", %.0f s left", ceil(left_s));
    else
        (void)snprintf(out, 32, ", %.0f min left", ceil(left_s / 60));
}

static void draw_bar(sw_term *term, int64_t done, int64_t total, const char *eta)
{
    char cells[BAR_CELLS + 1];
    int filled = total > 0 ? (int)((double)BAR_CELLS * (double)done / (double)total) : 0;

    for (int i = 0; i < BAR_CELLS; i++) cells[i] = i < filled ? '#' : '.';
    cells[BAR_CELLS] = '\0';
    (void)fprintf(stderr, "\r\033[K%s [%s] %lld/%lld%s", term->stage_text, cells, (long long)done,
                  (long long)total, eta);
    (void)fflush(stderr);
    term->has_bar = true;
}

static void on_step(void *self, const char *stage, int64_t done, int64_t total)
{
    sw_term *term = self;
    double now = sw_clock_s();
    char eta[32];

    if (term->is_quiet) return;
    if (strncmp(stage, term->stage_text, sizeof term->stage_text - 1) != 0) {
        (void)snprintf(term->stage_text, sizeof term->stage_text, "%s", stage);
        term->stage_start_s = now;
        term->last_print_s = term->is_tty ? 0 : now;
    }
    if (now - term->last_print_s < (term->is_tty ? BAR_INTERVAL_S : LINE_INTERVAL_S) &&
        !(term->is_tty && done >= total))
        return;
    term->last_print_s = now;
    format_eta(eta, now - term->stage_start_s, done, total);
    if (term->is_tty)
        draw_bar(term, done, total, eta);
    else
        (void)fprintf(stderr, "%s: %lld of %lld%s\n", stage, (long long)done, (long long)total,
                      eta);
    if (done >= total) sw_term_clear(term);
}

static void print_clean(const char *text)
{
    for (const char *p = text; *p; p++)
        (void)fputc((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p, stderr);
    (void)fputc('\n', stderr);
}

static void on_note(void *self, const char *text)
{
    sw_term *term = self;

    if (term->is_quiet) return;
    sw_term_clear(term);
    print_clean(text);
}

static bool on_is_cancelled(void *self)
{
    (void)self;
    return sw_signals_ask_to_stop();
}

void sw_term_init(sw_term *term, bool is_quiet)
{
    memset(term, 0, sizeof *term);
    term->is_quiet = is_quiet;
    term->is_tty = isatty(STDERR_FILENO) == 1;
    term->progress.self = term;
    term->progress.step = on_step;
    term->progress.note = on_note;
    term->progress.is_cancelled = on_is_cancelled;
}

void sw_term_error(sw_term *term, const char *command, const sw_err *err)
{
    sw_term_clear(term);
    (void)fprintf(stderr, "swage%s%s: ", command ? " " : "", command ? command : "");
    if (err->code == SW_E_BUG)
        (void)fprintf(stderr, "bug at %s:%d, please report it: ",
                      err->src_file ? err->src_file : "?", err->src_line);
    if (err->code == SW_E_CANCELLED) { /* wherever it was noticed */
        const char *text = strstr(err->text, "interrupted");
        print_clean(text ? text : "interrupted; nothing was written");
        return;
    }
    print_clean(err->text[0] ? err->text : "failed without a message, which is a bug");
}

void sw_term_bytes(char out[16], double n_bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;

    while (n_bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        n_bytes /= 1000;
        unit++;
    }
    (void)snprintf(out, 16, n_bytes < 99.5 && unit ? "%.1f %s" : "%.0f %s", n_bytes, units[unit]);
}
