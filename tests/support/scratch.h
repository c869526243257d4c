/* scratch.h - a directory of its own for a test, and what tests look for in it. */
#ifndef SW_TESTS_SUPPORT_SCRATCH_H
#define SW_TESTS_SUPPORT_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/io/file.h"

typedef struct scratch {
    char dir[SW_PATH_BYTES];
} scratch;

/* All of these fail the running cmocka test when the system refuses. */
void scratch_open(scratch *s);  /* a fresh directory under $TMPDIR */
void scratch_close(scratch *s); /* removes it with all that is in it */
/* "dir/name"; the text lives until the next eight calls. */
const char *scratch_path(const scratch *s, const char *name);
void scratch_write(const scratch *s, const char *name, const void *bytes, size_t n_bytes);
/* A file's bytes, to change them; put_back writes them over it, and frees them. */
uint8_t *scratch_take(size_t *n_bytes, const char *path);
void scratch_put_back(const char *path, uint8_t *bytes, size_t n_bytes);
/* Names in the directory, or in its sub-directory when `sub` is not NULL, without . and .. */
int scratch_count(const scratch *s, const char *sub);
/* manifest.json of a sub-directory, which lists the files in it as that of an output does. */
void scratch_manifest(const scratch *s, const char *sub);
/* true when any name in the directory, at any depth, contains `part`. */
bool scratch_has(const scratch *s, const char *part);
/* What cmocka calls around a test: *state is a fresh scratch directory. The teardown ends the watch
 * over inputs as well, should the test have begun it. */
int scratch_setup(void **state);
int scratch_teardown(void **state);
/* The file holds exactly this text, of fewer than 256 bytes. */
void scratch_expect(const scratch *s, const char *name, const char *want);
void scratch_write_text(const scratch *s, const char *name, const char *text);
void scratch_make_dir(const scratch *s, const char *name);

#endif
