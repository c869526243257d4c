/* outputs.c - the output error of each quantized linear, on the original's inputs. See
 * perplexity.h. */
#include <math.h>
#include <string.h>

#include "formats/base/parallel.h"
#include "formats/base/size.h"
#include "formats/num/num.h"
#include "verify/metrics/perplexity.h"

#define TOKENS_MAX 1024  /* that the original runs for it */
#define PRODUCT_TOKENS_MAX 512 /* of those that a linear reads, evenly spread */
#define LINEARS_MAX 4    /* that are decoded side by side, each twice over */

typedef struct output_job {
    sw_report *report;
    const sw_subject *checkpoint;
    const sw_rescale *rescale;
    const sw_lm *original;
    int n_threads;
    sw_subject_linear *linears; /* of the whole model, in block order */
    int64_t *tensor_of;         /* [n_linears] row of the report, or -1 */
    int64_t n_linears;
    int64_t layer;
    sw_vec_sums *sums;          /* [report->n_tensors] */
    int64_t *routed;            /* [n_layers, n_experts] tokens, or NULL */
    sw_scratch scratch;
} output_job;

/* A linear of the site that is seen: its original weight, and what the checkpoint's differs by. */
typedef struct output_linear {
    int64_t at;      /* in job->linears */
    float *original; /* [n_out, k_in] */
    sw_spec_weight decoded;
    sw_err err;
} output_linear;

/* What the site's linears read: every stride-th row. */
typedef struct seen_rows {
    const float *x;
    int64_t n, stride;
} seen_rows;

typedef struct decode_job {
    const output_job *job;
    output_linear *linears;
} decode_job;

static void linear_free(output_linear *l)
{
    sw_spec_weight_free(&l->decoded);
    sw_mem_put(l->original);
}

/* The error is the product with W' - W, not a difference of products: at 8 bits float rounding
 * would be half of the latter. */
static sw_code decode_linear(output_linear *l, const output_job *job)
{
    const sw_linear_ref *ref = &job->linears[l->at].ref;
    const sw_weight *w = sw_block_weight(&job->original->blocks[ref->layer], ref->slot,
                                         ref->expert);
    const int64_t n = ref->n_out * ref->k_in;
    sw_code rc;

    if ((rc = sw_spec_decode(&l->decoded, &job->checkpoint->scheme, job->checkpoint->st,
                             job->linears[l->at].path, ref->n_out, ref->k_in, &l->err)) != SW_OK ||
        (rc = SW_MEM_GET(&l->original, n, "original weight", &l->err)) != SW_OK ||
        (rc = sw_float_decode_n(l->original, w->dense, w->dense_dtype, n, &l->err)) != SW_OK)
        return rc;
    sw_rescale_back(l->decoded.values, job->rescale, ref);
    for (int64_t j = 0; j < n; j++) l->decoded.values[j] -= l->original[j];
    return SW_OK;
}

static void decode_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    const decode_job *d = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++) (void)decode_linear(&d->linears[i], d->job);
}

/* *sum += the squares of X W^T, without a bias. */
static sw_code add_product(double *sum, output_job *job, const float *values,
                           const sw_linear_ref *ref, const seen_rows *x, sw_err *err)
{
    const int64_t n = x->n * ref->n_out;
    sw_weight w = {.n_out = ref->n_out, .k_in = ref->k_in, .dense_dtype = SW_DTYPE_F32,
                   .dense = (float *)(uintptr_t)values};
    float *y = NULL;
    sw_gemm p = {.m = x->n, .x = x->x, .x_stride = x->stride * ref->k_in, .y_stride = ref->n_out,
                 .w = &w, .n_threads = job->n_threads};
    sw_code rc = SW_MEM_GET(&y, n, "outputs of a linear", err);

    p.y = y;
    if (rc == SW_OK) rc = sw_gemm_run(&p, &job->scratch, err);
    for (int64_t j = 0; j < n && rc == SW_OK; j++) *sum += (double)y[j] * (double)y[j];
    sw_mem_put(y);
    return rc;
}

static sw_code add_linear(output_job *job, const output_linear *l, const seen_rows *x,
                          sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[l->at].ref;
    sw_vec_sums *sums = &job->sums[job->tensor_of[l->at]];
    sw_code rc = add_product(&sums->want2, job, l->original, ref, x, err);

    return rc == SW_OK ? add_product(&sums->err2, job, l->decoded.values, ref, x, err) : rc;
}

/* n linears of one site: decoded side by side, multiplied one after the other. */
static sw_code add_linears(output_job *job, output_linear *linears, int n, const seen_rows *x,
                           sw_err *err)
{
    decode_job d = {job, linears};
    sw_code rc = SW_OK;

    sw_parallel_for(job->n_threads, n, 1, decode_some, &d);
    for (int i = 0; i < n; i++) {
        if (rc == SW_OK && linears[i].err.code != SW_OK) {
            *err = linears[i].err;
            rc = err->code;
        }
        if (rc == SW_OK) rc = add_linear(job, &linears[i], x, err);
        linear_free(&linears[i]);
    }
    return rc;
}

static bool is_seen(const output_job *job, int64_t i, sw_site site, int64_t expert, int64_t k_in)
{
    const sw_linear_ref *ref = &job->linears[i].ref;

    return ref->layer == job->layer && ref->site == site && ref->expert == expert &&
           ref->k_in == k_in && job->tensor_of[i] >= 0;
}

static sw_code see(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                   int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    output_job *job = self;
    const int64_t stride = sw_max_i64(1, sw_ceil_div(n_tokens, PRODUCT_TOKENS_MAX));
    const seen_rows rows = {x, sw_ceil_div(n_tokens, stride), stride};
    output_linear linears[LINEARS_MAX];
    sw_code rc = SW_OK;
    int n = 0;

    (void)residual;
    (void)token_ids;
    if (expert >= 0 && site == SW_SITE_MLP_IN)
        job->routed[job->layer * job->original->model->n_experts + expert] += n_tokens;
    for (int64_t i = 0; i < job->n_linears && n_tokens && rc == SW_OK; i++) {
        if (is_seen(job, i, site, expert, k_in)) linears[n++] = (output_linear){.at = i};
        if (n < LINEARS_MAX) continue;
        rc = add_linears(job, linears, n, &rows, err);
        n = 0;
    }
    return rc == SW_OK ? add_linears(job, linears, n, &rows, err) : rc;
}

/* Report rows stand in the order of the linears, with those left out that are not quantized. */
static sw_code match_tensors(output_job *job, sw_arena *arena, sw_err *err)
{
    const sw_model *m = job->original->model;
    int64_t at = 0, n_routed = m->n_layers * m->n_experts;
    sw_code rc;

    if ((rc = sw_subject_linears(&job->linears, &job->n_linears, &job->checkpoint->model, arena,
                                 err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&job->tensor_of, arena, job->n_linears + 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&job->sums, arena, job->report->n_tensors + 1, err)) != SW_OK ||
        (rc = SW_ARENA_TAKE(&job->routed, arena, n_routed + 1, err)) != SW_OK)
        return rc;
    for (int64_t i = 0; i < job->n_linears; i++) {
        bool is_next = at < job->report->n_tensors &&
                       !strcmp(job->report->tensors[at].name, job->linears[i].path);

        job->tensor_of[i] = is_next ? at++ : -1;
    }
    return SW_OK;
}

/* Into the report: how many tokens each expert got. */
static void count_routed(const output_job *job, int64_t n_tokens)
{
    const sw_model *m = job->original->model;
    sw_report_experts *x = &job->report->experts;

    x->n_tokens = n_tokens;
    for (int64_t i = 0; i < m->n_layers * m->n_experts; i++) {
        if (!sw_model_is_sparse(m, i / m->n_experts)) continue;
        if (!x->n_experts || job->routed[i] < x->tokens_min) x->tokens_min = job->routed[i];
        x->tokens_max = sw_max_i64(x->tokens_max, job->routed[i]);
        x->n_unreached += job->routed[i] == 0;
        x->n_experts++;
    }
}

static sw_code run_tapped(output_job *job, sw_runner *r, const sw_windows *windows, sw_err *err)
{
    const int64_t length = sw_min_i64(windows->length, TOKENS_MAX);
    int64_t n_seqs = TOKENS_MAX / length;
    sw_tap tap = {.self = job, .see = see};
    uint32_t *ids = NULL;
    sw_code rc;

    n_seqs = sw_min_i64(n_seqs, sw_windows_batch(windows));
    if ((rc = SW_MEM_GET(&ids, n_seqs * windows->length, "windows", err)) != SW_OK) return rc;
    sw_windows_copy(ids, windows, 0, n_seqs);
    rc = sw_engine_embed(r->engine, r->lm, r->x, ids, n_seqs, length, 0, err);
    for (job->layer = 0; rc == SW_OK && job->layer < r->lm->model->n_layers; job->layer++)
        rc = sw_engine_block(r->engine, &r->lm->blocks[job->layer], r->x, n_seqs, length, NULL,
                             &tap, SW_RUN_ALL, err);
    if (rc == SW_OK) count_routed(job, n_seqs * length);
    sw_mem_put(ids);
    return rc;
}

sw_code sw_output_errors(sw_report *report, const sw_lm *original, const sw_subject *checkpoint,
                         const sw_rescale *rescale, const sw_windows *windows, int n_threads,
                         sw_err *err)
{
    output_job job = {.report = report, .checkpoint = checkpoint, .rescale = rescale,
                      .original = original, .n_threads = n_threads};
    sw_arena arena = {0};
    sw_runner r = {0};
    sw_code rc;

    if ((rc = match_tensors(&job, &arena, err)) != SW_OK ||
        (rc = sw_runner_new(&r, original, windows, n_threads, err)) != SW_OK ||
        (rc = run_tapped(&job, &r, windows, err)) != SW_OK)
        goto done;
    for (int64_t i = 0; i < report->n_tensors; i++)
        if (job.sums[i].want2 > 0 || job.sums[i].err2 > 0)
            report->tensors[i].output_err = sw_vec_rel_err(&job.sums[i]);
done:
    sw_runner_free(&r);
    sw_scratch_free(&job.scratch);
    sw_arena_free(&arena);
    return rc;
}
