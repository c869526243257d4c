/* completion.h - scripts that complete a command line of swage, made of the commands' tables.
 *
 * A script knows commands, options with what they say of themselves, the names that a value may
 * have (schemes, methods, formats, ...), and where files belong. It asks the program nothing, and
 * needs no package for completion.
 */
#ifndef SW_TOOLS_SHELL_COMPLETION_H
#define SW_TOOLS_SHELL_COMPLETION_H

#include "tools/shell/made_text.h"

void sw_completion_bash(sw_made_text *t);
void sw_completion_zsh(sw_made_text *t);
void sw_completion_fish(sw_made_text *t);

/* For bash and zsh: lines "    COMMAND:--option|COMMAND:-o) ..." of a shell's case, which set
 * kind (one, list), names, many and files (yes or nothing) for what follows an option. Options that
 * take any text set kind alone. */
void sw_completion_values(sw_made_text *t);
/* The same for the words that are no options: lines "    COMMAND) names=... ;;" of commands whose
 * words are names and no files. */
void sw_completion_arguments(sw_made_text *t);

#endif
