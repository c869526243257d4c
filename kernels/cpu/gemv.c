/* gemv.c - products with few tokens: every weight is read once, decoded in registers and used for
 * all tokens at once. The bound is the memory that the weights come from.
 *
 * Threads take rows of tiles (64 channels) or runs of dense rows; no sum crosses a chunk.
 */
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/features.h"

#define DENSE_ROWS_PER_CHUNK 32

typedef struct gemv_job {
    const sw_gemm *p;
    const sw_cpu_ops *ops;
    float *x;             /* [m, x_stride] in the order of the inner loop */
    int64_t x_stride;
    uint8_t *scratch;     /* [n_threads, scratch_bytes] */
} gemv_job;

#define SUMS_BYTES (SW_STRIP_TOKENS_MAX * SW_TILE_N * sizeof(float))
#define SCRATCH_BYTES (SW_GEMV_SCRATCH_BYTES + SUMS_BYTES)

static size_t x_bytes(const sw_gemm *p)
{
    return (size_t)p->m * (size_t)sw_round_up(p->w->k_in, SW_TILE_K) * sizeof(float);
}

static void run_tiles(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemv_job *job = (const gemv_job *)ctx;
    const sw_gemm *p = job->p;
    uint8_t *scratch = job->scratch + (size_t)thread * SCRATCH_BYTES;
    float *sums = (float *)(void *)(scratch + SW_GEMV_SCRATCH_BYTES);

    for (int64_t n_tile = begin; n_tile < end; n_tile++) {
        int64_t n0 = n_tile * SW_TILE_N, n_rows = sw_min_i64(SW_TILE_N, p->w->n_out - n0);

        job->ops->gemv_tiles(sums, p->w->tiles, n_tile, job->x, job->x_stride, (int)p->m, scratch);
        for (int64_t m = 0; m < p->m; m++)
            memcpy(p->y + m * p->y_stride + n0, sums + m * SW_TILE_N,
                   (size_t)n_rows * sizeof *sums);
    }
}

static void run_dense(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemv_job *job = (const gemv_job *)ctx;
    const sw_gemm *p = job->p;
    size_t elem_bytes = p->w->dense_dtype == SW_DTYPE_F32 ? 4 : 2;
    const uint8_t *rows = (const uint8_t *)p->w->dense + (size_t)(begin * p->w->k_in) * elem_bytes;

    (void)thread;
    job->ops->gemv_dense(p->y + begin, p->y_stride, job->x, job->x_stride, (int)p->m, rows,
                         p->w->dense_dtype, end - begin, p->w->k_in);
}

static void run(const sw_gemm *p, void *workspace, const sw_cpu_ops *ops)
{
    gemv_job job = {p, ops, (float *)workspace, sw_round_up(p->w->k_in, SW_TILE_K), NULL};

    job.scratch = (uint8_t *)workspace + x_bytes(p);
    for (int64_t m = 0; m < p->m; m++) {
        const float *from = p->x + m * p->x_stride;
        float *to = job.x + m * job.x_stride;

        if (p->w->tiles) ops->to_tile_order(to, from, p->w->k_in);
        else ops->to_dense_order(to, from, p->w->dense_dtype, p->w->k_in);
    }
    if (p->w->tiles)
        sw_parallel_for(sw_kernel_threads(p), sw_tiles_n(p->w->n_out), 1, run_tiles, &job);
    else
        sw_parallel_for(sw_kernel_threads(p), p->w->n_out, DENSE_ROWS_PER_CHUNK, run_dense, &job);
}

static size_t workspace_bytes(const sw_gemm *p)
{
    return x_bytes(p) + (p->w->tiles ? (size_t)sw_kernel_threads(p) * SCRATCH_BYTES : 0);
}

static bool fits(const sw_gemm *p, const sw_cpu_ops *ops)
{
    if (p->w->tiles && !ops->gemv_takes(p->w->tiles)) return false;
    return p->w->k_in > 0 && p->m <= (p->w->tiles ? ops->gemv_tokens : ops->gemv_dense_tokens);
}

#define GEMV(id, isa)                                                                       \
    bool sw_##id##_can_run(const sw_gemm *p)                                                \
    {                                                                                       \
        return sw_cpu_has_##isa() && fits(p, &sw_cpu_ops_##isa);                            \
    }                                                                                       \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p) { return workspace_bytes(p); }       \
    void sw_##id##_run(const sw_gemm *p, void *workspace) { run(p, workspace, &sw_cpu_ops_##isa); }

GEMV(dense_gemv_any, any)
GEMV(w4a16_gemv_any, any)
GEMV(w8a16_gemv_any, any)
GEMV(fp4a16_gemv_any, any)
GEMV(fp8a16_gemv_any, any)
#if SW_X86_SIMD
GEMV(dense_gemv_avx512, avx512)
GEMV(dense_gemv_avx2, avx2)
GEMV(w4a16_gemv_avx512, avx512)
GEMV(w4a16_gemv_avx2, avx2)
GEMV(w8a16_gemv_avx512, avx512)
GEMV(w8a16_gemv_avx2, avx2)
GEMV(fp4a16_gemv_avx512, avx512)
GEMV(fp4a16_gemv_avx2, avx2)
GEMV(fp8a16_gemv_avx512, avx512)
GEMV(fp8a16_gemv_avx2, avx2)
#endif
