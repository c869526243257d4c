/* bench_solver.c - what calibrating one block costs on the device, by stage.
 *
 *   bench_solver HIDDEN INTERMEDIATE KV_WIDTH TOKENS    e.g. 4096 14336 1024 1048576
 *
 * Rows of CSV: what, k_in, n_out, seconds, rate, its unit. Sums are timed on a part of the tokens
 * and scaled to all. Exit 77 without a GPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/solver/solver_internal.cuh"
#include "quant/method/algo.h"

#define BLOCK_ELEMS 16777213 /* odd, so that every row of every width begins elsewhere */
#define TIMED_TOKENS 131072

static sw_device *gpu;
static sw_solver *solver;
static float *block_f32;
static uint16_t *block_bf16;

#define MUST(call) \
    do { sw_err err = {0}; \
         if ((call) != SW_OK) { fprintf(stderr, "%s: %s\n", #call, err.text); exit(1); } } while (0)

static double now_s(void)
{
    struct timespec t;

    MUST(sw_device_sync(gpu, &err));
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void row(const char *what, int64_t k, int64_t n, double s, double rate, const char *unit)
{
    printf("%s,%lld,%lld,%.6f,%.2f,%s\n", what, (long long)k, (long long)n, s, rate, unit);
    fflush(stdout);
}

static void make_blocks(void)
{
    uint64_t state = 1;

    block_f32 = malloc(sizeof *block_f32 * BLOCK_ELEMS);
    block_bf16 = malloc(2 * BLOCK_ELEMS);
    for (int64_t i = 0; i < BLOCK_ELEMS; i++) {
        double sum = 0;
        for (int j = 0; j < 4; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (double)(state >> 40) * 0x1p-24 - 0.5;
        }
        block_f32[i] = (float)sum;
    }
    MUST(sw_float_encode_n(block_bf16, SW_DTYPE_BF16, block_f32, BLOCK_ELEMS, &err));
}

static uint16_t *device_tokens(int64_t n_elems)
{
    uint16_t *d = NULL;

    MUST(sw_device_take((void **)&d, gpu, n_elems, 2, "tokens", &err));
    for (int64_t at = 0; at < n_elems; at += BLOCK_ELEMS) {
        int64_t n = n_elems - at < BLOCK_ELEMS ? n_elems - at : BLOCK_ELEMS;
        MUST(sw_device_upload(gpu, d + at, block_bf16, 2 * n, &err));
    }
    return d;
}

static double *fetch(const double *d, int64_t n)
{
    double *host = malloc(sizeof *host * (size_t)n);

    MUST(sw_device_download(gpu, host, d, n * 8, &err));
    return host;
}

/* Seconds for all tokens of one kind of sum; best of two. */
static double time_sum(sw_gram *g, const uint16_t *d_x, int64_t n_timed, int64_t n_tokens)
{
    double best = INFINITY;

    for (int i = 0; i < 3; i++) {
        double since = now_s(), s;
        MUST(sw_gram_add(g, solver, d_x, g->n_cols, d_x, g->n_cols, n_timed, &err));
        s = (now_s() - since) * (double)n_tokens / (double)n_timed;
        if (i > 0 && s < best) best = s;
    }
    return best;
}

static void bench_sums(int64_t k, int64_t n_tokens, sw_gram *out)
{
    static const int64_t strips[] = {256, 512, 1024, 2048};
    int64_t n = n_tokens < TIMED_TOKENS ? n_tokens : TIMED_TOKENS;
    double flop = (double)n_tokens * (double)k * (double)k;
    uint16_t *d_x = device_tokens(n * k);
    sw_gram cross;
    char what[64];

    MUST(sw_gram_new(out, solver, k, k, true, &err));
    for (size_t i = 0; i < sizeof strips / sizeof *strips; i++) {
        double s;
        out->strip_rows = strips[i];
        s = time_sum(out, d_x, n, n_tokens);
        snprintf(what, sizeof what, "H strips of %d", (int)strips[i]);
        row(what, k, k, s, flop / s * 1e-12, "useful TFLOP/s");
    }
    MUST(sw_gram_finish(out, solver, &err));
    MUST(sw_gram_new(&cross, solver, k, k, false, &err));
    double s = time_sum(&cross, d_x, n, n_tokens);
    row("D", k, k, s, 2 * flop / s * 1e-12, "TFLOP/s");
    sw_gram_free(&cross, solver);
    sw_device_put(gpu, d_x);
}

/* Float Cholesky of the same matrix, for what it would save. */
static void bench_float_cholesky(const sw_gram *g)
{
    int64_t k = g->n_cols, k2 = k * k;
    double *h = fetch(g->d_sum, k2), since, s;
    float *f = malloc(sizeof *f * (size_t)k2), *d_f = NULL;
    size_t n_bytes = 0, n_host = 0;
    void *d_work = NULL, *work;
    int rc = 0;

    for (int64_t i = 0; i < k2; i++) f[i] = (float)h[i];
    MUST(sw_device_take((void **)&d_f, gpu, k2, 4, "h", &err));
    rc |= (int)solver->libs.cusolverDnXpotrf_bufferSize_fn(solver->lapack, solver->params,
        CUBLAS_FILL_MODE_UPPER, k, CUDA_R_32F, d_f, k, CUDA_R_32F, &n_bytes, &n_host);
    work = malloc(n_host + 1);
    MUST(sw_device_take(&d_work, gpu, (int64_t)n_bytes, 1, "work", &err));
    for (int i = 0; i < 2; i++) {
        MUST(sw_device_upload(gpu, d_f, f, k2 * 4, &err));
        since = now_s();
        rc |= (int)solver->libs.cusolverDnXpotrf_fn(solver->lapack, solver->params,
            CUBLAS_FILL_MODE_UPPER, k, CUDA_R_32F, d_f, k, CUDA_R_32F, d_work, n_bytes, work,
            n_host, solver->d_info);
        s = now_s() - since;
    }
    row(rc ? "float Cholesky FAILED" : "float Cholesky", k, k, s,
        (double)k * (double)k * (double)k / 3 / s * 1e-12, "TFLOP/s");
    sw_device_put(gpu, d_f);
    sw_device_put(gpu, d_work);
    free(h), free(f), free(work);
}

static void bench_factor(const sw_gram *g, sw_device_factor *out)
{
    int64_t k = g->n_cols;
    double *diagonal = malloc(sizeof *diagonal * (size_t)k), mean = 0, since, s, flop;
    int32_t *perm = malloc(sizeof *perm * (size_t)k);
    bool is_definite = false;

    MUST(sw_solver_diagonal(diagonal, solver, g->d_sum, k, &err));
    for (int64_t i = 0; i < k; i++) mean += diagonal[i] / (double)k;
    for (int64_t i = 0; i < k; i++) perm[i] = (int32_t)((i * 4099) % k); /* any order */
    MUST(sw_device_factor_new(out, solver, g->d_sum, diagonal, perm, k, &err));
    flop = (double)k * (double)k * (double)k / 3;
    for (int i = 0; i < 2; i++) {
        since = now_s();
        MUST(sw_device_factor_try(&is_definite, out, solver, 0.01 * mean, &err));
        s = now_s() - since;
    }
    row(is_definite ? "Cholesky" : "Cholesky INDEFINITE", k, k, s, flop / s * 1e-12, "TFLOP/s");
    since = now_s();
    MUST(sw_device_factor_finish(out, solver, 0.01 * mean, &err));
    s = now_s() - since;
    row("inverse factor", k, k, s, flop / s * 1e-12, "TFLOP/s");
    free(diagonal);
    free(perm);
}

static double bench_weight(const sw_device_factor *f, int64_t n_out, const char *name, int rounds,
                           bool is_gptq)
{
    int64_t k = f->k_in, n = n_out * k;
    float *w = malloc(sizeof *w * (size_t)n);
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 128,
                     .scale_dtype = SW_DTYPE_F16};
    sw_device_problem p = {.method = is_gptq ? SW_DEVICE_GPTQ : SW_DEVICE_RTN, .w = w,
                           .n_out = n_out, .k_in = k, .spec = spec,
                           .factor = is_gptq ? f : NULL, .refine_rounds = rounds};
    double stage_s[SW_STAGE_COUNT] = {0}, since, s = 0;
    sw_device_sums sums = {0};
    sw_qtensor q = {0};
    char what[96];

    for (int64_t at = 0; at < n; at += BLOCK_ELEMS)
        memcpy(w + at, block_f32,
               sizeof *w * (size_t)(n - at < BLOCK_ELEMS ? n - at : BLOCK_ELEMS));
    MUST(sw_qtensor_alloc(&q, &spec, n_out, k, &err));
    memset(q.codes, 1, (size_t)n); /* its pages are there */
    for (int i = 0; i < 3; i++) { /* the first chooses how to multiply, the last waits for stages */
        since = now_s();
        MUST(sw_solver_solve(&q, &sums, solver, &p, i == 2 ? stage_s : NULL, &err));
        if (i == 1) s = now_s() - since;
    }
    snprintf(what, sizeof what, "%s %s rounds %d", name, is_gptq ? "gptq" : "rtn", rounds);
    row(what, k, n_out, s, is_gptq ? sums.loss / sums.loss_rtn : 0, "of the loss of rtn");
    for (int i = 0; i < SW_STAGE_COUNT; i++) {
        snprintf(what, sizeof what, "%s %s rounds %d: %s", name, is_gptq ? "gptq" : "rtn", rounds,
                 sw_stage_names[i]);
        if (stage_s[i] > 0) row(what, k, n_out, stage_s[i], 0, "");
    }
    sw_qtensor_free(&q);
    free(w);
    return s;
}

static void bench_pack(int64_t n_out, int64_t k)
{
    sw_qspec spec = {.num = sw_num_by_bits(4), .is_symmetric = true, .group_elems = 128,
                     .scale_dtype = SW_DTYPE_F16};
    uint8_t *d_codes, *d_tiles;
    float *d_scales;
    void *d_records;
    double since, s = 0;

    MUST(sw_device_take((void **)&d_codes, gpu, n_out * k, 1, "codes", &err));
    MUST(sw_device_take((void **)&d_tiles, gpu, n_out * k, 1, "tiles", &err));
    MUST(sw_device_take((void **)&d_scales, gpu, n_out * k / 128, 4, "scales", &err));
    MUST(sw_device_take(&d_records, gpu, n_out * k / 128, 4, "records", &err));
    MUST(sw_device_fill(gpu, d_codes, 5, n_out * k, &err));
    MUST(sw_device_fill(gpu, d_scales, 60, n_out * k / 32, &err));
    for (int i = 0; i < 3; i++) {
        since = now_s();
        MUST(sw_solver_pack(d_tiles, d_records, NULL, solver, &spec, n_out, k, d_codes, d_scales,
                            NULL, &err));
        s = now_s() - since;
    }
    row("pack", k, n_out, s, 1.5e-9 * (double)(n_out * k) / s, "GB/s");
    sw_device_put(gpu, d_codes);
    sw_device_put(gpu, d_tiles);
    sw_device_put(gpu, d_scales);
    sw_device_put(gpu, d_records);
}

static double bench_site(int64_t k, int64_t n_tokens, const int64_t *n_out,
                         const char *const *names, int n)
{
    sw_device_factor f = {0};
    sw_gram g = {0};
    double s = 0;

    bench_sums(k, n_tokens, &g);
    if (k <= 8192) bench_float_cholesky(&g);
    bench_factor(&g, &f);
    sw_gram_free(&g, solver);
    for (int i = 0; i < n; i++) {
        (void)bench_weight(&f, n_out[i], names[i], 0, true);
        s += bench_weight(&f, n_out[i], names[i], 2, true);
    }
    (void)bench_weight(&f, n_out[n - 1] / 2, "what one of two ranks has", 2, true);
    (void)bench_weight(&f, n_out[n - 1] / 4, "what one of four ranks has", 2, true);
    (void)bench_weight(&f, n_out[n - 1], names[n - 1], 0, false);
    sw_device_factor_free(&f, solver);
    return s;
}

int main(int argc, char *argv[])
{
    int64_t hidden = argc > 1 ? atoll(argv[1]) : 4096, inter = argc > 2 ? atoll(argv[2]) : 14336;
    int64_t kv = argc > 3 ? atoll(argv[3]) : 1024, n = argc > 4 ? atoll(argv[4]) : 1048576;
    static const char *const in_names[] = {"k", "q", "gate"}, *const out_names[] = {"down"};
    int64_t from_hidden[] = {kv, hidden, inter};
    double s;

    if (sw_device_count() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    MUST(sw_device_open(&gpu, 0, 0, &err));
    MUST(sw_solver_open(&solver, gpu, 0, &err));
    printf("# %s, hidden %lld, intermediate %lld, %lld tokens\n", sw_device_about(gpu)->name,
           (long long)hidden, (long long)inter, (long long)n);
    printf("what,k_in,n_out,seconds,rate,unit\n");
    make_blocks();
    bench_pack(inter, hidden);
    s = bench_site(hidden, n, from_hidden, in_names, 3);
    s += bench_site(inter, n, &hidden, out_names, 1);
    row("k + q + gate + down", 0, 0, s, (double)sw_device_peak_bytes(gpu) * 1e-9, "GB at most");
    sw_solver_close(solver);
    sw_device_close(gpu);
    free(block_f32);
    free(block_bf16);
    return 0;
}
