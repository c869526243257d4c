/* panel.c - products through BLAS: decode a panel of W into floats, then one sgemm.
 *
 * W is cut into panels of PANEL_ROWS channels, each walked in blocks of PANEL_K inputs so that
 * the decoded block (512 KiB) stays in the second-level cache while sgemm reads it. Panels, not
 * threads, fix the order of every sum, so the result is the same on any number of threads.
 * Float weights are used where they lie.
 */
#include <cblas.h>
#include <limits.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "kernels/cpu/decode.h"
#include "kernels/rows.h"

#define PANEL_ROWS 128
#define PANEL_K 1024
#define TOKENS_PER_ITEM 1024

typedef struct panel_job {
    const sw_gemm *p;
    float *panels; /* [n_threads, PANEL_ROWS, PANEL_K] */
    int64_t n_panels;
} panel_job;

static bool is_float(const sw_weight *w) { return !w->tiles && w->dense_dtype == SW_DTYPE_F32; }

static void multiply(const sw_gemm *p, int64_t m0, int64_t n_tokens, int64_t n0, int64_t n_rows,
                     const float *w, int64_t ld, int64_t k0, int64_t n_k)
{
    const float *x = p->x + m0 * p->x_stride + k0;
    float *y = p->y + m0 * p->y_stride + n0, beta = k0 ? 1.0f : 0.0f;
    /* the stride of a single row is free, BLAS wants it no shorter than the row */
    int64_t ldx = sw_max_i64(p->x_stride, n_k), ldy = sw_max_i64(p->y_stride, n_rows);

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n_tokens, (blasint)n_rows,
                (blasint)n_k, 1.0f, x, (blasint)ldx, w, (blasint)ld, beta, y, (blasint)ldy);
}

static void run_item(void *ctx, int64_t begin, int64_t end, int thread)
{
    const panel_job *job = (const panel_job *)ctx;
    const sw_gemm *p = job->p;
    const sw_weight *w = p->w;
    int64_t n0 = begin % job->n_panels * PANEL_ROWS, m0 = begin / job->n_panels * TOKENS_PER_ITEM;
    int64_t n_rows = sw_min_i64(PANEL_ROWS, w->n_out - n0);
    int64_t n_tokens = sw_min_i64(TOKENS_PER_ITEM, p->m - m0);
    float *panel = job->panels + (int64_t)thread * PANEL_ROWS * PANEL_K;

    (void)end;
    if (is_float(w)) {
        multiply(p, m0, n_tokens, n0, n_rows, (const float *)w->dense + n0 * w->k_in, w->k_in, 0,
                 w->k_in);
        return;
    }
    for (int64_t k0 = 0; k0 < w->k_in; k0 += PANEL_K) {
        int64_t n_k = sw_min_i64(PANEL_K, w->k_in - k0);

        sw_decode_block(panel, PANEL_K, w, n0, n_rows, k0, n_k);
        multiply(p, m0, n_tokens, n0, n_rows, panel, PANEL_K, k0, n_k);
    }
}

static bool panel_can_run(const sw_gemm *p)
{
    return p->w->k_in > 0 && p->w->k_in <= INT_MAX && p->x_stride <= INT_MAX &&
           p->y_stride <= INT_MAX;
}

static size_t panel_workspace_bytes(const sw_gemm *p)
{
    if (is_float(p->w)) return 0;
    return (size_t)sw_kernel_threads(p) * PANEL_ROWS * PANEL_K * sizeof(float);
}

static void panel_run(const sw_gemm *p, void *workspace)
{
    panel_job job = {p, (float *)workspace, sw_ceil_div(p->w->n_out, PANEL_ROWS)};
    int64_t n_items = job.n_panels * sw_ceil_div(p->m, TOKENS_PER_ITEM);

    sw_parallel_for(sw_kernel_threads(p), n_items, 1, run_item, &job);
}

#define PANEL(id)                                                                          \
    bool sw_##id##_can_run(const sw_gemm *p) { return panel_can_run(p); }                  \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p) { return panel_workspace_bytes(p); } \
    void sw_##id##_run(const sw_gemm *p, void *workspace) { panel_run(p, workspace); }

PANEL(dense_panel)
PANEL(w4a16_panel)
PANEL(w8a16_panel)
PANEL(fp4a16_panel)
PANEL(fp8a16_panel)
