/* ref_gemm.c - the definition of every matrix product: plain C, double accumulation.
 *
 * A weight is decoded element by element from the offsets in formats/pack/tiles.h, times its
 * scale in float, which is exact: at most 11 significand bits of scale and 9 of code minus zero
 * fit the 24 of a float. Sums run over k in ascending order.
 */
#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/half.h"
#include "kernels/ref/ref_tiles.h"
#include "kernels/rows.h"

#define ROWS_PER_CHUNK 8

static void tiles_row(float *dst, const sw_tiles *t, int64_t n)
{
    int64_t group_elems = t->spec.group_elems ? t->spec.group_elems : t->k_in;
    const float *values = t->spec.num->values;

    for (int64_t g = 0; g < t->n_groups; g++) {
        int64_t begin = g * group_elems, end = sw_min_i64(begin + group_elems, t->k_in);
        float scale = sw_ref_scale(t, n, g);

        for (int64_t k = begin; k < end; k++) {
            int code = sw_ref_code(t, n, k);

            dst[k] = scale * (values ? values[code] : (float)(code - sw_ref_zero(t, n, g)));
            if (t->spec.has_global) dst[k] *= t->global_scale;
        }
    }
}

static void dense_row(float *dst, const sw_weight *w, int64_t n)
{
    for (int64_t i = n * w->k_in, k = 0; k < w->k_in; i++, k++) {
        if (w->dense_dtype == SW_DTYPE_F32) dst[k] = ((const float *)w->dense)[i];
        else if (w->dense_dtype == SW_DTYPE_BF16)
            dst[k] = sw_bf16_decode(((const uint16_t *)w->dense)[i]);
        else dst[k] = sw_f16_decode(((const uint16_t *)w->dense)[i]);
    }
}

typedef struct ref_job {
    const sw_gemm *p;
    float *rows; /* [n_threads, k_in] */
} ref_job;

static void run_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const ref_job *job = (const ref_job *)ctx;
    const sw_gemm *p = job->p;
    float *row = job->rows + thread * p->w->k_in;

    for (int64_t n = begin; n < end; n++) {
        if (p->w->tiles) tiles_row(row, p->w->tiles, n);
        else dense_row(row, p->w, n);
        for (int64_t m = 0; m < p->m; m++) {
            const float *x = p->x + m * p->x_stride;
            double sum = 0;

            for (int64_t k = 0; k < p->w->k_in; k++) sum += (double)x[k] * (double)row[k];
            p->y[m * p->y_stride + n] = (float)sum;
        }
    }
}

static size_t ref_workspace_bytes(const sw_gemm *p)
{
    return (size_t)sw_kernel_threads(p) * (size_t)p->w->k_in * sizeof(float);
}

static void ref_run(const sw_gemm *p, void *workspace)
{
    ref_job job = {p, (float *)workspace};

    sw_parallel_for(sw_kernel_threads(p), p->w->n_out, ROWS_PER_CHUNK, run_rows, &job);
}

#define REFERENCE(id)                                                                    \
    bool sw_##id##_can_run(const sw_gemm *p) { (void)p; return true; }                   \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p) { return ref_workspace_bytes(p); } \
    void sw_##id##_run(const sw_gemm *p, void *workspace) { ref_run(p, workspace); }

REFERENCE(dense_ref)
REFERENCE(w4a16_ref)
REFERENCE(w8a16_ref)
REFERENCE(fp4a16_ref)
REFERENCE(fp8a16_ref)

void sw_outliers_add_ref(const sw_gemm *p)
{
    const sw_tiles *t = p->w->tiles;
    int64_t n_kept = t->spec.n_outliers;

    for (int64_t m = 0; m < p->m; m++)
        for (int64_t n = 0; n < t->n_out; n++) {
            double sum = 0;
            for (int64_t i = 0; i < n_kept; i++)
                sum += (double)p->x[m * p->x_stride + t->outlier_cols[i]] *
                       (double)sw_f16_decode(t->outlier_values[n * n_kept + i]);
            p->y[m * p->y_stride + n] += (float)sum;
        }
}
