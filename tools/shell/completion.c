/* completion.c - what the scripts for bash and zsh share, and the one for bash. */
#include "tools/shell/completion.h"

#include "tools/shell/commands.h"

/* --- shared --- */

static void put_value(sw_made_text *t, const sw_cmd *cmd, const sw_opt *row)
{
    sw_made_fmt(t, "    %s:--%s", cmd->name, row->name);
    if (row->letter) sw_made_fmt(t, "|%s:-%c", cmd->name, row->letter);
    sw_made_fmt(t, ") kind=%s", row->kind == SW_OPT_LIST ? "list" : "one");
    if (sw_row_names(row) || row->word) {
        sw_made_add(t, " names='");
        sw_made_names(t, sw_row_names(row));
        sw_made_add(t, row->word ? row->word : "");
        sw_made_add(t, "'");
    }
    if (sw_row_takes_many(row)) sw_made_add(t, " many=yes");
    sw_made_add(t, sw_row_takes_path(row) ? " files=yes ;;\n" : " ;;\n");
}

void sw_completion_values(sw_made_text *t)
{
    for (int i = 0; sw_commands[i]; i++)
        for (const sw_opt *row = sw_commands[i]->options; row->name; row++)
            if (row->kind != SW_OPT_FLAG) put_value(t, sw_commands[i], row);
}

void sw_completion_arguments(sw_made_text *t)
{
    for (int i = 0; sw_commands[i]; i++) {
        if (!sw_commands[i]->words) continue;
        sw_made_fmt(t, "    %s) names='", sw_commands[i]->name);
        sw_made_names(t, sw_commands[i]->words);
        sw_made_add(t, "' files= ;;\n");
    }
    sw_made_add(t, "    help) names=$_swage_commands files= ;;\n");
}

/* --- bash --- */

static void put_options(sw_made_text *t)
{
    sw_made_add(t, "_swage_options() {\n    case $1 in\n");
    for (int i = 0; sw_commands[i]; i++) {
        sw_made_fmt(t, "    %s) names='", sw_commands[i]->name);
        for (const sw_opt *row = sw_commands[i]->options; row->name; row++)
            sw_made_fmt(t, "%s--%s", row == sw_commands[i]->options ? "" : " ", row->name);
        sw_made_add(t, "' ;;\n");
    }
    sw_made_add(t, "    esac\n}\n\n");
}

/* The word before the cursor that is an option decides, unless its value is there already. "="
 * is a word of its own in bash, since it is among COMP_WORDBREAKS. */
static const char bash_body[] =
    "_swage() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} i word between=0\n"
    "    local kind= names= many= files=yes head=\n"
    "    COMPREPLY=()\n"
    "    [ \"$cur\" != = ] || cur=\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$_swage_commands help --help --version\" "
    "-- \"$cur\")\n"
    "        return\n"
    "    fi\n"
    "    for ((i = COMP_CWORD - 1; i > 1; i--)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        case $word in\n"
    "        --) break ;;\n"
    "        =) ;;\n"
    "        -[!0-9.]*)\n"
    "            files=\n"
    "            _swage_value \"$command:$word\"\n"
    "            [ \"$kind\" != one ] || [ \"$between\" -eq 0 ] || kind=\n"
    "            break ;;\n"
    "        *) between=$((between + 1)) ;;\n"
    "        esac\n"
    "    done\n"
    "    if [ \"$word\" = -- ]; then\n"
    "        kind=list names= files=yes\n"
    "    elif [ -z \"$kind\" ] || { [ \"$kind\" = list ] && [ \"$between\" -gt 0 ]; }; then\n"
    "        case $cur in\n"
    "        -*) kind=options names= files= && _swage_options \"$command\" ;;\n"
    "        *) [ \"$kind\" = list ] || { names= files=yes && _swage_arguments \"$command\"; } ;;\n"
    "        esac\n"
    "    fi\n"
    "    [ -z \"$many\" ] || head=${cur%\"${cur##*,}\"}\n"
    "    [ -z \"$names\" ] || mapfile -t COMPREPLY < "
    "<(compgen -P \"$head\" -W \"$names\" -- \"${cur#\"$head\"}\")\n"
    "    [ -z \"$files\" ] || compopt -o bashdefault -o default 2>/dev/null\n"
    "}\n\n"
    "complete -F _swage swage\n";

void sw_completion_bash(sw_made_text *t)
{
    sw_made_add(t, "# Completion of swage for bash, made by `swage completion bash`. Load it with\n"
                   "#   source <(swage completion bash)\n"
                   "# or put it where bash-completion looks, as `make install` does.\n\n"
                   "_swage_commands='");
    sw_made_names(t, sw_command_name);
    sw_made_add(t, "'\n\n");
    put_options(t);
    sw_made_add(t, "_swage_value() {\n    case $1 in\n");
    sw_completion_values(t);
    sw_made_add(t, "    esac\n}\n\n_swage_arguments() {\n    case $1 in\n");
    sw_completion_arguments(t);
    sw_made_add(t, "    esac\n}\n\n");
    sw_made_add(t, bash_body);
}
