/* gated_norm.c - see gated_norm.h. */
#include "kernels/engine/mixers/gated_norm.h"

#include "formats/base/parallel.h"

#define ROWS_PER_TASK 16

static void gate_row(const sw_gated_norm *j, float *x, float *z)
{
    if (j->is_sigmoid)
        j->vec->sigmoid(z, j->width);
    else
        j->vec->silu(z, j->width);
    j->vec->mul(x, z, j->width);
}

static void norm_row(const sw_gated_norm *j, float *x)
{
    for (int64_t at = 0; at < j->width; at += j->group)
        j->vec->rms_norm(x + at, x + at, j->w + at % j->w_width, j->group, (float)j->eps);
}

static void run_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_gated_norm *j = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *x = j->x + i * j->width, *z = j->z + i * j->z_stride;

        if (j->gates_first) gate_row(j, x, z);
        if (j->w) norm_row(j, x);
        if (!j->gates_first) gate_row(j, x, z);
    }
}

void sw_gated_norm_run(const sw_gated_norm *job)
{
    sw_gated_norm j = *job;

    sw_parallel_for(j.n_threads, j.n, ROWS_PER_TASK, run_rows, &j);
}
