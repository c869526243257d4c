/* opt_text.c - the text side of opt.h: numbers, names that are nearly right, help. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/cli/opt.h"

#define WORD_MAX 48
#define HELP_INDENT 30
#define HELP_WIDTH 98

sw_code sw_opt_int(int64_t *out, const char *text, double min, double max, const char *what,
                   sw_err *err)
{
    char *end = NULL;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (end == text || *end || errno || isspace((unsigned char)text[0]))
        return SW_FAIL(err, SW_E_USAGE, "%s: '%s' is not a whole number", what, text);
    if ((double)v < min || (double)v > max)
        return SW_FAIL(err, SW_E_USAGE, "%s: %s is outside %.0f..%.0f", what, text, min, max);
    *out = v;
    return SW_OK;
}

sw_code sw_opt_real(double *out, const char *text, double min, double max, const char *what,
                    sw_err *err)
{
    char *end = NULL;
    double v;

    errno = 0;
    v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || isspace((unsigned char)text[0]))
        return SW_FAIL(err, SW_E_USAGE, "%s: '%s' is not a number", what, text);
    if (v < min || v > max)
        return SW_FAIL(err, SW_E_USAGE, "%s: %s is outside %g..%g", what, text, min, max);
    *out = v;
    return SW_OK;
}

/* JSON holds whole numbers up to here without rounding, and recipes are JSON: 8192T. */
#define SIZE_MAX_BYTES ((uint64_t)1 << 53)

/* What a number is multiplied by: K, KiB or KB, and so on to T, whatever their case; 0: no unit. */
static uint64_t unit_bytes(const char *text)
{
    static const char letters[] = "KMGT";
    const char *letter = *text ? strchr(letters, toupper((unsigned char)*text)) : NULL;
    const bool is_decimal = letter && !strcasecmp(text + 1, "B");
    uint64_t bytes = 1;

    if (!*text || !strcasecmp(text, "B")) return 1;
    if (!letter || (text[1] && !is_decimal && strcasecmp(text + 1, "iB") != 0)) return 0;
    for (const char *l = letters; l <= letter; l++) bytes *= is_decimal ? 1000 : 1024;
    return bytes;
}

sw_code sw_opt_size(uint64_t *out, const char *text, const char *what, sw_err *err)
{
    char *end = NULL;
    unsigned long long v;
    double part = 0;
    uint64_t unit;

    errno = 0;
    v = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (end && *end == '.' && isdigit((unsigned char)end[1]))
        for (double digit = 0.1; isdigit((unsigned char)*++end); digit /= 10)
            part += digit * (*end - '0');
    unit = end && !errno ? unit_bytes(end) : 0;
    if (!unit || v + (part > 0) > SIZE_MAX_BYTES / unit || (part > 0 && unit == 1))
        return SW_FAIL(err, SW_E_USAGE, "%s: '%s' is not a size such as 512M or 2G", what, text);
    *out = (uint64_t)v * unit + (uint64_t)(part * (double)unit);
    return SW_OK;
}

static int min3(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Edits (insert, delete, replace, swap of neighbours), ignoring case: Damerau-Levenshtein with
 * restricted transposition. Words beyond WORD_MAX are far from everything. */
int sw_opt_distance(const char *a, const char *b)
{
    int row[3][WORD_MAX + 1];
    int n_a = (int)strnlen(a, WORD_MAX + 1);
    int n_b = (int)strnlen(b, WORD_MAX + 1);

    if (n_a > WORD_MAX || n_b > WORD_MAX) return WORD_MAX;
    for (int j = 0; j <= n_b; j++) row[0][j] = j;
    for (int i = 1; i <= n_a; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= n_b; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]) && before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
    }
    return row[n_a % 3][n_b];
}

const char *sw_opt_nearest(const char *word, sw_opt_choice_fn names)
{
    const char *best = NULL;
    const char *name;
    int best_distance = 3;

    for (int i = 0; (name = names(i)) != NULL; i++) {
        int distance = sw_opt_distance(word, name);
        if (distance >= best_distance || distance >= (int)strlen(name)) continue;
        best_distance = distance;
        best = name;
    }
    return best;
}

void sw_opt_join(char *text, size_t text_bytes, sw_opt_choice_fn names)
{
    size_t at = 0;
    const char *name;

    text[0] = '\0';
    for (int i = 0; (name = names(i)) != NULL; i++) {
        int n = snprintf(text + at, text_bytes - at, "%s%s", i ? ", " : "", name);
        if (n < 0 || (size_t)n >= text_bytes - at) {
            if (text_bytes > 4) memcpy(text + text_bytes - 4, "...", 4);
            return;
        }
        at += (size_t)n;
    }
}

sw_code sw_opt_unknown(const char *what, const char *word, sw_opt_choice_fn names, sw_err *err)
{
    char all[256];
    const char *near = sw_opt_nearest(word, names);

    sw_opt_join(all, sizeof all, names);
    if (near)
        return SW_FAIL(err, SW_E_USAGE, "%s does not know '%s'; did you mean %s? (there are %s)",
                       what, word, near, all);
    return SW_FAIL(err, SW_E_USAGE, "%s does not know '%s'; there are %s", what, word, all);
}

/* `text` from column HELP_INDENT on, broken at blanks. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t width = HELP_WIDTH - HELP_INDENT;

    while (strlen(text) > width) {
        size_t cut = width;
        while (cut > 0 && text[cut] != ' ') cut--;
        if (cut == 0) cut = width;
        (void)fprintf(out, "%.*s\n%*s", (int)cut, text, HELP_INDENT, "");
        text += cut;
        while (*text == ' ') text++;
    }
    (void)fprintf(out, "%s\n", text);
}

void sw_opt_describe(char *text, size_t text_bytes, const sw_opt *row)
{
    char names[256] = "";

    if (row->alias_of) {
        (void)snprintf(text, text_bytes, "the same as --%s", row->alias_of);
        return;
    }
    if (row->choices) sw_opt_join(names, sizeof names, row->choices);
    (void)snprintf(text, text_bytes, "%s%s%s%s", row->help, names[0] ? ": " : "", names,
                   row->kind == SW_OPT_SIZE ? "; as 512M, 2GiB or 5GB" : "");
}

static void print_row(FILE *out, const sw_opt *row)
{
    char left[80], text[640];
    char letter[5] = "    ";
    int n;

    if (row->letter) (void)snprintf(letter, sizeof letter, "-%c, ", row->letter);
    n = snprintf(left, sizeof left, "  %s--%s%s%s%s", letter, row->name,
                 row->kind == SW_OPT_FLAG ? "" : " ", row->arg ? row->arg : "",
                 row->kind == SW_OPT_LIST ? "..." : "");
    (void)fprintf(out, "%-*s", HELP_INDENT, left);
    if (n >= HELP_INDENT) (void)fprintf(out, "\n%*s", HELP_INDENT, "");
    sw_opt_describe(text, sizeof text, row);
    print_wrapped(out, text);
}

/* The names of the rows that another command's help describes. */
static void print_names(FILE *out, const sw_opt *table)
{
    const char *command = NULL;
    int column = 0;

    for (; table->name; table++) {
        char name[80];
        if (!table->listed_by) continue;
        if (!command)
            (void)fprintf(out, "\noptions of `swage %s`, which have the same meaning here (see "
                          "`swage %s --help`):", table->listed_by, table->listed_by);
        column += snprintf(name, sizeof name, "  --%s%s%s", table->name, table->arg ? " " : "",
                           table->arg ? table->arg : "");
        if (!command || column > HELP_WIDTH) {
            (void)fprintf(out, "\n");
            column = (int)strlen(name);
        }
        command = table->listed_by;
        (void)fprintf(out, "%s", name);
    }
    if (command) (void)fprintf(out, "\n");
}

const char *sw_opt_heading(sw_opt_group group)
{
    static const char *const headings[SW_OPT_GROUP_COUNT] = {
        [SW_OPT_COMMON] = "options",
        [SW_OPT_QUALITY] = "options that change the result",
        [SW_OPT_RESOURCES] = "options for device, threads, memory and disk",
        [SW_OPT_EXPERT] = "options for special cases"};

    return headings[group];
}

void sw_opt_print(FILE *out, const sw_opt *table)
{
    for (int group = SW_OPT_COMMON; group < SW_OPT_GROUP_COUNT; group++) {
        bool has_heading = false;
        for (const sw_opt *row = table; row->name; row++) {
            if ((int)row->group != group || row->listed_by) continue;
            if (!has_heading) (void)fprintf(out, "\n%s:\n", sw_opt_heading((sw_opt_group)group));
            has_heading = true;
            print_row(out, row);
        }
    }
    print_names(out, table);
}
