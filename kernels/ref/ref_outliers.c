/* ref_outliers.c - see kernels/outliers.h. */
#include "formats/num/half.h"
#include "kernels/outliers.h"

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
