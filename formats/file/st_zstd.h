/* st_zstd.h - a container that was compressed as a whole (model.safetensors.zst). */
#ifndef SW_FORMATS_FILE_ST_ZSTD_H
#define SW_FORMATS_FILE_ST_ZSTD_H

#include "formats/io/file.h"
#include "formats/io/spill.h"

#define SW_ST_ZSTD_SUFFIX ".zst"
/* Weights come down to two thirds or so of their size. What unpacks to more than that many times
 * its size, and is not small, was made to fill a machine. */
#define SW_ST_ZSTD_RATIO_MAX 100
#define SW_ST_ZSTD_SMALL_BYTES ((uint64_t)64 << 20)

/* Unpack all frames of `bytes` into a nameless file in sw_spill_temp_dir(), of which little stays
 * resident. SW_E_FORMAT: not zstd, damaged, cut off, or beyond the ratio. SW_E_IO: no room for what
 * comes out. */
sw_code sw_st_unpack(sw_spill *out, const void *bytes, size_t n_bytes, const char *what,
                     sw_err *err) SW_MUST_USE;

/* Address space for all that would come out, of which only the first n_first bytes (or all, if they
 * are fewer) are unpacked; the rest reads as zeros and takes no memory. Errors as above; SW_E_NOMEM
 * where there is no room for the addresses. */
sw_code sw_st_unpack_begin(sw_spill *out, size_t n_first, const void *bytes, size_t n_bytes,
                           const char *what, sw_err *err) SW_MUST_USE;

/* The first n_wanted bytes of what comes out; the rest is not looked at, nor is a checksum.
 * SW_E_FORMAT as above, or when it ends before. */
sw_code sw_st_unpack_prefix(void *dst, size_t n_wanted, const void *bytes, size_t n_bytes,
                            const char *what, sw_err *err) SW_MUST_USE;

/* The n_wanted bytes from `offset` on, in one pass over all of it, so that a checksum is held. */
sw_code sw_st_unpack_range(void *dst, uint64_t offset, size_t n_wanted, const void *bytes,
                           size_t n_bytes, const char *what, sw_err *err) SW_MUST_USE;

#endif
