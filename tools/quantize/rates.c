/* rates.c - see rates.h. */
#include "tools/quantize/rates.h"

#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "kernels/kernel.h"
#include "quant/method/slab.h"
#include "quant/method/target.h"
#include "tools/convert/convert_job.h"

#define WIDTH_MAX 1536
#define TOKENS 1024
#define HASH_BYTES ((size_t)16 << 20)
#define READ_BYTES ((int64_t)128 << 20)
/* Files: read and digested twice, once on the way in and once when the result is checked; output
 * is also decoded again, which costs about as much as digesting it five times over. */
#define OUT_PASSES 7.0
#define SOURCE_PASSES 1.3

/* What is measured on, all of one width k. */
typedef struct bench {
    int64_t k, n_rows;
    float *x, *y; /* [TOKENS, k] */
    float *w;     /* [n_rows, k] */
    sw_hessian seen, held;
    sw_factor factor;
    sw_quant_options options;
} bench;

static void fill(float *x, int64_t n)
{
    uint64_t state = 1;

    for (int64_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (float)((double)(state >> 33) * 0x1p-31 - 0.5);
    }
}

static sw_code bench_new(bench *b, const sw_quant_options *options, int64_t k_in, sw_err *err)
{
    int64_t group = options->spec.group_elems ? options->spec.group_elems : 1;
    sw_code rc;

    memset(b, 0, sizeof *b);
    b->k = sw_min_i64(k_in, sw_max_i64(WIDTH_MAX / group * group, group));
    b->n_rows = (int64_t)SW_SLAB_ROWS * options->n_threads;
    b->options = *options;
    if ((rc = SW_MEM_GET(&b->x, TOKENS * b->k, "trial", err)) != SW_OK ||
        (rc = SW_MEM_GET(&b->y, TOKENS * b->k, "trial", err)) != SW_OK ||
        (rc = SW_MEM_GET(&b->w, sw_max_i64(b->n_rows, b->k) * b->k, "trial", err)) != SW_OK ||
        (rc = sw_hessian_new(&b->seen, b->k, true, 0, options->n_threads, err)) != SW_OK)
        return rc;
    fill(b->x, TOKENS * b->k);
    fill(b->y, TOKENS * b->k);
    fill(b->w, sw_max_i64(b->n_rows, b->k) * b->k);
    return sw_hessian_new(&b->held, b->k, true, 0, options->n_threads, err);
}

static void bench_free(bench *b)
{
    sw_mem_put(b->x);
    sw_mem_put(b->y);
    sw_mem_put(b->w);
    sw_hessian_free(&b->seen);
    sw_hessian_free(&b->held);
    sw_factor_free(&b->factor);
}

static sw_code measure_gemm(sw_rates *out, const bench *b, sw_err *err)
{
    sw_weight w = {.n_out = b->k, .k_in = b->k, .dense = b->w, .dense_dtype = SW_DTYPE_F32};
    sw_gemm p = {.m = TOKENS, .x = b->x, .x_stride = b->k, .y = b->y, .y_stride = b->k, .w = &w,
                 .n_threads = b->options.n_threads};
    sw_scratch scratch = {0};
    sw_code rc = sw_gemm_run(&p, &scratch, err); /* once to warm up */
    double start = sw_clock_s();

    if (rc == SW_OK) rc = sw_gemm_run(&p, &scratch, err);
    out->gemm_flop_s = 2.0 * TOKENS * (double)b->k * (double)b->k / (sw_clock_s() - start);
    sw_scratch_free(&scratch);
    return rc;
}

static sw_code measure_statistics(sw_rates *out, bench *b, sw_err *err)
{
    sw_factor_options fo = {b->options.order, b->options.spec.group_elems, b->options.damp};
    double k = (double)b->k, start = sw_clock_s();
    sw_code rc;

    if ((rc = sw_hessian_add(&b->seen, b->x, b->y, NULL, TOKENS, err)) != SW_OK) return rc;
    out->gram_flop_s = 3.0 * TOKENS * k * k / (sw_clock_s() - start);
    if ((rc = sw_hessian_add(&b->held, b->x, b->y, NULL, TOKENS, err)) != SW_OK) return rc;
    sw_hessian_finish(&b->seen);
    sw_hessian_finish(&b->held);
    start = sw_clock_s();
    if ((rc = sw_factor_new(&b->factor, &b->seen, &fo, err)) != SW_OK) return rc;
    out->factor_units_s = k * k * k / (sw_clock_s() - start);
    return SW_OK;
}

static sw_code measure_strengths(sw_rates *out, const bench *b, sw_err *err)
{
    double start = sw_clock_s(), units = (double)b->n_rows * (double)b->k * (double)b->k;
    sw_strengths found;
    sw_code rc = sw_target_strengths(&found, &b->factor, &b->seen, &b->held, b->w, b->n_rows,
                                     b->options.cap, err);

    out->strength_units_s = units / (sw_clock_s() - start);
    return rc;
}

static sw_code measure_solve(sw_rates *out, const bench *b, sw_err *err)
{
    bool with_factor = b->options.algo->needs_statistics;
    sw_solve_problem p = {.w = b->w, .n_out = b->n_rows, .k_in = b->k, .spec = b->options.spec,
                          .factor = with_factor ? &b->factor : NULL,
                          .refine_rounds = b->options.refine_rounds,
                          .n_threads = b->options.n_threads};
    double units = (double)b->n_rows * (double)b->k * (with_factor ? (double)b->k : 1.0), start;
    sw_solve_report report = {0};
    sw_qtensor q = {0};
    sw_code rc = sw_qtensor_alloc(&q, &p.spec, p.n_out, p.k_in, err);

    start = sw_clock_s();
    if (rc == SW_OK) rc = b->options.algo->solve(&q, &p, &report, err);
    out->solve_units_s = units / (sw_clock_s() - start);
    sw_qtensor_free(&q);
    return rc;
}

/* What a transform's search does to every row that it tries. */
static sw_code measure_fit(sw_rates *out, const bench *b, sw_err *err)
{
    double error = 0, start = sw_clock_s();
    sw_qtensor q = {0};
    sw_code rc = sw_requantize(&q, &error, b->w, b->n_rows, b->k, &b->options.spec, 0,
                               b->options.n_threads, err);

    out->fit_weights_s = (double)(b->n_rows * b->k) / (sw_clock_s() - start);
    sw_qtensor_free(&q);
    return rc;
}

typedef struct read_job {
    const uint64_t *words;
    uint64_t *sums; /* per chunk */
    int64_t n_chunk;
} read_job;

static void read_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const read_job *job = ctx;
    uint64_t sum = 0;

    (void)thread;
    for (int64_t i = begin; i < end; i++) sum += job->words[i];
    job->sums[begin / job->n_chunk] = sum;
}

/* Memory that is larger than the caches, read once; and a piece of it digested. */
static sw_code measure_memory(sw_rates *out, int n_threads, sw_err *err)
{
    int64_t n = READ_BYTES / 8, n_chunk = 1 << 16;
    char digest[SW_SHA256_HEX_BYTES];
    uint64_t *words = NULL, *sums = NULL;
    read_job job;
    double start;
    sw_code rc;

    if ((rc = SW_MEM_GET(&words, n, "memory to read", err)) != SW_OK) return rc;
    if ((rc = SW_MEM_GET(&sums, sw_ceil_div(n, n_chunk), "sums", err)) != SW_OK) goto done;
    job = (read_job){words, sums, n_chunk};
    start = sw_clock_s();
    sw_parallel_for(n_threads, n, n_chunk, read_some, &job);
    out->read_bytes_s = (double)READ_BYTES / (sw_clock_s() - start);
    start = sw_clock_s();
    rc = sw_sha256_hex(digest, words, HASH_BYTES, err);
    out->hash_bytes_s = (double)HASH_BYTES / (sw_clock_s() - start);
done:
    sw_mem_put(words);
    sw_mem_put(sums);
    return rc;
}

sw_code sw_rates_measure(sw_rates *out, const sw_quant_options *options, int64_t k_in, sw_err *err)
{
    sw_rates rates = {0};
    bench b;
    sw_code rc;

    rc = bench_new(&b, options, k_in, err);
    if (rc == SW_OK && options->algo->needs_statistics) {
        if ((rc = measure_gemm(&rates, &b, err)) == SW_OK &&
            (rc = measure_statistics(&rates, &b, err)) == SW_OK)
            rc = measure_strengths(&rates, &b, err);
    }
    if (rc == SW_OK) rc = measure_solve(&rates, &b, err);
    if (rc == SW_OK && options->algo->transform) rc = measure_fit(&rates, &b, err);
    bench_free(&b);
    if (rc == SW_OK) rc = measure_memory(&rates, options->n_threads, err);
    if (rc == SW_OK) *out = rates;
    return rc;
}

static double over(double work, double rate) { return rate > 0 ? work / rate : 0; }

double sw_rates_seconds(const sw_rates *r, const sw_forecast *f, double source_bytes,
                        double out_bytes)
{
    return over(f->forward_flops, r->gemm_flop_s) + over(f->gram_flops, r->gram_flop_s) +
           over(f->factor_units, r->factor_units_s) +
           over(f->strength_units, r->strength_units_s) +
           over(f->solve_units, r->solve_units_s) + over(f->fit_weights, r->fit_weights_s) +
           over(SOURCE_PASSES * source_bytes + OUT_PASSES * out_bytes, r->hash_bytes_s);
}
