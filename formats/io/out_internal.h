/* out_internal.h - what the output file and the output directory share. Not for others.
 *
 * An output is made in a work directory beside it, on the same file system:
 *
 *   OUT.partial            of a run that can be continued; found by its name
 *   OUT.partial-PID.K      of any other
 *     swage-work           the mark: proof that the directory is ours, see workdir.c
 *     journal              OUT.partial alone: what is finished (checkpoint/writer/journal.h)
 *     checkpoint/          becomes OUT, when that is a directory
 *     output               becomes OUT, when that is a file
 *     old/                 what OUT was, while it steps aside
 *
 * Nothing else is in it, and all that is in checkpoint/ and old/ is named in the mark. Whatever is
 * not proved to be ours in this way is neither removed nor renamed.
 */
#ifndef SW_FORMATS_IO_OUT_INTERNAL_H
#define SW_FORMATS_IO_OUT_INTERNAL_H

#include "formats/io/file.h"

#define SW_WORK_SUFFIX ".partial"
#define SW_WORK_MARK "swage-work"
#define SW_WORK_TREE "checkpoint"
#define SW_WORK_FILE "output"
#define SW_WORK_OLD "old"
#define SW_OUT_TEMP ".tmp-"  /* and a process number: of a file that is made in one go */
#define SW_OUT_PART ".part"  /* of a file that grows over several runs */

/* The directory that holds `path`: "." for a plain name. */
void sw_path_parent(char out[SW_PATH_BYTES], const char *path);
/* `path` without trailing slashes, "/" excepted. */
void sw_path_strip(char path[SW_PATH_BYTES]);
/* What follows the last slash. */
const char *sw_path_base(const char *path);
/* fsync, also when a signal comes in between. 0 or an errno. */
int sw_sync_fd(int fd);
/* Open and sync a file or directory. 0 or an errno. */
int sw_sync_path(const char *path);
/* A rename is durable only once the directory that holds the name is synced. */
sw_code sw_sync_parent(const char *path, sw_err *err) SW_MUST_USE;
/* Rename where nothing is: in one step where the file system can do that, else by a link or by a
 * name that is taken first. 0 or an errno: EEXIST when something is there, which stays. */
int sw_rename_new(const char *from, const char *to);

/* The error of a work directory that cannot be made: names the folder that is at fault. */
sw_code sw_work_cannot_make(const char *dir, int failed, sw_err *err);
/* Open and lock a work directory. SW_E_USAGE: a link, no directory, or another run holds it. */
sw_code sw_work_lock(int *fd, const char *dir, sw_err *err) SW_MUST_USE;
/* Make PATH.partial-PID.K, locked and marked. */
sw_code sw_work_make(char dir[SW_PATH_BYTES], int *lock_fd, const char *path,
                     sw_err *err) SW_MUST_USE;
/* A locked directory is ours by its mark, or is empty and gets one. SW_E_USAGE names what is in it
 * and not ours. */
sw_code sw_work_claim(const char *dir, sw_err *err) SW_MUST_USE;
/* SW_E_USAGE: something is in it that we did not put there. */
sw_code sw_work_check(const char *dir, sw_err *err) SW_MUST_USE;
/* Before a file is made as `path`: where that lies in a work directory, its name goes into the
 * mark. Anywhere else nothing happens. */
sw_code sw_work_note(const char *path, sw_err *err) SW_MUST_USE;
/* The same for all that is in the directory OUT, before that becomes old/ or checkpoint/. */
sw_code sw_work_note_all(const char *dir, const char *path, sw_err *err) SW_MUST_USE;
/* Remove what is ours, the journal first, the mark and the directory last. Takes no memory. */
void sw_work_remove(const char *dir);
/* The same without the directory and its mark. */
void sw_work_empty(const char *dir);
/* In a locked directory: an old PATH that had stepped aside comes back. true: it did. */
bool sw_work_bring_back(const char *dir, const char *path);
/* Was the file `name` in checkpoint/ made by us? */
bool sw_work_owns(const char *dir, const char *name);

/* SW_E_USAGE unless `path` may be replaced by an output: an empty directory, or one whose manifest
 * lists all that is in it, with the same bytes. */
sw_code sw_replaced_check(const char *path, sw_err *err) SW_MUST_USE;

/* What killed runs left of PATH: an old one that had stepped aside comes back, and their work
 * directories go. SW_E_USAGE: a living run is at work on PATH, which this one may not replace. */
sw_code sw_work_clear_way(const char *path, bool may_replace, sw_err *err) SW_MUST_USE;
/* out->path from the caller's, checked; removes what killed processes left beside it. */
sw_code sw_out_dir_settle(sw_out_dir *out, const char *path, bool may_replace,
                          sw_err *err) SW_MUST_USE;
/* SW_E_USAGE unless nothing is at out->path, or what may be replaced. */
sw_code sw_out_dir_check_path(const sw_out_dir *out, bool may_replace, sw_err *err) SW_MUST_USE;

#endif
