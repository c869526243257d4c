/* weight_rows.c - see weight_rows.h. */
#include "quant/method/weight_rows.h"

#include <math.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/half.h"

#define ROWS 64 /* of a chunk */
#define CODES_MAX 256
#define NARROWED 2048 /* floats to BF16 at a time */

typedef struct row_job {
    float *w;
    int64_t k;
    const char *from; /* loading: stored elements, */
    sw_dtype dtype;
    int64_t *bad;     /* [chunks] first element that is not finite, or -1 */
    const double *rows, *cols; /* scaling: what to divide and multiply by, or NULL */
    const sw_qtensor *q; /* decoding */
    float *size;         /* [threads, k] largest magnitudes; each beside a chunk's rows in w */
} row_job;

/* Rows of a dtype that was accepted before. */
static float *widen_rows(const row_job *job, int64_t begin, int64_t end)
{
    const int64_t first = begin * job->k, n = (end - begin) * job->k;
    float *w = job->w + first;

    (void)!sw_float_decode_n(w, job->from + first * sw_dtype_bits(job->dtype) / 8, job->dtype, n,
                             NULL);
    return w;
}

static bool all_finite(const float *w, int64_t n)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &w[i], sizeof bits);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000u;
}

static void load_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *job = ctx;
    int64_t first = begin * job->k, n = (end - begin) * job->k;
    int64_t *bad = &job->bad[begin / ROWS];
    const float *w = widen_rows(job, begin, end);

    (void)thread;
    *bad = -1;
    if (all_finite(w, n)) return;
    for (int64_t i = 0; i < n && *bad < 0; i++)
        if (!isfinite(w[i])) *bad = first + i;
}

static void load_finite(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *job = ctx;
    const int64_t n = (end - begin) * job->k;
    float *w = widen_rows(job, begin, end);

    (void)thread;
    if (all_finite(w, n)) return;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(w[i])) w[i] = 0.0f;
}

sw_code sw_weight_load_finite(float *w, const sw_weight *dense, int n_threads, sw_err *err)
{
    row_job job = {.w = w, .k = dense->k_in, .from = dense->dense, .dtype = dense->dense_dtype};
    sw_code rc = sw_float_decode_n(w, dense->dense, dense->dense_dtype, 0, err);

    if (rc == SW_OK) sw_parallel_for(n_threads, dense->n_out, ROWS, load_finite, &job);
    return rc;
}

sw_code sw_weight_load_finite_rows(float *w, const sw_weight *dense, int64_t first, int64_t n,
                                   sw_err *err)
{
    const int64_t k = dense->k_in;
    row_job job = {.w = w, .k = k, .dtype = dense->dense_dtype,
                   .from = (const char *)dense->dense +
                           first * k * sw_dtype_bits(dense->dense_dtype) / 8};
    sw_code rc = sw_float_decode_n(w, dense->dense, dense->dense_dtype, 0, err);

    if (rc == SW_OK) load_finite(&job, 0, n, 0);
    return rc;
}

/* The magnitudes of a chunk's rows to those of its thread. */
static void add_sizes(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *job = ctx;
    const int64_t k = job->k;
    float *size = job->size + thread * k, *w = job->w + thread * ROWS * k;
    row_job chunk = {.w = w, .k = k, .dtype = job->dtype,
                     .from = job->from + begin * k * sw_dtype_bits(job->dtype) / 8};

    load_finite(&chunk, 0, end - begin, thread);
    for (int64_t i = 0; i < end - begin; i++)
        for (int64_t j = 0; j < k; j++) {
            const float a = fabsf(w[i * k + j]);
            size[j] = a > size[j] ? a : size[j];
        }
}

sw_code sw_weight_column_sizes(double *size, const sw_weight *dense, int n_threads, sw_err *err)
{
    const int64_t k = dense->k_in;
    row_job job = {.k = k, .from = dense->dense, .dtype = dense->dense_dtype};
    sw_code rc = SW_MEM_GET(&job.w, n_threads * (ROWS + 1) * k, "sizes of weights", err);

    if (rc == SW_OK) rc = sw_float_decode_n(job.w, dense->dense, dense->dense_dtype, 0, err);
    if (rc == SW_OK) {
        job.size = job.w + n_threads * ROWS * k;
        sw_parallel_for(n_threads, dense->n_out, ROWS, add_sizes, &job);
        for (int64_t i = 0; i < n_threads * k; i++)
            size[i % k] = fmax(size[i % k], (double)job.size[i]);
    }
    sw_mem_put(job.w);
    return rc;
}

static void load_scaled(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *job = ctx;
    float *w = widen_rows(job, begin, end);

    (void)thread;
    for (int64_t i = begin; i < end; i++, w += job->k) {
        if (job->rows)
            for (int64_t j = 0; j < job->k; j++) w[j] = (float)((double)w[j] / job->rows[i]);
        if (job->cols)
            for (int64_t j = 0; j < job->k; j++) w[j] = (float)((double)w[j] * job->cols[j]);
    }
}

sw_code sw_weight_load_scaled(float *w, const sw_weight *dense, const double *rows,
                              const double *cols, int n_threads, sw_err *err)
{
    row_job job = {.w = w, .k = dense->k_in, .from = dense->dense, .dtype = dense->dense_dtype,
                   .rows = rows, .cols = cols};
    sw_code rc = sw_float_decode_n(w, dense->dense, dense->dense_dtype, 0, err);

    if (rc == SW_OK) sw_parallel_for(n_threads, dense->n_out, ROWS, load_scaled, &job);
    return rc;
}

sw_code sw_weight_load(float *w, const sw_weight *dense, int64_t n_out, int64_t k_in,
                       int n_threads, sw_err *err)
{
    int64_t n_chunks = sw_ceil_div(n_out, ROWS);
    row_job job = {.w = w, .k = k_in, .from = dense->dense, .dtype = dense->dense_dtype};
    sw_code rc = sw_float_decode_n(w, dense->dense, dense->dense_dtype, 0, err);

    if (rc != SW_OK || (rc = SW_MEM_GET(&job.bad, n_chunks, "weight", err)) != SW_OK) return rc;
    sw_parallel_for(n_threads, n_out, ROWS, load_rows, &job);
    for (int64_t c = 0; c < n_chunks && rc == SW_OK; c++)
        if (job.bad[c] >= 0)
            rc = SW_FAIL(err, SW_E_FORMAT,
                         "element %lld is not finite; repair the checkpoint or leave the tensor "
                         "out with --ignore",
                         (long long)job.bad[c]);
    sw_mem_put(job.bad);
    return rc;
}

static void decode_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *job = ctx;

    (void)thread;
    sw_qtensor_decode_rows(job->w + begin * job->k, job->q, begin, end - begin);
}

void sw_weight_decode(float *w, const sw_qtensor *q, int n_threads)
{
    row_job job = {.w = w, .k = q->k_in, .q = q};

    sw_parallel_for(n_threads, q->n_out, ROWS, decode_rows, &job);
}

/* A row to BF16 by way of floats. */
static void narrow_row(uint16_t *to, float *row, const sw_qtensor *q, int64_t n)
{
    sw_qtensor_decode_rows(row, q, n, 1);
    for (int64_t i = 0; i < q->k_in; i += NARROWED) { /* `to` may begin where `row` does */
        const size_t n_here = (size_t)sw_min_i64(NARROWED, q->k_in - i);
        uint16_t some[NARROWED];

        sw_bf16_encode_n(some, row + i, n_here);
        memcpy(to + i, some, n_here * sizeof *some);
    }
}

/* Columns of a row per group. */
static int64_t group_step(const sw_qtensor *q)
{
    return q->spec.group_elems ? q->spec.group_elems : q->k_in;
}

/* Where a group has far more columns than there are codes, each code is worked out once for it. */
static bool is_looked_up(const sw_qtensor *q)
{
    return !q->g_idx && !q->spec.n_outliers && q->spec.num->code_max < CODES_MAX &&
           group_step(q) >= 4 * (q->spec.num->code_max + 1);
}

/* What each code means in a group of row n: as of a row of its own, which has all of them. */
static void decode_codes(float values[CODES_MAX], const sw_qtensor *q, int64_t n, int64_t group)
{
    const int64_t at = n * q->n_groups + group;
    uint8_t codes[CODES_MAX];
    sw_qtensor all = *q;

    for (int code = 0; code < CODES_MAX; code++) codes[code] = (uint8_t)code;
    all.codes = codes;
    all.k_in = q->spec.num->code_max + 1;
    all.scales += at;
    if (all.zeros) all.zeros += at;
    all.spec.group_elems = 0;
    sw_qtensor_decode_rows(values, &all, 0, 1);
}

static void look_up_row(uint16_t *to, const sw_qtensor *q, int64_t n)
{
    const uint8_t *codes = q->codes + n * q->k_in;
    const int64_t step = group_step(q);

    for (int64_t begin = 0; begin < q->k_in; begin += step) {
        const int64_t end = sw_min_i64(begin + step, q->k_in);
        float values[CODES_MAX];
        uint16_t narrow[CODES_MAX];

        decode_codes(values, q, n, begin / step);
        sw_bf16_encode_n(narrow, values, (size_t)q->spec.num->code_max + 1);
        for (int64_t i = begin; i < end; i++) to[i] = narrow[codes[i]];
    }
}

/* Floats of a row go behind all that is made, where they stay in the thread's cache: to the last of
 * w's rows, one a thread. */
static void narrow_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const row_job *job = ctx;
    float *row = job->w + (job->q->n_out - 1 - thread) * job->k;

    for (int64_t n = begin; n < end; n++) {
        uint16_t *to = (uint16_t *)job->w + n * job->k;

        if (is_looked_up(job->q)) look_up_row(to, job->q, n);
        else narrow_row(to, row, job->q, n);
    }
}

void sw_weight_decode_bf16(float *w, const sw_qtensor *q, int n_threads)
{
    const int64_t n_rows = sw_max_i64(1, q->n_out / 2); /* of floats, behind what is made */
    row_job job = {.w = w, .k = q->k_in, .q = q};

    sw_parallel_for((int)sw_min_i64(n_threads, n_rows), q->n_out, ROWS, narrow_rows, &job);
}
