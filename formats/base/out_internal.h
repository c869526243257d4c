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

#endif
