/* finite.c - see finite.h. All ones in the exponent are an infinity or a NaN. */
#include "formats/num/finite.h"

#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"

#define CHUNK_ELEMS ((int64_t)1 << 20) /* of one thread at a time */
#define BLOCK_ELEMS ((int64_t)4096)    /* looked through as a whole */

typedef struct finite_job {
    const unsigned char *bytes;
    sw_dtype dtype;
    int64_t first; /* bad; n: none so far */
} finite_job;

static bool is_bad(const unsigned char *at, sw_dtype dtype)
{
    if (dtype == SW_DTYPE_F64) return (sw_load_le64(at) >> 52 & 0x7ff) == 0x7ff;
    if (dtype == SW_DTYPE_F32) return (sw_load_le32(at) >> 23 & 0xff) == 0xff;
    return dtype == SW_DTYPE_F16 ? (sw_load_le16(at) & 0x7c00) == 0x7c00
                                 : (sw_load_le16(at) & 0x7f80) == 0x7f80;
}

/* Without a way out of the loops, so that they become vector instructions. */
static bool has_bad(const unsigned char *bytes, sw_dtype dtype, int64_t n)
{
    const uint16_t ones = dtype == SW_DTYPE_F16 ? 0x7c00 : 0x7f80;
    unsigned any = 0;

    if (dtype == SW_DTYPE_F64)
        for (int64_t i = 0; i < n; i++) any |= is_bad(bytes + 8 * i, SW_DTYPE_F64);
    else if (dtype == SW_DTYPE_F32)
        for (int64_t i = 0; i < n; i++) any |= is_bad(bytes + 4 * i, SW_DTYPE_F32);
    else
        for (int64_t i = 0; i < n; i++) any |= (sw_load_le16(bytes + 2 * i) & ones) == ones;
    return any != 0;
}

static int64_t first_of(const finite_job *job, int64_t begin, int64_t end)
{
    const int64_t elem_bytes = sw_dtype_bits(job->dtype) / 8;

    for (int64_t at = begin; at < end; at += BLOCK_ELEMS) {
        int64_t n = sw_min_i64(BLOCK_ELEMS, end - at);
        if (!has_bad(job->bytes + at * elem_bytes, job->dtype, n)) continue;
        while (!is_bad(job->bytes + at * elem_bytes, job->dtype)) at++;
        return at;
    }
    return -1;
}

static void look(void *ctx, int64_t begin, int64_t end, int thread)
{
    finite_job *job = ctx;
    int64_t first = first_of(job, begin, end);

    (void)thread;
    if (first < 0) return;
#pragma omp critical(first_not_finite)
    job->first = sw_min_i64(job->first, first);
}

int64_t sw_first_not_finite(const void *bytes, sw_dtype dtype, int64_t n, int n_threads)
{
    finite_job job = {bytes, dtype, n};

    if (dtype != SW_DTYPE_F16 && dtype != SW_DTYPE_BF16 && dtype != SW_DTYPE_F32 &&
        dtype != SW_DTYPE_F64)
        return -1;
    sw_parallel_for(n_threads, n, CHUNK_ELEMS, look, &job);
    return job.first < n ? job.first : -1;
}
