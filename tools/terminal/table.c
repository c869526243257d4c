/* table.c - see table.h. */
#include "tools/terminal/table.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "tools/terminal/terminal.h"

#define GAP 2
#define NAME_MIN 11
#define WORD_MAX 24
#define LINE_BYTES 4096

/* Characters of the longest word, at most WORD_MAX: longer ones are cut. */
static int longest_word(const char *text)
{
    int longest = 0;

    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (n > longest) longest = n;
        text += n;
        text += strspn(text, " ");
    }
    return longest < WORD_MAX ? longest : WORD_MAX;
}

static int least_of(sw_cell_kind kind, const char *cell)
{
    const int natural = sw_text_columns(cell);

    if (kind == SW_CELL_TEXT) return longest_word(cell);
    return kind == SW_CELL_NAME && natural > NAME_MIN ? NAME_MIN : natural;
}

/* How wide columns are with whole cells, and how narrow they may become. */
typedef struct widths {
    int natural[SW_TABLE_COLUMNS_MAX], least[SW_TABLE_COLUMNS_MAX];
} widths;

static void widen(widths *w, const sw_table *t, int c, const char *cell)
{
    const int natural = sw_text_columns(cell), least = least_of(t->kinds[c], cell);

    if (natural > w->natural[c]) w->natural[c] = natural;
    if (least > w->least[c]) w->least[c] = least;
}

static void find_widths(widths *w, const sw_table *t)
{
    sw_cells cells;

    memset(w, 0, sizeof *w);
    for (int c = 0; c < t->n_columns && !t->has_no_heading; c++)
        widen(w, t, c, t->headings[c]);
    for (int64_t i = 0; t->row(t->self, i, cells); i++)
        for (int c = 0; c < t->n_columns; c++) widen(w, t, c, cells[c]);
}

/* One character at a time from the widest column that may give it. */
static void narrow(widths *w, int n_columns, int columns)
{
    int total = GAP * (n_columns - 1);

    for (int c = 0; c < n_columns; c++) total += w->natural[c];
    for (; total > columns; total--) {
        int widest = -1;
        for (int c = 0; c < n_columns; c++)
            if (w->natural[c] > w->least[c] &&
                (widest < 0 || w->natural[c] > w->natural[widest]))
                widest = c;
        if (widest < 0) return;
        w->natural[widest]--;
    }
}

/* Bytes of `text` that make a line of at most `width` characters, cut at a blank if there is one.
 */
static size_t line_bytes(const char *text, int width)
{
    size_t at = 0, blank = 0;

    for (int n = 0; text[at] && n < width; n++) {
        if (text[at] == ' ') blank = at;
        at++;
        while (((unsigned char)text[at] & 0xc0) == 0x80) at++;
    }
    return !text[at] || text[at] == ' ' || !blank ? at : blank;
}

static void put_cell(FILE *out, const char *text, size_t n_bytes, int width, bool is_right,
                     bool is_last)
{
    char cell[SW_CELL_BYTES];
    int n_blank;

    (void)snprintf(cell, sizeof cell, "%.*s", (int)n_bytes, text);
    n_blank = width - sw_text_columns(cell);
    if (n_blank < 0) n_blank = 0;
    (void)fprintf(out, "%*s%s%*s", is_right ? n_blank : 0, "", cell,
                  is_right || is_last ? 0 : n_blank, "");
    if (!is_last) (void)fprintf(out, "%*s", GAP, "");
}

/* As many lines as the longest text needs. A line ends behind its last cell that is not empty.
 * Headings are texts. */
static void put_row(FILE *out, const sw_table *t, const int width[SW_TABLE_COLUMNS_MAX],
                    sw_cells cells, bool is_heading)
{
    const char *rest[SW_TABLE_COLUMNS_MAX];
    bool has_more = true;

    for (int c = 0; c < t->n_columns; c++) {
        char name[SW_CELL_BYTES];
        if (t->kinds[c] == SW_CELL_NAME && !is_heading)
            memcpy(cells[c], sw_name_fit(name, sizeof name, cells[c], width[c]), sizeof name);
        rest[c] = cells[c];
    }
    while (has_more) {
        int last = t->n_columns - 1;
        has_more = false;
        while (last > 0 && !*rest[last]) last--;
        for (int c = 0; c <= last; c++) {
            bool is_text = t->kinds[c] == SW_CELL_TEXT || is_heading;
            size_t n = is_text ? line_bytes(rest[c], width[c]) : strlen(rest[c]);
            put_cell(out, rest[c], n, width[c], t->kinds[c] == SW_CELL_NUMBER, c == last);
            rest[c] += n;
            rest[c] += strspn(rest[c], " ");
            has_more = has_more || *rest[c];
        }
        (void)fputc('\n', out);
    }
}

void sw_table_print(FILE *out, const sw_table *table, int columns)
{
    sw_cells cells;
    widths w;

    find_widths(&w, table);
    if (columns > 0) narrow(&w, table->n_columns, columns);
    for (int c = 0; c < table->n_columns && !table->has_no_heading; c++)
        (void)snprintf(cells[c], sizeof cells[c], "%s", table->headings[c]);
    if (!table->has_no_heading) put_row(out, table, w.natural, cells, true);
    for (int64_t i = 0; table->row(table->self, i, cells); i++)
        put_row(out, table, w.natural, cells, false);
}

void sw_line_print(FILE *out, const char *label, int columns, const char *fmt, ...)
{
    const int indent = label ? SW_LABEL_COLUMNS : 0;
    const int width = columns > indent ? columns - indent : INT_MAX;
    char text[LINE_BYTES];
    const char *rest = text;
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    do {
        size_t n = line_bytes(rest, width);

        n += strcspn(rest + n, " ");
        (void)fprintf(out, "%-*s%.*s\n", indent, label ? label : "", (int)n, rest);
        rest += n + strspn(rest + n, " ");
        if (label) label = "";
    } while (*rest);
}
