/* outputs_cpu.c - errors of outputs by the processor. See outputs_run.h.
 *
 * Each item is a slab of channels of one linear: its values are made, multiplied and summed by one
 * thread, while they are in its cache. Slabs are those of the products' own panels, and summed in
 * their order, so that neither their number nor that of threads shows.
 */
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "verify/metrics/outputs_run.h"

#define SLAB_ROWS 128

typedef struct worker {
    float *original, *difference; /* [SLAB_ROWS, k_most] */
    float *levels;                /* [k_most] */
    float *y;                     /* [SW_OUTPUT_TOKENS_MAX, SLAB_ROWS] */
    sw_scratch scratch;
    sw_err err;
} worker;

typedef struct cpu_run {
    sw_runner runner;
    worker *workers; /* [n_threads] */
    int n_threads;
    float *memory;   /* of the workers */
} cpu_run;

typedef struct slab {
    const sw_output_linear *l;
    int64_t row0, n_rows;
    double want2, err2;
} slab;

typedef struct slab_job {
    cpu_run *on;
    slab *slabs;
} slab_job;

static sw_code take_workers(cpu_run *on, int64_t k_most, sw_err *err)
{
    const int64_t n_values = SLAB_ROWS * k_most, n_y = SW_OUTPUT_TOKENS_MAX * SLAB_ROWS;
    const int64_t n_each = 2 * n_values + k_most + n_y;
    sw_code rc;

    if ((rc = SW_MEM_GET(&on->workers, on->n_threads, "workers", err)) != SW_OK ||
        (rc = SW_MEM_GET(&on->memory, on->n_threads * n_each, "slabs of linears", err)) != SW_OK)
        return rc;
    for (int i = 0; i < on->n_threads; i++) {
        float *at = on->memory + i * n_each;

        on->workers[i].original = at;
        on->workers[i].difference = at + n_values;
        on->workers[i].levels = at + 2 * n_values;
        on->workers[i].y = at + 2 * n_values + k_most;
    }
    return SW_OK;
}

static sw_code open_cpu(sw_output_run *run, sw_err *err)
{
    const sw_outputs_job *job = run->job;
    cpu_run *on = NULL;
    sw_code rc = SW_MEM_GET(&on, 1, "errors of outputs", err);

    if (rc != SW_OK) return rc;
    run->own = on;
    on->n_threads = job->n_threads > 1 ? job->n_threads : 1;
    if ((rc = take_workers(on, run->k_most, err)) != SW_OK) return rc;
    return sw_runner_new(&on->runner, job->original, job->windows, on->n_threads, err);
}

static void close_cpu(sw_output_run *run)
{
    cpu_run *on = run->own;

    if (!on) return;
    for (int i = 0; on->workers && i < on->n_threads; i++)
        sw_scratch_free(&on->workers[i].scratch);
    sw_runner_free(&on->runner);
    sw_mem_put(on->workers);
    sw_mem_put(on->memory);
    sw_mem_put(on);
}

static sw_code see(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                   int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    (void)residual;
    (void)token_ids;
    return sw_output_see(self, site, expert, x, n_tokens, k_in, k_in, err);
}

static sw_code run_cpu(sw_output_run *run, sw_err *err)
{
    const cpu_run *on = run->own;
    const sw_runner *r = &on->runner;
    const sw_tap tap = {.self = run, .see = see};
    sw_code rc = sw_engine_embed(r->engine, r->lm, r->x, run->ids, run->n_seqs, run->seq_len, 0,
                                 err);

    for (run->layer = 0; rc == SW_OK && run->layer < r->lm->model->n_layers; run->layer++) {
        if ((rc = sw_progress_check(run->job->progress, err)) != SW_OK) break;
        rc = sw_engine_block(r->engine, &r->lm->blocks[run->layer], r->x, run->n_seqs,
                             run->seq_len, NULL, &tap, SW_RUN_ALL, err);
    }
    return rc;
}

static sw_code keep_cpu(sw_output_run *run, sw_output_rows *rows, const void *x, int64_t stride,
                        int64_t every, sw_err *err)
{
    sw_code rc = SW_MEM_GET(&rows->x, rows->n * rows->k_in, "inputs of a linear", err);

    (void)run;
    for (int64_t i = 0; i < rows->n && rc == SW_OK; i++)
        memcpy(rows->x + i * rows->k_in, (const float *)x + i * every * stride,
               (size_t)rows->k_in * sizeof *rows->x);
    return rc;
}

static void drop_cpu(sw_output_run *run, sw_output_rows *rows)
{
    (void)run;
    sw_mem_put(rows->x);
    rows->x = NULL;
}

/* *sum = the squares of X W^T, without a bias. */
static void square_product(double *sum, worker *work, const float *values, const slab *s)
{
    const sw_output_rows *read = s->l->read;
    const sw_weight w = {.n_out = s->n_rows, .k_in = read->k_in, .dense_dtype = SW_DTYPE_F32,
                         .dense = values};
    const sw_gemm p = {.m = read->n, .x = read->x, .x_stride = read->k_in, .y = work->y,
                       .y_stride = s->n_rows, .w = &w, .n_threads = 1};

    if (work->err.code != SW_OK || sw_gemm_run(&p, &work->scratch, &work->err) != SW_OK) return;
    *sum = 0;
    for (int64_t i = 0; i < read->n * s->n_rows; i++)
        *sum += (double)work->y[i] * (double)work->y[i];
}

static void multiply_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const slab_job *job = ctx;
    worker *work = &job->on->workers[thread];

    for (int64_t i = begin; i < end; i++) {
        slab *s = &job->slabs[i];
        const int64_t k_in = s->l->read->k_in;

        for (int64_t n = 0; n < s->n_rows; n++)
            sw_output_values(work->original + n * k_in, work->difference + n * k_in, work->levels,
                             s->l, s->row0 + n);
        square_product(&s->want2, work, work->original, s);
        square_product(&s->err2, work, work->difference, s);
    }
}

static int64_t slabs_of(const sw_output_linear *l)
{
    return sw_ceil_div(l->original->n_out, SLAB_ROWS);
}

static void cut_into_slabs(slab *slabs, const sw_output_linear *l)
{
    const int64_t n_out = l->original->n_out;

    for (int64_t row = 0; row < n_out; row += SLAB_ROWS)
        *slabs++ = (slab){.l = l, .row0 = row, .n_rows = sw_min_i64(SLAB_ROWS, n_out - row)};
}

static sw_code multiply_cpu(sw_output_run *run, sw_err *err)
{
    sw_span span = sw_span_open("multiply outputs");
    slab_job job = {.on = run->own};
    int64_t n = 0;
    sw_code rc;

    for (int64_t i = 0; i < run->n_waiting; i++) n += slabs_of(&run->waiting[i]);
    if ((rc = SW_MEM_GET(&job.slabs, n, "slabs of linears", err)) != SW_OK) goto done;
    n = 0;
    for (int64_t i = 0; i < run->n_waiting; n += slabs_of(&run->waiting[i++]))
        cut_into_slabs(job.slabs + n, &run->waiting[i]);
    sw_parallel_for(job.on->n_threads, n, 1, multiply_some, &job);
    for (int i = 0; i < job.on->n_threads && rc == SW_OK; i++) {
        rc = job.on->workers[i].err.code;
        if (rc != SW_OK) *err = job.on->workers[i].err;
    }
    for (int64_t i = 0; i < n && rc == SW_OK; i++) {
        job.slabs[i].l->sums->want2 += job.slabs[i].want2;
        job.slabs[i].l->sums->err2 += job.slabs[i].err2;
    }
done:
    sw_mem_put(job.slabs);
    sw_span_close(span, NULL);
    return rc;
}

const sw_output_backend sw_outputs_cpu = {open_cpu, close_cpu, run_cpu, keep_cpu, drop_cpu,
                                          multiply_cpu};
