/* leftovers.h - what a process that dies by a signal takes away with it.
 *
 * Temporary files and work directories are entered while they are there. A signal handler calls
 * sw_leftovers_remove, which only unlinks files of ours and removes directories that are empty.
 * What it cannot remove, and what SIGKILL leaves, the next run for the same output sweeps.
 */
#ifndef SW_FORMATS_IO_LEFTOVERS_H
#define SW_FORMATS_IO_LEFTOVERS_H

typedef enum sw_leftover {
    SW_LEFT_FILE, /* a temporary: unlinked */
    SW_LEFT_WORK, /* a work directory (out_internal.h): its mark and itself, if all else is gone */
} sw_leftover;

/* Returns what sw_leftovers_leave takes; 0 when there is no room, and the next run sweeps then. */
int sw_leftovers_enter(sw_leftover kind, const char *path);
void sw_leftovers_leave(int slot); /* accepts 0 */
/* Safe in a signal handler. */
void sw_leftovers_remove(void);

#endif
