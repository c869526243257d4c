/* completion_fish.c - completion for fish: one `complete` per command, option and argument. */
#include <string.h>

#include "tools/shell/commands.h"
#include "tools/shell/completion.h"

/* Between single quotes fish escapes quotes and backslashes. */
static void put_quoted(sw_made_text *t, const char *text)
{
    sw_made_add(t, "'");
    for (char one[3] = ""; *text; text++) {
        bool is_escaped = *text == '\'' || *text == '\\';
        one[0] = is_escaped ? '\\' : *text;
        one[1] = is_escaped ? *text : '\0';
        sw_made_add(t, one);
    }
    sw_made_add(t, "'");
}

static void put_names(sw_made_text *t, sw_opt_choice_fn names, const char *word, bool is_many)
{
    sw_made_add(t, is_many ? " -a '(__swage_many " : " -a '");
    sw_made_names(t, names);
    sw_made_add(t, word ? word : "");
    sw_made_add(t, is_many ? ")'" : "'");
}

static void put_option(sw_made_text *t, const sw_cmd *cmd, const sw_opt *row)
{
    sw_made_fmt(t, "complete -c swage -n '__swage_runs %s' -l %s", cmd->name, row->name);
    if (row->letter) sw_made_fmt(t, " -s %c", row->letter);
    if (row->kind != SW_OPT_FLAG) sw_made_add(t, sw_row_takes_path(row) ? " -r -F" : " -x");
    if (sw_row_names(row) || row->word)
        put_names(t, sw_row_names(row), row->word, sw_row_takes_many(row));
    sw_made_add(t, " -d ");
    if (row->alias_of) {
        sw_made_fmt(t, "'the same as --%s'", row->alias_of);
    } else {
        put_quoted(t, row->help);
    }
    sw_made_add(t, "\n");
}

static void put_command(sw_made_text *t, const sw_cmd *cmd)
{
    sw_made_fmt(t, "\ncomplete -c swage -n __swage_is_first -a %s -d ", cmd->name);
    put_quoted(t, cmd->summary);
    sw_made_fmt(t, "\ncomplete -c swage -n '__swage_runs %s'", cmd->name);
    if (cmd->words)
        put_names(t, cmd->words, NULL, false);
    else
        sw_made_add(t, " -F");
    sw_made_add(t, "\n");
    for (const sw_opt *row = cmd->options; row->name; row++) put_option(t, cmd, row);
}

void sw_completion_fish(sw_made_text *t)
{
    sw_made_add(t, "# Completion of swage for fish, made by `swage completion fish`. Load it with\n"
                   "#   swage completion fish | source\n"
                   "# or put it into a directory of $fish_complete_path as swage.fish, as\n"
                   "# `make install` does.\n\n"
                   "function __swage_is_first\n"
                   "    test (count (commandline -opc)) -eq 1\n"
                   "end\n\n"
                   "function __swage_runs\n"
                   "    set -l words (commandline -opc)\n"
                   "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
                   "end\n\n"
                   "function __swage_many\n"
                   "    set -l head (commandline -ct | string replace -r '^--[^=]*=' '' "
                   "| string match -r '^.*,')\n"
                   "    for name in $argv\n"
                   "        echo \"$head$name\"\n"
                   "    end\n"
                   "end\n\n"
                   "complete -c swage -f\n"
                   "complete -c swage -n __swage_is_first -l help -d 'list the commands'\n"
                   "complete -c swage -n __swage_is_first -l version -d 'print the version'\n"
                   "complete -c swage -n __swage_is_first -a help -d 'show the help of a command'\n"
                   "complete -c swage -n '__swage_runs help'");
    put_names(t, sw_command_name, NULL, false);
    sw_made_add(t, "\n");
    for (int i = 0; sw_commands[i]; i++) put_command(t, sw_commands[i]);
}
