/* watch.h - which files the process reads, and where they are mapped.
 *
 * Two questions have no other answer. A signal handler that is told an address asks which file
 * lies there: a file that is cut short, or whose disk fails, while it is mapped raises SIGBUS. And
 * whoever publishes an output asks whether its inputs are still what they were when they were
 * opened: a mapping shows what others write into the file. Both need one list for the process.
 */
#ifndef SW_FORMATS_IO_WATCH_H
#define SW_FORMATS_IO_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "formats/base/status.h"

/* Enter a mapping; returns what sw_watch_unmap takes. 0 when there is no room: the mapping then
 * has no name in a message. */
int sw_watch_map(const void *data, size_t size_bytes, const char *path);
void sw_watch_unmap(int slot); /* accepts 0 */
/* The file behind an address, the offset in it and the size that was mapped. false: no mapping of
 * ours. Safe in a signal handler; *path lives as long as the mapping. */
bool sw_watch_find(const char **path, uint64_t *offset, uint64_t *size_bytes, const void *address);

/* From here on every file that sw_map_open opens is an input of the run. Without a begin, as in
 * tests of parts, nothing is kept and the questions below find nothing wrong. */
void sw_watch_begin(void);
void sw_watch_end(void); /* forgets them */
/* What is at `path`, in that directory, or in the one beside it that it was made in, is an output
 * of this run: no input any more. Not while another thread checks. */
void sw_watch_forget(const char *path);
/* An input as it was when it was opened. SW_E_NOMEM. */
sw_code sw_watch_input(const char *path, const struct stat *info, sw_err *err) SW_MUST_USE;
/* Its SHA-256, once somebody knows it: tells a change of the status alone from one of the bytes. */
void sw_watch_digest(const char *path, const char *sha256);
bool sw_watch_reads(const struct stat *info); /* is this file an input? */
/* SW_E_IO names an input that is gone, or is no longer what was opened: by device and inode, size
 * and times; where only its status has changed, by its SHA-256. */
sw_code sw_watch_check(sw_err *err) SW_MUST_USE;

#endif
