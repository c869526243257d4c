/* st_zstd.c - see st_zstd.h.
 *
 * The size that comes out is known before anything is unpacked: frames say it, and where one does
 * not (written to a pipe), a first pass counts. It is held against the cap first, and space is
 * reserved for just that, so that a file which unpacks to more than the disk holds is an error at
 * once.
 */
#include "formats/file/st_zstd.h"

#include <string.h>
#include <sys/mman.h>

#include <zstd.h>

#include "formats/base/mem.h"
#include "formats/base/size.h"

#define STEP_BYTES (1 << 20)
#define RELEASE_BYTES ((uint64_t)64 << 20) /* as much of what is unpacked may be resident */

/* One walk over what comes out, a step at a time, and what of it is wanted. */
typedef struct walk {
    ZSTD_DStream *zstd;
    ZSTD_inBuffer in;
    const char *what;
    unsigned char *step;      /* STEP_BYTES of scratch */
    uint64_t n_out;           /* so far */
    unsigned char *dst;       /* NULL: nothing is, the bytes are counted */
    uint64_t offset, n_wanted;
    bool is_partial;          /* it ends where nothing more is wanted */
    const sw_spill *spill;    /* where dst is one: what lies behind is let go of */
    uint64_t n_released;
} walk;

static uint64_t most_bytes(size_t n_bytes)
{
    uint64_t most = 0;

    if (!sw_mul_u64(&most, n_bytes, SW_ST_ZSTD_RATIO_MAX)) return UINT64_MAX;
    return most < SW_ST_ZSTD_SMALL_BYTES ? SW_ST_ZSTD_SMALL_BYTES : most;
}

static sw_code too_much(const char *what, size_t n_bytes, sw_err *err)
{
    return SW_FAIL(err, SW_E_FORMAT, "%s: its %zu bytes unpack to more than %d times as many, "
                   "which no weights do; if it is to be trusted, unpack it by \"zstd -d\"", what,
                   n_bytes, SW_ST_ZSTD_RATIO_MAX);
}

/* What lies in the step and is wanted goes where it is wanted. */
static void keep(walk *w, size_t n)
{
    uint64_t begin = w->n_out, end = begin + n, last = w->offset + w->n_wanted;

    if (begin < w->offset) begin = w->offset;
    if (end > last) end = last;
    if (w->dst && begin < end)
        memcpy(w->dst + (begin - w->offset), w->step + (begin - w->n_out), (size_t)(end - begin));
    w->n_out += n;
    if (w->spill && w->n_out - w->n_released >= RELEASE_BYTES) {
        sw_spill_release(w->spill, w->dst + w->n_released, (size_t)(end - w->n_released));
        w->n_released = end;
    }
}

/* One step; *is_over when there is no other. */
static sw_code take_step(bool *is_over, walk *w, sw_err *err)
{
    const uint64_t last = w->offset + w->n_wanted;
    const uint64_t most = w->is_partial ? last - w->n_out : UINT64_MAX;
    ZSTD_outBuffer out = {w->step, most < STEP_BYTES ? (size_t)most : STEP_BYTES, 0};
    const size_t left = ZSTD_decompressStream(w->zstd, &out, &w->in);
    const bool is_read = w->in.pos == w->in.size;

    if (ZSTD_isError(left))
        return SW_FAIL(err, SW_E_FORMAT, "%s: not zstd, or damaged: %s", w->what,
                       ZSTD_getErrorName(left));
    keep(w, out.pos);
    if (w->n_out > most_bytes(w->in.size)) return too_much(w->what, w->in.size, err);
    if (w->spill && w->n_out > w->n_wanted)
        return SW_FAIL(err, SW_E_FORMAT, "%s: unpacks to more than it says", w->what);
    *is_over = (is_read && !left) || (w->is_partial && w->n_out == last);
    if (!*is_over && is_read && out.pos < out.size)
        return SW_FAIL(err, SW_E_FORMAT, "%s: ends inside a zstd frame; the file is truncated",
                       w->what);
    return SW_OK;
}

/* The whole walk; `w` says what is wanted. */
static sw_code run(walk *w, const void *bytes, size_t n_bytes, const char *what, sw_err *err)
{
    bool is_over = !n_bytes;
    sw_code rc;

    w->in = (ZSTD_inBuffer){bytes, n_bytes, 0};
    w->what = what;
    if ((rc = SW_MEM_GET(&w->step, STEP_BYTES, "unpacking", err)) != SW_OK) return rc;
    w->zstd = ZSTD_createDStream();
    if (!w->zstd) rc = SW_FAIL(err, SW_E_NOMEM, "%s: no memory to unpack it", what);
    while (rc == SW_OK && !is_over) rc = take_step(&is_over, w, err);
    (void)ZSTD_freeDStream(w->zstd);
    sw_mem_put(w->step);
    return rc;
}

/* Where no frame says it: by unpacking, and by nothing else. */
static sw_code count(uint64_t *out, const void *bytes, size_t n_bytes, const char *what,
                     sw_err *err)
{
    walk w = {.dst = NULL};
    sw_code rc = run(&w, bytes, n_bytes, what, err);

    if (rc == SW_OK) *out = w.n_out;
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
        if (size == ZSTD_CONTENTSIZE_UNKNOWN) return count(out, bytes, n_bytes, what, err);
        if (size == ZSTD_CONTENTSIZE_ERROR || ZSTD_isError(packed))
            return SW_FAIL(err, SW_E_FORMAT, "%s: no whole zstd frame at byte %zu", what, at);
        if (!sw_add_u64(&total, total, size) || total > (uint64_t)INT64_MAX)
            return SW_FAIL(err, SW_E_FORMAT, "%s: says that it unpacks to 2^63 bytes", what);
        at += packed;
    }
    *out = total;
    return total > most_bytes(n_bytes) ? too_much(what, n_bytes, err) : SW_OK;
}

sw_code sw_st_unpack(sw_spill *out, const void *bytes, size_t n_bytes, const char *what,
                     sw_err *err)
{
    sw_spill spill = {0};
    uint64_t size = 0;
    walk w = {0};
    sw_code rc = size_of(&size, bytes, n_bytes, what, err);

    if (rc != SW_OK) return rc;
    if ((rc = sw_spill_open(&spill, sw_spill_temp_dir(), (size_t)size, err)) != SW_OK) {
        sw_err_prefix(err, "%s: unpacks to %.1f MB; set TMPDIR to a folder with that room", what,
                      (double)size / 1e6);
        return rc;
    }
    w = (walk){.dst = spill.data, .n_wanted = size, .spill = &spill};
    rc = run(&w, bytes, n_bytes, what, err);
    if (rc == SW_OK && w.n_out != size)
        rc = SW_FAIL(err, SW_E_FORMAT, "%s: unpacks to %llu bytes and says %llu", what,
                     (unsigned long long)w.n_out, (unsigned long long)size);
    spill.size_bytes = (size_t)size; /* one byte is there for nothing */
    if (rc == SW_OK)
        *out = spill;
    else
        sw_spill_close(&spill);
    return rc;
}

sw_code sw_st_unpack_begin(sw_spill *out, size_t n_first, const void *bytes, size_t n_bytes,
                           const char *what, sw_err *err)
{
    uint64_t size = 0;
    void *room;
    sw_code rc = size_of(&size, bytes, n_bytes, what, err);

    if (rc != SW_OK) return rc;
    room = mmap(NULL, size ? (size_t)size : 1, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return SW_FAIL(err, SW_E_NOMEM, "%s: no addresses for the %.1f MB that it unpacks to", what,
                       (double)size / 1e6);
    if (n_first > size) n_first = (size_t)size;
    rc = sw_st_unpack_prefix(room, n_first, bytes, n_bytes, what, err);
    if (rc == SW_OK)
        *out = (sw_spill){.data = room, .size_bytes = (size_t)size};
    else
        (void)munmap(room, size ? (size_t)size : 1);
    return rc;
}

static sw_code too_short(const walk *w, uint64_t n_wanted, sw_err *err)
{
    if (w->n_out >= n_wanted) return SW_OK;
    return SW_FAIL(err, SW_E_FORMAT, "%s: unpacks to %llu bytes, and more were announced", w->what,
                   (unsigned long long)w->n_out);
}

sw_code sw_st_unpack_prefix(void *dst, size_t n_wanted, const void *bytes, size_t n_bytes,
                            const char *what, sw_err *err)
{
    walk w = {.dst = dst, .n_wanted = n_wanted, .is_partial = true};
    sw_code rc = n_wanted ? run(&w, bytes, n_bytes, what, err) : SW_OK;

    return rc == SW_OK ? too_short(&w, n_wanted, err) : rc;
}

sw_code sw_st_unpack_range(void *dst, uint64_t offset, size_t n_wanted, const void *bytes,
                           size_t n_bytes, const char *what, sw_err *err)
{
    walk w = {.dst = dst, .offset = offset, .n_wanted = n_wanted};
    sw_code rc = run(&w, bytes, n_bytes, what, err);

    return rc == SW_OK ? too_short(&w, offset + n_wanted, err) : rc;
}
