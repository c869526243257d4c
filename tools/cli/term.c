/* term.c - see term.h. */
#include "tools/cli/term.h"

#include <string.h>
#include <unistd.h>

#include "formats/io/profile.h"
#include "tools/cli/signals.h"
#include "tools/terminal/terminal.h"

#define BAR_INTERVAL_S (1.0 / 6)
#define LINE_INTERVAL_S 10.0
#define LONG_STEP_S 600.0
#define LONG_LINE_INTERVAL_S 60.0
#define TEXT_BYTES (2 * SW_ERR_TEXT_BYTES + 3)

const char *sw_progress_choice(int i)
{
    static const char *const choices[] = {"auto", "plain", "json", "none", NULL};

    return choices[i];
}

/* --- the step that goes on, under the lock --- */

static void wipe(sw_term *term)
{
    if (!term->has_bar) return;
    (void)fputs("\r\033[K", term->out);
    (void)fflush(term->out);
    term->has_bar = false;
}

/* A last word is due even where nothing else is. */
static bool is_due(const sw_term *term, double now_s, bool is_last)
{
    const double since_s = now_s - term->last_print_s, elapsed_s = now_s - term->step_start_s;

    if (term->form != SW_PROGRESS_LINES) return is_last || since_s >= BAR_INTERVAL_S;
    if (is_last && term->has_said) return true;
    return since_s >= (elapsed_s < LONG_STEP_S ? LINE_INTERVAL_S : LONG_LINE_INTERVAL_S);
}

static void show(sw_term *term, double now_s, bool is_last)
{
    char line[SW_STEP_LINE_BYTES];

    if (term->is_quiet || term->form == SW_PROGRESS_NONE || !is_due(term, now_s, is_last)) return;
    term->last_print_s = now_s;
    term->has_said = true;
    if (term->form == SW_PROGRESS_BAR) {
        sw_step_bar(line, &term->step, sw_terminal_columns(fileno(term->out)), term->has_colors);
        (void)fprintf(term->out, "\r\033[K%s", line);
        term->has_bar = true;
        if (is_last) wipe(term);
    } else {
        (term->form == SW_PROGRESS_JSON ? sw_step_json : sw_step_line)(line, &term->step);
        (void)fprintf(term->out, "%s\n", line);
    }
    (void)fflush(term->out);
}

static void begin_step(sw_term *term, const char *name, int64_t done, double now_s)
{
    memset(&term->step, 0, sizeof term->step);
    (void)snprintf(term->step.name, sizeof term->step.name, "%s", name);
    term->step.first_done = done;
    term->step_start_s = now_s;
    term->has_said = false;
    /* long enough ago for the first word, whatever the difference of two times is rounded to */
    term->last_print_s = term->form == SW_PROGRESS_LINES ? now_s : now_s - 2 * BAR_INTERVAL_S;
}

static bool is_other_step(const sw_term *term, const char *name, int64_t done)
{
    return strncmp(name, term->step.name, sizeof term->step.name - 1) != 0 ||
           done < term->step.done;
}

static void on_step(void *self, const char *name, int64_t done, int64_t total)
{
    sw_term *term = self;
    const double now_s = term->now_s();

    (void)pthread_mutex_lock(&term->lock);
    if (is_other_step(term, name, done)) begin_step(term, name, done, now_s);
    term->step.done = done;
    term->step.total = total;
    term->step.elapsed_s = now_s - term->step_start_s;
    term->step.done_s = term->step.elapsed_s;
    if (total > 0 && done >= total) term->step.item[0] = '\0';
    show(term, now_s, total > 0 && done >= total);
    (void)pthread_mutex_unlock(&term->lock);
}

static void put_clean(char *out, size_t out_bytes, const char *text)
{
    (void)snprintf(out, out_bytes, "%s", text);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
}

static void on_item(void *self, const char *name)
{
    sw_term *term = self;
    const double now_s = term->now_s();
    const sw_step *step = &term->step;

    (void)pthread_mutex_lock(&term->lock);
    if (step->name[0] && !(step->total > 0 && step->done >= step->total)) {
        put_clean(term->step.item, sizeof term->step.item, name);
        term->step.elapsed_s = now_s - term->step_start_s;
        show(term, now_s, false);
    }
    (void)pthread_mutex_unlock(&term->lock);
}

/* --- single lines --- */

static void print_clean(FILE *out, const char *text)
{
    for (const char *p = text; *p; p++)
        (void)fputc((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p, out);
    (void)fputc('\n', out);
}

static void on_note(void *self, const char *text)
{
    sw_term *term = self;
    char quoted[TEXT_BYTES];

    if (term->is_quiet) return;
    (void)pthread_mutex_lock(&term->lock);
    wipe(term);
    if (term->form == SW_PROGRESS_JSON) {
        sw_step_quote(quoted, sizeof quoted, text);
        (void)fprintf(term->out, "{\"event\":\"note\",\"text\":%s}\n", quoted);
    } else {
        print_clean(term->out, text);
    }
    (void)pthread_mutex_unlock(&term->lock);
}

static bool on_is_cancelled(void *self)
{
    const sw_term *term = self;

    return sw_signals_ask_to_stop() || sw_team_has_failed(term->team);
}

/* --- a run --- */

void sw_term_init(sw_term *term, bool is_quiet)
{
    memset(term, 0, sizeof *term);
    term->out = stderr;
    term->now_s = sw_clock_s;
    term->start_s = sw_clock_s();
    term->is_quiet = is_quiet;
    term->form = sw_terminal_can_redraw(STDERR_FILENO) ? SW_PROGRESS_BAR : SW_PROGRESS_LINES;
    term->has_colors = sw_terminal_has_colors(NULL, STDERR_FILENO);
    (void)pthread_mutex_init(&term->lock, NULL);
    term->progress.self = term;
    term->progress.step = on_step;
    term->progress.item = on_item;
    term->progress.note = on_note;
    term->progress.is_cancelled = on_is_cancelled;
}

void sw_term_begin(sw_term *term, const char *progress, const char *color, const char *command)
{
    static const struct {
        const char *word;
        sw_progress_form form;
    } forms[] = {{"plain", SW_PROGRESS_LINES}, {"json", SW_PROGRESS_JSON},
                 {"none", SW_PROGRESS_NONE}};

    for (size_t i = 0; progress && i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(progress, forms[i].word)) term->form = forms[i].form;
    term->has_colors = sw_terminal_has_colors(color, fileno(term->out));
    if (term->form == SW_PROGRESS_JSON && !term->is_quiet)
        (void)fprintf(term->out, "{\"event\":\"begin\",\"schema\":\"swage.progress/1\","
                      "\"swage\":\"" SW_VERSION "\",\"command\":\"%s\"}\n", command);
}

void sw_term_clear(sw_term *term)
{
    (void)pthread_mutex_lock(&term->lock);
    wipe(term);
    (void)pthread_mutex_unlock(&term->lock);
}

/* What a person reads of a failure; the interruption wherever it was noticed. */
static const char *text_of(const sw_err *err)
{
    const char *text = strstr(err->text, "interrupted");

    if (err->code == SW_E_CANCELLED) return text ? text : "interrupted; nothing was written";
    return err->text[0] ? err->text : "failed without a message, which is a bug";
}

static void error_event(sw_term *term, const char *command, const sw_err *err)
{
    char quoted[TEXT_BYTES];

    sw_step_quote(quoted, sizeof quoted, text_of(err));
    (void)fprintf(term->out, "{\"event\":\"error\",\"command\":\"%s\",\"code\":\"%s\",\"exit\":%d,"
                  "\"message\":%s}\n", command ? command : "", sw_code_name(err->code),
                  (int)err->code, quoted);
}

void sw_term_error(sw_term *term, const char *command, const sw_err *err)
{
    sw_term_clear(term);
    if (term->form == SW_PROGRESS_JSON) {
        error_event(term, command, err);
        return;
    }
    (void)fprintf(term->out, "%sswage%s%s:%s ", sw_color_on(SW_RED, term->has_colors),
                  command ? " " : "", command ? command : "", sw_color_off(term->has_colors));
    if (err->code == SW_E_BUG)
        (void)fprintf(term->out, "bug at %s:%d, please report it: ",
                      err->src_file ? err->src_file : "?", err->src_line);
    print_clean(term->out, text_of(err));
}

void sw_term_end(sw_term *term, int exit_code)
{
    sw_term_clear(term);
    if (term->form == SW_PROGRESS_JSON && !term->is_quiet)
        (void)fprintf(term->out, "{\"event\":\"end\",\"exit\":%d,\"elapsed_s\":%.3f}\n", exit_code,
                      term->now_s() - term->start_s);
}
