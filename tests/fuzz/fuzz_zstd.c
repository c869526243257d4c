/* fuzz_zstd.c - any bytes as a compressed container: refused with a message, or unpacked to what
 * its frames say; and any bytes, compressed in two frames, come back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "formats/file/st_zstd.h"

#define MUST(condition)            \
    do {                           \
        if (!(condition)) abort(); \
    } while (0)

/* Frames that say more than this would only fill the disk. */
#define UNPACKED_BYTES_MAX (1 << 24)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What all frames say that they hold; false where one does not say, or is none. */
static bool said(uint64_t *out, const uint8_t *data, size_t size)
{
    *out = 0;
    for (size_t at = 0; at < size;) {
        unsigned long long n = ZSTD_getFrameContentSize(data + at, size - at);
        size_t packed = ZSTD_findFrameCompressedSize(data + at, size - at);
        if (n == ZSTD_CONTENTSIZE_UNKNOWN || n == ZSTD_CONTENTSIZE_ERROR || ZSTD_isError(packed))
            return false;
        if (n > UNPACKED_BYTES_MAX) n = UNPACKED_BYTES_MAX + 1;
        *out += n; /* no more than the input has bytes times that */
        at += packed;
    }
    return true;
}

static void unpack(const uint8_t *data, size_t size)
{
    uint64_t n = 0;
    bool is_said = said(&n, data, size);
    sw_spill out = {0};
    sw_err err = {0};
    sw_code rc;

    if (n > UNPACKED_BYTES_MAX) return;
    rc = sw_st_unpack(&out, data, size, "fuzz", &err);
    if (rc == SW_OK) {
        volatile uint8_t sum = 0;
        MUST(!is_said || out.size_bytes == n);
        for (size_t i = 0; i < out.size_bytes; i++)
            sum = (uint8_t)(sum ^ ((const uint8_t *)out.data)[i]);
        sw_spill_close(&out);
    } else {
        MUST(rc == SW_E_FORMAT && err.code == rc && !strncmp(err.text, "fuzz: ", 6));
        MUST(!out.data && !out.size_bytes);
    }
}

/* `n` bytes as one frame at `at`; returns what it takes. */
static size_t pack(uint8_t *at, size_t room, const uint8_t *data, size_t n, int says_size)
{
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    size_t n_packed;

    MUST(zstd);
    (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, says_size);
    n_packed = ZSTD_compress2(zstd, at, room, data, n);
    MUST(!ZSTD_isError(n_packed));
    ZSTD_freeCCtx(zstd);
    return n_packed;
}

static void round_trip(const uint8_t *data, size_t size, int says_size)
{
    size_t room = 2 * ZSTD_compressBound(size), n;
    uint8_t *packed = malloc(room);
    sw_spill out = {0};

    if (!packed) return;
    n = pack(packed, room, data, size / 3, says_size);
    n += pack(packed + n, room - n, data + size / 3, size - size / 3, 1);
    MUST(sw_st_unpack(&out, packed, n, "fuzz", NULL) == SW_OK);
    MUST(out.size_bytes == size && (!size || !memcmp(out.data, data, size)));
    sw_spill_close(&out);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unpack(data, size);
    round_trip(data, size, size % 2);
    return 0;
}
