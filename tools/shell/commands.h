/* commands.h - every command of the program, in the order of cmds.def, and its exit codes. */
#ifndef SW_TOOLS_SHELL_COMMANDS_H
#define SW_TOOLS_SHELL_COMMANDS_H

#include "tools/cli/cmd.h"

extern const sw_cmd *const sw_commands[]; /* ends with NULL */
const char *sw_command_name(int i);       /* NULL beyond the end */
const sw_cmd *sw_command_find(const char *name); /* NULL when there is none */

/* What the program exits with: see sw_code. */
typedef struct sw_exit_code {
    sw_code code;
    const char *brief; /* "malformed input" */
    const char *text;  /* a sentence */
} sw_exit_code;
extern const sw_exit_code sw_exit_codes[];
extern const int sw_n_exit_codes;

/* What the program reads of the environment. */
typedef struct sw_env_variable {
    const char *name, *text;
} sw_env_variable;
extern const sw_env_variable sw_env_variables[];
extern const int sw_n_env_variables;

#endif
