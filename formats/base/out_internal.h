/* out_internal.h - what the output file and the output directory share. Not for others. */
#ifndef SW_FORMATS_BASE_OUT_INTERNAL_H
#define SW_FORMATS_BASE_OUT_INTERNAL_H

#include "formats/base/file.h"

/* The directory that holds `path`: "." for a plain name. */
void sw_path_parent(char out[SW_PATH_BYTES], const char *path);
/* `path` without trailing slashes, "/" excepted. */
void sw_path_strip(char path[SW_PATH_BYTES]);
/* fsync, also when a signal comes in between. 0 or an errno. */
int sw_sync_fd(int fd);
/* Open and sync a file or directory. 0 or an errno. */
int sw_sync_path(const char *path);
/* A rename is durable only once the directory that holds the name is synced. */
sw_code sw_sync_parent(const char *path, sw_err *err) SW_MUST_USE;

/* All of a directory, as far as it can be removed. */
void sw_remove_tree(const char *path);
/* Open and lock a directory; -1 when someone else holds it or it is gone. */
int sw_lock_dir(const char *path);
/* out->path from the caller's, checked; removes what killed processes left beside it. */
sw_code sw_out_dir_settle(sw_out_dir *out, const char *path, bool may_replace,
                          sw_err *err) SW_MUST_USE;

#endif
