/* st_zstd.h - a container that was compressed as a whole (model.safetensors.zst). */
#ifndef SW_FORMATS_FILE_ST_ZSTD_H
#define SW_FORMATS_FILE_ST_ZSTD_H

#include "formats/base/file.h"
#include "formats/base/spill.h"

#define SW_ST_ZSTD_SUFFIX ".zst"

/* Unpack all frames of `bytes` into a nameless file in sw_spill_temp_dir(). SW_E_FORMAT: not zstd,
 * damaged, or cut off. SW_E_IO: no room for what comes out. */
sw_code sw_st_unpack(sw_spill *out, const void *bytes, size_t n_bytes, const char *what,
                     sw_err *err) SW_MUST_USE;

#endif
