/* roof.c - see roof.h. */
#include "verify/speed/roof.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/mem.h"
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/blas.h"
#include "verify/base/metrics.h"
#include "verify/speed/speed_data.h"
#include "verify/speed/turns.h"

#define READ_CHUNK_WORDS ((int64_t)1 << 17)
#define CACHE_BYTES_GUESS ((int64_t)32 << 20)
#define SGEMM_SIZE 1536
#define ROUNDS_MAX 9

static double now_us(void) { return sw_clock_real.now_us(NULL); }

int64_t sw_roof_cache_bytes(void)
{
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    char line[32] = "";
    long kib = 0;

    if (f && fgets(line, sizeof line, f)) kib = strtol(line, NULL, 10);
    if (f) (void)fclose(f);
    return kib > 0 ? (int64_t)kib * 1024 : CACHE_BYTES_GUESS;
}

void sw_roof_cpu_name(char *out, size_t out_bytes)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];

    (void)snprintf(out, out_bytes, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon[strcspn(colon, "\n")] = '\0';
        (void)snprintf(out, out_bytes, "%s", colon + 2);
        break;
    }
    if (f) (void)fclose(f);
}

typedef struct read_job {
    const uint64_t *words;
    uint64_t *sums; /* one per chunk, reduced by the caller */
} read_job;

static void read_chunk(void *ctx, int64_t begin, int64_t end, int thread)
{
    const read_job *job = (const read_job *)ctx;
    const uint64_t *w = job->words + begin;
    uint64_t sum[32] = {0}; /* independent sums: enough of them to be bound by memory alone */

    (void)thread;
    for (int64_t i = 0; i + 32 <= end - begin; i += 32)
        for (int j = 0; j < 32; j++) sum[j] += w[i + j];
    for (int j = 1; j < 32; j++) sum[0] += sum[j];
    job->sums[begin / READ_CHUNK_WORDS] = sum[0];
}

int64_t sw_roof_read_sums(int64_t size_bytes)
{
    return sw_ceil_div(size_bytes / 8, READ_CHUNK_WORDS);
}

uint64_t sw_roof_read(const void *bytes, int64_t size_bytes, int n_threads, uint64_t *sums)
{
    read_job job = {(const uint64_t *)bytes, sums};
    uint64_t sum = 0;

    sw_parallel_for(n_threads, size_bytes / 8, READ_CHUNK_WORDS, read_chunk, &job);
    for (int64_t i = 0; i < sw_roof_read_sums(size_bytes); i++) sum += sums[i];
    return sum;
}

sw_code sw_roof_memory(double *gb_s, int n_threads, sw_err *err)
{
    const int64_t size_bytes = sw_max_i64(2 * sw_roof_cache_bytes(), (int64_t)64 << 20);
    uint64_t *words = NULL, *sums = NULL;
    volatile uint64_t kept = 0;
    double us[ROUNDS_MAX];
    sw_code rc;

    if ((rc = SW_MEM_GET(&words, size_bytes / 8, "memory to read", err)) != SW_OK) return rc;
    rc = SW_MEM_GET(&sums, sw_roof_read_sums(size_bytes), "sums", err);
    if (rc == SW_OK) memset(words, 1, (size_t)size_bytes); /* a page of its own for every part */
    for (int i = -1; i < ROUNDS_MAX && rc == SW_OK; i++) {
        const double start = now_us();

        kept = kept + sw_roof_read(words, size_bytes, n_threads, sums);
        if (i >= 0) us[i] = now_us() - start;
    }
    if (rc == SW_OK) *gb_s = 1e-3 * (double)size_bytes / sw_percentile(us, ROUNDS_MAX, 0.5);
    sw_mem_put(sums);
    sw_mem_put(words);
    return rc;
}

sw_code sw_roof_sgemm(double *gflop_s, int n_threads, int rounds, sw_err *err)
{
    const int64_t size = SGEMM_SIZE;
    double us[ROUNDS_MAX];
    int n = (int)sw_min_i64(rounds, ROUNDS_MAX);
    float *a = NULL;
    sw_code rc = SW_MEM_GET(&a, 3 * size * size, "bench sgemm", err);

    if (rc != SW_OK) return rc;
    sw_speed_random_floats(a, 2 * size * size, 5);
    openblas_set_num_threads(n_threads);
    for (int i = 0; i <= n; i++) {
        double start = now_us();

        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SGEMM_SIZE, SGEMM_SIZE, SGEMM_SIZE,
                    1.0f, a, SGEMM_SIZE, a + size * size, SGEMM_SIZE, 0.0f, a + 2 * size * size,
                    SGEMM_SIZE);
        if (i) us[i - 1] = now_us() - start;
    }
    sw_blas_single_thread();
    *gflop_s = 2 * pow((double)size, 3) / sw_percentile(us, n, 0.5) * 1e-3;
    sw_mem_put(a);
    return SW_OK;
}
