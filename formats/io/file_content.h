/* file_content.h - a whole file as a digest or as JSON. */
#ifndef SW_FORMATS_IO_FILE_CONTENT_H
#define SW_FORMATS_IO_FILE_CONTENT_H

#include "formats/base/hash.h"
#include "formats/base/json.h"
#include "formats/base/progress.h"

/* SHA-256 of the file at `path` in hexadecimal digits. What was read is let go of again, so that
 * hashing a checkpoint does not make it resident. Inputs that are watched (watch.h) are noted.
 * SW_E_IO: the file cannot be read. */
sw_code sw_sha256_file(char out[SW_SHA256_HEX_BYTES], const char *path, sw_err *err) SW_MUST_USE;
/* The same of n files, one a processor at a time: a digest cannot be cut, but a model has many
 * files. The failure of the first that fails, in their order, is the call's. `progress` (or NULL)
 * hears of every file, as step "digest files", and may stop the work. */
sw_code sw_sha256_files(char (*out)[SW_SHA256_HEX_BYTES], const char *const *paths, int64_t n,
                        const sw_progress *progress, sw_err *err) SW_MUST_USE;

/* Map the file at `path` and parse it. */
sw_code sw_json_read(cJSON **out, const char *path, const sw_json_caps *caps,
                     sw_err *err) SW_MUST_USE;

#endif
