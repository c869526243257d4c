/* gemm.c - products with many tokens: decode a panel of W once, then dot it with all of them.
 *
 *        k ->            A panel is 16 channels x BLOCK_K inputs of W as floats. It is decoded into
 *   n  [ panel ]         the first-level cache (24 KiB) and stays there, while the tokens of the
 *   |  [ panel ] ...     chunk (192 x BLOCK_K, 300 KiB) stream from the second in groups of 3 or 6;
 *   v                    four channels by one group at a time keep all partial sums in registers.
 *
 * Both operands are contiguous in k, so nothing is packed or transposed beyond bringing x into the
 * order of the panel. Chunks are (ROWS_PER_ITEM channels, TOKENS_PER_ITEM tokens); k runs in fixed
 * blocks in order within a chunk, so the result does not depend on the thread count.
 */
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/features.h"

#if SW_X86_SIMD

#define BLOCK_K 384
#define PANEL_ROWS 16
#define TOKENS_PER_ITEM 192
/* Channels of a chunk: bringing x into order is paid once for all of them. Small weights are cut
 * finer, or there would not be enough chunks to share. */
#define ROWS_PER_ITEM 256
#define ROWS_PER_ITEM_SMALL 64
#define SMALL_ROWS 2048
/* Rows lie a line more than BLOCK_K apart, so that they do not share cache sets. */
#define ROW_ELEMS (BLOCK_K + 16)

typedef struct gemm_job {
    const sw_gemm *p;
    const sw_cpu_ops *ops;
    float *scratch; /* [n_threads, SCRATCH_ELEMS]: a panel, then the inputs of a chunk */
} gemm_job;

#define PANEL_ELEMS (PANEL_ROWS * ROW_ELEMS)
#define SCRATCH_ELEMS (PANEL_ELEMS + TOKENS_PER_ITEM * ROW_ELEMS)

static void decode_panel(const gemm_job *job, float *panel, int64_t n0, int64_t n_rows, int64_t k0,
                         int64_t n_k)
{
    const sw_weight *w = job->p->w;
    size_t elem_bytes = w->dense_dtype == SW_DTYPE_F32 ? 4 : 2;

    if (w->tiles) {
        job->ops->decode_tiles(panel, ROW_ELEMS, w->tiles, n0 / SW_TILE_N,
                               (int)(n0 % SW_TILE_N / PANEL_ROWS), k0 / SW_TILE_K,
                               sw_tiles_k(n_k));
        return;
    }
    for (int64_t n = 0; n < n_rows; n++)
        job->ops->decode_dense(
            panel + n * ROW_ELEMS,
            (const uint8_t *)w->dense + (size_t)((n0 + n) * w->k_in + k0) * elem_bytes,
            w->dense_dtype, n_k);
}

static void bring_inputs(const gemm_job *job, float *x, int64_t m0, int64_t n_tokens, int64_t k0,
                         int64_t n_k)
{
    const sw_gemm *p = job->p;

    for (int64_t m = 0; m < n_tokens; m++) {
        const float *from = p->x + (m0 + m) * p->x_stride + k0;

        if (p->w->tiles) job->ops->to_tile_order(x + m * ROW_ELEMS, from, n_k);
        else job->ops->decode_dense(x + m * ROW_ELEMS, from, SW_DTYPE_F32, n_k);
    }
}

static int64_t rows_per_item(const sw_weight *w)
{
    return w->n_out < SMALL_ROWS ? ROWS_PER_ITEM_SMALL : ROWS_PER_ITEM;
}

static int64_t row_chunks(const sw_weight *w) { return sw_ceil_div(w->n_out, rows_per_item(w)); }

static void run_item(void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemm_job *job = (const gemm_job *)ctx;
    const sw_gemm *p = job->p;
    int64_t n_chunks = row_chunks(p->w), rows = rows_per_item(p->w);
    int64_t n_begin = begin % n_chunks * rows, n_end = sw_min_i64(n_begin + rows, p->w->n_out);
    int64_t m0 = begin / n_chunks * TOKENS_PER_ITEM;
    int64_t n_tokens = sw_min_i64(TOKENS_PER_ITEM, p->m - m0), group = job->ops->gemm_tokens;
    float *panel = job->scratch + (int64_t)thread * SCRATCH_ELEMS, *x = panel + PANEL_ELEMS;

    (void)end;
    for (int64_t k0 = 0; k0 < p->w->k_in; k0 += BLOCK_K) {
        int64_t n_k = sw_min_i64(BLOCK_K, p->w->k_in - k0);

        bring_inputs(job, x, m0, n_tokens, k0, n_k);
        for (int64_t n0 = n_begin; n0 < n_end; n0 += PANEL_ROWS) {
            int64_t n_rows = sw_min_i64(PANEL_ROWS, n_end - n0);

            decode_panel(job, panel, n0, n_rows, k0, n_k);
            for (int64_t m = 0; m < n_tokens; m += group)
                job->ops->dot_panel(p->y + (m0 + m) * p->y_stride + n0, p->y_stride,
                                    x + m * ROW_ELEMS, ROW_ELEMS,
                                    (int)sw_min_i64(group, n_tokens - m), panel, ROW_ELEMS, n_rows,
                                    sw_round_up(n_k, SW_TILE_K), k0 > 0);
        }
    }
}

static void run(const sw_gemm *p, void *workspace, const sw_cpu_ops *ops)
{
    gemm_job job = {p, ops, (float *)workspace};
    int64_t n_items = row_chunks(p->w) * sw_ceil_div(p->m, TOKENS_PER_ITEM);

    sw_parallel_for(sw_kernel_threads(p), n_items, 1, run_item, &job);
}

static size_t workspace_bytes(const sw_gemm *p)
{
    return (size_t)sw_kernel_threads(p) * SCRATCH_ELEMS * sizeof(float);
}

#define GEMM(id, isa)                                                                       \
    bool sw_##id##_can_run(const sw_gemm *p) { return sw_cpu_has_##isa() && p->w->k_in > 0; } \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p) { return workspace_bytes(p); }       \
    void sw_##id##_run(const sw_gemm *p, void *workspace) { run(p, workspace, &sw_cpu_ops_##isa); }

GEMM(dense_gemm_avx512, avx512)
GEMM(dense_gemm_avx2, avx2)
GEMM(w4a16_gemm_avx512, avx512)
GEMM(w4a16_gemm_avx2, avx2)
GEMM(w8a16_gemm_avx512, avx512)
GEMM(w8a16_gemm_avx2, avx2)
GEMM(fp4a16_gemm_avx512, avx512)
GEMM(fp4a16_gemm_avx2, avx2)
GEMM(fp8a16_gemm_avx512, avx512)
GEMM(fp8a16_gemm_avx2, avx2)

#endif
