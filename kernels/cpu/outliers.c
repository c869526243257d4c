/* outliers.c - outlier channels through BLAS. See kernels/rows.h. */
#include <cblas.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/half.h"
#include "kernels/rows.h"

#define BLOCK_N 64 /* outputs of one piece of work */

typedef struct outlier_job {
    const sw_gemm *p;
    float *x; /* [m, n_outliers] gathered inputs */
    float *v; /* [n_out, n_outliers] */
} outlier_job;

size_t sw_outliers_workspace_bytes(const sw_gemm *p)
{
    return (size_t)(p->m + p->w->n_out) * (size_t)p->w->tiles->spec.n_outliers * sizeof(float);
}

static void add_block(void *ctx, int64_t begin, int64_t end, int thread)
{
    const outlier_job *job = ctx;
    const sw_gemm *p = job->p;
    const sw_tiles *t = p->w->tiles;
    int64_t n_kept = t->spec.n_outliers;
    float *v = job->v + begin * n_kept;

    (void)thread;
    sw_f16_decode_n(v, t->outlier_values + begin * n_kept, (size_t)((end - begin) * n_kept));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)p->m, (int)(end - begin),
                (int)n_kept, 1.0f, job->x, (int)n_kept, v, (int)n_kept, 1.0f, p->y + begin,
                (int)p->y_stride);
}

void sw_outliers_add(const sw_gemm *p, void *workspace)
{
    const sw_tiles *t = p->w->tiles;
    int64_t n_kept = t->spec.n_outliers;
    outlier_job job = {p, workspace, (float *)workspace + p->m * n_kept};

    for (int64_t m = 0; m < p->m; m++)
        for (int64_t i = 0; i < n_kept; i++)
            job.x[m * n_kept + i] = p->x[m * p->x_stride + t->outlier_cols[i]];
    sw_parallel_for(p->n_threads, t->n_out, BLOCK_N, add_block, &job);
}
