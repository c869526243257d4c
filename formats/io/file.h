/* file.h - reading by mmap, writing that is complete or absent.
 *
 * Input is mapped read-only and never copied. Output goes to a temporary name in
 * the same directory, is synced, and is renamed into place: a reader sees the
 * whole new thing or none of it. A directory is published the same way.
 * Errors name the path and what the system said.
 */
#ifndef SW_FORMATS_IO_FILE_H
#define SW_FORMATS_IO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SW_PATH_BYTES 4096

typedef struct sw_map {
    const unsigned char *data; /* never NULL once open; an empty file maps to a static byte */
    size_t size_bytes;
    bool is_mapped;
    int slot; /* of watch.h */
} sw_map;

/* SW_E_IO when the path cannot be opened, is not a regular file, or cannot be mapped; SW_E_NOMEM
 * where there is no room to. SW_E_FORMAT: a pointer that Git LFS left in place of the file. The
 * file is an input of the run from here on (watch.h): it must stay as it is until the output is
 * there. */
sw_code sw_map_open(sw_map *out, const char *path, sw_err *err) SW_MUST_USE;
/* The same, but a pointer is a file like others: for copies and digests. */
sw_code sw_map_open_any(sw_map *out, const char *path, sw_err *err) SW_MUST_USE;
/* The same for a file that we wrote and may change ourselves: no input. */
sw_code sw_map_open_own(sw_map *out, const char *path, sw_err *err) SW_MUST_USE;
void sw_map_close(sw_map *map); /* accepts a zeroed map */
/* Tell the kernel that a range will not be read again soon, to keep the resident set small. Only
 * for ranges of a sw_map: memory of any other kind would lose its contents. Accepts NULL. */
void sw_map_forget(const void *data, size_t size_bytes);
/* And that one will be read soon, so that the disk can begin. Of a sw_map as well; accepts NULL. */
void sw_map_want(const void *data, size_t size_bytes);

bool sw_path_exists(const char *path);
bool sw_path_is_dir(const char *path);
/* "dir/name" into `out`; SW_E_IO when longer than SW_PATH_BYTES. */
sw_code sw_path_join(char out[SW_PATH_BYTES], const char *dir, const char *name,
                     sw_err *err) SW_MUST_USE;
/* The same for a file that somebody else put there: SW_E_IO when it is a symbolic link that leads
 * out of `dir`, so that no model can have other files of its reader copied or shown. Links into the
 * blobs of a hub's cache are followed. A name that is not there passes. */
sw_code sw_path_join_inside(char out[SW_PATH_BYTES], const char *dir, const char *name,
                            sw_err *err) SW_MUST_USE;
/* Let such links pass in this process from now on: the user trusts those of the models that he
 * names. Off at first. To be called before other threads are there. */
void sw_path_follow_links(bool is_on);
/* true for a plain file name: not empty, no '/', not "." or "..", no NUL or control bytes. */
bool sw_path_is_plain_name(const char *name);

/* One output file. Zero-initialise; open, write anywhere, then commit or abandon. A symbolic link
 * at `path` is replaced, not followed. */
typedef struct sw_out_file {
    int fd;
    bool is_open;
    bool is_kept; /* opened by sw_out_open_kept: abandon leaves the temporary */
    bool may_replace;
    bool is_direct;
    bool is_read_back; /* by somebody who sees to it that the disk is asked, and not the cache */
    int direct_fd; /* where is_direct: the same file, past the system's cache */
    int lock_fd;   /* of work_path */
    int left, work_left; /* of leftovers.h */
    char path[SW_PATH_BYTES];
    char temp_path[SW_PATH_BYTES];
    char work_path[SW_PATH_BYTES]; /* opened by sw_out_open_new: what holds temp_path; else empty */
} sw_out_file;

/* A file of an output, which others do not write: the temporary lies beside it, and what is at
 * `path` is replaced. */
sw_code sw_out_open(sw_out_file *out, const char *path, sw_err *err) SW_MUST_USE;
/* A file that is an output itself. It is made in a work directory of its own beside `path`
 * (PATH.partial-PID.K), so that what a killed run leaves is known for ours and swept by the next.
 * Nothing that is at `path` when it is committed is replaced unless may_replace, and never an input
 * of the run (watch.h). SW_E_USAGE: that would happen; `path` is no regular file; another run is at
 * work on it. The commit fails with SW_E_IO when an input has changed. */
sw_code sw_out_open_new(sw_out_file *out, const char *path, bool may_replace,
                        sw_err *err) SW_MUST_USE;
/* The temporary is PATH.part, outlives the process, and is taken up with what is in it when it is
 * there already; a PATH that was renamed into place becomes PATH.part again. */
sw_code sw_out_open_kept(sw_out_file *out, const char *path, sw_err *err) SW_MUST_USE;
/* Reserve space up front, so that a full disk is found before the work and not after. */
sw_code sw_out_reserve(sw_out_file *out, uint64_t size_bytes, sw_err *err) SW_MUST_USE;
/* Threads may write different ranges at a time. */
sw_code sw_out_write_at(sw_out_file *out, uint64_t offset, const void *bytes, size_t n_bytes,
                        sw_err *err) SW_MUST_USE;
/* Let what follows go past the system's cache, where the file system can. */
void sw_out_go_direct(sw_out_file *out);
#define SW_OUT_PAGE_BYTES ((size_t)4096)
/* The same, but long runs of whole pages go to the disk at once: the cache then need not find room
 * for what nobody reads soon. Only those whose place in memory and in the file is the same within a
 * page do. A page may not be written both ways by two threads. */
sw_code sw_out_write_past(sw_out_file *out, uint64_t offset, const void *bytes, size_t n_bytes,
                          sw_err *err) SW_MUST_USE;
/* SW_E_IO also when the file ends before. */
sw_code sw_out_read_at(const sw_out_file *out, uint64_t offset, void *bytes, size_t n_bytes,
                       sw_err *err) SW_MUST_USE;
/* The disk can begin with a range that is complete; what fails there fails again at the sync. */
void sw_out_start_writing(const sw_out_file *out, uint64_t offset, uint64_t n_bytes);
sw_code sw_out_sync(const sw_out_file *out, sw_err *err) SW_MUST_USE;
/* fsync, rename, fsync of the directory. On failure nothing new is at `path`, except that an old
 * file may already have been replaced when the very last step fails. Closes in any case. */
sw_code sw_out_commit(sw_out_file *out, sw_err *err) SW_MUST_USE;
/* Closes and, unless it is kept, removes the temporary. Accepts a closed one. */
void sw_out_abandon(sw_out_file *out);

/* Write a whole small file atomically: one of an output, or (new) one that is an output itself. */
sw_code sw_file_put(const char *path, const void *bytes, size_t n_bytes, sw_err *err) SW_MUST_USE;
sw_code sw_file_put_new(const char *path, const void *bytes, size_t n_bytes, bool may_replace,
                        sw_err *err) SW_MUST_USE;

/* One output directory. Files are made under work_path by sw_out_open, sw_out_open_kept and
 * sw_file_put, which note their names; commit renames it to path. work_path lies in a work
 * directory beside PATH that is marked as ours and locked while its process lives: what a killed
 * process left can be told from the work of one that runs, and from what somebody else put there.
 */
typedef struct sw_out_dir {
    bool is_open;
    bool may_replace;
    int lock_fd;
    int left; /* of leftovers.h */
    char path[SW_PATH_BYTES];
    char home_path[SW_PATH_BYTES]; /* the work directory */
    char work_path[SW_PATH_BYTES];
    char hold_path[SW_PATH_BYTES]; /* kept: home_path; else empty */
    bool is_resumed;               /* kept: a journal was there */
} sw_out_dir;

/* Also removes what killed processes left beside `path`. `path` changes at commit only.
 * SW_E_USAGE: `path` exists and may_replace is false; it is a file; it holds what no output of ours
 * had, or what was changed since, so that it is not replaced; another run is at work on it. */
sw_code sw_out_dir_open(sw_out_dir *out, const char *path, bool may_replace,
                        sw_err *err) SW_MUST_USE;
/* Syncs all that is in it, then swaps it in. On failure `path` is what it was. Closes anyway.
 * SW_E_IO also when an input of the run has changed (watch.h); SW_E_USAGE when there is a file in
 * work_path that was not made there by us. */
sw_code sw_out_dir_commit(sw_out_dir *out, sw_err *err) SW_MUST_USE;
/* Remove an output. SW_E_USAGE, and nothing is removed: it holds what is not in its manifest, or
 * what was changed since. */
sw_code sw_out_dir_remove(const char *path, sw_err *err) SW_MUST_USE;
void sw_out_dir_abandon(sw_out_dir *out); /* removes the work directory with all that is ours */
/* Was `name` in work_path made by us? */
bool sw_out_dir_owns(const sw_out_dir *out, const char *name);

#define SW_HOLD_JOURNAL "journal" /* inside hold_path: says what the rest is good for */

/* An output whose work survives the process: it lies in PATH.partial, under a name that the next
 * run finds, and is taken up there if it has a journal. is_restart: what it holds is dropped.
 * SW_E_USAGE besides: PATH.partial is a link, another run works on it, it has no mark of ours, or
 * something else lies in it. SW_E_IO: it cannot be opened. */
sw_code sw_out_dir_open_kept(sw_out_dir *out, const char *path, bool may_replace, bool is_restart,
                             sw_err *err) SW_MUST_USE;
void sw_out_dir_leave(sw_out_dir *out); /* closes; a kept one stays for the next run */
/* Bytes on disk of the regular files of a directory; 0 when there is none. */
uint64_t sw_dir_used_bytes(const char *path);

/* Free bytes on the file system that holds `path` (or its nearest existing parent). */
sw_code sw_disk_free_bytes(uint64_t *out, const char *path, sw_err *err) SW_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
