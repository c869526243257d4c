/* man_page.c - see man_page.h. SW_RELEASED, the day of the version, comes from the Makefile. */
#include "tools/shell/man_page.h"

#include <ctype.h>
#include <string.h>

#include "tools/shell/commands.h"

#define LINE_BYTES 72

/* One character as roff wants it; a dash is the one that a reader can copy. */
static void put_char(sw_made_text *t, char c)
{
    const char one[2] = {c, '\0'};

    sw_made_add(t, c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '~' ? "\\(ti" : c == '^' ? "\\(ha"
                   : c == '`' ? "\\(ga" : c == '\'' ? "\\(aq" : one);
}

static void put_chars(sw_made_text *t, const char *text, size_t n)
{
    if (n && (*text == '.' || *text == '\'')) sw_made_add(t, "\\&"); /* no request */
    for (size_t i = 0; i < n; i++) put_char(t, text[i]);
}

static int count_lines(const char *text, size_t n_bytes)
{
    int n = 0;

    for (size_t i = 0; i < n_bytes; i++) n += text[i] == '\n';
    return n;
}

/* A text on lines of LINE_BYTES, cut at blanks; a blank line is a new paragraph. */
static void put_text(sw_made_text *t, const char *text)
{
    int column = 0;

    while (*text) {
        size_t n_blank = strspn(text, " \n"), n = strcspn(text + n_blank, " \n");
        const char *word = text + n_blank;
        bool is_paragraph = column && count_lines(text, n_blank) > 1;
        if (!n) break;
        if (is_paragraph) sw_made_add(t, "\n.PP\n");
        else if (column) sw_made_add(t, column + (int)n > LINE_BYTES ? "\n" : " ");
        if (is_paragraph || column + (int)n > LINE_BYTES) column = 0;
        if (column)
            for (size_t i = 0; i < n; i++) put_char(t, word[i]);
        else
            put_chars(t, word, n);
        column += (int)n + 1;
        text = word + n;
    }
    sw_made_add(t, "\n");
}

static void put_upper(sw_made_text *t, const char *text)
{
    for (; *text; text++) put_char(t, (char)toupper((unsigned char)*text));
}

/* The title line and the name; cmd NULL: of the program. */
static void put_head(sw_made_text *t, const sw_cmd *cmd)
{
    sw_made_add(t, ".\\\" Made by `swage man`.\n.TH SWAGE");
    if (cmd) sw_made_add(t, "\\-");
    if (cmd) put_upper(t, cmd->name);
    sw_made_add(t, " 1 " SW_RELEASED " \"swage " SW_VERSION "\" \"Swage\"\n.SH NAME\nswage");
    if (cmd) sw_made_add(t, "\\-");
    if (cmd) put_chars(t, cmd->name, strlen(cmd->name));
    sw_made_add(t, " \\- ");
}

static void put_exit_codes(sw_made_text *t)
{
    sw_made_add(t, ".SH EXIT STATUS\n");
    for (int i = 0; i < sw_n_exit_codes; i++) {
        sw_made_fmt(t, ".TP\n.B %d\n", (int)sw_exit_codes[i].code);
        put_text(t, sw_exit_codes[i].text);
    }
}

static void put_option(sw_made_text *t, const sw_opt *row)
{
    char text[640];

    sw_made_add(t, ".TP\n.B ");
    if (row->letter) sw_made_fmt(t, "\\-%c\\fR, \\fB", row->letter);
    sw_made_add(t, "\\-\\-");
    put_chars(t, row->name, strlen(row->name));
    if (row->kind != SW_OPT_FLAG && row->arg) {
        sw_made_add(t, "\\fR \\fI");
        put_chars(t, row->arg, strlen(row->arg));
        sw_made_add(t, row->kind == SW_OPT_LIST ? "\\fR..." : "\\fR");
    }
    sw_made_add(t, "\n");
    sw_opt_describe(text, sizeof text, row);
    put_text(t, text);
}

/* Rows that another command describes are named alone. */
static void put_borrowed(sw_made_text *t, const sw_opt *table)
{
    const char *command = NULL;

    for (; table->name; table++) {
        if (!table->listed_by) continue;
        if (!command) {
            command = table->listed_by;
            sw_made_fmt(t, ".SS Options of swage %s\nThese have the meaning that\n"
                        ".BR swage\\-%s (1)\ngives them:\n", command, command);
        }
        sw_made_add(t, ".br\n.B \\-\\-");
        put_chars(t, table->name, strlen(table->name));
        sw_made_add(t, "\n");
    }
}

static void put_options(sw_made_text *t, const sw_opt *table)
{
    sw_made_add(t, ".SH OPTIONS\n");
    for (int group = SW_OPT_COMMON; group < SW_OPT_GROUP_COUNT; group++) {
        bool has_heading = group == SW_OPT_COMMON;
        for (const sw_opt *row = table; row->name; row++) {
            if ((int)row->group != group || row->listed_by) continue;
            if (!has_heading) {
                const char *heading = sw_opt_heading((sw_opt_group)group);
                sw_made_fmt(t, ".SS %c%s\n", toupper((unsigned char)*heading), heading + 1);
            }
            has_heading = true;
            put_option(t, row);
        }
    }
    put_borrowed(t, table);
}

void sw_man_command(sw_made_text *t, const sw_cmd *cmd)
{
    put_head(t, cmd);
    put_text(t, cmd->summary);
    sw_made_fmt(t, ".SH SYNOPSIS\n.B swage %s\n", cmd->name);
    if (cmd->args[0]) put_text(t, cmd->args);
    sw_made_add(t, ".SH DESCRIPTION\n");
    if (cmd->more) put_text(t, cmd->more);
    else sw_made_fmt(t, "See the examples, and\n.BR swage (1).\n");
    put_options(t, cmd->options);
    sw_made_add(t, ".SH EXAMPLES\n.EX\n");
    for (int i = 0; cmd->examples[i]; i++) {
        put_chars(t, cmd->examples[i], strlen(cmd->examples[i]));
        sw_made_add(t, "\n");
    }
    sw_made_add(t, ".EE\n");
    put_exit_codes(t);
    sw_made_add(t, ".SH SEE ALSO\n.BR swage (1)\n");
}

void sw_man_overview(sw_made_text *t)
{
    put_head(t, NULL);
    sw_made_add(t, "quantize language models, convert checkpoints, and verify them\n"
                   ".SH SYNOPSIS\n.B swage\n.I COMMAND\n\\&...\n.br\n.B swage\n"
                   ".I COMMAND\n.B \\-\\-help\n.br\n.B swage \\-\\-version\n.SH DESCRIPTION\n");
    put_text(t, "Results go to stdout, messages to stderr. Each command has a page of its own, "
                "swage-COMMAND(1), and --help with examples.");
    sw_made_add(t, ".PP\n");
    put_text(t, SW_UNITS_HELP);
    sw_made_add(t, ".SH COMMANDS\n");
    for (int i = 0; sw_commands[i]; i++) {
        sw_made_fmt(t, ".TP\n.B %s\n", sw_commands[i]->name);
        put_text(t, sw_commands[i]->summary);
    }
    put_exit_codes(t);
    sw_made_add(t, ".SH ENVIRONMENT\n");
    for (int i = 0; i < sw_n_env_variables; i++) {
        sw_made_fmt(t, ".TP\n.B %s\n", sw_env_variables[i].name);
        put_text(t, sw_env_variables[i].text);
    }
    sw_made_add(t, ".SH SEE ALSO\n");
    for (int i = 0; sw_commands[i]; i++)
        sw_made_fmt(t, ".BR swage\\-%s (1)%s\n", sw_commands[i]->name,
                    sw_commands[i + 1] ? "," : "");
}
