/* signals.h - what a signal does to a run: it ends, and leaves nothing half-written behind.
 *
 * The first signal that would end the process asks the work of a long command to stop: exit 130,
 * with nothing written. A second one, or one that cannot wait, ends the process as it always would,
 * but takes temporary files away before. What SIGKILL leaves is swept by the next run.
 *
 * A mapped input that is cut short, or whose disk fails, raises SIGBUS where it is read: the file
 * and the offset are named, and the exit code is that of failed input. Signals that somebody has
 * set to be ignored (nohup) or handles himself (sanitizers) are left alone.
 */
#ifndef SW_TOOLS_CLI_SIGNALS_H
#define SW_TOOLS_CLI_SIGNALS_H

#include <stdbool.h>

/* For the command of this name, which must outlive the process. is_long: a first signal asks. */
void sw_signals_catch(const char *command, bool is_json, bool is_long);
/* Has a signal asked the work to stop? */
bool sw_signals_ask_to_stop(void);

#endif
