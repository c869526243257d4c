/* outputs.c - the output error of each quantized linear, on the original's inputs. See
 * perplexity.h. */
#include <math.h>
#include <string.h>

#include "formats/base/size.h"
#include "formats/num/num.h"
#include "verify/metrics/perplexity.h"

#define TOKENS_WANTED 1024

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

/* Y = X W^T without bias, into a buffer of its own. */
static sw_code product(float **out, output_job *job, const sw_weight *w, const float *x,
                       int64_t n_tokens, sw_err *err)
{
    sw_weight plain = *w;
    sw_gemm p = {.m = n_tokens, .x = x, .x_stride = w->k_in, .y_stride = w->n_out, .w = &plain,
                 .n_threads = job->n_threads};
    sw_code rc = SW_MEM_GET(out, n_tokens * w->n_out, "outputs of a linear", err);

    plain.bias = NULL;
    p.y = *out;
    return rc == SW_OK ? sw_gemm_run(&p, &job->scratch, err) : rc;
}

/* The error is the product with W' - W, not a difference of products: at 8 bits float rounding
 * would be half of the latter. */
static sw_code add_linear(output_job *job, int64_t i, const float *x, int64_t n_tokens,
                          sw_err *err)
{
    const sw_linear_ref *ref = &job->linears[i].ref;
    sw_weight *w = sw_block_weight(&job->original->blocks[ref->layer], ref->slot, ref->expert);
    sw_vec_sums *sums = &job->sums[job->tensor_of[i]];
    float *original = NULL, *y = NULL, *dy = NULL;
    int64_t n = ref->n_out * ref->k_in;
    sw_spec_weight decoded = {0};
    sw_weight diff = {.n_out = ref->n_out, .k_in = ref->k_in, .dense_dtype = SW_DTYPE_F32};
    sw_code rc;

    if ((rc = sw_spec_decode(&decoded, &job->checkpoint->scheme, job->checkpoint->st,
                             job->linears[i].path, ref->n_out, ref->k_in, err)) != SW_OK ||
        (rc = SW_MEM_GET(&original, n, "original weight", err)) != SW_OK ||
        (rc = sw_float_decode_n(original, w->dense, w->dense_dtype, n, err)) != SW_OK)
        goto done;
    sw_rescale_back(decoded.values, job->rescale, ref);
    for (int64_t j = 0; j < n; j++) decoded.values[j] -= original[j];
    diff.dense = decoded.values;
    if ((rc = product(&y, job, w, x, n_tokens, err)) != SW_OK ||
        (rc = product(&dy, job, &diff, x, n_tokens, err)) != SW_OK)
        goto done;
    for (int64_t j = 0; j < n_tokens * ref->n_out; j++) {
        sums->err2 += (double)dy[j] * (double)dy[j];
        sums->want2 += (double)y[j] * (double)y[j];
    }
done:
    sw_spec_weight_free(&decoded);
    sw_mem_put(original);
    sw_mem_put(y);
    sw_mem_put(dy);
    return rc;
}

static sw_code see(void *self, sw_site site, int64_t expert, const float *x, int64_t n_tokens,
                   int64_t k_in, const float *residual, const int32_t *token_ids, sw_err *err)
{
    output_job *job = self;
    sw_code rc = SW_OK;

    (void)residual;
    (void)token_ids;
    if (expert >= 0 && site == SW_SITE_MLP_IN)
        job->routed[job->layer * job->original->model->n_experts + expert] += n_tokens;
    for (int64_t i = 0; rc == SW_OK && i < job->n_linears; i++) {
        const sw_linear_ref *ref = &job->linears[i].ref;

        if (ref->layer == job->layer && ref->site == site && ref->expert == expert &&
            ref->k_in == k_in && job->tensor_of[i] >= 0)
            rc = add_linear(job, i, x, n_tokens, err);
    }
    return rc;
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
    int64_t n_seqs = sw_max_i64(1, TOKENS_WANTED / windows->length);
    sw_tap tap = {.self = job, .see = see};
    uint32_t *ids = NULL;
    sw_code rc;

    n_seqs = sw_min_i64(n_seqs, sw_windows_batch(windows));
    if ((rc = SW_MEM_GET(&ids, n_seqs * windows->length, "windows", err)) != SW_OK) return rc;
    sw_windows_copy(ids, windows, 0, n_seqs);
    rc = sw_engine_embed(r->engine, r->lm, r->x, ids, n_seqs, windows->length, 0, err);
    for (job->layer = 0; rc == SW_OK && job->layer < r->lm->model->n_layers; job->layer++)
        rc = sw_engine_block(r->engine, &r->lm->blocks[job->layer], r->x, n_seqs,
                             windows->length, NULL, &tap, SW_RUN_ALL, err);
    if (rc == SW_OK) count_routed(job, n_seqs * windows->length);
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
