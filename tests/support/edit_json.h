/* edit_json.h - a checkpoint's files changed in tests: members of JSON, whole files, bytes. */
#ifndef SW_TESTS_SUPPORT_EDIT_JSON_H
#define SW_TESTS_SUPPORT_EDIT_JSON_H

#include <stddef.h>
#include <stdint.h>

/* All of these fail the running cmocka test when the system refuses. */

/* Set the member at `path` ("a.b.c"; the last name may be new) of a JSON file to a value given as
 * JSON; NULL takes it out. */
void edit_json(const char *dir, const char *file, const char *path, const char *value);
void edit_copy(const char *to_dir, const char *from_dir, const char *file);
/* The first `n_bytes` of a file stay. */
void edit_cut(const char *dir, const char *file, size_t n_bytes);
/* n_bytes at `at` of a tensor in model.safetensors. */
void edit_tensor(const char *dir, const char *tensor, size_t at, const void *bytes, size_t n_bytes);
/* One more tensor in model.safetensors; what was there stays. manifest.json goes. */
void edit_add_tensor(const char *dir, const char *name, int dtype, int64_t rows, int64_t cols,
                     const void *bytes);
/* Takes the file away, if it is there. */
void edit_remove(const char *dir, const char *file);

#endif
