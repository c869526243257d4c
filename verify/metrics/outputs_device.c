/* outputs_device.c - errors of outputs on a device. See outputs_run.h.
 *
 * Values of linears are made by all threads of the processor, as many rows as fit a buffer (a
 * round), sent there as floats and multiplied with what linears read, in floats.
 */
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "kernels/solver.h"
#include "verify/metrics/outputs_run.h"

#define ROUND_SHARE 16 /* of the memory that is left, that a buffer of a round may take */
#define PIECES_MAX 64
#define PIECE_ROWS_MAX 16384 /* that outputs have room for */
#define ROWS_PER_ITEM 16     /* that one thread makes before it takes others */

/* Rows of a linear in a round. */
typedef struct piece {
    const sw_output_linear *l;
    int64_t row0, n_rows;
    int64_t first, at; /* its first row among the round's, its first element in the buffers */
} piece;

typedef struct device_run {
    sw_device *gpu;
    sw_solver *solver;
    sw_device_engine *engine;
    sw_runner runner;       /* that reads the embedding */
    float *d_x;             /* [n_seqs * seq_len, hidden] the residual stream */
    int64_t round_elems;
    float *values[2];       /* [round_elems] of the original, and what the checkpoint adds */
    float *d_values[2];
    float *levels;          /* [n_threads, k_most] */
    int64_t k_most;
    float *d_y;             /* [SW_OUTPUT_TOKENS_MAX, rows of a piece] */
    piece pieces[PIECES_MAX];
    int n_pieces;
    int64_t n_rows, n_elems; /* of the round */
} device_run;

static sw_code take(float **out, device_run *on, int64_t n, sw_err *err)
{
    return sw_device_take((void **)out, on->gpu, n, (int64_t)sizeof **out, "errors of outputs",
                          err);
}

static sw_code take_buffers(device_run *on, const sw_output_run *run, sw_err *err)
{
    const int64_t n_y = SW_OUTPUT_TOKENS_MAX * sw_min_i64(run->n_out_most, PIECE_ROWS_MAX);
    const int64_t n_x = run->n_seqs * run->seq_len * run->job->original->model->hidden;
    const int64_t share_bytes = sw_device_left_bytes(on->gpu) / ROUND_SHARE;
    sw_code rc;

    on->k_most = run->k_most;
    on->round_elems = sw_min_i64(SW_OUTPUT_ROUND_ELEMS, share_bytes / (int64_t)sizeof(float));
    on->round_elems = sw_max_i64(on->round_elems, run->k_most);
    if ((rc = SW_MEM_GET(&on->levels, run->job->n_threads * run->k_most, "levels", err)) != SW_OK ||
        (rc = take(&on->d_x, on, n_x, err)) != SW_OK ||
        (rc = take(&on->d_y, on, n_y, err)) != SW_OK)
        return rc;
    for (int i = 0; i < 2; i++)
        if ((rc = SW_MEM_GET(&on->values[i], on->round_elems, "values of linears", err)) != SW_OK ||
            (rc = take(&on->d_values[i], on, on->round_elems, err)) != SW_OK)
            return rc;
    return SW_OK;
}

static sw_code open_device(sw_output_run *run, sw_err *err)
{
    const sw_outputs_job *job = run->job;
    const sw_model *m = job->original->model;
    device_run *on = NULL;
    sw_code rc = SW_MEM_GET(&on, 1, "errors of outputs", err);

    if (rc != SW_OK) return rc;
    run->own = on;
    on->gpu = job->gpu;
    if ((rc = sw_device_engine_new(&on->engine, on->gpu, m, run->n_seqs * run->seq_len,
                                   run->seq_len, err)) != SW_OK)
        return rc;
    if ((rc = sw_solver_open(&on->solver, on->gpu, 0, err)) == SW_E_CUDA)
        rc = err->code = SW_E_UNSUPPORTED; /* a library is missing, which models run without */
    if (rc != SW_OK || (rc = take_buffers(on, run, err)) != SW_OK) return rc;
    return sw_runner_new(&on->runner, job->original, job->windows, job->n_threads, err);
}

static void close_device(sw_output_run *run)
{
    device_run *on = run->own;

    if (!on) return;
    for (int i = 0; i < 2; i++) {
        sw_device_put(on->gpu, on->d_values[i]);
        sw_mem_put(on->values[i]);
    }
    sw_device_put(on->gpu, on->d_x);
    sw_device_put(on->gpu, on->d_y);
    sw_mem_put(on->levels);
    sw_runner_free(&on->runner);
    sw_solver_close(on->solver);
    sw_device_engine_free(on->engine);
    sw_mem_put(on);
}

static sw_code see(void *self, sw_site site, int64_t expert, const void *d_x, int64_t n_tokens,
                   int64_t k_in, int64_t stride, const int32_t *token_ids, sw_err *err)
{
    (void)token_ids;
    return sw_output_see(self, site, expert, d_x, n_tokens, k_in, stride, err);
}

/* Rows of the embedding, and what tokens have besides, which the processor's engine makes. */
static sw_code embed(sw_output_run *run, sw_err *err)
{
    device_run *on = run->own;
    const sw_runner *r = &on->runner;
    const sw_model *m = r->lm->model;
    const int64_t n_tokens = run->n_seqs * run->seq_len;
    float *d_side = sw_device_engine_side(on->engine);
    sw_code rc = sw_engine_embed(r->engine, r->lm, r->x, run->ids, run->n_seqs, run->seq_len, 0,
                                 err);

    if (rc == SW_OK)
        rc = sw_device_upload(on->gpu, on->d_x, r->x,
                              n_tokens * m->hidden * (int64_t)sizeof *r->x, err);
    if (rc != SW_OK || !d_side) return rc;
    return sw_device_upload(on->gpu, d_side, sw_engine_side(r->engine),
                            n_tokens * sw_model_side_width(m) * (int64_t)sizeof *d_side, err);
}

static sw_code run_block(sw_output_run *run, const sw_block *block, sw_err *err)
{
    device_run *on = run->own;
    const sw_device_tap tap = {.self = run, .see = see};
    sw_device_block *there = NULL;
    sw_code rc = sw_device_block_load(&there, on->engine, block, err);

    if (rc == SW_OK)
        rc = sw_device_engine_block(on->engine, there, on->d_x, run->n_seqs, run->seq_len, &tap,
                                    SW_RUN_ALL, err);
    sw_device_block_free(there);
    return rc;
}

static sw_code run_device(sw_output_run *run, sw_err *err)
{
    const sw_lm *lm = run->job->original;
    const sw_progress *progress = run->job->progress;
    sw_code rc = embed(run, err);

    for (run->layer = 0; rc == SW_OK && run->layer < lm->model->n_layers; run->layer++)
        if ((rc = sw_progress_check(progress, err)) == SW_OK)
            rc = run_block(run, &lm->blocks[run->layer], err);
    return rc;
}

static sw_code keep_device(sw_output_run *run, sw_output_rows *rows, const void *x, int64_t stride,
                           int64_t every, sw_err *err)
{
    device_run *on = run->own;
    sw_code rc = take(&rows->x, on, rows->n * rows->k_in, err);

    if (rc != SW_OK) return rc;
    return sw_solver_watch_take(on->solver, rows->x, x, stride, 0, every, rows->n, rows->k_in, err);
}

static void drop_device(sw_output_run *run, sw_output_rows *rows)
{
    sw_device_put(run->job->gpu, rows->x);
    rows->x = NULL;
}

/* As many rows as fit, from *row on, which moves behind them; false: none do. */
static bool add_piece(device_run *on, const sw_output_linear *l, int64_t *row)
{
    const int64_t k_in = l->read->k_in, room = (on->round_elems - on->n_elems) / k_in;
    const int64_t left = l->original->n_out - *row;
    const int64_t n = sw_min_i64(left, sw_min_i64(room, PIECE_ROWS_MAX));

    if (n <= 0 || on->n_pieces == PIECES_MAX) return false;
    on->pieces[on->n_pieces++] = (piece){l, *row, n, on->n_rows, on->n_elems};
    on->n_rows += n;
    on->n_elems += n * k_in;
    *row += n;
    return true;
}

/* The piece of row i of the round. */
static const piece *piece_of(const device_run *on, int64_t i)
{
    int at = 0;

    while (at + 1 < on->n_pieces && on->pieces[at + 1].first <= i) at++;
    return &on->pieces[at];
}

static void make_values(void *ctx, int64_t begin, int64_t end, int thread)
{
    const device_run *on = ctx;

    for (int64_t i = begin; i < end; i++) {
        const piece *p = piece_of(on, i);
        const int64_t at = p->at + (i - p->first) * p->l->read->k_in;

        sw_output_values(on->values[0] + at, on->values[1] + at, on->levels + thread * on->k_most,
                         p->l, p->row0 + (i - p->first));
    }
}

/* *sum += the squares of X W^T, W rows of a piece. */
static sw_code add_product(double *sum, device_run *on, const piece *p, const float *d_values,
                           sw_err *err)
{
    const sw_output_rows *read = p->l->read;
    double by_row[SW_OUTPUT_TOKENS_MAX] = {0};
    sw_code rc = sw_solver_multiply(on->solver, on->d_y, read->x, d_values + p->at, read->n,
                                    p->n_rows, read->k_in, err);

    if (rc == SW_OK)
        rc = sw_solver_row_errors(by_row, on->solver, on->d_y, NULL, read->n, p->n_rows, err);
    for (int64_t i = 0; i < read->n && rc == SW_OK; i++) *sum += by_row[i];
    return rc;
}

static sw_code multiply_round(device_run *on, int n_threads, sw_err *err)
{
    sw_span span = sw_span_open("values of linears");
    sw_code rc = SW_OK;

    sw_parallel_for(n_threads, on->n_rows, ROWS_PER_ITEM, make_values, on);
    sw_span_close(span, NULL);
    span = sw_span_open("multiply outputs");
    for (int i = 0; i < 2 && rc == SW_OK; i++)
        rc = sw_device_upload(on->gpu, on->d_values[i], on->values[i],
                              on->n_elems * (int64_t)sizeof *on->values[i], err);
    for (int i = 0; i < on->n_pieces && rc == SW_OK; i++) {
        const piece *p = &on->pieces[i];

        if ((rc = add_product(&p->l->sums->want2, on, p, on->d_values[0], err)) == SW_OK)
            rc = add_product(&p->l->sums->err2, on, p, on->d_values[1], err);
    }
    on->n_pieces = 0;
    on->n_rows = on->n_elems = 0;
    sw_span_close(span, NULL);
    return rc;
}

static sw_code multiply_device(sw_output_run *run, sw_err *err)
{
    device_run *on = run->own;
    int64_t at = 0, row = 0;
    sw_code rc = SW_OK;

    while (at < run->n_waiting && rc == SW_OK) {
        const sw_output_linear *l = &run->waiting[at];

        if (!add_piece(on, l, &row)) rc = multiply_round(on, run->job->n_threads, err);
        if (row < l->original->n_out) continue;
        at++;
        row = 0;
    }
    return rc == SW_OK ? multiply_round(on, run->job->n_threads, err) : rc;
}

const sw_output_backend sw_outputs_device = {open_device, close_device, run_device, keep_device,
                                             drop_device, multiply_device};
