/* outputs.c - see outputs.h: which linears read what, and what comes of it. */
#include "verify/metrics/outputs.h"

#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/io/profile.h"
#include "formats/num/num.h"
#include "verify/metrics/outputs_run.h"

#define TOKENS_MAX 1024 /* that the original runs for it */
#define WAITING_MAX 64  /* linears that are decoded side by side; more would cost more memory */

void sw_output_values(float *original, float *difference, float *levels, const sw_output_linear *l,
                      int64_t n)
{
    const sw_weight *w = l->original;
    const sw_linear_rows decoded = sw_linear_rows_lent(&l->decoded, levels);
    const int64_t k_in = w->k_in, row_bytes = k_in * (sw_dtype_bits(w->dense_dtype) / 8);

    if (sw_float_decode_n(original, (const char *)w->dense + n * row_bytes, w->dense_dtype, k_in,
                          NULL) != SW_OK)
        memset(original, 0, (size_t)k_in * sizeof *original); /* never: tried in open_linear */
    sw_linear_rows_get(difference, &decoded, n, 0, k_in);
    sw_rescale_back(difference, l->columns, l->rows, n, k_in);
    for (int64_t k = 0; k < k_in; k++) difference[k] -= original[k];
}

static sw_code open_linear(sw_output_linear *l, const sw_outputs_job *job)
{
    float none;
    sw_code rc = sw_float_decode_n(&none, &none, l->original->dense_dtype, 0, &l->err);

    l->columns = sw_rescale_columns(job->rescale, &l->linear->ref);
    l->rows = sw_rescale_rows(job->rescale, &l->linear->ref);
    return rc == SW_OK ? sw_linear_rows_open(&l->decoded, job->checkpoint, l->linear, &l->err) : rc;
}

static void open_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const sw_output_run *run = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++) /* errors stay with the linear */
        if (open_linear(&run->waiting[i], run->job) != SW_OK) continue;
}

static sw_code decode_waiting(sw_output_run *run, sw_err *err)
{
    sw_span span = sw_span_open("decode linears");

    sw_parallel_for(run->job->n_threads, run->n_waiting, 1, open_some, run);
    sw_span_close(span, NULL);
    for (int64_t i = 0; i < run->n_waiting; i++) {
        if (run->waiting[i].err.code == SW_OK) continue;
        *err = run->waiting[i].err;
        return err->code;
    }
    return SW_OK;
}

static void forget_waiting(sw_output_run *run)
{
    for (int64_t i = 0; i < run->n_waiting; i++) sw_linear_rows_free(&run->waiting[i].decoded);
    for (int64_t i = 0; i < run->n_kept; i++) run->backend->drop(run, &run->kept[i]);
    run->n_waiting = run->n_kept = 0;
}

static sw_code judge_waiting(sw_output_run *run, sw_err *err)
{
    sw_code rc;

    if (!run->n_waiting) return SW_OK;
    if ((rc = decode_waiting(run, err)) == SW_OK) rc = run->backend->multiply(run, err);
    forget_waiting(run);
    return rc;
}

static bool is_seen(const sw_output_run *run, int64_t i, sw_site site, int64_t expert, int64_t k_in)
{
    const sw_linear_ref *ref = &run->linears[i].ref;

    return ref->layer == run->layer && ref->site == site && ref->expert == expert &&
           ref->k_in == k_in && run->tensor_of[i] >= 0;
}

static void let_wait(sw_output_run *run, int64_t i, const sw_output_rows *read)
{
    const sw_linear_ref *ref = &run->linears[i].ref;
    sw_block *block = &run->job->original->blocks[ref->layer];

    run->waiting[run->n_waiting++] = (sw_output_linear){
        .linear = &run->linears[i], .read = read, .sums = &run->sums[i],
        .original = sw_block_weight(block, ref->slot, ref->expert)};
}

sw_code sw_output_see(sw_output_run *run, sw_site site, int64_t expert, const void *x,
                      int64_t n_tokens, int64_t k_in, int64_t stride, sw_err *err)
{
    const int64_t every = sw_max_i64(1, sw_ceil_div(n_tokens, SW_OUTPUT_TOKENS_MAX));
    const int64_t n_side = sw_min_i64(run->job->n_threads, WAITING_MAX);
    sw_output_rows *rows = &run->kept[run->n_kept];
    const int64_t n_before = run->n_waiting;
    sw_code rc;

    if (expert >= 0 && site == SW_SITE_MLP_IN)
        run->routed[run->layer * run->job->original->model->n_experts + expert] += n_tokens;
    for (int64_t i = 0; i < run->n_linears && n_tokens; i++)
        if (is_seen(run, i, site, expert, k_in)) let_wait(run, i, rows);
    if (run->n_waiting == n_before) return SW_OK;
    *rows = (sw_output_rows){.n = sw_ceil_div(n_tokens, every), .k_in = k_in};
    run->n_kept++;
    rc = run->backend->keep(run, rows, x, stride, every, err);
    return rc == SW_OK && run->n_waiting >= n_side ? judge_waiting(run, err) : rc;
}

/* Report rows stand in the order of the linears, with those left out that are not quantized. */
static void match_tensors(sw_output_run *run, const sw_report *report)
{
    int64_t at = 0;

    for (int64_t i = 0; i < run->n_linears; i++) {
        const sw_linear_ref *ref = &run->linears[i].ref;
        const bool is_next = at < report->n_tensors &&
                             !strcmp(report->tensors[at].name, run->linears[i].path);

        run->tensor_of[i] = is_next ? at++ : -1;
        if (!is_next) continue;
        run->k_most = sw_max_i64(run->k_most, ref->k_in);
        run->n_out_most = sw_max_i64(run->n_out_most, ref->n_out);
    }
}

static sw_code take_arrays(sw_output_run *run, sw_err *err)
{
    const sw_model *m = run->job->original->model;
    sw_arena *arena = &run->arena;
    sw_code rc = sw_subject_linears(&run->linears, &run->n_linears, &run->job->checkpoint->model,
                                    arena, err);
    const int64_t n = run->n_linears + 1;

    if (rc != SW_OK || (rc = SW_ARENA_TAKE(&run->tensor_of, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&run->sums, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&run->waiting, arena, n, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&run->kept, arena, n, err)) != SW_OK)
        return rc;
    return SW_ARENA_TAKE(&run->routed, arena, m->n_layers * m->n_experts + 1, err);
}

static sw_code take_tokens(sw_output_run *run, sw_err *err)
{
    const sw_windows *w = run->job->windows;
    sw_code rc;

    run->seq_len = sw_min_i64(w->length, TOKENS_MAX);
    run->n_seqs = sw_min_i64(TOKENS_MAX / run->seq_len, sw_windows_batch(w));
    rc = SW_ARENA_TAKE(&run->ids, &run->arena, run->n_seqs * w->length, err);
    if (rc == SW_OK) sw_windows_copy(run->ids, w, 0, run->n_seqs);
    return rc;
}

/* Into the report: how many tokens each expert got. */
static void count_routed(sw_report_experts *x, const sw_output_run *run)
{
    const sw_model *m = run->job->original->model;

    x->n_tokens = run->n_seqs * run->seq_len;
    for (int64_t i = 0; i < m->n_layers * m->n_experts; i++) {
        if (!sw_model_is_sparse(m, i / m->n_experts)) continue;
        if (!x->n_experts || run->routed[i] < x->tokens_min) x->tokens_min = run->routed[i];
        x->tokens_max = sw_max_i64(x->tokens_max, run->routed[i]);
        x->n_unreached += run->routed[i] == 0;
        x->n_experts++;
    }
}

static void fill_report(sw_report *report, const sw_output_run *run)
{
    for (int64_t i = 0; i < run->n_linears; i++)
        if (run->tensor_of[i] >= 0 && (run->sums[i].want2 > 0 || run->sums[i].err2 > 0))
            report->tensors[run->tensor_of[i]].output_err = sw_vec_rel_err(&run->sums[i]);
    count_routed(&report->experts, run);
}

static sw_code run_on(const sw_output_backend *backend, sw_report *report,
                      const sw_outputs_job *job, sw_err *err)
{
    sw_output_run run = {.job = job, .backend = backend};
    sw_code rc;

    if ((rc = take_arrays(&run, err)) != SW_OK) goto done;
    match_tensors(&run, report);
    if ((rc = take_tokens(&run, err)) != SW_OK || (rc = backend->open(&run, err)) != SW_OK ||
        (rc = backend->run(&run, err)) != SW_OK || (rc = judge_waiting(&run, err)) != SW_OK)
        goto done;
    fill_report(report, &run);
done:
    forget_waiting(&run);
    backend->close(&run);
    sw_arena_free(&run.arena);
    return rc;
}

sw_code sw_output_errors(sw_report *report, const sw_outputs_job *job, sw_err *err)
{
    sw_err why = {0};
    sw_code rc;

    if (!job->gpu) return run_on(&sw_outputs_cpu, report, job, err);
    rc = run_on(&sw_outputs_device, report, job, &why);
    if (rc != SW_E_UNSUPPORTED && rc != SW_E_NOMEM) {
        if (rc != SW_OK) *err = why;
        return rc;
    }
    sw_progress_note(job->progress, "errors of outputs are computed by the processor, not by the "
                     "device: %s", why.text);
    return run_on(&sw_outputs_cpu, report, job, err);
}
