/* model_path.h - the model that a path means, or why it is none and what to do.
 *
 * Adapters, folders of the hub's cache, directories of several GGUF files, pointers of Git LFS.
 */
#ifndef SW_FORMATS_CHECKPOINT_MODEL_PATH_H
#define SW_FORMATS_CHECKPOINT_MODEL_PATH_H

#include <stdbool.h>

#include "formats/io/file.h"

/* SW_OK: `path` is a directory with a config.json that is no adapter, so that opening it says what
 * else is the matter. Not to be asked about a GGUF. Otherwise the error says what `path` is and
 * what to do: SW_E_IO where nothing is there, SW_E_USAGE where the model is elsewhere,
 * SW_E_UNSUPPORTED for an adapter, SW_E_FORMAT for a pointer. */
sw_code sw_model_path_check(const char *path, sw_err *err) SW_MUST_USE;

/* The GGUF that `path` means: the file itself, or the only one (or the first of the only set of
 * splits) in a directory without a config.json. false: none; `out` is then left alone. */
bool sw_gguf_locate(char out[SW_PATH_BYTES], const char *path);

#endif
