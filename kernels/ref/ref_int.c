/* ref_int.c - the definition of integer products: codes times codes, summed as integers.
 *
 *   Y[m, n] = (sum over groups g of scale[n, g] * (sum over k in g of (code - zero) * a[m, k]))
 *             * s[m]
 *
 * with a and s the codes and the scale that sw_act_quantize gives; the outer sum and both
 * multiplications are in double, in that order, and are rounded to float once.
 */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/act.h"
#include "kernels/ref/ref_tiles.h"
#include "kernels/rows.h"

typedef struct int_job {
    const sw_gemm *p;
    int8_t *x;      /* [m, k_in] */
    float *x_scale; /* [m] */
    int16_t *rows;  /* [n_threads, k_in]: codes minus zeros of a channel */
} int_job;

static bool is_finite(const float *x, int64_t n, bool is_infinity_allowed)
{
    for (int64_t k = 0; k < n; k++)
        if (isnan(x[k]) || (isinf(x[k]) && !is_infinity_allowed)) return false;
    return true;
}

static void quantize_tokens(void *ctx, int64_t begin, int64_t end, int thread)
{
    const int_job *job = (const int_job *)ctx;
    const sw_weight *w = job->p->w;
    bool is_static = w->act.scope == SW_ACT_TENSOR;

    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        const float *x = job->p->x + m * job->p->x_stride;
        uint8_t *codes = (uint8_t *)(job->x + m * w->k_in);

        job->x_scale[m] = w->input_scale;
        if (is_finite(x, w->k_in, is_static)) {
            sw_act_quantize(codes, &job->x_scale[m], x, 0, 1, w->k_in, &w->act, w->input_scale);
        } else { /* a token that has no codes has no product */
            job->x_scale[m] = NAN;
            memset(codes, 0, (size_t)w->k_in);
        }
    }
}

static double dot(const int_job *job, const int16_t *row, int64_t m, int64_t n)
{
    const sw_tiles *t = job->p->w->tiles;
    const int8_t *x = job->x + m * t->k_in;
    int64_t group_elems = t->spec.group_elems ? t->spec.group_elems : t->k_in;
    double sum = 0;

    for (int64_t g = 0; g < t->n_groups; g++) {
        int64_t end = sw_min_i64((g + 1) * group_elems, t->k_in), whole = 0;

        for (int64_t k = g * group_elems; k < end; k++) whole += (int64_t)row[k] * x[k];
        sum += (double)whole * (double)sw_ref_scale(t, n, g);
    }
    return sum * (double)job->x_scale[m];
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const int_job *job = (const int_job *)ctx;
    const sw_gemm *p = job->p;
    int16_t *row = job->rows + thread * p->w->k_in;

    const sw_tiles *t = p->w->tiles;
    int64_t group_elems = t->spec.group_elems ? t->spec.group_elems : t->k_in;

    for (int64_t n = begin; n < end; n++) {
        for (int64_t k = 0; k < t->k_in; k++)
            row[k] = (int16_t)(sw_ref_code(t, n, k) - sw_ref_zero(t, n, k / group_elems));
        for (int64_t m = 0; m < p->m; m++)
            p->y[m * p->y_stride + n] = (float)dot(job, row, m, n);
    }
}

static size_t codes_bytes(const sw_gemm *p)
{
    return (size_t)sw_round_up(p->m * p->w->k_in, 64);
}

static size_t int_workspace_bytes(const sw_gemm *p)
{
    return codes_bytes(p) + (size_t)p->m * sizeof(float) +
           (size_t)sw_kernel_threads(p) * (size_t)p->w->k_in * sizeof(int16_t);
}

static void int_run(const sw_gemm *p, void *workspace)
{
    uint8_t *at = (uint8_t *)workspace;
    int_job job = {.p = p, .x = (int8_t *)at};

    job.x_scale = (float *)(void *)(at += codes_bytes(p));
    job.rows = (int16_t *)(void *)(at + (size_t)p->m * sizeof(float));
    sw_parallel_for(sw_kernel_threads(p), p->m, 1, quantize_tokens, &job);
    sw_parallel_for(sw_kernel_threads(p), p->w->n_out, 8, run_rows, &job);
}

#define REFERENCE(id)                                                                    \
    bool sw_##id##_can_run(const sw_gemm *p) { (void)p; return true; }                   \
    size_t sw_##id##_workspace_bytes(const sw_gemm *p) { return int_workspace_bytes(p); } \
    void sw_##id##_run(const sw_gemm *p, void *workspace) { int_run(p, workspace); }

REFERENCE(w4a8_ref)
REFERENCE(w8a8_ref)
