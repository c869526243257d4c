/* completion_zsh.c - completion for zsh: options are shown with what they do. */
#include "tools/shell/commands.h"
#include "tools/shell/completion.h"

/* What an option does, as a word: "--name:text". Its first sentence is what fits a line. */
static void put_described(sw_made_text *t, const char *dashes, const char *name, const char *text)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%s%s:%s", dashes, name, text);

    if (n >= (int)sizeof line) (void)snprintf(line + sizeof line - 4, 4, "...");
    sw_made_add(t, " ");
    sw_made_word(t, line);
}

static void put_options(sw_made_text *t)
{
    sw_made_add(t, "_swage_options() {\n    case $1 in\n");
    for (int i = 0; sw_commands[i]; i++) {
        sw_made_fmt(t, "    %s) described=(", sw_commands[i]->name);
        for (const sw_opt *row = sw_commands[i]->options; row->name; row++) {
            char same[80];
            (void)snprintf(same, sizeof same, "the same as --%s",
                           row->alias_of ? row->alias_of : "");
            put_described(t, "--", row->name, row->alias_of ? same : row->help);
        }
        sw_made_add(t, ") ;;\n");
    }
    sw_made_add(t, "    esac\n}\n\n");
}

static void put_commands(sw_made_text *t)
{
    sw_made_add(t, "_swage_described_commands=(");
    for (int i = 0; sw_commands[i]; i++)
        put_described(t, "", sw_commands[i]->name, sw_commands[i]->summary);
    sw_made_add(t, " 'help:show the help of a command')\n_swage_commands='");
    sw_made_names(t, sw_command_name);
    sw_made_add(t, "'\n\n");
}

/* As in bash; here "--name=value" is one word. The file is sourced, or is the body of the function
 * when zsh loads it by itself. */
static const char zsh_body[] =
    "_swage() {\n"
    "    local command=${words[2]} i word between=0 kind= names= many= files=yes\n"
    "    local -a described\n"
    "    if ((CURRENT == 2)); then\n"
    "        _describe -t commands 'command' _swage_described_commands\n"
    "        return\n"
    "    fi\n"
    "    if [[ ${words[CURRENT]} == --*=* ]]; then\n"
    "        files=\n"
    "        _swage_value \"$command:${words[CURRENT]%%=*}\"\n"
    "        compset -P 1 '*='\n"
    "        [[ -z $kind ]] && return 1\n"
    "        kind=one\n"
    "    else\n"
    "        for ((i = CURRENT - 1; i > 2; i--)); do\n"
    "            word=${words[i]}\n"
    "            case $word in\n"
    "            --) break ;;\n"
    "            --*=*) break ;;\n"
    "            -[^0-9.]*)\n"
    "                files=\n"
    "                _swage_value \"$command:$word\"\n"
    "                [[ $kind == one ]] && ((between)) && kind=\n"
    "                break ;;\n"
    "            *) ((between++)) ;;\n"
    "            esac\n"
    "        done\n"
    "        if [[ $word == -- ]]; then\n"
    "            kind=list names= files=yes\n"
    "        elif [[ -z $kind ]] || { [[ $kind == list ]] && ((between)); }; then\n"
    "            if [[ ${words[CURRENT]} == -* ]]; then\n"
    "                _swage_options \"$command\"\n"
    "                _describe -o -t options 'option' described\n"
    "                return\n"
    "            fi\n"
    "            [[ $kind == list ]] || { names= files=yes && _swage_arguments \"$command\"; }\n"
    "        fi\n"
    "    fi\n"
    "    [[ -n $many ]] && compset -P '*,'\n"
    "    [[ -n $names ]] && compadd -- ${=names}\n"
    "    [[ -n $files ]] && _files\n"
    "}\n\n"
    "if [[ ${funcstack[1]} == _swage ]]; then\n"
    "    _swage \"$@\"\n"
    "else\n"
    "    compdef _swage swage\n"
    "fi\n";

void sw_completion_zsh(sw_made_text *t)
{
    sw_made_add(t, "#compdef swage\n"
                   "# Completion of swage for zsh, made by `swage completion zsh`. Put it into a\n"
                   "# directory of $fpath as _swage, as `make install` does, or load it after\n"
                   "# compinit with\n"
                   "#   source <(swage completion zsh)\n\n");
    put_commands(t);
    put_options(t);
    sw_made_add(t, "_swage_value() {\n    case $1 in\n");
    sw_completion_values(t);
    sw_made_add(t, "    esac\n}\n\n_swage_arguments() {\n    case $1 in\n");
    sw_completion_arguments(t);
    sw_made_add(t, "    esac\n}\n\n");
    sw_made_add(t, zsh_body);
}
