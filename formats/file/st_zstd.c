/* st_zstd.c - see st_zstd.h.
 *
 * The size that comes out is known before anything is unpacked: frames say it, and where one does
 * not (written to a pipe), a first pass counts. Space is reserved for just that, so that a file
 * which unpacks to more than the disk holds is an error at once.
 */
#include "formats/file/st_zstd.h"

#include <zstd.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"

#define COUNT_BYTES (1 << 20)

static sw_code damaged(const char *what, size_t code, sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "%s: not zstd, or damaged: %s", what, ZSTD_getErrorName(code));
}

/* Run the stream into `room` over and over; with a NULL `keep` the output is only counted. */
static sw_code stream(uint64_t *n_out, unsigned char *keep, size_t n_keep, const void *bytes,
                      size_t n_bytes, const char *what, sw_err *err)
{
    ZSTD_DStream *zstd = ZSTD_createDStream();
    ZSTD_inBuffer in = {bytes, n_bytes, 0};
    unsigned char *scratch = NULL;
    uint64_t n = 0;
    size_t left = 0;
    sw_code rc = SW_OK;

    if (!zstd) return SW_FAIL(err, SW_E_NOMEM, "%s: no memory to unpack it", what);
    if (!keep) rc = SW_MEM_GET(&scratch, COUNT_BYTES, "unpacking", err);
    while (rc == SW_OK && in.pos < in.size) {
        ZSTD_outBuffer out = {keep ? keep : scratch, keep ? n_keep : COUNT_BYTES,
                              keep ? (size_t)n : 0};
        size_t before = out.pos, taken = in.pos;
        left = ZSTD_decompressStream(zstd, &out, &in);
        if (ZSTD_isError(left)) rc = damaged(what, left, err);
        else if (out.pos == before && in.pos == taken)
            rc = SW_FAIL(err, SW_E_FORMAT, "%s: unpacks to more than it says", what);
        n += out.pos - before;
    }
    if (rc == SW_OK && left)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: ends inside a zstd frame; the file is truncated", what);
    if (rc == SW_OK) *n_out = n;
    sw_mem_put(scratch);
    (void)ZSTD_freeDStream(zstd);
    return rc;
}

/* What comes out, by what the frames say. */
static sw_code size_of(uint64_t *out, const unsigned char *bytes, size_t n_bytes, const char *what,
                       sw_err *err)
{
    uint64_t total = 0;

    for (size_t at = 0; at < n_bytes;) {
        unsigned long long size = ZSTD_getFrameContentSize(bytes + at, n_bytes - at);
        size_t packed = ZSTD_findFrameCompressedSize(bytes + at, n_bytes - at);
        if (size == ZSTD_CONTENTSIZE_UNKNOWN)
            return stream(out, NULL, 0, bytes, n_bytes, what, err);
        if (size == ZSTD_CONTENTSIZE_ERROR || ZSTD_isError(packed))
            return SW_FAIL(err, SW_E_FORMAT, "%s: no whole zstd frame at byte %zu", what, at);
        if (!sw_add_u64(&total, total, size) || total > (uint64_t)INT64_MAX)
            return SW_FAIL(err, SW_E_FORMAT, "%s: says that it unpacks to 2^63 bytes", what);
        at += packed;
    }
    *out = total;
    return SW_OK;
}

sw_code sw_st_unpack(sw_spill *out, const void *bytes, size_t n_bytes, const char *what,
                     sw_err *err)
{
    sw_spill spill = {0};
    uint64_t size = 0, n = 0;
    sw_code rc = size_of(&size, bytes, n_bytes, what, err);

    if (rc != SW_OK) return rc;
    if ((rc = sw_spill_open(&spill, sw_spill_temp_dir(), (size_t)size, err)) != SW_OK) {
        sw_err_prefix(err, "%s: unpacks to %.1f MB; set TMPDIR to a folder with that room", what,
                      (double)size / 1e6);
        return rc;
    }
    rc = stream(&n, spill.data, (size_t)size, bytes, n_bytes, what, err);
    if (rc == SW_OK && n != size)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: unpacks to %llu bytes and says %llu", what,
                     (unsigned long long)n, (unsigned long long)size);
    spill.size_bytes = (size_t)size; /* one byte is there for nothing */
    if (rc == SW_OK)
        *out = spill;
    else
        sw_spill_close(&spill);
    return rc;
}
